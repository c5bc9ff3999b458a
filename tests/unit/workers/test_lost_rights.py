"""A worker that loses a right on its group: its tasks pause, it says why, and goes on when it has the right again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from cues_kafka import Graph, Json, Memory, Processor, Source, TaskStopped, Topic, start, status
from cues_kafka.brokers.memory.clients import MemoryMember
from cues_kafka.brokers.open import open_broker
from cues_kafka.cli.run import TOLD_OF, is_not_told
from cues_kafka.errors import FatalError
from cues_kafka.ports.clients import GroupMetadata, Listener, Member
from cues_kafka.ports.log import TopicPartition
from cues_kafka.running import status_writer
from cues_kafka.running.running import Running

GRAPH = Graph(
    "g",
    Source("in"),
    Processor(lambda order: order, name="check", inputs="in", outputs="out"),
    defaults=Topic(value=Json(), partitions=2),
)
WHY = "group g.check: user `worker` may not read group `g.check`"


class Rights:
    """What the user may do; its member steps back and asks again as the one of Kafka does."""

    def __init__(self) -> None:
        self.given = True

    def member(self, cluster: Any, listener: Listener) -> Member:
        """A member of the group."""
        return _Member(self, lambda: MemoryMember(cluster, "g.check", "in", listener, None))


class _Member:
    def __init__(self, rights: Rights, join: Callable[[], MemoryMember]) -> None:
        self._rights, self._join = rights, join
        self._inner: MemoryMember | None = join() if rights.given else None

    def poll(self) -> None:
        if self._rights.given:
            self._inner = self._inner or self._join()
            self._inner.poll()
            return
        inner, self._inner = self._inner, None
        if inner is not None:
            inner.close(leave=True)
        raise FatalError(WHY, code="GROUP_AUTHORIZATION_FAILED")

    def rejoin(self) -> None:
        """It has nothing to give back."""

    def metadata(self) -> GroupMetadata:
        return self._inner.metadata() if self._inner else GroupMetadata("g.check", -1)

    def commit(self, offsets: Mapping[TopicPartition, int], done: Callable[[str], None]) -> None:
        """Not asked for: the tasks commit in transactions."""

    def close(self, *, leave: bool) -> None:
        if self._inner:
            self._inner.close(leave=leave)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Memory:
    """A cluster with status, which is told without a long wait."""
    monkeypatch.setattr(status_writer, "LOOK_S", 0.02)
    return Memory(status_every_s=0.5)


@pytest.fixture
def rights(cluster: Memory, monkeypatch: pytest.MonkeyPatch) -> Rights:
    """Those of the worker's user."""
    rights, broker = Rights(), open_broker(cluster)
    monkeypatch.setattr(broker, "member", lambda group, topic, listener, **_: rights.member(broker, listener))
    return rights


def until(running: Running, condition: Callable[[], Any]) -> None:
    """Wait for something that stopped tasks must not end."""
    ended = threading.Event()
    for _ in range(2_000):
        if condition():
            return
        ended.wait(0.01)
    pytest.fail(f"not within 20 s; {running.status()}")


def test_tasks_pause_and_go_on_when_the_right_is_given_back(
    cluster: Memory, rights: Rights, caplog: pytest.LogCaptureFixture
) -> None:
    """The process, other machines and the log name the right; each message is delivered once."""
    caplog.set_level(logging.INFO, "cues_kafka.worker")
    with start(GRAPH, cluster) as running:
        running.send_many("in", [1, 2])
        running.wait_idle()
        until(running, lambda: status(cluster, GRAPH).ok)
        rights.given = False
        until(running, lambda: running.status().stopped)
        [stopped] = running.status().stopped
        assert (stopped.task, stopped.stopped) == ("check", WHY)
        assert "rejoins its group by itself" in stopped.remedy
        assert running.failed is None
        until(running, lambda: {one.state for one in status(cluster, GRAPH).tasks} == {"stopped"})
        assert {one.stopped for one in status(cluster, GRAPH).tasks} == {WHY}
        with pytest.raises(TaskStopped, match="may not read group"):
            running.wait_idle()
        running.send_many("in", [3, 4])

        rights.given = True

        until(running, lambda: not running.status().stopped)
        running.wait_idle()
        assert sorted(message.value for message in running.messages("out")) == [1, 2, 3, 4]
        until(running, lambda: status(cluster, GRAPH).ok)
    told = ("the group refuses this worker", "the group accepts this worker again")
    found = [one for one in caplog.records if one.getMessage().startswith(told)]
    lines = [one.getMessage() for one in found]
    assert len(lines) == 2, "each once, however often the member asks"
    assert lines[0].startswith(told[0])
    assert WHY in lines[0]
    assert lines[1].startswith(told[1])
    assert found[0].name in TOLD_OF
    assert not is_not_told(found[0]), "`run` prints the stopped processor with the same words"
    assert is_not_told(found[1])


def test_a_right_that_is_missing_at_the_start_is_refused(cluster: Memory, rights: Rights) -> None:
    """It is a wrong setting, and the start says so at once."""
    rights.given = False

    with pytest.raises(TaskStopped, match=r"may not read group `g\.check`"):
        start(GRAPH, cluster)
