"""Contrast of texts and of what shows where a control is, by WCAG 2.2 AA, in light and in dark."""

from __future__ import annotations

from pathlib import Path

import pytest

from cues_kafka.ui.layout import picture
from tests.browser.devtools import Browser, Page
from tests.browser.shown import Shown, chain, opened, shop, status, task, view
from tests.browser.test_finding import LOOKED, looked_for

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]

SCRIPT = (Path(__file__).parent / "contrast.js").read_text("utf-8")


def weak(page: Page, least: int) -> list[str]:
    """What is below AA, of at least this number of places."""
    found = page.run(SCRIPT)
    assert found["count"] >= least, found
    return list(found["bad"])


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_texts_lines_and_controls_have_the_contrast_of_aa(browser: Browser, dark: bool) -> None:
    """On each page; also what a filter has made dim, and what tells of trouble."""
    given = shop()
    with opened(browser, given, dark=dark) as page:
        back = page.run("getComputedStyle(document.body).backgroundColor")
        found = weak(page, 30)
        page.run("document.getElementById('search').focus()")
        page.type("step2")
        found += weak(page, 30)
        view(page, "tasks")
        page.click("#rows [data-task='step2/0']")
        page.until("document.querySelectorAll('#details svg').length")
        found += weak(page, 25)
        view(page, "errors")
        page.click("#causes button")
        page.until("document.querySelector('#message').textContent")
        found += weak(page, 20)
        for name in LOOKED:
            view(page, name)
            looked_for(page, name)
            found += weak(page, 15)
        given.show(status(unreachable="no broker answers"))
        page.until("!document.querySelector('#trouble').hidden")
        found += weak(page, 15)

    assert found == []
    assert back == ("rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_graph_that_is_well_has_the_contrast_too(browser: Browser, dark: bool) -> None:
    """With a line for every state that is no trouble."""
    with opened(browser, Shown(picture(chain(2)), status(task("step0"), task("step1"))), dark=dark) as page:
        assert weak(page, 15) == []


def test_what_is_measured_tells_a_weak_text(browser: Browser) -> None:
    """Gray on white is below; so the measure can fail."""
    with opened(browser, shop()) as page:
        page.run("(() => { const all = document.querySelectorAll('header h1')[0]; all.id = 'gray'; "
                 "document.styleSheets[0].insertRule('#gray { color: #999 }'); })()")  # fmt: skip
        assert [line for line in weak(page, 30) if line.startswith("2.85 < 4.5: text shop")]
