"""How much memory a worker takes before a backlog of large messages: on a real broker, in a process of its own."""

from __future__ import annotations

import os
import re
from pathlib import Path
from textwrap import dedent

from cues_kafka import Kafka, connect
from cues_kafka.cli.loading import load_graph
from cues_kafka.testing.fixtures import KafkaFixture
from tests.integration.test_run_command import running
from tests.integration.test_supervisor import wait_for

MESSAGES, SIZE = 500, 500_000
"""250 MB: more than the limit, and each message is a large part of what the client keeps ready."""

LIMIT_MIB = 200


def test_a_worker_before_large_messages_stays_small(kafka: KafkaFixture, tmp_path: Path) -> None:
    """Two partitions and a function that is slower than the fetching: what is fetched ahead is bounded by its bytes."""
    name = kafka.unique("memory")
    file = tmp_path / f"graph_{name.replace('-', '_')}.py"
    file.write_text(
        dedent(
            f"""
            import time
            from cues_kafka import Graph, Processor, Raw, Source, Topic

            def size(value: bytes) -> int:
                time.sleep(0.01)
                return len(value)

            graph = Graph("{name}", Source("{name}.in"), Processor(size, inputs="{name}.in", outputs="{name}.out"),
                          topics={{"{name}.in": Topic(value=Raw(), partitions=2)}})
            """
        )
    )
    graph, log = load_graph(f"{file}:graph"), tmp_path / "log"
    with running(kafka, log, f"{file}:graph") as process, connect(Kafka(kafka.bootstrap), graph) as client:
        wait_for(lambda: b"ready after" in log.read_bytes(), timeout_s=40)
        value = os.urandom(SIZE)
        for _ in range(MESSAGES // 50):
            client.send_many(f"{name}.in", [value] * 50)
        wait_for(lambda: len(client.messages(f"{name}.out", limit=MESSAGES)) == MESSAGES, timeout_s=120)
        [peak] = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())

    assert int(peak) / 1024 < LIMIT_MIB
