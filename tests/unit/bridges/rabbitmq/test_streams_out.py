"""E1 on streams of RabbitMQ in memory: the contract of targets, its rules taken out, and the bytes of the protocol."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any
from unittest.mock import patch

import pytest

from cues_kafka import GraphError, OutputError, RabbitMq
from cues_kafka.bridges.rabbitmq import stream_log, stream_wire
from cues_kafka.bridges.rabbitmq.stream_log import EntryRead, StreamTransactions, TaskEntry, log_name
from cues_kafka.bridges.rabbitmq.stream_target import RabbitMqStreamOut
from cues_kafka.bridges.rabbitmq.stream_wire import StreamMessage, WireError, chunk, data_section, entry, publish_frames
from cues_kafka.targets import TargetMoved, TaskName
from cues_kafka.testing.targets import TargetContract

BROKER = RabbitMq("amqp://127.0.0.1:1")


class Streams:
    """Streams in memory: what each has, and the newest number of each publisher."""

    def __init__(self) -> None:
        self.messages: dict[str, list[bytes]] = {}
        self.numbers: dict[tuple[str, str], int] = {}
        self.offsets: dict[tuple[str, str], int] = {}

    def connection(self, *_: Any) -> Connection:
        """As `StreamConnection(login, name)`."""
        return Connection(self)


class Connection:
    """A `StreamConnection` to streams in memory; the broker handles one request after the other."""

    most = 2_000

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._publishers: dict[int, tuple[str, str]] = {}
        self._read, self._at = "", 0
        self.delivered: deque[StreamMessage] = deque()

    def create(self, stream: str, _: dict[str, str]) -> None:
        self._streams.messages.setdefault(stream, [])

    def declare(self, publisher: int, reference: str, stream: str) -> None:
        self._publishers[publisher] = reference, stream

    def sequence(self, reference: str, stream: str) -> int:
        return self._streams.numbers.get((reference, stream), 0)

    def offset(self, reference: str, stream: str) -> int | None:
        return self._streams.offsets.get((reference, stream))

    def store_offset(self, reference: str, stream: str, offset: int) -> None:
        self._streams.offsets[reference, stream] = offset

    def subscribe(self, stream: str, offset: int | None) -> None:
        self._read, self._at = stream, offset or 0

    def next(self, what: str) -> StreamMessage:
        found = self._streams.messages[self._read]
        if self._at >= len(found):
            raise TimeoutError(what)
        self._at += 1
        return StreamMessage(self._at - 1, found[self._at - 1])

    def look(self) -> None:
        pass

    def publish(self, publisher: int, entries: Iterable[bytes]) -> int:
        reference, stream = self._publishers[publisher]
        for one in entries:
            number, size = struct.unpack_from(">QI", one)
            assert size == len(one) - 12 <= self.most
            if reference and number <= self._streams.numbers.get((reference, stream), 0):
                continue
            self._streams.numbers[reference, stream] = number
            self._streams.messages.setdefault(stream, []).append(one[12:])
        return 0

    def confirmed(self, publisher: int, awaited: int) -> None:
        """All is confirmed."""

    def close(self) -> None:
        """Nothing is left to do."""


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    """The streams of a broker in memory."""
    made = Streams()
    monkeypatch.setattr(stream_log, "StreamConnection", made.connection)
    return made


def opened(name: str = "task") -> StreamTransactions:
    """The transactions of a task."""
    return BROKER.to_stream("out").home.open(TaskName("g", name, 0))


def body(data: bytes) -> bytes:
    """Of a message without properties."""
    found = stream_wire.body_of(data)
    assert found is not None
    return found


class TestContract(TargetContract):
    """The contract of targets; most attempts have parts."""

    @pytest.fixture
    def target(self, streams: Streams) -> RabbitMqStreamOut:
        self.streams = streams
        return BROKER.to_stream("out")

    def write(self, into: Any, number: int) -> None:
        into.publish(f"{number}")

    def write_refused(self, into: Any) -> bool:
        into.publish("x" * 2_000)
        return True

    def read(self, target: Any) -> Iterable[int]:
        return [int(body(one)) for one in self.streams.messages.get(target.name, [])]


# The rules, each taken out


def attempts(streams: Streams) -> list[bytes]:
    """Two owners decide the same entry. The first dies with half of its messages published; then a third one asks."""
    publish, halved = Connection.publish, False

    def halves(self: Connection, publisher: int, entries: Iterable[bytes]) -> int:
        nonlocal halved
        some = list(entries)
        if publisher < 2 or halved:
            return publish(self, publisher, some)
        halved = True
        publish(self, publisher, some[:1])
        raise ConnectionError("it dies")

    winner, loser, heir = opened(), opened(), opened()
    for one in (winner, loser):
        one.ask()
        one.begin()
        for text in (b"a", b"b"):
            one.write(stream_log.StreamItem("out", data_section(text)))
    with patch.object(Connection, "publish", halves):
        with pytest.raises(ConnectionError):
            winner.commit(b"winner", None)
        with pytest.raises(TargetMoved):
            loser.commit(b"loser", None)
        assert heir.ask() == b"winner"
    return [body(one) for one in streams.messages["out"]]


def test_what_is_decided_is_published_once(streams: Streams) -> None:
    """By the owner that asks next."""
    assert attempts(streams) == [b"a", b"b"]


def test_nothing_is_decided_on_a_connection_whose_stream_is_gone(streams: Streams) -> None:
    """The function is called again, and what it gives then is published."""
    owner = opened()
    owner.ask()
    owner.begin()
    owner.write(stream_log.StreamItem("out", data_section(b"void")))
    gone = patch.object(Connection, "look", side_effect=ConnectionError("a stream moves, or was deleted"))
    with gone, pytest.raises(ConnectionError):
        owner.commit(b"one", None)
    assert opened().ask() is None
    assert not streams.messages.get("out")


def unnamed(self: StreamTransactions, stream: str) -> tuple[int, int]:
    """A publisher without a name: nothing is dropped."""
    self._open().declare(9, "", stream)
    return 9, 0


def never_again(self: StreamTransactions) -> None:
    """What is decided is not published again."""


def taken_for_ours(self: StreamTransactions, ours: TaskEntry | None = None) -> None:
    """The log is not read: each owner believes that its entry is there."""
    if ours is None:
        raise TimeoutError
    self._newest = EntryRead(ours, 0, 0)


@pytest.mark.parametrize(
    ("rule", "without"),
    [("_publisher", unnamed), ("_publish_again", never_again), ("_read_entry", taken_for_ours)],
)
def test_each_rule_is_needed(rule: str, without: Callable[..., Any], streams: Streams) -> None:
    """Without it a message is lost or comes twice, or two owners commit the same."""
    with patch.object(StreamTransactions, rule, without):
        try:
            found = attempts(streams)
        except (pytest.fail.Exception, AssertionError):
            return
    assert found != [b"a", b"b"]


def test_names_of_logs_that_are_too_long_differ() -> None:
    """A publisher's name has 255 bytes."""
    names = {log_name("cues", ("log", "g" * 300, "p", number)) for number in range(3)}
    assert len(names) == 3
    assert all(len(one) <= 250 and one.startswith("cues.") for one in names)
    assert log_name("cues", ("log", "g", "p", 0)) == "cues.log.g.p.0"


def test_an_attempt_that_no_log_can_hold_is_refused() -> None:
    """Its steps are then committed one by one."""
    with patch.object(stream_log, "MOST_BYTES", 10), pytest.raises(OutputError, match="11 bytes"):
        TaskEntry(1, "m", b"k" * 11, {}, {}).written(1_000)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"name": ""}, "1 to 255 bytes"),
        ({"name": "é" * 128}, "1 to 255 bytes"),
        ({"headers": "tenant"}, "a list of names"),
        ({"max_bytes": 0}, "from 1 on"),
        ({"port": 70_000}, "number of a port"),
        ({"logs": ""}, "beginning of a stream"),
    ],
)
def test_wrong_arguments_are_refused(given: dict[str, Any], why: str) -> None:
    """Where they are declared."""
    with pytest.raises(GraphError, match=why):
        BROKER.to_stream(**{"name": "out", **given})


# The bytes


@pytest.mark.parametrize("size", [0, 1, 255, 256, 70_000])
def test_bodies_of_any_size_are_read_as_they_were(size: int) -> None:
    """Short and long lengths."""
    assert body(data_section(b"x" * size)) == b"x" * size
    assert stream_wire.body_of(b"\x00\x53\x73") is None


def test_entries_are_split_into_frames_that_fit() -> None:
    """In order, and a large one has its own."""
    entries = [entry(number, b"x" * size) for number, size in enumerate((10, 900, 10, 10), 1)]
    frames = list(publish_frames(7, entries, 1_000))

    assert [len(one) <= 1_000 for one in frames] == [True] * len(frames)
    assert len(frames) == 1 + (sum(map(len, entries)) > 1_000)
    counts = [struct.unpack_from(">IHHBI", one)[3:] for one in frames]
    assert [publisher for publisher, _ in counts] == [7] * len(frames)
    assert sum(count for _, count in counts) == 4
    assert b"".join(one[13:] for one in frames) == b"".join(entries)
    assert list(stream_wire.split_entries(b"".join(entries))) == entries


def a_chunk(*entries: bytes, kind: int = 0, magic: int = 0x50) -> bytes:
    """A chunk that begins at offset 40."""
    data = b"".join(entries)
    return struct.pack(">bbHIqQQiIII", magic, kind, len(entries), 0, 0, 1, 40, 0, len(data), 0, 0) + data


def test_chunks_give_messages_with_their_offsets() -> None:
    """Chunks of the broker's own have none; what is not known is refused."""
    two = struct.pack(">I", 1) + b"a", struct.pack(">I", 2) + b"bb"
    assert chunk(a_chunk(*two)) == [StreamMessage(40, b"a"), StreamMessage(41, b"bb")]
    assert chunk(a_chunk(kind=1)) == []
    with pytest.raises(WireError, match="begins with"):
        chunk(a_chunk(magic=0x51))
    with pytest.raises(WireError, match="in one entry"):
        chunk(a_chunk(struct.pack(">I", 0x80000000)))
