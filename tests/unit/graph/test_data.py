"""Graphs as data: any graph is written down and read back; renamed and merged with itself it stays the same."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cues_kafka import (
    Blobs,
    DataFrameProcessor,
    Graph,
    GraphError,
    Json,
    Processor,
    Raw,
    Retry,
    Source,
    Table,
    Timers,
    Topic,
    has_header,
    has_tag,
    has_type,
)
from cues_kafka.errors import CuesError
from cues_kafka.graph.declare import Limits, Store
from cues_kafka.graph.error_message import ErrorMessages, Errors
from cues_kafka.graph.filters import Filter
from cues_kafka.graph.formats import Avro
from cues_kafka.graph.processor import SourceLevel
from tests.examples import examples


@dataclass(frozen=True)
class Order:
    id: str
    total: int


def anything(*messages: Any, **rest: Any) -> Any: ...


async def later(*messages: Any, **rest: Any) -> Any: ...


def predicate(message: Any) -> bool:
    return bool(message.value)


def factory() -> object:
    return object()


class Keeper:
    """A class with a function inside."""

    @staticmethod
    def keep(message: Any) -> None: ...


NAMES = st.text("abcXYZ019_-", min_size=1, max_size=8)
TOPICS = st.text("abcXYZ019-", min_size=1, max_size=8)
CODECS: st.SearchStrategy[Any] = st.sampled_from(
    [
        Json(),
        Json(Order),
        Raw(),
        ErrorMessages(),
        Avro('{"type": "string"}'),
        Avro({"type": "record", "name": "O", "fields": []}),
        Avro(Order),
        Avro(registry=True, subject="orders"),
        Avro({"type": "long"}, older=[{"type": "int"}, Order], limits=Limits(bytes=9)),
        Avro({"type": "record", "name": "O", "fields": []}, Order, registry=True, strategy="record"),
    ]
)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.sampled_from([Order, anything, int]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text("$ab", max_size=4) | st.integers(), inner, max_size=3)
    ),
    max_leaves=6,
)
RETRIES = st.builds(
    Retry,
    on=st.sampled_from([OSError, (OSError, ValueError), (CuesError,)]),
    for_s=st.floats(1, 1000),
    first_s=st.floats(0.01, 1),
    max_s=st.floats(1, 100),
    then=st.sampled_from(["stop", "error"]),
)
OWN_ERRORS = Errors("own-errors", payload=True, redact=("a",))
NAMED: list[Any] = [predicate, has_type(Order, "order"), has_tag("audit", "eu"), has_header("h"), has_header("h", b"")]


def combined(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Filters of these, and of functions."""
    both = st.tuples(st.just(has_tag("x")), inner).map(lambda pair: pair[0] & pair[1])
    either = st.tuples(inner, st.just(has_header("x", "é"))).map(lambda pair: pair[0] | pair[1])
    return both | either | inner.map(lambda one: ~one if isinstance(one, Filter) else one)


FILTERS = st.none() | st.recursive(st.sampled_from(NAMED), combined, max_leaves=4)


@st.composite
def topics(draw: st.DrawFn, *, keyed: bool = True) -> Topic:
    """Settings, each of which may be left out; bytes have no field to be their key."""
    every: dict[str, st.SearchStrategy[Any]] = {
        "value": CODECS,
        "partitions": st.integers(1, 64),
        "provenance": st.booleans(),
        "config": st.dictionaries(st.sampled_from(["retention.ms", "cleanup.policy"]), st.text("01", min_size=1)),
        "key": st.sampled_from(["id", None]),
        "transient": st.sampled_from([True, False, "7 days"]),
        "compacted": st.booleans(),
        "meta": st.sampled_from([None, False, (), {"offset"}, ["tx", "time"]]),
    }
    given_ = draw(st.sets(st.sampled_from(sorted(every))))
    chosen = {name: draw(every[name]) for name in sorted(given_)}
    if "config" in chosen:  # which may contradict them
        chosen = {name: one for name, one in chosen.items() if name not in {"transient", "compacted"}}
    if chosen.get("value") in (Raw(), ErrorMessages()) or not keyed:
        chosen.pop("key", None)
    return Topic(**chosen)


@st.composite
def processors(draw: st.DrawFn, name: str, reads: list[str], writes: list[str]) -> Processor:
    """A processor between some of these topics."""
    distinct = draw(st.lists(st.sampled_from(reads), min_size=1, max_size=3, unique=True))
    by_name = {f"i{k}": topic for k, topic in enumerate(distinct)}
    forms: list[dict[str, Any]] = [{"inputs": by_name}, {"alts": by_name}, {"inputs": distinct[0]}]
    inputs = draw(st.sampled_from(forms))
    out: list[str] = draw(st.lists(st.sampled_from(writes), max_size=2, unique=True))
    outputs: Any = {f"o{k}": topic for k, topic in enumerate(out)} or None
    if draw(st.booleans()) and out:
        outputs = out[0]
    fn = draw(st.sampled_from([anything, later]))
    state = (
        {"st": Store(draw(CODECS), key=draw(st.none() | CODECS), max_bytes=draw(st.integers(1, 10**12)))}
        if draw(st.booleans())
        else None
    )
    return Processor(
        fn,
        name=name,
        **inputs,
        outputs=outputs,
        errors=draw(st.sampled_from([None, False, "own-errors", OWN_ERRORS])),
        filter=draw(FILTERS),
        strategy=draw(st.sampled_from([None, "exactly-once", "at-least-once", "at-most-once"])),
        state=state,
        opts=draw(st.dictionaries(st.sampled_from(["x", "y"]), PLAIN, max_size=2)),
        effects=draw(st.booleans()),
        concurrency=draw(st.integers(1, 9)) if fn is later and not state else 1,
        retry=draw(st.none() | RETRIES),
        start=draw(st.sampled_from(["earliest", "latest"])),
        quarantine_after=draw(st.none() | st.integers(1, 5)),
        renamed_from=draw(st.sampled_from([None, "former"])),
    )


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """A valid graph of a few sources, processors and settings."""
    pool = draw(st.lists(TOPICS, min_size=2, max_size=5, unique=True))
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    parts: list[Any] = [
        Source(topic, level=draw(st.sampled_from(get_args(SourceLevel))))
        for topic in draw(st.sets(st.sampled_from(pool)))
    ]
    parts += [draw(processors(name, pool, pool)) for name in names]
    bare, defaults = Graph("g", *parts), draw(topics())
    if not defaults.meta and draw(st.booleans()):  # whose rows pass no metadata on
        parts.append(DataFrameProcessor(anything, inputs="frames", outputs={"a": pool[1]}, name="frame"))
        table = Blobs(env="LAKE").parquet("rows", schema={"id": "int64"}, max_file_bytes=1_000)
        parts.append(DataFrameProcessor(anything, inputs="frames", into=table, name="filed"))
    return Graph(
        draw(NAMES),
        *parts,
        errors=draw(st.sampled_from([None, "errors", Errors("errors", payload=True)])),
        defaults=defaults,
        topics={
            topic: draw(topics(keyed=defaults.value not in (Raw(), ErrorMessages())))
            for topic in bare.topics_used()
            if topic not in bare.error_topics() and draw(st.booleans())
        },
        system={"clock": factory} if draw(st.booleans()) else None,
        strategy=draw(st.sampled_from(["exactly-once", "at-least-once"])),
    )


@examples(60)
@given(graphs())
def test_any_graph_survives_being_written_down(graph: Graph) -> None:
    """As JSON text and back it is equal, of the same shape, and written in the same way."""
    written = graph.to_dict()
    read = Graph.from_dict(json.loads(json.dumps(written)))

    assert graph == read
    assert written == read.to_dict()
    assert graph.isomorphic(read)
    assert [p.call for p in graph.processors.values()] == [p.call for p in read.processors.values()]


@examples(25)
@given(graphs())
def test_renaming_all_topics_keeps_the_shape(graph: Graph) -> None:
    """Renaming them back gives an equal graph."""
    names = {topic: f"new-{topic}" for topic in graph.topics_used()}
    bound = graph.bind(names)

    assert set(names.values()) == set(bound.topics_used())
    assert graph.isomorphic(bound)
    assert graph == bound.bind({new: old for old, new in names.items()})


@examples(25)
@given(graphs())
def test_renaming_all_processors_keeps_the_shape(graph: Graph) -> None:
    """Their names are all that changes."""
    names = {name: f"{name[:70]}_2" for name in graph.all_processors}
    bound = graph.bind(names=names)

    assert [*names.values()] == [*bound.all_processors]
    assert graph.isomorphic(bound)
    assert graph == bound.bind(names={new: old for old, new in names.items()})


@examples(25)
@given(graphs())
def test_merging_a_graph_with_itself_changes_nothing(graph: Graph) -> None:
    """Equal parts are one part."""
    merged = graph.merge(graph)

    assert (graph.parts, graph.settings()) == (merged.parts, merged.settings())
    assert merged == graph.merge(graph, override=True)


def test_functions_are_written_by_module_and_name() -> None:
    """Also functions inside of a class."""
    written = Graph("g", Processor(Keeper.keep, inputs="a"), system={"clock": factory}).to_dict()

    assert f"{__name__}:Keeper.keep" == written["parts"][0]["fn"]
    assert {"clock": f"{__name__}:factory"} == written["system"]


def local() -> Any:
    def inner(message: Any) -> None: ...

    return inner


@pytest.mark.parametrize(
    "fn", [lambda m: None, local(), functools.partial(anything, 1), functools.partial(Keeper.keep)]
)
def test_a_function_without_a_name_in_a_module_cannot_be_written_down(fn: Any) -> None:
    """The message names the remedy; the graph itself can run."""
    with pytest.raises(GraphError, match="top level of a module"):
        Graph("g", Processor(fn, inputs="a", name="p")).to_dict()


GOOD: dict[str, Any] = {"version": 1, "name": "g", "parts": [{"source": "a"}]}


def part(**settings: Any) -> dict[str, Any]:
    """A written graph of one processor with these settings."""
    return {**GOOD, "parts": [{"processor": "p", "fn": f"{__name__}:anything", "inputs": "a", **settings}]}


def test_what_is_written_by_hand_may_leave_defaults_out() -> None:
    """All of what `to_dict` writes besides."""
    written = part(
        state={"s": {}, "t": {"fire": f"{__name__}:anything"}},
        tables={"known": {"topic": "k"}},
        retry={"for_s": 5},
        filter={"not": {"has_header": ["test"]}},
        start=datetime(2026, 1, 1, tzinfo=UTC),
    )
    [processor] = Graph.from_dict(written).processors.values()

    assert processor.state == {"s": Store(), "t": Timers(anything)}
    assert processor.tables == {"known": Table("k")}
    assert (processor.retry, processor.filter) == (Retry(for_s=5), ~has_header("test"))
    assert processor.start == datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({}, "not None"),
        ({**GOOD, "version": 2}, "not 2"),
        ({"version": 1}, "Give it a 'name', and 'parts'"),
        ({**GOOD, "name": None}, "Give it a 'name'"),
        ({**GOOD, "parts": {"source": "a"}}, r"in TOML, \[\[parts\]\]"),
        ({**GOOD, "topic": {}}, "a graph has no setting 'topic' .did you mean 'topics'"),
        (
            {**GOOD, "topics": {"a": {"partition": 3}}},
            "the topic 'a' has no setting 'partition' .did you mean 'partitions'",
        ),
        ({**GOOD, "topics": {"a": 3}}, "the topic 'a' is 3. Write a mapping"),
        ({**GOOD, "defaults": {"value": "json"}}, "'json' is not a codec. Write a mapping"),
        ({**GOOD, "defaults": {"value": {"kind": "json", "class": "a:B"}}}, "the codec 'json' has no setting 'class'"),
        ({**GOOD, "defaults": {"value": {"kind": "raw", "cls": "json:loads"}}}, "the codec 'raw' has no setting 'cls'"),
        ({**GOOD, "parts": ["orders"]}, "one of the keys 'source', .* not 'orders'"),
        ({**GOOD, "parts": [{"sauce": "a"}]}, "one of the keys 'source', 'processor'"),
        ({**GOOD, "parts": [{"source": "a", "feed": "b"}]}, "one of the keys"),
        ({**GOOD, "parts": [{"source": "a", "defalt": True}]}, "the source 'a' has no setting 'defalt' .did you mean"),
        ({**GOOD, "parts": [{"processor": "p", "inputs": "a"}]}, "the processor 'p' has no 'fn'. Add it"),
        (part(output="b"), "the processor 'p' has no setting 'output' .did you mean 'outputs'"),
        (part(retry={"for": 3}), "retry has no setting 'for'"),
        (part(commit={"max_message": 3}), "commit has no setting 'max_message' .did you mean 'max_messages'"),
        (part(state={"s": {"vale": {}}}), "a store has no setting 'vale'"),
        (part(state={"s": {"fire": "json:loads", "buy": 1}}), "timers has no setting 'buy'"),
        (part(tables={"t": {"topics": "x"}}), "a table has no setting 'topics'"),
        ({**GOOD, "parts": [{"processor": "p", "fn": "nowhere:fn", "inputs": "a"}]}, "'nowhere:fn' cannot be imported"),
        ({**GOOD, "parts": [{"processor": "p", "fn": "json:no", "inputs": "a"}]}, "'json:no' cannot be imported"),
        ({**GOOD, "parts": [{"processor": "p", "fn": "json", "inputs": "a"}]}, "'json' cannot be imported"),
        (part(colour=1), "the processor 'p' has no setting 'colour'"),
        ({**GOOD, "defaults": {"value": {"kind": "xml"}}}, "'xml' is not a kind"),
        ({**GOOD, "parts": []}, "has no parts"),
        *(
            (part(filter=wrong), says)
            for wrong, says in [
                ({"has_tags": ["a"]}, "is not a filter.*'has_tag'"),
                ({"has_tag": "audit"}, "is not a filter"),
                ({"all": []}, "is not a filter"),
                ({"has_tag": ["a"], "has_type": ["b"]}, "is not a filter"),
                (["json:loads"], "is not a filter"),
                ({"has_tag": [3]}, "takes names"),
                ({"any": [{"all": [{"not": 3}]}]}, "{'not': 3} is not a filter"),
                ({"not": "json:loads"}, "returns the contrary"),
                ({"has_header": ["a", "b", "c"]}, "does not describe a graph"),
            ]
        ),
    ],
)
def test_data_that_is_no_graph_is_refused(data: dict[str, Any], says: str) -> None:
    """Each defect is a declaration error."""
    with pytest.raises(GraphError, match=says):
        Graph.from_dict(data)


def test_targets_name_processors_of_both_kinds_and_where_they_are_declared() -> None:
    """One with a function, one of DataFrames; those without targets are left out."""
    lake = Blobs(env="LAKE")
    table = lake.parquet("orders", schema={"id": "int64"})
    graph = Graph(
        "shop",
        Source("orders"),
        Processor(anything, inputs="orders", name="kept", effects={"lake": lake}),
        Processor(anything, inputs="orders", name="plain"),
        DataFrameProcessor(anything, inputs="orders", into=table, name="filed"),
    )

    assert graph.targets == {"kept": {"lake": lake}, "filed": {"into": table}}
    assert [*graph.declared_targets()] == [("kept, effects['lake']", lake), ("filed, into=", table)]
    assert [*graph.declared_targets(["filed", "plain"])] == [("filed, into=", table)]
