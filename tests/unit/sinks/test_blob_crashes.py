"""E3: files of a store and messages of Kafka, compared through crashes at every effect; `file://` needs no server."""

from __future__ import annotations

import json
import resource
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from cues_kafka import (
    Blobs,
    CommitPolicy,
    ConfigError,
    ErrorMessages,
    Graph,
    GraphError,
    Json,
    OutputError,
    Processor,
    RetriableError,
    Sink,
    Source,
    Topic,
    files,
)
from cues_kafka.graph.targets import TaskName
from cues_kafka.ports.target import HeldAttempt
from cues_kafka.sinks.blobs import target as target_module
from cues_kafka.sinks.blobs.checks import probe
from cues_kafka.sinks.blobs.entries import CommitLog
from cues_kafka.sinks.blobs.marker import make_store
from cues_kafka.sinks.blobs.store import LocalStore
from cues_kafka.sinks.blobs.target import BlobTarget
from cues_kafka.testing.tester import Crash, Tester

EFFECTS = ("AskTarget", "Begin", "Call", "Commit", "CommitTarget", "Flush", "Init", "Produce", "SendOffsets")
QUICK = ("CommitTarget",)
MESSAGES = 20
SCHEMA = {"id": "int64", "text": "string"}


def store_pdf(order: dict[str, Any], blobs: Any) -> dict[str, Any]:
    """An object and a message that names it; every tenth order is refused after its object is put."""
    url = blobs.put("order.txt", order["text"].encode())
    if order["id"] % 10 == 3:
        raise ValueError("three")
    return {"id": order["id"], "url": url}


def graph_of(root: Path, kind: str) -> Graph:
    """One processor with a store."""
    store = Blobs(f"file://{root}")
    parts: Mapping[str, Processor] = {
        "put": Processor(store_pdf, name="p", inputs="orders", outputs="stored", effects={"blobs": store}),
        "jsonl": Sink("p", inputs="orders", into=store.json_lines("orders")),
        "parquet": Sink("p", inputs="orders", into=store.parquet("orders", schema=SCHEMA)),
    }
    return Graph("g", Source("orders"), parts[kind], errors="errors", defaults=Topic(partitions=2))


def sent(graph: Graph, messages: int = MESSAGES) -> Tester:
    """A tester with orders; the texts of some fit no column."""
    tester = Tester(graph, policy=CommitPolicy(max_messages=6))
    for i in range(messages):
        tester.send("orders", {"id": i, "text": f"order {i}"}, key=str(i % 5))
    return tester


def ids(root: Path, kind: str, tester: Tester) -> list[int]:
    """The orders that readers see, in the files that the manifest names."""
    if kind == "put":
        visible = {one.url: Path(one.url.removeprefix("file://")).read_text() for one in files(f"file://{root}", "")}
        told = tester.values("stored")
        assert {one["url"]: f"order {one['id']}" for one in told} == visible
        return sorted(one["id"] for one in told)
    found: list[int] = []
    for one in files(f"file://{root}", "orders"):
        path = Path(one.url.removeprefix("file://"))
        if kind == "jsonl":
            rows = [json.loads(line)["id"] for line in path.read_text().splitlines()]
        else:
            rows = pyarrow.parquet.read_table(path)["id"].to_pylist()
        assert len(rows) == one.rows
        assert path.stat().st_size == one.bytes
        assert one.first is not None
        assert one.last is not None
        assert one.last - one.first + 1 >= len(rows)
        found += rows
    return sorted(found)


def sweep_an_hour_later(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the next owner of each task does then. Uploads of a process that was not really killed have ended."""
    for one in threading.enumerate():
        if one.name.startswith("cues-files-"):
            one.join(10.0)
    with monkeypatch.context() as later:
        later.setattr(time, "time", lambda: 4e9)
        for partition in range(2):
            owner = opened(root, partition=partition)
            held = owner.newest()
            owner.ask(99, held.step if held else 0)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    ("kind", "effect"),
    [
        pytest.param(
            kind, effect, marks=() if effect in QUICK or (kind, effect) == ("put", "Call") else pytest.mark.full
        )
        for kind in ("put", "jsonl", "parquet")
        for effect in EFFECTS
    ],
)
def test_crash_at_any_effect_leaves_each_message_in_one_file(
    kind: str, effect: str, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files, messages and errors are those of a run without a crash, and what is void is deleted."""
    for nth in (1, 3):
        root = tmp_path / str(nth)
        tester = sent(graph_of(root, kind))
        tester.run(crash=Crash(moment, effect, nth))
        tester.restart().run()
        refused = [i for i in range(MESSAGES) if i % 10 == 3] if kind == "put" else []
        assert ids(root, kind, tester) == [i for i in range(MESSAGES) if i not in refused]
        assert len(tester.errors()) == len(refused)
        assert tester.totals("p").deliveries == MESSAGES
        tester.stop()
        sweep_an_hour_later(root, monkeypatch)
        listed = {one.url.removeprefix("file://") for one in files(f"file://{root}")}
        data = {str(one) for one in (root / "g.p").rglob("*") if one.is_file()}
        assert data == listed


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_value_that_does_not_fit_is_an_error_and_the_others_are_rows(kind: str, tmp_path: Path) -> None:
    """A tombstone, too."""
    tester = sent(graph_of(tmp_path, kind), 3)
    tester.send("orders", {"id": "x", "text": 7} if kind == "parquet" else None, key="1")
    tester.send("orders", None, key="2")
    tester.run()
    assert ids(tmp_path, kind, tester) == [0, 1, 2]
    texts = [one.text for one in tester.errors()]
    assert len(texts) == 2
    assert any("tombstone" in one for one in texts)
    assert kind == "jsonl" or any("does not fit the schema" in one for one in texts)


@dataclass(frozen=True)
class Flight:
    """A flat class."""

    id: int
    day: date
    gate: str | None = None


@dataclass(frozen=True)
class Nested:
    """A class that is not flat."""

    id: int
    legs: list[int]


def test_columns_are_the_fields_of_the_codec(tmp_path: Path) -> None:
    """Where no schema is declared; what has no column is refused before the start."""
    sink = Sink("p", inputs="a", into=Blobs(f"file://{tmp_path}").parquet("t"))
    tester = Tester(Graph("g", Source("a"), sink, topics={"a": Topic(value=Json(Flight))}))
    tester.send("a", Flight(1, date(2013, 1, 2)))
    tester.run()
    [file] = files(f"file://{tmp_path}", "t")
    table = pyarrow.parquet.read_table(file.url.removeprefix("file://"))
    assert table.to_pylist() == [{"id": 1, "day": date(2013, 1, 2), "gate": None}]
    for settings, why in ((Topic(value=Json(Nested)), "the field 'legs'"), (Topic(value=Json()), "no class")):
        with pytest.raises(ConfigError, match=why):
            Tester(Graph("g", Source("a"), sink, topics={"a": settings}))
    with pytest.raises(ConfigError, match="no class"):  # error messages are not flat
        Tester(Graph("g", Source("a"), sink, topics={"a": Topic(value=ErrorMessages())}))


def opened(root: Path, store: LocalStore | None = None, partition: int = 0) -> BlobTarget:
    """The target of a task, as each process that has the task opens it."""
    made = store or LocalStore(root)
    make_store(made)
    return BlobTarget(lambda: made, TaskName("g", "p", partition), {"blobs": Blobs(f"file://{root}")})


def attempt(base: int, step: int, owner: int) -> HeldAttempt:
    """An attempt."""
    return HeldAttempt(base, step, owner, "")


def put_one(target: BlobTarget, owner: int, step: int, *, awaited: bool = True) -> str:
    """Begin a batch, and put an object in it."""
    target.begin_batch(owner, step)
    target.mark()
    url = target.put("a", b"1")
    assert target.check() == ""
    target.rest()
    if awaited:
        target.in_use.puts[-1].upload.result()
    return url


def test_former_owner_is_refused_by_the_claim_of_the_next_one(tmp_path: Path) -> None:
    """A writer that was frozen before its commit commits nothing, and the next owner's entry stands."""
    former, owner = opened(tmp_path), opened(tmp_path)
    assert former.ask(1, 0) is None
    put_one(former, 1, 0)
    assert owner.ask(2, 0) == attempt(0, 0, 1)
    with pytest.raises(RetriableError, match="no longer the owner"):
        former.commit(attempt(0, 1, 1), [])
    url = put_one(owner, 2, 0)
    owner.commit(attempt(0, 2, 2), [])
    assert [one.url for one in files(f"file://{tmp_path}")] == [url]
    assert owner.newest() == attempt(0, 2, 2)


def test_question_of_a_former_owner_claims_nothing(tmp_path: Path) -> None:
    """The entry of the later one stays the newest, and that one commits."""
    former, owner = opened(tmp_path), opened(tmp_path)
    owner.ask(2, 0)

    assert former.ask(1, 0) == attempt(0, 0, 2)
    assert owner.newest() == attempt(0, 0, 2)
    url = put_one(owner, 2, 0)
    owner.commit(attempt(0, 1, 2), [])
    assert [one.url for one in files(f"file://{tmp_path}")] == [url]


def test_files_stay_where_an_operator_takes_the_steps_back(tmp_path: Path) -> None:
    """The entry of a tool is of a step that has committed files: nothing of it is swept."""
    owner, tool, later = opened(tmp_path), opened(tmp_path), opened(tmp_path)
    owner.ask(3, 0)
    url = put_one(owner, 3, 0)
    owner.commit(attempt(0, 1, 3), [])
    assert tool.settle(attempt(0, 0, 2), attempt(0, 1, 3))
    later.ask(4, 0)

    assert Path(url.removeprefix("file://")).exists()


def test_two_owners_race_for_one_entry_and_one_wins(tmp_path: Path) -> None:
    """Both have the same number, as two processes that have read the same record have."""
    for round_ in range(10):
        root = tmp_path / str(round_)
        pair = [opened(root), opened(root)]
        barrier = threading.Barrier(2)
        won: list[int] = []

        def run(number: int, pair: list[BlobTarget] = pair, barrier: Any = barrier, won: list[int] = won) -> None:
            barrier.wait()
            try:
                pair[number].ask(1, 0)
                put_one(pair[number], 1, 0)
                pair[number].commit(attempt(0, 1, 1), [])
                won.append(number)
            except RetriableError:
                pass

        threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert len(won) <= 1
        assert len(list(files(f"file://{root}"))) == len(won)


class Ambiguous(LocalStore):
    """A store whose next `create` is not answered; `late` puts it later."""

    lost: tuple[str, bytes] | None = None
    fails = False

    def create(self, path: str, data: bytes, *, after: str = "") -> bool:
        """See `BlobStore`."""
        if self.fails:
            self.fails, self.lost = False, (path, data)
            raise RetriableError("no answer", code="TARGET")
        return super().create(path, data, after=after)

    def late(self) -> bool:
        """The request arrives."""
        assert self.lost is not None
        return super().create(*self.lost)


@pytest.mark.parametrize("arrives", ["before the question", "after the question", "never"])
def test_put_without_an_answer_is_decided_by_the_next_question(arrives: str, tmp_path: Path) -> None:
    """It is the newest attempt, or it is refused for good."""
    store = Ambiguous(tmp_path)
    target = opened(tmp_path, store)
    target.ask(1, 0)
    put_one(target, 1, 0)
    store.fails = True
    with pytest.raises(RetriableError, match="no answer"):
        target.commit(attempt(0, 1, 1), [("t", 0, None, b"v", None, 0)])
    if arrives == "before the question":
        assert store.late()
    held = target.ask(2, 0)
    if arrives == "before the question":
        assert held == attempt(0, 1, 1)
        assert [one[3] for one in target.outbox()] == [b"v"]
        assert len(list(files(f"file://{tmp_path}"))) == 1
        return
    assert held == attempt(0, 0, 1)
    if arrives == "after the question":
        assert not store.late()
    assert list(files(f"file://{tmp_path}")) == []
    put_one(target, 2, 0)
    target.commit(attempt(0, 1, 2), [])
    assert len(list(files(f"file://{tmp_path}"))) == 1


def test_late_upload_of_a_former_owner_is_swept_and_the_winner_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once what is there, and once more later what came meanwhile; the list travels from entry to entry."""
    former = opened(tmp_path)
    former.ask(1, 0)
    kept = put_one(former, 1, 0)
    former.commit(attempt(0, 1, 1), [])
    void = put_one(former, 1, 1)
    late = tmp_path / "g.p" / "0" / f"{0:020d}-1" / "zombie" / "b"
    owner = opened(tmp_path)
    owner.ask(2, 1)
    assert not Path(void.removeprefix("file://")).exists()
    late.parent.mkdir(parents=True)
    late.write_bytes(b"late")
    put_one(owner, 2, 1)
    owner.commit(attempt(1, 2, 2), [])
    monkeypatch.setattr(time, "time", lambda: 4e9)
    third = opened(tmp_path)
    third.ask(3, 2)
    assert not late.exists()
    assert Path(kept.removeprefix("file://")).exists()
    assert len(list(files(f"file://{tmp_path}"))) == 2
    newest = CommitLog(LocalStore(tmp_path), "g.p/0").newest()
    assert newest is not None
    assert [one.path for one in newest[1].sweeps if one.due < 4e9] != []


def test_sweep_of_a_frozen_owner_leaves_what_later_owners_committed(tmp_path: Path) -> None:
    """An owner that goes on after its question, and is a former one by then, deletes nothing of the winner."""
    first, frozen, winner = opened(tmp_path), opened(tmp_path), opened(tmp_path)
    first.ask(1, 0)
    put_one(first, 1, 0)
    sweeping = frozen._sweeping
    sweeping.sweep_all = lambda owner, fresh=(): None  # type: ignore[method-assign]
    frozen.ask(2, 0)
    winner.ask(3, 0)
    url = put_one(winner, 3, 0)
    winner.commit(attempt(0, 1, 3), [("t", 0, None, b"v", None, 0)])
    del sweeping.sweep_all
    sweeping.sweep_all(2, list(sweeping.left))
    assert Path(url.removeprefix("file://")).exists()
    assert [one[3] for one in winner.outbox()] == [b"v"]


def test_batch_of_more_than_half_an_hour_commits_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So an upload that lands after the last sweep began in a process that was frozen within one request."""
    target = opened(tmp_path)
    target.ask(1, 0)
    put_one(target, 1, 0)
    begun = target_module.boot_time()
    monkeypatch.setattr(target_module, "boot_time", lambda: begun + 1900)
    with pytest.raises(RetriableError, match="1800 s ago"):
        target.commit(attempt(0, 1, 1), [])
    assert list(files(f"file://{tmp_path}")) == []


def test_file_that_the_system_refuses_to_write_is_an_outage(tmp_path: Path) -> None:
    """A limit of the process stands for a full disk. Nothing of the file stays."""
    target = opened(tmp_path)
    target.ask(1, 0)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
    try:
        target.begin_batch(1, 0)
        target.mark()
        target.put("large", b"x" * 2_000_000)
        with pytest.raises(RetriableError, match=r"does not write .*File too large"):
            target.commit(attempt(0, 1, 1), [])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    target.close()
    assert LocalStore(tmp_path).below("g.p") == []
    assert list(files(f"file://{tmp_path}")) == []


class Full(LocalStore):
    """A store that fails for a while."""

    full = False

    def put(self, path: str, data: bytes | Path) -> None:
        """See `BlobStore`."""
        if self.full:
            raise RetriableError("the store does not write: No space left on device", code="TARGET")
        super().put(path, data)


def test_failed_upload_is_an_outage_of_the_batch(tmp_path: Path) -> None:
    """The entry is not put before all uploads have ended, and the batch is called again."""
    store = Full(tmp_path)
    target = opened(tmp_path, store)
    target.ask(1, 0)
    store.full = True
    put_one(target, 1, 0, awaited=False)
    with pytest.raises(RetriableError, match="No space left"):
        target.commit(attempt(0, 1, 1), [])
    store.full = False
    assert list(files(f"file://{tmp_path}")) == []
    assert target.ask(2, 0) == attempt(0, 0, 1)
    put_one(target, 2, 0)
    target.commit(attempt(0, 1, 2), [])
    assert len(list(files(f"file://{tmp_path}"))) == 1


def test_operator_says_where_the_store_stands(tmp_path: Path) -> None:
    """Only where nothing has changed meanwhile. Files stay, and smaller owners are refused."""
    target = opened(tmp_path)
    target.ask(3, 0)
    url = put_one(target, 3, 0)
    target.commit(attempt(0, 1, 3), [("t", 0, None, b"v", None, 0)])
    tool = opened(tmp_path)
    assert not tool.settle(attempt(5, 5, 4), None)
    assert tool.settle(attempt(5, 5, 2), attempt(0, 1, 3))
    assert tool.newest() == attempt(5, 5, 3)
    assert list(tool.outbox()) == []
    assert [one.url for one in files(f"file://{tmp_path}")] == [url]
    assert tool.ask(4, 7) == attempt(5, 5, 3)
    with pytest.raises(RetriableError, match="and asks again"):
        tool.begin_batch(4, 7)


class Overwriting(LocalStore):
    """A store that ignores the condition, as old copies of S3 do."""

    def create(self, path: str, data: bytes, *, after: str = "") -> bool:
        """See `BlobStore`."""
        del after
        self.put(path, data)
        return True


def test_store_that_overwrites_is_refused(tmp_path: Path) -> None:
    """With the remedy; a good one leaves nothing behind."""
    assert "Use a store that has it" in probe(Overwriting(tmp_path))
    assert probe(LocalStore(tmp_path)) == ""
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == []


@pytest.mark.parametrize("name", ["", "/a", "a/../b", "a//b", "a/", "./a", "a\\b", "a\nb", "a?b", 7])
def test_name_that_leaves_the_directory_is_refused(name: Any, tmp_path: Path) -> None:
    """As an error of the message."""
    target = opened(tmp_path)
    target.ask(1, 0)
    target.begin_batch(1, 0)
    target.mark()
    with pytest.raises(OutputError, match="cannot be the name of an object"):
        target.put(name, b"")


def test_declarations_are_checked_and_written_down_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options and addresses are in no text."""
    for bad in ("x", "ftp://a/b", "file://relative/a", "file:///", "s3://k:secret@b/a", "s3://b/a?x=1"):
        with pytest.raises(GraphError) as caught:
            Blobs(bad)
        assert "secret" not in str(caught.value)
    store = Blobs(env="FILES")
    graph = Graph("g", Source("a"), Sink("s", inputs="a", into=store.parquet("t", schema=SCHEMA)))
    assert Graph.from_dict(graph.to_dict()) == graph
    assert repr(Blobs("s3://bucket/a", options={"secret": "hunter22"})) == "Blobs(s3)"
    with pytest.raises(GraphError, match="cannot be written down"):
        Graph("g", Source("a"), Sink("s", inputs="a", into=Blobs("file:///a").json_lines("t"))).to_dict()
    with pytest.raises(GraphError, match="name the type of each field"):
        store.parquet("t", schema={})
