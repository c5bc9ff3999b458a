"""The time of a store whose entries end, after `rebuild` (X3)."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka import Json, Message, Store
from cues_kafka.ports.log import TopicPartition
from cues_kafka.state.layers import MARK
from cues_kafka.testing.tester import Tester
from tests.unit.operate.move.test_rebuilding import WORDS, entries, graph_of, on_top, rebuild, widened


@pytest.mark.parametrize(("lifetime", "clock"), [({"ttl": "10 seconds"}, b"t"), ({"ttl_messages": 10}, b"n")])
@pytest.mark.parametrize("runs_on", [False, True])
def test_time_that_no_message_gives_is_set_right(lifetime: dict[str, Any], clock: bytes, *, runs_on: bool) -> None:
    """Another program wrote it, far ahead. All entries had ended then, and new ones did not end."""
    graph = graph_of(store=Store(Json(int), **lifetime))
    tester = Tester(graph)
    seconds = iter(range(1, 100))

    def sends(to: Tester, *words: str) -> None:
        for word in words:
            to.send("words", Message(word, key=word, timestamp_ms=next(seconds) * 1_000))

    sends(tester, "ann", "bob", "ann")
    tester.run()
    tester.stop()
    mark = on_top(tester)[MARK]
    topic = "r.count.counts.changelog"
    tester.broker.sender("stranger").send([(topic, 0, clock, b"9" * 15, None, 0), (topic, 0, MARK, mark, None, 0)])
    looks = tester.restart()
    assert looks.run().state("counts") == {}
    looks.stop()
    expected = {"ann": 2, "bob": 1}
    if runs_on:
        again = tester.restart()
        sends(again, "cy", "ann")
        assert again.run().state("counts") == {"cy": 1, "ann": 1}
        again.stop()
        expected |= {"ann": 3, "cy": 1}

    [line, *_] = rebuild(tester, graph)

    assert line.endswith("; the time of 1 store set right"), line
    assert rebuild(tester, graph)[0].endswith("nothing changes")
    assert int(on_top(tester)[clock]) == (1_000 if clock == b"t" else 1) * (5 if runs_on else 3)
    late = tester.restart()
    assert late.run().state("counts") == expected
    sends(late, *["dan"] * 10)
    assert late.run().state("counts") == {"dan": 10}
    late.stop()


def test_time_stays_where_messages_are_left_out() -> None:
    """They may have given it."""
    store = Store(Json(int), ttl="10 seconds")
    graph = graph_of(store=store)
    tester = Tester(graph)
    for word, timestamp_ms in (("ann", 9_000), ("bob", 1_000)):
        tester.send("words", Message(word, key=word, timestamp_ms=timestamp_ms))
    tester.run()
    tester.stop()
    tester.broker.trim({TopicPartition("words", 0): 1})

    [line, *_] = rebuild(tester, graph, allow_missing=True)

    assert line.endswith("0 added, 1 changed, 1 removed"), line
    assert int(on_top(tester)[b"t"]) == 9_000


@pytest.mark.parametrize(("lifetime", "clock"), [({"ttl": "10 seconds"}, b"t"), ({"ttl_messages": 100}, b"n")])
def test_time_that_no_message_gives_is_set_right_where_keys_move(lifetime: dict[str, Any], clock: bytes) -> None:
    """A task's time may have come of a message that another task gets now, and of no later one than the newest."""
    graph = graph_of(store=Store(Json(int), **lifetime))
    tester = Tester(graph)
    for number, word in enumerate(WORDS):
        tester.send("words", Message(word, key=word, timestamp_ms=1_000 + number))
    tester.run()
    tester.stop()
    mark = on_top(tester)[MARK]
    topic = "r.count.counts.changelog"
    tester.broker.sender("stranger").send([(topic, 0, clock, b"9" * 15, None, 0), (topic, 0, MARK, mark, None, 0)])

    lines = rebuild(widened(tester, 2), graph)

    assert ["the time of 1 store set right" in line for line in lines[:2]] == [True, False], lines
    assert on_top(tester)[clock] == (b"1007" if clock == b"t" else b"8")
    assert entries(tester, graph) == dict.fromkeys(WORDS, 1)
