"""Bad input and misbehaving functions on a real broker: every input has exactly one outcome (I8), and nothing hangs.

Each case compares everything that was committed: outputs, error messages, totals of the newest backing records, and how
often each input was delivered.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import admin

from cues_kafka import Graph, Interrupt, Json, Kafka, Message, Out, Raw, Retry, Source, TaskStopped, Topic, connect
from cues_kafka.brokers.open import open_broker
from cues_kafka.on_spark.source.planning import OffsetRange
from cues_kafka.on_spark.source.rows import record_batches
from cues_kafka.ports.log import TopicPartition
from cues_kafka.running.running import Running
from cues_kafka.task.calling.step import Step
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify
from tests.fault.support import Record, Setup, World, committed, create, produce, produce_any_headers, until


@pytest.fixture
def setup(kafka: KafkaFixture) -> Setup:
    """Names of the test's own."""
    return Setup(kafka.bootstrap, kafka.unique("g"))


@dataclass(frozen=True)
class Typed:
    """A value with a shape."""

    n: int


def same(value: Any) -> Any:
    """What most functions of these tests do."""
    return value


def run(setup: Setup, graph: Any, *records: Record | bytes, sinks: Sequence[str] | None = None) -> World:
    """Start, write, wait, stop, look."""
    with setup.start(graph) as running:
        setup.send(*records)
        running.wait_idle(timeout_s=30)
    return setup.world(sinks=sinks)


def totals(deliveries: int, outputs: int = 0, errors: int = 0, nils: int = 0) -> dict[str, int]:
    """What the newest backing records must say."""
    return {"deliveries": deliveries, "outputs": outputs, "errors": errors, "nils": nils}


def seen(world: World) -> list[int]:
    """Offsets of the inputs that have an output or error, each as often as it has one."""
    return sorted(offset for (_, _, offset), count in world.outcomes.items() for _ in range(count))


def failures(world: World) -> list[tuple[int, str, str]]:
    """(offset, kind, exception) of each error message."""
    return [(e["consumed"][0]["offset"], e["kind"], e["exception"]) for e in world.errors]


# ---- what cannot be decoded


def test_undecodable_bytes_become_error_messages_with_the_bytes(setup: Setup) -> None:
    """Between good messages; the good ones pass, in order, and carry no payload anywhere."""
    world = run(setup, setup.graph(same), b"1", Record(b"\xff\xfe{", b"k"), b"[", b"", b"2")

    assert world.values == [1, 2]
    assert failures(world) == [(i, "decode", "CodecError") for i in (1, 2, 3)]
    assert [e["payload"] for e in world.errors] == [b"\xff\xfe{", b"[", b""]
    assert [e["key"] for e in world.errors] == [b"k", None, None]
    assert world.totals == totals(5, outputs=2, errors=3)
    assert seen(world) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("shape", ["plain", "fork", "list", "join"])
def test_a_header_name_that_is_no_utf8_costs_its_message_alone(setup: Setup, shape: str) -> None:
    """Kafka takes any bytes as a name, the client cannot read them: one error message with the bytes of the value.

    `verify` reads such messages too, of the input and, from another program, of an output.
    """
    shapes: dict[str, dict[str, Any]] = {
        "plain": {"fn": same},
        "fork": {"fn": lambda value: {"a": value}, "outputs": {"a": setup.sink}},
        "list": {"fn": lambda values: values, "batch": True},
        "join": {"fn": lambda a, b: b, "inputs": {"a": f"{setup.name}.other", "b": setup.source}},
    }
    graph = setup.graph(**shapes[shape])
    if shape == "join":
        graph = replace_parts(graph, Source(f"{setup.name}.other"))
    with setup.start(graph) as running:
        if shape == "join":
            produce(setup.bootstrap, f"{setup.name}.other", [b"0", b"1", b"2"])
        setup.send(b"0")
        produce_any_headers(setup.bootstrap, setup.source, b"1", [(b"good", b"g"), (b"\xff\xfe", b"x")])
        setup.send(b"2")
        running.wait_idle(timeout_s=30)
    world = setup.world()

    assert world.values == [0, 2]
    assert failures(world) == [(1, "decode", "CodecError")]
    assert world.errors[0]["payload"] == b"1"
    assert "header whose name is not UTF-8" in world.errors[0]["text"]
    assert world.totals == totals(3, outputs=2, errors=1)
    if shape == "plain":
        produce_any_headers(setup.bootstrap, setup.sink, b"9", [(b"\xff", b"")])
        with closing(open_broker(Kafka(setup.bootstrap))) as broker:
            report = verify(graph, broker)
        assert (report.anomalies, report.behind) == (0, 0)
        assert f"1 message of {setup.sink!r} carry no provenance header" in " ".join(report.notes)


def test_a_row_has_null_for_headers_that_cannot_be_read(setup: Setup) -> None:
    """Spark's rows beside it keep theirs, and the range is read to its end."""
    create(setup.bootstrap, setup.source)
    own = [("a", b"1")]
    setup.send(Record(b"0", headers=[*own]))
    produce_any_headers(setup.bootstrap, setup.source, b"1", [(b"good", b"g"), (b"\xff", b"x")])
    setup.send(Record(b"2", headers=[*own]))
    given = OffsetRange(TopicPartition(setup.source, 0), 0, 3)
    with closing(open_broker(Kafka(setup.bootstrap))) as broker:
        found = [
            row
            for batch in record_batches(broker, given, name="check", headers=True, fail=True)
            for row in batch.to_pylist()
        ]

    assert [row["value"] for row in found] == [b"0", b"1", b"2"]
    read = [{"key": "a", "value": b"1"}]
    assert [row["headers"] for row in found] == [read, None, read]


def replace_parts(graph: Graph, *more: Any) -> Graph:
    """The same graph with more parts."""
    return Graph(graph.name, *graph.parts, *more, errors=graph.errors, defaults=graph.defaults)


def test_a_null_value_is_an_error_where_the_codec_has_no_none(setup: Setup) -> None:
    """A dataclass has no null; the tombstone is named as such."""
    world = run(setup, setup.graph(same, value=Json(Typed)), Record(b'{"n": 1}', b"a"), Record(None, b"b"))

    assert world.outputs == [(b"a", b'{"n":1}')]
    assert failures(world) == [(1, "decode", "CodecError")]
    assert "has no value (a tombstone), and the declared Json does not accept None" in world.errors[0]["text"]
    assert (world.errors[0]["payload"], world.errors[0]["key"]) == (None, b"b")
    assert world.totals == totals(2, outputs=1, errors=1)


def test_a_null_value_is_none_where_the_codec_has_it(setup: Setup) -> None:
    """JSON has null, raw bytes may be absent; what the function makes of it decides."""
    got: list[Any] = []

    def note(value: Any) -> Any:
        got.append(value)
        return value

    world = run(setup, setup.graph(note), Record(None, b"a"), Record(b"null", b"b"), Record(b"3", b"c"))

    assert got == [None, None, 3]
    assert world.outputs == [(b"c", b"3")]
    assert world.totals == totals(3, outputs=1, nils=2)


def test_null_keys_stay_null_and_keep_the_order_of_their_task(setup: Setup) -> None:
    """Without a key the task's own number chooses the partition (docs/api.md)."""
    records = [Record(str(i).encode(), None, i % 3) for i in range(30)]
    world = run(setup, setup.graph(same, partitions=3), *records)

    assert {key for key, _ in world.outputs} == {None}
    assert world.values == [i for p in range(3) for i in range(p, 30, 3)]
    assert world.totals == totals(30, outputs=30)


def test_ten_thousand_deep_json_is_an_error_like_any_other(setup: Setup) -> None:
    """Also under a dataclass codec; the error message stays small."""
    deep = b"[" * 10_000 + b"]" * 10_000
    world = run(setup, setup.graph(same), b"1", deep, b'{"a":' * 10_000 + b"1" + b"}" * 10_000, b"2")

    assert world.values == [1, 2]
    assert [(offset, kind) for offset, kind, _ in failures(world)] == [(1, "decode"), (2, "decode")]
    assert world.totals == totals(4, outputs=2, errors=2)
    assert world.errors[0]["truncated"] == ["payload"]


# ---- what functions do


def test_a_function_that_raises_gives_one_error_message_for_each_message(setup: Setup) -> None:
    """Type, text, place and context are told; the payload is not, because it could be decoded."""

    def picky(value: int, step: Step) -> int:
        step.error_context(customer=value, shop="north")
        if value % 2:
            raise ValueError(f"odd: {value}")
        return value

    world = run(setup, setup.graph(picky), *(str(i).encode() for i in range(6)))

    assert world.values == [0, 2, 4]
    assert failures(world) == [(i, "raised", "ValueError") for i in (1, 3, 5)]
    first = world.errors[0]
    assert (first["text"], first["context"]) == ("odd: 1", {"customer": "1", "shop": "north"})
    assert first["location"].startswith("test_bad_input.py:picky:")
    assert [e["payload"] for e in world.errors] == [None] * 3
    assert world.totals == totals(6, outputs=3, errors=3)
    assert seen(world) == list(range(6))


def test_a_generator_that_raises_late_commits_none_of_what_it_gave(setup: Setup) -> None:
    """All outputs of one message or none."""

    def late(value: int) -> Iterator[Out]:
        yield Out("a", value)
        if value == 1:
            raise RuntimeError("late")
        yield Out("b", value)

    graph = setup.graph(late, outputs={"a": setup.sink, "b": f"{setup.name}.b"})
    world = run(setup, graph, b"0", b"1", b"2", sinks=[setup.sink, f"{setup.name}.b"])

    assert world.values == [0, 2, 0, 2]
    assert failures(world) == [(1, "raised", "RuntimeError")]
    assert world.totals == totals(3, outputs=2, errors=1)


def unknown_binding(value: Any) -> Any:
    """A binding that is not declared, for one message."""
    return {"elsewhere" if value == 1 else "a": value}


def unserialisable(value: Any) -> Any:
    """What JSON does not have, for one message."""
    return {"a": {1, 2} if value == 1 else value}


def circular(value: Any) -> Any:
    """A value that holds itself, for one message."""
    endless: list[Any] = []
    endless.append(endless)
    return {"a": endless if value == 1 else value}


def not_a_mapping(value: Any) -> Any:
    """A bare value where bindings are declared, for one message."""
    return value if value == 1 else {"a": value}


def too_large(value: Any) -> Any:
    """More than a message may have, for one message."""
    return {"a": "x" * 1_000_001 if value == 1 else value}


@pytest.mark.parametrize("fn", [unknown_binding, unserialisable, circular, not_a_mapping, too_large])
def test_a_result_that_cannot_be_sent_is_an_error_message(setup: Setup, fn: Callable[[Any], Any]) -> None:
    """`OutputError` or `CodecError`, with what to do in the text; the messages around it pass."""
    world = run(setup, setup.graph(fn, outputs={"a": setup.sink}), b"0", b"1", b"2")

    assert world.values == [0, 2]
    assert [(offset, kind) for offset, kind, _ in failures(world)] == [(1, "output")]
    assert failures(world)[0][2] in {"OutputError", "CodecError"}
    assert world.totals == totals(3, outputs=2, errors=1)
    assert seen(world) == [0, 1, 2]


@pytest.mark.parametrize("extra", [0, 400])
def test_a_plain_output_over_the_limit_is_an_error_message(setup: Setup, extra: int) -> None:
    """The quick path for plain pipes checks sizes too; just below the limit it is sent."""

    def grow(value: int) -> Any:
        return "x" * (1_000_000 - 500 - 2 - value)

    world = run(setup, setup.graph(grow), b"-1", str(extra).encode(), b"600")

    assert [len(value or b"") for _, value in world.outputs] == [999_500 - extra, 999_500 - 600]
    assert failures(world) == [(0, "output", "OutputError")]
    assert world.totals == totals(3, outputs=2, errors=1)


def with_topics(graph: Graph, **topics: Topic) -> Graph:
    """The same graph with settings for its topics, by the last part of their names."""
    named = {f"{graph.name}.{name}": settings for name, settings in topics.items()}
    return Graph(graph.name, *graph.parts, errors=graph.errors, defaults=graph.defaults, topics=named)


def test_a_topics_own_limit_counts(setup: Setup) -> None:
    """`max.message.bytes` of the output topic, smaller than the client's."""
    small = with_topics(setup.graph(same), out=Topic(config={"max.message.bytes": "70000"}))
    world = run(setup, small, b"1", b'"' + b"x" * 70_000 + b'"', b"2")

    assert world.values == [1, 2]
    assert failures(world) == [(1, "output", "OutputError")]
    assert "more than the 70000 of the topic's max.message.bytes. Send" in world.errors[0]["text"]


def test_batches_keep_to_the_least_limit_of_the_topics(setup: Setup) -> None:
    """`max.message.bytes` bounds a whole batch; the client fills larger ones, and the broker always refuses those."""
    noise = random.Random(1)

    def noisy(value: int) -> bytes:
        if value >= 2000:
            raise ValueError(noise.randbytes(500).hex())
        return noise.randbytes(1000)

    graph = with_topics(
        setup.graph(noisy),
        out=Topic(value=Raw(), config={"max.message.bytes": "100000"}),
        errors=Topic(config={"max.message.bytes": "66000"}),
    )
    setup.start(graph).stop()
    setup.send(*(b"%d" % n for n in range(2400)), transaction=True)
    world = run(setup, graph)

    assert (len(world.outputs), len(world.errors)) == (2000, 400)
    with connect(Kafka(setup.bootstrap), graph) as client:
        assert client.send_many(setup.sink, [noise.randbytes(1000) for _ in range(200)]) == 200


@pytest.mark.parametrize(
    ("client", "topic", "size", "bound"),
    [
        pytest.param("5000000", "5000000", 2_000_000, "", id="both raised"),
        pytest.param("300000", None, 400_000, "300000 of message.max.bytes", id="the client lowered"),
        pytest.param("5000000", None, 2_000_000, "1048588 of the topic's max.message.bytes", id="the client raised"),
        pytest.param(None, "5000000", 2_000_000, "1000000 of message.max.bytes", id="the topic raised"),
    ],
)
def test_the_limit_of_a_message_is_the_least_of_client_and_topic(
    setup: Setup, client: str | None, topic: str | None, size: int, bound: str
) -> None:
    """What is larger is an error message that names the setting to raise; once it is raised, the message is sent."""
    graph = setup.graph(lambda value: "x" * size if value == 1 else value)
    if topic:
        graph = with_topics(graph, out=Topic(value=Json(), config={"max.message.bytes": topic}))
    with setup.start(graph, options={"producer": {"message.max.bytes": client} if client else {}}) as running:
        setup.send(b"0", b"1", b"2")
        running.wait_idle(timeout_s=30)
    world = setup.world()

    assert [len(value or b"") for _, value in world.outputs] == ([1, 1] if bound else [1, size + 2, 1])
    assert [f"more than the {bound}" in e["text"] for e in world.errors] == ([True] if bound else [])


NOW_MS = int(time.time() * 1000)
HOUR_MS = 3_600_000


def keyless(value: Any) -> Any:
    """No key, for one message."""
    return Message(value, key=None if value == 1 else "k")


def ahead(value: Any) -> Any:
    """Two hours ahead, for one message."""
    return Message(value, timestamp_ms=NOW_MS + 2 * HOUR_MS if value == 1 else None)


def behind(value: Any) -> Any:
    """Two hours behind, for one message."""
    return Message(value, timestamp_ms=NOW_MS - 2 * HOUR_MS if value == 1 else None)


def cut_off(value: Any) -> Any:
    """A header's name that the client would cut, for one message."""
    return Message(value, headers={"a\0b": "x"} if value == 1 else {})


@pytest.mark.parametrize("shape", ["one", "fork"])
@pytest.mark.parametrize(
    ("fn", "config", "says"),
    [
        (keyless, {"cleanup.policy": "compact"}, "takes no message without a key"),
        (ahead, {}, "further ahead than"),
        (behind, {"message.timestamp.before.max.ms": str(HOUR_MS)}, "message.timestamp.before.max.ms=3600000"),
        (cut_off, {}, "header's name"),
    ],
    ids=["no key", "ahead", "behind", "header"],
)
def test_an_output_that_its_topic_refuses_is_an_error_message(
    setup: Setup, fn: Callable[[Any], Any], config: dict[str, str], says: str, shape: str
) -> None:
    """The broker refuses the whole transaction for it, again and again; everything behind it waited."""
    many: dict[str, Any] = {"outputs": {"a": setup.sink}} if shape == "fork" else {}
    graph = setup.graph((lambda value: {"a": fn(value)}) if many else fn, **many)
    world = run(setup, with_topics(graph, out=Topic(value=Json(), config=config)), b"0", b"1", b"2")

    assert world.values == [0, 2]
    assert failures(world) == [(1, "output", "OutputError")]
    assert says in world.errors[0]["text"]
    assert seen(world) == [0, 1, 2]


def test_a_setting_that_was_made_stricter_under_a_worker_stops_its_task_and_is_named(setup: Setup) -> None:
    """It asks for them when it starts; the broker's refusal names the topic and what to do."""
    running = setup.start(setup.graph(same))
    try:
        alter(setup, setup.sink, "cleanup.policy", "compact")
        with pytest.raises(TaskStopped) as stopped:
            send_until_stopped(setup, running)
    finally:
        running.stop()

    assert f"writing to {setup.sink}/0: the topic rejects a message" in str(stopped.value)
    assert "restart the worker" in str(stopped.value)
    assert run(setup, setup.graph(same)).errors, "the next one knows"


def alter(setup: Setup, topic: str, name: str, value: str) -> None:
    """Change one setting of a topic."""
    client: Any = admin.AdminClient({"bootstrap.servers": setup.bootstrap})
    words: Any = admin
    entry = words.ConfigEntry(name, value, incremental_operation=words.AlterConfigOpType.SET)
    resource = words.ConfigResource(words.ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    client.incremental_alter_configs([resource])[resource].result()


def send_until_stopped(setup: Setup, running: Running) -> None:
    """Brokers learn of a setting some time after it was taken."""
    while True:
        setup.send(b"1")
        running.wait_idle(timeout_s=60)


def test_an_inherited_key_or_timestamp_that_a_topic_refuses_is_an_error_message(setup: Setup) -> None:
    """The quick way of a plain pipe looks at them, too; a compacted errors topic takes the error messages."""
    source = Topic(value=Json(), config={"message.timestamp.after.max.ms": str(100 * HOUR_MS)})
    graph = with_topics(
        setup.graph(same),
        **{"in": source},
        out=Topic(value=Json(), config={"cleanup.policy": "compact"}),
        errors=Topic(config={"cleanup.policy": "compact"}),
    )
    setup.start(graph).stop()
    produce(setup.bootstrap, setup.source, [Record(b"0", b"k"), b"1", Record(b"2", b"k")])
    with connect(Kafka(setup.bootstrap), graph) as client:
        client.send(setup.source, Message(3, key="l", timestamp_ms=NOW_MS + 2 * HOUR_MS))
        client.send(setup.source, Message(4, key="k"))
    world = run(setup, graph)

    assert world.outputs == [(b"k", b"0"), (b"k", b"2"), (b"k", b"4")]
    assert failures(world) == [(1, "output", "OutputError"), (3, "output", "OutputError")]
    assert [len(message.key() or b"") for message in committed(setup.bootstrap, setup.errors)] == [16, 1]


def test_an_error_message_is_as_young_as_its_failure_however_old_its_input(setup: Setup) -> None:
    """An output keeps the time of its input, and goes with the first check of retention; the error message stays."""

    def odd(value: int) -> int:
        if value % 2:
            raise ValueError("odd")
        return value

    old_ms = NOW_MS - 30 * 24 * HOUR_MS
    graph = with_topics(setup.graph(odd), **{"in": Topic(value=Json(), config={"retention.ms": "-1"})})
    setup.start(graph).stop()
    with connect(Kafka(setup.bootstrap), graph) as client:
        client.send_many(setup.source, [Message(n, timestamp_ms=old_ms) for n in range(2)])
    run(setup, graph)

    until(lambda: not committed(setup.bootstrap, setup.sink), "retention deletes the output")
    [error] = committed(setup.bootstrap, setup.errors)
    assert error.timestamp()[0] == 2, "the brokers' own time"
    assert error.timestamp()[1] >= NOW_MS


@pytest.mark.parametrize("fails", [False, True])
def test_headers_and_keys_that_leave_no_room_do_not_stop_the_task(setup: Setup, fails: bool) -> None:
    """Headers that travel and a key that is inherited count for the size; the error message itself always fits."""

    def maybe(value: int) -> int:
        if fails and value == 1:
            raise ValueError("bad")
        return value

    huge: list[tuple[str, str | bytes | None]] = [("cues-huge", b"x" * 999_000)]
    records: list[Record | bytes] = [b"0", Record(b"1", b"k" * 1000, headers=huge), Record(b"1", b"k" * 999_900), b"2"]
    world = run(setup, setup.graph(maybe), *records)

    assert world.values == [0, 2]
    kind = "raised" if fails else "output"
    assert [(offset, kind) for offset, kind, _ in failures(world)] == [(1, kind), (2, kind)]
    assert world.totals == totals(4, outputs=2, errors=2)


HEAVY: list[tuple[int, list[tuple[str, str | bytes | None]]]] = [
    (880_000, [("cues-h", b"")] * 17_500),  # each has two bytes more on the wire
    (780_000, [("cues-\N{EURO SIGN}" + "\N{EURO SIGN}" * 80_000, b"")]),  # three bytes a character
]
"""Sizes of values, and headers that travel: with them an input topic takes the record, and the client does not."""


@pytest.mark.parametrize("plain", [True, False])
def test_headers_that_take_more_than_their_letters_do_not_stop_the_task(setup: Setup, *, plain: bool) -> None:
    """They travel; the client refuses the whole batch where they do not fit, and then no retry could ever help."""
    graph = setup.graph(same, value=Raw()) if plain else setup.graph(same, value=Raw(), batch=True)
    heavy = [Record(b"x" * size, headers=headers) for size, headers in HEAVY]
    world = run(setup, graph, b"before", *heavy, b"behind")

    assert [value for _, value in world.outputs] == [b"before", b"behind"]
    assert [(offset, kind) for offset, kind, _ in failures(world)] == [(1, "output"), (2, "output")]


def test_one_bad_message_in_a_list_spoils_only_itself(setup: Setup) -> None:
    """batch=True: undecodable ones are left out; where the call raises, each is called by itself."""
    calls: list[list[Any]] = []

    def listed(values: list[Any]) -> list[Any]:
        calls.append(values)
        if "bad" in values:
            raise ValueError("bad")
        return [LookupError("no") if v == 7 else v for v in values]

    graph = setup.graph(listed, batch=True)
    setup.start(graph).stop()
    setup.send(b"1", b"{", b'"bad"', b"7", b"2", transaction=True)
    world = run(setup, graph)

    assert calls[0] == [1, "bad", 7, 2]
    assert world.values == [1, 2]
    assert failures(world) == [(1, "decode", "CodecError"), (2, "raised", "ValueError"), (3, "raised", "LookupError")]
    assert world.totals == totals(5, outputs=2, errors=3)
    assert seen(world) == [0, 1, 2, 3, 4]


def test_a_list_of_another_length_is_an_error_of_each(setup: Setup) -> None:
    """Which result belongs to which message cannot be guessed."""
    world = run(setup, setup.graph(lambda values: [1, 2], batch=True), b"0")

    assert failures(world) == [(0, "output", "OutputError")]
    assert world.totals == totals(1, errors=1)


# ---- errors that stop the task


def test_an_unhandled_exception_stops_its_task_alone_and_the_task_recovers(setup: Setup) -> None:
    """The steps before it commit, waiters are told at once why, others go on, mending is enough (docs/errors.md)."""
    fixed = threading.Event()

    def fragile(value: int) -> int:
        if value == 3 and not fixed.is_set():
            raise ConnectionError("the database is gone")
        return value

    graph = setup.graph(fragile, errors=False, partitions=2)
    running = setup.start(graph)
    try:
        setup.send(*(Record(str(i).encode(), None, 0) for i in range(5)))
        with pytest.raises(TaskStopped) as stopped:
            running.wait_idle(timeout_s=30)
        assert isinstance(stopped.value.__cause__, ConnectionError)
        assert f"{setup.source}/0 at 3" in str(stopped.value)
        assert [task.task for task in running.status().stopped] in ([], ["work/0"])

        setup.send(*(Record(str(i).encode(), None, 1) for i in range(10, 15)))
        until(lambda: running.status().tasks[1].totals.deliveries == 5, "the other task goes on")
        before = setup.world(errors=False)
        fixed.set()
        until(lambda: running.status().tasks[0].totals.deliveries == 5, "the task comes back by itself")
        running.wait_idle(timeout_s=30)
    finally:
        running.stop()

    assert before.values == [0, 1, 2, 10, 11, 12, 13, 14]
    world = setup.world(errors=False)
    assert world.values == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
    assert world.totals == totals(10, outputs=10)
    assert seen(world) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


def test_leaving_a_stopped_graph_raises(setup: Setup) -> None:
    """A `with` block that ends while a task is stopped must not look like success."""

    def never(value: int) -> int:
        raise ValueError("never")

    def block() -> None:
        with setup.start(setup.graph(never, errors=False)) as running:
            setup.send(b"0")
            until(lambda: running.status().stopped, "the task stops")

    with pytest.raises(TaskStopped) as stopped:
        block()
    assert isinstance(stopped.value.__cause__, ValueError)


def test_undecodable_bytes_without_an_errors_topic_stop_the_task(setup: Setup) -> None:
    """Nothing is skipped in silence; the place is named."""
    running = setup.start(setup.graph(same, errors=False))
    try:
        setup.send(b"0", b"{", b"2")
        with pytest.raises(TaskStopped, match=rf"{setup.source}/0 at 1 cannot be decoded"):
            running.wait_idle(timeout_s=30)
    finally:
        running.stop()
    assert setup.world(errors=False).values == [0]


def test_interrupt_stops_the_task_before_its_message(setup: Setup) -> None:
    """It is no Exception, so neither the function nor the errors topic catches it; the steps before it commit."""
    enough = threading.Event()

    def careful(value: int) -> int:
        try:
            if value == 2 and not enough.is_set():
                raise Interrupt("not now")
        except Exception:
            return -1
        return value

    running = setup.start(setup.graph(careful))
    try:
        setup.send(b"0", b"1", b"2", b"3")
        with pytest.raises(TaskStopped, match="not now") as stopped:
            running.wait_idle(timeout_s=30)
        assert isinstance(stopped.value.__cause__, Interrupt)
        assert setup.world().values == [0, 1]
        enough.set()
        until(lambda: running.status().tasks[0].totals.deliveries == 4, "it goes on")
    finally:
        running.stop()
    world = setup.world()
    assert world.values == [0, 1, 2, 3]
    assert world.errors == []
    assert world.totals == totals(4, outputs=4)


# ---- retry


class Flaky:
    """Raises for one value a number of times; remembers every call."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.calls: list[tuple[int, int, str]] = []

    def __call__(self, value: int, step: Step) -> int:
        self.calls.append((value, step.attempt, step.hash))
        if value == 1 and self.times > 0:
            self.times -= 1
            raise OSError("not reachable")
        return value


def test_retry_calls_the_same_step_again_while_others_go_on(setup: Setup) -> None:
    """The same hash, attempts counted from 0, the messages before and after it once."""
    flaky = Flaky(3)
    graph = setup.graph(flaky, partitions=2, retry=Retry(OSError, first_s=0.4, max_s=0.8))
    with setup.start(graph) as running:
        setup.send(*(Record(str(i).encode(), None, 0) for i in range(3)))
        until(lambda: [c for c in flaky.calls if c[0] == 1], "the bad one was called")
        setup.send(*(Record(str(i).encode(), None, 1) for i in range(10, 13)))
        until(lambda: running.status().tasks[1].totals.deliveries == 3, "the other task goes on")
        assert running.status().tasks[0].totals.deliveries <= 1
        running.wait_idle(timeout_s=30)

    tries = [call for call in flaky.calls if call[0] == 1]
    assert [attempt for _, attempt, _ in tries] == [0, 1, 2, 3]
    assert len({hash_ for _, _, hash_ in tries}) == 1
    world = setup.world()
    assert world.values == [0, 1, 2, 10, 11, 12]
    assert world.totals == totals(6, outputs=6)
    assert sorted(value for value, _, _ in flaky.calls if value != 1) == [0, 2, 10, 11, 12]


def test_retries_that_are_exhausted_stop_the_task(setup: Setup) -> None:
    """then="stop": an outage is not the message's fault; no error message although there is an errors topic."""
    flaky = Flaky(1_000_000)
    graph = setup.graph(flaky, retry=Retry(OSError, for_s=0.5, first_s=0.1, max_s=0.2))
    running = setup.start(graph)
    try:
        setup.send(b"0", b"1", b"2")
        with pytest.raises(TaskStopped, match=r"still after 0.5 s of retries") as stopped:
            running.wait_idle(timeout_s=30)
        assert isinstance(stopped.value.__cause__, OSError)
        assert setup.world().values == [0]
        flaky.times = 0
        until(lambda: running.status().tasks[0].totals.deliveries == 3, "it goes on")
    finally:
        running.stop()
    world = setup.world()
    assert (world.values, world.errors) == ([0, 1, 2], [])
    assert len({hash_ for value, _, hash_ in flaky.calls if value == 1}) == 1


def test_retries_that_are_exhausted_become_an_error_message_where_that_is_asked_for(setup: Setup) -> None:
    """then="error": the attempts are counted in it."""
    flaky = Flaky(1_000_000)
    retry = Retry(OSError, for_s=0.5, first_s=0.1, max_s=0.2, then="error")
    world = run(setup, setup.graph(flaky, retry=retry), b"0", b"1", b"2")

    assert world.values == [0, 2]
    assert failures(world) == [(1, "retries_exhausted", "OSError")]
    tries = [call for call in flaky.calls if call[0] == 1]
    assert world.errors[0]["attempts"] == len(tries) >= 3
    assert world.errors[0]["hash"].hex() == tries[0][2]
    assert world.totals == totals(3, outputs=2, errors=1)


def test_what_cannot_be_decoded_is_not_retried(setup: Setup) -> None:
    """Bytes do not become better."""
    flaky = Flaky(0)
    graph = setup.graph(flaky, retry=Retry(Exception, for_s=30))
    world = run(setup, graph, b"{", b"2")

    assert failures(world) == [(0, "decode", "CodecError")]
    assert [value for value, _, _ in flaky.calls] == [2]


# ---- a function that ends its thread


def test_an_exit_in_a_function_ends_the_worker_and_nothing_is_lost(setup: Setup) -> None:
    """SystemExit is no error of the message: the worker is over, which waiters are told; a restart delivers it."""
    leave = threading.Event()
    leave.set()

    def leaver(value: int) -> int:
        if value == 1 and leave.is_set():
            raise SystemExit(1)
        return value

    running: Running = setup.start(setup.graph(leaver))
    try:
        setup.send(b"0", b"1", b"2")
        with pytest.raises(TaskStopped) as stopped:
            running.wait_idle(timeout_s=30)
        assert isinstance(stopped.value.__cause__, SystemExit)
    finally:
        running.stop()
    leave.clear()
    world = run(setup, setup.graph(leaver))

    assert world.values == [0, 1, 2]
    assert world.totals == totals(3, outputs=3)
