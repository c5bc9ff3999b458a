"""Messages of Protobuf as bytes, each with the value or the error that it is; native workers and Spark read them."""

from __future__ import annotations

import struct
from typing import Any

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    struct_pb2,
    text_format,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.internal.encoder import _VarintBytes
from google.type import decimal_pb2

_Field = descriptor_pb2.FieldDescriptorProto
_FILES = (timestamp_pb2, duration_pb2, wrappers_pb2, struct_pb2, any_pb2, decimal_pb2)

_FIELDS = """
    1 bool flag
    2 int64 whole
    3 double number
    4 float single
    5 string text
    6 bytes data
    7 .cues.values.Color color
    8 .google.protobuf.Timestamp at
    9 repeated .google.protobuf.Timestamp times
    10 map string int64 counts
    11 map string .cues.values.Inner inners
    12 map int32 string names
    13 .cues.values.Inner inner
    14 repeated .cues.values.Inner many
    15 repeated int64 items
    16 oneof int64 by_number
    17 oneof string by_name
    18 oneof .cues.values.Inner by_inner
    19 optional int64 maybe
    20 uint64 unsigned
    21 sint64 zigzag
    22 int32 small
    23 .google.protobuf.Duration duration
    24 .google.protobuf.StringValue perhaps
    25 .google.type.Decimal price
    26 .google.protobuf.Struct anything
    27 .google.protobuf.Any packed
    28 repeated .cues.values.Color colors
"""
"""The fields of `Wide`: number, kind, type and name."""


def _add(message: Any, line: str) -> None:
    """One field; a map is a list of messages of key and value."""
    number, *kinds, name = line.split()
    if kinds[0] == "map":
        entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
        entry.options.map_entry = True
        for one in (f"1 {kinds[1]} key", f"2 {kinds[2]} value"):
            _add(entry, one)
        kinds = ["repeated", f".cues.values.{message.name}.{entry.name}"]
    field = message.field.add(name=name, number=int(number))
    field.label = _Field.LABEL_REPEATED if kinds[0] == "repeated" else _Field.LABEL_OPTIONAL
    if not kinds[-1].startswith("."):
        field.type = _Field.Type.Value(f"TYPE_{kinds[-1].upper()}")
    else:
        field.type_name = kinds[-1]
        field.type = _Field.TYPE_ENUM if kinds[-1].endswith(".Color") else _Field.TYPE_MESSAGE
    if kinds[0] == "oneof":
        field.oneof_index = 0
    if kinds[0] == "optional":
        field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")


def _files() -> list[Any]:
    new = descriptor_pb2.FileDescriptorProto(name="cues/values.proto", package="cues.values", syntax="proto3")
    new.dependency.extend(one.DESCRIPTOR.name for one in _FILES)
    new.enum_type.add(name="Color").value.extend(
        descriptor_pb2.EnumValueDescriptorProto(name=name, number=number) for number, name in enumerate(("RED", "BLUE"))
    )
    inner, wide = new.message_type.add(name="Inner"), new.message_type.add(name="Wide")
    _add(inner, "1 int64 a")
    _add(inner, "2 optional string b")
    wide.oneof_decl.add(name="choice")
    for line in _FIELDS.strip().splitlines():
        _add(wide, line)
    old = descriptor_pb2.FileDescriptorProto(name="cues/old_values.proto", package="cues.values.old", syntax="proto2")
    old.enum_type.add(name="Size").value.add(name="SMALL", number=0)
    record = old.message_type.add(name="Old")
    record.field.add(name="id", number=1, type=_Field.TYPE_INT64, label=_Field.LABEL_REQUIRED)
    record.field.add(name="text", number=2, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL, default_value="none")
    record.field.add(
        name="size", number=3, type=_Field.TYPE_ENUM, type_name=".cues.values.old.Size", label=_Field.LABEL_OPTIONAL
    )
    return [new, old]


def _classes() -> tuple[Any, Any]:
    pool = descriptor_pool.Default()
    for file in _files():
        pool.AddSerializedFile(file.SerializeToString())
    named = (pool.FindMessageTypeByName(name) for name in ("cues.values.Wide", "cues.values.old.Old"))
    wide, old = map(message_factory.GetMessageClass, named)
    return wide, old


Wide, Old = _classes()


def shown(value: Any) -> str:
    """A message as text, with fields that its class does not know."""
    return str(text_format.MessageToString(value, as_one_line=True, as_utf8=True, print_unknown_fields=True))


def _varint(number: int, value: int) -> bytes:
    """A field that is a whole number; a negative one has the 64 bits of its two's complement."""
    return bytes(_VarintBytes(number << 3) + _VarintBytes(value & (2**64 - 1)))


def _sized(number: int, body: bytes) -> bytes:
    """A field that is text, bytes, a message or a packed list."""
    return bytes(_VarintBytes(number << 3 | 2) + _VarintBytes(len(body)) + body)


def _time(seconds: int, nanos: int = 0) -> bytes:
    return bytes(Wide(at={"seconds": seconds, "nanos": nanos}).SerializeToString())


def _double(value: float) -> bytes:
    return b"\x19" + struct.pack("<d", value)


class Refused(str):
    """The message is an error, whose text has this in it."""

    __slots__ = ()


_NO = Refused("The message is not a cues.values.Wide")
_DEEP = 101

CASES: dict[str, tuple[bytes, str]] = {
    # Fields: left out, added, twice, of another type.
    "nothing": (b"", ""),
    "default that is written": (b"\x10\x00", ""),
    "added": (_sized(99, b"x"), '99: "x"'),
    "added number": (_varint(98, 7), "98: 7"),
    "twice": (_varint(2, 1) + _varint(2, 2), "whole: 2"),
    "text for a number": (_sized(2, b"5"), '2: "5"'),
    "number for text": (_varint(5, 5), "5: 5"),
    "fixed for a number": (b"\x11" + bytes(8), "2: 0"),
    "number for a record": (_varint(13, 5), "13: 5"),
    "two for true": (_varint(1, 2), "flag: true"),
    # What may be left out and is told apart from a default.
    "maybe is not there": (_varint(2, 1), "whole: 1"),
    "maybe is 0": (_varint(19, 0), "maybe: 0"),
    "maybe is 5": (_varint(19, 5), "maybe: 5"),
    "perhaps is empty": (_sized(24, b""), "perhaps { }"),
    "perhaps has text": (_sized(24, _sized(1, b"x")), 'perhaps { value: "x" }'),
    "inner is empty": (_sized(13, b""), "inner { }"),
    # Whole numbers.
    "least": (_varint(2, -(2**63)), "whole: -9223372036854775808"),
    "most": (_varint(2, 2**63 - 1), "whole: 9223372036854775807"),
    "most without a sign": (_varint(20, 2**64 - 1), "unsigned: 18446744073709551615"),
    "beyond 63 bits in a signed one": (_varint(2, 2**63), "whole: -9223372036854775808"),
    "more than 64 bits": (b"\x10" + b"\xff" * 9 + b"\x7f", "whole: -1"),
    "much more than 64 bits": (b"\x10" + b"\xff" * 10 + b"\x01", _NO),
    "zigzag": (_varint(21, 2**64 - 1), "zigzag: -9223372036854775808"),
    "small one below 0": (_varint(22, -1), "small: -1"),
    "more than a small one holds": (_varint(22, 2**32 + 7), "small: 7"),
    # Numbers.
    "not a number": (_double(float("nan")), "number: nan"),
    "infinity": (_double(float("inf")), "number: inf"),
    "minus infinity": (_double(float("-inf")), "number: -inf"),
    "negative zero": (_double(-0.0), "number: -0.0"),
    "small number": (_double(5e-324), "number: 5e-324"),
    "sum of tenths": (_double(0.1 + 0.2), "number: 0.30000000000000004"),
    "single tenth": (b"\x25" + struct.pack("<f", 0.1), "single: 0.1"),
    "price": (_sized(25, _sized(1, b"1.005")), 'price { value: "1.005" }'),
    "price that is not a number": (_sized(25, _sized(1, b"cheap")), 'price { value: "cheap" }'),
    "price of 40 digits": (_sized(25, _sized(1, b"9" * 40)), f'price {{ value: "{"9" * 40}" }}'),
    # Text and bytes.
    "umlauts": (_sized(5, "Zürich".encode()), 'text: "Zürich"'),
    "beyond the plane": (_sized(5, "😀".encode()), 'text: "😀"'),
    "zero byte": (_sized(5, b"a\0b"), r'text: "a\000b"'),
    "text in latin": (_sized(5, b"Z\xfcrich"), _NO),
    "half a pair": (_sized(5, b"\xed\xa0\xbd"), _NO),
    "key in latin": (_sized(10, _sized(1, b"\xfc") + _varint(2, 1)), _NO),
    "bytes that are no text": (_sized(6, b"\xff\0"), r'data: "\377\000"'),
    # Times: the calendar of `Timestamp` is from year 1 to 9999, and its bytes hold more.
    "time": (_time(1_782_907_200, 123_456_789), "at { seconds: 1782907200 nanos: 123456789 }"),
    "time 0": (_time(0), "at { }"),
    "time 1": (_time(1), "at { seconds: 1 }"),
    "time -1": (_time(-1), "at { seconds: -1 }"),
    "before the epoch": (_time(-1, 999_999_999), "at { seconds: -1 nanos: 999999999 }"),
    "first year": (_time(-62_135_596_800), "at { seconds: -62135596800 }"),
    "last year": (_time(253_402_300_799, 999_999_999), "at { seconds: 253402300799 nanos: 999999999 }"),
    "behind the last year": (_time(253_402_300_800), "at { seconds: 253402300800 }"),
    "nanos below 0": (_time(5, -1), "at { seconds: 5 nanos: -1 }"),
    "times": (_sized(9, b"") + _sized(9, _varint(1, -1)), "times { } times { seconds: -1 }"),
    "duration": (_sized(23, _varint(1, -3)), "duration { seconds: -3 }"),
    # Names.
    "color": (_varint(7, 1), "color: BLUE"),
    "unknown color": (_varint(7, 9), "color: 9"),
    "color below 0": (_varint(7, -1), "color: -1"),
    "colors": (_sized(28, b"\x01\x09\x00"), "colors: BLUE colors: 9 colors: RED"),
    # Lists, maps, records, one of several.
    "items": (_sized(15, b"\x01\x02\x00"), "items: 1 items: 2 items: 0"),
    "items one by one": (_varint(15, 1) + _varint(15, 2), "items: 1 items: 2"),
    "items, cut": (_sized(15, b"\x01\xff"), _NO),
    "counts": (_sized(10, _sized(1, b"a") + _varint(2, 1)), 'counts { key: "a" value: 1 }'),
    "counts, one key twice": (
        _sized(10, _sized(1, b"a") + _varint(2, 1)) + _sized(10, _sized(1, b"a") + _varint(2, 2)),
        'counts { key: "a" value: 2 }',
    ),
    "counts without key and value": (_sized(10, b""), "counts { }"),
    "names": (_sized(12, _varint(1, -1) + _sized(2, b"x")), 'names { key: -1 value: "x" }'),
    "inners": (
        _sized(11, _sized(1, b"a") + _sized(2, _varint(1, 5))) + _sized(11, _sized(1, b"b")),
        'inners { key: "a" value { a: 5 } } inners { key: "b" value { } }',
    ),
    "inner": (_sized(13, _varint(1, 1) + _sized(2, b"")), 'inner { a: 1 b: "" }'),
    "inner in two pieces": (_sized(13, _varint(1, 1)) + _sized(13, _sized(2, b"x")), 'inner { a: 1 b: "x" }'),
    "many": (_sized(14, _varint(1, 1)) + _sized(14, b""), "many { a: 1 } many { }"),
    "first of the choice": (_varint(16, 0), "by_number: 0"),
    "the last one of the choice counts": (_varint(16, 1) + _sized(17, b"x"), 'by_name: "x"'),
    "choice of a record": (_sized(17, b"x") + _sized(18, _varint(1, 2)), "by_inner { a: 2 }"),
    "anything": (
        Wide(anything={"x": [1.5]}).SerializeToString(),
        'anything { fields { key: "x" value { list_value { values { number_value: 1.5 } } } } }',
    ),
    "packed in an envelope": (
        _sized(27, _sized(1, b"x/none.Such") + _sized(2, b"\x08\x01")),
        r'packed { type_url: "x/none.Such" value: "\010\001" }',
    ),
    # What is no Protobuf.
    "cut": (_sized(5, b"ab")[:-1], _NO),
    "cut in a number": (b"\x10\xff", _NO),
    "no tag": (b"\x0b", _NO),
    "field 0": (b"\x00\x01", _NO),
    "wire type 7": (b"\x17", _NO),
    "end of no group": (b"\x14", _NO),
    "json": (b'{"whole": 1}', _NO),
    "deep": (Wide(whole=1).SerializeToString() + b"\xa3\x06" * _DEEP + b"\xa4\x06" * _DEEP, _NO),
}
"""Bytes of each case, and the value as text, for `Wide`."""

OLD_CASES: dict[str, tuple[bytes, str]] = {
    "required is there": (b"\x08\x00", "id: 0"),
    "required is missing": (b"", Refused("it lacks id")),
    "default": (b"\x08\x01\x12\x00", 'id: 1 text: ""'),
    "closed names": (b"\x08\x01\x18\x05", "id: 1 3: 5"),
    "text in latin": (b"\x08\x01\x12\x01\xfc", r'id: 1 text: "\374"'),
}
"""The same for `Old`, whose file is of proto2."""
