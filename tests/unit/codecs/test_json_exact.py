"""JSON that would come back as another value is refused, with the path."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, time
from typing import Any, Literal

import pytest

from cues_kafka import CodecError
from cues_kafka.codecs.json import JsonCodec
from cues_kafka.codecs.json_fractions import Fractions
from cues_kafka.codecs.schema import Scalar

FINE = "2026-01-02T03:04:05.123456789Z"


@dataclass(frozen=True)
class Leg:
    kind: Literal["leg"]
    begins: datetime
    note: str = ""


@dataclass(frozen=True)
class Stop:
    kind: Literal["stop"]
    begins: str


@dataclass(frozen=True)
class Trip:
    begins: datetime | None = None
    legs: list[Leg | Stop] = field(default_factory=list)
    clock: tuple[int, time] | None = None
    by_name: dict[str, datetime] = field(default_factory=dict)
    then: Trip | None = None
    note: str = ""


@pytest.mark.parametrize(
    ("annotation", "data", "path"),
    [
        (datetime, f'"{FINE}"', "value"),
        (time, '"23:59:59.9999999"', "value"),
        (time, '"23:59:59.999999\\u0039"', "value"),
        (time, '"23:59:59\\u002e9999999"', "value"),
        (time, '"23:59\\u003a59.9999999"', "value"),
        (Trip, f'{{"begins": "{FINE}"}}', "trip.begins"),
        (Trip, f'{{"legs": [{{"kind": "stop", "begins": "x"}}, {{"kind": "leg", "begins": "{FINE}"}}]}}',
         r"trip.legs\[1\].begins"),
        (Trip, '{"clock": [1, "12:00:00.0000001"]}', r"trip.clock\[1\]"),
        (Trip, f'{{"then": {{"by_name": {{"a": "{FINE}"}}}}}}', r"trip.then.by_name\['a'\]"),
    ],
)  # fmt: skip
def test_time_with_more_digits_than_microseconds_is_refused_with_its_path(
    annotation: Any, data: str, path: str
) -> None:
    """It would be rounded: 23:59:59.9999999 to the midnight before."""
    with pytest.raises(CodecError, match=f"^{path}: expected a time in whole microseconds, got one with more digits"):
        JsonCodec(annotation).decode(data.encode())


def test_message_with_escapes_of_letters_is_not_parsed_a_second_time() -> None:
    """An escape of a letter is no part of a time, and Python's `json` writes one for each letter beyond ASCII."""
    Fractions(Scalar(time)).check(b"no JSON, \\u00e9, 23:59:59.999999")


def test_time_whose_further_digits_are_zeros_is_read() -> None:
    """Nothing is lost; and texts may hold what they like."""
    data = f'{{"begins": "2026-01-02T03:04:05.123456000Z", "note": "{FINE}", "more": "{FINE}"}}'

    found = JsonCodec(Trip).decode(data.encode())

    assert found == Trip(datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=UTC), note=FINE)
    stop = f'{{"legs": [{{"kind": "stop", "begins": "{FINE}"}}]}}'
    assert JsonCodec(Trip).decode(stop.encode()) == Trip(legs=[Stop("stop", FINE)])


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, 2**64, 10**400])
def test_whole_number_that_no_float_holds_is_refused_as_a_float(value: int) -> None:
    """It would come back as another number, or could not be read at all."""
    for annotation in (float, float | str, list[float], dict[str, float]):
        holders: dict[Any, Any] = {list[float]: [value], dict[str, float]: {"a": value}}
        given = holders.get(annotation, value)
        with pytest.raises(CodecError, match="value"):
            JsonCodec(annotation).encode(given)
    assert JsonCodec(float).decode(JsonCodec(float).encode(2**53)) == 2**53
    assert JsonCodec(int).decode(JsonCodec(int).encode(value)) == value


def test_keys_of_an_object_that_are_one_text_are_refused() -> None:
    """1 and '1' are both "1" in JSON, and readers keep one of them."""
    codec = JsonCodec()
    with pytest.raises(CodecError, match="two keys of an object are both '1' as text"):
        codec.encode([{1: "a", "1": "b"}])
    assert codec.encode({1: "a", "2": "b"}) == b'{"1":"a","2":"b"}'


def test_text_of_a_class_of_its_own_is_written_as_the_text_that_it_is() -> None:
    """Not as what it says of itself."""

    class Name(str):
        __slots__ = ()

        def __str__(self) -> str:
            return "another"

    class Number(float):
        __slots__ = ()

        def __float__(self) -> float:
            return 7.0

    assert JsonCodec().encode([Name("x"), Number(1.5)]) == b'["x",1.5]'
