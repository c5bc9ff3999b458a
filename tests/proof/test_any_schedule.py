"""Any crash schedule commits the same outputs as no crash: hypothesis chooses when what dies, and makes it small."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cues_kafka import Graph, Json, Topic
from cues_kafka.testing.tester import Crash, Tester
from tests.unit.task.test_crashes import GRAPH, NAMES, POLICY, check_records, feed, world

CRASHES = st.builds(
    Crash, moment=st.sampled_from(["before", "after"]), effect=st.sampled_from(NAMES), nth=st.integers(1, 40)
)


def patient(graph: Graph) -> Graph:
    """Without quarantine: a schedule that dies often enough on one message would rightly make it an error."""
    parts = [processor.replace(quarantine_after=None) for processor in graph.processors.values()]
    sources = graph.sources.values()
    return Graph(graph.name, *sources, *parts, errors="failed", defaults=Topic(value=Json(), partitions=2))


@functools.cache
def undisturbed() -> dict[Any, Any]:
    """The world without a crash."""
    tester = Tester(patient(GRAPH), policy=POLICY)
    feed(tester)
    tester.run()
    return world(tester)


SCHEDULES = st.lists(CRASHES, max_size=6)


@settings(max_examples=30, deadline=None)
@given(SCHEDULES)
def test_any_crash_schedule_commits_the_same_as_no_crash(schedule: list[Crash]) -> None:
    """One process after the other dies where the schedule says so; the last one is left alone."""
    commits_the_same(schedule)


@pytest.mark.full
@settings(max_examples=200, deadline=None)
@given(SCHEDULES)
def test_any_of_many_crash_schedules_commits_the_same_as_no_crash(schedule: list[Crash]) -> None:
    """Each run of the longer tests draws others."""
    commits_the_same(schedule)


def commits_the_same(schedule: list[Crash]) -> None:
    """Run a schedule, and compare what is committed with the undisturbed world."""
    tester = Tester(patient(GRAPH), policy=POLICY)
    feed(tester)
    for crash in schedule:
        tester.restart().run(crash=crash)
    tester.restart().run()
    assert world(tester) == undisturbed()
    check_records(tester)
