"""Queries to the stores in this process: finds the task of a key, and asks it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from cues_kafka.brokers.partitioners import place_of
from cues_kafka.client.access import Access
from cues_kafka.errors import CodecError, ConfigError, OutputError, TaskElsewhere
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import hint, no_such_processor, quoted
from cues_kafka.graph.processor import Processor
from cues_kafka.ports.log import Sent, TopicPartition
from cues_kafka.task.lane import Lane
from cues_kafka.task.parts.stores import Storing


class Answer(NamedTuple):
    """What a store says of a key.

    Attributes:
        value: the committed value, or the default.
        positions: for each input partition of the tasks that were asked, the offset up to which the value is true: all
            messages below it are delivered, none behind it.
    """

    value: Any
    positions: Mapping[TopicPartition, int]


class Question(NamedTuple):
    """A key that is looked for.

    Attributes:
        processor, store, key: of what.
        home: the only task to ask; None: all that are here.
        given: whether the caller named that task.
    """

    processor: str
    store: str
    key: Any
    home: int | None
    given: bool


def processor_with(graph: Graph, name: str, store: str) -> Processor:
    """
    The processor of this name, which has this store.

    Raises:
        ConfigError: there is no such processor, or it has no such store.
    """
    if name not in graph.processors:
        raise ConfigError(no_such_processor(graph.name, [name], graph.processors))
    found = graph.processors[name]
    if store not in found.state:
        raise ConfigError(
            f"processor {name!r} has no store {store!r}; its stores are {quoted(found.state)}{hint(store, found.state)}"
        )
    return found


def ask(question: Question, lanes: Mapping[int, Lane], width: int, default: Any) -> Answer | None:
    """
    Look for a key in the tasks of this process.

    Args:
        question: what to look for.
        lanes: the tasks that are here, by partition.
        width: how many tasks the processor has.
        default: the value if no task has the key.

    Returns:
        None while a task reads its stores from their changelogs.

    Raises:
        TaskElsewhere: the task of the key is in another process, or it may be.
        ConfigError: tasks that do not own the key have it.
    """
    name, store, key, home, given = question
    asked = {p: lane for p, lane in lanes.items() if p == home} if given else lanes
    values: dict[int, Any] = {}
    positions: dict[TopicPartition, int] = {}
    for partition, lane in asked.items():
        storing = lane.part(Storing)
        said = storing.stores.committed(store, key) if storing else None
        if said is None and home in (None, partition):
            return None
        if said is None:  # it is only asked whether it has a key that it does not own
            continue
        data, stands = said
        if data is not None:
            assert storing
            spec = storing.stores.cache(store).spec
            values[partition] = spec.value_of(spec.encode_key(key), data)
        if home in (None, partition):
            positions |= {TopicPartition(at.topic, partition): at.offset for at in stands}
    if len(values) > 1 or (home is not None and values.keys() - {home}):
        raise ConfigError(_several(question, sorted(values)))
    if home is not None and home not in asked:
        raise TaskElsewhere(_elsewhere(question, [home]), processor=name, partition=home)
    if not values and home is None and len(lanes) < width:
        others = [partition for partition in range(width) if partition not in lanes]
        raise TaskElsewhere(_elsewhere(question, others), processor=name)
    for partition, value in values.items():
        return Answer(value, {place: at for place, at in positions.items() if place.partition == partition})
    return Answer(default, positions)


def has_passed(question: Question, answer: Answer, after: Sent | None) -> bool:
    """
    Whether an answer has what came of a message; None: any answer will do.

    Raises:
        ConfigError: the answer is that of a task which does not get the message.
    """
    if after is None:
        return True
    at = answer.positions.get(TopicPartition(after.topic, after.partition))
    if at is None:
        found = quoted(f"{place.topic}/{place.partition}" for place in sorted(answer.positions))
        raise ConfigError(
            f"query(after={after}): {question.store}[{question.key!r:.60}] is true for {found}, where the message is "
            "not. If it changes this key, name its task with partition="
        )
    return at > after.offset


def _elsewhere(question: Question, partitions: list[int]) -> str:
    name, store, key, _, given = question
    tasks = quoted(f"{name}/{partition}" for partition in partitions)
    if given:
        what = f"task {tasks} is not in this process"
    elif len(partitions) == 1:
        what = f"{store}[{key!r:.60}] belongs to task {tasks}, which is not in this process"
    else:
        what = f"{store}[{key!r:.60}] is in no task of this process, and {tasks} are not here"
    return f"{what}. Ask the process that runs it, or read {store!r} through connect(...).table({name!r}, {store!r})"


def _several(question: Question, found: list[int]) -> str:
    name, store, key, home, _ = question
    where = f"{store}[{key!r:.60}] is in partitions {found} of processor {name!r}"
    if home is None:
        return f"{where}. Name one with query(..., partition=)"
    return (
        f"{where}, and messages with this key come in partition {home}. "
        "If the store has other keys than the messages, name the task with query(..., partition=)"
    )


def home_of(access: Access, graph: Graph, processor: Processor, key: Any, width: int) -> int | None:
    """The partition of messages with this key; None: no input says what its keys are."""
    topic = next((topic for topic in processor.input_topics if graph.topic(topic).key), None)
    if topic is None:
        return None
    try:
        data = access.topic(topic).target.encode_key(key)
    except (OutputError, CodecError):
        return None  # no key of these messages
    place = place_of(graph.topic(topic).partitioner)
    return None if data is None or place is None else place(data, width)
