"""`cues-kafka adopt`: let tasks that never ran go on where another consumer group stands."""

from __future__ import annotations

from collections.abc import Mapping

from cues_kafka.core.records import Attempt, Start
from cues_kafka.core.spec import Spec
from cues_kafka.errors import ConfigError, RecoveryError
from cues_kafka.operate.move.base import Maintenance, PlannedMove, places_of, standing_at
from cues_kafka.operate.move.places import wanted
from cues_kafka.ports.log import TopicPartition
from cues_kafka.words import count


def adopt(tool: Maintenance, group: str) -> list[PlannedMove]:
    """
    Plan to let tasks that never ran go on where another consumer group stands.

    Tasks that stand there already are left out, so that a run that was cut short can be run again.

    Args:
        tool: what moves the tasks.
        group: the group, whose application has stopped. `carry_out` holds it meanwhile, and `forget` deletes it.

    Raises:
        ConfigError: the processor is one of DataFrames, the group is its own, or an input has partitions that no
            task has yet.
        RecoveryError: a group has members, the other one lacks an offset or has one that is not in the log, or a
            task has a record of another place.
    """
    name = tool.specs[0].processor
    if tool.staged or not tool.specs[0].inputs:
        raise ConfigError(f"{name!r} is written staged. Use `cues-kafka reset MODULE:GRAPH {name} --to group:{group}`")
    if group == tool.group:
        raise ConfigError(f"group {group!r} is this processor's own, so there is no place to take over")
    _refuse_unplanned(tool)
    offsets = wanted(tool.broker, f"group:{group}", places_of(tool.specs))
    if ran := [spec.name for spec in tool.specs if not _may_begin(tool, spec, offsets)]:
        raise RecoveryError(
            f"{', '.join(ran)}: there is a record already, so the task has a place of its own. To give it up, use "
            f"`cues-kafka reset MODULE:GRAPH {name} --to group:{group}`"
        )
    return tool.moves_to(standing_at(offsets))


def _refuse_unplanned(tool: Maintenance) -> None:
    """Refuse if an input was widened: `forget` would delete offsets of partitions that no task took over."""
    backing, tasks = tool.specs[0].backing, len(tool.specs)
    if wider := {i.topic: size for i in tool.inputs if (size := tool.reading.width(i.topic)) > tasks}:
        has = ", ".join(f"{topic!r} has {count(size, 'partition')}" for topic, size in wider.items())
        raise ConfigError(
            f"{has}, and only {count(tasks, 'task')} can take a place. Run `cues-kafka plan MODULE:GRAPH --apply`, "
            f"which adds partitions to {backing!r}, then run the command again."
        )


def _may_begin(tool: Maintenance, spec: Spec, offsets: Mapping[TopicPartition, int]) -> bool:
    """Whether the task has no record, or one that says the same."""
    record = tool.settled(spec)
    return record is None or (
        isinstance(record, Attempt | Start)
        and all(p.offset == offsets[TopicPartition(p.topic, spec.partition)] for p in record.positions)
    )


def forget(tool: Maintenance, group: str) -> bool:
    """Delete an adopted group, so that its application cannot go on there; False: it has other topics' offsets."""
    # Only behind `carry_out`: until each task has its record, these offsets are the only place of what it has to read.
    return tool.broker.forget(group, [i.topic for i in tool.inputs])
