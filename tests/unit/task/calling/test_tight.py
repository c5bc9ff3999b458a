"""The tight loop of the compiled module has the outcomes of Python's loop, whatever messages and functions are like."""

from __future__ import annotations

import json
import random
from collections import UserDict
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import pytest

from cues_kafka import Graph, Json, Message, Processor, Source, State, Store, Topic
from cues_kafka.codecs.compiled import COMPILED
from cues_kafka.codecs.json import JsonCodec
from cues_kafka.errors import CodecError
from cues_kafka.ports.log import Outgoing
from cues_kafka.task.calling import tight
from cues_kafka.testing.tester import Tester

COUNT = 40


@dataclass(frozen=True)
class Item:
    """A message of a class."""

    name: str
    count: int
    price: float = 0.5
    note: str | None = None


@dataclass(frozen=True)
class Wrong:
    """Another class."""

    name: str


class Number(IntEnum):
    """A number of a class of its own."""

    ONE = 1


UNUSUAL: dict[int, Any] = {
    3: None,
    8: ValueError("returned"),
    9: Message({"made": True}, key="k"),
    12: {"nan": float("nan")},
    13: {1: "a number as key"},
    14: {"set": {1}},
    20: {"deep": [[[1, "x"], {"a": None}], 2.5, ()]},
    21: [1, 2],
    22: "text",
    23: {"own": Number.ONE},
    24: {"half": "\ud800"},
    25: UserDict(),
    26: Message({"made": False}),
    39: {"large": "x" * 1_100_000},
}
"""What the function returns instead, by the number of the message; the one behind the last of them is usual."""

BAD = {1: None, 5: b"{", 30: b'{"n":1}x', 31: b"\xff"}
"""What is sent instead of JSON."""


class Function:
    """Does what the number of the message asks for, and remembers every call."""

    def __init__(self, made: dict[int, Any] = UNUSUAL) -> None:
        self.calls: list[int] = []
        self.made = made

    def __call__(self, value: Any) -> Any:
        n = value["n"] if isinstance(value, dict) else value.count
        self.calls.append(n)
        if n in (17, 18):
            raise KeyError(n)
        return self.made.get(n, value)


@pytest.fixture(params=["python", "module"])
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which of the loops a world has that is made now."""
    monkeypatch.setenv(COMPILED, "1" if request.param == "module" else "0")
    assert (tight.compiled() is not None) == (request.param == "module")
    return str(request.param)


def world_of(fn: Any, codec: Json, errors: str | None = "failed", **options: Any) -> Tester:
    pipe = Processor(fn, name="pipe", inputs="in", outputs="out", **options)
    return Tester(Graph("g", Source("in"), pipe, errors=errors, defaults=Topic(value=codec)))


def send(world: Tester, bad: dict[int, bytes | None] = BAD) -> None:
    """Write the messages as bytes."""
    rows = [b'{"n":%d,"name":"a","count":%d}' % (n, n) for n in range(COUNT)]
    records = [Outgoing("in", 0, b"%d" % n, bad.get(n, row), None, 1_700_000_000_000 + n) for n, row in enumerate(rows)]
    world.broker.sender("raw").send(records)


def outcomes(world: Tester) -> Any:
    """Everything that a reader sees of a run."""
    out = [
        (m.value, m.key, m.timestamp_ms, dict(m.headers)["cues"].split()[-2:])  # type: ignore[union-attr]
        for m in world.messages("out")
    ]
    errors = [(e.exception, e.kind, e.text, e.consumed[0].offset) for e in world.errors()]
    return out, errors, world.totals("pipe")


def test_every_kind_of_message_ends_as_in_the_python_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bad JSON, null, exceptions, refused and nested results, keys and nil: in place, and called once each."""
    ends = []
    for choice in "01":
        monkeypatch.setenv(COMPILED, choice)
        fn = Function()
        world = world_of(fn, Json())
        send(world)
        world.run()
        ends.append((fn.calls, *outcomes(world)))
    assert ends[0] == ends[1]
    calls, out, errors, totals = ends[1]
    assert calls == [n for n in range(COUNT) if n not in BAD]
    refused = {*BAD, 8, 12, 14, 17, 18, 24, 25, 39}
    assert [at for *_, at in errors] == sorted(refused)
    assert [int(place[-1]) for *_, place in out] == [n for n in range(COUNT) if n not in refused | {3}]
    assert (totals.deliveries, totals.errors, totals.nils) == (COUNT, len(errors), 1)


def test_results_of_a_class_are_checked_in_the_module_as_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another class, and fields of other types, infinite or missing."""
    missing = Item("a", 1)
    object.__delattr__(missing, "name")
    made = {
        2: Item(5, 1),  # type: ignore[arg-type]
        4: Item("a", True),
        6: Item("a", 1, float("inf")),
        7: Item("a", 1, 3),
        8: Wrong("a"),
        9: {"name": "a", "count": 1},
        11: missing,
        12: Item("a", 1, 0.25, "note"),
        13: Item("a", 1, 0.25, b"note"),  # type: ignore[arg-type]
    }
    ends = []
    for choice in "01":
        monkeypatch.setenv(COMPILED, choice)
        world = world_of(Function(made), Json(Item))
        send(world)
        world.run()
        ends.append(outcomes(world))
    assert ends[0] == ends[1]
    out, errors, _ = ends[1]
    assert {at for *_, at in errors} == {*BAD, 2, 4, 6, 8, 9, 11, 13, 17, 18}
    assert Item("a", 1, 0.25, "note") in [value for value, *_ in out]


@pytest.mark.parametrize("lifetime", [{}, {"ttl": "1 minute"}], ids=["kept", "ending"])
def test_a_failed_step_takes_back_its_own_changes_of_a_store(loop: str, lifetime: dict[str, Any]) -> None:
    """Also one whose result cannot be written: no step begins before it is known how the one before ended."""
    fn = Function()

    def count(value: Any, last: State[int]) -> Any:
        last["of all"] = last.get("of all", 0) + 1
        return fn(value)

    world = world_of(count, Json(), state={"last": Store(Json(int), **lifetime)})
    send(world)
    world.run()

    ended = [n for n in range(COUNT) if n not in {*BAD, 8, 12, 14, 17, 18, 24, 25, 39}]
    assert world.state("last") == {"of all": len(ended)}


def test_without_an_errors_topic_the_steps_before_a_failure_are_committed(loop: str) -> None:
    """The task stops behind the last step that ended, and nothing behind it is called."""
    fn = Function({})
    world = world_of(fn, Json(), None)
    send(world, {})
    with pytest.raises(KeyError):
        world.run()

    assert [value["n"] for value in world.values("out")] == list(range(17))
    assert world.totals("pipe").deliveries == 17
    assert fn.calls == list(range(18))


def test_a_failure_inside_a_function_of_c_names_its_place_and_text(loop: str) -> None:
    """There is no frame of Python to name."""
    world = world_of(len, Json())
    world.broker.sender("raw").send([Outgoing("in", 0, None, value, None, 0) for value in (b'"ab"', b"5", b'"c"')])
    world.run()

    assert world.values("out") == [2, 1]
    [error] = world.errors()
    assert (error.exception, error.consumed[0].offset) == ("TypeError", 1)


# ---- the function of the module


def each(values: list[Any], codec: JsonCodec, limit: int = 10**6) -> tuple[list[Any], Any]:
    """Encode values as the results of calls; gives what was written, and what stopped it."""
    module = tight.compiled()
    assert module is not None
    encode, form = codec.unchecked or (None, None)
    data: list[Any] = []
    way = (lambda value: value), encode, codec.encode, Message, form
    stopped = module.each(iter(values), data, lambda value: value, way, limit)
    return data, stopped


def drawn(draw: random.Random, depth: int = 0) -> Any:
    """A value of any kind, most of them JSON."""
    leaves = [None, True, 0, -(2**70), 2**63, 1.5, float("nan"), float("-inf"), "", "é", "\ud800", b"", {1}, Number.ONE]
    if depth > 3 or draw.random() < 0.3:
        return draw.choices(leaves, [9, 9, 9, 1, 1, 9, 1, 1, 9, 9, 1, 1, 1, 1])[0]
    inner = [drawn(draw, depth + 1) for _ in range(draw.randrange(4))]
    kind = draw.randrange(12)
    if kind < 4:
        return inner
    return tuple(inner) if kind == 4 else {draw.choice(["a", "b", "c", "", "é", 1, 1.0]): one for one in inner}


@pytest.mark.parametrize("seed", range(4))
def test_the_module_writes_what_the_codec_writes_and_stops_where_it_refuses(seed: int) -> None:
    """Values of all kinds, nested: a result that is written is the codec's, byte for byte."""
    draw, codec, refused = random.Random(seed), JsonCodec(), 0
    for value in [drawn(draw) for _ in range(400)]:
        if value is None:
            continue
        try:
            expected = [codec.encode(value)]
        except CodecError:
            expected, refused = [], refused + 1
        data, stopped = each([value], codec)
        assert data == expected
        assert (stopped is None) == bool(expected)
    assert 20 < refused < 380


def test_what_is_nested_deeper_than_the_module_looks_is_left_to_the_codec() -> None:
    """No depth of a value exhausts the stack of the processor."""
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    assert each([{"a": deep}], JsonCodec()) == ([json.dumps({"a": deep}).replace(" ", "").encode()], None)
    for _ in range(100_000):
        deep = [deep]
    value = {"a": deep}
    assert each([value], JsonCodec())[1][0] == 2
    while deep:  # else its end is as deep, too
        deep = deep.pop()


def test_a_result_above_the_limit_stops_the_loop() -> None:
    """And the values behind it are not taken yet."""
    coming = iter([{"a": 1}, {"a": "x" * 50}, {"a": 2}])
    codec = JsonCodec()
    module, data = tight.compiled(), []  # type: ignore[var-annotated]
    assert module is not None
    assert codec.unchecked is not None
    way = dict, codec.unchecked[0], codec.encode, Message, codec.unchecked[1]
    assert module.each(coming, data, dict, way, 20) == [2, {"a": "x" * 50}]  # type: ignore[arg-type]
    assert (data, list(coming)) == ([b'{"a":1}'], [{"a": 2}])


@pytest.mark.parametrize(
    "form", [5, (int,), (int, [("a", (str,))]), (int, ((1, (str,)),)), (int, (("a", [str]),)), (int, ("a",)), (1, 2, 3)]
)
def test_what_is_no_form_is_refused(form: Any) -> None:
    """A wrong one would end the process."""
    module: Any = tight.compiled()
    with pytest.raises(TypeError, match="each"):
        module.each(iter([1]), [], int, (int, str, str, Message, form), 5)


def test_what_is_no_loop_is_refused() -> None:
    """So would values that are no iterator, or a place for results that is no list."""
    module: Any = tight.compiled()
    way = int, str, str, Message, None
    wrong: list[Any] = [
        (5, [], int, way, 5),
        ([], [], int, way, 5),
        (iter([]), (), int, way, 5),
        (iter([]), [], int, way),
    ]
    for bad in wrong:
        with pytest.raises(TypeError):
            module.each(*bad)
    for given in (5, (), [5], [None], [object()], [Message(1)]):
        assert module.columns_of(given) is None
    assert module.columns_of([]) == ([], [], [], [])


def test_what_raises_while_values_are_taken_or_read_ends_the_loop_unharmed() -> None:
    """An iterator that raises, a field whose reading raises, and results of other types than bytes."""

    def values() -> Any:
        yield {"a": 1}
        raise OSError("no more")

    module: Any = tight.compiled()
    data: list[Any] = []
    codec = JsonCodec()
    way = dict, codec.encode, codec.encode, Message, ()
    with pytest.raises(OSError, match="no more"):
        module.each(values(), data, dict, way, 99)
    assert data == [b'{"a":1}']

    class Trap:
        @property
        def name(self) -> str:
            raise KeyboardInterrupt

    trap = Trap()
    form = Trap, (("name", (str,)),)
    assert module.each(iter([trap]), data, lambda v: v, (lambda v: v, str, str, Message, form), 9) == [2, trap]
    assert module.each(iter([1]), data, int, (int, str, str, Message, None), 9) == [2, 1]
    assert len(data) == 1
