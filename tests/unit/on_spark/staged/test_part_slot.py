"""Parts of staged batches: what a fenced one says of the one that fenced it (D5), and what settles errors (Y4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cues_kafka.core.delivery import SETTLED as SETTLED_KEY
from cues_kafka.core.staged import Publish
from cues_kafka.on_spark.staged import part_slot as parts
from cues_kafka.on_spark.staged.chunks import packed
from cues_kafka.on_spark.staged.manifest import SETTLED_FROM, Chunk, checksum
from cues_kafka.on_spark.staged.part_slot import PartSlot, Spool
from cues_kafka.on_spark.staged.topics import ERRORS
from cues_kafka.on_spark.staged.undecoded import _records
from cues_kafka.records.scanning import read_all
from cues_kafka.task.clock import SystemClock
from cues_kafka.verify.scan import verify
from tests.unit.on_spark.staged.world import PARTS, World, chunks_of, typical


class Leaping(SystemClock):
    """The machine's, and what was added to it."""

    ahead_s = 0.0

    def monotonic(self) -> float:
        """Of both."""
        return super().monotonic() + self.ahead_s


@pytest.mark.parametrize(
    ("timeout_s", "text", "remedy"),
    [
        (60.0, "its transaction timed out: batch 0 is not published within 60 s", "raise transaction_timeout_s"),
        (600.0, "which has not published batch 0", "stop one of the two drivers"),
    ],
    ids=["late", "in time"],
)
def test_a_part_whose_transaction_timed_out_says_so_and_blames_no_driver(
    monkeypatch: pytest.MonkeyPatch, timeout_s: float, text: str, remedy: str
) -> None:
    """For the client it is the same as another driver that took the id; but no driver has written since."""
    monkeypatch.setattr(parts, "FENCED_S", 0.0)
    world = World()
    driver = world.driver()
    driver.enter()
    _, batch = driver.announce(0)
    assert batch
    role = Publish(replace(batch, part=1, extents=()))
    spec, clock, coming = world.spec(1, role, "first"), Leaping(), chunks_of(typical(1))

    def times_out(moment: str, effect: str) -> None:
        if (moment, effect) == ("before", "Commit"):
            clock.ahead_s = 90.0
            world.broker.session(spec.transactional_id).init(timeout_s=1)

    slot = PartSlot(spec, broker=world.broker, clock=clock, timeout_s=timeout_s, hook=times_out)
    outcome = slot.publish(Spool("test"), *coming, world.target)
    assert outcome.kind == "claimed"
    assert text in outcome.text
    assert remedy in outcome.remedy
    assert not driver.publish(batch, 1, typical(1)).kind


def test_a_fenced_part_that_its_successor_publishes_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """D5: Spark would try a part again and again that has been published already."""
    monkeypatch.setattr(parts, "FENCED_S", 0.0)
    world = World()
    driver = world.driver()
    driver.enter()
    _, batch = driver.announce(0)
    assert batch
    role = Publish(replace(batch, part=1, extents=()))

    def overtaken(moment: str, effect: str) -> None:
        if (moment, effect) == ("before", "Commit"):
            assert not driver.publish(batch, 1, typical(1)).kind

    slot = PartSlot(world.spec(1, role, "first"), broker=world.broker, clock=SystemClock(), hook=overtaken)
    outcome = slot.publish(Spool("test"), *chunks_of(typical(1)), world.target)

    assert (outcome.kind, outcome.totals.deliveries) == ("", len(typical(1)))


def test_records_that_settle_errors_are_in_the_publication_behind_its_record() -> None:
    """Of a part with rows, and of one without: they count as nil, land once, and leave the rows as they are."""
    world = World()
    driver = world.driver()
    driver.enter()
    _, batch = driver.announce(0)
    assert batch
    settled = {SETTLED_KEY + b"a": b"1", SETTLED_KEY + b"b": b"2"}
    payload = packed(_records([*settled], [*settled.values()]))
    own = Chunk(0, SETTLED_FROM, len(settled), 0, checksum(payload).hex(), 0)

    for part in range(PARTS):
        coming, chunks = chunks_of(typical(part))
        role = Publish(replace(batch, part=part, extents=batch.extents if part == 0 else ()))
        for _ in range(2):
            slot = PartSlot(world.spec(part, role, "first"), broker=world.broker, clock=SystemClock())
            given = [*coming, (SETTLED_FROM, payload)]
            outcome = slot.publish(Spool("test"), given, (*chunks, own), world.target)
            rows, errors = len(typical(part)), sum(number == ERRORS for number, _ in typical(part))
            assert (outcome.kind, outcome.totals.deliveries, outcome.totals.nils) == ("", rows + 2, 2)
            assert (outcome.totals.outputs, outcome.totals.errors) == (rows - errors, errors)
    found = [m for m in read_all(world.broker, "g.frames.backing", PARTS) if (m.key() or b"").startswith(SETTLED_KEY)]
    assert [(m.partition(), m.key(), m.value()) for m in found] == [
        (part, key, value) for part in range(PARTS) for key, value in settled.items()
    ]
    report = verify(world.graph, world.broker)
    assert report.anomalies == 0, list(report.lines)
    assert driver.announce(1)[0].kind == ""
