"""Looks for what keeps a graph from working, or endangers its guarantee: each finding with its remedy.

A check that cannot be made is a finding, too: what was not looked at is not sound. Nothing is written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from cues_kafka.brokers.examination import Examination, TopicHealth
from cues_kafka.core.records import KEY
from cues_kafka.errors import BrokerError, CuesError, UnstableOffsets
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import group_id, processor_of
from cues_kafka.operate.foreseen import foresee
from cues_kafka.operate.look.held_offsets import HeldOffsets, where_held
from cues_kafka.operate.look.members import SESSIONS
from cues_kafka.operate.seen import GraphStatus
from cues_kafka.operate.status import StatusView
from cues_kafka.plan.acls import IMPLIED, Role, acls_of, grant
from cues_kafka.plan.inspectors import facts_of
from cues_kafka.plan.plan import Plan, plan
from cues_kafka.plan.topics import Sides, retention_ms, topics_to_ask
from cues_kafka.ports import Broker, Clock, ClusterFacts, TopicPartition, Watermarks
from cues_kafka.records.reading import newest
from cues_kafka.records.scanning import holds_messages
from cues_kafka.runtime.task.clock import SystemClock
from cues_kafka.words import at_address, count

WATCH_S: Final = 3.0
"""How long an open transaction, or a task that stands still, is watched. A batch of ours takes a second at most, unless
its policy says more."""

SKEW_S: Final = 2.0
"""By how much the clocks may differ. Retries, windows by the clock and `reset --to TIME` count on them."""

DAY_S: Final = 86_400

SHOWN: Final = 4
"""How many partitions a sentence names."""

MARKERS: Final = 4
"""Up to this number of offsets at the end of a log are read, because they may be markers of transactions only."""

NEEDED: Final = {
    "Metadata": (3, 10, "2.8", "the ids of topics, by which a recreated one is known"),
    "InitProducerId": (22, 3, "2.5", "transactions that go on after an error"),
    "TxnOffsetCommit": (28, 3, "2.5", "offsets that are checked against the group's generation"),
}
"""Requests that the guarantee needs: number, version, the release of Kafka that has it, and what for."""


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


class Look(NamedTuple):
    """The ends of all partitions at one moment."""

    at_s: float
    marks: Mapping[TopicPartition, Watermarks]


@dataclass(slots=True)
class Patient:
    """
    A graph on a cluster, with what was asked once for all checks.

    Attributes:
        graph: the graph.
        broker: the cluster.
        facts: what it says of the graph's topics.
        found: what it says besides.
        planned: the plan of the graph there.
        clock: time.
        role: whose rights are compared.
        address: of the cluster, for commands.
        cluster: its options.
        first, last: two looks, some seconds apart where something was seen to be watched.
        lags: of each processor, see `_lag`.
        held: by processor, the transaction that holds offsets of its group at the first look.
    """

    graph: Graph
    broker: Broker
    facts: ClusterFacts
    found: Examination
    planned: Plan
    clock: Clock
    role: Role
    address: str
    cluster: Any
    first: Look
    last: Look
    lags: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    held: dict[str, HeldOffsets] = field(default_factory=dict)


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
            for wrong, what, remedy in check(patient):
                yield Ailment(name, wrong, what, remedy)
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
        for wrong, what, command in _lacking(graph, cluster, role, broker.facts(()).user, found):
            yield Ailment(RIGHTS, wrong, what, at_address(command, address))
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


Found = Iterator[tuple[bool, str, str]]
"""Wrong or worth knowing, the sentence, the remedy."""


def _wrong(what: str, remedy: str = "") -> tuple[bool, str, str]:
    return True, what, remedy


def _note(what: str, remedy: str = "") -> tuple[bool, str, str]:
    return False, what, remedy


def _cluster(patient: Patient) -> Found:
    """Nodes and their releases."""
    nodes = patient.found.nodes
    for node in nodes:
        if node.apis is None:
            yield _wrong(
                f"Broker {node.number} gives clients the address {node.address}, and does not answer there from this "
                "machine.",
                "start it, open the firewall, or correct `advertised.listeners` of that broker",
            )
    answering = [node for node in nodes if node.apis]
    for name, (api, version, release, why) in NEEDED.items():
        old = [str(node.number) for node in answering if (node.apis or {}).get(api, -1) < version]
        if old:
            yield _wrong(f"Broker {', '.join(old)} has no {name} v{version}, for {why}.", f"upgrade to Kafka {release}")
    if len({tuple(sorted((node.apis or {}).items())) for node in answering}) > 1:
        yield _note("The brokers run different releases of Kafka.", "finish the upgrade")


def _replicas(patient: Patient) -> Found:
    """Partitions without a leader, or with fewer replicas in sync than there are."""
    leaderless, few, thin = list[TopicPartition](), list[TopicPartition](), list[TopicPartition]()
    for topic, health in patient.found.topics.items():
        least = int(patient.facts.topics[topic].config.get("min.insync.replicas", 1))
        for partition, in_sync in enumerate(health.in_sync):
            if partition in health.leaderless:
                leaderless.append(TopicPartition(topic, partition))
            elif in_sync < health.replicas[partition]:
                (few if in_sync < least else thin).append(TopicPartition(topic, partition))
    if leaderless:
        yield _wrong(f"No broker leads {_parts(leaderless)}: nothing is read or written there.", START)
    if few:
        yield _wrong(f"Too few replicas are in sync of {_parts(few)}, so writes are refused.", START)
    if thin:
        yield _note(f"Replicas are not in sync of {_parts(thin)}.", START)


START: Final = "start the brokers that are down, and see their logs"


def _parts(places: Sequence[TopicPartition]) -> str:
    shown = ", ".join(f"{place.topic}/{place.partition}" for place in places[:SHOWN])
    return shown if len(places) <= SHOWN else f"{shown} and {count(len(places) - SHOWN, 'other partition')}"


def _settings(patient: Patient) -> Found:
    """Settings of brokers whose defaults are right."""
    settings = patient.found.settings
    if settings is None:
        if patient.found.nodes:
            command = grant(f"User:{patient.facts.user or 'NAME'}", ["DescribeConfigs"], "cluster", [])
            remedy = at_address(f"`{command}`", patient.address)
            yield _note("Not checked: this user may not read the settings of the brokers.", remedy)
        return
    days = {
        "transactional.id.expiration.ms": (1000, "a task that is idle for longer begins with a new id of its producer"),
        "offsets.retention.minutes": (1 / 60, "tools no longer see where a stopped group stands"),
    }
    for name, (per_s, what) in days.items():
        kept_s = float(settings.get(name, math.inf)) / per_s
        if kept_s < DAY_S:
            yield _note(
                f"The brokers have {name}={settings[name]}, {kept_s / 3600:g} hours: then {what}.",
                _set_broker(patient, f"{name}={round(7 * DAY_S * per_s)}"),
            )
    longest, ours = int(settings.get("transaction.max.timeout.ms", 900_000)), _timeout_ms(patient.cluster)
    if longest < ours:
        yield _wrong(
            f"The brokers have transaction.max.timeout.ms={longest}, and our transactions ask for {ours}: no task can "
            "start.",
            _set_broker(patient, f"transaction.max.timeout.ms={ours}"),
        )


def _timeout_ms(cluster: Any) -> int:
    return round(1000 * float(getattr(cluster, "transaction_timeout_s", 60.0)))


def _set_broker(patient: Patient, setting: str) -> str:
    return (
        f"`kafka-configs --bootstrap-server {patient.address} --alter --entity-type brokers --entity-default "
        f"--add-config {setting}`; where a broker refuses it at run time, in its server.properties"
    )


def _topics(patient: Patient) -> Found:
    """What a plan refuses and warns of, and retention that is about to take what is not delivered."""
    planned = patient.planned
    yield from map(_wrong, planned.refusals)
    yield from map(_note, planned.warnings)
    if planned.would_change:
        missing = count(len(planned.create), "topic") + " to create" if planned.create else "partitions or settings"
        yield _note(
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
                yield _wrong(
                    f"{name} has not delivered messages of {at.topic}/{at.partition} that are older than half of what "
                    f"the topic keeps ({days:g} days). Kafka deletes them, delivered or not.",
                    f"start its workers, or give it time: `kafka-configs --bootstrap-server {patient.address} --alter "
                    f"--topic {at.topic} --add-config retention.ms=-1`",
                )


def _clocks(patient: Patient) -> Found:
    """Brokers stamp the records of tasks with their own clocks."""
    backing = [place for place in patient.first.marks if place.topic.endswith(".backing")]
    stamped = [p for p in backing if _config(patient, p.topic).get("message.timestamp.type") == "LogAppendTime"]
    if not stamped:
        return
    ahead = patient.broker.offsets_at(dict.fromkeys(stamped, round((patient.clock.time() + SKEW_S) * 1000)))
    skews = [_ahead_s(patient, place) for place, offset in ahead.items() if offset is not None]
    moved = [p for p in stamped if patient.last.marks[p].high > patient.first.marks[p].high]
    behind = [_behind_s(patient, place) for place in moved]
    if skews:
        yield _wrong(f"The clock of a broker is {max(skews):.0f} s ahead of the one of this machine.", NTP)
    if late := [one for one in behind if one > SKEW_S]:
        yield _wrong(f"The clock of a broker is {max(late):.0f} s behind the one of this machine.", NTP)


NTP: Final = "let both follow a time server (chrony, ntpd), and see which of the two is wrong"


def _stamp_s(patient: Patient, place: TopicPartition) -> float:
    low, stable, _ = patient.broker.watermarks([place])[place]
    found = newest(patient.broker, place, low, stable, patient.clock, group=_group(place), key=KEY)
    return patient.first.at_s if found is None else found.timestamp()[1] / 1000


def _group(place: TopicPartition) -> str:
    return place.topic.removesuffix(".backing")


def _ahead_s(patient: Patient, place: TopicPartition) -> float:
    return _stamp_s(patient, place) - patient.clock.time()


def _behind_s(patient: Patient, place: TopicPartition) -> float:
    """The record came after the first look."""
    return patient.first.at_s - _stamp_s(patient, place)


def _config(patient: Patient, topic: str) -> Mapping[str, str]:
    return patient.facts.topics[topic].config


def _rights(patient: Patient) -> Found:
    """What this user lacks of the rights of a role."""
    for wrong, what, command in _lacking(
        patient.graph, patient.cluster, patient.role, patient.facts.user, patient.found
    ):
        yield wrong, what, at_address(command, patient.address)


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
        yield _wrong(
            f"{who} lacks {operations[0]} on {resource} {', '.join(names)}, which the role {role} needs.",
            f"`{grant(principal, operations, resource, names)}`",
        )


def _transactions(patient: Patient) -> Found:
    """A transaction that stays open hides what comes behind it from all readers."""
    for place, now in patient.last.marks.items():
        then = patient.first.marks[place]
        if now.stable < now.high and then.stable == now.stable and then.high > then.stable:
            for_s = patient.last.at_s - patient.first.at_s
            yield _wrong(
                f"A transaction has been open for at least {for_s:.0f} s, and hides {place.topic}/{place.partition} "
                f"from {now.stable} on ({count(now.high - now.stable, 'offset')}). That of a dead process ends with "
                "its time-out, after 60 s by default.",
                f"if it stays: `kafka-transactions --bootstrap-server {patient.address} abort --topic {place.topic} "
                f"--partition {place.partition} --start-offset {now.stable}`",
            )
    yield from _held_offsets(patient)


def _held_offsets(patient: Patient) -> Found:
    """A transaction that stays open and holds the offsets of a group: its tasks do not find their place."""
    for name, then in patient.held.items():
        group = group_id(patient.graph.name, name)
        inputs = [place for place in patient.first.marks if place.topic in patient.graph.processors[name].input_topics]
        try:
            patient.broker.committed(group, inputs)
            continue
        except UnstableOffsets:
            now = where_held(patient.broker, group)
        if now != then:
            continue  # it has ended, and another one is under way
        for_s = patient.last.at_s - patient.first.at_s
        found = _note if now.start is None else _wrong  # without its place it may be another one
        yield found(
            f"A transaction has held offsets of group {group} for at least {for_s:.0f} s, so "
            f"tasks of {name} that start wait for it. That of a dead process ends with its time-out, after 60 s by "
            "default; one that its coordinator has lost never does.",
            f"if it stays: {at_address(now.command, patient.address)}",
        )


def _groups(patient: Patient) -> Found:
    """Processors that nothing runs, and members that do not get on."""
    if hidden := [group for group, health in patient.found.groups.items() if health.allowed == frozenset()]:
        who = f"user `{patient.facts.user}`" if patient.facts.user else "the user of this client"
        yield _note(_unseen(f"{who} may not describe groups {', '.join(hidden)}"), _more(patient.role))
    for name, lags in patient.lags.items():
        group = group_id(patient.graph.name, name)
        health = patient.found.groups[group]
        waiting = sum(patient.first.marks[place].stable - at for place, at in lags.items())
        if health.state not in ("", "Stable", "Empty"):
            yield _note(
                f"Group {group} is {health.state}: it has members ({', '.join(sorted(health.members))}), and gives no "
                "partitions while one of them does not answer.",
                f"{SESSIONS}; see the logs of the others",
            )
        elif lags and not health.members:
            yield _wrong(
                f"No worker runs {name}, and {count(waiting, 'offset')} of its inputs wait.",
                f"`cues-kafka run MODULE:GRAPH --only {name}`",
            )
        elif stuck := [place for place in lags if not _moved(patient, name, place)]:
            for_s = patient.last.at_s - patient.first.at_s
            yield _note(
                f"{name} has workers ({', '.join(sorted(health.members))}), and committed nothing for {for_s:.0f} s, "
                f"while messages of {_parts(stuck)} wait.",
                "see the logs of these workers: a task may have stopped, or its function is slow. Or a process is "
                f"dead, and {SESSIONS}",
            )


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
        yield _wrong(f"{', '.join(stop.tasks)}: {stop.why.rstrip('.')}.", stop.remedy)
    yield from map(_note, seen.warnings)


def _verdict(patient: Patient) -> Found:
    """What `status` says of the tasks; what other checks say with more detail is left to them."""
    with StatusView(patient.graph, patient.broker, sides=Sides.of(patient.cluster), clock=patient.clock) as view:
        seen = view.look()
    for one in seen.unwell:
        if one.kind not in ("refused", "blocked", "no worker", "left") and not _is_new(seen):
            found = _wrong if one.severity == "wrong" else _note
            yield found(f"{one.name}: {one.what.rstrip('.')}.", at_address(one.remedy, patient.address))


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
        yield _note(
            f"{' and '.join(parts)} belong to processors that this graph does not have.",
            "`cues-kafka delete MODULE:GRAPH --unused`, if they do not come back",
        )


CHECKS: Final[Mapping[str, Callable[[Patient], Found]]] = {
    "cluster": _cluster,
    "replicas": _replicas,
    "settings": _settings,
    "topics": _topics,
    "clock": _clocks,
    RIGHTS: _rights,
    "transactions": _transactions,
    "groups": _groups,
    "tasks": _tasks,
    "verdict": _verdict,
    "leftovers": _leftovers,
}
"""All checks, in the order in which they are made."""
