"""`cues-kafka reset`: let tasks begin elsewhere."""

from __future__ import annotations

from cues_kafka.core.moves import To, begin
from cues_kafka.errors import ConfigError
from cues_kafka.operate.move.base import Maintenance, PlannedMove, places_of, standing_at
from cues_kafka.operate.move.places import wanted
from cues_kafka.operate.move.reset_staged import reset_staged
from cues_kafka.operate.move.settle import DATABASE, HERE, settle


def reset(tool: Maintenance, *, to: str = "earliest", partition: int | None = None) -> list[PlannedMove]:
    """
    Plan to let tasks begin elsewhere.

    Args:
        tool: what moves them.
        to: see `places.wanted`; `earliest` repeats the messages in the log, `latest` skips them. `database` and `here`
            bring tasks and their targets together, see `settle`.
        partition: of a single task; None: all tasks.

    Raises:
        ConfigError: there is no such partition or place, or the processor is staged and cannot be reset in part.
        RecoveryError: the group has members, or a record is not this task's.
    """
    name, tasks = tool.specs[0].processor, len(tool.specs)
    if tool.staged:
        if partition is not None:
            raise ConfigError(
                f"--partition {partition}: {name!r} is written staged. Its batches take all partitions of its inputs "
                "at once, so it is reset as a whole: leave --partition out"
            )
        return reset_staged(tool, to)
    if partition is not None and partition not in range(tasks):
        raise ConfigError(f"--partition {partition}: {name!r} has 0 to {tasks - 1}")
    specs = [spec for spec in tool.specs if partition in (None, spec.partition)]
    if to in (DATABASE, HERE):
        return settle(tool, to, specs)
    if to in ("earliest", "latest"):
        end: To = "earliest" if to == "earliest" else "latest"
        return tool.moves_to(lambda spec, _, inputs: begin(spec, inputs, end), specs)
    return tool.moves_to(standing_at(wanted(tool.broker, to, places_of(specs))), specs)
