"""The calls of user functions, their steps and outputs, and processors with tailers."""

from __future__ import annotations

from tests.mutants.edits import Delete, Never, Replace, Without
from tests.mutants.mutant import Mutant
from tests.mutants.rules.suites import (
    CRASHES,
    GUARDS,
    HANDLERS,
    IMPERATIVE,
    RETRY,
    ROWS,
    STATE,
    TARGETS,
    TIMERS,
    VERIFY,
)

PAIRING = "tests/unit/task/calling/test_pairing.py"
PLAIN = "tests/unit/task/calling/test_plain.py"
BAD_INPUT = "tests/integration/test_bad_input.py"

MUTANTS: tuple[Mutant, ...] = (
    # From fetched messages to steps.
    Mutant(
        "a position moves over markers only where all before them is taken",
        "behind",
        Without("not self.size"),
        (PAIRING, CRASHES, GUARDS),
    ),
    Mutant(
        "A2: a reader that goes back is found out",
        "add",
        Without("$first < self.next_offset"),
        (GUARDS,),
    ),
    Mutant(
        "an order of alts that was put back comes again",
        "_put_back",
        Replace("self._choice(list($steps)) + self._order", "()"),
        (GUARDS, RETRY),
    ),
    Mutant(
        "a join's steps that are put back keep their messages",
        "_put_back",
        Replace(
            "zip(self._queues, zip(*$steps, strict=True), strict=False)",
            "zip(self._queues[:1], zip(*$steps, strict=True), strict=False)",
        ),
        (GUARDS, "tests/proof/test_any_schedule.py"),
    ),
    Mutant(
        "a task stops before a key that another partitioner placed",
        "Keys.run",
        Replace(
            """
            if $wrong is None:
                return inner($*given)
            """,
            """
            if $wrong is None or at >= 0:
                return inner($*given)
            """,
        ),
        ("tests/unit/brokers/test_placement.py",),
    ),
    # User code.
    Mutant(
        "a message that cannot be decoded is never retried",
        "_became_error",
        Without("$failure.kind != 'decode'"),
        (RETRY,),
    ),
    Mutant(
        "an error message is no output in the totals",
        "Ending._add_error",
        Delete("$batch.messages -= 1"),
        (CRASHES, PLAIN, VERIFY),
    ),
    Mutant(
        "a retry ends after its time",
        "_halts_for_retry",
        Replace("$now - $since < $retry.for_s", "$now - $since <= $retry.for_s * 1000"),
        (RETRY,),
    ),
    Mutant(
        "an output without a key keeps the task's partition",
        "_emit",
        Replace("$batch.spec.partition % $target.partitions", "0"),
        (PLAIN,),
    ),
    Mutant(
        "what an error message has no room for gives way",
        "_add_error",
        Delete("$origin.travelled = []"),
        (f"{BAD_INPUT}::test_headers_and_keys_that_leave_no_room_do_not_stop_the_task",),
    ),
    Mutant(
        "a result among usual ones keeps its place",
        "_run_each",
        Replace(
            """
            $data, $start = [], $index + 1
            self._add($steps, $batch, $payloads)
            """,
            """
            $data, $start = [], $index
            self._add($steps, $batch, $payloads)
            """,
        ),
        (PLAIN,),
    ),
    Mutant(
        "all records of a step are sent, or none",
        "_add",
        Replace("list($rows)", "$rows"),
        (PLAIN,),
    ),
    Mutant(
        "headers that cannot be read are asked for once",
        "headers_of_each",
        Delete("$messages[len($found)].set_headers(UNREADABLE)"),
        (PLAIN,),
    ),
    # Outputs.
    Mutant(
        "a step's outputs have the latest time of its messages",
        "Origin.__init__",
        Replace(
            "max($message.timestamp()[1] for $message in $messages)",
            "min($message.timestamp()[1] for $message in $messages)",
        ),
        (PLAIN,),
    ),
    Mutant(
        "an output for a partition that is not there is an error",
        "payload",
        Replace("0 <= $partition < $target.partitions", "0 <= $partition"),
        (PLAIN,),
    ),
    Mutant(
        "a compacted topic needs a key",
        "payload",
        Never("$key is None and $target.compacted"),
        (PLAIN,),
    ),
    Mutant(
        "a timestamp that its topic refuses is an error",
        "record",
        Replace(
            "($late or $target.older_ms is not None) and ($why := $target.untimely($when, $now()))", "$why := None"
        ),
        (PLAIN,),
    ),
    Mutant(
        "a tombstone needs a key",
        "payload",
        Never("$value is None and $given is None"),
        (PLAIN,),
    ),
    Mutant(
        "columns of different lengths are refused",
        "Outbox.lists",
        Never("len({len($column) for $column in $made}) > 1"),
        ("tests/unit/task/calling/test_outbox.py",),
    ),
    # Stores and tables.
    Mutant(
        "a failed step changes no store",
        "Storing.undo_step",
        Delete("self.stores.undo_step()"),
        (STATE,),
    ),
    Mutant(
        "steps that are called one by one leave nothing of the call for all of them",
        "Lists._each_alone",
        Replace(
            """
            $batch.back_to($before)
            if $batch.turnstile is not None:
                $*taken
            self._undo($first, $batch, $error)
            """,
            """
            if $batch.turnstile is not None:
                $*taken
            """,
        ),
        (STATE,),
    ),
    Mutant(
        "the error of a step is committed without its traces in a handler",
        "Handling.may_end",
        Delete("$handlers.reset(counts=False)"),
        (HANDLERS,),
    ),
    Mutant(
        "a step that is retried begins with handlers as they were",
        "_became_error",
        Replace("$step.kind not in UNDECODED", "not isinstance(error, self._retried)"),
        (HANDLERS,),
    ),
    Mutant(
        "what was drained is counted",
        "Adding.add_drained",
        Replace("$batch.drained += len($rows)", "$batch.drained += 0"),
        (HANDLERS,),
    ),
    Mutant(
        "F4: a timer that failed is removed with its step",
        "Timing._deliver",
        Replace(
            """
            if not $caller.ending.fail($error, $step):
                return
            $timers.end($due)
            """,
            """
            if not $caller.ending.fail($error, $step):
                return
            $timers.end($due._replace(due_ms=0))
            """,
        ),
        (TIMERS,),
    ),
    Mutant(
        "F3: an announced batch of messages ends where a timer is due",
        "Timing.between",
        Replace(
            "self.fire($caller, $batch, $batch.most - $batch.deliveries)",
            "not $batch.most or self.fire($caller, $batch, $batch.most)",
        ),
        (TIMERS,),
    ),
    # Tables of a database.
    Mutant(
        "E2: a row names the message of its own call",
        "Placing.begin_step",
        Delete("self._placed($places)"),
        (ROWS,),
    ),
    # Tools.
    Mutant(
        "L1: moves of a step that failed are taken back",
        "undo_step",
        Delete("self._standing.offsets.update(self._before)"),
        (IMPERATIVE,),
    ),
    Mutant(
        "L1: appended messages come before the outputs",
        "end_step",
        Replace("[*self._appended, *$outputs]", "[*$outputs, *self._appended]"),
        (IMPERATIVE,),
    ),
    Mutant(
        "L2: places are copied when a batch is closed",
        "positions",
        Replace("tuple($p._replace(offset=self.offsets[$p.binding]) for $p in self._positions)", "self._positions"),
        (IMPERATIVE,),
    ),
    Mutant(
        "L3: an empty poll does not say that nothing is there",
        "_bring",
        Replace("self._reach >= $bound", "self._reach >= 0"),
        (IMPERATIVE,),
    ),
    Mutant(
        "L3: a seek points the reader again",
        "head",
        Without("self._from <= $offset <= self._reach"),
        (IMPERATIVE,),
    ),
    Mutant(
        "L3: an outage voids the batch, whatever the function makes of it",
        "_asked",
        Delete("self._hands.note($outage)"),
        (IMPERATIVE,),
    ),
    Mutant(
        "S5: a call sees no message behind the ends",
        "follow",
        Replace("{$p.binding: $p.offset for $p in $ends}", "{}"),
        (IMPERATIVE,),
    ),
    Mutant(
        "S5: a batch is announced with last stable offsets",
        "ends_of",
        Replace("$marks[$places[$p.binding]].stable", "$marks[$places[$p.binding]].high"),
        (IMPERATIVE,),
    ),
    # Databases.
    Mutant(
        "E1: a list with an exception in its result is called one by one",
        "Committing.undo_step",
        Delete("""
            if $step.batch.tentative:
                raise FailedTogether from $error
            """),
        (f"{TARGETS}::test_an_exception_in_the_result_of_a_list_takes_back_the_rows_of_its_message_alone",),
    ),
)
