"""Cuts: where all tasks of a graph stood at one moment, with their stores (X4).

`take_cut` lets a running graph come to rest: workers pause what reads from outside, and what is behind it delivers the
rest. Then each message that the graph has written to itself is delivered, so positions and stores say all.

The pause only makes that likely. Whether it happened is seen in the logs. The ends of all backing topics, changelogs
and inputs between processors are asked twice. Where none has moved, and no transaction is open, all of them stood there
together between the two questions. So a cut is right without clocks, and whatever workers do.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from cues_kafka.core.records import Record
from cues_kafka.core.spec import Spec
from cues_kafka.errors import BrokerError, ConfigError, GraphError, RecoveryError, RetriableError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import changelog_topic, check_name, group_id, quoted
from cues_kafka.graph.processor import Processor
from cues_kafka.graph.topology import feeders
from cues_kafka.operate.cut.control import ControlTopic, wanted_by
from cues_kafka.operate.look.newest import NewestRecords
from cues_kafka.operate.look.tasks import TaskReading, place_of
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.facts import Watermarks
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.control import PAUSE, GraphCut, InputCut, Pause, ProcessorCut, StoreCut, encode, key_of
from cues_kafka.records.scanning import holds_messages, unstable
from cues_kafka.state.marks import UNFINISHED
from cues_kafka.task.clock import SystemClock
from cues_kafka.task.making.specs import Identity
from cues_kafka.words import count

LEASE_S: Final = 30.0
"""How long workers pause for a tool of which they hear nothing."""

RENEWALS: Final = 3
"""How often a lease is renewed before it ends."""

LOOK_FIRST_S: Final = 0.02
LOOK_MAX_S: Final = 0.5
"""How long to wait before the graph is looked at again; the pause doubles while nothing changes."""

TELL_S: Final = 2.0
"""How often the same is told again."""

UNMANNED_S: Final = 5.0
"""After this time without progress it is asked whether a worker runs what is waited for."""

SHOWN: Final = 3
"""Tasks that a text names."""


class _Rest(NamedTuple):
    """
    The graph at one look.

    Attributes:
        records: the newest records, by processor and partition.
        marks: of everything that is looked at.
        waiting: inputs between processors with messages that are not delivered, by task.
        open: partitions that an open transaction writes to.
    """

    records: Mapping[tuple[str, int], Record]
    marks: Mapping[TopicPartition, Watermarks]
    waiting: Mapping[tuple[str, int], Sequence[TopicPartition]]
    open: frozenset[TopicPartition]


class Drain:
    """
    Brings a graph to rest and takes a cut.

    Args:
        graph: the graph.
        broker: the cluster.
        who: who takes it, for the records.
        clock: time.
        lease_s: see `Pause`.

    Raises:
        ConfigError: the graph takes no cuts, its topics are not prepared for them, or it was never started.
    """

    def __init__(
        self, graph: Graph, broker: Broker, *, who: str, clock: Clock | None = None, lease_s: float = LEASE_S
    ) -> None:
        self._graph, self._broker, self._who, self._lease_s = graph, broker, who, lease_s
        self._clock = clock or SystemClock()
        reading = TaskReading(graph, broker, self._clock)
        self._control = ControlTopic(graph, broker, reading.facts)
        self._fed = feeders(graph)
        self._group = group_id(graph.name, next(iter(graph.processors)))
        identity = Identity.of_process("tool", who)
        self._tasks = {name: _tasks(reading, one, identity) for name, one in graph.processors.items()}
        self._topic_id = reading.topic_id
        _refuse_unprepared(reading)
        self._token = secrets.token_hex(8)
        self._records = NewestRecords(broker, self._group, self._clock)
        self._delivered: dict[TopicPartition, tuple[int, int, bool]] = {}
        self._paused: tuple[str, ...] = ()
        self._renewed_s = float("-inf")
        self._moving: tuple[str, ...] = ()

    def take(
        self,
        name: str,
        *,
        timeout_s: float = 300.0,
        tell: Callable[[str], None] = lambda _: None,
        ended: threading.Event | None = None,
    ) -> GraphCut:
        """
        Take a cut, and let the workers go on.

        Args:
            name: of the cut; no other cut of the graph has it.
            timeout_s: how long the graph may take to come to rest.
            tell: told what is waited for.
            ended: set it to end the wait; the workers go on.

        Raises:
            ConfigError: the name cannot be used.
            RecoveryError: the graph did not come to rest, `ended` was set, or another tool is at work.
            BrokerError: the cluster refused.
        """
        self._refuse_name(name)
        ended = threading.Event() if ended is None else ended
        began_s = self._clock.monotonic()
        self._records_before()
        try:
            cut = self._at_rest(name, timeout_s, tell, ended)
            self._control.write(key_of(name), encode(cut))
        finally:
            paused = f"; paused for {self._clock.monotonic() - began_s:.1f} s" if self._paused else ""
            self._go_on(tell)
            self._control.close()
        tell(f"workers go on{paused}")
        return cut

    def _refuse_name(self, name: str) -> None:
        try:
            check_name(name, f"cut {name!r}")
        except GraphError as error:
            raise ConfigError(str(error)) from None
        control = self._control.read()
        if name in control.names:
            raise ConfigError(
                f"there is a cut {name!r} already. Give another name, or delete it with `cues-kafka cuts MODULE:GRAPH "
                f"--delete {name}`."
            )
        if holds := [str(hold) for hold in control.holds().values()]:
            raise RecoveryError(f"processors are {holds[0]}. Run `cues-kafka resume MODULE:GRAPH` first.")
        if control.resetting:
            raise RecoveryError(
                f"a reset to {wanted_by(control)} is not complete. Run `cues-kafka reset MODULE:GRAPH --to "
                f"{wanted_by(control)} --yes` to its end first."
            )
        if (found := control.pause()) is not None:
            pause, at_ms = found
            left_s = pause.lease_s - (self._clock.time() - at_ms / 1000)
            if left_s > 0:
                raise RecoveryError(
                    f"{pause.by} takes cut {pause.cut!r} just now. Wait for it; if it died, its pause ends within "
                    f"{left_s:.0f} s."
                )

    def _records_before(self) -> None:
        """Read the newest records before anything is paused, so that the pause is short."""
        self._newest(self._broker.watermarks([place_of(spec) for spec in self._all]))

    @property
    def _all(self) -> Iterator[Spec]:
        """The tasks of all processors."""
        return chain.from_iterable(self._tasks.values())

    def _inner(self, spec: Spec) -> list[str]:
        """The inputs that the graph writes itself."""
        return [one.topic for one in spec.inputs if one.topic in self._fed]

    # Coming to rest

    def _at_rest(self, name: str, timeout_s: float, tell: Callable[[str], None], ended: threading.Event) -> GraphCut:
        deadline, look_s = self._clock.monotonic() + timeout_s, LOOK_FIRST_S
        said = _Said(tell, self._clock)
        why = "the cluster did not answer"
        before: _Rest | None = None
        while True:
            if ended.is_set():
                raise RecoveryError("interrupted: the cut was not taken, and the workers go on")
            try:
                rest = self._look()
                self._pause(name, rest)
                if before is not None and self._is_still(before, rest):
                    return self._cut(name, rest)
                why, before = self._why(before, rest), rest
                self._refuse_unmanned(said, rest)
            except RetriableError as error:
                why, before = f"the cluster does not answer: {error}", None
            if self._clock.monotonic() >= deadline:
                raise RecoveryError(
                    f"the graph did not come to rest in {timeout_s:g} s: {why}. If a task has stopped, its "
                    "worker's log says why, and what helps"
                )
            look_s = LOOK_FIRST_S if said.say(why) else min(look_s * 2, LOOK_MAX_S)
            ended.wait(look_s)

    def _look(self) -> _Rest:
        """Ask for all ends, and for the records below them."""
        marks = self._broker.watermarks(self._places())
        found = self._newest({place_of(spec): marks[place_of(spec)] for spec in self._all})
        records = {}
        for spec in self._all:
            name, record = f"{spec.processor}/{spec.partition}", found[place_of(spec)]
            if record is None:
                raise RecoveryError(
                    f"{name} has no record yet, so it has no position. Start the graph once with all of its processors."
                )
            if UNFINISHED in dict(record.stores):
                raise RecoveryError(
                    f"the stores of {name} are being rebuilt. Run `cues-kafka rebuild MODULE:GRAPH {spec.processor}` "
                    "to its end first."
                )
            records[spec.processor, spec.partition] = record
        waiting = {
            (spec.processor, spec.partition): there
            for spec in self._all
            if (there := list(self._undelivered(spec, records[spec.processor, spec.partition], marks)))
        }
        return _Rest(records, marks, waiting, frozenset(unstable(marks)))

    def _places(self) -> list[TopicPartition]:
        """What must not move: records, changelogs, and inputs between processors."""
        return [
            TopicPartition(topic, spec.partition)
            for spec in self._all
            for topic in (spec.backing, *dict(spec.stores).values(), *self._inner(spec))
        ]

    def _newest(self, marks: Mapping[TopicPartition, Watermarks]) -> dict[TopicPartition, Record | None]:
        """The newest committed record of each task; only what has moved is read again."""
        found = self._records.look(marks)
        for place, one in found.items():
            if one.why:
                raise RecoveryError(f"the newest record of {place.topic}/{place.partition} cannot be read: {one.why}")
        return {place: one.record for place, one in found.items()}

    def _undelivered(
        self, spec: Spec, record: Record, marks: Mapping[TopicPartition, Watermarks]
    ) -> Iterator[TopicPartition]:
        """Inputs of a task that the graph writes, with messages behind its position."""
        for position in record.positions:
            place = TopicPartition(position.topic, spec.partition)
            if position.topic in self._inner(spec) and self._holds(place, position.offset, marks[place].stable):
                yield place

    def _holds(self, place: TopicPartition, start: int, end: int) -> bool:
        if start >= end:
            return False
        known = self._delivered.get(place)
        if known is None or known[:2] != (start, end):
            holds = holds_messages(self._broker, place, start, end, group=self._group)
            self._delivered[place] = known = (start, end, holds)
        return known[2]

    def _pause(self, cut: str, rest: _Rest) -> None:
        """Pause what all messages have passed; renew the lease."""
        busy = {name for name, _ in rest.waiting}
        paused: list[str] = []
        waiting = list(self._tasks)
        while ready := [name for name in waiting if name not in busy and self._feeders(name) <= {*paused}]:
            paused += ready
            waiting = [name for name in waiting if name not in ready]
        names, now = tuple(sorted(paused)), self._clock.monotonic()
        if names == self._paused and now - self._renewed_s < self._lease_s / RENEWALS:
            return
        pause = Pause(by=self._who, token=self._token, cut=cut, processors=names, lease_s=self._lease_s)
        self._paused = names  # taken back in the end also if the write fails, because it may be there all the same
        self._control.write(PAUSE, encode(pause))
        self._renewed_s = now

    def _feeders(self, name: str) -> frozenset[str]:
        return frozenset(feeder for topic in self._inner(self._tasks[name][0]) for feeder in self._fed[topic])

    def _is_still(self, before: _Rest, now: _Rest) -> bool:
        """Whether everything stood still and was delivered between two looks; the group's offsets must say the same."""
        self._moving = tuple(
            f"{name}/{p}" for (name, p), record in now.records.items() if before.records.get((name, p)) != record
        )
        highs = [{place: one.high for place, one in rest.marks.items()} for rest in (before, now)]
        if now.open or before.open or now.waiting or before.waiting or self._moving or highs[0] != highs[1]:
            return False
        for name, specs in self._tasks.items():
            said = {
                TopicPartition(position.topic, spec.partition): position.offset
                for spec in specs
                for position in now.records[name, spec.partition].positions
            }
            committed = self._broker.committed(specs[0].group, list(said))
            if any(offset not in (None, said[place]) for place, offset in committed.items()):
                return False  # a former leader gave an old end of the log
        return True

    def _why(self, before: _Rest | None, rest: _Rest) -> str:
        """What is waited for, in words."""
        if rest.waiting:
            tasks = [
                f"{name}/{p} has messages to deliver on {quoted(place.topic for place in places)}"
                f"{self._partner(name, places)}"
                for (name, p), places in sorted(rest.waiting.items())
            ]
            return _some(tasks)
        if rest.open:
            return "transactions are open on " + _some(
                [f"{place.topic}/{place.partition}" for place in sorted(rest.open)]
            )
        if self._moving:
            return (
                f"{_some(self._moving)} still {'commits' if len(self._moving) == 1 else 'commit'}. If that goes on, "
                f"their workers do not follow {self._control.topic!r}: restart them with this graph; their logs say "
                "whether they may read it"
            )
        return "the ends of its topics are compared"

    def _partner(self, name: str, places: Sequence[TopicPartition]) -> str:
        one = self._graph.processors[name]
        lacking = one.input_shape == "join" and len(places) < len(one.input_topics)
        return ", which have no partner in the join: send the messages that are missing" if lacking else ""

    def _refuse_unmanned(self, said: _Said, rest: _Rest) -> None:
        """Refuse to wait for tasks that no worker runs."""
        if said.since_s < UNMANNED_S:
            return
        for name in dict.fromkeys(name for name, _ in rest.waiting):
            if not self._broker.members(self._tasks[name][0].group):
                raise RecoveryError(
                    f"{self._why(None, rest)}, and no worker runs {name!r}. Start its workers; `cues-kafka run "
                    "MODULE:GRAPH` runs all processors."
                )

    def _go_on(self, tell: Callable[[str], None]) -> None:
        """Take the pause back."""
        if not self._paused:
            return
        try:
            self._control.write(PAUSE, None)
        except BrokerError as error:
            tell(f"the pause could not be taken back ({error}); workers go on by themselves within {self._lease_s:g} s")

    def _cut(self, name: str, rest: _Rest) -> GraphCut:
        keeps_ms = self._graph.cuts_ms
        assert keeps_ms is not None
        parts = {one: self._part_of(one, specs, rest) for one, specs in self._tasks.items()}
        return GraphCut(name=name, graph=self._graph.name, by=self._who, keeps_ms=keeps_ms, processors=parts)

    def _part_of(self, name: str, specs: Sequence[Spec], rest: _Rest) -> ProcessorCut:
        records = [rest.records[name, spec.partition] for spec in specs]
        inputs, stores = {}, {}
        for binding, topic in specs[0].inputs:
            found = [next((at for at in one.positions if at[:2] == (binding, topic)), None) for one in records]
            topic_id = self._topic_id(topic)
            offsets = tuple(at.offset for at in found if at is not None and at.topic_id == topic_id)
            if len(offsets) < len(specs):
                raise RecoveryError(
                    f"the records of {name!r} have no position of {topic!r} as it is now: the declaration of its "
                    "inputs changed, or the topic was recreated. See why its tasks stop, and take the cut then."
                )
            inputs[binding] = InputCut(topic=topic, topic_id=topic_id.hex(), offsets=offsets)
        for store, topic in specs[0].stores:
            marks = [rest.marks[TopicPartition(topic, spec.partition)] for spec in specs]
            stores[store] = StoreCut(
                topic=topic,
                topic_id=self._topic_id(topic).hex(),
                starts=tuple(one.low for one in marks),
                ends=tuple(one.high for one in marks),
                marks=tuple(dict(record.stores).get(store) for record in records),
            )
        return ProcessorCut(steps=tuple(record.step for record in records), inputs=inputs, stores=stores)


class _Said:
    """Tells what is waited for, when it changes and from time to time."""

    def __init__(self, tell: Callable[[str], None], clock: Clock) -> None:
        self._tell, self._clock = tell, clock
        self._text, self._at_s, self._since_s = "", float("-inf"), clock.monotonic()

    @property
    def since_s(self) -> float:
        """For how long the same is waited for."""
        return self._clock.monotonic() - self._since_s

    def say(self, text: str) -> bool:
        """Tell a text; whether it is another one than before."""
        now, changed = self._clock.monotonic(), text != self._text
        if changed:
            self._text, self._since_s = text, now
        if now - self._at_s >= TELL_S:
            self._at_s = now
            self._tell(f"waiting: {text}")
        return changed


def _tasks(reading: TaskReading, one: Processor, identity: Identity) -> tuple[Spec, ...]:
    """The tasks of a processor, which has run before."""
    first = reading.specs(one.name, identity, 1)(0)
    needed = (first.backing, *one.input_topics, *dict(first.stores).values())
    if missing := [topic for topic in needed if not reading.width(topic)]:
        raise ConfigError(
            f"topics {quoted(missing)} do not exist: {one.name!r} was never started on this cluster, or they are gone. "
            "Start the graph once with all of its processors."
        )
    width = reading.width(first.backing)
    if wider := [topic for topic in one.input_topics if reading.width(topic) != width]:
        raise ConfigError(
            f"{quoted(wider)} has more partitions than {one.name!r} has tasks ({width}). Run `cues-kafka plan "
            "MODULE:GRAPH --apply`, and take the cut when the new tasks run."
        )
    return tuple(map(reading.specs(one.name, identity, width), range(width)))


def _refuse_unprepared(reading: TaskReading) -> None:
    """Refuse if compaction may take from a changelog what a cut needs."""
    graph = reading.graph
    changelogs = {changelog_topic(graph.name, p.name, store) for p in graph.processors.values() for store in p.state}
    if hidden := sorted(changelogs.intersection(reading.facts.unchecked)):
        raise ConfigError(
            f"the settings of {quoted(hidden)} may not be read, so it is not known how long a cut holds. Grant this "
            "user DescribeConfigs on them; `cues-kafka plan MODULE:GRAPH --acls` prints the command."
        )
    if altered := reading.plan.alter:
        shown = ", ".join(f"{one.topic} has {one.name}={one.was}, and {one.wanted} is needed" for one in altered)
        raise ConfigError(
            f"compaction would take what a cut needs: {shown}. Run `cues-kafka plan MODULE:GRAPH --apply`."
        )


def _some(texts: Sequence[str]) -> str:
    more = f", and {count(len(texts) - SHOWN, 'more task')}" if len(texts) > SHOWN else ""
    return ", ".join(texts[:SHOWN]) + more
