"""What tools and checks refuse and see."""

from __future__ import annotations

from tests.mutants.edits import Delete, Replace
from tests.mutants.mutant import Mutant
from tests.mutants.rules.suites import VERIFY

MUTANTS: tuple[Mutant, ...] = (
    # Tools.
    Mutant(
        "X2: `reset` moves nothing while the group has members",
        "refuse_members",
        Replace("$broker.members($group)", "[]"),
        ("tests/unit/operate/move/test_moving.py",),
    ),
    Mutant(
        "verify sees a fork or a join out of order",
        "several",
        Delete("""
            if $offset < self.last:
                self.disorder($offset)
            """),
        (VERIFY,),
    ),
)
