-- Durable memory: what agents keep between runs, with its log, its runs and what was forgotten.

-- agent is '' on workspace entries, run_id '' on all but conversation entries.
create table durable_entries (
  number integer primary key,
  id text not null unique,
  workspace text not null,
  agent text not null,
  run_id text not null,
  key text not null check (length(cast(key as blob)) between 1 and 255),
  category text not null check (length(cast(category as blob)) between 1 and 64),
  pinned integer not null check (pinned = (category = 'core')),
  tags text not null,
  size_bytes integer not null,
  seq integer not null,
  created_at integer not null,
  updated_at integer not null,
  expires_at integer,
  writes integer not null,         -- rows of the log about this key, so that only long ones are trimmed
  created_kind text not null,
  created_id text not null,
  created_run text,
  created_token integer,
  updated_kind text not null,
  updated_id text not null,
  updated_run text,
  updated_token integer,
  content blob not null check (length(content) between 1 and 65536),
  check ((category = 'workspace') = (agent = '')),
  check ((category = 'conversation') = (run_id <> '')),
  check ((category = 'daily') = (expires_at is not null))
) strict;

create unique index durable_entries_by_key on durable_entries (workspace, agent, run_id, key);

-- All that planning a hydration or an eviction reads: no content is touched.
create index durable_entries_in_order
  on durable_entries (workspace, agent, run_id, pinned, seq, size_bytes, key, category, expires_at, id);

create index durable_entries_to_expire on durable_entries (expires_at, workspace, agent)
  where expires_at is not null;

-- One row an agent, and one with agent '' for what a workspace shares: its writes are serial by it.
create table durable_agents (
  workspace text not null,
  agent text not null,
  entries integer not null,
  core_entries integer not null,
  size_bytes integer not null,
  last_write integer,
  expires_at integer,              -- no entry expires before this
  primary key (workspace, agent)
) strict, without rowid;

-- agent '' holds the workspace's defaults. What is null is not set.
create table durable_limits (
  workspace text not null,
  agent text not null,
  cap integer,
  workspace_cap integer,
  run_cap integer,
  content_bytes integer,
  budget integer,
  daily_hours integer,
  primary key (workspace, agent)
) strict, without rowid;

create table durable_changes (
  seq integer primary key,
  workspace text not null,
  agent text not null,
  run_id text not null,
  at integer not null,
  op text not null,
  key text,
  category text,
  scope text not null,
  size_bytes integer not null,
  content blob,
  content_sha256 text,
  actor_kind text not null,
  actor_id text not null,
  actor_run text,
  actor_token integer,
  cause text not null,
  redacted_at integer
) strict;

create index durable_changes_of_agent on durable_changes (workspace, agent, seq);
create index durable_changes_of_key on durable_changes (workspace, agent, key, seq);
create index durable_changes_by_age on durable_changes (at);

-- What was forgotten: no key, only its keyed hash.
create table durable_tombstones (
  workspace text not null,
  agent text not null,
  run_id text not null,
  key_hash text not null,
  seq integer not null,
  at integer not null,
  actor_kind text not null,
  actor_id text not null,
  actor_run text,
  actor_token integer,
  primary key (workspace, agent, run_id, key_hash)
) strict, without rowid;

-- The random key of those hashes, made when a workspace first forgets.
create table durable_secrets (
  workspace text primary key,
  secret blob not null
) strict, without rowid;

create table durable_lanes (
  workspace text not null,
  agent text not null,
  lane text not null,
  token integer not null,
  run_id text,                     -- the live run, or null
  primary key (workspace, agent, lane)
) strict, without rowid;

create table durable_runs (
  workspace text not null,
  agent text not null,
  lane text not null,
  token integer not null,
  run_id text not null,
  began_seq integer not null,
  began_at integer not null,
  seen_at integer not null,
  ended_at integer,
  outcome text,                    -- ok, failed, superseded or lapsed
  entries integer not null,        -- conversation entries it holds
  primary key (workspace, agent, lane, token)
) strict, without rowid;

create index durable_runs_to_lapse on durable_runs (seen_at, workspace, agent) where ended_at is null;

create table durable_replays (
  workspace text not null,
  agent text not null,
  idempotency_key text not null,
  asked text not null,             -- sha256 of what was asked
  answer text not null,
  at integer not null,
  primary key (workspace, agent, idempotency_key)
) strict, without rowid;

create index durable_replays_by_age on durable_replays (at);
