"""The clients of a broker: they write, read, or are members of a group.

A `Reader` and a `Member` belong to one thread (A2); a `Session` is used by one thread at a time; a `Sender` may be
shared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from cues_kafka.ports.log import Fetched, Sent, TopicPartition


class FlushReport(NamedTuple):
    """The delivery reports of one transaction (P6).

    Attributes:
        delivered: number of reports that say success.
        first_offset: the offset of the first record that was produced in this transaction; None: no report for it.
        marked: the same for the first record of each call of `produce` that was marked, in their order. Several tasks
            in one transaction need the place of each record (P6a, J3).
    """

    delivered: int
    first_offset: int | None
    marked: tuple[int | None, ...] = ()


OUTSIDE = -2
"""Stands for a generation if the writer is no member of the group on purpose. A member without a generation has -1."""


class GroupMetadata(NamedTuple):
    """A member's proof of membership, as it goes into a transaction (KIP-447).

    Attributes:
        group: the group's id.
        generation: the group's generation or the member's epoch; negative before the first assignment.
        token: what the client needs; opaque.
    """

    group: str
    generation: int
    token: Any = None

    @classmethod
    def outside(cls, group: str) -> GroupMetadata:
        """
        No proof, for offsets from outside the group (D4). Lag tools and the check of R5 use these offsets. Only the
        transactional id fences their writer. A group with members of the consumer protocol refuses them.
        """
        return cls(group, OUTSIDE)


class Session(Protocol):
    """One producer, used for one task and thrown away at the first error (P8). It is transactional, but for those that
    `Broker.loose_session` gives: of these only `init`, `begin`, `produce`, `flush`, `close` and `abandon` are called.

    Every method raises a `BrokerError` (`RetriableError`, `AbortableError` or `FatalError`); `error.fenced` says that
    another session with the same transactional id was initialised after this one. Whatever the error, the only legal
    next call is `abandon()`.
    """

    def init(self, *, timeout_s: float) -> None:
        """Fence every earlier session of this id, and wait until its open transaction is decided (R1). Call it once."""
        ...

    def begin(self) -> None:
        """Begin a transaction, without a request to the cluster."""
        ...

    def send_offsets(self, offsets: Mapping[TopicPartition, int], group: GroupMetadata) -> None:
        """Put the next offsets into the transaction, checked against the group's generation (P5).

        A negative generation is refused here, before the cluster is asked. The group needs no subscription to the
        topics.
        """
        ...

    def produce(self, records: Iterable[tuple[Any, ...]], *, marked: bool = False) -> int:
        """
        Enqueue records (shaped like `Outgoing`) in this transaction, in order, and return their number.

        If the queue is full, wait.

        Args:
            records: at least one if they are marked.
            marked: have `flush` report where the first of these records landed.
        """
        ...

    def flush(self) -> FlushReport:
        """Wait for all delivery reports of this transaction; raise if one is an error or is missing."""
        ...

    def commit(self) -> str | None:
        """Commit. Return None, or the reason why this commit is *suspect* although it succeeded (P8)."""
        ...

    def close(self) -> None:
        """Release the client. No transaction may be open."""
        ...

    def abandon(self) -> None:
        """
        Throw the client away in any state.

        This is bounded in time and never raises (P8). A transaction may stay open: the next session's `init` ends it.
        """
        ...


class Reader(Protocol):
    """Reads partitions committed, from explicit offsets, and never as a member of a group (A1)."""

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """Add partitions, each from this offset (as Kafka's `incremental_assign`); none of them may be assigned."""
        ...

    def unassign(self, partitions: Collection[TopicPartition]) -> None:
        """Take partitions away, and drop what was fetched of them. Partitions that are not assigned are ignored."""
        ...

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Stop fetching these until `resume` or `unassign`; messages that were fetched before may still come."""
        ...

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Go on after `pause`."""
        ...

    def poll(self, timeout_s: float, max_messages: int = 10_000) -> list[Fetched]:
        """Return the messages that have arrived. Wait up to `timeout_s` for the first message only.

        Raises:
            BrokerError: a partition cannot be read, for example ``_AUTO_OFFSET_RESET`` when the offset is out of range.
        """
        ...

    def close(self) -> None:
        """Release the client."""
        ...


class Listener(Protocol):
    """A `Member` calls it inside `poll` and `close`, on the caller's thread. Returning acknowledges."""

    def on_assign(self, partitions: Sequence[int]) -> None: ...
    def on_revoke(self, partitions: Sequence[int]) -> None: ...
    def on_lost(self, partitions: Sequence[int]) -> None: ...


class Member(Protocol):
    """A membership in a group, subscribed to one topic and with nothing assigned locally (A1, A3)."""

    def poll(self) -> None:
        """Serve the group: callbacks of the listener, and heartbeats for `max.poll.interval.ms`. It never waits."""
        ...

    def rejoin(self) -> None:
        """Give everything back (through the listener, in the next polls) and join again for a new assignment."""
        ...

    def metadata(self) -> GroupMetadata:
        """The newest proof of membership; generation -1 before the first assignment."""
        ...

    def commit(self, offsets: Mapping[TopicPartition, int], done: Callable[[str], None]) -> None:
        """
        Commit offsets of the group without a transaction, if this is still a member of its generation (W5).

        Args:
            offsets: the next offset for each partition.
            done: called in one of the next polls, with an empty text, or why they were refused.
        """
        ...

    def close(self, *, leave: bool) -> None:
        """Revoke all partitions (through the listener) and leave. `leave=False` keeps a static member's place (A4)."""
        ...


class Sender(Protocol):
    """An idempotent producer for applications."""

    def send(self, records: Sequence[tuple[Any, ...]], *, timeout_s: float = 30.0) -> list[Sent]:
        """Produce records (shaped like `Outgoing`) and wait for their acknowledgements; places in the same order."""
        ...

    def close(self) -> None:
        """Release the client."""
        ...
