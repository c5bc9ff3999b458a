"""The verdict on a graph: whether it is well, and if not, what is unwell, with a remedy. One function decides it.

`status`, `doctor`, `/readyz`, the metrics and `wait_idle` know different facts of a graph. Each gives what it knows and
asks this function, so that they never disagree about the same fact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from cues_kafka.ports.facts import Watermarks
from cues_kafka.ports.log import TopicPartition
from cues_kafka.words import SERVER, count

Severity: TypeAlias = Literal["wrong", "note"]

APPLY: Final = "`cues-kafka plan MODULE:GRAPH --apply` adds what its task needs, and the task starts by itself"

AHEAD: Final = (
    "If a message whose time lies ahead has closed its windows: `ahead=` of Tumbling makes it an error message"
)
"""What helps against messages that come too late."""

REPLAY: Final = "`cues-kafka errors list MODULE:GRAPH --kind quarantine` shows them; fix the function, then replay them"
"""What helps against messages that killed their process."""

LONG_OPEN_S: Final = 5.0
"""A transaction that has been open for longer is named; one of ours takes a second."""

STUCK_OPEN_S: Final = 60.0
"""A transaction that has been open for longer is wrong: by then that of a dead process has ended, by default."""

SILENT_S: Final = 60.0
"""A source of a feed that has not answered for longer is wrong: its messages wait there, and no lag shows them."""

AWAY: Final = "bring the source back; the feed asks it again by itself"
"""What helps against a source that does not answer."""

NOT_AT_WORK: Final[Mapping[str, tuple[str, str]]] = {
    "left": ("its worker has shut down, and no other has taken it", "start a worker: `cues-kafka run MODULE:GRAPH`"),
    "not heard of": ("its process has not reported its state for three periods", "see whether that process lives"),
    "no worker": ("no worker runs its processor", "start a worker: `cues-kafka run MODULE:GRAPH`"),
    "never started": ("it has no record", "start a worker: `cues-kafka run MODULE:GRAPH`"),
}
"""By state: why nothing works on a task, and what helps."""


class Unwell(NamedTuple):
    """
    Something that is unwell.

    Attributes:
        kind: the state of the task, such as `stopped`; or `blocked`, `silent`, `late`, `quarantined`, `refused`,
            `unreachable`; or `lost`, where it still works on what the cluster has lost.
        name: the task, as ``check/0``; the graph, where it is about no task.
        what: what is unwell, without a full stop.
        remedy: what to do next; empty: it is in `what`.
        severity: `wrong`, or `note` where it may pass by itself.
    """

    kind: str
    name: str
    what: str
    remedy: str = ""
    severity: Severity = "wrong"

    def __str__(self) -> str:
        return f"{self.name}: {self.what}" + (f"; remedy: {self.remedy}" if self.remedy else "")


class TaskCondition(NamedTuple):
    """
    The known facts about a task.

    Attributes:
        name: such as ``check/0``.
        state: see `operate.seen.SeenState`.
        why: why it stopped, why it has no worker, or what it lost; empty: what the state says.
        remedy: what to do then.
        blocked: since how long open transactions hold back its inputs, in seconds, by partition.
        late: messages that came too late for a window or a bound.
        quarantined: messages that killed their process and became error messages.
        silent: why the source of a feed does not answer, and for how long; empty: it answers.
        silent_s: for how long it has not answered.
    """

    name: str
    state: str = "idle"
    why: str = ""
    remedy: str = ""
    blocked: Mapping[TopicPartition, float] = {}
    late: int = 0
    quarantined: int = 0
    silent: str = ""
    silent_s: float = 0.0


def verdict(
    graph: str,
    tasks: Iterable[TaskCondition] = (),
    *,
    refusals: Iterable[str] = (),
    unreachable: str = "",
    long_open_s: float = LONG_OPEN_S,
) -> tuple[Unwell, ...]:
    """
    Say what is unwell with a graph.

    Args:
        graph: its name.
        tasks: its tasks, as far as they are known.
        refusals: why it must not run, as its plan says.
        unreachable: why the cluster cannot be reached; empty: it answers.
        long_open_s: for how long a transaction has to be open to be named, in seconds.

    Returns:
        All that is unwell; empty: the graph is well. A paused task is well.
    """
    if unreachable:
        return (Unwell("unreachable", graph, f"the cluster does not answer: {unreachable}"),)
    found = [one for task in tasks for one in _of_task(task, long_open_s)]
    return (*found, *(Unwell("refused", graph, refusal.rstrip(".")) for refusal in refusals))


def _of_task(task: TaskCondition, long_open_s: float) -> Iterator[Unwell]:
    if task.state == "stopped":
        yield Unwell("stopped", task.name, task.why or "it stopped", task.remedy)
    elif task.state in NOT_AT_WORK:
        why, remedy = NOT_AT_WORK[task.state]
        yield Unwell(task.state, task.name, task.why or why, task.remedy or remedy)
    elif task.why:
        yield Unwell("lost", task.name, task.why, task.remedy)
    for place, open_s in task.blocked.items():
        if open_s >= long_open_s:
            yield _blocked(task.name, place, open_s)
    if task.silent:
        severity: Severity = "wrong" if task.silent_s >= SILENT_S else "note"
        yield Unwell("silent", task.name, task.silent, AWAY, severity)
    if task.late:
        yield Unwell("late", task.name, late(task.late), AHEAD, "note")
    if task.quarantined:
        yield Unwell("quarantined", task.name, quarantined(task.quarantined), REPLAY, "note")


def _blocked(name: str, place: TopicPartition, open_s: float) -> Unwell:
    where = f"{place.topic}/{place.partition}"
    what = f"{where} has had an open transaction for {open_s:.0f} s, and no reader gets past it"
    remedy = (
        f"`kafka-transactions {SERVER} find-hanging --topic {place.topic} --partition {place.partition}` names its "
        "producer; end that program, or abort the transaction"
    )
    return Unwell("blocked", name, what, remedy, "wrong" if open_s >= STUCK_OPEN_S else "note")


def late(messages: int) -> str:
    """That messages came too late."""
    return f"{count(messages, 'message')} came too late for a window or a bound"


def quarantined(messages: int) -> str:
    """That messages killed their processes."""
    verb = "is an error message" if messages == 1 else "are error messages"
    return f"{count(messages, 'message')} killed the process of the task each time, and {verb} now"


def is_well(found: Iterable[Unwell]) -> bool:
    """Whether nothing is wrong; what may pass by itself counts as well."""
    return all(one.severity != "wrong" for one in found)


def without_task(processor: str, topic: str, partition: int, tasks: int) -> TaskCondition:
    """
    A partition of the first input that was added by others, and for which there is no task yet (O9).

    Args:
        processor: whose task is missing.
        topic: its first input.
        partition: the one that was added.
        tasks: how many tasks the processor has.
    """
    why = f"{topic!r} has a partition {partition}, and {processor!r} has only {count(tasks, 'task')}"
    return TaskCondition(f"{processor}/{partition}", "never started", why, APPLY)


def without_record(processor: str, backing: str, group: str, partition: int) -> TaskCondition:
    """
    A task whose record is lost: its backing topic has none, yet its group has offsets, so it ran before.

    Args:
        processor: whose task it is.
        backing: its backing topic.
        group: its consumer group.
        partition: the partition of the task.
    """
    lost = f"backing topic {backing!r} has no record of it (deleted, recreated or trimmed)"
    why = f"{lost}, yet group {group!r} has committed offsets"
    remedy = f"restore the backing topic, or begin again on purpose: `cues-kafka reset MODULE:GRAPH {processor}`"
    return TaskCondition(f"{processor}/{partition}", "never started", why, remedy)


def recreated(processor: str, partition: int, topic: str) -> TaskCondition:
    """
    A task whose place is in an input that was deleted and created again.

    Args:
        processor: whose task it is.
        partition: the partition of the task.
        topic: the input.
    """
    why = f"topic {topic!r} was deleted and recreated: offsets mean other messages now"
    remedy = f"start at the new topic's beginning: `cues-kafka reset MODULE:GRAPH {processor}`"
    return TaskCondition(f"{processor}/{partition}", "never started", why, remedy)


def waiting_in(marks: Watermarks) -> int:
    """How many offsets a partition without a task holds: all of them wait."""
    return marks.high - marks.low
