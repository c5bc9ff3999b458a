"""Forged provenance headers and error messages: `verify`, `lineage` and `errors` read them as what they are."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from cues_kafka import Graph, Json, Processor, Source, Topic
from cues_kafka.codecs.error_messages import error_messages
from cues_kafka.core.delivery import HEADER, show_topic_id
from cues_kafka.errors import CodecError
from cues_kafka.operate.look.lineage import AHEAD, lineage
from cues_kafka.operate.repair.ask import Repairs
from cues_kafka.ports.log import Coordinates, TopicPartition
from cues_kafka.records.provenance import checked
from cues_kafka.testing.tester import Tester
from cues_kafka.verify.scan import Report, verify

HUGE = "9" * 18

NUMBERS = ("0", "1", "-1", "7", HUGE, "9" * 40, "9" * 5_000, "1_0", "\u0663", "", "x")


def words(rand: random.Random, topic_id: str) -> Iterator[str]:
    """The words of a header of ours, some of them changed."""
    right = ["1", "g.p/0", "3", f"in:{topic_id}", "0/1", "0"]
    kinds = {
        0: ("1", "2", "", "x"),
        1: (
            "g.p/0",
            "g.q/0",
            "h.p/0",
            "g.p/-1",
            f"g.p/{HUGE}",
            "g.p",
            "/0",
            "\x1b[2J.p/0",
            "g" * 5_000 + ".p/0",
            "g.p/9",
        ),
        2: NUMBERS,
        3: (f"in:{topic_id}", f"no:{topic_id}", f"in:{topic_id[:9]}", "-", "t", "r", "timer", "replay", "in:", ",", ""),
        4: ("0/1", "0/2", "1/2", "8/9", f"{HUGE}/{HUGE}9", "-1/1", "0/0", "1/0", f"0/{HUGE}", "/", "5/1000000000000"),
        5: (*NUMBERS, f"1:{topic_id}/0/0@in:{topic_id}@0", f"{HUGE}:{topic_id}/0/-5@-", f"-{HUGE}:YQ@-", "0,0", "-"),
    }
    for at, word in enumerate(right):
        yield rand.choice(kinds[at]) if rand.random() < 0.4 else word


def headers(seed: int, number: int, topic_id: str) -> Iterator[bytes | None]:
    """Headers for a seed."""
    rand = random.Random(seed)
    for _ in range(number):
        if rand.random() < 0.1:
            yield rand.choice((None, b"", b"\xff", b"1", b" " * 5, b"1 " * 50_000, rand.randbytes(60)))
        else:
            yield " ".join(words(rand, topic_id)).encode()


def made() -> tuple[Tester, str]:
    """A graph that has delivered three messages and failed at one, and the id of its input."""

    def half(order: Any) -> Any:
        return {"half": 10 // order["n"]}

    part = Processor(half, inputs="in", outputs="out", name="p")
    tester = Tester(Graph("g", Source("in"), part, errors="g.errors", defaults=Topic(value=Json(), partitions=1)))
    tester.send_many("in", [{"n": 1}, {"n": 2}, {"n": 0}, {"n": 5}])
    tester.run()
    return tester, show_topic_id(tester.broker.facts(["in"]).topics["in"].topic_id)


def checked_report(tester: Tester) -> Report:
    """What `verify` says."""
    return verify(tester.graph, tester.broker, patience_s=1.0)


@pytest.mark.parametrize("amount", [300, pytest.param(20_000, marks=pytest.mark.full)])
def test_commands_answer_beside_forged_headers(amount: int) -> None:
    """None of them raises, or takes memory by what a number says."""
    tester, topic_id = made()
    assert not checked_report(tester).anomalies
    sender = tester.broker.sender("stranger")
    forged = [*headers(5, amount, topic_id)]
    error = next(iter(tester.client.committed("g.errors"))).value()
    for number, header in enumerate(forged):
        topic = "g.errors" if number % 5 == 0 else "out"
        value = error if number % 5 == 0 else b"{}"
        sender.send([(topic, 0, None, value, [(HEADER, header)], 0)])

    report = checked_report(tester)
    assert report.anomalies
    for topic in ("out", "g.errors"):
        for message in [*tester.client.committed(topic)][:1_000]:
            root = lineage(tester.broker, TopicPartition(topic, 0), message.offset(), graph=tester.graph, changes=True)
            json.dumps(root.to_dict()).encode()
    with Repairs(tester.graph, tester.broker) as repairs:
        found = [*repairs.find()]
        assert len(found) + repairs.unreadable >= len(forged) / 5
        assert repairs.unreadable
        repairs.causes()
        repairs.ask("replay", limit=50)
    tester.run()


UNFIT: dict[str, dict[str, Any]] = {
    "task without a number": {"task": "p"},
    "task before the first": {"task": "p/-1"},
    "task behind the last": {"task": f"p/{HUGE}"},
    "name that is none": {"processor": "\x1b[2J/../x"},
    "name that is too long": {"processor": "p" * 300},
    "topic that is none": {"topics": ("a b",)},
    "offset before the first": {"consumed": (Coordinates("in", b"i" * 16, 0, -1),)},
    "partition before the first": {"consumed": (Coordinates("in", b"i" * 16, -1, 0),)},
    "id that is none": {"consumed": (Coordinates("in", b"i", 0, 0),)},
}
FIT: dict[str, dict[str, Any]] = {
    "another processor": {"processor": "q", "task": "q/0"},
    "a task that is not there": {"task": "p/9"},
    "the end of time": {"timestamp_ms": 2**63 - 1},
    "before time": {"timestamp_ms": -(2**63)},
    "another input": {"topics": ("out",), "consumed": (Coordinates("b", b"i" * 16, 7, 2**63 - 1),)},
    "no message": {"topics": (), "consumed": ()},
    "escapes": {"text": "\x1b[2J\n", "exception": "\x1b]0;x\x07", "location": "a\nb", "context": {"\x1b": "\r"}},
}


@pytest.mark.parametrize("name", [*UNFIT, *FIT])
def test_commands_answer_beside_a_forged_error_message(name: str) -> None:
    """One that no task writes is counted as unreadable; the others are listed, and replays of them are refused."""
    tester, _ = made()
    found = error_messages().decode(next(iter(tester.client.committed("g.errors"))).value() or b"")
    forged = error_messages().encode(replace(found, **{**UNFIT, **FIT}[name]))
    tester.broker.sender("stranger").send([("g.errors", 0, None, forged, None, 0)])

    with Repairs(tester.graph, tester.broker) as repairs:
        assert len([*repairs.find()]) == 1 + (name in FIT)
        assert repairs.unreadable == (name in UNFIT)
        repairs.causes()
        repairs.ask("drop")
    tester.send("in", {"n": 10})
    tester.run()
    assert tester.values("out")[-1] == {"half": 1}
    with Repairs(tester.graph, tester.broker) as repairs:
        assert next(iter(repairs.find())).settled is not None
    place = TopicPartition("g.errors", 0)
    lineage(tester.broker, place, tester.broker.watermarks([place])[place].stable - 1, graph=tester.graph)


@pytest.mark.parametrize(
    "words", ["in:{id} {part} 0", "timer {part} 5:YQ@in:{id}@0", "replay {part} 1:x/0/0@y", "- {part} -"]
)
def test_number_of_a_record_takes_no_memory(words: str) -> None:
    """Record 10**12 of a delivery would be a mask of 125 GB; also of a timer, a replay and what a handler held back."""
    tester, topic_id = made()
    header = f"1 g.p/0 2 {words.format(id=topic_id, part='999999999999/1000000000000')}".encode()
    tester.broker.sender("stranger").send([("out", 0, None, b"{}", [(HEADER, header)], 0)])

    assert checked_report(tester).anomalies


@pytest.mark.parametrize("part", ["0/1", "0/2"])
@pytest.mark.parametrize("offset", ["-1", HUGE, "9" * 40, "0,0"])
def test_offset_of_no_message_is_an_anomaly(offset: str, part: str) -> None:
    """Before the first one, behind the last one, and above what a log can have."""
    tester, topic_id = made()
    header = f"1 g.p/0 2 in:{topic_id} {part} {offset}".encode()
    tester.broker.sender("stranger").send([("out", 0, None, b"{}", [(HEADER, header)], 0)])

    assert checked_report(tester).anomalies


def test_message_that_was_never_written_is_named() -> None:
    """A header names a place behind the end of the input."""
    tester, topic_id = made()
    header = f"1 g.p/0 3 in:{topic_id} 0/1 {HUGE}".encode()
    tester.broker.sender("stranger").send([("out", 0, None, b"{}", [(HEADER, header)], 0)])

    place = TopicPartition("out", 0)
    root = lineage(tester.broker, place, tester.broker.watermarks([place])[place].stable - 1, graph=tester.graph)

    assert [parent.state for _, parent in root.inputs] == [AHEAD]


@pytest.mark.parametrize(
    "text",
    [
        "1 g.p/-1 3 - 0/1 -",
        "1 g.p/0 -3 - 0/1 -",
        "1 g.p/0 3 in:YWFh 0/1 5",
        "1 g.p/0 3 - 2/1 -",
        "1 g.p/0 3 in:aWlpaWlpaWlpaWlpaWlpaQ 0/1 -5",
        "1 g.p/0 3 in:aWlpaWlpaWlpaWlpaWlpaQ 0/1 " + "9" * 30,
    ],
)
def test_header_with_numbers_of_no_record_is_refused(text: str) -> None:
    """Hashes are computed of them."""
    with pytest.raises(CodecError, match="not a provenance header"):
        checked(text.encode())
