-- Durable memory: what agents keep between runs, its log, its runs, and what was forgotten.
--
-- Everywhere agent is '' for what a workspace shares, and run_id '' for all but conversation
-- entries. Who wrote is a JSON array: kind, id, run, token.

create table durable_entries (
  workspace text not null,
  agent text not null,
  run_id text not null,
  key text not null check (length(cast(key as blob)) between 1 and 255),
  id text not null,
  category text not null check (length(cast(category as blob)) between 1 and 64),
  pinned integer not null check (pinned = (category = 'core')),
  tags text not null,              -- a JSON array
  size_bytes integer not null,     -- of key, content, category and tags
  seq integer not null,
  created_at integer not null,
  updated_at integer not null,
  expires_at integer,
  created_by text not null,
  updated_by text not null,
  content text not null check (length(cast(content as blob)) between 1 and 65536),
  primary key (workspace, agent, run_id, key),
  check ((category = 'workspace') = (agent = '')),
  check ((category = 'conversation') = (run_id <> '')),
  check ((category = 'daily') = (expires_at is not null))
) strict;

-- All that planning a hydration or an eviction reads: contents stay untouched.
create index durable_entries_by_seq on durable_entries
  (workspace, agent, run_id, pinned, seq, size_bytes, expires_at, category, key);

create index durable_entries_to_expire on durable_entries (workspace, agent, expires_at)
  where expires_at is not null;
create index durable_entries_by_expiry on durable_entries (expires_at)
  where expires_at is not null;

-- One row an agent, by which its writes are serial, and one for what the workspace shares.
create table durable_agents (
  workspace text not null,
  agent text not null,
  entries integer not null,        -- without those of runs, as all that is counted here
  core_entries integer not null,
  size_bytes integer not null,
  last_write integer,
  expires_at integer,              -- no entry expires before this
  forgot_seq integer not null,     -- of the last time that something was forgotten
  tidy_at integer not null,        -- when a write next drops what is no longer kept
  primary key (workspace, agent)
) strict, without rowid;

-- Triggers count, so that no way of writing can forget to.
create trigger durable_entry_came after insert on durable_entries when new.run_id = ''
begin
  update durable_agents
  set entries = entries + 1, core_entries = core_entries + new.pinned,
      size_bytes = size_bytes + new.size_bytes,
      last_write = max(coalesce(last_write, new.updated_at), new.updated_at),
      expires_at = min(coalesce(expires_at, new.expires_at), coalesce(new.expires_at, expires_at))
  where workspace = new.workspace and agent = new.agent;
end;

create trigger durable_entry_changed after update on durable_entries when new.run_id = ''
begin
  update durable_agents
  set core_entries = core_entries + new.pinned - old.pinned,
      size_bytes = size_bytes + new.size_bytes - old.size_bytes,
      last_write = max(coalesce(last_write, new.updated_at), new.updated_at),
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
  cap integer check (cap between 1 and 100000),
  workspace_cap integer check (workspace_cap between 1 and 100000),
  run_cap integer check (run_cap between 1 and 100000),
  content_bytes integer check (content_bytes between 1 and 65536),
  budget integer check (budget between 0 and 16777216),
  daily_hours integer check (daily_hours between 1 and 8760),
  primary key (workspace, agent)
) strict, without rowid;

-- Of a key that was forgotten only its keyed hash is left, here as among the tombstones.
create table durable_changes (
  seq integer primary key,
  workspace text not null,
  agent text not null,
  run_id text not null,
  at integer not null,
  op text not null check (op in ('create', 'replace', 'refresh', 'move', 'evict', 'expire',
    'forget', 'end', 'redact', 'restore')),
  key text,
  key_hash blob,
  category text,
  size_bytes integer not null,
  content text,
  content_sha256 text,
  actor text not null,
  evicted_for text,                -- the key whose write took this entry's place
  cause text not null,             -- what else brought it about: a JSON object
  redacted_at integer,
  check (key is null or key_hash is null)
) strict;

create index durable_changes_of_agent on durable_changes (workspace, agent, seq);
create index durable_changes_of_key on durable_changes (workspace, agent, key, seq)
  where key is not null;
create index durable_changes_of_hash on durable_changes (workspace, agent, key_hash, seq)
  where key_hash is not null;
create index durable_changes_caused on durable_changes (workspace, agent, evicted_for)
  where evicted_for is not null;
create index durable_changes_evicted on durable_changes (at)
  where op = 'evict' and content is not null;

-- The newest twenty changes of a key are kept, whoever writes them.
create trigger durable_change_came after insert on durable_changes when new.key is not null
begin
  delete from durable_changes
  where workspace = new.workspace and agent = new.agent and key = new.key and seq <= (
    select c.seq from durable_changes c
    where c.workspace = new.workspace and c.agent = new.agent and c.key = new.key
    order by c.seq desc
    limit 1 offset 20
  );
end;

create table durable_tombstones (
  workspace text not null,
  agent text not null,
  run_id text not null,
  key_hash blob not null,
  seq integer not null,
  at integer not null,
  actor text not null,
  primary key (workspace, agent, run_id, key_hash)
) strict, without rowid;

create index durable_tombstones_by_age on durable_tombstones (at);

-- The random key of those hashes, made when a workspace first needs one.
create table durable_secrets (
  workspace text not null primary key,
  secret blob not null check (length(secret) = 32)
) strict, without rowid;

-- A run's token is the number of its opening, so none is ever given out twice.
create table durable_runs (
  workspace text not null,
  agent text not null,
  token integer not null,
  run_id text not null check (run_id <> ''),
  lane text not null,
  knew_seq integer not null,         -- forgot_seq of its agent when it began
  knew_shared_seq integer not null,  -- and that of what the workspace shares
  began_at integer not null,
  seen_at integer not null,          -- its last write or heartbeat
  ended_at integer,
  outcome text check (outcome in ('ok', 'failed', 'superseded', 'lapsed')),
  primary key (workspace, agent, token),
  check ((ended_at is null) = (outcome is null))
) strict, without rowid;

create unique index durable_runs_live on durable_runs (workspace, agent, run_id)
  where ended_at is null;
create unique index durable_runs_in_lane on durable_runs (workspace, agent, lane)
  where ended_at is null;
create index durable_runs_to_lapse on durable_runs (seen_at) where ended_at is null;
create index durable_runs_by_end on durable_runs (ended_at) where ended_at is not null;

-- The token that a lane is held by, or was last.
create table durable_lanes (
  workspace text not null,
  agent text not null,
  lane text not null,
  token integer not null,
  primary key (workspace, agent, lane)
) strict, without rowid;

-- A run that begins takes its lane.
create trigger durable_run_began after insert on durable_runs
begin
  insert into durable_lanes (workspace, agent, lane, token)
  values (new.workspace, new.agent, new.lane, new.token)
  on conflict (workspace, agent, lane) do update set token = max(token, excluded.token);
end;

-- What was asked under an idempotency key, and what became of it: hashes, ids and numbers.
create table durable_replays (
  workspace text not null,
  agent text not null,
  key_hash blob not null,
  asked blob not null,
  answer text not null,
  at integer not null,
  primary key (workspace, agent, key_hash)
) strict, without rowid;

create index durable_replays_by_age on durable_replays (at);
