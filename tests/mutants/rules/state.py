"""Stores, handlers, tables and timers."""

from __future__ import annotations

from tests.mutants.edits import Delete, Never, Replace, Without
from tests.mutants.mutant import Mutant
from tests.mutants.rules.suites import HANDLERS, STATE, TIMERS

EXPIRING = "tests/unit/state/test_expiring.py"
ON_DISK = "tests/unit/task/test_state_on_disk.py"
LAYERS = "tests/unit/state/test_layers.py"
TABLES = "tests/unit/task/test_tables.py"
TABLE_WAITS = "tests/unit/task/test_table_waits.py"
SCHEDULED = "tests/unit/state/test_scheduled.py"

MUTANTS: tuple[Mutant, ...] = (
    # What strangers and former owners may not do.
    Mutant(
        "R4b: a failed step gives its bytes back",
        "undo_step",
        Delete("self._grown -= $more"),
        (LAYERS,),
    ),
    # Stores and tables.
    Mutant(
        "R4b: what was read of a changelog ends as the record says",
        "_compare",
        Never("$one.place.step != $step"),
        (f"{STATE}::test_a_changelog_that_has_lost_its_messages_stops_the_task",),
    ),
    Mutant(
        "R4b: a store that the record does not name begins empty",
        "_compare",
        Never("$step is None and $one.place.step is not None"),
        (f"{STATE}::test_entries_of_another_task_are_refused",),
    ),
    Mutant(
        "R4b: entries of a changelog that was recreated are no whole store",
        "_compare",
        Never("$one.written_to not in (b'', $one.place.topic_id)"),
        (STATE,),
    ),
    Mutant(
        "R4b: a file that stands beyond the changelog's end is wiped",
        "_unfit",
        Never("$place.offset > $high"),
        (ON_DISK,),
    ),
    Mutant(
        "R4b: a file that may lack a deletion is wiped",
        "_is_old",
        Never("abs($found.asked_ms - $one.place.proven_ms) >= $found.retention_ms / 2"),
        (ON_DISK,),
    ),
    Mutant(
        "a handler with traces of a step that raised is reset before the others are called again",
        "_again",
        Delete("$handlers.reset(counts=$counts)"),
        (HANDLERS,),
    ),
    Mutant(
        "a batch whose handler failed is not committed",
        "halt",
        Delete("$batch.back_to(EMPTY)"),
        (HANDLERS,),
    ),
    Mutant(
        "P8: a recovery resets the handlers",
        "voided",
        Without("due=True"),
        (HANDLERS,),
    ),
    Mutant(
        "P8: a void batch changes no store",
        "discard",
        Replace("self._below, self._batch = (), None", "self._batch = None"),
        (LAYERS,),
    ),
    Mutant(
        "F2: a batch that is void brings its timers back",
        "discard",
        Replace("self._stale = True", "self._stale = False"),
        (SCHEDULED,),
    ),
    Mutant(
        "F2: a step that is undone brings its timers back",
        "undo_step",
        Delete("""
            for $key in $keys:
                heappush(self._heap, $key)
            """),
        (SCHEDULED,),
    ),
    Mutant(
        "F1: the time of messages is rolled back with their step",
        "undo_step",
        Delete("self._turn_to(self._before)"),
        (TIMERS, EXPIRING),
    ),
    Mutant(
        "P7: a call ahead sees the changes of the batch before",
        "newest",
        Delete("""
            if $key in $changes:
                return $changes[$key]
            """),
        (LAYERS,),
    ),
    Mutant(
        "a failed step moves no time",
        "undo_step",
        Delete("self._turn_to(self._before)"),
        (EXPIRING,),
    ),
    Mutant(
        "an entry that was set again outlives its first lifetime",
        "_sweep",
        Without("self._alive($value, self.time) is None"),
        (EXPIRING,),
    ),
    Mutant(
        "what a void batch swept is swept again",
        "discard",
        Delete("self._buckets.setdefault($bucket, _Bucket()).extend($keys)"),
        (EXPIRING,),
    ),
    Mutant(
        "a table is read to its end before the first call",
        "bring_up",
        Never("self._read[$place].offset < $ends[$place]"),
        (TABLES,),
    ),
    Mutant(
        "a task that comes back reads its tables to their end",
        "bring_up",
        Replace(
            "[$place for $place in $wanted if self._read[$place].offset < $ends[$place]]",
            "[$place for $place in missing if self._read[$place].offset < $ends[$place]]",
        ),
        (TABLES,),
    ),
    Mutant(
        "a task does not go on with a table that is no longer read",
        "refresh",
        Never("not all(map(self._is_read, places_of($spec, $partition)))"),
        (TABLES,),
    ),
    Mutant(
        "a call waits until its table is read up to its end",
        "wait",
        Replace(
            """
            while $left:
                if $given_up():
                    $gone
                $*asked
            """,
            """
            while False:
                if $given_up():
                    $gone
                $*asked
            """,
        ),
        (TABLE_WAITS,),
    ),
    Mutant(
        "an end behind markers is looked for by a second reader",
        "read_up_to",
        Replace(
            "self._reader is not None and not self._poll($timeout_s)",
            "self._reader is not None and self._poll($timeout_s) and False",
        ),
        (TABLE_WAITS,),
    ),
    Mutant(
        "what the second reader took is not taken again",
        "_take",
        Never("$message.offset() < $held.offset"),
        (TABLE_WAITS,),
    ),
)
