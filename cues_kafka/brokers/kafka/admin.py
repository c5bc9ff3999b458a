"""Questions and orders to the cluster: topics, offsets, groups. One `AdminClient`, shared by threads."""

from __future__ import annotations

import struct
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

# The package does not export these names to type checkers.
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions
from confluent_kafka.cimpl import NewTopic as ClientNewTopic

from cues_kafka.brokers.addresses import addresses
from cues_kafka.brokers.kafka.classify import error_of, name, translate
from cues_kafka.brokers.kafka.groups import partitions_of
from cues_kafka.brokers.kafka.opening import check_files, check_own_settings
from cues_kafka.brokers.kafka.probe import Finding, find_reason
from cues_kafka.brokers.kafka.rights import KINDS, Right
from cues_kafka.brokers.kafka.unsettable import refused_setting
from cues_kafka.brokers.kafka.watch import Watch
from cues_kafka.brokers.options import Kafka
from cues_kafka.brokers.patience import ask_again
from cues_kafka.errors import BrokerError, FatalError, LoginError, RetriableError
from cues_kafka.observe.log import get_logger
from cues_kafka.observe.together import CLUSTER
from cues_kafka.ports.facts import ClusterFacts, NewTopic, TopicFacts, Watermarks
from cues_kafka.ports.log import TopicPartition

log = get_logger("cues_kafka.broker")

FIRST_LOOK_S: Final = 1.0
"""After this time without an answer from the cluster, a log line says what is waited for."""

VISIBLE_S: Final = 30.0
"""How long a created or deleted topic may take until the brokers agree."""

MOVING_S: Final = 10.0
"""How long the coordinator of a group may move before a question about the group fails."""

LATE_S: Final = 5.0
"""How much longer than its own time-out an answer of the client may take before it counts as missing."""

PROBED: Final = 2
"""How many addresses are looked at; the brokers of a cluster have the same listeners."""

MISSING: Final = {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"}
NO_GROUP: Final = {"GROUP_ID_NOT_FOUND"}
MOVING: Final = {"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"}
_STABLE: Final = "Stable"
_NONE: Final = -1
"""The brokers' answer where no message is as late as a time."""
_NO_ENTRY: Final = KafkaError._NOENT  # noqa: SLF001 - what the client itself says of a partition that is not there
_AGE_MS: Final = 900_000
"""How long the client remembers leaders, by its own default."""
_SILENT: Final = "the address is silent: firewall, wrong host?"
_WHERE: Final = "Kafka(...) in a program, --bootstrap or CUES_KAFKA_BOOTSTRAP for the commands"
_OF_BROKERS: Final = {"__consumer_offsets", "__transaction_state", "__share_group_state"}
_END: Final = "asking for the end of"
_TIME: Final = "asking for the offset of a time in"
_SPEC: Any = OffsetSpec  # its stubs are untyped
_EARLIEST: Final = _SPEC.earliest()
_LATEST: Final = _SPEC.latest()


class Admin:
    """
    The administrative half of `KafkaBroker`; every method raises `BrokerError`.

    Attributes:
        reached: the cluster has answered this process. So the settings are right, and a refused login is waited out.
        spent: a request failed. `KafkaBroker` opens a new client for the next question (R5): after a broker's restart
            librdkafka 2.16 can go on asking with a leader's old epoch (FENCED_LEADER_EPOCH), or never answer a request
            to a coordinator again; a new client answers both in 10 ms.
    """

    def __init__(self, options: Kafka, *, reached: bool = False) -> None:
        self.reached = reached
        self._cluster_id = ""
        self.spent = False
        self._options = options
        self._watch = Watch("admin", options)
        self._probed: Finding | None = None
        self._settings = options.settings("admin", client_id="cues-kafka.admin")
        self._led_s = int(self._settings.get("metadata.max.age.ms", _AGE_MS)) / 1000 / 2  # well before it forgets
        self._led: dict[TopicPartition, float] = {}  # until when the client knows who leads it
        check_files(self._settings)
        self._client = self._watch.open(AdminClient, self._settings)
        check_own_settings(options)

    def facts(self, topics: Collection[str]) -> ClusterFacts:
        brokers = self.reach()
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
            user=self._watch.user,
            cluster_id=self._cluster_id,
        )

    def partitions(self, topics: Collection[str] | None) -> dict[str, int]:
        if topics is not None:
            return {topic: len(found.partitions) for topic, found in self._describe(topics).items()}
        self.reach()
        list_topics, timeout_s = self._client.list_topics, self._options.start_timeout_s
        metadata = self._call("asking for the topics", list_topics, timeout=timeout_s)
        return {t: len(found.partitions) for t, found in metadata.topics.items() if t not in _OF_BROKERS}

    def reach(self) -> int:
        """The number of brokers. If none can be reached, a log line soon says why, and the error at the end."""
        timeout_s = self._options.start_timeout_s
        deadline = time.monotonic() + timeout_s
        look_s = FIRST_LOOK_S
        while True:
            left_s = max(0.1, min(look_s, deadline - time.monotonic()))
            try:
                metadata = self._client.list_topics(timeout=left_s, topic="__consumer_offsets")
            except KafkaException as problem:
                error = self._unreachable(problem, timeout_s)
                if time.monotonic() >= deadline or not isinstance(error, RetriableError):
                    try:
                        raise error from problem
                    finally:
                        del error  # it holds this frame, and so the client
                if look_s == FIRST_LOOK_S:
                    why = "; ".join(self._watch.reasons) or "no answer"
                    where = self._options.bootstrap
                    CLUSTER.warning(log, "waiting for Kafka", cause=where, bootstrap=where, up_to_s=timeout_s, why=why)
                look_s = timeout_s
            else:
                self.reached = True
                self._cluster_id = metadata.cluster_id or ""
                return len(metadata.brokers)

    def create(self, topics: Sequence[NewTopic]) -> None:
        if not topics:
            return
        brokers = self.reach()
        left = list(topics)
        while left:
            left = self._create(left, brokers)
        names = [topic.name for topic in topics]
        self._until(lambda: self._all_led(dict.fromkeys(names, 1)), f"topics {', '.join(names)} are not led by brokers")

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
        asked = self._ask(self._client.create_topics, wanted)
        self._await(asked.values(), f"creating {len(asked)} topics")
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
                _alone(problem)
                del asked[topic.name]
        instead = ", or let a user who may create them run `cues-kafka plan MODULE:GRAPH --apply`"
        self._results(asked, "creating", "Create", ignore={"TOPIC_ALREADY_EXISTS"}, remedy=instead)
        return again

    def add_partitions(self, topic: str, total: int) -> None:
        asked = self._ask(self._client.create_partitions, [NewPartitions(topic, total)])
        ignore = {"INVALID_PARTITIONS"}  # it has as many, or more
        self._result(asked[topic], f"adding partitions to {topic}", Right("Alter", "topic", topic), ignore=ignore)
        self._until(lambda: self._all_led({topic: total}), f"the {total} partitions of {topic} are not led by brokers")

    def configure(self, topic: str, settings: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        [asked] = self._ask(self._client.incremental_alter_configs, [resource]).values()
        self._result(asked, f"setting {', '.join(settings)} of {topic}", Right("AlterConfigs", "topic", topic))

        def there() -> bool:
            found = self._configs([topic]).get(topic)
            return found is None or settings.items() <= found.items()

        self._until(there, f"the settings {', '.join(settings)} of {topic} are still the old ones")

    def delete(self, topics: Sequence[str]) -> None:
        if not topics:
            return
        self._results(self._ask(self._client.delete_topics, list(topics)), "deleting", "Delete", ignore=MISSING)
        self._until(lambda: not self._describe(topics), f"topics {', '.join(topics)} are still there")

    def trim(self, offsets: Mapping[TopicPartition, int]) -> None:
        places = [ClientPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        if not places:
            return
        self._find_leaders(offsets, None, "deleting records of")
        for place, future in self._ask(self._client.delete_records, places).items():
            doing = f"deleting records of {place.topic}/{place.partition} below {place.offset}"
            self._result(future, doing, Right("Delete", "topic", place.topic))

    def watermarks(
        self, partitions: Collection[TopicPartition], for_s: float | None = None
    ) -> dict[TopicPartition, Watermarks]:
        if not partitions:
            return {}
        self._find_leaders(partitions, for_s, _END)
        # Three questions side by side. The answers may be of slightly different moments; offsets only grow.
        low = self._offsets(dict.fromkeys(partitions, _EARLIEST), for_s)
        stable = self._offsets(dict.fromkeys(partitions, _LATEST), for_s, IsolationLevel.READ_COMMITTED)
        high = self._offsets(dict.fromkeys(partitions, _LATEST), for_s)
        # An error ends this client, and it must not be destroyed while other answers are on their way.
        self._await([*low.values(), *stable.values(), *high.values()], "asking for the ends of partitions")
        found = {}
        for tp in partitions:
            doing = f"{_END} {tp.topic}/{tp.partition}"
            right = Right("Describe", "topic", tp.topic)
            lows, stables, highs = (self._offset(asked[tp], doing, right) for asked in (low, stable, high))
            stables = max(lows, stables)
            found[tp] = Watermarks(lows, stables, max(stables, highs))
        return found

    def stable_ends(self, partitions: Collection[TopicPartition], for_s: float) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        self._find_leaders(partitions, for_s, _END)
        asked = self._offsets(dict.fromkeys(partitions, _LATEST), for_s, IsolationLevel.READ_COMMITTED)
        self._await(asked.values(), "asking for the ends of partitions")
        return {
            tp: self._offset(asked[tp], f"{_END} {tp.topic}/{tp.partition}", Right("Describe", "topic", tp.topic))
            for tp in partitions
        }

    def offsets_at(
        self, times: Mapping[TopicPartition, int], for_s: float | None = None
    ) -> dict[TopicPartition, int | None]:
        if not times:
            return {}
        self._find_leaders(times, for_s, _TIME)
        found: dict[TopicPartition, int | None] = {}
        specs = {at: _SPEC.for_timestamp(time_ms) for at, time_ms in times.items()}
        for at, future in self._offsets(specs, for_s).items():
            doing = f"{_TIME} {at.topic}/{at.partition}"
            offset = self._offset(future, doing, Right("Describe", "topic", at.topic), none=_NONE)
            found[at] = None if offset == _NONE else offset
        return found

    def members(self, group: str) -> list[str]:
        self.reach()  # see `groups`: in an outage this call may end the process
        right = Right("Describe", "group", group)

        def describe() -> Any:
            asked = self._ask(self._client.describe_consumer_groups, [group])
            return self._result(asked[group], f"describing group {group}", right, ignore=NO_GROUP)

        # The client passes on that the coordinator moves or reads its log, and does not ask again.
        found = ask_again(describe, MOVING_S, while_=lambda error: error.code in MOVING)
        return [] if found is None else [str(m.group_instance_id or m.client_id) for m in found.members]

    def unowned(self, group: str, topic: str, partitions: int) -> set[int]:
        list_groups, timeout_s = self._client.list_groups, self._options.start_timeout_s
        with warnings.catch_warnings():  # the call that it recommends instead may end the process, see `groups`
            warnings.simplefilter("ignore", DeprecationWarning)
            listed = self._call(f"describing group {group}", list_groups, group, timeout=timeout_s)
        found = next((one for one in listed if one.id == group and one.error is None), None)
        if found is None or found.state != _STABLE or not found.members:
            return set()  # also if the brokers assign (KIP-848): this listing does not have such a group
        return set(range(partitions)).difference(*(partitions_of(m.assignment or b"", topic) for m in found.members))

    def _describe(self, topics: Collection[str]) -> dict[str, Any]:
        if not topics:
            return {}
        asked = self._ask(self._client.describe_topics, TopicCollection(list(dict.fromkeys(topics))))
        more = (
            "; `cues-kafka plan MODULE:GRAPH --offline --acls` prints all rights that each role needs, and "
            "`cues-kafka grant MODULE:GRAPH --yes`, as a user who may, gives them"
        )
        found = self._results(asked, "describing", "Describe", ignore=MISSING, remedy=more)
        return {topic: facts for topic, facts in found.items() if facts is not None}

    def _configs(self, topics: Iterable[str]) -> dict[str, dict[str, str] | None]:
        """Settings by topic: None where this user may not read them. A topic that is not there is left out."""
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        if not resources:
            return {}
        configs: dict[str, dict[str, str] | None] = {}
        for resource, future in self._ask(self._client.describe_configs, resources).items():
            doing = f"reading the settings of topic {resource.name}"
            entries = self._result(future, doing, ignore={*KINDS, *MISSING})
            if entries is not None:
                given = {key: str(entry.value) for key, entry in entries.items() if entry.value is not None}
                configs[resource.name] = given
            elif name(error_of(future.exception())) in KINDS:
                configs[resource.name] = None
        return configs

    def delete_group(self, group: str) -> None:
        """Delete a group without members; it may be gone already."""
        [deleted] = self._ask(self._client.delete_consumer_groups, [group]).values()
        self._result(deleted, f"deleting group {group}", Right("Delete", "group", group), ignore={"GROUP_ID_NOT_FOUND"})

    def _all_led(self, least: Mapping[str, int]) -> bool:
        """Whether each topic has at least this many partitions, and a leader for all of them."""
        found = self._describe(least)
        return len(found) == len(least) and all(
            len(found[topic].partitions) >= count
            and all(p.leader is not None and p.leader.id >= 0 for p in found[topic].partitions)
            for topic, count in least.items()
        )

    def _find_leaders(self, partitions: Iterable[TopicPartition], for_s: float | None, doing: str) -> None:
        """
        Have the client know who leads these partitions; before each question for leaders.

        librdkafka 2.16 begins ListOffsets and DeleteRecords on the calling thread. Where it does not know a leader, it
        waits for the next metadata. If they come in that moment, its own thread ends the search while the caller is
        still within it, and the process dies of a segmentation fault (`rdkafka_partition.c`,
        `rd_kafka_topic_partition_list_query_leaders_async_worker`). Several threads with a new client met it.

        Raises:
            RetriableError: a partition has no leader now, or is not there.
        """
        now = time.monotonic()
        wanted = [place for place in partitions if self._led.get(place, now) <= now]
        if not wanted:
            return
        asked = self._ask(
            self._client.describe_topics, TopicCollection(list({one.topic for one in wanted})), for_s=for_s
        )
        self._await(asked.values(), f"{doing} {len(wanted)} partitions")
        for place in wanted:
            at, right = f"{doing} {place.topic}/{place.partition}", Right("Describe", "topic", place.topic)
            found = self._result(asked[place.topic], at, right, ignore=MISSING)
            leaders = {one.id: one.leader for one in found.partitions} if found else {}
            if place.partition not in leaders:
                raise self._failed(KafkaException(KafkaError(_NO_ENTRY, "the partition does not exist")), at)
            if (leader := leaders[place.partition]) is None or leader.id < 0:
                raise RetriableError(f"{at}: the partition has no leader at the moment", code="LEADER_NOT_AVAILABLE")
        self._led |= dict.fromkeys(wanted, now + self._led_s)

    def _offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec],
        for_s: float | None,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, Future[Any]]:
        request = {ClientPartition(topic, partition): spec for (topic, partition), spec in specs.items()}
        asked = self._ask(self._client.list_offsets, request, for_s=for_s, isolation_level=isolation)
        return {TopicPartition(place.topic, place.partition): future for place, future in asked.items()}

    def _offset(self, future: Future[Any], doing: str, right: Right, *, none: int = 0) -> int:
        """
        The answered offset. While brokers come and go, librdkafka 2.16 can answer -1001 without an error.

        Args:
            future: its answer.
            doing: what is asked for.
            right: what it needs.
            none: the least that is an answer.

        Raises:
            RetriableError: it is no offset. Taken for one, a task would begin there, or at the other end of its input.
        """
        offset = int(self._result(future, doing, right).offset)
        if offset < none:
            self.spent = True
            raise RetriableError(f"{doing}: the client returned no offset and no error", code="LEADER_NOT_AVAILABLE")
        return offset

    def _until(self, done: Callable[[], bool], otherwise: str) -> None:
        """Ask until the brokers agree: no event tells it."""
        deadline = time.monotonic() + VISIBLE_S
        while not done():
            if time.monotonic() > deadline:
                raise RetriableError(f"{otherwise} after {VISIBLE_S:g} s; look at the brokers' logs", code="_TIMED_OUT")
            time.sleep(0.02)

    def _ask(self, function: Callable[..., Any], *args: Any, for_s: float | None = None, **kwargs: Any) -> Any:
        """Send a request whose answers come as futures, within `for_s` or `start_timeout_s`."""
        doing, timeout_s = function.__name__.replace("_", " "), for_s or self._options.start_timeout_s
        return self._call(doing, function, *args, request_timeout=timeout_s, **kwargs)

    def _call(self, doing: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._watch.same_process()
        try:
            return function(*args, **kwargs)
        except KafkaException as problem:
            raise self._failed(problem, doing) from problem

    def _await(self, asked: Collection[Future[Any]], doing: str) -> None:
        """
        Wait until all answers are there.

        Raises:
            RetriableError: one does not come, although the client's own time is over.
        """
        longest_s = self._options.start_timeout_s + LATE_S
        late = wait(asked, longest_s).not_done
        if not late:
            return
        self.spent = True
        threading.Thread(target=_hold, args=([self._client], late), name="cues-kafka-late", daemon=True).start()
        raise RetriableError(f"{doing}: the Kafka client did not answer within {longest_s:g} s", code="_TIMED_OUT")

    def _result(self, future: Future[Any], doing: str, *needs: Right, ignore: Collection[str] = ()) -> Any:
        """The answer; None where the error is one of those to ignore."""
        self._await([future], doing)
        try:
            return future.result()
        except KafkaException as problem:
            _alone(problem)
            if name(error_of(problem)) in ignore:
                return None
            raise self._failed(problem, doing, needs) from problem

    def _results(
        self, asked: Mapping[str, Future[Any]], doing: str, operation: str, *, ignore: Collection[str], remedy: str = ""
    ) -> dict[str, Any]:
        """The answers by topic, None for an ignored error; one error names all refused topics, with `remedy`."""
        self._await(asked.values(), f"{doing} {len(asked)} topics")
        found: dict[str, Any] = {}
        refused: dict[str, KafkaException] = {}
        for topic, future in asked.items():
            try:
                found[topic] = future.result()
            except KafkaException as problem:
                code = name(error_of(problem))
                _alone(problem)
                if code in KINDS:
                    refused[topic] = problem
                elif code not in ignore:
                    raise self._failed(problem, f"{doing} topic {topic}") from problem
                else:
                    found[topic] = None
        if refused:
            first = next(iter(refused.values()))
            needs = [Right(operation, "topic", topic) for topic in refused]
            error = self._failed(first, f"{doing} {len(asked)} topics", needs)
            raise FatalError(f"{error}{remedy}", code=error.code) from first
        return found

    def _failed(self, problem: Exception, doing: str, needs: Sequence[Right] = ()) -> BrokerError:
        self._client.poll(0)
        self.spent = True
        return self._watch.error(problem, doing, needs=needs)

    def _unreachable(self, problem: KafkaException, timeout_s: float) -> BrokerError:
        self._client.poll(0.05)
        bootstrap, watch = self._options.bootstrap, self._watch
        cause, reasons = watch.cause, watch.reasons
        found = None
        if not self.reached and not (cause and cause.sure):
            found = self._probed = self._probed or self._probe()
        wrong = found.settings if found else cause is not None and cause.settings
        if wrong and not self.reached:
            why = found.cause if found else "; ".join(reasons)
            return LoginError(
                f"this program cannot connect to Kafka at {bootstrap}: {why}", code=name(error_of(problem))
            )
        doing = f"Kafka at {bootstrap} did not answer within {timeout_s:g} s"
        error = translate(problem, doing, reasons=[found.cause] if found else reasons or [_SILENT])
        if isinstance(error, RetriableError) and found is None and not wrong:
            return RetriableError(f"{error}. Start the brokers, or correct the address: {_WHERE}", code=error.code)
        return error

    def _probe(self) -> Finding | None:
        places = addresses(self._options.bootstrap)[:PROBED]
        return next((found for host, port in places if (found := find_reason(host, port, self._settings))), None)


def _hold(client: list[AdminClient], late: Collection[Future[Any]]) -> None:
    """Keep a client until its last answer is there: librdkafka frees a request twice if the client goes before."""
    wait(late)
    client.clear()


def _alone(problem: KafkaException) -> KafkaException:
    """
    An exception that a future keeps, without the frames that it went through.

    They hold the future and the client, so the client would stay until Python's garbage collector comes by. That may
    be in a thread of librdkafka, which must destroy no client.
    """
    return problem.with_traceback(None)


def _bytes_of(topic_id: Any) -> bytes:
    """The 16 bytes of a topic id (KIP-516), from the two signed halves that the client gives."""
    return struct.pack(">qq", topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits())
