"""A page whose job was followed by that of another page before it looked again."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from cues_kafka.ui.actions import Actions, SeenJob
from tests.browser.devtools import Browser, Page
from tests.browser.shown import ready, shop, view

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]

MINE, SOON_S = 5, 10.0


class Given(Actions):
    """Begins the job `MINE`, and then has the newest job that the test says."""

    def __init__(self, newest: SeenJob) -> None:
        super().__init__({})
        self._before, self._after, self._begun = SeenJob(), newest, False
        self.ended: list[int | None] = []
        self.heard = threading.Event()

    def knows(self, verb: str) -> bool:
        return True

    def begin(self, verb: str, given: Mapping[str, Any], who: str) -> SeenJob:
        self._begun = True
        return SeenJob(MINE, "replay of check (dry run)", who, "running")

    def newest(self) -> SeenJob:
        return self._after if self._begun else self._before

    def end_wait(self, who: str, number: int | None = None) -> None:
        self.ended.append(number)
        self.heard.set()


def asked(page: Page, url: str) -> None:
    """Press Replay."""
    page.open(url)
    ready(page)
    page.until("!document.body.classList.contains('read-only')")
    view(page, "errors")
    page.click("#causes [data-wish=replay]")
    page.until("document.querySelector('#dialog').open")


def test_a_question_whose_answer_is_lost_says_so(browser: Browser) -> None:
    """It does not go on waiting, and it cannot be confirmed."""
    actions = Given(SeenJob(MINE + 1, "pause of check", "bob", "running"))
    server = shop().server(actions=actions)
    try:
        with browser.page() as page:
            asked(page, server.url)
            page.until("document.querySelector('#dialog pre').textContent.includes('Another page has begun')")
            assert page.run("document.querySelector('#dialog p button').disabled")
            page.press("Escape")
            page.until("!document.querySelector('#dialog').open")
            page.until("document.querySelector('#job-told').textContent.startsWith('pause of check runs')")
            assert actions.ended == [], "the job of another page goes on"
    finally:
        server.close()


def test_a_question_that_is_closed_ends_its_own_reading(browser: Browser) -> None:
    """By the number of the job."""
    actions = Given(SeenJob(MINE, "replay of check (dry run)", "ann", "running"))
    server = shop().server(actions=actions)
    try:
        with browser.page() as page:
            asked(page, server.url)
            page.until("document.querySelector('#dialog progress:not([hidden])')")
            page.press("Escape")
            assert actions.heard.wait(SOON_S)
            assert actions.ended == [MINE]
    finally:
        server.close()
