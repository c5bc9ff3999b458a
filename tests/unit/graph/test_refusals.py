"""Wrong declarations: each is refused where it is written, with a message that names the fix."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypedDict

import pytest

from cues_kafka import (
    DataFrameProcessor,
    Graph,
    GraphError,
    Json,
    Message,
    Out,
    Processor,
    Raw,
    Retry,
    Source,
    Topic,
    has_header,
    has_tag,
    has_type,
)
from cues_kafka.graph.declare import Store
from cues_kafka.graph.formats import Avro


@dataclass(frozen=True)
class Order:
    id: str
    total: int


class Routed(TypedDict):
    all: Order
    bigg: Order


class Doubler:
    def __call__(self, order: Order) -> Order:
        return order


def same(message: Any) -> Any:
    return message


def keep(message: Any, db: Any) -> None: ...


def two(a: Any, b: Any) -> Any: ...


def either(a: Any = None, b: Any = None) -> Any: ...


def scaled(message: Any, factor: int) -> Any: ...


def stepped(step: Any, message: Any) -> Any: ...


async def asks(message: Any) -> bool:
    return True


def only(*, message: Any) -> Any: ...


def slashed(a: Any, b: Any, /) -> Any: ...


def untaken(message: Any, store: Any) -> Any: ...


def returns_int(message: Any) -> int:
    return 1


def returns_nothing(message: Any) -> None: ...


def returns_many(message: Any) -> dict[str, Order]:
    return {}


def returns_bindings(message: Any) -> dict[Literal["al"], Order]:
    return {}


def returns_typed(message: Any) -> Routed | None:
    return None


def returns_one_of(message: Any) -> dict[Literal["output"], Order] | None:
    return None


def returns_messages(message: Any) -> dict[str, Message[Order]]:
    return {}


def yields_orders(message: Any) -> Iterator[Order]:
    yield message


def yields_outs(message: Any) -> Iterator[Out]:
    yield Out("all", message)


def yields_literal(message: Any) -> Iterator[Out[Literal["all", "bgi"]]]:
    yield Out("all", message)


async def yields_async(message: Any) -> AsyncIterator[Order]:
    yield message


def pipe(**changes: Any) -> Callable[[], Any]:
    """A valid pipe with wrong arguments."""
    arguments: dict[str, Any] = {"inputs": "orders", "outputs": "checked", **changes}
    fn = arguments.pop("fn", same)
    return lambda: Processor(fn, **arguments)


def graph(*parts: Any, **settings: Any) -> Callable[[], Any]:
    return lambda: Graph("shop", Source("orders"), *parts, **settings)


class Wrong(NamedTuple):
    what: str
    declare: Callable[[], Any]
    says: tuple[str, ...]
    """What the message must hold: the thing that is wrong, and the fix."""


P = functools.partial(Processor, inputs="orders", outputs="checked")

WRONG = [
    # names
    Wrong("dot in a graph's name", lambda: Graph("my.shop", Source("a")), ("'my.shop'", "Write 'my-shop'")),
    Wrong("empty name", lambda: Graph("", Source("a")), ("''", "1 to 80 letters")),
    Wrong("long name", pipe(name="x" * 81), ("1 to 80 letters",)),
    Wrong("reserved name", pipe(name="backing"), ("reserved", "Choose another name")),
    Wrong("reserved binding", lambda: Processor(two, inputs={"send": "a", "b": "c"}), ("reserved",)),
    Wrong("name that is no string", pipe(name=7), ("7", "Give a string")),
    Wrong("lambda without a name", lambda: Processor(lambda m: m, inputs="a"), ("lambda", 'name="..."')),
    Wrong("topic with a slash", pipe(inputs="or/ders"), ("'or/ders'", "1 to 249 letters")),
    Wrong("topic of dots", pipe(inputs=".."), ("not a valid topic name",)),
    Wrong("topic that is no string", pipe(fn=two, inputs={"a": 1, "b": "t"}), ("1", "Give the topic's name")),
    Wrong("two processors of one name", graph(P(same), P(same)), ("'same'", "another name=")),
    Wrong("a source twice", graph(Source("orders")), ("'orders'", "twice", "Keep one")),
    # parts
    Wrong("bare function as a part", graph(same), ("bare function", "Write Processor(same")),
    Wrong("topic name as a part", graph("orders"), ("Write Source('orders')",)),
    Wrong("anything as a part", graph(3), ("3 is not a part", "Source(...), Processor(...)")),
    Wrong("no parts", lambda: Graph("shop"), ("no parts", "Source(...)")),
    # inputs and outputs
    Wrong("no inputs", lambda: Processor(same, outputs="a"), ("no inputs", "write Source(topic)")),
    Wrong("empty inputs", pipe(inputs={}), ("no inputs",)),
    Wrong("inputs and alts", pipe(alts={"a": "b"}), ("exclude each other", "Drop one")),
    Wrong("alts as a string", pipe(inputs=None, alts="orders"), ("Write inputs='orders'",)),
    Wrong("inputs as a list", pipe(inputs=["a", "b"]), ('Write inputs={"binding": "topic"}',)),
    Wrong("empty outputs", pipe(outputs={}), ("empty", "drop outputs= (a sink)")),
    Wrong("one topic under two inputs", lambda: Processor(two, inputs={"a": "t", "b": "t"}), ("'t'", "Keep one")),
    Wrong("one topic under two outputs", pipe(outputs={"a": "t", "b": "t"}), ("two bindings", "Keep one")),
    Wrong("input and tailer of one topic", pipe(tailers={"old": "orders"}), ("'orders'", "tailers='old'")),
    Wrong("output to a backing topic", pipe(outputs="shop.check.backing"), ("only the framework", "another topic")),
    Wrong("errors to a replay topic", pipe(errors="shop.check.replay"), ("only the framework",)),
    Wrong("source on a changelog", lambda: Source("a.b.c.changelog"), ("only the framework",)),
    Wrong("outputs on its errors topic", graph(P(same, errors="checked")), ("errors topic", "another topic")),
    Wrong("outputs on the graph's errors", graph(P(same), errors="checked"), ("'same'", "own schema")),
    Wrong("source as errors topic", graph(P(same), errors="orders"), ("Source('orders')", "another topic")),
    Wrong(
        "reads its own errors",
        graph(Processor(same, inputs="shop.errors"), errors="shop.errors"),
        ("'shop.errors'", "errors=False"),
    ),
    Wrong("reads its own backing", graph(Processor(same, inputs="shop.same.backing")), ("framework's own",)),
    # how it is called
    Wrong("not a function", pipe(fn=3, name="n"), ("cannot be called", "Give the function")),
    Wrong("class for its instance", pipe(fn=Doubler), ("Give an instance: Doubler(...)",)),
    Wrong("builtin without a signature", pipe(fn=dict), ("does not tell its parameters", "Wrap it in a function")),
    Wrong("no first parameter", pipe(fn=only), ("no first parameter", "def fn(message, ...)")),
    Wrong("step first", pipe(fn=stepped), ("'step' is the step", "def fn(message, step, ...)")),
    Wrong("positional-only", lambda: Processor(slashed, inputs={"a": "t", "b": "u"}), ("'a'", "Remove the '/'")),
    Wrong(
        "input without parameter", lambda: Processor(two, inputs={"a": "t", "bb": "u"}), ("'bb'", "mean 'b'", "**rest")
    ),
    Wrong("option without parameter", pipe(fn=scaled, opts={"factr": 2}), ("'factr'", "mean 'factor'", "Parameters:")),
    Wrong(
        "name in two places",
        pipe(fn=scaled, opts={"factor": 1}, tailers={"factor": "t"}),
        ("opts=", "tailers=", "Rename"),
    ),
    Wrong(
        "binding and option alike", lambda: Processor(two, inputs={"a": "t"}, opts={"a": 1, "b": 2}), ("'a'", "Rename")
    ),
    Wrong("something called step", pipe(fn=stepped, opts={"step": 1}), ("'step'", "Rename it")),
    Wrong("found nowhere", graph(P(keep), system={"dbb": object}), ("'db'", "mean 'dbb'", "system: 'dbb'")),
    Wrong("found nowhere at all", graph(P(keep)), ("'db'", "Available: 'step'", "give it a default")),
    Wrong("alts without defaults", lambda: Processor(two, alts={"a": "t", "b": "u"}), ("a=None, b=None", "**rest")),
    Wrong(
        "filtered join without defaults",
        lambda: Processor(two, inputs={"a": "t", "b": "u"}, filter=has_type(Order)),
        ("a filter", "a=None, b=None"),
    ),
    Wrong("state in two places", pipe(fn=untaken, state={"store": Store()}, opts={"store": 1}), ("state=", "opts=")),
    Wrong(
        "system and option alike", graph(P(scaled, opts={"factor": 2}), system={"factor": int}), ("opts=", "system=")
    ),
    # what it returns
    Wrong("value without outputs", pipe(fn=returns_int, outputs=None), ("returns int", 'Declare outputs="topic"')),
    Wrong("yield without outputs", pipe(fn=yields_orders, outputs=None), ("yields", "do not yield")),
    Wrong("bindings for one output", pipe(fn=returns_one_of), ("by binding", "Return the message itself")),
    Wrong("messages by binding for one output", pipe(fn=returns_messages), ("by binding",)),
    Wrong("Out for one output", pipe(fn=yields_outs), ("Give the message itself",)),
    Wrong("message for bindings", pipe(fn=returns_int, outputs={"all": "a"}), ("'all'", "{binding: message}")),
    Wrong("yields messages for bindings", pipe(fn=yields_orders, outputs={"all": "a"}), ("Yield Out(binding",)),
    Wrong("yields messages, async", pipe(fn=yields_async, outputs={"all": "a"}), ("Yield Out(binding",)),
    Wrong("unknown binding in a dict", pipe(fn=returns_bindings, outputs={"all": "a"}), ("'al'", "mean 'all'")),
    Wrong("unknown binding in Out", pipe(fn=yields_literal, outputs={"all": "a", "big": "b"}), ("'bgi'", "mean 'big'")),
    Wrong("unknown key", pipe(fn=returns_typed, outputs={"all": "a", "big": "b"}), ("'bigg'", "mean 'big'")),
    # settings
    Wrong("generator in a batch", pipe(fn=yields_orders, batch=True), ("yields", "Return a list")),
    Wrong("batch that returns one", pipe(fn=returns_int, batch=True), ("-> int", "list of results")),
    Wrong("batch that returns a dict", pipe(fn=returns_many, batch=True), ("list of results",)),
    Wrong("batch of alts", lambda: Processor(either, alts={"a": "t", "b": "u"}, batch=True), ("equal length", "Drop")),
    Wrong("concurrency of a function", pipe(concurrency=4), ("async def", "drop concurrency=")),
    Wrong("concurrency of nothing", pipe(concurrency=0), ("concurrency=0", "from 1 on")),
    Wrong("misspelt strategy", pipe(strategy="exactly_once"), ("did you mean 'exactly-once'?", "at-most-once")),
    Wrong("graph's strategy", graph(strategy="once"), ("'once'", "exactly-once")),
    Wrong("unknown start", pipe(start="newest"), ("'newest'", "'earliest', 'latest'")),
    Wrong("quarantine after zero", pipe(quarantine_after=0), ("quarantine_after=0",)),
    Wrong("filter that is no function", pipe(filter="order"), ("filter='order' is no filter", "has_type(...)")),
    Wrong("filter that is not called", pipe(filter=has_type), ("filter=has_type", "Write filter=has_type(...)")),
    Wrong("class as a filter", pipe(filter=Order), ("filter=Order", "Write filter=has_type(...)")),
    Wrong("filter of two messages", pipe(filter=two), ("missing a required argument", "def two(received) -> bool")),
    Wrong("filter that is a coroutine", pipe(filter=asks), ("coroutine function", "Write it with def")),
    Wrong("filters joined by and", lambda: has_tag("a") and has_tag("b"), ("'and', 'or' and 'not'", "Write a & b")),
    Wrong("filter and a name", lambda: has_tag("a") & "b", ("'b' is none", "& has_tag('audit')")),  # type: ignore[operator]
    Wrong("name or a filter", lambda: "b" | has_tag("a"), ("| combines filters", "'b' is none")),  # type: ignore[operator]
    Wrong("filter and a class", lambda: has_tag("a") & Order, ("& combines filters", "Order")),  # type: ignore[operator]
    Wrong("effects that is no bool", pipe(effects="db"), ("effects='db'", "True or False")),
    Wrong("retry that is none", pipe(retry=3), ("Write retry=Retry(",)),
    Wrong("state that is a codec", pipe(fn=untaken, state={"store": Json(int)}), ("Store(Json(...))",)),
    Wrong("state that is no store", pipe(fn=untaken, state={"store": dict}), ("Store()",)),
    Wrong("opts as a list", pipe(opts=[1]), ("Write opts={",)),
    Wrong("system that is no factory", graph(system={"db": 3}), ("'db'", "Give a factory")),
    # topics and codecs
    Wrong("class for a codec", lambda: Topic(value=Order), ("Write Topic(value=Json(Order))",)),  # type: ignore[arg-type]
    Wrong("codec that is not called", lambda: Topic(value=Raw), ("Write Topic(value=Raw())",)),  # type: ignore[arg-type]
    Wrong("partitions of none", lambda: Topic(partitions=0), ("from 1 on",)),
    Wrong("key that is no field", lambda: Topic(Json(Order), key="ids"), ("'ids'", "mean 'id'", "Fields:")),
    Wrong("key of bytes", lambda: Topic(Raw(), key="id"), ("no fields", "Message(value, key=...)")),
    Wrong(
        "key by defaults",
        graph(defaults=Topic(key="ids"), topics={"orders": Topic(Json(Order))}),
        ("'orders'", "mean 'id'", "its own key="),
    ),
    Wrong("settings no topic uses", graph(topics={"order": Topic()}), ("'order'", "mean 'orders'")),
    Wrong("settings that are none", graph(topics={"orders": 4}), ("Write Topic(...)",)),
    Wrong("codec of errors", graph(P(same), errors="e", topics={"e": Topic(Json())}), ("errors topic", "Drop value=")),
    Wrong("two default sources", graph(Source("a", default=True), Source("b", default=True)), ("Keep it on one",)),
    Wrong("topics that collide", graph(Source("a.b"), Source("a_b")), ("'a.b'", "'a_b'", "Rename")),
    Wrong("Avro without a schema", Avro, ("no schema", "registry=True")),
    Wrong("Json of a value", lambda: Json(Order("a", 1)), ("Write Json(Order)",)),  # type: ignore[arg-type]
    Wrong("retry on a signal", lambda: Retry(on=(KeyboardInterrupt,)), ("subclasses of Exception",)),  # type: ignore[arg-type]
    Wrong("retry for no time", lambda: Retry(for_s=0), ("for_s=0", "seconds above 0")),
    Wrong("retry back to front", lambda: Retry(first_s=60), ("first_s=60", "max_s")),
    Wrong("retry and then what", lambda: Retry(then="skip"), ("'stop' or 'error'",)),  # type: ignore[arg-type]
    Wrong("type filter of nothing", has_type, ("has_type(Order)",)),
    Wrong("tag filter of numbers", lambda: has_tag(3), ("has_tag('audit')",)),  # type: ignore[arg-type]
    Wrong("header filter of nothing", lambda: has_header(""), ("has_header('region')",)),
    Wrong("header filter by a number", lambda: has_header("n", 7), ("text or bytes", "Write has_header('n', '7')")),  # type: ignore[arg-type]
    Wrong(
        "DataFrames without outputs",
        lambda: DataFrameProcessor(same, inputs="a", outputs=None),  # type: ignore[arg-type]
        ("no outputs", "outputs="),
    ),
]


@pytest.mark.parametrize("wrong", WRONG, ids=[wrong.what for wrong in WRONG])
def test_a_wrong_declaration_is_refused_with_the_fix(wrong: Wrong) -> None:
    """The message names what is wrong and what to write instead."""
    with pytest.raises(GraphError) as refused:
        wrong.declare()
    message = str(refused.value)

    for part in wrong.says:
        assert part in message


def test_a_changelog_name_beyond_kafkas_limit_is_refused() -> None:
    """80 + 80 + 80 characters and the dots between them are more than the 249 of Kafka."""
    store = "s" * 80

    def count(message: Any, **rest: Any) -> None: ...

    with pytest.raises(GraphError, match="Shorten the names"):
        Graph("g" * 80, Processor(count, inputs="a", name="p" * 80, state={store: Store()}))


def test_the_table_is_long_enough() -> None:
    """The table has at least 25 wrong declarations, each with its own reason."""
    assert len({wrong.what for wrong in WRONG}) == len(WRONG) >= 25
