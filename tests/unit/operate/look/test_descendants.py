"""What became of a message: found among many others, with each bound, and by the command."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cues_kafka import ConfigError, Graph, Processor, Source, Topic
from cues_kafka.operate.look.descendants import NEAR, Descent, Effort, descendants
from cues_kafka.operate.look.lineage_lines import descent_tree
from cues_kafka.ports.log import TopicPartition
from cues_kafka.testing.tester import Tester


def check(order: Any) -> Any:
    """Refuses what is negative."""
    if order < 0:
        raise ValueError("no order")
    return order


def split(order: Any) -> Any:
    """Gives two messages."""
    return {"left": order, "right": order}


def both(left: Any, right: Any) -> Any:
    """Joins two messages."""
    return [left, right]


GRAPH = Graph(
    "shop",
    Source("orders"),
    Processor(check, inputs="orders", outputs="checked"),
    Processor(split, inputs="checked", outputs={"left": "lefts", "right": "rights"}),
    Processor(both, inputs={"left": "lefts", "right": "rights"}, outputs="pairs"),
    errors="failed",
    defaults=Topic(partitions=2),
)


def shop(*orders: int) -> Tester:
    """A shop that has worked on these, in two partitions."""
    tester = Tester(GRAPH)
    for number, order in enumerate(orders):
        tester.send("orders", order, key=f"k{number % 5}")
    return tester.run()


def of(tester: Tester, nth: int, effort: Effort | None = None) -> tuple[Descent, list[str]]:
    """What became of an order, and its lines."""
    [order] = [one for one in tester.messages("orders") if one.value == nth]
    found = descendants(tester.broker, GRAPH, TopicPartition("orders", order.partition), order.offset, effort)
    return found, list(descent_tree(found))


def values(tester: Tester, topic: str, value: Any) -> set[str]:
    return {f"{topic}/{one.partition}@{one.offset}" for one in tester.messages(topic) if one.value == value}


@pytest.mark.parametrize("nth", [0, 1, 449, 898, 899])
def test_each_message_that_was_made_of_it_is_found_among_many(nth: int) -> None:
    """Between those of another task, in the first and the last of what is bisected; a join is there once."""
    assert 2 * NEAR < 900
    tester = shop(*range(900))

    found, lines = of(tester, nth)

    expected = {place for topic in ("checked", "lefts", "rights") for place in values(tester, topic, nth)} | values(
        tester, "pairs", [nth, nth]
    )
    assert {place for line in lines for place in expected if place in line} == expected
    assert (found.count, found.ended) == (4, "")
    assert sum("see above" in line for line in lines) == 1
    assert lines[-1] == "4 messages found"


def test_an_error_message_is_an_end() -> None:
    """With what it says."""
    found, lines = of(shop(1, -1, 2), -1)

    assert found.count == 1
    assert "by shop.check/" in lines[1]
    assert lines[1].endswith("error ValueError: no order")


@pytest.mark.parametrize(
    ("effort", "why"),
    [
        (Effort(most=2), "2 messages were found"),
        (Effort(looks=3), "3 messages were looked at"),
        (Effort(seconds=0.0), "0 s are over"),
    ],
)
def test_a_bound_ends_the_walk_and_is_said(effort: Effort, why: str) -> None:
    """So no one takes a part for the whole."""
    found, lines = of(shop(*range(20)), 7, effort)

    assert found.ended == why
    assert lines[-1].endswith(f"more may be there, because {why}")
    assert found.count <= 3


def test_data_for_json_has_each_message_once() -> None:
    """As the other way."""
    found, _ = of(shop(1), 1)
    data = json.loads(json.dumps(found.root.to_dict()))

    [checked] = data["outputs"]
    left, right = checked["outputs"]
    assert checked["task"].startswith("shop.check/")
    assert [len(left["outputs"]), right["outputs"][0]["see_above"]] == [1, True]


@pytest.mark.parametrize(("topic", "partition", "offset"), [("others", 0, 0), ("orders", 9, 0), ("orders", 0, 99)])
def test_what_is_not_there_is_refused(topic: str, partition: int, offset: int) -> None:
    """Like an ancestor."""
    with pytest.raises(ConfigError, match=r"does not exist|is not there"):
        descendants(shop(1).broker, GRAPH, TopicPartition(topic, partition), offset)
