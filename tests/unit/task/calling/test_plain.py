"""The quick way through a pipe of bytes has the outcomes of the long one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from cues_kafka import Graph, Json, Message, Out, Processor, Raw, Retry, Source, State, Store, Topic
from cues_kafka.brokers.memory import MemoryMessage
from cues_kafka.ports.log import UNREADABLE, Headers
from cues_kafka.task.calling import function, plain
from cues_kafka.testing.tester import Tester

COUNT = 60
UNUSUAL = {7: b"none", 20: b"raise", 21: b"message", 33: b"text", 34: b"raise"}


def values() -> list[bytes]:
    """Usual ones, with each unusual one between them."""
    return [UNUSUAL.get(i, b"%03d" % i) for i in range(COUNT)]


class Function:
    """Does what the value says, and remembers every call."""

    def __init__(self) -> None:
        self.calls: list[bytes] = []

    def __call__(self, value: bytes) -> Any:
        self.calls.append(value)
        if value == b"raise":
            raise ValueError("as asked")
        return {b"none": None, b"message": Message(b"made", key="k"), b"text": "no bytes"}.get(value, value)


def world_of(fn: Function, errors: str | None) -> Tester:
    """One pipe of bytes."""
    pipe = Processor(fn, name="pipe", inputs="in", outputs="out")
    return Tester(Graph("g", Source("in"), pipe, errors=errors, defaults=Topic(value=Raw())))


def test_unusual_results_among_usual_ones_keep_their_places() -> None:
    """None, a `Message`, an exception, a value that is refused: each is called once and ends as it does elsewhere."""
    fn = Function()
    world = world_of(fn, "failed")
    world.send_many("in", values())
    world.run()

    assert fn.calls == values()
    expected = [b"made" if v == b"message" else v for v in values() if v not in (b"none", b"raise", b"text")]
    assert world.values("out") == expected
    assert [(e.exception, e.consumed[0].offset) for e in world.errors()] == [
        ("ValueError", 20),
        ("CodecError", 33),
        ("ValueError", 34),
    ]
    totals = world.totals("pipe")
    assert (totals.deliveries, totals.outputs, totals.errors, totals.nils) == (COUNT, COUNT - 4, 3, 1)


@pytest.mark.parametrize("lifetime", [{}, {"ttl": "1 minute"}, {"ttl_messages": 9}])
def test_unusual_results_take_back_their_own_changes_of_a_store(lifetime: dict[str, Any]) -> None:
    """A step that fails has changed nothing, and the steps behind it have: no call runs ahead of a failure."""
    fn, store = Function(), Store(Json(int), **lifetime)

    def count(value: bytes, last: State[int]) -> Any:
        last["of all"] = last.get("of all", 0) + 1
        last[value.decode()] = last["of all"]
        return fn(value)

    pipe = Processor(count, name="pipe", inputs="in", outputs="out", state={"last": store})
    world = Tester(Graph("g", Source("in"), pipe, errors="failed", defaults=Topic(value=Raw())))
    now_ms = 1_700_000_000_000
    world.send_many("in", [Message(value, timestamp_ms=now_ms + 1_500 * i) for i, value in enumerate(values())])
    world.run()

    kept = [(i, value.decode()) for i, value in enumerate(values()) if value not in (b"raise", b"text")]
    if "ttl" in lifetime:
        alive = [(i, name) for i, name in kept if i >= COUNT - 40]
    else:
        alive = kept[-lifetime.get("ttl_messages", COUNT) :]
    numbers = {name: kept.index((i, name)) + 1 for i, name in alive}
    assert fn.calls == values()
    assert world.state("last") == {**numbers, "of all": len(kept)}


def test_outputs_behind_an_unusual_result_keep_the_keys_and_coordinates_of_their_inputs() -> None:
    """The columns of a chunk are cut at each unusual result; one place off, every output would name its neighbour."""
    world = world_of(Function(), "failed")
    given = values()
    world.send_many("in", [Message(value, key=f"{i}") for i, value in enumerate(given)])
    world.run()

    usual = [i for i, value in enumerate(given) if value not in UNUSUAL.values()]
    found = [message for message in world.messages("out") if message.value != b"made"]
    assert [message.key for message in found] == [f"{i}" for i in usual]
    coordinates = [dict(message.headers)["cues"].split()[-1] for message in found]  # type: ignore[union-attr]
    assert coordinates == [b"%d" % i for i in usual]


def test_an_output_without_a_key_stays_in_the_partition_of_its_input() -> None:
    """Order holds downstream although nothing names a partition."""
    graph = Graph(
        "g",
        Source("in"),
        Processor(Function(), name="pipe", inputs="in", outputs="out"),
        defaults=Topic(Raw(), partitions=3),
    )
    world = Tester(graph)
    world.send_many("in", [Message(b"%d" % p, partition=p) for p in (2, 0, 2, 1)])
    world.run()

    assert [(message.partition, message.value) for message in world.messages("out")] == [
        (0, b"0"), (1, b"1"), (2, b"2"), (2, b"2"),
    ]  # fmt: skip


def test_an_output_of_a_join_has_the_latest_time_of_its_messages() -> None:
    """A later reader that seeks by time would miss it under the earlier one."""
    graph = Graph(
        "g",
        Source("a"),
        Source("b"),
        Processor(lambda x, y: x, name="both", inputs={"x": "a", "y": "b"}, outputs="out"),
        defaults=Topic(value=Raw()),
    )
    world = Tester(graph)
    now_ms = int(world.clock.time() * 1000)
    world.send("a", Message(b"1", timestamp_ms=now_ms - 5))
    world.send("b", Message(b"2", timestamp_ms=now_ms - 3))
    world.run()

    assert [message.timestamp_ms for message in world.messages("out")] == [now_ms - 3]


@pytest.mark.parametrize(
    ("returned", "why"),
    [
        (Message(b"x", partition=1), "partition 1 of 'out' does not exist; it has 1"),
        (Message(None), "a tombstone has no meaning without a key"),
    ],
)
def test_an_output_that_cannot_be_sent_is_an_error_of_its_message(returned: Message, why: str) -> None:
    """The client would refuse the whole batch for it."""
    pipe = Processor(lambda value: returned if value == b"bad" else value, name="pipe", inputs="in", outputs="out")
    world = Tester(Graph("g", Source("in"), pipe, errors="failed", defaults=Topic(value=Raw())))
    world.send_many("in", [b"1", b"bad", b"2"])
    world.run()

    assert world.values("out") == [b"1", b"2"]
    [error] = world.errors()
    assert error.kind == "output"
    assert why in error.text


def test_without_an_errors_topic_the_steps_before_a_failure_are_committed() -> None:
    """Unhandled (docs/errors.md): the task stops behind the last step that ended."""
    fn = Function()
    world = world_of(fn, None)
    world.send_many("in", values())

    with pytest.raises(ValueError, match="as asked"):
        world.run()

    assert world.values("out") == [v for v in values()[:20] if v != b"none"]
    assert world.totals("pipe").deliveries == 20


# ---- all outputs of a message or none (I8)


@pytest.mark.parametrize("refused", ["size", "timestamp", "key"])
def test_a_fork_whose_second_output_is_refused_leaves_no_first(refused: str) -> None:
    """What only shows when records are made, with inherited headers, key and timestamp, takes back the first too."""
    config = {
        "size": {"max.message.bytes": "70000"},
        "timestamp": {"message.timestamp.before.max.ms": "3600000"},
        "key": {"cleanup.policy": "compact"},
    }
    topics = {"b": Topic(value=Raw(), config=config[refused])}
    fork = Processor(lambda v: {"a": v, "b": v}, name="fork", inputs="in", outputs={"a": "a", "b": "b"})
    world = Tester(Graph("g", Source("in"), fork, errors="failed", defaults=Topic(value=Raw()), topics=topics))
    large = {"cues-large": "x" * 69_900} if refused == "size" else {}
    old_ms = int(time.time() * 1000) - 7_200_000 if refused == "timestamp" else None
    world.send("in", Message(b"1", key="k"))
    world.send("in", Message(b"2", key=None if refused == "key" else "k", headers=large, timestamp_ms=old_ms))
    world.send("in", Message(b"3", key="k"))
    world.run()

    assert (world.values("a"), world.values("b")) == ([b"1", b"3"], [b"1", b"3"])
    assert [(e.kind, e.consumed[0].offset) for e in world.errors()] == [("output", 1)]
    totals = world.totals("fork")
    assert (totals.deliveries, totals.outputs, totals.errors, totals.messages) == (3, 2, 1, 4)


@pytest.mark.parametrize("refused", ["timestamp", "key"])
def test_a_plain_output_that_its_topic_refuses_is_an_error_message(refused: str) -> None:
    """The quick way looks at inherited keys and timestamps, too; neighbours pass in order."""
    fn = Function()
    config = {"timestamp": {"message.timestamp.before.max.ms": "3600000"}, "key": {"cleanup.policy": "compact"}}
    topics = {"out": Topic(value=Raw(), config=config[refused])}
    pipe = Processor(fn, name="pipe", inputs="in", outputs="out")
    world = Tester(Graph("g", Source("in"), pipe, errors="failed", defaults=Topic(value=Raw()), topics=topics))
    old_ms = int(time.time() * 1000) - 7_200_000
    for n in range(5):
        odd = n % 2 == 1
        key = None if odd and refused == "key" else "k"
        world.send("in", Message(b"%d" % n, key=key, timestamp_ms=old_ms if odd and refused == "timestamp" else None))
    world.run()

    assert world.values("out") == [b"0", b"2", b"4"]
    assert [(e.exception, e.consumed[0].offset) for e in world.errors()] == [("OutputError", 1), ("OutputError", 3)]
    assert fn.calls == [b"%d" % n for n in range(5)]


# ---- headers that the client cannot read


class Unreadable:
    """Answers for messages of bytes b"odd" as the client does where a header's name is no UTF-8: never ask twice."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[int] = []
        real = MemoryMessage.headers

        def headers(message: MemoryMessage) -> Headers | None:
            if message.value() != b"odd" or real(message) is UNREADABLE:
                return real(message)
            assert id(message) not in self.asked, "a second call ends the process"
            self.asked.append(id(message))
            raise SystemError

        monkeypatch.setattr(MemoryMessage, "headers", headers)


def fork(value: bytes) -> Iterator[Out]:
    """An output for each."""
    yield Out("a", value)


@pytest.mark.parametrize(
    "declared",
    [
        pytest.param({"fn": lambda value: value}, id="plain"),
        pytest.param({"fn": lambda value: {"a": value}, "outputs": {"a": "out"}}, id="mapping"),
        pytest.param({"fn": fork, "outputs": {"a": "out"}}, id="generator"),
        pytest.param({"fn": lambda values: values, "batch": True}, id="list"),
        pytest.param({"fn": lambda value, step: value}, id="step"),
        pytest.param({"fn": lambda value: value, "retry": Retry(OSError)}, id="retry"),
    ],
)
def test_a_message_whose_headers_cannot_be_read_is_an_error_of_its_own(
    declared: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every shape; it is asked for them once, its neighbours pass."""
    odd = Unreadable(monkeypatch)
    pipe = Processor(**{"name": "pipe", "inputs": "in", "outputs": "out"} | declared)
    world = Tester(Graph("g", Source("in"), pipe, errors="failed", defaults=Topic(value=Raw())))
    world.send_many("in", [b"1", b"odd", b"2", b"odd", b"3"])
    world.run()

    assert world.values("out") == [b"1", b"2", b"3"]
    assert [(e.kind, e.payload, e.consumed[0].offset) for e in world.errors()] == [
        ("decode", b"odd", 1),
        ("decode", b"odd", 3),
    ]
    assert "in/0 at 1 has a header whose name is not UTF-8" in world.errors()[0].text
    assert len(odd.asked) == 2


def test_a_message_whose_headers_cannot_be_read_can_be_quarantined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error message inherits nothing from it, so they are not asked for again there."""
    odd = Unreadable(monkeypatch)
    world = world_of(Function(), "failed")
    for reads in (plain, function):
        monkeypatch.setattr(reads, "unreadable", lambda _: world.kill())
    world.send("in", b"odd")
    while world.run_to_death():
        continue

    assert [(e.kind, e.payload, e.starts) for e in world.errors()] == [("quarantine", b"odd", 3)]
    assert len(odd.asked) == 1
