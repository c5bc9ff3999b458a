"""One task at its work: its effects, its order, and what is called ahead."""

from __future__ import annotations

from tests.mutants.edits import Delete, Never, Replace, Without
from tests.mutants.mutant import Mutant
from tests.mutants.rules.suites import (
    CRASHES,
    DATABASE_PARTS,
    GUARDS,
    HANDLERS,
    IMPERATIVE,
    REPLAYS,
    RETRY,
    SLOT,
    TIMERS,
)

AHEAD = "tests/unit/sinks/test_ahead.py"

MUTANTS: tuple[Mutant, ...] = (
    # Effects of a task.
    Mutant(
        "P6: the task's record is the first of its transaction",
        "_produce",
        Replace(
            "parts = chain(parts, self._records, $marks)",
            "parts = chain(self._records, parts, $marks)",
        ),
        (CRASHES, SLOT),
    ),
    Mutant(
        "a stopped task leaves no transaction open",
        "_stop",
        Replace(
            """
            self._note_failure()
            self._abandon()
            """,
            "self._note_failure()",
        ),
        (GUARDS,),
    ),
    # What strangers and former owners may not do.
    Mutant(
        "Y1: a request is proven by its error message",
        "proven",
        Replace("self._why_not($request, $error, $number)", "$error.version and $request.errors[:0]"),
        (REPLAYS,),
    ),
    Mutant(
        "Y3: nothing is called ahead of a replay that comes next",
        "_call_ahead",
        Never("self._filling.announcing.next_source($task, $buffer) is not None"),
        (REPLAYS,),
    ),
    Mutant(
        "Y2: a recovery reads what is settled again",
        "void",
        Delete("self._settled = None"),
        (REPLAYS,),
    ),
    # The order of a task's work.
    Mutant(
        "Q2a: a task that is given up while it asks to be alone keeps no other out",
        "_answer_exclusively",
        Never("$takes and self.interpreter.gate.closed"),
        ("tests/unit/task/test_alone.py",),
    ),
    Mutant(
        "Q2a: a task whose announced message is still to come stays alone",
        "_answer_exclusively",
        Without("$task.settled"),
        ("tests/unit/task/test_alone.py",),
    ),
    Mutant(
        "P7: where effects are declared nothing is called ahead",
        "call",
        Without("not $task.pipelined"),
        (GUARDS,),
    ),
    Mutant(
        "P7: of several tasks in a process none is called ahead on a target",
        "Committing.may_hold",
        Without("sole"),
        (AHEAD,),
    ),
    Mutant(
        "P7: a target that locks more than rows is not called ahead on",
        "Committing.may_hold",
        Without("$target.ahead"),
        (AHEAD,),
    ),
    Mutant(
        "P7: a batch that is called ahead on a target begins behind the attempt that is being committed",
        "Committing.begin_batch",
        Replace("$task.next_base", "$task.record.step"),
        (AHEAD,),
    ),
    Mutant(
        "P7: a target does not hold what is called ahead of a commit that takes long",
        "hold_briefly",
        Replace("self._clock.monotonic() - $batch.began_s >= HELD_S", "self._clock.monotonic() < $batch.began_s"),
        (AHEAD,),
    ),
    Mutant(
        "P7: what a target holds ahead is committed before the pause of a retry",
        "_work",
        Without("self._batch is None"),
        (AHEAD,),
    ),
    Mutant(
        "Q2a: what a target holds ahead is committed while another task is alone",
        "_answer_exclusively",
        Replace("self._retriable_as_failed(self._filling.finish_ahead, $task, $buffer, $effect)", "None"),
        (AHEAD,),
    ),
    Mutant(
        "a batch ends at the bytes of the commit policy",
        "_fill",
        Replace(
            "$batch.halt or $batch.closed or $batch.size >= self._policy.max_bytes",
            "$batch.halt or $batch.closed or False",
        ),
        (GUARDS,),
    ),
    Mutant(
        "the pause before a retry doubles",
        "_retry_later",
        Replace("$retry.first_s * 2.0 ** min($attempt, 64)", "$retry.first_s"),
        (RETRY, GUARDS),
    ),
    Mutant(
        "a task that stops again and again waits longer each time",
        "Lane._went",
        Replace("min(self._restart_s * 2, RESTART_MAX_S)", "RESTART_FIRST_S"),
        (GUARDS,),
    ),
    Mutant(
        "A2: what is called for an old buffer is late",
        "_is_late",
        Without("$desk.worked_on is not self.buffer"),
        (GUARDS, "tests/proof/test_defects.py"),
    ),
    # Stores and tables.
    Mutant(
        "Q2a: a task that an outage stops stays alone until it has said left",
        "Lane._end",
        Without("not self.task.left_due"),
        (f"{GUARDS}::test_a_task_that_an_outage_stops_stays_alone_until_it_has_said_left",),
    ),
    Mutant(
        "P7: nothing is called ahead on a handler",
        "Handling.may_hold",
        Replace("False", "True"),
        (HANDLERS,),
    ),
    Mutant(
        "F3: due timers are announced before messages",
        "Announcing.polled",
        Never("$source.is_due()"),
        (TIMERS,),
    ),
    # Tools.
    Mutant(
        "L2: the place of the batch is that of its own steps",
        "Tailing.seal",
        Replace("$batch.buffer.standing.positions", "task.record.tails if task.record else ()"),
        (IMPERATIVE,),
    ),
    Mutant(
        "S5: a step that was put off is a batch of its own",
        "_polled",
        Replace("$task.step_by_step", "$task.careful"),
        (IMPERATIVE,),
    ),
    # Databases.
    Mutant(
        "E1: the next part begins where the part before ended",
        "Committing.before_chunk",
        Replace("$task.next_base + $batch.kept", "$task.next_base"),
        (DATABASE_PARTS,),
    ),
    Mutant(
        "E1: what is committed in parts is not committed once more",
        "Committing.seal",
        Replace("$batch.deliveries == $batch.kept", "not $batch.deliveries"),
        (DATABASE_PARTS,),
    ),
)
