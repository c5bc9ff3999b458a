"""What a graph declares of a schema registry, beside what the registry has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from cues_kafka.codecs.formats import format_of, subject_of
from cues_kafka.codecs.registered import Own, Part
from cues_kafka.codecs.registry import Denied, RegistrySchemas, schemas_of
from cues_kafka.errors import ConfigError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.formats import SchemaSpec
from cues_kafka.plan.inspectors import Findings, Terms
from cues_kafka.ports.broker import Broker


class Subject(NamedTuple):
    """
    A subject that a graph reads or writes.

    Attributes:
        name: in the registry.
        topic: whose keys or values it describes.
        own: the declared schema.
        written: whether a processor of the graph writes the topic.
        declared: the declaration; None: a schema that another one names.
    """

    name: str
    topic: str
    own: Own
    written: bool
    declared: SchemaSpec | None = None


class Checked(NamedTuple):
    """
    A subject beside the registry.

    Attributes:
        subject: what is declared.
        state: `registered`; `new`: there is no such subject; `compatible`: it can be the next version; `incompatible`.
        unreadable: why messages of the newest registered schema cannot be read into the declared one.
    """

    subject: Subject
    state: Literal["registered", "new", "compatible", "incompatible"]
    unreadable: tuple[str, ...] = ()


def subjects(graph: Graph) -> Iterator[Subject]:
    """
    The subjects of a graph's topics, by topic; those whose schema is the registry's own are left out.

    The schemas that a schema names come before it, as they must be registered.
    """
    written = {topic for one in graph.all_processors.values() for topic in one.output_topics}
    for topic in graph.topics_used():
        settings = graph.topic(topic)
        parts: dict[Part, Any] = {"key": settings.key_codec, "value": settings.value}
        for part, declared in parts.items():
            if isinstance(declared, SchemaSpec) and declared.registry:
                own = format_of(declared).own_schema(declared)
                if own is not None:
                    yield from _named(own, topic, topic in written)
                    yield Subject(subject_of(declared, topic, part), topic, own, topic in written, declared)


def _named(own: Own, topic: str, written: bool) -> Iterator[Subject]:
    for name, one in own.references:
        yield from _named(one, topic, written)
        yield Subject(name, topic, one, written)


def check(subject: Subject, registry: RegistrySchemas) -> Checked:
    """
    Compare one subject with the registry.

    Raises:
        RetriableError: the registry does not answer.
    """
    try:
        registry.id_of(subject.name, subject.own)
    except ConfigError:
        takes = registry.compatible(subject.name, subject.own)
        if takes is None:
            return Checked(subject, "new")
        return Checked(subject, "compatible" if takes else "incompatible", _unreadable(subject, registry))
    return Checked(subject, "registered", _unreadable(subject, registry))


def _unreadable(subject: Subject, registry: RegistrySchemas) -> tuple[str, ...]:
    if subject.declared is None:
        return ()
    newest = registry.latest(subject.name)
    try:
        return tuple(format_of(subject.declared).unreadable(subject.declared, newest))
    except ValueError as error:
        return (f"the registry's schema is of another format: {error}",)


def inspect_registry(graph: Graph, _: Broker, terms: Terms) -> Findings:
    """
    Compare the declared schemas with the registry, before a graph starts.

    Raises:
        RetriableError: the registry does not answer. Where it denies something to this user, that is found.
    """
    options: Any = getattr(terms.cluster, "registry", None)
    if options is None:  # making the codecs says so, in the words of the topic
        return Findings()
    refusals, warnings, changes = list[str](), list[str](), list[str]()
    for subject in subjects(graph):
        try:
            found = check(subject, schemas_of(options))
        except Denied as error:
            if error.login:
                return Findings(refusals=(f"{error}.",))
            (refusals if subject.written else warnings).append(f"{subject.topic!r}: {error}.")
            continue
        if found.unreadable:
            warnings.append(
                f"{subject.topic!r}: messages of the newest schema of {subject.name!r} cannot be read as declared "
                f"({'; '.join(found.unreadable):.500}); each would become an error message."
            )
        if not subject.written or found.state == "registered":
            continue
        if found.state == "incompatible":
            refusals.append(
                f"{subject.topic!r}: the registry would not take the declared schema as the next version of "
                f"{subject.name!r}. Change the schema, or the subject's compatibility."
            )
            continue
        refusals.append(
            f"{subject.topic!r}: {subject.name!r} does not have the declared schema. `cues-kafka schemas register "
            "MODULE:GRAPH` adds it."
        )
        changes.append(f"register the schema of {subject.topic!r} as {subject.name!r}: cues-kafka schemas register")
    return Findings(refusals=refusals, warnings=warnings, changes=changes)
