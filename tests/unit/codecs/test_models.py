"""Pydantic models as values of Avro topics."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any

import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field

from cues_kafka import Avro, CodecError, Digits, Graph, GraphError, Json, Processor, Source, Topic
from cues_kafka.codecs.avro import AvroCodec, schema_text
from cues_kafka.codecs.json import JsonCodec
from cues_kafka.testing.tester import Tester


class Colour(Enum):
    """An enum of names."""

    RED = "red"


class Line(BaseModel):
    """Inside an order."""

    model_config = ConfigDict(frozen=True)
    sku: str = Field(min_length=2)
    price: Decimal = Field(max_digits=12, decimal_places=2)


class Order(BaseModel):
    """Has an alias, defaults, and itself."""

    number: int = Field(alias="orderId", gt=0)
    lines: list[Line]
    total: Annotated[Decimal, Digits(12, 2)]
    at: datetime
    colour: Colour = Colour.RED
    note: str | None = None
    tags: dict[str, str] = Field(default_factory=dict)
    parts: list[Order] = []


class Bill(BaseModel):
    """What comes out."""

    order: int


@pydantic.dataclasses.dataclass
class Checked:
    """Made by pydantic, but no model."""

    size: Annotated[int, Field(gt=0)]


ORDER = Order(
    orderId=7,
    lines=[Line(sku="ab", price=Decimal("1.25"))],
    total=Decimal("2.50"),
    at=datetime(2026, 11, 23, tzinfo=UTC),
    parts=[Order(orderId=8, lines=[], total=Decimal("0.00"), at=datetime(2026, 11, 24, tzinfo=UTC), note="n")],
)


def test_a_model_comes_back_as_it_was() -> None:
    """With its alias in the message, and its digits from `Field`."""
    codec = AvroCodec(Avro(Order))
    plain = AvroCodec(Avro(schema_text(Avro(Order))))
    for _ in range(2):
        data = codec.encode(ORDER)
        assert codec.decode(data) == ORDER
        assert plain.decode(data)["orderId"] == 7


def test_the_model_refuses_what_its_rules_forbid_without_showing_it() -> None:
    """One error for the message; the rule is named, the value is not."""
    codec = AvroCodec(Avro(Line))
    plain = AvroCodec(Avro(schema_text(Avro(Line))))
    bad = plain.encode({"sku": "s", "price": Decimal("1.25")})
    with pytest.raises(CodecError, match=r"Line\.sku: String should have at least 2 characters") as raised:
        codec.decode(bad)
    assert "input" not in str(raised.value)
    checked = AvroCodec(Avro(Checked))
    none = AvroCodec(Avro(schema_text(Avro(Checked)))).encode({"size": 0})
    with pytest.raises(CodecError, match=r"Checked\.size: Input should be greater than 0"):
        checked.decode(none)
    assert checked.decode(checked.encode(Checked(3))) == Checked(3)


def test_a_model_that_was_changed_after_it_was_made_is_checked() -> None:
    """Pydantic does not look at what is set later."""
    order = ORDER.model_copy()
    order.note = 5  # type: ignore[assignment]
    with pytest.raises(CodecError, match=r"Order\.note: expected string, got int"):
        AvroCodec(Avro(Order)).encode(order)


def test_a_graph_of_models_runs() -> None:
    """With a key that is a field."""

    def bill(order: Order) -> Bill:
        return Bill(order=order.number)

    graph = Graph(
        "shop",
        Source("orders"),
        Processor(bill, inputs="orders", outputs="bills"),
        topics={
            "orders": Topic(value=Avro(Order)),
            "bills": Topic(value=Avro(Bill), key="order", key_codec=Avro("long")),
        },
    )
    tester = Tester(graph)
    tester.send("orders", ORDER)
    tester.run()
    assert tester.values("bills") == [Bill(order=7)]


class Several(BaseModel):
    """Is read from one of several fields."""

    one: int = Field(validation_alias=pydantic.AliasChoices("a", "b"))


class Root(pydantic.RootModel[int]):
    """Has no fields."""


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: JsonCodec(Line), "Line is a pydantic model. JSON takes dataclasses"),
        (lambda: AvroCodec(Avro(Several)), "Several.one: a field has one name in messages"),
        (lambda: AvroCodec(Avro(Root)), "Root cannot travel"),
        (lambda: Topic(value=Avro(Bill), key="ordr"), "Bill does not have this field"),
    ],
)
def test_what_cannot_travel_is_refused_when_it_is_declared(make: Any, text: str) -> None:
    """With what to write instead."""
    with pytest.raises(GraphError, match=text):
        make()


def test_a_graph_of_json_says_it_before_it_runs() -> None:
    """And not at the first message."""
    graph = Graph("g", Source("lines"), defaults=Topic(value=Json(Line)))
    with pytest.raises(GraphError, match="Line is a pydantic model"):
        Tester(graph).send("lines", Line(sku="ab", price=Decimal(1)))
