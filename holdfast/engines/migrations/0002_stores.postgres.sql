-- Memory stores: documents by path, and every version of them.

create table holdfast.stores (
  number bigint generated always as identity unique,  -- the mark its words carry in memory_words
  id text collate "C" primary key,
  workspace text collate "C" not null,
  name text not null,
  description text not null,
  metadata text not null,
  created_at bigint not null,
  updated_at bigint not null,
  archived_at bigint,
  memories bigint not null default 0,
  words bigint not null default 0,  -- of all heads together: what recall measures lengths by
  seq bigint not null,              -- of the last write
  last_at bigint not null,          -- instants of its writes never fall, whatever the clock does
  link bytea not null               -- of the newest version: the end of the hash chain
);

create index stores_by_age on holdfast.stores (workspace, created_at, id);

create table holdfast.memories (
  id text collate "C" primary key,
  workspace text collate "C" not null,
  store_id text collate "C" not null references holdfast.stores (id),
  path text collate "C" not null,
  version_id text collate "C" not null,
  content_sha256 text collate "C" not null,
  content_size_bytes bigint not null,
  words bigint not null,
  created_at bigint not null,
  updated_at bigint not null
);

create unique index memories_by_path on holdfast.memories (store_id, path);

create table holdfast.versions (
  number bigint generated always as identity unique,  -- the order of the chain
  id text collate "C" primary key,
  workspace text collate "C" not null,
  store_id text collate "C" not null references holdfast.stores (id),
  memory_id text collate "C" not null,
  seq bigint not null,
  operation text not null check (operation in ('created', 'modified', 'deleted')),
  path text collate "C",
  content bytea,
  content_sha256 text collate "C",
  content_size_bytes bigint,
  created_at bigint not null,
  actor_kind text not null,
  actor_id text collate "C" not null,
  redacted_at bigint,
  redacted_by_kind text,
  redacted_by_id text collate "C",
  salt bytea,
  seal bytea not null,
  link bytea not null
);

create index versions_by_age on holdfast.versions (store_id, created_at, id);
create index versions_by_seq on holdfast.versions (store_id, seq);
create index versions_of_memory on holdfast.versions (memory_id, created_at, id);

create table holdfast.store_settings (
  workspace text collate "C" primary key,
  memories_cap bigint not null,
  versions_keep_days bigint,
  versions_keep_last bigint
);

-- Words of heads, each marked with its store's number as on the other engine.
create table holdfast.memory_words (
  workspace text collate "C" not null,
  word text collate "C" not null,
  memory_id text collate "C" not null references holdfast.memories (id) on delete cascade,
  hits bigint not null,
  primary key (word, memory_id)
);

create index memory_words_of_memory on holdfast.memory_words (memory_id);

-- The planner's statistics keep samples of a column, also of rows that are gone: none of what can
-- be redacted or deleted for good.
alter table holdfast.stores alter column name set statistics 0;
alter table holdfast.stores alter column description set statistics 0;
alter table holdfast.stores alter column metadata set statistics 0;
alter table holdfast.memories alter column path set statistics 0;
alter table holdfast.memories alter column content_sha256 set statistics 0;
alter table holdfast.versions alter column path set statistics 0;
alter table holdfast.versions alter column content set statistics 0;
alter table holdfast.versions alter column content_sha256 set statistics 0;
alter table holdfast.memory_words alter column word set statistics 0;

alter table holdfast.stores enable row level security;
alter table holdfast.stores force row level security;
create policy its_workspace on holdfast.stores
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));

alter table holdfast.memories enable row level security;
alter table holdfast.memories force row level security;
create policy its_workspace on holdfast.memories
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));

alter table holdfast.versions enable row level security;
alter table holdfast.versions force row level security;
create policy its_workspace on holdfast.versions
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));

alter table holdfast.store_settings enable row level security;
alter table holdfast.store_settings force row level security;
create policy its_workspace on holdfast.store_settings
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));

alter table holdfast.memory_words enable row level security;
alter table holdfast.memory_words force row level security;
create policy its_workspace on holdfast.memory_words
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));
