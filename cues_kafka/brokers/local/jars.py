"""The broker's jars: four ways to get them, one list of hashes that they must match.

In this order: `CUES_KAFKA_HOME`, the user's cache, Maven, the Ivy that lies in an installed pyspark. Maven and Ivy use
whatever repositories the user configured for them; no address is known here. Whichever way a jar came, and every time
that it is used, it is checked against ``broker-4.3.1.lock``.
"""

from __future__ import annotations

import fcntl
import hashlib
import html
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from cues_kafka.brokers.local.java import FROM_PACKAGE, Java, package_file
from cues_kafka.brokers.local.trust import trust_options
from cues_kafka.errors import ConfigError

VERSION = "4.3.1"
HERE = Path(__file__).parent
LOCK = HERE / f"broker-{VERSION}.lock"
FETCH_TIMEOUT_S = 900.0
"""45 MB over a slow line, with a resolver that first reads some 100 small files."""

Say = Callable[[str], None]
log = logging.getLogger("cues_kafka.brokers.local")


@dataclass(frozen=True, slots=True)
class Locked:
    """What the lock file says of one jar."""

    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Jars:
    """Jars that were checked: the class path in a fixed order, and where they came from, for messages."""

    files: tuple[Path, ...]
    origin: str

    @property
    def class_path(self) -> str:
        """The value of ``-cp``. Spelled out: a class archive asks for one fixed order."""
        return os.pathsep.join(str(file) for file in self.files)


class _NotThisWay(Exception):
    """One way to the jars is closed; the text says why."""


def cache_dir(env: Mapping[str, str] = os.environ) -> Path:
    """Where downloads and prepared directories are kept: `CUES_KAFKA_CACHE`, else the user's cache directory."""
    given = env.get("CUES_KAFKA_CACHE")
    return Path(given) if given else platformdirs.user_cache_path("cues_kafka")


def read_lock(file: Path = LOCK) -> dict[str, Locked]:
    """The lock file: jar name -> hash and size."""
    lines = [line.split() for line in file.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    return {name: Locked(sha256, int(size)) for sha256, size, name in lines}


def find_jars(java: Java, env: Mapping[str, str] = os.environ, *, say: Say = log.info) -> Jars:
    """
    The broker's jars, the first way that works.

    Args:
        java: runs Ivy, and Maven where no JAVA_HOME is set.
        env: the environment; Maven and Ivy get it as it is.
        say: is told of what takes long.

    Raises:
        ConfigError: a jar does not match the lock file (it is named), or no way worked (all are named).
    """
    if home := env.get("CUES_KAFKA_HOME"):
        return _from_home(Path(home), say)
    target = cache_dir(env) / "jars" / f"broker-{VERSION}"
    if target.is_dir():
        return _checked(target, origin=f"cache {target}", remedy=f"Remove {target}; the next start fetches them again.")
    with exclusive(target.with_name(f"{target.name}.lock")):
        if not target.is_dir():  # Another process may have filled it while this one waited.
            _fill(target, java, env, say)
    return find_jars(java, env, say=say)


def _fill(target: Path, java: Java, env: Mapping[str, str], say: Say) -> None:
    """Fetch into a directory beside `target`, check, rename: `target` is either whole or absent."""
    reasons = ["  CUES_KAFKA_HOME: not set", f"  cache: no {target}"]
    for name, fetch in (("Maven", _with_maven), ("Ivy of pyspark", _with_ivy)):
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=target.parent) as work:
            jars = Path(work) / "jars"
            jars.mkdir()
            try:
                fetch(jars, Path(work), java, env, say)
            except _NotThisWay as reason:
                reasons.append(f"  {name}: {reason}")
                log.warning("jars_not_fetched way=%r reason=%r", name, str(reason))
                continue
            _checked(jars, origin=name, remedy=f"What {name} brought cannot be trusted: look at its repository.")
            jars.rename(target)
            return
    raise ConfigError(
        f"The jars of Apache Kafka {VERSION} are not there, and no way to them worked:\n" + "\n".join(reasons) + "\n"
        "Do one of these: unpack an Apache Kafka distribution and set CUES_KAFKA_HOME to it; copy the cache of "
        "a machine that has it; install Maven (`mvn` on PATH); `pip install pyspark` (its Ivy is used; "
        "CUES_KAFKA_MAVEN_MIRROR names a mirror). Or set CUES_KAFKA_BOOTSTRAP to a broker that runs already."
    )


def _with_maven(jars: Path, work: Path, java: Java, env: Mapping[str, str], say: Say) -> None:
    program = shutil.which("mvn", path=env.get("PATH", ""))
    if program is None:
        raise _NotThisWay("no `mvn` on PATH")
    say(f"fetching Apache Kafka {VERSION} (45 MB, once) with Maven")
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
    # -C: a checksum that differs is an error, not a warning.
    options = ["-B", "-q", "-C", "-f", str(HERE / "pom.xml"), goal, "-DincludeScope=runtime"]
    _run([program, *options, f"-DoutputDirectory={jars}"], work, {"JAVA_HOME": str(java.home), **env})
    _some(jars)


def _with_ivy(jars: Path, work: Path, java: Java, env: Mapping[str, str], say: Say) -> None:
    folder = package_file("pyspark", "jars")
    found = sorted(folder.glob("ivy-*.jar")) if folder else []
    if not found:
        raise _NotThisWay("pyspark is not installed" if folder is None else f"no ivy-*.jar in {folder}")
    say(f"fetching Apache Kafka {VERSION} (45 MB, once) with the Ivy of pyspark")
    settings: list[str] = []
    if mirror := env.get("CUES_KAFKA_MAVEN_MIRROR"):
        settings = ["-settings", str(_ivy_settings(work, mirror))]
    trust = trust_options(work / "trust.jks") if java.origin == FROM_PACKAGE else []
    command = [str(java.program), *trust, "-cp", str(found[-1]), "org.apache.ivy.Main", *settings]
    command += ["-cache", str(work / "ivy"), "-ivy", str(HERE / "ivy.xml"), "-confs", "default"]
    # Two words: "jar bundle" in one matches nothing and still exits with 0.
    command += ["-types", "jar", "bundle", "-retrieve", f"{jars}/[artifact]-[revision](-[classifier]).[ext]"]
    _run(command, work, env)
    _some(jars)


def _ivy_settings(work: Path, mirror: str) -> Path:
    """Settings with one resolver; without a given mirror Ivy runs on its own built-in settings."""
    file = work / "ivysettings.xml"
    file.write_text(
        '<ivysettings><settings defaultResolver="mirror"/><resolvers>'
        f'<ibiblio name="mirror" m2compatible="true" usepoms="true" root="{html.escape(mirror)}"/>'
        "</resolvers></ivysettings>\n",
        "utf-8",
    )
    return file


def _run(command: Sequence[str], work: Path, env: Mapping[str, str]) -> None:
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


def _some(jars: Path) -> None:
    """Ivy can fetch nothing and exit with 0."""
    if not any(jars.glob("*.jar")):
        raise _NotThisWay("it ended without an error and brought no jar")


def _from_home(home: Path, say: Say) -> Jars:
    files = sorted((home / "libs").glob("*.jar"))
    if not any(file.name.startswith("kafka_2.13-") for file in files):
        raise ConfigError(
            f"CUES_KAFKA_HOME={home} is not an unpacked Apache Kafka distribution: no libs/kafka_2.13-*.jar in it. "
            "Set it to the directory that holds bin, config and libs, or unset it."
        )
    lock = read_lock()
    known = [file for file in files if file.name in lock]
    _compare(known, lock, remedy="Unpack the distribution again, or unset CUES_KAFKA_HOME.")
    say(
        f"CUES_KAFKA_HOME={home}: {len(known)} of {len(files)} jars are in {LOCK.name} and match it, "
        "the others are unchecked"
    )
    return Jars(tuple(files), f"CUES_KAFKA_HOME={home}")


def _checked(folder: Path, *, origin: str, remedy: str) -> Jars:
    """All jars of a folder that must hold exactly what the lock file lists."""
    lock = read_lock()
    files = sorted(folder.glob("*.jar"))
    names = {file.name for file in files}
    if missing := sorted(lock.keys() - names):
        raise ConfigError(f"{origin}: missing {', '.join(missing)} ({LOCK.name}). {remedy}")
    if extra := sorted(names - lock.keys()):
        raise ConfigError(f"{origin}: {', '.join(extra)} is not in {LOCK.name}. {remedy}")
    _compare(files, lock, remedy=remedy)
    return Jars(tuple(files), origin)


def _compare(files: Sequence[Path], lock: Mapping[str, Locked], *, remedy: str) -> None:
    for file in files:
        data = file.read_bytes()
        want = lock[file.name]
        if len(data) != want.size or hashlib.sha256(data).hexdigest() != want.sha256:
            raise ConfigError(f"{file} is not the jar that {LOCK.name} lists: its SHA-256 or size differs. {remedy}")


@contextmanager
def exclusive(file: Path) -> Iterator[None]:
    """Hold a lock file: one process at a time; the system frees it when the process dies."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
