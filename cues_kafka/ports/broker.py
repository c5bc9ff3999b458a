"""A cluster, and anything else that a worker's messages may come from. A `Broker` may be shared by threads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from cues_kafka.errors import BrokerError
from cues_kafka.ports.clients import Listener, Member, Reader, Sender, Session
from cues_kafka.ports.facts import ClusterFacts, NewTopic, Watermarks
from cues_kafka.ports.log import TopicPartition


class Inlet(Protocol):
    """
    Where a worker's messages come from, and what is known of the places there.

    Every `Broker` is one: its inputs are partitions of topics. An input that is no partition (a file, another broker)
    answers the same three questions under the topic's name. Its ids, offsets and ends then are its own.
    """

    def facts(self, topics: Collection[str]) -> ClusterFacts:
        """Topic ids, partition counts and configurations; topics that do not exist are left out."""
        ...

    def watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        """Offsets that bound the partitions; the leaders answer, never a cache."""
        ...

    def reader(self, name: str) -> Reader:
        """A new reader, named in client ids and logs. It never commits and never joins a group."""
        ...


class Broker(Inlet, Protocol):
    """A cluster. The object is cheap, and opens clients on demand."""

    def partitions(self, topics: Collection[str] | None = None) -> dict[str, int]:
        """
        Partition counts of topics, in one request; None: all topics but the brokers' own.

        Missing topics are left out.
        """
        ...

    def create(self, topics: Sequence[NewTopic]) -> None:
        """Create topics and wait until they exist. A topic that exists already is not changed."""
        ...

    def add_partitions(self, topic: str, total: int) -> None:
        """Raise a topic's partition count to `total` and wait until they exist; a smaller count changes nothing."""
        ...

    def configure(self, topic: str, settings: Mapping[str, str]) -> None:
        """Set these settings of a topic; its others stay."""
        ...

    def delete(self, topics: Sequence[str]) -> None:
        """Delete topics; one that does not exist is ignored."""
        ...

    def trim(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Delete the records below these offsets (Kafka's DeleteRecords)."""
        ...

    def stable_ends(
        self, partitions: Collection[TopicPartition], *, timeout_s: float = 2.0
    ) -> dict[TopicPartition, int]:
        """The last stable offsets alone, asked once: for questions before each chunk of calls.

        Raises:
            RetriableError: no answer within `timeout_s`, or a partition has no leader now.
        """
        ...

    def offsets_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset whose timestamp is at or past this time (milliseconds since the epoch).

        None: no record is that new.

        Records of open transactions count, and those of aborted ones may: a record that is committed later never comes
        before an earlier answer.
        """
        ...

    def open_since(self, partitions: Collection[TopicPartition], *, group: str) -> dict[TopicPartition, float]:
        """
        Since when the oldest open transaction has written to these partitions, by the timestamp of its first record.

        Args:
            partitions: to look at.
            group: a group that the caller may describe; nothing joins it or commits there.

        Returns:
            Seconds since the epoch; partitions without an open transaction are left out.
        """
        ...

    def committed(self, group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The group's committed offsets, stable ones only (R2); None for a partition without an offset.

        Raises:
            UnstableOffsets: an open transaction holds offsets of one of them.
        """
        ...

    def members(self, group: str) -> list[str]:
        """Names (client id or instance id) of the group's members; empty if the group does not exist."""
        ...

    def forget(self, group: str, topics: Collection[str]) -> bool:
        """
        Delete a group without members, if all of its offsets are of these topics; whether it was deleted.

        Offsets of topics that this user may not describe are not seen.

        Raises:
            BrokerError: it has members, or this user may not delete it.
        """
        ...

    def unowned(self, group: str, topic: str, partitions: int) -> set[int]:
        """
        The first partitions of a topic that no member of a *stable* group owns; empty if the group is between two
        generations, or has no members.
        """
        ...

    @property
    def max_bytes(self) -> int:
        """Size of the largest record that sessions and senders take for any topic, in bytes."""
        ...

    def session(self, transactional_id: str, *, batch_bytes: int | None = None, brief: bool = False) -> Session:
        """
        A new transactional producer, not yet initialised, its connections warming up (R1).

        Args:
            transactional_id: its id.
            batch_bytes: the smallest `max.message.bytes` of the topics that get many records, which bounds a whole
                batch of records; None: the client's own limit.
            brief: have the brokers abort the open transaction of a dead process after the shortest time that leaves
                three requests their time, for ids that no successor may take.
        """
        ...

    def loose_session(self, name: str, *, batch_bytes: int | None = None) -> Session:
        """
        A new idempotent producer without a transactional id, which nothing fences (W5).

        Args:
            name: goes into the client id.
            batch_bytes: as for `session`.
        """
        ...

    def fence(self, transactional_ids: Collection[str], *, timeout_s: float) -> dict[str, BrokerError]:
        """
        Take each of these ids for a moment, and keep none (Kafka's `fenceProducers`).

        Every earlier session of an id is fenced, and its open transaction is ended with its markers written (R1, J2).

        Args:
            transactional_ids: to take, many side by side.
            timeout_s: for all of them together, in seconds.

        Returns:
            Why the others could not be taken; empty: all were.
        """
        ...

    def expect(self, transactional_ids: Sequence[str], *, batch_bytes: int | None = None) -> None:
        """
        Say that `session` will soon be called for these ids, so that their clients connect meanwhile, without taking
        the id. Clients of an earlier call that were not used are closed.
        """
        ...

    def reader(self, name: str, *, prompt: bool = False) -> Reader:
        """
        A new reader. It never commits and never joins a group.

        Args:
            name: goes into client ids and logs.
            prompt: report the end of a partition within milliseconds. The reader then asks the broker repeatedly at the
                end, so this is for reading up to a known end, once.
        """
        ...

    def member(self, group: str, topic: str, listener: Listener, *, instance: str | None = None) -> Member:
        """Join `group`, subscribed to `topic`; `instance` is the static member id (A4)."""
        ...

    def sender(self, name: str, *, batch_bytes: int | None = None) -> Sender:
        """A new idempotent producer; `name` goes into the client id, `batch_bytes` as for `session`."""
        ...

    def close(self) -> None:
        """Release what the broker object itself holds. Owners close their sessions, readers and members."""
        ...
