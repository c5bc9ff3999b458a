"""The topics of a cluster and the logs of their partitions. Nothing here takes a lock: the cluster does."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from cues_kafka.brokers.memory.log import DEFAULTS, Log, MemoryMessage, now_at
from cues_kafka.brokers.memory.transactions import Transaction
from cues_kafka.brokers.murmur2 import partition_for
from cues_kafka.errors import AbortableError, BrokerError
from cues_kafka.ports.facts import NewTopic, TopicFacts

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class Topics:
    """
    All topics.

    Args:
        seed: decides the topic ids.
        brokers: how many replicas a partition may have.
        log_type: of partitions.

    Attributes:
        facts: by name.
        logs: by topic and partition.
    """

    def __init__(self, *, seed: int, brokers: int, log_type: type[Log]) -> None:
        self.facts: dict[str, TopicFacts] = {}
        self.logs: dict[tuple[str, int], Log] = {}
        self._random = random.Random(seed)  # noqa: S311 - ids of topics, not secrets
        self._brokers = brokers
        self._log_type = log_type
        self._keyless_messages = 0

    def create(self, topic: NewTopic) -> None:
        """
        Make a topic with its logs.

        Raises:
            BrokerError: a broker would refuse its name, its partitions or its replicas.
        """
        if not _LEGAL_NAME.fullmatch(topic.name):
            raise BrokerError(f"{topic.name!r} is not a legal topic name", code="TOPIC_EXCEPTION")
        if topic.partitions < 1:
            raise BrokerError(f"{topic.name}: a topic needs at least one partition", code="INVALID_PARTITIONS")
        replication = topic.replication or min(3, self._brokers)
        if replication > self._brokers:
            raise BrokerError(
                f"{topic.name}: {replication} replicas on {self._brokers} brokers", code="INVALID_REPLICATION_FACTOR"
            )
        topic_id = self._random.randbytes(16)  # a recreated topic gets another one (KIP-516)
        self.facts[topic.name] = TopicFacts(topic.name, topic_id, 0, replication, DEFAULTS | dict(topic.config))
        self.set_partitions(topic.name, topic.partitions)

    def set_partitions(self, topic: str, total: int) -> None:
        """Let a topic have this many partitions; it never loses one."""
        facts = self.facts_of(topic)
        for partition in range(facts.partitions, total):
            self.logs[topic, partition] = self._log_type(topic, partition, facts.config)
        self.facts[topic] = replace(facts, partitions=max(total, facts.partitions))

    def configure(self, topic: str, settings: Mapping[str, str]) -> None:
        """Change settings of a topic, and keep its others."""
        facts = self.facts_of(topic)
        self.facts[topic] = replace(facts, config={**facts.config, **settings})

    def delete(self, topic: str) -> list[Log]:
        """Forget a topic; gives its logs."""
        logs = self.logs_of(topic)
        self.facts.pop(topic, None)
        for log in logs:
            del self.logs[topic, log.partition]
        return logs

    def facts_of(self, topic: str) -> TopicFacts:
        """What is known of a topic that must exist."""
        try:
            return self.facts[topic]
        except KeyError:
            raise unknown_topic(topic) from None

    def count(self, topic: str) -> int:
        """The number of its partitions; 0: it does not exist."""
        return self.facts[topic].partitions if topic in self.facts else 0

    def log_of(self, place: tuple[str, int]) -> Log:
        """The log of a partition."""
        try:
            return self.logs[place]
        except KeyError:
            raise unknown_topic(f"{place[0]}/{place[1]}", at=place) from None

    def logs_of(self, topic: str) -> list[Log]:
        """The logs of a topic by partition; empty if it does not exist."""
        return [self.logs[topic, partition] for partition in range(self.count(topic))]

    def append(
        self, records: Iterable[tuple[Any, ...]], transaction: Transaction | None, seconds: float
    ) -> list[MemoryMessage]:
        """Append in order; the records before a refused one stay, as with a real broker."""
        logs = self.logs
        appended: list[MemoryMessage] = []
        now = now_at(seconds)
        number = transaction.number if transaction else 0
        for topic, wanted, key, value, headers, timestamp_ms in records:
            partition = self.partition_of(topic, key) if wanted is None else wanted
            log = logs.get((topic, partition))
            if log is None:
                raise unknown_topic(f"{topic}/{partition}", AbortableError, at=(topic, partition))
            if transaction is not None and log not in transaction.logs:
                transaction.logs.add(log)
                log.open[number] = log.end
            appended.append(log.append(key, value, headers, timestamp_ms, now, number))
        return appended

    def partition_of(self, topic: str, key: bytes | None) -> int:
        """Where a message goes that names no partition."""
        partitions = self.facts_of(topic).partitions
        if key is not None:
            return partition_for(key, partitions)
        self._keyless_messages += 1
        return self._keyless_messages % partitions


def unknown_topic(
    what: str, kind: type[BrokerError] = BrokerError, *, at: tuple[str, int] | None = None
) -> BrokerError:
    """The error for a topic or partition that does not exist."""
    return kind(f"{what} does not exist", code="UNKNOWN_TOPIC_OR_PART", at=at)
