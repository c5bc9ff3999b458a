"""Looks for what keeps a graph from working, or endangers its guarantee: each finding with its remedy.

A check that cannot be made is a finding, too: what was not looked at is not sound. Nothing is written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from cues_kafka.brokers.examination import Examination, TopicHealth
from cues_kafka.errors import BrokerError, CuesError, UnstableOffsets
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import group_id, processor_of
from cues_kafka.operate.look.broker_checks import (
    check_clocks,
    check_cluster,
    check_replicas,
    check_settings,
    check_transactions,
)
from cues_kafka.operate.look.foreseen import foresee
from cues_kafka.operate.look.held_offsets import where_held
from cues_kafka.operate.look.members import SESSIONS
from cues_kafka.operate.look.patient import DAY_S, Found, Look, Patient, note, partitions, wrong
from cues_kafka.operate.look.seen import GraphStatus
from cues_kafka.operate.look.status import StatusView
from cues_kafka.plan.acls import IMPLIED, Role, acls_of, grant
from cues_kafka.plan.inspectors import facts_of
from cues_kafka.plan.plan import plan
from cues_kafka.plan.topics import Sides, retention_ms, topics_to_ask
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.facts import ClusterFacts
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.control import PAUSED_BY
from cues_kafka.records.scanning import holds_messages
from cues_kafka.task.clock import SystemClock
from cues_kafka.words import at_address, count

WATCH_S: Final = 3.0
"""How long an open transaction, or a task that stands still, is watched. A batch of ours takes a second at most, unless
its policy says more."""

MARKERS: Final = 4
"""Up to this number of offsets at the end of a log are read, because they may be markers of transactions only."""

REACH: Final = "reach"
"""The check that all others need: the cluster answers, and this user may see the topics."""

RIGHTS: Final = "permissions"
"""The check that can be made for a user who may not see all topics."""

AS_WORKER: Final = "run `cues-kafka doctor MODULE:GRAPH` as the user of a worker, who may see them all"


class Ailment(NamedTuple):
    """
    What a check has found.

    Attributes:
        check: the name of the check.
        wrong: it keeps the graph from working or endangers its guarantee; else it is worth knowing.
        what: a sentence.
        remedy: what to do, with the command; empty: it is in the sentence.
    """

    check: str
    wrong: bool
    what: str
    remedy: str = ""


def examine(
    graph: Graph,
    broker: Any,
    *,
    role: Role = "worker",
    address: str = "BOOTSTRAP",
    cluster: Any = None,
    watch_s: float = WATCH_S,
    clock: Clock | None = None,
) -> Iterator[Ailment]:
    """
    Make all checks; if the cluster or its topics cannot be reached, that is the only finding.

    Most roles may not see all topics of the graph. Their rights are checked all the same.

    Args:
        graph: the graph.
        broker: the cluster, which is `Examinable`.
        role: whose rights this user should have.
        address: of the cluster, for commands.
        cluster: its options, for codecs of stores that are in a registry.
        watch_s: how long what may be stuck is watched.
        clock: time.
    """
    clock = clock or SystemClock()
    try:
        sides = Sides.of(cluster)
        facts = facts_of(graph, broker, sides)
        planned = plan(graph, facts, accept_unchecked=True, sides=sides).at(address)
        groups = [group_id(graph.name, name) for name in graph.all_processors]
        topics = (*topics_to_ask(graph), *sides.topics(graph))
        found = broker.examine([topic for topic in topics if topic in facts.topics], groups)
        first = _look(broker, facts, clock)
    except CuesError as error:
        forbidden = isinstance(error, BrokerError) and error.forbidden
        if forbidden and role != "worker":
            yield from _rights_alone(graph, broker, role, address, cluster)
        else:
            yield Ailment(REACH, True, str(error), AS_WORKER if forbidden else "")
        return
    patient = Patient(graph, broker, facts, found, planned, clock, role, address, cluster, first, first)
    try:
        patient.lags = {name: _lag(patient, name) for name in graph.processors}
        if _suspicious(patient):
            clock.sleep(watch_s)
            patient.last = _look(broker, facts, clock)
    except BrokerError as error:
        yield Ailment("groups", True, f"Not looked at twice: {error}")
    for name, check in CHECKS.items():
        try:
            for is_wrong, what, remedy in check(patient):
                yield Ailment(name, is_wrong, what, remedy)
        except BrokerError as error:
            if (
                error.forbidden
            ):  # what the role needs and lacks, `permissions` says; some checks need more than some roles
                yield Ailment(name, False, _unseen(str(error).partition(". Grant it with ")[0]), _more(role))
            else:
                yield Ailment(name, True, f"Not checked: {error}")


def _unseen(why: str) -> str:
    return (
        f"Not looked at, for this user has no right to it: {why.rstrip('.')}. This check needs the rights of a worker."
    )


def _more(role: Role) -> str:
    """What helps where a right is missing: a role other than the worker's lacks it on purpose."""
    as_worker = "run `cues-kafka doctor MODULE:GRAPH` as the user of a worker"
    return f"see `permissions`, or {as_worker}" if role == "worker" else as_worker


def _rights_alone(graph: Graph, broker: Any, role: Role, address: str, cluster: Any) -> Iterator[Ailment]:
    """What a user who may not see all topics lacks of a role that needs not see them all."""
    text = f"This user may not see all topics of the graph, so only the rights of the role {role} were checked."
    yield Ailment(REACH, False, text, f"for the other checks {AS_WORKER}")
    hidden = TopicHealth((), (), (), frozenset())
    try:
        topics = (*topics_to_ask(graph), *Sides.of(cluster).topics(graph))
        visible = [topic for topic in topics if _visible(broker, topic)]
        found = broker.examine(visible, [group_id(graph.name, name) for name in graph.all_processors])
        found = found._replace(topics={**dict.fromkeys(topics, hidden), **dict.fromkeys(visible), **found.topics})
        for is_wrong, what, command in _lacking(graph, cluster, role, broker.facts(()).user, found):
            yield Ailment(RIGHTS, is_wrong, what, at_address(command, address))
    except BrokerError as error:
        yield Ailment(RIGHTS, True, f"Not checked: {error}")


def _visible(broker: Broker, topic: str) -> bool:
    """Whether this user may see a topic, or could if it existed."""
    try:
        broker.partitions([topic])
    except BrokerError as error:
        if not error.forbidden:
            raise
        return False
    return True


def _look(broker: Broker, facts: ClusterFacts, clock: Clock) -> Look:
    places = [TopicPartition(one.name, p) for one in facts.topics.values() for p in range(one.partitions)]
    at_s = clock.time()
    return Look(at_s, broker.watermarks(places))


def _suspicious(patient: Patient) -> bool:
    """Whether a second look tells more than the first one: a transaction is open, or messages wait for a worker."""
    lagging = any(
        lags and patient.found.groups[group_id(patient.graph.name, n)].members for n, lags in patient.lags.items()
    )
    return lagging or bool(patient.held) or any(marks.stable < marks.high for marks in patient.first.marks.values())


def _lag(patient: Patient, name: str) -> dict[TopicPartition, int]:
    """By input partition where messages wait: the group's offset. None where the group has no offset, or moves."""
    processor, marks = patient.graph.processors[name], patient.first.marks
    if patient.found.groups[group_id(patient.graph.name, name)].allowed == frozenset():
        return {}  # it may not be asked, which `permissions` says
    places = [place for place in marks if place.topic in processor.input_topics]
    try:
        held = patient.broker.committed(group_id(patient.graph.name, name), places)
    except UnstableOffsets:
        patient.held[name] = where_held(patient.broker, group_id(patient.graph.name, name))
        return {}
    return {place: at for place, at in held.items() if at is not None and _waits(patient, name, place, at)}


def _waits(patient: Patient, name: str, place: TopicPartition, at: int) -> bool:
    """Whether messages are behind this offset, and not only the markers of transactions, which have offsets too."""
    end = patient.first.marks[place].stable
    if at >= end or end - at > MARKERS:
        return at < end
    return holds_messages(patient.broker, place, at, end, group=group_id(patient.graph.name, name))


def _topics(patient: Patient) -> Found:
    """What a plan refuses and warns of, and retention that is about to take what is not delivered."""
    planned = patient.planned
    yield from map(wrong, planned.refusals)
    yield from map(note, planned.warnings)
    if planned.would_change:
        missing = count(len(planned.create), "topic") + " to create" if planned.create else "partitions or settings"
        yield note(
            f"The cluster is not as the graph declares it: {missing}.",
            "`cues-kafka plan MODULE:GRAPH --apply`",
        )
    for name, lags in patient.lags.items():
        limits = {topic: retention_ms(patient.graph, topic, patient.facts) for topic in {at.topic for at in lags}}
        now_ms = patient.clock.time() * 1000
        halves = {at: int(now_ms - limits[at.topic] / 2) for at in lags if limits[at.topic] < math.inf}
        for at, reached in patient.broker.offsets_at(halves).items():
            if lags[at] < (patient.first.marks[at].stable if reached is None else reached):
                days = limits[at.topic] / 1000 / DAY_S
                yield wrong(
                    f"{name} has not delivered messages of {at.topic}/{at.partition} that are older than half of what "
                    f"the topic keeps ({days:g} days). Kafka deletes them, delivered or not.",
                    f"start its workers, or give it time: `kafka-configs --bootstrap-server {patient.address} --alter "
                    f"--topic {at.topic} --add-config retention.ms=-1`",
                )


def _rights(patient: Patient) -> Found:
    """What this user lacks of the rights of a role."""
    known = patient.graph, patient.cluster, patient.role, patient.facts.user, patient.found
    for is_wrong, what, command in _lacking(*known):
        yield is_wrong, what, at_address(command, patient.address)


def _lacking(graph: Graph, cluster: Any, role: Role, user: str | None, found: Examination) -> Found:
    """What a user lacks of the rights of a role, by asking; the cluster does not tell about transactional ids."""
    lacking: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for acl in acls_of(graph, sides=Sides.of(cluster)):
        known: Any = found.topics if acl.resource == "topic" else found.groups
        health = known.get(acl.name) if acl.resource in ("topic", "group") and acl.role == role else None
        if health is None or health.allowed is None or acl.operation == "Create":
            continue
        if not health.allowed & {acl.operation, "All", *IMPLIED.get(acl.operation, ())}:
            lacking.setdefault((acl.resource, (acl.operation,)), []).append(acl.name)
    principal = f"User:{user or 'NAME'}"
    for (resource, operations), names in lacking.items():
        who = f"User `{user}`" if user else "The user of this client"
        yield wrong(
            f"{who} lacks {operations[0]} on {resource} {', '.join(names)}, which the role {role} needs.",
            f"`{grant(principal, operations, resource, names)}`",
        )


def _groups(patient: Patient) -> Found:
    """Processors that nothing runs, and members that do not get on."""
    if hidden := [group for group, health in patient.found.groups.items() if health.allowed == frozenset()]:
        who = f"user `{patient.facts.user}`" if patient.facts.user else "the user of this client"
        yield note(_unseen(f"{who} may not describe groups {', '.join(hidden)}"), _more(patient.role))
    for name, lags in patient.lags.items():
        group = group_id(patient.graph.name, name)
        health = patient.found.groups[group]
        waiting = sum(patient.first.marks[place].stable - at for place, at in lags.items())
        if health.state not in ("", "Stable", "Empty"):
            yield note(
                f"Group {group} is {health.state}: it has members ({', '.join(sorted(health.members))}), and gives no "
                "partitions while one of them does not answer.",
                f"{SESSIONS}; see the logs of the others",
            )
        elif lags and not health.members:
            yield wrong(
                f"No worker runs {name}, and {count(waiting, 'offset')} of its inputs wait.",
                f"`cues-kafka run MODULE:GRAPH --only {name}`",
            )
        elif stuck := [place for place in lags if not _moved(patient, name, place)]:
            held = _held(patient, name)
            for why in dict.fromkeys(held.values()):
                if waiting_there := [place for place in stuck if held.get(place.partition) == why]:
                    resume = f"`cues-kafka resume MODULE:GRAPH {name}`; without {name} if the whole graph is paused"
                    remedy = resume if why.startswith(PAUSED_BY) else ""
                    yield note(f"{name}: {why}, and messages of {partitions(waiting_there)} wait.", remedy)
            if not (stuck := [place for place in stuck if place.partition not in held]):
                continue
            for_s = patient.last.at_s - patient.first.at_s
            yield note(
                f"{name} has workers ({', '.join(sorted(health.members))}), and committed nothing for {for_s:.0f} s, "
                f"while messages of {partitions(stuck)} wait.",
                "see the logs of these workers: a task may have stopped, or its function is slow. Or a process is "
                f"dead, and {SESSIONS}",
            )


def _held(patient: Patient, name: str) -> dict[int | None, str]:
    """The partitions of the tasks of a processor that are held back, with the reason."""
    tasks = (one for one in _status(patient).tasks if one.processor == name)
    return {one.partition: one.held for one in tasks if one.held and one.state in ("paused", "pausing")}


def _moved(patient: Patient, name: str, place: TopicPartition) -> bool:
    backing = TopicPartition(patient.planned[name].backing, place.partition)
    if backing not in patient.first.marks or patient.last is patient.first:
        return True
    return patient.last.marks[backing].high > patient.first.marks[backing].high


def _tasks(patient: Patient) -> Found:
    """Tasks that would stop, or have: by their newest records."""
    seen = foresee(
        *(patient.graph, patient.broker, patient.planned, [*patient.graph.all_processors]),
        clock=patient.clock,
        cluster=patient.cluster,
        facts=patient.facts,
    )
    for stop in seen.stops:
        yield wrong(f"{', '.join(stop.tasks)}: {stop.why.rstrip('.')}.", stop.remedy)
    yield from map(note, seen.warnings)


def _verdict(patient: Patient) -> Found:
    """What `status` says of the tasks; what other checks say with more detail is left to them."""
    seen = _status(patient)
    for one in seen.unwell:
        if one.kind not in ("refused", "blocked", "no worker", "left") and not _is_new(seen):
            found = wrong if one.severity == "wrong" else note
            yield found(f"{one.name}: {one.what.rstrip('.')}.", at_address(one.remedy, patient.address))


def _status(patient: Patient) -> GraphStatus:
    """What `status` says of the graph, asked once."""
    if patient.seen is None:
        with StatusView(patient.graph, patient.broker, sides=Sides.of(patient.cluster), clock=patient.clock) as view:
            patient.seen = view.look()
    return patient.seen


def _is_new(seen: GraphStatus) -> bool:
    """Whether the graph has never run: the plan says what is to do."""
    return bool(seen.tasks) and all(one.state == "never started" and not one.missing for one in seen.tasks)


def _leftovers(patient: Patient) -> Found:
    """Topics and groups under the graph's name that no processor of it has."""
    known = {*topics_to_ask(patient.graph)}
    listed = patient.broker.partitions()
    topics = sorted(t for t in listed if processor_of(patient.graph.name, t) and t not in known)
    prefix = f"{patient.graph.name}."
    groups = [
        group
        for group in patient.found.listed
        if group.startswith(prefix)
        and group.removeprefix(prefix) in {processor_of(patient.graph.name, topic) for topic in topics}
    ]
    if topics or groups:
        parts = [f"topics {', '.join(topics)}"] if topics else []
        parts += [f"groups {', '.join(groups)}"] if groups else []
        yield note(
            f"{' and '.join(parts)} belong to processors that this graph does not have.",
            "`cues-kafka delete MODULE:GRAPH --unused`, if they do not come back",
        )


CHECKS: Final[Mapping[str, Callable[[Patient], Found]]] = {
    "cluster": check_cluster,
    "replicas": check_replicas,
    "settings": check_settings,
    "topics": _topics,
    "clock": check_clocks,
    RIGHTS: _rights,
    "transactions": check_transactions,
    "groups": _groups,
    "tasks": _tasks,
    "verdict": _verdict,
    "leftovers": _leftovers,
}
"""All checks, in the order in which they are made."""
