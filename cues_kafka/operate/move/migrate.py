"""`cues-kafka migrate`: where a task goes on whose declaration has gained or lost inputs.

The inputs that stay keep their offsets. An added input begins at its first message, or behind its last one. What a
dropped input has not delivered yet is named, because no task delivers it any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

from cues_kafka.core.events import InputFacts
from cues_kafka.core.records import Record
from cues_kafka.core.spec import Input, Move, Spec
from cues_kafka.core.taking import in_flight
from cues_kafka.errors import ConfigError, RecoveryError
from cues_kafka.graph.processor import Processor
from cues_kafka.operate.look.changed_inputs import Difference, difference, refuse_busy
from cues_kafka.operate.look.drivers import refuse_drivers
from cues_kafka.operate.move.base import Maintenance, PlannedMove
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.log import Position, Positions, TopicPartition
from cues_kafka.task.making.other_inputs import begin_again
from cues_kafka.words import count

EARLIEST, LATEST = "earliest", "latest"
"""Where an added input may begin, beside the place of a dropped one."""

_MARKERS: Final = "markers of transactions have offsets too"


def migrate(
    tool: Maintenance,
    add: Mapping[str, str],
    drop: Collection[str],
    *,
    tell: Callable[[str], Any] = lambda _: None,
) -> list[PlannedMove]:
    """
    Plan to let tasks go on with the inputs that the graph declares now, which are others than their records have.

    Inputs that stay keep their offsets. Tasks that have the declared inputs already are left out, so that a run
    that was cut short can be run again; so are tasks without a record, which begin at `start=`.

    Args:
        tool: what moves the tasks.
        add: where each added input begins: `earliest`, at its first message, `latest`, behind its last committed
            one, or the name of a dropped input from the same topic, where that stands.
        drop: the inputs that are gone.
        tell: told why the plan waits, see `refuse_drivers`.

    Raises:
        ConfigError: the processor is one of DataFrames or never ran, the plan is refused, or the options are not
            the difference between the records and the declaration.
        RecoveryError: the group has members, a driver of Spark runs the processor, or a record holds what the move
            would forget.
    """
    name = tool.declared.name
    if not isinstance(tool.declared, Processor):
        raise ConfigError(
            f"{name!r} is a processor of DataFrames: where it stands is also in the checkpoint of its query, which "
            f"knows its inputs. You may {begin_again(name)}"
        )
    refuse_undeclared(tool.specs[0], add, drop)
    tool.reading.plan.refuse()
    tool.refuse_others()
    records = {spec: record for spec in tool.specs if (record := tool.settled(spec))}
    if not records:
        raise ConfigError(f"{name!r} has no record, so there is nothing to migrate: start it, and it begins at start=")
    moves = [move for spec, record in records.items() if (move := _migrated(tool, spec, record, add, drop))]
    if moves and (unseen := refuse_drivers(tool.graph, tool.broker, [name], clock=tool.clock, tell=tell)):
        moves[0] = replace(moves[0], notes=(unseen, *moves[0].notes))
    return moves


def _migrated(
    tool: Maintenance, spec: Spec, record: Record, add: Mapping[str, str], drop: Collection[str]
) -> PlannedMove | None:
    """One task; None: it has these inputs."""
    positions = positions_of(spec, record, tool.reading.inputs(spec), add, drop)
    if positions is None:
        return None
    if spec.target:
        _refuse_ahead(tool, spec, record)
    move = Move(after=record.sequence, positions=positions)
    topics = dict.fromkeys(p.topic for p in (*positions, *record.positions))
    said = notes(spec, record, positions, add, _facts_of(tool.broker, spec, topics))
    return PlannedMove(replace(spec, move=move), tuple(said))


def _refuse_ahead(tool: Maintenance, spec: Spec, record: Record) -> None:
    """Refuse if the task's target holds the outcomes of messages of the former inputs, and Kafka does not."""
    with closing(tool.target_of(spec)) as target:
        held = target.newest()
    if held is not None and held.step > record.step:
        raise RecoveryError(
            f"{spec.name}: its target holds {count(held.step - record.step, 'step')} more than its newest record. "
            "Start the former version, with the inputs as they were, which completes them; stop it, and run the "
            "command again."
        )


def _facts_of(broker: Broker, spec: Spec, topics: Iterable[str]) -> dict[TopicPartition, InputFacts]:
    """What the cluster says about these topics, declared or not; those that do not exist are left out."""
    found = broker.facts(list(topics)).topics
    places = [
        TopicPartition(topic, spec.partition) for topic, facts in found.items() if spec.partition < facts.partitions
    ]
    marks = broker.watermarks(places) if places else {}
    return {place: InputFacts(found[place.topic].topic_id, *marks[place]) for place in places}


def added(wishes: Iterable[str]) -> dict[str, str]:
    """
    Read `BINDING=earliest`, `BINDING=latest`, and `BINDING=DROPPED` for an input that only has another name now.

    Raises:
        ConfigError: a wish has another form, or a binding comes twice.
    """
    found: dict[str, str] = {}
    for wish in wishes:
        binding, _, place = wish.partition("=")
        if not (binding and place):
            raise ConfigError(f"--add {wish}: write --add BINDING=earliest or --add BINDING=latest")
        if binding in found:
            raise ConfigError(f"--add {wish}: {binding!r} is there twice. Say once where it begins.")
        found[binding] = place
    return found


def refuse_undeclared(spec: Spec, add: Mapping[str, str], drop: Collection[str]) -> None:
    """
    Refuse what the declaration itself contradicts.

    Raises:
        ConfigError: nothing is asked for, an added input is not declared, or a dropped one still is.
    """
    declared = {one.binding: one.topic for one in spec.inputs}
    shown = ", ".join(f"{binding!r} from {topic!r}" for binding, topic in declared.items())
    if not (add or drop):
        raise ConfigError(
            f"which input? Declare the inputs of {spec.processor!r} as they shall be, and write --add "
            "BINDING=earliest, --add BINDING=latest or --drop BINDING for each one that changes."
        )
    for binding in add:
        if binding not in declared:
            raise ConfigError(
                f"--add {binding}: {spec.processor!r} does not declare this input. It has {shown}. Declare it in "
                "inputs= or alts= first, then run the command with the new declaration."
            )
    for binding in drop:
        if binding in declared and binding not in add:
            raise ConfigError(
                f"--drop {binding}: {spec.processor!r} still declares this input, from {declared[binding]!r}. Take it "
                "out of the declaration first. If its topic is another one now, write --add "
                f"{binding}=earliest or --add {binding}=latest as well."
            )


def positions_of(
    spec: Spec, record: Record, inputs: Mapping[str, InputFacts], add: Mapping[str, str], drop: Collection[str]
) -> Positions | None:
    """
    Where a task goes on with the declared inputs; None: its record has them already.

    Raises:
        ConfigError: the options are not the difference between the record and the declaration.
        RecoveryError: an input that stays has lost messages, or its topic was recreated; or see `refuse_busy`.
    """
    differs = difference(spec, record)
    gained, lost = [one.binding for one in differs.gained], [one.binding for one in differs.lost]
    if not (gained or lost):
        return None
    _refuse_others(spec, differs, add, drop)
    refuse_busy(spec, record)
    stays = {p.binding: p for p in record.positions if p not in differs.lost}
    stays |= {p.binding: p for one in differs.gained if (p := _renamed(spec, one, add[one.binding], differs.lost))}
    for position in stays.values():
        _refuse_gone(spec, position, inputs[position.binding])
    return tuple(
        stays[one.binding] if one.binding in stays else _begin(one, inputs[one.binding], add[one.binding])
        for one in spec.inputs
    )


def _renamed(spec: Spec, one: Input, place: str, lost: Positions) -> Position | None:
    """The place of an input that only had another name; None: it begins at an end of its log."""
    if place in (EARLIEST, LATEST):
        return None
    for position in lost:
        if (position.binding, position.topic) == (place, one.topic):
            return position._replace(binding=one.binding)
    raise ConfigError(
        f"--add {one.binding}={place}: {spec.name} has no dropped input {place!r} from {one.topic!r}, whose place it "
        "could take. Write earliest or latest, or the former name of the input."
    )


def _refuse_others(spec: Spec, differs: Difference, add: Mapping[str, str], drop: Collection[str]) -> None:
    gained, lost = {one.binding for one in differs.gained}, {one.binding for one in differs.lost}
    if there := sorted(add.keys() - gained):
        raise ConfigError(
            f"--add {there[0]}: {spec.name} has this input already, at its own offset. Leave the option out. To begin "
            f"elsewhere, use `cues-kafka reset MODULE:GRAPH {spec.processor}`."
        )
    if unknown := sorted({*drop} - lost):
        raise ConfigError(f"--drop {unknown[0]}: {spec.name} has no such input in its record. Leave the option out.")
    if left := sorted((gained - add.keys()) | (lost - {*drop})):
        raise ConfigError(
            f"{spec.name}: {', '.join(map(repr, left))} changed too. Name all that changed: `cues-kafka migrate "
            f"MODULE:GRAPH {spec.processor}{differs.command}`, with earliest or latest for each added input."
        )


def _refuse_gone(spec: Spec, position: Position, facts: InputFacts) -> None:
    place = f"{position.topic}/{spec.partition}"
    if facts.topic_id != position.topic_id:
        raise RecoveryError(
            f"{spec.name}: {position.topic!r} was recreated, so the task has no place in it. `cues-kafka reset "
            f"MODULE:GRAPH {spec.processor}` begins all declared inputs again."
        )
    if position.offset < facts.low:
        raise RecoveryError(
            f"{spec.name}: offsets [{position.offset}, {facts.low}) of {place} are gone from the log and were not "
            "delivered. Declare the inputs as they were, run `cues-kafka accept-loss MODULE:GRAPH "
            f"{spec.processor} --yes`, then run this command with the new declaration."
        )
    if position.offset > facts.high:
        raise RecoveryError(
            f"{spec.name}: position {position.offset} is past the end {facts.high} of {place}: the log was truncated. "
            "See what the brokers lost before you go on."
        )


def _begin(one: Input, facts: InputFacts, to: str) -> Position:
    return Position(one.binding, one.topic, facts.topic_id, facts.low if to == EARLIEST else facts.stable)


def notes(
    spec: Spec,
    record: Record,
    positions: Positions,
    add: Mapping[str, str],
    facts: Mapping[TopicPartition, InputFacts],
) -> Iterator[str]:
    """
    What a migration of a task delivers, skips and loses, in sentences.

    Args:
        spec: the task.
        record: its newest record.
        positions: where it shall stand.
        add: where each added input begins.
        facts: what the cluster says about the topics of all these inputs that still exist.
    """
    differs = difference(spec, record)
    gained, renamed = {one.binding for one in differs.gained}, set[str]()
    for position in positions:
        if position.binding not in gained:
            continue
        place = TopicPartition(position.topic, spec.partition)
        if (name := add[position.binding]) in (EARLIEST, LATEST):
            yield _added_note(spec, position, facts[place])
            continue
        renamed.add(name)
        yield f"{_shown(place)}: input {name!r} is called {position.binding!r} now, and goes on at {position.offset}"
    for position in differs.lost:
        if position.binding not in renamed:
            yield _dropped_note(spec, position, facts.get(TopicPartition(position.topic, spec.partition)))
    if spec.pairing == "join":
        yield (
            f"from there, the join pairs the k-th messages behind {_places(positions)}; until now the inputs stood at "
            f"{_places(record.positions)}"
        )
    elif spec.pairing == "single" and len(record.positions) > 1:
        yield f"from there, each message behind {_places(positions)} is a step of its own, without a partner"
    if spec.replay and (differs.lost or spec.pairing == "join"):
        who = "former steps of the join" if spec.pairing == "join" else ", ".join(repr(p.binding) for p in differs.lost)
        yield (
            f"errors of {who} that are open now can not be replayed any more. To replay them, declare the inputs as "
            "they were and do it first"
        )
    if steps := in_flight(record):
        yield f"{count(steps, 'step')} that a dead process has taken and not settled count as DROPPED"


def _shown(place: TopicPartition) -> str:
    return f"{place.topic}/{place.partition}"


def _places(positions: Positions) -> str:
    return ", ".join(f"{p.binding} {p.offset}" for p in positions)


def _added_note(spec: Spec, position: Position, facts: InputFacts) -> str:
    begins = f"{position.topic}/{spec.partition}: input {position.binding!r} is added and begins at {position.offset}"
    if waiting := facts.stable - position.offset:
        return f"{begins}: its log delivers at most {count(waiting, 'message')}, for {_MARKERS}"
    if skipped := facts.stable - facts.low:
        return (
            f"{begins}, behind its last message: what offsets [{facts.low}, {facts.stable}) hold is not delivered as "
            f"{position.binding!r}: at most {count(skipped, 'message')}, for {_MARKERS}"
        )
    return f"{begins}: its log is empty"


def _dropped_note(spec: Spec, position: Position, facts: InputFacts | None) -> str:
    drops = f"{position.topic}/{spec.partition}: input {position.binding!r} is dropped at {position.offset}"
    if facts is None or facts.topic_id != position.topic_id:
        return f"{drops}, and its topic is gone, or hidden from this user: what it held from there on is LOST"
    if left := facts.stable - max(position.offset, facts.low):
        return (
            f"{drops}: what offsets [{max(position.offset, facts.low)}, {facts.stable}) hold is LOST, it will never be "
            f"delivered as {position.binding!r}: at most {count(left, 'message')}, for {_MARKERS}"
        )
    return f"{drops}, its end: all of its messages have outcomes"
