"""What a full disk or a crash leaves of a query's checkpoint: files that are empty, cut or missing.

Spark refuses such a checkpoint at each start, and names neither the file nor a remedy. So the driver looks first. A
processor whose records say all (direct) begins a new checkpoint. For a staged one the checkpoint says what Spark keeps,
so it refuses; only a cut entry of the newest finished batch is dropped, because Spark then runs that batch again, and
what is published of it stays as it is (T3).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from cues_kafka.core.events import Halt
from cues_kafka.observe.log import get_logger
from cues_kafka.on_spark.query.files import delete, names, read_bytes

log = get_logger("cues_kafka.spark")

METADATA: Final = "metadata"
OFFSETS: Final = "offsets"
COMMITS: Final = "commits"
_SPARKS: Final = (METADATA, OFFSETS, COMMITS, "sources", "state", f".{METADATA}.crc")
"""What Spark keeps in a checkpoint. Whatever else is there belongs to others and is left alone."""

_VERSION: Final = re.compile(r"v[0-9]+")
_KNOWN: Final = "v1"
"""The version whose lines are JSON; of another one only the first line is read."""


@dataclass(frozen=True, slots=True)
class Damage:
    """
    What is wrong with a checkpoint.

    Attributes:
        file: the path of the first file that is wrong.
        why: `is empty`, `is cut` or `is missing`, with what shows it.
        number: of the batch if the file is the entry of the newest batch that Spark finished; else -1.
    """

    file: str
    why: str
    number: int = -1

    def __str__(self) -> str:
        return f"{self.file} {self.why}"


def damage(session: Any, checkpoint: str) -> Damage | None:
    """
    Look for the first file that Spark would read at a start and that is empty, cut or missing.

    Spark reads the query's id, the offsets of the two newest batches, and the newest finished batch.

    Args:
        session: of Spark, with its Java; the checkpoint may be on any of its file systems.
        checkpoint: the query's directory.
    """

    def read(name: str) -> str:
        return read_bytes(session, f"{checkpoint}/{name}").decode("utf-8", "replace")

    # Spark writes a batch's offsets first. In this order a driver that is at work shows no commit without them.
    logs = {log: _numbers(session, f"{checkpoint}/{log}") for log in (COMMITS, OFFSETS)}
    if METADATA in names(session, checkpoint) and (why := _of_metadata(read(METADATA))):
        return Damage(f"{checkpoint}/{METADATA}", why)
    return _of_offsets(checkpoint, logs[OFFSETS], read) or _of_commits(checkpoint, logs, read)


def begin_again(session: Any, checkpoint: str, found: Damage) -> None:
    """Delete what Spark keeps in the checkpoint, so that the query begins where the records of its tasks are."""
    for name in _SPARKS:
        delete(session, f"{checkpoint}/{name}")
    log.warning("checkpoint begins again", damaged=found.file, why=found.why, goes_on="where the records are")


def run_again(session: Any, checkpoint: str, found: Damage) -> None:
    """Delete the cut entry of the newest finished batch, which Spark then runs again."""
    for name in (str(found.number), f".{found.number}.crc"):
        delete(session, f"{checkpoint}/{COMMITS}/{name}")
    log.warning("batch runs again", damaged=found.file, why=found.why, batch=found.number)


def repaired(session: Any, checkpoint: str, processor: str, *, hint: bool) -> Halt | None:
    """
    Make a checkpoint usable that a full disk or a crash has damaged, or say why it is not.

    Args:
        session: of Spark, with its Java.
        checkpoint: the query's directory.
        processor: its name, for the remedy; empty where there is no graph.
        hint: whether the records of the tasks say all that the query needs.

    Returns:
        Why the query must not start; None if it may.
    """
    while found := damage(session, checkpoint):
        if hint:
            begin_again(session, checkpoint, found)
            return None
        if found.number < 0:
            return refusal(found, checkpoint, processor)
        run_again(session, checkpoint, found)
    return None


def refusal(found: Damage, checkpoint: str, processor: str) -> Halt:
    """Why a staged query does not start from a damaged checkpoint."""
    text = f"{found}, as a full disk or a crash leaves it; what Spark keeps for the query is below {checkpoint}"
    if not processor:
        again = "take another name and checkpoint, after which outputs repeat"
    else:
        again = (
            f"stop this process, run `cues-kafka reset MODULE:GRAPH {processor}`, delete {checkpoint}, and start "
            "again, after which outputs repeat"
        )
    return Halt("refused", text, f"restore the file from a copy of the same moment; or {again}")


def _numbers(session: Any, directory: str) -> list[int]:
    return sorted(int(name) for name in names(session, directory) if name.isdecimal())


def _of_metadata(text: str) -> str:
    if not text.strip():
        return "is empty"
    plain = _json(text)
    return "" if isinstance(plain, dict) and isinstance(plain.get("id"), str) else "is cut: it has no id"


def _of_offsets(checkpoint: str, numbers: list[int], read: Callable[[str], str]) -> Damage | None:
    sources: list[int] = []
    for number in range(max(0, numbers[-1] - 1), numbers[-1] + 1) if numbers else ():
        file = f"{checkpoint}/{OFFSETS}/{number}"
        if number not in numbers:
            return Damage(file, f"is missing, though batch {numbers[-1]} comes after it")
        text = read(f"{OFFSETS}/{number}")
        if why := _of_entry(text, lines=3):
            return Damage(file, why)
        sources.append(len(text.splitlines()))
    if sources and sources[-1] < sources[0]:
        return Damage(f"{checkpoint}/{OFFSETS}/{numbers[-1]}", "is cut: it has fewer sources than the batch before it")
    return None


def _of_commits(checkpoint: str, logs: dict[str, list[int]], read: Callable[[str], str]) -> Damage | None:
    offsets, commits = logs[OFFSETS], logs[COMMITS]
    if not commits:
        return None
    newest = commits[-1]
    if not offsets or offsets[-1] < newest:
        return Damage(f"{checkpoint}/{OFFSETS}/{newest}", f"is missing, though Spark finished batch {newest}")
    if why := _of_entry(read(f"{COMMITS}/{newest}"), lines=2):
        return Damage(f"{checkpoint}/{COMMITS}/{newest}", why, newest if offsets[-1] == newest else -1)
    return None


def _of_entry(text: str, *, lines: int) -> str:
    """Why an entry of one of Spark's logs is not whole: a version, then lines of JSON, `-` for none."""
    if not text.strip("\0 \n"):
        return "is empty"
    first, *rest = text.splitlines()
    if not _VERSION.fullmatch(first.strip()) or len(rest) < lines - 1:
        return "is cut"
    wrong = first.strip() == _KNOWN and any(line.strip() not in ("", "-") and _json(line) is None for line in rest)
    return "is cut" if wrong else ""


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
