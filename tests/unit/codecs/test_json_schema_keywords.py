"""JSON Schema: numbers as decimals, patterns of ECMA-262, and schemas that are none."""

from __future__ import annotations

import contextlib
import json
import random
import re
import time
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from cues_kafka import CodecError, GraphError, JsonSchema
from cues_kafka.codecs.json_matching import MOST_KEPT, _Search
from cues_kafka.codecs.json_patterns import translated
from cues_kafka.codecs.json_schema import JsonSchemaCodec


@pytest.mark.parametrize(
    ("divisor", "good", "bad"),
    [
        (0.01, [19.99, 0.07, 1.15, 0, 4, 1e308, -0.01, 123456789.01], [0.001, 19.999]),
        (0.1, [0.3, 1.1, -7.7], [0.35]),
        (1e-7, [0.0000003], [1e-8]),
        (3, [9, -3, 0, 9.0], [10, 9.5]),
        (1.5, [3, 4.5], [2]),
        (2**70, [2**71], [2**69]),
    ],
)
def test_multiples_are_those_of_decimals(divisor: Any, good: list[Any], bad: list[Any]) -> None:
    """Floats of 19.99 and 0.01 are no multiples; the numbers in the message are."""
    codec = JsonSchemaCodec(JsonSchema({"type": "number", "multipleOf": divisor}))
    for value in good:
        assert codec.decode(json.dumps(value).encode()) == value
    for value in bad:
        with pytest.raises(CodecError, match="is not a multiple of"):
            codec.decode(json.dumps(value).encode())


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"^\p{L}+$", ["Zürich", "λόγος"], ["a1", "", "a\n"]),
        (r"^\P{L}$", ["1", "-"], ["a"]),
        (r"^[\p{Lu}\d_-]+$", ["Ä1_-"], ["ä"]),
        (r"^[^\p{L}]$", ["1"], ["a"]),
        (r"^\p{Uppercase_Letter}\p{gc=Nd}$", ["A1"], ["a1"]),
        (r"^(?<year>\d{4})-\k<year>$", ["2024-2024"], ["2024-2025", "٢٠٢٤-٢٠٢٤"]),
        (r"^\w+$", ["a_1"], ["ä"]),
        (r"^\W$", ["ä", "-"], ["a"]),
        (r"^\s$", ["\u00a0", "\ufeff", " "], ["\x1c", "a"]),
        (r"^[^\S\n]$", [" "], ["\n", "a"]),
        (r"^.$", ["a", "\u0085"], ["\n", "\r", "\u2028"]),
        (r"^a$", ["a"], ["a\n", "b\na"]),
        (r"^[[&&a]$", ["[", "&", "a"], ["b"]),
        (r"^[^]$", ["a", "\n"], ["", "ab"]),
        (r"[]", [], ["", "a"]),
        (r"^\u{1F600}[\u{1F601}-\u{1F603}]$", ["\U0001f600\U0001f602"], ["\U0001f600\U0001f604"]),
        (r"^\x41\u0042\cJ\/\-\0$", ["AB\n/-\0"], ["AB"]),
        (r"\bab\b", ["ab", "äab"], ["abc"]),
        (r"^(?:a|b)(?=c)c(?<!d)(?!e)$", ["ac"], ["ae"]),
        (r"^[\b]$", ["\b"], ["b"]),
        (r"^[\w-.]$", ["-", ".", "a"], ["!"]),
        (r"^(a)\1$", ["aa"], ["ab"]),
        (r"^a{2,3}?$", ["aaa"], ["a"]),
    ],
)
def test_a_pattern_means_what_it_means_in_ecma_262(pattern: str, good: list[str], bad: list[str]) -> None:
    """In `pattern` and in `patternProperties`, with `additionalProperties`."""
    codec = JsonSchemaCodec(JsonSchema({"type": "string", "pattern": pattern}))
    keys = JsonSchemaCodec(JsonSchema({"patternProperties": {pattern: True}, "additionalProperties": False}))
    for text in good:
        assert codec.decode(json.dumps(text).encode()) == text
        assert keys.decode(json.dumps({text: 1}).encode()) == {text: 1}
    for text in bad:
        with pytest.raises(CodecError, match="does not match " + re.escape(repr(pattern))):
            codec.decode(json.dumps(text).encode())
        with pytest.raises(CodecError, match=r"do(es)? not match"):
            keys.decode(json.dumps({text: 1}).encode())


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"\p{Script=Greek}", "Script=Greek.*, which is known for general categories only.*Write the characters"),
        (r"\p{Emoji}", "general categories only"),
        (r"\pL", "general categories only"),
        ("(", "not a regular expression"),
        ("[a", r"a \[ without its \]"),
        ("[z-a]", "ends before it begins"),
        ("a\\", "ends with a backslash"),
        (r"\u{110000}", "not a character"),
        ("a**", "not a regular expression"),
    ],
)
def test_a_pattern_that_is_none_is_refused_by_name(pattern: str, text: str) -> None:
    """Where the graph is declared, with the remedy."""
    for schema in ({"pattern": pattern}, {"properties": {"a": {"patternProperties": {pattern: True}}}}):
        with pytest.raises(GraphError, match=text):
            JsonSchemaCodec(JsonSchema(schema))


def test_a_pattern_in_a_value_is_not_touched() -> None:
    """What looks like a keyword may be data."""
    codec = JsonSchemaCodec(JsonSchema({"enum": [{"pattern": "\\d"}], "default": {"pattern": "["}}))
    assert codec.decode(b'{"pattern": "\\\\d"}') == {"pattern": "\\d"}


def test_patterns_of_references_are_translated() -> None:
    """And those behind a `$ref` inside of the schema."""
    schema = {"properties": {"a": {"$ref": "name.json"}, "b": {"$ref": "#/definitions/b"}},
              "definitions": {"b": {"pattern": "^\\p{Nd}$"}}}  # fmt: skip
    codec = JsonSchemaCodec(JsonSchema(schema, references={"name.json": {"pattern": "^\\p{L}$"}}))
    assert codec.decode('{"a": "ä", "b": "1"}'.encode()) == {"a": "ä", "b": "1"}
    for bad in (b'{"a": "1"}', b'{"b": "a"}'):
        with pytest.raises(CodecError, match="does not match"):
            codec.decode(bad)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": []},
        {"properties": {"a": 5}},
        {"items": 5},
        {"allOf": {}},
        {"definitions": [1]},
        {"patternProperties": []},
        {"pattern": 5},
        {"required": "a"},
        {"type": "no"},
        {"multipleOf": 0},
        {"multipleOf": "a"},
        {"$ref": 5},
        {"$schema": 5},
        {"$id": 5},
        {"dependencies": []},
        {"enum": 5},
    ],
)
def test_a_malformed_schema_is_refused(schema: Any) -> None:
    """As a GraphError, also in a reference; in a registry it is a CodecError of the message."""
    with pytest.raises(GraphError, match="this is not a JSON Schema"):
        JsonSchemaCodec(JsonSchema(schema))
    try:
        JsonSchemaCodec(JsonSchema({"$ref": "a.json"}, references={"a.json": schema}))
    except GraphError as error:
        assert "this is not a JSON Schema" in str(error)  # noqa: PT017  some are only looked at when they are followed


def test_translation_is_found_once() -> None:
    """A category is a walk over all characters."""
    assert translated(r"\p{Sc}") is translated(r"\p{Sc}")


INTEGER: dict[str, Any] = {"type": "integer"}
NEW: dict[str, Any] = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
KEYS = [f"{at}" for at in range(40_000)]

LINKED = {"anyOf": [{"enum": [None, [], {}]}, {"type": "object", "properties": {"next": {"$ref": "#"}}}]}
"""A list whose end is null, as classes have it."""

LONG: Any = {"rest": [*range(300_000)]}
for _ in range(90):
    LONG = {"next": LONG}

SLOW = [
    ({"pattern": "^(a+)+$"}, "a" * 60 + "b"),
    ({"pattern": "^(a|a)*$"}, "a" * 60 + "b"),
    ({"pattern": "a+b"}, "a" * 500_000),
    ({"pattern": "^(a?){40}a{40}$"}, "a" * 39),
    ({"pattern": "^a*a*a*a*a*a*a*a*b$"}, "a" * 190),
    ({"pattern": r"^([a-z0-9_.-])+@(([a-z0-9-])+\.)+([a-z0-9]{2,4})+$"}, "a@" + "b." * 20 + "c" * 60 + "!"),
    ({"patternProperties": {"^(a+)+$": False}}, {"a" * 60 + "b": 1}),
    ({"patternProperties": {"^(a+)+$": True}, "additionalProperties": False}, {"a" * 60 + "b": 1}),
    ({"propertyNames": {"pattern": "^(a+)+$"}}, {"a" * 60 + "b": 1}),
    ({"items": {"enum": list(range(2_000))}}, [1_999] * 100_000),
    ({"items": {"enum": [f"{at}" for at in range(2_000)]}}, ["x"] + ["1999"] * 100_000),
    ({"pattern": "^" + "(?:a|aa)" * 40 + "b"}, "a" * 60),
    ({"pattern": "[^,]{0,190};"}, "".join(map(chr, range(0x4E00, 0x9E00)))),
    (LINKED, LONG),
    (NEW | {"patternProperties": {"^(a+)+$": {}}, "unevaluatedProperties": False}, {"a" * 60 + "b": 1}),
    (NEW | {"allOf": [{"additionalProperties": INTEGER}], "unevaluatedProperties": False}, dict.fromkeys(KEYS, 1)),
    (NEW | {"contains": INTEGER, "unevaluatedItems": False}, list(range(40_000))),
]


@pytest.mark.parametrize(("schema", "value"), SLOW)
def test_small_messages_are_small_work(schema: dict[str, Any], value: Any) -> None:
    """Python's `re` would look for years, and the library compare 200 million values."""
    codec, began = JsonSchemaCodec(JsonSchema(schema)), time.process_time()
    with contextlib.suppress(CodecError):
        codec.decode(json.dumps(value).encode())
    assert time.process_time() - began < 5


def _pattern(draw: random.Random, depth: int = 0) -> str:
    """A pattern over three letters."""
    kind = draw.randrange(9 if depth < 4 else 3)
    if kind < 3:
        return draw.choice(["a", "b", "c", "[ab]", "[^a]", r"[\s\S]", r"\d", "^", r"\Z", ""])
    one = _pattern(draw, depth + 1)
    match kind:
        case 3:
            return f"({one}|{_pattern(draw, depth + 1)})"
        case 4 | 5:
            return one + _pattern(draw, depth + 1)
        case 6:
            return f"({one}){draw.choice('*+?')}"
    return f"(?:{one}){draw.choice(['{2}', '{1,3}', '{0,2}?', '{2,}', '*?'])}"


def test_flags_of_a_pattern_count() -> None:
    """ECMA-262 has none before a pattern, and `re` takes them."""
    codec = JsonSchemaCodec(JsonSchema({"pattern": "(?i)^[a-z]+[0-9]*[x-z]*$"}))
    assert codec.decode(b'"ABC"') == "ABC"


def test_memory_of_a_search_does_not_grow_with_the_text() -> None:
    """Each letter leads to other states, so what is remembered of them has a bound."""
    found = _Search(parser.parse("(?:a|b)*a(?:a|b){150}c"))
    draw = random.Random(3)
    text = "".join(draw.choice("ab") for _ in range(5_000))
    found.found(text)
    assert sum(map(len, found._steps.values())) <= MOST_KEPT


@pytest.mark.parametrize("dialect", ["2019-09", "2020-12"])
@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"properties": {"a": {}}, "patternProperties": {"^b": {}}}, [{"a": 1, "bb": 1}], [{"c": 1}]),
        ({"allOf": [{"$ref": "#/$defs/one"}], "$defs": {"one": {"properties": {"a": {}}}}}, [{"a": 1}], [{"b": 1}]),
        ({"anyOf": [{"required": ["a"], "properties": {"a": {}}}, True]}, [{"a": 1}], [{"b": 1}]),
        (
            {"if": {"required": ["a"]}, "then": {"properties": {"a": {}}}, "else": {"properties": {"b": {}}}},
            [{"a": 1}, {"b": 1}],
            [{"a": 1, "b": 1}, {"c": 1}],
        ),
        ({"dependentSchemas": {"a": {"properties": {"a": {}, "b": {}}}}}, [{"a": 1, "b": 1}], [{"b": 1}]),
        ({"allOf": [{"additionalProperties": INTEGER}]}, [{"a": 1}], []),
        ({"contains": INTEGER}, [[1, 2]], [[1, "a"]]),
        ({"anyOf": [{"items": INTEGER}, True]}, [[1, 2]], [[1, "a"]]),
    ],
)
def test_what_no_keyword_evaluates_is_refused(
    dialect: str, schema: dict[str, Any], good: list[Any], bad: list[Any]
) -> None:
    """As the standard says, and the library where it is bounded."""
    whole = {"$schema": f"https://json-schema.org/draft/{dialect}/schema", **schema}
    codec = JsonSchemaCodec(JsonSchema(whole | {"unevaluatedProperties": False, "unevaluatedItems": False}))
    for value in good:
        assert codec.decode(json.dumps(value).encode()) == value
    for value in bad:
        with pytest.raises(CodecError, match=r"Unevaluated (properties|items) are not allowed"):
            codec.decode(json.dumps(value).encode())


def test_search_finds_what_re_finds() -> None:
    """In texts that `re` can search."""
    draw, seen = random.Random(7), set()
    for _ in range(1_500):
        pattern = _pattern(draw)
        search, found = re.compile(pattern).search, _Search(parser.parse(pattern)).found
        for _ in range(6):
            text = "".join(draw.choice("abc1\n") for _ in range(draw.randrange(7)))
            assert found(text) == (search(text) is not None), (pattern, text)
            seen.add(found(text))
    assert seen == {True, False}


def test_patterns_beside_each_other_keep_their_groups() -> None:
    """Joined into one, the second would refer to the first one's group, and a name could not be given twice."""
    patterns = {r"^(a)\1$": True, r"^(b)\1$": True, r"^(?<x>c)$": True, r"^(?<x>d)$": True}
    codec = JsonSchemaCodec(JsonSchema({"patternProperties": patterns, "additionalProperties": False}))
    value = {"aa": 1, "bb": 1, "c": 1, "d": 1}
    assert codec.decode(json.dumps(value).encode()) == value
    with pytest.raises(CodecError, match="'ba' does not match any"):
        codec.decode(b'{"ba": 1}')


def test_options_of_an_enum_are_those_of_json() -> None:
    """Where true is not 1, and 1.0 is."""
    codec = JsonSchemaCodec(JsonSchema({"enum": [1, "a", None, [1, {"b": False}], {"c": 2}]}))
    for text in ("1", "1.0", '"a"', "null", '[1.0, {"b": false}]', '{"c": 2.0}'):
        codec.decode(text.encode())
    for text in ("true", '"1"', "0", '[true, {"b": false}]', '[1, {"b": 0}]', '{"c": "2"}'):
        with pytest.raises(CodecError, match="is not one of"):
            codec.decode(text.encode())
