"""Graphs whose topics others delete, shrink or trim beside a worker that has nothing to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cues_kafka.graph.error_message import Errors
from cues_kafka.ports.facts import NewTopic
from cues_kafka.ports.log import TopicPartition
from cues_kafka.workers.worker import ProcessorWorker
from tests.unit.operate.look.unwell_graphs import Unwell, World, graph_of

CHANGELOG = TopicPartition("g.check.seen.changelog", 0)


def beside(act: Callable[[World], None], *, partitions: int = 1) -> Unwell:
    """A state that the next question of the worker shows; it asks every ten seconds."""

    def made(_: Path) -> World:
        world = World(graph_of(errors=Errors("g.errors"), partitions=partitions))
        [worker] = world.running._workers
        assert isinstance(worker, ProcessorWorker)
        worker._questions.look_for_lost()
        assert not any(one.lost for one in worker.status())
        act(world)
        worker._questions.look_for_lost()
        return world

    made.__name__ = act.__name__
    return made


def deleted(topic: str) -> Unwell:
    """A topic was deleted beside an idle worker."""

    def act(world: World) -> None:
        world.broker.delete([topic])

    act.__name__ = f"{topic}_deleted_beside_an_idle_worker"
    return beside(act)


def narrower(topic: str) -> Unwell:
    """A topic of two partitions was recreated with one."""

    def act(world: World) -> None:
        world.broker.delete([topic])
        world.broker.create([NewTopic(topic, 1, 1, {"cleanup.policy": "delete"})])

    act.__name__ = f"{topic}_narrower_beside_an_idle_worker"
    return beside(act, partitions=2)


def trimmed(offset: int) -> Unwell:
    """The changelog was trimmed up to an offset; -1: completely."""

    def act(world: World) -> None:
        world.broker.trim({CHANGELOG: offset})

    act.__name__ = f"changelog_trimmed_to_{offset}_beside_an_idle_worker"
    return beside(act)
