"""Takes many transactional ids for a moment, so that nothing of their earlier owners comes later (R1, J2)."""

from __future__ import annotations

import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from cues_kafka.brokers.kafka.session import KafkaSession
from cues_kafka.brokers.options import Kafka
from cues_kafka.errors import BrokerError, RetriableError

AT_ONCE: Final = 16
"""How many ids are taken side by side: each needs a client of its own, with five threads."""


def fence(options: Kafka, transactional_ids: Collection[str], timeout_s: float) -> dict[str, BrokerError]:
    """Take each id for a moment, see `ports.broker.Broker.fence`."""
    deadline = time.monotonic() + timeout_s

    def take(one: str) -> BrokerError | None:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return RetriableError(
                f"{one}: the transactional id was not taken within {timeout_s:g} s", code="_TIMED_OUT"
            )
        session = KafkaSession(options, one)
        try:
            session.init(timeout_s=left_s)
        except BrokerError as error:
            return error
        finally:
            session.abandon()
        return None

    ids = list(transactional_ids)
    if not ids:
        return {}
    with ThreadPoolExecutor(min(AT_ONCE, len(ids)), thread_name_prefix="fence") as pool:
        return {one: error for one, error in zip(ids, pool.map(take, ids), strict=True) if error is not None}
