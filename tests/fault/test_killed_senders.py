"""Senders that die by SIGKILL inside of their transactions, on a real broker (K4)."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Self

import pytest

from cues_kafka import Kafka, connect
from cues_kafka.testing.fixtures import KafkaFixture
from tests.fault.killing import forked
from tests.fault.sender_world import MOMENTS, send_all
from tests.fault.support import committed, create

WAIT_S = 2.0
"""How long a reader may wait behind the transaction of a dead sender."""


class Beats:
    """Messages of another program, every 20 ms, and the longest time that a reader waited for one of them."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.longest_s = 0.0
        self.count = 0
        self._over = threading.Event()
        self._failed: list[BaseException] = []
        targets = (self._write, self._read)
        self._threads = [threading.Thread(target=self._run, args=(one, bootstrap, topic)) for one in targets]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        if self._failed:
            raise self._failed[0]

    def _run(self, target: object, bootstrap: str, topic: str) -> None:
        assert callable(target)
        try:
            target(bootstrap, topic)
        except BaseException as error:
            self._failed.append(error)

    def _write(self, bootstrap: str, topic: str) -> None:
        with connect(Kafka(bootstrap)) as client:
            while not self._over.wait(0.02):
                client.send(topic, {"beat": time.monotonic()})

    def _read(self, bootstrap: str, topic: str) -> None:
        with connect(Kafka(bootstrap)) as client, client.topic(topic).tailer(start="latest") as tailer:
            while not self._over.is_set():
                found = tailer.read_blocking(0.5)
                if found is not None and isinstance(found.value, dict):
                    self.count += 1
                    self.longest_s = max(self.longest_s, time.monotonic() - found.value["beat"])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kills", [4, pytest.param(100, marks=pytest.mark.full)])
def test_a_sender_that_is_killed_in_its_transactions_sends_each_id_once(
    kafka: KafkaFixture, tmp_path: Path, kills: int
) -> None:
    """It asks for one id after each start. A reader of other messages waits for less than two seconds."""
    topic, name, log = kafka.unique("orders"), kafka.unique("sender"), tmp_path / "sent"
    create(kafka.bootstrap, topic)
    log.touch()
    context = forked()

    def live(life: int, moment: str | None, count: int) -> int | None:
        plan = {"count": count, "life": life, "moment": moment}
        process = context.Process(target=send_all, args=(kafka.bootstrap, topic, name, str(log)), kwargs=plan)
        process.start()
        process.join()
        return process.exitcode

    with Beats(kafka.bootstrap, topic) as beats:
        codes = [live(life, MOMENTS[life % len(MOMENTS)], 10**6) for life in range(kills)]
        count = len(log.read_text().splitlines()) + 5
        assert live(kills, None, count) == 0

    assert codes == [-9] * kills
    ids = [dict(message.headers() or []).get("cues-id") for message in committed(kafka.bootstrap, topic)]
    assert [one for one in ids if one is not None] == [f"o-{number}".encode() for number in range(count)]
    assert beats.count > kills
    assert beats.longest_s < WAIT_S
    print(f"{kills} kills, {count} ids, {beats.count} beats, longest wait {beats.longest_s:.2f} s")
