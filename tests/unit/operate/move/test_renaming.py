"""`rename`: a processor goes on under another name, exactly once, wherever its tool dies (X5)."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import (
    CommitPolicy,
    ConfigError,
    Graph,
    Json,
    Processor,
    RecoveryError,
    Selection,
    Source,
    Sql,
    State,
    Store,
    TaskStopped,
    Topic,
)
from cues_kafka.brokers.memory.clients import MemoryReader
from cues_kafka.errors import BrokerError, FatalError
from cues_kafka.operate.deleting import Deleting
from cues_kafka.operate.look.former_names import arrivals
from cues_kafka.operate.move import renamed_rows
from cues_kafka.operate.move.rename import Renaming
from cues_kafka.operate.repair.ask import Repairs
from cues_kafka.operate.repair.shown import lines
from cues_kafka.plan.inspectors import Terms
from cues_kafka.ports.log import TopicPartition
from cues_kafka.sinks import lookup
from cues_kafka.task.clock import SystemClock
from cues_kafka.task.interpreter import Hook
from cues_kafka.task.making.names import inspect_names
from cues_kafka.testing.tester import Crash, Tester
from cues_kafka.verify.scan import verify
from tests.unit.operate.move.dying import Mortal, Numbers, Verb

WIDTH = 2


def route(n: int) -> int:
    """A pipe; fails for what is divisible by 5."""
    if n % 5 == 0:
        raise ValueError(f"{n} is too round")
    return n


def counted(n: int, sums: State[int]) -> int:
    """With a store."""
    sums["all"] = sums.get("all", 0) + n
    return n


def counted_twice(n: int, sums: State[int], more: State[int]) -> int:
    """With another store."""
    more["all"] = n
    return counted(n, sums)


def graph_of(name: str, width: int = WIDTH, **settings: Any) -> Graph:
    """One processor under this name."""
    declared = Processor(**{"fn": route, "name": name, "inputs": "numbers", "outputs": "routed", **settings})
    defaults = Topic(value=Json(), partitions=width)
    return Graph("g", Source("numbers"), Source("others"), declared, errors="g.errors", defaults=defaults)


class Names(Numbers):
    """A cluster on which the processor has run as `old`."""

    def __init__(self, width: int = WIDTH, **settings: Any) -> None:
        self.width, self.settings = width, settings
        self.tester = Tester(graph_of("old", width, **settings))
        self.send(*range(1, 7))
        self.run(self.tester)

    def run(self, tester: Tester) -> Tester:
        """Run, and leave."""
        tester.run()
        tester.stop()
        return tester

    def version(self, name: str, **settings: Any) -> Tester:
        """Workers of this declaration."""
        return Tester(graph_of(name, self.width, **{**self.settings, **settings}), broker=self.broker)

    def inspected(self) -> str:
        """What `run` and `plan` say of the new name; empty: nothing."""
        found = inspect_names(graph_of("new", self.width, **self.settings), self.broker, Terms(["new"]))
        return " ".join(found.refusals)

    def try_version(self, name: str) -> str:
        """Start its workers half-way; they may go on where they still are at home. Return why they stop, if they do."""
        tester = self.version(name)
        try:
            tester.run()
        except TaskStopped as error:
            return str(error)
        finally:
            tester.stop()
            with contextlib.suppress(BrokerError):  # it has left already
                self.broker.expire(f"g.{name}")
        return ""

    def tool(
        self, broker: Any = None, new: str = "new", old: str = "old", hook: Hook | None = None, **settings: Any
    ) -> Renaming:
        """What renames `old`."""
        graph = graph_of(new, self.width, **{**self.settings, **settings})
        return Renaming(graph, broker or self.broker, old, new, who="tool on here", clock=self.tester.clock, hook=hook)

    def rename(self, broker: Any = None) -> None:
        """The whole verb."""
        tool = self.tool(broker)
        tool.carry_out(tool.plan())

    def values(self) -> list[Any]:
        """All outputs, in order of value."""
        return sorted(self.tester.values("routed"))


@pytest.mark.parametrize("width", [1, 2])
def test_processor_goes_on_under_its_new_name(width: int) -> None:
    """Nothing comes again, nothing is left out, and the counts go on."""
    names = Names(width)
    names.send(7, 8)
    names.rename()
    new = names.run(names.version("new"))

    assert names.values() == sorted([1, 2, 3, 4, 6, 7, 8] * width)
    newest = new.records("new")[-1]
    assert (newest.totals.deliveries, newest.totals.errors, newest.step) == (8, 1, 8)
    assert names.tool().plan().done


@pytest.mark.parametrize("width", [1, pytest.param(2, marks=pytest.mark.full)])
def test_rename_is_ended_by_the_next_run(width: int) -> None:
    """Wherever it dies, before or after each effect; workers of both versions are started before it is run again."""

    def world() -> Names:
        names = Names(width)
        names.send(7, 8)
        return names

    def act(names: Names, broker: Any) -> None:
        if not isinstance(broker, Mortal):
            if "has no place on this cluster" not in names.inspected():
                names.try_version("new")
            names.try_version("old")
        names.rename(broker)

    def seen(names: Names) -> Any:
        new = names.run(names.version("new"))
        return names.values(), [new.records("new", p)[-1].totals for p in range(width)]

    effects = Verb(world, act, seen, groups=("g.old", "g.new")).die_everywhere()
    assert (effects["member"], effects["commit"], effects["create"]) == (2, 3 * width, 1)


def cut_short(commits: int) -> Names:
    """The tool has died behind this number of commits."""

    class Gone(BaseException):
        """The tool ends here."""

    left = commits

    def hook(moment: str, effect: str) -> None:
        nonlocal left
        left -= (moment, effect) == ("after", "Commit")
        if not left:
            raise Gone

    names = Names()
    tool = names.tool(hook=hook)
    planned = tool.plan()
    with pytest.raises(Gone):
        tool.carry_out(planned)
    return names


def test_workers_of_both_names_refuse_half_way() -> None:
    """Their texts name what to do: two placeholders are there, and both tasks have left."""
    names = cut_short(4)

    assert "end it: `cues-kafka rename MODULE:GRAPH old new --yes`" in names.try_version("new")
    assert "processor 'old' has moved to the name 'new'. Remedy: run it as 'new'" in names.try_version("old")


def test_fresh_task_refuses_beside_a_placeholder() -> None:
    """The tool has died between two placeholders, so one task of the new name has no record yet."""
    names = cut_short(1)

    assert "the move of 'new' from the name 'old' is not complete" in names.try_version("new")
    assert names.version("new").records("new", 1) == []
    assert "end it: `cues-kafka rename MODULE:GRAPH old new --yes`" in names.inspected()


def test_what_is_left_of_the_old_name_is_not_deleted_half_way() -> None:
    """It may be the only place of a task; afterwards it may go."""
    names = cut_short(5)
    delete = Deleting(graph_of("new"), names.broker)
    with pytest.raises(RecoveryError, match="'new' has not arrived from the name 'old' yet, and would lose its place"):
        delete.carry_out(delete.unused())

    names.rename()
    delete.carry_out(delete.unused())
    names.run(names.version("new"))

    assert "g.old.backing" not in names.broker.partitions()
    assert len(names.values()) == 10


def test_verify_finds_nothing_wrong_behind_a_rename() -> None:
    """What was written under the old name counts, also where its topics are deleted; no declaration has to say so."""
    names = Names()
    names.rename()
    names.send(7, 8)
    names.run(names.version("new"))

    assert verify(graph_of("new"), names.broker).ok
    Deleting(graph_of("new"), names.broker).carry_out(Deleting(graph_of("new"), names.broker).unused())
    assert verify(graph_of("new"), names.broker).ok
    assert verify(graph_of("new", renamed_from="old"), names.broker).ok


def test_verify_finds_nothing_wrong_before_the_rename() -> None:
    """The outputs of the old name were taken for those of the new one, above its place: WRONG, before any command."""
    names = Names()
    report = verify(graph_of("new", renamed_from="old"), names.broker)

    assert report.anomalies == 0
    assert report.verdict == "not verifiable"
    assert any("are of processor 'old', which this graph does not have" in note for note in report.notes)
    names.rename()
    assert verify(graph_of("new", renamed_from="old"), names.broker).ok


def test_start_of_a_renamed_processor_names_the_command() -> None:
    """With both names; afterwards a processor that is added is not taken for the old one."""
    names = Names()
    said = inspect_names(graph_of("new", renamed_from="old"), names.broker, Terms(["new"]))
    guessed = inspect_names(graph_of("new"), names.broker, Terms(["new"]))

    assert "Stop the workers of 'old', and run `cues-kafka rename MODULE:GRAPH old new`" in said.refusals[0]
    assert "run `cues-kafka rename MODULE:GRAPH old new`, or give it its old name back" in guessed.refusals[0]

    names.rename()
    names.run(names.version("new"))
    added = Processor(route, name="added", inputs="numbers", outputs="more")
    wider = Graph("g", *graph_of("new").parts, added, errors="g.errors", defaults=Topic(value=Json(), partitions=WIDTH))
    found = inspect_names(wider, names.broker, Terms(["new", "added"]))
    assert found.refusals == ()
    assert "which goes on as 'new'" in " ".join(found.warnings)


RIGHT = "user `ann` may not read topic `g.old.backing`. Grant it with `kafka-acls --add ... --operation Read`"


def forbid(monkeypatch: pytest.MonkeyPatch, topic: str) -> None:
    """No user may read this topic."""
    assign = MemoryReader.assign

    def assigned(self: MemoryReader, places: Mapping[TopicPartition, int]) -> None:
        if any(place.topic == topic for place in places):
            raise FatalError(RIGHT, code="TOPIC_AUTHORIZATION_FAILED")
        assign(self, places)

    monkeypatch.setattr(MemoryReader, "assign", assigned)


def test_topic_that_may_not_be_read_is_not_taken_for_that_of_a_renamed_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`verify` took all outputs of the old name for those of the new one, before any rename. The right is named."""
    names = Names()
    forbid(monkeypatch, "g.old.backing")

    with pytest.raises(FatalError, match="whether processor 'old' was renamed is not known: user `ann` may not read"):
        verify(graph_of("new", renamed_from="old"), names.broker)


def test_start_beside_a_place_that_may_not_be_read_names_the_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """It told to run `rename`, for a processor that was added long after the other one was renamed."""
    names = Names()
    names.rename()
    names.run(names.version("new"))
    forbid(monkeypatch, "g.old.backing")
    added = Processor(route, name="added", inputs="numbers", outputs="more")
    wider = Graph("g", *graph_of("new").parts, added, errors="g.errors", defaults=Topic(value=Json(), partitions=WIDTH))
    found = inspect_names(wider, names.broker, Terms(["new", "added"]))

    [refusal], [warning] = found.refusals, found.warnings
    assert RIGHT in refusal
    assert "--new added" in refusal
    assert "run `cues-kafka rename" not in refusal + warning
    assert warning == f"'g.old.backing': whether processor 'old' was renamed is not known: {RIGHT}"
    assert inspect_names(wider, names.broker, Terms(["new", "added"], ["added"])).refusals == ()


def test_errors_of_a_former_name_are_not_open_because_records_may_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another name has settled was taken for open, and could be replayed twice."""
    names = Names()
    forbid(monkeypatch, "g.old.backing")

    with pytest.raises(FatalError, match="user `ann` may not read topic"):
        arrivals(graph_of("old"), names.broker, SystemClock())
    without = Graph("g", *graph_of("old").parts, defaults=Topic(value=Json(), partitions=WIDTH))
    assert arrivals(without, names.broker, SystemClock()) == {}


def test_notes_say_where_each_task_goes_on() -> None:
    """And what is different afterwards."""
    notes = Names().tool().plan().notes

    assert "would create g.new.backing" in notes
    assert "old/1 resumes as new/1 at offset 6 of numbers/1, after 6 steps" in notes
    assert any(note.startswith("errors of old that are open can be replayed and dropped") for note in notes)


# Errors


class Roundness:
    """A function that is fixed later."""

    fixed = False

    def __call__(self, n: int) -> int:
        """Fail for what is divisible by 5."""
        return n if self.fixed else route(n)


def repairs_of(names: Names, name: str = "new", **settings: Any) -> Repairs:
    """The tool for this declaration."""
    return Repairs(graph_of(name, names.width, **settings), names.broker, clock=names.tester.clock)


@pytest.mark.parametrize("chosen", ["old", "new", None])
def test_open_errors_of_the_old_name_are_replayed_and_dropped_under_the_new_one(chosen: str | None) -> None:
    """What the old name has settled is known, and stays settled; each of the others is settled once."""
    fix = Roundness()
    names = Names(1, fn=fix)
    names.send(10, 15, 20)
    names.run(names.version("old"))
    first, *others = [(one.topic, one.partition, one.offset) for one in repairs_of(names, "old").find()]
    assert len(others) == 3
    fix.fixed = True
    repairs_of(names, "old").ask("replay", Selection(places=frozenset({first})))
    names.run(names.version("old"))
    names.rename()
    new = names.version("new", renamed_from="old")

    with repairs_of(names) as tool:
        found = [*tool.find(Selection(processor=chosen))]
        assert [one.settled is not None for one in found] == [True, False, False, False]
        assert {(one.message.processor, one.asked_of, one.obstacle) for one in found} == {("old", "new", "")}
        assert "  renamed   goes on as new" in lines(found[-1])
        dropped = tool.ask("drop", Selection(places=frozenset(others[:1])))
        replayed = tool.ask("replay", Selection(processor=chosen))
        assert (replayed.settled, replayed.before, replayed.asked) == (1, 1, 2)
        assert tool.ask("replay", Selection(processor=chosen)).asked == 0
        names.run(new)
        assert tool.wait(dropped, timeout_s=0)
        assert tool.wait(replayed, timeout_s=0)
        assert (dropped.outcomes, replayed.outcomes) == ({"dropped": 1}, {"dropped": 1, "output": 2})
        assert tool.causes() == ()
        assert tool.ask("replay").settled == 4
    assert names.values() == [1, 2, 3, 4, 5, 6, 15, 20]
    assert verify(new.graph, names.broker).ok


def test_errors_of_a_name_that_was_changed_twice_are_followed() -> None:
    """From name to name, by the records."""
    fix = Roundness()
    names = Names(1, fn=fix)
    names.rename()
    again = names.tool(new="newest", old="new")
    again.carry_out(again.plan())
    fix.fixed = True
    with repairs_of(names, "newest") as tool:
        assert [one.asked_of for one in tool.find()] == ["newest"]
        assert tool.ask("replay", Selection(processor="old")).asked == 1
    names.run(names.version("newest"))

    assert names.values() == [1, 2, 3, 4, 5, 6]


def test_an_error_that_the_name_of_meanwhile_has_settled_is_not_asked_for_when_the_old_name_is_back() -> None:
    """The old name begins with a topic of its own again, in which nothing is settled."""
    fix = Roundness()
    names = Names(1, fn=fix)
    fix.fixed = True
    names.rename()
    with repairs_of(names) as tool:
        assert tool.ask("replay").asked == 1
    names.run(names.version("new", renamed_from="old"))
    unused = Deleting(graph_of("new", 1, fn=fix), names.broker)
    unused.carry_out(unused.unused())
    back = names.tool(new="old", old="new")
    back.carry_out(back.plan())

    with repairs_of(names, "old", renamed_from="new") as tool:
        asked = tool.ask("replay")
    old = names.version("old", renamed_from="new")
    names.run(old)
    assert (asked.asked, asked.settled) == (0, 1)
    assert names.values() == [1, 2, 3, 4, 5, 6]
    assert verify(old.graph, names.broker).ok


def test_errors_of_the_old_name_are_refused_where_what_is_settled_is_not_known() -> None:
    """Before the move, half-way, and when the topics of the old name are deleted without it."""

    def refused_ask(names: Names) -> str:
        with repairs_of(names, renamed_from="old") as tool:
            [why] = tool.ask("replay").refused
        return why

    before, half_way, deleted = Names(), cut_short(WIDTH + 1), Names()
    Deleting(graph_of("new"), deleted.broker).carry_out(Deleting(graph_of("new"), deleted.broker).unused())
    deleted.run(deleted.version("new"))

    assert "run `cues-kafka rename MODULE:GRAPH old new --yes`, and ask again" in refused_ask(before)
    assert "run `cues-kafka rename MODULE:GRAPH old new --yes` to its end, and ask again" in refused_ask(half_way)
    assert "topic 'g.old.backing', which says what is settled, is deleted" in refused_ask(deleted)


# Stores


def stored(width: int = WIDTH) -> Names:
    """A processor with a store has run as `old`."""
    return Names(width, fn=counted, state={"sums": Store(Json(int))})


def test_stores_go_with_a_rename_that_is_ended_by_the_next_run() -> None:
    """All entries or none, wherever it dies; the function goes on with them."""

    def world() -> Names:
        names = stored(1)
        names.send(7, 8)
        return names

    def act(names: Names, broker: Any) -> None:
        if not isinstance(broker, Mortal):
            names.try_version("old")
        names.rename(broker)

    def seen(names: Names) -> Any:
        new = names.version("new").run()
        state = new.state("sums")
        new.stop()
        return names.values(), state, new.records("new")[-1].stores

    assert Verb(world, act, seen, groups=("g.old", "g.new")).die_everywhere()["commit"] == 3


def test_function_goes_on_with_the_entries_of_the_old_name() -> None:
    """`verify --state` recomputes them from the whole input."""
    names = stored(1)
    names.rename()
    names.send(7, 8)
    new = names.version("new").run()

    assert new.state("sums") == {"all": 36}
    new.stop()
    assert verify(new.graph, names.broker, state=True).ok


def test_changelog_that_does_not_end_where_the_record_says_is_refused() -> None:
    """It has lost messages; the task does not arrive without them."""
    names = stored(1)
    place = TopicPartition("g.old.sums.changelog", 0)
    names.broker.trim({place: names.broker.watermarks([place])[place].high})

    with pytest.raises(RecoveryError, match="has no entries, and the task's record says step 6"):
        names.rename()
    assert "the move of 'new' from the name 'old' is not complete" in names.try_version("new")


def test_added_store_is_refused() -> None:
    """Its task has no mark of it; the stores of a record that has none are empty."""
    names = stored()
    state = {"sums": Store(Json(int)), "more": Store(Json(int))}

    refused(RecoveryError, names, "old/0 has not run with 'more' in state= yet", fn=counted_twice, state=state)


# Databases


def put(n: int, db: Any) -> int:
    """A row and a message."""
    db.execute("INSERT INTO rows (id) VALUES (?)", (n,))
    return n


class Ledger(Names):
    """A processor with a database has run as `old`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with sqlite3.connect(path) as made:
            made.execute("CREATE TABLE rows (id INTEGER)")
        super().__init__(1, fn=put, effects={"db": Sql(f"sqlite:///{path}")})

    def rows(self) -> list[int]:
        """The ids in the database."""
        with sqlite3.connect(self.path) as opened:
            return [row[0] for row in opened.execute("SELECT id FROM rows ORDER BY id")]


@pytest.mark.full
def test_database_stands_under_the_new_name_wherever_the_tool_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row is set before the task arrives, so no start finds a record without a row."""
    numbers, opened = itertools.count(), lookup.open_target

    def world() -> Ledger:
        ledger = Ledger(tmp_path / f"{next(numbers)}.db")
        ledger.send(7, 8)
        return ledger

    def act(ledger: Ledger, broker: Any) -> None:
        if isinstance(broker, Mortal):
            life = broker._life
            monkeypatch.setattr(renamed_rows, "open_target", lambda *given: Mortal(opened(*given), life))
        else:
            monkeypatch.setattr(renamed_rows, "open_target", opened)
            if "has no place on this cluster" not in ledger.inspected():
                ledger.try_version("new")
            ledger.try_version("old")
        ledger.rename(broker)

    def seen(ledger: Ledger) -> Any:
        new = ledger.run(ledger.version("new"))
        return ledger.values(), ledger.rows(), new.records("new")[-1].totals

    effects = Verb(world, act, seen, groups=("g.old", "g.new")).die_everywhere()
    assert (effects["commit"], effects["settle"]) == (3, 1)


def test_tool_that_was_held_up_leaves_the_row_of_a_task_that_has_arrived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run has ended the move, and a worker has delivered: at its former step it would call for those again."""
    ledger = Ledger(tmp_path / "rows.db")
    settle = renamed_rows.RenamedRows.settle

    def late(*given: Any) -> None:
        monkeypatch.setattr(renamed_rows.RenamedRows, "settle", settle)
        for group in ("g.old", "g.new"):
            ledger.broker.expire(group)
        ledger.rename()
        ledger.send(7)
        ledger.run(ledger.version("new"))
        settle(*given)

    monkeypatch.setattr(renamed_rows.RenamedRows, "settle", late)
    with pytest.raises(RecoveryError, match="its target has changed since"):
        ledger.rename()

    ledger.send(8)
    ledger.run(ledger.version("new"))
    assert ledger.rows() == ledger.values() == [*range(1, 9)]


def test_task_that_has_worked_since_the_plan_is_looked_at_again() -> None:
    """A request to replay an error has come since, which only the old name takes."""
    names = Names()
    tool = names.tool()
    planned = tool.plan()
    with Repairs(graph_of("old"), names.broker, clock=names.tester.clock) as repairs:
        repairs.ask("replay")

    with pytest.raises(RecoveryError, match="old/0 has 1 request to replay errors before it"):
        tool.carry_out(planned)
    assert names.try_version("old") == ""


def test_database_that_is_ahead_is_refused(tmp_path: Path) -> None:
    """The old version completes the attempt."""
    ledger = Ledger(tmp_path / "rows.db")
    ledger.send(7, 8)
    graph = graph_of("old", 1, **ledger.settings)
    one = Tester(graph, broker=ledger.broker, policy=CommitPolicy(max_messages=1))
    one.run(crash=Crash("before", "Commit", nth=3))  # behind the snapshot of the first message, and its attempt
    ledger.broker.expire("g.old")

    refused(RecoveryError, ledger, "old/0: its database is 1 step ahead of its newest record. Start .* as 'old'")
    ledger.try_version("old")
    ledger.rename()
    ledger.run(ledger.version("new"))
    assert ledger.rows() == [1, 2, 3, 4, 5, 6, 7, 8]


# Refusals


def refused(kind: type[Exception], names: Names, match: str, **tool: Any) -> None:
    """The tool refuses, and writes nothing."""
    with pytest.raises(kind, match=match):
        names.tool(**tool).plan()
    assert "g.new.backing" not in names.broker.partitions()


def test_names_must_be_those_of_the_declaration() -> None:
    """The old one is gone from it, the new one is there, and the old one has run here."""
    names = Names()

    with pytest.raises(ConfigError, match=r"graph 'g' still declares 'old'. Give the processor its new name"):
        Renaming(graph_of("old"), names.broker, "old", "new", who="x")
    with pytest.raises(ConfigError, match=r"has no processor 'newer'; .* Declare the processor as 'newer' first"):
        Renaming(graph_of("new"), names.broker, "old", "newer", who="x")
    refused(ConfigError, names, "so 'oldest' has no place on this cluster", old="oldest")


def test_name_with_a_place_of_its_own_is_refused() -> None:
    """It would be lost."""
    names = Names()
    names.run(names.version("new"))

    with pytest.raises(
        ConfigError,
        match=r"new/0 has records of its own, which the move .* delete MODULE:GRAPH new",
    ):
        names.tool().plan()


def test_what_cannot_move_is_refused_by_name() -> None:
    """With what to do instead."""
    names = Names()

    refused(ConfigError, names, "'new' is at-least-once: a worker of it has no lock", strategy="at-least-once")
    refused(RecoveryError, names, "written exactly-once, and the graph says at-most-once", strategy="at-most-once")
    refused(RecoveryError, names, "bindings changed: .* While the processor has its old name", inputs="others")


def test_announced_batch_is_refused() -> None:
    """Its delivery hashes hold the old name; the old version delivers it."""
    names = Names()
    names.send(7)
    names.version("old").run(crash=Crash("after", "Commit"))
    names.broker.expire("g.old")

    refused(RecoveryError, names, "old/0 has announced 1 step, whose delivery hashes hold its name. Start .* 'old'")


def test_requests_to_replay_are_taken_first() -> None:
    """They are for the old name."""
    names = Names()
    with Repairs(graph_of("old"), names.broker, clock=names.tester.clock) as repairs:
        repairs.ask("replay")

    refused(RecoveryError, names, "old/0 has 1 request to replay errors before it. Start the processor as 'old'")


def test_running_workers_are_refused() -> None:
    """Of either name."""
    names = Names()
    old = names.version("old").run()

    refused(RecoveryError, names, "group 'g.old' has members .*group_protocol='consumer'.* 45 s by default")
    old.stop()


def test_task_without_a_record_is_refused() -> None:
    """It has no place yet; the input was given another partition."""
    names = Names()
    names.broker.add_partitions("numbers", WIDTH + 1)

    refused(ConfigError, names, "'numbers' has 3 partitions, and 'old' has 2 tasks")
