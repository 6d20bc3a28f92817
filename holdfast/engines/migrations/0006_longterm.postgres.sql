-- Long-term memory: what users told, as items and turns, and what it takes to find and to forget it.
--
-- A row is an item or a turn. Its number is that of its recording in the engine-wide order, so the
-- two kinds of a collection stand in one order. Everywhere '' stands for a name that was not given.

create table holdfast.ltm_collections (
  number bigint primary key,
  id text collate "C" not null unique,
  workspace text collate "C" not null,
  user_id text collate "C" not null check (user_id <> ''),
  namespace text collate "C" not null check (namespace <> ''),
  workspace_id text collate "C" not null,
  version bigint not null,        -- every write to its rows raises it, but for access marks
  redone bigint not null,         -- the version at which rows that were there last changed or went
  marks bigint not null,          -- how often access marks were written
  items bigint not null,
  superseded bigint not null,     -- so many of the items
  turns bigint not null,
  analyzer integer not null,       -- by which version of the analyzer its bodies were made
  indexed integer not null check (indexed in (0, 1)),  -- whether ltm_lex holds its rows
  mean_rows bigint,               -- of the first so many rows are the two means
  mean_length double precision,
  mean_window double precision,
  embedding_model text collate "C",
  dimension integer,
  vector_provider text collate "C",
  created_at bigint not null
);

create unique index ltm_collections_by_name on holdfast.ltm_collections
  (workspace, user_id, namespace, workspace_id);

create table holdfast.ltm_items (
  collection bigint not null,
  number bigint not null,
  id text collate "C" not null,
  workspace text collate "C" not null,
  kind text collate "C" not null check (kind in ('fact', 'preference', 'decision', 'event')),
  importance double precision not null check (importance between 0 and 1),
  origin text collate "C" not null check (origin in ('api', 'tool', 'extraction', 'import')),
  source text collate "C" not null,
  created_at bigint not null,
  updated_at bigint not null,
  superseded_by text collate "C",
  superseded_at bigint,
  flags integer not null,          -- 1 asks, 2 speaks in the first person, 4 names a time
  terms integer not null,          -- how many the body has
  fold bytea not null,              -- a hash of what is left of the text without case and marks
  body text collate "C" not null,              -- the terms that the analyzer makes of it, in order
  text text collate "C" not null check (octet_length(text) between 1 and 4096),
  primary key (collection, number),
  unique (collection, id)
);

create index ltm_items_by_fold on holdfast.ltm_items (collection, fold) where superseded_at is null;
create index ltm_items_by_terms on holdfast.ltm_items (collection, terms) where superseded_at is null;
create index ltm_items_superseded on holdfast.ltm_items (collection, superseded_by)
  where superseded_by is not null;

create table holdfast.ltm_turns (
  collection bigint not null,
  number bigint not null,
  id text collate "C" not null,
  workspace text collate "C" not null,
  role text collate "C" not null check (role in ('user', 'assistant')),
  speaker text collate "C" not null,
  at bigint not null,             -- when it was said
  thread_id text collate "C" not null,
  session text collate "C" not null,
  created_at bigint not null,
  flags integer not null,
  terms integer not null,
  fingerprint bytea not null,       -- a keyed hash of role, speaker and text
  caption text collate "C" not null,
  body text collate "C" not null,
  text text collate "C" not null check (octet_length(text) <= 1048576),
  primary key (collection, number),
  unique (collection, id)
);

create index ltm_turns_of_session on holdfast.ltm_turns (collection, thread_id, session, number);
create index ltm_turns_by_time on holdfast.ltm_turns (collection, at);
create index ltm_turns_by_speaker on holdfast.ltm_turns (collection, speaker, role);

-- Which turns an item came from, by their numbers.
create table holdfast.ltm_links (
  workspace text collate "C" not null,
  collection bigint not null,
  item bigint not null,
  turn bigint not null,
  primary key (collection, item, turn)
);

create index ltm_links_of_turn on holdfast.ltm_links (collection, turn, item);

-- When a row was last recalled, and how often; apart, so that a mark never writes a text again.
create table holdfast.ltm_access (
  workspace text collate "C" not null,
  collection bigint not null,
  number bigint not null,
  last_accessed_at bigint not null,
  access_count bigint not null,
  primary key (collection, number)
);

-- What was recorded of a thread, in order: 8-byte fingerprints, so many to a chunk.
create table holdfast.ltm_cursors (
  workspace text collate "C" not null,
  collection bigint not null,
  thread_id text collate "C" not null,
  chunk integer not null,
  fingerprints bytea not null,
  primary key (collection, thread_id, chunk)
);

-- Of what was forgotten: keyed 8-byte hashes of its terms, and of a turn its fingerprint.
create table holdfast.ltm_tombstones (
  workspace text collate "C" not null,
  collection bigint not null,
  id text collate "C" not null,
  at bigint not null,
  terms bytea not null,
  fingerprint bytea,
  primary key (collection, id)
);

-- The random key of those hashes, made when a workspace first needs one.
create table holdfast.ltm_secrets (
  workspace text collate "C" primary key,
  secret bytea not null check (octet_length(secret) = 32)
);

-- Work for later. One that is done is deleted; one that runs is somebody's until its lease ends.
create table holdfast.ltm_jobs (
  number bigint primary key,
  workspace text collate "C" not null,
  collection bigint not null,
  kind text collate "C" not null check (kind in ('extract', 'embed', 'reembed')),
  state text collate "C" not null check (state in ('queued', 'running', 'failed')),
  about text collate "C" not null,             -- the numbers of the rows it is about: a JSON array
  model text collate "C",         -- who mines, by name; null for what is nobody's or has none
  attempts integer not null,
  next_at bigint not null,        -- not before then
  token text collate "C",                      -- of whoever runs it
  leased_until bigint,
  error text collate "C",                      -- the type of what it failed with
  created_at bigint not null,
  check ((state = 'running') = (token is not null and leased_until is not null))
);

create index ltm_jobs_due on holdfast.ltm_jobs (state, next_at);
create index ltm_jobs_of_collection on holdfast.ltm_jobs (collection, kind, state);

-- Unit vectors, in a type that the extension `vector` reads too, which need not be there. The
-- collection is named as vector providers know it.
create table holdfast.ltm_vectors (
  workspace text collate "C" not null,
  collection text collate "C" not null,
  id text collate "C" not null,
  dimension integer not null,
  vector real[] not null check (cardinality(vector) = dimension),
  primary key (collection, id)
);

-- At which number of the engine-wide order a collection's vectors last changed, for who holds them.
create table holdfast.ltm_vector_sets (
  workspace text collate "C" not null,
  collection text collate "C" primary key,
  seq bigint not null
);

-- Terms of rows of large collections, and in how many of its rows each term is.
create table holdfast.ltm_lex (
  workspace text collate "C" not null,
  collection bigint not null,
  number bigint not null,
  lex tsvector not null,
  primary key (collection, number)
);

create table holdfast.ltm_df (
  workspace text collate "C" not null,
  collection bigint not null,
  term text collate "C" not null,
  n bigint not null,
  primary key (collection, term)
);

-- The planner's statistics keep samples of a column, also of rows that are gone: none of what can
-- be forgotten.
alter table holdfast.ltm_collections alter column user_id set statistics 0;
alter table holdfast.ltm_collections alter column namespace set statistics 0;
alter table holdfast.ltm_collections alter column workspace_id set statistics 0;
alter table holdfast.ltm_items alter column source set statistics 0;
alter table holdfast.ltm_items alter column fold set statistics 0;
alter table holdfast.ltm_items alter column body set statistics 0;
alter table holdfast.ltm_items alter column text set statistics 0;
alter table holdfast.ltm_turns alter column speaker set statistics 0;
alter table holdfast.ltm_turns alter column thread_id set statistics 0;
alter table holdfast.ltm_turns alter column session set statistics 0;
alter table holdfast.ltm_turns alter column fingerprint set statistics 0;
alter table holdfast.ltm_turns alter column caption set statistics 0;
alter table holdfast.ltm_turns alter column body set statistics 0;
alter table holdfast.ltm_turns alter column text set statistics 0;
alter table holdfast.ltm_cursors alter column thread_id set statistics 0;
alter table holdfast.ltm_cursors alter column fingerprints set statistics 0;
alter table holdfast.ltm_tombstones alter column terms set statistics 0;
alter table holdfast.ltm_tombstones alter column fingerprint set statistics 0;
alter table holdfast.ltm_vectors alter column vector set statistics 0;
-- Nor does it pay to compress them.
alter table holdfast.ltm_vectors alter column vector set storage external;
alter table holdfast.ltm_lex alter column lex set statistics 0;
alter table holdfast.ltm_df alter column term set statistics 0;

alter table holdfast.ltm_collections enable row level security;
alter table holdfast.ltm_collections force row level security;
create policy its_workspace on holdfast.ltm_collections
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));
create policy its_user on holdfast.ltm_collections as restrictive
  using (current_setting('holdfast.user', true) in (user_id, '*'))
  with check (current_setting('holdfast.user', true) in (user_id, '*'));

alter table holdfast.ltm_items enable row level security;
alter table holdfast.ltm_items force row level security;
create policy its_workspace on holdfast.ltm_items
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));

alter table holdfast.ltm_turns enable row level security;
alter table holdfast.ltm_turns force row level security;
create policy its_workspace on holdfast.ltm_turns
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));

alter table holdfast.ltm_links enable row level security;
alter table holdfast.ltm_links force row level security;
create policy its_workspace on holdfast.ltm_links
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));

alter table holdfast.ltm_access enable row level security;
alter table holdfast.ltm_access force row level security;
create policy its_workspace on holdfast.ltm_access
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));

alter table holdfast.ltm_cursors enable row level security;
alter table holdfast.ltm_cursors force row level security;
create policy its_workspace on holdfast.ltm_cursors
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));

alter table holdfast.ltm_tombstones enable row level security;
alter table holdfast.ltm_tombstones force row level security;
create policy its_workspace on holdfast.ltm_tombstones
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));

alter table holdfast.ltm_secrets enable row level security;
alter table holdfast.ltm_secrets force row level security;
create policy its_workspace on holdfast.ltm_secrets
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));

alter table holdfast.ltm_jobs enable row level security;
alter table holdfast.ltm_jobs force row level security;
create policy its_workspace on holdfast.ltm_jobs
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));

alter table holdfast.ltm_vectors enable row level security;
alter table holdfast.ltm_vectors force row level security;
create policy its_workspace on holdfast.ltm_vectors
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));

alter table holdfast.ltm_vector_sets enable row level security;
alter table holdfast.ltm_vector_sets force row level security;
create policy its_workspace on holdfast.ltm_vector_sets
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));

alter table holdfast.ltm_lex enable row level security;
alter table holdfast.ltm_lex force row level security;
create policy its_workspace on holdfast.ltm_lex
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));

alter table holdfast.ltm_df enable row level security;
alter table holdfast.ltm_df force row level security;
create policy its_workspace on holdfast.ltm_df
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));
