"""The newest messages of a topic: which are shown, as what, and where the search ends."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka import ConfigError, Graph, Json, Memory, Processor, Source, Topic
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import Headers, Outgoing
from cues_kafka.testing.tester import Tester
from cues_kafka.ui import messages as messages_module
from cues_kafka.ui.bounds import Bounds
from cues_kafka.ui.messages import HEADERS, SHOWN, MessageAnswers, MessageRow
from cues_kafka.ui.views import LONGEST
from tests.unit.ui.hostile import HOSTILE, on_page


def same(order: Any) -> Any:
    """Passes it on."""
    return order


GRAPH = Graph(
    "shop",
    Source("orders"),
    Processor(same, inputs="orders", outputs="checked"),
    defaults=Topic(value=Json(), partitions=3),
)


@pytest.fixture
def shop() -> Tester:
    return Tester(GRAPH)


def asked(shop: Tester, bounds: Bounds | None = None, /, **given: str) -> Any:
    """As a page gets it."""
    answers = MessageAnswers(GRAPH, shop.broker, Memory(), bounds)
    return on_page(answers.newest({"topic": "orders", **given}))


def test_the_newest_of_all_partitions_come_first(shop: Tester) -> None:
    """Decoded, with their places."""
    for number in range(5):
        shop.send("orders", {"n": number}, key=f"k{number}")

    found = asked(shop)

    times = [row["timestamp_ms"] for row in found["rows"]]
    assert times == sorted(times, reverse=True)
    assert {row["value"] for row in found["rows"]} == {f'{{"n": {number}}}' for number in range(5)}
    assert (found["messages"], found["ended"], found["whole"]) == (5, "", True)
    assert str(Bounds()) == found["bounds"]


def test_a_key_a_text_and_a_partition_choose_messages(shop: Tester) -> None:
    """A key is the whole key; a text is found in small and capital letters."""
    for number in range(12):
        shop.send("orders", {"name": f"Anna {number}"}, key=f"k{number}")

    [row] = asked(shop, key="k1")["rows"]
    assert (row["key"], row["value"]) == ("k1", '{"name": "Anna 1"}')
    assert [one["key"] for one in asked(shop, text="aNNa 11")["rows"]] == ["k11"]
    partition = row["place"].split("/")[1].split("@")[0]
    assert {one["place"].split("@")[0] for one in asked(shop, partition=partition)["rows"]} == {f"orders/{partition}"}
    assert asked(shop, key="k")["rows"] == []


def test_a_time_chooses_messages_from_it_on_and_before_it(shop: Tester) -> None:
    """By the times of the messages, also where these are not in their order."""
    shop.broker.sender("test").send(
        [
            Outgoing("orders", 0, b"k", b"%d" % minute, None, 1_764_000_000_000 + minute * 60_000)
            for minute in (0, 2, 1, 3)
        ]
    )

    def values(**given: str) -> list[str]:
        return [row["value"] for row in asked(shop, **given)["rows"]]

    assert values() == ["3", "2", "1", "0"]
    assert values(since="2025-11-24T16:01Z") == ["3", "2", "1"]
    assert values(since="2025-11-24T16:01Z", until="2025-11-24T16:03Z") == ["2", "1"]
    assert values(since="2100-01-01T00:00Z") == []


@pytest.mark.parametrize("wrong", [{"since": "soon"}, {"until": "2026-11-25"}, {"partition": "x"}, {"partition": "7"}])
def test_a_filter_that_is_none_is_refused(shop: Tester, wrong: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"give a time|zone|give a number|has partitions 0 to 2"):
        asked(shop, **wrong)


@pytest.mark.parametrize("topic", ["", "others", "__consumer_offsets", "shop.same", *HOSTILE])
def test_only_topics_of_the_graph_are_read(shop: Tester, topic: str) -> None:
    """Whatever else the login of the view may read."""
    shop.broker.create([NewTopic("others", 1)])
    with pytest.raises(ConfigError, match="has no topic"):
        asked(shop, topic=topic)


def test_more_than_are_shown_are_left_out_and_the_newest_stay(shop: Tester) -> None:
    """Also from a partition with more than one look."""
    start_ms = 1_764_000_000_000
    shop.broker.sender("test").send(
        [Outgoing("orders", n % 3, b"k", b"%d" % n, None, start_ms + n) for n in range(SHOWN * 12)]
    )

    found = asked(shop)

    assert [row["value"] for row in found["rows"]] == [str(n) for n in range(SHOWN * 12)][: -SHOWN - 1 : -1]
    assert (found["whole"], found["ended"]) == (True, "")
    assert found["messages"] < SHOWN * 12


def test_a_search_that_finds_nothing_ends_at_its_bounds_and_says_so(shop: Tester) -> None:
    """By messages, by bytes, and by time."""
    shop.send_many("orders", ["x" * 1_000] * 900)

    for bounds, why in [
        (Bounds(messages=300), "after 300 messages"),
        (Bounds(size=100_000), "after 0.0"),
        (Bounds(seconds=0.0), "after 0 s"),
    ]:
        found = asked(shop, bounds, text="nothing has this")
        assert found["ended"].startswith(why)
        assert (found["whole"], found["rows"]) == (False, [])
        assert found["messages"] <= 300
    assert asked(shop, Bounds(size=100_000), text="nothing has this")["bytes"] < 102_000


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_keys_values_and_headers_are_texts(shop: Tester, hostile: str) -> None:
    """With escapes for what hides or turns them."""
    shop.send("orders", {hostile: hostile}, key=hostile, headers={"h": hostile, "<b>": b"\xff\x00"})

    [row] = asked(shop)["rows"]

    assert row["headers"][1] == ["<b>", "\\xff\\u0000"]
    if "<" in hostile:
        assert row["key"] == hostile


def test_a_message_that_cannot_be_decoded_is_shown_with_its_bytes_and_why(shop: Tester) -> None:
    """Like a tombstone, it is no reason to show nothing."""
    shop.broker.sender("test").send(
        [
            Outgoing("orders", 0, None, b"<b>\xff", None, 1_764_000_000_002),
            Outgoing("orders", 0, b"gone", None, None, 1_764_000_000_001),
        ]
    )

    wrong, gone = asked(shop)["rows"]

    assert (wrong["key"], wrong["value"], wrong["size"]) == (None, "<b>\\xff", 4)
    assert "orders/0 at offset 0 cannot be decoded" in wrong["why"]
    assert (gone["key"], gone["value"], gone["why"]) == ("gone", "(tombstone)", "")


def test_long_headers_are_cut_before_they_are_kept(shop: Tester) -> None:
    """The bounds of a search count keys and values, so headers could fill the memory."""
    headers: Headers = [("n" * 9_000, b"v" * 1_000_000), ("wild", b"\xff" * 9_000), ("short", b"\xff" * LONGEST)]
    shop.broker.sender("test").send([Outgoing("orders", 0, b"k", b"1", headers)])

    [row] = MessageAnswers(GRAPH, shop.broker, Memory()).newest({"topic": "orders"})["rows"]

    assert row.headers[0][1].endswith("vvv ... (as a whole 1,000,000 bytes)")
    assert max(len(text) for pair in row.headers[:2] for text in pair) <= LONGEST
    assert row.headers[2][1] == "\\xff" * LONGEST, "what has no more bytes is cut by the page, which counts characters"


def test_a_search_keeps_no_more_messages_than_it_shows_and_looks_at(
    shop: Tester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many partitions have them."""
    now, most = 0, 0

    class Counted(MessageRow):
        def __init__(self, **given: Any) -> None:
            nonlocal now, most
            super().__init__(**given)
            now += 1
            most = max(most, now)

        def __del__(self) -> None:
            nonlocal now
            now -= 1

    wide = Graph("shop", Source("orders"), defaults=Topic(value=Json(), partitions=12))
    tester = Tester(wide)
    start_ms = 1_764_000_000_000
    tester.broker.sender("test").send(
        [Outgoing("orders", n % 12, b"k", b"%d" % n, None, start_ms + n) for n in range(SHOWN * 12)]
    )
    monkeypatch.setattr(messages_module, "MessageRow", Counted)

    rows = MessageAnswers(wide, tester.broker, Memory()).newest({"topic": "orders"})["rows"]

    assert [row.value for row in rows] == [str(n) for n in range(SHOWN * 12)][: -SHOWN - 1 : -1]
    assert most <= 3 * SHOWN, "those of a part, and those that were found before"


def test_a_million_headers_and_a_long_value_are_cut(shop: Tester) -> None:
    """With the number of those that are not shown."""
    headers: Headers = [("h", b"x")] * 1_000_000
    shop.broker.sender("test").send([Outgoing("orders", 0, b"k" * 9_000, b'"%b"' % (b"v" * 90_000), headers)])

    [row] = asked(shop)["rows"]

    assert (len(row["headers"]), row["more"]) == (HEADERS, 1_000_000 - HEADERS)
    assert "more characters" in row["value"]
    assert len(row["value"]) < LONGEST + 100
    assert len(row["key"]) < LONGEST + 100
