"""SIGKILL around every commit of workers with tables of Delta Lake, on a real broker; a store that goes away (E6)."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from cues_kafka import CommitPolicy, Kafka, Message, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.client.client import Client
from cues_kafka.task.making.prepare import prepare
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify
from tests.delta_reading import values
from tests.fault import delta_world
from tests.fault.delta_world import BAD, PARTITIONS
from tests.fault.killing import Point, forked
from tests.fault.support import backing, check_chain, committed, until
from tests.servers.fixtures import S3Bucket

FEW: list[Point] = [("before", "CommitTarget", 2), ("inside", "CommitTarget", 2), ("after", "CommitTarget", 1)]
SOME: list[Point] = [*FEW, ("before", "Commit", 2), ("after", "Commit", 5), ("before", "AskTarget", 2)]
ALL: list[Point] = [
    *((moment, "CommitTarget", nth) for moment in ("before", "inside", "after") for nth in (1, 2, 5)),
    *((moment, "Commit", nth) for moment in ("before", "inside", "after") for nth in (2, 5, 6)),
    *((moment, effect, 2) for effect in ("AskTarget", "Produce", "Call") for moment in ("before", "after")),
]


def numbers_in(url: str, options: Mapping[str, str] | None = None) -> list[int]:
    """The column `n` of a table, sorted."""
    return sorted(values(url, "n", options))


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("kind", "points"),
    [
        pytest.param("file", FEW, id="file"),
        pytest.param("file", ALL, id="file-all", marks=pytest.mark.full),
        pytest.param("s3", SOME, id="s3", marks=pytest.mark.full),
    ],
)
def test_kills_around_the_commits_of_both_systems_leave_one_row_for_each_message(
    kafka: KafkaFixture, request: pytest.FixtureRequest, kind: str, points: list[Point], tmp_path: Path
) -> None:
    """One process after the other dies at its point, with new messages before each. All that is there is exact."""
    context = forked()
    prefix = re.sub(r"[^A-Za-z0-9-]", "-", kafka.unique("delta"))
    url, options = f"file://{tmp_path}/lake", dict[str, str]()
    if kind == "s3":
        bucket: S3Bucket = request.getfixturevalue("s3")
        url, options = f"{bucket.url}/deep", bucket.storage_options
    graph = delta_world.graph(prefix, url, options)
    broker = open_broker(Kafka(kafka.bootstrap))
    client = Client(broker, graph)
    prepare(graph, broker)
    numbers: dict[int, int] = {}

    def run(point: Point | None) -> int | None:
        process = context.Process(target=delta_world.run, args=(kafka.bootstrap, prefix, url, options, point))
        process.start()
        process.join(120)
        assert process.exitcode is not None, f"the process of {point} hangs"
        return process.exitcode

    unkilled = []
    for point in points:
        for n in range(len(numbers), len(numbers) + 20):
            numbers[n] = n // 2 % PARTITIONS
            client.send(f"{prefix}.numbers", Message(n, partition=numbers[n]))
        if run(point) != -9:
            unkilled.append(point)
    assert run(None) == 0
    assert unkilled == [], "a point that no run passes proves nothing"

    kept = [n for n in numbers if n % 10 != BAD]
    assert sorted(int(one.value() or b"") for one in committed(kafka.bootstrap, f"{prefix}.one")) == kept
    assert len(committed(kafka.bootstrap, f"{prefix}.failed")) == len(numbers) - len(kept)
    assert numbers_in(f"{url}/ones", options) == kept
    assert numbers_in(f"{url}/texts", options) == list(numbers)
    for name in ("one", "text"):
        check_chain(backing(kafka.bootstrap, f"{prefix}.{name}.backing"))
    report = verify(graph, broker)
    assert report.ok, str(report)
    client.close()
    broker.close()


@pytest.mark.full
def test_store_that_goes_away_under_load_pauses_the_tasks(
    kafka: KafkaFixture, s3: S3Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    """It is down at the start, and once more later: it is asked again, nothing is lost, none is an error message."""
    prefix, options = kafka.unique("delta").replace("_", "-"), {**s3.storage_options, "retry_timeout": "2s"}
    graph = delta_world.sink(prefix, s3.url, options)
    s3.server.refuse()

    def come_back() -> None:
        until(lambda: "table not there" in caplog.text, "a word about the store")
        s3.server.accept()

    back = threading.Thread(target=come_back)
    back.start()
    with start(graph, Kafka(kafka.bootstrap), policy=CommitPolicy(max_messages=5)) as running:
        back.join()
        broker = open_broker(Kafka(kafka.bootstrap))
        client = Client(broker, graph)
        for n in range(20):
            client.send(f"{prefix}.rows", n_row(n))
        until(lambda: len(numbers_in(f"{s3.url}/rows", options)) == 20, "20 rows")
        said = caplog.text.count("Generic S3 error")
        s3.server.refuse()
        for n in range(20, 40):
            client.send(f"{prefix}.rows", n_row(n))
        until(lambda: caplog.text.count("Generic S3 error") > said, "a word about the store")
        s3.server.accept()
        running.wait_idle(timeout_s=60)
        client.close()
    assert numbers_in(f"{s3.url}/rows", options) == list(range(40))
    assert committed(kafka.bootstrap, f"{prefix}.failed") == []
    broker.close()


def n_row(n: int) -> dict[str, int]:
    """The value of a message that becomes a row."""
    return {"n": n}
