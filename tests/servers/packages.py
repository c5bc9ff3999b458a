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
from itertools import chain
from pathlib import Path

from cues_kafka.brokers.local.jars import cache_dir, exclusive

FETCH_TIMEOUT_S = 600.0
NOT_LIBRARIES = re.compile(r"lib(c6|c-bin|crypt1|gcc-s1|llvm\S*|z3\S*|perl\S*)|lib\S*-(perl|dev|data|bin)")
"""What begins with lib, and is not unpacked: the C library stays the system's, and LLVM (140 MB) is an option."""


NOT_LIBRARIES_OF_A_RELEASE = re.compile(r"lib\S*-(perl|dev|data|bin)")
"""The same for a package of another release: the C library that it was built for comes with it."""
NOTHING = r"(?!)"
"""An expression that no name matches."""
SOURCES = Path("/etc/apt")
"""Where the system says which mirrors it uses."""
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
"""The keys that sign every release of Debian."""


class ServerError(Exception):
    """A server of the tests cannot be had, or does not do what it should; the text says why."""


@dataclass(frozen=True, slots=True)
class Release:
    """
    A release of Debian that is not the system's.

    Attributes:
        suite: its name, such as ``trixie``.
        besides: packages to unpack that nothing there depends on.
        finish: what makes the files usable, with the directory that holds them now and the one that they move to.
    """

    suite: str
    besides: tuple[str, ...] = ()
    finish: Callable[[Path, Path], None] = lambda _root, _target: None


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
        # Some have no number behind their ending, such as libpulsecommon-16.1.so, in a directory of its own.
        return sorted({file.parent for top in ("usr/lib", "lib") for file in (self.root / top).glob("**/lib*.so*")})

    def newest(self, pattern: str) -> Path | None:
        """The file below the root that matches, with the highest numbers in its path."""
        numbers: Callable[[Path], list[int]] = lambda file: [int(n) for n in re.findall(r"\d+", str(file))]  # noqa: E731
        return max((self.root).glob(pattern), key=numbers, default=None)


def unpacked(package: str, program: str, *, also: str = NOTHING, release: Release | None = None) -> Programs:
    """
    The newest version of a package and of the libraries that the system lacks, downloaded once and kept.

    Args:
        package: a package, or one that depends on the newest version of a server, such as ``postgresql``.
        program: a pattern of the program's path, to see that it came.
        also: an expression for names of packages that are no libraries, and that the server needs too.
        release: where to take it from, with every library that it needs, the C library too; None: the system's own.

    Raises:
        ServerError: it cannot be downloaded; the text says what was tried.
    """
    target = place_of(package, release)
    if not target.is_dir():
        with exclusive(target.with_name(f"{target.name}.lock"), waits_for=f"fetches {package}"):
            if not target.is_dir():  # another process may have filled it while this one waited
                _fill(target, package, program, also, release)
    return Programs(target, package)


def place_of(package: str, release: Release | None = None) -> Path:
    """The directory of a package of the system's release, or of another one; it is missing or complete."""
    return cache_dir() / "servers" / (f"{package}-{release.suite}" if release else package)


def _fill(target: Path, package: str, program: str, also: str, release: Release | None) -> None:
    """Unpack into a directory beside `target` and rename it, so that `target` is complete or absent."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise ServerError(f"{package} is not installed, and there is no apt-get that could download it. Install it.")
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=target.parent) as work:
        root = Path(work) / "root"
        root.mkdir()
        downloaded = (
            _downloaded_of(release, package, also, Path(work)) if release else _downloaded(package, also, Path(work))
        )
        for file in downloaded:
            _run("dpkg-deb", "-x", str(file), str(root))
        if Programs(root, package).newest(program) is None:
            raise ServerError(f"The packages that belong to {package} do not hold {program}.")
        if release:
            release.finish(root, target)
        root.rename(target)


def _downloaded(package: str, also: str, work: Path) -> list[Path]:
    """The package files: with the system's lists, or where these do not do, with new ones."""
    apt, own = _apt(work)
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


def _apt(work: Path) -> tuple[list[str], list[str]]:
    """The command `apt-get` with a cache of our own, and the same with lists of our own, both below `work`."""
    apt = [
        "apt-get", "-q", "-y", "--no-install-recommends", "-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root",
        "-o", f"Dir::Cache={work}/apt", "-o", "Acquire::Retries=3",
    ]  # fmt: skip
    for folder in ("apt/archives/partial", "lists/partial"):
        (work / folder).mkdir(parents=True)
    return apt, [*apt, "-o", f"Dir::State::Lists={work}/lists"]


def _downloaded_of(release: Release, package: str, also: str, work: Path) -> list[Path]:
    """The package files of another release: from the system's mirrors, as on a system that has no package at all."""
    found = mirrors()
    if not (found and KEYS.exists()):
        reason = f"{KEYS} is missing" if found else "apt has no mirror of Debian"
        raise ServerError(f"{package} of Debian {release.suite} cannot be downloaded: {reason}.")
    described = {"Types": "deb", "URIs": " ".join(found), "Suites": release.suite, "Components": "main"}
    described["Signed-By"] = str(KEYS)
    sources, status = work / "release.sources", work / "status"
    sources.write_text("".join(f"{key}: {value}\n" for key, value in described.items()), encoding="utf-8")
    status.touch()
    own = [
        *_apt(work)[1], "-o", f"Dir::Etc::sourcelist={sources}", "-o", f"Dir::Etc::sourceparts={work}/none",
        "-o", f"Dir::State::status={status}",
    ]  # fmt: skip
    try:
        _run(*own, "update")
        return _download(own, package, also, work, *release.besides, without=NOT_LIBRARIES_OF_A_RELEASE)
    except ServerError as error:
        raise ServerError(f"{package} of Debian {release.suite} cannot be downloaded: {error}") from error


def mirrors(sources: Path = SOURCES) -> list[str]:
    """The mirrors of Debian's packages in the system's sources of apt; those of security updates lack releases."""
    files = chain(sources.glob("sources.list"), sources.glob("sources.list.d/*"))
    said = "\n".join(file.read_text("utf-8", errors="replace") for file in files)
    named: list[str] = re.findall(r"^\s*(?:URIs:|deb\s+(?:\[[^\]]*\])?)\s*(\S+)", said, re.MULTILINE)
    return [*dict.fromkeys(uri.rstrip("/") for uri in named if re.search(r"/debian/?$", uri))]


def _download(
    apt: Sequence[str], package: str, also: str, work: Path, *besides: str, without: re.Pattern[str] = NOT_LIBRARIES
) -> list[Path]:
    """Download what is wanted of a package and all that it needs and the system lacks; also if it is installed."""
    wanted = [_real(apt, package), *besides]
    planned = _run(*apt, "--reinstall", "--print-uris", "-qq", "install", *wanted)
    names = [line.split()[1].partition("_")[0] for line in planned.splitlines() if line.startswith("'")]
    libraries = [name for name in names if name.startswith("lib") and not without.fullmatch(name)]
    libraries += [name for name in names if re.fullmatch(also, name) and name not in libraries]
    folder = work / "packages"
    folder.mkdir(exist_ok=True)
    _run(*apt, "download", *dict.fromkeys((*wanted, *libraries)), cwd=folder)
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
