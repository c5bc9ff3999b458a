"""The production core in all states of small worlds, and the mutants that show that the search would see a hole."""

from __future__ import annotations

import ast
import inspect
import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core import machine as core
from cues_kafka.core.states import transitions as go
from cues_kafka.core.task import Doing, Task
from tests.proof import model as explorer
from tests.proof.model import trace
from tests.proof.model.__main__ import main
from tests.proof.model.bridge_mutants import BRIDGES
from tests.proof.model.migrating_mutants import MIGRATIONS
from tests.proof.model.mutant import CRASH, NET, NET_AND_MOVE, Mutant, applied
from tests.proof.model.mutants import COVERED, MUTANTS
from tests.proof.model.search import Found, Search
from tests.proof.model.shell_mutants import HANDLERS, TABLES
from tests.proof.model.states import NO_FAULTS, State
from tests.proof.model.tables import Looked
from tests.proof.model.world import World
from tests.proof.model.worlds import ONE, TWO, WORLDS, with_faults, world_of
from tests.proof.subjects import BRIDGE, BRIDGING, DRIVERS, PACKAGE, SHELL

PROOF = Path(__file__).parents[2] / "docs" / "proof"

NEAREST = 300
"""How many states of each world `make test` looks at."""

FEW = 10
"""From how many states on a test follows all moves."""

STATES = dict.fromkeys(WORLDS, 6_000) | {
    "alone": 20_000,
    "outbox-retry": 20_000,
    "feed": 80_000,
    "feed-queue-ahead": 10_000,
    "feed-queue-batch": 15_000,
    "handler-alone": 10_000,
    "pipe": 60_000,
    "stop": 30_000,
    "table-whole": 10_000,
    "join": 25_000,
}
"""By world: how many `make test-full` looks at. These have fewer, but for `stop`, and are searched completely."""

WHOLE = {name for name, limit in STATES.items() if limit > 6_000} - {"stop"}

DEEP = {
    "parts of a queue without selectors",
    "another number of parts",
    "step numbers begin again with a move",
    "totals begin again with a move",
    "alone until a failure only",
    "deaths of a range count on the message that compaction left",
    "a stale end of a changelog is believed",
    "with a target the first batch of a start has no snapshot",
    "the target's row is not locked",
    "what is called ahead does not hold the row",
    "in careful mode the next step sees what came since",
    "a record of another strategy is believed",
    "an older record is taken for the newest",
    "what was called is given back",
    "a record lands anywhere",
    "a placeholder in the first partition only",
    "a task that has left goes on",
    "a failed commit of the last record is believed",
    "a worker goes on with fewer inputs than its record has",
    "a migration forgets an announced batch",
    "a migration forgets a recorded choice",
    "an added input begins again in each run",
    "a worker that has lost an input goes on without the command",
    "a target's row does not say where tailers stand",
    "what a target is ahead with is committed without the places of tailers",
    "a target's row forgets a step that was put off",
    "a replay among announced steps",
    "a tailer begins at the beginning again",
    "no generation check",
    "a strategy changes by the record alone",
    "a task revoked in a recovery leaves its outcomes",
    "a task revoked in doubt forgets what it took",
    "the next part does not compare the row",
    "a target that is an attempt ahead is asked without a fence",
    "revocation acknowledged early",
    "what a retry puts off is forgotten",
    "a tailer goes on where it stood",
    "a move keeps the announced batch",
}
"""Mutants whose counterexamples take a search of more than 1.4 s: `make test-full` looks for them."""


def explored(limits: dict[str, int]) -> dict[str, Found]:
    """
    Worlds, with one fault of any kind at any moment; from every state the healed world delivers everything.

    Args:
        limits: how many states of which worlds.
    """
    found = {name: Search(world_of(with_faults(name, ONE)), limit=limit).run() for name, limit in limits.items()}
    violated = [line for one in found.values() if one.violated for line in trace.lines(one.path, one.violated)]
    assert not violated, "\n".join(violated)
    return found


@pytest.mark.parametrize("name", WORLDS)
def test_no_near_state_of_a_world_violates_an_invariant(name: str) -> None:
    """The first ones from the start, in each world."""
    assert explored({name: NEAREST})[name].states > 100


@pytest.mark.full
@pytest.mark.parametrize("name", WORLDS)
def test_none_of_the_states_of_a_world_violates_an_invariant(name: str) -> None:
    """6,000 and more of each; of the pipe, the join, the feed, the worker alone and others all."""
    found = explored({name: STATES[name]})[name]

    assert found.complete or found.states >= STATES[name]
    assert found.complete or name not in WHOLE


@pytest.mark.parametrize("name", WORLDS)
def test_progress_does_not_depend_on_the_faults_that_are_left(name: str) -> None:
    """So the search judges it once for all of them, and asks for the first calm move only."""
    world = world_of(with_faults(name, TWO))
    states = [world.first()]
    for number in range(FEW):
        states += dict.fromkeys(after for _, _, after in world.moves(states[number]) if after not in states)
    following: State | None = states[-1]
    while following is not None and not world.done(following):
        states.append(following)
        following = next((after for _, calm, after in world.moves(following) if calm), None)
    for state in states:
        calm = next((world.healed(after) for _, is_calm, after in world.moves(state) if is_calm), None)
        healed = world.healed(state)

        assert world.calm(healed) == calm
        assert world.done(healed) == world.done(state)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_faults_of_a_worker_alone_leave_nothing_wrong() -> None:
    """All states."""
    found = Search(World(with_faults("alone", TWO))).run()

    assert found.complete
    assert not found.violated, "\n".join(trace.lines(found.path, found.violated))


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(one, id=one.name, marks=pytest.mark.full if one.name in DEEP else ()) for one in MUTANTS],
)
def test_a_mutant_is_caught(mutant: Mutant) -> None:
    """A world in which one survives has a hole of its own; that the explorer itself fails is no counterexample."""
    violated = mutant.explore().violated

    assert violated
    assert not any(name in violated for name in ("IndexError", "KeyError", "TypeError"))


def test_a_task_that_an_outage_stopped_says_left_when_it_is_revoked(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Q1: a revocation is no death. It once was one, in 34 steps; with five rounds it takes five more failures.

    The snapshot is committed, its reply is lost, the rounds are used up, the task stops. Then a rebalance revokes it,
    with the cluster well again: it must go to R1 once more, only to say that it left.
    """
    monkeypatch.setattr(go, "MAX_ROUNDS", 0)
    found = Search(World(with_faults("pipe", NET_AND_MOVE))).run()

    assert not found.violated, "\n".join(trace.lines(found.path, found.violated))


def test_a_retry_may_see_a_newer_table_than_the_call_before() -> None:
    """What a table showed is no part of the promise: the world has a call that saw 2 messages, and commits one of 3."""
    world = world_of(with_faults("table-whole", CRASH))
    states, step = reached(world, [world.first()]), ((0, 0),)

    def committed(state: State) -> set[str]:
        return {outcome.kind for outcome in world.part(state, 0).outputs if outcome.step == step}

    called = [
        state
        for state in states
        for lane in world.worker(state, 0).lanes
        if lane is not None and lane.carried[:1] == ((step, "f"),) and lane.own == Looked(2, 2)
    ]
    assert called
    assert set().union(*map(committed, reached(world, called))) == {"f2", "f3"}


def test_a_guard_by_step_number_does_not_hold_behind_a_migration() -> None:
    """
    What is called without a snapshot leaves no record, and behind the move another input may take its step number.

    `step.hash` names the message, so a guard by the hash holds. The task had one input, so there was no choice to keep.
    """
    setting = replace(with_faults("migrated", NO_FAULTS), inputs=("oo", "o"), batch=1, effects=True)
    found = Search(world_of(setting), progress=False).run()

    assert found.violated.startswith("I7, E1")
    assert any("runs the tool" in move.what for move in found.path)


def reached(world: World, begin: Iterable[State]) -> set[State]:
    """All states behind these."""
    found, left = set(begin), list(begin)
    while left:
        following = {after for _, _, after in world.moves(left.pop())} - found
        found |= following
        left += following
    return found


def test_mutants_have_names_of_their_own_and_leave_nothing_behind() -> None:
    """What they replaced is back in its place."""
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 40
    assert {mutant.name for mutant in MUTANTS} >= DEEP
    patches = [patch for mutant in MUTANTS + tuple(m for m, _ in COVERED) for patch in mutant.patches]
    before = [getattr(owner, name) for owner, name, _ in patches]
    with applied(*patches):
        pass

    assert [getattr(owner, name) for owner, name, _ in patches] == before


def test_the_explorer_fails_without_the_rule_on_suspect_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """P8, deleted from the production table; KAFKA-17754 is what it is there for."""
    committed, following = core.TRANSITIONS[Doing.COMMITTING][on.Committed]

    def trusting(task: Task, event: Any) -> tuple[Task, do.Effect]:
        return committed(task, replace(event, suspect=None))

    monkeypatch.setitem(core.TRANSITIONS[Doing.COMMITTING], on.Committed, (trusting, following))
    found = Search(World(with_faults("alone", NET))).run()

    assert found.violated
    assert any("the first will come late" in move.what for move in found.path)


def test_a_broken_core_is_a_counterexample_and_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that the table does not list."""
    row = dict(core.TRANSITIONS[Doing.FLUSHING])
    del row[on.Flushed]
    monkeypatch.setitem(core.TRANSITIONS, Doing.FLUSHING, row)
    found = Search(World(with_faults("alone", NO_FAULTS))).run()

    assert "Flushed cannot happen" in found.violated


def test_a_counterexample_is_followed_again_from_its_file(tmp_path: Path) -> None:
    """With the mutant it ends as before; without it the path does not exist, or nothing is wrong at its end."""
    [mutant] = [mutant for mutant in MUTANTS if mutant.name == "delivery reports not counted"]
    setting = with_faults(mutant.world, mutant.faults)
    found = mutant.explore()
    trace.save(tmp_path / "found.json", setting, found, mutant.name)
    loaded, name, path = trace.load(tmp_path / "found.json")

    assert (loaded, name, tuple(path)) == (setting, mutant.name, found.path)
    with applied(*mutant.patches):
        assert trace.follow(loaded, path) == found.violated
    with pytest.raises(trace.Differs, match="cannot happen any more"):
        trace.follow(loaded, path)


def test_a_search_gives_the_same_twice() -> None:
    """Order of states and moves is fixed, so a counterexample is the same on every machine."""
    first, second = (Search(World(with_faults("join", ONE)), limit=5_000).run() for _ in range(2))

    assert (first.states, first.transitions, first.depth) == (second.states, second.transitions, second.depth)


def test_results_are_written_once_for_the_same_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make proof-model` goes on where it was stopped. The log of a process that only calls `main` stays as it is."""
    command = ["--world", "alone", "--write", str(tmp_path)]
    monkeypatch.setattr(logging.getLogger("cues_kafka"), "level", logging.INFO)

    assert main(command) == 0
    assert logging.getLogger("cues_kafka").level == logging.INFO
    [file] = tmp_path.iterdir()
    result = json.loads(file.read_text())
    assert result["complete"]
    assert result["states"] > 1_000
    assert main(command) == 0
    assert "is there already" in capsys.readouterr().out


RUN_THE_SHELL = {*DRIVERS, *BRIDGING, "bridge_mutants.py", "shell_mutants.py", "migrating_mutants.py"}
"""Files of the explorer that run code of the shell."""


def imported(files: Iterable[Path]) -> Iterator[str]:
    """Names of all modules that these files import."""
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                yield node.module
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)


def test_the_explorer_imports_the_core_and_of_the_shell_what_it_runs() -> None:
    """What is checked is what runs, and nothing that stands in its place."""
    files = set(Path(explorer.__path__[0]).glob("*.py"))
    drivers = {file for file in files if file.name in RUN_THE_SHELL}
    names = set(imported(files - drivers))

    assert {"cues_kafka.core.task", "cues_kafka.core"} <= names
    allowed = ("cues_kafka.core", "cues_kafka.ports", "tests.proof.model")
    assert all(name.startswith(allowed) for name in names if name.startswith("cues_kafka"))
    run = {
        "cues_kafka.task.parts.handlers.Handling",
        "cues_kafka.task.following.Tables",
        "cues_kafka.state.handlers",
    }
    run |= {"cues_kafka.bridges.acked.Acked"}
    assert run <= set(imported(drivers))


def test_the_digest_of_the_shell_covers_what_its_mutants_change() -> None:
    """A result of a world that runs the shell holds for as long as that code stays as it is."""
    mutants = [*HANDLERS, *TABLES, *MIGRATIONS, *BRIDGES]
    changed = {Path(inspect.getfile(owner)) for mutant in mutants for owner, _, _ in mutant.patches}
    changed -= {*(PACKAGE / "core").rglob("*.py")}
    assert {file for file in changed if file.is_relative_to(PACKAGE)} <= {PACKAGE / name for name in (*SHELL, *BRIDGE)}
