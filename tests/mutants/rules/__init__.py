"""
Rules of the shell, each with the edit that takes it out and the tests that must notice.

The core's rules are the explorer's (`tests.proof.model`). A rule stands here once, at the code that holds it up; where
a second guard covers for it, the mutant would change nothing, and is left out.
"""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.rules import brokers, calling, client, databases, files, on_spark, state, task, tools, workers

MUTANTS: tuple[Mutant, ...] = (
    *brokers.MUTANTS,
    *task.MUTANTS,
    *calling.MUTANTS,
    *state.MUTANTS,
    *workers.MUTANTS,
    *on_spark.MUTANTS,
    *databases.MUTANTS,
    *files.MUTANTS,
    *client.MUTANTS,
    *tools.MUTANTS,
)
