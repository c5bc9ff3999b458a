"""Where a staged query begins to read."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from cues_kafka.core.records import Extent, Staged
from cues_kafka.core.staged import RESET
from cues_kafka.errors import ConfigError
from cues_kafka.on_spark.query.plans import addressed
from cues_kafka.on_spark.staged import batch as staged
from cues_kafka.on_spark.staged import extents
from cues_kafka.on_spark.staged.batch import StagedBatch
from cues_kafka.on_spark.staged.extents import begun, extents_of
from cues_kafka.on_spark.staged.manifest import Chunk
from cues_kafka.on_spark.staged.publish import PublishFiles
from cues_kafka.on_spark.staged.run import start_of
from cues_kafka.on_spark.staged.target import OutputTopics
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.extents import offsets_of


def batch(number: int, *, query: str = "mine", start: str = '{"orders":{"0":1000}}') -> Staged:
    """The newest record's; it took [1000, 1010), and something of a source that is no topic."""
    extents = (Extent("orders", b"id", start, '{"orders":{"0":1010}}'), Extent("1", b"", "", '{"logOffset":3}'))
    return Staged(query=query, batch=number, attempt="a", checksum=b"c", parts=1, extents=extents)


@pytest.mark.parametrize(
    ("newest", "committed", "offset"),
    [
        (batch(0), [], 1_000),
        (batch(0), ["0"], 1_010),
        (batch(7), ["6"], 1_000),
        (batch(3, query="another"), [], 1_010),
        (batch(RESET, query="another"), [], 1_010),
        (batch(0, start=""), [], None),
    ],
    ids=["batch 0 comes again", "it is over", "a later one comes again", "another query", "a reset", "not known"],
)
def test_a_batch_that_comes_again_begins_where_it_was_announced(
    newest: Staged, committed: list[str], offset: int | None
) -> None:
    """Not where the log begins by now, nor where this process has got to: the state would be of other rows."""
    assert begun(newest, "mine", committed) == ({} if offset is None else {TopicPartition("orders", 0): offset})


def test_partitions_that_an_input_was_given_are_not_in_its_start() -> None:
    """So a batch begins exactly where the newest record says, though a new query reads the new partition too."""
    known = {TopicPartition("orders", 0): 5}
    assert start_of("orders", (5, 0), known) == '{"orders":{"0":5}}'
    assert start_of("orders", (5, 0), {}) == '{"orders":{"0":5,"1":0}}'


def test_a_source_without_an_offset_yet_goes_on_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch begins exactly where the one before it ended, in every source."""
    log = {0: [{"logOffset": 0}, None], 1: [{"logOffset": 1}, None], 2: [{"logOffset": 1}, {"logOffset": 0}]}
    monkeypatch.setattr(extents, "source_ends", lambda _, __, number: log[number])
    batches = [
        extents_of(None, "", number, names=lambda place, _: (str(place), b""), first={"0": "{}"}) for number in log
    ]
    assert batches[0] == (Extent("0", b"", "{}", '{"logOffset":0}'), Extent("1", b"", "", ""))
    for before, after in pairwise(batches):
        assert [extent.start for extent in after] == [extent.end for extent in before]


def test_offsets_go_to_the_group_for_topics_that_are_on_this_cluster() -> None:
    """A source of any number of topics says which of them are."""
    start = '{"a":{"0":5},"gone":{"0":7}}'
    assert offsets_of(Extent("0", b'{"a":"0102030405060708"}', start, ""), start) == {TopicPartition("a", 0): 5}
    assert offsets_of(Extent("0", b"", start, ""), start) == {}
    assert len(offsets_of(Extent("orders", bytes(16), start, ""), start)) == 2


def test_files_that_cannot_be_deleted_are_left_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """They are in no batch's way, and the batch is out."""

    def refused(*_: Any) -> None:
        raise Py4JError("Caused by: java.nio.file.AccessDeniedException: AccessDenied: no right to delete")

    with caplog.at_level("WARNING"):
        staged.tidy(refused, batch(3))
    assert "staged files left" in caplog.text
    assert "no right to delete" in caplog.text


def test_small_batches_that_turn_out_large_are_foreseen_less_and_less() -> None:
    """One batch is enough at first, then four in a row, then sixteen; one without rows says nothing."""
    whole: Any = StagedBatch(SimpleNamespace(into=OutputTopics()), lambda _, __: (), "")  # type: ignore[arg-type]
    few, none = SimpleNamespace(rows=1, few=True), SimpleNamespace(rows=0, few=False)

    def behind(manifest: Any, *, twice: bool = False) -> bool:
        whole._learn(SimpleNamespace(computed_twice=twice, is_small=lambda one: one.few), manifest)
        return bool(whole._expects_small)

    seen = []
    for _ in range(3):
        rounds = 0
        while not whole._expects_small:
            assert not behind(none)
            behind(few)
            rounds += 1
        seen.append(rounds)
        assert not behind(SimpleNamespace(rows=9, few=False), twice=True)
    assert seen == [1, 4, 16]


def test_a_staged_file_that_only_the_driver_sees_is_named_with_what_to_do(tmp_path: Path) -> None:
    """It was not altered: to restore it would not help."""
    chunks = {1: (Chunk(1, 0, 1, 0, "", 0),)}
    work: Any = None
    publish = PublishFiles(work, batch(3), chunks, [tmp_path / "few.parquet"])
    with pytest.raises(ConfigError, match=r"few\.parquet.*the Spark task that publishes it does not.*all executors"):
        next(publish._coming(1))


@pytest.mark.parametrize(
    ("sources", "here"),
    [
        ([{"kafka.bootstrap.servers": "b:9092, a:9092"}, {}], True),
        ([{"kafka.bootstrap.servers": "c:9092"}], False),
        ([{"kafka.bootstrap.servers": "a:9092"}, {"kafka.bootstrap.servers": "c:9092"}], False),
        ([], True),
    ],
    ids=["an address in common, and files", "another cluster", "one of each", "no topic at all"],
)
def test_a_source_is_on_this_cluster_where_an_address_says_so(sources: list[dict[str, str]], *, here: bool) -> None:
    """A cluster that is mirrored has topics of the same names."""
    leaves = [
        SimpleNamespace(nodeName=lambda: "StreamingRelationV2", extraOptions=lambda own=own: own) for own in sources
    ]
    leaves.append(SimpleNamespace(nodeName=lambda: "LocalRelation"))  # a table that is joined to them
    plan = SimpleNamespace(collectLeaves=lambda: SimpleNamespace(size=lambda: len(leaves), apply=leaves.__getitem__))
    frame = SimpleNamespace(_jdf=SimpleNamespace(queryExecution=lambda: SimpleNamespace(analyzed=lambda: plan)))
    assert addressed(frame, "a:9092,d:9092") is here


@pytest.mark.parametrize(
    ("newest", "stateless", "prepared"),
    [
        (batch(3), True, True),
        (batch(3), False, False),
        (batch(2), True, False),
        (batch(3, query="another"), True, False),
        (None, True, False),
    ],
    ids=["announced", "state needs its rows", "the one before", "of another query", "nothing"],
)
def test_an_announced_batch_is_not_computed_again_without_state(
    monkeypatch: pytest.MonkeyPatch, newest: Staged | None, *, stateless: bool, prepared: bool
) -> None:
    """The messages that it was made of may be gone; what is published is in files."""
    asked: list[bool] = []

    def write(_: StagedBatch, __: Any, ___: Staged, *, prepared: bool) -> None:
        asked.append(prepared)

    monkeypatch.setattr(staged, "newest_batch", lambda *_: newest)
    monkeypatch.setattr(StagedBatch, "write", write)
    work: Any = SimpleNamespace(query="mine", parts=1, stateless=stateless, broker=None, into=OutputTopics())
    StagedBatch(work, lambda *_: (), "/checkpoint")(SimpleNamespace(sparkSession=None), 3)
    assert asked == [prepared]
