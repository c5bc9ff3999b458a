"""Whether a registered schema means the same as a declared one, although it is written in another way.

What says nothing of a message's bytes may differ: the order of keys, `doc`, `avro.java.string`, aliases and defaults.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from cues_kafka.codecs.avro_references import in_order
from cues_kafka.codecs.avro_schema import parse
from cues_kafka.codecs.registered import Own, Registered

_SAID: Final = ("type", "name", "logicalType", "precision", "scale", "symbols", "size", "items", "values", "fields")
"""What says what bytes mean."""


def difference(own: Own, found: Registered) -> str:
    """The first difference of meaning; empty: there is none."""
    if found.kind != own.kind:
        return f"it is of the type {found.kind}"
    if own.kind == "PROTOBUF":
        return "the descriptions of the files are not the same"
    try:
        if own.kind == "JSON":
            declared, registered = json.loads(own.text), json.loads(found.text)
        else:
            declared = parse(own.text, in_order(own.references))
            registered = parse(found.text, [text for _, text in found.references])
    except ValueError as error:
        return f"it cannot be read: {error}"
    compare = _json if own.kind == "JSON" else _avro
    return next(compare(declared, registered, ""), "")


def _avro(declared: Any, registered: Any, where: str) -> Iterator[str]:
    declared, registered = _plain(declared), _plain(registered)
    if isinstance(declared, dict) and isinstance(registered, dict):
        where = where or str(declared.get("name", ""))
        for key in _SAID:
            if key in ("items", "values", "fields"):
                if (key in declared) != (key in registered):
                    yield f"{where or 'it'} is {_shown(registered)}, declared as {_shown(declared)}"
                elif key == "fields":
                    yield from _fields(declared[key], registered[key], where) if key in declared else ()
                elif key in declared:
                    yield from _avro(declared[key], registered[key], f"{where}[]")
            elif key == "type" and isinstance(declared.get(key), dict | list):
                yield from _avro(declared[key], registered[key], where)
            elif declared.get(key) != registered.get(key):
                yield f"{where or 'it'} has {key} {registered.get(key)!r:.60}, declared is {declared.get(key)!r:.60}"
    elif isinstance(declared, list) and isinstance(registered, list) and len(declared) == len(registered):
        for one, other in zip(declared, registered, strict=True):
            yield from _avro(one, other, where)
    elif declared != registered:
        yield f"{where or 'it'} is {_shown(registered)}, declared as {_shown(declared)}"


def _fields(declared: list[Any], registered: list[Any], where: str) -> Iterator[str]:
    names, others = [one["name"] for one in declared], [one["name"] for one in registered]
    if lacking := [name for name in names if name not in others]:
        yield f"{where} has no field {lacking[0]!r}"
    if more := [name for name in others if name not in names]:
        yield f"{where} has a field {more[0]!r}, which is not declared"
    if names != others:
        yield f"the fields of {where} are in another order"
    for one, other in zip(declared, registered, strict=False):
        yield from _avro(one["type"], other["type"], f"{where}.{one['name']}")


def _plain(schema: Any) -> Any:
    """A schema without attributes is its name."""
    if not isinstance(schema, dict):
        return schema
    made = {key: schema[key] for key in _SAID if key in schema}
    if "logicalType" not in made:
        made.pop("precision", None)
        made.pop("scale", None)
    elif made["logicalType"] == "decimal":
        made.setdefault("scale", 0)
    return made["type"] if len(made) == 1 and isinstance(made["type"], str) else made


def _shown(schema: Any) -> str:
    if isinstance(schema, dict):
        return f"{schema.get('type')!s:.30}"
    return f"a union of {len(schema)}" if isinstance(schema, list) else f"{schema!s:.60}"


def _json(declared: Any, registered: Any, where: str) -> Iterator[str]:
    """Another order of keys means the same; nothing else is taken for it."""
    if isinstance(declared, dict) and isinstance(registered, dict):
        for key in (*declared, *(name for name in registered if name not in declared)):
            if key not in registered or key not in declared:
                yield f"{key!r} is {'declared' if key in declared else 'registered'} only, at {where or 'the top'}"
            else:
                yield from _json(declared[key], registered[key], f"{where}/{key}")
    elif declared != registered:
        yield f"{where or 'it'} is {registered!r:.60}, declared as {declared!r:.60}"
