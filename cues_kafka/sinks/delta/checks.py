"""What a plan and a start ask a table of Delta Lake, and how a start makes it (E6)."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from cues_kafka.errors import ConfigError, RetriableError
from cues_kafka.graph.names import quoted
from cues_kafka.graph.targets import TargetMoved
from cues_kafka.sinks.delta.columns import Declared
from cues_kafka.sinks.delta.table import BESIDE, OpenedTable

TRIES: Final = 5
"""How often a start adds columns, beside other processes that do."""


WRITERS: Final = 6
RACES: Final = 2
"""How many writers race for a version, and how often."""


def refusals(declared: Declared) -> Iterator[str]:
    """Why rows cannot be written to the table; nothing is written."""
    table = _table(declared)
    if table.exists():
        yield from map(str, table.shape().unfit(declared))


def changes(declared: Declared, *, first: bool) -> Iterator[str]:
    """
    What a start would change, in full sentences.

    Args:
        declared: the table.
        first: see `make_table`.

    Raises:
        RetriableError: it is not there, and must be; or does not answer.
    """
    table = _table(declared)
    if not table.exists():
        if not first:
            table.renew()  # it says what is missing
        yield "there is no table at its address yet. `plan --apply` and the first start make it"
    elif added := table.shape().added(declared):
        yield f"the table lacks columns {quoted(added)}. `plan --apply` and the next start add them"


def make_table(declared: Declared, *, first: bool) -> None:
    """
    Make the table where it is missing, and add columns that it lacks.

    Args:
        declared: the table.
        first: whether no processor has begun that writes to it. Else it must be there: a directory without a table may
            be that of a mount which is gone.

    Raises:
        ConfigError: it does not fit, or its store lets a second writer win.
        RetriableError: it is not there, does not answer, or refuses to write.
    """
    table = _table(declared)
    if not table.exists():
        if not first:
            table.renew()  # it says what is missing
        if why := probe(declared):
            raise ConfigError(why)
        table.create(declared.columns, declared.partition_by)
    elif why := probe(declared):
        raise ConfigError(why)
    _widen(table, declared)


def widen_table(declared: Declared) -> None:
    """
    Add columns that the table lacks.

    Raises:
        ConfigError: it does not fit.
        RetriableError: it is not there, or does not answer.
    """
    table = _table(declared)
    table.renew()
    _widen(table, declared)


def _widen(table: OpenedTable, declared: Declared) -> None:
    for left in reversed(range(TRIES)):
        shape = table.shape()
        if wrong := [*shape.unfit(declared)]:
            raise ConfigError("; ".join(map(str, wrong)))
        if not (added := shape.added(declared)):
            return
        try:
            table.add_columns(added)
        except RetriableError:  # another process may have changed the table
            if not left:
                raise
        table.renew()


def probe(declared: Declared) -> str:
    """
    Have writers race for the next versions of a small table beside this one: one of them may win each.

    It has to be a race: the library looks at the log before it writes, and sees a writer that was quicker.

    Returns:
        Why the store cannot hold the table's log; empty: it can.

    Raises:
        RetriableError: it does not answer.
    """
    beside = f"{BESIDE}/probe-{secrets.token_hex(8)}"
    url, options = f"{declared.url()}/{beside}", declared.options
    writers = [OpenedTable(url, options) for _ in range(WRITERS)]
    try:
        writers[0].create({"probe": "long"}, ())
        if all(_race(writers) == 1 for _ in range(RACES)):
            return ""
    finally:
        with suppress(RetriableError):
            _table(declared).delete_below(beside)
    return (
        "the store lets a second writer replace a commit of the table's log although the request forbids it "
        "(If-None-Match: *). Exactly-once needs that. Use a store that has it: S3, MinIO, Ceph of 2024 or later, "
        "or file://"
    )


def _race(writers: Sequence[OpenedTable]) -> int:
    """
    How many of these win the next version.

    Raises:
        RetriableError: none of them knows that it does.
    """
    begin, won, failed = threading.Barrier(len(writers)), list[OpenedTable](), list[Exception]()

    def commit(writer: OpenedTable) -> None:
        try:
            writer.renew()
        except RetriableError as error:
            failed.append(error)
            begin.wait()
            return
        begin.wait()
        try:
            writer.append((), {"probe": 1})
        except (RetriableError, TargetMoved) as error:
            failed.append(error)
        else:
            won.append(writer)

    threads = [threading.Thread(target=commit, args=(one,), daemon=True) for one in writers]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    if not won:
        why = next((one for one in failed if isinstance(one, RetriableError)), failed[0])
        raise RetriableError(f"the store was tried, and no commit came through: {why}", code="TARGET") from why
    return len(won)


def _table(declared: Declared) -> OpenedTable:
    return OpenedTable(declared.url(), declared.options)
