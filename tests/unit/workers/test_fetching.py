"""What ends the poller's wait for room in the buffers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from cues_kafka.task.calling.pairing import Buffer
from cues_kafka.workers.fetching import Fetching


def test_calls_of_a_feed_wake_no_poller() -> None:
    """Its worker fetches nothing, so there is no buffer to make room in; a stop and a new task wake it as before."""
    reader: Any = SimpleNamespace(assign=lambda _: None, unassign=lambda _: None, poll=lambda *_: [])
    fetching = Fetching("p", poll_s=0.0, submit=lambda *_: None, arrived=lambda: None)
    fetching.reader = reader

    fetching.made_room()
    assert not fetching._room.is_set()
    fetching.wake()
    assert fetching._room.is_set()

    fetching.once()
    buffer = Buffer("single", ())
    gate = SimpleNamespace(closed=False)
    lane: Any = SimpleNamespace(
        buffer=buffer, interpreter=SimpleNamespace(gate=gate), spec=SimpleNamespace(partition=0)
    )
    fetching.point(lane, (SimpleNamespace(topic="t", offset=0),))  # type: ignore[arg-type]
    fetching._obey()
    fetching._room.clear()
    fetching.made_room()
    assert fetching._room.is_set()
