"""The declared schema for messages of other schemas: defaults as values, and records of unions that say their name.

fastavro gives a default as the schema has it in JSON, text for bytes and a number for a time, and the same list to each
message. It says which record of a union a value was only where the writer had several of them, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, Final

from fastavro.read import LOGICAL_READERS

from cues_kafka.codecs.avro_records import AvroRecord
from cues_kafka.codecs.avro_schema import Schema, inside, records_of_unions

MARK: Final = ""
"""The field by which records of unions say their name. It is no name of Avro, so no writer has it: it is a default."""


def with_values(schema: Schema) -> Schema:
    """
    The schema with its defaults as values, as fastavro takes them and gives them.

    Raises:
        ValueError: a default is none of its field; names the field.
    """
    made = deepcopy(schema)
    named = _named(made)
    fields = [(record, each) for record in named.values() for each in record.get("fields", ()) if "default" in each]
    for record, each in fields:
        try:
            each["default"] = _value(each["type"], each["default"], named)
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(
                f"the default of {record['name']}.{each['name']} is no value of the field ({type(error).__name__})"
            ) from None
    return made


def marked(schema: Schema) -> Schema:
    """
    A schema with values as defaults, in which the records of unions have their names as a field.

    Raises:
        ValueError: two records of a union have one name in different namespaces, which fastavro takes for the same.
    """
    made = deepcopy(schema)
    for name in (records := records_of_unions(schema)):
        last = name.rpartition(".")[2]
        if any(other != name and other.rpartition(".")[2] == last for other in records):
            raise ValueError(f"a union has several records {last}, so that messages of other schemas cannot be read")
        _named(made)[name]["fields"].append({"name": MARK, "type": "string", "default": name})
    return made


def settling(schema: Schema) -> Callable[[Any], Any] | None:
    """
    What makes a message's own value of what fastavro gave for a schema with values and marks; None: it is that already.

    Records with a mark become `AvroRecord`s, and lists and dicts of defaults are copied: each message has its own.
    """
    defaults = [
        each["default"] for one in _named(schema).values() for each in one.get("fields", ()) if "default" in each
    ]
    shared = {id(one): one for one in defaults if isinstance(one, list | dict)}
    if not shared and not records_of_unions(schema):
        return None

    def settle(value: Any) -> Any:
        if id(value) in shared:
            value = deepcopy(value)
        if type(value) is dict:
            for key, one in value.items():
                if type(one) in (dict, list):
                    value[key] = settle(one)
            return AvroRecord(value.pop(MARK), value) if MARK in value and type(value[MARK]) is str else value
        return [*map(settle, value)] if type(value) is list else value

    return settle


def _named(schema: Schema) -> dict[str, Any]:
    return {one["name"]: one for one in inside(schema) if isinstance(one, dict) and "name" in one}


def _value(schema: Schema, plain: Any, named: Mapping[str, Any]) -> Any:
    """A default of a schema's JSON as a value."""
    if isinstance(schema, list):
        return _of_union(schema, plain, named)
    if isinstance(schema, str):
        return _value(named[schema], plain, named) if schema in named else _scalar(schema, plain)
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _value(kind, plain, named)
    if kind in ("record", "error"):
        return {each["name"]: _of_field(each, plain, named) for each in schema["fields"]}
    if kind == "array":
        return [_value(schema["items"], one, named) for one in plain]
    if kind == "map":
        return {key: _value(schema["values"], one, named) for key, one in plain.items()}
    raw = _scalar(kind, plain)
    read = LOGICAL_READERS.get(f"{kind}-{schema.get('logicalType')}")
    return raw if read is None else read(raw, schema, None)


def _of_field(field: Mapping[str, Any], plain: Mapping[str, Any], named: Mapping[str, Any]) -> Any:
    given = plain[field["name"]] if field["name"] in plain else field["default"]
    return given if type(given) not in _JSON else _value(field["type"], given, named)


_JSON: Final = {type(None), bool, int, float, str, list, dict}


def _of_union(options: list[Any], plain: Any, named: Mapping[str, Any]) -> Any:
    for option in options:
        try:
            return _value(option, plain, named)
        except (TypeError, ValueError, KeyError, AttributeError):
            continue
    raise ValueError("it is none of the options")


def _scalar(kind: str, plain: Any) -> Any:
    if type(plain) not in _KINDS[kind]:
        raise TypeError(kind)
    if kind in ("bytes", "fixed"):
        return plain.encode("latin-1")
    return float(plain) if kind in ("float", "double") else plain


_KINDS: Final[dict[str, tuple[type[Any], ...]]] = {
    "null": (type(None),), "boolean": (bool,), "int": (int,), "long": (int,), "float": (int, float),
    "double": (int, float), "string": (str,), "bytes": (str,), "fixed": (str,), "enum": (str,),
}  # fmt: skip
