"""Jobs of the view: one at a time, whatever becomes of its page, and what it came to."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from cues_kafka.errors import BrokerError, ConfigError
from cues_kafka.ui.actions import (
    READ_ONLY,
    Actions,
    Busy,
    Forbidden,
    JobOutcome,
    JobWork,
    RunningJob,
    SeenJob,
    flag_of,
    last_words,
    number_of,
    only,
    text_of,
)

SOON_S = 10.0


class Gate:
    """A verb that runs until it is let go, or is told to end."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self.was_ended = False

    def verb(self, given: Mapping[str, Any], who: str) -> JobWork:
        """The verb."""
        only(given, "n")
        return JobWork(f"gate of {who}", self.run)

    def run(self, job: RunningJob) -> JobOutcome:
        """Its work."""
        job.step("waiting", cuts=False)(3, 10)
        self.begun.set()
        assert self.go.wait(SOON_S)
        self.was_ended = job.ended.is_set()
        return JobOutcome(["done `MODULE:GRAPH`"], more={"asked": 3})


def fails(error: Exception) -> JobWork:
    """A work that fails."""

    def run(_: RunningJob) -> JobOutcome:
        raise error

    return JobWork("fails", run)


@pytest.fixture
def gate() -> Gate:
    """A verb that waits."""
    return Gate()


@pytest.fixture
def actions(gate: Gate) -> Iterator[Actions]:
    """What does it."""
    found = Actions(
        {
            "gate": gate.verb,
            "refused": lambda _, who: fails(BrokerError(f"no broker answers {who}; see MODULE:GRAPH")),
            "defect": lambda _, who: fails(KeyError(who)),
        },
        text=lambda line: line.replace("MODULE:GRAPH", "shop:graph"),
    )
    yield found
    gate.go.set()
    found.close()


def ended(actions: Actions) -> None:
    """Wait for the end of the job."""
    thread = actions._thread
    assert thread is not None
    thread.join(SOON_S)
    assert not thread.is_alive()


def test_a_job_tells_how_far_it_is_and_what_it_came_to(actions: Actions, gate: Gate) -> None:
    """In the words of the command, with the name of the graph."""
    assert actions.newest().state == "none"
    begun = actions.begin("gate", {"n": 1}, "ann")
    assert gate.begun.wait(SOON_S)

    now = actions.newest()
    assert (begun.number, now.state, now.what, now.who) == (1, "running", "gate of ann", "ann")
    assert (now.step, now.done, now.total) == ("waiting", 3, 10)
    gate.go.set()
    ended(actions)
    last = actions.newest()
    assert (last.number, last.state, last.lines, last.more) == (1, "done", ["done `shop:graph`"], {"asked": 3})


def test_a_second_job_is_refused_while_one_runs(actions: Actions, gate: Gate) -> None:
    """With what runs, and for whom; afterwards it is taken."""
    actions.begin("gate", {}, "ann")

    with pytest.raises(Busy, match="gate of ann still runs, for ann"):
        actions.begin("gate", {}, "bob")
    gate.go.set()
    ended(actions)
    assert actions.begin("gate", {}, "bob").number == 2


def test_the_end_of_a_wait_is_for_the_job_that_its_page_has_seen(actions: Actions, gate: Gate) -> None:
    """A page may not know yet that another one has begun a job since."""
    gate.go.set()
    first = actions.begin("gate", {}, "ann")
    ended(actions)
    gate.go.clear()
    second = actions.begin("gate", {}, "bob")

    actions.end_wait("ann", first.number)
    assert not actions._job.ended.is_set()
    actions.end_wait("ann", second.number)
    assert actions._job.ended.is_set()


def test_an_error_of_ours_keeps_its_remedy_and_a_defect_its_name(actions: Actions) -> None:
    """Both end the job, not the view."""
    actions.begin("refused", {}, "ann")
    ended(actions)
    assert (actions.newest().state, actions.newest().why) == ("failed", "no broker answers ann; see shop:graph")

    actions.begin("defect", {}, "ann")
    ended(actions)
    assert (actions.newest().state, actions.newest().why) == ("failed", "KeyError: 'ann'")


def test_the_end_of_the_view_waits_for_the_job_and_takes_no_other(actions: Actions, gate: Gate) -> None:
    """The job learns of it, so that it waits for nothing more itself."""
    actions.begin("gate", {}, "ann")
    closing = threading.Thread(target=actions.close)
    closing.start()
    assert actions._job.ended.wait(SOON_S)
    assert closing.is_alive()
    gate.go.set()
    closing.join(SOON_S)

    assert not closing.is_alive()
    assert gate.was_ended
    assert actions.newest().state == "done"
    with pytest.raises(Busy, match="ends"):
        actions.begin("gate", {}, "bob")


def test_the_end_of_the_view_does_not_wait_long_for_a_job_that_hangs(actions: Actions, gate: Gate) -> None:
    """It says how far the job was, and what to do; a second end waits for nothing."""
    actions.begin("gate", {}, "ann")
    assert gate.begun.wait(SOON_S)
    [said] = last_words(actions.close(0.01))
    assert actions.close(SOON_S * 10) is not None

    assert said.startswith("gate of ann was cut off in this step: waiting, 3 of 10 done. What it has asked for stays")
    assert actions._thread is not None
    assert actions._thread.daemon, "it does not keep the process"


def test_the_end_of_the_view_says_what_its_job_came_to(actions: Actions, gate: Gate) -> None:
    """If one ran: the lines of the command, or why it failed."""
    gate.go.set()
    actions.begin("gate", {}, "ann")
    ended(actions)
    assert last_words(actions.close()) == [], "it had ended before"
    done = SeenJob(1, "pause of check", "ann", "done", lines=["check paused"])
    failed = SeenJob(1, "replay of check", "ann", "failed", why="no broker answers")
    assert last_words(done) == ["pause of check is done:", "check paused"]
    assert last_words(failed) == ["replay of check is not done:", "no broker answers"]


def test_a_step_that_hears_of_the_end_only_by_its_progress_is_cut(actions: Actions) -> None:
    """A long reading does not hold the view."""
    job = RunningJob()
    cut, waits = job.step("reading"), job.step("settling", cuts=False)
    cut(1, 2)
    job.ended.set()

    waits(2, 2)
    with pytest.raises(Exception, match="ended while reading"):
        cut(2, 2)


def test_a_view_that_is_read_only_begins_nothing(gate: Gate) -> None:
    """Nor does it end a wait."""
    actions = Actions({"gate": gate.verb}, refusal=READ_ONLY)

    with pytest.raises(Forbidden, match="--allow-changes"):
        actions.begin("gate", {}, "ann")
    with pytest.raises(Forbidden, match="--allow-changes"):
        actions.end_wait("ann")
    assert actions.newest().state == "none"
    assert not gate.begun.is_set()


def test_what_a_verb_does_not_understand_begins_nothing(actions: Actions) -> None:
    """And is named."""
    with pytest.raises(ConfigError, match=r"'m' is not known here\. Known: n"):
        actions.begin("gate", {"m": 1}, "ann")
    assert actions.newest().state == "none"


def test_what_pages_send_is_of_the_kind_that_verbs_take() -> None:
    """A text, or true or false."""
    assert (text_of({}, "a"), text_of({"a": "x"}, "a")) == (None, "x")
    assert (flag_of({}, "a"), flag_of({"a": True}, "a")) == (False, True)
    texts: list[Any] = [1, [], {}, True]
    flags: list[Any] = [1, "true", None]
    assert (number_of({}, "a"), number_of({"a": 0}, "a")) == (None, 0)
    others: list[Any] = ["1", 1.0, True, []]
    for value in others:
        with pytest.raises(ConfigError, match="a: takes a whole number"):
            number_of({"a": value}, "a")
    for value in texts:
        with pytest.raises(ConfigError, match="a: takes a text"):
            text_of({"a": value}, "a")
    for value in flags:
        with pytest.raises(ConfigError, match="a: takes true or false"):
            flag_of({"a": value}, "a")
