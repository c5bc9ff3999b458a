"""A store of files: a directory of this machine, or what fsspec reaches, such as S3. One promise counts: `create`.

`create` puts an object at a free path, and never replaces another one. It is the lock and the fence of E3.
What a directory lists is never kept from one question to the next.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol
from urllib.parse import urlsplit

from cues_kafka.errors import ConfigError, RetriableError
from cues_kafka.extras import FSSPEC, S3FS, missing

ASIDE: Final = ".writing-"
"""How a file of this machine begins whose content is not complete. No list of names has it."""

LOGS: Final = "_cues"
"""The directory of all that a store needs besides its files: logs of commits, and the marker."""

LEFT_ASIDE_S: Final = 3600.0
"""After how many seconds such a file is that of a process which died."""


class BlobStore(Protocol):
    """
    Objects under paths that are relative to an address, such as `a/b.json`.

    Methods raise `RetriableError` where the store does not answer or refuses. Threads may share it.
    """

    def url(self, path: str) -> str:
        """The address of an object."""
        ...

    def read(self, path: str) -> bytes | None:
        """The bytes of an object; None: the path is free."""
        ...

    def make(self) -> None:
        """Make what an address needs before objects are put: a directory. No other method makes it."""
        ...

    def create(self, path: str, data: bytes, *, after: str = "") -> bool:
        """
        Put an object at a free path.

        Args:
            path: its path.
            data: its bytes.
            after: path of an object beside it that must be there; empty: none.

        Returns:
            False: an object has the path, and stays; this very call may have put that one.

        Raises:
            ObjectGone: the object `after` is not there, and nothing was put.
        """
        ...

    def put(self, path: str, data: bytes | Path) -> None:
        """Put an object, or replace one; a `Path` is a file of this machine that is copied."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is an object."""
        ...

    def size(self, path: str) -> int | None:
        """The size of an object, in bytes; None: there is none."""
        ...

    def stamp(self, path: str) -> object:
        """What tells an object from its successor without a request; None: this store has nothing of the kind."""
        ...

    def names(self, directory: str) -> list[str]:
        """The names directly in a directory, sorted; empty: there is no such directory."""
        ...

    def below(self, directory: str) -> list[str]:
        """The paths of all objects below a directory, sorted."""
        ...

    def sizes(self, directory: str) -> dict[str, int]:
        """The paths of all objects below a directory, with their sizes in bytes."""
        ...

    def delete(self, path: str) -> None:
        """Delete an object; one that is not there is deleted already."""
        ...

    def tidy(self, directory: str) -> None:
        """Remove what dead processes left of unfinished writes directly in a directory."""
        ...


class ObjectGone(RetriableError):
    """An object that must be there is not. The task asks what the store has by now."""


def open_store(url: str, options: Mapping[str, Any] | None = None) -> BlobStore:
    """
    Open a store.

    Args:
        url: ``file:///absolute/path``, ``s3://bucket/prefix``, or another address that fsspec knows.
        options: what `fsspec.filesystem` is given besides, such as `endpoint_url`; for files of this machine, nothing.

    Raises:
        ConfigError: a package is missing, or the options do not fit.
    """
    scheme = urlsplit(url).scheme
    if scheme == "file":
        return LocalStore(Path(urlsplit(url).path))
    return FsspecStore(url.rstrip("/"), dict(options or {}))


class LocalStore:
    """Files of this machine, or of a file system that several machines mount. It must have hard links."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def url(self, path: str) -> str:
        return f"file://{self._root}/{path}"

    def read(self, path: str) -> bytes | None:
        with _told("read", path):
            try:
                return (self._root / path).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def make(self) -> None:
        with _told("make", ""):
            _make_directory(self._root, Path(self._root.anchor))

    def create(self, path: str, data: bytes, *, after: str = "") -> bool:
        """See `BlobStore`. The file is complete and on the disk before it has its name."""
        with _told("create", path):
            goal = self._root / path
            if after and not (self._root / after).exists():
                raise gone(after)
            with self._written(goal, data, beside=bool(after)) as aside:
                try:
                    os.link(aside, goal)
                except FileExistsError:
                    return False
            _sync(goal.parent)
            return True

    def put(self, path: str, data: bytes | Path) -> None:
        with _told("write", path):
            goal = self._root / path
            with self._written(goal, data) as aside:
                aside.replace(goal)
            _sync(goal.parent)

    @contextmanager
    def _written(self, goal: Path, data: bytes | Path, *, beside: bool = False) -> Iterator[Path]:
        """A file next to the goal with this content, on the disk; it is removed if it was not moved."""
        aside = goal.parent / f"{ASIDE}{secrets.token_hex(8)}"
        try:
            with aside.open("xb") if beside else self._opened(aside) as file:
                if isinstance(data, Path):
                    with data.open("rb") as given:
                        shutil.copyfileobj(given, file, 1024 * 1024)
                else:
                    file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield aside
        finally:
            aside.unlink(missing_ok=True)

    def _opened(self, path: Path) -> BinaryIO:
        """A new file. Its directory may be removed as empty, by another thread or process, when it was just made."""
        for _ in range(5):
            _make_directory(path.parent, self._root)
            with suppress(FileNotFoundError):
                return path.open("xb")
        return path.open("xb")

    def exists(self, path: str) -> bool:
        with _told("look for", path):
            return (self._root / path).exists()

    def size(self, path: str) -> int | None:
        with _told("look for", path):
            try:
                return (self._root / path).stat().st_size
            except (FileNotFoundError, NotADirectoryError):
                return None

    def stamp(self, path: str) -> object:
        with _told("look for", path):
            try:
                found = (self._root / path).stat()
            except (FileNotFoundError, NotADirectoryError):
                return "not there"
            return (found.st_dev, found.st_ino, found.st_mtime_ns)

    def names(self, directory: str) -> list[str]:
        with _told("list", directory):
            try:
                return sorted(one.name for one in (self._root / directory).iterdir() if not one.name.startswith(ASIDE))
            except (FileNotFoundError, NotADirectoryError):
                return []

    def below(self, directory: str) -> list[str]:
        """See `BlobStore`. Unfinished files are among them: they are deleted with the rest."""
        with _told("list", directory):
            found = (Path(place, name) for place, _, names in os.walk(self._root / directory) for name in names)
            return sorted(str(one.relative_to(self._root)) for one in found)

    def sizes(self, directory: str) -> dict[str, int]:
        found = {path: self.size(path) for path in self.below(directory)}
        return {path: size for path, size in found.items() if size is not None}

    def delete(self, path: str) -> None:
        """See `BlobStore`. Directories that become empty go, too."""
        with _told("delete", path):
            place = self._root / path
            with suppress(NotADirectoryError):
                place.unlink(missing_ok=True)
            for parent in place.parents:
                if parent == self._root:
                    return
                try:
                    parent.rmdir()
                except OSError:  # it has other files, or another process has removed it
                    return

    def tidy(self, directory: str) -> None:
        with _told("tidy", directory):
            for one in (self._root / directory).glob(f"{ASIDE}*"):
                with suppress(FileNotFoundError):
                    if time.time() - one.stat().st_mtime > LEFT_ASIDE_S:
                        one.unlink()


def _make_directory(path: Path, root: Path) -> None:
    """
    Make a directory with its parents, so that they are still there after the machine has lost its power.

    The root is not made: where it is gone, as a mount may be, an empty one in its place would hide all that was there.
    """
    if path.is_dir():
        return
    if path == root:
        raise FileNotFoundError(errno.ENOENT, "the directory of the store is not there")
    _make_directory(path.parent, root)
    path.mkdir(exist_ok=True)
    _sync(path.parent)


def _sync(directory: Path) -> None:
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


class FsspecStore:
    """What fsspec reaches."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self._url = url
        self._secrets = list(_texts(options))
        self._files = self._told("open", "", _filesystem, urlsplit(url).scheme, options)
        self._creating = threading.Lock()  # fsspec's memory looks first, and writes then

    def url(self, path: str) -> str:
        return f"{self._url}/{path}"

    def read(self, path: str) -> bytes | None:
        try:
            found: bytes = self._told("read", path, self._files.cat_file, self.url(path))
        except FileNotFoundError:
            return None
        return found

    def make(self) -> None:
        """See `BlobStore`. A bucket is there already, and a prefix needs nothing."""

    def create(self, path: str, data: bytes, *, after: str = "") -> bool:
        """See `BlobStore`. On S3 it is one request with `If-None-Match: *`, below 100 MiB, and one for `after`."""
        if after and not self.exists(after):
            raise gone(after)
        with self._creating:
            try:
                self._told("create", path, self._files.pipe_file, self.url(path), data, mode="create")
            except FileExistsError:
                return False
            except FileNotFoundError as error:
                raise self._retriable("create", path, error) from None
        return True

    def put(self, path: str, data: bytes | Path) -> None:
        try:
            if isinstance(data, Path):
                self._told("write", path, self._files.put_file, str(data), self.url(path))
            else:
                self._told("write", path, self._files.pipe_file, self.url(path), data)
        except (FileExistsError, FileNotFoundError) as error:
            raise self._retriable("write", path, error) from None

    def exists(self, path: str) -> bool:
        return self.size(path) is not None

    def size(self, path: str) -> int | None:
        try:
            return self._size(path, self._told("look for", path, self._files.info, self.url(path)))
        except FileNotFoundError:
            return None

    def stamp(self, path: str) -> object:
        del path
        return None

    def names(self, directory: str) -> list[str]:
        try:
            found = self._told("list", directory, self._files.ls, self.url(directory), detail=False, refresh=True)
        except FileNotFoundError:
            return []
        return sorted({str(one).rstrip("/").rpartition("/")[2] for one in found})

    def below(self, directory: str) -> list[str]:
        return sorted(self.sizes(directory))

    def sizes(self, directory: str) -> dict[str, int]:
        root = self._url.partition("://")[2].strip("/")
        try:
            found = self._told("list", directory, self._files.find, self.url(directory), detail=True)
        except FileNotFoundError:
            return {}
        sizes = {str(one).lstrip("/").removeprefix(root).lstrip("/"): told for one, told in found.items()}
        return {name: self._size(name, told) for name, told in sizes.items()}

    def _size(self, path: str, told: Any) -> int:
        """The size in an answer, which is a header that some stores leave out or get wrong."""
        try:
            size = int(told["size"] or 0)
            if size < 0:
                raise ValueError(f"the size {size}")
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            raise self._retriable("look for", path, error) from None
        return size

    def delete(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._told("delete", path, self._files.rm_file, self.url(path))

    def tidy(self, directory: str) -> None:
        """See `BlobStore`. An object is there as a whole, or not at all."""

    def _told(self, verb: str, path: str, ask: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """Ask. Libraries of stores raise exceptions of many kinds where the store does not answer."""
        try:
            return ask(*given, **named)
        except (FileExistsError, FileNotFoundError, ConfigError):
            raise
        except Exception as error:  # noqa: BLE001 - the new one has its text without addresses and logins
            raise self._retriable(verb, path, error) from None

    def _retriable(self, verb: str, path: str, error: Exception) -> RetriableError:
        text = _without(self._secrets, " ".join(str(error).split())) or "no reason given"
        return _no_answer(verb, path, f"{type(error).__name__}: {text}")


def _filesystem(scheme: str, options: dict[str, Any]) -> Any:
    try:
        import fsspec  # noqa: PLC0415

        given = dict(options)
        if scheme == "s3":  # one that does not answer is asked again by the task, which says so
            own = given.pop("config_kwargs", {})
            quick = {"connect_timeout": 5, "read_timeout": 30, "retries": {"total_max_attempts": 1}}
            given["config_kwargs"] = {**quick, **own}
        if scheme != "memory":
            given |= {"use_listings_cache": False, "skip_instance_cache": True}
        return fsspec.filesystem(scheme, **given)
    except ImportError as error:
        if error.name == FSSPEC.module or scheme == "s3":
            raise missing(
                f"Blobs({scheme}://...)", FSSPEC if error.name == FSSPEC.module else S3FS, error=error
            ) from None
        raise ConfigError(f"Blobs({scheme}://...): {error}") from None  # the text names another file system's package
    except (TypeError, ValueError) as error:
        why = _without(_texts(options), str(error))
        raise ConfigError(f"Blobs({scheme}://...): {why}. Correct the address or options=") from None


def _without(secrets: Iterable[str], text: str) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def _texts(given: Any) -> Iterator[str]:
    """The texts in options, which may be passwords, the longest first."""
    found: list[str] = []
    rest = [given]
    while rest:
        one = rest.pop()
        if isinstance(one, Mapping):
            rest += one.values()
        elif isinstance(one, str) and len(one) >= 4:
            found.append(one)
    return iter(sorted(found, key=len, reverse=True))


def gone(path: str) -> ObjectGone:
    """What `create` raises."""
    return ObjectGone(f"{path} no longer exists", code="TARGET")


@contextmanager
def _told(verb: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _no_answer(verb, path, f"{type(error).__name__}: {error.strerror or error}") from None


def _no_answer(verb: str, path: str, why: str) -> RetriableError:
    return RetriableError(
        f"the store does not {verb} {path or 'anything'}: {why}",
        code="TARGET",
        remedy="bring the store back, with the right to read, write, list and delete; the task then resumes by itself",
    )
