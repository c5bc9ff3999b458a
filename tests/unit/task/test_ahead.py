"""The rule that a batch belongs to the attempt that comes next."""

from __future__ import annotations

from typing import Any, cast

import pytest

from cues_kafka.core.events import IllegalEvent
from cues_kafka.core.task import Task
from cues_kafka.task.ahead import check_follows
from tests.unit.core.world import attempt, make_spec

SPEC = make_spec()


class Called:
    """A batch that was called for an attempt."""

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence


def test_a_batch_behind_another_record_is_never_committed() -> None:
    """O8, P7: its headers would name an attempt that is not its own; also where Python runs without assertions."""
    task = Task(SPEC, record=attempt(SPEC, 5))
    check_follows(task, cast(Any, Called(task.next_sequence)))

    with pytest.raises(IllegalEvent, match=f"called for attempt {task.next_sequence - 1}, and {task.next_sequence} "):
        check_follows(task, cast(Any, Called(task.next_sequence - 1)))
