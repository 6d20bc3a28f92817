-- Long-term memory: what users told, as items and turns, and what it takes to find and to forget it.
--
-- A row is an item or a turn. Its number is that of its recording in the engine-wide order, so the
-- two kinds of a collection stand in one order. Everywhere '' stands for a name that was not given.

create table ltm_collections (
  number integer primary key,
  id text not null unique,
  workspace text not null,
  user_id text not null check (user_id <> ''),
  namespace text not null check (namespace <> ''),
  workspace_id text not null,
  version integer not null,        -- every write to its rows raises it, but for access marks
  redone integer not null,         -- the version at which rows that were there last changed or went
  marks integer not null,          -- how often access marks were written
  items integer not null,
  superseded integer not null,     -- so many of the items
  turns integer not null,
  analyzer integer not null,       -- by which version of the analyzer its bodies were made
  indexed integer not null check (indexed in (0, 1)),  -- whether ltm_lex holds its rows
  mean_rows integer,               -- of the first so many rows are the two means
  mean_length real,
  mean_window real,
  embedding_model text,
  dimension integer,
  vector_provider text,
  created_at integer not null
) strict;

create unique index ltm_collections_by_name on ltm_collections
  (workspace, user_id, namespace, workspace_id);

create table ltm_items (
  collection integer not null,
  number integer not null,
  id text not null,
  workspace text not null,
  kind text not null check (kind in ('fact', 'preference', 'decision', 'event')),
  importance real not null check (importance between 0 and 1),
  origin text not null check (origin in ('api', 'tool', 'extraction', 'import')),
  source text not null,
  created_at integer not null,
  updated_at integer not null,
  superseded_by text,
  superseded_at integer,
  flags integer not null,          -- 1 asks, 2 speaks in the first person, 4 names a time
  terms integer not null,          -- how many the body has
  fold blob not null,              -- a hash of what is left of the text without case and marks
  body text not null,              -- the terms that the analyzer makes of it, in order
  text text not null check (length(cast(text as blob)) between 1 and 4096),
  primary key (collection, number),
  unique (collection, id)
) strict, without rowid;

create index ltm_items_by_fold on ltm_items (collection, fold) where superseded_at is null;
create index ltm_items_by_terms on ltm_items (collection, terms) where superseded_at is null;
create index ltm_items_superseded on ltm_items (collection, superseded_by)
  where superseded_by is not null;

create table ltm_turns (
  collection integer not null,
  number integer not null,
  id text not null,
  workspace text not null,
  role text not null check (role in ('user', 'assistant')),
  speaker text not null,
  at integer not null,             -- when it was said
  thread_id text not null,
  session text not null,
  created_at integer not null,
  flags integer not null,
  terms integer not null,
  fingerprint blob not null,       -- a keyed hash of role, speaker and text
  caption text not null,
  body text not null,
  text text not null check (length(cast(text as blob)) <= 1048576),
  primary key (collection, number),
  unique (collection, id)
) strict, without rowid;

create index ltm_turns_of_session on ltm_turns (collection, thread_id, session, number);
create index ltm_turns_by_time on ltm_turns (collection, at);
create index ltm_turns_by_speaker on ltm_turns (collection, speaker, role);

-- Which turns an item came from, by their numbers.
create table ltm_links (
  workspace text not null,
  collection integer not null,
  item integer not null,
  turn integer not null,
  primary key (collection, item, turn)
) strict, without rowid;

create index ltm_links_of_turn on ltm_links (collection, turn, item);

-- When a row was last recalled, and how often; apart, so that a mark never writes a text again.
create table ltm_access (
  workspace text not null,
  collection integer not null,
  number integer not null,
  last_accessed_at integer not null,
  access_count integer not null,
  primary key (collection, number)
) strict, without rowid;

-- What was recorded of a thread, in order: 8-byte fingerprints, so many to a chunk.
create table ltm_cursors (
  workspace text not null,
  collection integer not null,
  thread_id text not null,
  chunk integer not null,
  fingerprints blob not null,
  primary key (collection, thread_id, chunk)
) strict, without rowid;

-- Of what was forgotten: keyed 8-byte hashes of its terms, and of a turn its fingerprint.
create table ltm_tombstones (
  workspace text not null,
  collection integer not null,
  id text not null,
  at integer not null,
  terms blob not null,
  fingerprint blob,
  primary key (collection, id)
) strict, without rowid;

-- The random key of those hashes, made when a workspace first needs one.
create table ltm_secrets (
  workspace text not null primary key,
  secret blob not null check (length(secret) = 32)
) strict, without rowid;

-- Work for later. One that is done is deleted; one that runs is somebody's until its lease ends.
create table ltm_jobs (
  number integer primary key,
  workspace text not null,
  collection integer not null,
  kind text not null check (kind in ('extract', 'embed', 'reembed')),
  state text not null check (state in ('queued', 'running', 'failed')),
  about text not null,             -- the numbers of the rows it is about: a JSON array
  model text,                      -- who mines, by name; null for what is nobody's or has none
  attempts integer not null,
  next_at integer not null,        -- not before then
  token text,                      -- of whoever runs it
  leased_until integer,
  error text,                      -- the type of what it failed with
  created_at integer not null,
  check ((state = 'running') = (token is not null and leased_until is not null))
) strict;

create index ltm_jobs_due on ltm_jobs (state, next_at);
create index ltm_jobs_of_collection on ltm_jobs (collection, kind, state);

-- Unit vectors, little-endian float32. The collection is named as vector providers know it.
create table ltm_vectors (
  workspace text not null,
  collection text not null,
  id text not null,
  dimension integer not null,
  vector blob not null check (length(vector) = 4 * dimension),
  primary key (collection, id)
) strict, without rowid;

-- At which number of the engine-wide order a collection's vectors last changed, for who holds them.
create table ltm_vector_sets (
  workspace text not null,
  collection text not null primary key,
  seq integer not null
) strict, without rowid;

-- Terms of rows of large collections, each marked with its collection's number, so that a look
-- touches the postings of one collection alone. No copy of the text: deleting hands back the old
-- body.
create virtual table ltm_lex using fts5 (body, content='', tokenize='ascii');

insert into ltm_lex (ltm_lex, rank) values ('secure-delete', 1);

create virtual table ltm_terms using fts5vocab (ltm_lex, row);
