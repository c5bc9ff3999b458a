"""Values of settings, as files and variables have them: read, checked, and fetched."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from cues_kafka.brokers.secrets import HARMLESS
from cues_kafka.errors import ConfigError

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def flat_table(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Join keys by dots again: TOML reads `sasl.password = "x"` without quotes as a table in a table."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        name = prefix + key
        if isinstance(value, Mapping) and not _is_reference(name, value):
            found |= flat_table(value, f"{name}.")
        else:
            found[name] = value
    return found


def _is_reference(name: str, value: Mapping[str, Any]) -> bool:
    """Whether a table is `{env = ...}` or `{file = ...}`, and not the end of a key such as `x.file`."""
    return len(value) == 1 and bool(value.keys() & {"env", "file"}) and f"{name}.{next(iter(value))}" not in HARMLESS


def fetched_value(value: Any, what: str, env: Mapping[str, str]) -> Any:
    """The value itself, or what the variable or file that it names holds."""
    if not isinstance(value, Mapping):
        return value
    ((kind, place),) = value.items()
    if kind == "env":
        if place not in env:
            raise ConfigError(f"{what}: the environment has no variable {place!r}. Set it, or name another.")
        return env[place]
    try:
        return Path(str(place)).read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(
            f"{what}: the file {str(place)!r} cannot be read: {why}. Mount it, or name another."
        ) from None


def parsed_value(kind: Any, text: str, variable: str) -> Any:
    """A value from an environment variable."""
    if kind is bool:
        if text.lower() not in (*_TRUE, *_FALSE):
            raise ConfigError(f"{variable}: write true or false.")
        return text.lower() in _TRUE
    readers: dict[Any, Callable[[str], Any]] = {int: int, float: float}
    try:
        value = json.loads(text) if is_mapping(kind) else readers.get(kind, str)(text)
    except ValueError:
        wanted = 'an object in JSON, such as {"security.protocol": "SSL"}' if is_mapping(kind) else "a number"
        raise ConfigError(f"{variable}: write {wanted}.") from None  # without the value: it may hold a secret
    return checked_value(kind, value, variable)


def checked_value(kind: Any, value: Any, what: str) -> Any:
    """The value, if it has the right type; a whole number is taken for any number."""
    allowed: tuple[Any, ...] = typing.get_args(kind) if typing.get_origin(kind) is Literal else ()
    if allowed:
        if value not in allowed:
            raise ConfigError(f"{what}: this value is unknown. Choose one of {', '.join(map(str, allowed))}.")
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    wanted = dict if is_mapping(kind) else kind
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise ConfigError(f"{what}: takes {_words(wanted)}, not {type(value).__name__}.")
    return value


def _words(kind: type) -> str:
    return {dict: "a table", bool: "true or false", int: "a whole number", float: "a number", str: "text"}[kind]


def is_mapping(kind: Any) -> bool:
    """Whether a setting of this type is a table."""
    return typing.get_origin(kind) in (dict, Mapping, types.MappingProxyType)
