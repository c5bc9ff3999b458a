"""`cues-kafka migrate`: where a task goes on whose declaration has gained or lost inputs.

The inputs that stay keep their offsets. An added input begins at its first message, or behind its last one. What a
dropped input has not delivered yet is named, because no task delivers it any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from cues_kafka.core.events import InputFacts
from cues_kafka.core.records import Record, Snapshot
from cues_kafka.core.spec import Input, Spec
from cues_kafka.core.strategies import AT_LEAST_ONCE
from cues_kafka.core.taking import in_flight
from cues_kafka.errors import ConfigError, RecoveryError
from cues_kafka.ports import Position, Positions, TopicPartition
from cues_kafka.words import count

EARLIEST, LATEST = "earliest", "latest"
"""Where an added input may begin, beside the place of a dropped one."""

_MARKERS: Final = "markers of transactions have offsets too"


@dataclass(frozen=True, slots=True)
class Difference:
    """
    How the inputs of a declaration differ from those of a task's record.

    Attributes:
        gained: inputs that the record does not have.
        lost: positions of inputs that the declaration does not have.
    """

    gained: tuple[Input, ...]
    lost: Positions

    @property
    def command(self) -> str:
        """The options of `migrate` that say the same, with the places that lose nothing."""
        names = {p.topic: p.binding for p in self.lost}
        added = (f" --add {one.binding}={names.get(one.topic, 'earliest')}" for one in self.gained)
        return "".join([*added, *(f" --drop {one.binding}" for one in self.lost)])


def difference(spec: Spec, record: Record) -> Difference:
    """Compare the inputs of a task's record with the declared ones. A binding with another topic is gained and lost."""
    was = {(p.binding, p.topic) for p in record.positions}
    lost = tuple(p for p in record.positions if (p.binding, p.topic) not in set(spec.inputs))
    return Difference(tuple(one for one in spec.inputs if one not in was), lost)


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


def refuse_busy(spec: Spec, record: Record) -> None:
    """
    Refuse a task whose record holds more than positions: the move would forget the rest.

    Raises:
        RecoveryError: a batch is announced, messages wait in a recorded order or one by one, or the strategy has no
            lock, or is another one than the declared one.
    """
    former = (
        "Start the former version, with the inputs as they were, until it has delivered them; stop it, and run the "
        "command again."
    )
    if record.strategy != spec.strategy or spec.strategy == AT_LEAST_ONCE:
        wanted = "exactly-once" if spec.strategy == AT_LEAST_ONCE else spec.strategy
        why = (
            "a worker of the former version has no lock, and may still write records of the former inputs"
            if spec.strategy == AT_LEAST_ONCE
            else f"its newest record was written {record.strategy}, and the graph says {spec.strategy}"
        )
        raise RecoveryError(
            f"{spec.name}: {why}. Declare the inputs as they were, with strategy={wanted!r}, and run `cues-kafka "
            f"strategy MODULE:GRAPH {spec.processor} --yes`. Then declare the new inputs, and run this command again."
        )
    if isinstance(record, Snapshot):
        raise RecoveryError(
            f"{spec.name} has announced {count(record.steps, 'step')}, which the former inputs have to deliver. "
            f"{former}"
        )
    if record.careful_until or record.careful_timers:
        raise RecoveryError(
            f"{spec.name} takes its next messages one by one, because its process died in them. {former}"
        )
    if record.choice:
        raise RecoveryError(f"{spec.name} has recorded the order of its next messages, which must not change. {former}")
    if record.tail_ends:
        raise RecoveryError(f"{spec.name} has recorded what its tailers show to its next messages. {former}")


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
