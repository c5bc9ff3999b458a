"""Digits of decimals are held by each codec, when values are read and when they are written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pydantic
import pytest

from cues_kafka import Avro, CodecError, Digits, GraphError, Json, JsonSchema
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.graph.declare import Alias, CodecSpec

Price = Annotated[Decimal, Digits(6, 2)]


@dataclass
class Plain:
    """A dataclass as msgspec reads it."""

    x: Price


@dataclass
class Renamed:
    """A dataclass that is read by way of a twin."""

    x: Annotated[Decimal, Digits(6, 2), Alias("y")]


@dataclass
class Nested:
    """Digits in all containers."""

    x: list[tuple[Price, ...]] | dict[str, Price | None]


class Struct(msgspec.Struct):
    """A Struct."""

    x: Price


class Model(pydantic.BaseModel):
    """A model, which has its own words for digits."""

    x: Annotated[Decimal, pydantic.Field(max_digits=6, decimal_places=2)]


MAKERS: list[tuple[CodecSpec, Any, str]] = [
    (Json(Plain), Plain, "x"),
    (Json(Renamed), Renamed, "y"),
    (Json(Struct), Struct, "x"),
    (JsonSchema(Plain), Plain, "x"),
    (Avro(Plain), Plain, ""),
    (Avro(Struct), Struct, ""),
    (Avro(Model), lambda x: Model.model_construct(x=x), ""),
]


@pytest.mark.parametrize(("declared", "make", "field"), MAKERS)
def test_a_decimal_of_more_digits_is_refused_both_ways(declared: CodecSpec, make: Any, field: str) -> None:
    """Nothing is rounded, and zeros at the end are no digits."""
    codec = codec_for(declared, MadeFor("t"))
    for fits in ("1234.56", "-9999.99", "0", "-0.01", "1E+3", "5", "1.500", "0.0000", "1.20000E+3"):
        assert codec.decode(codec.encode(make(x=Decimal(fits)))).x == Decimal(fits)
    for misfit in ("12345678.90", "10000", "1.005", "0.001", "1E+4", "1E-3", "NaN", "Infinity", "-sNaN"):
        with pytest.raises(CodecError, match=r"x: expected a decimal of 6 digits, 2 of them after the point"):
            codec.encode(make(x=Decimal(misfit)))
        if field:
            with pytest.raises(
                CodecError, match=rf"[xy]: expected a decimal of 6 digits|{misfit}|[Nn]umber|[Dd]ecimal"
            ):
                codec.decode(json.dumps({field: misfit}).encode())


@pytest.mark.parametrize("text", [b'{"x": 1.005}', b'{"x": "1.005"}', b'{"x": 12345678.90}', b'{"x": 1e4}'])
def test_numbers_of_json_hold_the_digits_as_text_does(text: bytes) -> None:
    """A number of JSON is read with all its digits."""
    with pytest.raises(CodecError, match=r"plain\.x: expected a decimal of 6 digits"):
        codec_for(Json(Plain), MadeFor("t")).decode(text)


def test_digits_hold_in_containers() -> None:
    """With the path."""
    codec = codec_for(Json(Nested), MadeFor("t"))
    good = Nested([(Decimal("1.25"),), ()])
    assert codec.decode(codec.encode(good)) == good
    with pytest.raises(CodecError, match=r"x\[1\]\[0\]: expected a decimal of 6 digits"):
        codec.decode(b'{"x": [[], ["1.255"]]}')
    with pytest.raises(CodecError, match=r"x\['a'\]: expected a decimal of 6 digits"):
        codec.decode(b'{"x": {"a": "1.255"}}')


def test_digits_that_are_no_counts_are_refused() -> None:
    """Where they are declared."""
    for wrong in (("6", 2), (6, "2"), (True, 0), (6, None), (39, 0)):
        with pytest.raises(GraphError, match="takes 1 to 38 digits"):
            Digits(*wrong)
