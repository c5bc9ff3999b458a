"""A store of files: a directory of this machine, or what fsspec reaches, such as S3. One promise counts: `create`.

`create` puts an object at a free path, and never replaces another one. It is the lock and the fence of E3.
What a directory lists is never kept from one question to the next.
"""

from __future__ import annotations

import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol
from urllib.parse import urlsplit

from cues_kafka.errors import ConfigError, RetriableError

ASIDE: Final = ".writing-"
"""How a file of this machine begins whose content is not complete. No list of names has it."""

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

    def create(self, path: str, data: bytes) -> bool:
        """Put an object at a free path. False: an object has it and stays; this very call may have put that one."""
        ...

    def put(self, path: str, data: bytes | Path) -> None:
        """Put an object, or replace one; a `Path` is a file of this machine that is copied."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is an object."""
        ...

    def names(self, directory: str) -> list[str]:
        """The names directly in a directory, sorted; empty: there is no such directory."""
        ...

    def below(self, directory: str) -> list[str]:
        """The paths of all objects below a directory."""
        ...

    def delete(self, path: str) -> None:
        """Delete an object; one that is not there is deleted already."""
        ...

    def tidy(self, directory: str) -> None:
        """Remove what dead processes left of unfinished writes directly in a directory."""
        ...


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
        """See `BlobStore`."""
        return f"file://{self._root}/{path}"

    def read(self, path: str) -> bytes | None:
        """See `BlobStore`."""
        with _told("read", path):
            try:
                return (self._root / path).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def create(self, path: str, data: bytes) -> bool:
        """See `BlobStore`. The file is complete and on the disk before it has its name."""
        with _told("create", path):
            goal = self._root / path
            with self._written(goal, data) as aside:
                try:
                    os.link(aside, goal)
                except FileExistsError:
                    return False
            _sync(goal.parent)
            return True

    def put(self, path: str, data: bytes | Path) -> None:
        """See `BlobStore`."""
        with _told("write", path):
            goal = self._root / path
            with self._written(goal, data) as aside:
                aside.replace(goal)
            _sync(goal.parent)

    @contextmanager
    def _written(self, goal: Path, data: bytes | Path) -> Iterator[Path]:
        """A file beside the goal with this content, on the disk; it is removed if it was not moved."""
        aside = goal.parent / f"{ASIDE}{secrets.token_hex(8)}"
        try:
            with _opened(aside) as file:
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

    def exists(self, path: str) -> bool:
        """See `BlobStore`."""
        with _told("look for", path):
            return (self._root / path).exists()

    def names(self, directory: str) -> list[str]:
        """See `BlobStore`."""
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
        """See `BlobStore`."""
        with _told("tidy", directory):
            for one in (self._root / directory).glob(f"{ASIDE}*"):
                with suppress(FileNotFoundError):
                    if time.time() - one.stat().st_mtime > LEFT_ASIDE_S:
                        one.unlink()


def _opened(path: Path) -> BinaryIO:
    """A new file. Its directory may be removed as empty, by another thread or process, when it was just made."""
    for _ in range(5):
        _make_directory(path.parent)
        with suppress(FileNotFoundError):
            return path.open("xb")
    return path.open("xb")


def _make_directory(path: Path) -> None:
    """Make a directory with its parents, so that they are still there after the machine has lost its power."""
    if path.is_dir():
        return
    _make_directory(path.parent)
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
        """See `BlobStore`."""
        return f"{self._url}/{path}"

    def read(self, path: str) -> bytes | None:
        """See `BlobStore`."""
        try:
            found: bytes = self._told("read", path, self._files.cat_file, self.url(path))
        except FileNotFoundError:
            return None
        return found

    def create(self, path: str, data: bytes) -> bool:
        """See `BlobStore`. On S3 it is one request with `If-None-Match: *`, below 100 MiB."""
        with self._creating:
            try:
                self._told("create", path, self._files.pipe_file, self.url(path), data, mode="create")
            except FileExistsError:
                return False
            except FileNotFoundError as error:
                raise self._retriable("create", path, error) from error
        return True

    def put(self, path: str, data: bytes | Path) -> None:
        """See `BlobStore`."""
        try:
            if isinstance(data, Path):
                self._told("write", path, self._files.put_file, str(data), self.url(path))
            else:
                self._told("write", path, self._files.pipe_file, self.url(path), data)
        except (FileExistsError, FileNotFoundError) as error:
            raise self._retriable("write", path, error) from error

    def exists(self, path: str) -> bool:
        """See `BlobStore`."""
        try:
            self._told("look for", path, self._files.info, self.url(path))
        except FileNotFoundError:
            return False
        return True

    def names(self, directory: str) -> list[str]:
        """See `BlobStore`."""
        try:
            found = self._told("list", directory, self._files.ls, self.url(directory), detail=False, refresh=True)
        except FileNotFoundError:
            return []
        return sorted({str(one).rstrip("/").rpartition("/")[2] for one in found})

    def below(self, directory: str) -> list[str]:
        """See `BlobStore`."""
        root = self._url.partition("://")[2].strip("/")
        try:
            found = self._told("list", directory, self._files.find, self.url(directory))
        except FileNotFoundError:
            return []
        return sorted(str(one).lstrip("/").removeprefix(root).lstrip("/") for one in found)

    def delete(self, path: str) -> None:
        """See `BlobStore`."""
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
        except Exception as error:
            raise self._retriable(verb, path, error) from error

    def _retriable(self, verb: str, path: str, error: Exception) -> RetriableError:
        text = " ".join(str(error).split()) or "no reason given"
        for secret in self._secrets:
            text = text.replace(secret, "***")
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
        raise ConfigError(f"Blobs({scheme}://...): {error}. Install it: pip install 'cues-kafka[blobs]'") from error
    except (TypeError, ValueError) as error:
        raise ConfigError(f"Blobs({scheme}://...): {error}. Correct the address or options=") from error


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


@contextmanager
def _told(verb: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _no_answer(verb, path, f"{type(error).__name__}: {error.strerror or error}") from error


def _no_answer(verb: str, path: str, why: str) -> RetriableError:
    return RetriableError(
        f"the store does not {verb} {path or 'anything'}: {why}",
        code="TARGET",
        remedy="have the store answer, with the right to read, write, list and delete; the task goes on by itself then",
    )
