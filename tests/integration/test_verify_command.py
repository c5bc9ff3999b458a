"""`cues-kafka verify` on a real broker: after a run, while it runs, and with planted defects."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cues_kafka import Graph, Kafka, Message, start
from cues_kafka.brokers.open import open_broker
from cues_kafka.cli.loading import load_graph
from cues_kafka.cli.main import app
from cues_kafka.core.delivery import HEADER, provenance_prefix
from cues_kafka.ports.broker import Broker
from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.verify.scan import Report, verify

SHOP = """
from cues_kafka import Graph, Json, Out, Processor, Source, Topic


def check(number):
    if number % 7 == 0:
        raise ValueError("seven")
    return number if number % 10 else None


def route(number):
    yield Out("all", number)
    if number % 2:
        yield Out("odd", number)


def keep(number):
    pass


def graph(name):
    return Graph(
        name,
        Source(f"{name}.in"),
        Processor(check, inputs=f"{name}.in", outputs=f"{name}.checked"),
        Processor(route, inputs=f"{name}.checked", outputs={"all": f"{name}.all", "odd": f"{name}.odd"}),
        Processor(keep, inputs=f"{name}.all"),
        errors=f"{name}.errors",
        defaults=Topic(value=Json(int), partitions=2),
    )


shop = graph("@NAME@")
"""


@pytest.fixture
def shop(kafka: KafkaFixture, tmp_path: Path) -> tuple[str, Graph]:
    """MODULE:GRAPH of a file, and the graph in it."""
    path = tmp_path / f"{kafka.prefix.replace('-', '_')}.py"
    path.write_text(SHOP.replace("@NAME@", kafka.unique("g")))
    return f"{path}:shop", load_graph(f"{path}:shop")


@pytest.fixture
def broker(kafka: KafkaFixture) -> Iterator[Broker]:
    broker = open_broker(Kafka(kafka.bootstrap))
    yield broker
    broker.close()


def command(kafka: KafkaFixture, target: str, *options: str) -> tuple[int, str]:
    """Exit code and output of the program."""
    result = CliRunner().invoke(app, ["verify", target, "--bootstrap", kafka.bootstrap, *options])
    return result.exit_code, result.stdout


def outcome(graph: Graph, broker: Broker, offset: int, *, topic: str, part: str = "0/1", task: int = 0) -> Any:
    """A record as `route` would write it, for partition 0 of a topic."""
    source = f"{graph.name}.checked"
    ids = [("input", broker.facts([source]).topics[source].topic_id)]
    header = provenance_prefix(f"{graph.name}.route/{task}", 2, ids) + f"{part} {offset}".encode()
    return topic, 0, b"k", b"1", [(HEADER, header)], 0


def numbers(report: Report) -> dict[str, tuple[int, ...]]:
    """Per processor: steps, outputs, messages, errors, nils."""
    return {one.name: (one.steps, one.outputs, one.messages, one.errors, one.totals.nils) for one in report.processors}


def test_a_real_run_is_verified_and_planted_defects_are_found(
    kafka: KafkaFixture, shop: tuple[str, Graph], broker: Broker
) -> None:
    """Clean: exit code 0 and the numbers of plain Python. Then one defect of each kind: 3, each counted."""
    target, graph = shop
    with start(graph, Kafka(kafka.bootstrap)) as running:
        for first in range(0, 3000, 500):
            running.send_many(f"{graph.name}.in", [Message(n, key=str(n)) for n in range(first, first + 500)])
        running.wait_idle(timeout_s=60)
    good = [n for n in range(3000) if n % 10 and n % 7]
    errors = sum(n % 7 == 0 for n in range(3000))
    odd = sum(n % 2 for n in good)
    report = verify(graph, broker)
    assert (report.verdict, list(report.lines)) == ("ok", [])
    assert numbers(report) == {
        "check": (3000, len(good), len(good), errors, 3000 - len(good) - errors),
        "route": (len(good), len(good), len(good) + odd, 0, 0),
        "keep": (len(good), 0, 0, 0, len(good)),
    }
    code, shown = command(kafka, target)
    assert code == 0, shown
    assert "everything is verified, nothing is wrong" in shown

    sender = broker.sender("vandal")
    everything, failed = f"{graph.name}.all", f"{graph.name}.errors"
    [sent] = sender.send([(f"{graph.name}.checked", 0, b"k", b"1", None, 0)])
    code, shown = command(kafka, target)
    assert code == 6, shown
    assert "the graph is not well now: route/" in shown, "no worker runs, and a message waits"
    code, shown = command(kafka, target, "--complete")
    assert code == 5, shown
    assert re.search(r"\d offsets? of 1 task (is|are) not delivered yet", shown)
    sender.send(
        [
            outcome(graph, broker, 0, topic=everything, part="0/2"),  # a duplicate, or other than there was
            outcome(graph, broker, 1, topic=failed),  # an error besides an output
            outcome(graph, broker, sent.offset, topic=everything),  # above the position
            outcome(graph, broker, 0, topic=everything, task=9),  # of no task
        ]
    )
    sender.close()
    report = verify(graph, broker)
    found = report["route"]
    assert (found.duplicated, found.ahead, found.unfounded, found.lost, found.torn) == (2, 1, 1, 0, 0), [*report.lines]
    assert report["check"].verdict == "ok"
    code, shown = command(kafka, target, "--json", "--processor", "route")
    data = json.loads(shown)
    assert (code, data["verdict"], data["anomalies"]) == (3, "WRONG", 4)
    assert [one["name"] for one in data["processors"]] == ["route"]


def test_a_lost_and_a_torn_output_are_found(shop: tuple[str, Graph], kafka: KafkaFixture, broker: Broker) -> None:
    """A position that moves over two messages: one without an outcome, one with half of it."""
    from dataclasses import replace

    from cues_kafka.core.records import Attempt, Totals
    from cues_kafka.ports.log import TopicPartition
    from cues_kafka.records.bytes import encode_record
    from cues_kafka.records.reading import read_record
    from cues_kafka.records.scanning import read_range

    _, graph = shop
    with start(graph, Kafka(kafka.bootstrap)) as running:
        running.send_many(f"{graph.name}.in", [Message(n, key=str(n)) for n in range(1, 50, 2)])
        running.wait_idle(timeout_s=60)
    sender = broker.sender("vandal")
    sent = sender.send([(f"{graph.name}.checked", 0, b"k", b"1", None, 0)] * 2)
    sender.close()
    backing = TopicPartition(f"{graph.name}.route.backing", 0)
    marks = broker.watermarks([backing])[backing]
    newest = [read_record(message) for message in read_range(broker, backing, marks.low, marks.stable)][-1]
    batch = Totals(deliveries=2, outputs=2, messages=4)
    [position] = newest.positions
    lie = Attempt(
        sequence=newest.sequence + 1,
        step=newest.step + 2,
        positions=(replace_offset(position, sent[-1].offset + 1),),
        totals=newest.totals.plus(batch),
        batch=batch,
        born=newest.born,
        writer=replace(newest.writer, name="vandal"),
        fingerprint=newest.fingerprint,
    )
    session = broker.session("vandal")
    session.init(timeout_s=30)
    session.begin()
    session.produce(
        [
            (*backing, b"t", encode_record(lie), [], 0),
            outcome(graph, broker, sent[-1].offset, topic=f"{graph.name}.odd", part="1/2"),
        ]
    )
    session.flush()
    session.commit()
    session.close()
    found = verify(graph, broker)["route"]
    assert (found.lost, found.torn, found.anomalies) == (1, 1, 2), [task.details for task in found.tasks]


def replace_offset(position: Any, offset: int) -> Any:
    return position._replace(offset=offset)


def test_a_live_pipeline_is_never_wrong(shop: tuple[str, Graph], kafka: KafkaFixture, broker: Broker) -> None:
    """Messages come all the time while it is looked at again and again."""
    _, graph = shop
    done = threading.Event()
    with start(graph, Kafka(kafka.bootstrap)) as running:

        def feed() -> None:
            first = 0
            while not done.wait(0.02):  # without a pause, most of the time goes into messages
                running.send_many(f"{graph.name}.in", [Message(n, key=str(n)) for n in range(first, first + 200)])
                first += 200

        feeder = threading.Thread(target=feed)
        feeder.start()
        try:
            looks = [verify(graph, broker) for _ in range(5)]
        finally:
            done.set()
            feeder.join()
        running.wait_idle(timeout_s=60)
    looks.append(verify(graph, broker))
    assert [(look.verdict, list(look.lines)) for look in looks] == [("ok", [])] * len(looks)
    assert looks[-1]["check"].steps > looks[0]["check"].steps


def test_a_graph_that_never_ran_is_not_verifiable(shop: tuple[str, Graph], kafka: KafkaFixture) -> None:
    """Exit code 4, neither ok nor wrong."""
    target, _ = shop
    code, shown = command(kafka, target)
    assert code == 4, shown
    assert "cannot be verified" in shown


BANK = """
from cues_kafka import Graph, Json, Processor, Source, Store, Topic


def add(payment, sums):
    name, cents = payment
    sums[name] = sums.get(name, 0) + cents
    return sums[name]


def forgetful(payment, sums):
    name, cents = payment
    sum_ = sums.get(name, 0) + cents
    if cents != 13:
        sums[name] = sum_
    return sum_


def graph(name, fn):
    return Graph(
        name,
        Source(f"{name}.in"),
        Processor(fn, inputs=f"{name}.in", outputs=f"{name}.out", name="add", state={"sums": Store(Json(int))}),
        defaults=Topic(value=Json(), partitions=2),
    )


bank, other = graph("@NAME@", add), graph("@NAME@", forgetful)
"""


def test_a_lost_and_a_doubled_update_of_a_store_are_found(kafka: KafkaFixture, tmp_path: Path, broker: Broker) -> None:
    """A store that forgets one update, and a transaction that takes one twice; its key and both values are shown."""
    path = tmp_path / f"{kafka.prefix.replace('-', '_')}_bank.py"
    path.write_text(BANK.replace("@NAME@", kafka.unique("g")))
    target, other = f"{path}:bank", load_graph(f"{path}:other")
    graph = load_graph(target)
    with start(graph, Kafka(kafka.bootstrap)) as running:
        for first in range(0, 300, 100):
            pairs = [(f"c{number % 5}", 1) for number in range(first, first + 100)]
            running.send_many(f"{graph.name}.in", [Message([*pair], key=pair[0]) for pair in pairs])
        running.wait_idle(timeout_s=60)
    code, shown = command(kafka, target, "--state")
    assert code == 0, shown

    with start(other, Kafka(kafka.bootstrap)) as running:
        sent = running.send(f"{graph.name}.in", Message(["c1", 13], key="c1"))
        running.wait_idle(timeout_s=60)
    code, shown = command(kafka, target, "--state")
    assert code == 3, shown
    assert f"add/{sent.partition}: store 'sums': key 'c1' is 60, expected 73" in shown

    session = broker.session(f"{graph.name}.vandal")
    session.init(timeout_s=30)
    session.begin()
    session.produce([(f"{graph.name}.add.sums.changelog", sent.partition, b"kc1", b"86", None, 0)])
    session.flush()
    session.commit()
    session.close()
    code, shown = command(kafka, target, "--state", "--json")
    data = json.loads(shown)
    [lines] = [task["details"] for one in data["processors"] for task in one["tasks"] if task["diverging"]]
    assert (code, data["processors"][0]["diverging"]) == (3, 1)
    assert "key 'c1' is 86, expected 73" in "\n".join(lines)
    assert command(kafka, target)[0] == 0
