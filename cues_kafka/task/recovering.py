"""What a recovery asks the cluster and a target (R2 to R5), before the core decides how to go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from cues_kafka.core import effects as do
from cues_kafka.core import events as on
from cues_kafka.core.records import Snapshot
from cues_kafka.core.spec import REPLAY, Input
from cues_kafka.core.task import Task
from cues_kafka.errors import BrokerError, CodecError, FatalError, RetriableError
from cues_kafka.observe.log import get_logger
from cues_kafka.ports.broker import Inlet
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.held import published, row_of
from cues_kafka.records.reading import read_record, record_below
from cues_kafka.task.lookups import Lookups
from cues_kafka.task.outbox_places import check_places
from cues_kafka.task.world import Records, World

log = get_logger("cues_kafka.task")

_WAY_OUT = (
    "Run the release that wrote it, if it is newer. Otherwise revoke the other program's right to write there, and "
    "restore the partition from a backup, or run `cues-kafka delete MODULE:GRAPH {}`: the processor then begins at its "
    "start="
)
"""What helps where the newest record of a task cannot be read. The command needs the processor's name."""

AT_ONCE = 16
"""How many backing partitions are read side by side (T2)."""


class Recovering:
    """The effects of an interpreter that only ask."""

    task: Task
    _world: World
    _lookups: Lookups
    _records: Records
    _low: int  # of the backing partition

    def _fetch_offsets(self, _: do.FetchOffsets) -> on.Event:
        spec = self.task.spec
        places = self._places()
        committed = self._lookups.committed(spec.group, list(places.values())) if places else {}
        return on.OffsetsFetched({binding: committed.get(place) for binding, place in places.items()})

    def _fetch_watermark(self, _: do.FetchWatermark) -> on.Event:
        place = TopicPartition(self.task.spec.backing, self.task.spec.partition)
        try:
            marks = self._lookups.watermarks([place])[place]
            self._low = marks.low
            return on.WatermarkFetched(marks.high)
        except BrokerError as error:
            facts = self._lookups.facts([place.topic]).get(place.topic)
            if facts is None or place.partition < facts.partitions:
                raise
            raise FatalError(
                f"{place.topic!r} has {facts.partitions} partitions, none for this task: its input has more. "
                "'cues-kafka plan MODULE:GRAPH --apply' adds the missing ones"
            ) from error

    def _read_newest(self, effect: do.ReadNewest) -> on.Event:
        spec = self.task.spec
        place = TopicPartition(spec.backing, spec.partition)
        found = self._lookups.newest(place, self._low, effect.high, group=spec.group)
        if found is None:
            return on.NewestRead(None)
        try:
            return on.NewestRead(read_record(found))
        except CodecError as error:
            where = f"offset {found.offset()} of {spec.backing}/{spec.partition}"
            return on.NewestRead(
                None, f"{where}: {error}{' ' if str(error).endswith('.') else '. '}{_WAY_OUT.format(spec.processor)}"
            )

    def _fetch_inputs(self, _: do.FetchInputs) -> on.Event:
        spec = self.task.spec
        inlet = None if self._world.inlet is self._world.broker else self._world.inlet
        if not spec.inputs:
            return on.InputsFetched({}, self._world.clock.monotonic())
        replay = (Input(REPLAY, spec.replay),) if spec.replays else ()
        together = inlet is None and not spec.tailers
        found = self._facts_of(inlet, spec.inputs + replay if together else spec.inputs)
        tails = {REPLAY: found.pop(REPLAY)} if REPLAY in found else {}
        if others := () if together else spec.tailers + replay:
            tails = self._facts_of(None, others)
        return on.InputsFetched(found, self._world.clock.monotonic(), tails)

    def _facts_of(self, inlet: Inlet | None, bindings: Sequence[Input]) -> dict[str, on.InputFacts]:
        """Ask about the partition of each binding; those whose topic does not have it are left out."""
        partition, topics = self.task.spec.partition, list(dict.fromkeys(i.topic for i in bindings))
        facts = self._lookups.facts(topics) if inlet is None else inlet.facts(topics).topics
        places = {
            i.binding: TopicPartition(i.topic, partition)
            for i in bindings
            if i.topic in facts and partition < facts[i.topic].partitions
        }
        marks = (inlet or self._lookups).watermarks(list(dict.fromkeys(places.values())))
        return {b: on.InputFacts(facts[place.topic].topic_id, *marks[place]) for b, place in places.items()}

    def _ask_target(self, effect: do.AskTarget) -> on.Event:
        """Its records are made when they are produced: their provenance names the attempt that commits them."""
        asked = self._world.asked
        assert asked is not None
        if isinstance(self.task.record, Snapshot) and not effect.step:
            asked.expect()
        held = asked.ask(effect.owner, effect.step)
        row = None if held is None else row_of(held)
        if row is not None and self.task.record is not None and row.step > self.task.record.step:
            sequence = self.task.next_sequence
            log.warning("target ahead of Kafka", task=self.task.spec.name, steps=row.step - self.task.record.step)
            records = list(asked.outbox())
            check_places(records, self._world.broker)
            self._records = (published(records, sequence),)
        return on.TargetAsked(row)

    def _fetch_sibling(self, _: do.FetchSibling) -> on.Event:
        spec, lookups = self.task.spec, self._lookups
        width = lookups.partitions([spec.backing]).get(spec.backing)
        if width is None:  # the broker that was asked does not know yet a topic that was created just now
            raise RetriableError(f"asking for the partitions of {spec.backing}: the topic is not there")
        others = [TopicPartition(spec.backing, p) for p in range(width) if p != spec.partition]
        marked = lookups.watermarks(others) if others else {}
        for place in others:
            found = lookups.newest(place, marked[place].low, marked[place].stable, group=spec.group)
            if found is not None:
                record = read_record(found)
                return on.SiblingRead(record.born, record.moving_from)
        return on.SiblingRead(None)

    def _fetch_parts(self, effect: do.FetchParts) -> on.Event:
        """Read up to high watermarks: a publication's markers may still be on their way past the last stable offset."""
        broker, spec = self._world.broker, self.task.spec
        places = [TopicPartition(spec.backing, part) for part in range(1, effect.parts)]
        marks = broker.watermarks(places) if places else {}

        def settled(place: TopicPartition) -> bool:
            record = record_below(broker, place, *marks[place][::2], self._world.clock, group=spec.group)
            staged = record.staged if record is not None else None
            return staged is not None and staged.number == effect.number

        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="parts") as pool:
            return on.PartsRead(all(pool.map(settled, places)))

    def _places(self) -> Mapping[str, TopicPartition]:
        spec = self.task.spec
        return {i.binding: TopicPartition(i.topic, spec.partition) for i in spec.inputs}
