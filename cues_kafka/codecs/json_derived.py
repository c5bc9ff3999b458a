"""The JSON Schema of a class, as msgspec makes it."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

from cues_kafka.codecs.json_twins import Twins, is_native
from cues_kafka.codecs.schema import describe, forget_decoders, shape_name
from cues_kafka.errors import GraphError

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_TWIN: Final = re.compile(r"(.+)_\d+\Z")
_DEFS: Final = "#/$defs/"


def derived(cls: type[Any]) -> str:
    """
    The schema of the messages of a class, as text.

    Raises:
        GraphError: the class has a field that cannot travel, or a default that JSON cannot hold.
    """
    shape = describe(cls)
    try:
        made = msgspec.json.schema(cls if is_native(shape) else Twins().annotation(shape))
    except (TypeError, ValueError, RuntimeError) as error:
        raise GraphError(f"{shape_name(shape)}: it has no JSON Schema: {error}. Give the schema itself.") from error
    finally:
        forget_decoders(shape)
    return json.dumps({"$schema": DIALECT} | _flat(_named(made)))


def _named(made: dict[str, Any]) -> dict[str, Any]:
    """The schema with the names of the classes, where what msgspec reads has names of its own."""
    plain: dict[str, list[str]] = {}
    for name in made.get("$defs", {}):
        plain.setdefault(twin[1] if (twin := _TWIN.match(name)) else name, []).append(name)
    names = {twins[0]: name for name, twins in plain.items() if len(twins) == 1}
    return dict(_renamed(made, names))


def _renamed(made: Any, names: dict[str, str]) -> Any:
    if isinstance(made, list):
        return [_renamed(one, names) for one in made]
    if not isinstance(made, dict):
        return made
    found = {key: _renamed(one, names) for key, one in made.items()}
    if isinstance(ref := found.get("$ref"), str):
        found["$ref"] = _DEFS + names.get(ref.removeprefix(_DEFS), ref.removeprefix(_DEFS))
    if isinstance(title := found.get("title"), str):
        found["title"] = names.get(title, title)
    if isinstance(defs := found.get("$defs"), dict):
        found["$defs"] = {names.get(name, name): one for name, one in defs.items()}
    return found


def _flat(made: dict[str, Any]) -> dict[str, Any]:
    """The schema with its record at the top, where others look for its title."""
    if "$ref" not in made:
        return made
    name = made["$ref"].removeprefix(_DEFS)
    defs = dict(made["$defs"])
    top: dict[str, Any] = defs[name]
    if _DEFS + name not in json.dumps(made["$defs"]):  # it is not inside itself
        del defs[name]
    return top | ({"$defs": defs} if defs else {})
