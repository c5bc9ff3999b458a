"""Parses Avro schemas, which users and registries give: what is not one is refused by its place in the schema.

A logical type that does not fit its type, or lacks what it needs, is ignored, as the specification says: values are
then those of the type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import fastavro
import fastavro.schema

MAX_BYTES: Final = 1024 * 1024
MAX_NESTING: Final = 200
"""Limits of a schema: characters, and JSON values inside each other."""

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_FULL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*\Z")

_PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")

_LOGICAL: Final[Mapping[str, tuple[str, ...]]] = {
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "uuid": ("string", "fixed"),
    "decimal": ("bytes", "fixed"),
}
"""Logical types that are checked, and their types; others have no meaning here."""


def parsed(text: str, references: Sequence[str] = ()) -> Any:
    """
    Parse a schema, names and all.

    Args:
        text: its JSON.
        references: the JSON of the schemas that it names, those that others need first.

    Raises:
        ValueError: it is no schema, or one beyond the limits; names the place.
    """
    if len(text) > MAX_BYTES:
        raise ValueError(f"it has {len(text)} characters, more than {MAX_BYTES}")
    try:
        named: dict[str, Any] = {}
        for each in (*references, text):
            plain = json.loads(each)
            _check_nesting(plain)
            made = fastavro.parse_schema(_checked(plain, "it"), named, _ignore_default_error=True)
        if not references:
            return made
        return fastavro.parse_schema(_with_definitions(made, named, set()), {}, _ignore_default_error=True)
    except RecursionError:
        raise ValueError(f"it is nested more than {MAX_NESTING} deep") from None
    except fastavro.schema.UnknownType as error:
        raise ValueError(f"it names the type {error.name!s:.200}, which is not defined before") from error
    except ValueError:
        raise
    except Exception as error:  # the library raises what its own code meets in odd schemas
        raise ValueError(f"{type(error).__name__}: {error}"[:500]) from error


def _check_nesting(plain: Any) -> None:
    level = [plain] if isinstance(plain, dict | list) else []
    for _ in range(MAX_NESTING):
        level = [
            x for one in level for x in (one.values() if isinstance(one, dict) else one) if isinstance(x, dict | list)
        ]
        if not level:
            return
    raise ValueError(f"it is nested more than {MAX_NESTING} deep")


def _checked(schema: Any, where: str) -> Any:
    """The schema without logical types that are to be ignored."""
    if isinstance(schema, str):
        return schema
    if isinstance(schema, list):
        options = [_checked(option, where) for option in schema]
        if any(isinstance(option, list) for option in options):  # also one that was the type of an object
            raise ValueError(f"{where}: a union has no union as an option")
        return options
    if not isinstance(schema, dict):
        raise ValueError(f"{where}: a schema is a name, an object or an array, not {_shown(schema)}")
    if "type" not in schema:
        raise ValueError(f"{where}: it has no type")
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _checked(kind, where)
    if not isinstance(kind, str):
        raise ValueError(f"{where}: a type is a name, an object or an array, not {_shown(kind)}")
    made = {key: one for key, one in schema.items() if not key.startswith("__fastavro")}
    made.pop("__named_schemas", None)
    if kind in _COMPLEX:
        _COMPLEX[kind](made, where)
    elif kind not in _PRIMITIVES:
        return kind  # attributes beside a name have no meaning
    return made if _is_valid_logical(made) else {key: one for key, one in made.items() if key != "logicalType"}


def _with_definitions(schema: Any, named: Mapping[str, Any], known: set[str]) -> Any:
    """A parsed schema with the definition of a name where the name comes first."""
    if isinstance(schema, str):
        return _with_definitions(named[schema], named, known) if schema in named and schema not in known else schema
    if isinstance(schema, list):
        return [_with_definitions(option, named, known) for option in schema]
    made = {key: one for key, one in schema.items() if not key.startswith("__")}
    if "name" in made:
        known.add(made["name"])
    if "fields" in made:
        made["fields"] = [{**each, "type": _with_definitions(each["type"], named, known)} for each in made["fields"]]
    for key in ("items", "values"):
        if key in made:
            made[key] = _with_definitions(made[key], named, known)
    return made


def _is_valid_logical(schema: Mapping[str, Any]) -> bool:
    logical, kind = schema.get("logicalType"), schema["type"]
    if logical is None or not isinstance(logical, str):
        return False
    if logical in _LOGICAL and kind not in _LOGICAL[logical]:
        return False
    if logical == "uuid":
        return kind == "string" or schema.get("size") == 16
    return logical != "decimal" or _is_valid_decimal(schema)


def _is_valid_decimal(schema: Mapping[str, Any]) -> bool:
    precision: Any = schema.get("precision")
    scale: Any = schema.get("scale", 0)
    if not _is_count(precision) or not _is_count(scale) or not precision > 0 or scale > precision:
        return False
    if schema["type"] == "bytes" or schema["size"] > 1_000:
        return True
    size: int = schema["size"]
    return size > 0 and bool(10**precision <= 2 ** (8 * size - 1))


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _shown(value: Any) -> str:
    return f"{type(value).__name__}"


def _check_name(made: dict[str, Any], where: str) -> str:
    name, space = made.get("name"), made.get("namespace")
    if not isinstance(name, str) or not _FULL_NAME.match(name):
        raise ValueError(f"{where}: Avro does not allow its name {name!r:.60}. Names have letters, digits, _ and dots")
    if space is not None and (not isinstance(space, str) or (space and not _FULL_NAME.match(space))):
        raise ValueError(f"{where}: Avro does not allow the namespace {space!r:.60} of {name}")
    if name in _PRIMITIVES:
        raise ValueError(f"{where}: {name!r} is the name of a type of Avro")
    aliases = made.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(one, str) for one in aliases):
        raise ValueError(f"{where}: the aliases of {name} are a list of names")
    if space is None:
        made.pop("namespace", None)
    return name


def _check_record(made: dict[str, Any], where: str) -> None:
    name = _check_name(made, where)
    fields = made.get("fields")
    if not isinstance(fields, list):
        raise ValueError(f"{where}: the record {name} has no list of fields")
    where = f"{where}.{name}" if where != "it" else name
    made["fields"] = [_field(each, f"{where}.fields[{n}]") for n, each in enumerate(fields)]
    seen: set[str] = set()
    for each in made["fields"]:
        if each["name"] in seen:
            raise ValueError(f"{where}: it has the field {each['name']!r} twice")
        seen.add(each["name"])


def _field(each: Any, where: str) -> dict[str, Any]:
    if not isinstance(each, dict):
        raise ValueError(f"{where}: a field is an object, not {_shown(each)}")
    name = each.get("name")
    if not isinstance(name, str) or not NAME.match(name):
        raise ValueError(
            f"{where}: Avro does not allow the name {name!r:.60} of a field. Names have letters, digits and _"
        )
    where = f"{where.rpartition('.fields[')[0]}.{name}"
    if "type" not in each:
        raise ValueError(f"{where}: it has no type")
    aliases = each.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(one, str) for one in aliases):
        raise ValueError(f"{where}: its aliases are a list of names")
    return {**each, "type": _checked(each["type"], where)}


def _check_enum(made: dict[str, Any], where: str) -> None:
    name, symbols = _check_name(made, where), made.get("symbols")
    if not isinstance(symbols, list) or not all(isinstance(one, str) and NAME.match(one) for one in symbols):
        raise ValueError(f"{where}: the symbols of the enum {name} are a list of names")
    if len({*symbols}) < len(symbols):
        raise ValueError(f"{where}: the enum {name} has a symbol twice")
    if "default" in made and made["default"] not in symbols:
        raise ValueError(f"{where}: the default of the enum {name} is not one of its symbols")


def _check_fixed(made: dict[str, Any], where: str) -> None:
    name = _check_name(made, where)
    if not _is_count(made.get("size")):
        raise ValueError(f"{where}: the size of the fixed type {name} is a whole number from 0 on")


def _check_array(made: dict[str, Any], where: str) -> None:
    if "items" not in made:
        raise ValueError(f"{where}: the array has no items")
    made["items"] = _checked(made["items"], f"{where}[]")


def _check_map(made: dict[str, Any], where: str) -> None:
    if "values" not in made:
        raise ValueError(f"{where}: the map has no values")
    made["values"] = _checked(made["values"], f"{where}{{}}")


_COMPLEX: Final = {
    "record": _check_record, "error": _check_record, "enum": _check_enum, "fixed": _check_fixed,
    "array": _check_array, "map": _check_map,
}  # fmt: skip
