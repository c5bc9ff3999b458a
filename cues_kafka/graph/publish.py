"""What a function publishes by another broker, at least once: the declaration behind `Sink(..., into=...)`.

Messages of a batch are collected while the function is called for each step. They are published before the batch is
committed in Kafka. So a message of the batch may be published again after a crash, and none is lost.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from cues_kafka.errors import GraphError
from cues_kafka.graph.effects import Effect
from cues_kafka.graph.names import quoted


class Publisher(Protocol):
    """Connections of one process to a broker. Tasks share it; its methods come on any thread."""

    def prepare(self, value: Any, step: Any, given: Any) -> Any:
        """
        Make a message of a value.

        Args:
            value: what is published.
            step: the step that publishes it.
            given: what the function gives besides, by name.

        Raises:
            OutputError: it cannot be published; the step becomes an error message.
        """
        ...

    def publish(self, messages: Sequence[tuple[str, Any]]) -> None:
        """
        Publish messages in this order, each with its id, and wait until the broker has acknowledged all of them.

        Raises:
            OSError, RetriableError: it did not; all of them are published again.
            RecoveryError: it refuses one.
        """
        ...

    def close(self) -> None:
        """Disconnect. No task is left."""
        ...


class Published(Effect):
    """
    Base of targets that get messages, and acknowledge them, without a transaction.

    The function gets an object with `publish(value, step)` under the name that the target is declared with.
    """

    kind: ClassVar[str] = "published"
    what: ClassVar[str] = "broker"

    @abstractmethod
    def publisher(self, graph: str, processor: str) -> Publisher:
        """
        Make what a process publishes by. It connects when it publishes.

        Raises:
            ConfigError: a package or the address is missing.
        """


def check_published(label: str, targets: Mapping[str, Effect], *, together: Mapping[str, bool]) -> None:
    """
    Check what a processor with such a target has besides.

    Args:
        label: of the processor.
        targets: its effects.
        together: what does not go with one, and whether the processor has it.

    Raises:
        GraphError: it has something of that.
    """
    found = [name for name, one in targets.items() if isinstance(one, Published)]
    if found and (wrong := [what for what, has in together.items() if has]):
        raise GraphError(
            f"{label}: effects= has {quoted(found)}, which publishes messages, with {' and '.join(wrong)}. Have this "
            "processor write a topic, and a Sink read it: Sink(..., into=...)."
        )
