"""What goes into staged batches, and what must come out: read with a plain client, taken apart by the schema files."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import Message

from tests.fault.support import Record, Setup, _avro, check_chain, committed_all, until
from tests.spark.drivers import STARTED_S, Drivers
from tests.spark.staged_driver import ATTEMPT, KEYS, NOON, WIDTH

SINKS = ("out",)
LIMIT = 40
"""Messages in a micro-batch."""

Row = tuple[int, str, int]
"""Batch, key, count."""


class StagedDrivers(Drivers):
    """Drivers of the aggregation, of which each Spark task publishes one part."""

    def __init__(self, setup: Setup, directory: Path, *args: Any, **settings: Any) -> None:
        given = {"program": "tests.spark.staged_driver", "graph": "tests.spark.staged_driver:graph", "limit": LIMIT}
        conf = {
            "spark.sql.shuffle.partitions": str(WIDTH),
            # Most of a short driver's time goes into compiling plans that run once.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        }
        super().__init__(setup, directory, *args, **{**given, **settings, "conf": {**conf, **settings.get("conf", {})}})


def at(where: str, batch: int | None = None, **more: Any) -> dict[str, Any]:
    """Settings of a driver that pauses there, see `StagedPoint`."""
    return {"point": {"where": where, "batch": batch, **more}}


def announcing(where: str, **more: Any) -> dict[str, Any]:
    """The same, for the slot that announces."""
    return at(where, role="Announce", entering=True, **more)


def publishing(where: str, **more: Any) -> dict[str, Any]:
    """The same, for slots that publish."""
    return at(where, role="Publish", **more)


def noted(directory: Path) -> int:
    """The newest batch that Spark has noted to be done; -1: none."""
    batches = [int(file.name) for file in directory.glob("checkpoint/*/commits/*") if file.name.isdecimal()]
    return max(batches, default=-1)


@dataclass
class Audit:
    """
    What a reader finds.

    Attributes:
        batches: that are published.
        rows: that are readable.
        lost, doubled: rows that a batch must give and does not; rows beyond those that it must give.
        mixed: batches with rows of an attempt that was not announced.
        problems: everything that is wrong, in words.
    """

    batches: int = 0
    rows: int = 0
    lost: int = 0
    doubled: int = 0
    mixed: int = 0
    problems: list[str] = field(default_factory=list)


class Tally:
    """Whole numbers in order, number n under key n modulo `KEYS` in partition n modulo `WIDTH`."""

    def __init__(self, setup: Setup, *, kind: str = "counts", step_s: int = 0) -> None:
        """
        Args:
            setup: names.
            kind: of the graph.
            step_s: how much later each number happened than the one before it.
        """
        self.setup = setup
        self.count = 0
        self._kind = kind
        self._step_s = step_s

    def send(self, count: int) -> None:
        """The next ones, up to a number."""
        self.setup.send(*(self._record(n) for n in range(self.count, self.count + count)))
        self.count += count

    def _record(self, n: int) -> Record:
        at = NOON + timedelta(seconds=self._step_s * n)
        return Record(json.dumps({"n": n, "at": at.isoformat()}).encode(), b"k%d" % (n % KEYS), n % WIDTH)

    def records(self) -> list[list[dict[str, Any]]]:
        """Backing records of each slot, those that are readable."""
        return slots(committed_all(self.setup.bootstrap, [self.setup.backing], to_stable=True)[self.setup.backing])

    def drained(self) -> bool:
        """Whether all that was sent is published by every slot."""
        newest = [slot[-1] if slot else None for slot in self.records()]
        first = newest[0]
        if first is None or first["kind"] != "Attempt":
            return False
        [extent] = first["staged"]["extents"]
        _, ends = ranges_of(extent)
        number = first["staged"]["number"]
        return sum(ends.values()) == self.count and all(one and one["staged"]["number"] == number for one in newest)

    def wait(self, timeout_s: float = STARTED_S) -> None:
        """Until all is published."""
        pause = threading.Event()
        until(lambda: self.drained() or pause.wait(0.3), f"all {self.count} are published", timeout_s)

    def check(self, *, whole: bool = True) -> Audit:
        """
        Everything, and nothing may be wrong.

        Args:
            whole: everything that was sent must be published; else all but the newest batch.
        """
        found = self.audit(whole=whole)
        assert not found.problems, "\n".join(found.problems[:20])
        assert (found.lost, found.doubled, found.mixed) == (0, 0, 0)
        return found

    def audit(self, *, whole: bool = True) -> Audit:
        """
        Compare what was announced, what it must give, and what is readable.

        Args:
            whole: everything that was sent must be published; else all but the newest batch, and what a transaction
                hides is not waited for.
        """
        setup = self.setup
        topics = [setup.source, setup.sink, setup.errors, setup.backing]
        found = committed_all(setup.bootstrap, topics, to_stable=not whole)
        audit = Audit(rows=len(found[setup.sink]))
        audit.problems += [f"an error message: {message.value()!r}" for message in found[setup.errors]]
        records = slots(found[setup.backing])
        try:
            check_chain([slot for slot in records if slot])
        except AssertionError as error:
            audit.problems.append(f"chain: {error}")
        announced = [one for one in records[0] if one["kind"] == "Snapshot"]
        audit.problems += self._announcements(announced, whole=whole)
        audit.problems += self._publications(records, whole=whole)
        batches = [one["staged"] for one in announced]
        audit.batches = len(batches)
        attempts = {
            (p, one["sequence"]): one for p, slot in enumerate(records) for one in slot if one["kind"] == "Attempt"
        }
        audit.problems += self._provenance(found[setup.sink], attempts)
        named = {one["batch"]: one["attempt"] for one in batches}
        rows: Counter[Row] = Counter()
        strangers = set()
        for message in found[setup.sink]:
            at = attempts.get(place_of(message)[:2])
            batch = at["staged"]["batch"] if at else -1
            value = json.loads(message.value() or b"")
            rows[batch if self._kind == "counts" else 0, value["key"], value["count"]] += 1
            if named.get(batch) != dict(message.headers() or [])[ATTEMPT].decode():  # type: ignore[union-attr]
                strangers.add(batch)
        audit.mixed = len(strangers)
        expected = self._counts(batches, found[setup.source]) if self._kind == "counts" else self._windows()
        lost, doubled = expected - rows, rows - expected
        if not whole:
            lost = Counter({row: count for row, count in lost.items() if row[0] != audit.batches - 1})
        audit.lost, audit.doubled = lost.total(), doubled.total()
        if lost or doubled:
            audit.problems.append(f"lost {dict(lost)}, doubled {dict(doubled)}"[:2000])
        if strangers:
            audit.problems.append(f"rows of other attempts in batches {sorted(strangers)}")
        nonces = Counter(json.loads(message.value() or b"")["nonce"] for message in found[setup.sink])
        if set(nonces.values()) - {1}:
            audit.problems.append("a row is there twice, to the byte")
        return audit

    def _announcements(self, announced: Sequence[Mapping[str, Any]], *, whole: bool) -> Iterator[str]:
        """T2: each batch once, in order; it begins where the one before it ends, and goes on."""
        batches = [one["staged"]["batch"] for one in announced]
        if batches != list(range(len(announced))):
            yield f"announced: {batches}"
        at = dict.fromkeys((str(part) for part in range(WIDTH)), 0)
        for one in announced:
            [extent] = one["staged"]["extents"]
            starts, ends = ranges_of(extent)
            if starts != at or any(ends[p] < offset for p, offset in starts.items()):
                yield f"batch {one['staged']['batch']} goes from {starts} to {ends}, the one before it to {at}"
            if one["staged"]["number"] != one["sequence"]:
                yield f"publication number {one['staged']['number']} in sequence {one['sequence']}"
            at = ends
        if whole and sum(at.values()) != self.count:
            yield f"announced up to {at}, sent {self.count}"

    def _publications(self, records: Sequence[Sequence[Mapping[str, Any]]], *, whole: bool) -> Iterator[str]:
        """T3: one attempt of each batch in each slot, with its number."""
        announced = [one for one in records[0] if one["kind"] == "Snapshot"]
        kept = ("query", "batch", "attempt", "checksum", "number", "parts")
        wanted = [{name: one["staged"][name] for name in kept} for one in announced]
        for part, slot in enumerate(records):
            published = [one for one in slot if one["kind"] == "Attempt"]
            got = [{name: one["staged"][name] for name in kept} for one in published]
            if got != wanted and (whole or got != wanted[:-1]):
                yield f"slot {part} published {got} instead of {wanted}"[:2000]
            if part and len(slot) != len(published):
                yield f"slot {part} has announcements"
        kinds = [one["kind"] for one in records[0]]
        if kinds != (["Snapshot", "Attempt"] * len(announced))[: len(kinds)]:
            yield f"slot 0: {kinds}"

    def _provenance(
        self, messages: Sequence[Message], attempts: Mapping[tuple[int, int], Mapping[str, Any]]
    ) -> Iterator[str]:
        """Each attempt's rows are there once each, and say so."""
        seen: dict[tuple[int, int], Counter[tuple[int, int]]] = {}
        for message in messages:
            part, sequence, index, count = place_of(message)
            seen.setdefault((part, sequence), Counter())[index, count] += 1
        for place in sorted(seen.keys() | attempts.keys()):
            count = attempts[place]["batch"]["messages"] if place in attempts else -1
            got = seen.get(place, Counter())
            if got != Counter((i, count) for i in range(count)):
                yield f"part {place[0]}, sequence {place[1]}: {count} rows in its record, readable {dict(got)}"

    def _counts(self, batches: Sequence[Mapping[str, Any]], messages: Sequence[Message]) -> Counter[Row]:
        """Of each key that a batch has, its count up to there."""
        keys = {(m.partition(), m.offset()): (m.key() or b"").decode() for m in messages}
        so_far: Counter[str] = Counter()
        expected: Counter[Row] = Counter()
        for one in batches:
            [extent] = one["extents"]
            starts, ends = ranges_of(extent)
            taken = [keys[int(p), o] for p, end in ends.items() for o in range(starts[p], end) if (int(p), o) in keys]
            so_far.update(taken)
            expected.update((one["batch"], key, so_far[key]) for key in set(taken))
        return expected

    def _windows(self) -> Counter[Row]:
        """Of each minute that the watermark has passed, how many there were."""
        held = Counter((self._step_s * n) // 60 for n in range(self.count))
        newest = self._step_s * (self.count - 1)
        over = {minute: count for minute, count in held.items() if (minute + 1) * 60 <= newest - 60}
        start = int(NOON.timestamp())
        return Counter({(0, str(start + 60 * minute), count): 1 for minute, count in over.items()})


def ranges_of(extent: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, int]]:
    """Starts and ends of an extent in the input, by partition; it has those in the replay topic, too."""
    [topic] = json.loads(extent["topic_id"])
    starts, ends = (json.loads(extent[side])[topic] for side in ("start", "end"))
    return starts, ends


def slots(messages: Sequence[Message]) -> list[list[dict[str, Any]]]:
    """Backing records of each slot, oldest first."""
    found: list[list[dict[str, Any]]] = [[] for _ in range(WIDTH)]
    for message in messages:
        assert message.key() == b"t"
        found[int(message.partition() or 0)].append(_avro(message.value() or b"", "staged"))
    return found


def place_of(message: Message) -> tuple[int, int, int, int]:
    """By the provenance header: part, sequence, index, count."""
    header = dict(message.headers() or [])["cues"]
    assert isinstance(header, bytes)
    version, task, sequence, places, index, offsets = header.decode().split(" ")
    assert (version, places, offsets) == ("1", "-", "-")
    index, _, count = index.partition("/")
    return int(task.rpartition("/")[2]), int(sequence), int(index), int(count)
