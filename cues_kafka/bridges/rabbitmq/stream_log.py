"""
The transactions of one task on streams of RabbitMQ: what is published, and how far the task is, exactly once (E1).

RabbitMQ has no transaction over streams. It has this: a publisher with a name numbers what it publishes, and a stream
drops what does not have a greater number than the newest one of that name. Two things are made of it:

1. **One decision.** Each task has a stream of its own, its *log*. An entry of the log has the bytes that are kept for
   the task, and all messages of the attempt with their numbers. Entries are numbered, so of two processes that write
   entry `n`, the stream keeps the first and drops the other. Each reads the log to see which one it was: the comparison
   of `Transactions.commit`. The entry is the commit.
2. **Nothing twice.** Behind its entry, the messages are published to their streams, under the numbers that the entry
   gave them. If the process dies in the middle, the next owner reads the entry and publishes all of them again. The
   streams drop those that they have.

An owner that leaves in peace notes that the newest entry is published, so that its successor need not do it again.

So a former owner that wakes up does no harm: what it has decided is published already, under the same numbers, and it
decides nothing more. An attempt that was not decided has published nothing, so its function may give other messages the
next time.

An entry that is larger than a frame is written in parts before it, which have no number. The entry names them by its
mark. Parts without an entry are of attempts that were not decided.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from cues_kafka.bridges.rabbitmq.stream_client import StreamConnection, StreamLogin
from cues_kafka.bridges.rabbitmq.stream_wire import body_of, data_section, entry, number_of, split_entries
from cues_kafka.errors import OutputError, RecoveryError
from cues_kafka.graph.targets import TargetMoved, Transactions

VERSION: Final = 1

RETENTION: Final = {"max-length-bytes": str(256 * 1024**2), "stream-max-segment-size-bytes": str(32 * 1024**2)}
"""How long a log is kept: the newest entry is all that is needed, and is smaller."""

MOST_BYTES: Final = 128 * 1024**2
"""The largest entry, with its parts, in bytes."""

REMEMBER: Final = 64
"""Entries after which the place to read from is stored at the broker."""

_ROOM: Final = 64
"""Bytes of a frame that are not of a message's body."""

LONGEST: Final = 250
"""Bytes of the name of a log, with which the name of a publisher and of an offset begin; they have 255."""

_LOG, _PARTS = 0, 1
"""The publishers of the log on a connection; others follow."""


class StreamItem(NamedTuple):
    """
    A message that a function has published.

    Attributes:
        stream: where it goes.
        message: in AMQP 1.0.
    """

    stream: str
    message: bytes


class TaskEntry(NamedTuple):
    """
    One attempt.

    Attributes:
        number: of the entry.
        mark: tells it from another one of the same number.
        kept: the bytes that are kept for the task.
        last: by stream, the number of the newest message of the task, with those of this entry.
        messages: by stream, what is published with this entry; see `stream_wire.entry`.
    """

    number: int
    mark: str
    kept: bytes
    last: Mapping[str, int]
    messages: Mapping[str, bytes]

    def written(self, most: int) -> tuple[list[bytes], bytes]:
        """
        The parts, and the entry, as bodies of messages.

        Args:
            most: bytes of a body.

        Raises:
            OutputError: it is too large.
        """
        streams = [[name, len(data)] for name, data in self.messages.items()]
        rest = b"".join((self.kept, *self.messages.values()))
        if len(rest) > MOST_BYTES:
            raise OutputError(
                f"an attempt has {len(rest):,} bytes for RabbitMQ, and {MOST_BYTES:,} are possible. Publish "
                "less in a step"
            )
        head = {"version": VERSION, "number": self.number, "mark": self.mark, "kept": len(self.kept)}
        whole = _line({**head, "last": self.last, "streams": streams, "parts": 0})
        if len(whole) + len(rest) <= most:
            return [], whole + rest
        room = most - len(_line({"mark": self.mark, "part": MOST_BYTES}))
        parts = [rest[at : at + room] for at in range(0, len(rest), room)]
        lines = [_line({"mark": self.mark, "part": number}) + one for number, one in enumerate(parts)]
        return lines, _line({**head, "last": self.last, "streams": streams, "parts": len(parts)})

    @classmethod
    def read(cls, head: Mapping[str, Any], rest: bytes) -> TaskEntry:
        """Read what `written` made."""
        at, messages = head["kept"], {}
        for name, size in head["streams"]:
            messages[name] = rest[at : at + size]
            at += size
        return cls(head["number"], head["mark"], rest[: head["kept"]], head["last"], messages)


class EntryRead(NamedTuple):
    """
    The newest entry of a log.

    Attributes:
        entry: what it says.
        begins: the offset behind the entry before it, where its parts begin.
        behind: the offset behind it.
    """

    entry: TaskEntry
    begins: int
    behind: int


class StreamTransactions(Transactions):
    """The transactions of one task, on one connection that is never opened again."""

    def __init__(self, login: StreamLogin, log: str) -> None:
        """
        Args:
            login: where the broker is.
            log: name of the task's log, and of the task as a publisher.
        """
        self._login, self._name = login, log
        self._connection: StreamConnection | None = None
        self._publishers: dict[str, tuple[int, int]] = {}  # of a stream: number on the connection, and newest message
        self._items: list[StreamItem] = []
        self._newest: EntryRead | None = None  # one assignment changes it, whatever ends this process
        self._begins = 0  # the offset that is read first
        self._published = 0  # number of the newest entry whose messages are confirmed
        self._stored = -REMEMBER

    def ask(self) -> bytes | None:
        """See `Transactions`. What is decided is published before it is said."""
        connection = self._open()
        number = connection.sequence(self._name, self._name)
        while self._number < number:
            self._read_entry()
        self._publish_again()
        return self._newest.entry.kept if self._newest else None

    def begin(self) -> None:
        self._items = []

    def write(self, item: StreamItem) -> None:
        connection = self._open()
        if len(item.message) > connection.most - _ROOM:
            raise OutputError(
                f"a message for RabbitMQ has {len(item.message):,} bytes, and its frames have {connection.most:,}. "
                "Raise stream.frame_max of the broker, or send less"
            )
        self._publisher(item.stream)
        self._items.append(item)

    def commit(self, kept: bytes, over: bytes | None) -> None:
        if self._connection is None:
            self.ask()
        connection = self._open()
        if (self._newest.entry.kept if self._newest else None) != over:
            raise TargetMoved("the log of the task has another entry")
        connection.look()  # what cannot be published is not decided
        made = self._entry(kept)
        parts, line = made.written(connection.most - _ROOM)
        if parts:
            awaited = connection.publish(_PARTS, (entry(0, data_section(one)) for one in parts))
            connection.confirmed(_PARTS, awaited)  # all of them are there before the entry that names them
        connection.publish(_LOG, [entry(made.number, data_section(line))])
        self._read_entry(made)
        if self._newest is None or self._newest.entry is not made:
            raise TargetMoved("another process has written this entry of the log")
        self._publish()

    def close(self) -> None:
        connection, self._connection, newest, self._newest = self._connection, None, self._newest, None
        if connection is None:
            return
        if newest is not None and newest.entry.number == self._published:
            with suppress(OSError):
                connection.store_offset(self._done, self._name, newest.behind)
        connection.close()

    @property
    def _done(self) -> str:
        """Under which name the broker has the offset behind the newest entry that is known to be published."""
        return f"{self._name}.done"

    @property
    def _number(self) -> int:
        return self._newest.entry.number if self._newest else 0

    def _open(self) -> StreamConnection:
        if self._connection is None:
            self._connection = connection = StreamConnection(self._login, f"cues-kafka {self._name}")
            connection.create(self._name, RETENTION)
            connection.declare(_LOG, self._name, self._name)
            connection.declare(_PARTS, "", self._name)
            self._begins = connection.offset(self._name, self._name) or 0
            connection.subscribe(self._name, self._begins or None)
        return self._connection

    def _publisher(self, stream: str) -> tuple[int, int]:
        """The publisher of a stream, and the number of the newest message that the stream has of this task."""
        if stream not in self._publishers:
            connection, number = self._open(), 2 + len(self._publishers)
            connection.declare(number, self._name, stream)
            self._publishers[stream] = number, connection.sequence(self._name, stream)
        return self._publishers[stream]

    def _entry(self, kept: bytes) -> TaskEntry:
        """The entry behind the newest one, with what was written."""
        last = dict(self._newest.entry.last) if self._newest else {}
        messages: dict[str, list[bytes]] = {}
        for stream, message in self._items:
            number = max(last.get(stream, 0), self._publisher(stream)[1]) + 1
            messages.setdefault(stream, []).append(entry(number, message))
            last[stream] = number
        joined = {stream: b"".join(some) for stream, some in messages.items()}
        return TaskEntry(self._number + 1, secrets.token_hex(8), kept, last, joined)

    def _read_entry(self, ours: TaskEntry | None = None) -> None:
        """Wait for the next entry of the log; `ours` may be it, whose contents are known."""
        connection, parts = self._open(), dict[str, list[bytes]]()
        while True:
            offset, data = connection.next(f"an entry of the log {self._name}")
            head, rest = self._split(data)
            mark = head["mark"]
            if "part" in head:
                if ours is None or mark != ours.mark:
                    parts.setdefault(mark, []).append(rest)
                continue
            begins = self._newest.behind if self._newest else self._begins
            if ours is not None and mark == ours.mark:
                self._newest = EntryRead(ours, begins, offset + 1)
                return
            found = parts.get(mark, [])
            if len(found) != head["parts"]:
                raise RecoveryError(
                    f"the log {self._name!r} has {len(found)} of {head['parts']} parts of entry {head['number']}: its "
                    "retention has dropped the others",
                    remedy="see docs/rabbitmq-streams.md",
                )
            self._newest = EntryRead(TaskEntry.read(head, b"".join(found) if found else rest), begins, offset + 1)
            return

    def _split(self, data: bytes) -> tuple[dict[str, Any], bytes]:
        """
        The first line of a message of the log, and the rest.

        Raises:
            RecoveryError: no task has written it.
        """
        body = body_of(data)
        line, _, rest = (body or b"").partition(b"\n")
        try:
            head = json.loads(line)
            known = "part" in head or head["version"] == VERSION
            if known and isinstance(head["mark"], str):
                return head, rest
        except (ValueError, KeyError, TypeError):
            known = False
        why = "that no task has written" if not known else "of another release"
        raise RecoveryError(
            f"the stream {self._name!r} has a message {why}; it is the log of a task",
            remedy="let nothing else publish there; see docs/rabbitmq-streams.md",
        )

    def _publish_again(self) -> None:
        """
        Publish the messages of the newest entry, which another process may have done in part.

        Raises:
            RecoveryError: a stream does not know what it has had of this task.
        """
        found, connection = self._newest, self._open()
        if found is None or found.entry.number == self._published:
            return
        if connection.offset(self._done, self._name) == found.behind:
            self._published = found.entry.number
            return
        for stream, data in found.entry.messages.items():
            if number_of(data) > 1 and not self._publisher(stream)[1]:
                raise RecoveryError(
                    f"the stream {stream!r} of RabbitMQ does not know what it has had of {self._name}, whose newest "
                    "messages may be there or not: it was deleted and declared again, or more than 255 publishers with "
                    "names have used it",
                    remedy="look whether they are there; docs/rabbitmq-streams.md#a-stream-that-has-forgotten-its-task "
                    "says how to go on in either case",
                )
        self._publish()

    def _publish(self) -> None:
        """Publish the messages of the newest entry, unless this connection has."""
        if self._newest is None or self._number == self._published:
            return
        connection, (found, begins, _) = self._open(), self._newest
        awaited = [
            (number, connection.publish(number, split_entries(data)))
            for stream, data in found.messages.items()
            for number in [self._publisher(stream)[0]]
        ]
        for number, count in awaited:
            connection.confirmed(number, count)
        self._published = found.number
        if found.number - self._stored >= REMEMBER:
            connection.store_offset(self._name, self._name, begins)
            self._stored = found.number


def _line(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def log_name(logs: str, names: Sequence[str | int]) -> str:
    """The name of a task's log. One that is too long ends with a digest."""
    name = ".".join((logs, *map(str, names)))
    if len(name.encode()) <= LONGEST:
        return name
    return f"{logs}.{blake2b(name.encode(), digest_size=16).hexdigest()}"
