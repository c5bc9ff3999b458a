"""The contract suite of targets: run it against a target of your own (docs/targets.md).

.. code-block:: python

    class TestMyTarget(TargetAccess):
        @pytest.fixture
        def target(self): ...  # the declaration, of an empty place

        def write(self, into, number): ...  # what a function does; by default into.write(number)
        def read(self, target): ...  # the numbers that others see

Each case runs a graph on a broker in memory, or speaks with the target as the runtime does. It kills the process at
each effect of the runtime and at each line of `Transactions`, loses the answers of commits, and wakes up former owners.
"""

from __future__ import annotations

from typing import Any

from cues_kafka.extras import PYTEST, missing

try:
    import pytest
except ImportError as error:
    raise missing("cues_kafka.testing.targets", PYTEST, error=error) from None

from cues_kafka.graph.effects import Effect
from cues_kafka.testing.target_bench import Case, TargetAccess
from cues_kafka.testing.target_cases import CASES


class TargetContract(TargetAccess):
    """
    The cases of the contract, for one target. Subclass it with a name that pytest collects.

    `target` is a fixture that gives the declaration of an empty place: an `Effect` for `effects=`. The suite writes
    under names of its own, so several tests may share a server.
    """

    @pytest.fixture
    def target(self) -> Effect:
        """Give the declaration. Override it; it may use other fixtures."""
        raise NotImplementedError("the contract suite needs a fixture named target, which gives the declaration")

    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
    def test_case(self, case: Case, target: Any) -> None:
        """One case of the contract on this target."""
        case.check(self, target)
