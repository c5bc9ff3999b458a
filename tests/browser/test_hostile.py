"""What others have written is text on every page: nothing of it runs, loads or opens anything."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cues_kafka.operate.look.seen import InputLag
from cues_kafka.ui.layout import Picture, PlacedArrow, PlacedNode
from tests.browser.devtools import Browser
from tests.browser.hostile import HOSTILE
from tests.browser.shown import CAUSE, Shown, opened, status, task, texts, view

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]


def given(tone: str = "stopped") -> Shown:
    """A view that has each of the hostile texts in each place."""
    nodes, arrows, tasks = [], [], []
    for number, text in enumerate(HOSTILE):
        nodes.append(PlacedNode(f"topic {text}", text, "source", 0, number))
        nodes.append(PlacedNode(f"processor {text}", text, "processor", 1, number))
        arrows.append(PlacedArrow(f"topic {text}", f"processor {text}", "input", text, text, reads=True))
        told: dict[str, Any] = {
            "state": tone, "owner": text, "stopped": text, "remedy": text, "at": text, "hash": text, "held": text,
            "notes": (text,), "error": text, "inputs": (InputLag(topic=text, partition=0, position=1, end=2, lag=1),),
        }  # fmt: skip
        tasks.append(task(text, **told))
    found = Shown(Picture(HOSTILE[0], tuple(nodes), tuple(arrows)), status(*tasks, graph=HOSTILE[0]))
    names = ("processor", "exception", "kind", "example", "text")
    found.causes = [{**CAUSE, **dict.fromkeys(names, text)} for text in HOSTILE]
    found.lines = list(HOSTILE)
    return found


def shown(text: str) -> str:
    """As the server hands it on: with escapes for what is not seen, and cut where it is long."""
    from cues_kafka.ui.views import to_json

    return str(json.loads(to_json(text)))


ELEMENTS = "new Set([...document.querySelectorAll('*')].map((one) => one.localName))"
OURS = {
    "html", "head", "meta", "title", "link", "script", "body", "header", "h1", "h2", "h3", "p", "nav", "button",
    "label", "input", "main", "section", "div", "ul", "ol", "li", "span", "br", "table", "caption", "thead", "tbody",
    "tr", "th", "td", "pre", "svg", "g", "rect", "text", "path", "polyline", "line", "figure", "figcaption", "dialog",
    "form", "select", "option", "dl", "dt", "dd", "code", "textarea", "output", "details", "summary", "fieldset",
    "legend", "circle", "strong", "aside", "noscript", "progress",
}  # fmt: skip
"""What pages of ours are made of."""


def test_a_hundred_hostile_texts_are_shown_as_they_are_and_run_nothing(browser: Browser) -> None:
    """In each place of each page; no address but that of the view is asked, and no element is made of them."""
    world = given()
    assert len({*HOSTILE}) >= 100
    with opened(browser, world) as page:
        attributes = page.run("[...document.querySelectorAll('*')].flatMap((one) => one.getAttributeNames())")
        names = texts(page, "#canvas .node.processor title")
        said = page.run("document.querySelector('#unwell').textContent")
        view(page, "tasks")
        rows = texts(page, "#rows tr td:first-child")
        owners = texts(page, "#rows tr td:last-child")
        for number in (0, 1, 2, HOSTILE.index("__proto__"), HOSTILE.index("'] , [data-task='")):
            page.run(f"document.querySelectorAll('#rows button')[{number}].click()")
            page.until(f"document.querySelector('#details h2').textContent.includes({json.dumps(rows[number])})")
            page.until("document.querySelectorAll('#details svg').length")
        view(page, "errors")
        page.until(f"document.querySelectorAll('#causes tr').length === {len(HOSTILE)}")
        causes = texts(page, "#causes tr td:nth-child(2)")
        page.run("document.querySelector('#causes button').click()")
        page.until("document.querySelector('#message').textContent")
        whole = page.run("document.querySelector('#message').textContent")
        elements = {*page.run(f"[...{ELEMENTS}]")}
        ran = page.run("window.ran === undefined && !('ran' in Object.prototype)")

    expected = [shown(text) for text in HOSTILE]
    assert ran
    assert elements <= OURS
    assert {name for name in attributes if name.startswith("on")} == set()
    assert [title.split(": stopped")[0] for title in names] == [f"processor {text}" for text in expected]
    assert rows == [f"{shown(f'{text}/0')}" for text in HOSTILE]
    assert (owners, causes) == (expected, expected)
    assert all(text in said and text in whole for text in expected)


def test_times_outside_of_the_years_1_to_9999_are_numbers(browser: Browser) -> None:
    """A date of such a time ended the script of the page, and nothing was shown any longer."""
    world = given()
    world.causes = [{**CAUSE, "first_ms": -(2**53), "last_ms": 2**53}]
    with opened(browser, world) as page:
        view(page, "errors")
        page.until("document.querySelectorAll('#causes tr').length === 1")
        cells = texts(page, "#causes tr td")
    assert cells[5:7] == ["-9007199254740992 ms", "9007199254740992 ms"], cells


def test_a_hostile_text_in_place_of_the_cluster_and_of_the_graph_is_text(browser: Browser) -> None:
    """The line of trouble, the heading and the title of the tab."""
    for text in HOSTILE[::7]:
        world = Shown(Picture(text, (), ()), status(graph=text, unreachable=text))
        server = world.server()
        try:
            with browser.page() as page:
                page.open(server.url)
                page.until("document.querySelector('#whole').textContent")
                assert shown(text) in page.run("document.querySelector('#trouble').textContent")
                assert page.run("document.querySelector('#graph').textContent") == shown(text)
                assert page.run("window.ran === undefined")
                assert page.told == []
        finally:
            server.close()


def test_a_hostile_address_opens_no_other_page(browser: Browser) -> None:
    """What stands behind # chooses one of the pages, or the first."""
    with opened(browser, given("working")) as page:
        for text in HOSTILE[:40]:
            page.run(f"location.hash = {json.dumps(text)}")
            page.ask("Page.reload")
            page.until("[...document.querySelectorAll('main > section')].filter((one) => !one.hidden).length === 1")
        assert page.run("window.ran === undefined")
