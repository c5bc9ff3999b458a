"""The graph whose calls are killed, and the body of the processes that run it (see test_call_kills)."""

from __future__ import annotations

import os
from typing import Any

from cues_kafka import (
    CallUnanswered,
    CommitPolicy,
    Graph,
    Http,
    Json,
    Kafka,
    Once,
    Processor,
    Retry,
    Source,
    Topic,
    start,
)
from tests.fault.killing import Killing, Point

PARTITIONS = 2
BAD = 7
"""Of ten numbers, the one whose step fails behind its first call."""


def pay(n: int, http: Any, once: Any) -> list[Any]:
    """Two calls, and something that is made once."""
    paid = http.post("/pay", json={"n": n}).json()
    if n % 10 == BAD:
        raise ValueError(f"bad {n}")
    token = once("token", lambda: os.urandom(8).hex())
    noted = http.put(f"/notes/{n}", json={"payment": paid["payment"], "token": token}).json()
    return [n, paid["payment"], noted["payment"], token]


def graph(prefix: str) -> Graph:
    """One processor. Quarantine is off: several kills may meet one message."""
    return Graph(
        prefix,
        Source(f"{prefix}.numbers"),
        Processor(
            pay,
            inputs=f"{prefix}.numbers",
            outputs=f"{prefix}.paid",
            effects={"http": Http(env="PAY_API", journal=True, patience_s=0.3, timeout_s=5), "once": Once()},
            retry=Retry(on=(CallUnanswered,), first_s=0.1, max_s=0.5),
            quarantine_after=None,
        ),
        errors=f"{prefix}.failed",
        defaults=Topic(value=Json(), partitions=PARTITIONS),
    )


def run(bootstrap: str, prefix: str, url: str, point: Point | None) -> None:
    """Run until idle, or be killed before or after the nth effect of a name."""
    os.environ["PAY_API"] = url
    policy = CommitPolicy(max_messages=4)
    with start(graph(prefix), Kafka(bootstrap), instance=f"{prefix}.1", policy=policy, hook=Killing(point)) as running:
        running.wait_idle(timeout_s=60)
