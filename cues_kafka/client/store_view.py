"""A read-only view of a store in any process: it follows the changelogs of all tasks in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from cues_kafka.client.store_reading import StoreReading, ViewFull, ViewPlace
from cues_kafka.errors import BrokerError, CodecError, ConfigError, RetriableError
from cues_kafka.graph.names import quoted
from cues_kafka.observe.log import get_logger
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import Sent, TopicPartition
from cues_kafka.state.followed import Followed
from cues_kafka.state.mapping import StoreSpec

log = get_logger("cues_kafka.table")

MAX_BYTES: Final = 1024**3
"""Memory that the entries may take, about."""

PAUSE_FIRST_S: Final = 0.5
PAUSE_MAX_S: Final = 30.0
"""How long a view waits before it reads again after an error; the pause doubles."""


class StoreView(Mapping[Any, Any]):
    """
    The committed entries of a store, read-only, in any process. They are held in memory.

    The view has whole transactions only, and those of one task in their order. It follows the store within a moment of
    each commit; `wait_for` waits until it has what became of a message. While the cluster does not answer, it keeps
    what it has. All methods may be called on any thread.

    Between two look-ups the entries may change: use `copy`, `items` or `scan`, which have all entries as of one moment.
    """

    def __init__(
        self, broker: Broker, spec: StoreSpec, place: ViewPlace, clock: Clock, *, max_bytes: int = MAX_BYTES
    ) -> None:
        self._spec = spec
        self._place = place
        self._parts: dict[int, Followed] | None = None  # None: not read to the end yet
        self._news = threading.Condition()
        self._closing = threading.Event()
        self._error: Exception | None = None
        self._reading = StoreReading(
            *(broker, spec, place, clock),
            news=self._news,
            closing=self._closing,
            tell=self._tell,
            show=self._show,
            most=max_bytes,
        )
        self._thread = threading.Thread(target=self._run, name=f"{place.processor}-{spec.name}-table", daemon=True)

    def open(self, timeout_s: float) -> Self:
        """
        Begin to follow, and wait until the view has what is committed now.

        Raises:
            BrokerError, ConfigError: the changelog cannot be read.
            TimeoutError: the time is over.
        """
        self._thread.start()
        with self._news:
            self._news.wait_for(lambda: self._parts is not None or self._final, timeout_s)
            loaded, error = self._parts is not None, self._error
        if loaded:
            return self
        self.close()
        if error is not None and not isinstance(error, RetriableError):
            raise error
        raise TimeoutError(
            f"the changelog {self._spec.changelog} was not read to its end after {timeout_s:g} s. "
            "Check that the cluster answers, or give table(..., timeout_s=) more time"
        ) from error

    # What users call.

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """For each input partition, the offset up to which the processor's messages are in the entries."""
        with self._news:
            return self._positions()

    def wait_for(self, sent: Sent, *, timeout_s: float = 30.0) -> None:
        """
        Wait until the processor has passed a message, and the view has what came of it.

        Args:
            sent: what `send` returned for the message.
            timeout_s: how long to wait.

        Raises:
            ConfigError: the processor does not read its topic, or the view does not follow its partition.
            TimeoutError: the time is over; the text says where the task stands.
        """
        place = TopicPartition(sent.topic, sent.partition)
        name = self._place.processor
        if place.topic not in self._place.inputs:
            raise ConfigError(
                f"wait_for({sent}): processor {name!r} does not read {place.topic!r}; it reads "
                f"{quoted(self._place.inputs)}. Wait for a message that was sent to one of these"
            )
        if self._place.partition not in (None, place.partition):
            raise ConfigError(
                f"wait_for({sent}): this view follows partition {self._place.partition} only. "
                "Leave partition= out of table(...)"
            )
        with self._news:
            self._news.wait_for(lambda: self._ended or self._positions().get(place, 0) > sent.offset, timeout_s)
            self._check_open()
            at, error = self._positions().get(place), self._error
        if at is None or at <= sent.offset:
            stands = "has no record yet" if at is None else f"is at offset {at}"
            trouble = f" The view cannot read the cluster: {error}." if error else ""
            raise TimeoutError(
                f"processor {name!r} has not processed {place.topic}/{place.partition} at {sent.offset} "
                f"within {timeout_s:g} s: task {name}/{place.partition} {stands}.{trouble} "
                "Check that a worker runs it; the worker's log says why a task stopped"
            ) from error

    def scan(self, prefix: str = "") -> Iterator[tuple[Any, Any]]:
        """Keys that begin with this text, with their values, in the order of the keys' bytes."""
        spec = self._spec
        return ((spec.key_of(key), spec.value_of(key, data)) for key, data in self._sorted(prefix))

    def scan_all(self, prefix: str = "") -> Iterator[tuple[Any, Any]]:
        """The same as `scan`, with the `CodecError` that says why in the place of what cannot be read."""
        spec = self._spec
        for key, data in self._sorted(prefix):
            yield _or_why(partial(spec.key_of, key)), _or_why(partial(spec.value_of, key, data))

    def copy(self) -> dict[Any, Any]:
        """All entries as of one moment."""
        spec = self._spec
        return {spec.key_of(key): spec.value_of(key, data) for key, data in self._entries().items()}

    def items(self) -> ItemsView[Any, Any]:
        """All entries as of one moment."""
        return self.copy().items()

    def values(self) -> ValuesView[Any]:
        """The values of all entries as of one moment."""
        return self.copy().values()

    def __getitem__(self, key: Any) -> Any:
        """
        Raises:
            KeyError: there is no such entry.
            ConfigError: several tasks have an entry of this key.
        """
        data = self._spec.encode_key(key)
        with self._news:
            self._check_open()
            parts = self._parts or {}
            found = {p: value for p, part in parts.items() if (value := part.get(data)) is not None}
        if not found:
            raise KeyError(key)
        if len(found) > 1:
            raise self._twice(data, sorted(found))
        [value] = found.values()
        return self._spec.value_of(data, value)

    def __contains__(self, key: object) -> bool:
        data = self._spec.encode_key(key)
        with self._news:
            self._check_open()
            return any(part.get(data) is not None for part in (self._parts or {}).values())

    def __iter__(self) -> Iterator[Any]:
        return (self._spec.key_of(key) for key in self._entries())

    def __len__(self) -> int:
        return len(self._entries())

    def __repr__(self) -> str:
        return f"StoreView({self._place.processor!r}, {self._spec.name!r})"

    def close(self) -> None:
        """Stop following. The view cannot be read any more."""
        self._closing.set()
        with self._news:
            self._news.notify_all()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    # How. `_news` guards the parts and the error.

    @property
    def _final(self) -> bool:
        return self._error is not None and not isinstance(self._error, RetriableError)

    @property
    def _ended(self) -> bool:
        return self._closing.is_set() or isinstance(self._error, ViewFull)

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise RuntimeError(f"{self!r} is closed")
        if isinstance(self._error, ViewFull):
            raise self._error

    def _positions(self) -> dict[TopicPartition, int]:
        parts = (self._parts or {}).items()
        return {TopicPartition(at.topic, p): at.offset for p, part in parts for at in part.positions}

    def _entries(self) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        with self._news:
            self._check_open()
            for part in (self._parts or {}).values():
                own = part.entries
                for key in found.keys() & own.keys():
                    raise self._twice(key, [p for p, one in (self._parts or {}).items() if key in one.entries])
                found |= own
        return found

    def _sorted(self, prefix: str) -> list[tuple[bytes, bytes]]:
        """The entries whose keys begin with this text, by the bytes of their keys."""
        start = prefix.encode()
        return sorted(one for one in self._entries().items() if one[0].startswith(start))

    def _twice(self, key: bytes, partitions: list[int]) -> ConfigError:
        name, shown = self._place.processor, _or_why(partial(self._spec.key_of, key))
        return ConfigError(
            f"{self._spec.name}[{shown!r:.60}] is in the stores of several tasks of {name!r}: partitions {partitions}. "
            f"Give table(..., partition=) to see the entries of one"
        )

    # The view's thread.

    def _run(self) -> None:
        pause_s = PAUSE_FIRST_S
        while not self._closing.is_set():
            try:
                self._reading.follow()
                pause_s = PAUSE_FIRST_S
            except ViewFull as error:  # what it has read may be less than what is committed, so it shows nothing
                log.error("table full", changelog=self._spec.changelog, error=str(error))
                self._parts = None
                self._tell(error)
                return
            except (BrokerError, ConfigError, CodecError) as error:
                self._tell(error)
                log.warning("table not read", changelog=self._spec.changelog, error=str(error), again_in_s=pause_s)
                self._closing.wait(pause_s)
                pause_s = min(pause_s * 2, PAUSE_MAX_S)
            except BaseException as error:  # a view that lost its thread must not look alive
                self._tell(RuntimeError(f"the view's thread ended: {error!r}"))
                raise

    def _tell(self, error: Exception | None) -> None:
        with self._news:
            self._error = error
            self._news.notify_all()

    def _show(self, parts: dict[int, Followed]) -> None:
        with self._news:
            if self._parts is not parts or self._error is not None:
                self._parts, self._error = parts, None
                self._news.notify_all()


def _or_why(read: Callable[[], Any]) -> Any:
    """What is read, or the error that says why it cannot be."""
    try:
        return read()
    except CodecError as error:
        return error
