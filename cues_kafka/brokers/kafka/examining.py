"""Examines a cluster for `doctor`: each node by hand, topics and groups by the administrative client."""

from __future__ import annotations

import socket
import struct
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import TopicCollection
from confluent_kafka.admin._config import ConfigResource  # the package does not export these names to type checkers
from confluent_kafka.admin._resource import ResourceType

from cues_kafka.brokers.examination import Examination, GroupHealth, NodeFacts, TopicHealth
from cues_kafka.brokers.kafka.admin import MOVING, MOVING_S, NO_GROUP
from cues_kafka.brokers.kafka.asking import MISSING, Asking
from cues_kafka.brokers.kafka.classify import error_of, name
from cues_kafka.brokers.kafka.probe import TIMEOUT_S, add_certificate, connected, unverified
from cues_kafka.brokers.kafka.rights import KINDS, Right
from cues_kafka.brokers.options import Kafka, login_of
from cues_kafka.brokers.patience import ask_again
from cues_kafka.brokers.wire import request

_API_VERSIONS: Final = 18

ASKED: Final = 3
"""How often a broker is asked that does not answer within `TIMEOUT_S`."""

HEARTBEAT: Final = 68
"""ConsumerGroupHeartbeat, the request of members of the group protocol `consumer`."""


class Examining:
    """Asks what `doctor` wants to know, with a client of its own."""

    def __init__(self, options: Kafka, *, reached: bool) -> None:
        self._asking = Asking(options, reached=reached)

    def examine(self, topics: Collection[str], groups: Collection[str]) -> Examination:
        self._asking.reach()
        found = self._asking.call(
            "asking for the brokers", self._asking.client.list_topics, timeout=self._asking.options.start_timeout_s
        )
        nodes = tuple(
            NodeFacts(one.id, f"{one.host}:{one.port}", apis_of(one.host, one.port, self._asking.settings))
            for one in sorted(found.brokers.values(), key=lambda one: int(one.id))
        )
        return Examination(
            nodes,
            {topic: health for topic in dict.fromkeys(topics) if (health := self._topic(topic)) is not None},
            {group: self._group(group) for group in groups},
            self._groups(),
            self._settings_of(nodes),
        )

    def _topic(self, topic: str) -> TopicHealth | None:
        """None: it does not exist."""
        describe, wanted = self._asking.client.describe_topics, TopicCollection([topic])
        [asked] = self._asking.ask(describe, wanted, include_authorized_operations=True).values()
        described = self._asking.result(
            asked, f"describing topic {topic}", Right("Describe", "topic", topic), ignore=MISSING
        )
        if described is None:
            return None
        parts = described.partitions
        return TopicHealth(
            tuple(part.id for part in parts if part.leader is None or part.leader.id < 0),
            tuple(len(part.isr) for part in parts),
            tuple(len(part.replicas) for part in parts),
            _allowed(described),
        )

    def _group(self, group: str) -> GroupHealth:
        self._asking.reach()  # see `groups`: in an outage this call may end the process
        describe = self._asking.client.describe_consumer_groups

        def ask() -> Any:
            [asked] = self._asking.ask(describe, [group], include_authorized_operations=True).values()
            described = self._asking.result(asked, f"describing group {group}", ignore={*NO_GROUP, *KINDS})
            refused = described is None and name(error_of(asked.exception())) in KINDS
            return frozenset() if refused else described

        found = ask_again(ask, MOVING_S, while_=lambda error: error.code in MOVING)
        if not found:
            return GroupHealth("", (), found)
        state = found.state.name.title().replace("_", "")
        members = tuple(str(one.group_instance_id or one.client_id) for one in found.members)
        return GroupHealth("" if state == "Dead" else state, members, _allowed(found))

    def _groups(self) -> tuple[str, ...]:
        listed = self._asking.result(
            self._asking.ask(self._asking.client.list_consumer_groups), "listing groups", ignore=KINDS
        )
        return () if listed is None else tuple(sorted(one.group_id for one in listed.valid))

    def _settings_of(self, nodes: Sequence[NodeFacts]) -> dict[str, str] | None:
        """The settings of the first broker."""
        resource = ConfigResource(ResourceType.BROKER, str(nodes[0].number))
        [asked] = self._asking.ask(self._asking.client.describe_configs, [resource]).values()
        entries = self._asking.result(asked, f"reading the settings of broker {nodes[0].number}", ignore=KINDS)
        return None if entries is None else {k: str(e.value) for k, e in entries.items() if e.value is not None}


def apis_of(host: str, port: int, settings: Mapping[str, Any]) -> dict[int, int] | None:
    """
    The newest version of each request that a broker takes; empty: it does not tell; None: nothing answers there.

    What does not answer in time is asked again: that a machine has much to do says nothing about its broker.

    Every listener answers this request before a login. A certificate of the broker is not checked: no secret is sent.
    """
    for _ in range(ASKED):
        try:
            return _apis_of(host, port, settings)
        except TimeoutError:  # a broker that has too much to do, or none: it is asked again
            continue
    return None


def _apis_of(host: str, port: int, settings: Mapping[str, Any]) -> dict[int, int] | None:
    """Ask once what `apis_of` asks; raises TimeoutError where no answer comes in time."""
    context = unverified() if login_of(settings)[0].endswith("ssl") else None
    if context is not None:
        add_certificate(context, settings)
    try:
        socket.create_connection((host, port), timeout=TIMEOUT_S).close()
    except TimeoutError:
        raise
    except OSError:
        return None
    try:
        with connected(host, port, context) as connection:
            answer = request(connection, _API_VERSIONS, 0, b"")
            code, count = answer.int16(), answer.int32()
            ranges = [(answer.int16(), answer.int16(), answer.int16()) for _ in range(count)]
    except TimeoutError:
        raise
    except (OSError, struct.error):  # such as a certificate that only librdkafka can read
        return {}
    return {api: newest for api, _, newest in ranges} if code == 0 else {}


def _allowed(described: Any) -> frozenset[str]:
    """Kafka's names of the operations that this user may do. The client gives None instead of an empty list."""
    return frozenset(one.name.title().replace("_", "") for one in described.authorized_operations or ())
