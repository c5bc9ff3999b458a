"""The client side: session, reader, member and sender, thin over the cluster.

Faults happen here, because a client is what sees a request refused or a reply lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from cues_kafka.brokers.memory.cluster import Cluster
from cues_kafka.brokers.memory.groups import FENCED_INSTANCE
from cues_kafka.errors import AbortableError, BrokerError, FatalError, UnreadableError
from cues_kafka.ports.clients import OUTSIDE, FlushReport, GroupMetadata, Listener
from cues_kafka.ports.log import Fetched, Sent, TopicPartition, WireMessage

_Answer = TypeVar("_Answer")


class Faults:
    """
    What goes wrong between clients and the cluster: nothing, unless a subclass says so. One for a whole `MemoryBroker`.

    Operations: ``init``, ``offsets``, ``produce``, ``commit``, ``abort`` (client: the transactional id; of a session
    without one its name, and ``produce`` only), ``send`` (client: the sender's name), ``committed`` (client: the
    group), ``facts``, ``partitions``, ``watermarks``, ``offsets_at`` (client: empty).
    """

    def before(self, operation: str, client: str) -> None:
        """Called before the request is applied. If this raises a `BrokerError`, the request is not applied."""

    def after(self, operation: str, client: str) -> str | None:
        """Called when it is applied. A `BrokerError` says that its reply is lost; a text makes a commit suspect."""
        return None


def ask(faults: Faults, operation: str, client: str, request: Callable[[], _Answer]) -> tuple[_Answer, str | None]:
    """Apply a request; gives its answer, and the text of a suspect one."""
    faults.before(operation, client)
    answer = request()
    return answer, faults.after(operation, client)


class MemorySession:
    """
    A transactional producer. As with librdkafka, `flush` or `commit` raises the error of a produced record, `produce`
    never does, and after any error only `abandon` works.
    """

    def __init__(
        self, cluster: Cluster, transactional_id: str, *, transaction_timeout_s: float, faults: Faults
    ) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._timeout_s = transaction_timeout_s
        self._faults = faults
        self._epoch = -1
        self._state = "new"
        self._error: BrokerError | None = None
        self._undelivered: BrokerError | None = None
        self._written = False
        self._delivered = 0
        self._first_offset: int | None = None
        self._marked: list[int | None] = []

    def init(self, *, timeout_s: float) -> None:
        """Fence the earlier sessions of this id; their open transaction is decided when this returns."""
        self._expect("new", "init")
        self._epoch, _ = self._ask("init", lambda: self._cluster.transactions.init(self._id, self._timeout_s))
        self._state = "ready"

    def begin(self) -> None:
        """Begin a transaction; the cluster learns of it by its first write."""
        self._expect("ready", "begin")
        self._state = "open"
        self._written = False
        self._undelivered = None
        self._delivered = 0
        self._first_offset = None
        self._marked = []

    def send_offsets(self, offsets: Mapping[TopicPartition, int], group: GroupMetadata) -> None:
        self._expect("open", "send_offsets")

        def add() -> None:
            self._written = True
            self._cluster.transactions.add_offsets(self._id, self._epoch, offsets, group)

        try:
            self.check_generation(group)
        except BrokerError as error:
            raise self._failed(error) from None
        self._ask("offsets", add)

    def check_generation(self, group: GroupMetadata) -> None:
        """Refuse a negative generation here: a classic group would take it without any check (M5)."""
        if group.generation < 0 and group.generation != OUTSIDE:
            raise AbortableError(
                f"{self._id}: generation {group.generation} of group {group.group} does not prove membership: "
                "the member has no assignment yet; send offsets after its first on_assign",
                code="ILLEGAL_GENERATION",
            )

    def produce(self, records: Iterable[tuple[Any, ...]], *, marked: bool = False) -> int:
        self._expect("open", "produce")
        batch = records if isinstance(records, list) else list(records)
        if not batch or self._undelivered is not None:
            return len(batch)
        self._written = True
        try:
            first_offset, _ = ask(
                self._faults,
                "produce",
                self._id,
                lambda: self._cluster.transactions.produce(self._id, self._epoch, batch),
            )
        except BrokerError as error:
            self._undelivered = error
            return len(batch)
        self._delivered += len(batch)
        if self._first_offset is None:
            self._first_offset = first_offset
        if marked:
            self._marked.append(first_offset)
        return len(batch)

    def flush(self) -> FlushReport:
        self._expect("open", "flush")
        if self._undelivered is not None:
            raise self._failed(self._undelivered)
        return FlushReport(self._delivered, self._first_offset, tuple(self._marked))

    def commit(self) -> str | None:
        self._expect("open", "commit")
        if self._undelivered is not None:
            raise self._failed(self._undelivered)
        suspect = None
        if self._written:  # the cluster does not know an empty transaction, and is not asked about it
            _, suspect = self._ask("commit", lambda: self._cluster.transactions.end(self._id, self._epoch, commit=True))
        self._state = "ready"
        return suspect

    def close(self) -> None:
        if self._state == "open":
            raise FatalError(f"{self._id}: closed within a transaction; abandon it instead", code="_STATE")
        self._state = "closed"

    def abandon(self) -> None:
        """Throw the client away; an open transaction is aborted if the cluster still listens to this epoch."""
        if self._written and self._state in ("open", "failed"):
            try:
                self._ask("abort", lambda: self._cluster.transactions.end(self._id, self._epoch, commit=False))
            except BrokerError:
                self._written = False  # fenced, timed out or cut off: the next init of this id ends it
        self._state = "closed"

    def _expect(self, state: str, call: str) -> None:
        if self._state == state:
            return
        if self._error is not None and self._error.fenced:
            raise self._error
        raise FatalError(f"{self._id}: {call}() in state {self._state!r}", code="_STATE")

    def _ask(self, operation: str, request: Callable[[], _Answer]) -> tuple[_Answer, str | None]:
        try:
            return ask(self._faults, operation, self._id, request)
        except BrokerError as error:
            raise self._failed(error) from None

    def _failed(self, error: BrokerError) -> BrokerError:
        self._state = "failed"
        self._error = error
        return error


@dataclass(slots=True)
class Cursor:
    """Where a reader stands in one partition; `eof` is the end that it reported last."""

    position: int
    eof: int | None = None
    paused: bool = False
    failed: bool = False


class MemoryLooseSession:
    """An idempotent producer without a transaction: what it produces is visible at once (W5)."""

    def __init__(self, cluster: Cluster, name: str, faults: Faults) -> None:
        self._cluster = cluster
        self._name = name
        self._faults = faults
        self._undelivered: BrokerError | None = None
        self._delivered = 0
        self._first_offset: int | None = None
        self._marked: list[int | None] = []
        self._closed = False

    def init(self, *, timeout_s: float) -> None:
        """Nothing to do: no other session is fenced."""

    def begin(self) -> None:
        """Count from 0."""
        self._check()
        self._undelivered, self._delivered, self._first_offset, self._marked = None, 0, None, []

    def send_offsets(self, offsets: Mapping[TopicPartition, int], group: GroupMetadata) -> None:
        """The member of the group commits them."""
        raise self._unsupported("send_offsets")

    def produce(self, records: Iterable[tuple[Any, ...]], *, marked: bool = False) -> int:
        self._check()
        batch = list(records)
        if not batch or self._undelivered is not None:
            return len(batch)
        try:
            places, _ = ask(self._faults, "produce", self._name, lambda: self._cluster.send(batch))
        except BrokerError as error:
            self._undelivered = error
            return len(batch)
        self._delivered += len(batch)
        if self._first_offset is None:
            self._first_offset = places[0].offset
        if marked:
            self._marked.append(places[0].offset)
        return len(batch)

    def flush(self) -> FlushReport:
        self._check()
        if self._undelivered is not None:
            raise self._undelivered
        return FlushReport(self._delivered, self._first_offset, tuple(self._marked))

    def commit(self) -> str | None:
        """There is nothing to commit."""
        raise self._unsupported("commit")

    def close(self) -> None:
        self._closed = True

    def abandon(self) -> None:
        self._closed = True

    def _check(self) -> None:
        if self._closed:
            raise AbortableError(f"{self._name}: this session is closed; open another one", code="_STATE")

    def _unsupported(self, call: str) -> FatalError:
        return FatalError(f"{self._name}: {call}() needs a transactional id", code="_NOT_CONFIGURED")


class MemoryReader:
    """A read_committed reader without a group."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._cursors: dict[TopicPartition, Cursor] = {}
        self._error: BrokerError | None = None

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        twice = [place for place in starts if place in self._cursors]
        if twice:
            raise BrokerError(f"assigned already: {twice}", code="_CONFLICT")
        self._cursors |= {place: Cursor(offset) for place, offset in starts.items()}

    def unassign(self, partitions: Collection[TopicPartition]) -> None:
        for place in partitions:
            self._cursors.pop(place, None)
        if self._error is not None and self._error.at not in self._cursors:
            self._error = None

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self._set_paused(partitions, paused=True)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self._set_paused(partitions, paused=False)

    def _set_paused(self, partitions: Collection[TopicPartition], *, paused: bool) -> None:
        for place in self._cursors.keys() & partitions:
            self._cursors[place].paused = paused

    def poll(self, timeout_s: float, max_messages: int = 10_000) -> list[Fetched]:
        """
        What is there; waits only for the first of it, and not at all under virtual time.

        Raises:
            BrokerError: a partition cannot be read; raised once, then the partition is silent until it is assigned
                again.
        """
        monitor = self._cluster.monitor
        until = time.monotonic() + timeout_s
        with monitor.changed:
            while True:
                monitor.tick()
                fetched = self._fetch(max_messages)
                if fetched or not monitor.waits or time.monotonic() >= until:
                    return fetched
                monitor.wait(until)

    def _fetch(self, room: int) -> list[Fetched]:
        fetched: list[Fetched] = []
        for place, at in list(self._cursors.items()):
            if at.paused or at.failed:
                continue
            if room <= 0:
                break
            try:
                one = self._fetch_one(place, at, room)
            except BrokerError as error:
                at.failed = True
                self._error = self._error or error
                continue
            if one is not None:
                fetched.append(one)
            if one is not None and one.messages:
                room -= len(one.messages)
                self._cursors[place] = self._cursors.pop(place)  # the others come first next time
        if self._error is not None and not fetched:
            first, self._error = self._error, None
            raise first
        return fetched

    def _fetch_one(self, place: TopicPartition, at: Cursor, room: int) -> Fetched | None:
        log = self._cluster.topics.log_of(place)
        at.position = log.start_for(at.position)
        end = log.readable_end()
        messages: list[WireMessage] = []
        for start, behind in log.refused:
            if start <= at.position < min(behind, end):
                raise UnreadableError(
                    f"the batch of {place.topic}/{place.partition} at offset {start} cannot be read",
                    code="_BAD_COMPRESSION",
                    place=place,
                    offset=start,
                    remedy="raise receive.message.max.bytes in Kafka(consumer={...})",
                )
            if at.position < start < end:
                end = start
        if at.position < end:
            found, at.position = log.read(at.position, end, room)
            messages = cast(list[WireMessage], found)
        eof = log.end_reported(at.position)
        if eof == at.eof:
            eof = None  # reported already, and it has not moved since
        elif eof is not None:
            at.eof = eof
        return Fetched(place, messages, eof) if messages or eof is not None else None

    def close(self) -> None:
        self._cursors.clear()


class MemoryMember:
    """A member of a group; all callbacks come from `poll` and `close`."""

    def __init__(self, cluster: Cluster, group: str, topic: str, listener: Listener, instance: str | None) -> None:
        self._cluster = cluster
        self._group = group
        self._topic = topic
        self._listener = listener
        self._instance = instance
        self._membership = cluster.groups.join(group, topic, instance)
        self._closed = False

    def poll(self) -> None:
        if self._closed:
            raise FatalError(f"member of {self._group} is closed", code="_STATE")
        while self._serve():
            pass

    def _serve(self) -> bool:
        """
        Serve one change; gives whether there was one.

        Raises:
            FatalError: another member with this instance id took its place.
        """
        member = self._membership
        try:
            revoked, assigned, first = self._cluster.groups.heartbeat(self._group, member)
        except FatalError as error:
            self._lose(error)
            return True
        if revoked:
            self._listener.on_revoke(sorted(revoked))
            self._cluster.groups.acknowledge(self._group, member, revoked)
            return True
        if assigned or first:
            self._listener.on_assign(sorted(assigned))
            return True
        return False

    def _lose(self, error: FatalError) -> None:
        held, self._membership.held = self._membership.held, set()
        if held:
            self._listener.on_lost(sorted(held))
        if error.code == FENCED_INSTANCE:
            raise error
        self._membership = self._cluster.groups.join(self._group, self._topic, self._instance)

    def commit(self, offsets: Mapping[TopicPartition, int], done: Callable[[str], None]) -> None:
        """Answered at once."""
        done(self._cluster.groups.commit(offsets, self.metadata()))

    def rejoin(self) -> None:
        """Nothing to do: the cluster shares the partitions again at each change."""

    def metadata(self) -> GroupMetadata:
        member = self._membership
        return GroupMetadata(self._group, member.generation, (member.member_id, member.instance))

    def close(self, *, leave: bool) -> None:
        """Give the partitions back and go. `leave=False` keeps the place of a static member until its session ends."""
        if self._closed:
            return
        self._closed = True
        member = self._membership
        if member.held:
            tell = self._listener.on_lost if member.gone else self._listener.on_revoke
            tell(sorted(member.held))
        if member.gone:
            return
        if leave or self._instance is None:
            self._cluster.groups.leave(self._group, member)
        else:
            self._cluster.groups.silence(member)
            self._cluster.groups.acknowledge(self._group, member, set(member.held))

    def kill(self) -> None:
        """Let its process die: no callback, and its place is kept until the session timeout or a successor comes."""
        self._closed = True
        self._cluster.groups.silence(self._membership)


class MemorySender:
    """A producer outside of transactions."""

    def __init__(self, cluster: Cluster, name: str, faults: Faults) -> None:
        self._cluster = cluster
        self._name = name
        self._faults = faults

    def send(self, records: Sequence[tuple[Any, ...]], *, timeout_s: float = 30.0) -> list[Sent]:
        return ask(self._faults, "send", self._name, lambda: self._cluster.send(records))[0]

    def close(self) -> None:
        """Nothing to release."""
