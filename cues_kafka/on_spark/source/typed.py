"""Options of `format("cues")` that give values columns: a graph's topics, an Avro schema, a schema registry.

The names are those that users of Spark know: `avroSchema` and `mode` of Spark's own Avro, and the names of Confluent's
clients behind `schema.registry.`. Spark passes options as text, so a graph is named, and `register` has carried it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from cues_kafka.brokers.options import Kafka, Registry
from cues_kafka.codecs.lookup import MadeFor
from cues_kafka.errors import ConfigError
from cues_kafka.graph.declare import CodecSpec
from cues_kafka.graph.formats import Avro
from cues_kafka.graph.names import hint, quoted
from cues_kafka.on_spark.source.values import FAILFAST, MODES, Values

PREFIX: Final = "schema.registry."

OPTIONS: Final = ("graph", "avroSchema", "mode")

REGISTRY: Final = {
    "url": "url",
    "basic.auth.user.info": "auth",
    "bearer.auth.token": "auth",
    "ssl.ca.location": "ca",
    "ssl.certificate.location": "certificate",
    "ssl.key.location": "key",
}
"""Names of Confluent's clients, and what of `Registry(...)` they are."""

REGISTRY_OPTIONS: Final = tuple(PREFIX + name for name in REGISTRY)

Graphs = Mapping[str, Mapping[str, CodecSpec]]
"""The codecs of registered graphs, by graph and topic."""


def values_of(given: Mapping[str, str], topics: tuple[str, ...], options: Kafka, graphs: Graphs) -> Values | None:
    """
    Return what makes the column of values; None: they are bytes.

    Args:
        given: the options of `OPTIONS` and `REGISTRY_OPTIONS` that there are.
        topics: what is read, by name; none: the topics are not known yet.
        options: the cluster.
        graphs: see `Graphs`.

    Raises:
        ConfigError: the options contradict each other, or name what there is not; the text has the remedy.
    """
    registry = _registry(given)
    declared = _declared(given, topics, graphs, registry)
    if declared is None:
        if "mode" in given:
            raise ConfigError(
                "option mode says what a value does that cannot be read; here values are bytes. Leave it out"
            )
        return None
    mode = given.get("mode", FAILFAST).strip().upper()
    if mode not in MODES:
        raise ConfigError(f"mode={given['mode']} is not known; it is {' or '.join(MODES)}")
    return Values(declared, MadeFor(", ".join(topics), replace(options, registry=registry)), mode)


def _declared(
    given: Mapping[str, str], topics: tuple[str, ...], graphs: Graphs, registry: Registry | None
) -> CodecSpec | None:
    if "graph" in given and "avroSchema" in given:
        raise ConfigError("graph and avroSchema both say what values are; give one of them")
    if "graph" in given:
        return _of_graph(given["graph"].strip(), topics, graphs, registry)
    if "avroSchema" in given:
        return Avro(given["avroSchema"].strip(), registry=registry is not None)
    return None if registry is None else _of_subject(topics, registry)


def _of_graph(name: str, topics: tuple[str, ...], graphs: Graphs, registry: Registry | None) -> CodecSpec:
    if name not in graphs:
        known = f" Registered: {quoted(sorted(graphs))}." if graphs else ""
        raise ConfigError(
            f"graph={name}: this session does not know the graph{hint(name, graphs)}. Before the read, call "
            f"register(session, graph) with the graph of this name.{known}"
        )
    if not topics:
        raise ConfigError("option graph needs topics by name: give subscribe or assign, not subscribePattern")
    codecs = graphs[name]
    if unknown := [topic for topic in topics if topic not in codecs]:
        raise ConfigError(
            f"graph {name!r} has no topic {unknown[0]!r}{hint(unknown[0], codecs)}. Topics: {quoted(sorted(codecs))}."
        )
    first = codecs[topics[0]]
    if other := [topic for topic in topics if codecs[topic] != first]:
        raise ConfigError(
            f"{topics[0]!r} and {other[0]!r} have different codecs, and a column has one type. Read one topic at a time"
        )
    if isinstance(first, Avro) and first.registry and registry is None:
        raise ConfigError(
            f'{topics[0]!r} is declared with registry=True: add option("schema.registry.url", "http://host:8081")'
        )
    return first


def _of_subject(topics: tuple[str, ...], registry: Registry) -> CodecSpec:
    """The newest schema of the topic's subject: what values are when the read begins."""
    from cues_kafka.codecs.registry import schemas_of  # noqa: PLC0415 - it imports the registry's client

    if len(topics) != 1:
        raise ConfigError(
            "schema.registry.url alone takes one topic's schema. Add avroSchema, or read one topic at a time"
        )
    found = schemas_of(registry).latest(f"{topics[0]}-value")
    if found.references:
        raise ConfigError(
            f"the newest schema of '{topics[0]}-value' names others. Give the whole schema: option(\"avroSchema\", ...)"
        )
    return Avro(json.loads(found.text), registry=True)


def _registry(given: Mapping[str, str]) -> Registry | None:
    settings = {name.removeprefix(PREFIX): value for name, value in given.items() if name.startswith(PREFIX)}
    if not settings:
        return None
    if not settings.get("url", "").strip():
        raise ConfigError(f'{PREFIX}{min(settings)} needs option("{PREFIX}url", "http://host:8081")')
    auth: Any = settings.get("bearer.auth.token")
    if user := settings.get("basic.auth.user.info"):
        if auth is not None or ":" not in user:
            raise ConfigError(f"{PREFIX}basic.auth.user.info is user:password, and excludes bearer.auth.token")
        name, _, password = user.partition(":")
        auth = (name, password)
    tls = {REGISTRY[name]: value for name, value in settings.items() if name.startswith("ssl.")}
    return Registry(settings["url"].strip(), auth=auth, tls=tls)
