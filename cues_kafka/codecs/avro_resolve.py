"""The declared schema with its defaults as values: in a schema's JSON bytes are text, and a time is a number."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from io import BytesIO
from typing import Any, Final

from fastavro import schemaless_writer

from cues_kafka.codecs.avro_records import Unfit
from cues_kafka.codecs.avro_scalars import scalar
from cues_kafka.codecs.avro_schema import Schema, logical, named_in


def with_values(schema: Schema) -> Schema:
    """
    The schema with its defaults as values, as they are written and read.

    Raises:
        ValueError: a default is none of its field; names the field.
    """
    made = deepcopy(schema)
    named = named_in(made)
    fields = [(record, each) for record in named.values() for each in record.get("fields", ()) if "default" in each]
    for record, each in fields:
        try:
            each["default"] = _value(each["type"], each["default"], named)
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(
                f"the default of {record['name']}.{each['name']} is not a value of the field ({type(error).__name__})"
            ) from None
    return made


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
    if kind == "enum" and raw not in schema["symbols"]:
        raise ValueError(kind)
    if kind == "fixed" and len(raw) != schema["size"]:
        raise ValueError(kind)
    if logical(schema) is None and schema.get("logicalType") != "decimal":
        return raw
    out = BytesIO()
    schemaless_writer(out, {key: one for key, one in schema.items() if key != "logicalType"}, raw)
    try:
        return scalar(schema, converted=True)(out.getvalue(), 0)[0]
    except Unfit as unfit:
        raise ValueError(unfit.expected) from None


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
