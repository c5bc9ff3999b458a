"""JSON: any, and of dataclasses."""

from __future__ import annotations

import enum
import json
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cues_kafka import Alias, CodecError, ConfigError, GraphError, Json, Raw, Topic
from cues_kafka.codecs import lookup
from cues_kafka.codecs.json import JsonCodec
from cues_kafka.codecs.lookup import MadeFor
from cues_kafka.on_spark.columns import key_column, value_type
from cues_kafka.ports.codec import WireCodec


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Line:
    sku: str
    price: Decimal
    count: int = 1


@dataclass(frozen=True, slots=True)
class Order:
    id: str
    lines: tuple[Line, ...]
    placed: datetime
    due: date | None = None
    colour: Colour = Colour.RED
    weight: float = 0.0
    tags: dict[str, list[int]] = field(default_factory=dict)
    seal: bytes = b""
    size: tuple[int, str] | None = None
    ref: UUID | None = None
    mode: Literal["fast", "slow"] = "slow"
    extra: Any = None


@dataclass(frozen=True)
class Circle:
    kind: Literal["circle"]
    radius: float


@dataclass(frozen=True)
class Square:
    kind: Literal["square"]
    side: float


@dataclass(frozen=True)
class Drawing:
    shapes: list[Circle | Square]
    scale: int | float | str = 1


@dataclass(frozen=True)
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Strict:
    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low is above high")


ORDER = Order(
    id="a1",
    lines=(Line("x", Decimal("1.10")), Line("y", Decimal(3), 2)),
    placed=datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    due=date(2026, 2, 3),
    colour=Colour.BLUE,
    weight=1.5,
    tags={"a": [1, 2]},
    seal=b"\x00\xff",
    size=(3, "cm"),
    ref=UUID(int=7),
    mode="fast",
    extra={"any": [1, None]},
)


def codec_for(declaration: Any) -> WireCodec:
    """The codec of a declaration, for the values of some topic."""
    return lookup.codec_for(declaration, MadeFor("orders"))


VALID = json.loads(codec_for(Json(Order)).encode(ORDER))


def decode(cls: type[Any], **changes: Any) -> Any:
    return codec_for(Json(cls)).decode(json.dumps(VALID | changes).encode())


def test_an_order_with_a_field_of_every_kind_comes_back_as_it_was() -> None:
    """All kinds of fields in one class."""
    codec = codec_for(Json(Order))

    assert codec.decode(codec.encode(ORDER)) == ORDER


def test_values_have_their_documented_form_in_json() -> None:
    """What a consumer in another language sees."""
    assert VALID == {
        "id": "a1",
        "lines": [{"sku": "x", "price": "1.10", "count": 1}, {"sku": "y", "price": "3", "count": 2}],
        "placed": "2026-01-02T03:04:05.000006Z",
        "due": "2026-02-03",
        "colour": "blue",
        "weight": 1.5,
        "tags": {"a": [1, 2]},
        "seal": "AP8=",
        "size": [3, "cm"],
        "ref": "00000000-0000-0000-0000-000000000007",
        "mode": "fast",
        "extra": {"any": [1, None]},
    }


def test_missing_fields_take_their_defaults_and_unknown_ones_are_ignored() -> None:
    """A tolerant reader."""
    data = b'{"id": "a", "lines": [], "placed": "2026-01-02T03:04:05Z", "new": 1}'

    assert codec_for(Json(Order)).decode(data) == Order("a", (), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"lines": [*VALID["lines"], {"sku": "x", "price": True}]}, "order.lines[2].price: expected decimal, got bool"),
        ({"lines": [{"sku": "x", "price": "much"}]}, "order.lines[0].price: invalid decimal string"),
        ({"lines": [{"sku": "x", "price": "NaN"}]}, "order.lines[0].price: expected a finite Decimal, got NaN"),
        ({"lines": [{"price": "1"}]}, "order.lines[0]: object missing required field sku"),
        ({"lines": {}}, "order.lines: expected array, got object"),
        ({"id": 5}, "order.id: expected str, got int"),
        ({"id": None}, "order.id: expected str, got null"),
        ({"placed": "yesterday"}, "order.placed: invalid RFC3339 encoded datetime"),
        ({"placed": 5}, "order.placed: expected datetime, got int"),
        ({"due": "2026-13-01"}, "order.due: invalid RFC3339 encoded date"),
        ({"colour": "green"}, "order.colour: invalid enum value 'green'"),
        ({"colour": ["red"]}, "order.colour"),
        ({"mode": "medium"}, "order.mode: invalid enum value 'medium'"),
        ({"mode": "m" * 10_000}, "order.mode: invalid enum value 'mmm"),
        ({"weight": True}, "order.weight: expected float, got bool"),
        ({"weight": 10**400}, "order.weight: number out of range"),
        ({"tags": {"a": [1, "2"]}}, "order.tags[...][1]: expected int, got str"),
        ({"seal": "%%%"}, "order.seal: invalid base64 encoded string"),
        ({"size": [1]}, "order.size: expected array of length 2"),
        ({"size": [1, 2]}, "order.size[1]: expected str, got int"),
    ],
)  # fmt: skip
def test_a_message_that_does_not_fit_is_refused_with_its_path(changes: dict[str, Any], text: str) -> None:
    """The path, what was expected, and what came."""
    with pytest.raises(CodecError) as caught:
        decode(Order, **changes)

    assert text in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Line("x", 1.5), "line.price: expected Decimal, got the number 1.5"),  # type: ignore[arg-type]
        (Line("x", Decimal("Infinity")), "line.price: expected a finite Decimal"),
        (Line("x", Decimal(1), True), "line.count: expected int, got a boolean"),
        ({"sku": "x"}, "line: expected Line, got an object"),
    ],
)
def test_a_value_that_does_not_fit_its_class_is_refused_with_its_path(value: Any, text: str) -> None:
    """Validated when writing too: annotations are not enforced by Python."""
    with pytest.raises(CodecError) as caught:
        codec_for(Json(Line)).encode(value)

    assert text in str(caught.value)


def test_records_of_a_union_are_told_apart_by_their_literal_field() -> None:
    """Both ways; and an error is that of the record that was meant."""
    codec = codec_for(Json(Drawing))
    drawing = Drawing([Square("square", 2.0), Circle("circle", 1.0)], 2.5)

    assert codec.decode(codec.encode(drawing)) == drawing
    assert type(codec.decode(b'{"shapes": [], "scale": 3}').scale) is int
    with pytest.raises(CodecError, match=r"drawing\.shapes\[0\]\.side"):
        codec.decode(b'{"shapes": [{"kind": "square", "side": "long"}]}')


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Drawing([Square("square", "long")]), "drawing.shapes[0].side: expected a finite number"),  # type: ignore[arg-type]
        (Drawing([Circle("square", 1.0)]), "drawing.shapes[0].kind: expected 'circle', got 'square'"),  # type: ignore[arg-type]
        (Drawing([Line("x", Decimal(1))]), "drawing.shapes[0]: expected Circle or Square, got Line"),  # type: ignore[list-item]
        (Drawing([], None), "drawing.scale: expected int or str or float, got null"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_a_value_that_fits_no_option_of_a_union_is_refused_with_its_path(value: Drawing, text: str) -> None:
    """By the option that its class means; where no class fits, by all options."""
    with pytest.raises(CodecError) as caught:
        codec_for(Json(Drawing)).encode(value)

    assert text in str(caught.value)


def test_a_class_may_contain_itself() -> None:
    """A tree."""
    codec = codec_for(Json(Tree))
    tree = Tree("a", [Tree("b", [Tree("c")]), Tree("d")])

    assert codec.decode(codec.encode(tree)) == tree


def test_a_class_that_refuses_its_values_makes_a_codec_error() -> None:
    """Whatever `__post_init__` raises, with its words."""
    with pytest.raises(CodecError, match="low is above high"):
        codec_for(Json(Strict)).decode(b'{"low": 2, "high": 1}')


@pytest.mark.parametrize("declaration", [Json(), Json(Tree), Json(Order)], ids=["any", "tree", "order"])
def test_a_message_1000000_levels_deep_is_a_codec_error(declaration: Json) -> None:
    """
    Never a RecursionError, and never a dead process; also where it is deep in a field that nothing reads.

    From Python 3.14 on, the stack of the thread is the limit: 100,000 levels of such a field fit into one of 8 MB.
    """
    with pytest.raises(CodecError, match="nested too deeply"):
        codec_for(declaration).decode(b'{"name":"a","children":[' * 1_000_000 + b"]}" * 1_000_000)
    with pytest.raises(CodecError):
        codec_for(declaration).decode(b"[" * 1_000_000 + b"]" * 1_000_000)


def test_a_value_10000_levels_deep_is_a_codec_error() -> None:
    """When writing, too, plain and typed."""
    plain: list[Any] = []
    tree = Tree("leaf")
    for _ in range(10_000):
        plain, tree = [plain], Tree("node", [tree])

    for declaration, value in ((Json(), plain), (Json(Tree), tree)):
        with pytest.raises(CodecError, match="nested too deeply"):
            codec_for(declaration).encode(value)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff", b"NaN", b"[Infinity]", b"{'a': 1}", b"1 2", b'{"a":1}x', b"1" * 5_000]
)
def test_bytes_that_are_no_json_are_a_codec_error(data: bytes) -> None:
    """Also what Python's own reader would take: NaN and infinity."""
    with pytest.raises(CodecError):
        codec_for(Json()).decode(data)


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        [float("inf")],
        {"a": [{"b": float("nan")}]},
        {1, 2},
        {"a": {"b"}},
        b"bytes",
        object(),
        {(1,): 2},
        {float("nan"): 1},
        {True: 1},
        {None: 1},
        {b"a": 1},
        datetime(2026, 1, 1, tzinfo=UTC),
        [Colour.RED],
        "\ud800",
        ORDER,
    ],
)
def test_values_that_are_no_json_are_a_codec_error(value: Any) -> None:
    """Including a dataclass on a topic that did not declare it."""
    with pytest.raises(CodecError):
        codec_for(Json()).encode(value)


def test_values_of_classes_of_their_own_that_are_plain_are_written_as_such() -> None:
    """As numpy has them, and collections."""

    class Text(str):
        __slots__ = ()

    class Number(float):
        __slots__ = ()

    class Level(enum.IntEnum):
        LOW = 1

    value = OrderedDict(a=Text("x"), b=(Number(1.5), 2), c=Level.LOW)

    assert codec_for(Json()).encode(value) == b'{"a":"x","b":[1.5,2],"c":1}'
    with pytest.raises(CodecError, match="NaN and infinity"):
        codec_for(Json()).encode([Number("nan")])


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(PLAIN)
def test_whatever_is_json_comes_back_as_it_was(value: Any) -> None:
    """Any JSON."""
    codec = codec_for(Json())

    assert codec.decode(codec.encode(value)) == value


@given(PLAIN)
def test_foreign_json_never_raises_anything_but_a_codec_error(value: Any) -> None:
    """A typed reader over messages of another shape."""
    data = codec_for(Json()).encode(value)
    for cls in (Order, Drawing, Tree):
        with pytest.raises(CodecError):
            codec_for(Json(cls)).decode(data)


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (set[int], "no order"),
        (frozenset[str], "no order"),
        (dict[int, str], "keys are int"),
        (str | bytes, "both a string in JSON"),
        (list[int] | tuple[int, ...], "both an array"),
        (Line | Tree, "both an object"),
        (complex, "complex cannot travel"),
    ],
)
def test_a_class_that_cannot_travel_is_refused_with_the_remedy(annotation: Any, text: str) -> None:
    """When the codec is made, not at the first message."""
    made: Any = dataclass(type("Made", (), {"__annotations__": {"field": annotation}}))
    with pytest.raises(GraphError, match=r"Made\.field") as caught:
        codec_for(Json(made))

    assert text in str(caught.value)


def test_an_annotation_that_only_type_checkers_see_is_refused_with_the_remedy() -> None:
    """The usual mistake: the import stands under `if TYPE_CHECKING`."""
    made: Any = dataclass(type("Made", (), {"__annotations__": {"field": "Nowhere"}}))
    with pytest.raises(GraphError, match="outside of `if TYPE_CHECKING`"):
        codec_for(Json(made))


def test_raw_values_are_bytes() -> None:
    """Text is refused, with the remedy."""
    assert codec_for(Raw()).decode(codec_for(Raw()).encode(bytearray(b"x"))) == b"x"
    with pytest.raises(CodecError, match=r"Raw\(\) takes bytes, not str\. Encode it"):
        codec_for(Raw()).encode("text")


def test_something_that_is_no_codec_is_refused() -> None:
    """A class in place of a declaration, for example."""
    with pytest.raises(ConfigError, match="is not a codec"):
        codec_for(Json)


def test_types_that_were_taken_as_they_are_let_nothing_else_through() -> None:
    """The short cut remembers combinations of types; a missing field, another type or a number too much is named."""

    @dataclass(frozen=True)
    class Point:
        x: int
        y: float
        z: str | None = None

    codec = JsonCodec(Point)
    for _ in range(3):
        assert codec.decode(b'{"x":1,"y":2.0,"z":null}') == Point(1, 2.0)
        assert codec.decode(b'{"x":1,"y":2,"z":"a"}') == Point(1, 2.0, "a")
        assert type(codec.decode(b'{"x":1,"y":2,"z":"a"}').y) is float
        assert codec.encode(Point(1, 2.5)) == b'{"x":1,"y":2.5,"z":null}'
        with pytest.raises(CodecError, match=r"y: expected a finite number"):
            codec.encode(Point(1, float("nan")))
        assert codec.decode(b'{"x":1,"y":2.5}') == Point(1, 2.5)
        with pytest.raises(CodecError, match=r"x"):
            codec.decode(b'{"x":true,"y":2.0,"z":null}')
        with pytest.raises(CodecError, match=r"z"):
            codec.decode(b'{"x":1,"y":2.0,"z":3}')
        with pytest.raises(CodecError, match=r"x"):
            codec.encode(Point("1", 2.0, None))  # type: ignore[arg-type]


def test_a_decimal_is_read_from_a_number_with_all_its_digits() -> None:
    """Other programs write amounts as numbers; no float is in between."""
    line = codec_for(Json(Line)).decode(b'{"sku":"x","price":0.10000000000000000000000000000000001}')

    assert line == Line("x", Decimal("0.10000000000000000000000000000000001"))


@dataclass(frozen=True)
class Leg:
    kind: Literal["leg", "stage"]
    to: Annotated[str, Alias("to-airport")]
    price: Annotated[Decimal, Alias("class")] = Decimal(0)


@dataclass(frozen=True)
class Stop:
    kind: Literal["stop"]
    hours: int


@dataclass(frozen=True)
class Trip:
    legs: tuple[Leg | Stop, ...]
    first: Leg | None = None
    by_day: dict[str, list[Stop]] = field(default_factory=dict)
    length: int = field(init=False, default=0)
    inner: Trip | None = None
    pair: tuple[Leg, int] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", len(self.legs))


TRIP = Trip(
    (Leg("stage", "OSL", Decimal("1.5")), Stop("stop", 3)),
    Leg("leg", "BGO"),
    {"mon": [Stop("stop", 1)]},
    inner=Trip(()),
    pair=(Leg("leg", "TOS"), 2),
)


def test_an_alias_is_the_name_of_a_field_in_messages() -> None:
    """In nested classes too, beside unions, a class inside itself, and a field that the class fills itself."""
    codec = codec_for(Json(Trip))
    data = codec.encode(TRIP)

    assert json.loads(data) == {
        "legs": [{"kind": "stage", "to-airport": "OSL", "class": "1.5"}, {"kind": "stop", "hours": 3}],
        "first": {"kind": "leg", "to-airport": "BGO", "class": "0"},
        "by_day": {"mon": [{"kind": "stop", "hours": 1}]},
        "inner": {"legs": [], "first": None, "by_day": {}, "inner": None, "pair": None},
        "pair": [{"kind": "leg", "to-airport": "TOS", "class": "0"}, 2],
    }
    assert codec.decode(data) == TRIP
    assert codec.decode(b'{"legs":[],"length":7}') == Trip(())
    with pytest.raises(CodecError, match=r"trip\.legs\[0\]: object missing required field to-airport"):
        codec.decode(b'{"legs":[{"kind":"leg","to":"OSL"}]}')
    with pytest.raises(CodecError, match=r"trip\.legs\[0\]\.to: expected str, got the number 5"):
        codec.encode(Trip((Leg("leg", 5),)))  # type: ignore[arg-type]
    with pytest.raises(CodecError, match=r"trip\.legs\[0\]\.class: expected a finite|finite Decimal"):
        codec.decode(b'{"legs":[{"kind":"leg","to-airport":"OSL","class":"NaN"}]}')
    with pytest.raises(CodecError, match=r"trip\.legs\[0\]\.kind: invalid value 'boat'"):
        codec.decode(b'{"legs":[{"kind":"boat"}]}')


@dataclass
class Leaf:
    kind: Literal["leaf"]


@dataclass
class Branch:
    kind: Literal["branch", "bough"]
    parts: list[Branch]
    tip: Leaf | None = None


@dataclass
class Plant:
    at: list[Leaf | Branch | None]
    first: Branch | None = None


def test_a_class_that_a_literal_tells_apart_may_contain_itself() -> None:
    """Each with the value of its own."""
    codec = codec_for(Json(Plant))
    plant = Plant([Branch("bough", [Branch("branch", [], Leaf("leaf"))]), None, Leaf("leaf")], Branch("branch", []))

    assert codec.decode(codec.encode(plant)) == plant


def test_two_fields_with_one_name_in_messages_are_refused() -> None:
    """When the codec is made."""

    @dataclass
    class Twice:
        a: Annotated[int, Alias("b")]
        b: int

    with pytest.raises(GraphError, match=r"Twice: the fields 'a' and 'b' are both 'b' in messages"):
        codec_for(Json(Twice))


class Car(msgspec.Struct, tag="car", frozen=True, rename="kebab"):
    """A vehicle, told apart by `type`."""

    seat_count: int
    plate: str = msgspec.field(name="class", default="")


class Ship(msgspec.Struct, tag="ship", frozen=True):
    """Another one."""

    load: Decimal
    lines: list[Line] = msgspec.field(default_factory=list)


class Fleet(msgspec.Struct):
    """Both."""

    all: list[Car | Ship]


def test_a_struct_of_msgspec_is_read_and_written_by_its_own_rules() -> None:
    """Names, tags and defaults are the Struct's; types are checked as everywhere."""
    codec = codec_for(Json(Fleet))
    fleet = Fleet([Car(4), Ship(Decimal("1.5"), [Line("a", Decimal(1))])])
    data = codec.encode(fleet)

    assert json.loads(data) == {
        "all": [
            {"type": "car", "seat-count": 4, "class": ""},
            {"type": "ship", "load": "1.5", "lines": [{"sku": "a", "price": "1", "count": 1}]},
        ]
    }
    assert codec.decode(data) == fleet
    with pytest.raises(CodecError, match=r"fleet\.all\[0\]\.seat_count: expected int, got text"):
        codec.encode(Fleet([Car("4")]))  # type: ignore[arg-type]
    with pytest.raises(CodecError, match=r"fleet\.all\[0\]: object missing required field seat-count"):
        codec.decode(b'{"all":[{"type":"car"}]}')
    with pytest.raises(CodecError, match=r"load: expected a finite Decimal"):
        codec.decode(b'{"all":[{"type":"ship","load":"Infinity"}]}')


def test_a_subclass_is_written_as_the_class_that_was_declared() -> None:
    """What it has besides stays out of messages."""

    @dataclass(frozen=True)
    class Marked(Line):
        mark: str = "m"

    codec = codec_for(Json(Line))

    assert codec.decode(codec.encode(Marked("x", Decimal(1)))) == Line("x", Decimal(1))
    assert b"mark" not in codec.encode(Marked("x", Decimal(1)))


@dataclass(frozen=True)
class Cart:
    line: Line
    lines: list[Line]
    pair: tuple[Line, int]
    by_name: dict[str, Line]
    either: Line | str


def test_a_subclass_inside_of_a_value_is_written_as_the_class_that_was_declared() -> None:
    """Wherever it stands, also once values of the same types have passed."""

    @dataclass(frozen=True)
    class Marked(Line):
        mark: str = "m"

    codec, plain, marked = codec_for(Json(Cart)), Line("x", Decimal(1)), Marked("x", Decimal(1))
    expected = Cart(plain, [plain, plain], (plain, 1), {"a": plain}, plain)

    for _ in range(2):
        for value in (expected, Cart(marked, [plain, marked], (marked, 1), {"a": marked}, marked)):
            assert b"mark" not in codec.encode(value)
            assert codec.decode(codec.encode(value)) == expected


def test_the_key_of_a_topic_is_a_field_by_its_name_in_python() -> None:
    """Also of a Struct, and of one with an alias."""
    assert Topic(value=Json(Car), key="seat_count").key == "seat_count"
    assert Topic(value=Json(Leg), key="to").key == "to"
    with pytest.raises(GraphError, match=r"Car does not have this field"):
        Topic(value=Json(Car), key="seat-count")


def test_columns_of_spark_have_the_names_in_json() -> None:
    """Spark parses the JSON itself; the key's column is named so, too."""
    codec = codec_for(Json(Leg))

    assert value_type(codec_for(Json(Car))) == "STRUCT<`seat-count`: BIGINT, `class`: STRING>"
    assert (key_column(codec, "to"), key_column(codec, "kind"), key_column(codec, None)) == ("to-airport", "kind", None)
    assert key_column(codec_for(Json()), "to") == "to"


def test_a_constructor_written_by_hand_is_called() -> None:
    """The library would set the fields past it."""

    @dataclass(init=False)
    class Upper:
        name: str

        def __init__(self, name: str) -> None:
            self.name = name.upper()

    assert codec_for(Json(Upper)).decode(b'{"name":"a"}') == Upper("a")
    assert codec_for(Json(Upper)).encode(Upper("a")) == b'{"name":"A"}'


def test_a_type_that_the_library_does_not_know_is_refused_when_the_codec_is_made() -> None:
    """With its words, and the class."""

    @dataclass
    class Mixed:
        of: Odd

    with pytest.raises(GraphError, match=r"Mixed: Enums must contain either all str or all int"):
        codec_for(Json(Mixed))
    with pytest.raises(GraphError, match=r"Square \| Tree|both an object"):
        codec_for(Json(Both))


@dataclass
class Both:
    """Two that nothing tells apart."""

    one: Square | Tree


class Odd(enum.Enum):
    """Values of two types."""

    TEXT = "a"
    NUMBER = 1


@dataclass
class Moment:
    """Times, alone and beside others."""

    at: datetime
    perhaps: datetime | None = None
    clock: time | None = None


@pytest.mark.parametrize("seconds", [3208, -4, 3723])
def test_a_time_whose_offset_has_seconds_is_the_same_time(seconds: int) -> None:
    """Berlin was 53 minutes and 28 seconds ahead until 1893; the seconds were cut off, which is another time."""
    at = datetime(1890, 1, 2, 3, 4, 5, 6, timezone(timedelta(seconds=seconds)))
    codec = JsonCodec(Moment)
    read = codec.decode(codec.encode(Moment(at, at)))
    assert (read.at, read.perhaps) == (at, at)
    with pytest.raises(CodecError, match=r"clock: expected a time whose offset is in whole minutes"):
        codec.encode(Moment(at, clock=at.timetz()))
    with pytest.raises(CodecError, match=r"clock: expected a time whose offset is in whole minutes"):
        codec.encode(Moment(at, clock=time(1, tzinfo=ZoneInfo("Europe/Berlin"))))
    with pytest.raises(CodecError, match=r"at: expected a datetime in the years 1 to 9999 of UTC"):
        codec.encode(Moment(datetime(1, 1, 1, tzinfo=timezone(timedelta(seconds=3723)))))


def test_other_times_come_back_with_their_offset() -> None:
    """As RFC 3339 has it."""
    codec = JsonCodec(Moment)
    for zone in (UTC, timezone(timedelta(hours=5, minutes=30)), None):
        value = Moment(datetime(2026, 1, 2, 3, 4, 5, 6, zone), None, time(1, 2, 3, 4, zone))
        read = codec.decode(codec.encode(value))
        assert read == value
        assert read.at.utcoffset() == value.at.utcoffset()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "it is empty"),
        (b"\xef\xbb\xbf{}", r"begins with a byte order mark \(0xef 0xbb 0xbf\)"),
        ('{"a": 1}'.encode("utf-16"), "it is in UTF-16 or UTF-32, and JSON is in UTF-8"),
        (b'"\\ud800"', "value holds half of a surrogate pair"),
        (b'{"a": [1, {"b c": "x\\udc00"}]}', r"value\.a\[1\]\['b c'\] holds half of a surrogate pair"),
        (b'{"\\ud800": 1}', r"value\['.ud800'\] holds half of a surrogate pair"),
        (b'{"a": ', "it ends inside of a value, after 6 bytes"),
        (b'["\\u00e4', "it ends inside of a value, after 8 bytes"),
        (b"[" * 100_000 + b'"\\ud800"', "nested too deeply|ends inside|not JSON"),
        (b"[1,]", "trailing comma"),
    ],
)
def test_bytes_that_are_no_json_say_why(data: bytes, text: str) -> None:
    """A byte order mark, half of a surrogate pair and an empty message are not called truncated."""
    with pytest.raises(CodecError, match=text):
        JsonCodec(Any).decode(data)


@dataclass
class Note:
    lines: list[str]
    by_name: dict[str, Any]


@pytest.mark.parametrize(
    ("annotation", "value", "path"),
    [
        (Any, "\ud800", "value"),
        (Any, {"a": [1, {"b c": "x\udc00"}]}, r"value\.a\[1\]\['b c'\]"),
        (Any, {"\ud800": 1}, r"value\['.ud800'\]"),
        (Any, {0: "\ud800"}, r"value\['0'\]"),
        (Any, {"a": ("b", "\ud800")}, r"value\.a\[1\]"),
        (Note, Note(["a", "\ud800"], {}), r"note\.lines\[1\]"),
        (Note, Note([], {"b": {"c": "\ud800"}}), r"note\.by_name\.b\.c"),
    ],
)
def test_half_of_a_surrogate_pair_that_is_written_is_named_with_its_path(
    annotation: Any, value: Any, path: str
) -> None:
    """Readers would have no character for it."""
    with pytest.raises(CodecError, match=f"^{path} holds half of a surrogate pair, which UTF-8 cannot carry"):
        JsonCodec(annotation).encode(value)
