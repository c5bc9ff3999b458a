"""What a function of DataFrames makes of its inputs: they are read, it is called, its plan is looked at."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from cues_kafka.brokers.options import Kafka
from cues_kafka.codecs.lookup import MadeFor, codec_for
from cues_kafka.errors import ConfigError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.processor import DataFrameProcessor
from cues_kafka.runtime.spark.columns import as_columns
from cues_kafka.runtime.spark.query.files import has_jvm
from cues_kafka.runtime.spark.query.run import QuerySettings
from cues_kafka.runtime.spark.source.messages import PREFIX, message_source
from cues_kafka.runtime.spark.source.ranges import SourceInput

_SHUFFLE_NODES: Final = re.compile(
    r"^[\s:+~-]*(Aggregate|Deduplicate\w*|Repartition\w*|RebalancePartitions|Union|Sort|Window|Distinct|GlobalLimit"
    r"|LocalLimit|Limit|FlatMapGroupsWithState|FlatMapGroupsInPandas\w*|TransformWithState\w*|CoGroup\w*|MapGroups)\b",
    re.MULTILINE,
)
"""Nodes of an analyzed plan after which rows of several partitions of the input meet, or one partition is parted."""

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
"""In a physical plan: rows change their partition. A broadcast leaves the stream's rows where they are."""


def call_function(
    settings: QuerySettings,
    options: Kafka,
    graph: Graph,
    processor: DataFrameProcessor,
    positions: Mapping[str, tuple[int, ...]],
    *,
    back: bool = True,
) -> dict[str, Any]:
    """
    What the function makes, by output binding.

    Args:
        settings: of the query.
        options: the cluster.
        graph: where the topics are declared.
        processor: whose function.
        positions: by topic, where a query without a checkpoint begins to read.
        back: see `SourceInput.back`.

    Raises:
        ConfigError: it gives something else than its declaration says, or what this session cannot run.
    """
    frames = {}
    for binding, topic in processor.inputs:
        name = f"{graph.name}.{processor.name}" + (f".{binding}" if len(processor.inputs) > 1 else "")
        given = SourceInput(name, options, topic, positions[topic], settings.limit, back)
        settings.session.dataSource.register(message_source(given))
        codec = codec_for(graph.topic(topic).value, MadeFor(topic, options))
        frames[binding] = as_columns(settings.session.readStream.format(PREFIX + name).load(), codec)
    found = processor.fn(**frames) if processor.by_name else processor.fn(*frames.values())
    by_binding = _by_binding(processor, found)
    for frame in by_binding.values():
        check_store(processor.name, frame)
    return by_binding


def check_store(name: str, frame: Any) -> None:
    """
    Before a checkpoint is made: it would hold the wrong store, which another setting does not change any more.

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
    names = [binding for binding, _ in processor.outputs]
    if processor.output_shape == "one":
        found = {names[0]: found}
    if not isinstance(found, Mapping) or not set(found) <= set(names):
        shown = sorted(found) if isinstance(found, Mapping) else type(found).__name__
        raise ConfigError(
            f"{processor.name!r} gave {shown}, its outputs are {names}: return {{binding: DataFrame}} of these"
        )
    for binding, frame in found.items():
        if not getattr(frame, "isStreaming", False):
            raise ConfigError(
                f"{processor.name!r} gave for {binding!r} what does not stream: make it of the frames that it is given"
            )
    if not found:
        raise ConfigError(f"{processor.name!r} gave no DataFrame at all; its outputs are {names}")
    return dict(found)


def shuffle_node(frame: Any) -> str:
    """
    The node of a plan that shuffles or keeps state; empty: the input's partitions stay apart.

    Whether a join with a table shuffles depends on the table's size, on hints and on settings: that is Spark's choice,
    and only the physical plan has it.
    """
    if found := _SHUFFLE_NODES.search(plan_of(frame, "analyzed")):
        return found.group(1)
    if streams(frame) > 1:
        return ""
    found = _SHUFFLES.search(plan_of(frame, "physical"))
    return found.group() if found else ""


def keeps_state(frame: Any) -> bool:
    """Whether Spark keeps state for it: a join counts where more than one of its sides may stream."""
    plan = plan_of(frame, "analyzed")
    joins = re.search(r"^[\s:+~-]*Join\b", plan, re.MULTILINE)
    return bool(_STATEFUL_NODES.search(plan)) or (streams(frame) > 1 and joins is not None)


def streams(frame: Any) -> int:
    """How many streaming sources a streaming plan names; one that it reads twice counts twice."""
    # A plan that is nothing but a source prints the source's short name.
    return max(1, len(re.findall(r"^[\s:+~-]*Streaming\w*", plan_of(frame, "analyzed"), re.MULTILINE)))


def addressed(frame: Any, bootstrap: str) -> bool:
    """Whether all Kafka sources of a streaming plan are known to be on a cluster: an address of its is among theirs."""
    own = {one.strip() for one in bootstrap.split(",")}
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()  # noqa: SLF001 - only Java tells it
    places = [leaves.apply(n) for n in range(leaves.size())]
    given = [one.extraOptions().get("kafka.bootstrap.servers") for one in places if _is_source(one)]
    return all(own & {one.strip() for one in servers.split(",")} for servers in given if servers)


def _is_source(leaf: Any) -> bool:
    return str(leaf.nodeName()).startswith("StreamingRelationV2")


def plan_of(frame: Any, kind: str) -> str:
    """
    A plan of Spark's as text; with Spark Connect what its `explain` shows of it.

    Args:
        frame: a DataFrame.
        kind: `analyzed`; `executedPlan` of one that does not stream; `physical` of any.
    """
    if not has_jvm(frame.sparkSession):
        parts = re.split(r"^== (.+) ==$", frame._explain_string(extended=True), flags=re.MULTILINE)  # noqa: SLF001
        heads = dict(zip(parts[1::2], parts[2::2], strict=True))
        return heads["Analyzed Logical Plan" if kind == "analyzed" else "Physical Plan"]
    execution = frame._jdf.queryExecution()  # noqa: SLF001 - only Java tells it
    if kind != "physical":
        return str(getattr(execution, kind)().toString())
    # Spark executes no streaming plan outside of a query, but explains it.
    return str(frame.sparkSession._jvm.PythonSQLUtils.explainString(execution, "simple"))  # noqa: SLF001
