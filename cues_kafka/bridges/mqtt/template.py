"""Topics with places for the key and for fields of a value, such as `alarms/{key}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from cues_kafka.bridges.mqtt.filters import wrong_topic
from cues_kafka.errors import OutputError

_PLACE: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)(:path)?\}")

KEY: Final = "key"


class Template:
    """
    A topic whose places are filled in for each message.

    What goes into a place is one level of the topic, so that a key cannot lead to another topic; with `:path` it may be
    several.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._fixed = _PLACE.search(text) is None

    @staticmethod
    def wrong(text: str) -> str:
        """Why a text cannot be one; empty: it can."""
        filled = _PLACE.sub("x", text)
        if "{" in filled or "}" in filled:
            return "has a '{' or '}' that is not a place such as {key}, {site} or {key:path}"
        return wrong_topic(filled)

    def fill(self, value: Any, key: Any) -> str:
        """
        The topic of one message.

        Raises:
            OutputError: the key or a field is missing, or does not fit.
        """
        topic = self._text if self._fixed else _PLACE.sub(lambda place: self._part(place, value, key), self._text)
        if why := wrong_topic(topic):
            raise OutputError(f"the MQTT topic {topic!r:.200} {why}. Correct the message, or what topic() is given")
        return topic

    def _part(self, place: re.Match[str], value: Any, key: Any) -> str:
        name, path = place[1], place[2]
        found = key if name == KEY else _field(value, name)
        if found is None:
            what = "the message has no key" if name == KEY else f"the value has no field {name!r}"
            raise OutputError(f"{what}, which the MQTT topic {self._text!r} needs")
        if isinstance(found, bytes):
            found = found.decode(errors="backslashreplace")
        if isinstance(found, bool) or not isinstance(found, str | int):
            raise OutputError(f"{name!r} is a {type(found).__name__}. A place in an MQTT topic takes text or a number")
        text = str(found)
        if not text or ("/" in text and not path):
            what = "has a '/', which would lead to another topic" if text else "is empty"
            raise OutputError(
                f"{name!r} {what}: {text!r:.80}. Where it may have several levels, write {{{name}:path}} in the topic"
            )
        return text


def _field(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(name)
    return getattr(value, name, None)
