-- Durable memory: what agents keep between runs, its log, its runs, and what was forgotten.
--
-- Everywhere agent is '' for what a workspace shares, and run_id '' for all but conversation
-- entries. Who wrote is a JSON array: kind, id, run, token.

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
  created_by text not null,
  updated_by text not null,
  writes integer not null,         -- of this entry: only the log of one written often is trimmed
  content text not null check (length(cast(content as blob)) between 1 and 65536),
  check ((category = 'workspace') = (agent = '')),
  check ((category = 'conversation') = (run_id <> '')),
  check ((category = 'daily') = (expires_at is not null))
) strict;

create unique index durable_entries_by_key on durable_entries (workspace, agent, run_id, key);

-- All that planning a hydration or an eviction reads: contents stay untouched.
create index durable_entries_by_seq on durable_entries
  (workspace, agent, run_id, seq, pinned, size_bytes, expires_at, category, key, id);

create index durable_entries_to_expire on durable_entries (workspace, agent, expires_at)
  where expires_at is not null;
create index durable_entries_by_expiry on durable_entries (expires_at)
  where expires_at is not null;

-- One row an agent, by which its writes are serial, and one for what the workspace shares.
-- Triggers count, so that no way of writing can forget to.
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

create trigger durable_entry_came after insert on durable_entries when new.run_id = ''
begin
  update durable_agents
  set entries = entries + 1, core_entries = core_entries + new.pinned,
      size_bytes = size_bytes + new.size_bytes, last_write = new.updated_at,
      expires_at = min(coalesce(expires_at, new.expires_at), coalesce(new.expires_at, expires_at))
  where workspace = new.workspace and agent = new.agent;
end;

create trigger durable_entry_changed after update on durable_entries when new.run_id = ''
begin
  update durable_agents
  set core_entries = core_entries + new.pinned - old.pinned,
      size_bytes = size_bytes + new.size_bytes - old.size_bytes, last_write = new.updated_at,
      expires_at = min(coalesce(expires_at, new.expires_at), coalesce(new.expires_at, expires_at))
  where workspace = new.workspace and agent = new.agent;
end;

create trigger durable_entry_went after delete on durable_entries when old.run_id = ''
begin
  update durable_agents
  set entries = entries - 1, core_entries = core_entries - old.pinned,
      size_bytes = size_bytes - old.size_bytes
  where workspace = old.workspace and agent = old.agent;
end;

-- What is null is not set; agent '' holds the workspace's defaults.
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
  size_bytes integer not null,
  content text,
  content_sha256 text,
  actor text not null,
  cause text not null,
  redacted_at integer
) strict;

create index durable_changes_of_agent on durable_changes (workspace, agent, seq);
create index durable_changes_of_key on durable_changes (workspace, agent, key, seq);
create index durable_changes_by_age on durable_changes (at);

-- What was forgotten: not its key, only a keyed hash of it.
create table durable_tombstones (
  workspace text not null,
  agent text not null,
  run_id text not null,
  key_hash text not null,
  seq integer not null,
  at integer not null,
  actor text not null,
  primary key (workspace, agent, run_id, key_hash)
) strict, without rowid;

-- The random key of those hashes, made when a workspace forgets for the first time.
create table durable_secrets (
  workspace text not null primary key,
  secret blob not null
) strict, without rowid;

-- run_id is the live run, or null.
create table durable_lanes (
  workspace text not null,
  agent text not null,
  lane text not null,
  token integer not null,
  run_id text,
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
  seen_at integer not null,        -- of its last write or heartbeat
  ended_at integer,
  outcome text,                    -- ok, failed, superseded or lapsed
  primary key (workspace, agent, lane, token)
) strict, without rowid;

create index durable_runs_to_lapse on durable_runs (seen_at, workspace, agent)
  where ended_at is null;
create index durable_runs_live on durable_runs (workspace, agent, run_id) where ended_at is null;

create table durable_replays (
  workspace text not null,
  agent text not null,
  idempotency_key text not null,
  asked text not null,             -- sha256 of what was asked for
  answer text not null,            -- ids and numbers, never keys or contents
  at integer not null,
  primary key (workspace, agent, idempotency_key)
) strict, without rowid;

create index durable_replays_by_age on durable_replays (at);
