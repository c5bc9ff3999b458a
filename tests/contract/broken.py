"""Memory brokers that break one rule each, and the case of the contract that must notice.

A case that passes on its broken broker proves nothing on a sound one. `BREAKS` maps a case to the brokers that it must
fail on; `test_broken.py` sees to it, and that no case is missing.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cues_kafka.brokers.memory import MemoryBroker, MemoryMember, MemoryReader, MemorySender, MemorySession
from cues_kafka.brokers.memory.clients import Cursor
from cues_kafka.brokers.memory.cluster import Cluster
from cues_kafka.brokers.memory.group_coordinator import GroupCoordinator
from cues_kafka.brokers.memory.groups import Group, Membership
from cues_kafka.brokers.memory.log import Log, MemoryMessage
from cues_kafka.brokers.memory.topics import Topics
from cues_kafka.brokers.memory.transaction_coordinator import TransactionCoordinator
from cues_kafka.brokers.memory.transactions import Transaction, TransactionalId
from cues_kafka.errors import AbortableError, BrokerError
from cues_kafka.ports.clients import FlushReport, GroupMetadata
from cues_kafka.ports.facts import TopicFacts, Watermarks
from cues_kafka.ports.log import Fetched, Sent, TopicPartition


def on_cluster(cluster: type[Cluster]) -> type[MemoryBroker]:
    """A broker over this cluster."""
    return type(f"{cluster.__name__}Broker", (MemoryBroker, cluster), {})


# ---- sessions without a lock


class FencedLoose(MemoryBroker):
    """Every session has a lock."""

    def loose_session(self, name: str, *, batch_bytes: int | None = None) -> Any:
        return self.session(name, batch_bytes=batch_bytes)


class CommitsNothing(GroupCoordinator):
    """Offsets of a member are confirmed, and not kept."""

    def commit(self, offsets: Mapping[TopicPartition, int], metadata: GroupMetadata) -> str:
        return ""


class CommitsOfAnyone(GroupCoordinator):
    """Offsets of a former member are taken, too."""

    def commit(self, offsets: Mapping[TopicPartition, int], metadata: GroupMetadata) -> str:
        self.named(metadata.group).offsets.update(offsets)
        return ""


# ---- transactions


class NoFence(TransactionCoordinator):
    """A second init does not invalidate the first."""

    def init(self, name: str, timeout_s: float) -> int:
        super().init(name, timeout_s)
        self.ids[name].epoch = 0
        return 0


class InitLeavesOpen(TransactionCoordinator):
    """Init fences, and leaves the earlier transaction open."""

    def init(self, name: str, timeout_s: float) -> int:
        if name in self.ids:
            self.ids[name].open = None
        return super().init(name, timeout_s)


class NoTimeout(TransactionCoordinator):
    """Transactions never end."""

    def _time_out(self, state: TransactionalId) -> None:
        if state.open is not None:
            state.open.deadline += 3600


class AbortKeepsRecords(Log):
    """An abort releases the records as a commit does."""

    def discard(self, transaction: int, first: int) -> None:
        """Nothing."""


class NoMarkers(Log):
    """The end of a transaction takes no offset."""

    def mark(self) -> None:
        """Nothing."""


class CommitChecksGeneration(TransactionCoordinator):
    """A commit is refused when the group has moved on since the offsets call."""

    def add_offsets(
        self, name: str, epoch: int, offsets: Mapping[TopicPartition, int], metadata: GroupMetadata
    ) -> None:
        super().add_offsets(name, epoch, offsets, metadata)
        self.seen_generation = metadata.generation

    def end(self, name: str, epoch: int, *, commit: bool) -> None:
        transaction = self.ids[name].open
        for group in transaction.groups if transaction and commit else ():
            if self._groups.groups[group].generation != self.seen_generation:
                raise AbortableError("the group has moved on", code="ILLEGAL_GENERATION")
        super().end(name, epoch, commit=commit)


# ---- what readers see


class ReadsOpenRecords(Log):
    """Readers are bounded by the high watermark."""

    def readable_end(self) -> int:
        return self.end


class EndAtHighWatermark(Log):
    """Messages stop at the last stable offset, the end is reported at the high watermark."""

    def end_reported(self, position: int) -> int | None:
        return self.end if position >= self.stable else None


class HighIsStable(Log):
    """The high watermark is the last stable offset."""

    def watermarks(self) -> Watermarks:
        return Watermarks(self.start, self.stable, self.stable)


class StableIsHigh(Log):
    """The last stable offset is the high watermark."""

    def watermarks(self) -> Watermarks:
        return Watermarks(self.start, self.end, self.end)


class EndOnce(MemoryReader):
    """The end is reported once for each assignment."""

    def _fetch_one(self, place: TopicPartition, at: Cursor, room: int) -> Fetched | None:
        said = at.eof
        fetched = super()._fetch_one(place, at, room)
        if said is not None and fetched is not None:
            return Fetched(place, fetched.messages, None) if fetched.messages else None
        return fetched


class EndAlways(MemoryReader):
    """The end is reported by every poll."""

    def _fetch_one(self, place: TopicPartition, at: Cursor, room: int) -> Fetched | None:
        at.eof = None
        return super()._fetch_one(place, at, room)


class ResetsOffsets(Log):
    """An offset out of range is the log's start."""

    def start_for(self, position: int) -> int:
        return position if self.start <= position <= self.end else self.start


class ForgetsUnassign(MemoryReader):
    """Partitions stay assigned."""

    def unassign(self, partitions: Any) -> None:
        """Nothing."""


class StartsAtZero(MemoryReader):
    """The offset given is ignored."""

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        super().assign(dict.fromkeys(starts, 0))


class KeepsPause(MemoryReader):
    """Takes a partition away, and remembers that it was paused, as the client does."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._kept: set[TopicPartition] = set()

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        super().pause(partitions)
        self._kept.update(partitions)

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        super().assign(starts)
        super().pause(self._kept)


class ForgetsPause(MemoryReader):
    """Paused partitions go on."""

    def pause(self, partitions: Any) -> None:
        """Nothing."""


class ForgetsResume(MemoryReader):
    """Paused partitions never go on."""

    def resume(self, partitions: Any) -> None:
        """Nothing."""


class Unbounded(MemoryReader):
    """A poll brings everything that is there."""

    def poll(self, timeout_s: float, max_messages: int = 10_000) -> list[Fetched]:
        return super().poll(timeout_s)


# ---- groups


class OffsetsAtOnce(TransactionCoordinator):
    """Offsets count before the commit."""

    def add_offsets(
        self, name: str, epoch: int, offsets: Mapping[TopicPartition, int], metadata: GroupMetadata
    ) -> None:
        super().add_offsets(name, epoch, offsets, metadata)
        group = self._groups.groups[metadata.group]
        group.pending.clear()
        group.offsets.update(offsets)


class IgnoresPending(Group):
    """A fetch of offsets looks past open transactions."""

    def unstable(self, partition: TopicPartition) -> bool:
        return False


class AbsentIsZero(GroupCoordinator):
    """A group without offsets seems to be at the beginning."""

    def committed(self, group: str, partitions: Any) -> dict[TopicPartition, int | None]:
        return {place: offset or 0 for place, offset in super().committed(group, partitions).items()}


class NoMembershipCheck(Group):
    """The offsets of any writer are taken."""

    def check(self, metadata: GroupMetadata) -> str:
        return ""


class NoGenerationCheck(MemorySession):
    """A negative generation is sent, and a classic group takes it."""

    def check_generation(self, group: GroupMetadata) -> None:
        self._cluster.groups.named(group.group).check = lambda metadata: ""  # type: ignore[method-assign]


class MembersOnly(Group):
    """Offsets from outside are refused even where it is said that they are."""

    def check(self, metadata: GroupMetadata) -> str:
        return super().check(metadata._replace(generation=max(metadata.generation, -1)))


class OnlySubscribedTopics(TransactionCoordinator):
    """Offsets of other topics are refused."""

    def add_offsets(
        self, name: str, epoch: int, offsets: Mapping[TopicPartition, int], metadata: GroupMetadata
    ) -> None:
        subscribed = {member.topic for member in self._groups.groups[metadata.group].members}
        if any(place.topic not in subscribed for place in offsets):
            raise AbortableError("not subscribed", code="UNKNOWN_TOPIC_OR_PART")
        super().add_offsets(name, epoch, offsets, metadata)


class GivesBeforeAcknowledged(Group):
    """A partition moves while its owner still has it."""

    def may_give(self, owner: Membership, holder: Membership | None) -> bool:
        return True


class ForgetsNothing(GroupCoordinator):
    """Says that the group is gone, and leaves it."""

    def forget(self, group: str, topics: Collection[str]) -> bool:
        return True


class ForgetsWithEveryTopic(GroupCoordinator):
    """Deletes a group that other applications use, too."""

    def forget(self, group: str, topics: Collection[str]) -> bool:
        self.groups.pop(group, None)
        return True


class ForgetsMembers(GroupCoordinator):
    """Deletes what a group with members has committed."""

    def forget(self, group: str, topics: Collection[str]) -> bool:
        self.named(group).offsets.clear()
        return True


class AlwaysCooperative(Cluster):
    """The protocol that was asked for is ignored."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options | {"cooperative": True})


class ForgetsInstances(Group):
    """A static member is a new one like any other."""

    def join(self, newcomer: Membership) -> None:
        instance, newcomer.instance = newcomer.instance, None
        super().join(newcomer)
        newcomer.instance = instance


class LeavesSilently(MemoryMember):
    """Leaving is left to the session timeout."""

    def close(self, *, leave: bool) -> None:
        self.kill()


# ---- writing


class CountsProducedTwice(MemorySession):
    """A delivery report is counted for each attempt."""

    def flush(self) -> FlushReport:
        report = super().flush()
        return report._replace(delivered=report.delivered * 2)


class FirstIsLast(MemorySession):
    """The offset of the last batch is taken for the first."""

    def produce(self, records: Any, *, marked: bool = False) -> int:
        self._first_offset = None
        return super().produce(records, marked=marked)


class MarksTheTransaction(MemorySession):
    """The first record of the transaction is taken for that of each part."""

    def flush(self) -> FlushReport:
        report = super().flush()
        return report._replace(marked=(report.first_offset,) * len(report.marked))


class AnySize(Log):
    """Records have no limit."""

    def __init__(self, topic: str, partition: int, config: Mapping[str, str]) -> None:
        super().__init__(topic, partition, config)
        self.max_bytes = 1 << 40


class AnyTime(Log):
    """Timestamps have no limit."""

    def __init__(self, topic: str, partition: int, config: Mapping[str, str]) -> None:
        super().__init__(topic, partition, config)
        self.older_ms = self.newer_ms = 1 << 63


class WrongPlaces(MemorySender):
    """Places are those of the records before."""

    def send(self, records: Any, *, timeout_s: float = 30.0) -> list[Sent]:
        return [Sent(topic, partition, offset - 1) for topic, partition, offset in super().send(records)]


class Crc32(Topics):
    """librdkafka's own partitioner."""

    def partition_of(self, topic: str, key: bytes | None) -> int:
        return zlib.crc32(key or b"") % self.count(topic)


class EmptyIsNull(Topics):
    """An empty value becomes none, and headers become a dictionary."""

    def append(self, records: Any, transaction: Transaction | None, seconds: float) -> list[MemoryMessage]:
        mangled = [
            (topic, partition, key, value or None, list(dict(headers or []).items()), timestamp)
            for topic, partition, key, value, headers, timestamp in records
        ]
        return super().append(mangled, transaction, seconds)


# ---- topics


class OldestWins(Log):
    """Compaction keeps the first of a key."""

    def compact(self, *, tombstones: bool) -> None:
        first: dict[bytes | None, MemoryMessage] = {}
        for message in self.messages:
            first.setdefault(message.key(), message)
        self.messages[:] = list(first.values())
        self.offsets[:] = [message.offset() for message in first.values()]


class CompactionRenumbers(Log):
    """Compaction gives new offsets."""

    def compact(self, *, tombstones: bool) -> None:
        super().compact(tombstones=tombstones)
        self.offsets[:] = range(len(self.offsets))
        for offset, message in enumerate(self.messages):
            message._offset = offset


class KeysOptional(Log):
    """A compacted topic takes anything."""

    def __init__(self, topic: str, partition: int, config: Mapping[str, str]) -> None:
        super().__init__(topic, partition, config)
        self.compacted = False


class NeverTrims(Log):
    """Nothing is deleted."""

    def trim(self, offset: int) -> None:
        """Nothing."""


class TrimsSilently(Log):
    """Records go, the log's start stays."""

    def trim(self, offset: int) -> None:
        super().trim(offset)
        self.start = 0


class IdFromName(Topics):
    """A recreated topic looks like the old one."""

    def create(self, topic: Any) -> None:
        super().create(topic)
        self.facts[topic.name] = replace(self.facts[topic.name], topic_id=topic.name.encode().ljust(16)[:16])


class CreatesAnew(Cluster):
    """Creating a topic that exists recreates it."""

    def create(self, topics: Any) -> None:
        with self.monitor.changed:
            for topic in topics:
                self.topics.create(topic)


class ConfiguresAnew(Topics):
    """A setting replaces all others."""

    def configure(self, topic: str, settings: Any) -> None:
        self.facts[topic] = replace(self.facts[topic], config={"cleanup.policy": "delete", **settings})


class IgnoresSettings(Topics):
    """A setting is not taken."""

    def configure(self, topic: str, settings: Any) -> None:
        """Nothing."""


class DatedByTheNewest(Cluster):
    """An open transaction is as old as what was written last."""

    def open_since(self, partitions: Collection[TopicPartition], *, group: str) -> dict[TopicPartition, float]:
        found = super().open_since(partitions, group=group)
        logs = {place: self.topics.log_of(place) for place in found}
        newest = {place: log.read(log.stable, log.end, 100)[0][-1] for place, log in logs.items()}
        return {place: message.timestamp()[1] / 1000 for place, message in newest.items()}


class DatesAllPartitions(Cluster):
    """A partition without an open transaction is dated, too."""

    def open_since(self, partitions: Collection[TopicPartition], *, group: str) -> dict[TopicPartition, float]:
        return dict.fromkeys(partitions, 0.0) | super().open_since(partitions, group=group)


class LosesConfig(Topics):
    """The configuration of a topic is not told."""

    def create(self, topic: Any) -> None:
        super().create(topic)
        facts = self.facts[topic.name]
        self.facts[topic.name] = TopicFacts(facts.name, facts.topic_id, facts.partitions)


def _with(**types: type) -> type[MemoryBroker]:
    """A broker with another kind of client, part, log or group."""
    (kind,) = types.values()
    return type(f"{kind.__name__}Broker", (MemoryBroker,), types)


class ListsNothing(Cluster):
    """A list of all topics is empty."""

    def partitions(self, topics: Collection[str] | None) -> dict[str, int]:
        return super().partitions(topics or [])


class CountsMissing(Cluster):
    """A topic that is asked for by name and is not there has no partitions."""

    def partitions(self, topics: Collection[str] | None) -> dict[str, int]:
        return dict.fromkeys(topics or (), 0) | super().partitions(topics)


class ExactTimes(Log):
    """Only a message of exactly this time is found."""

    def offset_at(self, time_ms: int) -> int | None:
        return next((m.offset() for m in self.messages if m.timestamp()[1] == time_ms), None)


class StableTimes(Log):
    """An open transaction hides its messages, and what comes after."""

    def offset_at(self, time_ms: int) -> int | None:
        found = super().offset_at(time_ms)
        return found if found is not None and found < self.stable else None


class FencesOne(MemoryBroker):
    """Only the first id is taken."""

    def fence(self, transactional_ids: Collection[str], *, timeout_s: float) -> dict[str, BrokerError]:
        return super().fence(list(transactional_ids)[:1], timeout_s=timeout_s)


class TakesWhatIsExpected(MemoryBroker):
    """Who expects to be called for an id has it already."""

    def expect(self, transactional_ids: Sequence[str], *, batch_bytes: int | None = None) -> None:
        for one in transactional_ids:
            self.session(one).init(timeout_s=1)


BREAKS: dict[str, list[type[MemoryBroker]]] = {
    "a_loose_session_writes_without_a_lock": [FencedLoose],
    "a_member_commits_offsets_without_a_transaction": [_with(groups_type=CommitsNothing)],
    "a_member_whose_place_was_taken_commits_no_offsets": [_with(groups_type=CommitsOfAnyone)],
    "a_second_init_fences_the_first": [_with(transactions_type=NoFence)],
    "a_fenced_session_cannot_commit_what_it_wrote": [_with(transactions_type=NoFence)],
    "init_ends_an_open_transaction": [_with(transactions_type=InitLeavesOpen), _with(log_type=NoMarkers)],
    "fencing_ends_the_transactions_of_all_ids": [FencesOne, _with(transactions_type=NoFence)],
    "a_session_that_is_expected_takes_its_id_only_when_it_is_called_for": [TakesWhatIsExpected],
    "a_transaction_that_times_out_is_aborted": [_with(transactions_type=NoTimeout)],
    "read_committed_hides_open_records": [_with(log_type=ReadsOpenRecords)],
    "read_committed_hides_aborted_records": [_with(log_type=AbortKeepsRecords)],
    "the_high_watermark_passes_an_open_transaction": [_with(log_type=HighIsStable)],
    "the_last_stable_offset_does_not_pass_an_open_transaction": [_with(log_type=StableIsHigh)],
    "an_open_transaction_is_dated_by_its_first_record": [on_cluster(DatedByTheNewest), on_cluster(DatesAllPartitions)],
    "the_end_of_a_partition_comes_at_the_last_stable_offset": [_with(log_type=EndAtHighWatermark)],
    "the_end_comes_again_when_it_has_moved_over_a_marker_only": [_with(reader_type=EndOnce)],
    "the_end_is_reported_once_while_it_stands_still": [_with(reader_type=EndAlways)],
    "offsets_in_a_transaction_appear_only_with_its_commit": [_with(transactions_type=OffsetsAtOnce)],
    "a_stable_fetch_does_not_look_past_pending_offsets": [_with(group_type=IgnoresPending)],
    "a_stale_generation_is_refused_before_anything_is_written": [_with(group_type=NoMembershipCheck)],
    "a_worker_that_left_the_group_is_refused": [_with(group_type=NoMembershipCheck)],
    "a_negative_generation_is_refused_by_ourselves": [_with(session_type=NoGenerationCheck)],
    "offsets_from_outside_of_the_group_are_taken_where_it_is_said": [_with(group_type=MembersOnly)],
    "offsets_of_a_topic_that_the_group_does_not_subscribe_to_are_taken": [
        _with(transactions_type=OnlySubscribedTopics)
    ],
    "a_rebalance_after_the_offsets_call_does_not_stop_the_commit": [_with(transactions_type=CommitChecksGeneration)],
    "a_group_without_offsets_has_none": [_with(groups_type=AbsentIsZero)],
    "a_forgotten_group_has_no_offsets": [_with(groups_type=ForgetsNothing)],
    "a_group_with_offsets_of_other_topics_is_not_forgotten": [_with(groups_type=ForgetsWithEveryTopic)],
    "a_group_with_members_is_not_forgotten": [_with(groups_type=ForgetsNothing), _with(groups_type=ForgetsMembers)],
    "a_partition_moves_only_after_its_revocation_has_returned": [_with(group_type=GivesBeforeAcknowledged)],
    "an_eager_rebalance_takes_everything_before_it_gives_anything": [on_cluster(AlwaysCooperative)],
    "a_leaving_member_gives_its_partitions_back": [_with(member_type=LeavesSilently)],
    "a_static_member_takes_its_predecessors_place_at_once": [_with(group_type=ForgetsInstances)],
    "the_predecessor_of_a_static_member_is_fenced": [_with(group_type=ForgetsInstances)],
    "a_reader_starts_where_it_is_told_and_stops_when_told": [
        _with(reader_type=StartsAtZero),
        _with(reader_type=ForgetsUnassign),
    ],
    "a_paused_partition_brings_nothing_until_it_is_resumed": [
        _with(reader_type=ForgetsPause),
        _with(reader_type=ForgetsResume),
    ],
    "a_partition_that_was_paused_and_is_assigned_anew_is_not_paused_any_more": [_with(reader_type=KeepsPause)],
    "an_offset_out_of_range_is_an_error_and_never_a_guess": [_with(log_type=ResetsOffsets)],
    "a_poll_brings_no_more_than_it_was_asked_for": [_with(reader_type=Unbounded)],
    "flush_counts_deliveries_and_names_the_first_offset": [
        _with(session_type=CountsProducedTwice),
        _with(session_type=FirstIsLast),
    ],
    "flush_names_the_first_offset_of_each_marked_part": [_with(session_type=MarksTheTransaction)],
    "the_next_transactions_first_offset_is_two_further": [_with(log_type=NoMarkers)],
    "a_timestamp_outside_of_the_topics_limits_is_refused": [_with(log_type=AnyTime)],
    "a_record_over_the_limit_ends_the_transaction": [_with(log_type=AnySize)],
    "a_sender_knows_the_places_of_what_it_sent": [_with(sender_type=WrongPlaces)],
    "keys_go_where_murmur2_says": [_with(topics_type=Crc32)],
    "a_message_comes_back_as_it_was_written": [_with(topics_type=EmptyIsNull)],
    "compaction_keeps_the_newest_of_a_key": [_with(log_type=OldestWins), _with(log_type=CompactionRenumbers)],
    "a_compacted_topic_takes_no_message_without_a_key": [_with(log_type=KeysOptional)],
    "trimming_moves_the_low_watermark": [_with(log_type=NeverTrims), _with(log_type=TrimsSilently)],
    "a_recreated_topic_has_another_id": [_with(topics_type=IdFromName)],
    "partition_counts_come_without_the_topics_that_are_not_there": [
        on_cluster(ListsNothing),
        on_cluster(CountsMissing),
    ],
    "the_offset_of_a_time_is_that_of_the_first_message_at_or_past_it": [
        _with(log_type=ExactTimes),
        _with(log_type=StableTimes),
    ],
    "creating_a_topic_again_leaves_it_as_it_is": [on_cluster(CreatesAnew), _with(topics_type=LosesConfig)],
    "a_setting_is_changed_and_the_others_stay": [_with(topics_type=ConfiguresAnew), _with(topics_type=IgnoresSettings)],
}
