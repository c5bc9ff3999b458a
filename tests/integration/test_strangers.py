"""What another program writes to the topics of a graph that runs: work goes on, and each command answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cues_kafka import Kafka, TaskStopped, start
from cues_kafka.brokers.kafka import KafkaBroker
from cues_kafka.cli.loading import load_graph
from cues_kafka.cli.main import app
from cues_kafka.core.records import KEY
from cues_kafka.ports.broker import Broker
from cues_kafka.records.control import encode
from cues_kafka.state.layers import MARK
from cues_kafka.testing.fixtures import KafkaFixture
from tests.fault.support import until
from tests.unit.records.strangers_bytes import RAW, values
from tests.unit.records.test_strangers import BACKING, CONTROL, REQUEST, STATUS, cut

MODULE = """
from typing import Any
from cues_kafka import Graph, Json, Processor, Source, State, Store, Topic

def counted(order: dict[str, Any], *, s: State[int]) -> dict[str, Any]:
    if order["n"] < 0:
        raise ValueError("bad")
    s["all"] = s.get("all", 0) + 1
    return {{"n": order["n"], "count": s["all"]}}

def same(order: dict[str, Any]) -> dict[str, Any]:
    return order

graph = Graph(
    {name!r},
    Source("{name}.in"),
    Processor(counted, name="p", inputs="{name}.in", outputs="{name}.out", state={{"s": Store(Json(int))}}),
    Processor(same, name="q", inputs="{name}.in", outputs="{name}.copies"),
    errors="{name}.errors",
    cuts="1 day",
    defaults=Topic(value=Json(), partitions=1),
)
"""


def forge(broker: Broker, name: str) -> None:
    """Write to each topic of the graph what is none of its records, and changed ones."""
    keys = {
        "control": ([*CONTROL, b"", b"\xff", b"anything", b"cut/\xff"], [*CONTROL.values()]),
        "status": ([b"p/0", b"q/0", b"x/9", b"\xff", b""], [STATUS]),
        "p.replay": ([b"k", b"\xff"], [REQUEST]),
        "q.backing": ([KEY, b"other", b"\xff"], [BACKING]),
        "p.s.changelog": ([MARK, b"o\xff", b"\x1b[2J"], [b"3", b"-7"]),
    }
    sender = broker.sender(f"{name}.stranger")
    for seed, (topic, (own, samples)) in enumerate(keys.items()):
        found = [*(value for value in RAW if len(value or b"") < 300_000), *values(seed, 30, samples)]
        rows = [(f"{name}.{topic}", 0, own[at % len(own)], value, None, 0) for at, value in enumerate(found)]
        if topic == "control":  # what fits would hold: that is the right of who may write there
            rows = [row for row in rows if row[3] not in CONTROL.values()]
            rows += [(row[0], 0, b"cut/a", value, None, 0) for row in rows[:1] for value in (b"\xff", encode(cut()))]
        sender.send(rows)
    sender.close()


ANSWERS: dict[str, tuple[tuple[str, ...], set[int]]] = {
    "status": (("status", "GRAPH"), {0, 1}),
    "doctor": (("doctor", "GRAPH", "--for", "0.1"), {0, 1}),
    "errors": (("errors", "list", "GRAPH"), {0}),
    "plan": (("plan", "GRAPH", "--records"), {0, 1}),
    "cuts": (("cuts", "GRAPH"), {0}),
    "lineage": (("lineage", "NAME.out/0@0", "--changes", "--graph", "GRAPH"), {0, 1}),
    "verify": (("verify", "GRAPH"), {0, 3, 4}),
    "verify --state": (("verify", "--state", "GRAPH"), {0, 1, 3, 4}),
    "resume": (("resume", "GRAPH"), {0}),
}
"""Commands with the exit codes of their answers; GRAPH and NAME stand for those of the test."""


@pytest.mark.full  # commands ask the broker for 2.7 s of processor time
def test_work_goes_on_and_commands_answer_beside_forged_records(kafka: KafkaFixture, tmp_path: Path) -> None:
    """On control, replay and status, a cut and a changelog; on a backing topic they stop its task, and no other."""
    name = kafka.unique("shop")
    (tmp_path / "app.py").write_text(MODULE.format(name=name))
    target = f"{tmp_path / 'app.py'}:graph"
    cluster = Kafka(kafka.bootstrap)
    stops = pytest.raises(TaskStopped, match=r"task q/0 stopped: .*`cues-kafka delete MODULE:GRAPH q`")
    with stops, start(load_graph(target), cluster) as running:
        running.send_many(f"{name}.in", [{"n": 1}, {"n": -1}])
        running.wait_idle(timeout_s=60.0)
        broker = KafkaBroker(cluster)
        forge(broker, name)
        broker.close()
        running.send(f"{name}.in", {"n": 2})
        said = {}
        for what, (words, codes) in ANSWERS.items():
            given = [word.replace("GRAPH", target).replace("NAME", name) for word in words]
            done = CliRunner().invoke(app, [*given, "--bootstrap", kafka.bootstrap])
            said[what] = (done.exit_code, done.output)
            assert done.exception is None or isinstance(done.exception, SystemExit), (what, done.exception)
            assert done.exit_code in codes, said[what]
            assert not {*done.output} & {"\x1b", "\x07", "\u202e"}, said[what]
        until(lambda: len(running.messages(f"{name}.out")) == 2, "the task beside the forged records delivers")
        counts = [found.value["count"] for found in running.messages(f"{name}.out")]
        assert counts == [1, 2]
