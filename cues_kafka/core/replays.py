"""Replay of error messages (X1, Y1 to Y3): where a task stands in its replay topic, and when a request may come next.

An operator asks for a replay with a message in the task's partition of the processor's replay topic. The task delivers
the messages that the error is about once more, under their delivery hash. Each request is one step, announced by a
snapshot of its own: the message has failed once, so it is likelier than others to kill its process, and no effect
outside of Kafka may meet another step in its place (S2). The attempt of that step moves the place in the replay topic
and has, in the same transaction, a `settled` record in the backing partition, whose key is the place of the error
message. A request whose error message has such a record ends as nil. So the place is a hint, and the records are the
truth: a task that begins at a place too early finds that everything there is settled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cues_kafka.core.events import InputFacts
from cues_kafka.core.records import Attempt
from cues_kafka.core.recover import Decision, Delivered, Pending
from cues_kafka.core.spec import REPLAY, Spec
from cues_kafka.core.task import Task
from cues_kafka.ports.log import Position, Positions


def begin(spec: Spec, facts: Mapping[str, InputFacts], before: Positions = ()) -> Positions:
    """
    Where a task stands in its replay topic.

    Args:
        spec: the task.
        facts: what the cluster says, by binding; without `REPLAY` the topic is not there, or must not be read.
        before: where it stood; another topic of that name is read from its beginning.

    Returns:
        One position; none, if nothing can be replayed now.
    """
    found = facts.get(REPLAY)
    if not spec.replays or found is None:
        return before
    offset = next((p.offset for p in before if p.topic_id == found.topic_id), found.low)
    return (Position(REPLAY, spec.replay, found.topic_id, min(max(offset, found.low), found.high)),)


def standing(spec: Spec, decision: Decision, facts: Mapping[str, InputFacts]) -> Decision:
    """What R5 has decided, with where the task stands in its replay topic."""
    if not isinstance(decision, Delivered | Pending) or not spec.replays:
        return decision
    record = replace(decision.record, replays=begin(spec, facts, decision.record.replays))
    return replace(decision, record=record)  # type: ignore[arg-type]  # the record is of the same kind


def replayed(task: Task, made: Attempt, replays: Positions) -> Attempt:
    """
    Y2: the attempt with the place in the replay topic behind the request that it delivers.

    Raises:
        ValueError: what it delivers is not what was announced.
    """
    announced = task.due is not None and task.due.replay
    if made.batch.replays != (made.batch.deliveries if announced else 0) or made.batch.replays > 1:
        raise ValueError(
            f"{task.spec.name}: {made.batch.replays} replays of {made.batch.deliveries} steps are delivered"
        )
    return replace(made, replays=replays) if replays else made
