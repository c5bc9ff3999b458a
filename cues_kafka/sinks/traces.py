"""What databases, stores of files and servers can still show of one attempt of a task, and of its messages.

They say different things. A row of an upsert and a file of a table name their messages. A store's log names the files
of each attempt. A database has one row for each task, which says up to which step it has everything. Of calls nothing
is left but their idempotency keys, which the servers have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple, TypeAlias

from cues_kafka.errors import CodecError, ConfigError, RecoveryError, RetriableError
from cues_kafka.graph.blobs import Blobs, FileTable
from cues_kafka.graph.calls import Http, Once
from cues_kafka.graph.effects import Effect, SqlTable, Upsert
from cues_kafka.graph.targets import TargetPart, TaskName, TransactionalTarget
from cues_kafka.ports.log import Coordinates
from cues_kafka.ports.target import TransactionalSink
from cues_kafka.sinks.blobs.entries import ATTEMPT, CommitLog, FileEntry
from cues_kafka.sinks.lookup import open_target, store_of
from cues_kafka.sinks.rows import TablesTarget
from cues_kafka.words import count


class EffectTrace(NamedTuple):
    """
    What is found of one effect.

    Attributes:
        name: the name in `effects=`.
        what: what it is: its title in plans.
        found: rows by their keys, or addresses of files.
        says: what else is known, and what is not.
    """

    name: str
    what: str
    found: tuple[str, ...]
    says: str


class AskedAttempt(NamedTuple):
    """
    The attempt that is asked about.

    Attributes:
        task: its task.
        step: the task's step number behind it.
        messages: those of its deliveries that are asked about; empty: they are not known.
        call: with what the idempotency keys of their step begin; empty: it is not known.
    """

    task: TaskName
    step: int
    messages: Sequence[Coordinates]
    call: str


_Seen: TypeAlias = tuple[tuple[str, ...], str]


def traces(declared: Mapping[str, Effect], asked: AskedAttempt) -> Iterator[EffectTrace]:
    """Look for what an attempt has done by the effects that its function asks for, by name."""
    for name, one in declared.items():
        try:
            found, says = _seen(declared, one, asked)
        except (CodecError, ConfigError, RecoveryError, RetriableError) as error:
            found, says = (), f"cannot be asked: {error}"
        yield EffectTrace(name, one.title(name), found, says)


def _seen(declared: Mapping[str, Effect], effect: Effect, asked: AskedAttempt) -> _Seen:
    match effect:
        case Http():
            key = f"{effect.key_header} {asked.call}-N" if asked.call else f"an {effect.key_header} of its step"
            return (), f"the server has request N (0, 1, ...) under {key}; which requests there were is not recorded"
        case Once():
            return (), "results are deleted from the journal with the commit"
        case Blobs() | FileTable():
            return _files(effect, asked)
        case TransactionalTarget() | TargetPart():
            with closing(open_target(declared, *asked.task)) as target:
                return (), _stands(target, asked, "target")[1]
        case _ if effect.database is not None:
            with closing(open_target(declared, *asked.task)) as target:
                assert isinstance(target, TablesTarget)
                return _rows(target, effect, asked)
    return (), "nothing is recorded of it"


def _stands(target: TransactionalSink, asked: AskedAttempt, it: str) -> tuple[bool, str]:
    """Whether a target has the attempt, and what it says of it; `it` is how texts call the target."""
    held = target.newest()
    if held is None:
        return False, f"the {it} keeps nothing of this task"
    if held.step < asked.step:
        return False, f"missing: the {it} is at step {held.step} of the task, and the attempt ends at {asked.step}"
    says = f"committed in the {it}"
    if held.step == asked.step and (waiting := sum(1 for _ in target.outbox())):
        says += f", whose outbox holds the attempt's {count(waiting, 'message')} for Kafka"
    return True, says


def _rows(target: TablesTarget, effect: Effect, asked: AskedAttempt) -> _Seen:
    there, says = _stands(target, asked, "database")
    if not there:
        return (), says
    if isinstance(effect, Upsert) and asked.messages:
        found = tuple(key for message in asked.messages for key in target.keys_from(effect, message))
        return found, says if found else f"{says}; no row is from this message now"
    which = f"rows of {effect.table}" if isinstance(effect, SqlTable | Upsert) else "rows"
    return (), f"{says}; which {which} it wrote is not recorded"


def _files(effect: Blobs | FileTable, asked: AskedAttempt) -> _Seen:
    home = effect.home
    assert isinstance(home, Blobs)
    store, (graph, processor, partition) = store_of(home), asked.task
    table = effect.table if isinstance(effect, FileTable) else ""
    for entry in CommitLog(store, f"{graph}.{processor}/{partition}").after(0):
        if entry.kind == ATTEMPT and entry.step == asked.step:
            files = [one for one in entry.files if one.table == table and _has(one, asked.messages)]
            return tuple(store.url(one.path) for one in files), "committed in the store's log"
    return (), "missing: the store's log has no entry of this attempt"


def _has(file: FileEntry, messages: Sequence[Coordinates]) -> bool:
    """Whether a file may have something of these messages: one that a function put does not say of which it is."""
    if file.first is None or file.last is None or not messages:
        return True
    return any(file.first <= one.offset <= file.last for one in messages)
