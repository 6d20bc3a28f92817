-- Runs as they can be watched: a record of each, its entries, its last events; and checkpoints.

create table holdfast.runs (
  workspace text collate "C" not null,
  id text collate "C" not null,
  name text collate "C" not null,
  agent text collate "C",
  metadata text collate "C" not null,          -- a JSON object
  state text collate "C" not null check (state in ('running', 'completed', 'failed', 'cancelled')),
  holder text collate "C" not null,            -- whose reports are taken; another attach takes over
  place text collate "C" not null,             -- the process that runs it
  batch bigint not null,          -- the holder's last report that was taken
  seq bigint not null,            -- of its last event
  entries bigint not null,
  bytes bigint not null,
  started_at bigint not null,
  seen_at bigint not null,        -- the last sign of life
  ended_at bigint,
  primary key (workspace, id),
  check ((state = 'running') = (ended_at is null))
);

create index runs_by_age on holdfast.runs (workspace, started_at, id);
create index runs_by_end on holdfast.runs (workspace, coalesce(ended_at, seen_at), id);

create table holdfast.run_entries (
  workspace text collate "C" not null,
  run_id text collate "C" not null,
  key text collate "C" not null,
  kind text collate "C" not null check (kind in ('task_result', 'step_result', 'input', 'shared')),
  told text collate "C" not null,              -- a JSON object: source, title, description
  failed bigint not null check (failed in (0, 1)),
  version bigint not null,
  written bigint not null,        -- in the order of last writes
  created_at bigint not null,
  updated_at bigint not null,
  value_bytes bigint not null,    -- of the whole value
  part_of text collate "C" check (part_of in ('text', 'json')),  -- null where the value is whole
  total bigint,                   -- characters of the whole, where only a part is kept
  value text collate "C" not null,             -- JSON: the value, or a string that is a part of it
  primary key (workspace, run_id, key),
  foreign key (workspace, run_id) references holdfast.runs (workspace, id),
  check ((part_of is null) = (total is null))
);

create table holdfast.run_events (
  workspace text collate "C" not null,
  run_id text collate "C" not null,
  seq bigint not null,
  type text collate "C" not null,
  at bigint not null,
  data text collate "C" not null,              -- a JSON object
  primary key (workspace, run_id, seq),
  foreign key (workspace, run_id) references holdfast.runs (workspace, id)
);

create table holdfast.run_checkpoints (
  workspace text collate "C" not null,
  run_id text collate "C" not null,
  saved_at bigint not null,
  content bytea not null,
  primary key (workspace, run_id)
);

-- The planner's statistics keep samples of a column, also of rows that are gone: none of what can
-- be forgotten.
alter table holdfast.runs alter column name set statistics 0;
alter table holdfast.runs alter column agent set statistics 0;
alter table holdfast.runs alter column metadata set statistics 0;
alter table holdfast.run_entries alter column key set statistics 0;
alter table holdfast.run_entries alter column told set statistics 0;
alter table holdfast.run_entries alter column value set statistics 0;
alter table holdfast.run_events alter column data set statistics 0;
alter table holdfast.run_checkpoints alter column content set statistics 0;

alter table holdfast.runs enable row level security;
alter table holdfast.runs force row level security;
create policy its_workspace on holdfast.runs
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));

alter table holdfast.run_entries enable row level security;
alter table holdfast.run_entries force row level security;
create policy its_workspace on holdfast.run_entries
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));

alter table holdfast.run_events enable row level security;
alter table holdfast.run_events force row level security;
create policy its_workspace on holdfast.run_events
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));

alter table holdfast.run_checkpoints enable row level security;
alter table holdfast.run_checkpoints force row level security;
create policy its_workspace on holdfast.run_checkpoints
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));
