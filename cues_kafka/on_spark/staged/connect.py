"""What a staged processor needs of Spark Connect, where Spark calls its batches in a process of the server.

That process has no Java, and shares no objects with the client. So the batch takes along what it needs, reads Spark's
logs and writes its files without Spark, and the client looks at the records of the slots to see how far they are. Spark
tells the counts of `DataFrame.observe` too late there, so each batch's ranges are read once more (`undecoded.Search`).
"""

from __future__ import annotations

from typing import Any, Final

from cues_kafka.errors import ConfigError
from cues_kafka.graph.dataframe import DataFrameProcessor
from cues_kafka.graph.definition import Graph
from cues_kafka.on_spark.query.files import has_jvm, is_shared

_CLASSIC: Final = "Or use a classic session: SparkSession.builder.master(...), not remote(...)."


def check_shared(graph: Graph, processor: DataFrameProcessor, checkpoint: str) -> None:
    """
    Refuse a staged processor that cannot be written without Spark's Java.

    Raises:
        ConfigError: its files are not on a disk, it writes into a target, or what it cannot decode may change.
    """
    if not is_shared(checkpoint):
        raise ConfigError(
            f"{processor.name!r} is staged, and Spark Connect gives no access to Spark's file systems: {checkpoint} "
            "has to begin with file: and be on a disk that client, server and executors share. Give "
            f"Spark(checkpoint='file:/...'). {_CLASSIC}"
        )
    if processor.into is not None:
        raise ConfigError(
            f"{processor.name!r} writes into {type(processor.into).__name__}, which was not tried with Spark Connect. "
            f"{_CLASSIC}"
        )
    asking = [topic for topic in processor.read_topics if getattr(graph.topic(topic).value, "registry", False)]
    if asking:
        raise ConfigError(
            f"{processor.name!r} is staged and reads {asking[0]!r} with a schema registry. Spark Connect does not tell "
            "how many messages could not be decoded while a batch was computed, so one that the registry knows a "
            f"moment later would be lost. Read it in a processor without shuffles and state first. {_CLASSIC}"
        )


def check_classic(session: Any) -> None:
    """Refuse to stage a frame of any sources through Spark Connect."""
    if not has_jvm(session):
        raise ConfigError(
            "a staged write_exactly_once asks Spark's Java which cluster each source of the frame is on, and Spark "
            f"Connect does not give it. Declare a DataFrameProcessor in a graph. {_CLASSIC}"
        )
