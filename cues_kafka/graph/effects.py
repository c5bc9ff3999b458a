"""What a processor acts on besides Kafka: declarations for `effects={"name": ...}`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from cues_kafka.arguments import known_arguments
from cues_kafka.errors import GraphError
from cues_kafka.extras import DATABASES, Package
from cues_kafka.graph.levels import ANYTHING, DATABASE, DATABASE_OF_SPARK, UPSERT, EdgeKind
from cues_kafka.graph.names import quoted
from cues_kafka.graph.topic import set_fields

DIALECTS: Final = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlite": "sqlite",
}
"""The schemes of addresses, and which database each of them means."""

SOURCE, OFFSET, DELETED = "cues_source", "cues_offset", "cues_deleted"
"""The columns with which a table of `Upsert` says which message each of its rows is from, and whether it is deleted."""

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


class FrameRows(NamedTuple):
    """
    How the rows of a `DataFrameProcessor` are committed to what `into=` names (E5).

    Attributes:
        how: the end of a sentence that begins with "each batch is prepared in files, then".
        whole: all rows of a batch are committed at once, so it has one part; else each part commits its own.
        edge: what it guarantees, on which condition, and the command that shows it.
    """

    how: str
    whole: bool
    edge: EdgeKind


_IN_PARTS: Final = FrameRows("written to the table part by part", whole=False, edge=DATABASE_OF_SPARK)


class Effect:
    """
    Base of all declarations of `effects=`.

    Attributes:
        kind: its name in a graph that is written down.
        stepwise: each step gets its own, which knows the step (E4).
        transactional: it commits what user code writes in one transaction with the attempt (E1).
        what: what it is, for plans.
        edge: what it guarantees, on which condition, and the command that shows it.
        placed: it must be told which message the function is called with.
        holder: what keeps the attempt, in texts: `database` or `store`.
        column_types: by class of Python, the type of a column; for a table that takes its columns from a class.
        how_typed: how columns are declared, in texts.
    """

    kind: ClassVar[str] = ""
    stepwise: ClassVar[bool] = False
    transactional: ClassVar[bool] = False
    what: ClassVar[str] = "target"
    edge: ClassVar[EdgeKind] = ANYTHING
    placed: ClassVar[bool] = False
    holder: ClassVar[str] = "database"
    column_types: ClassVar[Mapping[type[Any], str]] = {}
    how_typed: ClassVar[str] = ""

    @property
    def frames(self) -> FrameRows | None:
        """How Spark commits rows of DataFrames to it; None: it is nothing that a `DataFrameProcessor` writes to."""
        return None

    @property
    def untyped(self) -> bool:
        """Whether it is a table that takes its columns from the class in the topic's codec."""
        return False

    def typed(self, columns: Mapping[str, str]) -> Effect:
        """The same table with these columns and their types."""
        del columns
        return self

    @property
    def database(self) -> Sql | None:
        """The database that it is in; None: it is in none."""
        return None

    @property
    def home(self) -> Effect | None:
        """The database or store whose transaction it takes part in; None: none."""
        return self.database

    def packages(self) -> tuple[Package, ...]:
        """What must be installed for it, besides the core."""
        home = self.home
        return () if home is None or home is self else home.packages()

    def title(self, name: str) -> str:
        """How plans call it that is declared under this name."""
        return f"{self.what} {name}"


@known_arguments()
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Sql(Effect):
    """
    A database in whose transaction a processor's function reads and writes, exactly once (E1).

    The function gets a connection in an open transaction under the name that it is declared with. What it writes is
    committed together with the place in the input, and with what the function sends to Kafka.

    The address shows in no text that the project prints: no plan, no log, no `repr`.

    Attributes:
        url: ``postgresql://user@host/database``, ``mysql://...``, ``mariadb://...`` or ``sqlite:///path``.
        env: the environment variable that holds the address; then `url` is empty.
    """

    kind: ClassVar[str] = "sql"
    transactional: ClassVar[bool] = True
    what: ClassVar[str] = "database"
    edge: ClassVar[EdgeKind] = DATABASE

    url: str = field(repr=False)
    env: str

    def __init__(self, url: str = "", *, env: str = "") -> None:
        if bool(url) == bool(env):
            raise GraphError(
                'Sql() takes an address, Sql("postgresql://user@host/database"), or the name of the environment '
                'variable that holds it, Sql(env="SHOP_DATABASE").'
            )
        if url:
            dialect_of(url)
        object.__setattr__(self, "url", url)
        object.__setattr__(self, "env", env)

    def __repr__(self) -> str:
        return f"Sql(env={self.env!r})" if self.env else f"Sql({dialect_of(self.url)})"

    @property
    def database(self) -> Sql:
        return self

    def packages(self) -> tuple[Package, ...]:
        return drivers_of(self.url or os.environ.get(self.env, ""))

    def table(self, table: str, *, columns: Columns) -> SqlTable:
        """
        A table that gets a row for each value, by `INSERT`, and by `COPY` where it is PostgreSQL.

        Args:
            table: its name; with a schema, `schema.table`.
            columns: names that columns and fields of the values share, or which field goes to which column.

        Raises:
            GraphError: a name cannot be one of a table or column.
        """
        return SqlTable(self, table, columns=columns)

    def upsert(self, table: str, *, key: str | Sequence[str], columns: Columns) -> Upsert:
        """
        A table that keeps the newest row of each key. A message that is older than the row changes nothing.

        Args:
            table: its name; with a schema, `schema.table`.
            key: the column that tells rows apart, or several of them; the table has a primary key of them, or a unique
                index. All messages of a key must be in one partition.
            columns: see `table`. The columns of the key may be left out.

        Raises:
            GraphError: a name cannot be one of a table or column.
        """
        return Upsert(self, table, key=key, columns=columns)


Columns: TypeAlias = Sequence[str] | Mapping[str, str]
"""Columns that have the names of fields, or the field of each column."""


@dataclass(frozen=True, slots=True, init=False)
class SqlTable(Effect):
    """
    A table that gets a row for each value; see `Sql.table`.

    A function gets it with the method `insert(value)`.

    Attributes:
        sql: the database.
        table: the table's name.
        columns: (column, field of the values) pairs.
    """

    kind: ClassVar[str] = "table"
    transactional: ClassVar[bool] = True
    what: ClassVar[str] = "table"
    edge: ClassVar[EdgeKind] = DATABASE

    sql: Sql
    table: str
    columns: tuple[tuple[str, str], ...]

    def __init__(self, sql: Sql, table: str, *, columns: Columns) -> None:
        set_fields(self, sql=_database(sql), table=_identifier(table, "table", dots=True), columns=_columns(columns))

    @property
    def database(self) -> Sql:
        return self.sql

    @property
    def frames(self) -> FrameRows:
        return _IN_PARTS

    def title(self, name: str) -> str:
        del name
        return f"{self.what} {self.table}"


@dataclass(frozen=True, slots=True, init=False)
class Upsert(Effect):
    """
    A table that keeps the newest row of each key; see `Sql.upsert`.

    A function gets it with the methods `put(value)` and `delete(key)`. The table needs three columns besides those of
    the values: `cues_source` (text), `cues_offset` (64 bits) and `cues_deleted` (boolean). They say which message a row
    is from, so that an older message never takes its place, and that it is deleted.

    Attributes:
        sql: the database.
        table: the table's name.
        key: the columns that tell rows apart.
        columns: (column, field of the values) pairs, those of the key first.
    """

    kind: ClassVar[str] = "upsert"
    transactional: ClassVar[bool] = True
    what: ClassVar[str] = "table"
    edge: ClassVar[EdgeKind] = UPSERT
    placed: ClassVar[bool] = True

    sql: Sql
    table: str
    key: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]

    def __init__(self, sql: Sql, table: str, *, key: str | Sequence[str], columns: Columns) -> None:
        keys = (key,) if isinstance(key, str) else tuple(key)
        if not keys:
            raise GraphError(f'upsert({table!r}, key=()): name the column that tells rows apart: key="id".')
        given = dict(_columns(columns))
        pairs = tuple((one, given.pop(one, one)) for one in (_identifier(name, "key column") for name in keys))
        if own := [name for name in given if name.lower() in (SOURCE, OFFSET, DELETED)]:
            raise GraphError(
                f"upsert({table!r}): the columns {quoted(own)} are filled in by cues-kafka. Leave them out."
            )
        named = _identifier(table, "table", dots=True)
        set_fields(self, sql=_database(sql), table=named, key=keys, columns=(*pairs, *given.items()))

    @property
    def database(self) -> Sql:
        return self.sql

    @property
    def frames(self) -> FrameRows:
        return _IN_PARTS

    def title(self, name: str) -> str:
        del name
        return f"{self.what} {self.table}"


def _database(given: Any) -> Sql:
    if not isinstance(given, Sql):
        raise GraphError(f'{given!r} is not a database. Write Sql("postgresql://..."), or Sql(env="SHOP_DATABASE").')
    return given


def _columns(given: Any) -> tuple[tuple[str, str], ...]:
    if isinstance(given, str) or not isinstance(given, Mapping | Sequence) or not given:
        raise GraphError(
            f'columns={given!r}: write columns=["id", "total"], or the field of each column: '
            'columns={"id": "order_id"}.'
        )
    pairs = tuple(given.items()) if isinstance(given, Mapping) else tuple((name, name) for name in given)
    if wrong := [name for _, name in pairs if not isinstance(name, str) or not name]:
        raise GraphError(f"columns= names the fields {quoted(wrong)}. A field's name is a string.")
    names = [_identifier(name, "column").lower() for name, _ in pairs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise GraphError(f"columns= names {quoted(twice)} twice. Name each column once.")
    return pairs


def _identifier(name: Any, what: str, *, dots: bool = False) -> str:
    parts = name.split(".") if dots and isinstance(name, str) else [name]
    if len(parts) > 2 or not all(isinstance(one, str) and _IDENTIFIER.fullmatch(one) for one in parts):
        raise GraphError(
            f"{name!r} cannot be the name of a {what} here. Use letters, digits and '_'"
            f"{', with a schema as schema.table' if dots else ''}."
        )
    return str(name)


def drivers_of(url: str) -> tuple[Package, ...]:
    """The driver of the database at an address; none for an address that names no database."""
    try:
        return DATABASES[dialect_of(url)]
    except GraphError:  # it is refused where it is used, with the reason
        return ()


def dialect_of(url: str) -> str:
    """
    The database that an address means: `postgresql`, `mysql` or `sqlite`.

    Raises:
        GraphError: the address names another database; the message does not show it.
    """
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
    except ValueError:
        raise GraphError(
            "Sql(...): the host in the address cannot be read. Write postgresql://user@host/database, and a number of "
            "IPv6 as [::1]; in a user name and a password write %5B for '[', %5D for ']' and %40 for '@'."
        ) from None
    scheme = parts.scheme.partition("+")[0]
    if scheme not in DIALECTS:
        known = bool(scheme) and url.partition(":")[2].startswith("//")  # else it may be a user's name
        raise GraphError(
            f"Sql(...): the address begins with {scheme if known else 'no scheme'!r}. Write postgresql://, mysql://, "
            "mariadb:// or sqlite:///path."
        )
    if DIALECTS[scheme] == "sqlite" and not parts.path.strip("/"):
        raise GraphError("Sql(...): sqlite in memory is gone with the process. Write sqlite:///path/to/file.")
    return DIALECTS[scheme]
