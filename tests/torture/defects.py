"""Defects that were found in the product, each with the test that holds its correction.

The page of proof lists them. A defect that is found later is appended with its test.
"""

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Defect(NamedTuple):
    """What the product did wrong, without a period, and the test that fails if it does."""

    was: str
    test: str


@cache
def _tests_in(file: Path) -> frozenset[str]:
    """Return the tests and classes that *file* defines."""
    tree = ast.parse(file.read_text("utf-8"))
    named = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return frozenset(each.name for each in ast.walk(tree) if isinstance(each, named))


def exists(test: str) -> bool:
    """Return whether the test of a node id, or all that it names, is there."""
    file, *names = test.partition("[")[0].split("::")
    path = ROOT / file
    return path.is_file() and _tests_in(path).issuperset(names)


DEFECTS = (
    # Durability
    Defect(
        "A crash while a SQLite database was created left a file that read as corrupt",
        "tests/engines/sqlite/test_opening.py"
        "::test_a_power_loss_at_any_moment_of_its_creation_leaves_a_file_that_opens",
    ),
    Defect(
        "A write into a file that was deleted or replaced while it was open was acknowledged",
        "tests/engines/sqlite/test_maintenance.py::test_a_write_into_a_deleted_file_is_refused",
    ),
    Defect(
        "One failed read of a sound disk made a database corrupt until the restart",
        "tests/engines/sqlite/test_maintenance.py"
        "::test_a_write_survives_one_failed_read_of_a_sound_file",
    ),
    Defect(
        "Only the innermost of several new folders was synced, so a power loss took the file",
        "tests/ground/test_validation.py::test_each_folder_that_is_created_survives_a_power_loss",
    ),
    Defect(
        "A checkpoint file whose last change was torn by a power loss could not be read at all",
        "tests/runtime/checkpoints/test_in_files.py"
        "::test_a_change_partly_on_the_disk_counts_as_never_saved",
    ),
    Defect(
        "An exported file could be empty under its name after a power loss",
        "tests/torture/test_power_loss.py::test_no_power_loss_loses_what_was_exported",
    ),
    Defect(
        "A process that was killed while it stored a lease left one without its token",
        "tests/runtime/checkpoints/test_in_files.py"
        "::test_a_process_killed_while_it_stores_a_lease_leaves_one_with_its_token",
    ),
    Defect(
        "What was appended to a temporary file of a mount during its rename was lost",
        "tests/doors/mount/core/test_filesystem.py"
        "::test_what_is_appended_to_a_scratch_file_while_it_is_renamed_is_saved",
    ),
    Defect(
        "A server that was stopped closed its database before the ends of its runs were stored",
        "tests/doors/cli/test_server.py::test_a_server_that_is_stopped_keeps_how_its_runs_ended",
    ),
    Defect(
        "A worker that was stopped discarded the response of a request in flight",
        "tests/contracts/worker.py::test_a_request_in_flight_ends_and_is_kept",
    ),
    # Concurrent writers
    Defect(
        "An interrupted caller left a write in the queue, which then ran",
        "tests/engines/sqlite/test_writer.py"
        "::test_a_caller_interrupted_before_it_waits_withdraws_its_write",
    ),
    Defect(
        "The writes of a refused group shared one error object, whose traceback mixed threads",
        "tests/engines/sqlite/test_writer.py"
        "::test_a_group_that_cannot_begin_gives_each_its_own_error",
    ),
    Defect(
        "A transaction could be used after its work had ended",
        "holdfast/testing/contracts/engine.py::test_a_finished_transaction_refuses_every_use",
    ),
    Defect(
        "A restore of a durable entry whose response was lost was done twice by the retry",
        "tests/library/test_settling.py"
        "::test_a_restored_durable_entry_whose_answer_is_lost_is_restored_once",
    ),
    Defect(
        "A client that wrote during a restore onto a server wrote into what was being replaced",
        "tests/library/upkeep/test_restore.py"
        "::test_who_writes_during_a_restore_writes_to_what_came_back",
    ),
    Defect(
        "The former owner of a run still added turns to its thread",
        "tests/contracts/threads.py::test_a_turn_of_a_former_owner_does_not_reach_the_thread",
    ),
    Defect(
        "A queued run that ended every worker was taken up for ever",
        "tests/contracts/worker.py::test_a_run_that_ends_its_worker_each_time_is_failed",
    ),
    Defect(
        "A run ended before its last event had reached its reader",
        "tests/runtime/test_run_events.py"
        "::test_the_end_waits_for_a_thread_that_passes_on_an_earlier_event",
    ),
    Defect(
        "Concurrent additions to one entity of the graph lost observations",
        "tests/doors/mcp/test_graph.py::test_fifty_calls_at_once_on_one_entity_lose_no_observation",
    ),
    Defect(
        "A file opened during two renames failed as a stale handle, one in several thousand",
        "tests/doors/mount/fuse/test_dispatch.py::test_an_open_is_not_overtaken_by_two_renames",
    ),
    Defect(
        "A file made elsewhere at the name of a backup was not shown until the next mount",
        "tests/doors/mount/core/test_remote_changes.py"
        "::test_a_file_made_elsewhere_at_the_name_of_a_backup_is_shown",
    ),
    Defect(
        "One directory that did not respond held up the notices of all others",
        "tests/doors/mount/fuse/test_dispatch.py"
        "::test_what_hangs_in_one_directory_keeps_no_notice_of_another",
    ),
    Defect(
        "Several mounts begun on one directory at once were mounted over one another",
        "tests/doors/mount/real/test_life.py"
        "::test_of_several_that_begin_on_one_directory_at_once_one_is_there",
    ),
    # Access
    Defect(
        "Row-level security held the users of long-term memory apart in some tables only",
        "tests/memories/longterm/test_isolation.py::test_a_user_sees_no_row_but_their_own",
    ),
    Defect(
        "A web page on a name that points at this machine reached an open server",
        "tests/doors/http/test_auth.py::test_a_loopback_server_answers_421_to_every_other_host",
    ),
    Defect(
        "A request could name any model as embedder, and send texts to it",
        "tests/doors/http/test_longterm_access.py"
        "::test_a_request_names_no_model_that_the_operator_does_not_allow",
    ),
    Defect(
        "A server read the body of a request before it checked the credential",
        "tests/doors/http/test_bodies.py"
        "::test_no_byte_of_a_body_is_read_before_the_credential_is_checked",
    ),
    Defect(
        "A request head had no limit",
        "tests/doors/http/test_connections.py"
        "::test_a_line_without_an_end_is_431_and_the_client_can_read_it",
    ),
    Defect(
        "For half a second after the first key, writes were those of an open server",
        "tests/doors/http/test_auth.py::test_a_key_that_another_process_just_created_is_who_acts",
    ),
    Defect(
        "A live page of the console went on after its key was revoked",
        "tests/doors/console/test_progress.py::test_a_live_page_ends_when_its_key_is_revoked",
    ),
    Defect(
        "Deeply nested JSON ended the process that decoded it",
        "tests/ground/test_json_values.py"
        "::test_text_nested_too_deeply_is_refused_without_decoding_it",
    ),
    Defect(
        "An entry could forge another entry in a prompt",
        "tests/memories/durable/test_hydration.py::test_whoever_forges_an_entry_stays_in_his_own",
    ),
    Defect(
        "A line of an event could end in the middle of its text, and begin another event",
        "tests/doors/console/test_visitors.py"
        "::test_an_event_has_a_line_for_each_line_of_its_text_alone",
    ),
    # Erasure
    Defect(
        "A restore of an older backup brought a forgotten user back",
        "tests/library/upkeep/test_longterm.py"
        "::test_a_user_forgotten_since_a_backup_stays_forgotten_when_it_is_restored",
    ),
    Defect(
        "A restore brought back mentions that were redacted and then changed",
        "tests/library/erasure/test_erasure.py::test_no_restore_brings_a_redacted_mention_back",
    ),
    Defect(
        "The content of an expired entry stayed in its history and in the files",
        "tests/contracts/durable_forget.py::test_the_content_of_what_expired_is_in_no_change",
    ),
    Defect(
        "Chroma kept the vectors of a cleared collection in its files",
        "tests/memories/longterm/test_no_bytes_left.py::test_of_vectors_in_chroma",
    ),
    Defect(
        "A provider of vectors that was still writing brought a dropped collection back",
        "tests/memories/longterm/test_vectors.py"
        "::test_a_collection_is_dropped_again_while_a_provider_may_still_write",
    ),
    Defect(
        "Of two changes of one item that were undone, the earlier counted as overtaken",
        "tests/contracts/longterm_consolidation.py"
        "::test_changes_that_share_an_item_are_undone_and_keep_nothing",
    ),
    Defect(
        "Caches in memory had the vectors of a cleared collection on PostgreSQL",
        "tests/memories/longterm/test_no_bytes_left.py::test_of_caches_in_memory",
    ),
    Defect(
        "SQLite left copies of one in 1,000 forgotten rows in the unused space of its pages",
        "tests/engines/sqlite/test_unused_space.py"
        "::test_no_copy_of_a_row_that_was_moved_and_deleted_is_left",
    ),
    Defect(
        "A write failed if another process truncated the log while the writer read its pages",
        "tests/engines/sqlite/test_unused_space.py"
        "::test_a_log_that_is_truncated_while_it_is_read_is_erased_later",
    ),
    Defect(
        "PostgreSQL's planner kept samples of paths and contents in its statistics",
        "tests/memories/test_chain.py::test_nothing_of_it_is_in_what_the_planner_keeps",
    ),
    Defect(
        "Work about a person that began before an erasure stored rows after it",
        "tests/contracts/erasures.py"
        "::test_work_about_a_person_that_began_before_an_erasure_stores_nothing_more",
    ),
    Defect(
        "An erasure of linked objects that crashed was not finished",
        "tests/library/erasure/test_erasure.py"
        "::test_an_erasure_of_what_is_linked_that_crashed_anywhere_is_finished",
    ),
    Defect(
        "A page redacted some of the ticked versions though one of them may not be",
        "tests/doors/console/test_memories.py"
        "::test_nothing_is_redacted_if_one_of_the_versions_may_not_be",
    ),
    Defect(
        "A restore ran the triggers and views that a backup brought",
        "tests/library/upkeep/test_restore.py"
        "::test_what_is_foreign_in_a_backup_stays_behind_and_is_named",
    ),
    Defect(
        "Vectors of an earlier embedder were compared with those of the new one",
        "tests/memories/longterm/test_vector_services.py"
        "::test_vectors_of_an_earlier_model_are_replaced_though_the_service_failed_meanwhile",
    ),
    Defect(
        "A restored backup brought a forgotten item back if one like it was remembered since",
        "tests/library/upkeep/test_longterm.py"
        "::test_an_item_forgotten_since_a_backup_stays_so_though_one_like_it_was_remembered",
    ),
    # Faults of the disk
    Defect(
        "A write on SQLite whose sync failed was acknowledged though it was in memory alone",
        "tests/torture/test_faults.py::test_faults_that_broke_a_promise_before_break_none",
    ),
    Defect(
        "After one failed open a database refused every write until it was opened again",
        "tests/torture/test_faults.py::test_faults_that_broke_a_promise_before_break_none",
    ),
    Defect(
        "A deletion raised an error, as if nothing was deleted, if the log could not be truncated",
        "tests/torture/test_faults.py::test_faults_that_broke_a_promise_before_break_none",
    ),
    Defect(
        "A failed copy before a migration raised an error of the driver",
        "tests/torture/test_faults.py::test_faults_that_broke_a_promise_before_break_none",
    ),
    Defect(
        "Too many open files while a database was made, or an export, had a wrong error",
        "tests/torture/test_faults.py::test_faults_that_broke_a_promise_before_break_none",
    ),
    Defect(
        "A spool that could not remove a replaced entry leaked the new one",
        "tests/torture/test_faults.py::test_faults_that_broke_a_promise_before_break_none",
    ),
)
