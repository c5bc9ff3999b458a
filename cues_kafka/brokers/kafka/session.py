"""A transactional producer for one task: `ports.clients.Session` over `confluent_kafka.Producer`.

Non-obvious:

- Any error ends the session (P8); nothing here retries what librdkafka does not retry itself.
- A commit that succeeded can still be *suspect*. After a time-out or a lost connection librdkafka repeats EndTxn, and
  does not tell. The first request is then still on its way, and with transaction protocol 1 it can end the *next*
  transaction of the same epoch (KAFKA-17754). Any of four witnesses suffices: the call raised; it took as long as a
  request may take; the client logged trouble with the coordinator's connection; its statistics count more EndTxn than
  calls.
- Trouble *between* two commits counts for the next one: librdkafka suppresses identical log lines for 30 s, so a second
  loss during the commit might leave no line. The price is one needless recovery after the coordinator's connection was
  lost.
- Between two transactions another thread polls the client (see `idle`), under a lock that `begin` takes, too.
- `send_offsets_to_transaction` ignores its time-out if the group's coordinator goes away (librdkafka #5456, #5511): it
  may never return, even after the coordinator is back. So it is called on a thread of its own, which is left behind
  with the client when the time is over. That is soon if a broker has left the cluster (see `Departures`).
- Never `Producer.close()` on the dirty path: it aborts and flushes without bound. Dropping the object does not (M14).
"""

from __future__ import annotations

import _thread
import contextlib
import functools
import queue
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka import TopicPartition as ClientPartition

from cues_kafka.brokers.kafka.classify import CLIENT_ERRORS, HOLLOW, catchable, error_of, name
from cues_kafka.brokers.kafka.columns import Counted, plugin_settings
from cues_kafka.brokers.kafka.idle import IDLE
from cues_kafka.brokers.kafka.rights import Right
from cues_kafka.brokers.kafka.watch import LOG, Watch
from cues_kafka.brokers.options import Kafka
from cues_kafka.errors import AbortableError, BrokerError, RetriableError
from cues_kafka.ports.clients import OUTSIDE, FlushReport, GroupMetadata
from cues_kafka.ports.log import TopicPartition

ABANDON_S: Final = 2.0
"""How long an abort may take before the client is dropped anyway (P8)."""

ABORTED_S: Final = 0.5
"""How long a session that is thrown away waits for its abort, which takes milliseconds. If it takes longer, the
coordinator is away. The next session need not wait for the abort: taking the id ends the transaction."""

LOOK_S: Final = 0.5
"""How often a session that waits for a coordinator looks which brokers there are, and how long a look may take."""

GONE_S: Final = 3.0
"""How long after a broker has left the cluster its coordinators and leaders may take to move: 0.3 to 1.5 s in most
traces of docs/faults.md, 3.4 s in one of a machine with ten times the load that it can carry."""

_TOKEN = b"CGMDv2:"


def generation_of(token: bytes) -> int:
    """
    The generation inside `consumer_group_metadata()`; negative before the first assignment.

    The format is undocumented (M8): ``CGMDv2:``, the generation as int32 in native order, the group. A test compares it
    with the installed client.

    Raises:
        AbortableError: another version of the client writes another format.
    """
    if not token.startswith(_TOKEN) or len(token) < len(_TOKEN) + 4:
        raise AbortableError(
            f"this confluent-kafka writes group metadata in an unknown format: {token[:12]!r}; use 2.16"
        )
    return int(struct.unpack_from("=i", token, len(_TOKEN))[0])


def outside_token(group: str) -> bytes:
    """`consumer_group_metadata()` of a client that never joined: generation -1, no member id, no instance (M5)."""
    return _TOKEN + struct.pack("=i", -1) + group.encode() + b"\0\0\1"


class KafkaSession:
    """See `Session`; one thread at a time. Not `transactional`: see `ports.broker.Broker.loose_session`."""

    def __init__(
        self, options: Kafka, transactional_id: str, batch_bytes: int | None = None, *, transactional: bool = True
    ) -> None:
        self._id = transactional_id
        self._transactional = transactional
        self._socket_timeout_s = options.socket_timeout_s
        self._timeout_s = options.transaction_timeout_s
        self._watch = Watch(f"session {transactional_id}", options)
        settings = options.settings("session", client_id=transactional_id, batch_bytes=batch_bytes)
        if transactional:
            settings["transactional.id"] = transactional_id
        self._producer: Producer | None = self._watch.open(Producer, plugin_settings(settings))
        self._reports = _Reports()
        self._counted = Counted(self._producer)
        self._open = False
        # Keeps `serve`, on the thread of `IDLE`, out of the client during a transaction and after the end. The task's
        # thread takes it to set `_producer` to None or `_at_work` to True. `serve` polls under it, so the locks of logs
        # and of tokens come below it.
        self._between = threading.Lock()
        self._at_work = True  # also until the first transaction has ended
        self._departures = Departures()
        self._warm = warm(self._producer, options.socket_timeout_s, self._departures.known)
        IDLE.add(self)

    def init(self, *, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        producer = self._client()
        self._warm.join(timeout_s)
        if not self._transactional:
            return
        left_s = max(0.1, deadline - time.monotonic())
        self._call("taking the transactional id", producer.init_transactions, left_s)

    def begin(self) -> None:
        with self._between:
            self._at_work = True
        self._reports = _Reports()
        self._counted.begin()
        if self._transactional:
            self._call("beginning a transaction", self._client().begin_transaction)
            self._open = True

    def send_offsets(self, offsets: Mapping[TopicPartition, int], group: GroupMetadata) -> None:
        producer = self._client()
        if group.generation < 0 and group.generation != OUTSIDE:
            # A classic group takes a transactional commit without a generation from any client (M5): no fence at all.
            raise AbortableError(
                f"{self._id}: this worker is not a member of group {group.group} (generation {group.generation}); its "
                "offsets would be accepted without a check",
                code="ILLEGAL_GENERATION",
            )
        token = outside_token(group.group) if group.generation == OUTSIDE else group.token
        places = [ClientPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        # As long as a request and its repetition may take. So early in a transaction a new session costs nothing (P8).
        timeout_s = min(self._timeout_s, 1.5 * self._socket_timeout_s)
        doing, began = f"sending offsets to group {group.group}", time.monotonic()
        call = functools.partial(producer.send_offsets_to_transaction, places, token, timeout_s)
        gone = functools.partial(self._departures.gone, producer, next(iter(offsets)).topic, began)
        try:
            problem = _call_bounded(timeout_s, call, gone)
        except queue.Empty:
            raise RetriableError(
                f"{self._id}: {doing}: no answer within {time.monotonic() - began:.1f} s"
                f"{self._departures.because}{self._watch.because}",
                code="_TIMED_OUT",
            ) from None
        if isinstance(problem, CLIENT_ERRORS):
            needs = [Right("Read", "group", group.group), *(Right("Read", "topic", topic) for topic, _ in offsets)]
            failed = self._failed(problem, doing, needs=needs)
            # Records are under way: what they met is the cause, unless they were thrown away because of this failure.
            unwritten = self._unwritten()
            raise (failed if unwritten is None or unwritten.code in HOLLOW else unwritten) from problem
        if problem is not None:
            raise problem
        self._departures.settle()

    def produce(self, records: Iterable[tuple[Any, ...]], *, marked: bool = False) -> int:
        """See `Session.produce`. Records that have `columns()`, and may be indexed, are taken by column."""
        # The first record has a report of its own, and so has a marked one.
        if hasattr(records, "columns") and self._reports.produced and not marked:
            return self._produce_columns(records)
        producer, reports, before = self._client(), self._reports, self._reports.produced
        produce, later, count = producer.produce, reports.report, before
        report = reports.mark() if marked else later if before else reports.first
        try:
            for topic, partition, key, value, headers, timestamp_ms in records:
                where = -1 if partition is None else partition
                try:
                    # positional, for speed: topic, value, key, partition, callback, on_delivery, timestamp, headers
                    produce(topic, value, key, where, report, None, timestamp_ms, headers)
                except BufferError:
                    self._wait_for_room((topic, value, key, where, report, None, timestamp_ms, headers))
                report = later
                count += 1
        except CLIENT_ERRORS as problem:
            # The client may know already that it may not write to the topic of this record.
            raise self._failed(problem, "writing", needs=[Right("Write", "topic", topic)]) from problem
        finally:
            self._reports.produced = count
        return count - before

    def _produce_columns(self, records: Any) -> int:
        reports = self._reports
        sending = self._counted.enqueue(self._client(), records, reports.report, self._wait_for_room)
        try:
            sending.run()
        except CLIENT_ERRORS as problem:
            topic = records[sending.at][0]
            raise self._failed(problem, "writing", needs=[Right("Write", "topic", topic)]) from problem
        finally:
            reports.produced += sending.done
        return sending.done

    def flush(self) -> FlushReport:
        producer, reports = self._client(), self._reports
        left = self._call("writing", producer.flush, self._timeout_s)
        if unwritten := self._unwritten():
            raise unwritten
        delivered = reports.delivered() + self._counted.delivered
        if left or delivered != reports.produced:
            raise AbortableError(
                f"{self._id}: {reports.produced} records were written, {delivered} were acknowledged, {left} are "
                f"waiting after {self._timeout_s:g} s{self._watch.because}",
                code="_MSG_TIMED_OUT",
            )
        self._at_work = self._transactional
        return FlushReport(delivered, reports.first_offset, tuple(reports.marked))

    def _unwritten(self) -> BrokerError | None:
        """Why a record could not be written, by the first report that says so."""
        found = self._reports.error or self._counted.error
        if found is None:
            return None
        error, topic, partition = found
        at = TopicPartition(topic, partition)
        return self._failed(error, f"writing to {topic}/{partition}", at=at, needs=[Right("Write", "topic", topic)])

    def commit(self) -> str | None:
        producer, watch = self._client(), self._watch
        watch.ends += 1  # before the call: statistics that come during it may count its request already
        began = time.monotonic()
        self._call("committing", producer.commit_transaction, self._timeout_s)
        took = time.monotonic() - began
        self._call(
            "committing", producer.poll, 0
        )  # before `suspicions` are read: log lines and statistics come through here
        self._open = self._at_work = False
        if took >= self._socket_timeout_s:
            return f"the commit took {took:.1f} s, socket_timeout_s is {self._socket_timeout_s:g}"
        return watch.suspicions[0] if watch.suspicions else None

    def close(self) -> None:
        self._let_go(abort=False)

    def abandon(self) -> None:
        self._let_go(abort=self._open and self._watch.fatal is None)

    def _let_go(self, *, abort: bool) -> None:
        with self._between:  # from here on `serve` finds no client, and is not in the middle of one
            producer, self._producer = self._producer, None
        if producer is not None:
            IDLE.remove(self)
            _drop(producer, abort=abort)

    def serve(self) -> None:
        """See `IdleClient`. During a transaction the calls of the task do it, which also hear of its records."""
        with self._between:
            if self._producer is None or self._at_work or self._watch.forked:
                return
            try:
                catchable(self._producer.poll, 0)
            except CLIENT_ERRORS as problem:
                LOG.debug("%s: while idle: %s", self._id, problem)

    def _client(self) -> Producer:
        self._watch.same_process()
        if self._producer is None:
            raise AbortableError(f"{self._id}: this session is closed; open another one", code="_STATE")
        return self._producer

    def _call(self, doing: str, function: Callable[..., Any], *args: Any) -> Any:
        try:
            return catchable(function, *args)
        except CLIENT_ERRORS as problem:
            raise self._failed(problem, doing) from problem

    def _wait_for_room(self, record: tuple[Any, ...]) -> None:
        """Enqueue one record (the arguments of the client's call) once delivery reports have made room."""
        producer = self._client()
        deadline = time.monotonic() + self._timeout_s
        while time.monotonic() < deadline:
            catchable(producer.poll, 0.05)
            with contextlib.suppress(BufferError):
                producer.produce(*record)
                return
        raise AbortableError(
            f"{self._id}: the producer's queue stayed full for {self._timeout_s:g} s{self._watch.because}",
            code="_QUEUE_FULL",
        )

    def _failed(
        self,
        problem: Exception | KafkaError,
        doing: str,
        *,
        at: TopicPartition | None = None,
        needs: Sequence[Right] = (),
    ) -> BrokerError:
        """Translate an error with its cause."""
        watch, error = self._watch, error_of(problem)
        if self._producer is not None:
            watch.await_reason(self._producer, error)
        if watch.unwritable and name(error) in (*HOLLOW, *_OF_OTHERS):
            # The records of other topics are thrown away with the transaction that this one could not join.
            error, at = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), None
            doing, needs = "writing", [Right("Write", "topic", topic) for topic in watch.unwritable]
        if self._transactional:
            needs = [*needs, Right("Write", "transactional-id", self._id)]
        return watch.error(error, f"{self._id}: {doing}", at=at, needs=needs)


_OF_OTHERS = ("_INCONSISTENT", "_STATE", "TOPIC_AUTHORIZATION_FAILED")
"""What a call says whose transaction a topic could not join, also of offsets that are sent meanwhile."""


class _Reports:
    """
    Delivery reports of one transaction (P6): `report` is the callback of a record, `first` of its first record, and
    `mark` makes that of a marked record.

    The slots are needed. The client can call back while its exception is pending (see `CLIENT_ERRORS`). Python clears
    a pending exception when it looks up an attribute that the class does not have, and the error would have no name.
    """

    __slots__ = ("delivered", "error", "first", "first_offset", "marked", "produced", "report")

    report: Callable[[KafkaError | None, Message], None]
    first: Callable[[KafkaError | None, Message], None]
    delivered: Callable[[], int]

    def __init__(self) -> None:
        self.produced = 0
        self.first_offset: int | None = None
        self.marked: list[int | None] = []
        self.error: tuple[KafkaError, str, int] | None = None
        count = 0

        def report(error: KafkaError | None, message: Message) -> None:
            nonlocal count
            if error is None:
                count += 1
            elif self.error is None:
                self.error = (error, str(message.topic()), int(message.partition() or 0))

        def first(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.first_offset = message.offset()
            report(error, message)

        self.report, self.first, self.delivered = report, first, lambda: count

    def mark(self) -> Callable[[KafkaError | None, Message], None]:
        """The callback of the next marked record."""
        marked, place = self.marked, len(self.marked)
        base = self.report if self.produced else self.first
        marked.append(None)

        def first_of_call(error: KafkaError | None, message: Message) -> None:
            if error is None:
                marked[place] = message.offset()
            base(error, message)

        return first_of_call


class Departures:
    """
    Brokers that have left the cluster since a producer heard of them.

    librdkafka 2.16 throws its handle of such a broker away. If it was the coordinator of the group, the client goes on
    waiting for that handle, and asks for the new coordinator only when the connection to some other broker changes
    (its issue 5511). Nothing tells that it waits so: but when a broker has been away for `GONE_S`, an answer would be
    there. A new session takes less than a second.

    Attributes:
        known: the brokers that the producer has heard of.
    """

    def __init__(self) -> None:
        self.known: set[int] = set()
        self._left_s: dict[int, float] = {}

    def gone(self, producer: Producer, topic: str, since_s: float) -> bool:
        """Look which brokers there are; whether one has left, `GONE_S` ago, and a call that began then still waits."""
        try:
            found = set(producer.list_topics(topic, timeout=LOOK_S).brokers)
        except CLIENT_ERRORS as problem:
            LOG.debug("looking for brokers: %s", problem)
            return False
        now = time.monotonic()
        for broker in self.known - found:
            self._left_s.setdefault(broker, now)  # also if it comes back: the client waits for its old handle
        self.known |= found
        return bool(self._left_s) and now - max(*self._left_s.values(), since_s) >= GONE_S

    def settle(self) -> None:
        """A coordinator has answered: those that left are forgotten."""
        self.known -= self._left_s.keys()
        self._left_s.clear()

    @property
    def because(self) -> str:
        """Which brokers have left, as the end of a message; empty if none has."""
        left = ", ".join(map(str, sorted(self._left_s)))
        return f"; broker {left} has left the cluster, and the client may wait for it without end" if left else ""


def warm(producer: Producer, timeout_s: float, known: set[int] | None = None) -> threading.Thread:
    """
    Make a producer's first connection in the background; join the thread before the first call that needs one.

    With a connection the client finds its coordinator in 3 ms, without one in 504: it asks at once, then by a timer
    (R1). The question is for all topics: one for a single topic leaves every third client cold (measured). The answer
    adds to the brokers that are `known`.
    """

    def connect() -> None:
        try:
            found = producer.list_topics(timeout=timeout_s)
            if known is not None:
                known.update(found.brokers)
        except CLIENT_ERRORS as problem:
            LOG.debug("warming up failed, the first real call will say why: %s", problem)

    thread = threading.Thread(target=connect, name="cues-kafka-warm", daemon=True)
    thread.start()
    return thread


def _call_bounded(timeout_s: float, call: Callable[[], Any], hopeless: Callable[[], bool]) -> BaseException | None:
    """
    Call the client, and wait at most half a second longer than the call may take; gives what the call raised.

    While the answer is not there, `hopeless` is asked every `LOOK_S` whether it may still come.

    A queue and not a future: a future that raises stays alive in a cycle with the exception, and keeps the client. A
    thread of `_thread`: the start of a `threading.Thread` waits until it runs. That takes two turns of Python's lock,
    each of 5 ms while the function is called.

    Raises:
        queue.Empty: the time is over, or it is hopeless; the thread that waits in the client stays behind.
    """
    deadline = time.monotonic() + timeout_s + 0.5
    outcome: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def run() -> None:
        try:
            catchable(call)
        except BaseException as problem:  # noqa: BLE001 - the waiting thread raises it
            outcome.put(problem)
        else:
            outcome.put(None)

    _thread.start_new_thread(run, ())
    while True:
        left_s = deadline - time.monotonic()
        try:
            return outcome.get(timeout=max(0.0, min(LOOK_S, left_s)))
        except queue.Empty:
            if left_s <= LOOK_S or hopeless():
                raise


def _drop(producer: Producer, *, abort: bool) -> None:
    """
    Let go of a client on a thread of its own, because both the abort and the destruction may wait for sockets.

    The abort frees readers, which wait behind an open transaction. The next `init` ends it anyway, and fences its
    requests that are still on their way.
    """
    box = [producer]
    del producer
    thread = threading.Thread(target=_destroy, args=(box, abort), name="cues-kafka-drop", daemon=True)
    thread.start()
    if abort:
        thread.join(ABORTED_S)


def _destroy(box: list[Producer], abort: bool) -> None:
    if abort:
        try:
            catchable(box[0].abort_transaction, ABANDON_S)
        except Exception as problem:  # noqa: BLE001 - the client is dropped in any case, and the next init decides
            LOG.debug("abort while abandoning: %s", problem)
    box.clear()
