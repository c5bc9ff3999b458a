"""Checks of `doctor` that are about the brokers: releases, replicas, settings, clocks and transactions."""

from __future__ import annotations

import math
from typing import Any, Final

from cues_kafka.core.records import KEY
from cues_kafka.errors import UnstableOffsets
from cues_kafka.graph.names import group_id
from cues_kafka.operate.look.held_offsets import where_held
from cues_kafka.operate.look.patient import DAY_S, Found, Patient, note, partitions, wrong
from cues_kafka.plan.acls import grant
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.reading import newest
from cues_kafka.words import at_address, count

SKEW_S: Final = 2.0
"""By how much the clocks may differ. Retries, windows by the clock and `reset --to TIME` count on them."""

NEEDED: Final = {
    "Metadata": (3, 10, "2.8", "the ids of topics, by which a recreated one is known"),
    "InitProducerId": (22, 3, "2.5", "transactions that go on after an error"),
    "TxnOffsetCommit": (28, 3, "2.5", "offsets that are checked against the group's generation"),
}
"""Requests that the guarantee needs: number, version, the release of Kafka that has it, and what for."""


def check_cluster(patient: Patient) -> Found:
    """Nodes and their releases."""
    nodes = patient.found.nodes
    for node in nodes:
        if node.apis is None:
            yield wrong(
                f"Broker {node.number} gives clients the address {node.address}, and does not answer there from this "
                "machine.",
                "start it, open the firewall, or correct `advertised.listeners` of that broker",
            )
    answering = [node for node in nodes if node.apis]
    for name, (api, version, release, why) in NEEDED.items():
        old = [str(node.number) for node in answering if (node.apis or {}).get(api, -1) < version]
        if old:
            yield wrong(f"Broker {', '.join(old)} has no {name} v{version}, for {why}.", f"upgrade to Kafka {release}")
    if len({tuple(sorted((node.apis or {}).items())) for node in answering}) > 1:
        yield note("The brokers run different releases of Kafka.", "finish the upgrade")


def check_replicas(patient: Patient) -> Found:
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
        yield wrong(f"No broker leads {partitions(leaderless)}: nothing is read or written there.", START)
    if few:
        yield wrong(f"Too few replicas are in sync of {partitions(few)}, so writes are refused.", START)
    if thin:
        yield note(f"Replicas are not in sync of {partitions(thin)}.", START)


START: Final = "start the brokers that are down, and see their logs"


def check_settings(patient: Patient) -> Found:
    """Settings of brokers whose defaults are right."""
    settings = patient.found.settings
    if settings is None:
        if patient.found.nodes:
            command = grant(f"User:{patient.facts.user or 'NAME'}", ["DescribeConfigs"], "cluster", [])
            remedy = at_address(f"`{command}`", patient.address)
            yield note("Not checked: this user may not read the settings of the brokers.", remedy)
        return
    days = {
        "transactional.id.expiration.ms": (1000, "a task that is idle for longer begins with a new id of its producer"),
        "offsets.retention.minutes": (1 / 60, "tools no longer see where a stopped group stands"),
    }
    for name, (per_s, what) in days.items():
        kept_s = float(settings.get(name, math.inf)) / per_s
        if kept_s < DAY_S:
            yield note(
                f"The brokers have {name}={settings[name]}, {kept_s / 3600:g} hours: then {what}.",
                _set_broker(patient, f"{name}={round(7 * DAY_S * per_s)}"),
            )
    longest, ours = int(settings.get("transaction.max.timeout.ms", 900_000)), _timeout_ms(patient.cluster)
    if longest < ours:
        yield wrong(
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


def check_clocks(patient: Patient) -> Found:
    """Brokers stamp the records of tasks with their own clocks."""
    backing = [place for place in patient.first.marks if place.topic.endswith(".backing")]
    config = {place: patient.facts.topics[place.topic].config for place in backing}
    stamped = [place for place in backing if config[place].get("message.timestamp.type") == "LogAppendTime"]
    if not stamped:
        return
    ahead = patient.broker.offsets_at(dict.fromkeys(stamped, round((patient.clock.time() + SKEW_S) * 1000)))
    skews = [_stamp_s(patient, place) - patient.clock.time() for place, offset in ahead.items() if offset is not None]
    moved = [p for p in stamped if patient.last.marks[p].high > patient.first.marks[p].high]
    # These came after the first look.
    behind = [patient.first.at_s - _stamp_s(patient, place) for place in moved]
    if skews:
        yield wrong(f"The clock of a broker is {max(skews):.0f} s ahead of the one of this machine.", NTP)
    if late := [one for one in behind if one > SKEW_S]:
        yield wrong(f"The clock of a broker is {max(late):.0f} s behind the one of this machine.", NTP)


NTP: Final = "let both follow a time server (chrony, ntpd), and see which of the two is wrong"


def _stamp_s(patient: Patient, place: TopicPartition) -> float:
    low, stable, _ = patient.broker.watermarks([place])[place]
    found = newest(
        patient.broker, place, low, stable, patient.clock, group=place.topic.removesuffix(".backing"), key=KEY
    )
    return patient.first.at_s if found is None else found.timestamp()[1] / 1000


def check_transactions(patient: Patient) -> Found:
    """A transaction that stays open hides what comes behind it from all readers."""
    for place, now in patient.last.marks.items():
        then = patient.first.marks[place]
        if now.stable < now.high and then.stable == now.stable and then.high > then.stable:
            for_s = patient.last.at_s - patient.first.at_s
            yield wrong(
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
        found = note if now.start is None else wrong  # without its place it may be another one
        yield found(
            f"A transaction has held offsets of group {group} for at least {for_s:.0f} s, so "
            f"tasks of {name} that start wait for it. That of a dead process ends with its time-out, after 60 s by "
            "default; one that its coordinator has lost never does.",
            f"if it stays: {at_address(now.command, patient.address)}",
        )
