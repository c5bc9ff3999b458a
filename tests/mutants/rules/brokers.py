"""What talks to Kafka: sessions, readers, members of groups, and the newest record."""

from __future__ import annotations

from tests.mutants.edits import Default, Delete, Never, Replace
from tests.mutants.mutant import Mutant
from tests.mutants.rules.suites import GUARDS

SESSION = "tests/integration/test_kafka_adapter.py"
CONTRACT = "tests/contract/test_contract.py"
SUSPECT = "tests/fault/test_suspect_commits.py"
CLIENT = "tests/unit/brokers/kafka/test_client.py"
COMPILED = "tests/integration/test_compiled.py"
POLLED = "tests/unit/brokers/kafka/test_polled.py"
KEPT = "tests/unit/brokers/kafka/test_kept.py"

MUTANTS: tuple[Mutant, ...] = (
    # The client of a task's transactions.
    Mutant(
        "P5: a worker without a generation sends no offsets",
        "send_offsets",
        Replace("$group.generation < 0 and $group.generation != OUTSIDE", "$group.generation < -9"),
        (CLIENT,),
    ),
    Mutant(
        "P8: a commit that took as long as a request may take is suspect",
        "commit",
        Replace("$took >= self._socket_timeout_s", "$took < 0"),
        (SUSPECT,),
    ),
    Mutant(
        "P8: what the client logged during a commit makes it suspect",
        "commit",
        Replace("$watch.suspicions[0] if $watch.suspicions else None", "None"),
        (SUSPECT,),
    ),
    Mutant(
        "P8: a session that is thrown away ends its transaction",
        "abandon",
        Never("self._open and self._watch.fatal is None"),
        (f"{SESSION}::test_a_transaction_of_a_session_that_is_thrown_away_holds_up_no_reader",),
    ),
    Mutant(
        "P6: the first record's place is told",
        "first",
        Replace("self.first_offset = $message.offset()", "self.first_offset = None"),
        (f"{CONTRACT}::test_flush_counts_deliveries_and_names_the_first_offset",),
    ),
    Mutant(
        "P6: what the compiled module counts is added",
        "flush",
        Replace("$reports.delivered() + self._counted.delivered", "$reports.delivered()"),
        (COMPILED,),
    ),
    Mutant(
        "P6: each transaction counts from zero in the compiled module, too",
        "KafkaSession.begin",
        Delete("self._counted.begin()"),
        (COMPILED,),
    ),
    Mutant(
        "what the compiled module cannot take goes to the client",
        "ModuleColumns.run",
        Delete("self._one(arguments(self._records[self.done], self._report))"),
        (COMPILED,),
    ),
    # The client that reads.
    Mutant(
        "a partition is forwarded again until something of it comes",
        "ModulePolling.take",
        Delete("self._forward()"),
        (POLLED,),
    ),
    Mutant(
        "what came with an error is delivered before the error is raised",
        "poll",
        Replace("self._errors and not $fetched", "self._errors"),
        (CLIENT,),
    ),
    Mutant(
        "an end of a partition that messages follow is no end",
        "_group_with_events",
        Delete("$ends.pop($place, None)"),
        (CLIENT,),
    ),
    Mutant(
        "a pause ends with its assignment",
        "unassign",
        Delete("self.resume(self._paused.intersection($partitions))"),
        (f"{CONTRACT}::test_a_partition_that_was_paused_and_is_assigned_anew_is_not_paused_any_more",),
    ),
    Mutant(
        "an error of a partition that is not read any more is forgotten",
        "unassign",
        Replace(
            "self._errors = [$error for $error in self._errors if $error.at is None or $error.at in self._assigned]",
            "pass",
        ),
        (CLIENT,),
    ),
    Mutant(
        "what was fetched of a partition that is not read any more is dropped",
        "_split",
        Replace("{$place: $messages for $place, $messages in $found.items() if $place in self._assigned}", "$found"),
        (CLIENT,),
    ),
    Mutant(
        "nothing that comes behind a damaged message is delivered",
        "_group_with_events",
        Delete("$broken.add($place)"),
        (CLIENT,),
    ),
    # The membership.
    Mutant(
        "A3: a task is stopped before its revocation is acknowledged",
        "_take_away",
        Replace(
            """
            try:
                $told
            finally:
                $acknowledged
            """,
            """
            $acknowledged
            $told
            """,
        ),
        ("tests/unit/brokers/kafka/test_member.py",),
    ),
    Mutant(
        "A3: a callback of the group assigns nothing",
        "_assign",
        Delete("$consumer.incremental_assign([])"),
        (
            f"{CONTRACT}::test_a_partition_moves_only_after_its_revocation_has_returned",
            f"{SESSION}::test_members_share_partitions_under_every_protocol",
        ),
    ),
    Mutant(
        "a member that closes gives up what it holds",
        "_give_back",
        Delete("self._listener.on_revoke($assigned)"),
        (f"{SESSION}::test_a_static_member_that_restarts_has_its_partitions_at_once",),
    ),
    # What a group has committed.
    Mutant(
        "R2: an error of one partition is not an absent offset",
        "_offsets_of",
        Never("$place.error is not None"),
        ("tests/unit/brokers/kafka/test_groups.py",),
    ),
    Mutant(
        "R2: offsets are asked stable",
        "committed",
        Default("stable", "False"),
        (f"{CONTRACT}::test_a_stable_fetch_does_not_look_past_pending_offsets",),
    ),
    # Consumers that wait for the next reader.
    Mutant(
        "a kept consumer goes to a reader of its own name",
        "take",
        Replace("self._consumers[$place].name == $name", "True"),
        (KEPT,),
    ),
    Mutant(
        "in doubt about one kept consumer all are closed",
        "discard_all",
        Replace("$gone, self._consumers = self._consumers, []", "$gone: list[_Kept] = []"),
        (KEPT,),
    ),
    # The newest record.
    Mutant(
        "R4: the newest record is found behind many aborted ones",
        "newest",
        Replace("$found is not None or $start == $low", "True"),
        ("tests/unit/records/test_reading.py",),
    ),
    Mutant(
        "R4: the last record of a window decides",
        "_last_in",
        Replace(
            """
            if $message.key() == $key:
                $found = $message
            """,
            """
            if $message.key() == $key:
                $found = $found or $message
            """,
        ),
        ("tests/unit/records/test_reading.py",),
    ),
    Mutant(
        "R4: an open transaction hides no record",
        "_last_in",
        Replace(
            "raise RetriableError($text, code=OPEN_TRANSACTION)",
            """
            if True:
                return found
            $it
            """,
        ),
        (GUARDS, "tests/unit/records/test_reading.py"),
    ),
)
