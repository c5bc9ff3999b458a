"""Targets in databases, their rows, and kept calls."""

from __future__ import annotations

from tests.mutants.edits import Delete, Replace, Text, Without
from tests.mutants.mutant import Mutant
from tests.mutants.rules.suites import DATABASE_PARTS, REPLAYS, ROWS, TARGETS

JOURNAL = "tests/unit/sinks/test_journal.py"
FENCES = "tests/unit/sinks/test_fences.py"
CALLS = "tests/unit/sinks/test_calls.py"
CALLS_ALONE = "tests/unit/sinks/test_calls_alone.py"

MUTANTS: tuple[Mutant, ...] = (
    # What strangers and former owners may not do.
    Mutant(
        "E4: only entries below the position are left over",
        "_is_done",
        Replace("$one.offset < $place.offset", "$one.offset <= $place.offset"),
        (JOURNAL,),
    ),
    Mutant(
        "E4: refused answers are forgotten with their step",
        "settle",
        Delete("self._refused = {$one for $one in self._refused if $one[0] not in $done}"),
        (JOURNAL,),
    ),
    # Tables of a database.
    Mutant(
        "E2: an older message does not replace a row",
        "_on_conflict",
        Text(" OR held.{OFFSET} <= excluded.{OFFSET}", " OR TRUE"),
        (ROWS,),
    ),
    Mutant(
        "E2: the same message replaces its own row",
        "_on_conflict",
        Text("held.{OFFSET} <= excluded.{OFFSET}", "held.{OFFSET} < excluded.{OFFSET}"),
        (ROWS,),
    ),
    Mutant(
        "E2: a message of another source replaces a row",
        "_on_conflict",
        Text(" OR held.{SOURCE} <> excluded.{SOURCE}", ""),
        (ROWS,),
    ),
    Mutant(
        "E2: an older message deletes no row",
        "statements",
        Text("{SOURCE} <> ? OR {OFFSET} <= ?)", "{SOURCE} <> ? OR {OFFSET} <= ? OR TRUE)"),
        (ROWS,),
    ),
    Mutant(
        "E2: rows of a step that is taken back are forgotten",
        "back",
        Delete("self._drop_rows()"),
        (ROWS,),
    ),
    Mutant(
        "E2: rows of a batch that is void are forgotten",
        "mark",
        Delete("self._drop_rows()"),
        (ROWS,),
    ),
    Mutant(
        "E2: an input with more partitions than before is refused",
        "refusals_of",
        Delete("yield from _split_rows($graph.processors[$one.name], $one, $facts)"),
        (ROWS,),
    ),
    # Databases.
    Mutant(
        "E1: a batch begins at the step of its row",
        "_begin",
        Without("$row[1] != $step"),
        (FENCES,),
    ),
    Mutant(
        "E1: a batch of a former owner does not begin",
        "_begin",
        Replace("$row is None or $row[1] != $step or $row[2] > $owner", "$row is None or $row[1] != $step"),
        (FENCES,),
    ),
    Mutant(
        "E1: a recovery makes the row its own",
        "ask",
        Replace("$row is not None and $step in $row[:2] and $row[2] < $owner", "$row is not None and $row[1] < $step"),
        (FENCES,),
    ),
    Mutant(
        "E1: a recovery makes a row its own that is an attempt ahead, too",
        "ask",
        Replace("$step in $row[:2]", "$row[1] == $step"),
        (FENCES,),
    ),
    Mutant(
        "E1: a recovery leaves a row that is elsewhere as it is",
        "ask",
        Without("$step in $row[:2]"),
        (FENCES,),
    ),
    Mutant(
        "E1: only batches without messages have parts",
        "is_part",
        Without("len($batch.records)"),
        (DATABASE_PARTS,),
    ),
    Mutant(
        "E1: Kafka follows a few parts",
        "is_part",
        Replace("$batch.parts + 1", "$batch.parts"),
        (DATABASE_PARTS,),
    ),
    Mutant(
        "E1: Kafka follows parts soon",
        "is_part",
        Replace("$now_s - $batch.began_s < WITHIN_S", "$now_s >= $batch.began_s"),
        (DATABASE_PARTS,),
    ),
    Mutant(
        "E1: a former owner does not claim the row",
        "statements_on",
        Text("WHERE {_OF_TASK} AND owner <= ?", "WHERE {_OF_TASK} AND ? > 0"),
        (FENCES,),
    ),
    Mutant(
        "E1: the row is read under its lock",
        "locked",
        Replace("f'{$on.select}{$dialect.lock}'", "$on.select"),
        (FENCES,),
    ),
    Mutant(
        "E1: an outbox that another process may have filled is emptied",
        "_begin",
        Delete("self._outbox_filled = True"),
        (f"{TARGETS}::test_outbox_of_another_process_is_not_published_twice",),
    ),
    Mutant(
        "E1: SQLite takes its lock before it reads the row",
        "begin",
        Replace("$connection.execute('BEGIN IMMEDIATE')", "$connection.execute('BEGIN')"),
        (FENCES,),
    ),
    Mutant(
        "E1: the outbox is in the transaction of the row (SQLite)",
        "finish",
        Replace(
            """
            if $last.rows:
                $connection.executemany($last.fill, $last.rows)
            if $connection.execute(*$last.moved).fetchone() is None:
                raise NotMoved
            $connection.end_results()
            $connection.execute('COMMIT')
            """,
            """
            $connection.end_results()
            $connection.execute('COMMIT')
            if $last.rows:
                $connection.executemany($last.fill, $last.rows)
            """,
        ),
        (FENCES,),
    ),
    Mutant(
        "E1: a row or an outbox that something else changed is not committed (SQLite)",
        "finish",
        Delete("""
            if $connection.execute(*$last.moved).fetchone() is None:
                raise NotMoved
            """),
        ("tests/integration/test_inside.py",),
    ),
    Mutant(
        "E1: a statement behind the end of the transaction is refused (SQLite)",
        "_check",
        Replace("self.connection.in_transaction", "self.connection"),
        (FENCES,),
    ),
    Mutant(
        "E1: the outbox is in the transaction of the row (PostgreSQL)",
        "Postgres.finish",
        Replace(
            """
            for $row in $last.rows:
                self.execute($connection, $last.fill, $row)
            """,
            """
            $connection.execute('COMMIT')
            $connection.execute('BEGIN')
            $it
            """,
        ),
        (FENCES,),
    ),
    Mutant(
        "E1: a serialization failure is no fault of a step (PostgreSQL)",
        "OUTAGES",
        Without("'40001'"),
        (FENCES,),
    ),
    Mutant(
        "E1: what a step has caused is no outage (PostgreSQL)",
        "Postgres.outage",
        Replace("return ''", "return code"),
        (FENCES,),
    ),
    Mutant(
        "E1: the outbox is in the transaction of the row (MySQL)",
        "MySql.finish",
        Replace(
            """
            for $row in $last.rows:
                self.execute($connection, $last.fill, $row)
            """,
            """
            self.commit($connection)
            $it
            """,
        ),
        (FENCES,),
    ),
    Mutant(
        "E1: a deadlock is no fault of a step (MySQL)",
        "OUTAGES",
        Without("1213"),
        (FENCES,),
    ),
    Mutant(
        "E1: the row has the place in the replay topic",
        "held_of",
        Without("'replays'"),
        (f"{REPLAYS}::test_replay_writes_its_row_once",),
    ),
    # Calls.
    Mutant(
        "E4: an answer is kept before the function gets it",
        "_ask",
        Replace("$calls.record($delivery, $call, $entry, $text)", "$calls.check_owner()"),
        (CALLS,),
    ),
    Mutant(
        "E4: a result is kept before the function gets it",
        "_kept",
        Delete("$calls.record($delivery, $call, Answered('', {}, $body), $text)"),
        (CALLS_ALONE,),
    ),
    Mutant(
        "E4: an answer that is not kept voids the batch, whatever the function makes of it",
        "record",
        Delete("$delivery.outage = $error"),
        (CALLS_ALONE,),
    ),
    Mutant(
        "E4: another request has no kept answer",
        "_ask",
        Replace("$entry.digest != $digest", "not $digest"),
        (CALLS_ALONE,),
    ),
    Mutant(
        "E4: a replay has keys of its own",
        "_ask",
        Replace("f'{$delivery.hash()}.{$delivery.replay}-{$number}'", "f'{$delivery.hash()}.0-{$number}'"),
        (f"{REPLAYS}::test_replay_calls_a_server_under_keys_of_its_own",),
    ),
    Mutant(
        "E4: entries of a step are deleted with its outcome",
        "ended",
        Replace("self._deleting($journal.keys_of($step))", "[]"),
        (CALLS_ALONE,),
    ),
    Mutant(
        "E4: an answer that the function refused is asked for again",
        "refuse",
        Replace("self._refused.add", "self._refused.discard"),
        (CALLS_ALONE,),
    ),
    Mutant(
        "E4: a recovery reads the journal up to a record of its own",
        "bring_up",
        Replace(
            """
            $end = $calls.mark_end() + 1
            $place = TopicPartition($journal.topic, $journal.partition)
            """,
            """
            $place = TopicPartition($journal.topic, $journal.partition)
            $end = broker.watermarks([$place])[$place].high
            """,
        ),
        (CALLS_ALONE,),
    ),
    Mutant(
        "E4: late answers of committed steps are deleted",
        "bring_up",
        Delete("$journal.sort_out($positions)"),
        (CALLS_ALONE,),
    ),
)
