"""Feeds in memory: deaths at every effect; sources that fail, refuse, or give what does not fit; what is shown."""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, get_args

import pytest

from cues_kafka import (
    Codec,
    ConfigError,
    Encoded,
    Feed,
    Files,
    Graph,
    GraphError,
    Interrupt,
    Iterate,
    Json,
    Memory,
    Message,
    Processor,
    RecoveryError,
    RetriableError,
    Source,
    SqlOutbox,
    TaskStopped,
    Topic,
    start,
)
from cues_kafka.brokers.memory import Faults, MemoryBroker
from cues_kafka.core.effects import Effect
from cues_kafka.core.records import Attempt
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.plan.plan import plan
from cues_kafka.running.starting import carried
from cues_kafka.testing.tester import Crash, Tester, VirtualClock
from cues_kafka.verify.scan import verify
from tests.fault.support import until


class Held:
    """Keeps what was called, and holds a read back until its part is released."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.entered, self.released = threading.Event(), threading.Event()

    def parts(self) -> int:
        """One."""
        return 1

    def read(self, part: int, place: str | None, limit: int) -> Iterable[tuple[Any, str]]:
        """One message; then its connection is closed."""
        self.calls.append("read")
        if place:
            raise ConnectionResetError("closed")
        return [(Message(1, key="1"), "1")]

    def committed(self, part: int, place: str) -> None:
        """It comes before the read that would connect again."""
        self.entered.set()
        self.released.wait(10)

    def release(self, part: int) -> None:
        """Another process may read."""
        self.calls.append("release")
        self.released.set()


def test_a_part_that_is_released_while_it_is_read_is_released_again_behind_the_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The read may have connected, and the connection would keep messages from the next process. Its end is no news."""
    source = Held()
    with start(Graph("g", Feed(source, into="in", poll_seconds=0.01)), Memory()):
        assert source.entered.wait(10)
    assert source.calls[-2:] == ["read", "release"]
    assert "does not answer" not in caplog.text


def numbers(place: str | None, end: int = 20) -> Iterator[tuple[Any, str]]:
    """Numbers from a place on."""
    for n in range(int(place or 0), end):
        yield Message(n, key=str(n)), str(n + 1)


def double(n: int) -> int:
    """A processor behind the feed."""
    return 2 * n


def graph_of(source: Any, **more: Any) -> Graph:
    """A feed and a processor behind it."""
    settings = {"defaults": Topic(value=Json(int), partitions=1), **more}
    return Graph(
        "g",
        Feed(source, into="ingress", name="feed", poll_seconds=600),
        Processor(double, inputs="ingress", outputs="doubles"),
        **settings,
    )


EFFECTS = [one.__name__ for one in get_args(Effect)]
REACHED = (
    *("Init", "FetchOffsets", "FetchWatermark", "ReadNewest", "FetchInputs", "FetchSibling", "AssignReader"),
    *("Begin", "SendOffsets", "Produce", "Flush", "Commit", "Call"),
)


@pytest.mark.parametrize("effect", REACHED)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_death_at_any_effect_loses_and_repeats_nothing(moment: str, effect: str) -> None:
    """Of the feed or of the processor behind it, whichever comes there first; each of the first four times."""
    assert effect in EFFECTS
    for nth in (1, 2, 3, 4):
        tester = Tester(graph_of(Iterate(numbers)), policy=CommitPolicy(max_messages=6))
        tester.run(crash=Crash(moment, effect, nth))
        tester.run()
        assert tester.values("ingress") == list(range(20))
        assert tester.values("doubles") == [2 * n for n in range(20)]
        report = verify(tester.graph, tester.broker)
        assert report.ok, "\n".join(report.lines)
        tester.stop()


def test_records_have_the_place_and_their_offsets_end_the_log() -> None:
    """G1, G2: the place of the last row; group offset, position and end of the backing topic are the same."""
    tester = Tester(graph_of(Iterate(numbers)), policy=CommitPolicy(max_messages=6))
    tester.run()
    from cues_kafka.ports.log import TopicPartition

    place = TopicPartition("g.feed.backing", 0)
    records = tester.records("feed")
    newest = records[-1]
    high = tester.broker.watermarks([place])[place].high
    assert isinstance(newest, Attempt)
    assert [r.place for r in records] == ["", "6", "12", "18", "20"]
    assert [p.offset for p in newest.positions] == [high]
    assert tester.broker.committed("g.feed", [place]) == {place: high}
    assert newest.totals.deliveries == newest.totals.outputs == newest.step == 20


def test_a_source_that_does_not_answer_is_asked_again_and_said(caplog: pytest.LogCaptureFixture) -> None:
    """At the start and in the middle of an iteration; what came before stays."""
    left = [3, 2]

    def flaky(place: str | None) -> Iterator[tuple[Any, str]]:
        if place is None and left[0]:
            left[0] -= 1
            raise ConnectionError("no route")
        for row in numbers(place):
            if row[1] == "9" and left[1]:
                left[1] -= 1
                raise RetriableError("it went away")
            yield row

    with caplog.at_level(logging.INFO, "cues_kafka"):
        tester = Tester(graph_of(Iterate(flaky))).run()

    assert tester.values("ingress") == list(range(20))
    assert left == [0, 0]
    assert sum("source does not answer" in line for line in caplog.messages) == 5
    assert sum("source answers again" in line for line in caplog.messages) == 2
    assert verify(tester.graph, tester.broker).ok


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RecoveryError("the file was replaced", remedy="put it back"), "the file was replaced. Remedy: put it back"),
        (ZeroDivisionError("by zero"), "the source raised behind place 9: ZeroDivisionError: by zero"),
        (Interrupt("enough"), "Interrupt: enough"),
    ],
)
def test_a_source_that_refuses_or_raises_stops_its_task_behind_what_it_gave(error: BaseException, said: str) -> None:
    """What came before is committed; the cause is named."""
    broken = [True]

    def raising(place: str | None) -> Iterator[tuple[Any, str]]:
        for row in numbers(place):
            if row[1] == "10" and broken[0]:
                raise error
            yield row

    tester = Tester(graph_of(Iterate(raising)))
    with pytest.raises((TaskStopped, type(error))) as stopped:
        tester.run()
    if isinstance(stopped.value, TaskStopped):
        assert said in str(stopped.value)
    assert tester.values("ingress") == list(range(9))
    broken[0] = False
    assert tester.run().values("ingress") == list(range(20))


def test_a_row_that_does_not_fit_becomes_an_error_message(tmp_path: Path) -> None:
    """With file, line and bytes; rows around it are not touched."""
    path = tmp_path / "a.jsonl"
    path.write_text("1\nnot json\n3\n")
    tester = Tester(graph_of(Files(path), errors="g.errors")).run()

    assert tester.values("ingress") == [1, 3]
    [error] = tester.errors()
    assert (error.processor, error.kind, error.payload, error.consumed) == ("feed", "decode", b"not json", ())
    assert error.context == {"place": "file 'a.jsonl', line 2"}
    report = verify(tester.graph, tester.broker)
    assert report.ok, "\n".join(report.lines)
    assert (report["feed"].outputs, report["feed"].errors) == (2, 1)


def test_without_an_errors_topic_the_task_stops_and_names_file_and_line(tmp_path: Path) -> None:
    """Until the line is corrected; nothing behind it is delivered before."""
    path = tmp_path / "a.jsonl"
    path.write_text("1\nnot json\n3\n")
    tester = Tester(graph_of(Files(path)))
    with pytest.raises(Exception, match="JSON"):
        tester.run()
    assert tester.values("ingress") == [1]
    running = start(graph_of(Files(path)), Memory(), timeout_s=None)
    with pytest.raises(TaskStopped, match=r"file 'a.jsonl', line 2 cannot be decoded as a message of 'ingress'"):
        running.wait_idle(timeout_s=20)
    assert running.messages("ingress")[0].value == 1
    running.stop()


def test_status_and_wait_idle_know_a_feed(tmp_path: Path) -> None:
    """It is idle where the source has no more; lines that come later are heard of."""
    path = tmp_path / "a.jsonl"
    path.write_text("1\n2\n")
    with start(graph_of(Files(path)), Memory()) as running:
        running.wait_idle(timeout_s=20)
        assert [m.value for m in running.messages("doubles")] == [2, 4]
        [feed] = [one for one in running.status().tasks if one.task == "feed/0"]
        assert feed.place == "file 'a.jsonl', line 2"
        assert "file 'a.jsonl', line 2" in str(feed)
        assert feed.totals.deliveries == 2
        with path.open("a") as opened:
            opened.write("3\n")
        running.wait_idle(timeout_s=20)
        assert [m.value for m in running.messages("doubles")] == [2, 4, 6]


def test_a_source_that_is_not_there_is_not_idle(tmp_path: Path) -> None:
    """`wait_idle` says why it waits."""
    with start(graph_of(Files(tmp_path / "later.jsonl")), Memory()) as running:
        with pytest.raises(TimeoutError, match=r"source does not answer for \d s: .*later\.jsonl"):
            running.wait_idle(timeout_s=0.5)
        (tmp_path / "later.jsonl").write_text("1\n")
        running.wait_idle(timeout_s=20)
        assert [m.value for m in running.messages("ingress")] == [1]


@dataclass(frozen=True)
class Told:
    """A source of a user's own, with what the runtime may call besides."""

    said: list[Any] = field(default_factory=list)

    def parts(self) -> int:
        """Two."""
        return 2

    def read(self, part: int, place: str | None, limit: int) -> Iterable[tuple[Message[Any], str]]:
        """Three numbers in each part."""
        self.said.append(("read", part, place))
        return [(Message(10 * part + n), str(n + 1)) for n in range(int(place or 0), 3)][:limit]

    def committed(self, part: int, place: str) -> None:
        """Note it."""
        self.said.append(("committed", part, place))

    def close(self) -> None:
        """Note it."""
        self.said.append("closed")


def test_a_source_is_told_what_is_committed_and_never_of_more() -> None:
    """In each part by itself; at the next start before anything is read."""
    source = Told()
    tester = Tester(graph_of(source), policy=CommitPolicy(max_messages=2)).run()
    assert sorted(tester.values("ingress")) == [0, 1, 2, 10, 11, 12]
    told = [one for one in source.said if one[0] == "committed"]
    assert ("committed", 0, "2") in told
    assert ("committed", 1, "2") in told
    for part in (0, 1):
        assert source.said.index(("committed", part, "2")) > source.said.index(("read", part, None))
    source.said.clear()
    tester.restart().run()
    first = [one for one in source.said if one[1] == 0]
    assert first[0] == ("committed", 0, "3")
    assert first[1] == ("read", 0, "3")
    tester.stop()
    assert source.said[-1] == "closed"


class AtLast(Told):
    """It is stopped while the commit of its rows is under way, and may raise from then on."""

    def __init__(self, *, away: bool) -> None:
        super().__init__()
        object.__setattr__(self, "away", away)

    def committed(self, part: int, place: str) -> None:
        """Note it, or raise."""
        super().committed(part, place)
        if self.away:  # type: ignore[attr-defined]
            raise ConnectionResetError("the broker is away")


@pytest.mark.parametrize("away", [False, True], ids=["there", "away"])
def test_a_source_is_told_of_the_last_commit_at_a_stop(caplog: pytest.LogCaptureFixture, away: bool) -> None:
    """Otherwise a broker keeps messages that are committed until the next start. If it is away, the stop goes on."""
    source, started, begun = AtLast(away=away), threading.Event(), threading.Event()

    def wait_for_the_stop(moment: str, effect: str) -> None:
        """Behind a commit, once rows are committed: a task commits a record without rows before."""
        if (moment, effect) != ("after", "Commit") or begun.is_set():
            return
        started.wait(20)
        if running.messages("ingress"):
            begun.set()
            [worker] = running._workers
            until(lambda: not worker.lanes, "the tasks are taken away")

    running = start(graph_of(source), Memory(), only=["feed"], hook=wait_for_the_stop, timeout_s=None)
    started.set()
    assert begun.wait(20)
    running.stop()
    assert ("committed", 0, "3") in source.said or ("committed", 1, "3") in source.said
    assert source.said[-1] == "closed"
    assert ("last commit not reported to the source" in caplog.text) == away


class AtCommit(Faults):
    """Asks the feed's worker to read on at each of its commits, which is then under way."""

    tester: Tester | None = None
    seen = 0

    def before(self, operation: str, client: str) -> None:
        """Read ahead."""
        if self.tester is not None and (operation, client) == ("commit", "g.feed.0"):
            self.seen += 1
            while self.tester._workers[0].call_once():
                pass


def test_a_source_is_not_told_of_rows_whose_commit_is_under_way() -> None:
    """They are read on behind, and the source may drop what it is told of."""
    faults = AtCommit()
    told: list[tuple[int, int]] = []

    @dataclass(frozen=True)
    class Dropping:
        def parts(self) -> int:
            return 1

        def read(self, part: int, place: str | None, limit: int) -> Iterable[tuple[Message[Any], str]]:
            return list(numbers(place, 30))[:limit]

        def committed(self, part: int, place: str) -> None:
            told.append((int(place), len(tester.values("ingress"))))

    graph = Graph("g", Feed(Dropping(), into="ingress", name="feed"), defaults=Topic(value=Json(int), partitions=1))
    broker = MemoryBroker(clock=VirtualClock(), faults=faults)
    tester = Tester(graph, broker=broker, policy=CommitPolicy(max_messages=4))
    faults.tester = tester
    tester.run()

    assert tester.values("ingress") == list(range(30))
    assert faults.seen > 6
    assert told
    assert [(place, committed) for place, committed in told if place > committed] == []


class AsleepAtCommit(Faults):
    """Notes at each commit whether the caller was woken since the records were written."""

    tester: Tester | None = None

    def __init__(self) -> None:
        self.woken: list[bool] = []

    def before(self, operation: str, client: str) -> None:
        """The caller goes to sleep before they are written."""
        if self.tester is not None and client == "g.feed.0":
            news = self.tester._workers[0]._news
            if operation == "produce":
                news.clear()
            elif operation == "commit":
                self.woken.append(news.is_set())


def test_a_commit_that_waits_has_the_next_rows_read() -> None:
    """What a source has ready wakes no thread, and a bridge would wait for each commit before it reads on."""
    faults = AsleepAtCommit()
    source = Iterate(partial(numbers, end=6))
    graph = Graph("g", Feed(source, into="ingress", name="feed"), defaults=Topic(value=Json(int), partitions=1))
    broker = MemoryBroker(clock=VirtualClock(), faults=faults)
    tester = faults.tester = Tester(graph, broker=broker, policy=CommitPolicy(max_messages=2))
    tester.run()
    assert tester.values("ingress") == list(range(6))
    assert faults.woken
    assert all(faults.woken)


class Unsure(Codec):
    """Asks something that does not answer when it meets the number 3 for the first time."""

    asked: ClassVar[list[int]] = []

    def encode(self, value: Any) -> bytes:
        """An outage, or text."""
        self.asked.append(value)
        if value == 3 and self.asked.count(3) == 1:
            raise RetriableError("the registry does not answer")
        return str(value).encode()

    def decode(self, data: bytes) -> Any:
        """A number."""
        return int(data)


def test_a_row_whose_codec_has_an_outage_is_read_again_and_not_skipped() -> None:
    """G1: a place is that of a row that is in the batch."""
    Unsure.asked.clear()
    feed = Feed(Iterate(numbers), into="ingress", name="feed")
    tester = Tester(Graph("g", feed, defaults=Topic(value=Unsure(), partitions=1)))
    tester.run()

    assert Unsure.asked.count(3) == 2
    assert tester.values("ingress") == list(range(20))


def test_a_source_that_gives_no_place_stops_the_task() -> None:
    """An empty place, one that is no text, and one that no record holds."""
    for wrong in ("", 3, "x" * 300_000):
        tester = Tester(graph_of(Iterate(lambda _, wrong=wrong: [(Message(1), wrong)])))
        with pytest.raises(TaskStopped, match="as a place"):
            tester.run()
        assert tester.values("ingress") == []


def test_messages_keep_key_headers_timestamp_and_partition() -> None:
    """What the source gives goes into the topic; encoded bytes are checked and written as they are."""
    given = [
        (Message(1, key="k", headers={"h": "v"}, timestamp_ms=1_700_000_000_000), "1"),
        (Message(2, partition=2), "2"),
        (Message(Encoded(b"3 "), key="e"), "3"),
    ]
    graph = graph_of(Iterate(lambda place: given[int(place or 0) :]), defaults=Topic(value=Json(int), partitions=3))
    tester = Tester(graph, only=["feed"]).run()

    found = {m.value: m for m in tester.messages("ingress")}
    assert (found[1].key, found[1].timestamp_ms) == ("k", 1_700_000_000_000)
    assert ("h", b"v") in found[1].headers
    assert found[2].partition == 2
    assert sorted(found) == [1, 2, 3]


def test_verify_finds_what_is_lost_doubled_or_made_up() -> None:
    """A row that another writes with a header of the feed, and one of which the records know nothing."""
    tester = Tester(graph_of(Iterate(numbers)), policy=CommitPolicy(max_messages=6)).run()
    assert verify(tester.graph, tester.broker).ok
    header = dict(tester.messages("ingress")[0].headers)["cues"] or b""
    made_up = header.replace(b" 1 - ", b" 99 - ")
    for given, count in ((header, "duplicated"), (made_up, "ahead")):
        sender = tester.broker.sender("other")
        sender.send([("ingress", 0, None, b"0", [("cues", given)], 0)])
        sender.close()
        report = verify(tester.graph, tester.broker)
        assert getattr(report["feed"], count) == 1, "\n".join(report.lines)
        assert any("of batch 1" in line for line in report.lines)


def test_a_plan_shows_feeds_with_level_names_and_rights() -> None:
    """And refuses another number of parts than the backing topic has."""
    graph = graph_of(Told(), errors="g.errors")
    planned = plan(graph)
    text = planned.text(topics=True, acls=True)
    level = "exactly once (source position stored with the messages)"
    assert f"feed    feed  2 tasks  Told -> ingress; {level}; errors: g.errors" in text
    assert "g.feed.0 .. g.feed.1" in text
    assert {"g.feed.backing": 2}.items() <= {topic.name: topic.partitions for topic in planned.create}.items()
    assert planned.to_dict()["feeds"][0]["level"] == "exactly once (source position stored with the messages)"
    needed = {(acl.resource, acl.name, acl.operation) for acl in planned.acls if acl.role == "worker"}
    assert {
        ("transactional-id", "g.feed.", "Write"),
        ("group", "g.feed", "Read"),
        ("topic", "g.feed.backing", "Read"),
        ("topic", "g.feed.backing", "Write"),
        ("topic", "ingress", "Write"),
        ("topic", "g.errors", "Write"),
    } <= needed
    tester = Tester(graph)
    tester.run().stop()
    one = graph_of(Iterate(numbers), errors="g.errors")
    assert any("has 1 part" in text for text in plan(one, tester.broker.facts(["g.feed.backing"])).refusals)


def test_a_feed_survives_being_written_down(tmp_path: Path) -> None:
    """Also merged and bound to other topics."""
    graph = Graph(
        "g",
        Source("orders"),
        Feed(Files(tmp_path / "*.log", tasks=2), into="ingress", commit=CommitPolicy(max_messages=7), poll_seconds=2),
        Feed(Iterate(numbers), into="orders", name="numbers", errors="own.errors"),
        errors="g.errors",
    )
    assert Graph.from_dict(json.loads(json.dumps(graph.to_dict()))) == graph
    assert graph.bind({"ingress": "other"}).feeds["files"].into == "other"
    merged = Graph("h", Source("x"), errors="h.errors").merge(graph)
    assert merged.errors_of(merged.feeds["files"]) == "g.errors"
    assert merged.errors_of(merged.feeds["numbers"]) == "own.errors"
    assert graph.topics_written() == ("g.errors", "ingress", "orders", "own.errors")


FEED: Any = Feed
"""So that a type checker lets wrong declarations pass."""


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: FEED("orders.jsonl", into="x"), "not a source"),
        (lambda: FEED(Files, into="x"), "not a source"),
        (lambda: Feed(Iterate(numbers), into="x.backing"), "only the framework writes"),
        (lambda: FEED(Iterate(numbers), into="x", parts=2), "its source has 1"),
        (lambda: FEED(Iterate(numbers), into="x", poll_seconds=0), "poll_seconds"),
        (lambda: FEED(Iterate(numbers), into="x", name="a.b"), "dot"),
        (lambda: FEED(Iterate(numbers), into="x", commit=3), "commit"),
        (lambda: Graph("g", Feed(Iterate(numbers), into="x"), Feed(Iterate(numbers), into="y")), "two processors or"),
        (lambda: Graph("g", Feed(Iterate(numbers), into="x"), cuts="1 day"), "outside of Kafka"),
        (lambda: Graph("g", Feed(Iterate(numbers), into="e"), errors="e"), "errors topic"),
    ],
)
def test_a_wrong_declaration_is_refused(make: Callable[[], Any], said: str) -> None:
    """With what to write."""
    with pytest.raises(GraphError, match=said):
        make()


class Elsewhere:
    """An engine that runs every processor."""

    runtime = "elsewhere"

    def refuses(self, graph: Graph, processor: Any) -> str:
        """Nothing."""
        del graph, processor
        return ""

    def check(self, graph: Graph, names: Any) -> None:
        """All is well."""

    def worker(self, job: Any) -> Any:
        """None is made here."""
        raise NotImplementedError(job)


def test_an_engine_runs_no_feed_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """The others run there; a feed that is asked for is refused, with where it runs."""
    graph = graph_of(Iterate(numbers))
    assert carried(graph, Elsewhere(), None) == ["double"]
    assert any("feed: it is a feed" in line for line in caplog.messages)
    with pytest.raises(ConfigError, match="run it natively"):
        carried(graph, Elsewhere(), ["feed"])


def test_rows_before_one_that_cannot_be_read_are_delivered(tmp_path: Path) -> None:
    """One wrong row held up the whole page of its query."""
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as made:
        made.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT, value TEXT, more TEXT)")
        made.executemany("INSERT INTO outbox (value, more) VALUES (?, ?)", [("1", None), ("2", "5"), ("3", None)])
    feed = Feed(SqlOutbox(f"sqlite:///{path}", headers="more"), into="news")
    tester = Tester(Graph("g", feed, defaults=Topic(value=Json())))

    with pytest.raises(RecoveryError, match="headers of row 2 of 'outbox' are '5'"):
        tester.run()
    assert tester.values("news") == [1]
