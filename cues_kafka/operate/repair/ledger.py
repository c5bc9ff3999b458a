"""What the topics of processors say of their error messages, under the names that they had and have (X1, X5, Y1)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from cues_kafka.core.delivery import ErrorPlace
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import backing_topic, processor_of, replay_topic, tools_group
from cues_kafka.operate.look.former_names import FormerName, arrivals, follow
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.facts import TopicFacts
from cues_kafka.ports.log import TopicPartition, WireMessage
from cues_kafka.records.requests import Wish, refused_key, request_in, settled_in
from cues_kafka.records.scanning import ranges_of, read_all, read_range
from cues_kafka.records.strangers import readable


class ErrorLedger:
    """What the topics of one processor say of its error messages: what is asked for, what is settled."""

    def __init__(self, broker: Broker, group: str, backing: TopicFacts, replay: TopicFacts) -> None:
        self._broker, self._group = broker, group
        self._next: dict[TopicPartition, int] = {}
        self._backing, self._replay = backing, replay
        self.settled: dict[bytes, bytes] = {}
        self.asked: dict[bytes, Wish] = {}

    def read(self) -> None:
        """Read what came since."""
        found: list[tuple[bytes, bytes, Wish]] = []
        for message in self._new(self._replay, passing="a request to replay"):
            request = readable(message, request_in, "a request to replay")
            if request is not None:
                found.append((refused_key(self._replay.topic_id, message), request.error.key, request.wish))
        # Y1: what is settled is read behind the requests. The other way round a request that a task refuses in between
        # would count as asked for, and would not be asked for again.
        self.look()
        for refused, key, wish in found:
            if refused not in self.settled:  # else its task has refused it, so nothing is asked for
                self.asked.setdefault(key, wish)

    def look(self, partitions: Collection[int] | None = None) -> None:
        """Read what is settled since."""
        self.settled.update(settled_in(self._new(self._backing, partitions)))

    def _new(
        self, topic: TopicFacts, partitions: Collection[int] | None = None, *, passing: str | None = None
    ) -> Iterator[WireMessage]:
        # A staged processor may have fewer parts than its input has partitions.
        wanted = None if partitions is None else {partition % topic.partitions for partition in partitions}
        for place, (low, end) in ranges_of(self._broker, topic.name, topic.partitions).items():
            start = max(low, self._next.get(place, 0))
            if start < end and (wanted is None or place.partition in wanted):
                yield from read_range(self._broker, place, start, end, group=self._group, passing=passing)
                self._next[place] = end


class Ledgers:
    """The ledgers of a graph's processors, each read when it is asked for."""

    def __init__(self, graph: Graph, broker: Broker, clock: Clock, facts: Mapping[str, TopicFacts]) -> None:
        self._graph, self._broker, self._clock, self._facts = graph, broker, clock, facts
        self._group = tools_group(graph.name)
        self._ledgers: dict[str, ErrorLedger] = {}
        self._former: dict[str, FormerName] = {}
        self._everywhere: dict[bytes, bytes] | None = None
        self._arrivals: Mapping[str, str] | None = None

    def __getitem__(self, name: str) -> ErrorLedger | None:
        """
        What is known of a processor's error messages; None: it has no topics that say anything.

        A processor of another strategy takes no requests, and what it settled before is settled.
        """
        name = self.now(name)
        own = [self._facts.get(made(self._graph.name, name)) for made in (backing_topic, replay_topic)]
        if name not in self._ledgers and None not in own:
            backing, replay = (one for one in own if one is not None)
            self._ledgers[name] = ErrorLedger(self._broker, self._group, backing, replay)
            self._ledgers[name].read()
        return self._ledgers.get(name)

    def followed(self, name: str) -> FormerName:
        """What became of a processor that the graph does not declare."""
        if name not in self._former:
            self._former[name] = follow(self._graph, self._broker, name, self._clock)
        return self._former[name]

    def now(self, name: str) -> str:
        """The processor whose tasks take requests for error messages of this one."""
        return name if name in self._graph.all_processors else self.followed(name).now or name

    def settled(self, name: str, place: ErrorPlace) -> bytes | None:
        """What settled an error message of a processor, under any name that its tasks have had; None: it is open."""
        declared = name in self._graph.all_processors
        before = {} if declared else self.followed(name).settled
        ledger, now = self[name], self.now(name)
        settled = before.get(place.key) or (ledger.settled.get(place.key) if ledger else None)
        if settled is None and (other := self._arrived.get(name, now)) != now:
            return other_ledger.settled.get(place.key) if (other_ledger := self[other]) else None
        return settled

    def settled_anywhere(self, place: ErrorPlace) -> bool:
        """
        Whether any processor of the graph has settled an error message, also one that is not declared any more.

        A name can come back, by a second `rename` or for another function. Its error messages of before may be settled
        under the name that it had meanwhile.
        """
        if self._everywhere is None:
            self._everywhere = {}
            for topic, width in sorted(self._broker.partitions().items()):
                name = processor_of(self._graph.name, topic)
                if name and topic == backing_topic(self._graph.name, name):
                    self._everywhere.update(settled_in(read_all(self._broker, topic, width, group=self._group)))
        return place.key in self._everywhere

    @property
    def _arrived(self) -> Mapping[str, str]:
        """Former names of processors: one that is declared again has error messages that another has settled."""
        if self._arrivals is None:
            self._arrivals = arrivals(self._graph, self._broker, self._clock)
        return self._arrivals
