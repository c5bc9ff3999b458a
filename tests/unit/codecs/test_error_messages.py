"""The bytes of error messages: bounded, and those of every release stay readable."""

from __future__ import annotations

import io
from dataclasses import fields, replace
from typing import Any

import fastavro
import fastavro.schema
import pytest

from cues_kafka import CodecError, ErrorCause, ErrorMessage, ErrorMessages
from cues_kafka.codecs.error_messages import ERROR_LIMIT, _plain, error_messages
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.codecs.text import text_of
from cues_kafka.graph.own_schemas import load_schema
from cues_kafka.ports.log import Coordinates

ERROR = ErrorMessage(
    graph="flights",
    processor="clean",
    task="clean/3",
    consumed=(Coordinates("flight", bytes(range(16)), 3, 99),),
    topics=("flights",),
    hash=b"h" * 16,
    kind="retries exhausted",
    exception="KeyError",
    text="'PSE'",
    location="flights.py:clean:12",
    context={"tail": "N14228"},
    attempts=3,
    starts=1,
    timestamp_ms=1_700_000_000_000,
    key=b"N14228",
    payload=b"\xff\x00",
)
FULL = replace(
    ERROR,
    declaration={"name": "clean", "fn": "flights:clean", "inputs": "flights", "opts": ["limit"]},
    trace=("flights.py:clean:12", "flights.py:delay:40"),
    causes=(ErrorCause("ValueError", "no number", ("flights.py:delay:38",)), ErrorCause("TypeError", "")),
    redacted=("iban",),
)

RECORDED = bytes.fromhex(
    "c30148abd1ff4b84847d020e666c69676874730a636c65616e0e636c65616e2f33020c666c696768740e666c696768747320"
    "000102030405060708090a0b0c0d0e0f06c601006868686868686868686868686868686808104b65794572726f720a275053"
    "452726666c69676874732e70793a636c65616e3a313202087461696c0c4e313432323800060280a0abfef962020c4e313432"
    "32380204ff0000"
)
"""Written by an earlier release."""


def test_error_messages_of_earlier_releases_are_read() -> None:
    """Fields that came since have their defaults."""
    assert error_messages().decode(RECORDED) == ERROR


def test_the_schemas_have_the_fingerprints_that_are_on_clusters() -> None:
    """Golden: a schema that changes stays in a file of its own, and in `OLDER`."""
    marks = [error_messages().encode(ERROR)[2:10].hex(), RECORDED[2:10].hex()]
    for name, mark in zip(("error", "error-1"), marks, strict=True):
        canonical = fastavro.schema.to_parsing_canonical_form(load_schema(name))
        assert fastavro.schema.fingerprint(canonical, "CRC-64-AVRO") == mark

    assert marks == ["3e72a9aece13a41c", "48abd1ff4b84847d"]


def test_any_reader_of_avro_reads_an_error_message() -> None:
    """By the schema file alone."""
    read = fastavro.schemaless_reader(io.BytesIO(error_messages().encode(FULL)[10:]), load_schema("error"), None)

    assert isinstance(read, dict)
    assert read["causes"][0] == {"exception": "ValueError", "text": "no number", "trace": ["flights.py:delay:38"]}
    assert read["kind"] == "retries_exhausted"


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"\xc3\x01", b"\xc3\x01" + bytes(8), RECORDED[:-3], error_messages().encode(FULL) + b"x"]
)
def test_foreign_or_damaged_bytes_are_a_codec_error(data: bytes) -> None:
    """They are never guessed at."""
    with pytest.raises(CodecError):
        error_messages().decode(data)


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "[" * 100_000, '{"a":' * 200 + "1" + "}" * 200, "9" * 5_000])
def test_declaration_that_is_no_object_is_a_codec_error(text: str) -> None:
    """Another program can write a record of the schema with any text in it: `errors list` ended with a traceback."""
    record = {**_plain(ERROR), "declaration": text}
    data = error_messages().encode(ERROR)[:10] + _written(record)

    with pytest.raises(CodecError, match="not one of ours: its declaration"):
        error_messages().decode(data)


def _written(record: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, load_schema("error"), record)
    return out.getvalue()


def test_an_error_message_of_another_version_is_a_codec_error() -> None:
    """It names both versions."""
    with pytest.raises(CodecError, match="version 2; this program knows 1"):
        error_messages().decode(error_messages().encode(replace(ERROR, version=2)))


def test_a_value_that_is_no_error_message_is_a_codec_error() -> None:
    """A processor may write error messages to topics of its own, and nothing else to them."""
    codec = codec_for(ErrorMessages(), MadeFor("parked"))

    assert codec.decode(codec.encode(FULL)) == FULL
    with pytest.raises(CodecError, match="dict, not ErrorMessage"):
        codec.encode({"graph": "flights"})
    with pytest.raises(CodecError, match="cannot be written"):
        codec.encode(replace(ERROR, declaration={"fn": print}))
    with pytest.raises(CodecError, match="kind"):
        codec.encode(replace(ERROR, kind="other"))


def test_an_error_message_comes_back_as_it_was() -> None:
    """All fields; also without key and payload."""
    for message in (ERROR, FULL, replace(ERROR, key=None, payload=None, context={}, location="")):
        assert error_messages().decode(error_messages().encode(message)) == message


def test_an_error_message_within_its_limit_is_never_cut() -> None:
    """A long text alone is fine."""
    message = replace(ERROR, text="x" * 12_000)

    assert error_messages().decode(error_messages().encode(message)) == message


def test_an_error_message_is_never_larger_than_its_limit_and_says_what_was_cut() -> None:
    """Every field too long at once; multi-byte text is cut between characters."""
    message = replace(
        ERROR,
        text="é" * 100_000,
        exception="E" * 300,
        location="l" * 600,
        context={f"name {n}": "v" * 100 for n in range(1_000)},
        key=b"k" * 100_000,
        payload=b"p" * 1_000_000,
    )
    data = error_messages().encode(message)
    read = error_messages().decode(data)

    assert len(data) <= ERROR_LIMIT
    assert set(read.truncated) == {"text", "exception", "location", "context", "key", "payload"}
    assert read.text == "é" * 2_000
    assert read.context["name 0"] == "v" * 100
    assert read.consumed == message.consumed


def test_a_large_payload_alone_fills_the_message_to_its_limit() -> None:
    """Nothing else is cut."""
    data = error_messages().encode(replace(ERROR, payload=b"p" * 20_000))

    assert ERROR_LIMIT - 20 < len(data) <= ERROR_LIMIT
    assert error_messages().decode(data).truncated == ("payload",)


def test_an_error_message_takes_text_that_utf8_cannot_carry() -> None:
    """The report of a failure must not fail itself."""
    read = error_messages().decode(error_messages().encode(replace(ERROR, text="half \ud800", context={"n": 5})))

    assert (read.text, read.context) == ("half ?", {"n": "5"})


def test_long_causes_traces_and_declarations_are_cut_before_coordinates() -> None:
    """Traces keep their innermost frames. A join of many inputs goes without all of them."""
    frames = tuple(f"{'m' * 100}.py:f:{n}" for n in range(10))
    causes = tuple(ErrorCause("E" * 300, f"{n}" * 5_000, frames) for n in range(5))
    message = replace(FULL, trace=frames, causes=causes, declaration={"opts": ["o" * 2_000]}, payload=b"p" * 9_000)
    read = error_messages().decode(error_messages().encode(message))

    assert set(read.truncated) == {"trace", "causes", "declaration"}
    assert read.trace == frames[-9:]
    assert [one.text for one in read.causes] == ["0" * 400, "1" * 400]
    assert read.payload == message.payload

    many = [Coordinates(f"{n:02}{'b' * 78}", bytes(16), 0, 2**50) for n in range(38)]
    read = error_messages().decode(
        error_messages().encode(replace(message, consumed=tuple(many), topics=("t" * 249,) * 38))
    )
    assert len(read.consumed) == 38
    assert (read.causes, read.declaration, read.payload) == ((), {}, b"")


def test_error_messages_are_json_for_columns_of_spark() -> None:
    """And back; those of earlier releases, too."""
    text = text_of(ErrorMessages(), MadeFor("failed"))

    assert text is not None
    assert error_messages().decode(text.encode(text.decode(error_messages().encode(FULL))) or b"") == FULL
    assert error_messages().decode(text.encode(text.decode(RECORDED)) or b"") == ERROR


def test_a_field_with_a_default_takes_part_in_the_record() -> None:
    """A field that the schema lacks would be lost without an error."""
    names = {each["name"] for each in load_schema("error")["fields"]}

    assert names == {each.name for each in fields(ErrorMessage)} - {"topics"}
