"""One partition of the memory broker."""

from __future__ import annotations

from cues_kafka.brokers.memory.log import DEFAULTS, Log, now_at

NOW = now_at(0.009)


def a_log(*, append_time: bool = False) -> Log:
    return Log("topic", 0, DEFAULTS | ({"message.timestamp.type": "LogAppendTime"} if append_time else {}))


def append(log: Log, *values: bytes | None, key: bytes = b"k", transaction: int = 0) -> None:
    for value in values:
        log.append(key, value, None, 0, NOW, transaction)


def contents(log: Log, start: int = 0, limit: int = 1000) -> list[tuple[int, bytes | None]]:
    return [(m.offset(), m.value()) for m in log.read(start, log.stable, limit)[0]]


def test_an_abort_removes_only_its_own_messages() -> None:
    """Transactions interleave; offsets are never given out again."""
    log = a_log()
    append(log, b"plain")
    log.open = {1: 1, 2: 2}
    append(log, b"one", transaction=1)
    append(log, b"two", transaction=2)
    append(log, b"one more", transaction=1)

    log.discard(1, log.open.pop(1))
    log.mark()

    assert log.watermarks() == (0, 2, 5)
    assert contents(log) == [(0, b"plain")]
    del log.open[2]
    log.mark()
    assert contents(log) == [(0, b"plain"), (2, b"two")]
    assert log.watermarks() == (0, 6, 6)


def test_a_read_moves_over_offsets_without_messages() -> None:
    """The position after the last message is the end of what may be read."""
    log = a_log()
    append(log, b"a", b"b")
    log.mark()

    assert log.read(0, 3, 1)[1] == 1
    assert log.read(1, 3, 1)[1] == 3
    assert log.read(3, 3, 1) == ([], 3)


def test_compaction_stops_at_the_last_stable_offset() -> None:
    """What is open may still be aborted, so it does not displace what is committed."""
    log = a_log()
    append(log, b"1", b"2")
    log.open = {1: 2}
    append(log, b"3", transaction=1)

    log.compact(tombstones=False)

    log.open.clear()
    assert contents(log) == [(1, b"2"), (2, b"3")]


def test_tombstones_go_only_when_asked() -> None:
    """Kafka keeps them for delete.retention.ms."""
    log = a_log()
    append(log, b"1", None)
    append(log, b"x", key=b"other")

    log.compact(tombstones=False)
    assert contents(log) == [(1, None), (2, b"x")]

    log.compact(tombstones=True)
    assert contents(log) == [(2, b"x")]


def test_trimming_removes_and_never_goes_back() -> None:
    """The log's start only grows."""
    log = a_log()
    append(log, b"0", b"1", b"2")

    log.trim(2)
    log.trim(1)

    assert log.watermarks() == (2, 3, 3)
    assert contents(log, start=2) == [(2, b"2")]


def test_the_last_stable_offset_is_never_below_the_start() -> None:
    """Records of an open transaction can be trimmed, too."""
    log = a_log()
    log.open = {1: 0}
    append(log, b"0", b"1", transaction=1)

    log.trim(2)

    assert log.watermarks() == (2, 2, 2)


def test_log_append_time_overrides_what_was_given() -> None:
    """As message.timestamp.type says."""
    log, stamped = a_log(), a_log(append_time=True)
    for one in (log, stamped):
        one.append(b"k", b"v", None, 5, NOW, 0)
        one.append(b"k", b"v", None, 0, NOW, 0)

    assert [m.timestamp() for m in log.messages] == [(1, 5), (1, 9)]
    assert [m.timestamp() for m in stamped.messages] == [(2, 9), (2, 9)]
