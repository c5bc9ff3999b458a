"""`cues-kafka send` and `cues-kafka tail`, on a real broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cues_kafka import Kafka, Message, Raw, Topic, connect
from cues_kafka.brokers.open import open_broker
from cues_kafka.cli.main import app
from cues_kafka.ports.facts import NewTopic
from cues_kafka.testing.fixtures import KafkaFixture

NOW_MS = int(time.time() * 1000) - 1000

GRAPH = """
from dataclasses import dataclass
from cues_kafka import Avro, Graph, Processor, Source, Topic

@dataclass
class Order:
    id: str
    total: int

def same(order: Order) -> Order:
    return order

topics = {"TOPIC": Topic(value=Avro(Order), key="id")}
graph = Graph("shop", Source("TOPIC"), Processor(same, inputs="TOPIC", outputs="out"), topics=topics)
"""


@pytest.fixture
def topic(kafka: KafkaFixture) -> str:
    """With two partitions."""
    name = kafka.unique("lines")
    broker = open_broker(Kafka(kafka.bootstrap))
    broker.create([NewTopic(name, 2)])
    broker.close()
    return name


@pytest.fixture
def run(kafka: KafkaFixture) -> Callable[..., str]:
    """What a command prints; it must end with this code."""

    def run(*words: str, lines: str = "", code: int = 0) -> str:
        result = CliRunner().invoke(app, [*words, "--bootstrap", kafka.bootstrap], input=lines)
        assert result.exit_code == code, result.output
        return result.output

    return run


def test_lines_are_sent_and_shown(run: Callable[..., str], topic: str) -> None:
    """As values, with their places, and as JSON."""
    assert run("send", topic, '{"n": 1}', "2", "--key", "k", "--header", "h=x=y") == f"2 messages sent to {topic}\n"
    assert run("send", topic, lines='"three"\n\n4\r\n', code=0) == f"2 messages sent to {topic}\n"
    assert run("send", topic, lines="") == f"0 messages sent to {topic}\n"
    assert sorted(run("tail", topic).splitlines()) == ['"three"', "2", "4", '{"n": 1}']
    shown = [json.loads(line) for line in run("tail", topic, "--format", "json").splitlines()]
    [first] = [one for one in shown if one["value"] == {"n": 1}]
    assert (first["topic"], first["key"], first["headers"]) == (topic, "k", [["h", "x=y"]])
    at = str(first["offset"])
    assert run("tail", topic, "--partition", str(first["partition"]), "--from", at, "--limit", "1") == '{"n": 1}\n'
    full = run("tail", topic, "--format", "full", "--from", "2020-01-01T00:00Z", "--limit", "4")
    assert f"{topic}/{first['partition']} at {at}  " in full
    assert '  k  {"n": 1}\n' in full
    assert run("tail", topic, "--from", "latest") == run("tail", topic, "--from", "2100-01-01T00:00+00:00") == ""


def test_whole_messages_and_plain_text_are_sent(run: Callable[..., str], topic: str) -> None:
    """A line may have everything that a message has."""
    line = {
        "value": [1],
        "key": "k",
        "headers": {"a": "b"},
        "partition": 1,
        "timestamp_ms": NOW_MS,
        "id": "i",
    }
    run("send", topic, "--format", "message", "--header", "c=d", lines=f"{json.dumps(line)}\n")
    run("send", topic, "--format", "message", '{"value": null, "key": "gone"}')
    run("send", topic, "--format", "text", "not, JSON")
    shown = [json.loads(one) for one in run("tail", topic, "--format", "json").splitlines()]
    [first] = [one for one in shown if one["headers"]]
    assert first.items() >= {"value": [1], "key": "k", "partition": 1, "timestamp_ms": NOW_MS}.items()
    assert first["headers"] == [["c", "d"], ["a", "b"], ["cues-id", "i"]]
    assert sorted((one["key"], one["value"]) for one in shown if not one["headers"] and one["key"]) == [("gone", None)]
    assert "not, JSON" in run("tail", topic).splitlines()


def test_lines_with_ids_may_be_sent_again(run: Callable[..., str], topic: str, kafka: KafkaFixture) -> None:
    """By a client with a name, which asks what is there; and all together or not at all."""
    loader = ("send", topic, "--id", "november", "--name", kafka.unique("loader"))
    assert run(*loader, lines="1\n2\n") == f"2 messages sent to {topic}; 0 messages had been sent before\n"
    assert run(*loader, lines="1\n2\n3\n") == f"1 message sent to {topic}; 2 messages had been sent before\n"
    assert run("send", topic, "9", "--id", "alone") == f"1 message sent to {topic}\n"
    assert sorted(run("tail", topic).splitlines()) == ["1", "2", "3", "9"]
    assert "message 2, 'no JSON'" in run("send", topic, "--atomic", lines="5\nno JSON\n", code=2)
    run("send", topic, "--atomic", lines="5\n6\n")
    with connect(Kafka(kafka.bootstrap)) as client, client.topic(topic).tailer(None) as tailer:
        found = [tailer.read_blocking(10) for _ in range(6)]
        assert sorted(message.value for message in found if message) == [1, 2, 3, 5, 6, 9]


def test_a_graph_gives_codecs_and_keys(run: Callable[..., str], topic: str, tmp_path: Path) -> None:
    """Lines are JSON all the same; a message of another kind is named, and the rest is shown."""
    module = tmp_path / "shop_of_lines.py"
    module.write_text(GRAPH.replace("TOPIC", topic))
    graph = ("--graph", f"{module}:graph")
    run("send", topic, *graph, lines='{"id": "a", "total": 1}\n{"id": "b", "total": 2}\n')
    assert "expected int, got str" in run("send", topic, '{"id": "a", "total": "1"}', *graph, code=2)
    run("send", topic, "--format", "text", "no Avro", "--key", "x")
    printed = run("tail", topic, *graph, "--format", "full", code=1)
    assert sorted(line.rsplit("  ", 2)[1] for line in printed.splitlines() if "/" in line.split()[0]) == ["a", "b"]
    assert "1 message did not fit the codec" in printed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["send", "TOPIC", "1", "--header", "h"], "Write it as NAME=VALUE"),
        (["send", "TOPIC", "1", "--atomic", "--id", "x"], "exclude each other"),
        (["send", "TOPIC", "{", "--name", "x"], "message 1, '{'"),
        (["send", "TOPIC", "[1]", "--format", "message"], "a JSON object with the field value"),
        (
            ["send", "TOPIC", '{"value": 1, "valeu": 2}', "--format", "message"],
            "a JSON object with the field value",
        ),
        (["send", "TOPIC", "1", "--name", "a..b"], "with dots between them"),
        (["send", "nowhere-at-all", "1"], "does not exist"),
        (["tail", "nowhere-at-all"], "does not exist"),
        (["tail", "TOPIC", "--from", "yesterday"], "give earliest, latest, an offset, or a time"),
        (["tail", "TOPIC", "--from", "0"], "Add --partition"),
        (["tail", "TOPIC", "--from", "99", "--partition", "0"], "to_start() and to_end() go to its ends"),
        (["tail", "TOPIC", "--partition", "2"], "has partitions 0 to 1"),
        (["tail", "TOPIC", "--limit", "0"], "is too small"),
    ],
)
def test_wrong_words_are_refused(run: Callable[..., str], topic: str, words: list[str], said: str) -> None:
    """With what to write instead."""
    printed = run(*(topic if word == "TOPIC" else word for word in words), code=2)

    assert said in " ".join(printed.replace("│", " ").split())


def test_tail_follows_until_it_is_interrupted(topic: str, kafka: KafkaFixture) -> None:
    """What is there before it begins is not shown; Ctrl-C ends it in order."""
    program = [sys.executable, "-m", "cues_kafka.cli.main"]
    command = [*program, "tail", topic, "--follow", "--bootstrap", kafka.bootstrap]
    with connect(Kafka(kafka.bootstrap)) as client:
        client.send(topic, "before")
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        following = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        try:
            assert following.stdout is not None
            number, deadline = 0, time.monotonic() + 30
            os.set_blocking(following.stdout.fileno(), False)
            while not (line := following.stdout.readline()):
                assert time.monotonic() < deadline
                client.send(topic, number)  # when it begins to follow is not told
                number += 1
                time.sleep(0.05)
            assert line.strip().isdecimal()
            following.send_signal(signal.SIGINT)
            assert following.wait(20) == 0
        finally:
            following.kill()
            following.wait()


def test_tail_piped_into_send_copies_messages_as_they_are(
    run: Callable[..., str], topic: str, kafka: KafkaFixture
) -> None:
    """Headers twice and null, NaN, 1.10, large numbers, binary keys, tombstones and times, byte for byte."""
    values = [b"NaN", b"1.10", b"12345678901234567.89", b"9" * 40, b"\x00\xff", b'"\x1b"', b"null", b" 1\n", b"", None]
    headers = [("twice", b"1"), ("twice", b"2"), ("null", None), ("binary", b"\xff")]
    raw, copy = Topic(value=Raw()), kafka.unique("copy")
    with connect(Kafka(kafka.bootstrap)) as client:
        client.topic(copy, Topic(partitions=2), create=True)
        client.topic(topic, raw).append_many(
            Message(value, key=b"\xfe%d" % at, headers=headers, timestamp_ms=NOW_MS + at, partition=at % 2)
            for at, value in enumerate(values)
        )
        lines = run("tail", topic, "--format", "json")
        assert run("send", copy, "--format", "message", lines=lines) == f"{len(values)} messages sent to {copy}\n"
        sent, copied = (
            [(m.partition(), m.key(), m.value(), m.headers(), m.timestamp()[1]) for m in client.committed(name)]
            for name in (topic, copy)
        )
    assert len(sent) == len(values)
    assert copied == sent


def test_time_0_is_written_as_1(run: Callable[..., str], kafka: KafkaFixture) -> None:
    """The client takes 0 for the present. Brokers delete messages of 1970 soon, unless the topic keeps all."""
    topic = kafka.unique("lines")
    broker = open_broker(Kafka(kafka.bootstrap))
    broker.create([NewTopic(topic, 2, config={"retention.ms": "-1"})])
    broker.close()
    with connect(Kafka(kafka.bootstrap)) as client:
        client.send(topic, Message(1, timestamp_ms=0, partition=0))
        with client.transaction() as tx:
            tx.append(client.topic(topic), Message(2, timestamp_ms=0, partition=0))
        assert [one.timestamp()[1] for one in client.committed(topic)] == [1, 1]
    assert f"{topic}/0 at 0  1970-01-01T00:00:00.001Z  -  1\n" in run("tail", topic, "--format", "full")
