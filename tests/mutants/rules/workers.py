"""Native workers, their supervisor, and feeds."""

from __future__ import annotations

from tests.mutants.edits import Delete, Never, Replace, Without
from tests.mutants.mutant import Mutant
from tests.mutants.rules.suites import DATABASE_PARTS, GUARDS

SUPERVISOR = "tests/integration/test_supervisor.py"
FEEDS = "tests/unit/workers/feeds/test_feeds.py"
RESTORED = "tests/unit/bridges/test_restored_outbox.py"

MUTANTS: tuple[Mutant, ...] = (
    # A processor in one process.
    Mutant(
        "R6: a topic that was deleted and recreated stops its task",
        "compare_topic_ids",
        Replace(
            """
            if $found is None or $found.topic_id != $position.topic_id:
                $*stopped
            """,
            """
            if $found is None:
                $*stopped
            """,
        ),
        (GUARDS,),
    ),
    Mutant(
        "A3: `left` is said under the generation that has begun",
        "on_revoke",
        Delete("self._membership.publish()"),
        (GUARDS,),
    ),
    Mutant(
        "A2: a reader is pointed for the newest recovery only",
        "_obey",
        Without("$lane.buffer is not $buffer"),
        (GUARDS,),
    ),
    # Processes.
    Mutant(
        "a worker that no restart helps is given up",
        "_ended",
        Replace(
            "$code in GIVE_UP and not $gives_way or $code == REFUSED and not self._let_in",
            "$code == REFUSED and not self._let_in",
        ),
        (SUPERVISOR,),
    ),
    Mutant(
        "a login that is refused once a worker has lived is tried again",
        "_ended",
        Without("not self._let_in"),
        (SUPERVISOR,),
    ),
    Mutant(
        "a worker that dies again and again waits longer each time",
        "back_off",
        Replace("self.backoff_s = min(self.backoff_s * 2, MAX_BACKOFF_S)", "pass"),
        (SUPERVISOR,),
    ),
    Mutant(
        "a worker ends with its supervisor",
        "die_with",
        Delete("ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)"),
        (SUPERVISOR,),
    ),
    Mutant(
        "a worker whose supervisor died before it could ask ends",
        "die_with",
        Never("os.getppid() != $parent"),
        (SUPERVISOR,),
    ),
    # Databases.
    Mutant(
        "E1: at a stop the tasks are not given up before Kafka follows parts",
        "close",
        Delete("self._let_parts_end()"),
        (DATABASE_PARTS,),
    ),
    Mutant(
        "E1: at a stop Kafka follows parts",
        "_call_loop",
        Replace("$lane.in_parts", "not $lane.commits_first"),
        (DATABASE_PARTS,),
    ),
    Mutant(
        "E1: at a stop Kafka follows the last part",
        "call_once",
        Replace("$lane.commits_first", "not $lane.commits_first"),
        (DATABASE_PARTS,),
    ),
    # Feeds.
    Mutant(
        "G1: the record has the place behind its last row",
        "_close",
        Replace(
            "on.Called((), $batch.totals, $batch.halt, $batch.place)", "on.Called((), $batch.totals, $batch.halt, '')"
        ),
        (FEEDS,),
    ),
    Mutant(
        "G1: a restart reads on behind the newest committed record",
        "_new_buffer",
        Without("$record.place"),
        (FEEDS,),
    ),
    Mutant(
        "G1: a place is that of a row that is in the batch",
        "_add",
        Replace(
            """
            if not $into.add($message, $at, $batch):
                return False
            $place.at = $at
            """,
            """
            $place.at = $at
            if not $into.add($message, $at, $batch):
                return False
            """,
        ),
        (FEEDS,),
    ),
    Mutant(
        "G1: a source drops only what is committed",
        "_tell_committed",
        Replace("$tells(self.spec.partition, $record.place)", "$tells(self.spec.partition, place.at or $record.place)"),
        (FEEDS,),
    ),
    Mutant(
        "G1: a table that was restored from a backup is not read on",
        "_check",
        Replace("$newest < _number($place)", "$newest < 0"),
        (RESTORED,),
    ),
    Mutant(
        "G1: the newest delivered row is still the same",
        "check_row",
        Without("self.fits($mark, self.mark($row))"),
        (RESTORED,),
    ),
)
