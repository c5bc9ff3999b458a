"""`ProcessorFields`: what a processor declares, and what follows from that alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

from cues_kafka.graph.batch_form import COLUMNS, BatchForm
from cues_kafka.graph.bound import BoundFunction
from cues_kafka.graph.calls import journaled
from cues_kafka.graph.declare import CommitPolicy, Retry, Store, Table
from cues_kafka.graph.effects import Effect
from cues_kafka.graph.error_message import Errors
from cues_kafka.graph.kind import KINDS
from cues_kafka.graph.timers import Timers

Strategy: TypeAlias = Literal["exactly-once", "at-least-once", "at-most-once"]
Start: TypeAlias = Literal["earliest", "latest"] | datetime | Mapping[int, int]


@dataclass(frozen=True, slots=True, init=False)
class ProcessorFields(BoundFunction):
    """The fields of a `Processor`, which describes them, and questions that they answer."""

    errors: str | Errors | Literal[False] | None
    filter: Callable[[Any], bool] | None
    strategy: Strategy | None
    state: Mapping[str, Store]
    tables: Mapping[str, Table]
    opts: Mapping[str, Any]
    tailers: Mapping[str, str]
    appenders: Mapping[str, str]
    trail: str | None
    effects: bool | Mapping[str, Effect]
    batch: BatchForm
    concurrency: int
    retry: Retry | None
    commit: CommitPolicy | None
    start: Start
    quarantine_after: int | None
    renamed_from: str | None

    @property
    def kind(self) -> str:
        """The kind's name: pipe, fork, join-sink and so on."""
        name = KINDS[self.input_shape, self.output_shape]
        return f"imperative {name}" if self.imperative else name

    @property
    def columnar(self) -> bool:
        """Whether its function gets columns."""
        return self.batch == COLUMNS

    @property
    def may_miss_bindings(self) -> bool:
        """Whether a call may get fewer messages than there are inputs: alts, or a join with a filter."""
        return self.input_shape == "alts" or (self.input_shape == "join" and self.filter is not None)

    @property
    def lead(self) -> str:
        """Topic of the first input, which the group subscribes to (A1)."""
        return self.inputs[0][1]

    @property
    def read_topics(self) -> tuple[str, ...]:
        """Topics of the inputs, then of the tables and of the tailers."""
        return (*self.input_topics, *(table.topic for table in self.tables.values()), *self.tailers.values())

    @property
    def output_topics(self) -> tuple[str, ...]:
        """Topics of the outputs, then of the appenders, then of the trail."""
        trail = () if self.trail is None else (self.trail,)
        return (*(topic for _, topic in self.outputs), *self.appenders.values(), *trail)

    @property
    def timers(self) -> tuple[str, Timers] | None:
        """Its timers with their name in `state=`; None: it has none."""
        return next(((name, one) for name, one in self.state.items() if isinstance(one, Timers)), None)

    @property
    def imperative(self) -> bool:
        """Whether its function reads or writes topics by itself."""
        return bool(self.tailers or self.appenders)

    @property
    def has_effects(self) -> bool:
        """Whether it does something outside of Kafka: it is declared so, or it writes to no topic."""
        return bool(self.effects) or not (self.outputs or self.appenders)

    @property
    def targets(self) -> Mapping[str, Effect]:
        """What its function acts on besides Kafka, by name."""
        return {} if isinstance(self.effects, bool) else self.effects

    @property
    def target(self) -> tuple[str, Effect] | None:
        """The first that commits what the function writes together with the attempt (E1); None: no target does."""
        return next(((name, one) for name, one in self.targets.items() if one.transactional), None)

    @property
    def placed(self) -> bool:
        """Whether what its function acts on must be told which message the function is called with."""
        return any(one.placed for one in self.targets.values())

    @property
    def calls(self) -> Mapping[str, Effect]:
        """Those of them of which each step gets its own, which knows the step (E4), by name."""
        return {name: one for name, one in self.targets.items() if one.stepwise}

    @property
    def journaled(self) -> bool:
        """Whether answers to its calls are kept in a journal topic (E4)."""
        return journaled(self.targets)
