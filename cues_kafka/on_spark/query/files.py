"""Small files of a query, on any file system that Spark knows: read, write, list, delete, measure.

Files on this machine's disk are read as any program does, others through Spark's own Java. A job of Spark for a line or
two would cost more than the micro-batch. Spark Connect gives no Java. There a path that begins with `file:` is one that
client, server and executors share; of any other path a job of Spark can read a file, and nothing else is possible.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

from py4j.protocol import Py4JJavaError

from cues_kafka.errors import ConfigError


def has_jvm(session: Any) -> bool:
    """Whether Java can be reached from this process; with Spark Connect it is elsewhere."""
    return hasattr(session, "_jvm")


def is_shared(path: str) -> bool:
    """Whether a path says that it is on a disk of the machine; with Spark Connect all its processes then see it."""
    return path.startswith(_HERE)


_HERE: Final = "file:"

Place: TypeAlias = str | Path
"""A path as Spark takes it; or on this machine, if `local` found it there."""


def read_text(session: Any, path: Place) -> str:
    """
    A whole file.

    Raises:
        FileNotFoundError: it is not there.
    """
    if isinstance(path, Path) or has_jvm(session) or is_shared(path):
        return read_bytes(session, path).decode()
    found = Path(path)
    return found.read_text("utf-8") if found.is_file() else _read_by_a_job(session, path)


def read_bytes(session: Any, path: Place) -> bytes:
    """
    A whole file.

    Raises:
        FileNotFoundError: it is not there.
    """
    if here := local(session, path):
        return here.read_bytes()
    place, system = _place(session, path)
    if not system.exists(place):
        raise FileNotFoundError(path)
    stream = system.open(place)
    try:
        return bytes(_java(session, "org.apache.commons.io.IOUtils").toByteArray(stream))
    finally:
        stream.close()


def local(session: Any, path: Place) -> Path | None:
    """
    Return where this process sees a file or directory; None: it is on another file system than the machine's own.

    Java is not used for local files: it needs a request for each step, and starts a process to set the rights of each
    new file or directory.
    """
    if isinstance(path, Path):
        return path
    if not has_jvm(session):
        return Path(path.removeprefix(_HERE)) if is_shared(path) else None
    place, system = _place(session, path)
    uri = system.makeQualified(place).toUri()
    return Path(uri.getPath()) if uri.getScheme() == "file" else None


def _read_by_a_job(session: Any, path: str) -> str:
    return str(session.read.option("wholetext", True).text(path).collect()[0][0])


def write_bytes(session: Any, path: Place, data: bytes | memoryview) -> None:
    """
    Write a new file, and the directories above it.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        if here := local(session, path):
            here.parent.mkdir(parents=True, exist_ok=True)
            with here.open("xb") as file:
                file.write(data)
            return
        place, system = _place(session, path)
        stream = system.create(place, False)
        try:
            stream.write(bytearray(data))
        finally:
            stream.close()
    except (Py4JJavaError, OSError) as error:
        raise ConfigError(
            f"{path} cannot be written: {_cause(error)}. Make room, or grant the right to write"
        ) from None


def names(session: Any, path: Place) -> list[str]:
    """Names in a directory; nothing if it does not exist."""
    if here := local(session, path):
        return sorted(found.name for found in here.iterdir()) if here.is_dir() else []
    place, system = _place(session, path)
    return sorted(found.getPath().getName() for found in system.listStatus(place)) if system.exists(place) else []


def lengths(session: Any, path: Place) -> dict[str, int]:
    """Size of each file in a directory in bytes; nothing if it does not exist."""
    if here := local(session, path):
        return {found.name: _length(found) for found in here.iterdir()} if here.is_dir() else {}
    place, system = _place(session, path)
    if not system.exists(place):
        return {}
    return {str(found.getPath().getName()): int(found.getLen()) for found in system.listStatus(place)}


def delete(session: Any, path: Place) -> None:
    """
    Delete a file, or a directory and everything below it. A missing one is ignored.

    Raises:
        OSError: it is on this machine and cannot be deleted.
        Py4JJavaError: it is elsewhere and cannot be deleted.
    """
    if here := local(session, path):
        with suppress(FileNotFoundError):  # it does not exist, or another process is deleting it
            shutil.rmtree(here) if here.is_dir() else here.unlink()
        return
    place, system = _place(session, path)
    system.delete(place, True)


def size(session: Any, path: Place) -> int:
    """Size of a directory in bytes; 0 if it does not exist."""
    if here := local(session, path):
        return sum(_length(found) for found in here.rglob("*") if found.is_file())
    place, system = _place(session, path)
    return int(system.getContentSummary(place).getLength()) if system.exists(place) else 0


def _length(file: Path) -> int:
    """Size in bytes; 0 for a file that was deleted since it was listed."""
    with suppress(FileNotFoundError):
        return file.stat().st_size
    return 0


def _place(session: Any, path: Place) -> tuple[Any, Any]:
    place = _java(session, "org.apache.hadoop.fs.Path")(str(path))
    return place, place.getFileSystem(session._jsc.hadoopConfiguration())  # noqa: SLF001 - as below


def _java(session: Any, name: str) -> Any:
    """A Java class by its whole name, which takes one request; a name in parts takes one for each part."""
    return getattr(session._jvm, name)  # noqa: SLF001 - Spark offers its file systems to Java only


def _cause(error: Py4JJavaError | OSError) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error.java_exception).splitlines()[0]
