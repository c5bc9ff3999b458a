"""A time means the same wherever it is given, and a record's time is shown whatever it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest

from cues_kafka import ConfigError, Graph, GraphError, Memory, Processor, Source, connect
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.cli.errors import Filters
from cues_kafka.cli.tail import start_of
from cues_kafka.graph.timers import due_ms
from cues_kafka.graph.times import milliseconds_of, shown_time, time_of
from cues_kafka.operate.move.places import wanted
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import TopicPartition

NAIVE = datetime(2026, 11, 25, 10)  # noqa: DTZ001 - what is refused
TEN_MS = 1_795_600_800_000


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (TEN_MS + 999, "2026-11-25T10:00:00Z"),
        (-1, "1969-12-31T23:59:59Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00Z"),
        (-62_135_596_800_001, "-62135596800001 ms"),
        (253_402_300_799_999, "9999-12-31T23:59:59Z"),
        (253_402_300_800_000, "253402300800000 ms"),
        (TEN_MS * 1_000, "1795600800000000 ms"),
        (TEN_MS * 1_000_000, "1795600800000000000 ms"),
        (2**63 - 1, "9223372036854775807 ms"),
        (-(2**63), "-9223372036854775808 ms"),
    ],
)
def test_any_time_is_shown(ms: int, shown: str) -> None:
    """With its zone; out of the range of dates, as the number that it is."""
    assert shown_time(ms) == shown
    assert shown_time(TEN_MS + 7, fine=True) == "2026-11-25T10:00:00.007Z"


def test_millisecond_of_a_time_is_exact() -> None:
    """Floating point is not."""
    when = datetime(2026, 11, 25, 10, tzinfo=UTC)
    for ms in range(1_000):
        assert milliseconds_of(when + timedelta(milliseconds=ms, microseconds=999), "") == TEN_MS + ms
    assert milliseconds_of(when.astimezone(timezone(timedelta(hours=9))), "") == TEN_MS


def selection(since: str | None = None, until: str | None = None) -> object:
    """What `errors` makes of its options."""
    return Filters(since=since, until=until).selection()


def client_since() -> None:
    """`messages`, and all that takes a `Since`."""
    memory, broker = Memory(), MemoryBroker()
    broker.create([NewTopic("t", 1)])
    memory.held.append(broker)
    with connect(memory) as client:
        list(client.messages("t", since=NAIVE))


def client_to_time() -> None:
    """Of a tailer."""
    memory, broker = Memory(), MemoryBroker()
    broker.create([NewTopic("t", 1)])
    memory.held.append(broker)
    with connect(memory) as client, client.topic("t").tailer() as tailer:
        tailer.to_time(NAIVE)


def reset_to() -> None:
    """As `reset`, `migrate` and cuts find places."""
    broker = MemoryBroker()
    broker.create([NewTopic("t", 1)])
    wanted(broker, "2026-11-25T10:00", [TopicPartition("t", 0)])


GIVEN: dict[str, Callable[[], object]] = {
    "since=": client_since,
    "to_time": client_to_time,
    "start=": lambda: Graph("g", Source("in"), Processor(str, inputs="in", outputs="out", start=NAIVE)),
    "a timer": lambda: due_ms(NAIVE),
    "tail --from": lambda: start_of("2026-11-25T10:00"),
    "errors --since": lambda: selection(since="2026-11-25T10:00"),
    "errors --until": lambda: selection(until="2026-11-25"),
    "reset --to, rebuild --from": lambda: time_of("2026-11-25T10:00"),
    "reset --to": reset_to,
}


@pytest.mark.parametrize("where", GIVEN)
def test_time_without_a_zone_is_refused_wherever_it_is_given(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was the machine's here and UTC there; `errors drop` cannot be taken back."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        with pytest.raises((ConfigError, GraphError, ValueError), match="has no zone"):
            GIVEN[where]()
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_timer_before_the_epoch_is_due_at_once() -> None:
    """The past is due at once, however long ago it is."""
    assert due_ms(-1) == due_ms(datetime(1969, 12, 31, tzinfo=UTC)) == 0
