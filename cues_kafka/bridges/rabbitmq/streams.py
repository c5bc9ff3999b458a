"""
The messages of a stream of RabbitMQ. Their offsets are the places of the feed.

A place names the newest message that was taken, by its offset and a digest. A new connection begins at that message and
compares it. So a stream that was deleted and declared again, or that has dropped messages which were not read, is
noticed; the feed stops then, and nothing is skipped. An open connection may skip messages, too: see `_check_gap`.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from cues_kafka.bridges.rabbitmq.client import RabbitMqConnection, RabbitMqLogin
from cues_kafka.bridges.rabbitmq.messages import message_of
from cues_kafka.errors import RecoveryError, RetriableError
from cues_kafka.graph.message import Message

_PLACE: Final = re.compile(r"(\d{1,20}):([0-9a-f]{16})")

ASK_AGAIN: Final = 2
"""Acknowledgements are sent for half a window at once; they only ask for more messages."""

NEW_NAME: Final = "give the feed a new name=, so that it reads the stream from its start="


class StreamPlace(NamedTuple):
    """
    The newest message that was taken.

    Attributes:
        offset: in the stream.
        digest: see `digest_of`.
    """

    offset: int
    digest: str

    @classmethod
    def read(cls, text: str) -> StreamPlace:
        """
        Read a place.

        Raises:
            RecoveryError: another kind of source gave it.
        """
        if (found := _PLACE.fullmatch(text)) is None:
            raise RecoveryError(
                f"{text[:80]!r} is not a place in a stream of RabbitMQ: the feed had another source before",
                remedy="give the feed a new name=, or its former source",
            )
        return cls(int(found[1]), found[2])

    def __str__(self) -> str:
        return f"{self.offset}:{self.digest}"


class ReadStream(NamedTuple):
    """
    One stream, and how it is read; see `RabbitMq.stream`.

    Attributes:
        name: of the stream.
        prefetch: messages that the broker sends ahead.
        start: the offset at which a new feed begins.
        key: what the key of a message is.
    """

    name: str
    prefetch: int
    start: int
    key: str | None


class StreamSource:
    """A `ReplayableSource`, for one process."""

    def __init__(self, login: RabbitMqLogin, streams: Sequence[ReadStream], show: Callable[[str], str]) -> None:
        self._wake: Callable[[], None] = lambda: None
        self._show = show
        self._parts = [StreamPart(login, one, self._arrived) for one in streams]

    def parts(self) -> int:
        return len(self._parts)

    def read(self, part: int, place: str | None, limit: int) -> Iterator[tuple[Message[Any], str]]:
        return self._parts[part].read(place, limit)

    def notify(self, wake: Callable[[], None]) -> None:
        """Call `wake` when messages arrive."""
        self._wake = wake

    def show(self, place: str) -> str:
        return self._show(place)

    def release(self, part: int) -> None:
        """Another process may read this part from now on."""
        self._parts[part].close()

    def close(self) -> None:
        for part in self._parts:
            part.close()

    def _arrived(self) -> None:
        self._wake()


class StreamPart:
    """One stream: its connection, and how far messages of it were given."""

    def __init__(self, login: RabbitMqLogin, stream: ReadStream, arrived: Callable[[], None]) -> None:
        self._login, self._stream, self._arrived = login, stream, arrived
        self._lock = threading.Lock()  # `close` comes on any thread
        self._flow: Flow | None = None

    def read(self, place: str | None, limit: int) -> Iterator[tuple[Message[Any], str]]:
        flow = self._flow_behind(place)
        try:
            for _ in range(limit):
                arrived = flow.peek()
                if arrived is None:
                    return
                self._check_gap(flow, arrived)
                flow.given = at = str(StreamPlace(arrived.offset, digest_of(arrived)))
                yield message_of(arrived.delivered, arrived.properties, arrived.body, self._stream.key), at
                flow.drop()
        except (OSError, RetriableError, RecoveryError):
            self._end(flow)
            raise

    def close(self) -> None:
        """Disconnect; the next read connects again."""
        with self._lock:
            flow, self._flow = self._flow, None
        if flow is not None:
            flow.close()

    def _flow_behind(self, place: str | None) -> Flow:
        """The messages behind a place: those of the open connection, if it is there."""
        flow = self._flow
        if flow is not None:
            if place is not None and place == flow.given and place != flow.taken:
                flow.drop()  # the reader stopped in the middle of a generator, behind the message
            if place == flow.taken and not flow.lost:
                flow.given = flow.taken
                return flow
            self._end(flow)
        made = Flow(self._login, self._stream, place, self._arrived)
        with self._lock:
            self._flow = made
        return made

    def _check_gap(self, flow: Flow, arrived: Arrived) -> None:
        """
        See whether messages were dropped between the one that was taken last and the next one.

        When retention drops what a slow reader has not read, RabbitMQ moves the reader on, without a word. Offsets are
        missing, too, where RabbitMQ has records of its own. Retention drops the oldest messages first. So if the stream
        has the message before the gap when those behind it have come, none between them was dropped.

        Raises:
            OSError, RetriableError: the broker does not answer.
            RecoveryError: messages were dropped.
        """
        if flow.at is None or arrived.offset <= max(flow.at + 1, flow.sound):
            return
        newest = flow.newest
        Flow(self._login, self._stream, flow.taken, lambda: None).close()  # it compares
        flow.sound = newest

    def _end(self, flow: Flow) -> None:
        with self._lock:
            if self._flow is flow:
                self._flow = None
        flow.close()


class Arrived(NamedTuple):
    """A message of a stream."""

    offset: int
    delivered: Any
    properties: Any
    body: bytes


class Flow:
    """
    The messages of one connection, from a place on.

    Attributes:
        taken: the place behind the last message that was taken.
        given: the place behind the last message that was given, and perhaps not taken.
        at: the offset of the last message that was taken; None: none was.
        sound: up to this offset nothing is missing; see `StreamPart`.
    """

    def __init__(
        self, login: RabbitMqLogin, stream: ReadStream, place: str | None, arrived: Callable[[], None]
    ) -> None:
        """
        Connect and subscribe.

        Raises:
            OSError, RetriableError: the broker does not answer.
            RecoveryError: it refuses, or the stream does not hold the message of the place.
        """
        self.taken = self.given = place
        self._name, self._arrived = stream.name, arrived
        self._from = StreamPlace.read(place) if place is not None else None
        self._begin = stream.start if self._from is None else self._from.offset
        self.at = None if self._from is None else self._from.offset
        self.sound = 0
        self._news = threading.Condition()
        self._waiting: deque[Arrived] = deque()
        self._unasked = 0
        self._half = max(1, stream.prefetch // ASK_AGAIN)
        self._connection = RabbitMqConnection(login, f"cues-kafka {stream.name}", on_lost=self._tell)
        try:
            connection = self._connection
            connection.ask("basic_qos", prefetch_count=stream.prefetch)
            arguments = {"x-stream-offset": self._begin or "first"}
            connection.consume(stream.name, self._receive, arguments=arguments)
            if self._from is not None:
                self._compare(self._from, login.timeout_s)
        except BaseException:
            self.close()
            raise

    @property
    def lost(self) -> bool:
        """Whether the connection is lost."""
        return self._connection.lost

    @property
    def newest(self) -> int:
        """The offset of the newest message that has come and is not taken."""
        with self._news:
            return self._waiting[-1].offset

    def peek(self) -> Arrived | None:
        """
        The next message; None: nothing more is there now.

        Raises:
            OSError, RetriableError: the connection is lost.
            RecoveryError: the broker refuses something.
        """
        with self._news:
            if self._waiting:
                return self._waiting[0]
        self._connection.check()
        return None

    def drop(self) -> None:
        """The message of `peek` was taken, whose place is `given`."""
        with self._news:
            arrived = self._waiting.popleft()
        self.taken, self.at = self.given, arrived.offset
        self._ask_for_more(arrived)

    def close(self) -> None:
        self._connection.close()

    def _ask_for_more(self, arrived: Arrived) -> None:
        self._unasked += 1
        if self._unasked >= self._half:
            self._unasked = 0
            tag = arrived.delivered.delivery_tag
            self._connection.do(lambda: self._connection.channel.basic_ack(tag, multiple=True))

    def _compare(self, place: StreamPlace, timeout_s: float) -> None:
        """
        Compare the message of the place with that of the stream, and begin behind it.

        Raises:
            RecoveryError: it is another one, or is not there.
        """
        with self._news:
            self._news.wait_for(lambda: bool(self._waiting) or self.lost, timeout_s)
            first = self._waiting[0] if self._waiting else None
        self._connection.check()
        where = f"the stream {self._name!r} of RabbitMQ"
        if first is None:
            raise RetriableError(
                f"{where} has not given offset {place.offset} for {timeout_s:g} s, up to which it was read; if it was "
                f"deleted and declared again, {NEW_NAME}"
            )
        if first.offset > place.offset:
            raise RecoveryError(
                f"{where} begins at offset {first.offset}, and was read up to {place.offset}: it has dropped messages "
                "that were not read",
                remedy=f"raise its x-max-age or x-max-length-bytes; to go on without them, {NEW_NAME}",
            )
        if digest_of(first) != place.digest:
            raise RecoveryError(
                f"{where} has another message at offset {place.offset} than the one that was read there: it was "
                "deleted and declared again",
                remedy=NEW_NAME,
            )
        with self._news:
            self._waiting.popleft()
        self._ask_for_more(first)

    def _receive(self, _: Any, delivered: Any, properties: Any, body: bytes) -> None:
        """A message has arrived; on the connection's thread."""
        offset = int((properties.headers or {})["x-stream-offset"])
        with self._news:
            first = not self._waiting  # else the reader was told, and takes until none is left
            if offset >= self._begin:  # a chunk may begin before
                self._waiting.append(Arrived(offset, delivered, properties, body))
            if first:
                self._news.notify_all()
        if first:
            self._arrived()

    def _tell(self) -> None:
        with self._news:
            self._news.notify_all()
        self._arrived()


def digest_of(arrived: Arrived) -> str:
    """Tells messages apart, in 16 characters: by the body, and by ids and the time that a publisher has given."""
    given = arrived.properties
    said = ascii((given.message_id, given.correlation_id, given.timestamp)).encode()
    return blake2b(b"%d:%b%b" % (len(said), said, arrived.body), digest_size=8).hexdigest()
