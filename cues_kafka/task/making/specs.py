"""Makes the specs of tasks, and names the process that writes their records."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cues_kafka.core.feeds import BINDING
from cues_kafka.core.records import Writer
from cues_kafka.core.spec import Input, Spec
from cues_kafka.core.strategies import EXACTLY_ONCE
from cues_kafka.graph.bound import Bindings
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.feed import Feed
from cues_kafka.graph.names import backing_topic, changelog_topic, group_id, replay_topic, transactional_id
from cues_kafka.graph.processor import Processor
from cues_kafka.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Identity:
    """
    The name of a process in records and logs.

    Attributes:
        runtime: `native` or `memory`.
        name: the name that people see.
        incarnation: another one for each run.
    """

    runtime: str
    name: str
    incarnation: str

    @classmethod
    def of_process(cls, runtime: str, name: str | None = None) -> Identity:
        """A new incarnation; without a name it is named after host and process."""
        return cls(runtime, name or f"{socket.gethostname()}-{os.getpid()}", secrets.token_hex(8))


def task_spec(graph: str, processor: str, partition: int, width: int, identity: Identity, **rules: Any) -> Spec:
    """
    Make the spec of a task, with its names on the cluster. Every spec is made here.

    `width` is the number of the processor's partitions; `rules` are other fields of `Spec`, from the declaration.
    """
    name = transactional_id(graph, processor, partition)
    return Spec(
        graph=graph,
        processor=processor,
        partition=partition,
        transactional_id=name,
        group=group_id(graph, processor),
        backing=backing_topic(graph, processor),
        width=width,
        writer=Writer(name, identity.runtime, identity.name, identity.incarnation),
        **rules,
    )


def spec_of(graph: Graph, planned: Plan, processor: Processor, width: int, identity: Identity) -> Callable[[int], Spec]:
    """Gives a function that makes the spec of a partition of a plain processor."""

    def make(partition: int) -> Spec:
        return task_spec(
            graph.name,
            processor.name,
            partition,
            width,
            identity,
            inputs=tuple(Input(*pair) for pair in processor.inputs),
            pairing=processor.input_shape,
            effects=processor.has_effects,
            errors=graph.errors_of(processor) is not None,
            start=planned.start_of(processor, partition),
            strategy=graph.strategy_of(processor),
            quarantine_after=processor.quarantine_after,
            stores=tuple((name, changelog_topic(graph.name, processor.name, name)) for name in processor.state),
            tailers=tuple(Input(*pair) for pair in processor.tailers.items()),
            fixed_views=bool(processor.tailers) and (processor.has_effects or processor.retry is not None),
            timers=processor.timers is not None,
            target=processor.target is not None,
            replay=_replays(graph, processor),
            compacted=processor.input_shape == "single" and bool(planned[processor.name].compacted),
        )

    return make


def _replays(graph: Graph, processor: Processor) -> str:
    """Y1: the replay topic whose requests a task delivers; empty: it delivers none."""
    settles = graph.strategy_of(processor) == EXACTLY_ONCE and graph.errors_of(processor) is not None
    return replay_topic(graph.name, processor.name) if settles else ""


def frame_spec(
    graph: str, processor: str, partition: int, width: int, identity: Identity, *, inputs: Bindings, **rules: Any
) -> Spec:
    """Make the spec of a slot of a DataFrame processor; see `task_spec`."""
    pairs = tuple(Input(*pair) for pair in inputs)
    return task_spec(
        graph, processor, partition, width, identity, inputs=pairs, quarantine_after=None, slot=True, **rules
    )


def feed_spec_of(graph: Graph, feed: Feed, identity: Identity) -> Callable[[int], Spec]:
    """Gives a function that makes the spec of a part of a feed."""

    def make(partition: int) -> Spec:
        return task_spec(
            graph.name,
            feed.name,
            partition,
            feed.parts,
            identity,
            inputs=(Input(BINDING, backing_topic(graph.name, feed.name)),),
            errors=graph.errors_of(feed) is not None,
            quarantine_after=None,
            feed=True,
        )

    return make
