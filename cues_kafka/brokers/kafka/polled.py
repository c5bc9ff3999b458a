"""Takes what a consumer has fetched, many messages at once: by the compiled module where it is, else by the client."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException

from cues_kafka.brokers.kafka.compiled.loaded import Module, loaded

SILENT_S: Final = 0.01
"""How long a poll waits at first while a partition that was assigned has brought nothing yet: its forwarding may have
ended. Each such poll waits twice as long as the one before: a partition that is paused stays silent for hours."""


class Polling(Protocol):
    """How a reader gets at messages and events; for one thread."""

    def expect(self, places: Collection[tuple[str, int]]) -> None:
        """These partitions are assigned next."""
        ...

    def forget(self, places: Collection[tuple[str, int]]) -> None:
        """These partitions are unassigned next."""
        ...

    def take(self, timeout_s: float, max_messages: int) -> list[Any]:
        """Wait for one message or event, then take what is there. Raises what the client raises."""
        ...

    def close(self) -> None:
        """The consumer is closed next, or kept for another reader."""
        ...


class ClientPolling:
    """Takes the messages of the Python client."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def expect(self, places: Collection[tuple[str, int]]) -> None: ...
    def forget(self, places: Collection[tuple[str, int]]) -> None: ...
    def close(self) -> None: ...

    def take(self, timeout_s: float, max_messages: int) -> list[Any]:
        consumer = self._consumer
        first = consumer.poll(timeout_s)
        batch: list[Any] = [] if first is None else [first]
        if batch and max_messages > 1:
            # With a time-out above zero the client would wait for as many messages, up to the whole time.
            batch += consumer.consume(max_messages - 1, 0)
        return batch


class ModulePolling:
    """
    Takes messages of the compiled module, in two thirds of the time.

    The client is still polled: that serves its logs, statistics and tokens, and brings events of no partition.
    """

    def __init__(self, module: Module, consumer: Consumer) -> None:
        self._consumer = consumer
        self._fetcher = module.fetcher_of(consumer, KafkaError)
        self._silent: set[tuple[str, int]] = set()
        self._wait_s = SILENT_S

    def expect(self, places: Collection[tuple[str, int]]) -> None:
        self._silent.update((topic, partition) for topic, partition in places)
        self._wait_s = SILENT_S
        self._forward()

    def forget(self, places: Collection[tuple[str, int]]) -> None:
        self._silent.difference_update((topic, partition) for topic, partition in places)

    def close(self) -> None:
        self._fetcher.close()

    def take(self, timeout_s: float, max_messages: int) -> list[Any]:
        event = self._consumer.poll(0)
        if event is not None:
            return [_event(event)]
        if not self._silent:
            return self._fetcher.take(timeout_s, max_messages)
        # A partition that was unassigned is stopped later, and with that its forwarding ends, perhaps behind its next
        # assignment. When something comes, that is over.
        self._forward()
        batch = self._fetcher.take(min(timeout_s, self._wait_s), max_messages)
        self._wait_s = min(2 * self._wait_s, 1.0)
        self._silent.difference_update((one.topic(), one.partition()) for one in batch)
        return batch

    def _forward(self) -> None:
        for topic, partition in self._silent:
            self._fetcher.forward(topic, partition)


def _event(event: Any) -> Any:
    """
    An event that the client's own queue brought.

    Raises:
        KafkaException: it is a message. It may have passed others of its partition, so the reader begins again.
    """
    if event.error() is None:
        where = f"{event.topic()}/{event.partition()} at {event.offset()}"
        raise KafkaException(KafkaError(KafkaError._FAIL, f"a message came by the wrong queue: {where}"))  # noqa: SLF001
    return event


def polling(consumer: Consumer, *, prompt: bool) -> Polling:
    """How a reader takes messages. A prompt one reads few, and its consumer is used again by other readers."""
    module = loaded().module
    return ClientPolling(consumer) if prompt or module is None else ModulePolling(module, consumer)
