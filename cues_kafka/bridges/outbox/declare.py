"""`SqlOutbox`, a table as the source of a feed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cues_kafka.arguments import known_arguments
from cues_kafka.errors import ConfigError, GraphError
from cues_kafka.extras import DATABASES, Package, missing
from cues_kafka.graph.addresses import DatabaseAddress
from cues_kafka.graph.effects import dialect_of, drivers_of
from cues_kafka.graph.levels import CLAIMED_FEED, OUTBOX_FEED, EdgeKind

if TYPE_CHECKING:
    from cues_kafka.bridges.outbox.reader import OutboxReader
    from cues_kafka.graph.message import Message

_EITHER: Final = OUTBOX_FEED._replace(
    level="exactly once (place; in MySQL and MariaDB rows claimed by their ids)",
    why=f"{OUTBOX_FEED.why}. In MySQL and MariaDB: {CLAIMED_FEED.why}",
)
"""What is said where the address is in a variable that is not set, so that the database is not known."""

_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,62}")
_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,62}(\.[A-Za-z_][A-Za-z0-9_$]{0,62})?")


@known_arguments()
@dataclass(frozen=True, slots=True)
class SqlOutbox:
    """
    The rows of a table, each one a message, for a `Feed`. An application writes them in its own transactions.

    A row is delivered after its transaction has committed, and never skipped because it committed late. docs/feeds.md
    has the table for each database, and in which order rows come.

    Attributes:
        url: ``postgresql://user@host/database``, ``mysql://...``, ``mariadb://...`` or ``sqlite:///path``. It is never
            shown.
        env: the environment variable that holds the address; then `url` is empty.
        table: the table, also as ``schema.table``.
        value: the column of values: text or bytes of the topic's codec, or JSON of the database.
        key: the column of keys; None: as the topic says.
        headers: a column of headers, a JSON object of texts; None: no headers.
        id: the column that numbers the rows.
        xid: PostgreSQL: the column with the transaction that wrote the row.
        keep: whether delivered rows stay in the table; if not, the newest one stays. In MySQL and MariaDB none does.
        channel: PostgreSQL: the channel on which the application notifies of new rows; None: the table is only polled.
    """

    url: str = field(default="", repr=False, metadata={"hidden": True})
    env: str = field(default="", kw_only=True)
    table: str = field(default="outbox", kw_only=True)
    value: str = field(default="value", kw_only=True)
    key: str | None = field(default="key", kw_only=True)
    headers: str | None = field(default=None, kw_only=True)
    id: str = field(default="id", kw_only=True)
    xid: str = field(default="xid", kw_only=True)
    keep: bool = field(default=True, kw_only=True)
    channel: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not (isinstance(self.url, str) and isinstance(self.env, str)) or bool(self.url) == bool(self.env):
            raise GraphError(
                'SqlOutbox() takes an address, SqlOutbox("postgresql://user@host/database"), or the name of the '
                'environment variable that holds it, SqlOutbox(env="SHOP_DATABASE").'
            )
        if self.url:
            dialect_of(self.url)
        for name in ("value", "key", "headers", "id", "xid", "channel"):
            column = getattr(self, name)
            if column is not None and not (isinstance(column, str) and _COLUMN.fullmatch(column)):
                raise GraphError(f"SqlOutbox({name}={column!r}): takes a name of letters, digits and '_'.")
        if not isinstance(self.table, str) or not _TABLE.fullmatch(self.table):
            raise GraphError(f"SqlOutbox(table={self.table!r}): takes a table's name, or schema.table.")

    def packages(self) -> tuple[Package, ...]:
        """What must be installed for it, besides the core."""
        return drivers_of(self.url or os.environ.get(self.env, ""))

    def parts(self) -> int:
        """One: a table has one order."""
        return 1

    @property
    def edge(self) -> EdgeKind:
        """What it guarantees, on which condition, and the command that shows it; it depends on the database."""
        match self._dialect:
            case "mysql":
                return CLAIMED_FEED
            case None:
                return _EITHER
            case _:
                return OUTBOX_FEED

    @property
    def _dialect(self) -> str | None:
        """Which database it is in; None: the variable is not set here, or is no address."""
        try:
            return dialect_of(self.url or os.environ.get(self.env, ""))
        except GraphError:
            return None

    def open(self) -> OutboxReader:
        """
        Make what a process reads from. It connects when it is first read.

        Raises:
            ConfigError: the environment variable is not set, the address cannot be read, or the database's driver is
                not installed.
        """
        url = self.url or os.environ.get(self.env, "")
        if not url:
            raise ConfigError(
                f"SqlOutbox(env={self.env!r}): the environment variable {self.env} is not set. Set it to the address "
                "of the database: postgresql://user@host/database"
            )
        dialect = DatabaseAddress(url).dialect
        try:
            return _READERS[dialect](self, url)
        except ImportError as error:
            raise missing("SqlOutbox(...)", *DATABASES[dialect], error=error) from None

    def read(self, part: int, place: str | None, limit: int) -> Iterable[tuple[Message[Any], str]]:
        """See `ReplayableSource`; each call connects again."""
        return self.open().read(part, place, limit)

    def show(self, place: str) -> str:
        """The row."""
        return f"row {re.split('[:,;-]', place.rpartition('#')[0] or place)[-1]} of {self.table!r}"


def _postgres(outbox: SqlOutbox, url: str) -> OutboxReader:
    from cues_kafka.bridges.outbox.postgres import PostgresOutbox  # noqa: PLC0415

    return PostgresOutbox(outbox, url)


def _mysql(outbox: SqlOutbox, url: str) -> OutboxReader:
    from cues_kafka.bridges.outbox.mysql import MysqlOutbox  # noqa: PLC0415

    return MysqlOutbox(outbox, url)


def _sqlite(outbox: SqlOutbox, url: str) -> OutboxReader:
    from cues_kafka.bridges.outbox.sqlite import SqliteOutbox  # noqa: PLC0415

    return SqliteOutbox(outbox, url)


_READERS: Final[Mapping[str, Callable[[SqlOutbox, str], OutboxReader]]] = {
    "postgresql": _postgres,
    "mysql": _mysql,
    "sqlite": _sqlite,
}
