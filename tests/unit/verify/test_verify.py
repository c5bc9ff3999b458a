"""`verify`: finds every planted defect, finds nothing where nothing is wrong, and says what it cannot see."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from cues_kafka import Graph, Json, Memory, Message, Out, Processor, Source, Topic, start
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.brokers.open import open_broker
from cues_kafka.cli import verify as command
from cues_kafka.core.delivery import HEADER, provenance_prefix, show_topic_id
from cues_kafka.core.records import KEY, Attempt, Record, Totals
from cues_kafka.errors import ConfigError
from cues_kafka.operate.applying import apply_plan
from cues_kafka.operate.look.unwell import UnwellNow
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.operate.move.reset import reset
from cues_kafka.plan.plan import plan
from cues_kafka.plan.topics import topics_to_ask
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.reading import read_record
from cues_kafka.records.scanning import read_all
from cues_kafka.verify.ledger import ERROR, OUTPUT, Marks, mismatched
from cues_kafka.verify.report import ProcessorReport, TaskReport
from cues_kafka.verify.scan import ANOMALIES, Report, verify


def check(number: int) -> int | None:
    """Nil for tens, an error for sevens."""
    if number % 10 == 0:
        return None
    if number % 7 == 0:
        raise ValueError("seven")
    return number


def route(number: int) -> Iterator[Out]:
    yield Out("all", number)
    if number % 2:
        yield Out("odd", number)


def keep(number: int) -> None: ...


def both(a: int, b: int) -> list[int]:
    return [a, b]


def either(a: int | None = None, b: int | None = None) -> int | None:
    return a if b is None else b


def same(number: int) -> int:
    return number


WHOLE = Graph(
    "whole",
    Source("numbers"),
    Processor(check, inputs="numbers", outputs="checked"),
    Processor(route, inputs="checked", outputs={"all": "all", "odd": "odd"}),
    Processor(keep, inputs="all"),
    Processor(both, inputs={"a": "all", "b": "checked"}, outputs="pairs"),
    Processor(either, alts={"a": "odd", "b": "all"}, outputs="any"),
    errors="errors",
    defaults=Topic(value=Json(int), partitions=3),
)

PIPE = Graph("g", Source("in"), Processor(same, inputs="in", outputs="out"), errors="bad", defaults=Topic(partitions=1))
ZIP = Graph(
    "g", Source("a"), Source("b"), Processor(both, inputs={"a": "a", "b": "b"}, outputs="out"),
    errors="bad", defaults=Topic(partitions=1),
)  # fmt: skip


def broker_of(memory: Memory) -> MemoryBroker:
    broker = open_broker(memory)
    assert isinstance(broker, MemoryBroker)
    return broker


def ran(graph: Graph, *batches: Sequence[int], source: str = "in") -> tuple[Memory, MemoryBroker]:
    """The graph after it has delivered these, each batch sent in one transaction; it is stopped."""
    memory = Memory()
    with start(graph, memory) as running:
        for batch in batches:
            running.send_many(source, [Message(number, key=str(number)) for number in batch])
            running.wait_idle()
    return memory, broker_of(memory)


def wrong(report: Report) -> dict[str, int]:
    """What is not zero."""
    counts = {name: sum(getattr(one, name) for one in report.processors) for name in ANOMALIES}
    problems = sum(len(task.problems) for one in report.processors for task in one.tasks)
    return {name: count for name, count in (counts | {"problems": problems}).items() if count}


class Vandal:
    """Writes what no worker would write."""

    def __init__(self, broker: MemoryBroker, graph: Graph = PIPE, processor: str = "same") -> None:
        self.broker = broker
        self.graph = graph
        self.names = processor
        self.backing = f"{graph.name}.{processor}.backing"
        self.inputs = dict(graph.processors[processor].inputs)

    @property
    def newest(self) -> Record:
        """Of task 0."""
        return [read_record(message) for message in read_all(self.broker, self.backing, 1)][-1]

    def outcome(self, offset: int | str, part: str = "0/1", topic: str = "out", **other: Any) -> tuple[Any, ...]:
        """A record with a provenance header."""
        facts = self.broker.facts(list(self.inputs.values())).topics
        ids = [(binding, other.get("topic_id") or facts[name].topic_id) for binding, name in self.inputs.items()]
        task, sequence = other.get("task", f"{self.graph.name}.{self.names}/0"), other.get("sequence", 1)
        header = provenance_prefix(task, sequence, ids) + f"{part} {offset}".encode()
        return topic, 0, b"k", b"1", [(HEADER, header)], 0

    def write(self, *records: tuple[Any, ...], commit: bool = True) -> None:
        """One transaction, with an id of its own."""
        session = self.broker.session("vandal")
        session.init(timeout_s=5)
        session.begin()
        session.produce(records)
        session.flush()
        if commit:
            session.commit()
            session.close()

    def feed(self, count: int = 1) -> list[int]:
        """Input that no worker delivers; offsets."""
        sender = self.broker.sender("test")
        return [sent.offset for sent in sender.send([("in", 0, b"k", b"1", None, 0)] * count)]

    def attempt(self, batch: Totals, moved: int = 1, **changes: Any) -> tuple[Any, ...]:
        """A backing record as the next one would be, a number of offsets further, with changes."""
        from cues_kafka.records.bytes import encode_record

        old = self.newest
        fields: dict[str, Any] = {
            "sequence": old.sequence + 1,
            "step": old.step + batch.deliveries,
            "positions": tuple(p._replace(offset=p.offset + moved) for p in old.positions),
            "totals": old.totals.plus(batch),
            "batch": batch,
            "owner": old.owner,
            "born": old.born,
            "writer": old.writer,
            "strategy": old.strategy,
            "fingerprint": old.fingerprint,
        }
        return self.backing, 0, KEY, encode_record(Attempt(**fields | changes)), [], 0


ONE_OUTPUT = Totals(deliveries=1, outputs=1, messages=1)


@pytest.fixture
def vandal() -> Vandal:
    """In a pipe that has delivered 6 messages, offsets 0 to 2 and 4 to 6."""
    _, broker = ran(PIPE, [1, 2, 3], [4, 5, 6])
    return Vandal(broker)


# --------------------------------------------------------------------------------------------- nothing is wrong


def test_a_run_of_every_kind_of_processor_is_ok_and_counted() -> None:
    """The numbers are those that Python counts."""
    numbers = range(500)
    _, broker = ran(WHOLE, *(range(first, first + 100) for first in range(0, 500, 100)), source="numbers")
    report = verify(WHOLE, broker)
    good = [n for n in numbers if n % 10 and n % 7]
    assert (report.verdict, report.ok, wrong(report), list(report.lines)) == ("ok", True, {}, [])
    checked = report["check"]
    assert (checked.steps, checked.outputs, checked.messages) == (500, len(good), len(good))
    assert (checked.errors, checked.totals.nils) == (sum(n % 7 == 0 and n % 10 != 0 for n in numbers), 50)
    assert report["route"].messages == len(good) + sum(n % 2 for n in good)
    assert report["keep"].totals.nils == report["both"].steps == len(good)
    assert report["either"].steps == report["route"].messages


def test_a_running_graph_is_never_wrong() -> None:
    """Messages come all the time while it is looked at again and again."""
    memory, done = Memory(), threading.Event()
    with start(WHOLE, memory) as running:

        def feed() -> None:
            first = 0
            while not done.is_set() and first < 20_000:
                running.send_many("numbers", [Message(n, key=str(n)) for n in range(first, first + 50)])
                first += 50

        feeder = threading.Thread(target=feed)
        feeder.start()
        try:
            looks = [verify(WHOLE, broker_of(memory))]
            while len(looks) < 12 or (looks[-1].scanned == looks[0].scanned and len(looks) < 5_000):
                looks.append(verify(WHOLE, broker_of(memory)))
        finally:
            done.set()
            feeder.join()
    assert [(look.verdict, list(look.lines)) for look in looks] == [("ok", [])] * len(looks)
    assert looks[-1].scanned > looks[0].scanned


def test_records_that_compaction_took_are_not_missed() -> None:
    """Only the newest backing record is left, and the beginning of the task with it."""
    _, broker = ran(PIPE, [1, 2, 3], [4, 5, 6])
    broker.compact("g.same.backing")
    assert verify(PIPE, broker).ok


def test_messages_before_start_latest_are_no_steps() -> None:
    """The `Start` record says where the task began."""
    late = Graph("g", Source("in"), Processor(same, inputs="in", outputs="out", start="latest"), errors="bad")
    memory = Memory()
    with start(PIPE, memory) as running:
        running.send_many("in", [1, 2, 3])
        running.wait_idle()
    renamed = replace_name(late, "later")
    with start(renamed, memory) as running:
        running.send_many("in", [4, 5])
        running.wait_idle()
    report = verify(renamed, broker_of(memory))
    assert (report.verdict, report["same"].steps) == ("ok", 2)
    broker_of(memory).compact("later.same.backing")
    report = verify(renamed, broker_of(memory))
    assert (report.verdict, wrong(report)) == ("not verifiable", {})
    assert "where it began" in next(report.lines)


def replace_name(graph: Graph, name: str) -> Graph:
    return Graph(name, *graph.parts, errors=graph.errors, defaults=graph.defaults)


def test_another_application_in_an_output_topic_is_a_note_only(vandal: Vandal) -> None:
    """Without our header, with one of another graph, with one that makes no sense."""
    vandal.write(
        ("out", 0, b"k", b"1", None, 0),
        ("out", 0, b"k", b"1", [("cues", b"what?")], 0),
        vandal.outcome(0, task="other.same/0"),
    )
    report = verify(PIPE, vandal.broker)
    assert report.verdict == "ok"
    assert [line[:26] for line in report.lines] == [
        "note: 1 message of 'out' i",
        *["note: 1 message of 'out' c"] * 2,
    ]


def test_tasks_that_cannot_be_verified_for_one_reason_share_a_line() -> None:
    """Of a graph that never started each processor is named once; else the tasks that it concerns."""
    broker = broker_of(Memory())
    apply_plan(plan(WHOLE, broker.facts(topics_to_ask(WHOLE))), broker)
    unverified = "cannot be verified: no record yet, so never started"
    assert list(verify(WHOLE, broker).lines) == [f"check, route, keep, both, either: {unverified}"]

    keep = verify(WHOLE, broker)["keep"]
    begun = replace(keep.tasks[0], limits=())
    report = replace(verify(WHOLE, broker), processors=(replace(keep, tasks=(begun, *keep.tasks[1:])),))
    assert list(report.lines) == [f"keep/1, keep/2: {unverified}"]


def test_messages_of_other_graphs_and_of_lost_processors_are_counted_by_name(vandal: Vandal) -> None:
    """Two graphs that write one topic by mistake, and what a renamed processor left there."""
    vandal.write(
        *[vandal.outcome(offset, task="pre.same/0", sequence=offset) for offset in range(3)],
        vandal.outcome(0, task="pre.same/1"),
        vandal.outcome(0, task="g.eat/0"),
    )
    report = verify(PIPE, vandal.broker)

    assert report.verdict == "ok"
    assert report.notes == (
        "1 message of 'out' is of processor 'eat', which this graph does not have; not verified here",
        "4 messages of 'out' are of graph 'pre', processor 'same'; not verified here",
    )


def test_processors_that_were_not_chosen_are_no_others() -> None:
    """They write the topics that are read, and they are of this graph."""
    two = Graph(
        "g",
        Source("in"),
        *[Processor(same, name=name, inputs="in", outputs="out") for name in ("one", "two")],
        errors="bad",
        defaults=Topic(partitions=1),
    )
    _, broker = ran(two, [1, 2])

    assert verify(two, broker, processors=["one"]).notes == ()


def test_processors_can_be_chosen_and_unknown_ones_are_refused(vandal: Vandal) -> None:
    """Names are checked against the graph."""
    assert [one.name for one in verify(PIPE, vandal.broker, processors=["same"]).processors] == ["same"]
    with pytest.raises(ConfigError, match="its processors are"):
        verify(PIPE, vandal.broker, processors=["some"])


def test_progress_ends_at_the_whole() -> None:
    """The last call says that all was read."""
    _, broker = ran(PIPE, [1, 2, 3])
    calls: list[tuple[int, int]] = []
    verify(PIPE, broker, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1][0] == calls[-1][1] > 0
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


# ------------------------------------------------------------------------------------------------ planted defects


def test_a_duplicated_output_is_found(vandal: Vandal) -> None:
    """I1: the same delivery and index again."""
    vandal.write(vandal.outcome(1))
    report = verify(PIPE, vandal.broker)
    assert wrong(report) == {"duplicated": 1}
    assert list(report.lines) == ["same/0: duplicated: in/0 at 1"]


def test_outcomes_with_different_counts_are_found(vandal: Vandal) -> None:
    """One of one, and then one of two."""
    vandal.write(vandal.outcome(1, "1/2"))
    assert wrong(verify(PIPE, vandal.broker)) == {"duplicated": 1}


def drained(offset: int | str, part: str, sequence: int) -> tuple[Any, ...]:
    """A message that a state handler held back; `offset` is what stands in the place of offsets."""
    header = provenance_prefix("g.same/0", sequence, ()) + f"{part} {offset}".encode()
    return "out", 0, b"k", b"1", [(HEADER, header)], 0


def test_what_handlers_held_back_is_counted(vandal: Vandal) -> None:
    """Two of two, as the totals say; then one again, one more, and one without sense."""
    [offset] = vandal.feed()
    vandal.write(vandal.attempt(ONE_OUTPUT._replace(drained=2)), vandal.outcome(offset, sequence=2))
    sequence = vandal.newest.sequence
    vandal.write(drained("-", "0/2", sequence))
    report = verify(PIPE, vandal.broker)
    assert wrong(report) == {"problems": 1}
    assert "seen: 1 message that name no message of its inputs; its totals say 2" in str(list(report.lines))
    vandal.write(drained("-", "1/2", sequence))
    assert wrong(verify(PIPE, vandal.broker)) == {}
    vandal.write(drained("-", "1/2", sequence))
    assert wrong(verify(PIPE, vandal.broker)) == {"duplicated": 1}
    vandal.write(drained("-", "0/1", 1), drained(7, "0/1", 1))
    report = verify(PIPE, vandal.broker)
    assert wrong(report) == {"duplicated": 1, "problems": 2}
    assert "seen: 3 messages that name no message of its inputs; its totals say 2" in str(list(report.lines))


def fired(part: str, sequence: int, word: str = "5:aw@input:AAECAwQFBgcICQoLDA0ODw@1", topic: str = "out") -> Any:
    """An outcome of a timer's step."""
    header = f"1 g.same/0 {sequence} timer {part} {word}".encode()
    return topic, 0, b"k", b"1", [(HEADER, header)], 0


def test_outcomes_of_timers_are_counted(vandal: Vandal) -> None:
    """One with two messages, as the totals say; then a message again, an error besides, one lost, one without sense."""
    [offset] = vandal.feed()
    two = Totals(2, 2, 0, 0, 3, timers=1)
    vandal.write(vandal.attempt(two, stores=(("timers", 8),)), vandal.outcome(offset, sequence=2))
    sequence = vandal.newest.sequence
    assert wrong(verify(PIPE, vandal.broker)) == {"lost": 1}
    vandal.write(fired("0/2", sequence))
    assert wrong(verify(PIPE, vandal.broker)) == {"torn": 1}
    vandal.write(fired("1/2", sequence))
    assert wrong(verify(PIPE, vandal.broker)) == {}
    vandal.write(fired("1/2", sequence))
    report = verify(PIPE, vandal.broker)
    assert wrong(report) == {"duplicated": 1}
    assert "duplicated: 1 outcome of timers" in str(list(report.lines))
    vandal.write(fired("0/1", sequence, topic="bad"))
    assert wrong(verify(PIPE, vandal.broker)) == {"duplicated": 2}
    vandal.write(fired("0/1", sequence, word="5:aw"))
    assert wrong(verify(PIPE, vandal.broker)) == {"duplicated": 2, "problems": 1}


def test_outcomes_of_replays_are_counted_apart(vandal: Vandal) -> None:
    """One that its record does not explain, one that is lost, one that comes twice, under whatever number."""
    vandal.write(vandal.attempt(Totals(1, 1, 0, 0, 2, replays=1), moved=0))
    sequence = vandal.newest.sequence
    assert wrong(verify(PIPE, vandal.broker)) == {"lost": 1}

    def replay(part: str, number: int = 1, **other: Any) -> Any:
        facts = vandal.broker.facts(["in", "bad"]).topics
        error, origin = (show_topic_id(facts[name].topic_id) for name in ("bad", "in"))
        made = fired(part, sequence, f"{number}:{error}/0/0@in:{origin}@999", **other)
        topic, partition, key, value, [(name, header)], time = made
        return topic, partition, key, value, [(name, header.replace(b" timer ", b" replay "))], time

    vandal.write(replay("0/2"))
    assert wrong(verify(PIPE, vandal.broker)) == {"torn": 1}
    vandal.write(replay("1/2"))
    report = verify(PIPE, vandal.broker)
    assert (wrong(report), report["same"].replays, report["same"].steps) == ({}, 1, 7)
    vandal.write(replay("1/2", number=2))
    report = verify(PIPE, vandal.broker)
    assert wrong(report) == {"duplicated": 1}
    assert "duplicated: 1 outcome of replays" in str(list(report.lines))
    vandal.write(replay("0/1", topic="bad"))
    assert wrong(verify(PIPE, vandal.broker)) == {"duplicated": 2}


def test_an_error_besides_an_output_is_found(vandal: Vandal) -> None:
    """Whichever comes first, it is counted once."""
    vandal.write(vandal.outcome(4, topic="bad"))
    report = verify(PIPE, vandal.broker)
    assert wrong(report) == {"duplicated": 1}
    assert (report["same"].outputs, report["same"].errors) == (6, 1)


def test_a_missing_output_is_found(vandal: Vandal) -> None:
    """The record counts an output that is not there."""
    [offset] = vandal.feed()
    vandal.write(vandal.attempt(ONE_OUTPUT))
    report = verify(PIPE, vandal.broker)
    assert wrong(report) == {"lost": 1}
    assert list(report.lines) == [f"same/0: lost: in/0 at {offset}"]


def test_a_line_shows_five_offsets_and_counts_the_others(vandal: Vandal) -> None:
    """A reader who sees five must not believe that there are no more."""
    first, *_ = vandal.feed(8)
    vandal.write(vandal.attempt(Totals(deliveries=8, outputs=8, messages=8), moved=8))
    shown = ", ".join(str(first + n) for n in range(5))
    assert list(verify(PIPE, vandal.broker).lines) == [f"same/0: lost: in/0 at {shown} and 3 more"]


def test_a_skipped_message_is_found(vandal: Vandal) -> None:
    """I3: the position moves over a message that no record counts."""
    vandal.feed()
    vandal.write(vandal.attempt(Totals()))
    assert wrong(verify(PIPE, vandal.broker)) == {"lost": 1, "problems": 1}


def test_a_nil_too_much_in_the_totals_is_found(vandal: Vandal) -> None:
    """The totals add up in themselves, but the input holds no such message."""
    vandal.write(vandal.attempt(Totals(deliveries=1, nils=1), moved=0))
    assert wrong(verify(PIPE, vandal.broker)) == {"problems": 2}


def test_a_nil_in_the_place_of_an_output_is_found(vandal: Vandal) -> None:
    """More outcomes and nils than there are steps."""
    old = vandal.newest.totals
    lied = old._replace(outputs=old.outputs - 1, nils=old.nils + 1)
    vandal.write(vandal.attempt(Totals(), moved=0, totals=lied))
    assert wrong(verify(PIPE, vandal.broker)) == {"problems": 2}


def test_altered_totals_are_found(vandal: Vandal) -> None:
    """A column alone, so that they do not add up."""
    old = vandal.newest.totals
    vandal.write(vandal.attempt(Totals(), moved=0, totals=old._replace(errors=old.errors + 1)))
    report = verify(PIPE, vandal.broker)
    assert set(wrong(report)) == {"problems"}
    assert any("do not add up" in line for line in report.lines)


def test_totals_of_messages_are_compared_with_what_is_seen(vandal: Vandal) -> None:
    """All deliveries are there, but not as many messages as were counted."""
    vandal.feed()
    vandal.write(
        vandal.attempt(Totals(deliveries=1, outputs=1, messages=2)),
        vandal.outcome(vandal.newest.positions[0].offset, sequence=vandal.newest.sequence + 1),
    )
    assert wrong(verify(PIPE, vandal.broker)) == {"problems": 1}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"sequence": 9}, "it follows record", id="a gap in sequences"),
        pytest.param({"sequence": 1}, "it follows record", id="a sequence again"),
        pytest.param({"step": 3}, "it says step 3", id="a wrong step"),
    ],
)
def test_gaps_in_backing_records_are_found(vandal: Vandal, changes: dict[str, int], words: str) -> None:
    """I13."""
    vandal.write(vandal.attempt(Totals(), moved=0, **changes))
    report = verify(PIPE, vandal.broker)
    assert set(wrong(report)) == {"problems"}
    assert any(words in line for line in report.lines)


def test_a_position_that_goes_back_is_found(vandal: Vandal) -> None:
    """And what was delivered above it has outcomes of no known batch."""
    vandal.write(vandal.attempt(Totals(), moved=-1))
    report = verify(PIPE, vandal.broker)
    assert any("goes back" in line for line in report.lines)


def test_a_record_of_another_program_is_found(vandal: Vandal) -> None:
    """I14: by another transactional id; and one that cannot be read."""
    writer = replace(vandal.newest.writer, transactional_id="vandal")
    vandal.write(vandal.attempt(Totals(), moved=0, writer=writer))
    assert any("does not hold this task" in line for line in verify(PIPE, vandal.broker).lines)
    vandal.write((vandal.backing, 0, KEY, b"?", [], 0))
    assert any("cannot be read" in line for line in verify(PIPE, vandal.broker).lines)


def test_a_torn_delivery_is_found(vandal: Vandal) -> None:
    """Index 0 of 2 is there, index 1 is not."""
    [offset] = vandal.feed()
    vandal.write(vandal.attempt(Totals(1, 1, messages=2)), vandal.outcome(offset, "0/2"))
    report = verify(PIPE, vandal.broker)
    assert wrong(report) == {"torn": 1}
    assert list(report.lines) == [f"same/0: torn: in/0 at {offset}"]


def test_a_swapped_order_is_found(vandal: Vandal) -> None:
    """I4: two outputs of two messages, the later one first."""
    first, second = vandal.feed(2)
    vandal.write(
        vandal.attempt(Totals(2, 2, messages=2), moved=2), vandal.outcome(second), vandal.outcome(first)
    )  # fmt: skip
    report = verify(PIPE, vandal.broker)
    assert wrong(report) == {"out_of_order": 1}
    assert list(report.lines) == [f"same/0: out of order: in/0 at {first}"]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"offset": 3}, id="an offset where the input has a marker"),
        pytest.param({"topic_id": b"x" * 16}, id="another topic"),
        pytest.param({"task": "g.same/7"}, id="a task that does not exist"),
    ],
)
def test_an_outcome_of_what_the_input_does_not_hold_is_found(vandal: Vandal, other: dict[str, Any]) -> None:
    """Coordinates that do not exist."""
    vandal.write(vandal.outcome(other.pop("offset", 1), **other))
    assert wrong(verify(PIPE, vandal.broker))["unfounded"] == 1


@pytest.mark.parametrize(
    ("offset", "part"), [("1,2", "0/1"), ("one", "0/1"), ("1", "a/b"), ("1", "0/0"), ("1", "2/2"), ("1", "-1/2")]
)
def test_headers_that_make_no_sense_are_found(vandal: Vandal, offset: str, part: str) -> None:
    """Of a task of this graph they are defects."""
    vandal.write(vandal.outcome(offset, part))
    assert wrong(verify(PIPE, vandal.broker)) == {"problems": 1}


def test_an_outcome_above_the_position_is_found(vandal: Vandal) -> None:
    """Also where no record accounts for its batch."""
    [offset] = vandal.feed()
    vandal.write(vandal.outcome(offset, sequence=99))
    report = verify(PIPE, vandal.broker)
    assert wrong(report) == {"ahead": 1}
    assert list(report.lines) == [f"same/0: above the position: in/0 at {offset}"]


def test_an_outcome_of_a_batch_that_never_committed_is_found(vandal: Vandal) -> None:
    """Below the position, but its sequence is above the newest record's."""
    vandal.write(vandal.outcome(1, sequence=99))
    assert wrong(verify(PIPE, vandal.broker)) == {"duplicated": 1, "problems": 1}


def test_a_swapped_order_within_a_fork_is_found() -> None:
    """Two deliveries of two records each; those of one output stand in the wrong order."""
    fork = Graph(
        "g",
        Source("in"),
        Processor(route, inputs="in", outputs={"all": "all", "odd": "odd"}),
        defaults=Topic(value=Json(int), partitions=1),
    )
    vandal = Vandal(ran(fork, [1])[1], fork, "route")
    first, second = vandal.feed(2)
    vandal.write(
        vandal.attempt(Totals(2, 2, messages=4), moved=2),
        *[vandal.outcome(offset, "0/2", topic="all") for offset in (second, first)],
        *[vandal.outcome(offset, "1/2", topic="odd") for offset in (first, second)],
    )
    report = verify(fork, vandal.broker)
    assert wrong(report) == {"out_of_order": 1}
    assert list(report.lines) == [f"route/0: out of order: in/0 at {first}"]


def test_a_swapped_order_of_a_join_is_found() -> None:
    """The pairs are right, and the later one comes first."""
    memory = Memory()
    with start(ZIP, memory) as running:
        for topic in ("a", "b"):
            running.send_many(topic, [1])
        running.wait_idle()
    broker = broker_of(memory)
    broker.sender("test").send([(topic, 0, b"k", b"1", None, 0) for topic in "aabb"])
    vandal = Vandal(broker, ZIP, "both")
    positions = tuple(p._replace(offset=p.offset + 2) for p in vandal.newest.positions)
    a, b = (position.offset for position in vandal.newest.positions)
    pairs = [f"{a + 1},{b + 1}", f"{a},{b}"]
    vandal.write(
        vandal.attempt(Totals(2, 2, messages=2), positions=positions), *[vandal.outcome(pair) for pair in pairs]
    )
    report = verify(ZIP, broker)
    assert wrong(report) == {"out_of_order": 1}
    assert list(report.lines) == [f"both/0: out of order: a/0 at {a}"]


def test_a_join_that_pairs_what_does_not_belong_together_is_found() -> None:
    """The k-th of one with the next of the other; and one input further than the other."""
    memory = Memory()
    with start(ZIP, memory) as running:
        for topic in ("a", "b"):
            running.send_many(topic, [1, 2, 3])
        running.wait_idle()
    broker = broker_of(memory)
    sender = broker.sender("test")
    sender.send([(topic, 0, b"k", b"1", None, 0) for topic in "abb"])
    assert verify(ZIP, broker).ok
    vandal = Vandal(broker, ZIP, "both")
    a, b = (position.offset for position in vandal.newest.positions)
    moved = tuple(p._replace(offset=p.offset + more) for p, more in zip(vandal.newest.positions, (1, 2), strict=True))
    vandal.write(vandal.attempt(ONE_OUTPUT, positions=moved), vandal.outcome(f"{a},{b + 1}"))
    report = verify(ZIP, broker)
    assert wrong(report) == {"unfounded": 1, "problems": 1}
    assert any("not in step" in line for line in report.lines)


def test_outcomes_of_a_task_without_records_are_found() -> None:
    """An empty backing topic under committed outputs."""
    _, broker = ran(PIPE, [1, 2, 3])
    backing = TopicPartition("g.same.backing", 0)
    broker.trim({backing: broker.watermarks([backing])[backing].high})
    assert wrong(verify(PIPE, broker)) == {"ahead": 3}


# ------------------------------------------------------------------------------------------ what cannot be seen


def test_topics_without_provenance_are_never_ok() -> None:
    """Not verifiable is not ok."""
    quiet = Graph(
        "g",
        Source("in"),
        Processor(same, inputs="in", outputs="out"),
        errors="bad",
        topics={"out": Topic(provenance=False)},
        defaults=Topic(partitions=1),
    )
    _, broker = ran(quiet, [1, 2, 3])
    report = verify(quiet, broker)
    assert (report.verdict, report.ok, wrong(report)) == ("not verifiable", False, {})
    assert any("provenance=False" in line for line in report.lines)


def test_a_trimmed_input_is_said_and_what_is_left_is_verified(vandal: Vandal) -> None:
    """Steps that cannot be seen are taken from the totals; a defect in the rest is found."""
    vandal.broker.trim({TopicPartition("in", 0): 2})
    report = verify(PIPE, vandal.broker)
    assert (report.verdict, wrong(report)) == ("not verifiable", {})
    assert "2 steps cannot be seen" in next(report.lines)
    vandal.write(vandal.outcome(5))
    assert wrong(verify(PIPE, vandal.broker)) == {"duplicated": 1}


def test_trimmed_outputs_are_not_lost_ones(vandal: Vandal) -> None:
    """It cannot be known."""
    vandal.broker.trim({TopicPartition("out", 0): 1})
    report = verify(PIPE, vandal.broker)
    assert (report.verdict, wrong(report)) == ("not verifiable", {})
    assert "trimmed below offset 1" in next(report.lines)


def test_what_an_open_transaction_hides_is_not_lost(vandal: Vandal) -> None:
    """A hanging transaction in front of committed outputs."""
    vandal.write(("out", 0, b"k", b"1", None, 0), commit=False)
    [offset] = vandal.feed()
    other = vandal.broker.session("other")
    other.init(timeout_s=5)
    other.begin()
    other.produce([vandal.attempt(ONE_OUTPUT), vandal.outcome(offset)])
    other.flush()
    other.commit()
    report = verify(PIPE, vandal.broker, patience_s=0.2)
    assert (report.verdict, wrong(report)) == ("not verifiable", {})
    assert "an open transaction hides out/0" in next(report.lines)


def test_a_graph_that_never_ran_is_not_ok() -> None:
    """There is nothing to verify."""
    report = verify(PIPE, broker_of(Memory()))
    assert (report.verdict, wrong(report)) == ("not verifiable", {})


# ------------------------------------------------------------------------------------------------- how it is shown


def test_a_report_is_plain_data_and_a_table(vandal: Vandal, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON has every number; the table names what is wrong."""
    vandal.write(vandal.outcome(1))
    report = verify(PIPE, vandal.broker)
    data = json.loads(json.dumps(report.to_dict()))
    assert (data["verdict"], data["processors"][0]["duplicated"]) == ("WRONG", 1)
    assert data["processors"][0]["tasks"][0]["totals"]["deliveries"] == 6
    command.show(report, UnwellNow(()))
    shown = capsys.readouterr().out
    assert "WRONG" in shown
    assert "same/0: duplicated: in/0 at 1" in shown


# ----------------------------------------------------------------------------------------------------- the books


def test_marks_count_across_pages() -> None:
    """Offsets on both sides of the end of a page, with gaps and without."""
    marks = Marks(5, 140_000)
    marks.exist(list(range(65_000, 66_000)))
    marks.exist([1, 2, 70_000, 70_002, 139_999, 140_000])
    assert marks.balance(0, 1 << 62).exist == 1003
    assert marks.balance(65_536, 70_001).exist == 66_000 - 65_536 + 1
    assert sorted(marks.found((1,), 66_000, 1 << 62)) == [70_000, 70_002, 139_999]


@pytest.mark.parametrize("count", [2, 8, 9, 200])
def test_marks_know_which_records_of_a_delivery_are_missing(count: int) -> None:
    """Few records are kept in bytes, many in a dictionary."""
    marks = Marks(0, 100)
    assert all(marks.note(7, index, count, OUTPUT) for index in range(count - 1))
    assert marks.torn() == [7]
    assert not marks.note(7, 0, count, OUTPUT)
    assert marks.note(7, count - 1, count, OUTPUT)
    assert marks.torn() == []
    assert not marks.note(7, 0, count + 1, OUTPUT)
    assert not marks.note(7, 0, 1, OUTPUT)
    assert marks.note(7, 0, 1, ERROR)
    assert (marks.duplicated, marks.more) == (4, count - 1)


def test_pairs_are_compared_by_rank() -> None:
    """From the beginning, or from the end where beginnings were trimmed."""
    assert mismatched([1, 11, 2, 12, 3, 11], [[1, 2, 3], [11, 12, 13]], from_end=False) == [3]
    assert mismatched([2, 12, 3, 13], [[2, 3], [11, 12, 13]], from_end=True) == []
    assert mismatched([2, 12, 3, 14], [[2, 3], [11, 12, 13]], from_end=True) == [3]


def test_what_is_not_delivered_yet_is_counted_and_never_called_verified(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is wrong with it; who waits for all of it can see that it is not there."""
    _, broker = ran(PIPE, range(5))
    assert words_of(verify(PIPE, broker), capsys).startswith("g: everything is verified, nothing is wrong (")

    Vandal(broker).feed(3)
    report = verify(PIPE, broker)

    assert (report.verdict, report.complete, report.waiting) == ("ok", False, ("same/0",))
    assert report["same"].behind == report.to_dict()["behind"] == 3
    last = words_of(report, capsys)
    assert last.startswith("g: everything delivered so far is verified; 3 offsets of 1 task are not delivered yet (")


def large(name: str, **counts: Any) -> ProcessorReport:
    """A processor with a task of these counts."""
    task = TaskReport(task=f"{name}/0", totals=Totals(nils=counts.pop("nils", 0)))
    return ProcessorReport(name=name, kind="pipe", tasks=(replace(task, **counts),))


def test_a_report_leaves_out_columns_that_are_zero() -> None:
    """Most of them are, where nothing is wrong."""
    report = Report(graph="g", processors=(large("check", steps=3201, outputs=3191, errors=10), large("route")))

    assert command.table(report, width=80) == [
        "processor  kind  steps  outputs  errors  verdict",
        "check      pipe   3201     3191      10  ok",
        "route      pipe      0        0       0  ok",
    ]


@pytest.mark.parametrize("most", [7, 10**6, 10**12])
def test_a_report_shows_every_number_whole_on_80_columns(most: int) -> None:
    """A count that is cut is a wrong count."""
    names = ("steps", "outputs", "errors", "lost", "torn", "duplicated", "out_of_order", "unfounded", "ahead", "behind")
    counts = {name: most + place for place, name in enumerate((*names, "nils"))}
    lines = command.table(Report(graph="g", processors=(large("warehouse-of-the-north", **counts),)), width=80)

    assert max(map(len, lines)) <= 80
    numbers = [int(word) for line in lines for word in line.split() if word.isdigit()]
    assert sorted(numbers) == sorted(counts.values())


def test_a_report_names_the_first_tasks_that_have_something_to_deliver(capsys: pytest.CaptureFixture[str]) -> None:
    """And says how many more there are."""
    tasks = tuple(TaskReport(task=f"check/{p}", totals=Totals(), behind=p) for p in range(13))
    command.show(
        Report(graph="g", processors=(ProcessorReport(name="check", kind="pipe", tasks=tasks),)), UnwellNow(())
    )

    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "check/1: 1 offset not delivered yet"
    assert lines[11:13] == ["check/10: 10 offsets not delivered yet", "and 2 more tasks; --json has all of them"]
    assert "78 offsets of 12 tasks are not delivered yet" in lines[-1]


def test_markers_above_the_position_are_nothing_to_deliver() -> None:
    """A position moves over them when the task is idle, a minute later."""
    _, broker = ran(PIPE, range(5))
    place = TopicPartition("in", 0)
    before = broker.watermarks([place])[place].stable
    vandal = Vandal(broker)
    session = broker.session("aborted")
    session.init(timeout_s=5)
    session.begin()
    session.produce([("in", 0, b"k", b"1", None, 0)])
    session.flush()
    session.abandon()
    broker.session("aborted").init(timeout_s=5)

    assert broker.watermarks([place])[place].stable > before
    assert verify(PIPE, broker).complete
    vandal.feed()
    assert verify(PIPE, broker).behind == broker.watermarks([place])[place].stable - before


def words_of(report: Report, capsys: pytest.CaptureFixture[str]) -> str:
    """The last line."""
    command.show(report, UnwellNow(()))
    return capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize(("to", "compacted"), [("earliest", False), ("latest", False), ("earliest", True)])
def test_report_says_that_an_operator_moved_the_task(to: str, compacted: bool) -> None:
    """What was skipped on purpose is not lost; what came again is named, also when compaction has taken the record."""
    memory, broker = ran(PIPE, range(5))
    assert not any("operator" in line for line in verify(PIPE, broker).lines)
    vandal = Vandal(broker)
    vandal.feed()
    tool = Maintenance(PIPE, broker, "same", who="test")
    tool.carry_out(reset(tool, to=to))
    with start(PIPE, memory) as running:
        running.send_many("in", [Message(9, key="9")])
        running.wait_idle()
    if compacted:
        broker.compact("g.same.backing")
    report = verify(PIPE, broker)
    [line] = [line for line in report.lines if "operator" in line]
    assert report.verdict == ("ok" if to == "latest" else "WRONG")
    assert line.startswith(
        "same/0: an operator has moved it over offsets ["
        if to == "latest"
        else "same/0: an operator moved this task at backing record"
    )
