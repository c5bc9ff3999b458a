"""A value as JSON in which some fields are covered, for people who repair what went wrong."""

from __future__ import annotations

from collections.abc import Callable, Collection
from decimal import Decimal
from typing import Any, Final

import msgspec

from cues_kafka.codecs.json_checks import as_json
from cues_kafka.graph.declare import CodecSpec, Json

COVERED: Final = "(redacted)"
"""What stands in the place of a field's value."""

_exact: Final = msgspec.json.Decoder(float_hook=Decimal).decode
_written: Final = msgspec.json.Encoder(decimal_format="number").encode
"""Numbers stay as they are written: a float would make 1.1 of 1.10."""


def redacted(data: bytes, declared: CodecSpec, decode: Callable[[], Any], names: Collection[str]) -> bytes | None:
    """
    A message's value as JSON, with `COVERED` in the place of fields of these names, however deep they are.

    Args:
        data: the message's bytes.
        declared: the codec of its topic.
        decode: gives its value.
        names: those of the fields.

    Returns:
        The JSON; None: the bytes cannot be read, so the fields cannot be found in them.
    """
    try:
        # The bytes of JSON may have fields that the class lacks, and may be readable where they do not fit it.
        value = _exact(data) if isinstance(declared, Json) else _plain(decode())
        return _written(_covered(value, frozenset(names)))
    except Exception:  # noqa: BLE001 - whatever a codec raises: what cannot be read must not be shown
        return None


def _plain(value: Any) -> Any:
    """The value as dicts, lists, texts and numbers."""
    if isinstance(value, bytes):
        raise TypeError("bytes have no fields")
    if hasattr(value, "DESCRIPTOR"):
        from google.protobuf.json_format import MessageToDict  # noqa: PLC0415 - only programs with Protobuf have it

        return MessageToDict(value, preserving_proto_field_name=True)
    if callable(dump := getattr(value, "model_dump", None)):  # a pydantic model
        return dump(mode="json", by_alias=True)
    return msgspec.to_builtins(value, str_keys=True, enc_hook=as_json)


def _covered(value: Any, names: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {key: COVERED if key in names else _covered(one, names) for key, one in value.items()}
    return [_covered(one, names) for one in value] if isinstance(value, list | tuple) else value
