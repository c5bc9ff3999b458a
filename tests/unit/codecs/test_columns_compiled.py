"""Columns by the compiled module beside those without it: the same values, bytes, and errors, also of hostile bytes."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from importlib.machinery import ExtensionFileLoader
from itertools import count
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cues_kafka import Json
from cues_kafka.codecs.arrow.carrying import carrying_with
from cues_kafka.codecs.arrow.compiled import ColumnsModule, module, plain_fields
from cues_kafka.codecs.arrow.reading import QuickReader, reader_with
from cues_kafka.codecs.arrow.writing import LightJsonWriter, ValueWriter, writer_with
from cues_kafka.codecs.json import JsonCodec
from cues_kafka.codecs.lookup import MadeFor
from cues_kafka.ports.log import UNREADABLE
from tests.examples import examples

ROOT = Path(__file__).parents[3]
FIELDS = count()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> ColumnsModule:
    """The module that is installed; where that is older than its sources, one that is made of them."""
    found = module()
    return _made(tmp_path_factory.mktemp("compiled") / "_cues_kafka.abi3.so") if found is None else found


def _made(target: Path) -> ColumnsModule:
    spec = importlib.util.spec_from_file_location("compile_hook", ROOT / ".ci/compile.py")
    assert spec is not None
    assert spec.loader is not None
    hook: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    assert hook.compiled(ROOT / hook.SOURCES, target) == ""
    loader = ExtensionFileLoader("_cues_kafka", str(target))
    own: Any = importlib.util.module_from_spec(
        cast(Any, importlib.util.spec_from_file_location("_cues_kafka", target, loader=loader))
    )
    loader.exec_module(own)
    return cast(ColumnsModule, own)


NAMES = ["a", "b", "id", "name", "long name"]
TYPES: list[Any] = [int, float, bool, str, int | None, float | None, bool | None, str | None]

NUMBERS = [
    *(
        "0",
        "-0",
        "1",
        "-1",
        "01",
        "-",
        "+1",
        "1.",
        ".5",
        "1.0",
        "-0.0",
        "0.0",
        "-0e0",
        "0e5",
        "1e0",
        "1E+2",
        "1e-2",
        "1e",
    ),
    *(
        "123456789012345678",
        "-999999999999999999",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
    ),
    *("1" * 25, "0.1", "0.3", "2.5e-8", "1e22", "1e23", "9007199254740993", "9007199254740993.0", "1e308", "1e309"),
    *(
        "-1e999",
        "4.9e-324",
        "1e-400",
        "123456789.123456789",
        "0.1000000000000000055511151231257827",
        "1.7976931348623159e308",
    ),
    *("8.41e21", "6.02214076e23", "0x1", "1_0", "NaN", "Infinity", "-Infinity", "5e-1 ", "00.5", "1e00005", "1e-00005"),
]
TEXTS = [
    *('""', '"a"', '"plain text of some length"', '"é€😀"', '"\\n\\t\\"\\\\\\/\\b\\f\\r"', '"\\u00e9\\u20ac\\u0000"'),
    *(
        '"\\ud83d\\ude00"',
        '"\\ud800"',
        '"\\udc00x"',
        '"\\u12"',
        '"\\x"',
        '"\\',
        '"',
        '"a\nb"',
        '"\x7f"',
        '"\\u00E9"',
        "'a'",
    ),
    *('"12345678"', '"1234567\\n"', '"12345678\t"', '"1234567é"', '"\\U0041"', '"\\u00g0"', '"12345678\x00"'),
]
OTHERS = [
    *("true", "false", "null", "True", "nul", "tru", "[]", "{}", "[1,2", '{"a":1}', '[{"x":["y",null,-1.5]}]', "[1,]"),
    *(
        '{"x":"\\ud800"}',
        '{"\\u0061":1}',
        "[" * 20 + "]" * 20,
        '{"x":1e999}',
        "[01]",
        "}",
        "]",
        "",
        " ",
        "//",
        '{"a" 1}',
    ),
]
ANY = st.sampled_from([*NUMBERS, *TEXTS, *OTHERS])
BY_TYPE: dict[type[Any], list[str]] = {
    int: NUMBERS[:30], float: NUMBERS, str: TEXTS, bool: OTHERS[:3]
}  # fmt: skip
SPACE = st.sampled_from(["", "", "", "", " ", "\n", "\t\r", "\f", "\v", "\u00a0"])


def classes() -> st.SearchStrategy[type[Any]]:
    """Classes of any plain fields; those that take null have the default None, or none, or a value."""
    fields = st.lists(st.tuples(st.sampled_from(NAMES[:4]), st.sampled_from(TYPES), st.booleans()), min_size=1)
    return fields.map(_class)


def _class(rows: list[tuple[str, Any, bool]]) -> type[Any]:
    made: dict[str, tuple[Any, ...]] = {}
    for name, kind, has_default in rows:
        default = () if not has_default else (field(default=None if type(None) in _kinds(kind) else _kinds(kind)[0]()),)
        made[name] = (kind, *default)
    return make_dataclass(f"Drawn{next(FIELDS)}", [(n, *rest) for n, rest in made.items()], kw_only=True)


def _kinds(kind: Any) -> tuple[Any, ...]:
    return tuple(getattr(kind, "__args__", (kind,)))


@st.composite
def messages_of(draw: Callable[[Any], Any], cls: type[Any]) -> bytes | None:
    """JSON that fits the class nearly or wholly, or bytes of which some were changed."""
    members = []
    for name, kind in cls.__annotations__.items():
        good = BY_TYPE[_kinds(kind)[0]]
        if draw(st.integers(0, 9)):
            members.append((f'"{name}"', draw(st.sampled_from(good) if draw(st.integers(0, 9)) else ANY)))
    if not draw(st.integers(0, 2)):
        members.append((draw(st.sampled_from(['"more"', '"a"', '"\\u0061"', '"é"', '"a"x', "a"])), draw(ANY)))
    if draw(st.booleans()):
        members = draw(st.permutations(members))
    inner = ",".join(f"{draw(SPACE)}{name}{draw(SPACE)}:{draw(SPACE)}{value}{draw(SPACE)}" for name, value in members)
    data = bytearray(f"{{{inner}}}{draw(SPACE)}".encode())
    if draw(st.integers(0, 4)) == 0:
        at, byte = (
            draw(st.integers(0, len(data))),
            draw(st.sampled_from(b'\xff\xc3\xed\xa0\x80\xe2{}[]":,\\ \n0-\x00n')),
        )
        data[at : at + draw(st.integers(0, 2))] = bytes([byte] * draw(st.integers(0, 2)))
    return cast(bytes | None, draw(st.sampled_from([bytes(data)] * 20 + [None, b"", b"null", bytes(data) * 2])))


def seen(reader: Any, values: list[bytes | None]) -> tuple[Any, Any]:
    """Columns, with the sign of a zero, and errors."""
    found = reader.read(values)
    for one in found.arrays:
        one.validate(full=True)
    return [repr(one.to_pylist()) for one in found.arrays], [(at, type(e), str(e)) for at, e in found.failed]


@examples(150)
@given(data=st.data(), cls=classes())
def test_module_reads_what_is_read_without_it(compiled: ColumnsModule, data: st.DataObject, cls: type[Any]) -> None:
    """Each message has its row, or the same error, wherever the others are."""
    codec = JsonCodec(cls)
    quick, slow = (reader_with(one, codec, cast(Any, codec.decode)) for one in (compiled, None))
    assert isinstance(quick, QuickReader)
    values = data.draw(st.lists(messages_of(cls), min_size=1, max_size=8))

    assert seen(quick, values) == seen(slow, values)


@dataclass
class Known:
    """A class that the module reads."""

    whole: int
    number: float
    flag: bool
    text: str
    more: str | None = None


BASE = {"whole": "1", "number": "1.5", "flag": "true", "text": '"t"', "more": '"m"'}


def of(members: dict[str, str]) -> bytes:
    return ("{" + ",".join(f'"{name}":{value}' for name, value in members.items()) + "}").encode()


@pytest.mark.parametrize("name", [*BASE, "unknown"])
def test_every_hostile_value_in_every_field_is_read_as_without_the_module(compiled: ColumnsModule, name: str) -> None:
    """Between good messages, so that each comes out in its place."""
    codec = JsonCodec(Known)
    quick, slow = (reader_with(one, codec, cast(Any, codec.decode)) for one in (compiled, None))
    good = of(BASE)
    values: list[bytes | None] = []
    for value in [*NUMBERS, *TEXTS, *OTHERS]:
        values += [of({**BASE, name: value}), good]
    for byte in range(256):
        values += [of({**BASE, name: '"x~y"'}).replace(b"~", bytes([byte])), good]
    for text in (b"\xc0\x80", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"):
        values += [of({**BASE, name: '"x~y"'}).replace(b"~", text), good]

    assert seen(quick, values) == seen(slow, values)


def test_usual_messages_are_left_to_the_module_alone(compiled: ColumnsModule) -> None:
    """Else it would save nothing: what is not usual is asked of msgspec."""
    codec = JsonCodec(Known)
    reader = reader_with(compiled, codec, cast(Any, codec.decode))
    assert isinstance(reader, QuickReader)
    usual = [
        of(BASE), b" " + of(BASE) + b"\n", of({"text": '"\\u00e9\\n"', **BASE}), of({**BASE, "more": "null"}),
        of({name: value for name, value in BASE.items() if name != "more"}), of({**BASE, "x": '{"y":[1,null,"z"]}'}),
        of({**BASE, "number": "1e300"}), of({**BASE, "whole": "-123456789012345678"}), of(dict(reversed(BASE.items()))),
    ]  # fmt: skip

    assert reader._quick.usual(usual)[1] == []


class Limited(msgspec.Struct):
    """Has a constraint inside of a union, of which no type of a column knows."""

    id: Annotated[int, msgspec.Meta(ge=0)] | None


def test_a_constraint_inside_a_union_is_kept_by_reader_and_writer(compiled: ColumnsModule) -> None:
    codec = JsonCodec(Limited)
    assert plain_fields(codec.shape) is None

    assert [
        at for at, _ in reader_with(compiled, codec, cast(Any, codec.decode)).read([b'{"id":1}', b'{"id":-1}']).failed
    ] == [1]
    writer = writer_with(compiled, Json(Limited), MadeFor("t"))
    assert isinstance(writer, ValueWriter)
    good, bad = writer.encode(pa.RecordBatch.from_pydict({"id": pa.array([1, -1], pa.int64())}, schema=writer.schema))
    assert good == b'{"id":1}'
    assert isinstance(bad, Exception)


ROW = st.fixed_dictionaries(
    {
        "whole": st.integers(-(2**63), 2**63 - 1),
        "number": st.floats(allow_nan=False, allow_infinity=False),
        "flag": st.booleans(),
        "text": st.text(),
        "more": st.none() | st.text(st.characters(max_codepoint=0x7F)),
    }
)


@examples(60)
@given(rows=st.lists(ROW, max_size=6), start=st.integers(0, 3))
def test_module_writes_what_the_codec_writes(compiled: ColumnsModule, rows: list[dict[str, Any]], start: int) -> None:
    """Also rows of a slice."""
    codec, writer = JsonCodec(Known), writer_with(compiled, Json(Known), MadeFor("t"))
    assert isinstance(writer, LightJsonWriter)
    batch = pa.RecordBatch.from_pylist(rows, schema=writer.schema).slice(start)

    assert writer.encode(batch) == [codec.encode(Known(**row)) for row in rows[start:]]
    assert writer._quick is not None
    assert writer._quick.encode(batch) is not None


def test_rows_that_the_module_does_not_write_have_the_outcome_that_they_have_without_it(
    compiled: ColumnsModule,
) -> None:
    good = {"whole": 1, "number": 1.5, "flag": True, "text": "t", "more": None}
    quick, slow = (writer_with(one, Json(Known), MadeFor("t")) for one in (compiled, None))
    for wrong in (math.nan, math.inf):
        batch = pa.RecordBatch.from_pylist([good, {**good, "number": wrong}], schema=quick.schema)
        assert list(map(str, quick.encode(batch))) == list(map(str, slow.encode(batch)))


def test_a_text_that_is_not_utf8_is_not_written_by_the_module(compiled: ColumnsModule) -> None:
    """No checked array holds one; the one that wrote it before decides."""
    bad = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xc3(")])

    assert compiled.write_json(1, ((b'{"a":', 3, 0, *bad.buffers()),)) is None


@pytest.mark.parametrize(
    "column",
    [
        (b"{", 0, 0, None, None, b"1234567"), (b"{", 0, 1, None, None, b"12345678"), (b"{", 2, 8, None, None, b"1"),
        (b"{", 3, 0, None, b"\0\0\0\0", b""), (b"{", 3, 0, b"", b"\0" * 8, b""), (b"{", 9, 0, None, None, b"12345678"),
        (b"{", 0, -1, None, None, b"12345678"),
    ],
)  # fmt: skip
def test_buffers_that_are_too_short_are_refused(compiled: ColumnsModule, column: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match=r"too short|no such column"):
        compiled.write_json(1, (column,))


def test_places_beyond_a_buffer_are_not_followed(compiled: ColumnsModule) -> None:
    assert compiled.write_json(1, ((b"{", 3, 0, None, b"\0\0\0\0\x10\0\0\0", b"short"),)) is None
    assert compiled.write_json(1, ((b"{", 3, 0, None, b"\2\0\0\0\1\0\0\0", b"short"),)) is None


KEYS = st.sampled_from([None, b"", b"k", b"\xff" * 40])
HEADERS = st.sampled_from([None, [], [("a", b"x")]])
CARRIED = st.tuples(st.integers(0, 2**63 - 1), KEYS, st.none() | st.binary(), HEADERS, st.integers(-1, 2**40))


@examples(30)
@given(rows=st.lists(CARRIED, min_size=1, max_size=20))
def test_what_messages_carry_is_what_their_methods_say(compiled: Any, rows: list[Any]) -> None:
    """Also the column `_cues`."""
    messages = [compiled.message("t", 0, offset, *rest) for offset, *rest in rows]

    found, expected = carrying_with(compiled, messages), carrying_with(None, messages)

    assert found is not None
    assert expected is not None
    found.place.validate(full=True)
    assert [list(one) for one in found[:4]] == [list(one) for one in expected[:4]]
    assert found.place.equals(expected.place)


def test_messages_whose_headers_cannot_be_read_are_told_apart(compiled: Any) -> None:
    good = compiled.message("t", 0, 1, b"k", b"v", None, 5)
    bad = compiled.message("t", 0, 2, b"k", b"v", UNREADABLE, 5)

    assert carrying_with(compiled, [good, bad]) is None
    assert compiled.carried([good, object()]) is None
