"""`rebuild` on the reference broker (X3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import (
    ConfigError,
    DataFrameProcessor,
    Graph,
    Handler,
    Interrupt,
    Json,
    Kafka,
    Message,
    Processor,
    RecoveryError,
    Source,
    State,
    StateHandler,
    Store,
    Table,
    TaskStopped,
    Timer,
    Timers,
    Topic,
)
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.brokers.murmur2 import partition_for
from cues_kafka.observe.refused import REFUSED
from cues_kafka.operate.move import calls
from cues_kafka.operate.move.rebuild import Rebuild
from cues_kafka.operate.move.rebuilt import Rebuilt
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import TopicPartition
from cues_kafka.state.expiring import Expiring
from cues_kafka.state.layers import ENTRY, MARK
from cues_kafka.task.gate import Gate
from cues_kafka.task.parts.stores import Storing
from cues_kafka.testing.tester import Crash, Tester
from cues_kafka.verify.scan import verify

WORDS = ("ann", "bob", "cy", "dan", "eve", "fay", "gus", "hal")


def count(word: str, counts: State[int]) -> int:
    """A pipe with a store."""
    counts[word] = counts.get(word, 0) + 1
    return counts[word]


def fixed(word: str, counts: State[int]) -> int:
    """The same, fixed: it counts by tens, not at all for one, and fails for another."""
    if word == "bob":
        raise ValueError("no bob")
    if word != "ann":
        counts[word] = counts.get(word, 0) + 10
    return counts.get(word, 0)


def graph_of(
    fn: Callable[..., Any] = count,
    *,
    partitions: int = 1,
    store: Any = None,
    config: Any = None,
    errors: str | None = "r.errors",
    partitioner: str = "murmur2",
    **options: Any,
) -> Graph:
    """Words are counted."""
    options = {"inputs": "words", "outputs": "numbers", "state": {"counts": store or Store(Json(int))}} | options
    return Graph(
        "r",
        Source("words"),
        Processor(fn, name="count", **options),
        defaults=Topic(value=Json(), partitions=partitions),
        topics={"words": Topic(value=Json(), partitions=partitions, partitioner=partitioner, config=config or {})},
        errors=errors,
    )


def ran(graph: Graph, *words: str) -> Tester:
    """These words were counted, and the worker has left."""
    tester = Tester(graph)
    send(tester, *words)
    tester.run()
    tester.stop()
    return tester


def send(tester: Tester, *words: str) -> None:
    """Send words, each with itself as its key."""
    for word in words:
        tester.clock.advance(1)
        tester.send("words", Message(word, key=word))


def rebuild(tester: Tester, graph: Graph, **options: Any) -> list[str]:
    """Run it as the command does."""
    lines = []
    with Rebuild(graph, tester.broker, "count", who="test", clock=tester.clock, **options) as tool:
        tool.hold()
        for group in tool.look():
            lines += [one.line for one in group]
            tool.write(group)
    return [*lines, *tool.notes]


def entries(tester: Tester, graph: Graph) -> dict[str, int]:
    """What a worker of this graph has in its stores."""
    after = Tester(graph, broker=tester.broker)
    found = after.run().state("counts")
    after.stop()
    return found


def test_a_fixed_function_makes_its_entries_again() -> None:
    """Entries are added, changed and removed; the task goes on where it stood, and sends nothing twice."""
    tester = ran(graph_of(), "ann", "bob", "cy", "cy", "ann", "dan")
    before, outputs = tester.records("count")[-1], tester.values("numbers")
    graph = graph_of(fixed)

    assert rebuild(tester, graph) == [
        "count/0: 6 calls, 1 raised; 2 entries: 0 added, 2 changed, 2 removed",
    ]

    newest = tester.records("count")[-1]
    assert (newest.step, newest.totals, newest.positions) == (before.step, before.totals, before.positions)
    assert newest.sequence == before.sequence + 1
    assert newest.writer.name == "test"
    assert entries(tester, graph) == {"cy": 20, "dan": 10}
    assert tester.values("numbers") == outputs
    send(tester, "cy", "eve")
    assert entries(tester, graph) == {"cy": 30, "dan": 10, "eve": 10}
    assert rebuild(tester, graph)[0] == "count/0: 8 calls, 1 raised; 3 entries: nothing changes"
    assert tester.records("count")[-1].writer.name != "test", "where nothing changes, nothing is written"


def test_a_look_changes_nothing() -> None:
    """Without `write` it only tells."""
    tester = ran(graph_of(), "ann", "cy")
    before = tester.records("count")
    with Rebuild(graph_of(fixed), tester.broker, "count", who="test", clock=tester.clock) as tool:
        [[one]] = tool.look()
        assert (one.calls, one.raised, one.entries, one.added, one.changed, one.removed) == (2, 0, 1, 0, 1, 1)
    assert tester.records("count") == before
    assert entries(tester, graph_of()) == {"ann": 1, "cy": 1}


def widened(tester: Tester, width: int) -> Tester:
    """The input got more partitions."""
    tester.broker.add_partitions("words", width)
    return tester


@pytest.mark.parametrize(("born", "width"), [(1, 2), (2, 3), (2, 4)])
def test_entries_follow_their_keys_into_added_partitions(born: int, width: int) -> None:
    """After it the graph runs as if the input had always had them; the sums are those of plain Python."""
    graph = graph_of(partitions=born)
    tester = widened(ran(graph, *WORDS, *WORDS, *WORDS[:3]), width)
    with pytest.raises(ConfigError, match=r"cues-kafka rebuild MODULE:GRAPH count"):
        Tester(graph, broker=tester.broker)

    lines = rebuild(tester, graph)

    assert sum(int(line.split()[1]) for line in lines) == 19
    after = Tester(graph, broker=tester.broker)
    for word in WORDS:
        after.send("words", Message(word, key=word))
    after.run()
    assert after.state("counts") == Counter([*WORDS, *WORDS, *WORDS[:3], *WORDS])
    for word in WORDS:
        place = partition_for(word.encode(), width)
        [worker] = after._workers
        held = [
            p
            for p, lane in worker.lanes.items()
            if (storing := lane.part(Storing)) and word in storing.stores.cache("counts").decoded()
        ]
        assert held == [place]
    after.stop()
    report = verify(graph, tester.broker, state=True)
    assert report.anomalies == 0, str(report)
    assert report["count"].not_recomputed == width
    assert "its input got more partitions since" in "\n".join(report.lines)


@pytest.mark.parametrize("step_ms", [1, -1])
def test_words_of_a_moved_key_are_taken_in_their_order(step_ms: int) -> None:
    """What stands in the old partition comes first, whatever the timestamps say."""

    def last(n: dict[str, Any], counts: State[int]) -> None:
        counts[n["word"]] = n["n"]

    graph = graph_of(last)
    tester = Tester(graph)
    for n in range(5):
        made_ms = 10**12 + n * step_ms
        tester.send("words", Message({"word": "ann", "n": n}, key="ann", timestamp_ms=made_ms))
    tester.run()
    tester.stop()
    width = next(w for w in range(2, 9) if partition_for(b"ann", w))
    widened(tester, width)
    rebuild(tester, graph)
    after = Tester(graph, broker=tester.broker)
    for n in range(5, 9):
        made_ms = 10**12 + n * step_ms
        after.send("words", Message({"word": "ann", "n": n}, key="ann", timestamp_ms=made_ms))
    assert after.run().state("counts") == {"ann": 8}
    after.stop()
    assert rebuild(tester, graph)[0].endswith("nothing changes")
    assert entries(tester, graph) == {"ann": 8}


EFFECTS = 11
"""Of one task that a tool moves, from `Init` to `Stop`."""


class Killed(BaseException):
    """The process ends here."""


class Death:
    """Ends the process before or after the nth effect of its transactions."""

    def __init__(self, moment: str, nth: int) -> None:
        self._left, self._moment, self.came = nth, moment, False

    def __call__(self, moment: str, effect: str) -> None:
        """See `Interpreter.point`."""
        if moment == self._moment:
            self._left -= 1
            if not self._left:
                self.came = True
                raise Killed(effect)


def refused_to_run(tester: Tester, graph: Graph) -> str | None:
    """Why a worker does not run."""
    try:
        entries(tester, graph)
    except (ConfigError, TaskStopped) as error:
        tester.broker.expire("r.count")
        return str(error)
    return None


@pytest.mark.parametrize(
    ("partitions", "moment"),
    [
        (1, "before"),
        (1, "after"),
        *(pytest.param(2, moment, marks=pytest.mark.full) for moment in ("before", "after")),
    ],
)
def test_a_rebuild_that_dies_leaves_old_or_new_entries_and_is_ended_by_the_next(moment: str, partitions: int) -> None:
    """At every effect. No task runs on entries of before while keys of its own are elsewhere."""
    deaths = refused = ran_ = 0
    while True:
        graph = graph_of(partitions=partitions)
        tester = ran(graph, *WORDS, *WORDS)
        if partitions > 1:
            widened(tester, 3)
        death, after = Death(moment, deaths + 1), graph_of(fixed, partitions=partitions)
        try:
            rebuild(tester, after, hook=death)
        except Killed:
            deaths += 1
        if not death.came:
            break
        new = {word: 20 for word in WORDS if word not in ("ann", "bob")}
        if (refusal := refused_to_run(tester, after)) is not None:
            refused += 1
            assert partitions > 1
            assert "cues-kafka rebuild" in refusal
        else:
            ran_ += 1
            assert entries(tester, after) in ([dict.fromkeys(WORDS, 2), new] if partitions == 1 else [new])
        rebuild(tester, after)
        assert entries(tester, after) == new
    assert deaths == (EFFECTS if partitions == 1 else 6 * EFFECTS)
    assert ran_
    assert (refused > EFFECTS) == (partitions > 1)


def on_top(tester: Tester) -> dict[bytes, bytes]:
    """The newest value of each key of the changelog, without what is deleted: what compaction leaves."""
    newest = {one.key(): one.value() for one in tester.client.committed("r.count.counts.changelog")}
    return {key: value for key, value in newest.items() if key is not None and value is not None}


@pytest.mark.parametrize("ttl", [None, "1 hour"])
def test_keys_that_no_task_writes_go(ttl: str | None) -> None:
    """What strangers wrote, with a form that no store has, and as a store with another kind of lifetime would."""
    graph = graph_of(store=Store(Json(int), ttl=ttl))
    tester = ran(graph, "ann", "bob", "ann")
    own = on_top(tester)
    foreign = [b"\x1b[2J", b"", b"zoo", b"e\xff" if ttl is None else b"k\xff"]
    entry = Expiring.entry if ttl is not None else ENTRY
    late = (1 << 50).to_bytes(8, "big") + b"7"  # with a lifetime, an entry that has not ended
    forged = [*((key, late) for key in (*foreign, entry + b"\xff", entry + b'"eve"')), (MARK, own[MARK])]
    topic = "r.count.counts.changelog"
    tester.broker.sender("stranger").send([(topic, 0, key, value, None, 0) for key, value in forged])

    [line, *_] = rebuild(tester, graph)

    assert line.endswith("0 added, 0 changed, 2 removed; 4 keys that no task writes removed"), line
    assert {key: value for key, value in on_top(tester).items() if key != MARK} == {
        key: value for key, value in own.items() if key != MARK
    }
    assert rebuild(tester, graph)[0].endswith("nothing changes")
    REFUSED.forget()
    REFUSED.forget()  # another test of this process may have met a record at the same place
    before = REFUSED.total
    again = tester.restart()
    send(again, "ann")
    again.run()
    assert again.values("numbers") == [1, 1, 2, 3]
    assert REFUSED.total == before + 3, "what is deleted is named no more than what compaction has not yet removed"


def test_store_may_get_another_kind_of_lifetime() -> None:
    """Its entries are made again with the new one, those of the old one are deleted, and the task goes on."""
    graph = graph_of(store=Store(Json(int), ttl="1 hour"))
    tester = ran(graph_of(), "ann", "bob", "ann")

    [line, *_] = rebuild(tester, graph)

    assert line.endswith("2 added, 0 changed, 0 removed; 2 keys that no task writes removed"), line
    again = Tester(graph, broker=tester.broker)
    send(again, "ann")
    again.run()
    assert again.values("numbers") == [1, 1, 2, 3]


def test_only_keys_of_strangers_are_a_change() -> None:
    """The entries are right, and the command writes all the same."""
    graph = graph_of()
    tester = ran(graph, "ann")
    tester.broker.sender("stranger").send([("r.count.counts.changelog", 0, b"zoo", b"x", None, 0)])

    [line, *_] = rebuild(tester, graph)

    assert line.endswith("1 entry: else nothing changes; 1 key that no task writes removed"), line
    assert b"zoo" not in on_top(tester)


def test_a_task_waits_until_the_rebuild_is_finished() -> None:
    """Its text says what to do, and another run does it."""
    graph = graph_of()
    tester = widened(ran(graph, *WORDS), 2)
    with pytest.raises(Killed):
        rebuild(tester, graph, hook=Death("after", 2 * EFFECTS + 1))
    with pytest.raises(
        TaskStopped,
        match=r"the rebuild of its stores is not finished.* run `cues-kafka rebuild MODULE:GRAPH PROCESSOR` again",
    ):
        entries(tester, graph)
    tester.broker.expire("r.count")
    rebuild(tester, graph)
    assert entries(tester, graph) == dict.fromkeys(WORDS, 1)


def test_entries_end_as_if_they_had_always_been_so() -> None:
    """The task's time is that of its messages; ended entries are deleted from the changelog, and count for nothing."""
    store = Store(Json(int), ttl="10 seconds")
    graph = graph_of(store=store)
    tester = Tester(graph)
    for word, timestamp_ms in (("ann", 1_000), ("bob", 5_000), ("cy", 12_000)):
        tester.send("words", Message(word, key=word, timestamp_ms=timestamp_ms))
    tester.run()
    tester.stop()
    assert rebuild(tester, graph) == ["count/0: 3 calls; 2 entries: nothing changes"]
    after = graph_of(fixed, store=store)
    assert rebuild(tester, after) == ["count/0: 3 calls, 1 raised; 1 entry: 0 added, 1 changed, 1 removed"]
    late = Tester(after, broker=tester.broker)
    late.send("words", Message("dan", key="dan", timestamp_ms=21_000))
    assert late.run().state("counts") == {"cy": 10, "dan": 10}
    late.send("words", Message("dan", key="dan", timestamp_ms=22_000))
    assert late.run().state("counts") == {"dan": 20}


def test_messages_of_alternative_inputs_are_taken_by_their_time() -> None:
    """The order in which the task took them is not kept."""

    def keep(words: str | None = None, others: str | None = None, *, counts: State[Any]) -> None:
        counts["all"] = [*counts.get("all", []), words or others]

    graph = Graph(
        "r",
        Source("words"),
        Source("others"),
        Processor(
            keep,
            name="count",
            alts={"words": "words", "others": "others"},
            outputs="numbers",
            state={"counts": Store(Json())},
        ),
        defaults=Topic(value=Json(), partitions=1),
    )
    tester = Tester(graph)
    for n, topic in enumerate(("words", "others", "words", "words", "others")):
        tester.clock.advance(1)
        tester.send(topic, str(n))
        tester.run()
    tester.stop()
    assert rebuild(tester, graph) == ["count/0: 5 calls; 1 entry: nothing changes"]


def test_messages_that_retention_took_are_named_and_left_out_on_demand() -> None:
    """Without them their entries would be gone without a word."""
    graph = graph_of()
    tester = ran(graph, "ann", "bob", "cy", "cy")
    tester.broker.trim({TopicPartition("words", 0): 2})
    with pytest.raises(RecoveryError, match=r"words/0: offsets \[0, 2\) are gone .* Add --allow-missing"):
        rebuild(tester, graph)
    assert rebuild(tester, graph, allow_missing=True) == [
        "count/0: 2 calls; 1 entry: 0 added, 0 changed, 2 removed",
        "words/0: offsets [0, 2) are gone from the input: entries that they made are not rebuilt",
    ]
    assert entries(tester, graph) == {"cy": 2}


def test_a_task_that_began_later_is_rebuilt_from_there() -> None:
    """Its first record says where; a time may say it, too."""
    graph = graph_of(start="latest")
    tester = Tester(graph, only=[])
    send(tester, "ann")
    late = Tester(graph, broker=tester.broker)
    late.run()
    send(late, "bob", "cy")
    late.run()
    late.stop()
    assert rebuild(tester, graph) == ["count/0: 2 calls; 2 entries: nothing changes"]
    assert rebuild(tester, graph, since="earliest")[0] == "count/0: 3 calls; 3 entries: 1 added, 0 changed, 0 removed"
    found = late.messages("words")
    at = "2001-09-09T01:46:40Z"
    assert rebuild(tester, graph, since=at)[0].startswith("count/0: "), found


def gone_wrong(tester: Tester, case: str) -> tuple[Graph, dict[str, Any]]:
    """Why a rebuild is refused."""
    graph, options = graph_of(), dict[str, Any]()
    if case == "worker":
        Tester(graph, broker=tester.broker).run()
    elif case == "announced":
        dead = Tester(graph, broker=tester.broker)
        send(dead, "ann")
        dead.run(crash=Crash("before", "Call"))
        assert dead.crashed
        tester.broker.expire("r.count")
    elif case == "recreated":
        tester.broker.delete(["words"])
        tester.broker.create([NewTopic("words", 1, 1, {})])
    elif case == "time":
        options = {"since": "yesterday"}
    return graph, options


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ("worker", r"group 'r\.count' has members \(.*\)\. Stop its workers first"),
        ("announced", r"count/0: a batch of 1 step was announced .* Run the worker until it is"),
        ("recreated", r"'words' was deleted and recreated, .* new name="),
        ("time", "--from yesterday: write earliest, or a time"),
    ],
)
def test_a_rebuild_that_cannot_be_right_is_refused(case: str, says: str) -> None:
    """The text names what to do, and nothing is written."""
    tester = ran(graph_of(), "ann")
    graph, options = gone_wrong(tester, case)
    before = tester.records("count")
    with pytest.raises((ConfigError, RecoveryError), match=says):
        rebuild(tester, graph, **options)
    assert tester.records("count") == before


class Kept(StateHandler):
    """It is never made."""

    def checkpoint(self) -> list[tuple[bytes, bytes | None]]:
        """Nothing."""
        return []

    def reset(self, entries: Any) -> None:
        """Nothing."""


def ring(timer: Timer) -> None:
    """Nothing is due here."""


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"state": {}}, "has no stores"),
        ({"outputs": None}, r"counts as a sink: .* add --pure"),
        ({"effects": True}, r"effects=True: .* add --pure"),
        ({"state": {"counts": Handler(Kept)}}, "has state handlers"),
        ({"tables": {"t": Table("table")}}, "looks things up in 't'"),
        ({"state": {"counts": Store(Json(int)), "due": Timers(ring)}}, "has timers"),
        ({"inputs": {"word": "words", "other": "others"}}, "is a join"),
    ],
)
def test_a_processor_whose_calls_say_too_little_is_refused(options: dict[str, Any], says: str) -> None:
    """Before the cluster is asked."""

    def fn(word: str, counts: Any = None, t: Any = None, other: Any = None) -> None: ...

    with pytest.raises(ConfigError, match=says):
        Rebuild(graph_of(fn, **options), MemoryBroker(), "count", who="test")


def test_a_processor_of_dataframes_and_an_unknown_one_are_refused() -> None:
    """Spark keeps the state of the one."""
    frame = DataFrameProcessor(lambda rows: rows, name="frame", inputs="words", outputs="numbers")
    graph = Graph("r", Source("words"), frame, defaults=Topic(value=Json()))
    with pytest.raises(ConfigError, match="Spark keeps its state"):
        Rebuild(graph, MemoryBroker(), "frame", who="test")
    with pytest.raises(ConfigError, match="has no processor 'fram'"):
        Rebuild(graph, MemoryBroker(), "fram", who="test")


def test_a_processor_that_never_ran_is_refused() -> None:
    """It has no place up to which it could be rebuilt."""
    graph = graph_of()
    with pytest.raises(ConfigError, match="never started on this cluster"):
        Rebuild(graph, MemoryBroker(), "count", who="test")
    tester = Tester(graph)
    with pytest.raises(ConfigError, match="it never ran"):
        rebuild(tester, graph)


def test_a_sink_is_called_again_where_that_does_no_harm() -> None:
    """As its user says."""

    def sink(word: str, counts: State[int]) -> None:
        counts[word] = 1

    graph = graph_of(sink, outputs=None)
    tester = ran(graph, "ann")
    assert rebuild(tester, graph, pure=True) == ["count/0: 1 call; 1 entry: nothing changes"]


def test_a_compacted_input_is_refused() -> None:
    """It does not hold the messages that made the entries."""
    graph = graph_of(config={"cleanup.policy": "compact"})
    tester = ran(graph, "ann")
    with pytest.raises(ConfigError, match="'words' is compacted"):
        rebuild(tester, graph)


def test_messages_that_are_not_delivered_in_a_partition_that_their_key_has_left_are_refused() -> None:
    """Their calls would find no entries, and the next rebuild is right again."""
    graph = graph_of()
    tester = ran(graph, *WORDS)
    send(tester, *WORDS)
    widened(tester, 2)
    moved = [word for word in WORDS if partition_for(word.encode(), 2)]
    with pytest.raises(
        RecoveryError, match=rf"{len(moved)} messages \({len(moved)} in words/0, from .* --allow-strays"
    ):
        rebuild(tester, graph)
    with pytest.raises(ConfigError, match="rebuild"):
        entries(tester, graph)
    assert "without the entries of their keys" in rebuild(tester, graph, allow_strays=True)[-1]
    entries(tester, graph)
    rebuild(tester, graph)
    assert entries(tester, graph) == dict.fromkeys(WORDS, 2)


@pytest.mark.parametrize("by_chance", [False, True])
def test_keys_that_another_partitioner_placed_are_refused(by_chance: bool) -> None:
    """It is not known where the next message of a key goes, even if a key is where murmur2 puts it, by chance."""
    graph = graph_of(partitions=2, partitioner="custom")
    tester = Tester(graph)
    word = next(word for word in WORDS if (partition_for(word.encode(), 2) == 1) is by_chance)
    tester.send("words", Message(word, key=word, partition=1))
    tester.run()
    tester.stop()
    widened(tester, 3)
    with pytest.raises(ConfigError, match=r"words/1 at 0: the declared partitioner \(custom\)"):
        rebuild(tester, graph)


def test_messages_without_keys_stay_with_their_tasks() -> None:
    """Their entries belong to the partition."""
    graph = graph_of(partitions=2)
    tester = Tester(graph)
    for partition, word in enumerate(("ann", "bob")):
        tester.send("words", Message(word, partition=partition))
    tester.run()
    tester.stop()
    lines = rebuild(widened(tester, 3), graph)
    assert [line.split(";")[1].split(":")[0] for line in lines] == [" 1 entry", " 1 entry", " 0 entries"]


def test_stores_of_tasks_and_stores_by_key_are_not_divided_together() -> None:
    """A call would change two tasks. Where all stores are of tasks, each task keeps its own."""
    both = {"counts": Store(Json(int)), "own": Store(Json(int), per_task=True)}

    def fn(word: str, counts: State[int], own: State[int]) -> int:
        counts[word] = own["n"] = own.get("n", 0) + 1
        return own["n"]

    graph = graph_of(fn, state=both)
    tester = widened(ran(graph, "ann"), 2)
    with pytest.raises(ConfigError, match="'own' is of a task"):
        rebuild(tester, graph)


def test_entries_of_a_changelog_that_is_gone_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker refuses to start on it, and names the command."""
    monkeypatch.setattr(calls, "LOST_S", 0.01)
    graph = graph_of()
    tester = ran(graph, "ann", "bob", "ann")
    tester.broker.delete(["r.count.counts.changelog"])
    monkeypatch.setattr(Gate, "wait", lambda _, seconds: None)
    with pytest.raises(TaskStopped, match="run `cues-kafka rebuild MODULE:GRAPH PROCESSOR`"):
        entries(tester, graph)
    tester.broker.expire("r.count")

    lines = rebuild(tester, graph)

    assert lines[0] == "count/0: 3 calls; 2 entries: 2 added, 0 changed, 0 removed"
    assert "has no entries, and the task's record says" in lines[1]
    assert entries(tester, graph) == {"ann": 2, "bob": 1}


def test_entries_on_disk_are_made_on_the_disk(tmp_path: Path) -> None:
    """Below the directory of the stores, and nothing of it is left."""
    store = Store(Json(int), on_disk=True)
    tester = ran(graph_of(store=store), *WORDS, "ann")
    facts = tester.broker.facts
    tester.broker.facts = lambda topics: replace(facts(topics), cluster_id="here")  # type: ignore[method-assign]
    after = graph_of(fixed, store=store)
    assert rebuild(tester, after, cluster=Kafka("localhost:1", state_dir=str(tmp_path))) == [
        "count/0: 9 calls, 1 raised; 6 entries: 0 added, 6 changed, 2 removed"
    ]
    assert [*(tmp_path / "here").iterdir()] == []
    assert entries(tester, after) == {word: 10 for word in WORDS if word not in ("ann", "bob")}


def test_a_transaction_that_would_last_too_long_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text names the setting."""
    tester, changes = ran(graph_of(), *WORDS), Rebuilt.changes
    before = tester.records("count")

    def slow(one: Rebuilt) -> Iterator[tuple[str, bytes, bytes | None]]:
        tester.clock.advance(31)
        yield from changes(one)

    monkeypatch.setattr(Rebuilt, "changes", slow)
    with pytest.raises(RecoveryError, match=r"than a transaction may last\. Raise transaction_timeout_s=30"):
        rebuild(tester, graph_of(fixed), cluster=Kafka("localhost:1", transaction_timeout_s=30.0))
    assert tester.records("count") == before
    assert entries(tester, graph_of()) == dict.fromkeys(WORDS, 1)


def test_functions_of_lists_and_without_an_errors_topic_are_called_as_ever() -> None:
    """A list in which one call raises is called one by one; a step that would stop the task changes nothing."""

    def many(words: list[str], counts: State[int]) -> list[int]:
        for word in words:
            counts[word] = counts.get(word, 0) + 1
        return [1 for _ in words]

    def strict(words: list[str], counts: State[int]) -> list[int]:
        if "bob" in words:
            raise ValueError("no bob")
        return many(words, counts)

    for errors in ("r.errors", None):
        graph, after = (graph_of(fn, batch=True, inputs={"words": "words"}, errors=errors) for fn in (many, strict))
        tester = ran(graph, *WORDS, "ann")
        assert rebuild(tester, after) == ["count/0: 9 calls, 1 raised; 7 entries: 0 added, 0 changed, 1 removed"]
        assert entries(tester, after) == {word: 1 + (word == "ann") for word in WORDS if word != "bob"}


def test_a_function_that_interrupts_ends_the_rebuild() -> None:
    """It asks to stop, and nothing was written."""

    def stopping(word: str, counts: State[int]) -> int:
        raise Interrupt("not now")

    tester = ran(graph_of(), "ann")
    before = tester.records("count")
    with pytest.raises(RecoveryError, match="words/0 at 0: Interrupt: not now"):
        rebuild(tester, graph_of(stopping))
    assert tester.records("count") == before


def test_record_that_is_gone_since_the_look_ends_the_command_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written in its place."""
    tester = ran(graph_of(), "ann", "cy")
    before = tester.records("count")
    with Rebuild(graph_of(fixed), tester.broker, "count", who="test", clock=tester.clock) as tool:
        tool.hold()
        [group] = tool.look()
        monkeypatch.setattr(tool, "settled", lambda _, **__: None)
        with pytest.raises(RecoveryError, match=r"count/0: its record is gone from 'r.count.backing'.*again"):
            tool.write(group)
    assert tester.records("count") == before
