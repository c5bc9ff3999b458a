"""One rule of the shell that is taken out."""

from __future__ import annotations

from dataclasses import dataclass

from tests.mutants.edits import Edit


@dataclass(frozen=True, slots=True)
class Mutant:
    """
    One rule taken out.

    Attributes:
        rule: what holds while the rule is there; unique.
        at: the definition that has it: the end of its qualified name, as `work`, `Lane.work` or `lane.Lane.work`. The
            shortest that the edit needs to have one place in the package is best, because code moves.
        edit: what is changed there.
        tests: what pytest is asked to run; one of them must fail.
    """

    rule: str
    at: str
    edit: Edit
    tests: tuple[str, ...]
