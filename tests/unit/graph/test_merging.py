"""Graphs as catalogs: merged into one, and bound to other topics, options and names."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka import (
    DataFrameProcessor,
    ErrorMessages,
    Errors,
    Feed,
    Graph,
    GraphError,
    Iterate,
    Json,
    Processor,
    Raw,
    Source,
    Table,
    Topic,
)
from cues_kafka.testing.tester import Tester


def anything(*messages: Any, **rest: Any) -> Any: ...


def factory() -> object:
    return object()


def test_merged_parts_keep_errors_strategy_and_topic_settings() -> None:
    """Parts keep the settings that came from their graph's defaults."""
    orders = Graph("orders", Source("a"), Processor(anything, name="one", inputs="a", outputs="b"), errors="e1")
    audit = Graph(
        "audit",
        Source("c"),
        Processor(anything, name="two", inputs="c", outputs="d"),
        Processor(anything, name="three", inputs="d", errors=False),
        errors=Errors("e2", payload=True),
        strategy="at-least-once",
        defaults=Topic(Raw(), partitions=6),
        system={"clock": factory},
    )
    merged = orders.merge(audit, name="all")

    assert (merged.name, merged.errors, merged.strategy) == ("all", "e1", "exactly-once")
    assert [merged.errors_of(name) for name in ("one", "two", "three")] == ["e1", "e2", None]
    assert [merged.strategy_of(name) for name in ("one", "two")] == ["exactly-once", "at-least-once"]
    assert (Json(), 1) == (merged.topic("a").value, merged.topic("a").partitions)
    assert (Raw(), 6) == (merged.topic("d").value, merged.topic("d").partitions)
    assert merged.declared_errors("two") == Errors("e2", payload=True)
    assert (merged.topic("e2").value, merged.topic("e2").partitions) == (ErrorMessages(), 6)
    renamed = merged.bind({"e1": "e3", "e2": "e4"})
    assert (renamed.errors, renamed.declared_errors("two")) == ("e3", Errors("e4", payload=True))
    assert {"clock": factory} == dict(merged.system)


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (Graph("h", Processor(anything, name="one", inputs="z")), "declared twice"),
        (Graph("h", Source("a"), topics={"a": Topic(partitions=2)}), "different settings"),
        (Graph("h", Source("z"), system={"clock": object}), "two factories"),
    ],
)
def test_what_contradicts_itself_is_not_merged(other: Graph, says: str) -> None:
    """One name is one part, one topic has one setting."""
    graph = Graph("g", Source("a"), Processor(anything, name="one", inputs="a"), system={"clock": factory})

    with pytest.raises(GraphError, match=says):
        graph.merge(other)


def test_options_are_merged_over_those_that_were_declared() -> None:
    """The rest of the graph stays as it is."""
    graph = Graph("g", Processor(anything, inputs="a", opts={"factor": 2, "unit": "kg"}))

    assert dict(graph.bind(opts={"anything": {"factor": 3}}).processors["anything"].opts) == {"factor": 3, "unit": "kg"}
    with pytest.raises(GraphError, match="did you mean 'anything'"):
        graph.bind(opts={"anythin": {}})
    with pytest.raises(GraphError, match="has no topic 'b'"):
        graph.bind({"b": "c"})


# The later part wins


BASE = Graph(
    "shop",
    Source("orders"),
    Processor(anything, name="check", inputs="orders", outputs="checked"),
    Processor(anything, name="bill", inputs="checked", outputs="bills"),
    topics={"orders": Topic(partitions=2), "checked": Topic(partitions=2)},
    system={"db": factory},
)


def test_the_later_part_wins_in_the_place_of_the_earlier() -> None:
    """Topics that only the earlier one used are gone with it; without override= both cannot stand."""
    later = Graph("later", Processor(anything, name="check", inputs="orders", outputs="approved", opts={"x": 1}))
    merged = BASE.merge(later.merge(Graph("last", Processor(anything, name="bill", inputs="approved"))), override=True)

    assert list(merged.processors) == ["check", "bill"]
    assert merged.processors["check"].outputs == (("output", "approved"),)
    assert merged.processors["bill"].inputs == (("input", "approved"),)
    assert {"orders": Topic(partitions=2)} == dict(merged.topics)
    assert merged.topics_used() == ("approved", "orders")
    with pytest.raises(GraphError, match=r"'check' is declared twice.*override=True"):
        BASE.merge(later)


def test_the_settings_of_a_topic_are_those_of_the_last_graph_that_declares_them() -> None:
    """A graph that only uses the topic takes it as it is, whatever its own defaults are."""
    uses = Graph("uses", Processor(anything, name="audit", inputs="orders"), defaults=Topic(Raw()))
    declares = Graph("declares", Source("orders"), topics={"orders": Topic(partitions=6)})

    assert BASE.merge(uses, override=True).topic("orders") == Topic(partitions=2)
    assert BASE.merge(declares, override=True).topic("orders").partitions == 6
    assert BASE.merge(declares, uses, override=True).topic("orders").partitions == 6
    assert declares.merge(uses, BASE, override=True).topic("orders").partitions == 2
    assert BASE.merge(uses, override=True).processors["audit"].inputs == (("input", "orders"),)


def test_the_later_factory_wins() -> None:
    """Of one name in system=."""
    later = Graph("later", Source("z"), system={"db": dict})

    assert dict(BASE.merge(later, override=True).system) == {"db": dict}


def test_a_part_of_another_kind_takes_the_place_too() -> None:
    """A feed where a processor was, and a source with its mark."""
    feed, source = Feed(Iterate(anything), into="checked", name="check"), Source("orders", default=True)
    merged = BASE.merge(Graph("later", feed, source), override=True)

    assert list(merged.all_processors) == ["bill", "check"]
    assert merged.sources["orders"].default


# Bound again


CATALOG = Graph(
    "catalog",
    Source("in"),
    Processor(anything, name="check", inputs="in", outputs="out", opts={"rate": 1}),
    Processor(anything, name="count", alts={"a": "in", "b": "out"}, tables={"known": Table("known")}),
    DataFrameProcessor(anything, inputs="out", outputs={"x": "sums"}, name="frame"),
    Feed(Iterate(anything), into="in", name="load"),
    topics={"in": Topic(partitions=3), "known": Topic(config={"cleanup.policy": "compact"})},
    errors="failed",
)


def test_a_catalog_stands_several_times_in_one_graph() -> None:
    """Each time between other topics, under other names, with options of its own; opts= goes by the present names."""
    bound = [
        CATALOG.bind(
            {topic: f"{region}.{topic}" for topic in CATALOG.topics_used()},
            opts={"check": {"rate": rate}},
            names={name: f"{name}-{region}" for name in CATALOG.all_processors},
        )
        for region, rate in (("eu", 2), ("us", 3))
    ]
    merged = bound[0].merge(bound[1], name="shop")

    assert list(merged.processors) == ["check-eu", "count-eu", "check-us", "count-us"]
    assert (list(merged.dataframes), list(merged.feeds)) == (["frame-eu", "frame-us"], ["load-eu", "load-us"])
    assert [dict(merged.processors[f"check-{region}"].opts) for region in ("eu", "us")] == [{"rate": 2}, {"rate": 3}]
    assert merged.processors["count-us"].tables["known"].topic == "us.known"
    assert merged.topic("us.in").partitions == 3
    assert [merged.errors_of(f"check-{region}") for region in ("eu", "us")] == ["eu.failed", "us.failed"]


def test_processors_may_swap_their_names() -> None:
    """All at once, not one after the other."""
    bound = CATALOG.bind(names={"check": "count", "count": "check"})

    assert [(name, one.kind) for name, one in bound.processors.items()] == [("count", "pipe"), ("check", "alts-sink")]


def test_two_topics_may_be_bound_to_one() -> None:
    """Where their settings agree; then both inputs of another graph's processors meet in it."""
    graph = Graph("g", Processor(anything, name="a", inputs="a"), Processor(anything, name="b", inputs="b"))

    assert graph.bind({"a": "c", "b": "c"}).topics_used() == ("c",)


def test_a_bound_graph_runs_as_the_catalog_does() -> None:
    """From its own topics into its own topics."""

    def times(number: int, factor: int) -> int:
        return number * factor

    catalog = Graph("c", Source("in"), Processor(times, inputs="in", outputs="out", opts={"factor": 1}))
    two, three = (
        catalog.bind({"in": f"in{n}", "out": f"out{n}"}, opts={"times": {"factor": n}}, names={"times": f"times{n}"})
        for n in (2, 3)
    )
    tester = Tester(two.merge(three))
    for n in (2, 3):
        tester.send(f"in{n}", 10)
    tester.run()

    assert (tester.values("out2"), tester.values("out3")) == ([20], [30])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"names": {"chek": "x"}}, "no processor 'chek'.*did you mean 'check'"),
        ({"names": {"check": "a.b"}}, "has a dot.*Write 'a-b'"),
        ({"names": {"check": "count"}}, "two processors or feeds are called 'count'"),
        ({"names": {"in": "x"}}, "no processor 'in'"),
        ({"opts": {"frame": {"x": 1}}}, "no processor 'frame'"),
        ({"topics": {"on": "x"}}, "no topic 'on'"),
        ({"topics": {"in": "or/ders"}}, "not a valid topic name"),
        ({"topics": {"in": "out"}}, "makes one topic, 'out', of.*Give both the same Topic"),
        ({"topics": {"sums": "failed"}}, "an errors topic"),
    ],
)
def test_what_a_graph_cannot_be_bound_to_is_refused(arguments: dict[str, Any], says: str) -> None:
    """By the name that is wrong, with the fix."""
    with pytest.raises(GraphError, match=says):
        CATALOG.bind(**arguments)
