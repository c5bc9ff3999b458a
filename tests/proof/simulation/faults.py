"""The swarm: what goes wrong, when, and on whose way to the cluster.

Every fault has a number. `Options.most` and `Options.skipped` leave single ones out, and all that was decided before
stays as it was: that is how a failure is shrunk.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from cues_kafka.brokers.memory import Faults, MemoryBroker, MemoryReader, MemorySession
from cues_kafka.brokers.memory.clients import MemoryLooseSession
from cues_kafka.brokers.memory.cluster import Cluster
from cues_kafka.brokers.memory.group_coordinator import GroupCoordinator
from cues_kafka.brokers.memory.log import MemoryMessage
from cues_kafka.brokers.memory.topics import Topics
from cues_kafka.brokers.memory.transaction_coordinator import TransactionCoordinator
from cues_kafka.brokers.memory.transactions import Transaction, TransactionalId
from cues_kafka.errors import AbortableError, BrokerError, RetriableError
from cues_kafka.ports.clients import GroupMetadata
from cues_kafka.ports.facts import Watermarks
from cues_kafka.ports.log import Fetched, TopicPartition
from tests.proof.simulation.options import Options

if TYPE_CHECKING:
    from tests.proof.simulation.run import Simulation

Late = Callable[[], None]


class Swarm(Faults):
    """
    Decides about faults; stands between all clients and the cluster.

    Attributes:
        on: whether anything goes wrong at present.
        done: the faults that happened, for people.
        late: requests on their way.
    """

    def __init__(self, options: Options) -> None:
        self.on = False
        self.done: list[str] = []
        self.late: list[Late] = []
        self.random = random.Random(f"schedule {options.seed} {options.schedule}")  # no secret
        self._options = options
        self._number = 0

    def happens(self, kind: str, where: str, *, times: float = 1.0) -> bool:
        """Whether a fault of this kind happens now; `times` makes rare moments count for more."""
        if not self.on or self.random.random() * 1000 >= getattr(self._options, kind) * times:
            return False
        self._number += 1
        number, most = self._number, self._options.most
        if number in self._options.skipped or (most is not None and len(self.done) >= most):
            return False
        self.done.append(f"{number}: {kind} {where}")
        return True

    @property
    def count(self) -> int:
        """The number of the last fault, those that were left out included."""
        return self._number

    def numbers(self) -> list[int]:
        """Of the faults that happened."""
        return [int(text.partition(":")[0]) for text in self.done]

    def before(self, operation: str, client: str) -> None:
        """A request may be refused or cut off; those of the sender, which stands outside, are not."""
        if operation != "send" and self.happens("refuse", f"{operation} {client}"):
            kind = self.random.choice((RetriableError, AbortableError))
            raise kind(f"{operation}: refused on the way", code="_TRANSPORT")

    def after(self, operation: str, client: str) -> str | None:
        """A reply may be lost."""
        if operation != "send" and self.happens("lose", f"{operation} {client}"):
            raise RetriableError(f"{operation}: the reply is lost", code="_TIMED_OUT")
        return None

    def arrive(self) -> None:
        """One late request arrives."""
        if self.late:
            self.late.pop(self.random.randrange(len(self.late)))()

    def heal(self) -> None:
        """Nothing goes wrong any more; what is on its way arrives."""
        self.on = False
        while self.late:
            self.arrive()


class SimulatedSession(MemorySession):
    """
    A session whose commits and produce requests may be late, and whose commits may be repeated by the client.

    A repeated EndTxn is on its way after the commit has succeeded, and ends the next transaction of the same epoch if
    it finds one (KAFKA-17754).
    """

    _cluster: SimulatedCluster
    _faults: Swarm

    @property
    def swarm(self) -> Swarm:
        """Decides."""
        return self._faults

    def commit(self) -> str | None:
        """Commit, perhaps later."""
        if not self._written or self._undelivered is not None:
            return super().commit()
        if self.swarm.happens("late", f"commit {self._id}", times=2):
            self.swarm.late.append(self._end_again)
            raise self._failed(RetriableError("commit: no answer", code="_TIMED_OUT"))
        suspect = super().commit()
        if suspect is None and self.swarm.happens("suspect", f"commit {self._id}"):
            self.swarm.late.append(self._end_again)
            return "the coordinator did not answer the first request"
        return suspect

    def _end_again(self) -> None:
        try:
            self._cluster.transactions.end(self._id, self._epoch, commit=True)
        except BrokerError:
            return  # fenced, or nothing is open: as a coordinator answers

    def produce(self, records: Any, *, marked: bool = False) -> int:
        """Append, perhaps later: the client gives up, and the broker verifies that the transaction is still open."""
        batch = list(records)
        if batch and self._undelivered is None and self.swarm.happens("late", f"produce {self._id}"):
            self.swarm.late.append(lambda: self._append_late(batch))
            self._undelivered = RetriableError("produce: no answer", code="_MSG_TIMED_OUT")
            self._written = True
            return len(batch)
        return super().produce(batch, marked=marked)

    def _append_late(self, batch: list[Any]) -> None:
        try:
            self._cluster.transactions.append_late(self._id, self._epoch, batch)
        except BrokerError:
            return


class SimulatedLooseSession(MemoryLooseSession):
    """A session without a transaction, whose produce requests may be late: nothing refuses them then (W5)."""

    _faults: Swarm

    @property
    def swarm(self) -> Swarm:
        """Decides."""
        return self._faults

    def produce(self, records: Any, *, marked: bool = False) -> int:
        """Append, perhaps later: the client gives up, and the broker takes them all the same."""
        batch = list(records)
        late = batch and not self._closed and self._undelivered is None
        if late and self.swarm.happens("late", f"produce {self._name}", times=2):
            self.swarm.late.append(lambda: self._append_late(batch))
            self._undelivered = RetriableError("produce: no answer", code="_MSG_TIMED_OUT")
            return len(batch)
        return super().produce(batch, marked=marked)

    def _append_late(self, batch: list[Any]) -> None:
        self._cluster.send(batch)


class SimulatedTopics(Topics):
    """
    Topics that note the order in which records come.

    Attributes:
        arrivals: the place of each record in that order, by topic, partition and offset; None: it is not written down.
    """

    arrivals: dict[tuple[str, int, int], int] | None = None

    def append(
        self, records: Iterable[tuple[Any, ...]], transaction: Transaction | None, seconds: float
    ) -> list[MemoryMessage]:
        appended = super().append(records, transaction, seconds)
        if self.arrivals is not None:
            for m in appended:
                self.arrivals[m.topic(), m.partition(), m.offset()] = len(self.arrivals)
        return appended


class SimulatedGroups(GroupCoordinator):
    """
    Groups that may refuse a commit, or take it and answer with an error.

    Attributes:
        commits: how many records had come, group and offsets, of each commit by a member without a transaction.
        swarm: decides.
    """

    commits: list[tuple[int, str, Mapping[TopicPartition, int]]]
    swarm: Swarm
    _topics: SimulatedTopics

    def commit(self, offsets: Mapping[TopicPartition, int], metadata: GroupMetadata) -> str:
        """Of a member, without a transaction; refused on the way, or answered with an error after all."""
        if self.swarm.happens("refuse", f"member {metadata.group}"):
            return "refused on the way"
        why = super().commit(offsets, metadata)
        if not why:
            self.commits.append((len(self._topics.arrivals or ()), metadata.group, dict(offsets)))
        if self.swarm.happens("lose", f"member {metadata.group}"):
            return "the reply is lost"
        return why


class SimulatedTransactions(TransactionCoordinator):
    """
    Transactions that take late requests.

    Attributes:
        timeouts: whether they end by time. Healed, they do not: no task may need it (I5).
    """

    timeouts = True

    def _time_out(self, state: TransactionalId) -> None:
        if self.timeouts:
            super()._time_out(state)
        elif state.open is not None:
            state.open.deadline = float("inf")

    def append_late(self, name: str, epoch: int, records: list[Any]) -> None:
        """A late produce request; KIP-890 refuses it where its transaction is over."""
        with self._monitor.changed:
            state = self._owned(name, epoch)
            if state.open is not None:
                self._topics.append(records, state.open, self._monitor.clock.time())


class SimulatedCluster(Cluster):
    """
    A cluster whose answers may be old.

    Attributes:
        stale_topics: whose watermarks may be those of a while ago.
        swarm: decides.
    """

    swarm: Swarm
    stale_topics: Collection[str] = ()
    topics_type = SimulatedTopics
    groups_type = SimulatedGroups
    transactions_type = SimulatedTransactions
    topics: SimulatedTopics
    groups: SimulatedGroups
    transactions: SimulatedTransactions

    def watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        """Low, last stable and high offset; of a backing partition perhaps those of a while ago."""
        now = super().watermarks(partitions)
        return {place: self._aged(place, marks) for place, marks in now.items()}

    def _aged(self, place: TopicPartition, marks: Watermarks) -> Watermarks:
        if place.topic not in self.stale_topics or not self.swarm.happens("stale", f"watermarks {place}"):
            return marks
        high = self.swarm.random.randint(max(marks.low, marks.high - 6), marks.high)
        return Watermarks(marks.low, min(marks.stable, high), high)


class SimulatedReader(MemoryReader):
    """A reader that lets time pass where it waits; what others do meanwhile may be what it waits for."""

    _cluster: SimulatedBroker

    @property
    def simulation(self) -> Simulation:
        """Whose reader it is."""
        return self._cluster.simulation

    def poll(self, timeout_s: float, max_messages: int = 10_000) -> list[Fetched]:
        """What is there; sometimes less, as fetches have limits, or nothing but an error of one partition, or all."""
        swarm = self.simulation.swarm
        places = sorted(self._cursors)
        if places and swarm.happens("refuse", f"poll {places[0].topic}", times=0.1):
            at = swarm.random.choice((None, *places))
            raise RetriableError(f"reading {at}: refused on the way", code="_TRANSPORT", at=at)
        room = swarm.random.choice((1, 3, 20)) if swarm.on and swarm.random.random() < 0.5 else max_messages
        fetched = super().poll(0.0, room)
        if not fetched and timeout_s > 0:
            self.simulation.elapse(timeout_s)
        return fetched


class SimulatedBroker(MemoryBroker, SimulatedCluster):
    """
    All of this.

    Attributes:
        simulation: whose cluster it is.
    """

    session_type = SimulatedSession
    reader_type = SimulatedReader
    simulation: Simulation

    def loose_session(self, name: str, *, batch_bytes: int | None = None) -> SimulatedLooseSession:
        """One whose requests may be late."""
        return SimulatedLooseSession(self, name, self.swarm)


def broker_for(simulation: Simulation, options: Options) -> SimulatedBroker:
    """
    A broker with all of this in it.

    Its classes are those of every run: in a class of its own, Python would look up each attribute again.
    """
    swarm = simulation.swarm
    broker = SimulatedBroker(simulation.clock, seed=options.seed, cooperative=options.cooperative, faults=swarm)
    broker.simulation, broker.swarm = simulation, swarm
    broker.topics.arrivals = {} if options.mixed else None
    broker.groups.commits, broker.groups.swarm = [], swarm
    return broker
