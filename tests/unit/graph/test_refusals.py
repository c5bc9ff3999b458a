"""Wrong declarations: each is refused where it is written, with a message that names the fix."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypedDict

import pytest

from cues_kafka import (
    Alias,
    Avro,
    Blobs,
    Codec,
    CommitPolicy,
    DataFrameProcessor,
    Dedupe,
    Digits,
    Directory,
    Errors,
    Feed,
    Files,
    Graph,
    GraphError,
    Handler,
    Header,
    Http,
    Iterate,
    Json,
    JsonSchema,
    Limits,
    Message,
    Once,
    Out,
    Processor,
    Protobuf,
    Raw,
    Retry,
    Sink,
    Source,
    Sql,
    SqlOutbox,
    State,
    StateHandler,
    Store,
    Table,
    Timers,
    Topic,
    Tumbling,
    has_header,
    has_tag,
    has_type,
    processor,
    rekey,
)


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


class Model(StateHandler):
    def reset(self, entries: Any) -> None: ...

    def drain(self) -> Any: ...

    def checkpoint(self) -> Any: ...


class Half(StateHandler):
    def reset(self, entries: Any) -> None: ...


class Held:
    """A source of a feed that is no dataclass."""

    def __init__(self, parts: int = 1) -> None:
        self._parts = parts

    def parts(self) -> int:
        return self._parts

    def read(self, part: int, place: str | None, limit: int) -> Any:
        return ()


def same(message: Any) -> Any:
    return message


def ring(timer: Any) -> Any: ...


async def ring_async(timer: Any) -> Any: ...


def counting(message: Any, counts: State[str]) -> None: ...


def listing(message: Any, counts: list[int]) -> None: ...


def modelling(message: Any, model: Order) -> None: ...


def with_db(message: Any, db: Any, **rest: Any) -> None: ...


async def later(message: Any, **rest: Any) -> Any: ...


async def later_db(message: Any, db: Any) -> None: ...


def either_db(a: Any = None, b: Any = None, db: Any = None) -> None: ...


def two_outs(message: Any) -> Any: ...


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


def tailing(message: Any, old: Any) -> Any: ...


async def appending(message: Any, kept: Any) -> Any: ...


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


def returns_orders(message: Any) -> list[Order]:
    return []


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


def columns(value: Any = None, **settings: Any) -> Callable[[], Any]:
    """A graph with a processor of columns."""
    part = {"inputs": "orders", "outputs": "checked", "batch": "arrow", **settings}
    topics = Topic() if value is None else Topic(value=value)
    return lambda: Graph("shop", Source("orders"), Processor(same, **part), defaults=topics)


def graph(*parts: Any, **settings: Any) -> Callable[[], Any]:
    return lambda: Graph("shop", Source("orders"), *parts, **settings)


class Wrong(NamedTuple):
    what: str
    declare: Callable[[], Any]
    says: tuple[str, ...]
    """What the message must hold: the thing that is wrong, and the fix."""


P = functools.partial(Processor, inputs="orders", outputs="checked")
DB = Sql(env="SHOP_DB")
FILES = Blobs(env="SHOP_FILES")


def sink(**changes: Any) -> Callable[[], Any]:
    """A valid sink that acts on a database, with wrong arguments."""
    arguments: dict[str, Any] = {"inputs": "orders", "effects": {"db": DB}, **changes}
    fn = arguments.pop("fn", with_db)
    return lambda: Processor(fn, **arguments)


def feed(source: Any, **settings: Any) -> Callable[[], Any]:
    return lambda: Feed(source, **{"into": "orders", "name": "load", **settings})


def data(*parts: Any, **settings: Any) -> Callable[[], Any]:
    """A graph as data."""
    return lambda: Graph.from_dict({"version": 1, "name": "shop", "parts": [{"source": "orders"}, *parts], **settings})


def written(*parts: Any) -> Callable[[], Any]:
    return lambda: Graph("shop", Source("orders"), *parts).to_dict()


SHOP = Graph("shop", Source("orders"), P(same, name="check"), system={"db": object})


class Bound(Codec):
    """A codec of a user's that is no dataclass."""

    def __init__(self, size: int) -> None:
        self.size = size

    def encode(self, value: Any) -> bytes:
        return bytes(value)

    def decode(self, data: bytes) -> Any:
        return data


WRONG = [
    # arguments
    Wrong("unknown argument", pipe(input="orders"), ("Processor(input=...)", "did you mean 'inputs'?", "'outputs'")),
    Wrong("unknown setting of a topic", lambda: Topic(valu=Json()), ("Topic(valu=...)", "did you mean 'value'?")),  # type: ignore[call-arg]
    Wrong(
        "unknown argument of a graph", graph(P(same), error="failed"), ("Graph(error=...)", "did you mean 'errors'?")
    ),
    Wrong(
        "unknown argument that is near none",
        functools.partial(Retry, jitter=1),  # type: ignore[call-arg]
        ("Retry(jitter=...)", "It takes 'on', 'for_s'"),
    ),
    Wrong(
        "unknown argument of a class of classes",
        lambda: Timers(ring, max_byte=5),  # type: ignore[call-arg]
        ("Timers(max_byte=...)", "did you mean 'max_bytes'?"),
    ),
    Wrong(
        "inputs without their name",
        functools.partial(P, same, "orders", "checked"),
        ("Processor takes one argument without a name, 'fn', and was given 3", "Name the others: inputs=, alts="),
    ),
    Wrong("no function", lambda: Processor(inputs="a"), ("Processor(...): 'fn' is missing",)),  # type: ignore[call-arg]
    Wrong("no topic", functools.partial(Source), ("Source(...): 'topic' is missing",)),
    Wrong("list of a class", lambda: Json(list[Order]), ("takes a class", "Give a dataclass that has a field")),
    Wrong(
        "time for a number",
        lambda: Topic(config={"retention.ms": "7 days"}),
        ("'retention.ms': '7 days'", "a whole number", "Topic(transient='7 days')"),
    ),
    Wrong("size for a number", lambda: Topic(config={"max.message.bytes": "1MB"}), ("'1MB'", "a whole number")),
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
    Wrong("batches with tailers", pipe(fn=tailing, tailers={"old": "t"}, batch=True), ("which step", "drop batch=")),
    Wrong(
        "side by side with appenders",
        pipe(fn=appending, appenders={"kept": "t"}, concurrency=2),
        ("share one place", "Drop concurrency="),
    ),
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
    Wrong(
        "name in the place of the function",
        lambda: Processor("same", inputs="a"),  # type: ignore[arg-type]
        ("Write Processor(function, name='same'",),
    ),
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
    Wrong(
        "batch of alts", lambda: Processor(either, alts={"a": "t", "b": "u"}, batch=True), ("as many messages", "Drop")
    ),
    Wrong("unknown form of batches", pipe(batch="rows"), ("batch='rows'", "'arrow' for their columns")),
    Wrong("columns in a list", pipe(fn=returns_orders, batch="arrow"), ("-> list", "RecordBatch or Table")),
    Wrong("generator of columns", pipe(fn=yields_orders, batch="arrow"), ("yields", "Return columns")),
    Wrong("columns of any JSON", columns(), ("does not say which columns", "Json(SomeDataclass)")),
    Wrong("columns at least once", columns(Raw(), strategy="at-least-once"), ("one transaction", "strategy= out")),
    Wrong("columns with a trail", columns(Raw(), trail="t"), ("could not tell apart", "drop trail=")),
    Wrong("columns of alts", lambda: Processor(either, alts={"a": "t", "b": "u"}, batch="arrow"), ("Drop batch=",)),
    Wrong("concurrency of a function", pipe(concurrency=4), ("async def", "drop concurrency=")),
    Wrong("concurrency of nothing", pipe(concurrency=0), ("concurrency=0", "from 1 on")),
    Wrong("misspelt strategy", pipe(strategy="exactly_once"), ("did you mean 'exactly-once'?", "at-most-once")),
    Wrong("graph's strategy", graph(strategy="once"), ("'once'", "exactly-once")),
    Wrong("unknown start", pipe(start="newest"), ("'newest'", "'earliest', 'latest'")),
    Wrong("renamed from its own name", pipe(name="check", renamed_from="check"), ("is its name now",)),
    Wrong("renamed from no name", pipe(renamed_from="a.b"), ("renamed_from", "has a dot")),
    Wrong("quarantine after zero", pipe(quarantine_after=0), ("quarantine_after=0",)),
    Wrong("filter that is no function", pipe(filter="order"), ("filter='order' is not a filter", "has_type(...)")),
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
    Wrong("name of a codec", lambda: Topic(value="json"), ("Write Json(), Json(Order)",)),  # type: ignore[arg-type]
    Wrong("partitions of none", lambda: Topic(partitions=0), ("from 1 on",)),
    Wrong("key that is no field", lambda: Topic(Json(Order), key="ids"), ("'ids'", "mean 'id'", "Fields:")),
    Wrong("key of bytes", lambda: Topic(Raw(), key="id"), ("no fields", "Message(value, key=...)")),
    Wrong(
        "key by defaults",
        graph(defaults=Topic(key="ids"), topics={"orders": Topic(Json(Order))}),
        ("'orders'", "mean 'id'", "its own key=", "None"),
    ),
    Wrong("settings no topic uses", graph(topics={"order": Topic()}), ("'order'", "mean 'orders'")),
    Wrong("settings that are none", graph(topics={"orders": 4}), ("Write Topic(...)",)),
    Wrong("codec of errors", graph(P(same), errors="e", topics={"e": Topic(Json())}), ("errors topic", "Drop value=")),
    Wrong("errors without a topic", lambda: Errors("shop.check.replay"), ("Errors", "only the framework")),
    Wrong("redact a text", lambda: Errors("e", redact="card"), ("write redact=('card',)",)),  # type: ignore[arg-type]
    Wrong("redact no names", lambda: Errors("e", redact=(1,)), ("takes names of fields",)),  # type: ignore[arg-type]
    Wrong("payload of no meaning", lambda: Errors("e", payload="x"), ("takes True or False",)),  # type: ignore[arg-type]
    Wrong("errors that are none", graph(P(same), errors=4), ("named by a string, not 4",)),
    Wrong("two default sources", graph(Source("a", default=True), Source("b", default=True)), ("Keep it on one",)),
    Wrong("topics that collide", graph(Source("a.b"), Source("a_b")), ("'a.b'", "'a_b'", "Rename")),
    Wrong("Avro without a schema", Avro, ("no schema", "registry=True")),
    Wrong("Json of a value", lambda: Json(Order("a", 1)), ("Write Json(Order)",)),  # type: ignore[arg-type]
    Wrong("retry on a signal", lambda: Retry(on=(KeyboardInterrupt,)), ("subclasses of Exception",)),  # type: ignore[arg-type]
    Wrong("retry for no time", lambda: Retry(for_s=0), ("for_s=0", "seconds above 0")),
    Wrong("retry back to front", lambda: Retry(first_s=60), ("first_s=60", "max_s")),
    Wrong("retry and then what", lambda: Retry(then="skip"), ("'stop' or 'error'",)),  # type: ignore[arg-type]
    Wrong("type filter of a list", lambda: has_type(["a", "b"]), ("has_type(['a', 'b']): takes",)),  # type: ignore[arg-type]
    Wrong("type filter of nothing", has_type, ("has_type(Order)",)),
    Wrong("tag filter of numbers", lambda: has_tag(3), ("has_tag('audit')",)),  # type: ignore[arg-type]
    Wrong("header filter of nothing", lambda: has_header(""), ("has_header('region')",)),
    Wrong("header filter by a number", lambda: has_header("n", 7), ("text or bytes", "Write has_header('n', '7')")),  # type: ignore[arg-type]
    Wrong("list of parts", graph([Source("a")]), ("a list is not a part", "one by one", "*parts")),
    Wrong("source that may be the default", lambda: Source("a", default="yes"), ("default='yes'", "True or False")),  # type: ignore[arg-type]
    Wrong("decorator without arguments", lambda: processor(same), ('Write @processor(inputs="topic")',)),  # type: ignore[arg-type]
    Wrong("errors that are only true", pipe(errors=True), ("not True", "Give the topic's name")),
    Wrong("topics as a list", graph(topics=["orders"]), ("Write topics={",)),
    Wrong("option without a name", pipe(fn=with_db, opts={3: 1}), ("the name 3", "Names are strings")),
    Wrong(
        "framework's topic as an output", graph(P(same, outputs="shop.control"), cuts="1 day"), ("only the framework",)
    ),
    # topics
    Wrong("topic for a moment", lambda: Topic(transient="1 second"), ("every five minutes", '"1 hour"')),
    Wrong(
        "topic for some time",
        lambda: Topic(transient="a while"),
        ("Topic(transient='a while'): takes", 'such as "7 days"', "or True"),
    ),
    Wrong("topic compacted a bit", lambda: Topic(compacted=1), ("compacted=1", "True or False")),  # type: ignore[arg-type]
    Wrong(
        "retention twice",
        lambda: Topic(transient=True, config={"retention.ms": "1"}),
        ("contradicts itself", "Drop 'retention.ms'"),
    ),
    Wrong("provenance that is no flag", lambda: Topic(provenance="no"), ("True or False",)),  # type: ignore[arg-type]
    Wrong("key of a topic that is no name", lambda: Topic(key=3), ("name of a field",)),  # type: ignore[arg-type]
    Wrong("codec of keys that is none", lambda: Topic(key_codec=str), ("Avro('string')",)),  # type: ignore[arg-type]
    Wrong("settings of Kafka as text", lambda: Topic(config="retention.ms=1"), ("takes a mapping",)),  # type: ignore[arg-type]
    Wrong("setting of Kafka without a name", lambda: Topic(config={1: "2"}), ("named by text",)),  # type: ignore[dict-item]
    # codecs
    Wrong("codec with a class and no schema", lambda: JsonSchema(None, Order), ("Write JsonSchema(schema, Order)",)),
    Wrong("two classes of a codec", lambda: JsonSchema(Order, Doubler), ("Drop cls=",)),
    Wrong("strategy of subjects", lambda: Avro(Order, registry=True, strategy="x"), ("'topic-record'",)),  # type: ignore[arg-type]
    Wrong("subject without registry", lambda: Avro(Order, subject="o"), ("Add registry=True",)),
    Wrong("subject of no record", lambda: Avro(registry=True, strategy="record"), ("Add subject=",)),
    Wrong("older beside registry", lambda: Avro(Order, registry=True, older=[Order]), ("Drop older=",)),
    Wrong("references of a class", lambda: JsonSchema(Order, references={"a": {}}), ("Drop them",)),
    Wrong("file of a schema", lambda: Avro("nowhere/order.avsc"), ("cannot be read", "absolute one")),
    Wrong("schema that is no JSON", lambda: Avro("{"), ("is not JSON", ".avsc")),
    Wrong("Protobuf of a dataclass", lambda: Protobuf(Order), ("protoc generates it",)),
    Wrong("alias of nothing", lambda: Alias(""), ("field's name in messages",)),
    Wrong("digits behind more than all", lambda: Digits(2, 3), ("1 to 38 digits",)),
    Wrong("limit below nothing", lambda: Limits(bytes=-1), ("from 0 on", "Limits(bytes=1_000_000)")),
    # state, tables and timers
    Wrong("store without memory", lambda: Store(max_bytes=0), ("512 * 1024**2",)),
    Wrong("store for some time", lambda: Store(ttl="long"), ('such as "7 days"',)),
    Wrong("store for time and messages", lambda: Store(ttl="1 day", ttl_messages=5), ("Drop one",)),
    Wrong("store for no messages", lambda: Store(ttl_messages=0), ("such as 100_000",)),
    Wrong("store with text as codec", lambda: Store("json"), ("Store(Json())",)),  # type: ignore[arg-type]
    Wrong("store with text as key", lambda: Store(key="long"), ("Avro('long')",)),  # type: ignore[arg-type]
    Wrong(
        "store of other values",
        graph(Processor(counting, inputs="orders", state={"counts": Store(Json(int))})),
        ("State[str]", "Annotate it State[int]"),
    ),
    Wrong(
        "store as a list",
        graph(Processor(listing, inputs="orders", state={"counts": Store()})),
        ("list[int]", "Annotate it State"),
    ),
    Wrong(
        "handler as another class",
        graph(Processor(modelling, inputs="orders", state={"model": Handler(Model)})),
        ("Annotate it Model",),
    ),
    Wrong("handler that is called", lambda: Handler(Model()), ("takes a class",)),  # type: ignore[arg-type]
    Wrong("handler of another class", lambda: Handler(Order), ("class Order(StateHandler)",)),  # type: ignore[arg-type]
    Wrong("handler that lacks a method", lambda: Handler(Half), ("lacks checkpoint", "Define it")),
    Wrong("handler without resets", lambda: Handler(Model, max_resets=0), ("max_resets=0", "such as")),
    Wrong("handler without time", lambda: Handler(Model, drain_timeout_s=0), ("seconds above 0",)),
    Wrong("handler of lists", pipe(fn=untaken, state={"store": Handler(Model)}, batch=True), ("take one message",)),
    Wrong("state side by side", pipe(fn=later, state={"store": Store()}, concurrency=2), ("Drop one of them",)),
    Wrong("table that is a topic", pipe(fn=untaken, tables={"store": "t"}), ('Table("topic")',)),
    Wrong("table without memory", lambda: Table("t", max_bytes=0), ("512 * 1024**2",)),
    Wrong("table twice", pipe(fn=untaken, tables={"store": Table("orders")}), ("tables='store'", "Keep one")),
    Wrong("timers that call nothing", lambda: Timers("ring"), ("Timers(remind)",)),  # type: ignore[arg-type]
    Wrong("timers that call a coroutine", lambda: Timers(ring_async), ("def instead of async def",)),
    Wrong("timers by a wrong clock", lambda: Timers(ring, by="time"), ("'clock'",)),  # type: ignore[arg-type]
    Wrong("timers twice", pipe(state={"a": Timers(ring), "b": Timers(ring)}), ("Keep one",)),
    Wrong("timers of lists", pipe(state={"a": Timers(ring)}, batch=True), ("take one message",)),
    Wrong("timers and a handler", pipe(fn=untaken, state={"a": Timers(ring), "store": Handler(Model)}), ("Use Store",)),
    Wrong(
        "timers whose function asks for more",
        graph(P(same, state={"a": Timers(keep)})),
        ("called with a timer", "'db'"),
    ),
    Wrong("window of some time", lambda: Tumbling("w", inputs="a", outputs="b", every="x"), ('such as "7 days"',)),
    Wrong(
        "window with late ones",
        lambda: Tumbling("w", inputs="a", outputs="b", every="1 hour", late="keep"),  # type: ignore[arg-type]
        ("'drop' or 'error'",),
    ),
    # ready processors
    Wrong(
        "once within a word", lambda: Dedupe("d", inputs="a", outputs="b", by="id", within="x"), ("number of messages",)
    ),
    Wrong("once by nothing", lambda: Dedupe("d", inputs="a", outputs="b", by="", within=3), ('Header("name")',)),
    Wrong("header without a name", lambda: Header(""), ("Header('message-id')",)),
    Wrong(
        "key from bytes",
        graph(rekey("r", inputs="orders", outputs="b", by="id"), defaults=Topic(Raw())),
        ("are bytes", 'Write Header("name")'),
    ),
    Wrong(
        "key from no field",
        graph(rekey("r", inputs="orders", outputs="b", by="ids"), topics={"orders": Topic(Json(Order))}),
        ("mean 'id'", "Fields:"),
    ),
    # policies and places
    Wrong("commits of nothing", lambda: CommitPolicy(max_messages=0), ("numbers above 0",)),
    Wrong("commits at once", pipe(commit=1), ("Write commit=CommitPolicy(",)),
    Wrong("start without a zone", pipe(start=datetime(2026, 1, 1)), ("has no zone", "tzinfo=UTC")),  # noqa: DTZ001
    Wrong("start at a word", pipe(start={"a": 1}), ("start={0: 17, 1: 4}",)),
    Wrong(
        "start of two inputs",
        lambda: Processor(two, inputs={"a": "t", "b": "u"}, start={0: 1}),
        ("one input", "cues-kafka reset"),
    ),
    Wrong("list side by side", pipe(fn=later, batch=True, concurrency=2), ("Drop concurrency=",)),
    # effects
    Wrong("database without an address", Sql, ("SHOP_DATABASE",)),
    Wrong("database of another kind", lambda: Sql("oracle://x"), ("'oracle'", "postgresql://")),
    Wrong("database in memory", lambda: Sql("sqlite://"), ("sqlite:///path/to/file",)),
    Wrong("columns as text", lambda: DB.table("t", columns="id"), ('columns=["id", "total"]',)),
    Wrong("column twice", lambda: DB.table("t", columns=["id", "ID"]), ("'id'", "Name each column once")),
    Wrong("column of no field", lambda: DB.table("t", columns={"id": 3}), ("A field's name is a string",)),  # type: ignore[dict-item]
    Wrong("table with a quote", lambda: DB.table('t"', columns=["id"]), ("letters, digits and '_'", "schema.table")),
    Wrong("upsert without a key", lambda: DB.upsert("t", key=(), columns=["a"]), ('key="id"',)),
    Wrong("upsert of our column", lambda: DB.upsert("t", key="a", columns=["cues_offset"]), ("Leave them out",)),
    Wrong("files without an address", Blobs, ("SHOP_FILES",)),
    Wrong("files somewhere else", lambda: Blobs("ftp://x/y"), ("'ftp'", "s3://bucket/prefix")),
    Wrong("files at a relative path", lambda: Blobs("file://data"), ("absolute path", "file:///data/archive")),
    Wrong("files with a password", lambda: Blobs("s3://me:x@bucket/a"), ("options=",)),
    Wrong("files without types", lambda: FILES.parquet("t", schema={}), ('schema={"id": "int64"}',)),
    Wrong("table of files", lambda: FILES.json_lines("a/b"), ("cannot be the name", "Use letters")),
    Wrong("files of no bytes", lambda: FILES.json_lines("a", max_file_bytes=0), ("write a number of bytes",)),
    Wrong("server without an address", Http, ("PAY_API",)),
    Wrong("server at a path", lambda: Http("pay.example/api"), ("https://host/path",)),
    Wrong("server without time", lambda: Http("https://a.b", timeout_s=0), ("more than 0",)),
    Wrong("calls of a list", sink(effects={"db": Once()}, batch=True), ("Have the function take one message",)),
    Wrong("effect that is no target", sink(effects={"db": "postgresql://x"}), ('Sql("...")',)),
    Wrong("two databases", sink(effects={"db": DB, "b": Sql(env="B")}), ("'db', 'b'", "a second processor")),
    Wrong("database side by side", sink(fn=later_db, concurrency=2), ("Drop concurrency=",)),
    Wrong("database and a handler", sink(state={"m": Handler(Model)}), ("Use Store",)),
    Wrong("database at least once", sink(strategy="at-least-once"), ("Leave strategy= out",)),
    Wrong(
        "upsert of several inputs",
        sink(inputs={"a": "t", "b": "u"}, fn=either_db, effects={"db": DB.upsert("t", key="id", columns=["x"])}),
        ("several inputs", "Have another processor read"),
    ),
    Wrong(
        "upsert and timers",
        sink(state={"t": Timers(ring)}, effects={"db": DB.upsert("t", key="id", columns=["x"])}),
        ("A timer has no offset",),
    ),
    Wrong("sink into a database", lambda: Sink("s", inputs="a", into=DB), ("Sql(...).table(",)),  # type: ignore[arg-type]
    Wrong(
        "sink with outputs",
        lambda: Sink("s", inputs="a", into=DB.table("t", columns=["id"]), outputs="b"),
        ("'outputs'", "Write a Processor"),
    ),
    Wrong(
        "sink of bytes",
        graph(Sink("s", inputs="orders", into=DB.table("t", columns=["id"])), defaults=Topic(Raw())),
        ("are bytes", "Give the topic a codec"),
    ),
    Wrong(
        "sink of no field",
        graph(Sink("s", inputs="orders", into=DB.table("t", columns=["ids"])), topics={"orders": Topic(Json(Order))}),
        ("mean 'id'", "Fields:"),
    ),
    # feeds
    Wrong("feed of a list", feed([1, 2]), ("a list is not a source", "Iterate(...)")),
    Wrong("feed of a class", feed(Held), ("is not a source",)),
    Wrong("feed of no parts", feed(Held(0)), ("from 1 on",)),
    Wrong("feed of very many parts", feed(Held(10_001)), ("10001 parts", "at most 10000")),
    Wrong("feed of other parts", feed(Held(2), parts=3), ("Leave parts= out",)),
    Wrong("feed without a pause", feed(Held(), poll_seconds=0), ("seconds above 0",)),
    Wrong("feed that commits at once", feed(Held(), commit=1), ("CommitPolicy(",)),
    Wrong("feed into our topic", feed(Held(), into="a.b.backing"), ("only the framework",)),
    Wrong("iterate over a list", lambda: Iterate([1]), ("a function of the place",)),  # type: ignore[arg-type]
    Wrong("iterate in no tasks", lambda: Iterate(same, tasks=0), ("from 1 on",)),
    Wrong("files of nothing", lambda: Files(""), ("'logs/*.jsonl'",)),
    Wrong("directory of nothing", lambda: Directory(""), ("takes a path",)),
    Wrong("outbox without an address", lambda: SqlOutbox(table="outbox"), ("SqlOutbox(",)),
    # cuts
    Wrong("cuts for some time", graph(cuts="long"), ('such as "7 days"',)),
    Wrong(
        "cuts of DataFrames", graph(DataFrameProcessor(same, inputs="orders", outputs="b"), cuts="1 day"), ("Spark",)
    ),
    Wrong("cuts of feeds", graph(Feed(Held(), into="b", name="f"), cuts="1 day"), ("without cuts=",)),
    Wrong("cuts of a cycle", graph(Processor(same, inputs="a", outputs="a"), cuts="1 day"), ("Leave cuts= out",)),
    Wrong(
        "cuts of a shared topic",
        graph(P(same, outputs="b"), Source("b"), Processor(same, name="x", inputs="b"), cuts="1 day"),
        ("Source and an output", "alts="),
    ),
    # graphs from graphs
    Wrong(
        "part of two graphs",
        lambda: SHOP.merge(Graph("b", P(two_outs, name="check"))),
        ("'check' is declared twice", "override=True"),
    ),
    Wrong(
        "source of two graphs", lambda: SHOP.merge(Graph("b", Source("orders", default=True))), ("Source('orders')",)
    ),
    Wrong(
        "factory of two graphs", lambda: SHOP.merge(Graph("b", Source("x"), system={"db": dict})), ("two factories",)
    ),
    Wrong(
        "topic of two graphs",
        lambda: SHOP.merge(Graph("b", Source("orders"), topics={"orders": Topic(partitions=2)})),
        ("different settings", "the same Topic(...)"),
    ),
    Wrong("topic to bind", lambda: SHOP.bind({"ordrs": "x"}), ("mean 'orders'",)),
    Wrong("topic to bind to", lambda: SHOP.bind({"orders": "x/y"}), ("1 to 249 letters",)),
    Wrong("processor to give options", lambda: SHOP.bind(opts={"chek": {}}), ("mean 'check'",)),
    Wrong("processor to rename", lambda: SHOP.bind(names={"chek": "x"}), ("mean 'check'",)),
    Wrong("processor to look for", lambda: SHOP.topology.transitive_dependencies("chek"), ("mean 'check'",)),
    Wrong(
        "two topics as one",
        lambda: SHOP.merge(Graph("b", Source("x"), topics={"x": Topic(partitions=2)})).bind({"x": "orders"}),
        ("makes one topic, 'orders'", "another name"),
    ),
    # graphs as data
    Wrong("lambda as data", written(P(lambda m: m, name="p")), ("top level of a module",)),
    Wrong(
        "codec as data",
        lambda: Graph("g", Source("a"), defaults=Topic(Bound(3))).to_dict(),
        ("Make Bound a dataclass",),
    ),
    Wrong(
        "address as data",
        written(Processor(with_db, inputs="a", effects={"db": Sql("sqlite:///a")})),
        ("SHOP_DATABASE",),
    ),
    Wrong(
        "place of files as data",
        written(Processor(with_db, inputs="a", effects={"db": Blobs("file:///a")})),
        ("SHOP_FILES",),
    ),
    Wrong("server as data", written(Processor(with_db, inputs="a", effects={"db": Http("https://a.b")})), ("PAY_API",)),
    Wrong("source of a feed as data", written(Feed(Held(), into="b", name="f")), ("Make Held a dataclass",)),
    Wrong("version of data", data(version=9), ("version 1", "not 9")),
    Wrong("data without parts", lambda: Graph.from_dict({"version": 1, "name": "g"}), ("'parts'", "[[parts]]")),
    Wrong("misspelt setting of data", data(topic={}), ("'topic'", "mean 'topics'")),
    Wrong("misspelt argument in data", data({"source": "a", "defalt": True}), ("mean 'default'",)),
    Wrong("part of no kind in data", data({"sauce": "a"}), ("'source', 'processor'",)),
    Wrong("processor without function in data", data({"processor": "p", "inputs": "a"}), ("has no 'fn'", "Add it")),
    Wrong("function of data", data({"processor": "p", "inputs": "a", "fn": "check"}), ("'module:name'",)),
    Wrong("module of data", data({"processor": "p", "inputs": "a", "fn": "nowhere:f"}), ("cannot be imported",)),
    Wrong("codec of data", data(defaults={"value": {"kind": "xml"}}), ("'xml'", "'json'")),
    Wrong("codec by name in data", data(defaults={"value": "json"}), ("{'kind': 'json'",)),
    Wrong("topic of data", data(topics={"orders": 4}), ("{'partitions': 4}",)),
    Wrong("filter of data", data({"processor": "p", "filter": {"tags": []}}), ("is not a filter", "'has_tag'")),
    Wrong(
        "not a function in data", data({"processor": "p", "filter": {"not": "json:loads"}}), ("returns the contrary",)
    ),
    Wrong("effect of data", data({"processor": "p", "effects": {"db": {"kind": "ora", "env": "X"}}}), ("'sql'",)),
    Wrong("value in data", data(cuts=["1 day"]), ("cuts=",)),
    # DataFrames
    Wrong(
        "DataFrames all over again",
        lambda: DataFrameProcessor(same, inputs="a", outputs="b", output_mode="complete"),  # type: ignore[arg-type]
        ("'append'", "'update'"),
    ),
    Wrong(
        "DataFrames of nothing",
        lambda: DataFrameProcessor(3, inputs="a", outputs="b", name="f"),  # type: ignore[arg-type]
        ("cannot be called",),
    ),
    Wrong(
        "DataFrames from one of two",
        lambda: DataFrameProcessor(same, inputs={"x": "a", "y": "b"}, outputs="c", start={"x": {0: 1}}),
        ("does not name its inputs 'x', 'y'",),
    ),
    Wrong(
        "DataFrames from the end",
        lambda: DataFrameProcessor(same, inputs="a", outputs="b", start="latest"),  # type: ignore[arg-type]
        ("'earliest'",),
    ),
    Wrong(
        "DataFrames without outputs",
        lambda: DataFrameProcessor(same, inputs="a"),
        ("no outputs", "outputs=", "into=Delta("),
    ),
    Wrong(
        "DataFrames into JSON lines",
        lambda: DataFrameProcessor(same, inputs="a", into=Blobs(env="LAKE").json_lines("t")),
        ("table of files t", "to which Spark does not write", "Delta("),
    ),
    Wrong(
        "a log with the name of the marker",
        lambda: Graph("store", Source("a"), Sink("json", inputs="a", into=Blobs(env="LAKE").json_lines("t"))),
        ("'json'", "_cues/store.json", "another name"),
    ),
    Wrong(
        "DataFrames into a database",
        lambda: DataFrameProcessor(same, inputs="a", into=Sql(env="DB")),
        ("database into", "to which Spark does not write", ".table(", "a Sink"),
    ),
    Wrong(
        "DataFrames into topics and files",
        lambda: DataFrameProcessor(same, inputs="a", outputs="b", into=Blobs(env="LAKE").parquet("t")),
        ("outputs= and into=", "Keep one"),
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
    """The table has at least 240 wrong declarations, each with its own reason."""
    assert len({wrong.what for wrong in WRONG}) == len(WRONG) >= 240
