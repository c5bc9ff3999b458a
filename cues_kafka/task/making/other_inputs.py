"""Whether a processor of DataFrames has other inputs than its newest record, and how it may begin again with them."""

from __future__ import annotations

import json
from collections.abc import Iterable

from cues_kafka.core.events import Halt
from cues_kafka.core.records import Staged
from cues_kafka.graph.dataframe import DataFrameProcessor


def begin_again(processor: str) -> str:
    """The remedy for a processor of DataFrames whose inputs are others now."""
    return (
        "give it a new name= and a new checkpoint. Or let it begin again under its name: stop the query, run "
        f"`cues-kafka reset MODULE:GRAPH {processor} --to earliest` or --to latest with the new declaration, and "
        "delete its checkpoint; what Spark keeps there (sums, windows) is lost, and with earliest outputs repeat"
    )


def other_sources(declared: DataFrameProcessor, staged: Staged) -> Halt | None:
    """Why a staged processor would stop whose inputs are others than its newest record has; None: they are the same."""
    ends = {one.source: json.loads(one.end) if one.end else {} for one in staged.extents}
    ids = {one.source: one.ids for one in staged.extents}  # the replay topic has none, and is no input
    was = {
        (source, topic)
        for source, end in ends.items()
        if isinstance(end, dict)
        for topic in end
        if topic in ids[source] or "" in ids[source]
    }
    now = {*declared.inputs}
    if not ends or (ends.keys() == {binding for binding, _ in now} and was <= now):
        return None
    text = f"inputs changed: the newest record has {_inputs_shown(was)}; the graph has {_inputs_shown(now)}"
    return Halt("refused", text, f"declare the inputs as they were; or {begin_again(declared.name)}")


def _inputs_shown(inputs: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{binding!r} from {topic!r}" for binding, topic in sorted(inputs))
