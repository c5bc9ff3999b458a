"""Seeds of the simulation, all of which must pass; and what a run promises: that it can be had again."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from cues_kafka.workers.joint.session import JointSession
from cues_kafka.workers.joint.share import Share
from tests.proof.simulation.__main__ import Book, main, run_seeds
from tests.proof.simulation.options import DEEDS, JOINT, MIXED, STRATEGIES, Options
from tests.proof.simulation.run import Simulation
from tests.proof.simulation.shrink import attempt, silence

KINDS = {"kill", "pause", "refuse", "lose", "late", "suspect", "stale", "move", "compact", "forget", "ahead"}
ALL_KINDS = KINDS | set(DEEDS)
NO_PATIENCE = JOINT + 262
"""A task is revoked without any time left, while others of its session go on: that ends, too."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param((*range(20), *range(MIXED, MIXED + 10)), id="30"),
        pytest.param((*range(20, 800), *range(MIXED + 10, MIXED + 220)), id="1000", marks=pytest.mark.full),
    ],
)
def test_seeds_keep_every_promise(seeds: Sequence[int]) -> None:
    """Each has two hundred deliveries or so; together they have met every kind of fault, processor and runner."""
    book, kinds, called_ahead = Book(), Counter[str](), 0
    for result in run_seeds(seeds, jobs=os.cpu_count() or 1):
        assert not result.failure, f"{result.failure}\n{result.options}\n{result.options.command()}"
        assert result.deliveries >= (50 if result.options.mixed else 200)  # what is dropped leads to nothing
        book.add(result)
        kinds.update(part.kind for part in result.options.parts)
        kinds.update(part.strategy for part in result.options.parts)
        kinds["slots"] += result.options.slots
        called_ahead += result.called_ahead
    assert called_ahead >= 5 * len(seeds), "P7 is hardly looked at"
    assert book.as_dict()["faults"].keys() == ALL_KINDS
    assert min(kinds[kind] for kind in ("pipe", "sink", "fork", "join", "alts", "slots")) > len(seeds) / 20, kinds
    assert min(kinds[strategy] for strategy in STRATEGIES) > len(seeds) / 20, kinds


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param((*range(JOINT, JOINT + 8), NO_PATIENCE), id="9"),
        pytest.param(range(JOINT + 8, JOINT + 400), id="400", marks=pytest.mark.full),
    ],
)
def test_seeds_with_joint_sessions_keep_every_promise(seeds: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """J1 to J9; several tasks are in many of their transactions."""
    together = Counter[bool]()
    commit = JointSession._commit

    def counted(session: JointSession, client: Any, shares: list[Share]) -> None:
        together[len(shares) > 1] += 1
        commit(session, client, shares)

    monkeypatch.setattr(JointSession, "_commit", counted)
    for seed in seeds:
        result = attempt(Options.of_seed(seed))
        assert not result.failure, f"{result.failure}\n{result.options}\n{result.options.command()}"
    assert together[True] > sum(together.values()) / 10


@pytest.mark.parametrize("seed", [3, 7, MIXED, JOINT])
def test_the_same_seed_gives_the_same_run(seed: int) -> None:
    """Faults, order and every committed byte."""
    first, again = attempt(Options.of_seed(seed)), attempt(Options.of_seed(seed))
    assert first.faults
    assert first == again


def test_another_schedule_gives_another_run() -> None:
    """Else the test above would say nothing."""
    options = Options.of_seed(3)
    assert attempt(options).digest != attempt(options.replace(schedule=1)).digest


def test_a_fault_that_is_left_out_changes_nothing_before_it() -> None:
    """So that shrinking keeps the failure in sight."""
    options = Options.of_seed(3)
    faults = attempt(options).faults
    half = len(faults) // 2
    assert attempt(options.replace(most=half)).faults == faults[:half]
    skipped = int(faults[half].partition(":")[0])
    assert attempt(options.replace(skipped=(skipped,))).faults[:half] == faults[:half]


def test_changes_are_written_as_json_and_read_back() -> None:
    """`command` replays exactly these options."""
    options = Options.of_seed(5)
    changed = options.replace(messages=3, skipped=(1, 2), parts=(options.parts[0],))
    assert Options.of_seed(5, changed.changes()) == changed
    assert options.changes() == {}


def test_without_faults_everything_is_delivered_before_the_healing() -> None:
    """The schedule itself does the work, so that faults find something to disturb."""
    options = Options.of_seed(3).replace(
        **dict.fromkeys(KINDS, 0),
        partitions=1,
        workers=1,
        messages=50,
        steps=1_000,
        poison=0,
        max_messages=1_000,
        slots=False,
    )
    simulation = Simulation(options)
    with silence():
        simulation.run()
    assert simulation.at_healing > 40


def test_a_call_that_comes_late_is_no_other_order() -> None:
    """I7: its result is thrown away; the next owner has delivered that message, and more. Found by seed 81648."""
    part = {"name": "p0", "kind": "alts", "inputs": ["s0", "s1"], "outputs": ["p0a"], "effects": True, "nil": 40}
    changes = {"parts": [part | {"batch": False, "fails": 0, "retries": 0, "rekeys": False}], "most": 77}
    result = attempt(Options.of_seed(81648, changes | {"ahead": 0, "skipped": [73, 74, 75, 76, 77]}))
    assert result.failure == ""


def test_one_seed_prints_its_options_and_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    """What a developer needs to look at a failure."""
    assert main(["--seed", "3"]) == 0
    printed = capsys.readouterr().out
    assert "max_messages" in printed
    assert "part " in printed
    assert "python -m tests.proof.simulation --seed 3" in printed
