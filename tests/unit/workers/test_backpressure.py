"""What a worker fetches ahead is bounded by bytes, and what it paused it reads on."""

from __future__ import annotations

import pytest

from cues_kafka import Graph, Processor, Raw, Source, Topic
from cues_kafka.brokers.memory.clients import MemoryReader
from cues_kafka.ports.log import TopicPartition
from cues_kafka.testing.tester import Tester
from cues_kafka.workers import fetching

LEFT = TopicPartition("left", 0)


def pair(left: bytes, right: bytes) -> bytes:
    """Their sizes."""
    return b"%d %d" % (len(left), len(right))


@pytest.fixture
def tester(monkeypatch: pytest.MonkeyPatch) -> Tester:
    """A join of two inputs with buffers of 100 bytes for each, and a reader that brings one message at a time."""
    poll = MemoryReader.poll
    monkeypatch.setattr(MemoryReader, "poll", lambda self, timeout_s: poll(self, timeout_s, 1))
    monkeypatch.setattr(fetching, "BUFFER_BYTES", 200)
    monkeypatch.setattr(fetching, "LEAST_BYTES", 50)
    monkeypatch.setattr(fetching, "AHEAD_BYTES", 100)
    joined = Processor(pair, inputs={"left": "left", "right": "right"}, outputs="out")
    return Tester(Graph("g", Source("left"), Source("right"), joined, defaults=Topic(value=Raw())))


def turn(tester: Tester, times: int = 200) -> Tester:
    """Let it work; what is fetched alone is no event for `run`."""
    tester.run()
    for _ in range(times):
        tester._turn()
    return tester


def test_an_input_that_runs_ahead_is_paused_by_its_bytes_and_read_on_later(tester: Tester) -> None:
    """The other input of a join is empty; then it comes, and every pair with it."""
    tester.send_many("left", [b"x" * 60] * 20)
    [running] = turn(tester)._workers
    held = running.lanes[0].buffer
    assert held is not None
    assert held.bytes_of("left") == 240, "the first multiple of 60 from twice the share on"
    assert running._fetching._paused == {LEFT}

    tester.send_many("right", [b"y"] * 20)

    assert turn(tester).values("out") == [b"60 1"] * 20
    assert running._fetching._paused == set()
    assert held.bytes_of("left") == held.bytes_of("right") == 0


def test_messages_that_are_larger_than_the_buffer_pass_one_by_one(tester: Tester) -> None:
    """A share bounds what is held when the next one is fetched, not the size of a message."""
    tester.send_many("left", [b"x" * 1000] * 3)
    tester.send_many("right", [b"y" * 1000] * 3)

    assert turn(tester).values("out") == [b"1000 1000"] * 3


def test_a_range_that_is_due_is_fetched_however_full_the_buffers_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers smaller than a snapshot's range, all of them full: nothing was polled any more, and all stood still."""
    calls: list[str] = []
    deadly = [True]

    def sink(left: str | None = None, right: str | None = None) -> None:
        if deadly[0]:
            alts.kill()
        calls.append(left or right or "")

    graph = Graph("g", Source("a"), Source("b"), Processor(sink, alts={"left": "a", "right": "b"}, name="sink"))
    alts = Tester(graph)
    for n in range(4):
        alts.send("a", f"a{n}", key="k")
        alts.send("b", f"b{n}", key="k")
    assert alts.run_to_death()
    poll = MemoryReader.poll
    monkeypatch.setattr(MemoryReader, "poll", lambda self, timeout_s: poll(self, timeout_s, 1))
    monkeypatch.setattr(fetching, "BUFFER_MESSAGES", 2)
    monkeypatch.setattr(fetching, "LEAST_BUFFER", 1)
    deadly[0] = False
    alts.restart().run()
    for _ in range(50):  # what is fetched alone is no event for `run`
        alts._turn()
    assert sorted(calls) == [f"{side}{n}" for side in "ab" for n in range(4)]
