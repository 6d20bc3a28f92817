-- Threads: what was said to networks of agents and what came of it, over many runs, and the runs.

create table threads (
  workspace text not null,
  id text not null check (length(id) between 1 and 128),
  created_at integer not null,
  updated_at integer not null,
  turns integer not null,
  primary key (workspace, id)
) strict, without rowid;

create index threads_by_age on threads (workspace, created_at, id);

-- The number is that of the writing in the engine-wide order, so it orders a thread's turns.
create table thread_turns (
  seq integer primary key,
  workspace text not null,
  thread_id text not null,
  id text not null,
  kind text not null check (kind in ('user', 'result')),
  run_id text,
  agent text,                        -- who made a result
  at integer not null,
  checksum text not null,
  size_bytes integer not null,       -- of the body
  body text not null,                -- JSON
  check ((kind = 'result') = (agent is not null))
) strict;

create unique index thread_turns_by_id on thread_turns (workspace, thread_id, id);
-- All that planning a page or forgetting an agent reads: bodies stay untouched.
create index thread_turns_in_order on thread_turns
  (workspace, thread_id, seq, kind, agent, size_bytes);

create table network_runs (
  workspace text not null,
  id text not null check (length(id) between 1 and 128),
  network text,
  thread_id text,
  status text not null check (status in ('running', 'completed', 'failed', 'cancelled')),
  started_at integer not null,
  body text not null,                -- JSON
  primary key (workspace, id)
) strict;

create index network_runs_by_age on network_runs (workspace, started_at, id);
create index network_runs_of_thread on network_runs (workspace, thread_id, started_at, id)
  where thread_id is not null;
