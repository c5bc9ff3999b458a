"""From a graph on a cluster to the specs of tasks, and who writes their records."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass

from cues_kafka.core.records import Writer
from cues_kafka.core.spec import Input, Spec
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.processor import Processor
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


def spec_of(graph: Graph, planned: Plan, processor: Processor, width: int, identity: Identity) -> Callable[[int], Spec]:
    """Makes the spec of one partition of a processor with so many partitions."""
    names = planned[processor.name]

    def make(partition: int) -> Spec:
        transactional_id = names.transactional_id(partition)
        return Spec(
            graph=graph.name,
            processor=processor.name,
            partition=partition,
            inputs=tuple(Input(*pair) for pair in processor.inputs),
            pairing=processor.input_shape,
            effects=processor.has_effects,
            errors=graph.errors_of(processor) is not None,
            transactional_id=transactional_id,
            group=names.group,
            backing=names.backing,
            start=processor.start,
            strategy=graph.strategy_of(processor),
            quarantine_after=processor.quarantine_after,
            compacted=processor.input_shape == "single" and bool(names.compacted),
            width=width,
            writer=Writer(transactional_id, identity.runtime, identity.name, identity.incarnation),
        )

    return make
