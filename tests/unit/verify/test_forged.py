"""What `verify` says of forged records, and what ends each finding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cues_kafka import Graph, Json, Processor, Source, State, Store, TaskStopped, Topic
from cues_kafka.cli import verify as command
from cues_kafka.core.delivery import HEADER, show_topic_id
from cues_kafka.core.records import KEY
from cues_kafka.operate.deleting import Deleting
from cues_kafka.operate.look.unwell import UnwellNow
from cues_kafka.operate.move.rebuild import Rebuild
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import TopicPartition
from cues_kafka.state.layers import ENTRY
from cues_kafka.testing.tester import Tester
from cues_kafka.verify.scan import Report, verify

BACKING, CHANGELOG = "g.p.backing", "g.p.seen.changelog"
ORDERS = [{"n": 1}, {"n": 2}, {"n": 0}, {"n": 5}]


def half(order: Any, *, seen: State[int]) -> Any:
    """Fails for 0."""
    seen["all"] = seen.get("all", 0) + 1
    return 10 // order["n"]


def graph_of(name: str = "p", **settings: Any) -> Graph:
    """One processor with a store and an errors topic."""
    part = Processor(half, inputs="in", outputs="out", name=name, state={"seen": Store(Json(int))}, **settings)
    return Graph("g", Source("in"), part, errors="g.errors", defaults=Topic(value=Json(), partitions=1))


def made() -> Tester:
    """A task that has delivered four messages."""
    tester = Tester(graph_of())
    tester.send_many("in", ORDERS)
    assert found(tester.run()).ok
    return tester


def found(tester: Tester) -> Report:
    """What `verify` says, stores included."""
    return verify(tester.graph, tester.broker, patience_s=0.5, state=True)


def forge(tester: Tester, topic: str, key: bytes | None, value: bytes | None, headers: Any = None) -> None:
    """Write as another program does."""
    tester.broker.sender("stranger").send([(topic, 0, key, value, headers, 0)])


def more(tester: Tester, graph: Graph | None = None) -> Tester:
    """One more message, also by another graph on the same cluster."""
    tester = tester if graph is None else Tester(graph, broker=tester.broker)
    tester.send("in", {"n": 3})
    return tester.run()


HEADERS = {
    "again": "1 g.p/0 1 in:{} 0/1 0",
    "another number of records": "1 g.p/0 1 in:{} 1/3 1",
    "behind the end": "1 g.p/0 9 in:{} 0/1 900",
    "of no task": "1 g.p/7 9 in:{} 0/1 0",
    "no sense": "1 g.p/0 3 - 2/1 -",
}


@pytest.mark.parametrize("topic", ["out", "g.errors"])
@pytest.mark.parametrize("header", HEADERS)
def test_forged_outcome_counts_until_its_topic_no_longer_holds_it(
    topic: str, header: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By retention, or `kafka-delete-records`. What was in front of it is then not verified. So does a new name."""
    tester = made()
    input_id = show_topic_id(tester.broker.facts(["in"]).topics["in"].topic_id)
    forge(tester, topic, None, b"{}", [(HEADER, HEADERS[header].format(input_id).encode())])
    place = TopicPartition(topic, 0)
    end = tester.broker.watermarks([place])[place].high
    assert found(more(tester)).verdict == "WRONG"
    command.show(found(tester), UnwellNow(()))
    assert "No command takes a record out of a topic" in capsys.readouterr().out

    assert found(more(tester, graph_of("other", start="latest"))).ok

    tester.broker.trim({place: end})
    assert found(more(tester)).verdict == "not verifiable"
    command.show(found(tester), UnwellNow(()))
    assert "No command takes a record" not in capsys.readouterr().out


def test_forged_record_of_a_task_counts_until_it_is_compacted() -> None:
    """If it is the newest one again, the task goes on behind it."""
    tester = made()
    *_, newest = (one for one in tester.broker.messages(BACKING) if one.key() == KEY)
    forge(tester, BACKING, KEY, newest.value())
    assert found(more(tester)).verdict == "WRONG"
    more(tester)
    tester.broker.compact(BACKING)
    assert found(tester).ok


def test_forged_record_that_stops_a_task_ends_with_another_name() -> None:
    """`delete` lets the processor go on; what comes again under its name counts as duplicated."""
    tester = made()
    first = next(one for one in tester.broker.messages(BACKING) if one.key() == KEY)
    forge(tester, BACKING, KEY, first.value())
    with pytest.raises(TaskStopped):
        more(tester.restart())
    assert found(tester).verdict == "WRONG"
    tester.broker.expire("g.p")  # the session of the worker that has stopped
    tool = Deleting(graph_of(), tester.broker)
    tool.carry_out(tool.processor("p"))

    again = more(tester, graph_of())
    assert found(again)["p"].duplicated == len(ORDERS)
    again.stop()
    assert found(more(tester, graph_of("other"))).ok


def rebuild(tester: Tester) -> Tester:
    """Rebuild the store as the command does, then start a worker. Compaction removes what was there before."""
    tester.broker.expire("g.p")
    with Rebuild(tester.graph, tester.broker, "p", who="test", clock=tester.clock) as tool:
        tool.hold()
        for group in tool.look():
            tool.write(group)
    tester.broker.compact(CHANGELOG)
    return Tester(graph_of(), broker=tester.broker).run()


@pytest.mark.parametrize("key", [ENTRY + b"all", ENTRY + b"new"])
@pytest.mark.parametrize("value", [b"99", b"[["])
def test_forged_entry_of_a_store_ends_with_rebuild(key: bytes, value: bytes) -> None:
    """The store has what the function makes of its messages again."""
    tester = made()
    forge(tester, CHANGELOG, key, value)
    assert found(tester).verdict == "WRONG"
    assert found(rebuild(tester)).ok


def test_forged_key_of_no_store_ends_with_deleted_records_and_rebuild() -> None:
    """No worker reads it, so no command writes it. Compaction keeps it, because it is the newest of its key."""
    tester = made()
    forge(tester, CHANGELOG, b"x", b"1")
    more(tester)
    assert found(rebuild(tester)).verdict == "WRONG"
    [text] = [line for line in found(tester).lines if "not a key of this store" in line]
    assert text.endswith(
        "Delete the records up to there with kafka-delete-records, then run `cues-kafka rebuild MODULE:GRAPH PROCESSOR`"
    )

    place = TopicPartition(CHANGELOG, 0)
    tester.broker.trim({place: tester.broker.watermarks([place])[place].high})
    assert found(rebuild(tester)).ok


@pytest.mark.parametrize("write", [
    lambda tester: forge(tester, "g.control", b"cut/a", b"xx"),
    lambda tester: forge(tester, "g.status", b"p/0", b"xx"),
    lambda tester: forge(tester, "g.p.replay", b"x", b"xx"),
])  # fmt: skip
def test_forged_records_of_other_topics_change_no_verdict(write: Callable[[Tester], None]) -> None:
    """They hold no outcomes. With --state, a request that is settled as not understood is one that was replayed."""
    tester = made()
    for topic in ("g.control", "g.status"):
        if topic not in tester.broker.facts([topic]).topics:
            tester.broker.create([NewTopic(topic, 1)])
    write(tester)
    more(tester)
    assert verify(tester.graph, tester.broker, patience_s=0.5).ok
    assert not found(tester).anomalies
