"""`reset`, `accept-loss` and `plan --apply` on the reference broker."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka import ConfigError, Graph, Json, Processor, RecoveryError, Source, State, Store, TaskStopped, Topic
from cues_kafka.brokers.memory import Faults
from cues_kafka.core.records import Attempt, Snapshot, Start, Totals
from cues_kafka.errors import RetriableError
from cues_kafka.operate.applying import apply_plan
from cues_kafka.operate.move.accept_loss import accept_loss
from cues_kafka.operate.move.base import Maintenance, rewrite
from cues_kafka.operate.move.reset import reset
from cues_kafka.plan.plan import plan
from cues_kafka.plan.topics import topics_to_ask
from cues_kafka.ports.log import TopicPartition
from cues_kafka.testing.tester import Crash, Tester
from cues_kafka.verify.scan import verify


def double(n: int) -> int:
    """A pipe."""
    return 2 * n


def pair(left: int, right: int) -> int:
    """A join."""
    return 100 * left + right


GRAPH = Graph(
    "m",
    Source("numbers"),
    Processor(double, inputs="numbers", outputs="doubles"),
    Processor(pair, inputs={"left": "numbers", "right": "doubles"}, outputs="pairs"),
    defaults=Topic(value=Json(), partitions=1),
)


def delivered(count: int = 4) -> Tester:
    """The graph has delivered a count of numbers and left in order."""
    tester = Tester(GRAPH)
    for n in range(count):
        tester.send("numbers", n)
    tester.run()
    tester.stop()
    return tester


def tool(tester: Tester, processor: str = "double") -> Maintenance:
    """The tool, as the command line uses it."""
    return Maintenance(GRAPH, tester.broker, processor, who="reset on here", clock=tester.clock)


def recreate(tester: Tester, topic: str) -> None:
    """The same name, another topic."""
    [facts] = tester.broker.facts([topic]).topics.values()
    tester.broker.delete([topic])
    tester.broker.create([_new(facts)])


def _new(facts: Any) -> Any:
    from cues_kafka.ports.facts import NewTopic

    return NewTopic(facts.name, facts.partitions, facts.replication, facts.config)


def test_reset_to_earliest_delivers_everything_again() -> None:
    """It says what repeats, and the record goes on counting: no gap in sequence, totals kept (I13, X2)."""
    tester = delivered()
    moves = reset(tool(tester))
    assert [note for move in moves for note in move.notes] == [
        (
            "numbers/0: what offsets [0, 4) hold is delivered AGAIN, with the same delivery hashes: at most 4 "
            "messages; outputs and effects repeat"
        )
    ]
    tool(tester).carry_out(moves)

    newest = tester.records("double")[-1]
    assert isinstance(newest, Attempt)
    assert [p.offset for p in newest.positions] == [0]
    assert newest.batch == Totals()
    assert newest.totals.deliveries == newest.step == 4
    assert (newest.writer.runtime, newest.writer.name) == ("tool", "reset on here")
    tester.run()
    assert tester.values("doubles") == [0, 2, 4, 6] * 2
    records = tester.records("double")
    assert [r.sequence for r in records] == list(range(len(records)))
    assert records[-1].totals.deliveries == 8


def test_reset_to_latest_skips_what_is_there() -> None:
    """It says what is lost; group offsets and record agree, so that the next recovery goes on."""
    tester = delivered()
    for n in (10, 11):
        tester.send("numbers", n)
    moves = reset(tool(tester), to="latest")
    assert moves[0].notes[0].startswith("numbers/0: what offsets [4, 6) hold is LOST")
    assert "at most 2 messages, for markers of transactions have offsets too" in moves[0].notes[0]
    tool(tester).carry_out(moves)
    tester.send("numbers", 12)
    tester.run()

    assert tester.values("doubles") == [0, 2, 4, 6, 24]


def test_reset_to_an_offset_begins_there() -> None:
    """Of a task with one partition; digits are never a date."""
    tester = delivered()
    tool(tester).carry_out(reset(tool(tester), to="1", partition=0))
    tester.run()

    assert tester.values("doubles") == [0, 2, 4, 6, 2, 4, 6]
    with pytest.raises(RecoveryError, match=r"20261123: numbers/0 at 20261123 is not in the log, which has \[0, 4\)"):
        reset(tool(tester), to="20261123")


def test_one_offset_is_refused_for_several_partitions() -> None:
    """The same number would mean another place in each."""
    graph = Graph(
        "g",
        Source("a"),
        Source("b"),
        Processor(abs, name="one", inputs="a", outputs="o"),
        Processor(lambda a, b: a, name="two", inputs={"a": "a", "b": "b"}, outputs="p"),
        defaults=Topic(value=Json(), partitions=2),
    )
    tester = Tester(graph)
    tester.run().stop()

    for processor, partition, places in (("one", None, "a/0, a/1"), ("two", 1, "a/1, b/1")):
        move = Maintenance(graph, tester.broker, processor, who="reset on here", clock=tester.clock)
        with pytest.raises(ConfigError, match=f"these are 2: {places}. Give --partition P .* in a JSON file"):
            reset(move, to="0", partition=partition)


def test_a_task_that_stands_there_already_is_left_alone() -> None:
    """Nothing is written; a second reset does nothing."""
    tester = delivered()
    tool(tester).carry_out(reset(tool(tester)))
    before = tester.records("double")

    assert reset(tool(tester)) == []
    tool(tester).carry_out([])
    assert tester.records("double") == before


def test_reset_makes_a_snapshot_void() -> None:
    """A task that died in its batch begins again: no death is counted, no range is due."""
    tester = delivered()
    tester.send("numbers", 9)
    tester.run(crash=Crash("before", "Call"))
    tester.broker.expire("m.double")
    assert isinstance(tester.records("double")[-1], Snapshot)
    moves = reset(tool(tester), to="latest")
    assert "a batch of 1 step was being delivered; its effects outside Kafka may have happened" in moves[0].notes
    tool(tester).carry_out(moves)

    assert isinstance(tester.records("double")[-1], Attempt)
    tester.restart().run()
    assert tester.values("doubles") == [0, 2, 4, 6]


def test_reset_is_the_way_on_after_a_topic_was_recreated() -> None:
    """R5 refuses and names it."""
    tester = delivered()
    recreate(tester, "numbers")
    tester.send("numbers", 7)
    with pytest.raises(TaskStopped, match="cues-kafka reset"):
        tester.run()
    tester.stop()
    tester.broker.expire("m.double")
    tester.broker.expire("m.pair")
    moves = reset(tool(tester))
    assert moves[0].notes == ("numbers/0: begins at 0 of the new topic; what the old one still held is LOST",)
    tool(tester).carry_out(moves)

    only = Tester(GRAPH, broker=tester.broker, only=["double"])
    assert only.run().values("doubles") == [0, 2, 4, 6, 14]


def test_reset_is_the_way_on_after_a_backing_topic_was_lost() -> None:
    """An empty backing partition under committed offsets: a new `Start`."""
    tester = delivered()
    recreate(tester, "m.double.backing")
    moves = reset(tool(tester), to="latest")
    assert moves[0].notes[0].startswith("numbers/0: begins at 4, and no record says what was delivered")
    tool(tester).carry_out(moves)

    [record] = tester.records("double")
    assert isinstance(record, Start)
    tester.send("numbers", 5)
    tester.run()
    assert tester.values("doubles") == [0, 2, 4, 6, 10]


def test_a_reset_of_a_join_says_where_it_pairs_from() -> None:
    """The k-th of each, counted from there."""
    tester = delivered()
    [move] = reset(tool(tester, "pair"))

    assert move.notes[-1] == "from there, a join pairs the k-th message of each input behind these positions"
    assert [p.binding for p in move.positions] == ["left", "right"]


def test_accept_loss_goes_on_at_the_first_message_that_is_there() -> None:
    """R5 refuses, names it, and after it the rest is delivered once."""
    tester = delivered()
    for n in range(10, 16):
        tester.send("numbers", n)
    tester.broker.trim({TopicPartition("numbers", 0): 7})
    with pytest.raises(TaskStopped, match="cues-kafka accept-loss"):
        tester.run()
    tester.stop()
    tester.broker.expire("m.double")
    tester.broker.expire("m.pair")
    moves = accept_loss(tool(tester))
    [note] = moves[0].notes
    assert note.startswith("numbers/0: what offsets [4, 7) hold is LOST")
    tool(tester).carry_out(moves)

    only = Tester(GRAPH, broker=tester.broker, only=["double"])
    assert only.run().values("doubles") == [0, 2, 4, 6, 26, 28, 30]


@pytest.mark.parametrize("command", ["reset", "accept-loss"])
def test_a_second_writer_of_the_record_is_seen_before_the_move_commits(command: str) -> None:
    """P6a: it has written between the look at the newest record and the move. Nothing moves then."""
    tester = delivered()
    for n in (4, 5):
        tester.send("numbers", n)
    tester.broker.trim({TopicPartition("numbers", 0): 6})
    before, place = tester.records("double"), TopicPartition("numbers", 0)
    tester.broker._faults = SecondWriter(tester)
    moves = reset(tool(tester)) if command == "reset" else accept_loss(tool(tester))
    assert moves

    with pytest.raises(RecoveryError, match=r"landed at \d+, not at \d+: another writer"):
        tool(tester).carry_out(moves)

    assert tester.records("double") == before
    assert tester.broker.committed("m.double", [place]) == {place: before[-1].positions[0].offset}


class SecondWriter(Faults):
    """Writes into the backing topic just before the task's own record, without its transactional id."""

    def __init__(self, tester: Tester) -> None:
        self._tester = tester

    def before(self, operation: str, client: str) -> None:
        """Called when a request leaves its client."""
        if (operation, client) == ("produce", "m.double.0"):
            self._tester.broker.sender("other").send([("m.double.backing", 0, b"other", b"", None, 0)])


def test_accept_loss_without_a_loss_does_nothing() -> None:
    """Also where the log was trimmed up to the position."""
    tester = delivered()
    tester.broker.trim({TopicPartition("numbers", 0): 4})

    assert accept_loss(tool(tester)) == []


def test_accept_loss_refuses_a_topic_that_was_recreated() -> None:
    """Its offsets mean other messages."""
    tester = delivered()
    recreate(tester, "numbers")

    with pytest.raises(RecoveryError, match="recreated"):
        accept_loss(tool(tester))


def test_nothing_is_moved_while_the_group_has_members() -> None:
    """O1: tools refuse; they are named."""
    tester = Tester(GRAPH)
    tester.send("numbers", 1)
    tester.run()

    with pytest.raises(RecoveryError, match=r"group 'm\.double' has members .* Stop its workers first"):
        reset(tool(tester))


def test_a_worker_that_joins_between_the_look_and_the_act_is_noticed() -> None:
    """What was printed would not be what happens."""
    tester = delivered()
    moves = reset(tool(tester))
    tester.run()

    with pytest.raises(RecoveryError, match="has members"):
        tool(tester).carry_out(moves)


def test_a_task_that_moved_between_the_look_and_the_act_is_not_moved() -> None:
    """The tool looks again under the task's lock."""
    tester = delivered()
    moves = reset(tool(tester))
    tester.send("numbers", 8)
    tester.run()
    tester.stop()
    before = tester.records("double")

    with pytest.raises(RecoveryError, match="double/0 has moved since"):
        tool(tester).carry_out(moves)
    assert tester.records("double") == before


def test_wrong_names_are_refused_with_the_right_ones() -> None:
    """Processor, partition, and a graph that never ran here."""
    tester = delivered()
    with pytest.raises(ConfigError, match=r"no processor 'dubble'; its processors are 'double', 'pair'"):
        tool(tester, "dubble")
    with pytest.raises(ConfigError, match="has 0 to 0"):
        reset(tool(tester), partition=1)
    other = Graph("other", Source("numbers"), Processor(double, inputs="numbers", outputs="doubles"))
    with pytest.raises(ConfigError, match=r"'other\.double\.backing' does not exist"):
        Maintenance(other, tester.broker, "double", who="x", clock=tester.clock)


def test_an_applied_plan_adds_the_partitions_that_new_input_partitions_need() -> None:
    """O9: until then the new tasks stop, naming this command; after it nothing is left to grow."""
    tester = delivered()
    tester.broker.add_partitions("numbers", 3)
    tester.broker.add_partitions("doubles", 3)
    before = plan(GRAPH, tester.broker.facts(topics_to_ask(GRAPH)))
    assert [(g.topic, g.wanted) for g in before.grow] == [("m.double.backing", 3), ("m.pair.backing", 3)]
    with pytest.raises(TaskStopped, match="'cues-kafka plan MODULE:GRAPH --apply' adds the missing ones"):
        tester.restart().run()
    apply_plan(before, tester.broker)
    after = plan(GRAPH, tester.broker.facts(topics_to_ask(GRAPH)))

    assert (after.grow, after.create) == ((), ())
    assert after["double"].stopped == ()


def test_a_refused_plan_is_not_applied() -> None:
    """Nothing is created."""
    tester = delivered()
    tester.broker.add_partitions("numbers", 3)
    refused = plan(GRAPH, tester.broker.facts(topics_to_ask(GRAPH)))

    with pytest.raises(ConfigError, match="different numbers of partitions"):
        apply_plan(refused, tester.broker)
    assert tester.broker.facts(["m.double.backing"]).topics["m.double.backing"].partitions == 1


def test_a_missing_topic_is_named_with_the_command_that_creates_it() -> None:
    """As in `adopt` before the graph's topics are there."""
    tester = delivered()
    tester.broker.delete(["m.double.backing"])
    with pytest.raises(ConfigError, match=r"'m\.double\.backing' does not exist.*plan MODULE:GRAPH --apply"):
        tool(tester)


class Trouble(Faults):
    """The first request of an operation is refused; where it is `commit`, its answer is lost."""

    def __init__(self, *operations: str) -> None:
        self.left = list(operations)

    def before(self, operation: str, client: str) -> None:
        """Called when a request leaves its client."""
        if operation in self.left and operation != "commit":
            self.left.remove(operation)
            raise RetriableError("refused")

    def after(self, operation: str, client: str) -> str | None:
        """Called when it is applied."""
        if operation in self.left:
            self.left.remove(operation)
            raise RetriableError("the answer is lost")
        return None


def count(word: str, counts: State[int]) -> int:
    """A pipe with a store."""
    counts[word] = counts.get(word, 0) + 1
    return counts[word]


def test_a_move_changes_the_stores_in_its_own_transaction() -> None:
    """Entries, marks and record are committed together, also where the first answer is lost (R4b, X2)."""
    graph = Graph(
        "s",
        Source("words"),
        Processor(count, inputs="words", outputs="numbers", state={"counts": Store(Json(int))}),
        defaults=Topic(value=Json(), partitions=1),
    )
    tester = Tester(graph)
    for word in ("a", "b", "a"):
        tester.send("words", word)
    tester.run()
    tester.stop()
    tool = Maintenance(graph, tester.broker, "count", who="test", clock=tester.clock)
    [spec], record = tool.specs, tester.records("count")[-1]
    [changelog] = [topic for _, topic in spec.stores]
    ids = {changelog: tester.broker.facts([changelog]).topics[changelog].topic_id}

    def changes() -> list[tuple[str, bytes, bytes | None]]:
        return [("counts", b"ka", b"40"), ("counts", b"kb", None)]

    trouble = tester.broker._faults = Trouble("produce", "commit")
    tool.carry_out([rewrite(spec, record, record.positions, changes, ids)])
    assert trouble.left == [], "one attempt wrote nothing, and the answer to the next one was lost"

    newest = tester.records("count")[-1]
    assert (newest.step, newest.totals, newest.positions) == (record.step, record.totals, record.positions)
    assert newest.stores != record.stores
    tester.send("words", "a")
    tester.run()
    assert tester.state("counts") == {"a": 41}
    assert tester.records("count")[-1].stores == (("counts", 4),)
    report = verify(graph, tester.broker, state=True)
    assert report["count"].tasks[0].problems == ()
    assert report["count"].diverging == 2, "the entries are those of the tool"
    tester.stop()
    tool = Maintenance(graph, tester.broker, "count", who="test", clock=tester.clock)
    tool.carry_out([rewrite(tool.specs[0], tester.records("count")[-1], record.positions, changes, ids)])
    assert tester.run().state("counts") == {"a": 41}, "it goes back, and delivers the word again"
