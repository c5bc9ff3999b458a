"""From a graph on a cluster to the specs of tasks, and who writes their records."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cues_kafka.core.records import Writer
from cues_kafka.core.spec import Input, Spec
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import backing_topic, group_id, transactional_id
from cues_kafka.graph.processor import Bindings, Processor
from cues_kafka.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Identity:
    """
    Who a process is, in records and logs.

    Attributes:
        runtime: `native` or `memory`.
        name: as people know it.
        incarnation: of this run; another run is another one.
    """

    runtime: str
    name: str
    incarnation: str

    @classmethod
    def of_process(cls, runtime: str, name: str | None = None) -> Identity:
        """A new incarnation, named after host and process where no name is given."""
        return cls(runtime, name or f"{socket.gethostname()}-{os.getpid()}", secrets.token_hex(8))


def task_spec(graph: str, processor: str, partition: int, width: int, identity: Identity, **rules: Any) -> Spec:
    """
    A task's spec, with its names on the cluster; no other place makes one.

    Args:
        graph: its name.
        processor: its name.
        partition: of the task.
        width: partitions of the processor.
        identity: who writes its records.
        rules: other fields of `Spec`, which the declaration chose.
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
    """Makes the spec of one partition of a plain processor."""

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
            start=processor.start,
            strategy=graph.strategy_of(processor),
            quarantine_after=processor.quarantine_after,
            compacted=processor.input_shape == "single" and bool(planned[processor.name].compacted),
        )

    return make


def frame_spec(
    graph: str, processor: str, partition: int, width: int, identity: Identity, *, inputs: Bindings, **rules: Any
) -> Spec:
    """The spec of a slot of a processor of DataFrames; see `task_spec`."""
    pairs = tuple(Input(*pair) for pair in inputs)
    return task_spec(
        graph, processor, partition, width, identity, inputs=pairs, quarantine_after=None, slot=True, **rules
    )
