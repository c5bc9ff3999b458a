"""What a task reads of its changelog where a process before has left a file: all that is new, or everything (R4b)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from cues_kafka import Graph, Json, Processor, Source, State, Store, TaskStopped, Topic
from cues_kafka.core import effects as do
from cues_kafka.ports.facts import ClusterFacts, TopicFacts, Watermarks
from cues_kafka.state import directory
from cues_kafka.state.entries import EntriesPlace
from cues_kafka.state.layers import Layers
from cues_kafka.state.on_disk import OnDisk
from cues_kafka.state.stores import Cache
from cues_kafka.task import restoring
from cues_kafka.task.restoring import Restoring
from cues_kafka.testing.tester import Crash, Tester

CHANGELOG = "g.count.counts.changelog"
RETENTION_S = restoring.RETENTION_MS / 1000


def count(word: str, counts: State[int]) -> int | None:
    """Counts words, and forgets one."""
    *what, name = word.split()
    if what:
        counts.pop(name, None)
        return None
    counts[name] = counts.get(name, 0) + 1
    return counts[name]


@pytest.fixture(params=[None, 100], ids=["no lifetime", "with a lifetime"])
def tester(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tester]:
    """Counts words in a file."""
    store = Store(Json(int), on_disk=True, ttl_messages=request.param)
    processor = Processor(count, inputs="in", outputs="out", state={"counts": store})
    tester = Tester(Graph("g", Source("in"), processor, defaults=Topic(value=Json())), state_dir=tmp_path / "a")
    yield tester
    tester.stop()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The keys of all messages that are read from the changelog."""
    keys: list[bytes] = []
    take = Restoring._take

    def taking(self: Restoring, one: Cache, found: Sequence[tuple[bytes, bytes | None]], behind: int | None) -> None:
        keys.extend(key for key, _ in found)
        take(self, one, found, behind)

    monkeypatch.setattr(Restoring, "_take", taking)
    return keys


def say(tester: Tester, *words: str) -> None:
    """Send words, and count them in one run of a process that ends in order."""
    for word in words:
        tester.send("in", word)
    tester.run().stop()


def state(tester: Tester) -> dict[str, int]:
    """The entries, as another start finds them."""
    tester.run()
    found: dict[str, int] = tester.state("counts")
    tester.stop()
    return found


def entries_in(read: list[bytes]) -> list[bytes]:
    """The keys of entries."""
    return [key[1:] for key in read if key[:1] in (b"k", b"e")]


def test_a_restart_reads_only_what_is_new(tester: Tester, read: list[bytes]) -> None:
    """Nothing, where the same machine had the task last."""
    say(tester, "a", "b")
    say(tester, "a")
    assert read == []
    assert state(tester) == {"a": 2, "b": 1}
    assert read == []


def test_a_file_that_is_behind_catches_up(tester: Tester, read: list[bytes], tmp_path: Path) -> None:
    """Another machine had the task meanwhile."""
    say(tester, "a", "b", "c")
    tester._state_dir = tmp_path / "b"
    say(tester, "a", "del b")
    read.clear()
    tester._state_dir = tmp_path / "a"
    assert state(tester) == {"a": 2, "c": 1}
    assert entries_in(read) == [b"a", b"b"]


def test_a_commit_whose_changes_are_not_in_the_file_is_read_from_the_changelog(
    tester: Tester, read: list[bytes]
) -> None:
    """The process dies in between."""
    say(tester, "a", "b")
    tester.send("in", "a")
    tester.run(crash=Crash("after", do.Commit.__name__, 2))  # the first one announces the step
    assert tester.crashed
    assert state(tester) == {"a": 2, "b": 1}
    assert entries_in(read) == [b"a"]


def place_of(tester: Tester, change: Callable[[EntriesPlace], EntriesPlace] = lambda place: place) -> EntriesPlace:
    """Where the file stands, changed in between."""
    assert tester._state_dir
    lifetime = tester.graph.processors["count"].state["counts"].lifetime
    entries = OnDisk(tester._state_dir / "g" / "count" / "counts" / "0", 2**20, width=lifetime and lifetime // 100)
    place = entries.open()
    assert place is not None
    entries.apply([(b"stale", bytes(8) + b"1")], change(place))
    entries.close()
    return place


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda place: place._replace(offset=10_000), "its position is 10000, and the changelog ends at"),
        (lambda place: place._replace(topic_id=b"x" * 16), "another topic of the same name"),
        (lambda place: place._replace(step=77), "it ends with step 77, and the task's record says 3"),
    ],
)
def test_a_file_that_does_not_fit_the_changelog_is_wiped(
    tester: Tester, change: Callable[[EntriesPlace], EntriesPlace], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It belongs to another log, or the log has lost messages."""
    say(tester, "a", "b", "a")
    place_of(tester, change)
    assert state(tester) == {"a": 2, "b": 1}
    assert why in caplog.text
    caplog.clear()
    assert state(tester) == {"a": 2, "b": 1}
    assert "wiped" not in caplog.text


def test_a_changelog_that_begins_behind_the_file_is_read_as_a_whole(tester: Tester, tmp_path: Path) -> None:
    """What was cut off may have deleted an entry."""
    found = restoring.ChangelogEnds(b"id", Watermarks(50, 90, 90), 0, restoring.RETENTION_MS)
    cache = Cache(None, Layers(), EntriesPlace(b"id", 40, 3, 0, 0), inherited=True)  # type: ignore[arg-type]
    assert restoring._unfit(cache, found) == "its position is 40, and the changelog begins at 50"


def another_machine_deletes(tester: Tester, tmp_path: Path, after_s: float) -> None:
    """An entry is deleted elsewhere; afterwards the changelog is compacted, and shows no trace of that."""
    say(tester, "a", "b")
    tester._state_dir = tmp_path / "b"
    tester.clock.advance(after_s)
    say(tester, "del a", "c")
    tester.broker.compact(CHANGELOG, tombstones=True)
    tester._state_dir = tmp_path / "a"


def test_an_entry_that_was_deleted_does_not_come_back(
    tester: Tester, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The message that deleted it is gone, as after delete.retention.ms."""
    another_machine_deletes(tester, tmp_path, 1)
    tester.clock.advance(RETENTION_S / 2)
    assert state(tester) == {"b": 1, "c": 1}
    assert "a deletion may be missed" in caplog.text


def test_the_brokers_timestamps_count_where_the_clock_was_set_back(
    tester: Tester, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The clock says that no time has passed."""
    another_machine_deletes(tester, tmp_path, RETENTION_S / 2 + 1)
    tester.clock._now -= RETENTION_S / 2
    assert state(tester) == {"b": 1, "c": 1}
    assert "behind it were read: a deletion may be missed" in caplog.text


def test_a_file_is_kept_for_half_of_the_retention_and_longer_where_nothing_is_new(
    tester: Tester, tmp_path: Path, read: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """A task without messages for a week is no reason to read everything."""
    say(tester, "a", "b")
    tester.clock.advance(7 * RETENTION_S)
    assert state(tester) == {"a": 1, "b": 1}
    assert read == []
    say(tester, "a")  # a commit proves that nothing came in between
    tester.clock.advance(RETENTION_S / 2 - 100)
    tester._state_dir = tmp_path / "b"
    say(tester, "b")
    read.clear()
    tester._state_dir = tmp_path / "a"
    assert state(tester) == {"a": 2, "b": 2}
    assert entries_in(read) == [b"b"]
    assert "wiped" not in caplog.text


def test_reading_what_is_new_proves_as_much_as_a_commit(
    tester: Tester, tmp_path: Path, read: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """Each time less than half of the retention has passed, though not in sum."""
    say(tester, "a")
    for word in ("b", "c"):
        tester.clock.advance(RETENTION_S * 0.4)
        tester._state_dir = tmp_path / "b"
        say(tester, word)
        read.clear()
        tester._state_dir = tmp_path / "a"
        assert state(tester)[word] == 1
        assert entries_in(read) == [word.encode()]
    assert "wiped" not in caplog.text


def test_without_the_right_to_read_settings_only_an_unchanged_changelog_will_do() -> None:
    """How long the cluster keeps deletions is not known."""
    topics = {"c": TopicFacts("c", b"id", 1, config={"delete.retention.ms": "1000"}), "d": TopicFacts("d", b"id", 1)}
    facts = ClusterFacts(1, topics, unchecked=("d",))
    assert restoring._retention_ms(facts, "c") == 1000
    assert restoring._retention_ms(facts, "d") is None
    cache = Cache(None, Layers(), EntriesPlace(b"id", 40, 3, 0, 0), inherited=True)  # type: ignore[arg-type]
    why = restoring._unfit(cache, restoring.ChangelogEnds(b"id", Watermarks(0, 90, 90), 0, None))
    assert why is not None
    assert "DescribeConfigs" in why
    assert restoring._unfit(cache, restoring.ChangelogEnds(b"id", Watermarks(0, 40, 40), 0, None)) is None


def test_a_store_may_be_moved_between_memory_and_disk(tester: Tester, tmp_path: Path) -> None:
    """What memory has committed meanwhile is read from the changelog."""
    say(tester, "a", "b")
    tester._state_dir = None
    say(tester, "a")
    tester._state_dir = tmp_path / "a"
    assert state(tester) == {"a": 2, "b": 1}


def test_what_cannot_be_written_stops_the_task_until_it_can(
    tester: Tester, monkeypatch: pytest.MonkeyPatch, read: list[bytes]
) -> None:
    """No entry is lost, and no step is called on entries that lack the one before."""
    say(tester, "a")
    apply = OnDisk.apply

    def full(self: OnDisk, changes: object, place: EntriesPlace | None) -> None:
        raise directory.failed(Path("/full"), OSError(28, "No space left on device"))

    tester.send("in", "a")
    tester.run()
    monkeypatch.setattr(OnDisk, "apply", full)
    tester.send("in", "a")
    tester.send("in", "b")
    with pytest.raises(TaskStopped, match="No space left on device"):
        tester.run()
    monkeypatch.setattr(OnDisk, "apply", apply)
    tester.restart()
    assert state(tester) == {"a": 3, "b": 1}
    assert tester.values("out") == [1, 2, 3, 1]


def test_a_file_that_breaks_under_a_function_stops_the_task_which_reads_everything_again(
    tester: Tester, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The message is no error message: it is called again."""
    say(tester, "a")
    get = OnDisk.get

    def broken(self: OnDisk, key: bytes) -> bytes | None:
        raise self._broken(OSError("page 7"))

    tester.run()
    monkeypatch.setattr(OnDisk, "get", broken)
    tester.send("in", "a")
    with pytest.raises(TaskStopped, match="read from the changelog again"):
        tester.run()
    monkeypatch.setattr(OnDisk, "get", get)
    tester.clock.advance(60)
    assert state(tester) == {"a": 2}
    assert "wiped" in caplog.text
    assert tester.values("out") == [1, 2]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "a flipped bit": lambda data: data.replace(b"ka\x00", b"kb\x00").replace(b"ka", b"kc"),
    "truncated": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "garbage": lambda data: data[::-1],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_read_from_the_changelog_with_one_line_in_the_log(
    tester: Tester, damage: str, read: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """The entries are those of before, and the next start finds them."""
    say(tester, "a", "b", "a")
    assert tester._state_dir
    [file] = tester._state_dir.rglob("entries")
    before = file.read_bytes()
    after = DAMAGES[damage](before)
    assert before != after
    file.write_bytes(after)
    caplog.clear()
    assert state(tester) == {"a": 2, "b": 1}
    assert {*entries_in(read)} == {b"a", b"b"}
    assert caplog.text.count("wiped") == 1
    read.clear()
    assert state(tester) == {"a": 2, "b": 1}
    assert read == []


def test_a_file_of_another_graph_is_wiped(tester: Tester, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It says whose it is."""
    say(tester, "a")
    store = Store(Json(int), on_disk=True, ttl_messages=tester.graph.processors["count"].state["counts"].lifetime)
    processor = Processor(count, inputs="others", outputs="counted", state={"counts": store})
    graph = Graph("h", Source("others"), processor, defaults=Topic(value=Json()))
    other = Tester(graph, broker=tester.broker, state_dir=tmp_path / "a")
    other.send_many("others", ["x", "y"])
    other.run().stop()
    [file] = (tmp_path / "a" / "h").rglob("entries")
    [into] = (tmp_path / "a" / "g").rglob("entries")
    for name in ("entries", "state.json"):
        shutil.copy(file.with_name(name), into.with_name(name))
    caplog.clear()
    assert state(tester) == {"a": 1}
    assert caplog.text.count("wiped") == 1
    assert "it is a copy of the file of 'a/h/count/counts/0'" in caplog.text


def test_two_graphs_and_two_partitions_have_files_of_their_own(tmp_path: Path) -> None:
    """The path names graph, processor, store and partition."""
    state = {"counts": Store(Json(int), on_disk=True), "seen": Store(Json(int))}

    def both(word: str, counts: State[int], seen: State[int]) -> None:
        counts[word] = seen[word] = 1

    processor = Processor(both, inputs="in", state=state)
    topics = {"in": Topic(value=Json(), partitions=2)}
    tester = Tester(Graph("h", Source("in"), processor, topics=topics), state_dir=tmp_path)
    say(tester, "a")
    assert sorted(str(one.parent.relative_to(tmp_path)) for one in tmp_path.rglob("entries")) == [
        "h/both/counts/0",
        "h/both/counts/1",
    ]
