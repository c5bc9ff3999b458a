"""Topics as objects of a client."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cues_kafka import ConfigError, Memory, alts, connect
from cues_kafka.testing.tester import VirtualClock


def test_sending_to_a_topic_that_does_not_exist_says_how_to_create_it() -> None:
    with connect(Memory()) as client, pytest.raises(ConfigError, match=r"plan MODULE:GRAPH --apply.*create=True"):
        client.send("orders", 1)


class Heard:
    """A tailer whose message another thread reads first, and later one of its own."""

    direction = "forward"

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.found: list[Any] = [None, "second"]

    def look(self, wait_s: float | None) -> Any:
        del wait_s
        return SimpleNamespace(timestamp=lambda: (1, 1))

    def read(self) -> Any:
        return self.found.pop(0)

    def stopped(self, unblock: Any) -> bool:
        return bool(unblock)


def test_alts_goes_on_where_another_thread_has_read_the_message_that_it_saw() -> None:
    """The next message of any of them counts."""
    tailer: Any = Heard()
    found: Any = alts([tailer], timeout_s=5)
    assert found == (tailer, "second")
