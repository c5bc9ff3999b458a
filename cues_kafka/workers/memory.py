"""The memory limit of a worker process: its notation, and what counts against it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

from cues_kafka.errors import ConfigError

_UNITS: Final = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "kB": 10**3, "MB": 10**6, "GB": 10**9}

_COUNTED: Final = ("RssAnon", "RssShmem", "VmSwap")
"""Pages of mapped files, such as those of `Store(on_disk=True)`, are left out: the kernel takes them back by itself."""

MIB: Final = 1 << 20


def size(text: str, what: str) -> int:
    """
    A size in bytes.

    Args:
        text: a number with its unit, such as `512MiB` or `1.5 GB`.
        what: the option, for the error.

    Raises:
        ConfigError: it is no size, or the system is not Linux, where no memory can be measured.
    """
    parts = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", text)
    found = int(float(parts[1]) * _UNITS.get(parts[2], 0)) if parts else 0
    if not found:
        raise ConfigError(f"{what} {text!r} is not a size. Write a number with {', '.join(_UNITS)}, such as 512MiB.")
    if sys.platform != "linux":
        raise ConfigError(f"{what} needs /proc, which only Linux has. Leave it out, and limit the container instead.")
    return found


def memory_of(pid: int) -> int:
    """
    Bytes of memory that a process has for itself, in RAM and swap. Shared memory counts, mapped files do not.

    Returns:
        0 if there is no such process, or it has ended.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text("ascii", "replace").splitlines()
    except OSError:
        return 0
    found = dict(line.split(":", 1) for line in lines if ":" in line)
    return sum(int(found[name].split()[0]) * 1024 for name in _COUNTED if name in found)
