"""Tailers of applications, which wait for messages side by side."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from cues_kafka import connect
from tests.scenarios.test_graphs import X
from tests.scenarios.world import PATIENCE_S, Stage


def test_two_tailers_that_wait_both_get_the_message(stage: Stage) -> None:
    """Each has a place of its own, so one takes nothing from the other."""
    waiting = threading.Barrier(3)
    with connect(stage.cluster) as client, ThreadPoolExecutor(2) as threads:
        topic = client.topic(stage.name("s1"), create=True)

        def first() -> tuple[X, int]:
            with topic.tailer() as tailer:
                assert tailer.read() is None
                waiting.wait(PATIENCE_S)
                message = tailer.read_blocking(timeout_s=PATIENCE_S)
                assert message is not None
                return message.value, tailer.offset

        found = [threads.submit(first) for _ in range(2)]
        waiting.wait(PATIENCE_S)
        topic.append({"x": 1})

        assert [one.result(PATIENCE_S) for one in found] == [({"x": 1}, 1)] * 2
