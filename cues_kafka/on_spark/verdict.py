"""Decide what Spark can run, for `refuses`, `explain` and the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from cues_kafka.core.strategies import EXACTLY_ONCE
from cues_kafka.graph.dataframe import DataFrameProcessor
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.processor import Processor
from cues_kafka.graph.publish import Published
from cues_kafka.task.making.prepare import not_in_this_release

Mode: TypeAlias = Literal["direct", "staged", "direct or staged", "natively", "refused"]


ON_SPARK: Final[tuple[Mode, ...]] = ("direct", "staged", "direct or staged")


REFUSED_OPTIONS: Final[Mapping[str, str]] = {
    "asyncProgressTrackingEnabled": "Spark would go on before its offsets are down: more than one micro-batch would be "
    "in doubt after a crash. Leave it out",
    "minPartitions": "it splits one Kafka partition between several Spark tasks, and each partition has one writer "
    "(its transactional id). Leave it out, and give the topic more partitions",
    "maxRecordsPerPartition": "it splits one Kafka partition between several Spark tasks, and each partition has one "
    "writer (its transactional id). Leave it out; maxOffsetsPerTrigger bounds a micro-batch",
}
"""Options of Spark's sources and queries that break exactly-once, and why."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    Where a processor can run.

    Attributes:
        mode: `direct`: on Spark, one Kafka transaction for each slot (D1 to D6); `staged`: on Spark, each batch is
            prepared in files first (T1 to T4); `direct or staged`: only Spark's plan of its function tells which;
        `natively`: in native workers only; `refused`: not in this release.
        why: the reason, with the remedy if it does not run on Spark.
        state: whether Spark keeps state for it from one batch to the next; None: its function was not called.
    """

    mode: Mode
    why: str
    state: bool | None = None


def verdict(graph: Graph, part: Processor | DataFrameProcessor) -> Verdict:
    """Decide where a processor can run, with the remedy if Spark cannot run it."""
    if isinstance(part, DataFrameProcessor):
        if several := _several(part):
            return Verdict("staged", f"{several}: {_way(part)}")
        return Verdict(
            "direct or staged",
            "one input, one output: direct, or staged if its plan shuffles or keeps state; explain(graph, cluster, "
            "engine=...) shows which",
        )
    nowhere = not_in_this_release(part, graph)
    if what := _native_only(part, graph.strategy_of(part)):
        beside = f" ({nowhere})" if nowhere else ""
        other = ", or write it as a DataFrameProcessor" if part.state else ""
        text = f"{what}: run it natively: --only {part.name}{other}{beside}"
        return Verdict("refused" if nowhere else "natively", text)
    if nowhere:
        return Verdict("refused", nowhere)
    return Verdict("direct", _DIRECT[part.input_shape] + (_DATABASE if part.target else ""))


_DATABASE: Final = ": in the database, then in Kafka"


_DIRECT: Final[Mapping[str, str]] = {
    "single": "one input, so one Spark task for each of its partitions, which commits by itself",
    "join": "one Spark task for the same partition of all inputs, which pairs their messages and commits by itself",
    "alts": "one Spark task for the same partition of all inputs, which takes turns and commits by itself",
}


def _way(part: DataFrameProcessor) -> str:
    rows = None if part.into is None else part.into.frames
    return f"each batch is prepared in files, then {'published part by part' if rows is None else rows.how}"


def planned_verdict(part: DataFrameProcessor, frames: Mapping[str, Any]) -> Verdict:
    """
    Decide how a processor of DataFrames is written.

    Args:
        part: the processor.
        frames: the DataFrames that its function returns, by output binding.
    """
    from cues_kafka.on_spark.query.plans import keeps_state, shuffle_node  # noqa: PLC0415 - a refusal needs no Spark

    nodes = sorted({node for frame in frames.values() if (node := shuffle_node(frame))})
    state = any(map(keeps_state, frames.values()))
    found = f"the plan has {', '.join(nodes)}" if nodes else "the plan joins streams" if state else ""
    why = [text for text in (_several(part), found) if text]
    if not why:
        return Verdict("direct", "one input, one output, and the plan leaves the input's partitions apart", state=False)
    kept = "Spark keeps state" if state else "Spark keeps no state"
    return Verdict("staged", f"{'; '.join(why)}: {_way(part)}; {kept} from one batch to the next", state=state)


def _several(part: DataFrameProcessor) -> str:
    """Why a processor is staged whatever its plan is; empty: its plan decides."""
    many = [word for word, bindings in (("inputs", part.inputs), ("outputs", part.outputs)) if len(bindings) > 1]
    why = [f"several {' and '.join(many)}"] if many else []
    if part.into:  # and the function may give other rows when it is called again
        why.append(f"rows go to {part.into.title('')}, which must get the same ones if a batch comes again")
    return "; ".join(why)


def refusal(graph: Graph, part: Processor | DataFrameProcessor) -> str:
    """Why Spark cannot run a processor, with the remedy; empty if it can."""
    found = verdict(graph, part)
    return "" if found.mode in ON_SPARK else found.why


def _native_only(processor: Processor, strategy: str) -> str:
    for present, what in (
        (strategy != EXACTLY_ONCE, f"strategy={strategy!r} is for native workers; Spark runs exactly-once only"),
        (processor.columnar, "batch='arrow' is for native workers; on Spark, a DataFrameProcessor gets columns"),
        (processor.timers is not None, "timers live in a native worker"),
        (bool(processor.state), "state= lives in a native worker"),
        (bool(processor.tables), "tables= live in a native worker"),
        (
            processor.target is not None and processor.target[1].database is None,
            "a store of files, or a target of your own, is written by native workers; Spark writes to databases",
        ),
        (bool(processor.calls), "calls of effects= are made by native workers"),
        (
            any(isinstance(one, Published) for one in processor.targets.values()),
            "messages to another broker are published by native workers",
        ),
        (processor.imperative, "tailers= and appenders= live in a native worker"),
    ):
        if present:
            return what
    return ""


def refused_settings(settings: Mapping[str, str]) -> list[str]:
    """
    Why settings of a session, or options of a source or query, break exactly-once.

    A setting is known by its last word, so `spark.datasource.kafka.minPartitions` is found, too.
    """
    words = {name.lower(): (name, why) for name, why in REFUSED_OPTIONS.items()}
    found = []
    for name, value in sorted(settings.items()):
        known = words.get(name.rpartition(".")[2].lower())
        if known and str(value).strip().lower() not in {"", "false", "0", "none"}:
            found.append(f"{name}={value} ({known[0]}): {known[1]}")
    return found


def weak_settings(settings: Mapping[str, str]) -> list[str]:
    """Settings of a session that keep exactly-once but make it slow."""
    speculation = (
        "spark.speculation=true: nothing is lost or doubled, but the second Spark task on a partition fences the first "
        "one, whose work is thrown away. Set it to false"
    )
    return [speculation] if str(settings.get("spark.speculation", "false")).lower() == "true" else []
