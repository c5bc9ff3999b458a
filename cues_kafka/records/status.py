"""What a graph's status topic holds: for each task, what its worker told last.

The topic is compacted and has one partition; the key is the task, ``check/3``. Values are JSON, so that people can read
them with a Kafka console. Nothing is decided by them: positions and counts that count are in the task's record.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, TypeAlias, get_args

from cues_kafka.errors import CodecError
from cues_kafka.ports.log import Position, Positions, WireMessage
from cues_kafka.records.strangers import LATEST_S, NAME, PARTITIONS, TOPIC, Fields, read_plain
from cues_kafka.words import visible

VERSION: Final = 1
"""The version of what the values mean. Fields that a reader does not know are left out, so new ones need no new one."""

TaskState: TypeAlias = Literal["starting", "recovering", "idle", "working", "pausing", "paused", "stopped", "left"]
"""
What a task does, in words for people.

``left``: the process was stopped in order, and the task waits for another one.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOwner:
    """
    The process that has a task.

    Attributes:
        instance: its name; with `run --instance` the one that was given.
        host: of the machine.
        pid: process id there.
        runtime: native, memory or spark.
        incarnation: another one for each run.
    """

    instance: str
    host: str = ""
    pid: int = 0
    runtime: str = ""
    incarnation: str = ""

    def __str__(self) -> str:
        """The name; with machine and process where the name does not have them already."""
        if not self.host or self.instance == f"{self.host}-{self.pid}":
            return self.instance
        return f"{self.instance} ({self.host}, pid {self.pid})"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusRecord:
    """
    A task as its process told it. Times are seconds since the epoch, by that machine's clock.

    Attributes:
        task: `processor/partition`. Without a partition: a processor that stopped as a whole, on Spark or because its
            group does not let this process in.
        state: see `TaskState`.
        owner: the process.
        every_s: how often it tells; after three times as long without news something is wrong.
        positions: the next offset of each input; where everything is delivered, behind the markers.
        place: how far a feed has read its source, for people.
        totals: counts since the task began, by name.
        rate: deliveries per second, over the last 10 s.
        committed_s: the newest commit in this process; 0: none.
        errors, retries, failures, stops: counts since the task came to this process.
        error, error_s: the newest step that became an error message, and when.
        stopped, remedy, stopped_s: why the task stands still, what to do, and since when.
        at, hash: the message that it stopped at, and its delivery hash.
        pause: token of the operator's pause that the task follows; empty: none.
        held: why nothing is called, in words.
        unpausable: why this task cannot follow a pause; empty: it can.
        calling: a call of the function that takes long.
        silent: why the source of a feed does not answer.
        silent_s: for how long it has not answered.
        rival: another process that runs the task too, and what to do.
        lost, lost_remedy: what the task needs and the cluster has lost, and what to do.
        unreachable_s: for how long the cluster has not answered the process.
        throttled_s: for how long brokers held back answers to the process in the last minute, because of a quota.
        late: messages that came too late for their window or bound, since the task came to this process.
        quarantined: messages that killed their process and became error messages, since the task came to this process.
        told_s: when the broker got the record; it is not part of the value.
    """

    task: str
    state: TaskState
    owner: TaskOwner
    every_s: float
    positions: Positions = ()
    place: str = ""
    totals: dict[str, int] = field(default_factory=dict)
    rate: float = 0.0
    committed_s: float = 0.0
    errors: int = 0
    retries: int = 0
    failures: int = 0
    stops: int = 0
    error: str = ""
    error_s: float = 0.0
    stopped: str = ""
    remedy: str = ""
    stopped_s: float = 0.0
    at: str = ""
    hash: str = ""
    pause: str = ""
    held: str = ""
    unpausable: str = ""
    calling: str = ""
    silent: str = ""
    silent_s: float = 0.0
    rival: str = ""
    lost: str = ""
    lost_remedy: str = ""
    unreachable_s: float = 0.0
    throttled_s: float = 0.0
    late: int = 0
    quarantined: int = 0
    told_s: float = 0.0


def encode_status(record: StatusRecord) -> bytes:
    """The value of a record."""
    plain = {"version": VERSION, **{name: getattr(record, name) for name in _TOLD}}
    plain["owner"] = {name: getattr(record.owner, name) for name in _OWNER}
    plain["positions"] = [{**one._asdict(), "topic_id": one.topic_id.hex()} for one in record.positions]
    return json.dumps(plain, separators=(",", ":")).encode()


_TOLD: Final = tuple(one.name for one in fields(StatusRecord) if one.name != "told_s")
_OWNER: Final = tuple(one.name for one in fields(TaskOwner))


def decode_status(message: WireMessage) -> StatusRecord:
    """
    Read a record.

    Raises:
        CodecError: it cannot be read, or has another version.
    """
    task = (message.key() or b"").decode(errors="backslashreplace")
    plain = read_plain(message.value(), f"status record of {task!r}", VERSION)
    if not _TASK.fullmatch(task) or plain.text("task") != task:
        raise CodecError(f"not a status record of {task!r}: its key and its task are not the name of one task")
    state = plain.text("state")
    if state not in get_args(TaskState):
        plain.refuse("state", state)
    own = plain.below("owner")
    owner = TaskOwner(
        instance=visible(own.text("instance")),
        **{name: visible(own.text(name)) for name in ("host", "runtime", "incarnation") if own.has(name)},
        pid=own.whole("pid", 0, PARTITIONS) if own.has("pid") else 0,
    )
    fields: dict[str, Any] = {name: visible(plain.text(name, TEXT_AT_MOST)) for name in _TEXTS if plain.has(name)}
    fields |= {name: plain.number(name) for name in _NUMBERS if plain.has(name)}
    fields |= {name: plain.whole(name) for name in _COUNTS if plain.has(name)}
    return StatusRecord(
        task=task,
        state=state,  # type: ignore[arg-type]  # it is one of them
        owner=owner,
        every_s=plain.number("every_s", 0.0, EVERY_AT_MOST_S),
        positions=tuple(_position(one) for one in plain.objects("positions")) if plain.has("positions") else (),
        totals=plain.counts("totals") if plain.has("totals") else {},
        **fields,
        told_s=min(max(0.0, message.timestamp()[1] / 1000), LATEST_S),
    )


def _position(one: Fields) -> Position:
    return Position(
        one.text("binding", like=NAME), one.text("topic", like=TOPIC), one.id("topic_id"), one.whole("offset")
    )


EVERY_AT_MOST_S: Final = 86_400.0
"""The longest time between two records of a task."""

TEXT_AT_MOST: Final = 20_000
"""The most characters of a text in a status record."""

_TASK: Final = re.compile(r"[A-Za-z0-9_-]{1,80}(/(0|[1-9][0-9]{0,9}))?")
_TEXTS: Final = (
    *("place", "error", "stopped", "remedy", "at", "hash", "pause", "held", "unpausable", "calling", "silent"),
    *("rival", "lost", "lost_remedy"),
)
_NUMBERS: Final = ("rate", "committed_s", "error_s", "stopped_s", "unreachable_s", "throttled_s", "silent_s")
_COUNTS: Final = ("errors", "retries", "failures", "stops", "late", "quarantined")
