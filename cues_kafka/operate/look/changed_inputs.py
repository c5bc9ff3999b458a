"""How the declared inputs of a task differ from those of its record, and what of the record they would forget."""

from __future__ import annotations

from dataclasses import dataclass

from cues_kafka.core.records import Record, Snapshot
from cues_kafka.core.spec import Input, Spec
from cues_kafka.core.strategies import AT_LEAST_ONCE
from cues_kafka.errors import RecoveryError
from cues_kafka.ports.log import Positions
from cues_kafka.words import count


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
