"""What a target outside of Kafka holds of a task, and how the task goes on behind it (E1).

A target, such as a database, commits what user code wrote there in one transaction with a row: the attempt that Kafka
gets next. So after a death between the two commits the row is one attempt ahead of the newest record, and holds all
that this attempt needs. The task commits it as it is, and calls nothing again.
"""

from __future__ import annotations

from cues_kafka.core.events import Halt
from cues_kafka.core.records import Record, TargetRow
from cues_kafka.core.recover import Refuse
from cues_kafka.core.spec import Spec
from cues_kafka.ports.log import Positions
from cues_kafka.words import count


def compare(spec: Spec, record: Record | None, row: TargetRow | None) -> TargetRow | Refuse | None:
    """
    Decide how a task goes on whose target holds this row.

    Returns:
        The row, if it is the attempt that comes behind the record: it is to be committed. None, if both stand at the
        same step. Else why the task must not go on. An old record, as a leader that is cut off gives it, makes the
        target look ahead of it, so that refusal is stale.
    """
    step = record.step if record else 0
    if row is None:
        return None if step == 0 else _without_row(spec, step)
    if row.step == step:
        return None
    if record is not None and row.base == step < row.step:
        if _topics(record.positions) != _topics(row.ends):
            return _of_others(spec)
        return row if row.batch.taken == row.step - step else _miscounted(spec, row, step)
    if row.step < step:
        return _refuse(
            f"the target of {spec.name} stands at step {row.step}, its newest record at step {step}: the target was "
            "restored from a backup, or lost commits",
            "restore a newer backup, or go back to where the target stands: "
            f"`cues-kafka reset MODULE:GRAPH {spec.processor} --to database`. Outputs to Kafka then repeat",
        )
    return _refuse(
        f"the target of {spec.name} holds an attempt over step {row.base}, its newest record stands at step {step}: "
        f"records of {spec.backing!r} were lost, or another application uses this name with this target",
        f"restore {spec.backing!r}, or go to where the target stands: "
        f"`cues-kafka reset MODULE:GRAPH {spec.processor} --to database`. If it is another application, or a test "
        "whose Tester begins with an empty Kafka, give each of them a graph name or a target of its own",
        stale=True,
    )


def _refuse(text: str, remedy: str, *, stale: bool = False) -> Refuse:
    return Refuse(Halt("refused", text, remedy), stale)


def _topics(positions: Positions) -> set[tuple[str, str, bytes]]:
    return {(p.binding, p.topic, p.topic_id) for p in positions}


def _of_others(spec: Spec) -> Refuse:
    """Two clusters have the steps of both in one row, and each would publish what the other one has called."""
    return _refuse(
        f"the target of {spec.name} holds an attempt over other topics than its newest record: an application of this "
        "name on another cluster uses it too",
        "give one of the two another database, or another graph name; in tests, give each test one of its own",
        stale=True,
    )


def _miscounted(spec: Spec, row: TargetRow, step: int) -> Refuse:
    return _refuse(
        f"the target of {spec.name} holds an attempt that counts {count(row.batch.taken, 'step')}, and has "
        f"{row.step - step} between its ends: another program wrote into its row",
        "restore the target from a backup; or, if what it holds is right as it is, go to where it stands: "
        f"`cues-kafka reset MODULE:GRAPH {spec.processor} --to database`. Outputs to Kafka in between are then lost",
    )


def _without_row(spec: Spec, step: int) -> Refuse:
    return _refuse(
        f"the target of {spec.name} has no row of it, although it has taken {count(step, 'step')}: the target was "
        "recreated, or the processor had no target before",
        "restore the target; or, if what it holds is right as it is, begin its rows here: "
        f"`cues-kafka reset MODULE:GRAPH {spec.processor} --to here`",
    )
