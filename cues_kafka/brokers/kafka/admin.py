"""Questions and orders to the cluster about topics and groups."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from confluent_kafka import KafkaException, TopicCollection

# The package does not export these names to type checkers.
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions
from confluent_kafka.cimpl import NewTopic as ClientNewTopic

from cues_kafka.brokers.kafka.asking import MISSING, Asking, alone
from cues_kafka.brokers.kafka.classify import error_of, name
from cues_kafka.brokers.kafka.groups import partitions_of
from cues_kafka.brokers.kafka.offsets import Offsets
from cues_kafka.brokers.kafka.rights import KINDS, Right
from cues_kafka.brokers.kafka.unsettable import refused_setting
from cues_kafka.brokers.options import Kafka
from cues_kafka.brokers.patience import ask_again
from cues_kafka.observe.log import get_logger
from cues_kafka.ports.facts import ClusterFacts, NewTopic, TopicFacts

log = get_logger("cues_kafka.broker")

MOVING_S: Final = 10.0
"""How long the coordinator of a group may move before a question about the group fails."""

NO_GROUP: Final = {"GROUP_ID_NOT_FOUND"}
MOVING: Final = {"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"}
_STABLE: Final = "Stable"
_OF_BROKERS: Final = {"__consumer_offsets", "__transaction_state", "__share_group_state"}


class Admin:
    """
    The administrative half of `KafkaBroker`; every method raises `BrokerError`.

    Attributes:
        asking: the client.
        offsets: its questions to leaders.
    """

    def __init__(self, options: Kafka, *, reached: bool = False) -> None:
        self.asking = Asking(options, reached=reached)
        self.offsets = Offsets(self.asking)

    def facts(self, topics: Collection[str]) -> ClusterFacts:
        brokers = self.asking.reach()
        described = self._describe(topics)
        configs = self._configs(described)
        # Another broker may answer the second question. It may not know yet a topic that was created just now.
        described = {topic: found for topic, found in described.items() if topic in configs}
        return ClusterFacts(
            brokers,
            {
                topic: TopicFacts(
                    name=topic,
                    topic_id=_bytes_of(found.topic_id),
                    partitions=len(found.partitions),
                    replication=min((len(p.replicas) for p in found.partitions), default=1),
                    config=configs[topic] or {},
                )
                for topic, found in described.items()
            },
            unchecked=tuple(sorted(topic for topic, config in configs.items() if config is None)),
            user=self.asking.user,
            cluster_id=self.asking.cluster_id,
        )

    def partitions(self, topics: Collection[str] | None) -> dict[str, int]:
        if topics is not None:
            return {topic: len(found.partitions) for topic, found in self._describe(topics).items()}
        self.asking.reach()
        list_topics, timeout_s = self.asking.client.list_topics, self.asking.options.start_timeout_s
        metadata = self.asking.call("asking for the topics", list_topics, timeout=timeout_s)
        return {t: len(found.partitions) for t, found in metadata.topics.items() if t not in _OF_BROKERS}

    def create(self, topics: Sequence[NewTopic]) -> None:
        if not topics:
            return
        brokers = self.asking.reach()
        left = list(topics)
        while left:
            left = self._create(left, brokers)
        names = [topic.name for topic in topics]
        self.asking.until(
            lambda: self._all_led(dict.fromkeys(names, 1)), f"topics {', '.join(names)} are not led by brokers"
        )

    def _create(self, topics: Sequence[NewTopic], brokers: int) -> list[NewTopic]:
        """Create topics. Those of which the cluster refuses a setting that they may lack are returned without it."""
        wanted = [
            ClientNewTopic(
                topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication or min(3, brokers),
                config=dict(topic.config),
            )
            for topic in topics
        ]
        asked = self.asking.ask(self.asking.client.create_topics, wanted)
        self.asking.wait_for(asked.values(), f"creating {len(asked)} topics")
        again = []
        for topic in topics:
            problem = asked[topic.name].exception()
            setting = refused_setting(topic, error_of(problem)) if isinstance(problem, KafkaException) else ""
            if setting:
                rest = tuple(one for one in topic.may_lack if one != setting)
                log.warning(
                    "setting left to the cluster", topic=topic.name, setting=setting, why=error_of(problem).str()
                )
                config = {key: value for key, value in topic.config.items() if key != setting}
                again.append(replace(topic, config=config, may_lack=rest))
                alone(problem)
                del asked[topic.name]
        instead = ", or let a user who may create them run `cues-kafka plan MODULE:GRAPH --apply`"
        self.asking.results(asked, "creating", "Create", ignore={"TOPIC_ALREADY_EXISTS"}, remedy=instead)
        return again

    def add_partitions(self, topic: str, total: int) -> None:
        asked = self.asking.ask(self.asking.client.create_partitions, [NewPartitions(topic, total)])
        ignore = {"INVALID_PARTITIONS"}  # it has as many, or more
        self.asking.result(asked[topic], f"adding partitions to {topic}", Right("Alter", "topic", topic), ignore=ignore)
        self.asking.until(
            lambda: self._all_led({topic: total}), f"the {total} partitions of {topic} are not led by brokers"
        )

    def configure(self, topic: str, settings: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        [asked] = self.asking.ask(self.asking.client.incremental_alter_configs, [resource]).values()
        self.asking.result(asked, f"setting {', '.join(settings)} of {topic}", Right("AlterConfigs", "topic", topic))

        def there() -> bool:
            found = self._configs([topic]).get(topic)
            return found is None or settings.items() <= found.items()

        self.asking.until(there, f"the settings {', '.join(settings)} of {topic} are still the old ones")

    def delete(self, topics: Sequence[str]) -> None:
        if not topics:
            return
        self.asking.results(
            self.asking.ask(self.asking.client.delete_topics, list(topics)), "deleting", "Delete", ignore=MISSING
        )
        self.asking.until(lambda: not self._describe(topics), f"topics {', '.join(topics)} are still there")

    def members(self, group: str) -> list[str]:
        self.asking.reach()  # see `groups`: in an outage this call may end the process
        right = Right("Describe", "group", group)

        def describe() -> Any:
            asked = self.asking.ask(self.asking.client.describe_consumer_groups, [group])
            return self.asking.result(asked[group], f"describing group {group}", right, ignore=NO_GROUP)

        # The client passes on that the coordinator moves or reads its log, and does not ask again.
        found = ask_again(describe, MOVING_S, while_=lambda error: error.code in MOVING)
        return [] if found is None else [str(m.group_instance_id or m.client_id) for m in found.members]

    def unowned(self, group: str, topic: str, partitions: int) -> set[int]:
        list_groups, timeout_s = self.asking.client.list_groups, self.asking.options.start_timeout_s
        with warnings.catch_warnings():  # the call that it recommends instead may end the process, see `groups`
            warnings.simplefilter("ignore", DeprecationWarning)
            listed = self.asking.call(f"describing group {group}", list_groups, group, timeout=timeout_s)
        found = next((one for one in listed if one.id == group and one.error is None), None)
        if found is None or found.state != _STABLE or not found.members:
            return set()  # also if the brokers assign (KIP-848): this listing does not have such a group
        return set(range(partitions)).difference(*(partitions_of(m.assignment or b"", topic) for m in found.members))

    def _describe(self, topics: Collection[str]) -> dict[str, Any]:
        if not topics:
            return {}
        asked = self.asking.ask(self.asking.client.describe_topics, TopicCollection(list(dict.fromkeys(topics))))
        more = (
            "; `cues-kafka plan MODULE:GRAPH --offline --acls` prints all rights that each role needs, and "
            "`cues-kafka grant MODULE:GRAPH --yes`, as a user who may, gives them"
        )
        found = self.asking.results(asked, "describing", "Describe", ignore=MISSING, remedy=more)
        return {topic: facts for topic, facts in found.items() if facts is not None}

    def _configs(self, topics: Iterable[str]) -> dict[str, dict[str, str] | None]:
        """Settings by topic: None where this user may not read them. A topic that is not there is left out."""
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        if not resources:
            return {}
        configs: dict[str, dict[str, str] | None] = {}
        for resource, future in self.asking.ask(self.asking.client.describe_configs, resources).items():
            doing = f"reading the settings of topic {resource.name}"
            entries = self.asking.result(future, doing, ignore={*KINDS, *MISSING})
            if entries is not None:
                given = {key: str(entry.value) for key, entry in entries.items() if entry.value is not None}
                configs[resource.name] = given
            elif name(error_of(future.exception())) in KINDS:
                configs[resource.name] = None
        return configs

    def delete_group(self, group: str) -> None:
        """Delete a group without members; it may be gone already."""
        [deleted] = self.asking.ask(self.asking.client.delete_consumer_groups, [group]).values()
        self.asking.result(
            deleted, f"deleting group {group}", Right("Delete", "group", group), ignore={"GROUP_ID_NOT_FOUND"}
        )

    def _all_led(self, least: Mapping[str, int]) -> bool:
        """Whether each topic has at least this many partitions, and a leader for all of them."""
        found = self._describe(least)
        return len(found) == len(least) and all(
            len(found[topic].partitions) >= count
            and all(p.leader is not None and p.leader.id >= 0 for p in found[topic].partitions)
            for topic, count in least.items()
        )


def _bytes_of(topic_id: Any) -> bytes:
    """The 16 bytes of a topic id (KIP-516), from the two signed halves that the client gives."""
    return struct.pack(">qq", topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits())
