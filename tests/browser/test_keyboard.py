"""All that a mouse can do on the pages, the keyboard can do."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka.ui.layout import picture
from tests.browser.devtools import Browser, Page
from tests.browser.shown import Shown, chain, opened, shop, status, task, texts
from tests.browser.test_finding import LOOKED, looked_for

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]

PLACE = """(() => { const one = document.activeElement; if (!one || one === document.body) return null;
  const style = getComputedStyle(one);
  return { name: (one.id || one.getAttribute('data-view') || one.getAttribute('data-node')
      || one.getAttribute('data-task') || one.textContent.trim() || one.getAttribute('aria-label')),
    drawn: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2, called: !!(one.textContent.trim()
      || one.getAttribute('aria-label') || (one.labels && one.labels.length)) }; })()"""

REACHABLE = """[...document.querySelectorAll('button, input, select, textarea, a[href], [role=button], [tabindex]')]
  .filter((one) => one.checkVisibility() && !one.disabled && one.tabIndex >= 0).length"""


def walk(page: Page) -> list[dict[str, Any]]:
    """Where Tab leads, from what has the focus around to it; between the last and the first it leaves the page."""
    found: list[dict[str, Any]] = []
    for _ in range(300):
        page.press("Tab")
        place = page.run(PLACE)
        if found and place == found[0]:
            return found
        if place is not None:
            found.append(place)
    raise AssertionError(f"Tab goes on and on: {found}")


def to(page: Page, name: str) -> None:
    """Press Tab until this has the focus."""
    for _ in range(300):
        if (page.run(PLACE) or {}).get("name") == name:
            return
        page.press("Tab")
    raise AssertionError(f"Tab does not lead to {name}")


def test_tab_leads_to_everything_that_can_be_pressed_and_shows_where_it_is(browser: Browser) -> None:
    """On each page, with a line around it, and each has a name that is read aloud."""
    with opened(browser, shop()) as page:
        for name in ("picture", "tasks", "errors", "messages", "lineage", "stores"):
            to(page, name)
            page.press("Enter")
            page.until(f"!document.getElementById('{name}').hidden")
            if name in LOOKED:
                looked_for(page, name)
            if name == "errors":
                page.until("document.querySelector('#causes button') && !document.querySelector('#count').disabled")
            found = walk(page)
            assert len(found) == page.run(REACHABLE), found
            assert [place for place in found if not (place["drawn"] and place["called"])] == []


def test_the_stopped_task_is_found_and_read_by_keys_alone(browser: Browser) -> None:
    """From the picture to its processor's tasks, and to the reason."""
    with opened(browser, shop()) as page:
        to(page, "processor step2")
        page.press("Enter")
        page.until("!document.getElementById('tasks').hidden")
        assert texts(page, "#rows tr td:first-child") == ["step2/0"]
        to(page, "step2/0")
        page.press("Enter")
        page.until("document.querySelectorAll('#details svg').length")
        assert "the message is no JSON" in page.text("#details")


def test_an_error_message_is_read_by_keys_alone(browser: Browser) -> None:
    """And the focus is on it, so that a reader reads it aloud."""
    with opened(browser, shop()) as page:
        to(page, "errors")
        page.press("Enter")
        page.until("document.querySelector('#causes button')")
        to(page, "shop.errors/0@2")
        page.press("Enter")
        page.until("document.querySelector('#message').textContent")
        assert page.run("document.activeElement.id") == "message"


def test_keys_sort_filter_zoom_and_scroll(browser: Browser) -> None:
    """The titles, the filter and the picture."""
    tasks = (task("step0", number, lag=lag) for number, lag in enumerate((10, 9, 200)))
    with opened(browser, Shown(picture(chain(120)), status(*tasks))) as page:
        wide = "document.querySelector('#canvas svg').getBoundingClientRect().width"
        to(page, "canvas")
        before = page.run(wide)
        page.press("+")
        assert page.run(wide) > before
        page.press("-")
        assert page.run(wide) == before
        for _ in range(4):
            page.press("ArrowRight")
            page.press("ArrowDown")
        page.until(
            "document.querySelector('#canvas').scrollLeft > 0 && document.querySelector('#canvas').scrollTop > 0"
        )
        to(page, "tasks")
        page.press("Enter")
        to(page, "Lag")
        page.press("Enter")
        assert texts(page, "#rows tr td:nth-child(3)") == ["9", "10", "200"]
        page.press("Enter")
        assert texts(page, "#rows tr td:nth-child(3)") == ["200", "10", "9"]
        to(page, "search")
        page.type("step0/1")
        assert texts(page, "#rows tr td:first-child") == ["step0/1"]


@pytest.mark.parametrize(("name", "place"), [("picture", "processor step2"), ("tasks", "step2/0")])
def test_news_leave_the_focus_where_it_is(browser: Browser, name: str, place: str) -> None:
    """A page that is drawn again does not throw a reader out of it."""
    given = shop()
    with opened(browser, given) as page:
        to(page, name)
        page.press("Enter")
        to(page, place)
        given.show(status(*(task(f"step{number}", lag=7) for number in range(3))))
        page.until("document.querySelector('#whole').className === 'well'")
        assert page.run(PLACE)["name"] == place
