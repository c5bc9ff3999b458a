"""
An operator with the page alone, before a graph that runs on a real broker, whose worker is killed.

The first test prints when each finding was made; docs/ui.md has the times.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cues_kafka.testing.fixtures import KafkaFixture
from tests.browser.devtools import Browser, Page
from tests.browser.live import Live, choose, confirm, ended, message, row
from tests.browser.shown import view
from tests.fault.support import committed, until

pytestmark = [pytest.mark.full, pytest.mark.fault, pytest.mark.timeout(400)]

GOES_ON = ("working", "idle")
CAUSE = "check, ValueError, raised"


def test_a_stopped_task_and_an_error_message_are_found_and_repaired_by_the_page_alone(
    browser: Browser, kafka: KafkaFixture, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their causes are read; behind the fix, the page replays the error message, and shows that it has arrived."""
    with Live(kafka, tmp_path) as live, browser.page() as page:
        worker = live.worker()
        live.send(1, -1, 13, 2)
        worker.expect("the box 13 is missing")
        until(lambda: committed(kafka.bootstrap, f"{live.name}.errors"), "the error message is there")
        live.open(page)
        _finds_the_stopped_task(live, page)
        _finds_the_error_message(live, page)
        worker.kill()
        live.deploy(fixed=True)
        live.worker()
        view(page, "tasks")
        row(page, "pack/0", *GOES_ON)
        live.found("the fix is deployed, and the task is seen to go on")
        _replays_the_error_message(live, page)
        assert page.told == []
    with capsys.disabled():
        print("", *(f"{seconds:5.1f} s  {what}" for what, seconds in live.times), sep="\n")


def _finds_the_stopped_task(live: Live, page: Page) -> None:
    page.until("document.querySelector('#unwell').innerText.includes('the box 13 is missing')")
    live.found("the page names the task that has stopped")
    page.click("#canvas [data-node='processor pack'] rect")
    page.until("!document.getElementById('tasks').hidden")
    page.click("#rows [data-task='pack/0']")
    page.until("document.querySelectorAll('#details svg').length")
    assert f"{live.name}.checked/0 at 1 raised: RuntimeError: the box 13 is missing" in page.text("#details")
    live.found("its message and its cause are read")


def _finds_the_error_message(live: Live, page: Page) -> None:
    view(page, "errors")
    assert "1 open error message of 1 cause" in page.text("#counted")
    page.click("#causes tr td:nth-child(9) button")
    page.until("document.querySelector('#message').textContent")
    said = page.text("#message")
    assert "ValueError: no order of less than nothing" in said
    assert f"{live.name}.orders/0@1 (input)" in said, "the message that failed is named"
    assert "app.py:check:" in said, "and the line that failed on it"
    live.found("the error message and its cause are read")


def _replays_the_error_message(live: Live, page: Page) -> None:
    view(page, "errors")
    said = confirm(page, "#causes [data-wish=replay]", "Replay 1")
    assert f"{live.name}: would replay 1 error message" in said
    assert "replayed now: 1 with outputs" in ended(page, f"replay of {CAUSE}")
    page.until("document.querySelector('#counted').textContent.startsWith('0 open error messages')")
    live.found("the error message is replayed")
    message(page, f"{live.name}.packed", '{"n": -1}')
    live.found("its output is seen")


def test_the_page_pauses_resumes_and_drops(browser: Browser, kafka: KafkaFixture, tmp_path: Path) -> None:
    """A paused task keeps its messages until it is resumed; a dropped error message is settled and has no output."""
    with Live(kafka, tmp_path) as live, browser.page() as page:
        live.worker()
        live.send(1, -1)
        live.open(page)
        view(page, "tasks")
        row(page, "check/0", *GOES_ON)
        choose(page, "#which", "check")
        assert "until it is resumed" in confirm(page, "[aria-label='Pause the chosen processor']", "Pause")
        assert f"{live.name}: check paused" in ended(page, "pause of check")
        row(page, "check/0", "paused")
        live.send(5)
        row(page, "check/0", "paused", behind=True)
        confirm(page, "[aria-label='Resume the chosen processor']", "Resume")
        assert f"{live.name}: check goes on" in ended(page, "resume of check")
        row(page, "check/0", *GOES_ON)
        message(page, f"{live.name}.packed", '{"n": 5}')

        view(page, "errors")
        said = confirm(page, "#causes [data-wish=drop]", "Drop 1")
        assert f"{live.name}: would drop 1 error message" in said
        assert "dropped now: 1 dropped" in ended(page, f"drop of {CAUSE}")
        page.until("document.querySelector('#counted').textContent.startsWith('0 open error messages')")
        assert _numbers(live) == [1, 5]
        assert page.told == []


def test_a_replay_of_the_page_whose_worker_is_killed_ends_once(
    browser: Browser, kafka: KafkaFixture, tmp_path: Path
) -> None:
    """SIGKILL within the replay, behind a part of it; the job of the page ends with the worker that comes after."""
    orders = range(-30, 0)
    with Live(kafka, tmp_path) as live, browser.page() as page:
        broken = live.worker()
        live.send(*orders)
        errors = f"{live.name}.errors"
        until(lambda: len(committed(kafka.bootstrap, errors)) == len(orders), "all have failed")
        broken.kill()
        live.deploy(fixed=True)
        killed = live.worker()
        live.open(page)
        view(page, "errors")
        assert "would replay 30 error messages" in confirm(page, "#causes [data-wish=replay]", "Replay 30")
        killed.expect("the order -17 waits")
        page.until(f"document.querySelector('#job-told').textContent.startsWith('replay of {CAUSE} runs')")
        killed.kill()
        before = len(committed(kafka.bootstrap, f"{live.name}.checked", to_stable=True))
        assert 0 < before < len(orders), "the kill is within the replay"
        assert "replayed now" not in page.text("#job-lines")
        live.open_gate()
        live.worker()
        assert "replayed now: 30 with outputs" in ended(page, f"replay of {CAUSE}")
        page.until("document.querySelector('#counted').textContent.startsWith('0 open error messages')")
        assert _numbers(live) == [*orders]
        assert len(committed(kafka.bootstrap, errors)) == len(orders), "none has failed again"
        assert page.told == []


def _numbers(live: Live) -> list[int]:
    """The orders that `check` has put out."""
    found = committed(live.kafka.bootstrap, f"{live.name}.checked")
    return [json.loads(one.value() or b"")["n"] for one in found]
