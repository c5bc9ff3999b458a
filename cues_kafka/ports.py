"""The ports: protocols for the outside world, and the frozen facts that they exchange.

This module has plain data and signatures, and the one safe way to read headers. It imports the standard library only.
`brokers/memory` and `brokers/kafka` implement the protocols and pass one contract suite (tests/contract).

Threads: a `Reader` and a `Member` belong to one thread (A2); a `Session` is used by one thread at a time;
a `Broker` and a `Sender` may be shared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

Headers: TypeAlias = "list[tuple[str, bytes | None]]"


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


class Coordinates(NamedTuple):
    """The place of one consumed message, which no other message ever has.

    Attributes:
        binding: the input binding that it came by.
        topic_id: the 16 bytes of the topic's id (KIP-516); a recreated topic has another one.
        partition: partition number.
        offset: the message's offset.
    """

    binding: str
    topic_id: bytes
    partition: int
    offset: int


class Position(NamedTuple):
    """The next offset to read of one input binding (O2)."""

    binding: str
    topic: str
    topic_id: bytes
    offset: int


Positions: TypeAlias = tuple[Position, ...]
"""One `Position` for each input binding, in the order of declaration; the partition is the task's own."""


class WireMessage(Protocol):
    """A fetched message: the methods of confluent-kafka's `Message`, so that no wrapper stands on the hot path."""

    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> Headers | None:
        """The headers. Ask `headers_of` first: if a name is not UTF-8, this call must not be made twice."""
        ...

    def set_headers(self, value: Headers) -> None:
        """Set what `headers` returns from now on."""
        ...

    def timestamp(self) -> tuple[int, int]:
        """(type, milliseconds since the epoch); type 0 means that the message has no timestamp."""
        ...

    def __len__(self) -> int:
        """Length of the value in bytes. So a message with an empty value is false: compare with None."""
        ...


class _Unreadable(list[Any]):
    """The type of `UNREADABLE`."""


UNREADABLE: Final[Headers] = _Unreadable()
"""Stands for the headers of a message that the client cannot read; it is known by identity."""


def headers_of(message: WireMessage) -> Headers | None:
    """The headers of a message, or `UNREADABLE`; see `headers_of_each`. Afterwards its `headers` may be called."""
    return headers_of_each((message,))[0]


def headers_of_each(messages: Sequence[WireMessage]) -> list[Headers | None]:
    """
    Return the headers of messages of one class, and `UNREADABLE` if a name is not UTF-8.

    Kafka takes any bytes as the name of a header. On a message with such a name, the first call of confluent-kafka
    2.16.1 returns an incomplete list *and* sets an exception. A second call returns that list, and reading it ends the
    process. So each message is asked once, and told what to answer from then on. `map` makes the call, because it
    checks for an exception after each call. A call in Python code that the interpreter has specialised does not, and
    the exception then comes up in a later line.
    """
    found: list[Headers | None] = []
    while len(found) < len(messages):
        try:
            found.extend(map(type(messages[0]).headers, islice(messages, len(found), None) if found else messages))
        except SystemError:
            messages[len(found)].set_headers(UNREADABLE)
            found.append(UNREADABLE)
    return found


class Fetched(NamedTuple):
    """The result of one poll for one partition: messages in order of offset, and the end of the partition if reached.

    Attributes:
        eof: the offset at which the reader found no more committed messages, the last stable offset, or None. It comes
            after `messages`, so it is at least one past the last of them.
    """

    partition: TopicPartition
    messages: list[WireMessage]
    eof: int | None


class Outgoing(NamedTuple):
    """One record to produce, as bytes. `partition=None`: murmur2 of the key. `timestamp_ms=0`: the broker's time.

    On the hot path any tuple of this shape will do.
    """

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers | None = None
    timestamp_ms: int = 0


class Sent(NamedTuple):
    """The partition and offset of an acknowledged record."""

    topic: str
    partition: int
    offset: int


class Watermarks(NamedTuple):
    """Offsets that bound a partition: log start, last stable offset, high watermark (`low <= stable <= high`)."""

    low: int
    stable: int
    high: int


class FlushReport(NamedTuple):
    """The delivery reports of one transaction (P6).

    Attributes:
        delivered: number of reports that say success.
        first_offset: the offset of the first record that was produced in this transaction; None: no report for it.
    """

    delivered: int
    first_offset: int | None


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


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What the cluster says about one topic."""

    name: str
    topic_id: bytes
    partitions: int
    replication: int = 1
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """
    What the cluster says about itself and some topics; a missing topic is not in `topics`.

    Attributes:
        brokers: number of brokers.
        topics: topics by name.
        unchecked: topics whose settings this user may not read, so that their `config` is empty.
        user: this client's user, as the brokers know it; None: not known.
        cluster_id: names the cluster for good; empty: it ends with this process.
    """

    brokers: int
    topics: Mapping[str, TopicFacts]
    unchecked: tuple[str, ...] = ()
    user: str | None = None
    cluster_id: str = ""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create."""

    name: str
    partitions: int
    replication: int | None = None
    """Replication factor; None: 3, or the number of brokers if that is smaller."""
    config: Mapping[str, str] = field(default_factory=dict)
    may_lack: tuple[str, ...] = field(default=(), compare=False)
    """Settings of `config` that a managed cluster may refuse to set, those to leave out first before the others."""


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

    def produce(self, records: Iterable[tuple[Any, ...]]) -> int:
        """
        Enqueue records (shaped like `Outgoing`) in this transaction, in order, and return their number.

        If the queue is full, wait.
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
        """The first offset whose timestamp is at or past this time (milliseconds since the epoch); None: there is none.

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


class Sink(Protocol):
    """
    Where the calls of one task write besides Kafka, such as a database; for processors with `effects=True`.

    The lane tells it how a batch goes, so that it can keep the batch's effects in a transaction of its own. All calls
    come on the thread that calls the function, but for `after_commit` and `discard`. A method that raises
    `RetriableError` sends the task back to R1, as a broker that does not answer does.
    """

    def begin_batch(self, sequence: int) -> None:
        """Steps will be called for the attempt of this sequence number."""
        ...

    def begin_step(self) -> None:
        """The function is called next. What it writes belongs to this step until the next one begins."""
        ...

    def undo_step(self) -> None:
        """Take back what the step wrote: it became an error message, or it did not end."""
        ...

    def before_commit(self, sequence: int, records: Iterable[tuple[Any, ...]]) -> None:
        """All steps of the batch have ended, and Kafka's transaction comes next (P5).

        Args:
            sequence: of the attempt.
            records: what the batch will produce, shaped like `Outgoing`.
        """
        ...

    def after_commit(self, sequence: int) -> None:
        """Kafka's transaction is committed."""
        ...

    def discard(self) -> None:
        """The batch is void. May come at any time, twice, on any thread, and while a step still runs."""
        ...


class Awaited(Protocol):
    """
    What a task waits for before each chunk of calls.

    Attributes:
        missed: how often it was not there in time, since the task is in this process.
    """

    missed: int

    def wait(self, given_up: Callable[[], bool]) -> None:
        """
        Wait, on the thread that calls the function, after the messages of the chunk were fetched.

        Args:
            given_up: whether the task is leaving the process; then the wait ends.

        Raises:
            RetriableError: it is not there, and the calls may not begin without it: the task goes back to R1.
        """
        ...


class HeldAttempt(NamedTuple):
    """The newest attempt of a task that its target has committed (E1).

    Attributes:
        base: step number of the record that the attempt was made over.
        step: step number behind it.
        owner: sequence of the first record of the start that made it.
        attempt: the rest of it, as text that the runtime reads.
    """

    base: int
    step: int
    owner: int
    attempt: str


class TransactionalSink(Protocol):
    """
    Where the calls of one task write besides Kafka in a transaction that also keeps the attempt (E1): a database.

    Methods raise `RetriableError` where the target does not answer, or does not hold what the task goes on from: the
    task recovers, asks again, and decides by the answer. All calls come on the thread that calls the function, but for
    `ask` and `outbox`, on the thread that recovers the task, and `discard` and `close`.
    """

    @property
    def value(self) -> Any:
        """What the function is given."""
        ...

    @property
    def ahead(self) -> bool:
        """
        Whether a batch may be called while Kafka's commit of the one before is under way (P7).

        It holds the task's lock, and what calls have locked, until that commit is through; other tasks go on beside.
        """
        ...

    @property
    def alone(self) -> bool:
        """
        Whether the step that is called next is to be the only one of its batch.

        A transaction of several steps has failed as a whole, and nothing but the next try shows which one did it.
        """
        ...

    @property
    def parts(self) -> bool:
        """
        Whether it may commit a batch in several transactions, and Kafka's comes behind the last of them.

        Each of them has the attempt of all steps since Kafka's newest record, and the later ones begin at its step.
        """
        ...

    def ask(self, owner: int, step: int) -> HeldAttempt | None:
        """
        The newest attempt. Waits for one that is being committed, and ends what a former process left open.

        In the same transaction, where it stands at this step, is made over it, or nothing is known of the task and the
        step is 0, it notes the owner: batches of smaller ones are refused from now on.
        """
        ...

    def outbox(self) -> Iterable[tuple[Any, ...]]:
        """The records of the newest attempt, shaped like `Outgoing`."""
        ...

    def newest(self) -> HeldAttempt | None:
        """The newest attempt; nothing is noted."""
        ...

    @property
    def torn(self) -> bool:
        """Whether the target lacks something below what it holds, so that no task goes on before `settle`."""
        ...

    def settle(self, held: HeldAttempt, was: HeldAttempt | None) -> bool:
        """
        Have the target stand where this attempt ends, with an empty outbox, as an operator wants it.

        Args:
            held: the attempt; smaller owners are refused from now on.
            was: what was found before.

        Returns:
            False: it holds something else by now, and nothing was changed.
        """
        ...

    def begin_batch(self, owner: int, step: int) -> None:
        """
        Begin a transaction for steps behind `step`, under the lock of the task.

        Raises:
            RetriableError: the newest attempt ends at another step, another process has the lock or is a later owner.
        """
        ...

    def mark(self) -> None:
        """What is written from now on can be taken back by `back`."""
        ...

    def back(self) -> None:
        """Take back what was written since the last `mark`."""
        ...

    def check(self) -> str:
        """
        Why what was written since the last `mark` cannot be committed, although no exception left the function.

        Raises:
            RetriableError: nothing of the batch can be committed any more.
        """
        ...

    def outage(self, error: BaseException) -> str:
        """Why the batch must be called again, if this exception of the function says so; empty: it is the step's."""
        ...

    def commit(self, held: HeldAttempt, records: Iterable[tuple[Any, ...]]) -> None:
        """Commit the transaction, with the attempt and the records that Kafka gets in it."""
        ...

    def rest(self) -> None:
        """No call is under way: end what `discard` could not end."""
        ...

    def discard(self) -> None:
        """The batch is void. May come at any time, twice, on any thread, and while a step still runs."""
        ...

    def close(self, *, orderly: bool = True) -> None:
        """The task is given up; `orderly=False`: at once, as when the process is killed."""
        ...


class BatchReport(NamedTuple):
    """What an `Observer` hears of a committed batch.

    Attributes:
        deliveries, outputs, errors, messages: counts of this batch, see `core.records.Totals`.
        seconds: from the first call of the function to the commit.
        deaths: of processes on exactly these steps, before.
        notes: `at`, `hash`, `kind`, `error` and `where` of the first steps that became error messages.
        dropped: steps of an earlier batch that were taken and never settled (W4); there may be no others.
    """

    deliveries: int
    outputs: int
    errors: int
    messages: int
    seconds: float
    deaths: int
    notes: Sequence[Mapping[str, Any]]
    dropped: int = 0


class Observer(Protocol):
    """
    Told what tasks commit, fail and recover: once for a batch at most, never for each message.

    Called on the thread where it happens, so a method must neither wait nor raise. `task` is `processor/partition`.
    """

    def committed(self, task: str, batch: BatchReport) -> None:
        """A batch is committed. After a commit of unknown outcome, the task's record has shown it (R4)."""
        ...

    def retried(self, task: str, about: Mapping[str, Any], attempt: int, pause_s: float) -> None:
        """A step raised an exception of `retry=`; the function is called again after a pause."""
        ...

    def failed(self, task: str, why: str, round_: int) -> None:
        """Something failed; the task recovers (R7)."""
        ...

    def stopped(self, task: str, why: str, remedy: str, about: Mapping[str, Any]) -> None:
        """The task stopped; `about` has `at` and `hash` of the message, if it is about one."""
        ...

    def recovered(self, task: str, after_s: float) -> None:
        """The task delivers again; `after_s` is the time since it failed or stopped."""
        ...


class PartFacts(NamedTuple):
    """
    What a `RunObserver` hears of a processor or feed.

    Attributes:
        name, kind: its name in the graph, and pipe, fork and so on.
        about: the first paragraph of its function's docstring; empty: it has none.
        reads: the topics of its inputs, tables and tailers.
        writes: the topics of its outputs and appenders, and its errors topic.
        errors: the errors topic; None: it has none.
    """

    name: str
    kind: str
    about: str
    reads: Sequence[str]
    writes: Sequence[str]
    errors: str | None


class RunFacts(NamedTuple):
    """
    What a `RunObserver` hears of a graph that runs in this process.

    Attributes:
        graph: its name.
        cluster: the address of the first broker, HOST:PORT; empty: the cluster is in memory.
        runtime: where the processors run: native, memory or spark.
        parts: the processors and feeds that run here.
        fields: for each topic whose codec tells them, the names of the values' fields.
    """

    graph: str
    cluster: str
    runtime: str
    parts: Sequence[PartFacts]
    fields: Mapping[str, Sequence[str]]


@runtime_checkable
class RunObserver(Observer, Protocol):
    """An `Observer` that is also notified when a graph starts and stops in this process."""

    def began(self, run: RunFacts) -> None:
        """
        The workers are about to start. May wait.

        Raises:
            ConfigError: the observer cannot observe this run; nothing is started.
        """
        ...

    def ended(self, failures: Mapping[str, str], *, abandoned: bool) -> None:
        """
        The workers have ended. May wait, and must not raise.

        Args:
            failures: by processor, why it did not work when it was stopped.
            abandoned: whether transactions under way were dropped, as after an exception in the program.
        """
        ...


class WireCodec(Protocol):
    """
    Converts the values (or keys) of one topic to bytes and back. Stateless, and shared by threads.

    A codec may have an attribute `id_header`: the name of a header whose value, where a message has it, `decode` gets
    in front of the bytes.
    """

    @property
    def nullable(self) -> bool:
        """Whether None is a value, so that a message without a value (a tombstone) is read as None."""
        ...

    @property
    def shape(self) -> Any:
        """The schema of the values as a `codecs.schema.Shape`, for columns of Spark; None: they have no schema."""
        ...

    def encode(self, value: Any) -> bytes:
        """
        Raises:
            CodecError: the value does not fit.
        """
        ...

    def decode(self, data: bytes) -> Any:
        """
        Raises:
            CodecError: the bytes do not fit.
        """
        ...


class Clock(Protocol):
    """Time, which is virtual in simulations."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start."""
        ...

    def time(self) -> float:
        """Seconds since the epoch."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for this many seconds."""
        ...
