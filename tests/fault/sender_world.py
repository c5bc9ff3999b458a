"""A program that sends numbered messages with ids, and dies by SIGKILL inside of a transaction."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cues_kafka import Kafka, Sent, connect
from cues_kafka.brokers.kafka.session import KafkaSession

MOMENTS = ("produced", "flushed", "committing", "committed")


def die() -> None:
    """End as by SIGKILL from outside."""
    os.kill(os.getpid(), signal.SIGKILL)


def doomed(moment: str, seed: int) -> None:
    """Have the next transaction of this process end with it: behind a call, or at any time while it commits."""
    delay_s = random.Random(seed).random() * 0.01

    def wrap(name: str) -> None:
        original: Callable[..., Any] = getattr(KafkaSession, name)

        def call(self: KafkaSession, *args: Any) -> Any:
            done = original(self, *args)
            die()
            return done

        setattr(KafkaSession, name, call)

    match moment:
        case "produced":
            wrap("produce")
        case "flushed":
            wrap("flush")
        case "committed":
            wrap("commit")
        case "committing":
            original = KafkaSession.commit

            def commit(self: KafkaSession) -> str | None:
                timer = threading.Timer(delay_s, die)
                timer.start()
                original(self)
                timer.join()
                return None

            KafkaSession.commit = commit  # type: ignore[method-assign]


def send_all(bootstrap: str, topic: str, name: str, log: str, *, count: int, life: int, moment: str | None) -> None:
    """
    Send what is not sent yet. The log has the offset of each message that this program knows of.

    With `moment`, die in the transaction of one of the next messages.
    """
    path = Path(log)
    known = [int(line) for line in path.read_text().splitlines()]
    spared = random.Random(life).randrange(3)
    with connect(Kafka(bootstrap), name=name) as client, path.open("a", buffering=1) as done:
        for number in range(len(known), count):
            sent: Sent | None = None
            if number == len(known):  # only the first one may have been tried before
                sent = client.sent(topic, f"o-{number}", since={0: known[-1]} if known else None)
            if moment is not None and number - len(known) == spared:
                doomed(moment, life)
            sent = sent or client.send(topic, number, id=f"o-{number}")
            done.write(f"{sent.offset}\n")
