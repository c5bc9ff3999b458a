"""Commands that a signal ends half-way on a real broker, in a process of their own, and that are run again."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from cues_kafka import Kafka, Message, start
from cues_kafka.cli.loading import load_graph
from cues_kafka.testing.fixtures import KafkaFixture
from tests.integration.test_supervisor import wait_for

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]

SHOP: Final = """
from cues_kafka import Errors, Graph, Json, Processor, Source, Topic

def check(n):
    if n < 0:
        raise ValueError("negative")
    return n

graph = Graph(
    "{name}", Source("{name}.in"), Processor(check, inputs="{name}.in", outputs="{name}.out", {more}),
    defaults=Topic(value=Json(), partitions=2), errors=Errors("{name}.errors"),
)
"""

PROGRAM: Final = """
import os, sys
from cues_kafka.brokers.kafka import KafkaBroker
from cues_kafka.brokers.kafka.session import KafkaSession
from cues_kafka.brokers.kafka.sender import KafkaSender
from cues_kafka.cli.main import main

number, method, nth = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
owner = next(one for one in (KafkaSession, KafkaSender, KafkaBroker) if method in vars(one))
whole, calls = getattr(owner, method), []

def called(*args, **kwargs):
    calls.append(1)
    if len(calls) == nth:
        os.kill(os.getpid(), number)
    return whole(*args, **kwargs)

setattr(owner, method, called)
sys.argv = ["cues-kafka", *sys.argv[4:]]
main()
"""

VERBS: Final = {
    "reset": (["reset", "GRAPH", "check", "--yes"], "commit", 2, "Written: check/0."),
    "strategy": (["strategy", "LOOSE", "check", "--yes"], "commit", 2, "Written: check/0."),
    "rename": (["rename", "RENAMED", "check", "checks", "--yes"], "commit", 4, "Written: checks/0, checks/1, check/0."),
    "delete": (["delete", "GRAPH", "--confirm", "NAME"], "delete", 2, "topic NAME.check.replay is deleted"),
    "replay": (["errors", "replay", "GRAPH", "--yes"], "send", 1, "Requests that were written stay"),
}


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL], ids=["SIGINT", "SIGKILL"])
@pytest.mark.parametrize("verb", VERBS)
def test_command_ended_half_way_is_ended_by_the_next_run(
    kafka: KafkaFixture, tmp_path: Path, verb: str, by: signal.Signals
) -> None:
    """Nothing is lost or repeated, as `verify`, `plan --records` and the outputs of the next run say."""
    words, method, nth, said = VERBS[verb]
    name = kafka.unique("cut")
    for file, more in (
        ("shop", ""),
        ("loose", "strategy='at-most-once'"),
        ("renamed", "name='checks', renamed_from='check'"),
    ):
        (tmp_path / f"{file}.py").write_text(SHOP.format(name=name, more=more))
    targets = {"GRAPH": "shop.py:graph", "LOOSE": "loose.py:graph", "RENAMED": "renamed.py:graph", "NAME": name}
    with start(load_graph(f"{tmp_path}/shop.py:graph"), Kafka(kafka.bootstrap)) as running:
        for n in (1, 2, -3, 4):
            running.send(f"{name}.in", Message(n, partition=n % 2))
        running.wait_idle()
    command = [targets.get(word, word) for word in words]

    def run(program: list[str], words: list[str]) -> subprocess.CompletedProcess[str]:
        given = [*program, *words, "--bootstrap", kafka.bootstrap]
        return subprocess.run(given, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)

    first = run([sys.executable, "-c", PROGRAM, str(int(by)), method, str(nth)], command)
    text = first.stdout + first.stderr
    assert "Traceback" not in text
    if by == signal.SIGINT:
        assert first.returncode == 130, text
        assert said.replace("NAME", name) in text
        assert "Run the same command again" in text
    else:
        assert first.returncode == -signal.SIGKILL, text
    plain, told = [sys.executable, "-m", "cues_kafka"], []

    def ended() -> bool:
        found = run(plain, command)
        told.append(found.stdout + found.stderr)
        # A tool that was killed is a member of the group until its session ends, which the command says.
        assert not found.returncode or "one that was killed is a member until its session ends" in told[-1], told[-1]
        return not found.returncode

    wait_for(ended, timeout_s=60)
    if verb == "delete":
        assert "nothing to delete" in run(plain, command).stdout
        return
    target = next(one for one in command if one.endswith(":graph"))
    with start(load_graph(f"{tmp_path}/{target}"), Kafka(kafka.bootstrap)) as running:
        running.wait_idle()
        values = sorted(message.value for message in running.messages(f"{name}.out"))
    assert values == ([1, 1, 2, 2, 4, 4] if verb == "reset" else [1, 2, 4])
    for words in (["plan", target, "--records"], *([["verify", target]] if verb != "reset" else [])):
        looked = run(plain, words)
        assert looked.returncode == 0, looked.stdout + looked.stderr
