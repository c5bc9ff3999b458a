"""One range as record batches: when it is read to its end, what is lost of it, and what the columns have."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest

from cues_kafka.brokers.memory import MemoryBroker, MemoryMessage
from cues_kafka.brokers.options import Kafka
from cues_kafka.codecs.lookup import MadeFor
from cues_kafka.errors import BrokerError, FatalError, RecoveryError, RetriableError
from cues_kafka.graph.declare import Raw
from cues_kafka.on_spark.source import messages, rows
from cues_kafka.on_spark.source.decoding import Decoding
from cues_kafka.on_spark.source.messages import MessageReader
from cues_kafka.on_spark.source.planning import OffsetRange
from cues_kafka.on_spark.source.ranges import InputRange, RangeRow, SourceInput
from cues_kafka.on_spark.source.rows import arrow, record_batches
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import UNREADABLE, Fetched, Headers, Outgoing, TopicPartition, WireMessage

PLACE = TopicPartition("t", 0)

Step = Fetched | BrokerError | None
"""What one poll brings; None: nothing."""


def message(
    offset: int,
    value: bytes | None = b"v",
    key: bytes | None = b"k",
    headers: Headers | None = None,
    timestamp: tuple[int, int] = (1, 1000),
) -> WireMessage:
    """A message of the partition."""
    return MemoryMessage(*PLACE, offset, key, value, headers, timestamp, 0)


def run(*offsets: int, eof: int | None = None) -> Fetched:
    """What one poll brings of these offsets."""
    return Fetched(PLACE, [message(offset) for offset in offsets], eof)


class Scripted(MemoryBroker):
    """Its readers bring what the script says; `opened` has the offset at which each of them began."""

    def __init__(self, *script: Step) -> None:
        super().__init__()
        self.create([NewTopic(PLACE.topic, 1)])
        self.script = list(script)
        self.opened: list[int] = []
        self.closed = 0

    def reader(self, name: str, *, prompt: bool = False) -> Any:
        """One that follows the script."""
        return ScriptedReader(self)


class ScriptedReader:
    """See `Scripted`."""

    def __init__(self, broker: Scripted) -> None:
        self._broker = broker

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        self._broker.opened.append(starts[PLACE])

    def unassign(self, partitions: Collection[TopicPartition]) -> None: ...

    def poll(self, timeout_s: float, max_messages: int = 10_000) -> list[Fetched]:
        step = self._broker.script.pop(0)
        if isinstance(step, BrokerError):
            raise step
        return [] if step is None else [step]

    def close(self) -> None:
        self._broker.closed += 1


def read(broker: MemoryBroker, start: int, end: int, *, fail: bool = True) -> list[int]:
    """Offsets of a range."""
    batches = record_batches(broker, OffsetRange(PLACE, start, end), name="test", headers=False, fail=fail)
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is waited for between two consumers."""
    monkeypatch.setattr(rows, "ASK_AGAIN_S", 0.0)


# ---- the end of a range (D2)


@pytest.mark.parametrize(
    ("script", "offsets"),
    [
        pytest.param([run(0, 1), None, run(2, 3, 4)], [0, 1, 2, 3, 4], id="the last message"),
        pytest.param([run(0, 1, 2, 3, 4, 5, 6)], [0, 1, 2, 3, 4], id="messages behind the end are not of the range"),
        pytest.param([run(0, 1), run(7, 8)], [0, 1], id="a message past the end, and a gap before it"),
        pytest.param([run(0, 1, eof=5)], [0, 1], id="the end of the log, behind markers"),
        pytest.param([run(0), run(eof=9)], [0], id="an end of the log that is further on"),
        pytest.param([run(0, 1, 2, eof=3), run(eof=3), run(3, 4)], [0, 1, 2, 3, 4], id="an end below ours is none"),
    ],
)
def test_a_range_is_read_when_its_end_was_seen(script: list[Step], offsets: list[int]) -> None:
    """And not before: every step of the script is needed."""
    broker = Scripted(*script)

    assert read(broker, 0, 5) == offsets
    assert broker.script == []
    assert broker.closed == 1


def test_a_reading_that_is_given_up_closes_its_consumer() -> None:
    """Spark kills tasks."""
    broker = Scripted(run(*range(rows.ROWS)), run(rows.ROWS))
    batches = record_batches(broker, OffsetRange(PLACE, 0, 20_000), name="test", headers=False, fail=True)

    next(batches)
    batches.close()  # type: ignore[attr-defined]

    assert broker.closed == 1


def test_a_range_without_news_is_an_error_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the place where nothing came."""
    monkeypatch.setattr(rows, "PATIENCE_S", 0.0)
    broker = Scripted(run(0), None)
    _fill(broker, 5)

    with pytest.raises(RetriableError, match=r"t/0: nothing came at 1 .*goes to 5"):
        read(broker, 0, 5)


def test_a_log_that_ends_below_the_range_has_lost_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was recreated, or cut, since the range was planned."""
    monkeypatch.setattr(rows, "PATIENCE_S", 0.0)
    broker = Scripted(run(0, 1), None)
    _fill(broker, 3)

    with pytest.raises(RecoveryError, match=r"lost: t/0 \[3, 5\): the log ends at 3.* Start the query again"):
        read(broker, 0, 5)


# ---- trouble on the way


def test_a_failure_of_the_moment_is_gone_on_after_with_a_new_consumer() -> None:
    """At the next offset, so that nothing comes twice."""
    broker = Scripted(run(0, 1), RetriableError("away", code="_TRANSPORT"), run(2, 3, 4))

    assert read(broker, 0, 5) == [0, 1, 2, 3, 4]
    assert broker.opened == [0, 2]


def test_a_failure_that_lasts_is_raised() -> None:
    """A damaged message stays damaged."""
    broker = Scripted(run(0, 1), FatalError("checksum", code="_BAD_MSG"))

    with pytest.raises(FatalError, match="checksum"):
        read(broker, 0, 5)
    assert broker.closed == 1


def test_what_is_trimmed_while_it_is_read_is_a_loss() -> None:
    """Retention is faster than the reader; the range is named, or passed over where that is wanted."""

    def broker() -> Scripted:
        made = Scripted(run(0, 1), FatalError("outside", code="_AUTO_OFFSET_RESET"), run(4))
        _fill(made, 5)
        made.trim({PLACE: 4})
        return made

    with pytest.raises(RecoveryError, match=r"lost: t/0 \[2, 4\): deleted from the log while it was read"):
        read(broker(), 0, 5)
    assert read(broker(), 0, 5, fail=False) == [0, 1, 4]


@pytest.mark.parametrize(("back", "remedy"), [(True, "cues-kafka accept-loss"), (False, "cues-kafka reset")])
def test_a_loss_of_a_processor_names_the_command_that_helps(
    monkeypatch: pytest.MonkeyPatch, *, back: bool, remedy: str
) -> None:
    """Its readers have no options; a staged one (its query never goes back) moves as a whole only."""
    broker = Scripted(FatalError("outside", code="_AUTO_OFFSET_RESET"))
    _fill(broker, 5)
    broker.trim({PLACE: 4})
    monkeypatch.setattr(messages, "open_broker", lambda _: broker)
    decoding = Decoding(Raw(), MadeFor(PLACE.topic))
    given = SourceInput("shop.sums", Kafka("127.0.0.1:9"), {PLACE.topic: (0,)}, back=back, decoding=decoding)
    reader = MessageReader(given)

    with pytest.raises(RecoveryError, match=rf"lost: t/0 \[0, 4\): .*{remedy}") as caught:
        list(reader.read(RangeRow(0, (InputRange(PLACE.topic, 0, 5),))))
    assert "failOnDataLoss" not in str(caught.value)


def test_a_range_that_is_trimmed_as_a_whole_is_over() -> None:
    """Nothing of it is left to wait for."""
    broker = Scripted(run(0, 1), FatalError("outside", code="_AUTO_OFFSET_RESET"))
    _fill(broker, 9)
    broker.trim({PLACE: 8})

    assert read(broker, 0, 5, fail=False) == [0, 1]


# ---- the real reader of the memory broker


def test_aborted_messages_and_markers_leave_no_row() -> None:
    """Read committed, up to the last marker."""
    broker = MemoryBroker()
    broker.create([NewTopic("t", 1)])
    for value, commit in ((b"a", True), (b"b", False), (b"c", True), (b"d", False)):
        session = broker.session("id")
        session.init(timeout_s=1)
        session.begin()
        session.produce([Outgoing(*PLACE, b"k", value)])
        session.flush()
        if commit:
            session.commit()
    broker.session("id").init(timeout_s=1)  # aborts the last one
    end = broker.watermarks([PLACE])[PLACE].stable

    assert end == 8
    assert read(broker, 0, end) == [0, 4]


# ---- columns


def test_all_that_a_message_has_is_in_its_row() -> None:
    """Null keys, values and headers too; times and their types as Spark's Kafka source has them."""
    given = [
        message(3, headers=[("a", b"1"), ("b", None), ("a", b"")], timestamp=(1, 1_700_000_000_123)),
        message(7, None, None, timestamp=(2, 0)),
        message(8, b"", b"", headers=[("ü", b"\x00")], timestamp=(0, -1)),
    ]

    batch = arrow(given, OffsetRange(PLACE, 0, 9), headers=True)

    assert batch.schema.equals(rows.WITH_HEADERS)
    assert batch.drop_columns(["timestamp"]).to_pylist() == [
        {
            "key": b"k",
            "value": b"v",
            "topic": "t",
            "partition": 0,
            "offset": 3,
            "timestampType": 0,
            "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}, {"key": "a", "value": b""}],
        },
        {
            "key": None,
            "value": None,
            "topic": "t",
            "partition": 0,
            "offset": 7,
            "timestampType": 1,
            "headers": None,
        },
        {
            "key": b"",
            "value": b"",
            "topic": "t",
            "partition": 0,
            "offset": 8,
            "timestampType": -1,
            "headers": [{"key": "ü", "value": b"\x00"}],
        },
    ]
    assert batch.column("timestamp").cast("int64").to_pylist() == [1_700_000_000_123_000, 0, -1000]
    assert arrow(given, OffsetRange(PLACE, 0, 9), headers=False).schema.equals(rows.COLUMNS)


@pytest.mark.parametrize("build", [lambda: [message(n) for n in range(3)], lambda: [message(0, headers=[])]])
def test_messages_without_headers_have_null(build: Callable[[], list[WireMessage]]) -> None:
    """All of a batch, and an empty list too."""
    assert set(arrow(build(), OffsetRange(PLACE, 0, 3), headers=True).column("headers").to_pylist()) == {None}


def test_a_record_batch_is_bounded_in_rows_and_in_bytes() -> None:
    """Small polls are put together, large messages are not."""
    small = Scripted(*(run(*range(n, n + 3_000)) for n in range(0, 30_000, 3_000)))
    large = Scripted(*(Fetched(PLACE, [message(n, b"x" * 1_500_000)], None) for n in range(9)))

    def sizes(broker: Scripted, end: int) -> list[int]:
        batches = record_batches(broker, OffsetRange(PLACE, 0, end), name="test", headers=False, fail=True)
        return [batch.num_rows for batch in batches]

    assert sizes(small, 30_000) == [12_000, 12_000, 6_000]
    assert sizes(large, 9) == [3, 3, 3]


def _fill(broker: MemoryBroker, count: int) -> None:
    """Messages for those who ask for the ends of the log."""
    sender = broker.sender("test")
    sender.send([Outgoing(*PLACE, b"k", b"v")] * count)
    sender.close()


def test_headers_that_cannot_be_read_are_null_and_named(caplog: pytest.LogCaptureFixture) -> None:
    """A row cannot be an error message here; the rows beside it keep theirs."""
    given = [message(offset, headers=[("a", b"1")]) for offset in range(3)]
    given[1].set_headers(UNREADABLE)
    with caplog.at_level(logging.WARNING, "cues_kafka.source"):
        batch = arrow(given, OffsetRange(PLACE, 0, 3), headers=True)

    own = [{"key": "a", "value": b"1"}]
    assert batch.column("headers").to_pylist() == [own, None, own]
    assert "[1]" in caplog.text
    assert "not UTF-8" in caplog.text


def test_time_beyond_what_spark_counts_becomes_the_latest_time() -> None:
    """A program that writes nanoseconds: in microseconds they would wrap to another time."""
    times = [1_795_600_800_000, 1_795_600_800_000_000_000, -(2**63)]
    given = [message(at, timestamp=(1, time)) for at, time in enumerate(times)]
    column = arrow(given, OffsetRange(PLACE, 0, 3), headers=False).column("timestamp")
    latest_us = (2**63 - 1) // 1_000 * 1_000
    assert column.cast("int64").to_pylist() == [1_795_600_800_000_000, latest_us, -latest_us]
