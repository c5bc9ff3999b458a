"""Lists the error messages of a graph, and asks its tasks to replay them or to drop them (X1, Y1, Y2).

A request is a message on the replay topic of the processor, in the partition of the task that left the error message.
What is settled stands in the backing topic of the processor. So the tool needs no lock and no state of its own: it can
be cut short and run again, and two of them may run at once, because a task settles each error message once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Self

from cues_kafka.arguments import known_call
from cues_kafka.brokers.open import open_broker
from cues_kafka.brokers.options import Kafka, Memory
from cues_kafka.errors import ConfigError, RecoveryError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import replay_topic
from cues_kafka.operate.repair.filed import ALL, Causes, FailureCause, FiledError, Requested, Selection, count_cause
from cues_kafka.operate.repair.find import ErrorFinder, Progress
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import Sender
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.requests import ReplayRequest, Wish, encode_request, kept_payload, what_settled
from cues_kafka.running.given import check_graph
from cues_kafka.task.clock import SystemClock

CHUNK: Final = 500
"""Requests that are sent together."""

LOOK_S: Final = 0.25
"""How often a wait looks whether tasks have settled more."""


class Repairs:
    """
    Lists error messages of a graph, and has them replayed or dropped. Use it as a context manager, or close it.

    Args:
        graph: the graph.
        broker: where it runs.
        owned: whether to close the broker too.
        clock: time.

    Raises:
        ConfigError: the graph has no errors topic, or it does not exist.
        BrokerError: the cluster does not answer.
    """

    def __init__(self, graph: Graph, broker: Broker, *, owned: bool = False, clock: Clock | None = None) -> None:
        self._graph, self._broker, self._owned = graph, broker, owned
        self._clock = clock or SystemClock()
        self._finder = ErrorFinder(graph, broker, self._clock)
        self._sender: Sender | None = None

    @property
    def foreign(self) -> int:
        """How many messages of other graphs the last `find` has seen."""
        return self._finder.foreign

    @property
    def unreadable(self) -> int:
        """How many messages the last `find` could not read."""
        return self._finder.unreadable

    @property
    def ends(self) -> Mapping[TopicPartition, int]:
        """Behind what the last `find` or `ask` has read, by partition: error messages from there on came later."""
        return self._finder.ends

    # Reading

    def find(self, wanted: Selection = ALL, *, progress: Progress | None = None) -> Iterator[FiledError]:
        """
        Read error messages, those that are settled too, topic by topic and partition by partition.

        Messages of other graphs are counted in `foreign`, and those that cannot be read in `unreadable`.

        Args:
            wanted: which of them.
            progress: told how far the reading is.

        Raises:
            ConfigError: the graph has no such processor, or there is no such kind.
            BrokerError: something cannot be read.
        """
        return self._finder.find(wanted, progress)

    def causes(
        self,
        wanted: Selection = ALL,
        *,
        settled: bool = False,
        progress: Progress | None = None,
        seen: Callable[[FiledError], None] | None = None,
    ) -> tuple[FailureCause, ...]:
        """
        Count error messages by cause, the largest number first.

        Args:
            wanted: which of them.
            settled: whether to count those that are settled too.
            progress: told how far the reading is.
            seen: told of each one that is counted.

        Raises:
            ConfigError, BrokerError: see `find`.
        """
        found: Causes = {}
        for one in self.find(wanted, progress=progress):
            if settled or one.settled is None:
                count_cause(found, one)
                if seen is not None:
                    seen(one)
        return tuple(sorted(found.values(), key=lambda cause: (-cause.count, cause.processor, cause.exception)))

    def show(self, topic: str, partition: int, offset: int) -> FiledError:
        """
        Read one error message.

        Raises:
            ConfigError: there is no such error message of this graph.
            BrokerError: it cannot be read.
        """
        found = self._finder.read(topic, partition, offset)
        self._finder.look()
        return self._finder.file(*found)

    # Asking

    def ask(
        self,
        wish: Wish,
        wanted: Selection = ALL,
        *,
        limit: int | None = None,
        dry: bool = False,
        progress: Progress | None = None,
        below: Mapping[TopicPartition, int] | None = None,
    ) -> Requested:
        """
        Ask tasks to replay error messages, or to drop them. What is settled, or was asked for before, stays as it is.

        Args:
            wish: `replay` or `drop`.
            wanted: which of them.
            limit: how many to ask for at most, in the order of the errors topics; None: all.
            dry: write nothing, and say what would be asked for.
            progress: told how far the reading is.
            below: only those before these offsets, and in these partitions, such as the `ends` of a dry run; None: all.

        Raises:
            ConfigError: see `find`; what is asked for by name cannot be done, with the reason and the remedy; or an
                argument is not what it takes.
            BrokerError: something cannot be read, or a request was not acknowledged. Ask again: nothing is asked twice.
        """
        self._finder.check(wanted)
        _check_wish(wish, limit)
        if wanted.processor is not None and (why := self._finder.never(wanted.processor)):
            raise ConfigError(why)
        for place in sorted(wanted.places):
            self._finder.read(*place)
        result, due = Requested(wish), list[FiledError]()
        for one in self._finder.find(wanted, progress, below):
            why = one.obstacle if wish == "replay" or not one.droppable else ""
            if one.settled is not None:
                result.settled += 1
            elif one.asked is not None:
                result.before += 1
                _await(result, one)
            elif why:
                result.refused[why] += 1
                result.examples.setdefault(why, str(one))
            elif self._finder.ledgers.settled_anywhere(one.place):
                result.settled += 1
            else:
                due.append(one)
                count_cause(result.causes, one)
                _await(result, one)
            if len(due) >= CHUNK and not dry:
                self._send(wish, due)
                due = []
            if limit is not None and result.asked >= limit:
                break
        if wanted.places and result.refused:
            [(why, _)] = result.refused.most_common(1)
            raise ConfigError(f"{result.examples[why]} cannot be {PAST[wish]}: {why}")
        if due and not dry:
            self._send(wish, due)
        return result

    def wait(
        self,
        requested: Requested,
        *,
        timeout_s: float = 60.0,
        ended: threading.Event | None = None,
        progress: Progress | None = None,
    ) -> bool:
        """
        Wait until tasks have settled what was asked for.

        Args:
            requested: what `ask` gave. Its `outcomes` and `open` say what became of it.
            timeout_s: how long to wait.
            ended: set it to end the wait.
            progress: told how many are settled, and how many were asked for.

        Returns:
            Whether all of it is settled.

        Raises:
            RecoveryError: a task of these takes no requests any longer.
            BrokerError: the cluster does not answer.
        """
        ended = threading.Event() if ended is None else ended
        deadline, total = self._clock.monotonic() + timeout_s, len(requested.open)
        while True:
            for task, places in requested.waiting.items():
                if not places:
                    continue
                name, _, partition = task.rpartition("/")
                ledger = self._finder.ledgers[name]
                if ledger is None:
                    never = self._finder.never(name)
                    raise RecoveryError(
                        f"{task} takes no requests now: {never or 'it has no replay topic'}. `cues-kafka errors list` "
                        "shows what is still open"
                    )
                ledger.look({int(partition)})
                for key in [key for key in places if key in ledger.settled]:
                    del places[key]
                    requested.outcomes[what_settled(ledger.settled[key]).outcome] += 1
            left = len(requested.open)
            if progress is not None:
                progress(total - left, total)
            if not left or self._clock.monotonic() >= deadline or ended.wait(LOOK_S):
                return not left

    def close(self) -> None:
        """Release the clients."""
        if self._sender is not None:
            self._sender.close()
            self._sender = None
        if self._owned:
            self._broker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Within

    def _send(self, wish: Wish, errors: Sequence[FiledError]) -> None:
        if self._sender is None:
            self._sender = self._broker.sender(f"{self._graph.name}.tools")
        self._sender.send([_request(wish, one) for one in errors])


PAST: Final[Mapping[Wish, str]] = {"replay": "replayed", "drop": "dropped"}


@known_call(ConfigError)
def repairs(cluster: Kafka | Memory, graph: Graph) -> Repairs:
    """
    Open what lists the error messages of a graph, and has them replayed or dropped. Close it, or use it in a `with`.

    Args:
        cluster: `Kafka(...)` or `Memory(...)`.
        graph: the graph.

    Raises:
        ConfigError: an argument is not what it takes, the graph has no errors topic, or it does not exist.
        BrokerError: the cluster does not answer.
    """
    check_graph("repairs", graph)
    broker = open_broker(cluster)
    try:
        return Repairs(graph, broker, owned=True)
    except BaseException:
        broker.close()
        raise


def _check_wish(wish: Wish, limit: int | None) -> None:
    if wish not in PAST:
        raise ConfigError(f"ask({wish!r:.80}): takes 'replay' or 'drop'.")
    if limit is not None and not (isinstance(limit, int) and limit >= 1):
        raise ConfigError(f"limit={limit!r:.80}: takes a number from 1 on; None asks for all.")


def _await(result: Requested, one: FiledError) -> None:
    result.waiting.setdefault(_task_of(one), {})[one.place.key] = str(one)


def _task_of(one: FiledError) -> str:
    """The task that takes a request for it."""
    return f"{one.asked_of}/{one.message.task.rpartition('/')[2]}"


def _request(wish: Wish, one: FiledError) -> tuple[Any, ...]:
    """The message that asks for one."""
    error = one.message
    request = ReplayRequest(
        error=one.place,
        errors=one.topic,
        wish=wish,
        number=one.number,
        consumed=error.consumed,
        topics=error.topics,
        payload=kept_payload(error),
        key=None if kept_payload(error) is None else error.key,
    )
    name, _, partition = _task_of(one).rpartition("/")
    return replay_topic(error.graph, name), int(partition), str(one.place).encode(), encode_request(request), None, 0
