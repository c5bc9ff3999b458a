"""`reset`, `accept-loss`, `verify` and progress of staged processors, on the reference broker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cues_kafka import ConfigError, DataFrameProcessor, Graph, Processor, Raw, RecoveryError, Source, Topic
from cues_kafka.core.delivery import HEADER
from cues_kafka.core.records import Attempt, Extent, Snapshot, Totals
from cues_kafka.core.staged import RESET, Announce
from cues_kafka.operate.look.foreseen import foresee
from cues_kafka.operate.move.accept_loss import accept_loss
from cues_kafka.operate.move.base import Maintenance, PlannedMove
from cues_kafka.operate.move.migrate import migrate
from cues_kafka.operate.move.rename import Renaming
from cues_kafka.operate.move.reset import reset
from cues_kafka.plan.inspectors import Terms
from cues_kafka.plan.plan import plan
from cues_kafka.plan.topics import topics_to_ask
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.bytes import encode_record
from cues_kafka.task.calling.outputs import Output
from cues_kafka.task.making.names import inspect_names
from cues_kafka.testing.tester import Tester
from cues_kafka.verify.parts import Publication
from cues_kafka.verify.scan import ANOMALIES, Report, verify
from examples.flights.progress import Progress
from tests.unit.on_spark.staged.world import GRAPH, PARTS, World, same, typical


def tool(world: World) -> Maintenance:
    """As the command line uses it."""
    return Maintenance(GRAPH, world.broker, "frames", who="reset on here")


def notes(moves: list[PlannedMove]) -> str:
    """All that is said."""
    return "\n".join(note for move in moves for note in move.notes)


# Reset


def test_a_reset_takes_a_publication_number_in_every_slot() -> None:
    """Numbers, sequences and totals go on; the query of before is named; nothing is said to be at fault."""
    world = World()
    driver = world.driver()
    driver.enter()
    driver.deliver(0)
    world.send(3)
    number = driver.deliver(1).number
    before = [world.records(part)[-1] for part in range(PARTS)]

    moves = reset(tool(world))
    assert [move.spec.name for move in moves] == ["frames/0", "frames/1", "frames/2"]
    assert "a: begins again, by partition: 0 at 0, 1 at 0; outputs of the messages behind REPEAT" in notes(moves)
    assert "the checkpoint of query first" in notes(moves)
    assert "never will be" not in notes(moves)
    tool(world).carry_out(moves)

    for part in range(PARTS):
        record = world.records(part)[-1]
        assert isinstance(record, Attempt)
        assert record.staged
        assert (record.staged.query, record.staged.batch, record.staged.extents) == ("first", RESET, ())
        assert (record.staged.number, record.staged.part, record.staged.parts) == (number + 2, part, PARTS)
        assert record.sequence == before[part].sequence + 1
        assert (record.totals, record.step) == (before[part].totals, before[part].step)
        assert (record.writer.runtime, record.writer.name) == ("tool", "reset on here")
    assert world.records(0)[-1].sequence == number + 2
    places = [TopicPartition("a", 0), TopicPartition("a", 1)]
    assert list(world.broker.committed("g.frames", places).values()) == [0, 0]


def test_after_a_reset_a_new_query_begins_and_the_old_one_is_refused() -> None:
    """Its checkpoint, its driver that still runs, and a Spark task that still has a part in its hands."""
    world = World()
    old = world.driver()
    old.enter()
    announced = old.deliver(0)
    tool(world).carry_out(reset(tool(world)))
    written = world.written("out")

    assert ["was reset" in outcome.text for outcome in old.enter()] == [True, False, False]
    outcome, _ = old.announce(1)
    assert "was reset" in outcome.text
    assert [old.publish(announced, part, [(0, b"zombie")]).kind for part in range(PARTS)] == ["refused"] * PARTS
    assert world.written("out") == written

    new = world.driver("second")
    assert not any(outcome.kind for outcome in new.enter())
    batch = new.deliver(0)
    assert batch.number > announced.number + 1
    world.send(1)
    new.deliver(1)
    assert world.written("out") == 3 * written
    assert ["older driver" in old.publish(announced, part, [(0, b"z")]).remedy for part in range(PARTS)] == [True] * 3


def test_reset_to_latest_begins_at_the_ends_of_now() -> None:
    """They are in the record of slot 0, and in the group."""
    world = World()
    world.driver().deliver(0)
    world.send(5)
    moves = reset(tool(world), to="latest")
    assert "is LOST" in notes(moves)
    tool(world).carry_out(moves)

    staged = world.records(0)[-1].staged
    assert staged
    assert [(one.source, one.start, one.end) for one in staged.extents] == [
        (name, world.offsets(name, "stable"), world.offsets(name, "stable")) for name in ("a", "b")
    ]
    assert all(not record.staged.extents for part in (1, 2) if (record := world.records(part)[-1]) and record.staged)
    world.send(1)
    world.driver("second").deliver(0)
    assert reset(tool(world)) != []


def test_a_reset_gives_up_a_batch_that_cannot_be_published() -> None:
    """Its files are gone, so it is announced without end: that is said."""
    world = World()
    driver = world.driver()
    driver.deliver(0)
    world.send(1)
    _, announced = driver.announce(1)
    assert announced
    driver.publish(announced, 1, [(0, b"row")])
    moves = reset(tool(world))
    assert "batch 1 is announced, but its parts 0, 2 are not published, and never will be" in notes(moves)
    assert isinstance(world.records(0)[-1], Snapshot)
    tool(world).carry_out(moves)

    assert not world.driver("second").announce(0)[0].kind


def test_half_a_reset_lets_no_query_begin_and_is_made_whole() -> None:
    """The tool died behind slot 0."""
    world = World()
    world.driver().deliver(0)
    tool(world).carry_out(reset(tool(world))[:1])
    outcome, _ = world.driver("second").announce(0)
    assert "has not reached all parts" in outcome.text
    assert "again" in outcome.remedy

    tool(world).carry_out(reset(tool(world)))
    assert reset(tool(world)) == []
    world.driver("second").deliver(0)


def test_a_reset_goes_on_above_every_number_that_a_slot_has() -> None:
    """Slot 0 lost its records, the others did not; a number of before would be taken for done."""
    world = World()
    for batch in range(3):
        world.driver().deliver(batch)
        world.send(1)
    number = world.records(1)[-1].staged
    assert number
    world.broker.trim({TopicPartition("g.frames.backing", 0): -1})
    tool(world).carry_out(reset(tool(world)))

    assert world.records(0)[-1].sequence == number.number + 1
    assert world.driver("second").deliver(0).number > number.number


def test_what_is_published_between_the_look_and_the_act_is_noticed() -> None:
    """What was said would not be what happens."""
    world = World()
    world.driver().deliver(0)
    moves = reset(tool(world))
    world.send(1)
    world.driver().deliver(1)

    with pytest.raises(RecoveryError, match="has moved since"):
        tool(world).carry_out(moves)


def test_an_open_transaction_shows_a_query_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no member of the group; the slot is named."""
    monkeypatch.setattr("cues_kafka.operate.move.base.PATIENCE_S", 0.2)
    world = World()
    world.driver().deliver(0)
    moves = reset(tool(world))
    session = world.broker.session("g.frames.1")
    session.init(timeout_s=1)
    session.begin()
    session.produce([("g.frames.backing", 1, b"t", b"x", [], 0)])
    session.flush()

    for act in (lambda: reset(tool(world)), lambda: tool(world).carry_out(moves)):
        with pytest.raises(RecoveryError, match="frames/1: a transaction is open"):
            act()


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (accept_loss, "written staged: where it goes on is in the checkpoint"),
        (lambda tool: reset(tool, partition=1), "is reset as a whole"),
        (
            lambda tool: migrate(tool, {"a": "latest"}, ()),
            "You may give it a new name= and a new checkpoint. Or let it begin again",
        ),
    ],
)
def test_what_means_nothing_for_a_staged_processor_is_refused_with_the_reason(act: Any, words: str) -> None:
    """And with what to do instead."""
    world = World()
    world.driver().deliver(0)

    with pytest.raises(ConfigError, match=words):
        act(tool(world))


def with_inputs(name: str = "frames", **inputs: str) -> Graph:
    """The same graph, whose processor reads other inputs, or has another name."""
    frames = DataFrameProcessor(same, name=name, inputs=inputs, outputs={"x": "out", "y": "other"})
    topics = {name: GRAPH.topic(name) for name in ("a", "b", "out", "other", "g.errors")}
    return Graph("g", Source("a"), Source("b"), frames, errors="g.errors", topics=topics)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"a": "a", "b": "b"}, ""),
        ({"a": "a"}, "the newest record has 'a' from 'a', 'b' from 'b'; the graph has 'a' from 'a'"),
        ({"a": "a", "c": "b"}, "the graph has 'a' from 'a', 'c' from 'b'"),
        ({"a": "b", "b": "a"}, "the graph has 'a' from 'b', 'b' from 'a'"),
    ],
)
def test_plan_says_that_a_staged_processor_would_stop_at_other_inputs(inputs: dict[str, str], words: str) -> None:
    """One of its slots is enough; a reset lets it begin again."""
    world = World()
    world.driver().deliver(0)
    graph = with_inputs(**inputs)

    stops = foresee(graph, world.broker, plan(graph, world.broker.facts(topics_to_ask(graph))), ["frames"]).stops

    assert [stop.tasks for stop in stops] == ([("frames/0",)] if words else [])
    assert all(words in stop.why for stop in stops)
    assert all("`cues-kafka reset MODULE:GRAPH frames --to earliest`" in stop.remedy for stop in stops)


@pytest.mark.parametrize("to", ["earliest", "latest"])
def test_staged_processor_begins_again_with_other_inputs_after_a_reset(to: str) -> None:
    """Under its name; its former query is refused."""
    world = World()
    old = world.driver()
    old.deliver(0)
    resetting = Maintenance(with_inputs(a="a"), world.broker, "frames", who="reset on here")
    resetting.carry_out(reset(resetting, to=to))

    new = world.driver("second")
    begin = world.offsets("a", "low" if to == "earliest" else "stable")
    mine = replace(new.prepared(0), extents=(Extent("a", world.ids["a"], begin, world.offsets("a", "stable")),))

    assert old.announce(1)[0].kind == "refused"
    assert new.slot(0, Announce(mine, stateless=False)).recover().kind == ""


def test_staged_processor_keeps_its_name() -> None:
    """Its place is in its checkpoint too, so neither the command nor a start takes another name for the same one."""
    world = World()
    world.driver().deliver(0)
    graph = with_inputs("frames_2", a="a", b="b")

    with pytest.raises(ConfigError, match=r"which cannot be renamed\. Keep the name; .* name='frames'"):
        Renaming(graph, world.broker, "frames", "frames_2", who="rename on here")
    [said] = inspect_names(graph, world.broker, Terms(["frames_2"])).refusals
    assert "give it its old name back, name='frames'" in said
    assert "a processor of DataFrames cannot be renamed, and would start again, so its outputs repeat" in said
    assert "--new frames_2" in said
    assert inspect_names(graph, world.broker, Terms(["frames_2"], new=["frames_2"])).refusals == ()


def test_a_processor_that_never_ran_has_nothing_to_reset() -> None:
    """Its topics are there, no record is."""
    with pytest.raises(ConfigError, match="never started"):
        tool(World())


# Verify


def look(world: World, graph: Graph = GRAPH) -> Report:
    """One look."""
    return verify(graph, world.broker, patience_s=1)


def wrong(report: Report) -> dict[str, int]:
    """What is not zero."""
    counts = {name: getattr(report["frames"], name) for name in ANOMALIES}
    problems = sum(len(task.problems) for task in report["frames"].tasks)
    return {name: count for name, count in (counts | {"problems": problems}).items() if count}


def delivered(batches: int = 2) -> World:
    """Six rows of two parts in each batch, and nothing of the third part."""
    world = World()
    for batch in range(batches):
        world.driver().deliver(batch)
        world.send(1)
    return world


def plant(world: World, *headers: str, topic: str = "out") -> None:
    """Rows that no slot wrote, committed."""
    session = world.broker.session("vandal")
    session.init(timeout_s=5)
    session.begin()
    session.produce([(topic, 0, None, b"x", [(HEADER, header.encode())], 0) for header in headers])
    session.flush()
    session.commit()


def test_publications_that_are_complete_are_verified() -> None:
    """Rows against the totals of each part; outputs and errors of all topics together."""
    report = look(delivered())

    assert (report.verdict, list(report.lines)) == ("not verifiable" if report.limits else "ok", [])
    found = report["frames"]
    assert (found.kind, found.steps, found.outputs, found.errors, found.messages) == ("dataframe", 24, 20, 4, 20)
    assert [task.task for task in found.tasks] == ["frames/0", "frames/1", "frames/2"]
    assert report.behind > 0, "a message came behind the last batch"


def test_what_is_published_in_full_leaves_nothing_behind() -> None:
    """`--complete`; and a reset in between changes nothing of it."""
    world = World()
    world.driver().deliver(0)
    assert look(world).complete

    tool(world).carry_out(reset(tool(world)))
    report = look(world)
    assert (report.verdict, wrong(report)) == ("ok", {})
    assert report.behind == sum(world.broker.watermarks([place])[place].stable for place in places())
    world.driver("second").deliver(0)
    report = look(world)
    assert (report.verdict, report.complete, report["frames"].steps) == ("ok", True, 24)


def places() -> list[TopicPartition]:
    """Of both inputs."""
    return [TopicPartition(name, p) for name, size in (("a", 2), ("b", 3)) for p in range(size)]


@pytest.mark.parametrize(
    ("headers", "found", "words"),
    [
        (["1 g.frames/0 1 - 2/6 -"], {"duplicated": 1, "out_of_order": 1}, "duplicated: row 2 of 6 of publication 1"),
        (["1 g.frames/1 1 - 0/7 -"], {"duplicated": 1, "out_of_order": 1}, "row 0 of 7 of publication 1"),
        (["1 g.frames/0 99 - 0/1 -"], {"ahead": 1}, "above its newest record 3: 1 rows"),
        (["1 g.frames/7 1 - 0/1 -"], {"unfounded": 1}, ""),
        (["1 g.frames/0 1 - 6/6 -"], {"unfounded": 1}, ""),
        (["1 g.frames/0 1 a:AAAAAAAAAAAAAAAAAAAAAA 0/1 3"], {"unfounded": 1}, ""),
        (["1 g.frames/0 2 - 0/1 -"], {"unfounded": 1}, "publication 2, whose record has none"),
    ],
)
def test_planted_rows_are_found(headers: list[str], found: dict[str, int], words: str) -> None:
    """Each kind, and no other."""
    world = delivered()
    plant(world, *headers)
    report = look(world)

    assert report.verdict == "WRONG"
    counts = wrong(report)
    assert counts | {"out_of_order": 0} == found | {"out_of_order": 0}
    assert words in "\n".join(report.lines)


def test_rows_that_are_missing_tear_a_publication() -> None:
    """Those of one output are not where they should be."""
    world = delivered(1)
    elsewhere = Output("a", 2, 1_000_000)
    world.target = replace(world.target, outputs=(world.target.outputs[0], elsewhere))
    world.driver().deliver(1)
    report = look(world)

    assert wrong(report) == {"torn": 2}
    assert "frames/0: torn: publication 3 has 4 of its 6 rows; missing: 1, 3" in list(report.lines)


def test_a_publication_of_which_nothing_is_there_is_lost() -> None:
    """Its record is, and its totals; also where compaction has taken the record, by the sums."""
    world = delivered(1)
    there = world.target
    world.target = replace(there, outputs=(Output("a", 2, 1_000_000),) * 2, errors=Output("b", 3, 1_000_000))
    world.driver().deliver(1)
    report = look(world)
    assert wrong(report) == {"lost": 12}
    assert "frames/1: lost: 6 rows of which nothing is there: publication 1 (6 rows)" in list(report.lines)

    world.target = there
    world.send(1)
    world.driver().deliver(2)
    world.broker.trim({TopicPartition("g.frames.backing", 1): 4})
    assert wrong(look(world)) == {"lost": 12}


def test_a_batch_that_is_announced_and_not_published_is_behind() -> None:
    """Its parts that are due, and what it takes; nothing of that is wrong."""
    world = delivered(1)
    _, announced = world.driver().announce(1)
    assert announced
    world.driver().publish(announced, 1, typical(1))
    report = look(world)

    assert wrong(report) == {}
    assert [task.behind > 0 for task in report["frames"].tasks] == [True, False, True]


def test_topics_without_provenance_are_not_verifiable() -> None:
    """Never "ok"."""
    topics = {**GRAPH.topics, "other": Topic(value=Raw(), partitions=2, provenance=False)}
    graph = Graph("g", *GRAPH.parts, errors="g.errors", topics=topics)
    world = World(graph)
    world.driver().deliver(0)
    report = look(world, graph)

    assert report.verdict == "not verifiable"
    assert "'other' has provenance=False" in "\n".join(report.lines)


def test_trimmed_outputs_are_not_called_lost() -> None:
    """They may have been there."""
    world = delivered()
    world.broker.trim({TopicPartition("out", 0): 2})
    report = look(world)

    assert (report.verdict, wrong(report)) == ("not verifiable", {})
    assert "is trimmed below offset 2" in "\n".join(report.lines)


def test_dataframes_that_never_ran_or_are_written_directly_are_named() -> None:
    """With the reason; what was asked for by name too."""
    report = look(World())
    assert (report.verdict, report.limits) == ("not verifiable", ("frames has no record yet, so it never started",))

    def same(value: Any) -> Any:
        return value

    plain = Processor(same, name="frames", inputs="a", outputs="out")
    tester = Tester(Graph("g", Source("a"), plain, topics={"a": Topic(value=Raw()), "out": Topic(value=Raw())}))
    tester.send("a", b"1")
    tester.run().stop()
    report = verify(GRAPH, tester.broker, processors=["frames"])
    assert (report.verdict, report.anomalies) == ("not verifiable", 0)
    assert any("DataFrames that are written directly" in line for line in report.lines)
    with pytest.raises(ConfigError, match="has no processor 'framez'; its processors are 'frames'"):
        verify(GRAPH, tester.broker, processors=["framez"])


def test_a_part_that_is_published_twice_is_a_problem() -> None:
    """Records of one publication in one slot: only another writer does that."""
    world = delivered(1)
    session = world.broker.session("g.frames.1")
    session.init(timeout_s=5)
    session.begin()
    again = replace(world.records(1)[-1], sequence=1, batch=Totals())
    session.produce([("g.frames.backing", 1, b"t", encode_record(again), [], 0)])
    session.flush()
    session.commit()

    assert "publication 0 is published a second time" in "\n".join(look(world).lines)


def test_a_publication_knows_which_of_its_rows_are_missing() -> None:
    """Over several pages; once complete it keeps nothing of them."""
    one = Publication(200_000)
    for row in range(200_000):
        if row not in (3, 70_000, 199_999):
            assert one.add(row)
    assert list(one.missing()) == [3, 70_000, 199_999]
    assert not one.add(4)
    assert [one.add(row) for row in (3, 70_000, 199_999)] == [True] * 3
    assert list(one.missing()) == []
    assert not one.add(3)


# Progress


def test_progress_follows_what_is_announced_and_published() -> None:
    """Behind is what no published batch has taken, and a part that is due; totals are rows."""
    world = World()
    with Progress(GRAPH, world.broker) as progress, Progress(GRAPH, world.broker, only=["frames"]) as asked:
        assert progress.behind() == [], "no worker runs it, as far as the group knows"
        assert set(asked.behind()) == set(places())
        world.driver().deliver(0)
        while len(progress.newest) < PARTS or progress.behind():
            progress.poll(0.2)
        assert progress.totals("frames").deliveries == 12

        _, announced = world.driver().announce(1)
        assert announced
        for part in (0, 2):
            world.driver().publish(announced, part, ())
        while progress.behind() != [TopicPartition("g.frames.backing", 1)]:
            progress.poll(0.2)
        world.driver().publish(announced, 1, ())
        while progress.behind():
            progress.poll(0.2)
