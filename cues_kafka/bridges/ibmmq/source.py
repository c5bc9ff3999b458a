"""
The messages of queues of IBM MQ, for `Acked`.

Not run against a real IBM MQ; tested on a fake of its client.

An acknowledgement in IBM MQ is the commit of a unit of work, and it covers all messages that were read in it. So a unit
is committed when each of its messages is in Kafka, and a connection reads at most `prefetch` messages in one unit. Then
it waits. A unit that is not committed is taken back, and its messages return to their places in the queue.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from cues_kafka.bridges.deliveries import Arrival
from cues_kafka.bridges.ibmmq import client
from cues_kafka.bridges.ibmmq.client import MqConnection, MqLogin
from cues_kafka.bridges.ibmmq.messages import Descriptor, content_or_whole, message_of, name_of
from cues_kafka.bridges.ibmmq.reasons import MqRefused

WAIT_S: Final = 0.25
"""How long one question for a message waits, in seconds: so long may a commit or an end be late."""

LEAVE_S: Final = 2.0
"""How long closing waits for the end of the thread that reads, in seconds."""


class ReadsMqQueues(Protocol):
    """What a source needs of its declaration; see `IbmMqQueue`."""

    @property
    def name(self) -> str | Sequence[str]: ...
    @property
    def prefetch(self) -> int: ...
    @property
    def key(self) -> str | None: ...
    @property
    def convert(self) -> bool: ...
    @property
    def timestamps(self) -> bool: ...
    def shown(self, message: str) -> str: ...


class IbmMqSource:
    """Connects to the queues of a declared source; see `Acknowledging`."""

    def __init__(self, declared: ReadsMqQueues, login: MqLogin) -> None:
        self._declared, self._login = declared, login
        self._rooms: dict[int, int] = {}  # by part: what the largest message needed

    def show(self, message: str) -> str:
        return self._declared.shown(message)

    def connect(self, part: int, arrived: Callable[[], None]) -> IbmMqDeliveries:
        """See `Acknowledging`. A queue that another one reads is refused by the queue manager."""
        connection = MqConnection(self._login, self._rooms.get(part, client.ROOM))
        try:
            handle = connection.open(self._declared.name[part], client.CONSUMES)
        except BaseException:
            connection.close()
            raise
        return IbmMqDeliveries(self._declared, connection, handle, arrived, lambda: self._note(part, connection))

    def _note(self, part: int, connection: MqConnection) -> None:
        self._rooms[part] = connection.room


class IbmMqDeliveries:
    """What arrives on one connection; see `Deliveries`. A thread of its own reads, commits and ends it."""

    def __init__(
        self,
        declared: ReadsMqQueues,
        connection: MqConnection,
        handle: int,
        arrived: Callable[[], None],
        ended: Callable[[], None],
    ) -> None:
        self._declared, self._connection, self._handle = declared, connection, handle
        self._arrived, self._ended = arrived, ended
        self._news = threading.Condition()
        self._held: deque[Arrival] = deque()
        self._read = self._acked = 0  # messages of the open unit of work
        self._failure: Exception | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="ibmmq", daemon=True)
        self._thread.start()

    def take(self, limit: int) -> Sequence[Arrival]:
        with self._news:
            found = [self._held.popleft() for _ in range(min(limit, len(self._held)))]
            if not found and self._failure is not None:
                raise self._failure
            return found

    def ack(self, tokens: Sequence[Any]) -> None:
        """Note them; the unit of work is committed when it has no others. See `Deliveries`."""
        with self._news:
            if self._failure is not None:
                raise self._failure
            self._acked += len(tokens)
            self._news.notify_all()

    def close(self) -> None:
        """See `Deliveries`. The unit of work is taken back when the thread has ended."""
        with self._news:
            self._closing = True
            self._news.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join(LEAVE_S)

    def _run(self) -> None:
        try:
            while not self._closing:
                self._step()
        except Exception as error:  # noqa: BLE001 - handed to the next `take`
            with self._news:
                self._failure = error
        finally:
            self._connection.close()
            self._ended()
            self._arrived()

    def _step(self) -> None:
        with self._news:
            if self._read and self._acked == self._read:
                whole = True
            elif self._read >= self._declared.prefetch:
                self._news.wait_for(lambda: self._closing or self._acked == self._read)
                return
            else:
                whole = False
        if whole:
            self._connection.commit()
            self._read = self._acked = 0
            return
        found = self._connection.get(self._handle, client.TAKE, wait_s=WAIT_S, convert=self._declared.convert)
        if found is not None:
            arrival = self._arrival(*found)
            with self._news:
                self._read += 1
                self._held.append(arrival)
            self._arrived()

    def _arrival(self, descriptor: Descriptor, data: bytes) -> Arrival:
        if descriptor.is_segment:
            raise MqRefused(
                "a part of a message came: its sender or the queue manager has cut it into segments",
                remedy="have the sender send whole messages, without MQMF_SEGMENT and MQMF_SEGMENTATION_ALLOWED, and "
                "take this one out of the queue; the task is retried",
            )
        declared, content = self._declared, content_or_whole(descriptor, data)
        message = message_of(descriptor, content, key=declared.key, timestamps=declared.timestamps)
        # A MsgId with its time and body is never used twice. BackoutCount may be too low, so it decides nothing.
        return Arrival(name_of(descriptor, content), True, message, None)
