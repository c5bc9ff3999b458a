"""Each case of the table of Protobuf is the value, or the error, that stands beside it."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka import CodecError, Protobuf
from cues_kafka.codecs.protobuf import ProtobufCodec
from tests.unit.codecs.protobuf_cases import CASES, OLD_CASES, Old, Refused, Wide, shown


@pytest.mark.parametrize(("cls", "cases"), [(Wide, CASES), (Old, OLD_CASES)])
def test_bytes_are_the_values_and_errors_that_the_table_says(cls: Any, cases: dict[str, tuple[bytes, str]]) -> None:
    """What is written of a value is read as the same value."""
    codec, found = ProtobufCodec(Protobuf(cls)), {}
    for name, (data, expected) in cases.items():
        try:
            value = codec.decode(data)
        except CodecError as error:
            known = isinstance(expected, Refused) and expected in str(error)
            found[name] = expected if known else str(error)
            continue
        found[name] = shown(value)
        assert shown(codec.decode(codec.encode(value))) == found[name]
    assert found == {name: expected for name, (_, expected) in cases.items()}
