"""`Topic`, the settings of a topic; and the checks that declarations share."""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import EllipsisType
from typing import Any, Final, Literal

from cues_kafka.arguments import known_arguments
from cues_kafka.errors import GraphError
from cues_kafka.graph.declare import CodecSpec, Json, Raw
from cues_kafka.graph.durations import milliseconds, written
from cues_kafka.graph.error_message import ErrorMessages
from cues_kafka.graph.formats import Avro
from cues_kafka.graph.meta import MARKS
from cues_kafka.graph.names import hint, quoted
from cues_kafka.graph.partitioners import MURMUR2, PARTITIONERS

TRANSIENT: Final = "10 days"
"""How long `Topic(transient=True)` keeps messages, as in Cues."""

SEGMENTS: Final = 10
"""In how many files the messages of a transient topic lie, about. Kafka deletes whole files, so a message stays up to a
tenth longer than its time."""

LEAST_COPIES: Final = 3
"""Copies of each partition, so that with two in sync one broker may be lost (docs/guarantee.md)."""

LEAST_TRANSIENT_MS: Final = 60_000
"""Brokers look for what they may delete every five minutes (`log.retention.check.interval.ms`)."""


def set_fields(target: Any, **values: Any) -> None:
    """Set fields of a frozen declaration while it is constructed."""
    for name, value in values.items():
        object.__setattr__(target, name, value)


def read_only(mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    """A read-only copy."""
    return types.MappingProxyType(dict(mapping))


def check_choice(value: object, allowed: tuple[str, ...], what: str) -> None:
    """Refuse a setting that is not one of these words."""
    if value not in allowed:
        near = hint(value, allowed) if isinstance(value, str) else ""
        raise GraphError(f"{what}={value!r} is not known{near}. Choose one of {quoted(allowed)}.")


def check_count(value: object, what: str) -> None:
    """Refuse a setting that is not a whole number from 1 on."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise GraphError(f"{what}={value!r}: takes a whole number from 1 on.")


def check_flag(value: object, what: str) -> None:
    """Refuse a setting that is neither True nor False."""
    if not isinstance(value, bool):
        raise GraphError(f"{what}={value!r}: takes True or False.")


@known_arguments()
@dataclass(frozen=True, slots=True, init=False)
class Topic:
    """
    Settings of a topic. A setting that is not given comes from the graph's `defaults=`, within `config` key by key.

    Attributes:
        value: codec of the values; `Json()`.
        key_codec: codec of the keys; None: keys are text, whole numbers or bytes. Bytes are taken as they are.
        key: the field of a value that is the key of a message without one; None: the lead input's key.
        partitions: how many partitions the topic is created with; 1.
        replication: on how many brokers a new topic is; None: three, or all of a smaller cluster. In `defaults=` it is
            also that of the framework's own topics.
        provenance: whether outputs carry the `cues` header, without which `verify` cannot vouch for the topic; True.
        meta: what is passed on of the topic's messages to all that is made of them: "offset" (their places), "time"
            (with their timestamps), "tx" (they count as the transaction); False: what is written to the topic carries
            no headers from its ancestors; None: it carries theirs, and nothing of its own is passed on.
        transient: how long the topic keeps messages, delivered or not, such as "7 days"; True: 10 days; None: as long
            as Kafka's own settings say.
        compacted: whether the topic keeps only the newest message of each key; with `transient`, that one for its time.
        partitioner: how the writers of the topic place keys, by librdkafka's name: "murmur2" is the rule of Kafka's
            Java clients and of cues-kafka, "consistent_random" (CRC32) that of most others; "custom": a rule of their
            own, which is not checked. Stores, tables, timers and upserts count on it.
        config: Kafka's settings of a topic that is created, such as ``{"max.message.bytes": "5000000"}``; those that
            `transient` and `compacted` stand for are among them.
        given: the settings that were given, in the order of declaration.
    """

    value: CodecSpec
    key_codec: CodecSpec | None
    key: str | None
    partitions: int
    replication: int | None
    provenance: bool
    transient: str | None
    compacted: bool
    meta: frozenset[str] | Literal[False] | None
    partitioner: str
    config: Mapping[str, str]
    given: Mapping[str, Any]

    def __init__(
        self,
        value: CodecSpec | EllipsisType = ...,
        *,
        key: str | EllipsisType | None = ...,
        key_codec: CodecSpec | EllipsisType | None = ...,
        partitions: int | EllipsisType = ...,
        replication: int | EllipsisType | None = ...,
        provenance: bool | EllipsisType = ...,
        transient: bool | str | timedelta | EllipsisType | None = ...,
        compacted: bool | EllipsisType = ...,
        meta: Collection[str] | Literal[False] | EllipsisType | None = ...,
        partitioner: str | EllipsisType = ...,
        config: Mapping[str, str] | EllipsisType = ...,
    ) -> None:
        settings = {
            "value": value,
            "key_codec": key_codec,
            "key": key,
            "partitions": partitions,
            "replication": replication,
            "provenance": provenance,
            "transient": transient,
            "compacted": compacted,
            "meta": meta,
            "partitioner": partitioner,
            "config": config,
        }
        given: dict[str, Any] = {name: setting for name, setting in settings.items() if setting is not ...}
        _check_topic_settings(given)
        if "meta" in given:
            given["meta"] = _marks(given["meta"])
        if "config" in given:
            given["config"] = read_only({name: str(setting) for name, setting in given["config"].items()})
        if "transient" in given:
            given["transient"] = _duration(given["transient"])
        _check_said_once(given)
        config = read_only({**_stands_for(given), **given.get("config", {})})
        compacted = COMPACT in _policies(config)
        set_fields(self, **{**_DEFAULTS, **given, "config": config, "compacted": compacted}, given=read_only(given))
        _check_key_field(self)

    def over(self, defaults: Topic) -> Topic:
        """These settings over those of `defaults`."""
        merged: dict[str, Any] = {**defaults.given, **self.given}
        own: Mapping[str, str] = self.given.get("config", {})
        for name, decided in _DECIDED.items():
            if name not in self.given and not decided.isdisjoint(own):
                merged.pop(name, None)  # this topic sets by Kafka's name what the defaults call by ours
        if "config" in merged:
            below: Mapping[str, str] = defaults.given.get("config", {})
            taken = set().union(*(decided for name, decided in _DECIDED.items() if name in self.given))
            merged["config"] = {name: one for name, one in below.items() if name not in taken} | dict(own)
        if "value" in self.given and "key" not in self.given and isinstance(self.value, Raw | ErrorMessages):
            merged.pop("key", None)  # they have no such field, so the key of the defaults does not apply
        return Topic(**merged)

    def settings(self) -> dict[str, Any]:
        """All settings, given or not."""
        return {name: getattr(self, name) for name in _DEFAULTS}


_DEFAULTS: dict[str, Any] = {
    "value": Json(),
    "key_codec": None,
    "key": None,
    "partitions": 1,
    "replication": None,
    "provenance": True,
    "transient": None,
    "compacted": False,
    "meta": None,
    "partitioner": MURMUR2,
    "config": read_only({}),
}

COMPACT, DELETE = "compact", "delete"

_DECIDED: Final = {"transient": {"cleanup.policy", "retention.ms"}, "compacted": {"cleanup.policy"}}
"""By our names, the settings of Kafka that they decide."""


def _check_topic_settings(given: Mapping[str, Any]) -> None:
    if "value" in given and not isinstance(given["value"], CodecSpec):
        value = given["value"]
        if not isinstance(value, type):
            raise GraphError(f"Topic(value={value!r}): takes a codec. Write Json(), Json(Order), Avro(Order) or Raw().")
        shown = value.__name__
        fix = f"{shown}()" if issubclass(value, CodecSpec) else f"Json({shown})"
        raise GraphError(f"Topic(value={shown}): takes a codec. Write Topic(value={fix}).")
    if "key" in given and not (given["key"] is None or (isinstance(given["key"], str) and given["key"])):
        raise GraphError(f"Topic(key={given['key']!r}): takes the name of a field of the value, or None.")
    if not isinstance(given.get("key_codec"), CodecSpec | None):
        raise GraphError(f"Topic(key_codec={given['key_codec']!r}): takes a codec, such as Avro('string'), or None.")
    check_count(given.get("partitions", 1), "Topic: partitions")
    if (copies := given.get("replication")) is not None:
        check_count(copies, "Topic: replication")
        if copies < LEAST_COPIES:
            raise GraphError(
                f"Topic(replication={copies}): with fewer than {LEAST_COPIES} copies, the loss of a broker can lose "
                "data. Leave it out: on a cluster of one broker a topic gets one copy by itself."
            )
    check_flag(given.get("provenance", True), "Topic: provenance")
    check_flag(given.get("compacted", True), "Topic: compacted")
    check_choice(given.get("partitioner", MURMUR2), PARTITIONERS, "Topic: partitioner")
    if not isinstance(given.get("config", {}), Mapping):
        raise GraphError(f"Topic(config={given['config']!r}): takes a mapping such as {{'retention.ms': '86400000'}}.")
    for name in given.get("config", {}):
        if not isinstance(name, str) or not name:
            raise GraphError(f"Topic(config={{{name!r}: ...}}): a setting of Kafka is named by text: 'retention.ms'.")
        value = str(given["config"][name])
        if name.endswith((".ms", ".bytes")) and not value.removeprefix("-").isdecimal():
            ours = " Topic(transient='7 days') takes such a time." if name == "retention.ms" else ""
            raise GraphError(f"Topic(config={{{name!r}: {value!r}}}): takes a whole number, such as '86400000'.{ours}")


def _duration(transient: bool | str | timedelta | None) -> str | None:
    """`transient` as text, equal for equal durations; None: the topic is not transient."""
    if transient is None or transient is False:
        return None
    try:
        kept = written(TRANSIENT if transient is True else transient, "transient")
    except ValueError as error:
        raise GraphError(f"Topic({str(error).replace(': takes', '): takes', 1)}, or True.") from None
    if milliseconds(kept, "transient") < LEAST_TRANSIENT_MS:
        raise GraphError(
            f"Topic(transient={transient!r}): brokers look for messages to delete every five minutes. Give it a minute "
            'or more, such as "1 hour".'
        )
    return kept


def _policies(config: Mapping[str, str]) -> list[str]:
    return [one.strip() for one in config.get("cleanup.policy", "").split(",")]


def _stands_for(given: Mapping[str, Any]) -> dict[str, str]:
    """What `transient` and `compacted` are in Kafka's settings."""
    kept, found = given.get("transient"), {}
    policy = [word for word, wanted in ((COMPACT, given.get("compacted")), (DELETE, kept)) if wanted]
    if policy:
        found["cleanup.policy"] = ",".join(policy)
    if kept is not None:
        kept_ms = milliseconds(kept, "transient")
        found |= {"retention.ms": str(kept_ms), "segment.ms": str(kept_ms // SEGMENTS)}
    return found


def _check_said_once(given: Mapping[str, Any]) -> None:
    """Refuse settings of Kafka that contradict ours. The size of segments may be set beside `transient`."""
    config, kept, compacted = given.get("config", {}), given.get("transient"), given.get("compacted")
    stands_for = _stands_for(given)
    wrong: str | None = None
    if config.get("retention.ms", stands_for.get("retention.ms")) != stands_for.get("retention.ms") and kept:
        wrong = "retention.ms"
    elif "cleanup.policy" in config:
        policies = _policies(config)
        contradicts = compacted is not None and compacted != (COMPACT in policies)
        wrong = "cleanup.policy" if contradicts or (kept and DELETE not in policies) else None
    if wrong is not None:
        ours = " and ".join(f"{name}={given[name]!r}" for name in ("transient", "compacted") if name in given)
        raise GraphError(
            f"Topic({ours}, config={{{wrong!r}: {config[wrong]!r}}}) contradicts itself. Drop {wrong!r} from config=, "
            "and keep transient= and compacted=, which set it."
        )


def _marks(meta: Any) -> frozenset[str] | Literal[False] | None:
    """`Topic(meta=)` as it is kept."""
    if meta is None or meta is False:
        return meta
    if isinstance(meta, str) or not isinstance(meta, Collection):
        near = f"{{{meta!r}}}" if meta in MARKS else '{"offset", "time"}'
        raise GraphError(f"Topic(meta={meta!r}): takes a set, or False. Write meta={near}.")
    if wrong := [one for one in meta if one not in MARKS]:
        near = hint(wrong[0], MARKS) if isinstance(wrong[0], str) else ""
        raise GraphError(f"Topic(meta=...): {wrong[0]!r} is not known{near}. Choose among {quoted(MARKS)}.")
    return frozenset(meta)


def _check_key_field(topic: Topic) -> None:
    if topic.key is None:
        return
    if isinstance(topic.value, Raw):
        raise GraphError(
            f"Topic(value=Raw(), key={topic.key!r}): bytes have no fields. "
            "Drop key=, and return Message(value, key=...)."
        )
    owner, fields = fields_of(topic.value)
    if fields and topic.key not in fields:
        raise GraphError(
            f"Topic(key={topic.key!r}): {owner} does not have this field{hint(topic.key, fields)}. Fields: "
            f"{quoted(fields)}."
        )


def fields_of(codec: CodecSpec) -> tuple[str, tuple[str, ...]]:
    """The name of a codec's class or record, and of its fields; none if the declaration does not tell them."""
    cls = codec.record
    if cls is not None:
        # Other classes have their fields' names in an attribute, so that graphs do without the libraries.
        messages: Iterable[str] = getattr(getattr(cls, "DESCRIPTOR", None), "fields_by_name", ())  # Protobuf
        structs: Iterable[str] = getattr(cls, "__struct_fields__", getattr(cls, "model_fields", messages))
        fields = [f.name for f in dataclasses.fields(cls)] if dataclasses.is_dataclass(cls) else structs
        return cls.__name__, tuple(fields)
    if isinstance(codec, Avro) and codec.schema is not None:
        record = json.loads(codec.schema)
        if isinstance(record, dict) and record.get("type") == "record":
            found = record.get("fields", ())
            return str(record.get("name")), tuple(
                one["name"] for one in found if isinstance(one, dict) and "name" in one
            )
    return "", ()
