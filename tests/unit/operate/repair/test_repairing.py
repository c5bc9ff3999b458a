"""`errors`: which error messages are listed, asked for and settled, in memory (X1, Y2); and what is refused."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cues_kafka import (
    CommitPolicy,
    ConfigError,
    DataFrameProcessor,
    Errors,
    Graph,
    Json,
    Memory,
    Processor,
    Selection,
    Source,
    Step,
    Timers,
    Topic,
    repairs,
    start,
)
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.core.records import Attempt
from cues_kafka.errors import RecoveryError
from cues_kafka.operate.repair import ask as repairing
from cues_kafka.operate.repair.ask import Repairs
from cues_kafka.operate.repair.filed import FailureCause, Requested
from cues_kafka.plan.topics import CLOCKS_MS
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.bytes import encode_record
from cues_kafka.records.reading import read_record
from cues_kafka.testing.tester import Tester
from cues_kafka.verify.scan import verify


class Bug:
    """A function that fails until it is fixed."""

    def __init__(self) -> None:
        self.fixed = False

    def check(self, value: int, step: Step) -> int | None:
        if not self.fixed and value < 0:
            raise KeyError(value) if value < -9 else ValueError(f"{value} is negative")
        return abs(value) or None


def graph_of(fn: Callable[..., Any], *, name: str = "shop", errors: Any = "errors", **options: Any) -> Graph:
    """`in` to `out`."""
    given: dict[str, Any] = {"inputs": "in", "outputs": f"{name}.out", "name": "check"} | options
    return Graph(name, Source("in"), Processor(fn, **given), errors=errors, defaults=Topic(value=Json(), partitions=2))


def failed(bug: Bug, *values: int, **options: Any) -> Tester:
    """A graph that has left errors."""
    tester = Tester(graph_of(bug.check, **options))
    for value in values:
        tester.send("in", value, key="k")
    return tester.run()


def tool_of(tester: Tester) -> Repairs:
    """What asks."""
    return Repairs(tester.graph, tester.broker)


def counts(tool: Repairs, **options: Any) -> dict[tuple[str, str], int]:
    """Open ones by exception and kind."""
    return {(one.exception, one.kind): one.count for one in tool.causes(**options)}


def test_list_counts_by_cause() -> None:
    """The largest first, with the newest as an example."""
    tester = failed(Bug(), 1, -2, -3, -10)
    tester.broker.sender("x").send([("in", 0, b"k", b"{", None, 0)])
    tester.run()

    found = tool_of(tester).causes()
    assert (found[0].exception, found[0].kind, found[0].count) == ("ValueError", "raised", 2)
    assert {(one.exception, one.kind) for one in found} == {
        ("ValueError", "raised"),
        ("KeyError", "raised"),
        ("CodecError", "decode"),
    }
    assert found[0].text == "-3 is negative"
    assert found[0].first_ms <= found[0].last_ms
    shown = tool_of(tester).show(*_parts(found[0].example))
    assert (shown.message.text, shown.obstacle, shown.number) == ("-3 is negative", "", 1)


def test_cause_whose_error_messages_have_forged_times_has_an_example() -> None:
    """A time before 1970 counts as any other one; the newest is the example."""
    tool = tool_of(failed(Bug(), -2, -3))
    found = [*tool.find()]
    for times in ((-5, -7), (-7, -5), (-(2**62), 2**62)):
        cause = FailureCause("f", "ValueError", "raised")
        for one, at_ms in zip(found, times, strict=True):
            cause.add(replace(one, message=replace(one.message, timestamp_ms=at_ms)))
        newest = found[times.index(max(times))]
        assert (cause.first_ms, cause.last_ms) == (min(times), max(times))
        assert (cause.example, cause.text) == (str(newest), newest.message.text)


def _parts(where: str) -> tuple[str, int, int]:
    place, _, offset = where.partition("@")
    topic, _, partition = place.rpartition("/")
    return topic, int(partition), int(offset)


def test_filters_choose() -> None:
    """By class, by kind, by time, by processor, by place."""
    tester = failed(Bug(), -2, -10)
    first, second = sorted(tool_of(tester).find(), key=lambda one: one.offset)
    middle = second.message.timestamp_ms
    for wanted, expected in (
        (Selection(exception="KeyError"), [second]),
        (Selection(kind="decode"), []),
        (Selection(processor="check"), [first, second]),
        (Selection(since_ms=middle + 1), []),
        (Selection(until_ms=first.message.timestamp_ms), []),
        (Selection(places=frozenset({(first.topic, first.partition, first.offset)})), [first]),
    ):
        assert [str(one) for one in tool_of(tester).find(wanted)] == [str(one) for one in expected]


def test_replay_asks_each_once_and_waits_until_it_is_settled() -> None:
    """Run twice, also while the first requests are not settled yet; verify finds nothing."""
    bug = Bug()
    tester = failed(bug, 1, -2, -3, -10)
    tool = tool_of(tester)
    dry = tool.ask("replay", dry=True)
    assert (dry.asked, dry.before, counts(tool)) == (3, 0, {("ValueError", "raised"): 2, ("KeyError", "raised"): 1})

    with pytest.raises(ConfigError, match="limit=0: takes a number from 1 on"):
        tool.ask("replay", limit=0)
    first = tool.ask("replay", limit=2)
    again = tool.ask("replay")
    assert (first.asked, again.asked, again.before, again.settled) == (2, 1, 2, 0)
    assert tool.wait(again, timeout_s=0.0) is False
    assert len(again.open) == 3
    assert sum(one.asked for one in tool.causes()) == 3
    bug.fixed = True
    tester.run()
    assert tool.wait(again, timeout_s=5.0)
    assert not again.open
    assert again.outcomes == {"output": 3}

    assert sorted(tester.values("shop.out")) == [1, 2, 3, 10]
    assert counts(tool) == {}
    assert sum(one.settled for one in tool.causes(settled=True)) == 3
    last = tool.ask("replay")
    assert (last.asked, last.settled, last.waiting) == (0, 3, {})
    assert list(verify(tester.graph, tester.broker).lines) == []
    tool.close()


def test_replay_that_fails_again_can_be_replayed() -> None:
    """Its error message is open, and has the next number."""
    bug = Bug()
    tester = failed(bug, -2)
    tool = tool_of(tester)
    tool.ask("replay")
    tester.run()
    [one] = [one for one in tool.find() if one.settled is None]
    assert one.number == 2
    bug.fixed = True
    assert tool.ask("replay").asked == 1
    assert tester.run().values("shop.out") == [2]


def test_drop_settles() -> None:
    """Nothing is delivered, and a replay afterwards is not asked for."""
    bug = Bug()
    tester = failed(bug, -2, -10)
    tool = tool_of(tester)
    dropped = tool.ask("drop", Selection(exception="KeyError"))
    tester.run()
    assert tool.wait(dropped, timeout_s=5.0)
    assert dropped.outcomes == {"dropped": 1}
    bug.fixed = True
    assert (tool.ask("replay").asked, tool.ask("replay").settled) == (1, 1)
    assert tester.run().values("shop.out") == [2]


def test_many_are_sent_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, and progress is told up to the end."""
    monkeypatch.setattr(repairing, "CHUNK", 4)
    bug = Bug()
    tester = failed(bug, *range(-9, 0))
    told: list[tuple[int, int]] = []
    result = tool_of(tester).ask("replay", progress=lambda done, total: told.append((done, total)))
    bug.fixed = True

    assert result.asked == 9
    assert sorted(tester.run().values("shop.out")) == [*range(1, 10)]
    assert told == sorted(told)
    assert told[-1][0] <= told[-1][1]


def test_message_that_is_gone_is_refused_before_it_is_asked_for() -> None:
    """Unless its error message has kept all of it."""
    for errors, refused in (("errors", 1), (Errors("errors", payload=True), 0)):
        bug = Bug()
        tester = failed(bug, -2, errors=errors)
        [one] = tool_of(tester).find()
        place = one.message.consumed[0]
        tester.broker.trim({TopicPartition("in", place.partition): place.offset + 1})
        tool = tool_of(tester)
        result = tool.ask("replay", dry=True)
        assert (result.asked, result.refused.total()) == (1 - refused, refused)
        if refused:
            assert "payload=True" in next(iter(result.refused))
            with pytest.raises(ConfigError, match=r"cannot be replayed: its message is gone"):
                tool.ask("replay", Selection(places=frozenset({(one.topic, one.partition, one.offset)})))
            assert tool.ask("drop").asked == 1
        else:
            tool.ask("replay")
            bug.fixed = True
            assert tester.run().values("shop.out") == [2]


def test_redacted_payload_is_not_delivered() -> None:
    """It is not the message."""
    bug = Bug()
    tester = failed(bug, -2, errors=Errors("errors", payload=True, redact=("card",)))
    [one] = tool_of(tester).find()
    place = one.message.consumed[0]
    tester.broker.trim({TopicPartition("in", place.partition): place.offset + 1})

    [why] = tool_of(tester).ask("replay").refused
    assert "without redact=" in why


def test_timer_that_failed_is_not_replayed_as_a_message() -> None:
    """It can be dropped."""

    def fire(timer: Any) -> int:
        raise ValueError("no")

    def fn(value: int, step: Any) -> None:
        step.schedule("t", at=step.time_ms)

    graph = Graph(
        "shop",
        Source("in"),
        Processor(fn, inputs="in", outputs="out", name="check", state={"alarms": Timers(fire)}),
        errors="errors",
        defaults=Topic(value=Json(), partitions=1),
    )
    tester = Tester(graph)
    tester.send("in", 1)
    tester.send("in", 2)
    tester.run()
    tool = tool_of(tester)
    result = tool.ask("replay")

    assert (result.asked, result.refused.total()) == (0, len(tester.errors()))
    assert "a timer failed" in next(iter(result.refused))
    assert tool.ask("drop").asked == len(tester.errors())


def test_errors_of_another_graph_are_left_alone() -> None:
    """Counted, and refused by name."""
    bug = Bug()
    tester = failed(bug, -2)
    other = graph_of(bug.check, name="other")
    Tester(other, broker=tester.broker).run()
    found = [*tool_of(tester).find()]
    tool = Repairs(other, tester.broker)

    assert [one.message.graph for one in found] == ["shop"]
    assert [one.message.graph for one in tool.find()] == ["other"]
    assert tool.foreign == 1
    with pytest.raises(ConfigError, match=r"is of graph 'shop'. Give that graph"):
        tool.show(found[0].topic, found[0].partition, found[0].offset)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (Selection(processor="chck"), "has no processor 'chck'.*did you mean 'check'"),
        (Selection(kind="raise"), "there are no error messages of kind 'raise'"),
        (Selection(places=frozenset({("in", 0, 0)})), "'in' is not an errors topic of graph 'shop'"),
        (Selection(places=frozenset({("errors", 0, 99)})), "errors/0@99 is not there: "),
        (Selection(places=frozenset({("errors", 7, 0)})), "has no partition 7"),
        ({"processor": "check"}, r"error messages are chosen by a Selection\(\.\.\.\), such as"),
        (Selection(processor=5), r"Selection\(processor=5\): takes the name of a processor"),  # type: ignore[arg-type]
        (Selection(since_ms="2026"), "takes milliseconds since 1970"),  # type: ignore[arg-type]
        (Selection(places={"errors/0@1"}), r"takes a set of \(topic, partition, offset\)"),  # type: ignore[arg-type]
    ],
)
def test_what_is_not_there_is_refused(wanted: Selection, message: str) -> None:
    """With what there is, or what would do."""
    with pytest.raises(ConfigError, match=message):
        tool_of(failed(Bug(), -2)).ask("replay", wanted)


def test_wish_and_limit_that_mean_nothing_are_refused() -> None:
    """Before anything is written."""
    tool = tool_of(failed(Bug(), -2))
    with pytest.raises(ConfigError, match=r"limit='5': takes a number from 1 on"):
        tool.ask("replay", limit="5")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"ask\('replace'\): takes 'replay' or 'drop'"):
        tool.ask("replace")  # type: ignore[arg-type]
    assert tool.ask("replay", dry=True).before == 0


@pytest.mark.parametrize("strategy", ["at-least-once", "at-most-once"])
def test_other_strategies_are_refused_with_the_remedy(strategy: str) -> None:
    """By name; and without a name they are counted."""
    tool = tool_of(failed(Bug(), -2, strategy=strategy))

    with pytest.raises(ConfigError, match=f"check is {strategy}.*Declare strategy='exactly-once'"):
        tool.ask("replay", Selection(processor="check"))
    assert tool.ask("drop").refused.total() == 1


def test_errors_of_rows_that_are_written_directly_are_refused_with_the_remedy() -> None:
    """Only staged batches take requests: by name, and counted without a name; nothing is written."""
    tester = failed(Bug(), -2)
    frames = DataFrameProcessor(lambda frame: frame, inputs="in", outputs="shop.out", name="check")
    staged = Graph("shop", Source("in"), frames, errors="errors", defaults=Topic(value=Json(), partitions=2))
    tool = Repairs(staged, tester.broker)
    said = (
        "check writes DataFrames directly, and its batches take no requests: only staged ones do. Send the messages "
        "again, or declare a Processor with the same work"
    )

    for wish in ("replay", "drop"):
        with pytest.raises(ConfigError, match=re.escape(said)):
            tool.ask(wish, Selection(processor="check"))
        assert tool.ask(wish).refused == {said: 1}
    assert tester.messages("shop.check.replay") == []


def test_processor_that_is_gone_or_has_no_errors_topic_is_refused() -> None:
    """The graph was changed since."""
    tester = failed(Bug(), -2)
    kept = Processor(abs, inputs="in", outputs="kept", name="kept")
    renamed = Graph("shop", Source("in"), kept, errors="errors", defaults=Topic(value=Json(), partitions=2))
    Tester(renamed, broker=tester.broker)
    tool = Repairs(renamed, tester.broker)
    [why] = tool.ask("replay").refused
    assert "no longer has a processor 'check'" in why

    without = Graph(
        "shop", Source("in"), kept, Processor(abs, inputs="in", outputs="o", name="check", errors=False),
        errors="errors", defaults=Topic(value=Json(), partitions=2),
    )  # fmt: skip
    [why] = Repairs(without, tester.broker).ask("replay").refused
    assert "check no longer has an errors topic" in why
    with pytest.raises(ConfigError, match=r"has no errors topic, so it has no error messages"):
        Repairs(Graph("shop", Source("in"), kept), tester.broker)


def test_topics_that_are_not_there_are_named() -> None:
    """With the command that creates them."""
    graph = graph_of(Bug().check)
    with pytest.raises(ConfigError, match=r"'errors' does not exist on this cluster. Run `cues-kafka plan"):
        Repairs(graph, MemoryBroker())
    tester = failed(Bug(), -2)
    tester.broker.delete(["shop.check.replay"])
    with pytest.raises(ConfigError, match=r"'shop.check.replay' does not exist. Run `cues-kafka plan"):
        tool_of(tester).ask("replay", Selection(processor="check"))


def test_input_that_was_recreated_is_refused() -> None:
    """Its messages are others."""
    tester = failed(Bug(), -2)
    tester.broker.delete(["in"])
    tester.client.topic("in", Topic(value=Json(), partitions=2), create=True)

    [why] = tool_of(tester).ask("replay").refused
    assert "'in' was deleted or recreated since" in why


@pytest.mark.parametrize(("stamps", "read"), [("LogAppendTime", 2), ("CreateTime", 4)])
def test_time_spares_reading_what_was_stamped_long_before(stamps: str, read: int) -> None:
    """But only where brokers stamp the errors topic: else a message may have the time of what it is about."""
    bug = Bug()
    topics = {"errors": Topic(config={"message.timestamp.type": stamps}, partitions=2)}
    processor = Processor(bug.check, inputs="in", outputs="shop.out", name="check")
    tester = Tester(
        Graph(
            "shop", Source("in"), processor, errors="errors", topics=topics, defaults=Topic(value=Json(), partitions=2)
        )
    )
    tester.send("in", -2, key="k")
    tester.run()
    tester.clock.sleep(3 * CLOCKS_MS / 1000)
    tester.send("in", -3, key="k")
    tester.run()
    totals: set[int] = set()

    found = [*tool_of(tester).find(Selection(since_ms=1), progress=lambda _, total: totals.add(total))]
    assert (len(found), totals) == (2, {4})
    totals.clear()
    now_ms = int(tester.clock.time() * 1000)
    assert [*tool_of(tester).find(Selection(since_ms=now_ms), progress=lambda _, total: totals.add(total))] == []
    assert totals == {read}
    assert [*tool_of(tester).find(Selection(since_ms=2 * now_ms))] == []


def test_processor_whose_tasks_were_on_spark_takes_requests() -> None:
    """Where a plain processor runs makes no difference."""
    tester = failed(Bug(), -2)
    [one] = tool_of(tester).find()
    partition = one.message.consumed[0].partition
    newest = [
        m for m in tester.client.committed("shop.check.backing") if m.partition() == partition and m.key() == b"t"
    ]
    record = read_record(newest[-1])
    assert isinstance(record, Attempt)
    moved = replace(record, writer=replace(record.writer, runtime="spark"))
    tester.broker.sender("x").send([("shop.check.backing", partition, b"t", encode_record(moved), None, 0)])

    result = tool_of(tester).ask("replay")
    assert (result.asked, result.refused) == (1, {})


def test_running_graph_settles_what_a_program_asks_for() -> None:
    """With `repairs`, and the wait can be ended."""
    bug, memory = Bug(), Memory()
    graph = graph_of(bug.check)
    with start(graph, memory, policy=CommitPolicy()) as running, repairs(memory, graph) as tool:
        running.send("in", -2)
        running.wait_idle()
        ended = threading.Event()
        ended.set()
        assert not tool.wait(tool.ask("drop", Selection(kind="raised"), dry=True), timeout_s=60.0, ended=ended)
        bug.fixed = True
        result = tool.ask("replay")
        assert tool.wait(result, timeout_s=30.0)
        assert running.messages("shop.out")[0].value == 2


def test_wait_for_a_task_that_takes_no_requests_ends_with_the_reason() -> None:
    """Its function has lost its errors topic since the requests were sent."""
    tester = failed(Bug(), -2)
    with tool_of(tester) as tool, pytest.raises(RecoveryError, match=r"gone/0 takes no requests now: .*errors list"):
        tool.wait(Requested("replay", waiting={"gone/0": {b"key": "errors/0@0"}}), timeout_s=1)


def test_what_a_processor_settled_stays_settled_when_it_is_not_declared() -> None:
    """Its backing topic says so, until it is deleted; what it left open is open, and takes no request."""

    def refuse(_: int) -> int:
        raise ValueError("no")

    def graph_of(name: str) -> Graph:
        function = Processor(refuse, name=name, inputs="numbers", outputs="copies", start="latest")
        settings = Topic(value=Json(int), partitions=1)
        return Graph("r", Source("numbers"), function, defaults=settings, errors="r.errors")

    tester = Tester(graph_of("old"))
    tester.run()
    tester.send("numbers", 1)
    tester.send("numbers", 2)
    tester.run()
    with Repairs(tester.graph, tester.broker, clock=tester.clock) as repairs:
        repairs.ask("drop", limit=1)
    tester.run().stop()
    other = Tester(graph_of("new"), broker=tester.broker)
    other.run().stop()

    with Repairs(other.graph, tester.broker, clock=tester.clock) as repairs:
        assert [one.settled is not None for one in repairs.find()] == [True, False]
        assert sum(cause.count for cause in repairs.causes()) == 1
        assert sum(repairs.ask("replay").refused.values()) == 1
