"""Whether a broker gives each marker queue one consumer at a time: exactly once rests on it."""

from __future__ import annotations

import secrets
import time
from typing import Final

from cues_kafka.bridges.stomp.client import StompLogin, StompRefused
from cues_kafka.bridges.stomp.session import StompSession
from cues_kafka.errors import RetriableError

PROBES: Final = 4
"""Two consumers that take turns get two each."""


def shared_markers(login: StompLogin, markers: str) -> list[str]:
    """
    Say what is wrong if a second consumer gets messages of a queue that has one.

    Args:
        login: where the broker is.
        markers: what the names of the marker queues begin with.

    Raises:
        RetriableError: the broker does not answer.
        ConfigError: it is another kind of broker.
        RecoveryError: it refuses the login.
    """
    queue = f"{markers}.check.{secrets.token_hex(8)}"
    sessions: list[StompSession] = []
    try:
        for _ in range(2):
            sessions.append(StompSession(login))
            try:
                sessions[-1].subscribe(queue)
            except StompRefused:
                if len(sessions) == 1:
                    raise
                return []  # a second consumer is refused, as it should be
        if not _gets_some(sessions[0], sessions[1], queue, login.timeout_s):
            return []
    except OSError as error:
        raise RetriableError(f"the broker does not answer: {error}", code="TARGET") from None
    finally:
        for one in sessions:
            one.close()
    setting = f'<address-setting match="{markers}.#"><default-max-consumers>1</default-max-consumers></address-setting>'
    why = (
        f"the broker gives messages of one queue to two consumers, and each queue {markers}.marker.* needs "
        f"one at a time. In broker.xml of Artemis write {setting}"
    )
    return [why]


def _gets_some(first: StompSession, second: StompSession, queue: str, timeout_s: float) -> bool:
    """Whether the second consumer gets one of some messages."""
    for _ in range(PROBES):
        first.probe(queue)
    came, deadline = 0, time.monotonic() + timeout_s
    while came < PROBES and time.monotonic() < deadline:
        if (found := first.message(0.05)) is not None:
            first.acknowledge(found)
            came += 1
        if (other := second.message(0.0)) is not None:
            second.acknowledge(other)
            return True
    return False
