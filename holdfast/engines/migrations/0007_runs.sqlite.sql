-- Runs as they can be watched: a record of each, its entries, its last events; and checkpoints.

create table runs (
  workspace text not null,
  id text not null,
  name text not null,
  agent text,
  metadata text not null,          -- a JSON object
  state text not null check (state in ('running', 'completed', 'failed', 'cancelled')),
  holder text not null,            -- whose reports are taken; another attach takes over
  place text not null,             -- the process that runs it
  batch integer not null,          -- the holder's last report that was taken
  seq integer not null,            -- of its last event
  entries integer not null,
  bytes integer not null,
  started_at integer not null,
  seen_at integer not null,        -- the last sign of life
  ended_at integer,
  primary key (workspace, id),
  check ((state = 'running') = (ended_at is null))
) strict, without rowid;

create index runs_by_age on runs (workspace, started_at, id);
create index runs_by_end on runs (workspace, coalesce(ended_at, seen_at), id);

create table run_entries (
  workspace text not null,
  run_id text not null,
  key text not null,
  kind text not null check (kind in ('task_result', 'step_result', 'input', 'shared')),
  told text not null,              -- a JSON object: source, title, description
  failed integer not null check (failed in (0, 1)),
  version integer not null,
  written integer not null,        -- in the order of last writes
  created_at integer not null,
  updated_at integer not null,
  value_bytes integer not null,    -- of the whole value
  part_of text check (part_of in ('text', 'json')),  -- null where the value is whole
  total integer,                   -- characters of the whole, where only a part is kept
  value text not null,             -- JSON: the value, or a string that is a part of it
  primary key (workspace, run_id, key),
  foreign key (workspace, run_id) references runs (workspace, id),
  check ((part_of is null) = (total is null))
) strict;

create table run_events (
  workspace text not null,
  run_id text not null,
  seq integer not null,
  type text not null,
  at integer not null,
  data text not null,              -- a JSON object
  primary key (workspace, run_id, seq),
  foreign key (workspace, run_id) references runs (workspace, id)
) strict, without rowid;

create table run_checkpoints (
  workspace text not null,
  run_id text not null,
  saved_at integer not null,
  content blob not null,
  primary key (workspace, run_id)
) strict;
