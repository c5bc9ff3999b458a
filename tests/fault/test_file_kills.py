"""SIGKILL around every commit of workers with a store of files, on a real broker; and a store that goes away (E3)."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path

import pytest

from cues_kafka import Blobs, CommitPolicy, Graph, Json, Kafka, Message, Sink, Source, Topic, files, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.client.client import Client
from cues_kafka.sinks.blobs.store import open_store
from cues_kafka.task.making.prepare import prepare
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import verify
from tests.fault import file_world
from tests.fault.file_world import BAD, PARTITIONS
from tests.fault.killing import Point, forked
from tests.fault.support import backing, check_chain, committed, until
from tests.servers.fixtures import S3Bucket

FEW: list[Point] = [("inside", "CommitTarget", 2)]
ALL: list[Point] = [
    *((moment, "CommitTarget", nth) for moment in ("before", "inside", "after") for nth in (1, 2, 5)),
    *((moment, "Commit", nth) for moment in ("before", "inside", "after") for nth in (2, 5, 6)),
    *((moment, effect, 2) for effect in ("AskTarget", "Produce", "Call") for moment in ("before", "after")),
]


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("kind", "points"),
    [
        pytest.param("file", FEW, id="file", marks=pytest.mark.full),
        pytest.param("file", ALL, id="file-all", marks=pytest.mark.full),
        pytest.param("s3", ALL, id="s3-all", marks=pytest.mark.full),
    ],
)
def test_kills_around_the_commits_of_both_systems_leave_one_outcome(
    kafka: KafkaFixture, request: pytest.FixtureRequest, kind: str, points: list[Point], tmp_path: Path
) -> None:
    """One process after the other dies at its point, with new messages before each. All that is there is exact."""
    context = forked()
    prefix = re.sub(r"[^A-Za-z0-9-]", "-", kafka.unique("files"))
    url, options = f"file://{tmp_path}/store", {}
    if kind == "s3":
        bucket: S3Bucket = request.getfixturevalue("s3")
        url, options = f"{bucket.url}/deep", bucket.options
    graph = file_world.graph(prefix, url, options)
    broker = open_broker(Kafka(kafka.bootstrap))
    client = Client(broker, graph)
    prepare(graph, broker)
    numbers: dict[int, int] = {}

    def run(point: Point | None) -> int | None:
        process = context.Process(target=file_world.run, args=(kafka.bootstrap, prefix, url, options, point))
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
    told = [json.loads(one.value() or b"") for one in committed(kafka.bootstrap, f"{prefix}.one")]
    assert sorted(one["n"] for one in told) == kept
    assert len(committed(kafka.bootstrap, f"{prefix}.failed")) == len(numbers) - len(kept)
    visible = {one.url for one in files(url, "", options=options)}
    assert visible == {one["url"] for one in told}
    assert len(told) == len(visible)
    store = open_store(url, options)
    for one in told:
        assert store.read(one["url"].removeprefix(f"{url}/")) == str(one["n"]).encode()
    rows: list[int] = []
    for file in files(url, "numbers", options=options):
        data = store.read(file.url.removeprefix(f"{url}/"))
        assert data is not None
        found = [json.loads(line) for line in data.splitlines()]
        assert len(found) == file.rows
        assert {numbers[n] for n in found} == {file.partition}
        rows += found
    assert sorted(rows) == list(numbers)
    for name in ("one", "rows"):
        check_chain(backing(kafka.bootstrap, f"{prefix}.{name}.backing"))
    report = verify(graph, broker)
    assert report.ok, str(report)
    client.close()
    broker.close()


@pytest.mark.full
def test_store_that_goes_away_under_load_pauses_the_tasks(
    kafka: KafkaFixture, s3: S3Bucket, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is down at the start, and once more later: it is asked again, nothing is lost, none is an error message."""
    monkeypatch.setenv("CUES_TEST_FILES", f"{s3.url}/a")
    topic = kafka.unique("numbers")
    table = Blobs(env="CUES_TEST_FILES", options=s3.options).json_lines("numbers")
    graph = Graph(
        kafka.unique("files"),
        Source(topic),
        Sink("rows", inputs=topic, into=table, errors=f"{topic}.errors"),
        defaults=Topic(value=Json(), partitions=1),
    )

    def rows() -> int:
        return sum(one.rows or 0 for one in files(f"{s3.url}/a", "numbers", options=s3.options))

    s3.server.refuse()

    def come_back() -> None:
        until(lambda: "store not there" in caplog.text, "a word about the store")
        s3.server.accept()

    back = threading.Thread(target=come_back)
    back.start()
    with start(graph, Kafka(kafka.bootstrap), policy=CommitPolicy(max_messages=5)) as running:
        back.join()
        broker = open_broker(Kafka(kafka.bootstrap))
        client = Client(broker, graph)
        for n in range(20):
            client.send(topic, n)
        until(lambda: rows() == 20, "20 rows")
        said = caplog.text.count("the store does not")
        s3.server.refuse()
        for n in range(20, 40):
            client.send(topic, n)
        until(lambda: caplog.text.count("the store does not") > said, "a word about the store")
        s3.server.accept()
        running.wait_idle(timeout_s=60)
        client.close()
    assert rows() == 40
    assert committed(kafka.bootstrap, f"{topic}.errors") == []
    broker.close()
