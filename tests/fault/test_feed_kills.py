"""SIGKILL before and after every effect of a feed's task, on a real broker; the whole world is compared."""

from __future__ import annotations

import json
import multiprocessing
import re
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from cues_kafka import Kafka
from cues_kafka.brokers.open import open_broker
from cues_kafka.task.making.prepare import prepare
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify
from tests.fault import feed_world
from tests.fault.killing import forked
from tests.fault.support import backing, check_chain, committed
from tests.integration.test_outbox import Database, database

__all__ = ["database"]

MOMENTS = ("before", "after")
ALL = [
    *((moment, "FetchSibling", 1) for moment in MOMENTS),
    *(
        (moment, effect, nth)
        for effect in ("Init", "FetchOffsets", "FetchWatermark", "ReadNewest", "FetchInputs", "AssignReader")
        for moment, nth in zip(MOMENTS, (2, 3), strict=True)
    ),
    *(
        (moment, effect, nth)
        for effect in ("Call", "Begin", "SendOffsets", "Produce", "Flush", "Commit")
        for moment in MOMENTS
        for nth in (1, 3)
    ),
]
FEW = [ALL[0], ALL[-5], ALL[-2], ALL[-1]]
"""Where a task starts, and around what makes a transaction visible."""


@pytest.mark.timeout(400)
@pytest.mark.parametrize("points", [pytest.param(FEW, id="few"), pytest.param(ALL, id="all", marks=pytest.mark.full)])
def test_kills_around_every_effect_of_a_feed_change_nothing_that_is_committed(
    kafka: KafkaFixture, tmp_path: Path, points: list[tuple[str, str, int]]
) -> None:
    """One process after the other dies at its point, with more lines in old and new files before each; in the end every
    line is there once, in the order of its file, and `verify` agrees."""
    context = forked()
    prefix = re.sub(r"[^A-Za-z0-9-]", "-", kafka.unique("fk"))
    graph = feed_world.graph(prefix, str(tmp_path))
    broker = open_broker(Kafka(kafka.bootstrap))
    prepare(graph, broker)
    written: dict[str, list[int]] = {}
    count = 0

    def run(point: tuple[str, str, int] | None) -> int | None:
        process = context.Process(target=feed_world.run, args=(kafka.bootstrap, prefix, str(tmp_path), point))
        process.start()
        process.join(120)
        assert process.exitcode is not None, f"the process of {point} hangs"
        return process.exitcode

    unkilled = []
    for at, point in enumerate(points):
        for name in ("first.jsonl", "second.jsonl", f"of-{at:02}.jsonl"):
            feed_world.write(tmp_path, name, range(count, count + 10))
            written.setdefault(name, []).extend(range(count, count + 10))
            count += 10
        if run(point) != -9:
            unkilled.append(point)
    assert run(None) == 0
    assert unkilled == [], "a point that no run passes proves nothing"

    seen = [json.loads(m.value() or b"") for m in committed(kafka.bootstrap, f"{prefix}.ingress")]
    good = [n for n in range(count) if n % 10 != feed_world.BAD]
    assert Counter(seen) == Counter(good)
    for numbers in written.values():
        mine = set(numbers)
        assert [n for n in seen if n in mine] == [n for n in numbers if n % 10 != feed_world.BAD], "in the file's order"
    doubles = [json.loads(m.value() or b"") for m in committed(kafka.bootstrap, f"{prefix}.doubles")]
    assert Counter(doubles) == Counter(2 * n for n in good)
    failed = [re.search(rb"not (\d+)", m.value() or b"") for m in committed(kafka.bootstrap, f"{prefix}.failed")]
    assert sorted(int(one.group(1)) for one in failed if one) == [n for n in range(count) if n % 10 == feed_world.BAD]
    report = verify(graph, broker)
    assert report.ok, "\n".join(report.lines)
    assert report["files"].totals.deliveries == count
    check_chain(backing(kafka.bootstrap, f"{prefix}.files.backing"))
    broker.close()


@pytest.mark.full
@pytest.mark.timeout(400)
@pytest.mark.parametrize("database", ["postgres", "mariadb"], indirect=True)
def test_kills_around_every_effect_of_an_outbox_lose_and_repeat_no_row(
    database: Database, kafka: KafkaFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for rows of a real database, which are deleted behind the commit; an early transaction commits last."""
    monkeypatch.setenv(feed_world.DATABASE, database.url)
    context = multiprocessing.get_context("spawn")
    prefix = re.sub(r"[^A-Za-z0-9-]", "-", kafka.unique("ok"))
    graph, count, unkilled = feed_world.graph(prefix, ""), 1, []
    broker = open_broker(Kafka(kafka.bootstrap))
    prepare(graph, broker)
    with closing(database.connect()) as early:
        database.insert(early, 0)
        for point in [*ALL[16::3], None]:
            database.write(*range(count, count + 10))
            count += 10
            if point is None:
                early.commit()
            process = context.Process(target=feed_world.run, args=(kafka.bootstrap, prefix, "", point))
            process.start()
            process.join(120)
            if process.exitcode != (-9 if point else 0):
                unkilled.append((point, process.exitcode))
            if database.kind == "postgres" and point:  # rows wait for the oldest transaction: let them go on
                early.commit()
    seen = [json.loads(m.value() or b"") for m in committed(kafka.bootstrap, f"{prefix}.ingress")]
    assert Counter(seen) == Counter(range(count))
    assert unkilled == []
    report = verify(graph, broker)
    assert report.ok, "\n".join(report.lines)
    broker.close()
