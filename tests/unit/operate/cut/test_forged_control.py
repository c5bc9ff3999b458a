"""Forged records on the control topic: what holds nothing is named, and what holds can be taken back by a command."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cues_kafka import ConfigError, Graph, GraphError, Json, Memory, Processor, Source, Topic, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.graph.feed import Feed
from cues_kafka.observe.refused import REFUSED
from cues_kafka.operate.cut.control import cuts_of, delete_cut
from cues_kafka.operate.cut.drain import Drain
from cues_kafka.operate.move.reset import reset
from cues_kafka.operate.pausing import Pausing
from cues_kafka.plan.topics import Sides
from cues_kafka.running.running import Running

CONTROL = "g.control"
HOLD = {"version": 1, "by": "x", "token": "t", "processor": "p"}
PAUSE = {"version": 1, "by": "x", "token": "t", "cut": "c", "processors": ["p"], "lease_s": 9}
DEEP = b"[" * 200_000

UNREADABLE: dict[str, tuple[bytes, bytes]] = {
    "garbage": (b"hold/zzz", b"garbage"),
    "deep": (b"hold/p", DEEP),
    "processor in a list": (b"hold/p", json.dumps({**HOLD, "processor": ["p"]}).encode()),
    "key of another processor": (b"hold/other", json.dumps(HOLD).encode()),
    "later version": (b"hold/p", json.dumps({**HOLD, "version": 2}).encode()),
    "half a surrogate": (b"hold/p", json.dumps({**HOLD, "by": "\ud800"}).encode()),
    "key that is no text": (b"hold/\xff", json.dumps({**HOLD, "processor": "\ufffd"}).encode()),
    "lease without end": (b"pause", json.dumps(PAUSE).replace('"lease_s": 9', '"lease_s": 1e999').encode()),
    "lease of a year": (b"pause", json.dumps({**PAUSE, "lease_s": 3e7}).encode()),
    "processors in lists": (b"pause", json.dumps({**PAUSE, "processors": [["p"]]}).encode()),
    "unknown key": (b"anything", b"{}"),
    "empty key": (b"", b"{}"),
}


def graph_of(**settings: Any) -> Graph:
    """One processor."""
    part = Processor(lambda order: order, inputs="in", outputs="out", name="p")
    return Graph("g", Source("in"), part, defaults=Topic(value=Json(), partitions=1), **settings)


@pytest.fixture
def cluster() -> Memory:
    """A cluster with status and control."""
    return Memory(status_every_s=5.0, control=True)


def forge(cluster: Memory, key: bytes, value: bytes | None) -> None:
    """Write to the control topic as another program does."""
    sender = open_broker(cluster).sender("stranger")
    sender.send([(CONTROL, 0, key, value, None, 0)])
    sender.close()


def tool_of(cluster: Memory, graph: Graph) -> Pausing:
    """What the commands use."""
    return Pausing(graph, open_broker(cluster), who="amy@desk", sides=Sides(status=True, control=True))


def comes(running: Running, text: str) -> None:
    """Wait until the task says why it is held."""
    running._await(lambda: text in running.status().tasks[0].held, 20.0, text)


def test_record_that_cannot_be_read_holds_nothing_and_can_be_deleted(
    cluster: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    """Each is counted, the first ones have a line, and `resume` says what it deletes."""
    graph = graph_of()
    REFUSED.forget()
    before = REFUSED.counts.get(CONTROL, 0)
    with start(graph, cluster) as running:
        for key, value in UNREADABLE.values():
            forge(cluster, key, value)
        running._await(lambda: REFUSED.counts.get(CONTROL, 0) == before + len(UNREADABLE), 20.0, "the records")
        running.send("in", {"n": 1})
        running.wait_idle(timeout_s=20.0)
    with start(graph, cluster) as running:
        running.send("in", {"n": 2})
        running.wait_idle(timeout_s=20.0)
        done = tool_of(cluster, graph).resume()
        keys = dict.fromkeys(key for key, _ in UNREADABLE.values())
        assert ({one.key for one in done.refused}, done.holds, done.held) == ({*keys}, [], "")
        assert not tool_of(cluster, graph).resume().any
    assert "record refused" in caplog.text


def test_pause_is_named_by_its_key_and_resume_deletes_that_key(cluster: Memory) -> None:
    """A record whose value names another processor holds neither."""
    graph = graph_of()
    with start(graph, cluster) as running:
        forge(cluster, b"hold/p", json.dumps(HOLD).encode())
        comes(running, "paused by x")
        done = tool_of(cluster, graph).resume("p")
        assert ([hold.processor for hold in done.holds], done.held) == (["p"], "")
        running.send("in", {"n": 1})
        running.wait_idle(timeout_s=20.0)


def test_pause_for_a_cut_is_taken_back(cluster: Memory) -> None:
    """Whether a tool takes a cut or not: a cut is right without its pause."""
    graph = graph_of()
    with start(graph, cluster) as running:
        forge(cluster, b"pause", json.dumps({**PAUSE, "lease_s": 3_000}).encode())
        comes(running, "which takes cut 'c'")
        done = tool_of(cluster, graph).resume()
        assert done.pause is not None
        assert (done.pause.cut, done.held) == ("c", "")
        running.send("in", {"n": 1})
        running.wait_idle(timeout_s=20.0)


@pytest.mark.parametrize("value", [b"xx", DEEP, b'{"version":1,"by":"x","cut":"c"}', b'{"version":9,"by":"x"}'])
def test_forged_reset_holds_until_resume_takes_it_back(cluster: Memory, value: bytes) -> None:
    """Tasks may be between two places, so it holds also where it cannot be read, and `resume` alone does not end it."""
    graph = graph_of()
    with start(graph, cluster) as running:
        running.send("in", {"n": 1})
        running.wait_idle(timeout_s=20.0)
        forge(cluster, b"reset", value)
        comes(running, "cues-kafka resume MODULE:GRAPH --reset")
        tool = tool_of(cluster, graph)
        done = tool.resume()
        assert (done.any, "a reset is not complete" in done.held) == (False, True)
        assert tool.resume(reset=True).reset
        running.send("in", {"n": 2})
        running.wait_idle(timeout_s=20.0)


def test_reset_that_may_have_moved_tasks_is_not_taken_back_by_accident(cluster: Memory) -> None:
    """The newest record of a task is that of a tool."""
    from cues_kafka.operate.move.base import Maintenance

    graph = graph_of()
    with start(graph, cluster) as running:
        running.send("in", {"n": 1})
        running.wait_idle(timeout_s=20.0)
    tool = Maintenance(graph, open_broker(cluster), "p", who="reset")
    tool.carry_out(reset(tool, to="earliest"))
    forge(cluster, b"reset", b"xx")
    with pytest.raises(ConfigError, match=r"g\.p\.backing/0' is that of a tool.*add --yes"):
        tool_of(cluster, graph).resume(reset=True)
    assert tool_of(cluster, graph).resume(reset=True, sure=True).reset


@pytest.mark.parametrize(
    "value",
    [
        b"\xff\xfe",
        DEEP,
        b'{"version":1}',
        b'{"version":1,"name":"b","graph":"g","by":"x","keeps_ms":1,"processors":{}}',
    ],
)
def test_forged_cut_is_named_and_can_be_deleted(cluster: Memory, value: bytes) -> None:
    """The others are listed, and one can be taken beside it."""
    graph = graph_of(cuts="1 day")
    with start(graph, cluster) as running:
        running.send("in", {"n": 1})
        running.wait_idle(timeout_s=20.0)
        broker = open_broker(cluster)
        for key in (b"cut/a", b"cut/\xff"):
            forge(cluster, key, value)
        Drain(graph, broker, who="drain").take("mine")
        said: list[str] = []
        assert [one.name for one in cuts_of(graph, broker, tell=said.append)] == ["mine"]
        assert len(said) == 2
        for name in ("a", "\\xff"):
            delete_cut(graph, broker, name)
        said.clear()
        assert [one.name for one in cuts_of(graph, broker, tell=said.append)] == ["mine"]
        assert said == []


@pytest.mark.parametrize("topic", ["g.control", "g.status"])
@pytest.mark.parametrize("place", ["source", "output", "input", "errors", "appender", "tailer", "feed", "own errors"])
def test_topics_of_the_graph_are_refused_wherever_a_topic_is_named(topic: str, place: str) -> None:
    """A message of the user's would stand among our records."""
    from cues_kafka import Iterate

    same: Any = lambda *_, **__: None  # noqa: E731
    parts: dict[str, Any] = {
        "source": lambda: (Source(topic), Source("in"), Processor(same, inputs="in", name="p")),
        "output": lambda: (Source("in"), Processor(same, inputs="in", outputs=topic, name="p")),
        "input": lambda: (Source("in"), Processor(same, inputs={"a": topic, "b": "in"}, name="p")),
        "errors": lambda: (Source("in"), Processor(same, inputs="in", name="p")),
        "appender": lambda: (Source("in"), Processor(same, inputs="in", appenders={"a": topic}, name="p")),
        "tailer": lambda: (Source("in"), Processor(same, inputs="in", tailers={"a": topic}, name="p")),
        "feed": lambda: (Feed(Iterate(lambda _: []), into=topic, name="f"),),
        "own errors": lambda: (Source("in"), Processor(same, inputs="in", errors=topic, name="p")),
    }
    with pytest.raises(GraphError, match=f"only the framework writes '{topic}'"):
        Graph("g", *parts[place](), errors=topic if place == "errors" else None)
