"""The broker's jars, which come from one of four places and must match the list of hashes of their version.

The places, in this order: `CUES_KAFKA_HOME`, the user's cache, Maven, the Ivy of an installed pyspark. Maven and Ivy
use the repositories that the user configured for them; this module knows no address. Each jar is checked against
``broker-VERSION.lock`` each time it is used. Other jars (`Wanted`) come from the last three places, with hashes of
their own.
"""

from __future__ import annotations

import fcntl
import hashlib
import html
import logging
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

import platformdirs

from cues_kafka.brokers.local.java import FROM_PACKAGE, NO_PERF_DATA, Java, package_file
from cues_kafka.brokers.local.progress import progress
from cues_kafka.brokers.local.trust import trust_options
from cues_kafka.errors import ConfigError

HERE = Path(__file__).parent
VERSION = "4.3.1"
"""The version of a broker that no other is asked of."""
FETCH_TIMEOUT_S = 900.0
"""Enough for 45 MB over a slow line, after a resolver has read about 100 small files."""

_KAFKA = re.compile(r"kafka_2\.13-(\d[\w.]*?)\.jar")
MAVEN_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"

Say = Callable[[str], None]
log = logging.getLogger("cues_kafka.brokers.local")


class Locked(NamedTuple):
    """The hash and the size of one jar, from the lock file."""

    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Jars:
    """Checked jars, in the order of the class path."""

    files: tuple[Path, ...]

    @property
    def class_path(self) -> str:
        """The value of ``-cp``, without a wildcard: a class archive needs one fixed order."""
        return os.pathsep.join(str(file) for file in self.files)


@dataclass(frozen=True, slots=True)
class Wanted:
    """
    Jars that are fetched together.

    Attributes:
        folder: their folder in the cache.
        listed: the name of the lock, for messages.
        maven: the goal and options for Maven.
        ivy: the options for Ivy.
        properties: what `ivy` reads in its files, as properties of Java.
        conf: Ivy's configuration, of those in its file.
        types: Ivy's types of the files.
        tried: what was tried before, a line each.
        otherwise: remedies beside the cache, Maven and Ivy, each a sentence.
    """

    name: str
    folder: str
    lock: Mapping[str, Locked]
    listed: str
    maven: tuple[str, ...]
    ivy: tuple[str, ...]
    tried: tuple[str, ...] = ()
    otherwise: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    conf: str = "default"
    # As one word, "jar bundle" matches nothing, and Ivy still exits with 0.
    types: tuple[str, ...] = ("jar", "bundle")

    @classmethod
    def artifact(cls, name: str, *, group: str, artifact: str, version: str, locked: Locked) -> Wanted:
        """One jar by its coordinates, without its dependencies."""
        return cls(
            name, f"{artifact}-{version}", {f"{artifact}-{version}.jar": locked}, "the pinned hash",
            maven=(f"{MAVEN_PLUGIN}:copy", f"-Dartifact={group}:{artifact}:{version}"),
            ivy=("-dependency", group, artifact, version),
        )  # fmt: skip


def versions() -> list[str]:
    """The versions of Apache Kafka whose jars this package knows by their hashes, the oldest first."""
    found = (file.stem.removeprefix("broker-") for file in HERE.glob("broker-*.lock"))
    return sorted(found, key=lambda version: [int(part) for part in version.split(".")])


def lock_of(version: str) -> Path:
    """
    The lock file of a version.

    Raises:
        ConfigError: this package does not know the jars of that version.
    """
    if version not in versions():
        raise ConfigError(
            f"A local broker of Kafka {version} cannot be started: its jars are not known. "
            f"Choose one of {', '.join(versions())}, or set CUES_KAFKA_HOME to an unpacked distribution."
        )
    return HERE / f"broker-{version}.lock"


def _broker(version: str) -> Wanted:
    """The artifacts of `pom.xml`, with their dependencies."""
    lock, old = lock_of(version), version.startswith("3.")
    return Wanted(
        f"Apache Kafka {version}", f"broker-{version}", read_lock(lock), lock.name,
        maven=(
            "-f", str(HERE / "pom.xml"), f"-Dkafka={version}", *(["-Plog4j1"] if old else []),
            f"{MAVEN_PLUGIN}:copy-dependencies", "-DincludeScope=runtime",
        ),
        ivy=("-ivy", str(HERE / "ivy.xml")),
        properties={"kafka": version},
        conf="log4j1" if old else "default",
        tried=("  CUES_KAFKA_HOME: not set",),
        otherwise="Or unpack an Apache Kafka distribution and set CUES_KAFKA_HOME to it. Or use a running broker, such "
        f"as one in a container: `docker run --detach --publish 127.0.0.1:9092:9092 apache/kafka:{version}`. "
        "Name it with --bootstrap localhost:9092, or with CUES_KAFKA_BOOTSTRAP.",
    )  # fmt: skip


class _NotThisWay(Exception):
    """Jars could not be fetched in one way; the text says why."""


def cache_dir(env: Mapping[str, str] = os.environ) -> Path:
    """The folder of downloads and prepared directories: `CUES_KAFKA_CACHE`, else the user's cache directory."""
    given = env.get("CUES_KAFKA_CACHE")
    return Path(given) if given else platformdirs.user_cache_path("cues_kafka")


def read_lock(file: Path) -> dict[str, Locked]:
    """Hash and size of each jar of a lock file, by name."""
    lines = [line.split() for line in file.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    return {name: Locked(sha256, int(size)) for sha256, size, name in lines}


def find_jars(
    java: Java, env: Mapping[str, str] = os.environ, *, version: str | None = None, say: Say = log.info
) -> Jars:
    """
    The broker's jars, from the first place that has them; `java` runs Ivy, and Maven if JAVA_HOME is not set.

    Args:
        java: a Java.
        env: the environment that names the places.
        version: of Apache Kafka, one of `versions`. None: that of CUES_KAFKA_HOME, else `VERSION`.
        say: is called before jars are fetched, and every few seconds until they are there.

    Raises:
        ConfigError: a jar does not match the lock file, or no place has them; the text names the jar or the places.
    """
    if home := env.get("CUES_KAFKA_HOME"):
        return _from_home(Path(home), version, say)
    return fetched(_broker(version or VERSION), java, env, say=say)


def fetched(wanted: Wanted, java: Java, env: Mapping[str, str] = os.environ, *, say: Say = log.info) -> Jars:
    """
    Jars from the user's cache, which Maven or Ivy fills the first time.

    Raises:
        ConfigError: as in `find_jars`.
    """
    target = cache_dir(env) / "jars" / wanted.folder
    if target.is_dir():
        remedy = f"Remove {target}; the next start fetches them again."
        return _checked(target, wanted, origin=f"cache {target}", remedy=remedy)
    with exclusive(target.with_name(f"{target.name}.lock"), say=say, waits_for=f"fetches {wanted.name}"):
        if not target.is_dir():  # another process may have filled it while this one waited
            _fill(target, wanted, java, env, say)
    return fetched(wanted, java, env, say=say)


def _fill(target: Path, wanted: Wanted, java: Java, env: Mapping[str, str], say: Say) -> None:
    """Fetch into a directory beside `target`, check, and rename, so that `target` is complete or absent."""
    reasons = [*wanted.tried, f"  cache: no {target}"]
    for name, command_of in (("Maven", _maven), ("pyspark's Ivy", _ivy)):
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=target.parent) as work:
            jars = Path(work) / "jars"
            jars.mkdir()
            try:
                command, environment = command_of(wanted, Path(work), jars, java, env)
                size = sum(locked.size for locked in wanted.lock.values()) / 1e6
                say(f"fetching {wanted.name} ({size:.0f} MB, once) with {name}")
                with progress(say, _so_far(wanted.name, Path(work), size)):
                    _run(command, work, environment)
                if not any(jars.iterdir()):  # Ivy can fetch nothing and exit with 0
                    raise _NotThisWay("it ended without an error, but fetched no jar")
            except _NotThisWay as reason:
                reasons.append(f"  {name}: {reason}")
                log.warning("jars_not_fetched way=%r reason=%r", name, str(reason))
                continue
            remedy = f"The jars that {name} fetched cannot be trusted: check its repository."
            _checked(jars, wanted, origin=name, remedy=remedy)
            jars.rename(target)
            return
    raise ConfigError(
        f"The jars of {wanted.name} are missing, and could not be fetched:\n" + "\n".join(reasons) + "\n"
        "Do one of these: copy the cache of a machine that has them; install Maven (`mvn` on PATH); "
        "`pip install pyspark` (its Ivy is used; CUES_KAFKA_MAVEN_MIRROR names a mirror). " + wanted.otherwise
    )


def _so_far(name: str, work: Path, size: float) -> Callable[[float], str]:
    """A line of how much has come; Maven keeps what has come in a place of its own until all is there."""

    def line(seconds: float) -> str:
        jars: dict[str, int] = {}
        for folder, _, names in os.walk(work):
            for jar in (name for name in names if ".jar" in name):
                with suppress(FileNotFoundError):  # it was renamed meanwhile
                    jars[jar] = Path(folder, jar).stat().st_size
        came = f"{sum(jars.values()) / 1e6:.0f} of {size:.0f} MB, " if jars else ""
        return f"still fetching {name}: {came}{seconds:.0f} s"

    return line


_Command: TypeAlias = tuple[list[str], Mapping[str, str]]
"""The arguments of a program, and its environment."""


def _maven(wanted: Wanted, _work: Path, jars: Path, java: Java, env: Mapping[str, str]) -> _Command:
    program = shutil.which("mvn", path=env.get("PATH", ""))
    if program is None:
        raise _NotThisWay("no `mvn` on PATH")
    options = f"{NO_PERF_DATA} {env.get('MAVEN_OPTS', '')}".strip()
    # -C: a wrong checksum is an error, not a warning.
    command = [program, "-B", "-q", "-C", *wanted.maven, f"-DoutputDirectory={jars}"]
    return command, {"JAVA_HOME": str(java.home), **env, "MAVEN_OPTS": options}


def _ivy(wanted: Wanted, work: Path, jars: Path, java: Java, env: Mapping[str, str]) -> _Command:
    folder = package_file("pyspark", "jars")
    found = sorted(folder.glob("ivy-*.jar")) if folder else []
    if not found:
        raise _NotThisWay("pyspark is not installed" if folder is None else f"no ivy-*.jar in {folder}")
    mirror = env.get("CUES_KAFKA_MAVEN_MIRROR")
    return [
        str(java.program), NO_PERF_DATA, f"-Djava.io.tmpdir={work}",
        *(trust_options(work / "trust.jks") if java.origin == FROM_PACKAGE else []),
        *(f"-D{name}={value}" for name, value in wanted.properties.items()),
        "-cp", str(found[-1]), "org.apache.ivy.Main",
        *(["-settings", str(_ivy_settings(work, mirror))] if mirror else []),
        "-cache", str(work / "ivy"), *wanted.ivy, "-confs", wanted.conf,
        "-types", *wanted.types, "-retrieve", f"{jars}/[artifact]-[revision](-[classifier]).[ext]",
    ], env  # fmt: skip


def _ivy_settings(work: Path, mirror: str) -> Path:
    """Settings with one resolver, the mirror; without a mirror Ivy uses its own settings."""
    file = work / "ivysettings.xml"
    file.write_text(
        '<ivysettings><settings defaultResolver="mirror"/><resolvers>'
        f'<ibiblio name="mirror" m2compatible="true" usepoms="true" root="{html.escape(mirror)}"/>'
        "</resolvers></ivysettings>\n",
        "utf-8",
    )
    return file


def _run(command: Sequence[str], work: str, env: Mapping[str, str]) -> None:
    try:
        done = subprocess.run(
            command, cwd=work, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", timeout=FETCH_TIMEOUT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _NotThisWay(str(error)) from error
    if done.returncode != 0:
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        raise _NotThisWay(f"exit code {done.returncode}: " + " / ".join(lines[-6:])[-1200:])


def _from_home(home: Path, version: str | None, say: Say) -> Jars:
    files = sorted((home / "libs").glob("*.jar"))
    found = next((name for file in files if (name := _KAFKA.fullmatch(file.name))), None)
    if found is None:
        raise ConfigError(
            f"CUES_KAFKA_HOME={home} is not an unpacked Apache Kafka distribution: it has no libs/kafka_2.13-*.jar. "
            "Set it to the directory that holds bin, config and libs, or unset it."
        )
    if version not in (None, found[1]):
        raise ConfigError(
            f"Kafka {version} was asked for, but CUES_KAFKA_HOME={home} holds {found[1]}. Unset CUES_KAFKA_HOME, or "
            "do not name a version."
        )
    wanted = _broker(found[1] if found[1] in versions() else VERSION)
    known = [file for file in files if file.name in wanted.lock]
    _compare(known, wanted, remedy="Unpack the distribution again, or unset CUES_KAFKA_HOME.")
    say(
        f"CUES_KAFKA_HOME={home}: {len(known)} of {len(files)} jars are in {wanted.listed} and match it; "
        "the others are not checked"
    )
    return Jars(tuple(files))


def _checked(folder: Path, wanted: Wanted, *, origin: str, remedy: str) -> Jars:
    """The jars of a folder, which must be exactly those of the lock."""
    files = sorted(folder.iterdir())
    names = {file.name for file in files}
    if missing := sorted(wanted.lock.keys() - names):
        raise ConfigError(f"{origin}: missing {', '.join(missing)} ({wanted.listed}). {remedy}")
    if extra := sorted(names - wanted.lock.keys()):
        raise ConfigError(f"{origin}: {', '.join(extra)} is not in {wanted.listed}. {remedy}")
    _compare(files, wanted, remedy=remedy)
    return Jars(tuple(files))


def _compare(files: Sequence[Path], wanted: Wanted, *, remedy: str) -> None:
    for file in files:
        data = file.read_bytes()
        want = wanted.lock[file.name]
        if len(data) != want.size or hashlib.sha256(data).hexdigest() != want.sha256:
            raise ConfigError(f"{file} is not the jar that {wanted.listed} names: SHA-256 or size differs. {remedy}")


@contextmanager
def exclusive(file: Path, *, say: Say = log.info, waits_for: str = "starts or stops a local broker") -> Iterator[None]:
    """
    Hold a lock file, one process at a time; the system releases it when the process ends.

    Args:
        file: the lock.
        say: takes a line every few seconds while another process has it.
        waits_for: what that process does.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as handle:
        with progress(say, lambda seconds: f"waiting for another process, which {waits_for}: {seconds:.0f} s"):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
