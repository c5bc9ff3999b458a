"""A real Kafka cluster behind `Broker`: the only package, with `codecs/registry`, that knows confluent-kafka.

`session` holds what a transaction needs (P5 to P8), `reader` and `member` are the two consumers of a processor
(A1), `watch` collects what a client reports, `classify` says what its errors mean.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, TypeVar

from cues_kafka.brokers.addresses import addresses
from cues_kafka.brokers.examination import Examination
from cues_kafka.brokers.kafka.admin import Admin
from cues_kafka.brokers.kafka.fencing import fence
from cues_kafka.brokers.kafka.groups import NoAnswer, committed, committed_or_why
from cues_kafka.brokers.kafka.kept import KeptConsumers
from cues_kafka.brokers.kafka.member import KafkaMember
from cues_kafka.brokers.kafka.reader import KafkaReader, open_since
from cues_kafka.brokers.kafka.sender import KafkaSender
from cues_kafka.brokers.kafka.session import KafkaSession
from cues_kafka.brokers.options import Kafka
from cues_kafka.brokers.patience import FIRST_S, ask_again
from cues_kafka.errors import BrokerError, ConfigError, RetriableError
from cues_kafka.ports.clients import Listener
from cues_kafka.ports.facts import ClusterFacts, NewTopic, Watermarks
from cues_kafka.ports.log import TopicPartition

__all__ = ["KafkaBroker"]

_Answer = TypeVar("_Answer")

_LEADERLESS = {
    "NOT_LEADER_FOR_PARTITION",
    "LEADER_NOT_AVAILABLE",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
}

_UNKNOWN = "_NOENT"
"""The client knows no such partition, or has just lost its connection; a new client tells the two apart."""

_SILENT = "_TIMED_OUT"

LEAST_ASK_S: Final = 0.1
"""How long the last client is asked whose time is over before it begins."""
FIRST_ASK_S: Final = 2.0
"""How long leaders are asked before a new client asks them: behind a broker's restart librdkafka 2.16 can leave the
question with a leader of before until that one is back, and a new client has its answer in 10 ms."""


class KafkaBroker:
    """See `ports.broker.Broker`; may be shared by threads. Opens its administrative client at the first question."""

    def __init__(self, options: Kafka) -> None:
        self.options = options
        self._last_admin: Admin | None = None
        # Guards `_last_admin` and `_expected`. Opening the administrative client under it takes the locks of `tokens`.
        self._opening = threading.Lock()
        self._expected: dict[tuple[str, int | None], KafkaSession] = {}
        self._kept = KeptConsumers()
        self._protocol_checked = options.group_protocol == "classic"

    def facts(self, topics: Collection[str]) -> ClusterFacts:
        """
        See `ports.broker.Broker.facts`.

        Raises:
            BrokerError: the cluster cannot be reached within `start_timeout_s`; with the address and the likely cause.
            ConfigError: the brokers do not know the protocol of groups that the options ask for.
        """
        found = self._admin.facts(topics)
        self._check_group_protocol()
        return found

    def _check_group_protocol(self) -> None:
        """The client waits without end and without a word for brokers that cannot share partitions (KIP-848)."""
        if self._protocol_checked:
            return
        from cues_kafka.brokers.kafka.examining import HEARTBEAT, apis_of  # noqa: PLC0415 - only this protocol needs it

        settings = self.options.settings("admin", client_id="check")
        answers = (apis_of(host, port, settings) for host, port in addresses(self.options.bootstrap))
        known = next((answer for answer in answers if answer), None)
        if known is not None and known.get(HEARTBEAT, 0) < 1:  # Kafka 3.7 to 3.9 list an early version
            raise ConfigError(
                "group_protocol='consumer' needs brokers of Kafka 4.0 or newer with group.version=1, and those at "
                f"{self.options.bootstrap} do not have it. Write group_protocol='classic', or upgrade the brokers and "
                "then the feature: kafka-features upgrade --feature group.version=1"
            )
        self._protocol_checked = True

    def partitions(self, topics: Collection[str] | None = None) -> dict[str, int]:
        return self._admin.partitions(topics)

    def create(self, topics: Sequence[NewTopic]) -> None:
        self._admin.create(topics)

    def add_partitions(self, topic: str, total: int) -> None:
        self._admin.add_partitions(topic, total)

    def configure(self, topic: str, settings: Mapping[str, str]) -> None:
        self._admin.configure(topic, settings)

    def delete(self, topics: Sequence[str]) -> None:
        self._admin.delete(topics)

    def trim(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._admin.offsets.trim(offsets)

    def watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        return self._of_leaders(lambda for_s: self._admin.offsets.watermarks(partitions, for_s))

    def stable_ends(
        self, partitions: Collection[TopicPartition], *, timeout_s: float = FIRST_ASK_S
    ) -> dict[TopicPartition, int]:
        return self._admin.offsets.stable_ends(partitions, max(LEAST_ASK_S, timeout_s))

    def offsets_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return self._of_leaders(lambda for_s: self._admin.offsets.offsets_at(times, for_s))

    def open_since(self, partitions: Collection[TopicPartition], *, group: str) -> dict[TopicPartition, float]:
        marks = self.watermarks(partitions)
        starts = {place: one.stable for place, one in marks.items() if one.stable < one.high}
        return open_since(self.options, starts, group)

    def committed(self, group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        if not partitions:
            return {}
        try:
            return committed(self.options, group, partitions)
        except NoAnswer:
            self._admin.asking.reach()  # waits for the cluster, or says why it cannot be reached
            return committed_or_why(self.options, group, partitions)

    def members(self, group: str) -> list[str]:
        return self._admin.members(group)

    def forget(self, group: str, topics: Collection[str]) -> bool:
        others = [
            TopicPartition(topic, partition)
            for topic, count in self._admin.partitions(None).items()
            if topic not in topics
            for partition in range(count)
        ]
        if any(offset is not None for offset in self.committed(group, others).values()):
            return False
        self._admin.delete_group(group)
        return True

    def unowned(self, group: str, topic: str, partitions: int) -> set[int]:
        return self._admin.unowned(group, topic, partitions)

    def examine(self, topics: Collection[str], groups: Collection[str]) -> Examination:
        from cues_kafka.brokers.kafka.examining import Examining  # noqa: PLC0415 - only `doctor` needs it

        return Examining(self.options, reached=True).examine(topics, groups)

    @property
    def max_bytes(self) -> int:
        return self.options.max_bytes

    def session(self, transactional_id: str, *, batch_bytes: int | None = None, brief: bool = False) -> KafkaSession:
        with self._opening:
            expected = self._expected.pop((transactional_id, batch_bytes), None)
        return expected or KafkaSession(self.options.brief() if brief else self.options, transactional_id, batch_bytes)

    def loose_session(self, name: str, *, batch_bytes: int | None = None) -> KafkaSession:
        return KafkaSession(self.options, name, batch_bytes, transactional=False)

    def fence(self, transactional_ids: Collection[str], *, timeout_s: float) -> dict[str, BrokerError]:
        return fence(self.options, transactional_ids, timeout_s)

    def expect(self, transactional_ids: Sequence[str], *, batch_bytes: int | None = None) -> None:
        sessions = {(one, batch_bytes): KafkaSession(self.options, one, batch_bytes) for one in transactional_ids}
        with self._opening:
            # Replaced before any is abandoned: `session` must not give away one that is about to end.
            unused, self._expected = self._expected, sessions
        for session in unused.values():
            session.abandon()
        self._kept.keep(len(sessions))

    def reader(self, name: str, *, prompt: bool = False) -> KafkaReader:
        return KafkaReader(self.options, name, prompt=prompt, kept=self._kept)

    def member(self, group: str, topic: str, listener: Listener, *, instance: str | None = None) -> KafkaMember:
        return KafkaMember(self.options, group, topic, listener, instance=instance)

    def sender(self, name: str, *, batch_bytes: int | None = None) -> KafkaSender:
        return KafkaSender(self.options, name, batch_bytes)

    def close(self) -> None:
        self.expect(())
        with self._opening:
            self._last_admin = None

    def _of_leaders(self, question: Callable[[float], _Answer]) -> _Answer:
        """
        Ask leaders; a new topic's broker may not know yet that it leads, and a moved leader not any more.

        A client that gets no answer may wait for a node that is dead: as the leader, or as the node that it asks who
        leads. The next client may wait for another one, and half as long again.
        """
        renewed, for_s = False, FIRST_ASK_S
        deadline = time.monotonic() + self.options.start_timeout_s

        def passes(error: RetriableError) -> bool:
            nonlocal renewed, for_s
            if error.code == _SILENT:
                for_s *= 1.5
                return True
            if error.code == _UNKNOWN and not renewed:
                renewed = True
                return True
            return error.code in _LEADERLESS

        def ask() -> _Answer:
            return question(max(LEAST_ASK_S, min(for_s, deadline - time.monotonic())))

        return ask_again(ask, self.options.start_timeout_s, while_=passes, longest_s=FIRST_S)

    @property
    def _admin(self) -> Admin:
        with self._opening:
            if self._last_admin is None or self._last_admin.asking.spent:
                self._last_admin = Admin(
                    self.options, reached=self._last_admin is not None and self._last_admin.asking.reached
                )
            return self._last_admin
