"""Read the inputs of a function of DataFrames, call it, and look at its plan."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from cues_kafka.brokers.options import Kafka
from cues_kafka.codecs.lookup import MadeFor
from cues_kafka.errors import ConfigError
from cues_kafka.graph.dataframe import DataFrameProcessor
from cues_kafka.graph.definition import Graph
from cues_kafka.on_spark.columns import as_columns
from cues_kafka.on_spark.frame_targets import frame_target
from cues_kafka.on_spark.letter_case import refuse_ambiguous
from cues_kafka.on_spark.query.files import has_jvm
from cues_kafka.on_spark.query.run import QuerySettings
from cues_kafka.on_spark.redelivery import Redelivery
from cues_kafka.on_spark.source.decoding import Decoding
from cues_kafka.on_spark.source.messages import COUNT, PREFIX, message_source
from cues_kafka.on_spark.source.ranges import Begins, SourceInput
from cues_kafka.on_spark.source.report import UndecodedReport
from cues_kafka.on_spark.undecoded import Undecoded

_SHUFFLE_NODES: Final = re.compile(
    r"^[\s:+~-]*(Aggregate|Deduplicate\w*|Repartition\w*|RebalancePartitions|Union|Sort|Window|Distinct|GlobalLimit"
    r"|LocalLimit|Limit|FlatMapGroupsWithState|FlatMapGroupsInPandas\w*|TransformWithState\w*|CoGroup\w*|MapGroups)\b",
    re.MULTILINE,
)
"""Nodes of an analyzed plan that mix rows of several partitions of the input, or split one."""

_STATEFUL_NODES: Final = re.compile(
    r"^[\s:+~-]*(Aggregate|Deduplicate\w*|Distinct|GlobalLimit|LocalLimit|Limit|FlatMapGroups\w*|TransformWithState\w*)\b",
    re.MULTILINE,
)
"""Nodes for which Spark keeps state between two micro-batches."""

STORE: Final = "spark.sql.streaming.stateStore.providerClass"

ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

_DEFAULT_STORE: Final = "HDFSBackedStateStoreProvider"

_NEEDS_ROCKSDB: Final = re.compile(r"^[\s:+~-]*TransformWithState\w*\b", re.MULTILINE)

_SHUFFLES: Final = re.compile(r"(?<!Broadcast)Exchange\b")
"""Nodes of a physical plan that move rows to other partitions. A broadcast does not move the stream's rows."""


def call_function(
    settings: QuerySettings,
    options: Kafka,
    graph: Graph,
    processor: DataFrameProcessor,
    positions: Begins,
    *,
    back: bool = True,
    report: UndecodedReport | None = None,
    counted: Mapping[str, Undecoded] | None = None,
    redelivery: Mapping[str, Redelivery] | None = None,
) -> dict[str, Any]:
    """
    Return the DataFrames that the function makes, by output binding.

    Args:
        settings: of the query.
        options: the cluster.
        graph: the graph that declares the topics.
        processor: the processor.
        positions: where a query without a checkpoint begins to read, by topic.
        back: see `SourceInput.back`.
        report: of a direct processor: hands messages that cannot be decoded to its slots; None: they are dropped.
        counted: of a staged processor: makes the error messages of each input, by topic, where they are counted.
        redelivery: of a staged processor: takes requests to replay errors, by topic.

    Raises:
        ConfigError: the function returns something else than its declaration says, or something that this session
            cannot run.
    """
    frames = {}
    for binding, topic in processor.inputs:
        name = f"{graph.name}.{processor.name}" + (f".{binding}" if len(processor.inputs) > 1 else "")
        if report is not None:
            decoding = report.undecoded.decoding
        elif counted is not None:
            decoding = counted[topic].decoding
        else:
            decoding = Decoding(graph.topic(topic).value, MadeFor(topic, options))
        given = SourceInput(
            name,
            options,
            {topic: positions[topic]},
            settings.limit,
            back=back,
            decoding=decoding,
            report=report,
            counted=counted is not None,
            redelivery=(redelivery or {}).get(topic),
        )
        settings.session.dataSource.register(message_source(given))
        loaded = settings.session.readStream.format(PREFIX + name).load()
        decoding.know(loaded.schema)
        frames[binding] = as_columns(loaded if counted is None else _counted(loaded, binding), decoding.ddl)
    found = processor.fn(**frames) if processor.by_name else processor.fn(*frames.values())
    by_binding = _by_binding(processor, found)
    _check(processor, by_binding, graph.name)
    return by_binding


def _check(processor: DataFrameProcessor, frames: Mapping[str, Any], graph: str) -> None:
    """
    Check what a function returns before its query starts.

    Raises:
        ConfigError: see `check_store`, `frame_target` and `refuse_ambiguous`.
    """
    for frame in frames.values():
        check_store(processor.name, frame)
    frame_target(processor, frames, graph)  # it refuses columns that do not fit
    if processor.into is None:  # a target knows whether case counts there
        for frame in frames.values():
            refuse_ambiguous(frame, processor.label)


def _counted(loaded: Any, binding: str) -> Any:
    """The rows of messages. Spark counts the ranges that were read to their ends, and what could not be decoded."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - a graph is planned without Spark

    counts = (f.count(COUNT).alias("ranges"), f.sum(COUNT).alias("messages"))
    return loaded.observe(OBSERVED + binding, *counts).where(f.col(COUNT).isNull()).drop(COUNT)


OBSERVED: Final = "cues-undecoded-"
"""Prefix of the names of these counts in Spark's progress; a binding follows."""


def check_store(name: str, frame: Any) -> None:
    """
    Check the state store before a checkpoint is made, which would keep the wrong store under any later setting.

    Raises:
        ConfigError: the session's state store cannot keep what the plan needs.
    """
    store = str(frame.sparkSession.conf.get(STORE))
    if store.endswith(_DEFAULT_STORE) and _NEEDS_ROCKSDB.search(plan_of(frame, "analyzed")):
        raise ConfigError(
            f"{name!r} uses transformWithState, which the state store of this session ({_DEFAULT_STORE}) cannot do. "
            f"Set {STORE}={ROCKSDB} where the session is made, or in spark-defaults.conf"
        )


def _by_binding(processor: DataFrameProcessor, found: Any) -> dict[str, Any]:
    names = processor.results
    if processor.output_shape != "many":
        found = {names[0]: found}
    if not isinstance(found, Mapping) or not set(found) <= set(names):
        shown = sorted(found) if isinstance(found, Mapping) else type(found).__name__
        raise ConfigError(
            f"{processor.name!r} gave {shown}, its outputs are {list(names)}: return {{binding: DataFrame}} of these"
        )
    for binding, frame in found.items():
        if not getattr(frame, "isStreaming", False):
            raise ConfigError(
                f"{processor.name!r} gave for {binding!r} what does not stream: make it of the frames that it is given"
            )
    if not found:
        raise ConfigError(f"{processor.name!r} gave no DataFrame at all; its outputs are {list(names)}")
    return dict(found)


def shuffle_node(frame: Any) -> str:
    """
    Return the node of a plan that shuffles or keeps state; empty if the input's partitions stay apart.

    Spark decides by a table's size, by hints and by settings whether a join with it shuffles, and only the physical
    plan shows it.
    """
    if found := _SHUFFLE_NODES.search(plan_of(frame, "analyzed")):
        return found.group(1)
    if streams(frame) > 1:
        return ""
    found = _SHUFFLES.search(plan_of(frame, "physical"))
    return found.group() if found else ""


def keeps_state(frame: Any) -> bool:
    """Whether Spark keeps state for the plan; a join does if more than one of its sides may stream."""
    plan = plan_of(frame, "analyzed")
    joins = re.search(r"^[\s:+~-]*Join\b", plan, re.MULTILINE)
    return bool(_STATEFUL_NODES.search(plan)) or (streams(frame) > 1 and joins is not None)


def streams(frame: Any) -> int:
    """Number of streaming sources in a streaming plan; a source that it reads twice counts twice."""
    # A plan that has only a source prints the source's short name.
    return max(1, len(re.findall(r"^[\s:+~-]*Streaming\w*", plan_of(frame, "analyzed"), re.MULTILINE)))


def addressed(frame: Any, bootstrap: str) -> bool:
    """Whether all Kafka sources of a streaming plan are on a cluster, which shows by a common address."""
    own = {one.strip() for one in bootstrap.split(",")}
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()  # noqa: SLF001 - only Java tells it
    places = [leaves.apply(n) for n in range(leaves.size())]
    given = [one.extraOptions().get("kafka.bootstrap.servers") for one in places if _is_source(one)]
    return all(own & {one.strip() for one in servers.split(",")} for servers in given if servers)


def _is_source(leaf: Any) -> bool:
    return str(leaf.nodeName()).startswith("StreamingRelationV2")


def plan_of(frame: Any, kind: str) -> str:
    """
    Return a plan of Spark as text; with Spark Connect, the output of its `explain`.

    Args:
        frame: a DataFrame.
        kind: `analyzed`; `executedPlan` for a frame that does not stream; `physical` for any frame.
    """
    if not has_jvm(frame.sparkSession):
        parts = re.split(r"^== (.+) ==$", frame._explain_string(extended=True), flags=re.MULTILINE)  # noqa: SLF001
        heads = dict(zip(parts[1::2], parts[2::2], strict=True))
        return heads["Analyzed Logical Plan" if kind == "analyzed" else "Physical Plan"]
    execution = frame._jdf.queryExecution()  # noqa: SLF001 - only Java tells it
    if kind != "physical":
        return str(getattr(execution, kind)().toString())
    # Spark does not execute a streaming plan outside a query, but explains it.
    return str(frame.sparkSession._jvm.PythonSQLUtils.explainString(execution, "simple"))  # noqa: SLF001
