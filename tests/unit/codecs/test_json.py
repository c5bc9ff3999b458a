"""JSON: any, and of dataclasses."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cues_kafka import CodecError, ConfigError, GraphError, Json, Raw
from cues_kafka.codecs import lookup
from cues_kafka.codecs.json import JsonCodec
from cues_kafka.codecs.lookup import MadeFor
from cues_kafka.ports import Codec


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


def codec_for(declaration: Any) -> Codec:
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
        "placed": "2026-01-02T03:04:05.000006+00:00",
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
        (
            {"lines": [VALID["lines"][0], {"sku": "x", "price": 1}]},
            "lines[1].price: expected a decimal number as text, got the number 1",
        ),
        ({"lines": [{"sku": "x", "price": "much"}]}, "order.lines[0].price: expected a decimal number as text"),
        ({"lines": [{"sku": "x", "price": "NaN"}]}, "order.lines[0].price"),
        ({"lines": [{"price": "1"}]}, "order.lines[0].sku: expected str, got nothing: the field is missing"),
        ({"lines": {}}, "order.lines: expected an array, got an object"),
        ({"id": 5}, "order.id: expected text, got the number 5"),
        ({"id": None}, "order.id: expected text, got null"),
        ({"placed": "yesterday"}, "order.placed: expected an ISO date and time"),
        ({"due": "2026-13-01"}, "order.due: expected an ISO date"),
        ({"colour": "green"}, "order.colour: expected Colour ('red' or 'blue'), got 'green'"),
        ({"colour": ["red"]}, "order.colour"),
        ({"mode": "medium"}, "order.mode: expected 'fast' or 'slow', got 'medium'"),
        ({"weight": True}, "order.weight: expected a finite number, got a boolean"),
        ({"weight": 10**400}, "order.weight: expected a finite number"),
        ({"tags": {"a": [1, "2"]}}, "order.tags['a'][1]: expected a whole number, got text"),
        ({"seal": "%%%"}, "order.seal: expected Base64 text"),
        ({"size": [1]}, "order.size: expected an array of 2 items, got 1 of them"),
        ({"size": [1, 2]}, "order.size[1]: expected text"),
    ],
)  # fmt: skip
def test_a_message_that_does_not_fit_is_refused_with_its_path(changes: dict[str, Any], text: str) -> None:
    """The path, what was expected, and what came."""
    with pytest.raises(CodecError) as caught:
        decode(Order, **changes)

    assert text in str(caught.value)


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
def test_a_message_10000_levels_deep_is_a_codec_error(declaration: Json) -> None:
    """Never a RecursionError, and never a dead process."""
    for data in (b"[" * 10_000 + b"]" * 10_000, b'{"children":[' * 10_000 + b"]}" * 10_000):
        with pytest.raises(CodecError, match="nested too deeply"):
            codec_for(declaration).decode(data)


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
    "value", [float("nan"), [float("inf")], {1, 2}, b"bytes", object(), {(1,): 2}, "\ud800", ORDER]
)
def test_values_that_are_no_json_are_a_codec_error(value: Any) -> None:
    """Including a dataclass on a topic that did not declare it."""
    with pytest.raises(CodecError):
        codec_for(Json()).encode(value)


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


def test_a_value_that_cannot_change_is_encoded_once_and_one_that_can_each_time() -> None:
    """A fork sends one value to several topics; only where it is frozen all through, its bytes are kept."""

    @dataclass(frozen=True)
    class Lasting:
        name: str
        size: int

    @dataclass
    class Changing:
        name: str
        size: int

    lasting, codec = Lasting("a", 1), JsonCodec(Lasting)
    assert codec.encode(lasting) is codec.encode(lasting)
    assert codec.encode(Lasting("a", 2)) == b'{"name":"a","size":2}'
    changing, codec = Changing("a", 1), JsonCodec(Changing)
    assert codec.encode(changing) == b'{"name":"a","size":1}'
    changing.size = 2
    assert codec.encode(changing) == b'{"name":"a","size":2}'


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
        assert codec.decode(b'{"x":1,"y":2.5}') == Point(1, 2.5)
        with pytest.raises(CodecError, match=r"x"):
            codec.decode(b'{"x":true,"y":2.0,"z":null}')
        with pytest.raises(CodecError, match=r"z"):
            codec.decode(b'{"x":1,"y":2.0,"z":3}')
        with pytest.raises(CodecError, match=r"x"):
            codec.encode(Point("1", 2.0, None))  # type: ignore[arg-type]
