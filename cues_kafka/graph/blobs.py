"""Stores of files as what a processor acts on: `Blobs`, and the tables of files in it (E3)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from cues_kafka.arguments import known_arguments
from cues_kafka.errors import GraphError
from cues_kafka.extras import FSSPEC, PYARROW, S3FS, Package
from cues_kafka.graph.effects import Effect, FrameRows
from cues_kafka.graph.levels import FILES, FILES_OF_SPARK, EdgeKind
from cues_kafka.graph.topic import set_fields

SCHEMES: Final = ("file", "s3", "gs", "gcs", "abfs", "abfss", "az", "memory")
"""What an address may begin with. `memory` is fsspec's, and ends with the process: it is for tests."""

PARQUET, JSON_LINES = "parquet", "jsonl"
"""Formats of tables, which are the endings of their files."""

_TABLE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@known_arguments()
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Blobs(Effect):
    """
    A store of files whose objects are committed with the place in the input, exactly once (E3).

    The function gets `put(name, data)` under the name that it is declared with, which returns the object's address.
    What it puts counts when the step is committed. `cues_kafka.files` lists what counts, and only that.

    Options show in no text that the project prints.

    Attributes:
        url: ``file:///absolute/path`` or ``s3://bucket/prefix``.
        env: the environment variable that holds the address; then `url` is empty.
        options: what `fsspec.filesystem` is given besides, such as `endpoint_url`.
    """

    kind: ClassVar[str] = "blobs"
    transactional: ClassVar[bool] = True
    what: ClassVar[str] = "files"
    holder: ClassVar[str] = "store"
    edge: ClassVar[EdgeKind] = FILES

    url: str = field(repr=False)
    env: str
    options: Mapping[str, Any] = field(compare=False)

    def __init__(self, url: str = "", *, env: str = "", options: Mapping[str, Any] | None = None) -> None:
        if bool(url) == bool(env):
            raise GraphError(
                'Blobs() takes an address, Blobs("s3://bucket/prefix"), or the name of the environment variable that '
                'holds it, Blobs(env="SHOP_FILES").'
            )
        if url:
            check_address(url)
        set_fields(self, url=url.rstrip("/"), env=env, options=dict(options or {}))

    def __repr__(self) -> str:
        return f"Blobs(env={self.env!r})" if self.env else f"Blobs({urlsplit(self.url).scheme})"

    @property
    def home(self) -> Blobs:
        return self

    def packages(self) -> tuple[Package, ...]:
        """See `Effect`; other file systems than S3 have packages of their own, which fsspec names."""
        scheme = urlsplit(self.url or os.environ.get(self.env, "")).scheme
        return {"": (), "file": (), "s3": (FSSPEC, S3FS)}.get(scheme, (FSSPEC,))

    def json_lines(self, table: str, *, max_file_bytes: int = 256 * 1024 * 1024) -> FileTable:
        """
        A table of files that have one JSON text a line, one for each value.

        Args:
            table: its name, by which `cues_kafka.files` finds its files.
            max_file_bytes: a batch that is larger gets several files.

        Raises:
            GraphError: it cannot be the name of a table.
        """
        return FileTable(self, table, JSON_LINES, {}, max_file_bytes)

    def parquet(
        self, table: str, *, schema: Mapping[str, str] | None = None, max_file_bytes: int = 256 * 1024 * 1024
    ) -> FileTable:
        """
        A table of Parquet files, with a row for each value.

        Args:
            table: see `json_lines`.
            schema: the type of each field, as pyarrow names it: `{"id": "int64", "carrier": "string"}`. Fields of the
                values that it does not name are left out. None: the fields of the class in the topic's codec; on Spark,
                the columns of the DataFrame.
            max_file_bytes: see `json_lines`; counted before compression.

        Raises:
            GraphError: it cannot be the name of a table, or the schema is no mapping with fields.
        """
        if schema is not None and (not isinstance(schema, Mapping) or not schema):
            raise GraphError(f'parquet({table!r}): name the type of each field: schema={{"id": "int64"}}.')
        return FileTable(self, table, PARQUET, dict(schema or {}), max_file_bytes)


@dataclass(frozen=True, slots=True, init=False)
class FileTable(Effect):
    """
    A table of files; see `Blobs.json_lines` and `Blobs.parquet`.

    Attributes:
        blobs: the store.
        table: the table's name.
        format: `parquet` or `jsonl`.
        schema: by field, its type; empty: any JSON value.
        max_file_bytes: see `Blobs.json_lines`.
    """

    kind: ClassVar[str] = "file-table"
    transactional: ClassVar[bool] = True
    what: ClassVar[str] = "table of files"
    holder: ClassVar[str] = Blobs.holder
    edge: ClassVar[EdgeKind] = FILES
    column_types: ClassVar[Mapping[type[Any], str]] = {
        bool: "bool",
        int: "int64",
        float: "double",
        str: "string",
        bytes: "binary",
        datetime: "timestamp[us]",
        date: "date32",
        time: "time64[us]",
    }
    how_typed: ClassVar[str] = 'schema={"id": "int64"}'

    blobs: Blobs
    table: str
    format: str
    schema: Mapping[str, str] = field(hash=False)
    max_file_bytes: int

    def __init__(
        self,
        blobs: Blobs,
        table: str,
        format: str,  # noqa: A002
        schema: Mapping[str, str],
        max_file_bytes: int,
    ) -> None:
        if not isinstance(table, str) or not _TABLE.fullmatch(table):
            raise GraphError(
                f"{table!r} cannot be the name of a table of files. Use letters, digits, '.', '_' and '-'."
            )
        if not isinstance(max_file_bytes, int) or max_file_bytes < 1:
            raise GraphError(f"max_file_bytes={max_file_bytes!r} of table {table!r}: write a number of bytes.")
        set_fields(self, blobs=blobs, table=table, format=format, schema=dict(schema), max_file_bytes=max_file_bytes)

    @property
    def home(self) -> Blobs:
        return self.blobs

    def packages(self) -> tuple[Package, ...]:
        return (*self.blobs.packages(), *((PYARROW,) if self.format == PARQUET else ()))

    @property
    def frames(self) -> FrameRows | None:
        how = "committed as a whole by one entry of the store's log"
        return FrameRows(how, whole=True, edge=FILES_OF_SPARK) if self.format == PARQUET else None

    @property
    def untyped(self) -> bool:
        return self.format == PARQUET and not self.schema

    def typed(self, columns: Mapping[str, str]) -> FileTable:
        return FileTable(self.blobs, self.table, self.format, columns, self.max_file_bytes)

    def title(self, name: str) -> str:
        del name
        return f"{self.what} {self.table}"


def check_address(url: str, what: str = "Blobs", schemes: Sequence[str] = SCHEMES) -> None:
    """
    Refuse what is no address of a store; the message does not show it.

    Args:
        url: the address.
        what: the class that takes it.
        schemes: what it may begin with.

    Raises:
        GraphError: the scheme is unknown, the path is relative, or there is a password in it.
    """
    parts = urlsplit(url) if isinstance(url, str) else urlsplit("")
    if parts.scheme not in schemes:
        raise GraphError(
            f"{what}(...): the address begins with {parts.scheme or 'no scheme'!r}. Write file:///absolute/path or "
            "s3://bucket/prefix."
        )
    if parts.scheme == "file" and (parts.netloc or not parts.path.strip("/")):
        raise GraphError(f"{what}(...): write the absolute path of a directory: file:///data/archive.")
    if parts.password or parts.query or parts.fragment:
        raise GraphError(
            f"{what}(...): passwords and settings do not belong into the address. Give them with options=."
        )
