"""Checks values against a JSON Schema: with bounded work, and without a network.

The library follows each `$ref` as often as the value asks for, compares the items of an array with each other and with
each item of an `enum`, and searches patterns by `re`. So a small message could keep it busy for hours; here all of
these are bounded.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any, Final

from jsonschema import validators
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.validators import Draft7Validator
from jsonschema_specifications import REGISTRY
from referencing import Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from cues_kafka.codecs.json_matching import finder
from cues_kafka.codecs.json_patterns import translated
from cues_kafka.codecs.json_unevaluated import REFERENCES, unevaluated_items, unevaluated_properties
from cues_kafka.graph.declare import Limits

MAX_SCHEMA_CHARS: Final = 1024 * 1024


class Misfit(ValueError):
    """
    A value does not fit, or asks for too much work.

    Attributes:
        path: where, such as ``.lines[3].price``; empty: the value itself.
    """

    def __init__(self, path: str, text: str) -> None:
        super().__init__(text)
        self.path = path


class Validation:
    """
    Checks values of one schema. Threads share it.

    Args:
        text: the schema as JSON.
        references: the schemas that it names, as (name, JSON).
        limits: of nesting, and of the references that are followed.

    Attributes:
        title: of the schema; empty: it has none.

    Raises:
        ValueError: it is no JSON Schema, or names one that is not there.
    """

    def __init__(self, text: str, references: Sequence[tuple[str, str]], limits: Limits) -> None:
        self._limits = limits
        self._work = threading.local()
        self._patterns: dict[str, str] = {}
        self._enums: dict[int, _Options] = {}
        try:
            schema = _parsed(text)
            dialect: Any = validators.validator_for(schema, default=Draft7Validator)
            named = [(name, self._resource(_parsed(one), Draft7Validator)) for name, one in references]
            registry = REGISTRY.with_resources(named)
            resource = self._resource(schema, dialect)
            _check_references(resource, registry.resolver_with_root(resource))
            for one in (schema, *(found.contents for _, found in named)):
                validators.validator_for(one, default=Draft7Validator).check_schema(one)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        except SchemaError as error:
            raise ValueError(f"{_path(error.absolute_path) or 'it'}: {error.message:.300}") from None
        except Unresolvable as error:
            raise ValueError(f"it names {error.ref!r:.200}, which is not here; add references=") from None
        except (ValueError, MemoryError):
            raise
        except Exception as error:  # the libraries raise what their own code meets in odd schemas
            raise ValueError(f"it is malformed: {type(error).__name__}: {error}"[:300]) from error
        self.title = str(schema.get("title", "")) if isinstance(schema, dict) else ""
        bounded = {key: self._followed(each) for key in REFERENCES if (each := dialect.VALIDATORS.get(key))}
        bounded |= {"uniqueItems": _unique, "anyOf": _any_of, "oneOf": _one_of}
        bounded |= {"multipleOf": _multiple_of, "pattern": self._pattern, "enum": self._enum}
        bounded |= {"patternProperties": _pattern_properties, "additionalProperties": _additional_properties}
        if "unevaluatedProperties" in dialect.VALIDATORS:
            bounded["unevaluatedProperties"] = _keyword(unevaluated_properties)
            bounded["unevaluatedItems"] = _keyword(unevaluated_items)
        self._validator: Any = validators.extend(dialect, bounded)(schema, registry=registry)

    def _resource(self, schema: Any, dialect: Any) -> Any:
        """A parsed schema whose patterns are those of Python."""
        resource: Any = Resource.from_contents(schema, default_specification=DRAFT7)
        try:
            self._translate(resource)
        except (AttributeError, TypeError) as error:
            dialect.check_schema(schema)  # which names the place
            raise ValueError(f"it is malformed: {error}") from error
        return resource

    def _translate(self, resource: Any) -> None:
        contents = resource.contents
        if isinstance(contents, dict):
            if isinstance(pattern := contents.get("pattern"), str):
                contents["pattern"] = self._translated(pattern)
            if isinstance(properties := contents.get("patternProperties"), dict):
                contents["patternProperties"] = {self._translated(name): one for name, one in properties.items()}
        for inner in resource.subresources():
            self._translate(inner)

    def _translated(self, pattern: str) -> str:
        made = translated(pattern)
        self._patterns[made] = pattern
        return made

    def _pattern(self, _: Any, pattern: str, instance: Any, __: Any) -> Iterator[ValidationError]:
        if isinstance(instance, str) and not finder(pattern)(instance):
            yield ValidationError(f"{instance!r} does not match {self._patterns.get(pattern, pattern)!r}")

    def _enum(self, _: Any, options: Any, instance: Any, __: Any) -> Iterator[ValidationError]:
        if (known := self._enums.get(id(options))) is None:  # its list is a part of the schema, so it stays
            known = self._enums[id(options)] = _Options(options)
        if instance not in known:
            # The text of an array or an object may be long, and each of those around it may be compared, too.
            shown = "an array" if isinstance(instance, list) else "an object" if isinstance(instance, dict) else None
            yield ValidationError(f"{shown or repr(instance)} is not one of {known}")

    def _followed(self, keyword: Any) -> Any:
        """The keyword of a reference, counted."""

        def follow(validator: Any, ref: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
            self._work.left -= 1
            if self._work.left < 0:
                raise Misfit("", f"checking it follows more than {self._limits.references} references of the schema")
            yield from keyword(validator, ref, instance, schema) or ()

        return follow

    def check(self, value: Any) -> None:
        """
        Check a value, as it stands in JSON.

        Raises:
            Misfit: it does not fit, or is beyond a limit.
        """
        if _is_nested(value, self._limits.nesting):
            raise Misfit("", f"it nests values more than {self._limits.nesting} deep")
        self._work.left = self._limits.references
        try:
            if (error := best_match(self._errors(value))) is not None:
                raise Misfit(_path(error.absolute_path), f"{error.message:.300}")
        except RecursionError:
            raise Misfit("", "it is nested too deeply to be checked") from None

    def _errors(self, value: Any) -> Iterator[ValidationError]:
        """The first error: a value of a million items may have as many."""
        first = next(self._validator.iter_errors(value), None)
        if first is not None:
            yield first


def _parsed(text: str) -> Any:
    if len(text) > MAX_SCHEMA_CHARS:
        raise ValueError(f"it has {len(text)} characters, more than {MAX_SCHEMA_CHARS}")
    schema = json.loads(text)
    if not isinstance(schema, dict | bool):
        raise ValueError(f"a schema is an object or a boolean, not {type(schema).__name__}")
    return schema


def _check_references(resource: Any, resolver: Any) -> None:
    if isinstance(resource.contents, dict) and isinstance(ref := resource.contents.get("$ref"), str):
        resolver.lookup(ref)
    for inner in resource.subresources():
        _check_references(inner, resolver.in_subresource(inner))


def _is_nested(value: Any, most: int) -> bool:
    """Whether values lie deeper inside each other."""
    level = [value]
    for _ in range(most + 1):
        level = [
            x
            for one in level
            if isinstance(one, dict | list)
            for x in (one.values() if isinstance(one, dict) else one)
            if isinstance(x, dict | list)
        ]
        if not level:
            return False
    return True


def _any_of(validator: Any, options: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    """Do what the library does, with the first error of each option in place of all of them."""
    context = []
    for number, option in enumerate(options):
        error = next(validator.descend(instance, option, schema_path=number), None)
        if error is None:
            return
        context.append(error)
    yield ValidationError("it fits none of the schemas of a union", context=context)


def _one_of(validator: Any, options: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    fitting = sum(next(validator.descend(instance, option), None) is None for option in options)
    if fitting == 0:
        yield from _any_of(validator, options, instance, schema)
    elif fitting > 1:
        yield ValidationError(f"it fits {fitting} schemas, and may fit one")


def _keyword(refusal: Callable[[Any, Any, Any, Any], str]) -> Any:
    """A keyword of what says why a value does not fit."""

    def keyword(validator: Any, given: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if why := refusal(validator, given, instance, schema):
            yield ValidationError(why)

    return keyword


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    for pattern, inner in patterns.items():
        found = finder(pattern)
        for key, value in instance.items():
            if found(key):
                yield from validator.descend(value, inner, path=key, schema_path=pattern)


def _additional_properties(validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Do what the library does, with each pattern by itself: joined ones would share the numbers of their groups."""
    if not isinstance(instance, dict):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    tests = [*map(finder, patterns)]
    extras = [key for key in instance if key not in known and not any(found(key) for found in tests)]
    if isinstance(allowed, dict):
        for extra in extras:
            yield from validator.descend(instance[extra], allowed, path=extra)
    elif not allowed and extras:
        shown = ", ".join(map(repr, sorted(extras)))
        if patterns:
            verb = "does" if len(extras) == 1 else "do"
            yield ValidationError(f"{shown} {verb} not match any of the patterns of patternProperties")
        else:
            verb = "was" if len(extras) == 1 else "were"
            yield ValidationError(f"Additional properties are not allowed ({shown} {verb} unexpected)")


def _multiple_of(_: Any, divisor: Any, instance: Any, __: Any) -> Iterator[ValidationError]:
    """Compare as decimals: 19.99 is a multiple of 0.01, although their floats are not."""
    if isinstance(instance, bool) or not isinstance(instance, int | float):
        return
    if isinstance(instance, int) and isinstance(divisor, int):
        fits = instance % divisor == 0
    else:
        fits = (Fraction(str(instance)) / Fraction(str(divisor))).denominator == 1
    if not fits:
        yield ValidationError(f"{instance!r} is not a multiple of {divisor!r}")


def _unique(_: Any, wanted: Any, instance: Any, __: Any) -> Iterator[ValidationError]:
    if not wanted or not isinstance(instance, list):
        return
    seen: set[Any] = set()
    for item in instance:
        key = _hashable(item)
        if key in seen:
            yield ValidationError(f"{item!r:.100} is in the array twice")
            return
        seen.add(key)


def _hashable(value: Any) -> Any:
    """The same for values that are equal in JSON, where true is not 1, and 1.0 is."""
    if isinstance(value, bool):
        return "boolean", value
    if isinstance(value, list):
        return "array", tuple(map(_hashable, value))
    if isinstance(value, dict):
        return "object", frozenset((key, _hashable(item)) for key, item in value.items())
    return value


class _Options:
    """The options of an `enum`. Whether a value is one of them costs a look at the value, or at its size alone."""

    def __init__(self, options: Any) -> None:
        self._known = frozenset(map(_hashable, options))
        self._sizes = {(type(one), len(one)) for one in options if isinstance(one, list | dict)}
        self._shown = f"{options!r:.300}"

    def __str__(self) -> str:
        return self._shown

    def __contains__(self, value: Any) -> bool:
        if isinstance(value, list | dict) and (type(value), len(value)) not in self._sizes:
            return False
        return _hashable(value) in self._known


def _path(steps: Iterable[Any]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)[:200]
