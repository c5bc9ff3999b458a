"""`cues-kafka migrate` on the reference broker: inputs are added, dropped and pointed at other topics."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import ConfigError, Graph, Json, Processor, RecoveryError, Source, TaskStopped, Topic
from cues_kafka.core.events import InputFacts
from cues_kafka.core.records import Attempt
from cues_kafka.errors import GraphError
from cues_kafka.operate.applying import apply_plan
from cues_kafka.operate.look.changed_inputs import refuse_busy
from cues_kafka.operate.look.foreseen import foresee
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.operate.move.migrate import added, migrate, positions_of
from cues_kafka.operate.move.reset import reset
from cues_kafka.operate.repair.ask import Repairs
from cues_kafka.plan.plan import plan
from cues_kafka.plan.topics import topics_to_ask
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.scanning import read_all
from cues_kafka.testing.tester import Crash, Tester
from cues_kafka.verify.scan import verify
from tests.unit.operate.move.test_moving import recreate
from tests.unit.operate.move.test_settling import Shop, book


def all_of(**values: int) -> list[int]:
    """A pipe or a join: the values of all inputs, in the order of their names."""
    return [values[name] for name in sorted(values)]


def any_of(**message: int) -> list[int]:
    """Alts: the value of the one input that a message came from."""
    return [n for n in message.values() if n is not None]


def graph_of(fn: Any, partitions: int = 1, **declared: Any) -> Graph:
    """One processor `work` that reads some of `x`, `y` and `z`."""
    work = Processor(fn, name="work", outputs="out", **declared)
    sources = [Source(topic) for topic in ("x", "y", "z")]
    return Graph("m", *sources, work, defaults=Topic(value=Json(), partitions=partitions))


PIPE = graph_of(all_of, inputs={"a": "x"})
JOIN = graph_of(all_of, inputs={"a": "x", "b": "y"})
WIDE = graph_of(all_of, inputs={"a": "x", "b": "y", "c": "z"})


def sent(tester: Tester, **numbers: list[int]) -> Tester:
    """With more messages, by topic."""
    for topic, values in numbers.items():
        for n in values:
            tester.send(topic, n)
    return tester


def delivered(graph: Graph, **numbers: list[int]) -> Tester:
    """A graph that has delivered these and left in order."""
    tester = sent(Tester(graph), **numbers).run()
    tester.stop()
    return tester


def tool(tester: Tester, graph: Graph) -> Maintenance:
    """The tool of the new declaration."""
    return Maintenance(graph, tester.broker, "work", who="migrate on here", clock=tester.clock)


def migrated(tester: Tester, graph: Graph, add: Mapping[str, Any], *drop: str) -> tuple[str, ...]:
    """Move the tasks; what was said before."""
    made = tool(tester, graph)
    moves = migrate(made, add, drop)
    made.carry_out(moves)
    assert migrate(made, add, drop) == []
    return tuple(itertools.chain.from_iterable(move.notes for move in moves))


def going_on(tester: Tester, graph: Graph, *, parted: bool = False, **numbers: list[int]) -> Any:
    """
    The outputs once the new declaration has run; `verify` finds nothing wrong.

    If the migration parts the books, `verify` says which record it was, and what it does not judge.
    """
    after = sent(Tester(graph, broker=tester.broker), **numbers).run()
    after.stop()
    report = verify(graph, after.broker)
    said = "\n".join(report.lines)
    assert report.verdict == ("not verifiable" if parted else "ok"), said
    assert ("cannot be verified: an operator migrated it at backing record" in said) == parted
    return after.values("out")


def test_input_added_at_earliest_delivers_what_it_holds() -> None:
    """The input that stays goes on where it stood."""
    tester = delivered(PIPE, x=[1, 2], y=[10, 20])
    with pytest.raises(TaskStopped, match="bindings changed"):
        Tester(JOIN, broker=tester.broker).run()
    tester.broker.expire("m.work")

    assert migrated(tester, JOIN, {"b": "earliest"}) == (
        (
            "y/0: input 'b' is added and begins at 0: its log delivers at most 2 messages, for markers of transactions "
            "have offsets too"
        ),
        "from there, the join pairs the k-th messages behind a 2, b 0; until now the inputs stood at a 2",
    )
    outputs = going_on(tester, JOIN, x=[3, 4], parted=True)
    assert outputs == [[1], [2], [3, 10], [4, 20]]


def test_input_added_at_latest_skips_what_it_holds() -> None:
    """It says so."""
    tester = delivered(PIPE, x=[1, 2], y=[10, 20])

    said = migrated(tester, JOIN, {"b": "latest"})
    assert said[0] == (
        "y/0: input 'b' is added and begins at 2, behind its last message: what offsets [0, 2) hold is not delivered "
        "as 'b': at most 2 messages, for markers of transactions have offsets too"
    )
    assert going_on(tester, JOIN, x=[3], y=[30], parted=True) == [[1], [2], [3, 30]]


def test_dropped_input_names_what_is_never_delivered() -> None:
    """Of a join, whose other input goes on alone."""
    tester = delivered(JOIN, x=[1], y=[10, 20, 30])

    assert migrated(tester, PIPE, {}, "b") == (
        (
            "y/0: input 'b' is dropped at 1: what offsets [1, 3) hold is LOST, it will never be delivered as 'b': "
            "at most 2 messages, for markers of transactions have offsets too"
        ),
        "from there, each message behind a 1 is a step of its own, without a partner",
    )
    assert going_on(tester, PIPE, x=[2], parted=True) == [[1, 10], [2]]


def test_dropped_input_without_messages_loses_nothing() -> None:
    """Also where its topic is gone; then nothing can be said of what it held."""
    tester = delivered(JOIN, x=[1], y=[10])
    assert migrate(tool(tester, PIPE), {}, ["b"])[0].notes[0] == (
        "y/0: input 'b' is dropped at 1, its end: all of its messages have outcomes"
    )

    tester.broker.delete(["y"])
    gone = Graph("m", Source("x"), *PIPE.processors.values(), defaults=Topic(value=Json(), partitions=1))
    assert migrated(tester, gone, {}, "b")[0] == (
        "y/0: input 'b' is dropped at 1, and its topic is gone, or hidden from this user: what it held from there on "
        "is LOST"
    )


def test_inputs_are_added_and_dropped_at_once() -> None:
    """Also where the same binding reads another topic."""
    tester = delivered(JOIN, x=[1], y=[10], z=[100])
    moved = graph_of(all_of, inputs={"a": "x", "b": "z"})

    assert [note.split(":")[0] for note in migrated(tester, moved, {"b": "earliest"}, "b")[:2]] == ["z/0", "y/0"]
    assert going_on(tester, moved, x=[2], parted=True) == [[1, 10], [2, 100]]


def test_alts_get_a_third_input() -> None:
    """In any order, each message once; tasks without a record begin by themselves."""
    tester = delivered(graph_of(any_of, 2, alts={"a": "x", "b": "y"}), x=[1, 2], y=[10])
    wide = graph_of(any_of, 2, alts={"a": "x", "b": "y", "c": "z"})
    sent(tester, z=[100, 200])

    migrated(tester, wide, {"c": "earliest"})

    assert sorted(going_on(tester, wide, x=[3])) == [[1], [2], [3], [10], [100], [200]]


def test_what_came_since_a_migration_is_verified() -> None:
    """Its messages, pairs and totals; of what came before only the count of steps is gone from the report."""
    tester = delivered(JOIN, x=[1, 2], y=[10, 20])
    migrated(tester, PIPE, {}, "b")
    assert going_on(tester, PIPE, parted=True, x=[3, 4]) == [[1, 10], [2, 20], [3], [4]]

    task = verify(PIPE, tester.broker)["work"].tasks[0]
    assert (task.steps, task.outputs, task.messages, task.lost, task.totals.deliveries) == (2, 2, 2, 0, 2)

    *_, last = read_all(tester.broker, "out", 1)
    tester.broker.sender("vandal").send([("out", 0, None, last.value(), last.headers(), 0)])
    report = verify(PIPE, tester.broker)
    assert (report.verdict, report["work"].duplicated) == ("WRONG", 1)
    said = "\n".join(report.lines)
    assert "work/0: duplicated: x/0 at 3" in said
    assert "by reset, accept-loss" not in said  # the migration does not explain it


def test_what_is_lost_since_a_migration_is_found() -> None:
    """The outputs are in a topic that was created again, so none of them is there."""
    tester = delivered(PIPE, x=[1])
    migrated(tester, JOIN, {"b": "earliest"})
    going_on(tester, JOIN, parted=True, x=[2], y=[20])
    recreate(tester, "out")

    report = verify(JOIN, tester.broker)
    assert (report.verdict, report["work"].lost) == ("WRONG", 1)
    assert "work/0: lost: x/0 at 1" in report.lines


def test_migration_whose_record_compaction_has_removed_is_known() -> None:
    """The history of the task says it."""
    tester = delivered(JOIN, x=[1], y=[10])
    migrated(tester, PIPE, {}, "b")
    going_on(tester, PIPE, parted=True, x=[2])
    tester.broker.compact("m.work.backing")

    report = verify(PIPE, tester.broker)
    assert report.verdict == "not verifiable"
    assert "an operator migrated it at backing record" in "\n".join(report.lines)


def test_reset_to_other_inputs_skips_what_it_says() -> None:
    """This one is moved on, too; what it was moved over is told, and is not lost."""
    alts = graph_of(any_of, alts={"a": "x", "b": "y"})
    pipe = graph_of(any_of, inputs={"a": "x"})
    tester = sent(delivered(alts, x=[1, 2], y=[10]), x=[3, 4, 5])
    operator = tool(tester, pipe)
    operator.carry_out(reset(operator, to="latest"))
    again = sent(Tester(pipe, broker=tester.broker), x=[6]).run()
    again.stop()

    report = verify(pipe, tester.broker)
    assert (report.verdict, report["work"].lost) == ("not verifiable", 0)
    assert "an operator migrated it at backing record" in "\n".join(report.lines)


def test_input_that_has_another_name_keeps_its_place() -> None:
    """A pipe calls its only input `input`; two have names."""
    tester = sent(delivered(graph_of(lambda n: [n], inputs="x"), x=[1], y=[10]), x=[2])

    assert migrated(tester, JOIN, {"a": "input", "b": "latest"}, "input") == (
        "x/0: input 'input' is called 'a' now, and goes on at 1",
        (
            "y/0: input 'b' is added and begins at 1, behind its last message: what offsets [0, 1) hold is not "
            "delivered as 'b': at most 1 message, for markers of transactions have offsets too"
        ),
        "from there, the join pairs the k-th messages behind a 1, b 1; until now the inputs stood at input 1",
    )
    assert going_on(tester, JOIN, y=[20], parted=True) == [[1], [2, 20]]


def test_outcomes_under_the_former_name_of_an_input_are_verified() -> None:
    """Where each message is a step of its own: the topic tells which input it was, and nothing is lost or unfounded."""
    tester = delivered(graph_of(lambda n: [n], inputs="x"), x=[1, 2], y=[10])
    alts = graph_of(any_of, alts={"a": "x", "b": "y"})
    migrated(tester, alts, {"a": "input", "b": "earliest"}, "input")
    assert sorted(going_on(tester, alts, x=[3])) == [[1], [2], [3], [10]]

    seen = verify(alts, tester.broker)["work"]
    assert (seen.steps, seen.outputs, seen.lost, seen.unfounded) == (4, 4, 0, 0)

    first = next(read_all(tester.broker, "out", 1))
    tester.broker.sender("vandal").send([("out", 0, None, first.value(), first.headers(), 0)])
    assert "work/0: duplicated: x/0 at 0" in verify(alts, tester.broker).lines

    alone = delivered(graph_of(lambda n: [n], inputs="x"), x=[1])
    migrated(alone, PIPE, {"a": "input"}, "input")
    assert going_on(alone, PIPE, x=[2]) == [[1], [2]]


def test_alts_lose_an_input() -> None:
    """What they had delivered of it stays; what they had not is named."""
    tester = delivered(graph_of(any_of, alts={"a": "x", "b": "y", "c": "z"}), x=[1], z=[100])
    sent(tester, z=[200])
    narrow = graph_of(any_of, alts={"a": "x", "b": "y"})

    [said] = migrated(tester, narrow, {}, "c")

    assert "what offsets [1, 2) hold is LOST, it will never be delivered as 'c': at most 1 message," in said
    assert going_on(tester, narrow, y=[10], parted=True) == [[1], [100], [10]]


CONTRADICTED: Mapping[str, tuple[Graph, Mapping[str, Any], tuple[str, ...], str]] = {
    "nothing": (JOIN, {}, (), "which input?"),
    "not declared": (JOIN, {"d": "latest"}, (), "does not declare this input. It has 'a' from 'x', 'b' from 'y'"),
    "still declared": (JOIN, {}, ("a",), "still declares this input, from 'x'. Take it out of the declaration"),
    "there": (WIDE, {"c": "latest", "a": "latest"}, (), "--add a: work/0 has this input already"),
    "unknown": (WIDE, {"c": "latest"}, ("q",), "--drop q: work/0 has no such input in its record"),
    "place": (WIDE, {"c": "17"}, (), "--add c=17: work/0 has no dropped input '17' from 'z'"),
    "left out": (WIDE, {}, ("q",), "--drop q: work/0 has no such input"),
    "more": (
        graph_of(all_of, inputs={"a": "x", "c": "z"}),
        {"c": "latest"},
        (),
        "'b' changed too. Name all that changed: `cues-kafka migrate MODULE:GRAPH work --add c=earliest --drop b`",
    ),
}


@pytest.mark.parametrize(("graph", "add", "drop", "why"), CONTRADICTED.values(), ids=CONTRADICTED)
def test_what_is_not_the_difference_is_refused(
    graph: Graph, add: Mapping[str, Any], drop: tuple[str, ...], why: str
) -> None:
    """With what to write instead."""
    tester = delivered(JOIN, x=[1], y=[10], z=[100])

    with pytest.raises(ConfigError) as refused:
        migrate(tool(tester, graph), add, drop)

    assert why in str(refused.value)


@pytest.mark.parametrize("wish", ["b", "b=", "=latest"])
def test_option_of_another_form_is_refused(wish: str) -> None:
    """As is the same input twice."""
    with pytest.raises(ConfigError, match="write --add BINDING=earliest or --add BINDING=latest"):
        added([wish])
    with pytest.raises(ConfigError, match="'b' is there twice"):
        added(["b=latest", "b=earliest"])
    assert added(["b=latest", "c=earliest"]) == {"b": "latest", "c": "earliest"}


def test_batch_that_is_announced_is_not_migrated() -> None:
    """The former version delivers it first; then the command does what it said."""
    tester = sent(Tester(PIPE), x=[1, 2], y=[10])
    tester.run(crash=Crash("before", "Call", 1))
    tester.restart()
    tester.broker.expire("m.work")

    with pytest.raises(RecoveryError, match="has announced 2 steps, which the former inputs have to deliver"):
        migrate(tool(tester, JOIN), {"b": "earliest"}, ())

    Tester(PIPE, broker=tester.broker).run().stop()
    migrated(tester, JOIN, {"b": "earliest"})
    assert going_on(tester, JOIN, x=[3], parted=True) == [[1], [2], [3, 10]]


def test_record_that_holds_more_than_positions_is_refused() -> None:
    """The move would forget what else it has."""
    tester = delivered(PIPE, x=[1])
    record, spec = tester.records("work", 0)[-1], tool(tester, PIPE).specs[0]
    assert isinstance(record, Attempt)
    refuse_busy(spec, record)

    held: dict[str, dict[str, Any]] = {
        "one by one": {"careful_until": record.positions},
        "because its process died": {"careful_timers": 1},
        "the order of its next messages": {"choice": (("a", 1),)},
        "what its tailers show": {"tail_ends": record.positions},
    }
    for why, fields in held.items():
        with pytest.raises(RecoveryError, match=why):
            refuse_busy(spec, replace(record, **fields))


def test_processor_at_least_once_changes_its_strategy_first() -> None:
    """W7: its former workers have no lock; at-most-once goes on where it stands."""
    loose = delivered(graph_of(all_of, inputs={"a": "x"}, strategy="at-least-once"), x=[1])
    for strategy in ("at-least-once", "exactly-once"):
        with pytest.raises(RecoveryError, match="run `cues-kafka strategy MODULE:GRAPH work --yes`"):
            migrate(tool(loose, graph_of(all_of, inputs={"a": "x", "b": "y"}, strategy=strategy)), {"b": "latest"}, ())

    taking = delivered(graph_of(all_of, inputs={"a": "x"}, strategy="at-most-once"), x=[1], y=[10])
    after = graph_of(all_of, inputs={"a": "x", "b": "y"}, strategy="at-most-once")
    migrated(taking, after, {"b": "earliest"})
    assert going_on(taking, after, x=[2], parted=True) == [[1], [2, 10]]


def test_input_that_stays_and_lost_messages_is_refused() -> None:
    """So is one that was recreated, and one whose log was truncated."""
    tester = delivered(PIPE, x=[1])
    sent(tester, x=[2, 3])
    tester.broker.trim({TopicPartition("x", 0): 2})

    with pytest.raises(RecoveryError, match=r"offsets \[1, 2\) of x/0 are gone .* `cues-kafka accept-loss"):
        migrate(tool(tester, JOIN), {"b": "latest"}, ())

    made = tool(tester, JOIN)
    record, inputs = tester.records("work", 0)[-1], made.reading.inputs(made.specs[0])
    for facts, why in (
        (InputFacts(b"other", 0, 5, 5), "'x' was recreated.* `cues-kafka reset MODULE:GRAPH work`"),
        (InputFacts(inputs["a"].topic_id, 0, 0, 0), "position 1 is past the end 0 of x/0"),
    ):
        with pytest.raises(RecoveryError, match=why):
            positions_of(made.specs[0], record, {**inputs, "a": facts}, {"b": "latest"}, ())


def test_unequal_partitions_and_live_workers_are_refused() -> None:
    """The plan says why, and the group has a member."""
    tester = sent(Tester(PIPE), x=[1]).run()
    with pytest.raises(RecoveryError, match="Stop its workers first"):
        migrate(tool(tester, JOIN), {"b": "latest"}, ())
    tester.stop()

    tester.broker.add_partitions("y", 3)
    with pytest.raises((ConfigError, GraphError), match=r"different numbers of partitions \(x: 1, y: 3\)"):
        migrate(tool(tester, JOIN), {"b": "latest"}, ())


def test_processor_that_never_ran_has_nothing_to_migrate() -> None:
    """It begins at its start=."""
    tester = Tester(JOIN)
    apply_plan(plan(JOIN, tester.broker.facts(topics_to_ask(JOIN))), tester.broker)

    with pytest.raises(ConfigError, match="has no record, so there is nothing to migrate"):
        migrate(tool(tester, JOIN), {"b": "latest"}, ())


def test_recorded_order_of_alts_with_effects_ends_before_the_inputs_change() -> None:
    """A worker that has delivered all that it took leaves none behind."""
    tester = delivered(graph_of(any_of, alts={"a": "x", "b": "y"}, effects=True), x=[1, 2], y=[10])
    wide = graph_of(any_of, alts={"a": "x", "b": "y", "c": "z"}, effects=True)

    migrated(tester, wide, {"c": "latest"})

    assert sorted(going_on(tester, wide, z=[300])) == [[1], [2], [10], [300]]


@pytest.mark.parametrize("busy", [False, True])
def test_plan_names_the_command_with_its_options(busy: bool) -> None:
    """Where the record is busy, what comes before it."""
    tester = sent(Tester(PIPE), x=[1])
    if busy:
        tester.run(crash=Crash("before", "Call", 1))
        tester.restart()
        tester.broker.expire("m.work")
    else:
        tester.run().stop()

    moved = graph_of(all_of, inputs={"c": "y", "b": "z"})
    planned = plan(moved, tester.broker.facts(topics_to_ask(moved)))
    [stop] = foresee(moved, tester.broker, planned, ["work"], clock=tester.clock).stops

    assert "`cues-kafka migrate MODULE:GRAPH work --add c=earliest --add b=earliest --drop a`" in stop.remedy
    assert ("has announced 1 step" in stop.remedy) is busy
    assert "declare the inputs as they were" in stop.remedy


def test_database_that_is_ahead_is_completed_by_the_former_version(tmp_path: Path) -> None:
    """E1: what it holds are outcomes of the former inputs; afterwards database and topics have each order once."""

    def book_any(db: Any, **orders: dict[str, Any]) -> dict[str, Any]:
        return book(next(order for order in orders.values() if order is not None), db)

    shop = Shop(tmp_path / "shop.db")
    former = shop.graph.processors["book"]
    wider = Graph(
        "g", Source("orders"), Source("more"),
        Processor(book_any, name="book", alts={"input": "orders", "more": "more"}, outputs="booked",
                  effects=former.effects),
    )  # fmt: skip
    apply_plan(plan(wider, shop.broker.facts(topics_to_ask(wider))), shop.broker)
    shop.send(3).tester.run()
    shop.send(3).tester.run(crash=Crash("after", "CommitTarget", 1))
    shop.tester.restart()
    shop.broker.expire("g.book")

    def moving() -> Maintenance:
        return Maintenance(wider, shop.broker, "book", who="migrate on here", clock=shop.tester.clock)

    with pytest.raises(
        RecoveryError, match=r"its target holds \d steps? more than its newest record. Start the former"
    ):
        migrate(moving(), {"more": "earliest"}, ())
    shop.tester.run()
    shop.tester.stop()
    moving().carry_out(migrate(moving(), {"more": "earliest"}, ()))

    after = Tester(wider, broker=shop.broker)
    after.send("more", {"id": 99})
    after.run()
    after.stop()
    assert shop.rows() == [*range(6), 99]
    assert sorted(shop.booked()) == [*range(6), 99]
    assert verify(wider, shop.broker).ok


class Bug:
    """A function of one or two inputs that fails at 2 until it is fixed."""

    def __init__(self) -> None:
        self.fixed = False
        self.calls: list[tuple[int | None, int | None]] = []

    def two(self, a: int | None = None, b: int | None = None) -> list[int | None]:
        """Of `a` and `b`."""
        if not self.fixed and 2 in (a, b):
            raise ValueError("two")
        self.calls.append((a, b))
        return [a, b]

    def one(self, b: int) -> list[int | None]:
        """Of `b` alone."""
        return self.two(None, b)


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("wider", [True, False])
def test_error_of_other_inputs_is_not_replayed_as_something_else(wider: bool, early: bool) -> None:
    """A pipe becomes a join, or a join alts: its message would be taken for one of `a`, or the half of a pair lost."""
    bug, pair = Bug(), {"a": "x", "b": "y"}

    def declared(fn: Any, **inputs: Any) -> Graph:
        parts = (Source("x"), Source("y"), Processor(fn, name="work", outputs="out", **inputs))
        return Graph("m", *parts, errors="m.errors")

    former = declared(bug.one, inputs={"b": "y"}) if wider else declared(bug.two, inputs=pair)
    latter = declared(bug.two, inputs=pair) if wider else declared(bug.two, alts=pair)
    tester = delivered(former, x=[1], y=[2])
    if early:
        with Repairs(former, tester.broker) as repairs:
            assert repairs.ask("replay").asked == 1
    if wider:
        assert "errors of former steps of the join that are open" in migrated(tester, latter, {"a": "latest"})[-1]
    if not early:
        with Repairs(latter, tester.broker) as repairs:
            [why] = repairs.ask("replay").refused
        assert why.startswith(
            "it consumed a message of 'b', and" if wider else "it consumed a message of 'a' and of 'b'"
        )
    bug.fixed = True

    after = Tester(latter, broker=tester.broker).run()
    after.stop()

    assert (bug.calls, after.values("out")) == ([], [])
    with Repairs(latter, tester.broker) as repairs:
        [cause] = repairs.causes()
    assert cause.exception == ("MessageGone" if early else "ValueError")


def test_errors_of_a_dropped_or_renamed_input_are_named() -> None:
    """They are refused from then on."""
    graphs = [
        Graph("m", Source("x"), Processor(all_of, name="work", outputs="out", inputs={name: "x"}), errors="m.errors")
        for name in ("a", "b")
    ]
    said = migrated(delivered(graphs[0], x=[1]), graphs[1], {"b": "a"}, "a")
    assert said[1].startswith("errors of 'a' that are open now can not be replayed any more. To replay them, declare")
