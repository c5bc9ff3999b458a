"""What a run has committed, read from the logs and sorted by what it is for; and how a violation is raised."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from cues_kafka.codecs.error_messages import error_messages
from cues_kafka.codecs.json import JsonCodec
from cues_kafka.core.delivery import HEADER, Provenance, parse_provenance
from cues_kafka.core.records import KEY, Record
from cues_kafka.ports.log import WireMessage
from cues_kafka.records.history import HISTORY
from cues_kafka.records.reading import read_record
from tests.proof.simulation.graphs import ERRORS
from tests.proof.simulation.run import Simulation


class Violation(AssertionError):
    """Something that must never be true; the text begins with the invariant's number."""


class Outcome(NamedTuple):
    """One committed record of a delivery; `arrived` is its place in the order of all records, see `Logs`."""

    topic: str
    place: tuple[int, int]
    value: Any
    key: bytes | None
    provenance: Provenance
    transaction: int
    arrived: int = 0


class Delivery(NamedTuple):
    """One step as the input logs give it: (binding, offset) of each consumed message, and their values."""

    places: tuple[tuple[str, int], ...]
    values: tuple[str, ...]


@dataclass(slots=True)
class Logs:
    """
    Everything that was committed.

    Attributes:
        inputs: by topic and partition: values by offset, ascending.
        records: by backing topic and partition: record, transaction.
        arrived: by the same: the place of each record among all records of the cluster, where that is written down.
        outcomes: by task: what carries its name, in order of topic, partition and offset.
        changes: of stores, by changelog, partition and transaction: the new value of each entry.
    """

    inputs: dict[tuple[str, int], dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    records: dict[tuple[str, int], list[tuple[Record, int]]] = field(default_factory=lambda: defaultdict(list))
    arrived: dict[tuple[str, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    outcomes: dict[str, list[Outcome]] = field(default_factory=lambda: defaultdict(list))
    changes: dict[tuple[str, int], dict[int, dict[str, int]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(dict))
    )


def require(holds: object, *what: object) -> None:
    """
    Raises:
        Violation: it does not hold.
    """
    if not holds:
        raise Violation(": ".join(str(one) for one in what))


def read(simulation: Simulation) -> Logs:
    """The logs, by what they are for."""
    logs, arrivals = Logs(), simulation.broker.topics.arrivals or {}
    for topic in simulation.graph.topics_used():
        for message in simulation.broker.messages(topic):
            if topic != ERRORS:
                logs.inputs[topic, message.partition()][message.offset()] = _decode(message.value() or b"")
            if header := dict(message.headers() or ()).get(HEADER):
                one = _outcome(topic, message, header)._replace(arrived=arrivals.get(_at(message), 0))
                logs.outcomes[one.provenance.task].append(one)
    for topic in simulation.backing:
        simulation.remember(topic)
        for (partition, _), message in sorted(simulation.history[topic].items()):
            if message.key() == HISTORY:  # what operators did to the task
                continue
            require(message.key() == KEY, "I14 a foreign key in the backing topic", message)
            logs.records[topic, partition].append((read_record(message), _transaction(message)))
            logs.arrived[topic, partition].append(arrivals.get(_at(message), 0))
    for topic in simulation.changelogs:
        simulation.remember(topic)
        for (partition, _), message in sorted(simulation.history[topic].items()):
            changed = logs.changes[topic, partition][_transaction(message)]
            key = (message.key() or b"").decode()
            if key in ("m", "i"):
                continue
            require(key not in changed, "I2 a transaction changes an entry twice", message)
            changed[key[1:]] = _decode(message.value() or b"")
    return logs


def _outcome(topic: str, message: WireMessage, header: bytes) -> Outcome:
    data = message.value() or b""
    # An error message carries the machine's time, which would make each run's words its own.
    value = replace(error_messages().decode(data), timestamp_ms=0) if topic == ERRORS else _decode(data)
    place = (message.partition(), message.offset())
    return Outcome(topic, place, value, message.key(), parse_provenance(header), _transaction(message))


def _at(message: WireMessage) -> tuple[str, int, int]:
    return message.topic(), message.partition(), message.offset()


def _transaction(message: WireMessage) -> int:
    number: int = message.transaction  # type: ignore[attr-defined]
    return number


_decode = JsonCodec().decode
