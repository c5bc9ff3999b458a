"""What the pages of the browser view show, at every width, and that it comes back by itself."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from cues_kafka.ui.layout import picture
from tests.browser.devtools import Browser
from tests.browser.shown import CAUSE, Shown, chain, opened, ready, shop, status, task, texts, view

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]

VIEWS = ("picture", "tasks", "errors")


def test_each_page_shows_what_the_view_has(browser: Browser) -> None:
    """The graph with states, the tasks with the reason of one, and the error messages with one as a whole."""
    with opened(browser, shop()) as page:
        assert page.text("#graph") == "shop"
        assert "1 of 4 tasks are unwell" in page.text("#whole")
        titles = texts(page, "#canvas .node title")
        assert {"source topic0", "processor step0: working", "processor step2: stopped", "topic shop.errors"} <= {
            *titles
        }
        assert texts(page, "#canvas .node.wrong title") == ["processor step2: stopped"]
        assert texts(page, "#canvas .node.paused title") == ["processor step1: paused"]
        assert "step2/0: the message is no JSON" in page.text("#unwell")
        assert "cues-kafka drop shop:graph pack/0" in page.text("#unwell")

        view(page, "tasks")
        assert texts(page, "#rows tr td:nth-child(2)") == ["working", "working", "paused", "stopped"]
        page.click("#rows [data-task='step2/0']")
        page.until("document.querySelectorAll('#details svg').length")
        assert "the message is no JSON" in page.text("#details")
        assert "stopped at message topic2/0@17, hash 0a1b2c3d" in page.text("#details")

        view(page, "errors")
        assert "3 open error messages" in page.text("#counted")
        page.click("#causes button")
        page.until("document.querySelector('#message').textContent")
        assert page.text("#message").splitlines()[:2] == [
            "shop.errors/0@2",
            "shop.errors/0@2: open; it can be replayed",
        ]


@pytest.mark.parametrize(
    ("first_ms", "last_ms", "shown"),
    [
        (-5, 1 << 62, ["1969-12-31T23:59:59Z", "4611686018427388000 ms"]),
        (1_700_000_000_000_000, 253_402_300_800_000, ["1700000000000000 ms", "253402300800000 ms"]),
        (0, 253_402_300_799_000, ["-", "9999-12-31T23:59:59Z"]),
    ],
)
def test_a_time_of_any_number_leaves_the_causes_in_sight(
    browser: Browser, first_ms: int, last_ms: int, shown: list[str]
) -> None:
    """A clock may be wrong, and a program may count in microseconds."""
    given = shop()
    given.causes = [{**CAUSE, "first_ms": first_ms, "last_ms": last_ms}, CAUSE]
    with opened(browser, given) as page:
        view(page, "errors")

        assert len(texts(page, "#causes tr")) == 2
        assert texts(page, "#causes tr:first-child td")[5:7] == shown


def test_a_title_sorts_and_the_filter_leaves_what_matches(browser: Browser) -> None:
    """By number where it is one, in both directions."""
    given = Shown(
        picture(chain(1)), status(*(task("step0", number, lag=lag) for number, lag in enumerate((10, 9, 200))))
    )
    with opened(browser, given) as page:
        view(page, "tasks")
        found = []
        for _ in range(2):
            page.click("#tasks thead th:nth-child(3) button")
            found.append(texts(page, "#rows tr td:nth-child(3)"))
        assert found == [["9", "10", "200"], ["200", "10", "9"]]
        page.run("document.getElementById('search').focus()")
        page.type("step0/2")
        assert texts(page, "#rows tr td:first-child") == ["step0/2"]


@pytest.mark.parametrize("processors", [1, 10, 100])
def test_a_graph_of_any_size_is_drawn_without_one_box_on_another(browser: Browser, processors: int) -> None:
    """Every name is in its box."""
    tasks = (task(f"step{number}") for number in range(processors))
    with opened(browser, Shown(picture(chain(processors)), status(*tasks))) as page:
        found = page.run(
            "[...document.querySelectorAll('#canvas .node')].map((node) => {"
            " const box = node.querySelector('rect').getBBox();"
            " const ends = [...node.querySelectorAll('text')].map((one) => one.getBBox().x + one.getBBox().width);"
            " return [box.x, box.y, box.width, box.height, Math.max(...ends)]; })"
        )

    assert len(found) == 2 * processors + 2
    assert all(end <= x + width for x, _, width, _, end in found)
    assert not [
        (one, other)
        for index, one in enumerate(found)
        for other in found[index + 1 :]
        if abs(one[0] - other[0]) < one[2] and abs(one[1] - other[1]) < one[3]
    ]


@pytest.mark.parametrize(("width", "processors"), [(1280, 1), (1280, 3), (1920, 4), (768, 1)])
def test_the_picture_of_a_graph_fits_into_its_frame(browser: Browser, width: int, processors: int) -> None:
    """Beside the list or below it; its texts stay as large as can be read. Zooming by hand is left alone until Fit."""
    wider = "(() => { const one = document.querySelector('#canvas'); return one.scrollWidth - one.clientWidth; })()"
    with opened(browser, Shown(picture(chain(processors)), status(task("step0"))), width=width) as page:
        page.until(f"{wider} <= 0")
        assert page.run("document.querySelector('#canvas text').getBoundingClientRect().height") > 7
        page.click("[aria-label='Zoom in']")
        page.click("[aria-label='Zoom in']")
        page.size(width, 1000)
        page.until(f"{wider} > 0")
        page.click("[aria-label='Fit the picture into its frame']")
        page.until(f"{wider} <= 0")


@pytest.mark.parametrize("width", [360, 768, 1280, 1920])
def test_no_page_is_wider_than_its_window(browser: Browser, width: int) -> None:
    """Wide tables and pictures scroll in their own frames; texts are broken, also those without a space."""
    long = "x" * 300
    tasks = (
        task("step0", owner=f"host-{long}"),
        task("step1", state="stopped", stopped=long, remedy=long, notes=(long,)),
    )
    given = Shown(picture(chain(12)), status(*tasks, graph=f"shop-{long}"))
    given.causes[0] = {**given.causes[0], "exception": long}
    given.lines.append(long)
    with opened(browser, given, width=width) as page:
        wider: dict[str, float] = {}
        for name in VIEWS:
            view(page, name)
            if name == "tasks":
                page.click("#rows [data-task='step1/0']")
                page.until("document.querySelectorAll('#details svg').length")
            if name == "errors":
                page.click("#causes button")
                page.until("document.querySelector('#message').textContent")
            wider[name] = page.run("document.documentElement.scrollWidth")
        given.show(status(unreachable=f"no broker answers at {long}"))
        page.until("!document.querySelector('#trouble').hidden")
        wider["trouble"] = page.run("document.documentElement.scrollWidth")

    assert wider == dict.fromkeys(wider, width)


def test_a_lost_cluster_is_said_and_what_was_seen_stays(browser: Browser) -> None:
    """With its time; and it comes back by itself."""
    given = shop()
    with opened(browser, given) as page:
        view(page, "tasks")
        given.show(status(unreachable="no broker answers at kafka:9092"))
        page.until("!document.querySelector('#trouble').hidden")
        said, rows = page.text("#trouble"), texts(page, "#rows tr td:first-child")
        given.show(status(task("step0"), task("step1"), task("step2")))
        page.until("document.querySelector('#trouble').hidden")

        assert "No news of the cluster: no broker answers at kafka:9092" in said
        assert "2025-10-09T08:55:00Z" in said
        assert len(rows) == 4
        assert texts(page, "#rows tr td:nth-child(2)") == ["working"] * 3
        assert page.text("#whole").startswith("all is well")


def test_a_server_that_is_gone_is_said_and_comes_back_by_itself(browser: Browser) -> None:
    """On the same port with the same token, such as behind a tunnel that was cut."""
    given = shop()
    server = given.server()
    with browser.page() as page:
        page.open(server.url)
        ready(page)
        server.close()
        page.until("!document.querySelector('#trouble').hidden")
        said = page.text("#trouble")
        given.show(status(task("step0")))
        again = given.server(server.port)
        try:
            page.until("document.querySelector('#trouble').hidden")
            assert page.text("#whole").startswith("all is well")
        finally:
            again.close()

    assert "The program does not answer" in said
    assert "comes back by itself" in said


def test_a_server_that_was_restarted_with_another_token_is_found_by_the_page_itself(browser: Browser) -> None:
    """With another graph, on the page and with the filter that it had."""
    given = shop()
    server = given.server()
    with browser.page() as page:
        page.open(server.url)
        ready(page)
        view(page, "tasks")
        page.run("document.getElementById('search').focus()")
        page.type("step1")
        page.run("window.old = true")
        server.close()
        page.until("!document.querySelector('#trouble').hidden")
        after = Shown(picture(chain(5)), status(*(task(f"step{number}") for number in range(5))))
        with page.loads_again():
            again = after.server(server.port, token="of-the-second-start")
        try:
            page.until("window.old === undefined && document.querySelector('#whole').className === 'well'")
            assert texts(page, "#rows tr td:first-child") == ["step1/0"]
            assert page.run("!document.getElementById('tasks').hidden && document.getElementById('trouble').hidden")
            assert page.run("document.cookie") == "", "no script reads the cookie"
            view(page, "picture")
            assert len(texts(page, "#canvas .node.processor title")) == 5
        finally:
            again.close()


def test_a_server_that_was_restarted_with_another_secret_says_what_to_open(browser: Browser) -> None:
    """The page is refused, and tells the remedy."""
    given = shop()
    server = given.server()
    with browser.page() as page:
        page.open(server.url)
        ready(page)
        server.close()
        again = given.server(server.port, token="another", secret=b"t" * 32)
        try:
            page.until("document.querySelector('#trouble').textContent.includes('with the token')")
        finally:
            again.close()


def test_what_the_page_shows_follows_the_view(browser: Browser) -> None:
    """Without a reload; and the title in the tab says whether all is well."""
    given = shop()
    with opened(browser, given) as page:
        before = page.run("document.title")
        given.show(status(task("step0"), task("step1"), task("step2")))
        page.until("document.querySelector('#whole').className === 'well'")

        titles: Mapping[str, str] = {"before": before, "after": page.run("document.title")}
        assert titles == {"before": "(!) shop - cues-kafka", "after": "shop - cues-kafka"}
        assert texts(page, "#canvas .node.wrong title") == []
