"""Sabotages of the package: each takes one protection away, and names the test that must notice.

An entry is appended for each new detector. The old text must be in the file exactly once;
`test_sabotage.py` checks that, and runs the tests on copies of the package in `make proof`.
"""

from typing import NamedTuple


class Sabotage(NamedTuple):
    """A protection that is taken away."""

    broken: str
    """What the sabotaged build does wrong, as a clause."""
    file: str
    """The file, below `holdfast/`."""
    old: str
    new: str
    test: str
    """The node id of the test that must fail; it passes on a build as it is."""
    says: str = r"AssertionError|assert |DID NOT RAISE"
    """What the failure must match, so that it is the detector's and no accident."""


SABOTAGES = (
    Sabotage(
        broken="SQLite does not wait for the disk (synchronous=OFF)",
        file="engines/sqlite/connection.py",
        old='"synchronous": 2,',
        new='"synchronous": 0,',
        test="tests/torture/test_power_loss.py"
        "::test_no_power_loss_loses_what_the_library_acknowledged",
    ),
    Sabotage(
        broken="a write on SQLite is acknowledged 20 ms before its commit",
        file="engines/sqlite/group_commit.py",
        old='            self._sent = sent = True\n            connection.do("commit")\n',
        new="            self._sent = sent = True\n            deliver(ran)\n"
        "            for slot in ran:\n                slot.finish = bool\n"
        "            sleep(0.02)\n"
        '            connection.do("commit")\n',
        test="tests/torture/test_killed.py::test_no_acknowledged_write_is_lost_on_sqlite",
    ),
    Sabotage(
        broken="the spool of a mount does not sync unsaved bytes",
        file="doors/mount/storage/spool.py",
        old="        for fd in entry.open:\n            os.fsync(fd)\n",
        new="",
        test="tests/torture/test_power_loss.py::test_no_power_loss_loses_what_the_spool_secured",
    ),
    Sabotage(
        broken="a change of a checkpoint file is not synced",
        file="runtime/runs/checkpoints.py",
        old="            os.fsync(file.fileno())\n        self._size += written\n",
        new="        self._size += written\n",
        test="tests/torture/test_power_loss.py::test_no_power_loss_loses_what_a_run_saved",
    ),
    Sabotage(
        broken="an exported file is renamed before its content is synced",
        file="memories/durable/markdown/folder.py",
        old="            # Else a power loss may leave the name with an empty file.\n"
        "            os.fsync(file.fileno())\n",
        new="",
        test="tests/torture/test_power_loss.py::test_no_power_loss_loses_what_was_exported",
    ),
    Sabotage(
        broken="a failed write of a group is not undone",
        file="engines/sqlite/group_commit.py",
        old="        elif changed:\n            self._roll_back(connection)\n",
        new="        elif changed:\n",
        test="tests/engines/sqlite/test_groups.py"
        "::test_a_fault_at_a_statement_undoes_its_own_write_alone",
    ),
    Sabotage(
        broken="an eviction is not returned to the caller",
        file="memories/durable/write_entry.py",
        old="        evicted=evicted,\n",
        new="        evicted=(),\n",
        test="tests/torture/test_durable_killed.py"
        "::test_no_acknowledged_write_is_lost_with_its_writer[sqlite_file]",
    ),
    Sabotage(
        broken="a write of durable memory does not compare `expected_seq`",
        file="memories/durable/write_entry.py",
        old="    if expected is UNSET or expected is None or expected == "
        "(before.seq if before else 0):\n",
        new="    if expected is expected:\n",
        test="tests/torture/test_linearizability.py"
        "::test_threads_of_the_library_see_each_key_as_one_register",
    ),
    Sabotage(
        broken="the fencing token of a run's former owner is not compared",
        file="memories/run/records/write.py",
        old="    if run.holder != report.holder or report.fence not in (0, run.fence):\n",
        new="    if run.holder is None:\n",
        test="tests/memories/runs/test_owners.py",
    ),
    Sabotage(
        broken="the chain of hashes is not compared",
        file="library/upkeep/verify_stores.py",
        old='            "link": _expected_link(link, version) == version.link,\n',
        new='            "link": True,\n',
        test="tests/memories/test_chain.py::test_a_row_that_is_missing_is_found",
    ),
    Sabotage(
        broken="the seal of a version's content is not compared",
        file="library/upkeep/verify_stores.py",
        old="        and content_seal(version.salt, version.path, content) == version.seal\n",
        new="",
        test="tests/memories/test_chain.py::test_a_row_that_was_edited_is_found",
    ),
    Sabotage(
        broken="no table of PostgreSQL has forced row-level security",
        file="engines/migrations/0001_schema.postgres.sql",
        old="    execute format('alter table holdfast.%I force row level security', name);\n",
        new="",
        test="tests/engines/postgres/test_transaction.py"
        "::test_every_table_has_a_forced_policy_by_its_owner",
    ),
    Sabotage(
        broken="the policy that holds users of long-term memory apart is dropped",
        file="engines/migrations/0001_schema.postgres.sql",
        old="create policy its_user on holdfast.ltm_collections as restrictive\n"
        "  using (current_setting('holdfast.user', true) in (user_id, '*'))\n"
        "  with check (current_setting('holdfast.user', true) in (user_id, '*'));\n",
        new="",
        test="tests/memories/longterm/test_isolation.py::test_a_user_sees_no_row_but_their_own",
    ),
    Sabotage(
        broken="the scope of a key is not checked",
        file="doors/http/auth.py",
        old="    if _RANK[visitor.scope] < _RANK[needed]:\n",
        new="    if visitor.scope not in _RANK:\n",
        test="tests/doors/http/test_auth.py::test_a_key_reaches_what_its_scope_allows_and_no_more",
    ),
    Sabotage(
        broken="a key bound to one agent reaches every agent",
        file="doors/http/auth.py",
        old="    return owner is not None and found.segments[found.route.bound] == owner\n",
        new="    return owner is not None\n",
        test="tests/doors/http/test_durable_access.py::test_a_bound_key_reaches_no_other_agent",
        says=r"KeyError: 'error'",  # the response is no refusal
    ),
    Sabotage(
        broken="a revoked key still opens",
        file="memories/stores/queries.sql",
        old="secret_hash, last_used_at\nfrom api_keys\n"
        "where secret_hash = :secret_hash and revoked_at is null\n",
        new="secret_hash, last_used_at\nfrom api_keys\nwhere secret_hash = :secret_hash\n",
        test="tests/doors/http/test_auth.py::test_a_revoked_key_opens_nothing",
    ),
    Sabotage(
        broken="a server on loopback answers to any name of a host",
        file="doors/http/auth.py",
        old="            if found is None or found[1] not in self.hosts:\n",
        new="            if found is None:\n",
        test="tests/doors/http/test_auth.py"
        "::test_a_loopback_server_answers_421_to_every_other_host",
    ),
    Sabotage(
        broken="SQLite leaves deleted bytes in its pages",
        file="engines/sqlite/connection.py",
        old='"secure_delete": 1, ',
        new='"secure_delete": 0, ',
        test="tests/memories/longterm/test_no_bytes_left.py"
        "::test_of_an_item_and_the_turn_it_came_from",
    ),
    Sabotage(
        broken="copies that SQLite leaves of rows it moved are not zeroed",
        file="engines/sqlite/maintenance.py",
        old='            if content[begin:end].strip(b"\\0"):\n',
        new="            if not content:\n",
        test="tests/engines/sqlite/test_unused_space.py"
        "::test_no_copy_of_a_row_that_was_moved_and_deleted_is_left",
    ),
    Sabotage(
        broken="the words of a forgotten text stay in the full-text index",
        file="memories/longterm/queries.sql",
        old="values ('delete', :number, case when :words = '' then '' else\n",
        new="values ('delete', :number, case when :words <> '' then '' else\n",
        test="tests/memories/longterm/test_no_bytes_left.py::test_of_a_turn_of_a_large_collection",
    ),
    Sabotage(
        broken="a restore brings back whom the target has forgotten",
        file="library/upkeep/restore.py",
        old="            repeated += forget_all_again(source, present.forgotten)\n",
        new="",
        test="tests/torture/test_restore_drill.py"
        "::test_a_restored_backup_has_all_that_was_acknowledged_before_it[sqlite-sqlite]",
    ),
    Sabotage(
        broken="a restore brings back what the target has redacted",
        file="library/upkeep/restore.py",
        old="            redact_again(source, present.redactions, redone)\n",
        new="",
        test="tests/torture/test_restore_drill.py"
        "::test_a_restored_backup_has_all_that_was_acknowledged_before_it[sqlite-sqlite]",
    ),
    Sabotage(
        broken="a backup is put in its place without being verified",
        file="library/upkeep/backup.py",
        old="        if findings:\n",
        new="        if findings and part == place:\n",
        test="tests/library/upkeep/test_backup.py::test_what_is_not_whole_is_not_backed_up",
    ),
    Sabotage(
        broken="an entry is not escaped in a prompt",
        file="memories/durable/rules.py",
        old='_text(entry.content), "</entry>")',
        new='entry.content, "</entry>")',
        test="tests/memories/durable/test_hydration.py"
        "::test_whoever_forges_an_entry_stays_in_his_own",
    ),
    Sabotage(
        broken="recalled text is recorded again as what the user said",
        file="memories/longterm/recall/block.py",
        old="    if not _TAG.search(text):\n        return text\n",
        new="    return text\n",
        test="tests/memories/longterm/test_intake.py::test_a_block_that_was_recalled_is_no_message",
    ),
    Sabotage(
        broken="a commit on SQLite whose sync failed is acknowledged",
        file="engines/sqlite/group_commit.py",
        old="                return self._resolve_doubt(ours, ran, seq if seq != base else None)\n",
        new="                return ran\n",
        test="tests/torture/test_faults.py::test_faults_that_broke_a_promise_before_break_none",
    ),
    Sabotage(
        broken="a commit whose sync failed counts once the log alone has it",
        file="engines/sqlite/group_commit.py",
        old="            return rows[0][0] == 1 and empty(connection)\n",
        new="            return rows[0][0] == 1\n",
        test="tests/torture/test_faults.py::test_faults_that_broke_a_promise_before_break_none",
    ),
    Sabotage(
        broken="a file that SQLite opened for reading only is taken to write",
        file="engines/sqlite/connection.py",
        old="            _check_writable(connection)\n",
        new="            pass\n",
        test="tests/torture/test_faults.py::test_faults_that_broke_a_promise_before_break_none",
    ),
    Sabotage(
        broken="a deletion is an error if only the log cannot be truncated",
        file="engines/sqlite/engine.py",
        old='            if error.reason == "closed" or self.core.database.read_only:\n'
        "                raise\n            return None\n",
        new="            raise error\n",
        test="tests/torture/test_faults.py::test_faults_that_broke_a_promise_before_break_none",
    ),
    Sabotage(
        broken="a key reaches the workspace that a header names",
        file="doors/http/auth.py",
        old="        if any(each != credential.workspace for each in requested.values()):\n",
        new="        if not requested.keys() <= requested.keys():\n",
        test="tests/doors/test_authorisation.py"
        "::test_each_route_refuses_each_credential_without_the_right",
    ),
    Sabotage(
        broken="an expired session token is admitted",
        file="memories/stores/credentials.py",
        old="        if row.expires_at is not None and row.expires_at <= "
        "to_microseconds(self._clock.now()):\n            return None\n",
        new="",
        test="tests/doors/test_authorisation.py"
        "::test_each_route_refuses_each_credential_without_the_right",
    ),
    Sabotage(
        broken="a store attached to read is written",
        file="memories/stores/rows.py",
        old='    if write and found.access != "read_write":\n',
        new="    if write and found.access is None:\n",
        test="tests/doors/test_authorisation.py"
        "::test_each_route_refuses_each_credential_without_the_right",
    ),
    Sabotage(
        broken="a store is found from another workspace",
        file="memories/stores/queries.sql",
        old="select id, name, description, metadata, created_at, updated_at, archived_at\n"
        "from stores\n"
        "where id = :store and workspace = :workspace\n",
        new="select id, name, description, metadata, created_at, updated_at, archived_at\n"
        "from stores\n"
        "where id = :store and (workspace = :workspace or workspace <> :workspace)\n",
        test="tests/doors/test_authorisation.py"
        "::test_each_route_refuses_each_credential_without_the_right",
    ),
    Sabotage(
        broken="the console checks no scope",
        file="doors/console/visitors.py",
        old="        if not self.may(needed):\n",
        new="        if needed is None:\n",
        test="tests/doors/test_authorisation_console.py"
        "::test_each_page_refuses_each_visitor_who_lacks_the_right",
    ),
    Sabotage(
        broken="a bound key opens every person's and agent's pages",
        file="doors/console/visitors.py",
        old="        if owner is None or segments.get(bound, owner) != owner:\n",
        new="        if owner is None:\n",
        test="tests/doors/test_authorisation_console.py"
        "::test_each_page_refuses_each_visitor_who_lacks_the_right",
    ),
    Sabotage(
        broken="the console carries out forms of other sites",
        file="doors/console/visitors.py",
        old="    if not allowed:\n",
        new="    if allowed is None:\n",
        test="tests/doors/test_authorisation_console.py"
        "::test_each_page_refuses_each_visitor_who_lacks_the_right",
    ),
    Sabotage(
        broken="a sign-in to the console does not lapse",
        file="memories/stores/credentials.py",
        old="        if now >= min(sign_in.expires_at, sign_in.seen_at + SIGN_IN_IDLE):\n"
        "            return None\n",
        new="",
        test="tests/doors/test_authorisation_console.py"
        "::test_each_page_refuses_each_visitor_who_lacks_the_right",
    ),
    Sabotage(
        broken="a key that only reads gets the tools that write",
        file="doors/mcp/http.py",
        old='        may_write = principal.scope != "read"\n',
        new="        may_write = principal.scope is not None\n",
        test="tests/doors/test_authorisation_mcp.py"
        "::test_each_credential_reaches_the_tools_resources_and_prompts_of_its_rights",
    ),
    Sabotage(
        broken="a host reads a resource of any agent",
        file="doors/mcp/resources.py",
        old='        elif kind == "durable" and names == [self._memories.owners.agent]:\n',
        new='        elif kind == "durable":\n',
        test="tests/doors/test_authorisation_mcp.py"
        "::test_each_credential_reaches_the_tools_resources_and_prompts_of_its_rights",
    ),
    Sabotage(
        broken="the policy that holds agents apart is dropped",
        file="engines/migrations/0001_schema.postgres.sql",
        old="    'durable_entries', 'durable_agents', 'durable_limits', 'durable_changes',\n",
        new="    'durable_agents', 'durable_limits', 'durable_changes',\n",
        test="tests/doors/test_authorisation.py"
        "::test_on_postgresql_a_statement_reaches_the_rows_of_its_owners_alone_in_every_table",
    ),
    Sabotage(
        broken="an item is believed for a name that only others wrote",
        file="memories/longterm/trust/evidence.py",
        old="    if not foreign and is_stated(context, text, own, speakers):\n",
        new="    if is_stated(context, text, own, speakers):\n",
        test="tests/library/evaluation/test_attacks.py::test_each_class_is_within_its_limits",
    ),
    Sabotage(
        broken="what a user quotes counts as the user's word",
        file="memories/longterm/trust/rules.py",
        old='    return _QUOTED.sub(" ", text)\n',
        new="    return text\n",
        test="tests/library/evaluation/test_attacks.py::test_each_class_is_within_its_limits",
    ),
)
