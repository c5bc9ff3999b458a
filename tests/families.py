"""
Families of the longer tests (`full`), and one short case of each: what `make test-ci` runs, as `.ci/run` does.

`make test` has the essence of most families, with fewer kills or fewer seeds. Listed here are those of which it has
nothing, or nothing on the server, the version or the processor that the family is about. Everything else that is marked
`full` runs by `make test-full` only.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

FAMILIES = {
    # Brokers.
    "fault/test_three_nodes.py": "test_a_graph_goes_on_while_a_node_is_dead[transaction-coordinator]",
    "contract/test_contract.py": "test_a_fenced_session_cannot_commit_what_it_wrote[3.7.2]",
    "integration/test_secure.py": "test_each_user_does_its_work_with_the_rights_of_the_plan",
    "integration/test_connections.py": "test_a_password_that_changes_while_a_worker_runs_costs_no_message",
    "integration/test_permissions.py": "test_printed_permissions_suffice_for_cuts",
    "integration/test_throttling.py": "test_a_worker_above_its_quota_says_so_in_status_and_metrics",
    "registries/test_apicurio.py": "test_the_commands_compare_and_register",
    # Transactions and groups.
    "fault/test_delayed_commits.py": "test_a_late_commit_finds_the_epoch_of_a_task_gone[one session]",
    "fault/test_expiry.py": "test_a_task_whose_transactional_id_has_expired_takes_it_again",
    "fault/test_group_protocols.py": ("test_each_message_has_one_outcome_while_workers_come_and_are_killed[consumer]"),
    "fault/test_strategies.py": "test_a_killed_process_repeats_or_drops_as_its_strategy_says[at-least-once]",
    "fault/test_store_view.py": "test_a_table_goes_on_when_its_broker_is_back",
    "integration/test_run_command.py": (
        "test_one_of_two_supervisors_with_one_instance_name_ends_and_no_message_is_blamed"
    ),
    # Databases, disks and feeds.
    "integration/test_database_faults.py": "test_commit_of_unknown_outcome_is_found_out[mysql-after]",
    "fault/test_database_parts.py": "test_a_worker_that_sleeps_between_parts_writes_no_row_twice[postgresql-point0]",
    "fault/test_zombies.py": (
        "test_a_worker_with_a_database_that_sleeps_through_its_end_doubles_nothing[postgresql-point2]"
    ),
    "fault/test_restored_databases.py": (
        "test_tasks_behind_a_restored_backup_stop_until_a_reset_to_the_database[postgresql-1]"
    ),
    "integration/test_state_on_disk.py": (
        "test_a_full_disk_stops_the_task_with_the_remedy_and_it_goes_on_when_there_is_room[Limited]"
    ),
    "integration/test_feeds.py": ("test_a_worker_that_was_stopped_in_a_transaction_commits_nothing_when_it_wakes_up"),
    # Operators' commands.
    "fault/test_rebuild.py": "test_a_rebuild_that_is_killed_is_ended_by_the_next[point1]",
    "fault/test_tail_kills.py": "test_a_killed_batch_finds_its_tailer_where_the_last_commit_left_it",
    "integration/test_cuts.py": "test_a_graph_goes_back_to_a_cut_that_was_taken_under_load",
    "integration/test_renaming.py": "test_rename_that_dies_at_each_commit_ends_once",
    "browser/test_pages.py": "test_each_page_shows_what_the_view_has",
    "test_operations.py": "test_a_graph_is_operated_as_it_is_shown",
    "test_demo.py": "test_the_flights_of_the_first_weeks_pass_two_kills_exactly_once",
    # Spark.
    "spark/test_faults.py": ("test_drivers_that_die_in_a_transaction_and_behind_a_batch_repeat_and_hide_nothing"),
    "spark/test_staged_examples.py": ("test_alarms_are_raised_once_though_the_state_is_carried_over_a_restart[alarms]"),
    "spark/test_databases.py": (
        "test_drivers_that_die_around_the_commit_of_the_database_lose_and_double_no_row[postgresql]"
    ),
    "spark/test_table_kills.py": "test_drivers_that_die_around_the_commit_of_a_part_lose_and_double_no_row[postgresql]",
    "spark/test_files.py": "test_each_batch_of_an_aggregate_is_in_files_once_over_restarts",
    "spark/test_secured.py": "test_the_workers_printed_permissions_suffice_on_spark",
    "spark/test_pause.py": "test_queries_pause_between_batches_tell_it_and_go_on",
    "spark/test_replays.py": "test_errors_are_replayed_once_beside_batches_and_through_a_sigkill",
    "spark/test_changed.py": "test_plain_processor_goes_on_with_another_input_and_name",
    "spark/test_leftovers.py": "test_the_next_session_removes_the_files_of_a_killed_driver",
    "spark/test_move_in.py": "test_a_running_group_moves_by_the_page_without_any_right_to_create[spark]",
    # Proofs.
    "proof/test_slot_worlds.py": "test_all_states_of_a_join_in_slots_and_many_of_alts_are_right",
}
"""By file below `tests`, the one case of its family."""


def mark(items: Sequence[pytest.Item], *, whole: bool) -> None:
    """
    Mark the cases of `FAMILIES` among these tests.

    Args:
        items: tests that were collected.
        whole: each file of these tests was collected with all its tests.

    Raises:
        pytest.UsageError: such a file has no test of that name, or one that is not marked `full`, or also `slow`.
    """
    found = {item.nodeid: item for item in items}
    files = {nodeid.partition("::")[0] for nodeid in found} if whole else set()
    for file, case in FAMILIES.items():
        item = found.get(f"tests/{file}::{case}")
        if item is not None and item.get_closest_marker("full") and not item.get_closest_marker("slow"):
            item.add_marker("family")
        elif item is not None or f"tests/{file}" in files:
            raise pytest.UsageError(f"tests/families.py names {case}, which is no test marked `full` of tests/{file}.")
