"""Slots of joins and alts: a range of each input, what has no partner yet, and the choice of alts (D1 to D5, S2)."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from cues_kafka import ConfigError, Graph, Json, Memory, Out, Processor, Retry, Source, Topic, start
from cues_kafka.brokers.memory import MemoryBroker, MemoryReader
from cues_kafka.client.client import Client
from cues_kafka.core.records import Attempt, Record, Snapshot, Start
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.on_spark.direct.slot import Slot
from cues_kafka.on_spark.query.outcome import Outcome
from cues_kafka.ports.log import Outgoing, TopicPartition
from cues_kafka.records.reading import records_of
from cues_kafka.records.scanning import read_all
from cues_kafka.task.clock import SystemClock
from cues_kafka.task.interpreter import Hook
from cues_kafka.task.making.build import caller_of
from cues_kafka.task.making.prepare import prepare
from cues_kafka.task.making.specs import Identity, spec_of
from cues_kafka.testing.tester import VirtualClock, VirtualGate

pytestmark = pytest.mark.timeout(20)  # a slot that reads too little turns without end

INPUTS = ("left", "right")


class Killed(BaseException):
    """Ends a slot as SIGKILL would: nothing of it runs any more."""


def pair(left: Any, right: Any) -> list[Any]:
    """A join."""
    return [left, right]


def part(left: Any, right: Any) -> Any:
    """A join-fork: one or two outputs."""
    yield Out("some", [left, right])
    if left == right:
        yield Out("same", left)


def pick(left: Any = None, right: Any = None) -> Any:
    """Alts."""
    return left or right


def spread(left: Any = None, right: Any = None) -> Any:
    """An alts-fork."""
    yield Out("some", left or right)


def graph_of(
    fn: Callable[..., Any],
    *,
    alts: bool = False,
    topics: Mapping[str, Topic] | None = None,
    errors: str | None = "errors",
    outputs: Any = "out",
    **options: Any,
) -> Graph:
    """One processor of two inputs."""
    both = {name: name for name in INPUTS}
    shape: dict[str, Any] = {"alts": both} if alts else {"inputs": both}
    processor = Processor(fn, name="two", outputs=outputs, **shape, **options)
    defaults = Topic(value=Json(), partitions=1)
    return Graph("g", *map(Source, INPUTS), processor, errors=errors, topics=topics, defaults=defaults)


class World:
    """A processor of two inputs over one partition, and slots on it."""

    def __init__(self, fn: Callable[..., Any], **declared: Any) -> None:
        self.graph = graph_of(fn, **declared)
        self.broker = MemoryBroker()
        self.planned, self.facts = prepare(self.graph, self.broker)
        self.client = Client(self.broker, self.graph, name="test")
        self._attempts = 0

    def send(self, **values: list[Any]) -> None:
        """Messages, by topic; each topic's in a transaction, which leaves a marker."""
        for topic, found in values.items():
            if found:
                self.client.send_many(topic, found)

    def slot(self, hook: Hook | None = None, policy: CommitPolicy | None = None, partition: int = 0) -> Slot:
        """Another Spark task attempt."""
        self._attempts += 1
        who = replace(Identity.of_process("spark", "query"), incarnation=f"run.{self._attempts}")
        processor = self.graph.processors["two"]
        spec = replace(spec_of(self.graph, self.planned, processor, partition + 1, who)(partition), slot=True)
        caller = caller_of(self.graph, processor, self.facts, {}, 1_000_000)
        given: dict[str, Any] = {} if policy is None else {"policy": policy}
        return Slot(spec, caller, broker=self.broker, clock=SystemClock(), hook=hook, **given)

    def deliver(self, ends: Mapping[str, int] | None = None, *, first: bool = False, **given: Any) -> Outcome:
        """What a Spark task does in a micro-batch, which plans up to the last stable offsets."""
        return self.slot(**given).deliver(ends or self.ends(), first=first)

    def dies(self, moment: str, effect: str, ends: Mapping[str, int] | None = None, *, first: bool = False) -> None:
        """A slot that is killed there, once it comes there."""

        def kill(when: str, what: str) -> None:
            if (when, what) == (moment, effect):
                raise Killed

        slot = self.slot(kill)
        slot._close = lambda: None  # type: ignore[method-assign] # the dead close nothing
        with pytest.raises(Killed):
            slot.deliver(ends or self.ends(), first=first)

    def ends(self) -> dict[str, int]:
        """The last stable offset of each input."""
        places = [TopicPartition(topic, 0) for topic in INPUTS]
        return {place.topic: marks.stable for place, marks in self.broker.watermarks(places).items()}

    def records(self) -> list[Record]:
        """The backing topic."""
        return records_of(list(read_all(self.broker, "g.two.backing", 1)))

    def stands(self) -> dict[str, int]:
        """The positions of the newest record."""
        return {p.topic: p.offset for p in self.records()[-1].positions}

    def out(self, topic: str = "out") -> list[Any]:
        """What readers see."""
        return [one.value for one in self.client.messages(topic)]


def pairs(*numbers: int) -> list[list[int]]:
    """What `pair` makes of the same number on both sides."""
    return [[n, n] for n in numbers]


# Joins: what is paired, and what waits


def test_a_join_pairs_the_kth_messages_whatever_lies_between() -> None:
    """Markers take offsets on each side, in other places."""
    world = World(pair)
    world.send(left=[1], right=[1, 2])
    world.send(left=[2, 3], right=[3])

    outcome = world.deliver()

    assert (outcome.kind, outcome.counts.deliveries) == ("", 3)
    assert outcome.positions == world.ends() == {"left": 5, "right": 5}
    assert world.out() == pairs(1, 2, 3)


def test_messages_without_a_partner_stay_above_the_position() -> None:
    """Spark has planned them as delivered; the record has not moved over them."""
    world = World(pair)
    world.send(left=[1, 2, 3, 4], right=[1, 2])

    outcome = world.deliver()

    assert outcome.positions == {"left": 2, "right": world.ends()["right"]}
    assert world.out() == pairs(1, 2)


def test_a_partner_that_comes_two_micro_batches_later_makes_the_pair() -> None:
    """Its slot reads from the record, which is far below where Spark says that the range of the other input begins."""
    world = World(pair)
    world.send(left=[1, 2], right=[1])
    world.deliver()
    before = world.records()
    world.send(left=[3])
    waiting = world.deliver()
    assert (waiting.kind, waiting.counts.deliveries, world.records()) == ("", 0, before)
    world.send(right=[2, 3, 4])

    start = world.ends() | {"right": 2}
    outcome = world.slot().deliver(world.ends(), first=False, hint=start)

    assert outcome.counts.deliveries == 2
    assert world.out() == pairs(1, 2, 3)
    assert outcome.positions == {"left": world.ends()["left"], "right": 4}


def test_a_join_with_an_empty_partition_on_one_side_writes_nothing() -> None:
    """Nor does the other side move."""
    world = World(pair)
    world.send(left=[1, 2, 3])

    outcome = world.deliver(first=True)

    assert (outcome.kind, outcome.positions) == ("", {"left": 0, "right": 0})
    assert [type(record) for record in world.records()] == [Start]


def test_a_join_moves_over_markers_where_one_side_has_nothing_else() -> None:
    """P1: so that the range counts as delivered, and is not read again; a message of the other side stays."""
    world = World(pair)
    world.send(left=[1], right=[1])
    world.deliver({"left": 1, "right": 1})
    world.send(left=[2])

    outcome = world.deliver()

    assert outcome.counts.deliveries == 0
    assert outcome.positions == {"left": 2, "right": world.ends()["right"]}
    again = world.deliver()
    assert (again.positions, len(world.records())) == (outcome.positions, 3)


def test_nothing_at_or_past_an_end_is_paired() -> None:
    """Each input has an end of its own."""
    world = World(pair)
    world.send(left=[1, 2, 3, 4], right=[1, 2, 3, 4])

    assert world.deliver({"left": 3, "right": 2}).positions == {"left": 2, "right": 2}
    assert world.out() == pairs(1, 2)
    assert world.deliver({"left": 3, "right": 5}).positions == {"left": 3, "right": 3}
    assert world.deliver().positions == world.ends()
    assert world.out() == pairs(1, 2, 3, 4)


@pytest.mark.parametrize("hint", [{"left": 0, "right": 0}, {"left": 3, "right": 1}, {"left": 1, "right": 1}])
def test_a_hint_makes_no_difference_to_what_is_paired(hint: dict[str, int]) -> None:
    """Spark's starts may be older or newer than the positions."""
    world = World(pair)
    world.send(left=[1, 2, 3], right=[1, 2, 3])
    world.deliver({"left": 3, "right": 1})

    world.slot().deliver(world.ends(), first=False, hint=hint)

    assert world.out() == pairs(1, 2, 3)


def one_first(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers that give all of one side before any of the other, three at a time, while that side is not paused."""
    poll = MemoryReader.poll

    def left(self: MemoryReader, timeout_s: float, max_messages: int = 10_000) -> Any:
        at = {place.topic: cursor for place, cursor in self._cursors.items()}
        if side not in at or at[side].paused or at[side].eof is not None:
            return poll(self, timeout_s, 3)
        [other] = [cursor for topic, cursor in at.items() if topic != side]
        paused, other.paused = other.paused, True
        try:
            return poll(self, timeout_s, 3)
        finally:
            other.paused = paused

    monkeypatch.setattr(MemoryReader, "poll", left)


@pytest.mark.parametrize("policy", [CommitPolicy(max_messages=4), CommitPolicy(max_bytes=7)])
@pytest.mark.parametrize("count", [3, 30])
def test_a_join_holds_no_more_of_the_longer_side_than_a_batch_may_have(
    policy: CommitPolicy, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backlog would be in memory as a whole; the longer side is paused, and goes on."""
    one_first("left", monkeypatch)
    world = World(pair)
    world.send(left=list(range(30)), right=list(range(count)))
    slot, sizes = world.slot(policy=policy), []
    work = slot._lane.work

    def watched() -> Any:
        sizes.append(slot._lane.buffer.size if slot._lane.buffer else 0)
        return work()

    slot._lane.work = watched  # type: ignore[method-assign]
    outcome = slot.deliver(world.ends(), first=False)

    assert outcome.positions["right"] == world.ends()["right"]
    assert world.out() == pairs(*range(count))
    assert 3 <= max(sizes) <= 7 + 2


# Crash points

EFFECTS = ["Init", "Begin", "SendOffsets", "Produce", "Flush", "Commit", "Call"]
MOMENTS = ["before", "after"]


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("first", [False, True], ids=["", "under a snapshot"])
def test_a_join_slot_that_dies_anywhere_is_made_good_by_the_next(moment: str, effect: str, first: bool) -> None:
    """A kill before and after every effect; a message of each side waits; the partner comes after the death."""
    world = World(part, outputs={"some": "some", "same": "same"})
    world.send(left=[1, 2, 3, 5], right=[1, 9, 3])
    world.slot().enter()

    world.dies(moment, effect, first=first)
    world.send(right=[5])
    outcome = world.deliver(first=True)

    assert outcome.positions == world.ends()
    assert world.out("some") == [[1, 1], [2, 9], [3, 3], [5, 5]]
    assert world.out("same") == [1, 3, 5]
    assert world.records()[-1].totals.deliveries == 4


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("effects", [False, True], ids=["", "with effects"])
def test_an_alts_slot_that_dies_anywhere_is_made_good_by_the_next(moment: str, effect: str, effects: bool) -> None:
    """Each message once, those of an input in order; with effects in the order that the first snapshot holds (S2)."""
    called: list[Any] = []

    def noted(left: Any = None, right: Any = None) -> Any:
        called.append(left or right)
        return left or right

    world = World(noted, alts=True, effects=effects)
    world.send(left=["a", "b", "c"], right=["x", "y"])
    world.slot().enter()

    world.dies(moment, effect)
    seen = list(called)
    called.clear()
    world.send(right=["z"])
    outcome = world.deliver(first=True)

    assert outcome.positions == world.ends()
    assert sorted(world.out()) == ["a", "b", "c", "x", "y", "z"]
    assert [v for v in world.out() if v < "m"] == ["a", "b", "c"]
    assert [v for v in world.out() if v > "m"] == ["x", "y", "z"]
    if effects and seen and called[:-1]:
        assert (seen + called if len(called) == 1 else called)[: len(seen)] == seen


def test_alts_with_effects_announce_their_order_before_each_batch() -> None:
    """S2: also where nothing says that a predecessor died."""
    world = World(pick, alts=True, effects=True)
    world.send(left=["a", "b"], right=["x"])
    world.deliver()
    world.send(right=["y"])
    world.deliver()

    kinds = [type(record) for record in world.records()]
    assert kinds == [Start, Snapshot, Attempt, Snapshot, Attempt]
    assert [dict(record.choice) for record in world.records() if isinstance(record, Snapshot)] == [
        {"left": 2, "right": 1},
        {"right": 1},
    ]


def test_alts_without_effects_announce_nothing() -> None:
    """A retry may take another order: nothing outside has seen the first one."""
    world = World(spread, alts=True, outputs={"some": "some"})
    world.send(left=["a", "b"], right=["x"])

    world.deliver()

    assert [type(record) for record in world.records()] == [Start, Attempt]
    assert sorted(world.out("some")) == ["a", "b", "x"]


def test_an_announced_order_is_kept_by_a_slot_that_is_given_less() -> None:
    """I7: another checkpoint cuts smaller batches; the order names messages beyond the ends, and they are read."""
    world = World(pick, alts=True, effects=True)
    world.send(left=list("abc"), right=list("xyz"))
    world.dies("before", "Call")

    outcome = world.deliver({"left": 1, "right": 1}, first=True)

    assert outcome.kind == ""
    assert world.out() == announced(world, left="abc", right="xyz")
    assert len(world.out()) == 6


def announced(world: World, **values: str) -> list[str]:
    """The messages in the order that the first snapshot holds."""
    snapshot = next(record for record in world.records() if isinstance(record, Snapshot))
    named = {topic: iter(found) for topic, found in values.items()}
    return [next(named[binding]) for binding, count in snapshot.choice for _ in range(count)]


@pytest.mark.parametrize("side", INPUTS)
@pytest.mark.parametrize("ends", [{"left": 1, "right": 0}, {"left": 0, "right": 1}, {"left": 2, "right": 2}])
def test_what_is_left_of_an_announced_order_is_kept_by_a_slot_that_is_given_less(
    ends: dict[str, int], side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its predecessor committed a part of what it had announced, because the batch was full, and died."""
    world = World(pick, alts=True, effects=True)
    world.send(left=list("abcd"), right=list("wxyz"))
    commits = 0

    def kill(moment: str, effect: str) -> None:
        nonlocal commits
        commits += (moment, effect) == ("after", "Commit")
        if commits == 3:
            raise Killed

    dying = world.slot(kill, CommitPolicy(max_bytes=1))
    dying._close = lambda: None  # type: ignore[method-assign] # the dead close nothing
    with pytest.raises(Killed):
        dying.deliver(world.ends(), first=True)
    order = announced(world, left="abcd", right="wxyz")
    assert 0 < len(world.out()) < len(order)
    one_first(side, monkeypatch)

    while world.stands() != world.ends():
        world.deliver(ends, first=True, policy=CommitPolicy(max_messages=2))
        ends = {topic: min(end + 1, world.ends()[topic]) for topic, end in ends.items()}

    assert world.out()[: len(order)] == order
    assert sorted(world.out()) == list("abcdwxyz")


def test_an_input_that_has_nothing_below_its_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its leader may be away, and give not even an end of the log."""
    world = World(pick, alts=True)
    world.send(left=["a"], right=["x"])
    world.deliver()
    world.send(left=["b"])
    poll = MemoryReader.poll

    def without_right(self: MemoryReader, timeout_s: float, max_messages: int = 10_000) -> Any:
        return [one for one in poll(self, timeout_s, max_messages) if one.partition.topic != "right"]

    monkeypatch.setattr(MemoryReader, "poll", without_right)
    outcome = world.deliver()

    assert outcome.positions == world.ends()
    assert world.out() == ["a", "x", "b"]


# Fencing, deaths, retries


@pytest.mark.parametrize(("until", "kind"), [({"left": 4, "right": 3}, ""), ({"left": 1, "right": 1}, "claimed")])
def test_a_fenced_join_succeeds_where_the_record_has_no_pair_left(
    until: dict[str, int], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D5: a message that waits for its partner does not keep it from being delivered; a pair that is left does."""
    world = World(pair)
    world.send(left=[1, 2, 3], right=[1, 2])
    monkeypatch.setattr("cues_kafka.on_spark.query.slots.FENCED_S", 0.0)

    def overtaken(when: str, what: str) -> None:
        if (when, what) == ("before", "Begin"):
            world.deliver(until)

    world.slot().enter()
    outcome = world.deliver(hook=overtaken)

    assert outcome.kind == kind
    assert world.out() == (pairs(1) if kind else pairs(1, 2))
    if kind:
        assert "has not delivered up to left at 4, right at 3 within" in outcome.text


def test_a_pair_that_kills_is_quarantined_after_its_deaths() -> None:
    """Q1 to Q3 count on the step, so on both of its messages."""

    def killer(left: int, right: int) -> Any:
        if left == 2:
            raise Killed
        return [left, right]

    world = World(killer)
    world.send(left=[1, 2, 3], right=[1, 2, 3])
    world.slot().enter()
    deaths = 0
    while True:
        slot = world.slot()
        slot._close = lambda: None  # type: ignore[method-assign] # the dead close nothing
        try:
            outcome = slot.deliver(world.ends(), first=True)
        except Killed:
            deaths += 1
            continue
        break

    assert outcome.positions == world.ends()
    assert world.out() == pairs(1, 3)
    assert world.records()[-1].totals.errors == 1
    assert 3 <= deaths <= 6


def test_an_unhandled_exception_of_a_pair_stops_at_it() -> None:
    """The pairs before it commit; both sides stand at their messages."""

    def failing(left: int, right: int) -> Any:
        if left == 2:
            raise ValueError("two")
        return [left, right]

    world = World(failing, errors=None)
    world.send(left=[1, 2, 3], right=[1, 2, 3])

    outcome = world.deliver(first=True)

    assert (outcome.kind, outcome.positions) == ("unhandled", {"left": 1, "right": 1})
    assert world.out() == pairs(1)


def test_a_pair_that_asks_for_it_is_called_again_in_the_slot() -> None:
    """`retry=`, outside of any transaction."""
    tries: list[int] = []

    def flaky(left: int, right: int) -> Any:
        tries.append(left)
        if tries == [1] or tries[-2:] == [1, 2]:
            raise ConnectionError("later")
        return [left, right]

    world = World(flaky, retry=Retry(ConnectionError, first_s=0.01))
    world.send(left=[1, 2, 3], right=[1, 2, 3])

    outcome = world.deliver()

    assert outcome.positions == world.ends()
    assert world.out() == pairs(1, 2, 3)
    assert tries == [1, 1, 2, 2, 3]


def test_a_range_that_was_announced_beyond_the_ends_is_paired_as_a_whole() -> None:
    """A native worker died under a snapshot of more than Spark's first batch has."""
    world = World(pair)
    world.send(left=[1, 2, 3], right=[1, 2, 3])
    world.dies("before", "Call", first=True)

    outcome = world.deliver({"left": 1, "right": 1}, first=True, policy=CommitPolicy(max_messages=1))

    assert outcome.kind == ""
    assert world.out() == pairs(1, 2, 3)


# Any cut of batches


@pytest.mark.parametrize("seed", range(20))
def test_any_micro_batches_pair_as_a_native_worker_does(seed: int) -> None:
    """Random messages, transactions, ends, limits and deaths; the memory broker's workers had the same input."""
    chance = random.Random(seed)
    world = World(pair)
    sent: dict[str, list[int]] = {topic: [] for topic in INPUTS}
    ends = dict.fromkeys(INPUTS, 0)
    for _ in range(12):
        for topic in INPUTS:
            values = [len(sent[topic]) + n for n in range(chance.choice((0, 0, 1, 2, 7)))]
            sent[topic] += values
            if chance.random() < 0.5:
                world.send(**{topic: values})
            else:
                world.broker.sender("test").send([Outgoing(topic, 0, None, b"%d" % n) for n in values])
        ends = {topic: chance.randint(ends[topic], end) for topic, end in world.ends().items()}
        policy = CommitPolicy(max_messages=chance.choice((1, 3, 100)))
        if chance.random() < 0.3:
            dying = world.slot(Dice(chance), policy)
            dying._close = lambda: None  # type: ignore[method-assign] # the dead close nothing
            try:
                dying.deliver(ends, first=True)
            except Killed:
                world.deliver(ends, first=True, policy=policy)
        else:
            world.deliver(ends, policy=policy)
    world.deliver()

    with start(graph_of(pair), Memory()) as running:
        for topic, values in sent.items():
            running.send_many(topic, values)
        running.wait_idle(timeout_s=20)
        expected = [message.value for message in running.messages("out")]
    assert world.out() == expected == pairs(*range(min(map(len, sent.values()))))


class Dice:
    """A hook that kills at a random moment, or not at all."""

    def __init__(self, chance: random.Random) -> None:
        self._left = chance.randint(1, 40)

    def __call__(self, moment: str, effect: str) -> None:
        self._left -= 1
        if not self._left:
            raise Killed


# Refused, as natively


def test_a_join_of_a_compacted_input_is_refused() -> None:
    """Compaction would pair other messages with each other."""
    graph = graph_of(pair, topics={"right": Topic(config={"cleanup.policy": "compact"})})

    with pytest.raises(ConfigError, match="The join two reads 'right', which is compacted"):
        prepare(graph, MemoryBroker())


def test_a_join_of_inputs_with_different_partitions_is_refused() -> None:
    """Also where an input got partitions since: partition 1 of the right would have no partner."""
    world = World(pair)
    world.broker.add_partitions("right", 2)

    with pytest.raises(ConfigError, match=r"different numbers of partitions \(left: 1, right: 2\)"):
        prepare(world.graph, world.broker)


def test_a_partition_that_both_inputs_got_is_refused_until_its_backing_partition_is_there() -> None:
    """As of any processor: `plan --apply` adds it."""
    world = World(pair)
    for topic in INPUTS:
        world.broker.add_partitions(topic, 2)
    world.planned, world.facts = prepare(world.graph, world.broker)

    slot = world.slot(partition=1)
    slot._lane.interpreter.gate = VirtualGate(VirtualClock())  # it asks several times
    outcome = slot.enter()

    assert (outcome.kind, outcome.positions) == ("refused", {})
    assert "cues-kafka plan" in outcome.remedy
