"""Entries of stores, looked up by key."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka import ConfigError, Graph, Json, Memory, Message, Processor, Source, State, Step, Store, Timers, Topic
from cues_kafka.state.layers import ENTRY, MARK
from cues_kafka.testing.tester import Tester
from cues_kafka.ui.stores import ENTRIES, StoreAnswers
from tests.unit.ui.hostile import HOSTILE, on_page


def count(order: Any, seen: State[Any], pairs: State[Any]) -> None:
    """Count texts, and pairs."""
    seen[order] = {"count": seen.get(order, {"count": 0})["count"] + 1, "text": order}
    pairs[[order, 1]] = order


GRAPH = Graph(
    "shop",
    Source("orders"),
    Processor(count, inputs="orders", state={"seen": Store(), "pairs": Store(Json(), key=Json())}),
    defaults=Topic(value=Json()),
)


def shop(*orders: str) -> Tester:
    """A shop that has counted these."""
    tester = Tester(GRAPH)
    tester.send_many("orders", list(orders))
    return tester.run()


def answers(tester: Tester, **options: Any) -> StoreAnswers:
    return StoreAnswers(GRAPH, tester.broker, Memory(), **options)


def asked(tester: Tester, key: str, store: str = "seen", **given: str) -> Any:
    """As a page gets it."""
    return on_page(answers(tester).look_up({"processor": "count", "store": store, "key": key, **given}))


def test_a_text_finds_its_entry_and_those_that_begin_with_it() -> None:
    """With the position up to which they are true."""
    tester = shop("ant", "anthem", "bee", "ant")

    found = asked(tester, "ant", begins="yes")

    assert [row["key"] for row in found["rows"]] == ['"ant"', '"anthem"']
    assert found["rows"][0]["value"] == '{"count": 2, "text": "ant"}'
    assert (found["more"], found["entries"]) == (False, 3)
    [end] = found["true_up_to"]
    assert end.startswith("orders/0@")
    assert int(end.partition("@")[2]) > tester.messages("orders")[3].offset
    assert asked(tester, "wasp", begins="yes")["rows"] == []
    assert [row["key"] for row in asked(tester, "ant")["rows"]] == ['"ant"']
    assert asked(tester, "an")["rows"] == []


def test_forged_entry_is_shown_with_its_reason_beside_the_others() -> None:
    """It ended the page with the error of a codec, or with a traceback."""
    tester = shop("ant")
    forged = [(ENTRY + b"\xff", b"1"), (ENTRY + b"bee", b"no JSON"), (MARK, b"1")]
    tester.broker.sender("stranger").send([("shop.count.seen.changelog", 0, *one, None, 0) for one in forged])

    rows = asked(tester, "", begins="yes")["rows"]

    assert rows[0] == {"key": '"ant"', "value": '{"count": 1, "text": "ant"}'}
    assert "(the value of the key b'bee' in the store 'seen' cannot be read: " in rows[1]["value"]
    assert "(the key b'" in rows[2]["key"]
    assert "cues-kafka rebuild" in rows[2]["key"]


def test_a_key_that_is_json_finds_one_entry() -> None:
    """A text that is not JSON is refused."""
    tester = shop("ant")

    assert asked(tester, '["ant", 1]', "pairs")["rows"] == [{"key": '["ant", 1]', "value": '"ant"'}]
    assert asked(tester, '["bee", 1]', "pairs")["rows"] == []
    for wrong in ("ant", "[" * 60_000, ""):
        with pytest.raises(ConfigError, match="the keys of this store are JSON"):
            asked(tester, wrong, "pairs")


def test_no_more_entries_are_shown_than_a_number() -> None:
    """And it is said that there are more."""
    found = asked(shop(*(f"k{number:03}" for number in range(ENTRIES + 5))), "", begins="yes")

    assert (len(found["rows"]), found["more"], found["entries"]) == (ENTRIES, True, ENTRIES + 5)


def test_a_store_that_is_too_large_is_refused_with_what_to_do() -> None:
    """The view does not hold it."""
    with pytest.raises(ConfigError, match=r"more than 0\.000954 MB.*Name the partition"):
        answers(shop(*"abcdefghijkl" * 9, "x" * 2_000), size=1_000).look_up({"processor": "count", "store": "seen"})


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_keys_and_values_are_texts(hostile: str) -> None:
    """They are found, too."""
    found = asked(shop(hostile), hostile)

    assert len(found["rows"]) == 1


@pytest.mark.parametrize(
    "given",
    [
        {"processor": "other", "store": "seen"},
        {"processor": "count", "store": "other"},
        {},
        {"processor": "count", "store": "seen", "partition": "9"},
        {"processor": "count", "store": "seen", "partition": "<b>"},
    ],
)
def test_what_names_no_store_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        answers(shop("ant")).look_up(given)


def wait(order: Any, step: Step) -> None:
    """Sets no timer."""


def test_the_stores_are_named_and_timers_are_none() -> None:
    """With the form of their keys."""
    timers = Timers(lambda timer: timer.key, by="clock")
    graph = Graph("g", Source("in"), Processor(wait, inputs="in", outputs="out", state={"timers": timers}))

    found = on_page(answers(shop()).stores())

    assert found["stores"] == [
        {"processor": "count", "store": "seen", "keys": "text"},
        {"processor": "count", "store": "pairs", "keys": "JSON"},
    ]
    other = StoreAnswers(graph, Tester(graph).broker, Memory())
    assert other.stores()["stores"] == []
    with pytest.raises(ConfigError, match="holds timers"):
        other.look_up({"processor": "wait", "store": "timers", "key": "k"})


def by_name(order: Any, names: State[Any], backward: State[Any]) -> None:
    """Keep an order under the key of its message, and under another one."""
    names[order["name"]] = order
    backward[order["name"][::-1]] = order


@pytest.mark.parametrize("key", ["name", None], ids=["declared", "not declared"])
def test_a_key_is_looked_up_in_its_partition_alone(key: str | None) -> None:
    """The others are read only where the entry is not in the partition that messages with this key have."""
    graph = Graph(
        "shop",
        Source("orders"),
        Processor(by_name, inputs="orders", state={"names": Store(), "backward": Store()}),
        defaults=Topic(value=Json(), partitions=4, key=key),
    )
    tester = Tester(graph)
    names = [f"name-{number}" for number in range(40)]
    tester.send_many("orders", [Message({"name": name}, key=name) for name in names])
    tester.run()
    look = StoreAnswers(graph, tester.broker, Memory()).look_up
    homes = {message.value["name"]: message.partition for message in tester.messages("orders")}
    assert {*homes.values()} == {0, 1, 2, 3}
    for name in names[:6]:
        given = {"processor": "by_name", "key": name}
        found = on_page(look({**given, "store": "names"}))
        assert [row["key"] for row in found["rows"]] == [f'"{name}"']
        assert found["read"] == f"partition {homes[name]}"
        assert found["entries"] == [*homes.values()].count(homes[name])
        assert [one.partition("@")[0] for one in found["true_up_to"]] == [f"orders/{homes[name]}"]
    several = on_page(look({"processor": "by_name", "store": "names", "key": "name-1", "begins": "yes"}))
    assert (len(several["rows"]), several["entries"], several["read"]) == (11, 40, "all partitions")
    reversed_ = [on_page(look({"processor": "by_name", "store": "backward", "key": name[::-1]})) for name in names[:6]]
    assert [len(one["rows"]) for one in reversed_] == [1] * 6
    assert "all partitions" in {one["read"] for one in reversed_}
    gone = on_page(look({"processor": "by_name", "store": "names", "key": "nothing"}))
    assert (gone["rows"], gone["read"]) == ([], "all partitions")
