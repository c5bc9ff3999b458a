"""Python objects as data for JSON, and back: functions by their names, values, and objects by their fields.

Functions and classes are written as ``module:qualname``. Reading imports those modules: read trusted data only.
"""

from __future__ import annotations

import contextlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any, Final

from cues_kafka.errors import GraphError

HIDDEN = "hidden"
"""In the metadata of a field: it may hold a password, and is not written down."""


def reference(target: Any) -> str:
    """
    The name to import a function or class by: ``module:qualname``.

    Raises:
        GraphError: it has no such name.
    """
    name = f"{getattr(target, '__module__', None)}:{getattr(target, '__qualname__', None)}"
    with contextlib.suppress(ImportError, AttributeError, ValueError):
        if pkgutil.resolve_name(name) == target:
            return name
    raise GraphError(
        f"{target!r} cannot be written down, because it cannot be imported by its name. "
        "Define it with def or class at the top level of a module."
    )


def resolve(name: object) -> Any:
    """
    Import what a reference names.

    Raises:
        GraphError: it cannot be imported.
    """
    if not (isinstance(name, str) and name.partition(":")[2]):
        raise GraphError(f"{name!r} cannot be imported. Write it as 'module:name'.")
    try:
        return pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise GraphError(f"{name!r} cannot be imported: {error}. Check that it exists and can be imported.") from error


def value_to_json(value: Any) -> Any:
    """A value as JSON; a type that JSON lacks becomes a mapping with one key that begins with ``$``."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return {"$bytes": value.hex()}
        case datetime():
            return {"$time": value.isoformat()}
        case list():
            return [value_to_json(item) for item in value]
        case tuple():
            return {"$tuple": [value_to_json(item) for item in value]}
        case set() | frozenset():
            kind = "$set" if isinstance(value, set) else "$frozenset"
            return {kind: sorted((value_to_json(item) for item in value), key=repr)}
        case Mapping():
            if all(isinstance(key, str) and not key.startswith("$") for key in value):
                return {key: value_to_json(item) for key, item in value.items()}
            return {"$mapping": [[value_to_json(key), value_to_json(item)] for key, item in value.items()]}
    return {"$ref": reference(value)}


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "$bytes": bytes.fromhex,
    "$time": datetime.fromisoformat,
    "$tuple": lambda items: tuple(value_from_json(item) for item in items),
    "$set": lambda items: {value_from_json(item) for item in items},
    "$frozenset": lambda items: frozenset(value_from_json(item) for item in items),
    "$mapping": lambda pairs: {value_from_json(key): value_from_json(item) for key, item in pairs},
    "$ref": resolve,
    "$object": lambda written: object_from_json(dict(written)),
}


def value_from_json(plain: Any) -> Any:
    """Read what `value_to_json` wrote."""
    if isinstance(plain, list):
        return [value_from_json(item) for item in plain]
    if isinstance(plain, Mapping):
        for mark, item in plain.items():
            if mark.startswith("$") and len(plain) == 1 and mark in _READERS:
                return _READERS[mark](item)
        return {key: value_from_json(item) for key, item in plain.items()}
    return plain


def object_to_json(given: Any, what: str) -> dict[str, Any]:
    """An object of a dataclass, which may be the user's; `what` is how errors call it."""
    if not is_dataclass(given):
        raise GraphError(f"{what} cannot be written down. Make {type(given).__name__} a dataclass.")
    settings: dict[str, Any] = {}
    for each in (each for each in fields(given) if each.init):
        value = getattr(given, each.name)
        if not each.metadata.get(HIDDEN):
            nested = is_dataclass(value)
            settings[each.name] = {"$object": object_to_json(value, what)} if nested else value_to_json(value)
        elif value:
            raise GraphError(
                f"{what} cannot be written down: its address would be in the text. Name the environment variable that "
                f'holds it: {type(given).__name__}(env="SHOP_DATABASE").'
            )
    return {"class": reference(type(given)), "settings": settings}


def object_from_json(written: Mapping[str, Any]) -> Any:
    """Make what `object_to_json` wrote."""
    settings = written.get("settings", {})
    return resolve(written["class"])(**{name: value_from_json(one) for name, one in settings.items()})
