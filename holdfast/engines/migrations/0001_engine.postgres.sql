-- What the engine itself keeps: which migrations ran, the engine-wide number, the change feed.
create schema if not exists holdfast;

create table holdfast.migrations (
  number integer primary key,
  name text collate "C" not null,
  sha256 text collate "C" not null,
  at bigint not null,
  release text collate "C" not null
);

-- Cache 1: a number is drawn after the owner's row is locked, and must not come from a batch
-- that another connection set aside earlier.
create sequence holdfast.seq as bigint cache 1;

-- A feed across owners is ordered by (xid, seq) and gives only what is below the oldest
-- transaction still running, so a late committer is never passed over. The newest row that was
-- trimmed away stays behind as 'feed.trimmed', empty: it tells a cursor that is too old from one
-- that has merely seen nothing yet.
create table holdfast.changes (
  seq bigint primary key,
  xid xid8 not null default pg_current_xact_id(),
  at bigint not null,
  workspace text collate "C" not null,
  owner text collate "C",
  type text collate "C" not null,
  ids jsonb not null,
  data jsonb not null,
  actor jsonb
);

create index changes_in_commit_order on holdfast.changes (xid, seq);

alter table holdfast.changes enable row level security;
alter table holdfast.changes force row level security;

create policy its_workspace on holdfast.changes
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));
