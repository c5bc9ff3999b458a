"""
The types of the parameters that `effects=` provides, for annotations.

========================================  ==================================================
declared as                               the function gets
========================================  ==================================================
`Sql(...)`                                `SqlSession`
`Sql(...).table(...)`                     `RowWriter`
`Sql(...).upsert(...)`                    `KeyedRows`
`Blobs(...)`                              `Objects`
`Http(...)`                               `HttpServer`; in an `async def`: `AsyncHttpServer`
`Once()`                                  `KeptOnce`; in an `async def`: `AsyncKeptOnce`
`Mqtt(...).topic(...)` and the like       `MessagePublisher`
`Stomp(...).target()` and the like        `Destinations`
`Stomp(...).to_queue(...)` and the like   `Destination`
a target of your own                      what its `value()` makes
========================================  ==================================================

They are protocols, so an object of your own can stand in for each of them where you test the function alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from cues_kafka.sinks.response import Response
from cues_kafka.sinks.results import Result

if TYPE_CHECKING:
    from cues_kafka.task.calling.step import Step

__all__ = [
    "AsyncHttpServer",
    "AsyncKeptOnce",
    "Destination",
    "Destinations",
    "HttpServer",
    "KeptOnce",
    "KeyedRows",
    "MessagePublisher",
    "Objects",
    "Response",
    "Result",
    "RowWriter",
    "SqlSession",
]  # fmt: skip

T = TypeVar("T")

Row = Sequence[Any] | Mapping[str, Any]


class SqlSession(Protocol):
    """A connection in the open transaction of the step, valid during the call; see docs/effects.md."""

    def execute(self, statement: str, parameters: Row = ()) -> Result:
        """Run one statement; iterate over its rows, or call `fetchone` or `fetchall`."""
        ...

    def executemany(self, statement: str, rows: Sequence[Row]) -> Result:
        """Run one statement for many rows."""
        ...

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows in the fastest way that the database has."""
        ...

    def savepoint(self) -> AbstractContextManager[None]:
        """What is written in the block is taken back if an exception leaves it."""
        ...


class RowWriter(Protocol):
    """A table that gets rows."""

    def insert(self, value: Any) -> None:
        """Insert the fields of a mapping, or of an object with attributes."""
        ...


class KeyedRows(Protocol):
    """A table that keeps the newest row of each key. With `batch=True`, `index` says which message it is from."""

    def put(self, value: Any, *, index: int | None = None) -> None:
        """Make the fields of a value the row of its key, unless the row is from a later message."""
        ...

    def delete(self, key: Any, *, index: int | None = None) -> None:
        """Mark the row of a key as deleted, unless it is from a later message."""
        ...


class Objects(Protocol):
    """A store of files."""

    def put(self, name: str, data: bytes | Path) -> str:
        """Put an object, which counts when the step is committed; its address."""
        ...


class HttpServer(Protocol):
    """A server that a function calls. Each method takes `json`, `data`, `headers` and `params`."""

    def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        data: Mapping[str, Any] | bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> Response:
        """Ask the server."""
        ...

    def get(self, path: str, **asked: Any) -> Response: ...

    def post(self, path: str, **asked: Any) -> Response: ...

    def put(self, path: str, **asked: Any) -> Response: ...

    def patch(self, path: str, **asked: Any) -> Response: ...

    def delete(self, path: str, **asked: Any) -> Response: ...


class AsyncHttpServer(Protocol):
    """The same in an `async def`, where each call is awaited."""

    def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        data: Mapping[str, Any] | bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> Awaitable[Response]:
        """Ask the server."""
        ...

    def get(self, path: str, **asked: Any) -> Awaitable[Response]: ...

    def post(self, path: str, **asked: Any) -> Awaitable[Response]: ...

    def put(self, path: str, **asked: Any) -> Awaitable[Response]: ...

    def patch(self, path: str, **asked: Any) -> Awaitable[Response]: ...

    def delete(self, path: str, **asked: Any) -> Awaitable[Response]: ...


class KeptOnce(Protocol):
    """Results that are made once for a step, and kept for its next attempt."""

    def __call__(self, key: str, fn: Callable[[], T]) -> T:
        """What `fn()` gave when it was first kept for this step; anything that JSON has."""
        ...


class AsyncKeptOnce(Protocol):
    """The same in an `async def`, where it is awaited; `fn` may be a coroutine function."""

    def __call__(self, key: str, fn: Callable[[], T | Awaitable[T]]) -> Awaitable[T]:
        """What `fn()` gave when it was first kept for this step; anything that JSON has."""
        ...


class MessagePublisher(Protocol):
    """A target that gets messages and acknowledges them, without a transaction."""

    def publish(self, value: Any, step: Step, **given: Any) -> None:
        """Publish a value before the step is committed; `given` is what the target takes besides, such as `topic=`."""
        ...


class Destinations(Protocol):
    """The queues and topics of a broker that has transactions."""

    def send(self, destination: str, body: Any, headers: Mapping[str, Any] | None = None) -> None:
        """Send to `queue://orders` or `topic://prices` when the step is committed."""
        ...


class Destination(Protocol):
    """One queue or topic of such a broker."""

    def send(self, body: Any, headers: Mapping[str, Any] | None = None) -> None:
        """Send when the step is committed."""
        ...
