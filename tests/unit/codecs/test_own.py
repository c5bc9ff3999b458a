"""A user's own codec, and the contract that it and the project's own codecs keep."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from typing import Annotated, Any, Literal

import pytest

from cues_kafka import (
    Avro,
    Codec,
    CodecError,
    ConfigError,
    Digits,
    Graph,
    GraphError,
    Json,
    Processor,
    Raw,
    RetriableError,
    Source,
    TaskStopped,
    Topic,
)
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.codecs.schema import Scalar, describe
from cues_kafka.codecs.text import text_of
from cues_kafka.graph.declare import CodecSpec
from cues_kafka.on_spark.columns import value_type
from cues_kafka.testing.codecs import check_codec
from cues_kafka.testing.tester import Tester


@dataclass(frozen=True)
class Reading:
    """What a line holds."""

    sensor: str
    celsius: Annotated[Decimal, Digits(5, 1)]


@dataclass(frozen=True)
class Lines(Codec):
    """One reading a line."""

    separator: str = ","
    schema = Reading

    def encode(self, value: Reading) -> bytes:
        """`sensor,celsius`."""
        if self.separator in value.sensor:
            raise ValueError(f"{self.separator!r} in the sensor")
        return f"{value.sensor}{self.separator}{value.celsius}".encode()

    def decode(self, data: bytes) -> Reading:
        """The reverse."""
        sensor, celsius = data.decode().split(self.separator)
        return Reading(sensor, Decimal(celsius))


READINGS = [Reading("attic", Decimal("21.5")), Reading("", Decimal("-0.1")), Reading("Küche", Decimal(3))]


WRONG: Any = "1"


@dataclass(frozen=True)
class Order:
    """For the project's own codecs."""

    id: int
    day: date = date(2026, 1, 1)
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    price: Annotated[Decimal, Digits(9, 2)] = Decimal("1.00")
    note: str | None = None
    tags: list[str] = field(default_factory=list)


@pytest.mark.parametrize(
    ("declared", "values", "misfits", "bad"),
    [
        (Lines(), READINGS, [Reading("a,b", Decimal(1)), "attic,1", None], [b"attic", b"a,b,c", b"a,b", b"\xff,1"]),
        (Lines(";"), READINGS, [Reading("a;b", Decimal(1))], [b"attic,1"]),
        (Json(), [1, "a", {"a": [1.5, True, None]}], [{1.5: 2}, object()], [b"{", b"\xff"]),
        (
            Json(Order),
            [Order(1), Order(2, note="n", tags=["a"])],
            [Order(WRONG), {"id": 1}],
            [b"{}", b"[]", b'{"id":"1"}'],
        ),
        (Avro(Order), [Order(1), Order(2, note="n", tags=["a"])], [Order(WRONG), {}], [b"\xc3\x01", b"{}"]),
        (Raw(), [b"", b"\xff\0"], ["text", 1], []),
    ],
    ids=lambda one: repr(one)[:12] if isinstance(one, CodecSpec) else "",
)
def test_codecs_keep_the_contract(declared: CodecSpec, values: list[Any], misfits: list[Any], bad: list[bytes]) -> None:
    """The project's own, and one of a user's."""
    check_codec(declared, values, misfits=misfits, bad=bad)


class Plain(Codec):
    """Text, without a schema; broken in one way for each test."""

    def encode(self, value: Any) -> bytes:
        """UTF-8."""
        return str(value).encode()

    def decode(self, data: bytes) -> Any:
        """UTF-8."""
        return data.decode()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return 1


class Drifting(Plain):
    """Numbers its messages."""

    numbers = count()

    def encode(self, value: Any) -> bytes:
        """Other bytes each time."""
        return f"{next(self.numbers)}:{value}".encode()

    def decode(self, data: bytes) -> Any:
        """Without the number."""
        return data.decode().partition(":")[2]


class Lossy(Plain):
    """Forgets case."""

    def decode(self, data: bytes) -> Any:
        """In capitals."""
        return data.decode().upper()


class Locked(Plain):
    """Has what no other process can have."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


class Singular(Plain):
    """Equal to itself only."""

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = Plain.__hash__


class Greedy(Plain):
    """Takes anything."""

    def decode(self, data: bytes) -> Any:
        """Whatever it is."""
        return data.decode(errors="replace")


class Emptying(Plain):
    """Takes lists."""

    def encode(self, value: Any) -> bytes:
        """Leaves nothing in the list."""
        return ",".join(value.pop() for _ in value[:]).encode()

    def decode(self, data: bytes) -> Any:
        """In the same order."""
        return data.decode().split(",")[::-1]


class Shared(Plain):
    """Puts what it works on into itself."""

    seen: Any = None

    def encode(self, value: Any) -> bytes:
        """Whatever was put there last."""
        type(self).seen = value
        barrier = threading.Event()
        barrier.wait(0.001)
        return str(type(self).seen).encode()


class Numbers(Plain):
    """Gives text where its schema says numbers."""

    schema = int


class OneWay(Plain):
    """Cannot read what it wrote."""

    def decode(self, data: bytes) -> Any:
        """Never a value."""
        raise ValueError("not a reading")


class Text(Plain):
    """Gives text where bytes are asked for."""

    def encode(self, value: Any) -> Any:
        """Not bytes."""
        return str(value)


@pytest.mark.parametrize(
    ("declared", "values", "bad", "said"),
    [
        (Drifting(), ["a"], [], "'a' has other bytes each time"),
        (Lossy(), ["a"], [], "'a' comes back as 'A'"),
        (Locked(), ["a"], [], r"Spark cannot send it .*make in open\(\)"),
        (Singular(), ["a"], [], "a copy of it is not equal"),
        (Greedy(), ["a"], [b"\xff"], r"decode\(b'\\xff'\) gives '\ufffd', and should raise"),
        (Emptying(), [["a", "b"]], [], "encode changes the value"),
        (Shared(), ["a", "b"], [], "disturb each other"),
        (Numbers(), ["a"], [], "'a' does not fit schema"),
        (OneWay(), ["a"], [], "writes the value 'a' as b'a' and cannot read that"),
        (Text(), ["a"], [], "returned str, not bytes"),
        (Plain(), [], [], "at least one value"),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Codec) else "",
)
def test_a_codec_that_breaks_a_rule_is_told_which(
    declared: Codec, values: list[Any], bad: list[bytes], said: str
) -> None:
    """Each rule by a codec that breaks it."""
    with pytest.raises(AssertionError, match=said):
        check_codec(declared, values, bad=bad)


def graph_of(declared: Codec, fn: Any) -> Graph:
    """One processor between two topics of this codec."""
    pipe = Processor(fn, name="pipe", inputs="in", outputs="out")
    return Graph("g", Source("in"), pipe, defaults=Topic(value=declared), errors="errors")


def warmer(reading: Reading) -> Reading:
    """By one degree; the attic becomes a sensor that cannot be written."""
    name = "a,b" if reading.sensor == "attic" else reading.sensor
    return Reading(name, reading.celsius + 1)


def test_messages_and_values_that_do_not_fit_become_error_messages_that_name_the_codec() -> None:
    """Whatever the user's code raises."""
    tester = Tester(graph_of(Lines(), warmer))
    tester.send("in", Reading("attic", Decimal("1.5")))
    tester.send("in", Reading("cellar", Decimal("1.5")))
    raw = Tester(Graph("raw", Source("in"), defaults=Topic(value=Raw())), broker=tester.broker)
    raw.send("in", b"cellar")

    assert tester.run().values("out") == [Reading("cellar", Decimal("2.5"))]
    refused, unread = tester.errors()
    assert (refused.kind, refused.text) == ("output", "Lines cannot encode the value: ValueError: ',' in the sensor")
    assert unread.kind == "decode"
    assert unread.payload == b"cellar"
    assert unread.text.startswith("Lines cannot decode the message: ValueError: not enough values")


class Silent(Plain):
    """Asks something that does not answer."""

    def decode(self, data: bytes) -> Any:
        """Never."""
        raise RetriableError("the key server does not answer")


def test_an_outage_stops_the_task_and_is_no_error_message() -> None:
    """`RetriableError` says so."""
    tester = Tester(graph_of(Silent(), lambda text: text))
    tester.send("in", "a")

    with pytest.raises((RetriableError, TaskStopped), match="key server"):
        tester.run()
    assert tester.errors() == []


class Mute(Plain):
    """Asks something that does not answer."""

    def encode(self, value: Any) -> bytes:
        """Never."""
        raise RetriableError("the key server does not answer")


@pytest.mark.parametrize("batch", [False, True])
def test_an_outage_while_a_function_asks_for_a_key_is_no_error_message(*, batch: bool) -> None:
    """The codec raises inside the function, whose own exceptions are error messages."""

    def by_key(text: Any, step: Any) -> Any:
        one = step[0] if batch else step
        key = one.inputs[one.binding].key
        return [key] if batch else key

    processor = Processor(by_key, inputs="in", outputs="out", batch=batch)
    tester = Tester(Graph("g", Source("in"), processor, topics={"in": Topic(key_codec=Silent())}, errors="failed"))
    tester.send("in", "a", key=b"k")
    with pytest.raises((RetriableError, TaskStopped), match="key server"):
        tester.run()
    assert tester.errors() == []


def test_an_outage_while_the_output_of_a_generator_is_written_is_no_error_message() -> None:
    """It is written while the function runs."""

    def each(text: str) -> Iterator[str]:
        yield text

    processor = Processor(each, inputs="in", outputs="out")
    tester = Tester(Graph("g", Source("in"), processor, topics={"out": Topic(value=Mute())}, errors="failed"))
    tester.send("in", "a")
    with pytest.raises((RetriableError, TaskStopped), match="key server"):
        tester.run()
    assert tester.errors() == []


@dataclass(frozen=True)
class Sealed(Codec):
    """Begins each message with its topic."""

    def encode(self, value: Any) -> bytes:
        """Not before it is opened."""
        raise NotImplementedError

    def decode(self, data: bytes) -> Any:
        """Neither."""
        raise NotImplementedError

    def open(self, topic: str, part: Literal["key", "value"]) -> Codec:
        """With the topic's own seal, which cannot be pickled."""
        return Opened(f"{topic}/{part}:".encode())


class Opened(Plain):
    """Of one topic."""

    def __init__(self, seal: bytes) -> None:
        self._seal, self._lock = seal, threading.Lock()

    def encode(self, value: Any) -> bytes:
        """Behind the seal."""
        return self._seal + super().encode(value)

    def decode(self, data: bytes) -> Any:
        """Without it."""
        if not data.startswith(self._seal):
            raise ValueError("another topic's")
        return super().decode(data[len(self._seal) :])


def test_a_codec_is_opened_for_its_topic_and_keeps_the_contract() -> None:
    """What it opens need not travel."""
    check_codec(Sealed(), ["a"], bad=[b"a"])
    tester = Tester(graph_of(Sealed(), lambda text: 2 * text))
    tester.send("in", "a")

    assert tester.run().values("out") == ["aa"]
    assert [message.value() for message in tester.client.committed("out")] == [b"out/value:aa"]


def test_open_must_return_a_codec() -> None:
    """Before any message."""

    class Wrong(Plain):
        def open(self, topic: str, part: str) -> Any:
            return topic

    with pytest.raises(ConfigError, match=r"open\(\) of a codec returned 'contract'"):
        codec_for(Wrong(), MadeFor("contract"))


def test_the_schema_of_a_codec_gives_shape_columns_and_key() -> None:
    """And says whether None is a value."""

    class Maybe(Plain):
        schema = Reading | None

    lines, plain, maybe = (codec_for(one, MadeFor("t")) for one in (Lines(), Plain(), Maybe()))
    assert (lines.shape, plain.shape) == (describe(Reading), None)
    assert (lines.nullable, plain.nullable, maybe.nullable) == (False, True, True)
    assert codec_for(Numbers(), MadeFor("t")).shape == Scalar(int)
    assert value_type(lines) == "STRUCT<`sensor`: STRING, `celsius`: DECIMAL(5, 1)>"
    assert Topic(value=Lines(), key="sensor").key == "sensor"
    with pytest.raises(GraphError, match="Reading does not have this field"):
        Topic(value=Lines(), key="sensors")


def test_values_of_a_codec_with_a_schema_are_json_for_columns() -> None:
    """There and back."""
    text = text_of(Lines(), MadeFor("t"))
    assert text is not None
    assert text_of(Plain(), MadeFor("t")) is None
    assert text.decode(b"attic,21.5") == '{"sensor":"attic","celsius":"21.5"}'
    assert text.encode('{"sensor":"attic","celsius":21.5}') == b"attic,21.5"
    with pytest.raises(CodecError, match="missing required field"):
        text.encode('{"sensor":"attic"}')


@dataclass(frozen=True)
class Spectrum:
    """Floats wherever they can be."""

    peak: float
    levels: list[float]
    named: dict[str, float | None]
    inner: list[Reading]
    rest: float | None = None


def test_numbers_that_json_lacks_are_text_for_columns_as_spark_reads_and_writes_it() -> None:
    """And come back: null would be another value. All other values stay as they are."""
    inf, declared = float("inf"), Avro(Spectrum)
    text, codec = text_of(declared, MadeFor("t")), codec_for(declared, MadeFor("t"))
    assert text is not None
    value = Spectrum(-inf, [inf, 1.5, -0.0], {"a": inf, "b": None}, [Reading("NaN", Decimal("1.0"))])
    shown = (
        '{"peak":"-Infinity","levels":["Infinity",1.5,-0.0],"named":{"a":"Infinity","b":null},'
        '"inner":[{"sensor":"NaN","celsius":"1.0"}],"rest":null}'
    )
    assert text.decode(codec.encode(value)) == shown
    assert codec.decode(text.encode(shown) or b"") == value
    assert text.decode(codec.encode(replace(value, rest=math.nan))) == shown.replace('"rest":null', '"rest":"NaN"')
    assert math.isnan(codec.decode(text.encode(shown.replace("-Infinity", "NaN")) or b"").peak)
    with pytest.raises(CodecError, match="does not fit"):
        text.encode(shown.replace("-Infinity", "infinite"))


def test_a_graph_with_a_codec_of_ones_own_is_written_down_and_read_back() -> None:
    """With the settings of a dataclass."""
    graph = graph_of(Lines(";"), warmer)

    assert Graph.from_dict(graph.to_dict()) == graph
    assert graph.to_dict()["defaults"]["value"]["settings"] == {"separator": ";"}
    with pytest.raises(GraphError, match="Make Locked a dataclass"):
        graph_of(Locked(), warmer).to_dict()


def test_a_codec_without_its_methods_is_refused_where_it_is_made() -> None:
    """By Python."""

    class Half(Codec):
        def encode(self, value: Any) -> bytes:
            return b""

    with pytest.raises(TypeError, match="decode"):
        Half()  # type: ignore[abstract]
