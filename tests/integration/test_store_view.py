"""Stores read from outside on a real broker: tables over workers that come and go, and the examples of accounts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from cues_kafka import (
    Graph,
    Json,
    Kafka,
    Processor,
    Running,
    Source,
    State,
    Store,
    TaskElsewhere,
    Topic,
    connect,
    start,
)
from cues_kafka.ports.log import Sent
from cues_kafka.testing.fixtures import KafkaFixture
from tests.fault.support import until

ROOT = Path(__file__).parents[2]


def count(word: str, counts: State[int]) -> None:
    """Count words; every fifth time the word is forgotten."""
    counts[word] = counts.get(word, 0) + 1
    if counts[word] == 5:
        del counts[word]


def asked(word: str, sent: Sent, *running: Running) -> int:
    """What the process with the task says. Two workers share the tasks a moment after they start."""

    def answers() -> list[int]:
        found = []
        for one in running:
            with suppress(TaskElsewhere):
                found.append(int(one.query("count", "counts", word, after=sent).value))
        return found

    return int(until(answers, f"an answer for {word}", 60)[0])


def test_a_table_follows_its_store_from_worker_to_worker(kafka: KafkaFixture) -> None:
    """It has what all of them committed, and what each query of the task's process says."""
    name, cluster = kafka.unique("g"), Kafka(kafka.bootstrap)
    source, words = f"{name}.words", [f"w{n}" for n in range(40)]
    graph = Graph(
        name,
        Source(source),
        Processor(count, inputs=source, state={"counts": Store(Json(int))}),
        defaults=Topic(value=Json(str), partitions=3),
    )
    with connect(cluster, graph) as client:
        with start(graph, cluster) as running:
            for word in words[:5] * 2:
                last = client.send(source, word, key=word)
            view = client.table("count", "counts")
            view.wait_for(last)
            running.wait_idle()
            for word in words[:5]:
                view.wait_for(client.send(source, word, key=word))
                assert view[word] == 3
        sent = [client.send(source, word, key=word) for word in words * 2]
        with start(graph, cluster) as one, start(graph, cluster) as two:
            for place in sent[-40:]:
                view.wait_for(place, timeout_s=60)
            expected = dict.fromkeys(words[5:], 2)  # the first five words were there five times
            assert view.copy() == expected
            last_of = dict(zip(words * 2, sent, strict=True))
            assert {word: asked(word, last_of[word], one, two) for word in expected} == expected
            with connect(cluster, graph) as other, other.table("count", "counts") as late:
                assert late.copy() == expected
                for place in sent:
                    late.wait_for(place, timeout_s=1)


def examples_of_accounts(directory: Path, kafka: KafkaFixture) -> str:
    """Copies of the examples with names of their own on the cluster; gives the name of the graph."""
    name = kafka.unique("bank")
    (directory / "examples").mkdir()
    for file in ("accounts.py", "accounts_http.py"):
        text = (ROOT / "examples" / file).read_text(encoding="utf-8")
        text = text.replace("localhost:9092", kafka.bootstrap).replace('"bank', f'"{name}')
        (directory / "examples" / file).write_text(text, encoding="utf-8")
    return name


def environment(directory: Path) -> dict[str, str]:
    """The copies come before the originals."""
    return os.environ | {"PYTHONPATH": f"{directory}{os.pathsep}{ROOT}"}


@contextmanager
def process(command: Sequence[str | Path], directory: Path, log: IO[bytes]) -> Iterator[subprocess.Popen[str]]:
    """A program that is stopped at the end."""
    running = subprocess.Popen(
        command, cwd=directory, env=environment(directory), stdout=subprocess.PIPE, stderr=log, text=True
    )
    try:
        yield running
    finally:
        running.send_signal(signal.SIGINT)
        try:
            running.wait(30)
        finally:
            running.kill()
            running.wait()


def ask(url: str, method: str = "GET") -> tuple[int, Any]:
    """Status and JSON of a request."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_accounts_are_made_of_events_and_served_over_http(kafka: KafkaFixture, tmp_path: Path) -> None:
    """The example prints the accounts and replays the events; then another process serves them and pays in."""
    examples_of_accounts(tmp_path, kafka)
    example = [sys.executable, "examples/accounts.py"]
    done = subprocess.run(
        example, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=False, timeout=110
    )
    assert done.returncode == 0, done.stdout + done.stderr
    *accounts, refused, highest = done.stdout.splitlines()
    assert sorted(accounts) == [
        "('ann', 300)",
        "('bob', 300)",
    ]
    assert refused == "refused: account 'ann' has only 500 cents"
    assert highest == "500"

    run = [sys.executable, "-m", "cues_kafka.cli.main", "run", "examples/accounts.py:graph", "--only", "accounts"]
    with (
        (tmp_path / "log").open("wb") as log,
        process([*run, "--bootstrap", kafka.bootstrap], tmp_path, log),
        process([sys.executable, "-m", "examples.accounts_http", "0"], tmp_path, log) as server,
    ):
        assert server.stdout
        found = re.match(r"http://\S+", server.stdout.readline())
        assert found, (tmp_path / "log").read_text()
        url = found[0]
        assert ask(url) == (200, {"ann": 300, "bob": 300})
        assert ask(f"{url}ann?cents=5", "POST") == (200, {"ann": 305})
        assert ask(f"{url}bob") == (200, {"bob": 300})
        assert ask(f"{url}eve") == (404, {"error": "there is no account 'eve'"})
        assert ask(f"{url}eve?cents=1", "POST") == (200, {"eve": 1})
        assert ask(f"{url}ann?cents=all", "POST")[0] == 400
