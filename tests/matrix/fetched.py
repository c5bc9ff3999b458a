"""Pythons and Javas that the machine lacks, from a newer Debian, unpacked into the cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.matrix.own_loader import with_own_loader
from tests.servers.packages import Release, place_of, unpacked


@dataclass(frozen=True, slots=True)
class Fetched:
    """A program of a package, the release that has it, and an expression for further packages that it needs."""

    package: str
    program: str
    release: Release
    also: str

    @property
    def is_here(self) -> bool:
        """Whether it was downloaded before."""
        return place_of(self.package, self.release).is_dir()

    def get(self) -> Path:
        """
        The program, downloaded the first time.

        Raises:
            ServerError: it cannot be had; the text says why.
        """
        root = unpacked(self.package, self.program, also=self.also, release=self.release).root
        return next(root.glob(self.program))


def _python(root: Path, target: Path) -> None:
    """Finish a Python. Its headers include one of a directory that a compiler searches only below ``/usr/include``."""
    with_own_loader(root, target)
    headers = root / "usr" / "include"
    for header in headers.glob("*/python3.*/pyconfig.h"):
        own = header.parents[1]
        (headers / header.parent.name / own.name).symlink_to(Path("..", own.name))


FETCHED: Final = {
    "Python 3.14": Fetched(
        "python3.14",
        "usr/bin/python3.14",
        # The headers are for what has no wheel.
        Release("forky", ("python3.14-venv", "libpython3.14-dev"), _python),
        r"python3\S*",
    ),
    "Java 21": Fetched(
        "openjdk-21-jre-headless",
        "usr/lib/jvm/java-21-openjdk-*/bin/java",
        Release("trixie", finish=with_own_loader),
        r"(?!)",
    ),
}
"""What can be fetched, by the name that the matrix gives it."""


def fetched(name: str) -> Iterator[Path]:
    """
    The program of a name such as ``Java 21``, if it is one that can be fetched; says so before it downloads.

    Raises:
        ServerError: it cannot be had; the text says why.
    """
    if name in FETCHED:
        if not FETCHED[name].is_here:
            print(
                f"matrix: {name} is not on this machine; fetching it from Debian {FETCHED[name].release.suite}",
                flush=True,
            )
        yield FETCHED[name].get()
