"""What all tasks of a process share is one line a minute, with a count."""

from __future__ import annotations

import logging

import pytest

from cues_kafka.observe.log import get_logger
from cues_kafka.observe.together import EVERY_S, Together
from cues_kafka.task.clock import SystemClock
from cues_kafka.task.task_log import TaskLog


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """All lines of tasks."""
    caplog.set_level(logging.INFO, "cues_kafka.task")
    return caplog


def test_tasks_that_fail_in_the_same_words_are_counted(said: pytest.LogCaptureFixture) -> None:
    """A slow broker beside 256 tasks; the number in the text is each task's own."""
    now = [0.0]
    together, log = Together(most=3, now=lambda: now[0]), get_logger("cues_kafka.task")
    for task in range(256):
        together.warning(log, "failed", cause=f"no answer for g.f.{task}", task=f"f/{task}")
    together.warning(log, "failed", cause="no answer for g.f.0", task="f/0")
    assert len(said.records) == 4, "three tasks, with all that they say"
    together.warning(log, "failed", cause="no right to read", task="f/0")
    assert len(said.records) == 5, "another cause"
    now[0] = EVERY_S
    together.warning(log, "failed", cause="no answer for g.f.1", task="f/1")
    assert "more=253 in_s=60" in said.messages[-1]


def test_a_rebalance_is_normal_work_and_what_fails_otherwise_is_not(said: pytest.LogCaptureFixture) -> None:
    """A task that moves recovers at once. What fails twice, or for another reason, is for an operator."""
    log = TaskLog("quiet/0", SystemClock())
    log.failed("quiet/0", "sending offsets: the group has rebalanced since [ILLEGAL_GENERATION]", 1)
    log.failed("quiet/0", "sending offsets: the group has rebalanced since [ILLEGAL_GENERATION]", 2)
    log.failed("quiet/0", "calling: the database is gone", 1)
    assert [one.levelno for one in said.records] == [logging.INFO, logging.WARNING, logging.WARNING]
