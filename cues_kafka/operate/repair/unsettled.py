"""Finds messages that have changed nothing: they became error messages, and no replay made up for it.

`rebuild` leaves them out. Else a function that was fixed would take them now, and again when they are replayed (Y1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from cues_kafka.errors import BrokerError, ConfigError
from cues_kafka.graph.definition import Graph
from cues_kafka.operate.repair.ask import Repairs
from cues_kafka.operate.repair.filed import FiledError, Selection
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.words import count

CHANGING: Final = frozenset({"output", "nil"})
"""What a replay comes to that has called the function to its end."""


@dataclass(slots=True)
class UnsettledErrors:
    """
    Messages that have changed nothing.

    Attributes:
        messages: binding, topic id, partition and offset of each.
        seen: error messages that were read.
        unread: why they could not be read; empty: they were.
    """

    messages: set[tuple[str, bytes, int, int]] = field(default_factory=set)
    seen: int = 0
    unread: str = ""

    def notes(self, errors: int) -> Iterator[str]:
        """
        What is not known, in full sentences.

        Args:
            errors: how many error messages the records of the tasks count.
        """
        again = "their messages are called, and change the entries if their calls raise no longer"
        if self.unread:
            yield f"error messages are not read, so {again}: {self.unread}"
        elif self.seen < errors:
            yield f"{count(errors - self.seen, 'error message')} gone from the errors topic, so {again}"


def unsettled(graph: Graph, broker: Broker, processor: str, clock: Clock) -> UnsettledErrors:
    """
    Read the error messages of a processor, under all names that it had.

    Raises:
        BrokerError: the cluster does not answer.
    """
    found = UnsettledErrors()
    if graph.errors_of(processor) is None:
        return found
    try:
        with Repairs(graph, broker, clock=clock) as tool:
            made_up = set[tuple[str, bytes, int, int]]()
            for one in tool.find(Selection(processor=processor)):
                found.seen += 1
                (made_up if _changed(one) else found.messages).update(
                    (place.binding, place.topic_id, place.partition, place.offset) for place in one.message.consumed
                )
            found.messages -= made_up
    except ConfigError as error:
        found.unread = str(error)
    except BrokerError as error:
        if not error.forbidden:
            raise
        found.unread = str(error)
    return found


def _changed(one: FiledError) -> bool:
    return one.settled is not None and one.settled.outcome in CHANGING
