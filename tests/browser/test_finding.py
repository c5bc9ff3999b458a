"""The pages that look for something: messages, the path of one, and entries of stores."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cues_kafka.errors import BrokerError, ConfigError
from tests.browser.devtools import Browser, Page
from tests.browser.hostile import HOSTILE
from tests.browser.shown import ANSWERS, MESSAGE, Shown, opened, shop, texts, view
from tests.browser.test_hostile import ELEMENTS, OURS, shown

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]

LOOKED = {
    "messages": ("message-text", "looked at"),
    "lineage": ("place", "Bounds: 100"),
    "stores": ("store-key", "entries of"),
}
"""By page: where Enter begins to look, and what is said when it has looked."""


def said(page: Page, name: str) -> str:
    """What a page says of its search."""
    return page.text(f"#{name} p[role=status]")


def looked_for(page: Page, name: str, typed: str = "ann", until: str = "") -> str:
    """Type something on a page that is open, and press Enter; gives what the page says then."""
    field, end = LOOKED[name]
    page.until("document.getElementById('topic').options.length" if name == "messages" else "true")
    page.until("document.getElementById('store').options.length" if name == "stores" else "true")
    page.run(f"document.getElementById('{field}').focus()")
    page.type(typed)
    page.press("Enter")
    page.until(f"document.querySelector('#{name} p[role=status]').textContent.includes({json.dumps(until or end)})")
    return said(page, name)


def with_answers(**changed: Any) -> Shown:
    """A view that has these answers; `path` stands for /api/path, and so on. A mapping changes the usual answer."""
    found = shop()
    for name, answer in changed.items():
        usual = ANSWERS[f"/api/{name}"]
        found.answers[f"/api/{name}"] = {**usual, **answer} if isinstance(answer, dict) else answer
    return found


def test_each_page_asks_for_what_was_typed_and_shows_what_was_found(browser: Browser) -> None:
    """A message with its headers, its path, and an entry with the partition that was read."""
    given = shop()
    with opened(browser, given) as page:
        view(page, "messages")
        page.until("document.getElementById('topic').options.length === 2")
        assert "20,000 messages, 32 MB or 5 s" in said(page, "messages")
        page.run("document.getElementById('topic').value = 'packed'")
        looked_for(page, "messages")
        assert given.asked[-1] == ("/api/messages", {"topic": "packed", "text": "ann"})
        assert texts(page, "#message-rows td") == [
            "orders/3@17", "2025-10-09T08:53:20.000Z", "ann", '{"n": 1}', "11", "Trace",
        ]  # fmt: skip
        page.click("#message-rows button")
        whole = page.text("#messages pre")
        assert "header    trace: t1" in whole
        assert "and 2 more headers" in whole
        page.click("#message-rows td:last-child button")
        page.until("document.querySelectorAll('#lineage svg .node').length === 2")
        assert given.asked[-1] == ("/api/path", {"place": "orders/3@17"})
        assert texts(page, "#lineage svg path title") == ["shop.pack/3, batch 7"]
        assert texts(page, "#lineage pre") == ["orders/3@17  the message", "packed/1@4  made of it"]
        view(page, "stores")
        assert looked_for(page, "stores").startswith("1 shown, of 5 entries of partition 3. True up to orders/3@18.")
        assert given.asked[-1] == ("/api/entry", {"processor": "pack", "store": "seen", "key": "ann"})
        page.click("#store-begins")
        page.run("document.getElementById('store').value = '1'")
        looked_for(page, "stores", typed="e")
        page.until("document.querySelectorAll('#entries tr').length")
        asked = {"processor": "pack", "store": "pairs", "key": "anne", "begins": "yes"}
        page.until("!document.querySelector('#stores button').disabled")
        assert given.asked[-1] == ("/api/entry", asked)
        assert texts(page, "#entries td") == ['"ann"', "3"]


def test_nothing_found_is_said_and_what_was_found_before_is_gone(browser: Browser) -> None:
    """No row of the search before stays below the answer of the next one."""
    given = shop()
    with opened(browser, given) as page:
        for name in LOOKED:
            view(page, name)
            looked_for(page, name)
        given.answers |= {
            "/api/messages": {**ANSWERS["/api/messages"], "rows": [], "messages": 0},
            "/api/path": ConfigError("there is no message orders/3@99"),
            "/api/entry": {**ANSWERS["/api/entry"], "rows": [], "entries": 0, "read": "all partitions"},
        }
        view(page, "messages")
        assert looked_for(page, "messages", until="0 shown, 0 looked at").startswith("0 shown, 0 looked at.")
        view(page, "lineage")
        assert looked_for(page, "lineage", until="no message") == "there is no message orders/3@99"
        view(page, "stores")
        assert looked_for(page, "stores", until="0 entries").startswith("0 shown, of 0 entries of all partitions.")
        assert texts(page, "#message-rows tr, #entries tr, #lineage .node") == []
        assert "".join(texts(page, "#messages pre, #lineage pre")) == ""
        page.told.clear()  # the browser logs the status 400


def test_a_graph_without_stores_says_so(browser: Browser) -> None:
    """Nothing can be asked."""
    with opened(browser, with_answers(stores={"stores": []})) as page:
        view(page, "stores")
        page.until("document.querySelector('#stores p[role=status]').textContent")
        assert said(page, "stores") == "This graph has no stores."
        assert page.run(
            "[...document.querySelectorAll('#stores button')].find((one) => one.textContent === 'Look up').disabled"
        )


def test_bounds_that_ended_a_search_are_said(browser: Browser) -> None:
    """Beside what was found, so that it is not taken for all."""
    given = with_answers(
        messages={"ended": "after 20,000 messages", "messages": 20_000},
        path={"ended": "10 s are over"},
        entry={"more": True},
    )
    with opened(browser, given) as page:
        view(page, "messages")
        told = looked_for(page, "messages")
        assert "20,000 looked at. It ended after 20,000 messages, so more may be there: bounds are 20,000" in told
        view(page, "lineage")
        assert "More may have become of it, because 10 s are over." in looked_for(page, "lineage")
        view(page, "stores")
        assert looked_for(page, "stores").startswith("1 shown, and there are more, of 5 entries")


@pytest.mark.parametrize("name", LOOKED)
def test_a_search_that_fails_says_why_and_can_be_repeated(browser: Browser, name: str) -> None:
    """The text of the cluster is shown alone, without what was found before; the next answer takes its place."""
    path = {"messages": "/api/messages", "lineage": "/api/path", "stores": "/api/entry"}[name]
    given = shop()
    with opened(browser, given) as page:
        view(page, name)
        looked_for(page, name)
        given.answers[path] = BrokerError("no broker answers at kafka:9092")
        looked_for(page, name, until="no broker answers at kafka:9092")
        assert texts(page, "#message-rows tr, #entries tr, #lineage .node") == []
        assert "".join(texts(page, "#messages pre, #lineage pre")) == ""
        given.answers[path] = ANSWERS[path]
        looked_for(page, name)
        page.told.clear()  # the browser logs the status 502


def test_hostile_texts_are_shown_as_they_are_and_run_nothing(browser: Browser) -> None:
    """In each place of the three pages; no element is made of them, and no other address is asked."""
    rows = [
        {**MESSAGE, **dict.fromkeys(("place", "time", "key", "value", "why"), text), "headers": [[text, text]]}
        for text in HOSTILE
    ]
    nodes = [
        {"id": text, "topic": text, "key": text, "state": text, "error": text, "column": 0, "row": number}
        for number, text in enumerate(HOSTILE)
    ]
    arrows = [{"start": text, "end": text, "task": text, "sequence": 1} for text in HOSTILE]
    given = with_answers(
        topics={"topics": list(HOSTILE), "bounds": HOSTILE[0]},
        messages={"rows": rows, "bounds": HOSTILE[0], "ended": HOSTILE[1]},
        path={"root": HOSTILE[0], "nodes": nodes, "arrows": arrows, "back": list(HOSTILE), "forward": list(HOSTILE),
              "ended": HOSTILE[0]},
        stores={"stores": [{"processor": text, "store": text, "keys": text} for text in HOSTILE], "bounds": HOSTILE[0]},
        entry={"rows": [{"key": text, "value": text} for text in HOSTILE], "true_up_to": list(HOSTILE),
               "read": HOSTILE[0]},
    )  # fmt: skip
    expected = [shown(text) for text in HOSTILE]
    with opened(browser, given) as page:
        view(page, "messages")
        looked_for(page, "messages")
        assert texts(page, "#topic option") == expected
        assert texts(page, "#message-rows td.key") == expected
        assert texts(page, "#message-rows td.value") == [f"cannot be decoded: {text}" for text in expected]
        for number in (0, 7, 30, len(HOSTILE) - 1):
            page.run(f"document.querySelectorAll('#message-rows td:first-child button')[{number}].click()")
            page.until(f"document.querySelector('#messages pre').textContent.includes({json.dumps(expected[number])})")
        view(page, "lineage")
        looked_for(page, "lineage")
        titles = texts(page, "#lineage .node title")
        assert titles == [f"{text}: {text}, {text}, key {text}" for text in expected]
        assert texts(page, "#lineage pre") == ["\n".join(expected)] * 2
        page.run("document.querySelectorAll('#lineage .node')[5].dispatchEvent(new MouseEvent('click'))")
        page.until(f"document.getElementById('place').value === {json.dumps(expected[5])}.replace(/[\\r\\n]/g, '')")
        view(page, "stores")
        looked_for(page, "stores")
        assert texts(page, "#store option") == [f"{text}: {text} (keys are {text})" for text in expected]
        assert texts(page, "#entries td.key") == texts(page, "#entries td.value") == expected
        assert {*page.run(f"[...{ELEMENTS}]")} <= OURS
        names = page.run("[...document.querySelectorAll('*')].flatMap((one) => one.getAttributeNames())")
        assert {name for name in names if name.startswith("on")} == set()
        assert page.run("window.ran === undefined && !('ran' in Object.prototype)")


def test_a_message_is_found_and_followed_by_keys_alone(browser: Browser) -> None:
    """From its text to its path, and on to what became of it."""
    given = shop()
    with opened(browser, given) as page:
        view(page, "messages")
        looked_for(page, "messages")
        focused = "document.activeElement.textContent"
        for _ in range(20):
            if page.run(focused) == "Trace":
                break
            page.press("Tab")
        assert page.run("document.activeElement.getAttribute('aria-label')") == "Trace orders/3@17"
        page.press("Enter")
        page.until("document.querySelectorAll('#lineage svg .node').length === 2")
        for _ in range(40):
            if page.run("document.activeElement.getAttribute('aria-label')") == "Trace packed/1@4":
                break
            page.press("Tab")
        page.press("Enter")
        page.until("document.getElementById('place').value === 'packed/1@4'")
        assert given.asked[-1] == ("/api/path", {"place": "packed/1@4"})


@pytest.mark.parametrize("width", [360, 768, 1920])
def test_no_page_is_wider_than_its_window(browser: Browser, width: int) -> None:
    """With texts without a space; tables and paths scroll in their frames."""
    long = "x" * 300
    node = {**ANSWERS["/api/path"]["nodes"][0], "id": long, "key": long}
    given = with_answers(
        topics={"topics": [long]},
        messages={"rows": [{**MESSAGE, "place": long, "key": long, "value": long}], "bounds": long, "ended": long},
        path={"nodes": [{**node, "column": column} for column in range(4)], "arrows": [], "back": [long],
              "forward": [long], "ended": long},
        stores={"stores": [{"processor": long, "store": long, "keys": "text"}]},
        entry={"rows": [{"key": long, "value": long}], "true_up_to": [long]},
    )  # fmt: skip
    with opened(browser, given, width=width) as page:
        wider = {}
        for name in LOOKED:
            view(page, name)
            looked_for(page, name)
            if name == "messages":
                page.click("#message-rows button")
            wider[name] = page.run("document.documentElement.scrollWidth")

    assert wider == dict.fromkeys(LOOKED, width)
