"""`SqlOutbox`, a table as the source of a feed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from cues_kafka.errors import ConfigError, GraphError
from cues_kafka.graph.feed import LEVEL

if TYPE_CHECKING:
    from cues_kafka.bridges.outbox.reader import OutboxReader
    from cues_kafka.graph.message import Message

CLAIMS: Final = "exactly once (rows claimed by their ids, and deleted behind the commit)"

_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,62}")
_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,62}(\.[A-Za-z_][A-Za-z0-9_$]{0,62})?")

SCHEMES: Final = {
    "postgresql": "postgres",
    "postgres": "postgres",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlite": "sqlite",
}


@dataclass(frozen=True, slots=True)
class SqlOutbox:
    """
    The rows of a table, each one a message, for a `Feed`. An application writes them in its own transactions.

    A row is delivered after its transaction has committed, and never skipped because it committed late. docs/feeds.md
    has the table for each database, and in which order rows come.

    Attributes:
        url: ``postgresql://...``, ``mysql://...``, ``mariadb://...``, ``sqlite:///file``; or ``$NAME``: what the
            environment variable of that name says. It is never shown.
        table: the table, also as ``schema.table``.
        value: the column of values: text or bytes of the topic's codec, or JSON of the database.
        key: the column of keys; None: as the topic says.
        headers: a column of headers, a JSON object of texts; None: no headers.
        id: the column that numbers the rows.
        xid: PostgreSQL: the column with the transaction that wrote the row.
        keep: whether delivered rows stay in the table. In MySQL and MariaDB they never do.
        channel: PostgreSQL: the channel on which the application notifies of new rows; None: the table is only polled.
    """

    url: str = field(repr=False, metadata={"hidden": True})
    table: str = field(default="outbox", kw_only=True)
    value: str = field(default="value", kw_only=True)
    key: str | None = field(default="key", kw_only=True)
    headers: str | None = field(default=None, kw_only=True)
    id: str = field(default="id", kw_only=True)
    xid: str = field(default="xid", kw_only=True)
    keep: bool = field(default=True, kw_only=True)
    channel: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.url, str) or not self.url:
            raise GraphError("SqlOutbox(url): takes an address as text, or '$NAME' for an environment variable's.")
        if not self.url.startswith("$"):
            _dialect(self.url, GraphError)
        for name in ("value", "key", "headers", "id", "xid", "channel"):
            column = getattr(self, name)
            if column is not None and not (isinstance(column, str) and _COLUMN.fullmatch(column)):
                raise GraphError(f"SqlOutbox({name}={column!r}): takes a name of letters, digits and '_'.")
        if not isinstance(self.table, str) or not _TABLE.fullmatch(self.table):
            raise GraphError(f"SqlOutbox(table={self.table!r}): takes a table's name, or schema.table.")

    def parts(self) -> int:
        """One: a table has one order."""
        return 1

    @property
    def level(self) -> str:
        """What the guarantee rests on."""
        known = not self.url.startswith("$")
        return CLAIMS if known and _dialect(self.url, GraphError) == "mysql" else LEVEL

    def open(self) -> OutboxReader:
        """
        Make what a process reads from. It connects when it is first read.

        Raises:
            ConfigError: the environment variable is not set, or the database's driver is not installed.
        """
        url = self.url
        if url.startswith("$"):
            found = os.environ.get(url[1:])
            if not found:
                raise ConfigError(f"SqlOutbox({url!r}): the environment variable {url[1:]} is not set.")
            url = found
        match _dialect(url, ConfigError):
            case "postgres":
                from cues_kafka.bridges.outbox.postgres import PostgresOutbox  # noqa: PLC0415

                return PostgresOutbox(self, url)
            case "mysql":
                from cues_kafka.bridges.outbox.mysql import MysqlOutbox  # noqa: PLC0415

                return MysqlOutbox(self, url)
            case _:
                from cues_kafka.bridges.outbox.sqlite import SqliteOutbox  # noqa: PLC0415

                return SqliteOutbox(self, url)

    def read(self, part: int, place: str | None, limit: int) -> Iterable[tuple[Message[Any], str]]:
        """See `ReplayableSource`; each call connects again."""
        return self.open().read(part, place, limit)

    def show(self, place: str) -> str:
        """The row."""
        return f"row {place.rpartition(':')[2].rpartition(',')[2].rpartition('-')[2]} of {self.table!r}"


def _dialect(url: str, error: type[GraphError | ConfigError]) -> str:
    scheme = urlsplit(url).scheme
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise error(f"SqlOutbox(url): it begins with none of {known}. Write one of them.")
    return SCHEMES[scheme]
