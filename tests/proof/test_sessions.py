"""
Joint sessions (J1 to J9) on the production core: near states of their worlds, and mutants with short counterexamples.

`make proof-sessions` looks at more of them, and writes docs/proof/sessions.md.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.proof import current
from tests.proof.model import trace
from tests.proof.model.mutant import applied
from tests.proof.model.states import State
from tests.proof.model.worlds import ONE, TWO
from tests.proof.sessions import __main__ as command
from tests.proof.sessions import tla
from tests.proof.sessions.joint import JointWorld
from tests.proof.sessions.mutants import COVERED, MUTANTS, JointMutant
from tests.proof.sessions.search import JointSearch, healed
from tests.proof.sessions.walks import Step, Walks
from tests.proof.sessions.worlds import WORLDS, with_faults, world_of

NEAREST = 300

QUICK = {
    "a discarded session waits for a task",
    "a driver initialises no ids before its slots",
    "a group that is not served in a recovery, and rounds without end",
    "a session keeps the id of a task that is gone",
    "a task behind failures commits with others",
    "a tool initialises the id of one task",
    "outcomes of a closed producer are taken for written",
    "a blocked recovery does not return to R1",
    "a session goes on after a failure",
    "delivery reports not counted",
    "ids of their own",
    "no throwaway init",
    "the others commit without the task that failed",
}
"""Mutants that are found within a second."""


@pytest.mark.parametrize("name", ["joint", "joint-enters", "joint-former", "joint-least", "joint-target"])
def test_no_near_state_of_a_joint_world_violates_an_invariant(name: str) -> None:
    """The first ones from the start."""
    found = JointSearch(world_of(with_faults(name, ONE)), limit=NEAREST, nearest=NEAREST // 6, turns=True).run()

    assert not found.violated, "\n".join(trace.lines(found.path, found.violated))
    assert found.states > 100


@pytest.mark.full
@pytest.mark.parametrize("name", WORLDS)
def test_no_state_of_a_joint_world_violates_an_invariant(name: str) -> None:
    """The nearest 5,000; progress of the nearest 500."""
    found = JointSearch(world_of(with_faults(name, ONE)), limit=5_000, nearest=500, turns=True).run()

    assert not found.violated, "\n".join(trace.lines(found.path, found.violated))


@pytest.mark.parametrize(
    "mutant", [pytest.param(one, id=one.name, marks=() if one.name in QUICK else pytest.mark.slow) for one in MUTANTS]
)
def test_a_mutant_of_joint_sessions_is_caught(mutant: JointMutant) -> None:
    """A world in which one survives has a hole of its own; that the explorer itself fails is no counterexample."""
    violated = mutant.explore().violated

    assert violated
    assert not any(name in violated for name in ("IndexError", "KeyError", "TypeError"))


def test_names_of_joint_mutants_are_their_own() -> None:
    """The page has one line for each."""
    names = [one.name for one in (*MUTANTS, *(one for one, _ in COVERED))]

    assert len({*names}) == len(names)


@pytest.mark.parametrize("name", ["joint-former", "joint-leaves", "joint-moved"])
def test_what_is_looked_for_first_is_the_first_calm_move(name: str) -> None:
    """Progress is judged without the other moves of a state."""
    world = world_of(with_faults(name, ONE))
    assert isinstance(world, JointWorld)
    search = JointSearch(world, limit=60, progress=False)
    search.run()

    for state in search._parents:
        calm = healed(world, state)
        assert world.calm(calm) == next((after for _, calm, after in world.moves(calm) if calm), None)


def path(world: JointWorld, state: State, *labels: str) -> tuple[State, list[str]]:
    """Moves that are named, in this order, and then what is calm; and what moved behind the named ones."""
    for label in labels:
        state = next(after for (who, what), _, after in world.moves(state) if label in f"{who} {what}")
    said = []
    while not world.done(state):
        (who, what), _, state = next(move for move in world.moves(state) if move[1])
        said.append(f"{who} {what}")
    return state, said


def test_a_driver_ends_what_a_worker_left_open_before_its_slots_begin() -> None:
    """J8: the transaction under the id of task 1 has offsets of task 0."""
    world = world_of(with_faults("joint-enters", ONE))
    assert isinstance(world, JointWorld)

    _, said = path(world, world.first(), "w0/p0 polls", "offsets under id1: {0", "operator stops the workers")

    assert "w0 hears that it was stopped, and ends" in said
    ended, entered = "driver init of id1: the open transaction is aborted", "driver has entered its slots"
    assert said.index(ended) < said.index(entered)
    slots = [one for one in said[said.index(entered) :] if one.startswith("w1")]
    assert not any("not stable" in one for one in slots)
    assert {"w1/p0 commit under id0: done", "w1/p1 commit under id1: done"} <= {*slots}


def test_a_worker_ends_what_a_slot_left_open() -> None:
    """J8: the worker initialises the ids of all of its tasks."""
    world = world_of(with_faults("joint-leaves", ONE))
    assert isinstance(world, JointWorld)
    state, slot = world.first(), re.compile(r"w1/p1 offsets under id1")
    while not any(slot.match(" ".join(label)) for label, _, _ in world.moves(state)):
        calm = [(label, after) for label, calm, after in world.moves(state) if calm and label[0] != "w1/p0"]
        state = calm[0][1]

    _, said = path(world, state, "w1/p1 offsets under id1", "operator stops Spark")

    assert any(re.fullmatch(r"w0/p\d (throwaway )?init of id1: the open transaction is aborted", one) for one in said)


@pytest.mark.parametrize("name", ["joint", "joint-slot"])
def test_random_walks_of_a_joint_world_violate_no_invariant(name: str) -> None:
    """They go deeper than the nearest states."""
    found = Walks(world_of(with_faults(name, TWO))).run_all(range(12))

    assert not found.violated, "\n".join(trace.lines(found.path, found.violated))
    assert found.depth > 40


def test_a_random_walk_finds_a_mutant_and_its_path_is_shortened() -> None:
    """Every move that is left is needed."""
    [mutant] = [one for one in MUTANTS if one.name == "the others commit without the task that failed"]
    with applied(*mutant.patches):
        walks = Walks(world_of(with_faults(mutant.world, mutant.faults)), progress=False)
        found = walks.run_all(range(100))
        steps = [Step(move.who, move.what, move.number) for move in found.path]
        again = walks.verdict(steps)
        without = [walks.verdict([*steps[:at], *steps[at + 1 :]]) for at in range(len(steps))]

    assert found.violated.startswith("I2")
    assert again == found.violated
    assert found.violated not in without


def test_results_are_kept_and_not_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A result of another code is kept with a mark, and made again when it is asked for."""
    arguments = ["--world", "joint-other", "--states", "40", "--judged", "5", "--write", str(tmp_path)]
    assert command.main(arguments) == 0
    assert command.main(arguments) == 0
    assert capsys.readouterr().out.count("is there already, from the same code") == 1

    file = tmp_path / command.FILE
    kept = json.loads(file.read_text(encoding="utf-8"))
    found = current.joint_worlds(tmp_path)
    kept["worlds"]["joint-other, 1"]["digest"] = "of before"
    kept["worlds"]["gone, 1"] = kept["worlds"]["joint-other, 1"] | {"world": "gone"}
    file.write_text(json.dumps(kept), encoding="utf-8")

    assert (found.current, found.recorded, found.wanted) == (1, 1, 2 * len(WORLDS))
    assert current.joint_worlds(tmp_path).current == 0
    assert command.main(["--world", "joint-alone", *arguments[2:]]) == 0
    assert "| joint-other * | 1 |" in (tmp_path / command.PAGE).read_text(encoding="utf-8")
    assert command.main(arguments) == 0
    assert {*json.loads(file.read_text(encoding="utf-8"))["worlds"]} == {"joint-alone, 1", "joint-other, 1"}
    assert "| joint-other | 1 |" in (tmp_path / command.PAGE).read_text(encoding="utf-8")


def test_every_rule_of_the_joint_module_is_switched_off() -> None:
    """A rule that the module does not know would switch nothing off."""
    rules = set(re.findall(r'Rule\("([^"]+)"\)', tla.MODULE.read_text(encoding="utf-8")))

    assert {rule for check in (*tla.MUTANTS, *tla.COVERED) for rule in check.without} == rules


def test_the_committed_configuration_of_the_joint_module_is_the_first_check() -> None:
    """A reader who runs TLC by hand gets the same states."""
    text = tla.MODULE.with_suffix(".cfg").read_text(encoding="utf-8")

    assert tla.PROTOCOL[0].configuration(text).replace("PROPERTIES Progress", "") == text.replace(
        "PROPERTIES Progress", ""
    )


def test_the_page_of_the_joint_module_names_what_was_not_run() -> None:
    """A check that was stopped must not look like one that held."""
    check = tla.MUTANTS[0]
    one = {"subject": check.subject, "distinct": 1234, "violated": "I2", "steps": 19, "version": "Version 2"}

    text = tla.page({check.name: one, tla.MUTANTS[1].name: one})

    assert f"| {check.name} | 1 | 1 | 1,234 | I2 | 19 | {check.why} |" in text
    assert f"| {tla.MUTANTS[1].name} | 1 | 1 | not run | | | {tla.MUTANTS[1].why} |" in text
