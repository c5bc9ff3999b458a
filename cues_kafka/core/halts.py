"""R7: what a task says when it gives up."""

from __future__ import annotations

from cues_kafka.core.events import Failed, Halt
from cues_kafka.core.records import Record
from cues_kafka.core.task import Task

_REMEDY = "fix the cause, and the task resumes; `cues-kafka plan MODULE:GRAPH --apply` recreates a deleted topic"


def claimed(record: Record) -> Halt:
    """Another writer has fenced the task twice; this is its record."""
    who = record.writer
    return Halt(
        "refused",
        f"fenced twice by {who.name!r} ({who.runtime}, {who.incarnation}), which runs this task too",
        "stop one of the two: a processor runs in one application and one runtime at a time",
    )


def exhausted(task: Task, event: Failed) -> Halt:
    """The task returned to R1 too often without progress, and this is what happened last."""
    who = f", newest record by {task.record.writer.name!r}" if task.record else ""
    if event.fenced:
        return Halt(
            "refused", f"fenced {task.rounds + 1} times{who}: {event.text}", "stop the other writer of this task"
        )
    return Halt("refused", f"{task.rounds} attempts failed{who}: {event.text}", event.remedy or _REMEDY)
