"""Which topics a processor counts on to hold all messages of a key in one partition."""

from __future__ import annotations

from cues_kafka.graph.processor import Processor


def keyed_topics(processor: Processor) -> dict[str, str]:
    """
    The topics whose messages of one key must all be in one partition, each with what of the processor counts on it.

    A task sees its own partition only. So a key in two partitions has two entries in stores, is found in a table by one
    task and missed by the others, is a repeated message to neither task, and is upserted in no order.
    """
    if processor.input_shape == "join":
        return {}
    looked_up = [name for name, table in processor.tables.items() if table.kind == "table"]
    upserted = [name for name, effect in processor.targets.items() if effect.placed]
    reasons = [
        *(f"the store {name!r}" for name, store in processor.state.items() if not store.per_task),
        *(f"the table {name!r}" for name in looked_up),
        *(f"the upsert {name!r}" for name in upserted),
    ]
    if not reasons:
        return {}
    found = {topic: reasons[0] for _, topic in processor.inputs}
    return found | {processor.tables[name].topic: f"the table {name!r}" for name in looked_up}
