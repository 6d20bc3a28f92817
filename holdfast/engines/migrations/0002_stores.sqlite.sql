-- Memory stores: documents by path, and every version of them.

create table stores (
  number integer primary key,      -- the mark its words carry in memory_words
  id text not null unique,
  workspace text not null,
  name text not null,
  description text not null,
  metadata text not null,
  created_at integer not null,
  updated_at integer not null,
  archived_at integer,
  memories integer not null default 0,
  words integer not null default 0,  -- of all heads together: what recall measures lengths by
  seq integer not null,            -- of the last write
  last_at integer not null,        -- instants of its writes never fall, whatever the clock does
  link blob not null               -- of the newest version: the end of the hash chain
) strict;

create index stores_by_age on stores (workspace, created_at, id);

create table memories (
  number integer primary key,      -- what memory_words refers to
  id text not null unique,
  workspace text not null,
  store_id text not null references stores (id),
  path text not null,
  version_id text not null,
  content_sha256 text not null,
  content_size_bytes integer not null,
  words integer not null,
  created_at integer not null,
  updated_at integer not null
) strict;

create unique index memories_by_path on memories (store_id, path);

create table versions (
  number integer primary key,      -- the order of the chain
  id text not null unique,
  workspace text not null,
  store_id text not null references stores (id),
  memory_id text not null,
  seq integer not null,
  operation text not null check (operation in ('created', 'modified', 'deleted')),
  path text,
  content blob,
  content_sha256 text,
  content_size_bytes integer,
  created_at integer not null,
  actor_kind text not null,
  actor_id text not null,
  redacted_at integer,
  redacted_by_kind text,
  redacted_by_id text,
  salt blob,
  seal blob not null,
  link blob not null
) strict;

create index versions_by_age on versions (store_id, created_at, id);
create index versions_by_seq on versions (store_id, seq);
create index versions_of_memory on versions (memory_id, created_at, id);

create table store_settings (
  workspace text primary key,
  memories_cap integer not null,
  versions_keep_days integer,
  versions_keep_last integer
) strict, without rowid;

-- Words of heads, each marked with its store's number, so that a search touches
-- the postings of one store alone. No copy of the text: deleting hands back the old words.
create virtual table memory_words using fts5 (words, content='', tokenize="ascii tokenchars '_'");

insert into memory_words (memory_words, rank) values ('secure-delete', 1);

create virtual table memory_terms using fts5vocab (memory_words, instance);
