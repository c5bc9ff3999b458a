"""What readers of outboxes in all databases have in common."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final, Protocol, TypeAlias

from cues_kafka.errors import RecoveryError
from cues_kafka.graph.addresses import DatabaseAddress
from cues_kafka.graph.feed import Encoded
from cues_kafka.graph.message import Message

AT_ONCE: Final = 1_000
"""Rows of one query, which are in memory together."""

Page: TypeAlias = "Callable[[str | None, int], Sequence[tuple[Sequence[Any], str]]]"
"""Reads rows behind a place: value, key and headers of each, and its own place."""


class OutboxTable(Protocol):
    """What a reader needs to know: the attributes of `SqlOutbox`."""

    @property
    def table(self) -> str: ...
    @property
    def value(self) -> str: ...
    @property
    def key(self) -> str | None: ...
    @property
    def headers(self) -> str | None: ...
    @property
    def id(self) -> str: ...
    @property
    def xid(self) -> str: ...
    @property
    def keep(self) -> bool: ...
    @property
    def channel(self) -> str | None: ...
    def show(self, place: str) -> str: ...


class OutboxReader(ABC):
    """Reads an outbox in one process."""

    quote = '"'

    def __init__(self, outbox: OutboxTable, url: str) -> None:
        self.outbox = outbox
        self._address = DatabaseAddress(url)
        self._shape = ""
        self._parsed = False  # values come as what their JSON means, so a text is a value, not bytes of the codec

    def parts(self) -> int:
        return 1

    @abstractmethod
    def read(self, part: int, place: str | None, limit: int) -> Iterator[tuple[Message[Any], str]]: ...

    @abstractmethod
    def close(self) -> None:
        """Disconnect. It may come on another thread, and twice."""

    def show(self, place: str) -> str:
        return self.outbox.show(place)

    # For the dialects

    def name(self, name: str) -> str:
        """A table or column, quoted."""
        return ".".join(f"{self.quote}{one}{self.quote}" for one in name.split("."))

    @property
    def columns(self) -> str:
        """Those of a message: value, key, headers."""
        given = (self.outbox.value, self.outbox.key, self.outbox.headers)
        return ", ".join("NULL" if one is None else self.name(one) for one in given)

    def message(self, place: str, value: Any, key: Any, headers: Any) -> Message[Any]:
        """
        The message of a row.

        Raises:
            RecoveryError: the row's headers are no JSON object.
        """
        if isinstance(value, str) and not self._parsed:
            value = Encoded(value.encode())
        elif isinstance(value, bytes | bytearray | memoryview):
            value = Encoded(bytes(value))
        if isinstance(key, bytearray | memoryview):
            key = bytes(key)
        return Message(value, key=key, headers=self._headers(place, headers))

    def _headers(self, place: str, given: Any) -> Mapping[str, Any]:
        if given is None:
            return {}
        if isinstance(given, str | bytes):
            with suppress(ValueError):
                given = json.loads(given)
        if not isinstance(given, Mapping):
            raise RecoveryError(
                f"the headers of {self.show(place)} are {str(given)[:80]!r}",
                remedy="store a JSON object of texts, or NULL, in this row's headers",
            )
        return given

    def mark(self, row: Sequence[Any], behind: str = "") -> str:
        """
        A digest of a row's columns and of the mark before it, which a place carries.

        It begins with a digest of the columns' names: marks of other columns say nothing about a row.
        """
        if not self._shape:
            self._shape = blake2b(self.columns.encode(), digest_size=4).hexdigest()
        return self._shape + blake2b((behind + ascii(tuple(row))).encode(), digest_size=8).hexdigest()

    def fits(self, mark: str, found: str) -> bool:
        """Whether rows may be those that were delivered; a mark of an older release or of other columns fits all."""
        return not mark or mark[:8] != found[:8] or mark == found

    def check_row(self, place: str, row: Sequence[Any] | None) -> None:
        """
        Check that the newest delivered row is still there, and the same.

        A place that an older release wrote has no mark, and is not checked.

        Raises:
            RecoveryError: it is not, so rows up to this place may be other ones than those that were delivered.
        """
        mark = place.partition("#")[2]
        if not mark or (row is not None and self.fits(mark, self.mark(row))):
            return
        raise self.restored(
            f"{self.show(place)} was delivered, and " + ("is gone" if row is None else "is another one")
        )

    def restored(self, what: str) -> RecoveryError:
        """The refusal of a table that is not the one that was read."""
        return RecoveryError(
            f"{what}: the database was restored from a backup, or a delivered row was deleted or changed",
            remedy="restore a newer backup, or put the row back; or delete the rows that were delivered, and give the "
            "feed a new name=",
        )

    def in_pages(self, page: Page, place: str | None, limit: int) -> Iterator[tuple[Message[Any], str]]:
        """
        Rows page by page, until a page has fewer than it was asked for.

        Each message is made when it is taken, so that the rows before one that cannot be read are delivered.
        """
        left = limit
        while left > 0:
            asked = min(left, AT_ONCE)
            rows = page(place, asked)
            for row, at in rows:
                yield self.message(at, *row), at
            if len(rows) < asked:
                return
            place = rows[-1][1]
            left -= len(rows)

    def refuse(self, error: Exception, text: str) -> RecoveryError:
        """What the database says is wrong with the table."""
        return RecoveryError(
            f"the outbox {self.outbox.table!r} cannot be read: {text} ({type(error).__name__})",
            remedy="create the table with the columns of docs/feeds.md, and let this user read it",
        )

    def quiet(self, error: BaseException) -> str:
        """The text of an error on an open connection, without the address, which its causes then do not show either."""
        self._address.hide(error)
        return " ".join(self._address.quiet(error).split())
