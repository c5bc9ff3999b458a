"""Functions with `batch="arrow"`: each message has one outcome, as with lists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cues_kafka import Avro, Graph, Json, Message, Processor, Raw, Retry, Source, Step, Store, Topic
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.testing.tester import Tester


@dataclass
class Order:
    """What is read."""

    id: int
    customer: str
    cents: int


@dataclass
class Total:
    """What is written of several orders."""

    customer: str
    cents: int


ORDERS = [Order(n, "ab"[n % 2], n * 10) for n in range(10)]
FORMATS = [Json(Order), Avro(Order)]


def world(fn: Any, *, value: Any = FORMATS[0], data: list[Any] | None = None, **settings: Any) -> Tester:
    """What the processor `p` leaves behind; `data` are instances, or bytes that stand for themselves."""
    topics = settings.pop("topics", {})
    defaults = Topic(partitions=1, value=value)
    errors = settings.pop("errors", "errors")
    writer = Tester(Graph("w", Source("in"), defaults=Topic(partitions=1, value=Raw())))
    encode = codec_for(value, MadeFor("in")).encode
    for n, one in enumerate(ORDERS if data is None else data):
        sent = one if isinstance(one, bytes) else encode(one)
        writer.send("in", Message(sent, key=f"k{n}", timestamp_ms=1_700_000_000_000 + n))
    processor = Processor(fn, **{"name": "p", "inputs": "in", "outputs": "out", "batch": "arrow", **settings})
    graph = Graph("g", Source("in"), processor, errors=errors, defaults=defaults, topics=topics)
    return Tester(graph, broker=writer.broker).run()


def outcomes(tester: Tester, topic: str = "out") -> list[Any]:
    """Messages with all that they carry, error messages and totals."""
    seen = [(m.partition, m.key_bytes, m.value, m.headers, m.timestamp_ms) for m in tester.messages(topic)]
    errors = [(one.exception, one.text, one.kind, one.hash, one.key) for one in tester.errors()]
    return [seen, errors, tester.totals("p")]


def odd(orders: Any) -> Any:
    """Every second one."""
    return orders.filter(pc.equal(pc.bit_wise_and(orders["id"], 1), 1))


def odd_list(orders: list[Order]) -> list[Order | None]:
    """The same with lists."""
    return [one if one.id % 2 else None for one in orders]


@pytest.mark.parametrize("value", FORMATS)
@pytest.mark.parametrize("bad", [[], [0], [3], [9], [2, 3, 7]])
def test_filter_has_the_outcomes_that_it_has_with_lists(value: Any, bad: list[int]) -> None:
    """Bytes, keys, times, provenance, error messages with their hashes, and totals; beside messages that are bad."""
    data = [b"?" if n in bad else one for n, one in enumerate(ORDERS)]

    assert outcomes(world(odd, value=value, data=data)) == outcomes(world(odd_list, value=value, data=data, batch=True))


def test_columns_say_what_was_read_and_from_where() -> None:
    seen: list[Any] = []
    world(seen.append, outputs=None)

    [batch] = seen
    assert batch.schema.names == ["id", "customer", "cents", "_cues"]
    assert batch.select(["id", "customer", "cents"]).to_pylist() == [asdict(one) for one in ORDERS]
    assert [row["offset"] for row in batch["_cues"].to_pylist()] == list(range(10))
    assert batch["_cues"].to_pylist()[3]["key"] == b"k3"
    assert batch["_cues"].type.field("timestamp").type == pa.timestamp("ms", tz="UTC")


def test_only_a_bad_message_is_alone_when_the_function_raises() -> None:
    sizes: list[int] = []

    def fn(orders: Any) -> Any:
        sizes.append(len(orders))
        if 6 in orders["id"].to_pylist():
            raise ValueError("six")
        return orders

    tester = world(fn)

    assert [one.id for one in tester.values("out")] == [n for n in range(10) if n != 6]
    assert [(one.text, one.consumed[0].offset) for one in tester.errors()] == [("six", 6)]
    assert sum(sizes) < 30
    assert len(sizes) < 10
    totals = tester.totals("p")
    assert (totals.deliveries, totals.outputs, totals.errors, totals.messages) == (10, 9, 1, 9)


def test_without_an_errors_topic_the_messages_before_a_bad_one_are_committed() -> None:
    data: list[Any] = [*ORDERS[:4], b"?", *ORDERS[5:]]
    called: list[int] = []

    def fn(orders: Any) -> Any:
        called.extend(orders["id"].to_pylist())
        return orders

    with pytest.raises(Exception, match="not JSON"):
        world(fn, data=data, errors=None)

    assert set(called) == {0, 1, 2, 3}


WRONG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a list": (lambda orders: orders.to_pylist(), "RecordBatch or Table"),
    "a missing column": (lambda orders: orders.drop_columns(["cents"]), "lack 'cents'"),
    "another type": (
        lambda orders: orders.set_column(0, "id", orders["id"].cast(pa.string())), "is string, not int64"
    ),
    "another message": (
        lambda orders: orders.set_column(3, "_cues", pa.array([{"offset": 99}] * len(orders))), "offset 99"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_result_that_does_not_fit_is_an_error_of_each_message(name: str) -> None:
    fn, text = WRONG[name]

    tester = world(fn)

    assert tester.values("out") == []
    assert [(one.kind, text in one.text) for one in tester.errors()] == [("output", True)] * 10
    assert [one.consumed[0].offset for one in tester.errors()] == list(range(10))


@pytest.mark.parametrize("empty", [lambda _: None, lambda orders: orders.slice(0, 0)])
def test_message_without_a_row_is_nil(empty: Callable[[Any], Any]) -> None:
    totals = world(empty).totals("p")

    assert (totals.deliveries, totals.nils, totals.messages) == (10, 10, 0)


def test_message_may_have_several_rows_and_rows_any_order() -> None:
    def fn(orders: Any) -> Any:
        return orders.take(pa.array([5, 1, 5]))

    tester = world(fn)

    assert [(one.value.id, one.key) for one in tester.messages("out")] == [(1, "k1"), (5, "k5"), (5, "k5")]
    parts = [(dict(one.headers)["cues"] or b"").split()[-2:] for one in tester.messages("out")]
    assert parts == [[b"0/1", b"1"], [b"0/2", b"5"], [b"1/2", b"5"]]


def sums(orders: Any) -> Any:
    """One row for each customer of the call."""
    table = pa.Table.from_batches([orders]).group_by("customer").aggregate([("cents", "sum")])
    return table.rename_columns(["customer", "cents"])


TOTALS = {"out": Topic(value=Json(Total), key="customer", partitions=1)}


def test_rows_without_a_message_belong_to_the_batch() -> None:
    tester = world(sums, data=[*ORDERS[:5], b"?", *ORDERS[6:]], topics=TOTALS)

    found = tester.messages("out")
    assert {one.key: one.value.cents for one in found} == {"a": 200, "b": 200}
    assert [(dict(one.headers)["cues"] or b"").split()[-2:] for one in found] == [[b"0/2", b"-"], [b"1/2", b"-"]]
    totals = tester.totals("p")
    assert (totals.deliveries, totals.drained, totals.errors, totals.nils) == (10, 2, 1, 9)


def test_rows_of_a_call_of_one_message_are_its_outputs() -> None:
    tester = world(sums, data=ORDERS[3:4], topics=TOTALS)

    [one] = tester.messages("out")
    assert (one.value, one.key) == (Total("b", 30), "b")
    assert tester.totals("p").outputs == 1
    assert tester.totals("p").drained == 0


def test_sum_holds_no_message_that_became_an_error() -> None:
    def fn(orders: Any) -> Any:
        if 4 in orders["id"].to_pylist():
            raise ValueError("four")
        return sums(orders)

    tester = world(fn, topics=TOTALS)

    assert sum(one.cents for one in tester.values("out")) == sum(one.cents for one in ORDERS) - 40
    assert tester.totals("p").errors == 1


def test_rows_go_to_several_topics_and_bring_keys_and_times() -> None:
    def fn(orders: Any) -> dict[str, Any]:
        keys = pc.binary_join_element_wise("x", orders["customer"], "")
        when = pa.array([1_000 + n for n in orders["id"].to_pylist()], pa.timestamp("ms", tz="UTC"))
        return {"all": orders.append_column("_key", keys).append_column("_timestamp", when), "odd": odd(orders)}

    tester = world(fn, outputs={"all": "out", "odd": "more"})

    assert [(m.key, m.timestamp_ms) for m in tester.messages("out")] == [
        ("x" + "ab"[n % 2], 1_000 + n) for n in range(10)
    ]
    assert [m.key for m in tester.messages("more")] == ["k1", "k3", "k5", "k7", "k9"]
    assert tester.totals("p").messages == 15
    assert tester.totals("p").outputs == 10
    assert (dict(tester.messages("more")[0].headers)["cues"] or b"").split()[-2] == b"1/2"


def test_unknown_binding_is_an_error() -> None:
    tester = world(lambda orders: {"al": orders}, outputs={"all": "out"})

    assert all("unknown binding 'al'" in one.text for one in tester.errors())
    assert len(tester.errors()) == 10


def test_stores_change_with_the_call_and_are_taken_back_with_it() -> None:
    def fn(orders: Any, totals: Any) -> None:
        for row in sums(orders).to_pylist():
            totals[row["customer"]] = totals.get(row["customer"], 0) + row["cents"]
        if 4 in orders["id"].to_pylist():
            raise ValueError("four")

    tester = world(fn, outputs=None, state={"totals": Store()})

    assert tester.state("totals") == {"a": 160, "b": 250}
    assert [one.text for one in tester.errors()] == ["four"]


def test_join_gets_columns_of_the_same_length() -> None:
    lengths: list[tuple[int, int]] = []

    def pair(left: Any, right: Any) -> Any:
        lengths.append((len(left), len(right)))
        return left.set_column(2, "cents", pc.add(left["cents"], right["cents"]))

    orders = Topic(value=Json(Order), partitions=1)
    graph = Graph(
        "g", Source("a"), Source("b"),
        Processor(pair, inputs={"left": "a", "right": "b"}, outputs="out", batch="arrow"),
        errors="errors", defaults=Topic(partitions=1), topics=dict.fromkeys(("a", "b", "out"), orders),
    )  # fmt: skip
    tester = Tester(graph)
    for one in ORDERS[:3]:
        tester.send("a", one)
        tester.send("b", one)
    tester.run()

    assert [one.cents for one in tester.values("out")] == [0, 20, 40]
    assert all(left == right for left, right in lengths)


def test_retry_calls_a_message_again_with_the_same_hash_and_the_next_attempt() -> None:
    seen: list[tuple[int, str]] = []

    def fn(orders: Any, step: list[Step]) -> Any:
        for one, number in zip(step, orders["id"].to_pylist(), strict=True):
            if number == 2:
                seen.append((one.attempt, one.hash))
        if 2 in orders["id"].to_pylist() and not seen[-1][0]:
            raise OSError("not yet")
        return orders

    tester = world(fn, data=ORDERS[:4], retry=Retry(OSError, first_s=0.1))

    assert [one.id for one in tester.values("out")] == [0, 1, 2, 3]
    assert len({one for _, one in seen}) == 1
    assert seen[-1][0] >= 1
    assert tester.errors() == []
