"""Times with more digits than Python has: msgspec rounds them, so that 23:59:59.9999999 would be the next midnight."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, time
from typing import Any, Final

from cues_kafka.codecs.json_checks import JsonMisfit
from cues_kafka.codecs.schema import Fixed, Items, Mapped, OneOf, Ref, Scalar, Shape, Structure, tags_of, within

_FINE: Final = re.compile(rb":[0-9]{2}\.[0-9]{6}0*[1-9]")
"""A fraction of a second that microseconds cannot hold."""

_ESCAPED: Final = re.compile(rb"\\u00(?:3[0-9Aa]|2[Ee])")
"""A digit, a colon or a point may be written as an escape."""


def holds_time(shape: Shape) -> bool:
    """Whether a `datetime` or a `time` is somewhere in values of a shape."""
    return any(isinstance(one, Scalar) and one.cls in (datetime, time) for one in within(shape))


class Fractions:
    """
    Refuses messages of one shape with times that would be rounded.

    Args:
        shape: of the values.
    """

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._records: dict[type[Any], Structure] = {
            one.cls: one for one in within(shape) if isinstance(one, Structure)
        }

    def check(self, data: bytes) -> None:
        """
        Look at a message that was read.

        Raises:
            JsonMisfit: a time of it has digits beyond microseconds; has the path.
        """
        if _FINE.search(data) is None and _ESCAPED.search(data) is None:  # as in almost all messages
            return
        for path in self._rounded(self._shape, json.loads(data)):
            raise JsonMisfit("a time in whole microseconds", "one with more digits", [path])

    def _rounded(self, shape: Shape, value: Any) -> Iterator[str]:
        match shape:
            case Scalar(cls):
                if cls in (datetime, time) and isinstance(value, str) and _FINE.search(value.encode()):
                    yield ""
            case Ref(cls):
                yield from self._rounded(self._records[cls], value)
            case OneOf(options):
                for option in options:
                    if not isinstance(option, Structure | Ref) or self._is(option, value):
                        yield from self._rounded(option, value)
            case _:
                for part, inner, one in _parts(shape, value):
                    yield from (f"{part}{path}" for path in self._rounded(inner, one))

    def _is(self, option: Structure | Ref, value: Any) -> bool:
        """Whether an object may be the record of a union: its tags are that record's."""
        tags = tags_of(option if isinstance(option, Structure) else self._records[option.cls])
        return isinstance(value, dict) and all(value[name] in own for name, own in tags.items() if name in value)


def _parts(shape: Shape, value: Any) -> Iterator[tuple[str, Shape, Any]]:
    """What is in a container of JSON, with its part of the path and its shape."""
    match shape:
        case Structure(_, fields) if isinstance(value, Mapping):
            yield from ((f".{one.name}", one.shape, value[one.wire_name]) for one in fields if one.wire_name in value)
        case Items(item) if isinstance(value, list):
            yield from ((f"[{place}]", item, one) for place, one in enumerate(value))
        case Fixed(items) if isinstance(value, list):
            yield from ((f"[{place}]", inner, one) for place, (inner, one) in enumerate(zip(items, value, strict=True)))
        case Mapped(inner) if isinstance(value, Mapping):
            yield from ((f"[{key!r:.60}]", inner, one) for key, one in value.items())
