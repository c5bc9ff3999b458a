"""What another program writes to a changelog, with a mark that fits: no worker ends, and the store is as it was."""

from __future__ import annotations

from typing import Any

import pytest

from cues_kafka import Graph, Json, Message, Processor, Source, State, Store, Timer, Timers, Topic
from cues_kafka.core.delivery import show_topic_id
from cues_kafka.observe.refused import REFUSED
from cues_kafka.state.layers import MARK
from cues_kafka.testing.tester import Tester

MINUTE = 60_000
DUE = (2 * MINUTE).to_bytes(8, "big")


def count(_: Any, step: Any, seen: State[int]) -> int:
    """Counts, and sets a timer."""
    seen["all"] = seen.get("all", 0) + 1
    step.schedule("own", at=10 * MINUTE)
    return seen["all"]


def ring(timer: Timer) -> str:
    """What a timer gives."""
    return timer.key


def delivered() -> tuple[Tester, bytes]:
    """A task with a store and a timer, and what a timer says of the message that set it."""
    state = {"seen": Store(Json(int)), "timers": Timers(ring)}
    part = Processor(count, inputs="in", outputs="out", name="p", state=state)
    tester = Tester(Graph("g", Source("in"), part, errors="g.errors", defaults=Topic(value=Json(), partitions=1)))
    tester.send("in", Message(1, timestamp_ms=1_000))
    tester.run()
    tester.stop()
    topic_id = show_topic_id(tester.broker.facts(["in"]).topics["in"].topic_id)
    return tester, bytes(8) + f"input:{topic_id}@0".encode()


def forge(tester: Tester, store: str, key: bytes, value: bytes) -> None:
    """Write an entry, and the newest mark again, as a program would that knows the form."""
    topic = f"g.p.{store}.changelog"
    mark = [one.value() for one in tester.client.committed(topic) if one.key() == MARK][-1]
    tester.broker.sender("stranger").send([(topic, 0, key, value, None, 0), (topic, 0, MARK, mark, None, 0)])


FORGED: dict[str, tuple[str, bytes, bytes]] = {
    "key of no store": ("seen", b"\x1b[2J", b"7"),
    "empty key": ("seen", b"", b"7"),
    "timer without a time": ("timers", b"e123", bytes(8)),
    "timer at no time": ("timers", b"e" + b"\xff" * 8 + b"x", b"ORIGIN"),
    "timer whose key is not text": ("timers", b"e" + DUE + b"\xff", b"ORIGIN"),
    "timer that no message set": ("timers", b"e" + DUE + b"x", bytes(8)),
    "timer with a short value": ("timers", b"e" + DUE + b"x", b"abc"),
    "timer of a message before the first": ("timers", b"e" + DUE + b"x", bytes(8) + b"input:aWlpaWlpaWlpaWlpaWlpaQ@-5"),
    "timer of no topic": ("timers", b"e" + DUE + b"x", bytes(8) + b"input:aWlp@5"),
}


@pytest.mark.parametrize("name", FORGED)
def test_entry_that_no_task_writes_is_refused(name: str) -> None:
    """The others count, and it is named once."""
    tester, origin = delivered()
    store, key, value = FORGED[name]
    forge(tester, store, key, origin if value == b"ORIGIN" else value)
    REFUSED.forget()
    REFUSED.forget()  # another test of this process may have met a record at the same place
    before = REFUSED.total

    again = tester.restart()
    again.send("in", Message(2, timestamp_ms=20 * MINUTE))
    again.run()

    assert sorted(map(str, again.values("out"))) == ["1", "2", "own"]
    assert REFUSED.total == before + 1


def test_timer_of_an_input_that_the_processor_does_not_read_fires() -> None:
    """Its message is left out of the step."""
    tester, origin = delivered()
    forge(tester, "timers", b"e" + DUE + b"x", origin.replace(b"input:", b"other:"))

    again = tester.restart()
    again.send("in", Message(2, timestamp_ms=20 * MINUTE))
    again.run()

    assert sorted(map(str, again.values("out"))) == ["1", "2", "own", "x"]
