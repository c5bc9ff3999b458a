"""`Topic`: what a graph says of a topic; and how settings of declarations are checked."""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cues_kafka.errors import GraphError
from cues_kafka.graph.declare import CodecSpec, Json, Raw
from cues_kafka.graph.names import hint, quoted


class Unset(enum.Enum):
    """Stands for a setting that was not given, where None means something."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "..."


UNSET: Final = Unset.UNSET


def settle(target: Any, **values: Any) -> None:
    """Set fields of a frozen declaration while it is constructed."""
    for name, value in values.items():
        object.__setattr__(target, name, value)


def frozen(mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    """A copy that nobody can change."""
    return types.MappingProxyType(dict(mapping))


def one_of(value: object, allowed: tuple[str, ...], what: str) -> None:
    """Refuse a setting that is none of these words."""
    if value not in allowed:
        near = hint(value, allowed) if isinstance(value, str) else ""
        raise GraphError(f"{what}={value!r} is not known{near}. Choose one of {quoted(allowed)}.")


def whole(value: object, what: str) -> None:
    """Refuse a setting that is no whole number from 1 on."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise GraphError(f"{what}={value!r}: takes a whole number from 1 on.")


@dataclass(frozen=True, slots=True, init=False)
class Topic:
    """
    Settings of a topic. What is not given comes from the graph's `defaults=`, key by key also within `config`.

    Attributes:
        value: codec of the values; `Json()`.
        key: the field of a value that is its key where a message brings none; None: the lead input's key.
        partitions: how many partitions the topic is created with, where it is missing; 1.
        provenance: whether outputs carry the `cues` header, without which `verify` cannot vouch for the topic; True.
        config: Kafka's settings of a topic that is created, such as ``{"retention.ms": "86400000"}``.
        given: the settings that were given, in the order of declaration.
    """

    value: CodecSpec
    key: str | None
    partitions: int
    provenance: bool
    config: Mapping[str, str]
    given: tuple[str, ...]

    def __init__(
        self,
        value: CodecSpec | Unset = UNSET,
        *,
        key: str | Unset | None = UNSET,
        partitions: int | Unset = UNSET,
        provenance: bool | Unset = UNSET,
        config: Mapping[str, str] | Unset = UNSET,
    ) -> None:
        all_of_them = {"value": value, "key": key, "partitions": partitions, "provenance": provenance, "config": config}
        given = {name: setting for name, setting in all_of_them.items() if not isinstance(setting, Unset)}
        _check_topic_settings(given)
        usual: dict[str, Any] = {"value": Json(), "key": None, "partitions": 1, "provenance": True, "config": {}}
        settings = {**usual, **given}
        config_text = {name: str(setting) for name, setting in settings.pop("config").items()}
        settle(self, **settings, config=frozen(config_text), given=tuple(given))
        _check_key_field(self)

    def over(self, defaults: Topic) -> Topic:
        """These settings, and where they were not given, those of `defaults`."""
        merged: dict[str, Any] = {name: getattr(defaults, name) for name in defaults.given}
        merged |= {name: getattr(self, name) for name in self.given}
        if merged.get("config"):
            merged["config"] = {**defaults.config, **self.config}
        if "value" in self.given and "key" not in self.given and isinstance(self.value, Raw):
            merged.pop("key", None)  # bytes have no fields; a default for the others is not meant for them
        return Topic(**merged)


def _check_topic_settings(given: Mapping[str, Any]) -> None:
    if "value" in given and not isinstance(given["value"], CodecSpec):
        value = given["value"]
        shown = value.__name__ if isinstance(value, type) else repr(value)
        fix = f"{shown}()" if isinstance(value, type) and issubclass(value, CodecSpec) else f"Json({shown})"
        raise GraphError(f"Topic(value={shown}): takes a codec. Write Topic(value={fix}).")
    if "key" in given and not (given["key"] is None or (isinstance(given["key"], str) and given["key"])):
        raise GraphError(f"Topic(key={given['key']!r}): takes the name of a field of the value, or None.")
    if "partitions" in given:
        whole(given["partitions"], "Topic(partitions)")
    if "provenance" in given and not isinstance(given["provenance"], bool):
        raise GraphError(f"Topic(provenance={given['provenance']!r}): takes True or False.")
    if "config" in given and not isinstance(given["config"], Mapping):
        raise GraphError(f"Topic(config={given['config']!r}): takes a mapping such as {{'retention.ms': '86400000'}}.")


def _check_key_field(topic: Topic) -> None:
    if topic.key is None:
        return
    if isinstance(topic.value, Raw):
        raise GraphError(
            f"Topic(value=Raw(), key={topic.key!r}): bytes have no fields. "
            "Drop key=, and return Message(value, key=...)."
        )
    cls = topic.value.record
    if cls is not None and dataclasses.is_dataclass(cls):
        fields = [f.name for f in dataclasses.fields(cls)]
        if topic.key not in fields:
            raise GraphError(
                f"Topic(key={topic.key!r}): {cls.__name__} has no such field{hint(topic.key, fields)}. "
                f"Fields: {quoted(fields)}."
            )
