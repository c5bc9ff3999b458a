"""
The keywords `unevaluatedProperties` and `unevaluatedItems` of JSON Schema, in time that grows with the value.

The library searches the patterns of `patternProperties` by `re`, and keeps what it has found in lists, where it looks
for each property and each item. So a small message could keep it busy for hours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from referencing.jsonschema import lookup_recursive_ref

from cues_kafka.codecs.json_matching import finder

REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
"""The keywords that name another schema."""

Own: TypeAlias = Callable[[Any, Any, Any], set[Any]]
"""The keys, or the numbers of the items, that keywords of one schema evaluate."""


def unevaluated_properties(validator: Any, inner: Any, instance: Any, schema: Any) -> str:
    """What the library says of properties that no keyword evaluates, and that do not fit `inner`; empty: none."""
    if not isinstance(instance, dict):
        return ""
    seen = _evaluated(validator, instance, schema, _keys)
    wrong = sorted(key for key in instance if key not in seen and not _fits(validator, instance[key], inner))
    if not wrong:
        return ""
    if inner is False:
        return f"Unevaluated properties are not allowed ({_shown(wrong)} unexpected)"
    return f"Unevaluated properties are not valid under the given schema ({_shown(wrong)} unevaluated and invalid)"


def unevaluated_items(validator: Any, _: Any, instance: Any, schema: Any) -> str:
    """Likewise of items. Those that fit the keyword's own schema count as evaluated."""
    if not isinstance(instance, list):
        return ""
    seen = _evaluated(validator, instance, schema, _numbers)
    wrong = [item for at, item in enumerate(instance) if at not in seen]
    return f"Unevaluated items are not allowed ({_shown(wrong)} unexpected)" if wrong else ""


def _shown(wrong: list[Any]) -> str:
    return f"{', '.join(map(repr, wrong))} {'was' if len(wrong) == 1 else 'were'}"


def _evaluated(validator: Any, instance: Any, schema: Any, own: Own) -> set[Any]:
    """What a schema, and those that it applies to the same value, evaluate."""
    if not isinstance(schema, dict):
        return set()
    found = own(validator, instance, schema)
    for keyword in REFERENCES:
        if keyword in schema:
            resolver = validator._resolver  # noqa: SLF001 - there is no public way
            recursive = keyword == "$recursiveRef"
            other = lookup_recursive_ref(resolver) if recursive else resolver.lookup(schema[keyword])
            there = validator.evolve(schema=other.contents, _resolver=other.resolver)
            found |= _evaluated(there, instance, other.contents, own)
    for inner in _applied(validator, instance, schema):
        found |= _evaluated(validator, instance, inner, own)
    return found


def _applied(validator: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """The schemas inside of a schema that the same value fits."""
    for keyword in ("allOf", "oneOf", "anyOf"):
        yield from (one for one in schema.get(keyword, ()) if _fits(validator, instance, one))
    if "if" in schema:
        holds = _fits(validator, instance, schema["if"])
        yield schema["if"] if holds else True
        yield schema.get("then" if holds else "else", True)
    if isinstance(instance, dict):
        yield from (one for key, one in schema.get("dependentSchemas", {}).items() if key in instance)


def _keys(validator: Any, instance: Any, schema: Any) -> set[Any]:
    found: set[Any] = schema.get("properties", {}).keys() & instance.keys()
    tests = [*map(finder, schema.get("patternProperties", {}))]
    found |= {key for key in instance if any(test(key) for test in tests)}
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        if keyword in schema:
            found |= {key for key, value in instance.items() if _fits(validator, value, schema[keyword])}
    return found


def _numbers(validator: Any, instance: Any, schema: Any) -> set[Any]:
    items = schema.get("items")
    if items is not None and (not isinstance(items, list) or "additionalItems" in schema):
        return set(range(len(instance)))
    first = items or (schema.get("prefixItems", ()) if "prefixItems" in validator.VALIDATORS else ())
    found = set(range(len(first)))
    for keyword in ("contains", "unevaluatedItems"):
        if keyword in schema:
            found |= {at for at, item in enumerate(instance) if _fits(validator, item, schema[keyword])}
    return found


def _fits(validator: Any, value: Any, schema: Any) -> bool:
    return next(validator.descend(value, schema), None) is None
