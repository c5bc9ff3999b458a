"""Functions with columns (`batch="arrow"`) beside functions that get a dict of JSON for each message."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message as Received

from benchmarks.report import Section, holds
from cues_kafka import Graph, Json, Message, Processor, Raw, Source, Store, Topic
from cues_kafka.brokers.kafka.compiled.loaded import loaded
from cues_kafka.codecs.json import JsonCodec
from cues_kafka.task.calling.caller import Caller
from cues_kafka.testing.tester import Tester

TARGET = 3
MESSAGES = 20_000

HOW = """{messages:,} messages of {size} bytes, JSON with five fields, without a broker. *Columns* get a record
batch of a class, *dicts* one dict for each message, by `Json()`. A figure is the processor time of the thread from the
messages that were read to the records that are to be written: decode, call, encode, with keys, headers and checks. Both
get messages as a worker has them, {messages_of}. What the client of Kafka takes is not in it, and
is the same for both. The two run in turn, in random order; the least of
{rounds} rounds, in microseconds for one message. The sum is kept in a store by 1,000 keys; the filter passes a tenth;
the look-up adds a field from 1,000 entries."""


@dataclass
class Order:
    """What is read."""

    id: str
    account: str
    currency: str
    cents: int
    settled: bool


@dataclass
class Named:
    """An order with the owner of its account."""

    id: str
    account: str
    currency: str
    cents: int
    settled: bool
    owner: str


OWNERS = {f"{n:08d}": f"owner {n}" for n in range(1_000)}
TABLE = pa.table({"account": list(OWNERS), "owner": list(OWNERS.values())})


def sum_dict(order: dict[str, Any], sums: Any) -> None:
    """Keep the sum of an account."""
    sums[order["account"]] = sums.get(order["account"], 0) + order["cents"]


def sum_columns(orders: Any, sums: Any) -> None:
    """The same for all accounts of a call."""
    found = pa.Table.from_batches([orders]).group_by("account").aggregate([("cents", "sum")]).to_pydict()
    for account, cents in zip(found["account"], found["cents_sum"], strict=True):
        sums[account] = sums.get(account, 0) + cents


def filter_dict(order: dict[str, Any]) -> dict[str, Any] | None:
    """A tenth."""
    return order if order["cents"] >= 900_000 else None


def filter_columns(orders: Any) -> Any:
    """The same."""
    return orders.filter(pc.greater_equal(orders["cents"], 900_000))


def named_dict(order: dict[str, Any]) -> dict[str, Any]:
    """With the owner."""
    return {**order, "owner": OWNERS[order["account"]]}


def named_columns(orders: Any) -> Any:
    """The same."""
    at = pc.index_in(orders["account"], value_set=TABLE["account"])
    return orders.append_column("owner", TABLE["owner"].combine_chunks().take(at))


CASES: dict[str, tuple[Any, Any, Any, bool]] = {
    "sum by key, in a store": (sum_dict, sum_columns, None, True),
    "filter": (filter_dict, filter_columns, Order, False),
    "look-up, a field more": (named_dict, named_columns, Named, False),
}


def measure(rounds: int) -> Section:
    """Measure all cases."""
    random.seed(7)
    encode = JsonCodec(Order).encode
    orders = [
        Order(f"{n:020x}", f"{random.randrange(1_000):08d}", "EUR", random.randrange(10**6), n % 2 == 0)
        for n in range(MESSAGES)
    ]
    data = [encode(one) for one in orders]
    section = Section(
        "Columns for functions",
        HOW.format(
            messages=MESSAGES,
            size=len(data[0]),
            rounds=rounds,
            messages_of="without the compiled module" if loaded().module is None else "with the compiled module",
        ),
        ("work", "columns us", "dicts us", "dicts / columns", f">= {TARGET}"),
    )
    for name, (each, columns, cls, state) in CASES.items():
        ways = [
            _graph(columns, Json(Order), None if cls is None else Json(cls), state=state, batch="arrow"),
            _graph(each, Json(), None if cls is None else Json(), state=state, batch=False),
        ]
        ours, dicts = _least([lambda graph=graph: _run(graph, data) for graph in ways], rounds)  # type: ignore[misc]
        ratio = dicts / ours
        section.rows.append([name, f"{ours:.2f}", f"{dicts:.2f}", f"{ratio:.1f}", holds(ratio >= TARGET)])
        print(f"  {', '.join(section.rows[-1])}", flush=True)
    return section


def _graph(fn: Callable[..., Any], value: Any, output: Any, *, state: bool, batch: Any) -> Graph:
    more: dict[str, Any] = {"state": {"sums": Store()}} if state else {}
    topics = {} if output is None else {"out": Topic(value=output)}
    part = Processor(fn, name="p", inputs="in", outputs=None if output is None else "out", batch=batch, **more)
    return Graph("g", Source("in"), part, defaults=Topic(partitions=1), topics={"in": Topic(value=value), **topics})


def _run(graph: Graph, data: Sequence[bytes]) -> float:
    """Processor time of the calls, in microseconds for one message."""
    writer = Tester(Graph("w", Source("in"), defaults=Topic(value=Raw(), partitions=1)))
    writer.send_many("in", [Message(one, key=f"k{n}") for n, one in enumerate(data)])
    spent, run = [0], Caller.run

    def timed(caller: Caller, steps: Sequence[Any], *given: Any, **named: Any) -> int:
        steps = [_as_of_kafka(one) for one in steps]
        began = time.thread_time_ns()
        try:
            return run(caller, steps, *given, **named)
        finally:
            spent[0] += time.thread_time_ns() - began

    with mock.patch.object(Caller, "run", timed):
        totals = Tester(graph, broker=writer.broker).run().totals("p")
    assert totals.deliveries == len(data)
    return spent[0] / len(data) / 1_000


def _as_of_kafka(one: Any) -> Any:
    """A message as a worker has it: of the compiled module, or of Kafka's client where that is not used."""
    if (module := loaded().module) is not None:
        return module.message("in", 0, one.offset(), one.key(), one.value(), None, one.timestamp()[1])
    return Received("in", 0, one.offset(), one.key(), one.value(), None, None, one.timestamp())


def _least(calls: Sequence[Callable[[], float]], rounds: int) -> tuple[float, float]:
    least = [float("inf")] * len(calls)
    for _ in range(rounds):
        for place in random.sample(range(len(calls)), len(calls)):
            least[place] = min(least[place], calls[place]())
    return least[0], least[1]
