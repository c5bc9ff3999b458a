"""
Batches of others on topics of ours that no client takes: 3 kB of zstd that unpack to 120 MB.

They hold small records, so such a batch is none of ours: readers name it once, and go on behind it. A task stops at one
among its own records or entries, since those may be as large.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from cues_kafka import TaskStopped
from cues_kafka.brokers import open as opening
from cues_kafka.cli import loading
from cues_kafka.cli.main import app
from cues_kafka.errors import UnreadableError
from cues_kafka.graph.error_message import Errors
from cues_kafka.observe.refused import REFUSED
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.unreadable import passed
from cues_kafka.running import status_writer
from tests.unit.operate.look.unwell_graphs import World, graph_of


class Told(NamedTuple):
    """What a command says."""

    code: int
    text: str


Command = Callable[..., Told]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A graph at work, with an error message."""
    monkeypatch.setattr(status_writer, "LOOK_S", 0.02)
    world = World(graph_of(errors=Errors("g.errors")), control=True)
    world.send(-1)
    world.running.wait_idle(timeout_s=20)
    return world


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, world: World) -> Command:
    """Runs a command of the command line."""
    monkeypatch.setattr(loading, "load_graph", lambda _: world.graph)
    monkeypatch.setattr(opening, "open_broker", lambda _: world.broker)
    monkeypatch.setattr(world.broker, "close", lambda: None)

    def run(*words: str) -> Told:
        result = CliRunner().invoke(app, [*words, "--bootstrap", "localhost:9092"])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Told(result.exit_code, result.output)

    return run


def bomb(world: World, topic: str) -> int:
    """Another program writes a batch that no client takes; gives its offset."""
    place = TopicPartition(topic, 0)
    at = world.broker.watermarks([place])[place].high
    world.broker.sender("other").send([(topic, 0, b"bomb", b"x", None, 0)], timeout_s=5)
    world.broker.damage(place, at, at + 1)
    return at


COMMANDS = (
    *(("status", "m:g"), ("doctor", "m:g", "--for", "0"), ("plan", "m:g", "--records"), ("verify", "m:g")),
    *(("pause", "m:g"), ("resume", "m:g"), ("cuts", "m:g"), ("errors", "list", "m:g")),
    ("errors", "replay", "m:g", "--yes"),
)


@pytest.mark.parametrize("topic", ["g.control", "g.status", "g.check.replay", "g.errors"])
def test_batch_of_others_ends_no_command_and_no_worker(world: World, command: Command, topic: str) -> None:
    """It held all tasks back after the next start, and no command took it away."""
    REFUSED.forget()  # another test of this process may have met a record at the same place
    before = REFUSED.total
    bomb(world, topic)
    try:
        world.send(2)
        world.running.wait_idle(timeout_s=20)
        for words in COMMANDS:
            told = command(*words)
            assert told.code == (2 if words[0] == "cuts" and "no cuts" in told.text else 0) or words[0] == "cuts", told
            assert "does not answer" not in told.text
        world.running.stop()
        world.begin()
        world.send(3)
        world.running.wait_idle(timeout_s=20)
        [task] = [one for one in world.running.status().tasks if one.task == "check/0"]
    finally:
        world.running.abandon()
    assert not task.held
    assert REFUSED.total == before + 1


def test_batch_among_the_records_of_a_task_stops_it_and_is_named_by_all(world: World, command: Command) -> None:
    """As its newest record, by topic, partition and offset; the cluster answers."""
    at = bomb(world, "g.check.backing")
    named = f"the batch of g.check.backing/0 at offset {at} cannot be read"
    world.running.stop()
    try:
        with pytest.raises(TaskStopped, match=re.escape(named)):
            world.begin()
        told = [command(*words) for words in COMMANDS[:4]]
    finally:
        world.running.abandon()
    for one in told:
        assert one.code not in (0, 3)
        assert named in one.text
        assert "does not answer" not in one.text


def test_batch_among_the_entries_of_a_store_has_a_way_out(world: World, command: Command) -> None:
    """Delete the records up to it, and build the store again."""
    at = bomb(world, "g.check.seen.changelog")
    world.running.stop()
    place = TopicPartition("g.check.seen.changelog", 0)
    planned = command("plan", "m:g", "--records")
    assert planned.code == 1
    would = planned.text.partition("Tasks that would stop:")[2]
    assert f"check/0: the batch of g.check.seen.changelog/0 at offset {at} cannot be read" in would
    world.broker.trim({place: at + 1})
    rebuilt = command("rebuild", "m:g", "check", "--yes")
    assert rebuilt.code == 0, rebuilt.text
    world.begin()
    try:
        world.send(2)
        world.running.wait_idle(timeout_s=20)
    finally:
        world.running.abandon()
    assert command("verify", "m:g", "--state").code == 0


@pytest.mark.parametrize("code", ["_BAD_MSG", "_NOT_IMPLEMENTED"])
def test_batch_that_may_be_ours_is_not_passed_over(world: World, code: str) -> None:
    """A damaged one, or one of a compression that this client does not know."""
    error: Any = UnreadableError("damaged", code=code, place=("g.control", 0), offset=0)
    world.running.abandon()
    with pytest.raises(UnreadableError, match="damaged"):
        passed(world.broker, error, "a control record", group="g.tools")
