-- Threads: what was said to networks of agents and what came of it, over many runs, and the runs.

create table holdfast.threads (
  workspace text collate "C" not null,
  id text collate "C" not null check (octet_length(id) between 1 and 128),
  created_at bigint not null,
  updated_at bigint not null,
  turns bigint not null,
  primary key (workspace, id)
);

create index threads_by_age on holdfast.threads (workspace, created_at, id);

-- The number is that of the writing in the engine-wide order, so it orders a thread's turns.
create table holdfast.thread_turns (
  seq bigint primary key,
  workspace text collate "C" not null,
  thread_id text collate "C" not null,
  id text collate "C" not null,
  kind text collate "C" not null check (kind in ('user', 'result')),
  run_id text collate "C",
  agent text collate "C",            -- who made a result
  at bigint not null,
  checksum text collate "C" not null,
  size_bytes bigint not null,        -- of the body
  body text collate "C" not null,    -- JSON
  check ((kind = 'result') = (agent is not null))
);

create unique index thread_turns_by_id on holdfast.thread_turns (workspace, thread_id, id);
-- All that planning a page or forgetting an agent reads: bodies stay untouched.
create index thread_turns_in_order on holdfast.thread_turns
  (workspace, thread_id, seq) include (kind, agent, size_bytes);

create table holdfast.network_runs (
  workspace text collate "C" not null,
  id text collate "C" not null check (octet_length(id) between 1 and 128),
  network text collate "C",
  thread_id text collate "C",
  status text collate "C" not null
    check (status in ('running', 'completed', 'failed', 'cancelled')),
  started_at bigint not null,
  body text collate "C" not null,    -- JSON
  primary key (workspace, id)
);

create index network_runs_by_age on holdfast.network_runs (workspace, started_at, id);
create index network_runs_of_thread on holdfast.network_runs
  (workspace, thread_id, started_at, id) where thread_id is not null;

-- The planner's statistics keep samples of a column, also of rows that are gone: none of what can
-- be forgotten.
alter table holdfast.threads alter column id set statistics 0;
alter table holdfast.thread_turns alter column thread_id set statistics 0;
alter table holdfast.thread_turns alter column id set statistics 0;
alter table holdfast.thread_turns alter column run_id set statistics 0;
alter table holdfast.thread_turns alter column agent set statistics 0;
alter table holdfast.thread_turns alter column checksum set statistics 0;
alter table holdfast.thread_turns alter column body set statistics 0;
alter table holdfast.network_runs alter column id set statistics 0;
alter table holdfast.network_runs alter column network set statistics 0;
alter table holdfast.network_runs alter column thread_id set statistics 0;
alter table holdfast.network_runs alter column body set statistics 0;

alter table holdfast.threads enable row level security;
alter table holdfast.threads force row level security;
create policy its_workspace on holdfast.threads
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));

alter table holdfast.thread_turns enable row level security;
alter table holdfast.thread_turns force row level security;
create policy its_workspace on holdfast.thread_turns
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));

alter table holdfast.network_runs enable row level security;
alter table holdfast.network_runs force row level security;
create policy its_workspace on holdfast.network_runs
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));
