"""Metadata of messages: what functions see, what outputs carry, and that a retry carries the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cues_kafka import (
    Dedupe,
    Graph,
    GraphError,
    Json,
    Message,
    Meta,
    Out,
    Place,
    Processor,
    Raw,
    Source,
    Store,
    Timers,
    Topic,
    rekey,
)
from cues_kafka.core.delivery import HEADER
from cues_kafka.graph.dataframe import DataFrameProcessor
from cues_kafka.graph.meta import META
from cues_kafka.plan.plan import plan
from cues_kafka.ports.log import Outgoing
from cues_kafka.testing.tester import Crash, Tester

ALL = {"offset", "time", "tx"}


def same(value: Any) -> Any:
    """Passes it on."""
    return value


def header(received: Any) -> bytes | None:
    """The header of a message."""
    found = [value for name, value in received.headers if name == META]
    assert len(found) < 2
    return found[0] if found else None


def headers(tester: Tester, topic: str) -> list[bytes | None]:
    """Those of a topic."""
    return [header(one) for one in tester.messages(topic)]


# ------------------------------------------------------------------------------------------------ what functions see


def test_a_function_sees_the_places_that_its_message_came_through() -> None:
    """The own place is materialised by the reader; outputs carry those of the ancestors."""
    seen: list[Meta] = []

    def look(value: Any, step: Any) -> Any:
        seen.append(step.inputs["input"].meta)
        return value

    graph = Graph(
        "g",
        Source("in"),
        Processor(same, name="first", inputs="in", outputs="middle"),
        Processor(look, inputs="middle", outputs="out"),
        topics={"in": Topic(meta=ALL), "middle": Topic(meta={"offset"})},
    )
    tester = Tester(graph)
    sent = tester.send("in", 1, headers={"traceparent": "00-1"})
    tester.send("in", 2)
    [first, _] = tester.run().messages("out")
    time = tester.messages("in")[0].timestamp_ms

    came, middle = Place("in", 0, sent.offset, time), Place("middle", 0, 0)
    assert seen[0] == Meta({"in": came, "middle": middle}, came, {"traceparent": "00-1"})
    assert [*seen[0].places] == ["in", "middle"]
    assert header(tester.messages("middle")[0]) == f"1 in/0@0:{time} in/0@0:{time}".encode()
    assert header(first) == f"1 in/0@0:{time} in/0@0:{time} middle/0@0".encode()
    assert first.meta == seen[0]  # `out` has no `meta=`, so its own place is not among them
    assert seen[0].tx is not None
    assert seen[1].tx is not None
    assert seen[0].tx < seen[1].tx


def test_it_is_off_by_default() -> None:
    """Nothing is written, and the quick ways are taken."""
    graph = Graph("g", Source("in"), Processor(same, inputs="in", outputs="out"))
    tester = Tester(graph)
    tester.send("in", 1)
    [one] = tester.run().messages("out")

    assert [name for name, _ in one.headers] == [HEADER]
    assert one.meta == Meta()


def test_the_default_of_a_graph_holds_for_all_of_its_topics_and_may_be_taken_back() -> None:
    """By an empty set."""
    graph = Graph(
        "g",
        Source("in"),
        Processor(same, name="a", inputs="in", outputs="middle"),
        Processor(same, name="b", inputs="middle", outputs="out"),
        defaults=Topic(meta={"offset"}),
        topics={"middle": Topic(meta=())},
    )
    tester = Tester(graph)
    tester.send("in", 1)
    tester.run()

    assert headers(tester, "out") == [b"1 - in/0@0"]
    assert [*tester.messages("out")[0].meta.places] == ["in", "out"]


def test_nothing_passes_a_topic_with_meta_false() -> None:
    """Neither the places nor the other headers that travel; those that the function sets stay."""

    def mark(value: Any) -> Message:
        return Message(value, headers={"cues-own": "1"})

    graph = Graph(
        "g",
        *map(Source, ("in", "open", "closed")),
        Processor(mark, inputs="in", outputs="bare"),
        Processor(same, name="full", inputs="in", outputs="full"),
        Processor(same, name="plain", inputs="open", outputs="stripped"),
        Processor(same, name="reads", inputs="closed", outputs="after"),
        topics={"in": Topic(meta={"offset"}), **dict.fromkeys(("bare", "stripped", "closed"), Topic(meta=False))},
    )
    tester = Tester(graph)
    for topic in ("in", "open", "closed"):
        tester.send(topic, 1, headers={"traceparent": "00-1", "cues-tag": "x"})
    tester.run()

    def names(topic: str) -> list[str]:
        [one] = tester.messages(topic)
        return [name for name, _ in one.headers if name != HEADER]

    assert names("full") == ["traceparent", "cues-tag", META]
    assert names("bare") == ["cues-own"]
    assert names("stripped") == []
    assert names("after") == []
    assert tester.messages("closed")[0].meta == Meta()


# ----------------------------------------------------------------------------------------------- joins, cycles, many


def test_a_join_merges_all_of_its_inputs() -> None:
    """A topic that both came through has its newest place; also where no topic of the join has `meta=`."""
    graph = Graph(
        "g",
        Source("in"),
        Processor(
            lambda v: {"a": v} if v == 1 else {"b": v}, name="fork", inputs="in", outputs={"a": "left", "b": "right"}
        ),
        Processor(lambda a, b: a + b, name="join", inputs={"a": "left", "b": "right"}, outputs="out"),
        topics={"in": Topic(meta={"offset", "tx"})},
    )
    tester = Tester(graph)
    tester.send("in", 1, headers={"cues-tag": "x"})
    tester.send("in", 2)
    [one] = tester.run().messages("out")

    assert header(one) == b"1 in/0@0 in/0@1"
    assert one.meta == Meta({"in": Place("in", 0, 1)}, Place("in", 0, 0), {"cues-tag": "x"})


def test_one_input_of_a_join_with_metadata_is_enough() -> None:
    """The other one has none, and brings its own place."""
    graph = Graph(
        "g",
        Source("left"),
        Source("right"),
        Processor(lambda a, b: [a, b], name="join", inputs={"a": "left", "b": "right"}, outputs="out"),
        topics={"right": Topic(meta={"offset"})},
    )
    tester = Tester(graph)
    tester.send("left", 1, headers={"traceparent": "00-1"})
    tester.send("right", 2)

    assert headers(tester.run(), "out") == [b"1 - right/0@0"]


def test_a_cycle_replaces_its_own_place() -> None:
    """However often a message goes round, its topic is there once."""
    graph = Graph(
        "g",
        Source("in"),
        Processor(lambda n: n - 1 if n else None, name="round", inputs="in", outputs="in"),
        topics={"in": Topic(meta={"offset"})},
    )
    tester = Tester(graph)
    tester.send("in", 70)
    tester.run()
    *_, before, last = tester.messages("in")

    assert header(last) == f"1 - in/0@{before.offset}".encode()
    assert last.meta == Meta({"in": Place("in", 0, last.offset)})


def test_a_header_that_another_program_wrote_fails_no_step() -> None:
    """What it hides is said to be missing."""
    graph = Graph("g", Source("in"), Processor(same, inputs="in", outputs="out"), topics={"in": Topic(meta={"offset"})})
    tester = Tester(graph)

    tester.broker.sender("raw").send([Outgoing("in", 0, None, b"1", [(META, b"garbage")])])
    [one] = tester.run().messages("out")

    assert header(one) == b"1 - ... in/0@0"
    assert one.meta == Meta({"in": Place("in", 0, 0)}, truncated=True)


# ------------------------------------------------------------------------------- each way in which functions are called


def listed(values: list[Any]) -> list[Any]:
    """Takes all at once."""
    return values


def several(value: Any) -> Iterator[Out]:
    """Gives two outputs."""
    yield Out("a", value)
    yield Out("b", value)


async def later(value: Any) -> Any:
    """A coroutine."""
    return value


def counting(value: Any, seen: Any) -> Any:
    """Keeps something."""
    seen["n"] = seen.get("n", 0) + 1
    return value


def forked(value: Any) -> Any:
    """Names its output."""
    return {"a": value}


def any_of(a: Any = None, b: Any = None) -> Any:
    """Takes one of two."""
    return b if a is None else a


def fails(value: Any) -> Any:
    """Becomes an error message."""
    raise ValueError(value)


@pytest.mark.parametrize(
    ("processor", "topic"),
    [
        (Processor(same, inputs="in", outputs="out"), "out"),
        (Processor(forked, inputs="in", outputs={"a": "out"}), "out"),
        (Processor(listed, inputs="in", outputs="out", batch=True), "out"),
        (Processor(several, inputs="in", outputs={"a": "out", "b": "other"}), "out"),
        (Processor(later, inputs="in", outputs="out", concurrency=4), "out"),
        (Processor(counting, inputs="in", outputs="out", state={"seen": Store()}), "out"),
        (Processor(any_of, alts={"a": "in", "b": "more"}, outputs="out"), "out"),
        (Dedupe("once", inputs="in", outputs="out", by=lambda value: value, within=9), "out"),
        (rekey("keyed", inputs="in", outputs="out", by=lambda value: value), "out"),
        (Processor(fails, inputs="in", outputs="out"), "failed"),
    ],
    ids=["pipe", "fork", "list", "generator", "coroutine", "store", "alts", "dedupe", "rekey", "error"],
)
@pytest.mark.parametrize("raw", [False, True], ids=["json", "bytes"])
def test_every_way_of_calling_carries_metadata_and_a_crash_does_not_change_it(
    processor: Processor, topic: str, raw: bool
) -> None:
    """The header is a function of what was consumed: the run after a crash writes the same bytes."""
    graph = Graph(
        "g",
        Source("in"),
        Source("more"),
        processor,
        errors="failed",
        defaults=Topic(meta=ALL),
        topics={name: Topic(Raw() if raw else Json(), meta=ALL) for name in {"in", "more", *processor.output_topics}},
    )

    def run(*crashes: Crash) -> tuple[list[int], list[bytes | None]]:
        tester = Tester(graph)
        for n in range(3):
            tester.send("in", b"%d" % n if raw else n, key="k")
        times = [one.timestamp_ms for one in tester.messages("in")]
        for crash in crashes:
            assert tester.run(crash=crash).crashed
            tester.restart()
        tester.run()
        return times, headers(tester, topic)

    times, found = run()
    assert found == [f"1 in/0@{n}:{time} in/0@{n}:{time}".encode() for n, time in enumerate(times)]
    for moment in ("before", "after"):
        times, found = run(Crash(moment, "Commit"), Crash("after", "Call"))
        assert found == [f"1 in/0@{n}:{time} in/0@{n}:{time}".encode() for n, time in enumerate(times)]


def test_a_join_writes_the_same_header_after_a_crash() -> None:
    """With places of both paths, merged."""
    graph = Graph(
        "g",
        Source("in"),
        Processor(lambda v: {"a": v, "b": v}, name="fork", inputs="in", outputs={"a": "left", "b": "right"}),
        Processor(lambda a, b: [a, b], name="join", inputs={"a": "left", "b": "right"}, outputs="out"),
        defaults=Topic(meta={"offset"}),
    )

    def run(*crashes: Crash) -> list[bytes | None]:
        before = Tester(graph, only=["fork"])
        before.send_many("in", range(4))
        before.run().stop()
        tester = Tester(graph, only=["join"], broker=before.broker)
        for crash in crashes:
            assert tester.run(crash=crash).crashed
            tester.restart()
        return headers(tester.run(), "out")

    expected = run()
    assert expected[1] == b"1 - in/0@1 left/0@1 right/0@1"
    for effect in ("Produce", "Flush", "Commit"):
        assert run(Crash("before", effect, 2), Crash("before", effect, 1)) == expected


def test_what_a_timer_gives_carries_the_place_of_the_message_that_set_it() -> None:
    """Without its timestamp, which the timer does not keep."""

    def wait(_: int, step: Any) -> None:
        step.schedule("k1", at=step.inputs["input"].timestamp_ms + 5_000)

    processor = Processor(
        wait, inputs="in", outputs="out", state={"timers": Timers(lambda timer: timer.key, by="clock")}
    )
    tester = Tester(Graph("g", Source("in"), processor, topics={"in": Topic(meta={"offset", "time"})}))
    tester.send("in", 1)
    tester.run()
    tester.clock.advance(10)

    assert headers(tester.run(), "out") == [b"1 - in/0@0"]


# ------------------------------------------------------------------------------------------------------ declarations


@pytest.mark.parametrize(
    ("meta", "why"),
    [
        ("offset", r"Write meta=\{'offset'\}"),
        (True, r'Write meta=\{"offset", "time"\}'),
        ({"ofset"}, r"'ofset' is not known \(did you mean 'offset'\?\). Choose among 'offset', 'time', 'tx'"),
        ([3], "3 is not known"),
    ],
)
def test_a_wrong_setting_is_refused(meta: Any, why: str) -> None:
    """It says what to write."""
    with pytest.raises(GraphError, match=why):
        Topic(meta=meta)


def test_only_the_framework_writes_the_header() -> None:
    """What a function sets is left out, as if it had passed on the headers of its input."""
    graph = Graph(
        "g",
        Source("in"),
        Processor(lambda n: Message(n, headers={META: "1 - in/0@0"}), name="forges", inputs="in", outputs="out"),
        errors="failed",
    )
    tester = Tester(graph)
    tester.send("in", 1)
    [out] = tester.run().messages("out")

    assert [name for name, _ in out.headers] == [HEADER]


def test_the_plan_warns_of_transactions_without_an_order() -> None:
    """And of nothing where there is one partition."""

    def warnings(partitions: int) -> list[str]:
        graph = Graph(
            "g", Source("in"), Processor(same, inputs="in", outputs="out"),
            topics={"in": Topic(meta={"tx"}, partitions=partitions)},
        )  # fmt: skip
        return [one for one in plan(graph).warnings if "'tx'" in one]

    assert warnings(1) == []
    [warning] = warnings(2)
    assert "Topic 'in' has meta={'tx'} and 2 partitions" in warning


def test_processors_of_dataframes_refuse_topics_with_metadata() -> None:
    """By the topic's name, with what to write."""
    frame = DataFrameProcessor(same, inputs="in", outputs="out")
    with pytest.raises(GraphError, match=r"reads 'in' with meta=.*Write topics=\{'in': Topic\(meta=\(\)\)\}"):
        Graph("g", Source("in"), frame, defaults=Topic(meta={"offset"}))

    Graph("g", Source("in"), frame, defaults=Topic(meta={"offset"}), topics={"in": Topic(meta=())})
    Graph("g", Source("in"), frame, defaults=Topic(meta=False))
