"""What a full disk or a crash leaves of a checkpoint: found before Spark starts, dropped or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cues_kafka.errors import ConfigError
from cues_kafka.on_spark.query.checkpoint import damage, repaired
from cues_kafka.on_spark.query.offset_log import batch_ends, known_query, query_id, source_ends
from tests.unit.on_spark.query.test_files import session

HERE = session("file")
METADATA = '{"id":"f3a0d6c1-8f0e-4f6b-9c2a-0d5a3b1c2e4f"}'
OFFSETS = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1764000000000,"conf":{}}\n{"orders":{"0":%d}}'
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """As Spark leaves it after three batches, with files of others beside its own."""
    for number in range(3):
        write(tmp_path / "offsets" / str(number), OFFSETS % number)
        write(tmp_path / "commits" / str(number), COMMIT)
        write(tmp_path / "commits" / f".{number}.crc", "crc")
    write(tmp_path / "metadata", METADATA)
    write(tmp_path / "stage" / "2" / "rows", "rows")
    return tmp_path


def write(file: Path, text: str) -> None:
    """Write a file, and the directories above it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def cut(name: str, text: str = "") -> Callable[[Path], None]:
    """Leave this text of a file."""
    return lambda checkpoint: write(checkpoint / name, text)


def drop(name: str) -> Callable[[Path], None]:
    """Delete a file."""
    return lambda checkpoint: (checkpoint / name).unlink()


def both(*damages: Callable[[Path], None]) -> Callable[[Path], None]:
    """One after the other."""

    def damage(checkpoint: Path) -> None:
        for one in damages:
            one(checkpoint)

    return damage


DAMAGED: dict[str, tuple[Callable[[Path], None], str]] = {
    "metadata is empty": (cut("metadata"), "metadata is empty"),
    "metadata is cut": (cut("metadata", METADATA[:9]), "metadata is cut: it has no id"),
    "metadata is of zeros": (cut("metadata", "\0" * 45), "metadata is cut: it has no id"),
    "offsets are empty": (cut("offsets/2"), "offsets/2 is empty"),
    "offsets are of zeros": (cut("offsets/2", "\0" * 80), "offsets/2 is empty"),
    "offsets are cut in the version": (cut("offsets/2", "v"), "offsets/2 is cut"),
    "offsets are cut behind the version": (cut("offsets/2", "v1\n"), "offsets/2 is cut"),
    "offsets are cut in the settings": (cut("offsets/2", OFFSETS[:20]), "offsets/2 is cut"),
    "offsets are cut behind the settings": (cut("offsets/2", OFFSETS.rpartition("\n")[0]), "offsets/2 is cut"),
    "offsets are cut in a source": (cut("offsets/2", OFFSETS[:-6]), "offsets/2 is cut"),
    "offsets of the batch before are empty": (cut("offsets/1"), "offsets/1 is empty"),
    "offsets of the batch before are missing": (drop("offsets/1"), "offsets/1 is missing, though batch 2 comes after"),
    "offsets of a finished batch are missing": (drop("offsets/2"), "offsets/2 is missing, though Spark finished"),
    "a commit is empty, and a batch came after it": (
        both(cut("commits/2"), cut("offsets/3", OFFSETS % 3)),
        "commits/2 is empty",
    ),
}


def kept(checkpoint: Path) -> set[str]:
    """The files of a checkpoint."""
    return {str(file.relative_to(checkpoint)) for file in checkpoint.rglob("*") if file.is_file()}


def test_whole_checkpoint_is_left_alone(checkpoint: Path) -> None:
    """Also a new one, one with a batch under way, one of several sources, and one of another version."""
    before = kept(checkpoint)
    assert repaired(HERE, str(checkpoint), "sums", hint=True) is None
    cut("offsets/3", OFFSETS % 3)(checkpoint)
    cut("offsets/4", (OFFSETS % 4) + "\n-\n")(checkpoint)
    assert repaired(HERE, str(checkpoint), "sums", hint=True) is None
    for number in (4, 5):
        cut(f"offsets/{number}", "v2\nlines of a\nlater Spark")(checkpoint)
    assert repaired(HERE, str(checkpoint), "sums", hint=False) is None
    assert repaired(HERE, str(checkpoint / "new"), "sums", hint=False) is None
    assert kept(checkpoint) == before | {"offsets/3", "offsets/4", "offsets/5"}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_checkpoint_of_a_direct_processor_begins_again(checkpoint: Path, name: str) -> None:
    """What Spark keeps goes, and nothing else: the records of its tasks say where the query goes on."""
    damaged, why = DAMAGED[name]
    damaged(checkpoint)
    assert why in str(damage(HERE, str(checkpoint)))
    assert repaired(HERE, str(checkpoint), "sums", hint=True) is None
    assert kept(checkpoint) == {"stage/2/rows"}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_checkpoint_of_a_staged_processor_is_refused_with_the_command(checkpoint: Path, name: str) -> None:
    """By the name of the file; nothing is deleted. Where there is no graph no command can reset it."""
    damaged, why = DAMAGED[name]
    damaged(checkpoint)
    before = kept(checkpoint)
    halt = repaired(HERE, str(checkpoint), "sums", hint=False)
    assert halt is not None
    assert f"{checkpoint}/{why}" in halt.text
    assert f"run `cues-kafka reset MODULE:GRAPH sums`, delete {checkpoint}, and start again" in halt.remedy
    alone = repaired(HERE, str(checkpoint), "", hint=False)
    assert alone is not None
    assert "take another name and checkpoint" in alone.remedy
    assert kept(checkpoint) == before


@pytest.mark.parametrize("left", ["", "v", "v1", COMMIT[:-3]])
def test_cut_entry_of_the_newest_finished_batch_is_dropped_so_that_spark_runs_the_batch_again(
    checkpoint: Path, left: str
) -> None:
    """As after a crash just before Spark wrote it; with the checksum that Spark keeps beside it."""
    before = kept(checkpoint)
    cut("commits/2", left)(checkpoint)
    assert repaired(HERE, str(checkpoint), "sums", hint=False) is None
    assert kept(checkpoint) == before - {"commits/2", "commits/.2.crc"}


READERS: list[tuple[str, Callable[[Any, str], object]]] = [
    ("metadata", query_id),
    ("metadata", known_query),
    ("offsets/2", lambda session, checkpoint: source_ends(session, checkpoint, 2)),
    ("offsets/2", lambda session, checkpoint: batch_ends(session, checkpoint, 2)),
]


@pytest.mark.parametrize("reader", range(len(READERS)))
@pytest.mark.parametrize("left", ["", "{", "v1\n{}\n{"])
def test_file_that_is_cut_while_the_query_runs_is_named(checkpoint: Path, reader: int, left: str) -> None:
    """Each reader of a file of the checkpoint says which one, and what to do."""
    file, read = READERS[reader]
    cut(file, left)(checkpoint)
    with pytest.raises(ConfigError, match=rf"{file} is empty or cut.*start the query again"):
        read(HERE, str(checkpoint))
