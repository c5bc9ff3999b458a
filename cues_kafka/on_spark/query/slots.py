"""What all kinds of slots share: their interpreter, and watching the record after they were fenced (D5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cues_kafka.core import events as on
from cues_kafka.core.records import Totals
from cues_kafka.core.recover import foreign
from cues_kafka.core.spec import Spec
from cues_kafka.core.task import Task
from cues_kafka.errors import ConfigError
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.observe.tally import Tally
from cues_kafka.on_spark.query.outcome import Outcome, fenced_outcome, outcome_of
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import GroupMetadata
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.facts import ClusterFacts
from cues_kafka.ports.log import Positions
from cues_kafka.ports.observer import Observer
from cues_kafka.records.reading import newest_record
from cues_kafka.task.calling.outputs import Output
from cues_kafka.task.interpreter import Hook, Interpreter, World
from cues_kafka.task.making.build import output_of

POLICY = CommitPolicy(max_messages=50_000)
"""
The commit policy of slots: no reader waits for a single message here, so transactions may be larger than natively.
"""


FENCED_S = 60.0
"""D5: how long a fenced slot watches the record of the slot that fenced it."""


WATCH_S = 0.2


def interpreter_of(
    spec: Spec,
    broker: Broker,
    clock: Clock,
    hook: Hook | None,
    batch_bytes: int | None = None,
    *,
    observers: Sequence[Observer] = (),
) -> Interpreter:
    """The interpreter of a slot that reads nothing itself, because it gets the rows that it publishes."""
    group = GroupMetadata.outside(spec.group)  # Spark decides who does what
    world = World(broker, clock, lambda _: None, lambda: group, hook, batch_bytes, observers=observers)
    return Interpreter(spec, world)


def with_tally(outcome: Outcome, tally: Tally) -> Outcome:
    """The outcome with what its slot told observers. What the slot refuses by itself is a stop, too."""
    if outcome.kind and not tally[outcome.task].stops:
        tally.stopped(outcome.task, outcome.text, outcome.remedy, {})
    return replace(outcome, tally=tally[outcome.task])


def is_delivered(spec: Spec, positions: Positions, ends: Mapping[str, int]) -> bool:
    """
    Whether a task that stands there has delivered its range.

    A join pairs the k-th messages, so it is through as soon as one input is: what the others have left below their ends
    has no partner yet.

    Args:
        spec: of the task.
        positions: where it stands; empty before its first record.
        ends: where the range ends, by topic.
    """
    through = [p.offset >= ends[p.topic] for p in positions]
    return any(through) if spec.pairing == "join" else bool(through) and all(through)


def watch(spec: Spec, broker: Broker, clock: Clock, ends: Mapping[str, int], halt: on.Halt) -> Outcome:
    """
    D5: this slot is fenced. Succeed when the record shows that the other owner delivered the range up to `ends`.

    An operator's command may have taken the id. After `migrate` or `rename` no task of this declaration delivers it.
    """
    deadline = clock.monotonic() + FENCED_S
    while True:
        task = Task(spec, record=newest_record(spec, broker, clock))
        if moved := _moved(task):
            return fenced_outcome(outcome_of(task, Totals(), moved), task.record, spec)
        if is_delivered(spec, task.positions, ends):
            assert task.record
            return fenced_outcome(outcome_of(task, task.record.totals, None), task.record, spec)
        if clock.monotonic() > deadline:
            who = task.record.writer if task.record else None
            name = f"{who.name!r} ({who.runtime}, {who.incarnation})" if who else "another process"
            range_ = ", ".join(f"{topic} at {end}" for topic, end in ends.items())
            text = f"fenced by {name}, which has not delivered up to {range_} within {FENCED_S:g} s: {halt.text}"
            claimed = outcome_of(task, Totals(), on.Halt("claimed", text, "stop one of the two"))
            return fenced_outcome(claimed, task.record, spec)
        clock.sleep(WATCH_S)


def _moved(task: Task) -> on.Halt | None:
    """Why the range will not be delivered: the task has another name or other inputs by now; None: it may be."""
    spec, record = task.spec, task.record
    if record is None:
        return None
    if other := foreign(spec, record):
        return other.halt
    if {(p.binding, p.topic) for p in record.positions} == set(spec.inputs):
        return None
    inputs = ", ".join(f"{p.binding!r} from {p.topic!r}" for p in record.positions)
    text = f"{spec.name} was fenced by {record.writer.name!r}, and its newest record has other inputs: {inputs}"
    return on.Halt("refused", text, "stop this query, and start it with the declaration of now")


def standing(spec: Spec, broker: Broker, clock: Clock) -> Outcome:
    """Where a task stands by its record, without taking its id."""
    return outcome_of(Task(spec, record=newest_record(spec, broker, clock)), Totals(), None)


def incarnation(query: str, batch: int, part: int, attempt: int) -> str:
    """The incarnation of a writer: the query, its batch, and the Spark partition and attempt within it (D1)."""
    return f"{query}.{batch}.{part}.{attempt}"


def written(facts: ClusterFacts, topic: str, client_bytes: int, *, provenance: bool = True) -> Output:
    """
    Return an output topic as slots need it.

    Raises:
        ConfigError: it does not exist.
    """
    found = facts.topics.get(topic)
    if found is None:
        raise ConfigError(f"topic {topic!r} does not exist; create it before anything is written to it")
    return output_of(found, client_bytes, provenance=provenance)
