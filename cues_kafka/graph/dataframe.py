"""`DataFrameProcessor`: a function of DataFrames, for Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias, get_args

from cues_kafka.arguments import known_arguments
from cues_kafka.errors import GraphError
from cues_kafka.graph.bound import BoundFunction, check_place, fixed_place
from cues_kafka.graph.effects import Effect
from cues_kafka.graph.names import quoted
from cues_kafka.graph.topic import set_fields

INTO = "into"
"""The name of the table that `into=` gives."""

FrameStart: TypeAlias = Literal["earliest"] | datetime | Mapping[int, int] | Mapping[str, Mapping[int, int]]
OutputMode: TypeAlias = Literal["append", "update"]


@known_arguments()
@dataclass(frozen=True, slots=True, init=False)
class DataFrameProcessor(BoundFunction):
    """
    A function of DataFrames, for the Spark runtime; the native runtime refuses it.

    The function takes one DataFrame for each input, and returns one or ``{binding: DataFrame}``. Its rows become
    messages of `outputs`, or rows of a table.

    Attributes:
        into: the table that its rows go to, such as `Delta(...).table(...)` (E5); None: they go to `outputs`.
        output_mode: Spark's: ``append`` writes rows that are final, ``update`` each row that a batch has changed.
        start: where a processor that has never run begins: `earliest`, at the first message that is not older than a
            time, or at an offset of each partition; with several inputs, of each partition by binding.
    """

    into: Effect | None
    output_mode: OutputMode
    start: FrameStart

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        inputs: str | Mapping[str, str],
        outputs: str | Mapping[str, str] | None = None,
        into: Effect | None = None,
        name: str | None = None,
        output_mode: OutputMode = "append",
        start: FrameStart = "earliest",
    ) -> None:
        self._bind(fn, name, inputs, None, outputs)
        set_fields(self, into=into, output_mode=output_mode, start=fixed_place(start))
        if output_mode not in get_args(OutputMode):
            raise GraphError(
                f"{self.label}: output_mode={output_mode!r}. Choose 'append' (rows that are final) or 'update' (each "
                "row that a batch has changed). 'complete' would write all rows again with every batch."
            )
        if not callable(fn):
            raise GraphError(f"{self.label}: {fn!r} cannot be called. Give the function itself as the first argument.")
        self._check_results()
        self._check_start()

    def _check_results(self) -> None:
        if self.into is None:
            if not self.outputs:
                raise GraphError(
                    f"{self.label} has no outputs. Name a topic in outputs=, or a table in "
                    'into=Delta(...).table("name") or into=Sql(...).table("name", columns=[...]).'
                )
            return
        if not isinstance(self.into, Effect) or self.into.frames is None:
            shown = self.into.title(INTO) if isinstance(self.into, Effect) else repr(self.into)
            raise GraphError(
                f"{self.label}: into= gives {shown:.200}, to which Spark does not write. Write "
                'into=Delta("s3://bucket/prefix").table("name"), into=Sql(env="SHOP_DATABASE").table("name", '
                "columns=[...]), or outputs= and a Sink that reads that topic."
            )
        if self.outputs:
            raise GraphError(
                f"{self.label} has outputs= and into=, and no transaction spans both. Keep one of them; a second "
                "processor that reads the topic of outputs= writes the table."
            )

    @property
    def targets(self) -> Mapping[str, Effect]:
        """Where its rows go besides Kafka, by name."""
        return {} if self.into is None else {INTO: self.into}

    @property
    def whole(self) -> bool:
        """Whether all rows of a batch are committed at once, so that it has one part."""
        rows = None if self.into is None else self.into.frames
        return rows is not None and rows.whole

    @property
    def results(self) -> tuple[str, ...]:
        """The names of the DataFrames that the function returns."""
        return tuple(binding for binding, _ in self.outputs) or (INTO,)

    def _check_start(self) -> None:
        bindings = dict(self.inputs)
        if not isinstance(self.start, Mapping) or len(bindings) == 1:
            check_place(self.start, self.label, ("earliest",))
            return
        if set(self.start) != set(bindings):
            raise GraphError(
                f"{self.label}: start={self.start!r} does not name its inputs {quoted(bindings)}. Write "
                f"start={{{next(iter(bindings))!r}: {{0: 17, 1: 4}}, ...}}."
            )
        for binding, place in self.start.items():
            check_place(place, f"{self.label}, {binding!r}", ())

    @property
    def kind(self) -> str:
        """The kind's name."""
        return "dataframe"
