"""Where messages come from: trees of ancestors, and what is known of those that are gone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cues_kafka import (
    ConfigError,
    Dedupe,
    Feed,
    Graph,
    Handler,
    Header,
    Iterate,
    Processor,
    Source,
    StateHandler,
    Timers,
    Topic,
    rekey,
)
from cues_kafka.cli.main import app
from cues_kafka.core.delivery import HEADER
from cues_kafka.core.records import KEY, Attempt, Snapshot, Staged, Writer
from cues_kafka.core.records import Extent as Took
from cues_kafka.operate.look.descendants import descendants
from cues_kafka.operate.look.lineage import Ancestor, lineage, parse_place
from cues_kafka.operate.look.lineage_lines import descent_tree, tree
from cues_kafka.operate.repair.ask import Repairs
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import Headers, Outgoing, TopicPartition
from cues_kafka.records.bytes import encode_record
from cues_kafka.testing.tester import Tester


def same(value: Any) -> Any:
    """Passes it on."""
    return value


def both(order: Any, price: Any) -> Any:
    """Joins two messages."""
    if price == 0:
        raise ValueError("no\nprice")
    return [order, price]


SHOP = Graph(
    "shop",
    Source("orders"),
    Source("prices"),
    Processor(same, name="check", inputs="orders", outputs="checked"),
    Processor(both, name="bill", inputs={"order": "checked", "price": "prices"}, outputs="bills"),
    errors="failed",
)


def shop(*prices: int) -> Tester:
    """A shop with an order for each price."""
    tester = Tester(SHOP)
    for number, price in enumerate(prices):
        tester.send("orders", {"id": number}, key=f"k{number}")
        tester.send("prices", price)
    return tester.run()


def of(tester: Tester, topic: str, nth: int = 0, **options: Any) -> Ancestor:
    """The lineage of a message of a topic's first partition."""
    return lineage(tester.broker, TopicPartition(topic, 0), tester.messages(topic)[nth].offset, **options)


def shown(root: Ancestor) -> list[str]:
    """What the command prints."""
    return plain(tree(root))


def plain(lines: Iterable[str]) -> list[str]:
    """Without times, and with numbers of batches as `n`."""
    timeless = [re.sub(r"  \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3})?Z", "", line) for line in lines]
    return [re.sub(r"batch \d+\b", "batch n", line) for line in timeless]


# ------------------------------------------------------------------------------------------------------- the tree


@pytest.mark.parametrize("time_ms", [1_795_600_800_000_000, 1_795_600_800_000_000_000, -62_135_596_800_001])
def test_times_that_are_no_dates_are_shown_as_numbers(time_ms: int) -> None:
    """Programs that count in micro- or nanoseconds write them; the rest of the tree is shown, too."""
    tester = shop(5)
    for topic in ("orders", "bills"):
        for one in tester.broker.messages(topic):
            one._timestamp = (1, time_ms)  # type: ignore[attr-defined]  # no sender of ours writes it
    first, *rest = tree(of(tester, "bills"))
    assert first.startswith(f"bills/0@0  {time_ms} ms  key 'k0'")
    assert sum(f"{time_ms} ms" in line for line in rest) == 1


def test_a_join_branches_back_to_its_sources() -> None:
    """Through the processor in between."""
    assert shown(of(shop(5, 7), "bills", 1)) == [
        "bills/0@1  key 'k1'  by shop.bill/0, batch n",
        "├─ order: checked/0@1  key 'k1'  by shop.check/0, batch n",
        "│  └─ input: orders/0@1  key 'k1'  sent to the topic; it has no provenance header",
        "└─ price: prices/0@1  sent to the topic; it has no provenance header",
    ]


def test_the_page_shows_what_the_command_prints() -> None:
    """Times and numbers of batches are those of another run."""
    page = (Path(__file__).parents[4] / "docs" / "lineage.md").read_text(encoding="utf-8")
    _, _, block = page.partition("```console\n$ cues-kafka lineage bills/0@1\n")

    assert plain(block.partition("```")[0].splitlines()) == shown(of(shop(5, 7), "bills", 1))


def test_the_page_shows_what_became_of_a_message() -> None:
    """As the command prints it, in the other direction."""
    page = (Path(__file__).parents[4] / "docs" / "lineage.md").read_text(encoding="utf-8")
    _, _, block = page.partition("```console\n$ cues-kafka lineage orders/0@1 --forward --graph shop:graph\n")
    found = descendants(shop(5, 7).broker, SHOP, TopicPartition("orders", 0), 1)

    assert plain(block.partition("```")[0].splitlines()) == plain(descent_tree(found))


def test_an_error_message_says_what_it_is_about() -> None:
    """In one line, whatever the exception's text is."""
    first, *rest = shown(of(shop(0), "failed"))

    assert first == "failed/0@0  key 'k0'  by shop.bill/0, batch n  error ValueError: no price"
    assert len(rest) == 3


def test_a_message_that_is_there_twice_has_its_ancestors_once() -> None:
    """A fork whose outputs meet again."""
    graph = Graph(
        "g",
        Source("in"),
        Processor(lambda v: {"a": v, "b": v}, name="fork", inputs="in", outputs={"a": "left", "b": "right"}),
        Processor(
            lambda left, right: [left, right], name="meet", inputs={"left": "left", "right": "right"}, outputs="out"
        ),
    )
    tester = Tester(graph)
    tester.send("in", 1)
    root = of(tester.run(), "out")

    assert shown(root) == [
        "out/0@0  by g.meet/0, batch n",
        "├─ left: left/0@0  by g.fork/0, batch n, record 1 of 2",
        "│  └─ input: in/0@0  sent to the topic; it has no provenance header",
        "└─ right: right/0@0  by g.fork/0, batch n, record 2 of 2",
        "   └─ input: in/0@0  sent to the topic; it has no provenance header, see above",
    ]
    data = root.to_dict()
    assert data["record"] == [0, 1]
    assert "see_above" not in data["inputs"][0]["inputs"][0]
    assert data["inputs"][1]["inputs"][0]["see_above"]
    assert json.loads(json.dumps(data)) == data


def test_a_cycle_is_followed_round_by_round() -> None:
    """A message comes after its ancestors, so each round is another message; `most` cuts a long way off."""
    graph = Graph("g", Source("in"), Processor(lambda n: n - 1 if n else None, name="round", inputs="in", outputs="in"))
    tester = Tester(graph)
    tester.send("in", 1_200)
    tester.run()

    assert len(shown(of(tester, "in", -1, most=5_000))) == 1_201
    cut = shown(of(tester, "in", -1))
    assert len(cut) == 1_001
    assert cut[-1].endswith("not looked at, because --most messages were")


def test_dedupe_and_rekey_keep_all_headers_and_the_lineage() -> None:
    """The provenance header is theirs, every other one is the message's."""
    graph = Graph(
        "g",
        Source("in"),
        Dedupe("once", inputs="in", outputs="unique", by=Header("id"), within=10),
        rekey("by-name", inputs="unique", outputs="out", by="name"),
    )
    tester = Tester(graph)
    headers = {"id": "7", "traceparent": "00-a-b-01", "cues-tag": "x", "own": b"\x00"}
    tester.send("in", {"name": "n"}, key="k", headers=headers)
    [received] = tester.run().messages("out")

    assert [one for one in received.headers if one[0] != HEADER] == [
        (name, value.encode() if isinstance(value, str) else value) for name, value in headers.items()
    ]
    assert shown(of(tester, "out")) == [
        "out/0@0  key 'n'  by g.by-name/0, batch n",
        "└─ input: unique/0@0  key 'k'  by g.once/0, batch n",
        "   └─ input: in/0@0  key 'k'  sent to the topic; it has no provenance header",
    ]


# ------------------------------------------------------------------------------------------ ancestors that are gone


def test_an_ancestor_that_was_trimmed_has_its_place() -> None:
    """The branch ends there; the other one goes on."""
    tester = shop(5, 7)
    tester.broker.trim({TopicPartition("checked", 0): 2})

    assert shown(of(tester, "bills", 1))[1:] == [
        "├─ order: checked/0@1  no longer there: the beginning of its partition was deleted",
        "└─ price: prices/0@1  sent to the topic; it has no provenance header",
    ]


def test_an_ancestor_that_was_compacted_has_its_place() -> None:
    """A later message with its key took its place."""
    compacted = Topic(config={"cleanup.policy": "compact"})
    graph = Graph("g", Source("latest"), Processor(same, inputs="latest", outputs="out"), topics={"latest": compacted})
    tester = Tester(graph)
    for n in range(3):
        tester.send("latest", n, key="k")
    tester.run()
    tester.broker.compact("latest")

    assert shown(of(tester, "out", 0))[1] == "└─ input: latest/0@0  no longer there: compaction removed it"


def test_an_ancestor_whose_topic_was_recreated_has_its_topics_id() -> None:
    """A topic of the same name is not the same topic."""
    tester = shop(5)
    tester.broker.delete(["prices"])
    tester.broker.create([NewTopic("prices", 1)])
    _, _, _, price = shown(of(tester, "bills"))
    [_, (_, node)] = of(tester, "bills").inputs

    assert re.fullmatch(r"└─ price: [\w-]{22}/0@0  no longer there: its topic was deleted", price)
    assert (node.topic, node.state) == ("", "recreated")
    assert node.topic_id in price


@pytest.mark.parametrize(
    ("place", "offset", "why"),
    [
        (("nowhere", 0), 0, "nowhere/0 does not exist"),
        (("bills", 3), 0, "bills/3 does not exist"),
        (("bills", 0), 99, "bills/0@99 is not there: committed messages are from 0 to "),
        (("orders", 0), 0, "orders/0@0 is not there: committed messages are from 1 to 1"),
        (("bills", 0), 2, "bills/0@2 is not a message"),
    ],
)
def test_a_message_that_is_not_there_is_refused(place: tuple[str, int], offset: int, why: str) -> None:
    """The marker of a transaction takes an offset, too."""
    tester = shop(5, 7)
    tester.broker.trim({TopicPartition("orders", 0): 1})

    with pytest.raises(ConfigError, match=re.escape(why)):
        lineage(tester.broker, TopicPartition(*place), offset)


def test_a_message_of_an_empty_partition_is_refused() -> None:
    """There is no first and no last offset that could be named."""
    tester = Tester(Graph("g", Source("orders")))

    with pytest.raises(ConfigError, match=r"orders/0@4 is not there: its partition is empty"):
        lineage(tester.broker, TopicPartition("orders", 0), 4)


@pytest.mark.parametrize("text", ["orders", "orders/3", "orders@3", "/3@4", "orders/x@4", "orders/-1@4", "orders/3@"])
def test_what_names_no_message_is_refused(text: str) -> None:
    """It says how to write it."""
    with pytest.raises(ConfigError, match="Write TOPIC/PARTITION@OFFSET"):
        parse_place(text)


def test_topics_may_have_any_of_kafkas_names() -> None:
    """They have no slash and no @."""
    assert parse_place("a.b_c-d/12@345") == (TopicPartition("a.b_c-d", 12), 345)


# ---------------------------------------------------------------------------------------- what names no message


def lines_of(place: str | None) -> Iterator[tuple[Any, str]]:
    """Two lines; the second does not fit."""
    for n, value in enumerate([1, {1, 2}]):
        if place is None or int(place) < n:
            yield value, str(n)


def test_rows_of_a_feed_name_its_place() -> None:
    """Those that did not fit, too."""
    tester = Tester(Graph("g", Feed(Iterate(lines_of), into="in"), errors="failed"))
    tester.run()

    assert shown(of(tester, "in")) == [
        "in/0@0  by g.iterate/0, batch n, record 1 of 2",
        "└─ read by a feed, whose batch ended at its place 1",
    ]
    first, second = shown(of(tester, "failed"))
    assert "record 2 of 2  error CodecError: " in first
    assert second == "└─ read by a feed, whose batch ended at its place 1"


class Held(StateHandler):
    """Holds the sum back until the commit."""

    def __init__(self) -> None:
        self.sum = 0

    def reset(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Become what is committed."""
        del entries
        self.sum = 0

    def reset_to_initial(self) -> None:
        """Begin."""
        self.sum = 0

    def drain(self) -> Iterator[Any]:
        """Give the sum."""
        yield self.sum

    def checkpoint(self) -> Iterable[tuple[bytes, bytes | None]]:
        """Keep nothing."""
        return ()


def test_what_a_state_handler_held_back_names_what_its_task_had_read() -> None:
    """Not a single message is behind it."""

    def add(value: int, held: Held) -> None:
        held.sum += value

    tester = Tester(Graph("g", Source("in"), Processor(add, inputs="in", outputs="out", state={"held": Handler(Held)})))
    tester.send_many("in", [1, 2, 3])
    tester.run()

    assert shown(of(tester, "out")) == [
        "out/0@0  by g.add/0, batch n",
        "└─ of no single message: made when the task had read all before in/0@4",
    ]


def test_what_was_held_back_is_found_among_records_of_replays() -> None:
    """They stand in the backing topic too, and are no records of the task's place."""
    bad = [2, 3, 4]

    def add(value: int, held: Held) -> None:
        if value in bad:
            raise ValueError("bad")
        held.sum += value

    processor = Processor(add, inputs="in", outputs="out", state={"held": Handler(Held)})
    tester = Tester(Graph("g", Source("in"), processor, errors="failed"))
    tester.send_many("in", [1, 2, 3, 4])
    tester.run()
    bad.clear()
    with Repairs(tester.graph, tester.broker) as tool:
        tool.ask("drop")
    tester.run()
    tester.send_many("in", [5])
    tester.run()
    last = len(tester.values("out")) - 1

    assert shown(of(tester, "out", last))[1].startswith("└─ of no single message: made when the task had read all")
    assert shown(of(tester, "out"))[1].startswith("└─ of no single message: made when the task had read all")


def test_the_step_of_a_timer_names_the_message_that_set_it() -> None:
    """With its key and time."""

    def wait(_: int, step: Any) -> None:
        step.schedule("k1", at=step.inputs["input"].timestamp_ms + 5_000)

    processor = Processor(
        wait, inputs="in", outputs="out", state={"timers": Timers(lambda timer: timer.key, by="clock")}
    )
    tester = Tester(Graph("g", Source("in"), processor))
    tester.send("in", 1)
    tester.run()
    tester.clock.advance(10)
    tester.run()
    first, second = shown(of(tester, "out"))

    assert re.fullmatch(r"out/0@0  key 'k1'  by g.wait/0, batch n  timer 'k1', due \S+Z, which was set with", first)
    assert second == "└─ input: in/0@0  sent to the topic; it has no provenance header"


def test_the_outcome_of_a_replay_names_its_error_message() -> None:
    """And the message that was delivered again."""
    fixed: list[bool] = []

    def fn(n: int) -> int:
        if not fixed:
            raise ValueError("bad")
        return n

    tester = Tester(Graph("g", Source("in"), Processor(fn, name="f", inputs="in", outputs="out"), errors="failed"))
    tester.send("in", 1)
    tester.run()
    fixed.append(True)
    with Repairs(tester.graph, tester.broker) as tool:
        tool.ask("replay")
    tester.run()
    first, second = shown(of(tester, "out"))
    data = of(tester, "out").to_dict()

    assert re.fullmatch(r"out/0@0  by g.f/0, batch n  replay 1 of error message failed/0@0, which .*again", first)
    assert second == "└─ input: in/0@0  sent to the topic; it has no provenance header"
    assert data["replay"] == {"number": 1, "of": "failed/0@0"}


def test_rows_of_a_staged_batch_name_what_the_batch_took() -> None:
    """From the announcement in part 0, as far as compaction has left it."""
    tester = Tester(Graph("g", Source("orders"), Processor(same, inputs="orders", outputs="rows")))
    broker = tester.broker
    broker.create([NewTopic("g.totals.backing", 2, config={"cleanup.policy": "compact"})])
    topic_id = broker.facts(["orders"]).topics["orders"].topic_id
    took = Took("orders", topic_id, '{"orders":{"0":5}}', '{"orders":{"0":9}}')
    batch = Staged(query="q1", batch=7, attempt="a", checksum=bytes(16), number=12, parts=2)
    common: dict[str, Any] = {"step": 0, "positions": (), "born": 2, "writer": Writer("i", "spark", "w", "c")}
    announced = Snapshot(sequence=12, staged=replace(batch, extents=(took,)), ends=(), steps=0, **common)
    published = Attempt(sequence=31, staged=replace(batch, part=1), **common)
    earlier = [Attempt(sequence=n, staged=replace(batch, part=1, number=n), **common) for n in range(25, 31)]
    header: Headers = [(HEADER, b"1 g.totals/1 31 - 4/9 -")]
    broker.sender("spark").send(
        [
            Outgoing("g.totals.backing", 0, KEY, encode_record(announced)),
            *[Outgoing("g.totals.backing", 1, KEY, encode_record(one)) for one in (*earlier, published)],
            Outgoing("rows", 0, b"k", b"1", header),
        ]
    )

    assert shown(of(tester, "rows")) == [
        "rows/0@0  key 'k'  by g.totals/1, batch n, record 5 of 9",
        "└─ made by Spark of all rows of batch n of query q1: orders/0@5 to 8",
    ]
    broker.trim({TopicPartition("g.totals.backing", 0): 1})
    assert shown(of(tester, "rows"))[1].endswith("of query q1: what it took is no longer recorded")
    broker.compact("g.totals.backing")
    broker.sender("spark").send([Outgoing("rows", 0, b"k", b"1", [(HEADER, b"1 g.totals/1 26 - 4/9 -")])])
    unknown = "└─ made of no single message; the records of its task no longer show which"
    assert shown(of(tester, "rows", 1))[1] == unknown
    broker.delete(["g.totals.backing"])
    assert shown(of(tester, "rows"))[1] == unknown


# ---------------------------------------------------------------------------------------------------- the command


def test_the_command_reads_as_the_tools_of_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verifier of the graph has the right to that group; without a graph it is one of the topic's name."""
    tester = shop(5)
    groups: list[str] = []

    class Watched:
        """The broker, which notes the groups of readers."""

        def __getattr__(self, name: str) -> Any:
            return getattr(tester.broker, name)

        def reader(self, group: str, **options: Any) -> Any:
            groups.append(group)
            return tester.broker.reader(group, **options)

    monkeypatch.setattr("cues_kafka.brokers.open.open_broker", lambda _: Watched())
    for more in ([], ["--graph", "examples/shop.py:graph"]):
        assert CliRunner().invoke(app, ["lineage", "bills/0@0", *more]).exit_code == 0

    assert groups == ["bills.tools", "shop.tools"]


def test_the_command_prints_the_tree_or_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """And ends with 2 where there is no such message."""
    tester = shop(5)
    monkeypatch.setattr("cues_kafka.brokers.open.open_broker", lambda _: tester.broker)

    printed = CliRunner().invoke(app, ["lineage", "bills/0@0"])
    assert printed.output.splitlines() == list(tree(of(tester, "bills")))
    as_json = CliRunner().invoke(app, ["lineage", "bills/0@0", "--json", "--most", "1"])
    assert [one["state"] for one in json.loads(as_json.output)["inputs"]] == ["not followed", "not followed"]
    missing = CliRunner().invoke(app, ["lineage", "bills/0@77"])
    assert missing.exit_code == 2
    assert "committed messages are from 0" in missing.output
