"""`Delta`, a place with tables of Delta Lake, and its tables as what a processor writes to, exactly once (E6)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import urlsplit

from cues_kafka.arguments import known_arguments
from cues_kafka.errors import ConfigError, GraphError
from cues_kafka.extras import DELTALAKE, PYARROW_OF_DELTA, Package
from cues_kafka.graph.blobs import check_address
from cues_kafka.graph.effects import FrameRows
from cues_kafka.graph.levels import EXACTLY_ONCE, EdgeKind
from cues_kafka.graph.names import quoted
from cues_kafka.graph.targets import TaskName, TransactionalTarget, Write
from cues_kafka.sinks.delta.column_types import SCALARS, ListOf, StructOf, column_type
from cues_kafka.sinks.delta.rows import DeltaRows

if TYPE_CHECKING:
    from cues_kafka.sinks.delta.transactions import DeltaTransactions

SCHEMES: Final = ("file", "s3", "gs", "abfs", "abfss", "az")
"""What an address may begin with."""

TO_DELTA: Final = EdgeKind(
    'Kafka to a table of Delta Lake, `effects={"table": ...}` or `Sink(..., into=Delta(...).table("orders"))`',
    EXACTLY_ONCE,
    "rows, outcomes and position in one commit of the table's log; the store must refuse to overwrite, and keep what "
    "it commits",
    "pytest tests/unit/sinks/delta tests/servers/test_delta.py tests/fault/test_delta_kills.py",
)

DELTA_OF_SPARK: Final = EdgeKind(
    'Kafka to a table of Delta Lake on Spark, `DataFrameProcessor(..., into=Delta(...).table("orders"))`',
    EXACTLY_ONCE,
    "one commit of the table's log has all rows of a batch and its number; the store must refuse to overwrite, and "
    "keep what it commits, and driver and executors must see it",
    "pytest -m 'not slow' tests/unit/on_spark/staged/test_delta_batches.py tests/spark/test_delta.py",
)

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_BAD_IN_COLUMN: Final = re.compile(r"[ ,;{}()\n\t=]")


@known_arguments()
@dataclass(frozen=True)
class Delta:
    """
    A directory or a bucket with tables of Delta Lake: `Sink(..., into=Delta("s3://lake").table("orders"))`.

    Options show in no text that the project prints.

    Attributes:
        url: ``file:///absolute/path`` or ``s3://bucket/prefix``, the address that the tables are below.
        env: the environment variable that holds the address; then `url` is empty.
        options: the `storage_options` of deltalake, such as `AWS_ENDPOINT_URL`; texts.
    """

    url: str = field(default="", repr=False, metadata={"hidden": True})
    env: str = field(default="", kw_only=True)
    options: Mapping[str, str] = field(
        default_factory=dict, kw_only=True, repr=False, hash=False, metadata={"hidden": True}
    )

    def __post_init__(self) -> None:
        if bool(self.url) == bool(self.env):
            raise GraphError(
                'Delta() takes an address, Delta("s3://bucket/prefix"), or the name of the environment variable that '
                'holds it, Delta(env="SHOP_LAKE").'
            )
        if self.url:
            _check_address(self.url)
            object.__setattr__(self, "url", self.url.rstrip("/"))
        options = dict(self.options or {})
        if wrong := [name for name, value in options.items() if not isinstance(value, str)]:
            raise GraphError(f"Delta(options=): {quoted(wrong)}: the value is no text. Write numbers as texts, too.")
        object.__setattr__(self, "options", options)

    def table(
        self,
        name: str,
        *,
        columns: Mapping[str, str] | None = None,
        partition_by: Sequence[str] = (),
        leave: Sequence[str] = (),
    ) -> DeltaTarget:
        """
        A table that gets a row for each value.

        Args:
            name: its directory below the address.
            columns: the type of each field, as Delta names it: `{"id": "long", "tags": "array<string>"}`. Fields of
                the values that it does not name are left out. None: the fields of the class in the topic's codec.
            partition_by: the columns that files are divided by.
            leave: columns of the table that this processor does not write; they are null in its rows.

        Raises:
            GraphError: it cannot be the name of a table, or a column has no such type.
        """
        return DeltaTarget(self, name, dict(columns or {}), tuple(_several(partition_by)), tuple(_several(leave)))

    def address(self) -> str:
        """
        The address that the tables are below.

        Raises:
            ConfigError: the environment variable is not set, or holds no address.
        """
        url = self.url or os.environ.get(self.env, "").rstrip("/")
        if not url:
            raise ConfigError(
                f"Delta(env={self.env!r}): the environment variable {self.env} is not set. Set it to the address that "
                "the tables are below: s3://bucket/prefix"
            )
        try:
            _check_address(url)
        except GraphError as error:
            raise ConfigError(f"Delta(env={self.env!r}): {error}") from None
        return url


@dataclass(frozen=True)
class DeltaTarget(TransactionalTarget):
    """
    A table of Delta Lake; see `Delta.table`.

    Rows, outcomes and place are one commit of the table's log. Two tables have two logs, and no transaction spans them:
    so each table is a target of its own.

    Attributes:
        delta: the place that it is in.
        name: of the table.
        columns: by column, its type.
        partition_by: the columns that files are divided by.
        leave: columns of the table that stay null.
    """

    what: ClassVar[str] = "Delta table"
    holder: ClassVar[str] = "table"
    column_types: ClassVar[Mapping[type[Any], str]] = {
        bool: "boolean",
        int: "long",
        float: "double",
        str: "string",
        bytes: "binary",
        datetime: "timestamp",
        date: "date",
    }
    how_typed: ClassVar[str] = 'columns={"id": "long"}'
    level: ClassVar[str] = TO_DELTA.level
    rests_on: ClassVar[str] = TO_DELTA.why

    delta: Delta
    name: str
    columns: Mapping[str, str] = field(default_factory=dict, hash=False)
    partition_by: tuple[str, ...] = ()
    leave: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise GraphError(
                f"{self.name!r} cannot be the name of a Delta table. Use letters, digits, '.', '_' and '-'."
            )
        where = f"Delta table {self.name!r}"
        for column, kind in self.columns.items():
            if not isinstance(column, str) or not column or _BAD_IN_COLUMN.search(column):
                raise GraphError(
                    f"{where}: {column!r} cannot be the name of a column. Leave out ' ,;{{}}()=' and tabs."
                )
            try:
                found = column_type(kind)
            except ValueError:
                raise GraphError(
                    f"{where}, column {column!r}: Delta knows no type {kind!r}. It knows {quoted(SCALARS)}, and "
                    "types such as 'decimal(12,2)', 'array<string>' and 'struct<id:long,tags:array<string>>', without "
                    "blanks."
                ) from None
            if column in self.partition_by and isinstance(found, ListOf | StructOf):
                raise GraphError(f"{where}, partition_by=: {column!r} is {kind!r}. Name columns of plain types.")
        names = [*self.columns, *self.leave]
        if alike := sorted({one for one in names if [*map(str.lower, names)].count(one.lower()) > 1}):
            raise GraphError(f"{where}: columns {quoted(alike)} differ by case only, or are named twice.")
        if self.columns and (unknown := [one for one in self.partition_by if one not in self.columns]):
            raise GraphError(f"{where}, partition_by=: there is no column {quoted(unknown)}. Columns: "
                             f"{quoted(self.columns)}.")  # fmt: skip
        if self.columns and set(self.columns) <= set(self.partition_by):
            raise GraphError(f"{where}, partition_by=: a table needs a column that it is not divided by.")

    @property
    def env(self) -> str:
        """The environment variable that holds the address; empty: none."""
        return self.delta.env

    @property
    def edge(self) -> EdgeKind:  # type: ignore[override]  # as that of its base
        return TO_DELTA

    @property
    def frames(self) -> FrameRows:
        return FrameRows("committed as a whole by one commit of the table's log", whole=True, edge=DELTA_OF_SPARK)

    def packages(self) -> tuple[Package, ...]:
        return DELTALAKE, PYARROW_OF_DELTA

    def title(self, name: str) -> str:
        del name
        return f"{self.what} {self.name}"

    @property
    def untyped(self) -> bool:
        return not self.columns

    def typed(self, columns: Mapping[str, str]) -> DeltaTarget:
        return replace(self, columns=dict(columns))

    def value(self, write: Write) -> DeltaRows:
        return DeltaRows(write, self.name, self.columns)

    @property
    def options(self) -> Mapping[str, str]:
        """The `storage_options` of deltalake."""
        return self.delta.options

    def url(self) -> str:
        """
        The address of the table.

        Raises:
            ConfigError: see `Delta.address`.
        """
        return f"{self.delta.address()}/{self.name}"

    def open(self, task: TaskName) -> DeltaTransactions:
        from cues_kafka.sinks.delta.transactions import transactions_of  # noqa: PLC0415 - it needs an extra

        return transactions_of(self, task)

    def inspect(self) -> Iterable[str]:
        from cues_kafka.sinks.delta.checks import refusals  # noqa: PLC0415 - as above

        return refusals(self)

    def changes(self, *, first: bool) -> Iterable[str]:
        from cues_kafka.sinks.delta.checks import changes  # noqa: PLC0415 - as above

        return changes(self, first=first)

    def make(self, *, first: bool) -> None:
        from cues_kafka.sinks.delta.checks import make_table  # noqa: PLC0415 - as above

        make_table(self, first=first)


def _check_address(url: str) -> None:
    check_address(url, "Delta", SCHEMES)
    if urlsplit(url).scheme == "file" and "%" in url:
        raise GraphError("Delta(...): deltalake does not reach a directory with '%' in its path. Give it another name.")


def _several(names: Sequence[str]) -> Sequence[str]:
    return (names,) if isinstance(names, str) else names
