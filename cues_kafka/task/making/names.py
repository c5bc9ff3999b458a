"""The inspector that guards against a renamed processor.

A processor's place is in its backing topic, under its name. Under another name it finds no place, starts at its
`start=`, and delivers again what its inputs hold. The cluster does not say whether a name is new or was changed. It
only shows a backing topic with records whose processor is gone, next to a processor without a record. Such a start is
refused until `cues-kafka rename` has moved the tasks (X5), or the user says that the processor is new. Once the new
processor has a record, it is known, even if the old topic stays.

Only where such a topic is left are records read: of its first task, and of declared processors one for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from cues_kafka.core.records import Record
from cues_kafka.core.recover import incomplete
from cues_kafka.errors import BrokerError, CodecError, FatalError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import backing_topic, group_id, quoted, tools_group
from cues_kafka.plan.inspectors import Findings, Terms
from cues_kafka.plan.topics import orphans
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.reading import record_below
from cues_kafka.task.clock import SystemClock
from cues_kafka.task.making.specs import Identity, task_spec

_UNKNOWN: Final = "whether processor {!r} was renamed is not known"
ANOTHER_RELEASE: Final = "Run the release that wrote it"


class FoundPlace(NamedTuple):
    """
    Whether a processor has a place.

    Attributes:
        there: it has one.
        record: a committed one, of its first task that has any; None if no task has one, or it cannot be read.
        unread: why the record that is there cannot be read, such as a missing right; None: it can. Then it is not known
            whether the processor was renamed.
    """

    there: bool = False
    record: Record | None = None
    unread: BrokerError | None = None

    @property
    def moved_to(self) -> str:
        """The name under which the processor goes on; empty: its own."""
        return self.record.moved_to if self.record else ""

    @property
    def moving_from(self) -> str:
        """The name that its tasks are on their way from; empty: they have arrived, or never left."""
        return self.record.moving_from if self.record else ""


def inspect_names(graph: Graph, broker: Broker, terms: Terms) -> Findings:
    """
    Compare the names of processors with the backing topics of the graph.

    Raises:
        BrokerError: the cluster does not answer.
    """
    if terms.names is None:
        return Findings()
    listed = broker.partitions()
    # A worker may have no right to the group of a former name.
    group = next((group_id(graph.name, name) for name in (*terms.names, *graph.all_processors)), "")
    left = {topic: (name, _place(graph, broker, name, listed, group)) for topic, name in orphans(graph, listed).items()}
    if not left:
        return Findings()
    lost = {topic: name for topic, (name, place) in left.items() if place.there and not place.moved_to}
    unread = next((place.unread for _, place in left.values() if place.unread), None)
    refusals = tuple(_refusals(graph, broker, terms, listed, lost, unread=unread))
    return Findings(refusals=refusals, warnings=tuple(_warnings(left)))


def former_names(graph: Graph, broker: Broker) -> dict[str, str]:
    """
    Return former names of processors with those that they have now: as declared, and as records say.

    A name that is declared, and whose tasks `rename` has not moved yet, is none.

    Raises:
        BrokerError: the cluster does not answer, or the records of a declared former name cannot be read, so it is not
            known whether its tasks have moved.
    """
    listed = broker.partitions()
    group = tools_group(graph.name)  # which a verifier may describe
    left = {name: _place(graph, broker, name, listed, group) for name in orphans(graph, listed).values()}
    moved = {name: place.moved_to for name, place in left.items() if place.moved_to}
    stay = {name for name, place in left.items() if place.record is not None and not place.moved_to}
    declared = {one.renamed_from: name for name, one in graph.processors.items() if one.renamed_from}
    for former in declared:
        if former in left and (error := left[former].unread) is not None:
            raise FatalError(f"{_UNKNOWN.format(former)}: {error}", code=error.code, remedy=error.remedy)
        if (topic := backing_topic(graph.name, former)) not in listed:
            broker.partitions([topic])  # raises where it is only hidden from this user
    found = moved | {former: name for former, name in declared.items() if former not in stay}
    return {name: _last(found, name) for name in found}


def _last(found: Mapping[str, str], name: str) -> str:
    """The name at the end of several renames."""
    passed = {name}
    while (name := found.get(name, name)) not in passed:
        passed.add(name)
    return name


def _warnings(left: Mapping[str, tuple[str, FoundPlace]]) -> Iterator[str]:
    for topic, (name, place) in left.items():
        if place.unread:
            yield f"{topic!r}: {_UNKNOWN.format(name)}: {place.unread}"
        elif place.moved_to:
            yield (
                f"{topic!r} is left of the processor {name!r}, which goes on as {place.moved_to!r}. Delete it: "
                "`cues-kafka delete MODULE:GRAPH --unused`."
            )
        else:
            yield (
                f"{topic!r} holds the place of a processor {name!r}, which this graph does not have. If it was "
                "renamed, the new one starts at its start=, and with 'earliest' outputs repeat: run `cues-kafka rename "
                f"MODULE:GRAPH {name} NEW`, or give it its old name back. If it was removed: `cues-kafka delete "
                "MODULE:GRAPH --unused`."
            )


def _refusals(
    graph: Graph,
    broker: Broker,
    terms: Terms,
    listed: Mapping[str, int],
    lost: Mapping[str, str],
    *,
    unread: BrokerError | None,
) -> Iterator[str]:
    """Processors that may be others of this graph under a new name, with the ways out; and those half-way there."""
    for name in graph.all_processors:
        if name not in set(terms.names or ()):
            continue
        place = _place(graph, broker, name, listed)
        if place.moving_from:
            first = task_spec(graph.name, name, 0, 1, Identity.of_process("plan", None), inputs=())
            yield str(incomplete(first, place.moving_from).halt)
        elif not place.there and lost and name not in terms.new:
            yield _renamed(graph, name, lost) if unread is None else _not_known(name, lost, unread)


def _not_known(name: str, lost: Mapping[str, str], unread: BrokerError) -> str:
    return (
        f"{name!r} has no place on this cluster yet, and whether it is {quoted(lost.values())} under a new name is in "
        f"{quoted(lost)}, which cannot be read: {unread}. If it is another processor, say so once: --new {name}, or "
        f"new=[{name!r}] of start()."
    )


def _renamed(graph: Graph, name: str, lost: Mapping[str, str]) -> str:
    said = graph.processors[name].renamed_from if name in graph.processors else None
    old = said if said in lost.values() else next(iter(lost.values())) if len(lost) == 1 else "OLD"
    begin = f"{name!r} has no place on this cluster yet, and {quoted(lost)} holds the place of {quoted(lost.values())}"
    command = f"run `cues-kafka rename MODULE:GRAPH {old} {name}`"
    if said in lost.values():
        return f"{begin}, which it was renamed from. Stop the workers of {said!r}, and {command}."
    another = f"If it is another processor, say so once: --new {name}, or new=[{name!r}] of start()."
    if name not in graph.processors:
        what = "a feed" if name in graph.feeds else "a processor of DataFrames"
        return (
            f"{begin}, which this graph does not have. If {name!r} is one of these under a new name, give it its old "
            f"name back, name={old!r}; the function may have another one: {what} cannot be renamed, and would start "
            f"again, so its outputs repeat. {another}"
        )
    return (
        f"{begin}, which this graph does not have. A renamed processor starts again, so its outputs repeat. If "
        f"{name!r} is one of these under a new name, {command}, or give it its old name back. {another}"
    )


def _place(graph: Graph, broker: Broker, name: str, listed: Mapping[str, int], group: str = "") -> FoundPlace:
    """What there is; `group` is one that this user may describe, else the processor's own."""
    topic, group = backing_topic(graph.name, name), group or group_id(graph.name, name)
    places = [TopicPartition(topic, partition) for partition in range(listed.get(topic, 0))]
    for place, (low, stable, _) in broker.watermarks(places).items() if places else ():
        try:
            record = record_below(broker, place, low, stable, SystemClock(), group=group)
        except CodecError as error:
            return FoundPlace(there=True, unread=FatalError(f"{error}. {ANOTHER_RELEASE}"))
        except BrokerError as error:
            if not error.forbidden:
                raise
            return FoundPlace(there=stable > low, unread=error)
        if record is not None:
            return FoundPlace(there=True, record=record)
    return FoundPlace()
