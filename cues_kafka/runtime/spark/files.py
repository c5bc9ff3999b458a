"""Small files of a query, on any file system that Spark knows: read, write, list, delete, measure.

Through Spark's own Java, because a job of Spark's for a line or two would cost more than the micro-batch. With Spark
Connect there is no Java at hand; there a file can be read, by such a job, and nothing else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError

from cues_kafka.errors import ConfigError


def has_jvm(session: Any) -> bool:
    """Whether Java can be reached from this process; with Spark Connect it is elsewhere."""
    return hasattr(session, "_jvm")


def read_text(session: Any, path: str) -> str:
    """
    A whole file.

    Raises:
        FileNotFoundError: it is not there.
    """
    if has_jvm(session):
        return read_bytes(session, path).decode()
    found = Path(path.removeprefix("file:"))
    return found.read_text("utf-8") if found.is_file() else _read_by_a_job(session, path)


def read_bytes(session: Any, path: str) -> bytes:
    """
    A whole file.

    Raises:
        FileNotFoundError: it is not there.
    """
    if found := local(session, path):
        return found.read_bytes()
    place, system = _place(session, path)
    if not system.exists(place):
        raise FileNotFoundError(path)
    stream = system.open(place)
    try:
        return bytes(_java(session, "org.apache.commons.io.IOUtils").toByteArray(stream))
    finally:
        stream.close()


def local(session: Any, path: str) -> Path | None:
    """A file or directory that this process sees, which then costs no question to Java; None: it is elsewhere."""
    found = Path(path.removeprefix("file:"))
    return found if found.exists() and _place(session, path)[1].getUri().getScheme() == "file" else None


def _read_by_a_job(session: Any, path: str) -> str:
    return str(session.read.option("wholetext", True).text(path).collect()[0][0])


def write_text(session: Any, path: str, text: str) -> None:
    """
    A new file.

    Raises:
        ConfigError: it cannot be written.
    """
    place, system = _place(session, path)
    try:
        stream = system.create(place, False)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
    except Py4JJavaError as error:
        raise ConfigError(f"{path} cannot be written: {_cause(error)}. Make room, or give the right to write") from None


def names(session: Any, path: str) -> list[str]:
    """What a directory holds; nothing where there is none."""
    place, system = _place(session, path)
    if not system.exists(place):
        return []
    return sorted(found.getPath().getName() for found in system.listStatus(place))


def lengths(session: Any, path: str) -> dict[str, int]:
    """The bytes of each file in a directory; nothing where there is none."""
    place, system = _place(session, path)
    if not system.exists(place):
        return {}
    return {str(found.getPath().getName()): int(found.getLen()) for found in system.listStatus(place)}


def delete(session: Any, path: str) -> None:
    """A directory and all below it; one that is not there is ignored."""
    place, system = _place(session, path)
    system.delete(place, True)


def size(session: Any, path: str) -> int:
    """Bytes below a directory; 0 where there is none."""
    place, system = _place(session, path)
    return int(system.getContentSummary(place).getLength()) if system.exists(place) else 0


def _place(session: Any, path: str) -> tuple[Any, Any]:
    place = _java(session, "org.apache.hadoop.fs.Path")(path)
    return place, place.getFileSystem(session._jsc.hadoopConfiguration())  # noqa: SLF001 - as below


def _java(session: Any, name: str) -> Any:
    """A class by its whole name: one question, where a name in parts is one for each part."""
    return getattr(session._jvm, name)  # noqa: SLF001 - Spark offers its file systems to Java only


def _cause(error: Py4JJavaError) -> str:
    return str(error.java_exception).splitlines()[0]
