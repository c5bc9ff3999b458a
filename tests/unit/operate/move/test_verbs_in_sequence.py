"""Verbs one after the other: each knows what the ones before it have done to a task (X6)."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka import Graph, Json, Message, Processor, RecoveryError, Source, State, Store, Topic
from cues_kafka.operate.cut.drain import Drain
from cues_kafka.operate.cut.going_back import GoBack
from cues_kafka.operate.deleting import Deleting
from cues_kafka.operate.move import copied_stores
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.operate.move.migrate import migrate
from cues_kafka.operate.move.rebuild import Rebuild
from cues_kafka.operate.move.rename import Renaming
from cues_kafka.operate.move.reset import reset
from cues_kafka.operate.repair.ask import Repairs
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.requests import Wish
from cues_kafka.records.scanning import read_all
from cues_kafka.state.layers import ENTRY
from cues_kafka.testing.tester import Tester
from cues_kafka.verify.report import Report
from cues_kafka.verify.scan import verify

FIXED = {"is": False}


def count(a: Any = None, b: Any = None, *, counts: State[int]) -> Any:
    """Counts each word; fails for `bad` until it is fixed."""
    word = a or b
    if word == "bad" and not FIXED["is"]:
        raise ValueError(word)
    counts[word] = counts.get(word, 0) + 1
    return [word, counts[word]]


def graph_of(name: str = "old", *bindings: str, cuts: str | None = None, **declared: Any) -> Graph:
    """One processor under this name, which reads these inputs."""
    inputs = {one: one for one in bindings or ("a",)}
    read: dict[str, Any] = {"alts" if len(inputs) > 1 else "inputs": inputs}
    one = Processor(count, name=name, outputs="out", state={"counts": Store(Json(int))}, **read, **declared)
    defaults = Topic(value=Json(), partitions=1)
    return Graph("g", Source("a"), Source("b"), one, errors="g.errors", defaults=defaults, cuts=cuts)


class Desk:
    """A cluster, and an operator's verbs on it."""

    def __init__(self, graph: Graph) -> None:
        FIXED["is"] = False
        self.tester = Tester(graph)
        self.graph = graph

    @property
    def broker(self) -> Any:
        """The cluster."""
        return self.tester.broker

    def send(self, topic: str, *words: str) -> Desk:
        """Without a worker."""
        for word in words:
            self.tester.clock.advance(0.001)
            self.tester.send(topic, Message(word, key=word))
        return self

    def deliver(self, topic: str = "a", *words: str, each: bool = False) -> Desk:
        """Workers deliver all, or one message after the other, and leave."""
        for some in ([one] for one in words) if each else [words]:
            self.send(topic, *some)
            worker = Tester(self.graph, broker=self.broker)
            worker.run()
            worker.stop()
        return self

    def declare(self, graph: Graph) -> Desk:
        """From now on."""
        self.graph = graph
        return self

    def tool(self, name: str) -> Maintenance:
        """What moves tasks."""
        return Maintenance(self.graph, self.broker, name, who="test", clock=self.tester.clock)

    def reset(self, name: str, to: str) -> Desk:
        """The whole verb."""
        tool = self.tool(name)
        tool.carry_out(reset(tool, to=to))
        return self

    def migrate(self, name: str, add: dict[str, str], *drop: str) -> Desk:
        """The whole verb."""
        tool = self.tool(name)
        tool.carry_out(migrate(tool, add, drop))
        return self

    def rename(self, old: str, new: str, *bindings: str, **declared: Any) -> Desk:
        """With the declaration."""
        self.declare(graph_of(new, *bindings, **declared))
        tool = Renaming(self.graph, self.broker, old, new, who="test", clock=self.tester.clock)
        tool.carry_out(tool.plan())
        return self

    def rebuild(self, name: str, **options: Any) -> list[str]:
        """The whole verb; gives its lines."""
        lines = []
        with Rebuild(self.graph, self.broker, name, who="test", clock=self.tester.clock, **options) as tool:
            tool.hold()
            for group in tool.look():
                lines += [one.line for one in group]
                tool.write(group)
        return lines

    def delete_unused(self) -> Desk:
        """The whole verb."""
        tool = Deleting(self.graph, self.broker, clock=self.tester.clock)
        tool.carry_out(tool.unused())
        return self

    def verify(self, *, state: bool = True) -> Report:
        """What is there."""
        return verify(self.graph, self.broker, state=state)

    def entries(self) -> dict[str, int]:
        """What a worker finds in its store."""
        worker = Tester(self.graph, broker=self.broker)
        found = worker.run().state("counts")
        worker.stop()
        return found


def said(report: Report) -> str:
    """Everything that it says."""
    return f"{report.verdict}: " + "\n".join(report.lines)


# rename


@pytest.mark.parametrize("chunk", [1, 2, 20_000])
def test_rename_copies_the_newest_version_of_each_key(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that was written in several transactions stands once in the new changelog; `verify --state` is content."""
    monkeypatch.setattr(copied_stores, "CHUNK", chunk)
    desk = Desk(graph_of()).deliver("a", "x", "x", "y", "z", "x", each=True)
    assert desk.verify().ok

    desk.rename("old", "new")

    assert desk.verify().ok, said(desk.verify())
    keys = [message.key() for message in read_all(desk.broker, "g.new.counts.changelog", 1)]
    entries = [key for key in keys if key and key[:1] == ENTRY]
    assert len(entries) == len({*entries}) == 3
    assert desk.deliver("a", "x").entries() == {"x": 4, "y": 1, "z": 1}
    assert desk.verify().ok, said(desk.verify())


@pytest.mark.parametrize("deleted", [False, True])
def test_rebuild_calls_what_was_delivered_under_the_former_name(deleted: bool) -> None:
    """The next count goes on, also when the topics of the former name are gone, and after a second rename."""
    desk = Desk(graph_of()).deliver("a", "x", "x", each=True).rename("old", "new")
    if deleted:
        desk.delete_unused()

    assert desk.rebuild("new") == ["new/0: 2 calls; 1 entry: nothing changes"]

    desk.deliver("a", "x").rename("new", "newest")
    if deleted:
        desk.delete_unused()
    assert desk.rebuild("newest") == ["newest/0: 3 calls; 1 entry: nothing changes"]
    assert desk.deliver("a", "x").entries() == {"x": 4}
    assert desk.verify().ok, said(desk.verify())


def test_rename_takes_along_where_a_task_began_at_latest() -> None:
    """So neither `rebuild` nor `verify` calls what came before that."""
    desk = Desk(graph_of(start="latest")).send("a", "before", "before").deliver("a")
    desk.deliver("a", "x").rename("old", "new", start="latest").delete_unused()
    desk.broker.compact("g.new.backing")

    assert desk.rebuild("new") == ["new/0: 1 call; 1 entry: nothing changes"]
    assert desk.verify().ok, said(desk.verify())


# reset


def test_rebuild_leaves_out_what_a_reset_has_skipped() -> None:
    """Whatever compaction takes; `verify` does not call it lost."""
    desk = Desk(graph_of()).deliver("a", "x", "x").send("a", "x", "x", "x").reset("old", "latest")
    desk.deliver("a", "x")
    desk.broker.compact("g.old.backing")

    assert desk.rebuild("old") == ["old/0: 3 calls; 1 entry: nothing changes"]
    assert desk.entries() == {"x": 3}
    assert desk.verify().ok, said(desk.verify())
    assert "an operator has moved it over offsets" in said(desk.verify())


def test_rebuild_from_earliest_takes_what_was_skipped() -> None:
    """It was asked to."""
    desk = Desk(graph_of()).deliver("a", "x").send("a", "x").reset("old", "latest")

    desk.rebuild("old", since="earliest")

    assert desk.entries() == {"x": 2}


def test_reset_writes_no_second_mark() -> None:
    """The changelogs end where they ended."""
    desk = Desk(graph_of()).deliver("a", "x").send("a", "x").reset("old", "latest")

    assert desk.verify().ok, said(desk.verify())


# migrate


def test_rebuild_refuses_where_an_input_was_dropped() -> None:
    """Its messages are in the entries, and the declaration does not have them."""
    desk = Desk(graph_of("old", "a", "b")).send("b", "x", "x").deliver("a", "x", "x")
    desk.declare(graph_of("old", "a")).migrate("old", {}, "b")
    desk.broker.compact("g.old.backing")

    with pytest.raises(RecoveryError, match=r"old/0: its entries also come from messages of 'b'.*--from earliest"):
        desk.rebuild("old")

    assert desk.deliver("a", "x").entries() == {"x": 5}
    assert desk.verify().anomalies == 0, said(desk.verify())
    desk.rebuild("old", since="earliest")
    assert desk.entries() == {"x": 3}


def test_rebuild_begins_an_added_input_where_it_was_added() -> None:
    """At its last message, not at its first one."""
    desk = Desk(graph_of()).send("b", "x", "x", "x").deliver("a", "x")
    desk.declare(graph_of("old", "a", "b")).migrate("old", {"b": "latest"})
    desk.deliver("b", "y")

    assert desk.rebuild("old") == ["old/0: 2 calls; 2 entries: nothing changes"]
    assert desk.verify().anomalies == 0, said(desk.verify())


def test_migration_is_known_after_a_rename() -> None:
    """`verify` judges what came since, and calls nothing lost."""
    desk = Desk(graph_of("old", "a", "b")).send("b", "x").deliver("a", "x")
    desk.declare(graph_of("old", "a")).migrate("old", {}, "b").rename("old", "new", "a").delete_unused()
    desk.deliver("a", "x")

    report = desk.verify()
    assert report.verdict == "not verifiable", said(report)
    with pytest.raises(RecoveryError, match="its entries also come from messages of 'b'"):
        desk.rebuild("new")


# Cuts


def test_rebuild_follows_a_task_back_to_a_cut() -> None:
    """Its stores went back, too, so each message counts once."""
    graph = graph_of(cuts="1 day")
    desk = Desk(graph).deliver("a", "x", "x")
    Drain(graph, desk.broker, who="test", clock=desk.tester.clock).take("one", timeout_s=20.0)
    desk.deliver("a", "y", "x")
    back = GoBack(graph, desk.broker, who="test", clock=desk.tester.clock)
    back.carry_out(back.plan("one"))

    assert desk.rebuild("old") == ["old/0: 2 calls; 1 entry: nothing changes"]
    desk.deliver("a", "z")
    assert desk.rebuild("old") == ["old/0: 5 calls; 3 entries: nothing changes"]
    assert desk.entries() == {"x": 3, "y": 1, "z": 1}
    assert "not recomputed: it went back to a cut" in said(desk.verify())


# Errors


@pytest.mark.parametrize("declared", [{}, {"renamed_from": "old"}])
def test_what_is_settled_goes_with_the_name(declared: dict[str, str]) -> None:
    """Nothing is open that was replayed, when the former name's topics are deleted; the rest can be settled."""
    desk = Desk(graph_of()).deliver("a", "x", "bad", "bad")
    FIXED["is"] = True
    with Repairs(desk.graph, desk.broker) as tool:
        tool.ask("replay", limit=1)
    desk.deliver().rename("old", "new", **declared).delete_unused()

    with Repairs(desk.graph, desk.broker) as tool:
        assert [cause.count for cause in tool.causes()] == [1]
        assert (again := tool.ask("replay")).settled == 1
        assert again.asked == 1
        desk.deliver()
        assert tool.causes() == ()
    assert desk.entries() == {"x": 1, "bad": 2}
    assert desk.verify(state=False).ok, said(desk.verify(state=False))


@pytest.mark.parametrize("renamed", [False, True])
def test_rebuild_leaves_out_error_messages_and_a_replay_counts_them_once(renamed: bool) -> None:
    """Those that are open, and those that were dropped; the function was fixed meanwhile."""
    desk = Desk(graph_of()).deliver("a", "x", "bad", "bad", "bad")
    FIXED["is"] = True
    name = "new" if renamed else "old"
    wishes: tuple[Wish, ...] = ("replay", "drop")
    for wish in wishes:
        with Repairs(desk.graph, desk.broker) as tool:
            tool.ask(wish, limit=1)
        desk.deliver()
    if renamed:
        desk.rename("old", "new").delete_unused()

    assert desk.rebuild(name) == [f"{name}/0: 2 calls; 2 entries: nothing changes"]
    with Repairs(desk.graph, desk.broker) as tool:
        tool.ask("replay")
    desk.deliver()

    assert desk.entries() == {"x": 1, "bad": 2}
    assert desk.rebuild(name) == [f"{name}/0: 3 calls; 2 entries: nothing changes"]


def test_rebuild_says_that_error_messages_are_gone() -> None:
    """Their messages are called, because it is not known which ones they are."""
    desk = Desk(graph_of()).deliver("a", "x", "bad")
    FIXED["is"] = True
    place = TopicPartition("g.errors", 0)
    desk.broker.trim({place: desk.broker.watermarks([place])[place].high})

    with Rebuild(desk.graph, desk.broker, "old", who="test", clock=desk.tester.clock) as tool:
        [[one]] = tool.look()
        assert (one.calls, one.added) == (2, 1)
        assert "1 error message gone from the errors topic, so their messages are called" in " ".join(tool.notes)


def test_nothing_is_open_for_a_former_name_that_is_declared_again() -> None:
    """Another processor has the name; what the renamed one has settled is settled."""
    desk = Desk(graph_of()).deliver("a", "bad")
    FIXED["is"] = True
    with Repairs(desk.graph, desk.broker) as tool:
        tool.ask("replay")
    desk.deliver().rename("old", "new").delete_unused()
    another = Processor(count, name="old", inputs={"a": "b"}, outputs="out2", state={"counts": Store(Json(int))})
    both = Graph("g", *desk.graph.parts, another, errors="g.errors", defaults=Topic(value=Json(), partitions=1))
    desk.declare(both).deliver()

    with Repairs(both, desk.broker) as tool:
        assert tool.causes() == ()
        assert tool.ask("replay").asked == 0


# Names


def test_verify_knows_former_names_without_a_declaration() -> None:
    """What was written under them counts, twice renamed, compacted, and with their topics deleted."""
    desk = Desk(graph_of()).deliver("a", "x").rename("old", "new").deliver("a", "x").rename("new", "newest")
    desk.delete_unused().deliver("a", "x")
    desk.broker.compact("g.newest.backing")

    report = desk.verify()
    assert report.ok, said(report)
    assert report["newest"].steps == 3
