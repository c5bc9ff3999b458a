"""Replay and drop as the browser view asks for them: what was counted is what is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka import ConfigError, Graph, Json, Processor, Source, Topic
from cues_kafka.cli.view import repairs as verbs_of_the_view
from cues_kafka.cli.view.repairs import KEPT, RepairVerbs
from cues_kafka.operate.repair.ask import Repairs
from cues_kafka.testing.tester import Tester
from cues_kafka.ui.actions import JobOutcome, RunningJob


def check(value: int) -> int:
    """Fails below 0."""
    if value < 0:
        raise ValueError(value)
    return value


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Tester:
    """No task runs while a job waits, so the job does not wait."""
    monkeypatch.setattr(verbs_of_the_view, "WAIT_S", 0.0)
    graph = Graph(
        "shop",
        Source("in"),
        Processor(check, inputs="in", outputs="out", errors="shop.errors"),
        defaults=Topic(value=Json(), partitions=2),
    )
    return Tester(graph)


def fail(tester: Tester, *values: int) -> None:
    """Make error messages."""
    for value in values:
        tester.send("in", value, key="k")
    tester.run()


def job(verbs: RepairVerbs, verb: str, **given: Any) -> JobOutcome:
    """Do it."""
    return verbs.verbs[verb]({"processor": "check", **given}, "ann").run(RunningJob())


@pytest.mark.parametrize("verb", ["replay", "drop"])
@pytest.mark.parametrize("clock_s", [0.0, -3_600.0], ids=["same clock", "clock behind"])
def test_only_what_the_dry_run_has_counted_is_asked_for(shop: Tester, verb: str, clock_s: float) -> None:
    """Whatever the clock of the worker says that fails a message in between."""
    told: list[str] = []
    verbs = RepairVerbs(shop.graph, shop.broker, lambda: told.append("changed"))
    fail(shop, -1, -2)
    dry = job(verbs, verb)
    assert (dry.more["asked"], dry.more["dry"], told) == (2, True, [])
    shop.clock._began_s += clock_s
    fail(shop, -3)

    done = job(verbs, verb, yes=True, counted=dry.more["counted"])

    assert (done.more["asked"], told) == (2, ["changed"])
    with Repairs(shop.graph, shop.broker) as tool:
        assert sorted((one.message.text, one.asked) for one in tool.find()) == [
            ("-1", verb),
            ("-2", verb),
            ("-3", None),
        ]


def test_what_failed_in_a_partition_that_was_empty_was_not_counted(shop: Tester) -> None:
    """The dry run saw nothing there."""
    verbs = RepairVerbs(shop.graph, shop.broker, lambda: None)
    dry = job(verbs, "replay")
    assert dry.more["asked"] == 0
    fail(shop, -1)

    assert job(verbs, "replay", yes=True, counted=dry.more["counted"]).more["asked"] == 0


def test_a_dry_run_that_is_not_known_confirms_nothing(shop: Tester) -> None:
    """Such as one of the process before, or one of long ago."""
    verbs = RepairVerbs(shop.graph, shop.broker, lambda: None)
    old = job(verbs, "replay").more["counted"]
    for _ in range(KEPT):
        job(verbs, "replay")

    for counted in (old, 0, 10_000, -1):
        with pytest.raises(ConfigError, match="Ask again what would happen"):
            job(verbs, "replay", yes=True, counted=counted)
    wrongs: list[Any] = ["1", 1.0, True, []]
    for wrong in wrongs:
        with pytest.raises(ConfigError, match="counted: takes a whole number"):
            job(verbs, "replay", yes=True, counted=wrong)
