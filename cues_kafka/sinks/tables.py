"""Our two tables in a database: whether they are there, and making them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from typing import Any

from cues_kafka.errors import ConfigError, RetriableError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.effects import Sql, SqlTable, Upsert
from cues_kafka.plan.inspectors import Findings, Terms
from cues_kafka.ports.broker import Broker
from cues_kafka.sinks.dialect import OUTBOX, TASKS, Dialect
from cues_kafka.sinks.lookup import dialect
from cues_kafka.sinks.patience import PATIENCE_S, asking
from cues_kafka.sinks.table_checks import check_table, tables_in

_PROBE = "SELECT count(*) FROM {} WHERE 1 = 0"


def databases(graph: Graph, names: Iterable[str] | None = None) -> dict[str, Sql]:
    """The databases of the graph's processors, by processor and name; each once."""
    found: dict[Sql, str] = {}
    for where, one in graph.declared_targets(names):
        if one.database is not None:
            found.setdefault(one.database, where)
    return {where: one for one, where in found.items()}


def make_tables(
    declared: Sql,
    where: str,
    *,
    create: bool,
    written: Iterable[tuple[str, SqlTable | Upsert]] = (),
    patience_s: float = PATIENCE_S,
) -> None:
    """
    Make our tables in a database where they are missing; a database that does not answer is asked again.

    It also refuses tables of the user's that do not take what is written into them. A plan says so before, but not
    where the database did not answer then.

    Args:
        declared: the database.
        where: how texts name it; its address shows in none.
        create: whether they may be made.
        written: the user's tables, each with where it is declared.
        patience_s: for how long it is asked, in seconds.

    Raises:
        RetriableError: it does not answer.
        ConfigError: the tables are missing and must not be made, or have other columns than this release makes; the
            database refuses; or a table of the user's does not fit.
    """
    asking("database", where, patience_s)(_make_once, dialect(declared), where, create, list(written))


def await_answer(declared: Sql, where: str, *, patience_s: float = PATIENCE_S) -> None:
    """
    Ask a database until it answers; one that refuses does. The arguments mean the same as those of `make_tables`.

    Raises:
        RetriableError: it does not answer.
    """

    def ask(talk: Dialect) -> None:
        talk.close(talk.connect())

    with suppress(ConfigError):  # what a plan says of it, together with the rest
        asking("database", where, patience_s)(ask, dialect(declared))


def _make_once(talk: Dialect, where: str, create: bool, written: Sequence[tuple[str, SqlTable | Upsert]]) -> None:
    with closing(_Closing(talk, talk.connect())) as opened:
        if missing(talk, opened.connection):
            if not create:
                raise ConfigError(
                    f"{where}: the tables {TASKS} and {OUTBOX} do not exist in this database. `cues-kafka plan "
                    "MODULE:GRAPH --apply` creates them"
                )
            _make(talk, opened.connection, where)
        if wrong := list(misshapen(talk, opened.connection)):
            raise ConfigError("\n".join(f"{where}: {why}" for why in wrong))
        for place, table in written:
            if found := list(check_table(talk, opened.connection, table)):
                raise ConfigError("\n".join(f"{place}: {why}" for why in found))


def _make(talk: Dialect, connection: Any, where: str) -> None:
    for last in (False, True):
        try:
            for statement in talk.schema:
                talk.execute(connection, statement)
            return
        except talk.errors as error:  # two processes that make a table at once may refuse each other
            _raise_outage(talk, connection, error)
            with suppress(talk.errors):
                talk.rollback(connection)
            if last:
                raise ConfigError(
                    f"{where}: the tables {TASKS} and {OUTBOX} cannot be created: {talk.address.quiet(error)}. Grant "
                    "the user CREATE, or run `cues-kafka plan MODULE:GRAPH --apply` as a user with this right"
                ) from None


def missing(talk: Dialect, connection: Any) -> bool:
    """Whether one of our tables is not there, or may not be read."""
    try:
        for table in (TASKS, OUTBOX):
            talk.execute(connection, _PROBE.format(table)).fetchone()
    except talk.errors as error:
        _raise_outage(talk, connection, error)
        with suppress(talk.errors):
            talk.rollback(connection)
        return True
    return False


def misshapen(talk: Dialect, connection: Any) -> Iterator[str]:
    """
    What is wrong with the columns of our tables, where they are there: another release made them, or they were changed.

    Raises:
        RetriableError: the database does not answer.
    """
    for table, wanted in talk.shape.items():
        try:
            found = talk.columns(connection, table)
        except talk.errors as error:
            _raise_outage(talk, connection, error)
            why = talk.address.quiet(error)
            yield f"the columns of the table {table} cannot be read: {why}. Grant the user SELECT on it"
            continue
        if not found or found == wanted:
            continue
        wrong = [f"no {name}" for name in wanted if name not in found]
        wrong += [
            f"{name} is {kind}, not {wanted[name]}" for name, kind in found.items() if wanted.get(name, kind) != kind
        ]
        wrong += [f"{name} is not known" for name in found if name not in wanted]
        yield (
            f"the table {table} has other columns than this release makes ({'; '.join(wrong)}). Run the release that "
            "made it, or correct its columns; do not drop it, because it holds the position of each task"
        )


def _raise_outage(talk: Dialect, connection: Any, error: Exception) -> None:
    if why := talk.outage(error, connection):
        raise RetriableError(f"the database does not answer: {why}", code="TARGET") from None


def inspect_databases(graph: Graph, broker: Broker, terms: Terms) -> Findings:
    """Ask the databases of a graph whether they answer, have our tables, and what the user's tables lack."""
    del broker
    changes: list[str] = []
    refusals: list[str] = []
    warnings: list[str] = []
    for where, declared in databases(graph, terms.names).items():
        try:
            talk = dialect(declared)
            with closing(_Closing(talk, talk.connect())) as opened:
                if missing(talk, opened.connection):
                    changes.append(
                        f"{where}: the database has no tables {TASKS} and {OUTBOX}. `plan --apply` and the first start "
                        "make them"
                    )
                refusals += (f"{where}: {why}" for why in misshapen(talk, opened.connection))
                for place, table in tables_in(graph, declared, terms.names):
                    refusals += (f"{place}: {why}" for why in check_table(talk, opened.connection, table))
        except ConfigError as error:
            refusals.append(f"{where}: {error}")
        except RetriableError as error:  # a start asks again, see `make_tables`
            warnings.append(f"{where}: {error}")
    return Findings(refusals=tuple(refusals), warnings=tuple(warnings), changes=tuple(changes))


class _Closing:
    """A connection that `closing` closes."""

    def __init__(self, talk: Dialect, connection: Any) -> None:
        self.talk = talk
        self.connection = connection

    def close(self) -> None:
        self.talk.close(self.connection)
