"""The permissions that each role needs on the cluster, and the commands that grant them.

They follow from the graph alone, so they are the same before and after its topics exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from cues_kafka.graph.names import (
    backing_topic,
    changelog_topic,
    group_id,
    sender_id,
    tools_group,
    transactional_prefix,
)

if TYPE_CHECKING:
    from cues_kafka.graph.definition import Graph
    from cues_kafka.graph.processor import DataFrameProcessor, Processor

Role: TypeAlias = Literal["worker", "sender", "deployer", "operator", "verifier"]
Resource: TypeAlias = Literal["topic", "group", "transactional-id"]
Pattern: TypeAlias = Literal["literal", "prefixed"]

IMPLIED = {"Describe": ("Read", "Write", "Delete", "Alter"), "DescribeConfigs": ("AlterConfigs",)}
"""What Kafka's authorizer grants with another operation; Create implies nothing."""


class Acl(NamedTuple):
    """
    A permission that a role needs.

    Attributes:
        role: who needs it. The worker runs the graph, a sender is an application that writes to sources, the deployer
            creates topics, the operator reads error messages, the verifier runs `verify`.
        resource: topic, group or transactional-id.
        pattern: literal or prefixed.
        name: the resource's name or prefix.
        operation: Kafka's operation; Read and Write imply Describe.
        why: what it is for.
    """

    role: Role
    resource: Resource
    pattern: Pattern
    name: str
    operation: str
    why: str


def acls_of(graph: Graph) -> tuple[Acl, ...]:
    """All permissions that the roles of a graph need and no more, sorted. No name is a wildcard."""
    needed = [*_worker(graph), *_sender(graph), *_deployer(graph), *_operator(graph), *_verifier(graph)]
    return tuple(sorted({acl[:5]: acl for acl in _without_implied(needed)}.values()))


def kafka_acls(acls: Iterable[Acl], principals: Mapping[str, str] | None = None) -> dict[Role, tuple[str, ...]]:
    """
    The permissions of each role as `kafka-acls` commands.

    One command grants the same operations on all resources of a kind that need them.

    Args:
        acls: the permissions.
        principals: role to principal, such as ``{"worker": "User:CN=worker"}``; None, or a role that is not in it: the
            role's own name, ``User:worker``.
    """
    operations: dict[tuple[Role, Resource, Pattern, str], set[str]] = {}
    for acl in acls:
        operations.setdefault((acl.role, acl.resource, acl.pattern, acl.name), set()).add(acl.operation)
    names: dict[tuple[Role, Resource, Pattern, tuple[str, ...]], list[str]] = {}
    for (role, resource, pattern, name), verbs in sorted(operations.items()):
        names.setdefault((role, resource, pattern, tuple(sorted(verbs))), []).append(name)
    commands: dict[Role, tuple[str, ...]] = {}
    for (role, resource, pattern, verbs_), named in names.items():
        principal = (principals or {}).get(role, f"User:{role}")
        command = grant(principal, verbs_, resource, named, pattern=pattern)
        commands[role] = (*commands.get(role, ()), command)
    return commands


def grant(
    principal: str, operations: Sequence[str], resource: str, names: Sequence[str], *, pattern: Pattern = "literal"
) -> str:
    """
    The `kafka-acls` command that grants operations on resources. Whoever runs it adds the address and the login.

    Args:
        principal: such as ``User:worker``.
        operations: Kafka's names of them.
        resource: topic, group, transactional-id or cluster.
        names: of the resources; a cluster has none.
        pattern: literal or prefixed.
    """
    words = ["kafka-acls --add --allow-principal", _shell(principal)]
    words += [f"--operation {operation}" for operation in operations]
    words += [f"--{resource} {name}" for name in names] if names else [f"--{resource}"]
    words += ["--resource-pattern-type prefixed"] if pattern == "prefixed" else []
    return " ".join(words)


def _shell(principal: str) -> str:
    """Distinguished names of certificates have spaces."""
    return f"'{principal}'" if any(character in principal for character in " *=,") else principal


def _without_implied(acls: Sequence[Acl]) -> Iterator[Acl]:
    granted = {(acl.role, acl.resource, acl.name, acl.operation) for acl in acls}
    for acl in acls:
        implied_by = IMPLIED.get(acl.operation, ())
        if not any((acl.role, acl.resource, acl.name, operation) in granted for operation in implied_by):
            yield acl


def _checks(role: Role, graph: Graph) -> Iterator[Acl]:
    """A plan asks for all topics of the graph, whichever processors are run."""
    for topic in (*graph.topics_used(), *graph.internal_topics()):
        yield Acl(role, "topic", "literal", topic, "Describe", "see whether it is there")
        yield Acl(role, "topic", "literal", topic, "DescribeConfigs", "check its settings")


def _worker(graph: Graph) -> Iterator[Acl]:
    everyone: list[Processor | DataFrameProcessor] = [*graph.processors.values(), *graph.dataframes.values()]
    for one in everyone:
        prefix, group = transactional_prefix(graph.name, one.name), group_id(graph.name, one.name)
        yield Acl("worker", "transactional-id", "prefixed", prefix, "Write", f"transactions of {one.name}")
        yield Acl("worker", "group", "literal", group, "Read", f"membership and offsets of {one.name}")
        for topic in one.read_topics:
            yield Acl("worker", "topic", "literal", topic, "Read", "input")
        for topic in one.output_topics:
            yield Acl("worker", "topic", "literal", topic, "Write", "output")
        for topic in _records(graph, one.name):
            yield Acl("worker", "topic", "literal", topic, "Read", "recovery")
            yield Acl("worker", "topic", "literal", topic, "Write", "records of tasks")
    for topic in graph.error_topics():
        yield Acl("worker", "topic", "literal", topic, "Write", "error messages")
    yield from _checks("worker", graph)


def _records(graph: Graph, processor: str) -> Iterator[str]:
    yield backing_topic(graph.name, processor)
    if processor in graph.processors:
        yield from (changelog_topic(graph.name, processor, store) for store in graph.processors[processor].state)


def _sender(graph: Graph) -> Iterator[Acl]:
    for topic in graph.sources:
        yield Acl("sender", "topic", "literal", topic, "Write", "send")
        prefix = sender_id(graph.name, topic, "")
        yield Acl("sender", "transactional-id", "prefixed", prefix, "Write", "send_many")


def _deployer(graph: Graph) -> Iterator[Acl]:
    own, declared = graph.internal_topics(), {*graph.topics_written(), *graph.topics}
    for topic in (*(name for name in graph.topics_used() if name in declared), *own):
        yield Acl("deployer", "topic", "literal", topic, "Create", "create the topic")
    for topic in own:
        yield Acl("deployer", "topic", "literal", topic, "Alter", "add partitions when an input has more")
    yield from _checks("deployer", graph)


def _operator(graph: Graph) -> Iterator[Acl]:
    for topic in graph.error_topics():
        yield Acl("operator", "topic", "literal", topic, "Read", "read error messages")
    if graph.error_topics():
        yield _reading("operator", graph)


def _verifier(graph: Graph) -> Iterator[Acl]:
    for topic in graph.topics_used():
        yield Acl("verifier", "topic", "literal", topic, "Read", "compare inputs and outputs")
    for name in (*graph.processors, *graph.dataframes):
        for topic in _records(graph, name):
            yield Acl("verifier", "topic", "literal", topic, "Read", "read the records of tasks")
    yield from _checks("verifier", graph)
    yield _reading("verifier", graph)


def _reading(role: Role, graph: Graph) -> Acl:
    """A client that reads must name a group, and asks where it is coordinated, although it never joins it."""
    return Acl(role, "group", "literal", tools_group(graph.name), "Describe", "read; nothing joins it or commits there")
