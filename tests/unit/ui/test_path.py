"""The path of a message, both ways."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka import ConfigError, Graph, Json, Processor, Source, Topic
from cues_kafka.testing.tester import Tester
from cues_kafka.ui.lineage import BOUNDS, LineageAnswers
from tests.unit.ui.hostile import HOSTILE, on_page


def check(order: Any) -> Any:
    """Refuses what is negative."""
    if order["n"] < 0:
        raise ValueError(order["why"])
    return order


def bill(order: Any) -> Any:
    """Passes it on."""
    return order


GRAPH = Graph(
    "shop",
    Source("orders"),
    Processor(check, inputs="orders", outputs="checked"),
    Processor(bill, inputs="checked", outputs="bills"),
    errors="failed",
    defaults=Topic(value=Json()),
)


def path(tester: Tester, place: str) -> Any:
    """As a page gets it."""
    return on_page(LineageAnswers(GRAPH, tester.broker).path(place))


def shop(*orders: Any) -> Tester:
    """A shop that has worked on these."""
    tester = Tester(GRAPH)
    for order in orders:
        tester.send("orders", order, key="k")
    return tester.run()


@pytest.mark.parametrize("topic", ["orders", "checked", "bills"])
def test_the_path_goes_from_the_source_to_the_last_output(topic: str) -> None:
    """From whichever message of it."""
    tester = shop({"n": 1}, {"n": 2})
    places = {
        name: [f"{one.topic}/0@{one.offset}" for one in tester.messages(name)]
        for name in ("orders", "checked", "bills")
    }

    found = path(tester, places[topic][1])

    nodes = {node["id"]: node["column"] for node in found["nodes"]}
    assert nodes == {places["orders"][1]: 0, places["checked"][1]: 1, places["bills"][1]: 2}
    steps = {(arrow["start"], arrow["end"]): arrow["task"] for arrow in found["arrows"]}
    assert steps == {
        (places["orders"][1], places["checked"][1]): "shop.check/0",
        (places["checked"][1], places["bills"][1]): "shop.bill/0",
    }
    assert (found["root"], found["ended"], found["bounds"]) == (places[topic][1], "", BOUNDS)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_an_error_message_is_on_the_path_with_its_text(hostile: str) -> None:
    """Whatever the text is."""
    tester = shop({"n": -1, "why": hostile})
    [order] = tester.messages("orders")

    found = path(tester, f"orders/0@{order.offset}")

    [failed] = [node for node in found["nodes"] if node["topic"] == "failed"]
    assert failed["error"].startswith("ValueError: ")
    assert "ValueError" in "\n".join(found["forward"])


@pytest.mark.parametrize("place", ["", "orders", "orders/0@9", "orders/7@0", "others/0@0", "<b>/0@1", "orders/0@-1"])
def test_what_names_no_message_is_refused(place: str) -> None:
    with pytest.raises(ConfigError):
        path(shop({"n": 1}), place)
