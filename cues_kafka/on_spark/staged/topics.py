"""The topics of a staged processor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cues_kafka.errors import RecoveryError
from cues_kafka.task.calling.outputs import Output

ERRORS: Final = -1
"""The value of a message's column `output` that marks an error message."""

SETTLED: Final = -2
"""The same of a record that settles an error message (Y2)."""


@dataclass(frozen=True, slots=True)
class StagedTarget:
    """The topics of a staged processor: its outputs in the order of declaration, and its errors topic."""

    outputs: tuple[Output, ...]
    errors: Output | None = None

    def topic(self, number: int) -> Output:
        """The topic of a message by its number."""
        found = self.errors if number == ERRORS else self.outputs[number]
        assert found
        return found

    @property
    def batch_bytes(self) -> int | None:
        """The largest record batch that all topics take; None: not known."""
        everyone = (*self.outputs, *([self.errors] if self.errors else []))
        return min((one.batch_bytes for one in everyone if one.batch_bytes is not None), default=None)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(output.topic for output in self.outputs)

    def announced(self, outputs: Sequence[str], errors: str) -> StagedTarget:
        """
        Return the topics that a batch was announced with, by their names; its messages have their numbers.

        Raises:
            RecoveryError: a topic is no output any more, so its rows would go elsewhere.
        """
        mine = {output.topic: output for output in self.outputs}
        gone = [topic for topic in outputs if topic not in mine]
        if errors and (self.errors is None or self.errors.topic != errors):
            gone.append(errors)
        if gone:
            now = [*mine, *([self.errors.topic] if self.errors else [])]
            raise RecoveryError(
                f"the batch was announced for {sorted(gone)}, and is not published yet; the topics are {now} now. Name "
                "them as they were, outputs and errors topic, until it is; for a job use another name"
            )
        return StagedTarget(tuple(mine[topic] for topic in outputs), self.errors)
