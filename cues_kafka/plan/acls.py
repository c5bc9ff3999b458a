"""The permissions that each role needs on the cluster, and the commands that grant them.

They follow from the graph alone, so they are the same before and after its topics exist.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from cues_kafka.errors import ConfigError
from cues_kafka.graph.names import (
    backing_topic,
    changelog_topic,
    client_id,
    control_topic,
    group_id,
    journal_topic,
    replay_topic,
    sender_id,
    status_topic,
    tailer_id,
    tailers_topic,
    tools_group,
    transactional_prefix,
)
from cues_kafka.graph.patterns import unresolved
from cues_kafka.plan.topics import NO_SIDES, Sides
from cues_kafka.words import SERVER

if TYPE_CHECKING:
    from cues_kafka.graph.definition import Graph

Role: TypeAlias = Literal["worker", "sender", "client", "deployer", "operator", "verifier"]
Resource: TypeAlias = Literal["topic", "group", "transactional-id"]
Pattern: TypeAlias = Literal["literal", "prefixed"]

IMPLIED = {"Describe": ("Read", "Write", "Delete", "Alter"), "DescribeConfigs": ("AlterConfigs",)}
"""What Kafka's authorizer grants with another operation; Create implies nothing."""


class Acl(NamedTuple):
    """
    A permission that a role needs.

    Attributes:
        role: who needs it. The worker runs the graph, a sender is an application that writes to sources, a client one
            with a name that also reads, the deployer creates topics, the operator reads error messages, sees the status
            of tasks, pauses and moves them, the verifier runs `verify`.
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


def acls_of(graph: Graph, clients: Iterable[str] = (), *, sides: Sides = NO_SIDES) -> tuple[Acl, ...]:
    """
    All permissions that the roles of a graph need and no more, sorted. No name is a wildcard.

    Args:
        graph: the graph.
        clients: names of clients, as `connect(..., name=)` has them; the graph does not know them.
        sides: topics that the graph can work without.

    Raises:
        ConfigError: the graph has a pattern, whose topics are not known; see `Graph.resolve`.
    """
    if graph.patterns:
        raise ConfigError(unresolved(graph))
    of_clients = [acl for name in clients for acl in _named(graph, name)]
    needed = {acl[:5]: acl for acl in (*_of_sides(graph, sides.of_graph(graph)), *_needed(graph), *of_clients)}
    granted = {(acl.role, acl.resource, acl.name, acl.operation) for acl in needed.values()}
    return tuple(
        sorted(
            acl
            for acl in needed.values()
            if not any((acl.role, acl.resource, acl.name, by) in granted for by in IMPLIED.get(acl.operation, ()))
        )
    )


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
    for (role, resource, pattern, name), needed in sorted(operations.items()):
        names.setdefault((role, resource, pattern, tuple(sorted(needed))), []).append(name)
    commands: dict[Role, tuple[str, ...]] = {}
    for (role, resource, pattern, granted), named in names.items():
        principal = (principals or {}).get(role, f"User:{role}")
        command = f"kafka-acls {_added(principal, granted, resource, named, pattern)}"
        commands[role] = (*commands.get(role, ()), command)
    return commands


def script(
    acls: Iterable[Acl], principals: Mapping[str, str], *, bootstrap: str | None, command_config: str | None = None
) -> Iterator[str]:
    """
    The lines of a shell script that grants permissions, under the name of each role.

    A shell refuses a command whose placeholder is not set, so a role without a principal is granted to no user.

    Args:
        acls: the permissions.
        principals: role to principal; a role that is not in it gets a placeholder, such as ``${WORKER:?...}``.
        bootstrap: the cluster's address; None: a placeholder.
        command_config: file with the administrator's login, as `kafka-acls` reads it; None: it needs none.
    """
    acls = tuple(acls)
    address = bootstrap or "${BOOTSTRAP:?address of the cluster, such as kafka-1:9092}"
    head = f"kafka-acls --bootstrap-server {_shell(address)}"
    head += f" --command-config {_shell(command_config)}" if command_config else ""
    roles: set[str] = {acl.role for acl in acls}
    unset = {role: f"${{{role.upper()}:?user of the {role}, such as User:{role}-1}}" for role in roles}
    for role, commands in kafka_acls(acls, {**unset, **principals}).items():
        yield f"# {role}"
        yield from (f"{head}{command.removeprefix('kafka-acls')}" for command in commands)


def acls_data(acls: Iterable[Acl], principals: Mapping[str, str]) -> list[dict[str, Any]]:
    """The permissions as plain data, each with the principal of its role, or None."""
    return [acl._asdict() | {"principal": principals.get(acl.role)} for acl in acls]


def grant(
    principal: str, operations: Sequence[str], resource: str, names: Sequence[str], *, pattern: Pattern = "literal"
) -> str:
    """
    The `kafka-acls` command that grants operations on resources; the login is to be added.

    It has `words.SERVER`, which `words.at_address` replaces by the address of the cluster.

    Args:
        principal: such as ``User:worker``.
        operations: Kafka's names of them.
        resource: topic, group, transactional-id or cluster.
        names: of the resources; a cluster has none.
        pattern: literal or prefixed.
    """
    return f"kafka-acls {SERVER} {_added(principal, operations, resource, names, pattern)}"


def _added(principal: str, operations: Sequence[str], resource: str, names: Sequence[str], pattern: Pattern) -> str:
    """The options of the command."""
    words = ["--add --allow-principal", _shell(principal)]
    words += [f"--operation {operation}" for operation in operations]
    words += [f"--{resource} {name}" for name in names] if names else [f"--{resource}"]
    words += ["--resource-pattern-type prefixed"] if pattern == "prefixed" else []
    return " ".join(words)


def _shell(word: str) -> str:
    """A word of a shell's command: names of certificates have spaces, and a placeholder is only read in `"`."""
    if word.startswith("${"):
        return f'"{word}"'
    safe = shlex.quote(word)
    return f"'{word}'" if safe == word and any(character in word for character in "=,") else safe


def _needed(graph: Graph) -> Iterator[Acl]:
    used, own, errors = graph.topics_used(), graph.internal_topics(), graph.error_topics()
    for name, one in graph.all_processors.items():
        prefix = transactional_prefix(graph.name, name)
        if name in graph.processors and graph.strategy_of(name) == "at-least-once":
            yield Acl("operator", "transactional-id", "prefixed", prefix, "Write", f"tools that move {name}")
        else:
            yield Acl("worker", "transactional-id", "prefixed", prefix, "Write", f"transactions of {name}")
        yield Acl("worker", "group", "literal", group_id(graph.name, name), "Read", f"membership and offsets of {name}")
        yield from _topics("worker", one.read_topics, Read="input")
        yield from _topics("worker", one.output_topics, Write="output")
        stores = graph.processors[name].state if name in graph.processors else ()
        records = [backing_topic(graph.name, name), *(changelog_topic(graph.name, name, store) for store in stores)]
        if name in graph.processors and graph.processors[name].journaled:
            records.append(journal_topic(graph.name, name))
        yield from _topics("worker", records, Read="recovery", Write="records of tasks")
        yield from _topics("verifier", records, Read="read the records of tasks")
        if name in graph.processors and (former := graph.processors[name].renamed_from):
            yield from _topics("verifier", [backing_topic(graph.name, former)], Read="see whether tasks have moved")
        if name not in graph.feeds and graph.errors_of(name) is not None:
            yield from _topics("worker", [replay_topic(graph.name, name)], Read="requests to replay errors")
    parts = {**graph.processors, **graph.dataframes}
    replayed = any(graph.errors_of(name) is not None for name in parts)
    reads = {"Read": "the error messages that requests name"} if replayed else {}
    yield from _topics("worker", errors, Write="error messages", **reads)
    for topic in graph.sources:
        prefix = sender_id(graph.name, topic, "")
        yield Acl("sender", "transactional-id", "prefixed", prefix, "Write", "send_many")
    yield from _topics("sender", graph.sources, Write="send")
    declared = [topic for topic in used if topic in graph.topics_written() or topic in graph.topics]
    yield from _topics("deployer", (*declared, *own), Create="create the topic")
    if graph.cuts is not None:
        control = control_topic(graph.name)
        yield from _topics("worker", [control], Read="hear of a pause, and read cuts", Write="pause, and write cuts")
        changelogs = [
            changelog_topic(graph.name, p.name, store) for p in graph.processors.values() for store in p.state
        ]
        yield from _topics("deployer", changelogs, AlterConfigs="keep what a cut needs")
        own = tuple(topic for topic in own if topic != control)
    yield from _topics("deployer", own, Alter="add partitions when an input has more")
    yield from _topics("operator", errors, Read="read error messages")
    for name, part in parts.items():
        if graph.errors_of(name) is not None:
            asks = {"Read": "see what is asked for", "Write": "ask to replay or drop an error message"}
            yield from _topics("operator", [replay_topic(graph.name, name)], **asks)
            yield from _topics("operator", [backing_topic(graph.name, name)], Read="see what is settled")
            yield from _topics("operator", part.input_topics, Describe="see whether a message is still there")
    yield from _topics("verifier", used, Read="compare inputs and outputs")
    asked = (*used, *graph.internal_topics())
    for role in _CHECKERS:  # a plan asks for all topics of the graph, also when only some processors run
        yield from _topics(role, asked, Describe="see whether it is there", DescribeConfigs="check its settings")
    readers: tuple[Role, ...] = ("operator", "verifier") if errors else ("verifier",)
    for role in readers:  # a client that reads must name a group and find its coordinator, although it never joins
        yield Acl(role, "group", "literal", tools_group(graph.name), "Describe", _READS)


def _of_sides(graph: Graph, sides: Sides) -> Iterator[Acl]:
    """What workers need for status and control, and the operator for `status`, `pause` and `resume`."""
    topics = sides.topics(graph)
    if not (topics or sides.status):
        return
    status, control = status_topic(graph.name), control_topic(graph.name)
    if sides.status:
        moves = "see whether Spark runs a processor that is moved"
        yield from _topics("worker", [status], Write="report the state of tasks", Read=moves)
        yield Acl("worker", "group", "literal", tools_group(graph.name), "Describe", _READS)
        yield from _topics("operator", [status], Read="see the state of tasks")
    if sides.control:
        yield from _topics("worker", [control], Read="hear of a pause")
        yield from _topics("operator", [control], Read="see what is paused", Write="pause and resume")
    yield from _topics("deployer", topics, Create="create the topic", Alter="add partitions when an input has more")
    for role in _CHECKERS:
        yield from _topics(role, topics, Describe="see whether it is there", DescribeConfigs="check its settings")
    for name, one in graph.all_processors.items():
        yield from _topics("operator", one.read_topics, Read="see the lag")
        yield from _topics("operator", [backing_topic(graph.name, name)], Read="see positions")
        yield Acl("operator", "group", "literal", group_id(graph.name, name), "Describe", f"see who runs {name}")
    yield Acl("operator", "group", "literal", tools_group(graph.name), "Describe", _READS)


_CHECKERS: tuple[Role, ...] = ("worker", "deployer", "verifier")
_READS = "read; nothing joins it or commits there"


def _named(graph: Graph, client: str) -> Iterator[Acl]:
    """What a client with a name needs (K1 to K4): it sends with ids, commits transactions, and has named tailers."""
    client = f"{graph.prefix}{client.removeprefix(graph.prefix)}"  # as `connect` names it
    own, tailers = client_id(client).removesuffix("send"), tailers_topic(client)
    yield Acl("client", "transactional-id", "prefixed", own, "Write", f"sends, transactions and tailers of {client}")
    yield Acl("client", "group", "prefixed", tailer_id(client, ""), "Read", "places of named tailers, for lag tools")
    made = {"Create": "the first connect creates it"}
    yield from _topics("client", [tailers], Read="find the places", Write="keep the places", **made)
    yield from _topics("client", graph.sources, Write="send")
    yield from _topics("client", graph.topics_used(), Read="read, and see whether a message was sent")
    for owner in (tailers, graph.name):
        yield Acl("client", "group", "literal", tools_group(owner), "Describe", "read; nothing joins it")


def _topics(role: Role, topics: Iterable[str], **operations: str) -> Iterator[Acl]:
    """Operations on each of these topics, with what they are for."""
    for topic in topics:
        for operation, why in operations.items():
            yield Acl(role, "topic", "literal", topic, operation, why)
