"""What a function publishes by another broker, before the batch is committed in Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cues_kafka.errors import RecoveryError, RetriableError
from cues_kafka.graph.effects import Effect
from cues_kafka.graph.publish import Published, Publisher


class Publishing:
    """The parameter of a function for a `Published` target. Valid only during the call."""

    def __init__(self, sink: PublishSink, publisher: Publisher) -> None:
        self._sink, self._publisher = sink, publisher

    def publish(self, value: Any, step: Any, **given: Any) -> None:
        """
        Publish a value, once the batch of its step is complete and before it is committed in Kafka.

        Args:
            value: what is published.
            step: the step, which the function gets as `step`.
            given: what the target takes besides, such as `topic=`.

        Raises:
            OutputError: it cannot be published.
        """
        self._sink.add(self._publisher, step.hash, self._publisher.prepare(value, step, given))


class PublishSink:
    """
    Collects what the steps of one task publish; see `ports.target.Sink`.

    Attributes:
        values: what the function gets, by name.
    """

    def __init__(self, publishers: Mapping[str, Publisher]) -> None:
        self.values = {name: Publishing(self, one) for name, one in publishers.items()}
        self._waiting: list[tuple[Publisher, str, Any]] = []
        self._begun = 0

    def add(self, publisher: Publisher, step: str, message: Any) -> None:
        """Have a message published with the batch. Its id says which message of which step it is."""
        number = len(self._waiting) - self._begun
        self._waiting.append((publisher, f"{step}.{number}", message))

    def begin_batch(self, sequence: int) -> None:
        self._waiting, self._begun = [], 0

    def begin_step(self) -> None:
        self._begun = len(self._waiting)

    def undo_step(self) -> None:
        del self._waiting[self._begun :]

    def before_commit(self, sequence: int, records: Iterable[tuple[Any, ...]]) -> None:
        waiting, self._waiting = self._waiting, []
        by_publisher: dict[int, tuple[Publisher, list[tuple[str, Any]]]] = {}
        for publisher, name, message in waiting:
            by_publisher.setdefault(id(publisher), (publisher, []))[1].append((name, message))
        for publisher, messages in by_publisher.values():
            try:
                publisher.publish(messages)
            except OSError as error:
                raise RetriableError(f"publishing: {type(error).__name__}: {error}") from error
            except RecoveryError as error:  # the task recovers some times, and then stops with the remedy
                raise RetriableError(f"publishing: {error}", remedy=error.remedy) from error

    def after_commit(self, sequence: int) -> None: ...

    def discard(self) -> None:
        """See `ports.target.Sink`. It may come while a step runs, whose messages the next `begin_batch` takes away."""


def open_publishers(declared: Mapping[str, Effect], graph: str, processor: str) -> dict[str, Publisher]:
    """
    Make what the tasks of a processor publish by in this process, by name. It connects when it publishes.

    Raises:
        ConfigError: a package or an address is missing.
    """
    return {name: one.publisher(graph, processor) for name, one in declared.items() if isinstance(one, Published)}
