"""What another program writes to a topic of ours is refused as a `CodecError`, whatever it is, and ends no reader."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from cues_kafka import Graph, Json, Memory, Once, Processor, Source, Topic, connect, start
from cues_kafka.brokers.memory import MemoryMessage
from cues_kafka.brokers.murmur2 import partition_for
from cues_kafka.brokers.open import open_broker
from cues_kafka.client.places import PARTITIONS, place_key
from cues_kafka.client.places import _decoded as place_of_tailer
from cues_kafka.core.delivery import ErrorPlace
from cues_kafka.core.records import Attempt, Extent, Staged, TargetRow, Totals, Writer
from cues_kafka.errors import CodecError
from cues_kafka.graph.error_message import Errors
from cues_kafka.observe.refused import REFUSED
from cues_kafka.operate.look.status import StatusView
from cues_kafka.operate.pausing import Pausing
from cues_kafka.plan.topics import Sides
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import Coordinates, Position
from cues_kafka.ports.target import HeldAttempt
from cues_kafka.records.bytes import encode_record
from cues_kafka.records.control import (
    Control,
    GraphCut,
    Hold,
    InputCut,
    Pause,
    ProcessorCut,
    ResetUnderWay,
    StoreCut,
    encode,
)
from cues_kafka.records.extents import checked, offsets_of
from cues_kafka.records.held import held_of, row_of
from cues_kafka.records.history import HISTORY, History, Moved, decode_history, encode_history
from cues_kafka.records.reading import read_record
from cues_kafka.records.requests import (
    ReplayRequest,
    Settled,
    decode_settled,
    encode_request,
    encode_settled,
    request_in,
)
from cues_kafka.records.status import StatusRecord, TaskOwner, decode_status, encode_status
from cues_kafka.sinks.journal import Answered, check
from cues_kafka.sinks.journal import encode as answer
from cues_kafka.testing.tester import Crash, Tester
from cues_kafka.words import visible
from tests.unit.records.strangers_bytes import values

ID = b"i" * 16
PLACE = Position("input", "in", ID, 5)
FEW, MANY = 200, 20_000
AMOUNTS = [FEW, pytest.param(MANY, marks=pytest.mark.full)]
SIDES = Sides(status=True, control=True)


def message(topic: str, key: bytes, value: bytes | None, offset: int = 0) -> Any:
    """A message as readers get it."""
    return MemoryMessage(topic, 0, offset, key, value, None, (0, 0), 0)


def cut() -> GraphCut:
    """A cut with an input and a store."""
    inputs = {"input": InputCut(topic="in", topic_id=ID.hex(), offsets=(5,))}
    stores = {"s": StoreCut(topic="g.p.s.changelog", topic_id=ID.hex(), starts=(0,), ends=(3,), marks=(2,))}
    part = ProcessorCut(steps=(7,), inputs=inputs, stores=stores)
    return GraphCut(name="a", graph="g", by="x", keeps_ms=1_000, processors={"p": part})


REQUEST = encode_request(
    ReplayRequest(error=ErrorPlace(ID, 0, 3), errors="e", consumed=(Coordinates("input", ID, 0, 1),), topics=("in",))
)
SETTLED = encode_settled(Settled("nil", 1, 5))
STATUS = encode_status(
    StatusRecord(task="p/0", state="idle", owner=TaskOwner(instance="w"), every_s=5.0, positions=(PLACE,))
)
CONTROL = {
    b"hold/p": encode(Hold(by="x", token="t", processor="p")),
    b"hold/": encode(Hold(by="x", token="t")),
    b"pause": encode(Pause(by="x", token="t", cut="a", processors=("p",), lease_s=30.0)),
    b"cut/a": encode(cut()),
}
RESET = encode(ResetUnderWay(by="x", cut="a"))
BACKING = encode_record(
    Attempt(
        sequence=3,
        step=2,
        positions=(PLACE,),
        totals=Totals(),
        batch=Totals(),
        born=1,
        writer=Writer("g.p.0", "native", "w", "i"),
        strategy="exactly-once",
    )
)


STAGED = encode_record(
    Attempt(
        sequence=3,
        step=2,
        positions=(),
        totals=Totals(),
        batch=Totals(),
        born=1,
        writer=Writer("g.p.0", "spark", "w", "i"),
        strategy="exactly-once",
        staged=Staged(
            query="q", batch=1, attempt="a", checksum=ID, parts=1,
            extents=(Extent("in", ID, '{"in":{"0":1}}', '{"in":{"0":5}}'),),
        ),
    )
)  # fmt: skip
ANSWERS = {
    b"in:aWlpaWlpaWlpaWlpaWlpaQ@4 0 0": answer(Answered("d", {"status": 200, "headers": {"a": "b"}}, b"{}")),
    b"in:aWlpaWlpaWlpaWlpaWlpaQ@4 0 once:k": answer(Answered("", {}, b'{"paid": 1}')),
}
PLACE_OF_TAILER = json.dumps(
    {"version": 1, "holder": "a1", "number": 3, "offset": 7, "topic_id": ID.hex(), "former": "b2.4"}
).encode()
MOVES = encode_history(
    History((PLACE,), (Moved(3, (PLACE,), (), (PLACE,), Totals(1), "q"), Moved(4, (PLACE,), (PLACE,), (), Totals())))
)
HELD = held_of(TargetRow(base=3, step=4, ends=(PLACE,), batch=Totals(1, 1, taken=-2), choice=(("in", 3),))).attempt


def read_held(one: Any) -> None:
    """The row of a target's table, whose text other programs may have written."""
    row_of(HeldAttempt(3, 4, 1, (one.value() or b"x").decode(errors="replace")))


def read_staged(one: Any) -> None:
    """Everything that readers ask of a staged record."""
    staged = read_record(one).staged
    for extent in staged.extents if staged else ():
        offsets_of(extent, extent.start)
        offsets_of(extent, extent.end)


def read_control(one: Any) -> None:
    """Everything that readers ask of a control topic with this record."""
    control = Control()
    control.feed([one])
    str(control.refused())
    [str(hold) for hold in control.holds().values()]
    control.pause()
    for name in control.names:
        control.cut(name)
    if control.resetting:
        control.reset()


@dataclass(frozen=True)
class Read:
    """A decoder, a key, and a value of ours."""

    read: Callable[[Any], Any]
    key: bytes
    sample: bytes


READS = {
    "replay": Read(request_in, b"k", REQUEST),
    "settled": Read(lambda one: decode_settled(one.value()), b"r/x", SETTLED),
    "status": Read(decode_status, b"p/0", STATUS),
    "backing": Read(read_record, b"t", BACKING),
    "staged": Read(read_staged, b"t", STAGED),
    "place of a tailer": Read(place_of_tailer, b'["x","in",0]', PLACE_OF_TAILER),
    "history": Read(lambda one: decode_history(one.value()), HISTORY, MOVES),
    "row of a target": Read(read_held, b"", HELD.encode()),
    "answer": Read(lambda one: check(one.key(), one.value(), 0), *next(iter(ANSWERS.items()))),
    "once": Read(lambda one: check(one.key(), one.value(), 0), *[*ANSWERS.items()][1]),
    **{f"control {key.decode()}": Read(read_control, key, value) for key, value in CONTROL.items()},
    "control reset": Read(read_control, b"reset", RESET),
}


@pytest.mark.parametrize("name", READS)
def test_value_of_ours_is_read(name: str) -> None:
    """The samples are no garbage, so changes of them reach all checks."""
    one = READS[name]
    one.read(message("topic", one.key, one.sample))


@pytest.mark.parametrize("amount", AMOUNTS)
@pytest.mark.parametrize("name", READS)
def test_decoder_raises_a_codec_error_alone(name: str, amount: int) -> None:
    """Random bytes, deep and huge values, and changed records: a line of text says why."""
    one, refused = READS[name], 0
    for offset, value in enumerate(values(7, amount, [one.sample])):
        try:
            one.read(message("topic", one.key, value, offset))
        except CodecError as error:
            refused += 1
            text = str(error)
            assert len(text) < 1_000
            text.encode()
    assert refused > amount / 3 or name.startswith(("control", "once", "answer"))  # bodies may be anything


@pytest.mark.parametrize(
    "extent",
    [
        *(Extent("in", ID, "", text) for text in ("x", "5", "[]", '{"in":5}', '{"in":{"x":5}}', '{"in":{"0":"5"}}')),
        *(Extent("in", ID, "", text) for text in ('{"in":{"0":-1}}', '{"in":{"0":true}}', '{"in":{"99999999999":1}}')),
        *(Extent("in", ID, text, "") for text in ("[" * 100_000, '{"in":{"0":1e999}}', '{"a b":{"0":1}}')),
        *(
            Extent("in", ids, "", "")
            for ids in (b"short", b"longer than an id has", b'{"in": "no hexadecimal digits"}')
        ),
    ],
    ids=str,
)
def test_staged_record_with_places_that_are_none_is_refused(extent: Extent) -> None:
    """Where it is read: `offsets_of` and what compares ids rely on it."""
    with pytest.raises(CodecError, match="of its source 'in' does not fit"):
        checked(extent)


@pytest.mark.parametrize(
    "key", [b"", b"x", b"x y", b"in:%%%@x 0 0", b"\xff 0", b"in:aWlpaWlpaWlpaWlpaWlpaQ@4", b" 0 0"]
)
def test_key_that_names_no_call_is_refused(key: bytes) -> None:
    """Where the journal is read: it ended the recovery before."""
    with pytest.raises(CodecError, match="names no call of a step"):
        check(key, b"x", 0)


def test_task_goes_on_beside_forged_answers() -> None:
    """The answer that it has kept counts still, and what is none of a journal is refused."""
    calls: list[str] = []

    def pay() -> int:
        calls.append("paid")
        return len(calls)

    def paid(order: Any, once: Any) -> Any:
        return once("pay", pay)

    part = Processor(paid, inputs="in", outputs="out", name="p", effects={"once": Once()})
    tester = Tester(Graph("g", Source("in"), part, errors="g.errors", defaults=Topic(value=Json(), partitions=1)))
    tester.send("in", 1)
    tester.run(crash=Crash("after", "Call"))
    [kept] = [key for one in tester.client.committed("g.p.journal") if b" " in (key := one.key() or b"")]
    keys = [kept, b"x", b"", b"\xff", b"x y", *ANSWERS]
    sender = tester.broker.sender("stranger")
    for number, value in enumerate(values(19, 200, [*ANSWERS.values()])):
        key = keys[number % len(keys)]
        if key != kept or unfit(key, value):  # one that fits is believed
            sender.send([("g.p.journal", 0, key, value, None, 0)])
    assert tester.restart().run().values("out") == [1]
    assert calls == ["paid"]


def unfit(key: bytes, value: bytes | None) -> bool:
    """Whether the check refuses it."""
    try:
        check(key, value, 0)
    except CodecError:
        return True
    return False


def test_tailer_goes_on_at_its_place_beside_forged_ones() -> None:
    """What cannot be read is refused by name, and the place behind which it stands counts still."""
    cluster = Memory()
    open_broker(cluster).create([NewTopic("in", 1)])
    garbage = [value for value in values(23, 150, [PLACE_OF_TAILER]) if unfit_place(value)]
    with connect(cluster, name="one") as client:
        client.topic("in").append_many(range(5))
        with client.topic("in").tailer(name="x") as tailer, client.transaction() as tx:
            tailer.read()
            tailer.read()
            tx.advance(tailer)
    sender = open_broker(cluster).sender("stranger")
    place = partition_for(b"x", PARTITIONS)
    sender.send([("one.tailers", place, place_key("x", "in", 0), value, None, 0) for value in garbage])
    with connect(cluster, name="one") as client, client.topic("in").tailer(name="x") as tailer:
        found = tailer.read()
        assert found is not None
        assert found.offset == 2
    other = partition_for(b"y", PARTITIONS)
    sender.send([("one.tailers", other, place_key("y", "in", 0), b"xx", None, 0)])
    with (
        connect(cluster, name="one") as client,
        pytest.raises(CodecError, match=r"has no readable position of a tailer.*start="),
    ):
        client.topic("in").tailer(name="y")


def unfit_place(value: bytes | None) -> bool:
    """Whether the reader of places refuses it."""
    try:
        place_of_tailer(message("one.tailers", b"k", value))
    except CodecError:
        return True
    return False


def graph_of() -> Graph:
    """One processor with an errors topic."""
    part = Processor(lambda order: order, inputs="in", outputs="out", name="p")
    return Graph("g", Source("in"), part, errors=Errors("g.errors"), defaults=Topic(value=Json(), partitions=1))


@pytest.mark.parametrize("amount", AMOUNTS)
def test_workers_and_commands_go_on_beside_forged_records(amount: int) -> None:
    """Of the control and the status topic: the task delivers, `status` and `resume` answer."""
    cluster = Memory(status_every_s=60.0, control=True)
    graph = graph_of()
    broker = open_broker(cluster)
    with start(graph, cluster) as running:
        sender = broker.sender("stranger")
        keys = [*CONTROL, b"hold/x", b"", b"\xff", b"cut/\xff"]
        for number, value in enumerate(values(11, amount, list(CONTROL.values()))):
            sender.send([("g.control", 0, keys[number % len(keys)], value, None, 0)])
        keys = [b"p/0", b"p", b"\xff", b"", b"p/-1", b"x/9"]
        for number, value in enumerate(values(13, amount, [STATUS])):
            sender.send([("g.status", 0, keys[number % len(keys)], value, None, 0)])
        with StatusView(graph, broker, sides=SIDES) as view:
            assert [one.task for one in view.look().tasks] == ["p/0"]
        tool = Pausing(graph, broker, who="amy@desk", sides=SIDES)
        assert tool.resume().held == ""
        assert not tool.resume().any
        running.send("in", {"n": 1})
        running.wait_idle(timeout_s=60.0)
        assert [found.value for found in running.messages("out")] == [{"n": 1}]
        tool.close()


@pytest.mark.parametrize("amount", [100, pytest.param(MANY, marks=pytest.mark.full)])
def test_task_goes_on_beside_forged_requests(amount: int) -> None:
    """Each is refused or answered once; messages come out in order, and no error message is lost."""
    tester = Tester(graph_of())
    tester.send("in", 1)
    tester.run()
    sender = tester.broker.sender("stranger")
    for value in values(17, amount, [REQUEST]):
        sender.send([("g.p.replay", 0, b"k", value, None, 0)])
    tester.send("in", 2)
    assert tester.run().values("out") == [1, 2]
    tester.send("in", 3)
    assert tester.restart().run().values("out") == [1, 2, 3]


def test_record_is_named_once_however_often_it_is_read(caplog: pytest.LogCaptureFixture) -> None:
    """`status --watch` and a worker that reads again repeat nothing."""
    REFUSED.forget()
    for _ in range(3):
        control = Control()
        control.feed([message("g.control", b"hold/p", b"xx", 4)])
    assert len([line for line in caplog.messages if "g.control/0 at 4" in line]) == 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;x\x07", "\\u001b]0;x\\u0007"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x9b2J", "\\u009b2J"),
        ("\u202eabc\u2066", "\\u202eabc\\u2066"),
        ("\ud800", "\\ud800"),
        ("\u2028\u200b\U000e0041", "\\u2028\\u200b\\U000e0041"),
        ("Grüße, 注文 😀", "Grüße, 注文 😀"),
    ],
)
def test_text_of_others_is_made_visible(text: str, shown: str) -> None:
    """What a terminal would obey, and what hides how a text reads, has escapes; letters stay."""
    assert visible(text) == shown
