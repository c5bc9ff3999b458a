"""What a function may put into a store of files: a store that refuses it would be taken for one that is away."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

PART_BYTES: Final = 240
NAME_BYTES: Final = 700
"""The longest part of a name between slashes, and the longest name: file systems take 255 bytes, and keys of S3 have
1,024 together with the prefix, the table and the directory of the try."""


def refused(name: Any, data: Any) -> str:
    """Why an object of this name and data cannot be put; empty: it can."""
    if not _is_name(name):
        return f"{name!r:.80} cannot be the name of an object. Write a relative path without '..', such as 'a/b.pdf'"
    if why := _too_long(name):
        return f"{name!r:.80}: {why}. Give a shorter name"
    if not isinstance(data, bytes | bytearray | memoryview | Path):
        return f"put({name!r:.80}): {type(data).__name__} is not data. Give bytes, or the Path of a file"
    if isinstance(data, Path) and not data.is_file():
        return f"put({name!r:.80}): {str(data)!r} is not a file. Give bytes, or the Path of a file that is there"
    if isinstance(data, Path):
        try:
            with data.open("rb") as file:
                file.read(1)
        except OSError as error:
            return f"put({name!r:.80}): {str(data)!r} cannot be read: {error.strerror}. Give one that can"
    return ""


def _is_name(name: Any) -> bool:
    if not isinstance(name, str) or not name or name.startswith("/") or name.endswith("/") or "\\" in name:
        return False
    return not ({"..", ".", ""} & set(name.split("/"))) and name.isprintable() and not (set("?#%*") & set(name))


def _too_long(name: str) -> str:
    """Why no store takes a name; empty: all of them do. What UTF-8 has not is not printable either."""
    data = name.encode()
    if max(map(len, data.split(b"/"))) > PART_BYTES:
        return f"a part of it is longer than {PART_BYTES} bytes, and a directory takes no more than 255"
    return f"it is longer than {NAME_BYTES} bytes, and a key of S3 has 1,024" if len(data) > NAME_BYTES else ""
