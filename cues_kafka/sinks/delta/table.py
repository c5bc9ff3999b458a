"""A table of Delta Lake (E6): the one file that speaks with the library.

Every method speaks of the newest version of the table's log. What the library raises becomes a `RetriableError`: after
a commit without an answer only the log says what happened, and the task asks it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from time import monotonic
from time import time as now
from typing import Any, Final, NamedTuple

from cues_kafka.errors import CuesError, RetriableError
from cues_kafka.extras import DELTALAKE, PYARROW_OF_DELTA, missing
from cues_kafka.graph.targets import TargetMoved
from cues_kafka.sinks.delta.column_types import type_text
from cues_kafka.sinks.delta.columns import DeltaColumn, TableShape, schema_of

try:
    import deltalake
    import pyarrow as pa
    from deltalake import exceptions
    from deltalake.fs import DeltaStorageHandler
    from deltalake.transaction import AddAction
    from pyarrow import fs
except ImportError as error:
    away = [one for one in (DELTALAKE, PYARROW_OF_DELTA) if not one.installed]
    raise missing("A Delta table", *(away or [DELTALAKE]), error=error) from None

BESIDE: Final = "_cues"
"""The directory of the table in which the bytes of tasks are. Readers of Delta and `vacuum` pass over such names."""

PATIENCE: Final[Mapping[str, str]] = {
    "connect_timeout": "5s",
    "timeout": "30s",
    "max_retries": "3",
    "retry_timeout": "30s",
}
"""How long a request to a bucket may take, unless the options say otherwise."""

RECENT_S: Final = 10.0
"""For how long a version counts as new enough to commit over, in seconds."""

MOST_RETRIES: Final = 100
"""How often a commit tries the next version after other tasks have taken one."""

_PIECE_BYTES: Final = 8 * 1024 * 1024
"""Bytes of a file that are in memory at once while it is uploaded."""

_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


class TableFile(NamedTuple):
    """
    A file of rows in the directory of a table.

    Attributes:
        path: in the directory.
        rows: its number of rows.
        bytes: its size.
        partition: by column that the table is divided by, the text of the value that all rows have.
        statistics: of its values, as the log has them; JSON.
    """

    path: str
    rows: int
    bytes: int
    partition: Mapping[str, str | None]
    statistics: str


class OpenedTable:
    """One table, as one task sees it."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self.url = url
        # A path is taken as it is, and an address is decoded.
        self._directory = Path(url.removeprefix("file://")) if url.startswith("file:") else None
        self._where = str(self._directory or url)
        self._options = {**({} if self._directory else PATIENCE), **options}
        self._opened: Any = None
        self._looked = -RECENT_S

    def exists(self) -> bool:
        """Whether there is a table at the address."""
        try:
            self.renew()
        except TableGone:
            return False
        return True

    def look(self) -> None:
        """
        Have a version that was the newest one a moment ago.

        A commit over an older version is refused if another one came between that counts, so it need not be newer.

        Raises:
            TableGone: there is no table.
            RetriableError: the store does not answer.
        """
        if monotonic() - self._looked > RECENT_S or not self._is_there():
            self.renew()

    def renew(self) -> None:
        """
        Look at the newest version from now on.

        Raises:
            TableGone: there is no table.
            RetriableError: the store does not answer.
        """
        with translated():
            if self._opened is not None and not self._is_there():
                self._opened = None
            if self._opened is not None:
                try:
                    self._opened.update_incremental()
                except (exceptions.DeltaError, OSError):  # the log may begin later by now, or be gone
                    self._opened = None
            if self._opened is None:
                self._opened = deltalake.DeltaTable(self._where, storage_options=self._options)
            self._looked = monotonic()

    @property
    def version(self) -> int:
        """The version that was looked at last."""
        with translated():
            return int(self._opened.version())

    def _is_there(self) -> bool:
        """
        Whether the directory still has the version that was looked at last. A bucket is not asked.

        In the directory of a mount that is gone the library sees no news, and would commit.
        """
        if self._directory is None:
            return True
        return (self._directory / "_delta_log" / f"{self._opened.version():020d}.json").exists()

    def create(self, columns: Mapping[str, str], partition_by: Sequence[str]) -> None:
        """Create the table, unless another process does."""
        if self._directory is not None:
            self._directory.mkdir(parents=True, exist_ok=True)
        with translated():
            try:
                self._opened = deltalake.DeltaTable.create(
                    self._where,
                    schema_of(columns),
                    mode="error",
                    partition_by=list(partition_by) or None,
                    storage_options=self._options,
                )
            except exceptions.DeltaError:
                self._opened = deltalake.DeltaTable(self._where, storage_options=self._options)

    def shape(self) -> TableShape:
        """What it has for columns."""
        with translated():
            schema, metadata = self._opened.schema(), self._opened.metadata()
            columns = (DeltaColumn(one.name, type_text(one.type), one.nullable) for one in schema.fields)
            return TableShape(tuple(columns), tuple(metadata.partition_columns), dict(metadata.configuration))

    def add_columns(self, columns: Mapping[str, str]) -> None:
        """Add columns, which are null in the rows that are there."""
        fields = deltalake.Schema.from_arrow(schema_of(columns)).fields
        with translated():
            self._opened.alter.add_columns(fields)

    def placed(self, app: str) -> int | None:
        """The version that the newest transaction of an app has set; None: there was none."""
        with translated():
            found: int | None = self._opened.transaction_version(app)
            return found

    def append(self, rows: Sequence[Any], apps: Mapping[str, int], files: Iterable[TableFile] = ()) -> None:
        """
        Commit rows and the versions of apps over the version that was looked at last.

        Args:
            rows: record batches of one schema; empty: none.
            apps: by app, its new version.
            files: with rows that are in the directory already; then `rows` is empty.

        Raises:
            TargetMoved: another process has committed one of the apps since.
            TableChanged: another process has changed the columns or the properties since; nothing was committed.
            RetriableError: the outcome is not known, or the table has changed.
        """
        properties = deltalake.CommitProperties(
            app_transactions=[deltalake.Transaction(app, version) for app, version in apps.items()],
            max_commit_retries=MOST_RETRIES,
        )
        with translated():
            try:
                if rows:
                    deltalake.write_deltalake(
                        self._opened, self._whole(rows), mode="append", commit_properties=properties
                    )
                else:
                    self._opened.create_write_transaction(
                        [_added(one) for one in files],
                        "append",
                        self._opened.schema(),
                        partition_by=list(self._opened.metadata().partition_columns),
                        commit_properties=properties,
                    )
                    self._looked = -RECENT_S  # it still has the version before
            except exceptions.CommitFailedError as error:
                if "Concurrent transaction" in str(error):
                    raise TargetMoved("another process has committed for the task") from error
                if "Metadata changed" in str(error):
                    raise TableChanged(said(error), code="TARGET") from error
                raise

    def _whole(self, rows: Sequence[Any]) -> Any:
        """The rows with all columns of the table; those that they lack are null."""
        made = pa.Table.from_batches(rows)
        names = made.schema.names
        whole = pa.schema(self._opened.schema().to_arrow())
        if whole.names == names:
            return made
        columns = [made[one.name] if one.name in names else pa.nulls(len(made), one.type) for one in whole]
        return pa.Table.from_arrays(columns, names=whole.names)

    # Files of rows

    @property
    def in_directory(self) -> bool:
        """Whether it is on a file system, and not in a bucket."""
        return self._directory is not None

    def put_file(self, path: str, local: Path) -> None:
        """
        Upload a file of rows to a path that no other one has.

        Raises:
            TableGone: there is no table in the directory, so its mount may be gone.
            RetriableError: the store does not answer.
        """
        if self._directory is not None and not (self._directory / "_delta_log").is_dir():
            raise TableGone(f"there is no table in {self._directory}", code="TARGET", remedy=_MOUNT)
        with translated(), local.open("rb") as data:
            opened = self._open(path, _PIECE_BYTES)
            while piece := data.read(_PIECE_BYTES):
                opened.write(piece)
            opened.close()

    def missing(self, files: Iterable[TableFile]) -> list[str]:
        """The paths of files that are not there, or have another size there."""
        wanted = {one.path: one.bytes for one in files}
        with translated():
            found = {one.path: one.size for one in self._files.get_file_info(list(wanted))} if wanted else {}
        return sorted(path for path, size in wanted.items() if found.get(path) != size)

    # Bytes beside the table

    def read(self, path: str) -> bytes | None:
        """The bytes of an object beside the table; None: the object does not exist."""
        with translated():
            try:
                with self._files.open_input_file(path) as opened:
                    return bytes(opened.read())
            except FileNotFoundError:
                return None

    def put(self, path: str, data: bytes) -> None:
        """Put an object beside the table."""
        with translated():
            opened = self._open(path, len(data))
            opened.write(data)
            opened.close()

    def _open(self, path: str, most: int) -> Any:
        """
        Open an object, to which at most this number of bytes is written at once.

        They fit pyarrow's buffer: it hands on what that has collected as bytes, and what is larger as an object of its
        own, which deltalake does not take.
        """
        return self._files.open_output_stream(path, compression=None, buffer_size=most + 1)

    def names(self, directory: str) -> list[str]:
        """The names of the objects in a directory beside the table; empty: the directory has no object."""
        with translated():
            found = self._files.get_file_info(fs.FileSelector(directory, allow_not_found=True))
            return [one.base_name for one in found]

    def delete(self, path: str) -> None:
        """Delete an object; one that is not there is deleted already."""
        with translated(), suppress(FileNotFoundError):
            self._files.delete_file(path)

    def delete_below(self, directory: str) -> None:
        """Delete a directory beside the table with all that is in it."""
        if self._directory is not None:  # with the directories that are empty then
            shutil.rmtree(self._directory / directory, ignore_errors=True)
            return
        with translated(), suppress(FileNotFoundError):
            self._files.delete_dir(directory)

    @cached_property
    def _files(self) -> Any:
        return fs.PyFileSystem(DeltaStorageHandler(self._where, self._options))


def _added(file: TableFile) -> Any:
    partition = dict(file.partition)
    return AddAction(file.path, file.bytes, partition, int(now() * 1000), data_change=True, stats=file.statistics)


class TableChanged(RetriableError):
    """The table has other columns or properties than the version that a commit was made over."""


class TableGone(RetriableError):
    """There is no table at the address."""


_MOUNT: Final = (
    "mount the directory, or put the table back; the task then resumes by itself. If the table is lost or shall be a "
    "new one: `cues-kafka plan MODULE:GRAPH --apply` makes it"
)


@contextmanager
def translated() -> Iterator[None]:
    """Have what the library raises say what it is, and without colours."""
    try:
        yield
    except CuesError:
        raise
    except exceptions.TableNotFoundError as error:
        raise TableGone(
            f"there is no table at its address: {said(error)}",
            code="TARGET",
            remedy=_MOUNT,
        ) from error
    except Exception as error:
        raise RetriableError(f"{type(error).__name__}: {said(error)}", code="TARGET") from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # the library's own end of the world; the task may go on
            raise
        raise RetriableError(f"deltalake has failed: {said(error)}", code="TARGET") from error


def said(error: BaseException) -> str:
    """The text of an error of the library, on one line."""
    return " ".join(_COLOURS.sub("", str(error)).replace("↳", "").split())
