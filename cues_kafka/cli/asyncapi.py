"""The AsyncAPI document of a graph: its topics as channels, its processors as operations, its codecs as schemas.

It follows AsyncAPI 3.0 and version 0.5.0 of its bindings for Kafka. Schemas stand once, in `components`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from cues_kafka.codecs.formats import format_of
from cues_kafka.codecs.json_derived import derived
from cues_kafka.codecs.registered import Own
from cues_kafka.core.delivery import HEADER
from cues_kafka.errors import GraphError
from cues_kafka.graph.declare import CodecSpec, Json, Raw
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.error_message import ErrorMessages
from cues_kafka.graph.formats import Avro, JsonSchema, Protobuf, SchemaSpec
from cues_kafka.graph.names import group_id
from cues_kafka.graph.own_schemas import load_schema
from cues_kafka.graph.topic import Topic
from cues_kafka.graph.topology import Edge, edges
from cues_kafka.words import summary

BINDING: Final = {"bindingVersion": "0.5.0"}

AVRO: Final = "application/vnd.apache.avro+json;version=1.9.0"
"""The name that AsyncAPI has for schemas in Avro."""

DRAFT_2020: Final = "application/schema+json;version=draft-2020-12"

_CONTENT: Final[dict[type[CodecSpec], str]] = {
    Json: "application/json",
    JsonSchema: "application/json",
    Avro: "application/vnd.apache.avro",
    Protobuf: "application/x-protobuf",
}
_BYTES: Final = "application/octet-stream"

_LOOKUP: Final = {
    "topic": "TopicNameStrategy",
    "record": "RecordNameStrategy",
    "topic-record": "TopicRecordNameStrategy",
}

_AVRO_KEYS: Final = {"string": "string", "int": "integer", "long": "integer", "boolean": "boolean", "bytes": "string"}

_NO_KEY: Final = re.compile(r"[^A-Za-z0-9._-]")
"""Characters that a name in `components` cannot have."""

_WHOLE: Final = {"retention.ms", "retention.bytes", "delete.retention.ms", "max.message.bytes"}
"""Settings of topics that AsyncAPI writes as numbers."""


def document(graph: Graph, *, version: str = "1.0.0", servers: Sequence[str] = ()) -> dict[str, Any]:
    """
    The document as data for JSON.

    Args:
        graph: the graph. Nothing is asked of a cluster or registry.
        version: of what the document describes.
        servers: addresses of brokers, HOST:PORT.

    Raises:
        ConfigError: a codec's packages are not installed.
        GraphError: two schemas would have one name.
    """
    described = _Describing(graph)
    channels = {topic: described.channel(topic) for topic in graph.topics_used()}
    operations = {_operation_name(edge): _operation(graph, edge) for edge in edges(graph)}
    found: dict[str, Any] = {"asyncapi": "3.0.0", "info": {"title": graph.name, "version": version}}
    if servers:
        found["servers"] = {
            f"kafka{number or ''}": {"host": host, "protocol": "kafka"} for number, host in enumerate(servers)
        }
    found |= {"channels": channels, "operations": operations}
    return found | {"components": {"messages": described.messages, "schemas": described.schemas}}


class _Describing:
    """Describes topics, and collects their messages and the schemas of these."""

    def __init__(self, graph: Graph) -> None:
        self.messages: dict[str, Any] = {}
        self.schemas: dict[str, Any] = {}
        self._graph = graph
        self._processed = {edge.topic for edge in edges(graph) if not edge.reads}

    def channel(self, topic: str) -> dict[str, Any]:
        settings = self._graph.topic(topic)
        binding: dict[str, Any] = {}
        if topic in self._graph.topics_written():
            binding["partitions"] = settings.partitions
            if settings.replication is not None:
                binding["replicas"] = settings.replication
            if settings.config:
                binding["topicConfiguration"] = {name: _setting(name, one) for name, one in settings.config.items()}
        errors = isinstance(settings.value, ErrorMessages)
        self.messages[topic] = self._errors() if errors else self._message(topic, settings)
        return {
            "address": topic,
            **({"description": "A source: applications send here."} if topic in self._graph.sources else {}),
            "messages": {"message": {"$ref": f"#/components/messages/{topic}"}},
            "bindings": {"kafka": binding | BINDING},
        }

    def _errors(self) -> dict[str, Any]:
        payload = {"schemaFormat": AVRO, "schema": load_schema("error")}
        return {
            "name": "ErrorMessage",
            "summary": "Takes the place of all outputs of an input message that could not be delivered.",
            "contentType": _CONTENT[Avro],
            "payload": self._kept("cues_kafka.Error", payload),
            "bindings": {"kafka": BINDING},
        }

    def _message(self, topic: str, settings: Topic) -> dict[str, Any]:
        value, key = settings.value, settings.key_codec
        message: dict[str, Any] = {"name": topic, "contentType": _CONTENT.get(type(value), _BYTES)}
        payload, why = self._payload(topic, value, "value")
        message |= {"payload": payload} if payload is not None else {}
        message |= {"description": why} if why else {}
        if settings.provenance and topic in self._processed:
            about = "Names the messages that this one was made of."
            message["headers"] = {"type": "object", "properties": {HEADER: {"type": "string", "description": about}}}
        binding = {"key": {"type": "string"} if key is None else self._key(topic, key), **_registry(value)}
        return message | {"bindings": {"kafka": binding | BINDING}}

    def _key(self, topic: str, codec: CodecSpec) -> dict[str, Any]:
        """A binding takes JSON Schema only, so an Avro schema that is more than one value stands in an extension."""
        payload, why = self._payload(topic, codec, "key")
        if isinstance(codec, Avro) and payload is not None:
            schema = self.schemas.pop(payload["$ref"].rpartition("/")[2])["schema"]
            plain = _AVRO_KEYS.get(schema) if isinstance(schema, str) else None
            return {"type": plain} if plain else {"description": "A value in Avro.", "x-avro": schema}
        if not payload:
            return {"description": why or ("Any value in JSON." if isinstance(codec, Json) else "Bytes.")}
        ref = payload["$ref"]
        inside = "/schema" if "schemaFormat" in self.schemas[ref.rpartition("/")[2]] else ""
        return {"allOf": [{"$ref": ref + inside}]}  # the specification's own schema refuses a bare reference

    def _payload(self, topic: str, codec: CodecSpec, part: Literal["key", "value"]) -> tuple[Any, str]:
        """The schema, and what is to be said where there is none."""
        name = f"{topic}.{part}"
        if isinstance(codec, Json):
            return self._class(codec.cls, name) if codec.cls else ({}, "")
        if isinstance(codec, Avro | JsonSchema):
            own = format_of(codec).own_schema(codec)
            if own is None:
                return None, "The schema is that of the registry."
            if isinstance(codec, Avro):
                return self._kept(name, {"schemaFormat": AVRO, "schema": json.loads(own.text)}), ""
            if isinstance(codec.schema, type):
                return self._class(codec.schema, name)
            return {"$ref": self._declared(own, name).removesuffix("/schema")}, ""
        if isinstance(codec, Protobuf):
            return None, f"The Protobuf message {codec.described.name}."
        if isinstance(codec, Raw):
            return None, ""
        return None, f"In the format {type(codec).__name__}. {summary(type(codec))}".strip()

    def _class(self, cls: type[Any], name: str) -> tuple[Any, str]:
        """The schema of a class: in AsyncAPI's own dialect, and once for all topics, by the class's name."""
        try:
            made = _as_draft_7(json.loads(derived(cls)))
        except GraphError as error:
            return {}, f"Values of {cls.__name__}. {error}"
        for one in (_NO_KEY.sub("_", made.get("title", name)), name):
            placed = _placed(made, {"": f"#/components/schemas/{one}"})
            if self.schemas.setdefault(one, placed) == placed:
                return {"$ref": f"#/components/schemas/{one}"}, ""
        raise _two_schemas(name)

    def _declared(self, own: Own, name: str) -> str:
        """Keep a JSON Schema, and those that it names. Returns the place from which its own places count."""
        schema = json.loads(own.text)
        is_draft_7 = isinstance(schema, dict) and "draft-07" in str(schema.get("$schema"))
        base = f"#/components/schemas/{name}" + ("" if is_draft_7 else "/schema")
        bases = {one: self._declared(other, f"{name}.{_NO_KEY.sub('_', one)}") for one, other in own.references}
        placed = _placed(schema, {"": base, **bases})
        self._kept(name, placed if is_draft_7 else {"schemaFormat": DRAFT_2020, "schema": placed})
        return base

    def _kept(self, name: str, schema: Any) -> dict[str, Any]:
        if self.schemas.setdefault(name, schema) != schema:
            raise _two_schemas(name)
        return {"$ref": f"#/components/schemas/{name}"}


def _two_schemas(name: str) -> GraphError:
    """The error about two schemas that would have one name in the document."""
    topic, _, part = name.rpartition(".")
    return GraphError(
        f"The {part} of topic {topic!r} and the class, or the file, that is named {name!r} would be one schema of the "
        "document. Give the class another name or title, or the file another name."
    )


def _placed(schema: Any, bases: Mapping[str, str], *, inside: bool = False) -> Any:
    """A schema as a part of this document: what its ``$ref`` name has moved to `bases`, by the names they have."""
    if isinstance(schema, list):
        return [_placed(one, bases, inside=True) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _placed(one, bases, inside=True) for key, one in schema.items()}
    if isinstance(ref := found.get("$ref"), str):
        name, _, place = ref.partition("#")
        if name in bases and (not place or place.startswith("/")):
            found["$ref"] = bases[name] + place
    return found if inside else {key: one for key, one in found.items() if key not in ("$schema", "$id")}


def _as_draft_7(schema: Any) -> Any:
    """What msgspec makes of a class, where draft 7 has another word: tuples with a schema for each place."""
    if isinstance(schema, list):
        return [_as_draft_7(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _as_draft_7(one) for key, one in schema.items()}
    if isinstance(places := found.get("prefixItems"), list):
        del found["prefixItems"]
        found["items"] = places
    return found


def _operation_name(edge: Edge) -> str:
    return f"{edge.processor}.{'receive' if edge.reads else 'send'}.{edge.topic}"


def _operation(graph: Graph, edge: Edge) -> dict[str, Any]:
    part = graph.all_processors[edge.processor]
    made: dict[str, Any] = {
        "action": "receive" if edge.reads else "send",
        "channel": {"$ref": f"#/channels/{edge.topic}"},
        "title": f"{part.name} ({part.kind})",
    }
    if text := summary(part.fn):
        made["summary"] = text
    made["messages"] = [{"$ref": f"#/channels/{edge.topic}/messages/message"}]
    if edge.role == "input":
        group = {"type": "string", "enum": [group_id(graph.name, part.name)]}
        made["bindings"] = {"kafka": {"groupId": group} | BINDING}
    return made


def _setting(name: str, value: str) -> Any:
    if name == "cleanup.policy":
        return [one.strip() for one in value.split(",")]
    return int(value) if name in _WHOLE else value


def _registry(codec: CodecSpec) -> dict[str, str]:
    """How a message names its schema in the registry."""
    if not isinstance(codec, SchemaSpec) or not codec.registry:
        return {}
    strategy = {"schemaLookupStrategy": _LOOKUP[codec.strategy]} if codec.subject is None else {}
    return {"schemaIdLocation": "payload", "schemaIdPayloadEncoding": "confluent", **strategy}
