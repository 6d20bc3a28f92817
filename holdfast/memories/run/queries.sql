-- Records of runs. They are reports: run memory itself never reads them.

-- get_run --
select id, name, agent, metadata, state, holder, place, batch, seq, entries, bytes, started_at,
  seen_at, ended_at
from runs
where workspace = :workspace and id = :run

-- lock_run (sqlite) --
select id, name, agent, metadata, state, holder, place, batch, seq, entries, bytes, started_at,
  seen_at, ended_at
from runs
where workspace = :workspace and id = :run

-- lock_run (postgres) --
select id, name, agent, metadata, state, holder, place, batch, seq, entries, bytes, started_at,
  seen_at, ended_at
from runs
where workspace = :workspace and id = :run
for update

-- list_runs --
-- A run that gave no sign of life for long is not running, whatever it said last.
select id, name, agent, metadata, state, holder, place, batch, seq, entries, bytes, started_at,
  seen_at, ended_at
from runs
where workspace = :workspace
  and (:every = 1 or (state = :state and seen_at >= :seen_from and seen_at < :seen_until))
  and (started_at < :before or (started_at = :before and id < :before_id))
order by started_at desc, id desc
limit :rows

-- begin_run --
-- A run that is begun anew goes on with its numbers, for those who follow it.
insert into runs (
  workspace, id, name, agent, metadata, state, holder, place, batch, seq, entries, bytes,
  started_at, seen_at, ended_at
)
values (
  :workspace, :run, :name, :agent, :metadata, 'running', :holder, :place, 0, 0, 0, 0,
  :started_at, :now, null
)
on conflict (workspace, id) do update
set name = excluded.name, agent = excluded.agent, metadata = excluded.metadata,
  state = excluded.state, holder = excluded.holder, place = excluded.place, batch = 0,
  entries = 0, bytes = 0, started_at = excluded.started_at, seen_at = excluded.seen_at,
  ended_at = null

-- set_run --
update runs
set state = :state, batch = :batch, seq = :seq, entries = entries + :entries,
  bytes = bytes + :bytes, seen_at = :now, ended_at = :ended_at
where workspace = :workspace and id = :run

-- delete_run --
delete from runs where workspace = :workspace and id = :run

-- surplus_runs --
-- The oldest of the runs that are over, past so many of them.
select id
from runs
where workspace = :workspace and (state <> 'running' or seen_at < :lost_before)
order by coalesce(ended_at, seen_at) desc, id desc
limit 100 offset :cap

-- runs_of_agent --
select id from runs where workspace = :workspace and agent = :named order by id

-- held --
select cast(coalesce(sum(entries), 0) as bigint) as entries,
  cast(coalesce(sum(bytes), 0) as bigint) as bytes,
  cast(coalesce(sum(case when state = 'running' and seen_at >= :lost_before then 1 else 0 end), 0)
    as bigint) as live
from runs
where :workspace in (workspace, '*')

-- sizes_of (sqlite) --
select key, value_bytes
from run_entries
where workspace = :workspace and run_id = :run and key in (select value from json_each(:keys))

-- sizes_of (postgres) --
select key, value_bytes
from run_entries
where workspace = :workspace and run_id = :run
  and key in (select jsonb_array_elements_text(cast(:keys as jsonb)))

-- set_entry --
insert into run_entries (
  workspace, run_id, key, kind, told, failed, version, written, created_at, updated_at,
  value_bytes, part_of, total, value
)
values (
  :workspace, :run, :key, :kind, :told, :failed, :version, :written, :created_at, :updated_at,
  :value_bytes, :part_of, :total, :value
)
on conflict (workspace, run_id, key) do update
set kind = excluded.kind, told = excluded.told, failed = excluded.failed,
  version = excluded.version, written = excluded.written, created_at = excluded.created_at,
  updated_at = excluded.updated_at, value_bytes = excluded.value_bytes,
  part_of = excluded.part_of, total = excluded.total, value = excluded.value

-- delete_entries (sqlite) --
delete from run_entries
where workspace = :workspace and run_id = :run and key in (select value from json_each(:keys))

-- delete_entries (postgres) --
delete from run_entries
where workspace = :workspace and run_id = :run
  and key in (select jsonb_array_elements_text(cast(:keys as jsonb)))

-- clear_entries --
delete from run_entries where workspace = :workspace and run_id = :run

-- list_entries --
select key, kind, told, failed, version, written, created_at, updated_at, value_bytes
from run_entries
where workspace = :workspace and run_id = :run
order by written

-- get_entry --
select key, kind, told, failed, version, written, created_at, updated_at, value_bytes, part_of,
  total, value
from run_entries
where workspace = :workspace and run_id = :run and key = :key

-- add_event --
insert into run_events (workspace, run_id, seq, type, at, data)
values (:workspace, :run, :seq, :type, :at, :data)

-- trim_events --
delete from run_events where workspace = :workspace and run_id = :run and seq <= :seq

-- clear_events --
delete from run_events where workspace = :workspace and run_id = :run

-- events_after --
select seq, type, at, data
from run_events
where workspace = :workspace and run_id = :run and seq > :after
order by seq
limit :rows

-- get_checkpoint --
select content
from run_checkpoints
where workspace = :workspace and run_id = :run
order by number

-- last_checkpoint --
select max(number) from run_checkpoints where workspace = :workspace and run_id = :run

-- set_checkpoint --
insert into run_checkpoints (workspace, run_id, number, saved_at, content)
values (:workspace, :run, :number, :now, :content)
on conflict (workspace, run_id, number) do update
set saved_at = excluded.saved_at, content = excluded.content

-- add_checkpoint --
insert into run_checkpoints (workspace, run_id, number, saved_at, content)
values (:workspace, :run, :number, :now, :content)
on conflict do nothing

-- delete_checkpoint --
delete from run_checkpoints where workspace = :workspace and run_id = :run
