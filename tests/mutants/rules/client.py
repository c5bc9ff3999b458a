"""Clients of their own, outside of a graph."""

from __future__ import annotations

from tests.mutants.edits import Delete, Replace
from tests.mutants.mutant import Mutant

OUTCOMES = "tests/unit/client/test_outcomes_of_transactions.py"

MUTANTS: tuple[Mutant, ...] = (
    # Tools.
    Mutant(
        "K1: after an error a holder looks whether it still is one",
        "_ready",
        Replace(
            """
            if self._used:
                self._check_holder()
            """,
            """
            if not self._id:
                self._check_holder()
            """,
        ),
        (OUTCOMES,),
    ),
    Mutant(
        "K1: who takes an id writes its record first",
        "take_id",
        Delete("$held.store({CLIENT_KEY: (0, b'')})"),
        (OUTCOMES,),
    ),
    Mutant(
        "K2: after an error of a commit the log is asked",
        "_attempt",
        Replace("not self._committed($error, $place, $decide)", "not self._id or not $decide"),
        (OUTCOMES,),
    ),
    Mutant(
        "K3: the newest place says whether a tailer's transaction is committed",
        "store",
        Replace("self._decided", "lambda: False"),
        (OUTCOMES,),
    ),
    Mutant(
        "K3: a tailer whose transaction fails stands at its place",
        "commit",
        Delete("self._set_back()"),
        (OUTCOMES,),
    ),
    Mutant(
        "K4: the id is taken before the log is asked",
        "sent",
        Delete("self.take_id()"),
        (OUTCOMES,),
    ),
    Mutant(
        "K4: an id is looked for up to the high watermark",
        "sent_ids",
        Replace("$mark.high", "$mark.stable"),
        ("tests/integration/test_primitives.py",),
    ),
)
