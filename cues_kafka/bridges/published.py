"""What is published by a bridge: the bytes of a value, and where they go, such as `alarms/{key}`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from cues_kafka.errors import OutputError

_PLACE: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)(:path)?\}")

KEY: Final = "key"


class Names(NamedTuple):
    """
    The names of one broker that messages go to.

    Attributes:
        what: one of them, such as `MQTT topic`.
        article: of that.
        separator: between its parts.
        leads: where a separator in a part would lead.
        parts: what the parts are called.
        example: a field for an example.
        given_by: the method that is given one.
        wrong: why a text cannot be one; empty: it can.
    """

    what: str
    article: str
    separator: str
    leads: str
    parts: str
    example: str
    given_by: str
    wrong: Callable[[str], str]

    def wrong_template(self, text: str) -> str:
        """Why a text cannot be a template of such names; empty: it can."""
        filled = _PLACE.sub("x", text)
        if "{" in filled or "}" in filled:
            return f"has a '{{' or '}}' that is not a place such as {{key}}, {{{self.example}}} or {{key:path}}"
        return self.wrong(filled)


class Template:
    """
    A name whose places are filled in for each message.

    What goes into a place is one part of the name, so that a key cannot lead elsewhere; with `:path` it may be several.
    """

    def __init__(self, text: str, names: Names) -> None:
        self._text, self._names = text, names
        self._fixed = _PLACE.search(text) is None

    def fill(self, value: Any, key: Any) -> str:
        """
        The name for one message.

        Raises:
            OutputError: the key or a field is missing, or does not fit.
        """
        if self._fixed:
            return self._text
        names = self._names
        filled = _PLACE.sub(lambda place: self._part(place, value, key), self._text)
        if why := names.wrong(filled):
            raise OutputError(
                f"the {names.what} {filled!r:.200} {why}. Correct the message, or what {names.given_by} is given"
            )
        return filled

    def chosen(self, given: Mapping[str, Any], argument: str, value: Any, received: Any) -> str:
        """
        The name for one message: what a function gives as `argument=`, or the template filled in.

        Args:
            given: what `publish` was given besides value and step.
            argument: the one that it may be given.
            value: what is published.
            received: see `received_by`.

        Raises:
            OutputError: there is another argument, or the name cannot be one.
        """
        if unknown := set(given) - {argument}:
            raise OutputError(f"publish(): takes {argument}= besides value and step, not {min(unknown)}=")
        name = given.get(argument)
        if name is None:
            return self.fill(value, received and received.key_bytes)
        why = self._names.wrong(name) if isinstance(name, str) else "is not a text"
        if why:
            raise OutputError(f"publish({argument}={name!r:.80}): it {why}")
        return str(name)

    def _part(self, place: re.Match[str], value: Any, key: Any) -> str:
        name, path, names = place[1], place[2], self._names
        found = key if name == KEY else _field(value, name)
        if found is None:
            what = "the message has no key" if name == KEY else f"the value has no field {name!r}"
            raise OutputError(f"{what}, which the {names.what} {self._text!r} needs")
        if isinstance(found, bytes):
            found = found.decode(errors="backslashreplace")
        if isinstance(found, bool) or not isinstance(found, str | int):
            raise OutputError(
                f"{name!r} is a {type(found).__name__}. A place in {names.article} {names.what} takes text or a number"
            )
        text = str(found)
        if not text or (names.separator in text and not path):
            what = f"has a {names.separator!r}, which would {names.leads}" if text else "is empty"
            raise OutputError(
                f"{name!r} {what}: {text!r:.80}. Where it may have several {names.parts}, write {{{name}:path}} in the "
                f"{names.what.rpartition(' ')[2]}"
            )
        return text


def received_by(step: Any) -> Any:
    """The message that a step is about, the first of several; None: a timer began the step."""
    return next(iter(step.inputs.values()), None)


def payload_of(value: Any, received: Any) -> bytes:
    """
    What a function publishes, as bytes: as they are in Kafka, bytes and text as they are, other values as JSON.

    Args:
        value: what is published.
        received: see `received_by`; where it has this value, its bytes are taken.

    Raises:
        OutputError: JSON or UTF-8 cannot say the value.
    """
    if received is not None and value is received.value:
        return received.value_bytes or b""
    if value is None:
        return b""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise OutputError(f"publish(): the text cannot be written as UTF-8: {error}") from None
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise OutputError(f"publish(): a {type(value).__name__} cannot be written as JSON: {error}") from None


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
