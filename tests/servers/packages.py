"""The programs of servers: the system's own, else those of the system's packages, unpacked into the cache without root.

`apt-get` downloads and checks the packages, with the sources and keys that the system has. Where the system's lists of
packages are missing or old, it gets lists of our own, so nothing of the system changes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cues_kafka.brokers.local.jars import cache_dir, exclusive

FETCH_TIMEOUT_S = 600.0
NOT_LIBRARIES = re.compile(r"lib(c6|c-bin|crypt1|gcc-s1|llvm\S*|z3\S*|perl\S*)|lib\S*-(perl|dev|data|bin)")
"""What begins with lib, and is not unpacked: the C library stays the system's, and LLVM (140 MB) is an option."""


NOTHING = r"(?!)"
"""An expression that no name matches."""


class ServerError(Exception):
    """A server of the tests cannot be had, or does not do what it should; the text says why."""


@dataclass(frozen=True, slots=True)
class Programs:
    """
    Where the files of a server are.

    Attributes:
        root: the directory that stands for ``/``.
        name: tells versions and places apart, for what is prepared with these programs.
    """

    root: Path
    name: str

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the programs, with the libraries that came with them."""
        own = {} if self.root == Path("/") else {"LD_LIBRARY_PATH": os.pathsep.join(map(str, self._libraries()))}
        return {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL": "C", "TZ": "GMT", **own}

    def _libraries(self) -> list[Path]:
        return sorted({file.parent for top in ("usr/lib", "lib") for file in (self.root / top).glob("**/lib*.so.*")})

    def newest(self, pattern: str) -> Path | None:
        """The file below the root that matches, with the highest numbers in its path."""
        numbers: Callable[[Path], list[int]] = lambda file: [int(n) for n in re.findall(r"\d+", str(file))]  # noqa: E731
        return max((self.root).glob(pattern), key=numbers, default=None)


def unpacked(package: str, program: str, *, also: str = NOTHING) -> Programs:
    """
    The newest version of a package and of the libraries that the system lacks, downloaded once and kept.

    Args:
        package: a package, or one that depends on the newest version of a server, such as ``postgresql``.
        program: a pattern of the program's path, to see that it came.
        also: an expression for names of packages that are no libraries, and that the server needs too.

    Raises:
        ServerError: it cannot be downloaded; the text says what was tried.
    """
    target = cache_dir() / "servers" / package
    if not target.is_dir():
        with exclusive(target.with_name(f"{package}.lock")):
            if not target.is_dir():  # another process may have filled it while this one waited
                _fill(target, package, program, also)
    return Programs(target, package)


def _fill(target: Path, package: str, program: str, also: str) -> None:
    """Unpack into a directory beside `target` and rename it, so that `target` is complete or absent."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise ServerError(f"{package} is not installed, and there is no apt-get that could download it. Install it.")
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=target.parent) as work:
        root = Path(work) / "root"
        root.mkdir()
        for file in _downloaded(package, also, Path(work)):
            _run("dpkg-deb", "-x", str(file), str(root))
        if Programs(root, package).newest(program) is None:
            raise ServerError(f"The packages that belong to {package} do not hold {program}.")
        root.rename(target)


def _downloaded(package: str, also: str, work: Path) -> list[Path]:
    """The package files: with the system's lists, or where these do not do, with new ones."""
    apt = [
        "apt-get", "-q", "-y", "--no-install-recommends", "-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root",
        "-o", f"Dir::Cache={work}/apt", "-o", "Acquire::Retries=3",
    ]  # fmt: skip
    own = [*apt, "-o", f"Dir::State::Lists={work}/lists"]
    for folder in ("apt/archives/partial", "lists/partial"):
        (work / folder).mkdir(parents=True)
    try:
        return _download(apt, package, also, work)
    except ServerError as error:
        reasons = [f"with the system's lists: {error}"]
    try:
        _run(*own, "-o", "APT::Update::Error-Mode=any", "update")
    except ServerError as error:  # one of several sources cannot be reached, and the others may do
        reasons.append(f"new lists: {error}")
    try:
        return _download(own, package, also, work)
    except ServerError as error:
        reasons.append(f"with new lists: {error}")
    raise ServerError(
        f"{package} is not installed, and its packages could not be downloaded.\n"
        + "".join(f"  {reason}\n" for reason in reasons)
        + "Install it, or correct the sources of apt."
    )


def _download(apt: Sequence[str], package: str, also: str, work: Path) -> list[Path]:
    """Download what is wanted of a package and all that it needs and the system lacks; also if it is installed."""
    real = _real(apt, package)
    planned = _run(*apt, "--reinstall", "--print-uris", "-qq", "install", real)
    names = [line.split()[1].partition("_")[0] for line in planned.splitlines() if line.startswith("'")]
    libraries = [name for name in names if name.startswith("lib") and not NOT_LIBRARIES.fullmatch(name)]
    libraries += [name for name in names if re.fullmatch(also, name) and name not in (real, *libraries)]
    folder = work / "packages"
    folder.mkdir(exist_ok=True)
    _run(*apt, "download", real, *libraries, cwd=folder)
    return sorted(folder.glob("*.deb"))


def _real(apt: Sequence[str], package: str) -> str:
    """The package, or the versioned one of the same name that it stands for."""
    needed = _run("apt-cache", *apt[apt.index("-o") :], "depends", "--important", package)
    found: list[str] = re.findall(rf"Depends: ({package}-[\d.]+)$", needed, re.MULTILINE)
    return found[0] if found else package


def _run(*command: str, cwd: Path | None = None) -> str:
    """
    Run a program, and return its output.

    Raises:
        ServerError: it failed; the text holds the end of what it said.
    """
    try:
        done = subprocess.run(
            command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=FETCH_TIMEOUT_S, env={**os.environ, "LC_ALL": "C"}, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerError(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        said = " / ".join(line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip())
        raise ServerError(f"{command[0]} ended with {done.returncode}: {said[-1000:]}")
    return done.stdout
