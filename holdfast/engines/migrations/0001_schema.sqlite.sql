-- The schema of the first release.

-- The engine: applied migrations, the engine-wide number, the change feed.
create table migrations (
  number integer primary key,
  name text not null,
  sha256 text not null,
  at integer not null,
  release text not null
) strict;

-- One row. The writer reads it when a group begins and writes it back before the commit, so
-- number order is commit order, across processes too. After a commit in
-- doubt, the writer's name shows whether the number is its own.
create table engine_state (
  only_row integer primary key check (only_row = 1),
  seq integer not null,
  writer text not null
) strict;

insert into engine_state (only_row, seq, writer) values (1, 0, '');

-- The newest row that was trimmed away stays behind as 'feed.trimmed', empty: so a
-- cursor that is too old differs from one that is only idle.
create table changes (
  seq integer primary key,
  at integer not null,
  workspace text not null,
  owner text,
  type text not null,
  ids text not null,
  data text not null,
  actor text
) strict;

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
  updated_at integer not null,
  tier text not null default 'said'
    check (tier in ('said', 'confirmed', 'assistant', 'outside', 'imported')),
  held text                        -- why it is held for a person, null if it is not
) strict;

create unique index memories_by_path on memories (store_id, path);
create index memories_held on memories (workspace, id) where held is not null;

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
  link blob not null,
  tier text not null default 'said'
    check (tier in ('said', 'confirmed', 'assistant', 'outside', 'imported')),
  origin_ref text,
  held text                        -- why its file is held while it is the head
) strict;

create index versions_by_seq on versions (store_id, seq);
create index versions_of_memory on versions (memory_id, seq);

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

-- A memory's row and its words in the index, written by one statement: `indexed` are its words,
-- `removed` those that it had.
create view memory_writes as
select number, id, workspace, store_id, path, version_id, content_sha256, content_size_bytes,
  words, created_at, updated_at, tier, held, null as indexed, null as removed
from memories;

create trigger memory_created instead of insert on memory_writes
begin
  insert into memories (id, workspace, store_id, path, version_id, content_sha256,
    content_size_bytes, words, created_at, updated_at, tier, held)
  values (new.id, new.workspace, new.store_id, new.path, new.version_id, new.content_sha256,
    new.content_size_bytes, new.words, new.created_at, new.updated_at, new.tier, new.held);
  insert into memory_words (rowid, words)
  select last_insert_rowid(), new.indexed where new.indexed <> '';
end;

create trigger memory_moved instead of update on memory_writes
begin
  insert into memory_words (memory_words, rowid, words)
  select 'delete', old.number, new.removed where new.removed <> '';
  update memories
  set path = new.path, version_id = new.version_id, content_sha256 = new.content_sha256,
    content_size_bytes = new.content_size_bytes, words = new.words, updated_at = new.updated_at,
    tier = new.tier, held = new.held
  where number = old.number;
  insert into memory_words (rowid, words)
  select old.number, new.indexed where new.indexed <> '';
end;

-- Sessions with the stores they attach, agents, environments and credentials.

create table sessions (
  id text not null primary key,
  workspace text not null,
  title text,
  environment_id text not null,
  agent_id text not null,
  agent_version integer not null,
  agent text not null,
  metadata text not null,
  created_at integer not null,
  updated_at integer not null,
  archived_at integer
) strict, without rowid;

create index sessions_by_age on sessions (workspace, created_at, id);

-- Name and description are as they were when the store was attached.
create table session_stores (
  workspace text not null,
  session_id text not null references sessions (id),
  position integer not null,
  memory_store_id text not null,
  access text not null check (access in ('read_write', 'read_only')),
  name text not null,
  description text not null,
  instructions text,
  mount_path text not null,
  primary key (session_id, memory_store_id)
) strict, without rowid;

create index sessions_of_store on session_stores (memory_store_id, session_id);

create table session_tokens (
  id text not null primary key,
  workspace text not null,
  session_id text not null references sessions (id),
  secret_hash text not null unique,
  created_at integer not null,
  expires_at integer,
  revoked_at integer
) strict, without rowid;

create index tokens_of_session on session_tokens (session_id);

-- Agents and environments. One row a version; created_at and archived_at are the object's and the
-- same in all of them. An environment has one version.
create table stored_objects (
  id text not null,
  workspace text not null,
  kind text not null check (kind in ('agent', 'env')),
  version integer not null,
  newest integer not null check (newest in (0, 1)),
  parts text not null,
  created_at integer not null,
  updated_at integer not null,
  archived_at integer,
  primary key (id, version)
) strict, without rowid;

create index stored_objects_by_age on stored_objects (workspace, kind, created_at, id)
  where newest = 1;

create table api_keys (
  id text not null primary key,
  workspace text not null,
  name text not null,
  scope text not null check (scope in ('read', 'write', 'admin')),
  bound_agent text,
  bound_user text,
  secret_hash text not null unique,
  created_at integer not null,
  last_used_at integer,
  revoked_at integer
) strict, without rowid;

create index api_keys_by_age on api_keys (workspace, created_at, id);

-- Sign-ins to the console, by the sha256 of the secret that the browser holds.
create table console_sessions (
  hash text not null primary key,
  key_id text not null,
  workspace text not null,
  created_at integer not null,
  seen_at integer not null,
  expires_at integer not null
) strict, without rowid;

create index console_sessions_by_expiry on console_sessions (expires_at);
create index console_sessions_by_use on console_sessions (seen_at);

-- Results of `apply`, stored for a day, so that a repeated request does nothing.

create table store_edits (
  store_id text not null references stores (id),
  id text not null,                -- chosen by the client
  workspace text not null,
  digest blob,                     -- of the request; null once a version was redacted
  answer text not null,            -- ids only: no path, no content, no hash
  created_at integer not null,
  primary key (store_id, id)
) strict, without rowid;

create index store_edits_by_age on store_edits (store_id, created_at);

-- Durable memory: entries of agents, the log of changes, runs and tombstones.
--
-- Everywhere agent is '' for what a workspace shares, and run_id '' for all but conversation
-- entries. An actor is a JSON array: kind, id, run, token.

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
  tier text not null default 'said'
    check (tier in ('said', 'confirmed', 'assistant', 'outside', 'imported')),
  origin_ref text,
  held text,                       -- why it is held for a person, null if it is not
  primary key (workspace, agent, run_id, key),
  check ((category = 'workspace') = (agent = '')),
  check ((category = 'conversation') = (run_id <> '')),
  check ((category = 'daily' or held is not null) = (expires_at is not null))
) strict;

-- Covers planning of a hydration or an eviction, which reads no contents.
create index durable_entries_by_seq on durable_entries
  (workspace, agent, run_id, pinned, seq, size_bytes, expires_at, category, key, id, held);

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

-- Triggers count, so that every write is counted.
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

-- Null is not set; agent '' holds the workspace's defaults.
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
  expires_at integer,              -- when an entry that was evicted would have expired
  entry text,                      -- what else a written entry has: a JSON array
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
create index durable_changes_to_expire on durable_changes (expires_at)
  where expires_at is not null and content_sha256 is not null;

-- Only the newest twenty changes of a key stay.
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

-- Request and result under an idempotency key: hashes, ids and numbers.
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

-- Long-term memory: items and turns of users, with the tables to find and to forget them.
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
  extractor text,                  -- its own wish; null without one, 'none' for no mining
  mined_at integer,                -- when a job last mined turns of it
  held integer not null default 0, -- so many items wait for a person
  text_form integer not null default 1,  -- the form in which texts were embedded
  created_at integer not null,
  cleared_seq integer not null default 0  -- of the last clearing: rows of an older copy were cleared
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
  tier text not null
    check (tier in ('said', 'confirmed', 'assistant', 'outside', 'imported')),
  held text,                       -- why it waits for a person; null: it does not
  held_at integer,
  said_by text not null,           -- the user who wrote it, or ''
  origin_ref text not null,        -- where outside text came from, or ''
  valid_from integer not null,
  valid_to integer,                -- null: still
  flags integer not null,          -- 1 asks, 2 first person, 4 names a time, 32 gives orders
  terms integer not null,          -- how many the body has
  fold blob not null,              -- a hash of what is left of the text without case and marks
  body text not null,              -- the terms that the analyzer makes of it, in order
  text text not null check (length(cast(text as blob)) between 1 and 4096),
  primary key (collection, number),
  unique (collection, id)
) strict, without rowid;

create index ltm_items_by_fold on ltm_items (collection, fold) where superseded_at is null;
create index ltm_items_by_terms on ltm_items (collection, terms) where superseded_at is null;
create index ltm_items_by_time on ltm_items (collection, created_at, superseded_at);
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
  tier text not null check (tier in ('said', 'assistant', 'outside', 'imported')),
  held text,
  held_at integer,
  said_by text not null,
  origin_ref text not null,
  flags integer not null,          -- as of items; 8 only asks, 16 says nothing
  covered integer not null default 0,  -- 1 once a job to mine it was queued
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
create index ltm_turns_uncovered on ltm_turns (collection, number) where covered = 0;
create index ltm_turns_by_speaker on ltm_turns (collection, speaker, role);

-- Which turns an item came from, by their numbers.
create table ltm_links (
  workspace text not null,
  collection integer not null,
  item integer not null,
  turn integer not null,
  at integer not null,             -- when it was linked
  primary key (collection, item, turn)
) strict, without rowid;

create index ltm_links_of_turn on ltm_links (collection, turn, item);

-- What an item was at each change, for answers as of an earlier moment.
create table ltm_item_history (
  workspace text not null,
  collection integer not null,
  item integer not null,           -- its number
  seq integer not null,            -- of the change, in the engine-wide order
  at integer not null,
  actor text not null,
  op text not null check (op in ('create', 'update', 'supersede', 'restore', 'accept')),
  text text not null,
  kind text not null,
  importance real not null,
  tier text not null,
  valid_from integer not null,
  valid_to integer,
  primary key (collection, item, seq)
) strict, without rowid;

-- When a row was last recalled, and how often; apart, so that a mark never writes a text again.
create table ltm_access (
  workspace text not null,
  collection integer not null,
  number integer not null,
  last_accessed_at integer not null,
  access_count integer not null,
  primary key (collection, number)
) strict, without rowid;

-- Recorded messages of a thread, in order: 8-byte fingerprints, in chunks.
create table ltm_cursors (
  workspace text not null,
  collection integer not null,
  thread_id text not null,
  chunk integer not null,
  fingerprints blob not null,
  primary key (collection, thread_id, chunk)
) strict, without rowid;

-- Of a forgotten row: keyed 8-byte hashes of its terms, and of a turn its fingerprint.
create table ltm_tombstones (
  workspace text not null,
  collection integer not null,
  id text not null,
  at integer not null,
  terms blob not null,
  fingerprint blob,
  primary key (collection, id)
) strict, without rowid;

-- The random key of a user's hashes, made when it is first needed.
create table ltm_secrets (
  workspace text not null,
  user_id text not null,
  secret blob not null check (length(secret) = 32),
  primary key (workspace, user_id)
) strict, without rowid;

-- Background jobs. A finished one is deleted; a running one is leased to one worker.
create table ltm_jobs (
  number integer primary key,
  workspace text not null,
  collection integer not null,
  kind text not null check (kind in ('extract', 'embed', 'reembed')),
  state text not null check (state in ('queued', 'running', 'failed')),
  about text not null,             -- the numbers of the rows it is about: a JSON array
  model text,                      -- the extractor's name; null without one
  attempts integer not null,
  next_at integer not null,        -- not before then
  token text,                      -- of the worker that runs it
  leased_until integer,
  error text,                      -- the type of what it failed with
  tried_at integer,                  -- when it last failed
  failing_since integer,             -- since when each try of it has failed
  created_at integer not null,
  check ((state = 'running') = (token is not null and leased_until is not null))
) strict;

create index ltm_jobs_due on ltm_jobs (state, next_at);
create index ltm_jobs_of_collection on ltm_jobs (collection, kind, state);

-- Tokens that mining has used, a row for each day: the number of days since 1970, UTC.
create table mining_spending (
  workspace text not null,
  day integer not null,
  tokens integer not null,
  primary key (workspace, day)
) strict, without rowid;

-- Unit vectors, little-endian float32. The collection is named as vector providers know it.
create table ltm_vectors (
  workspace text not null,
  collection text not null,
  id text not null,
  dimension integer not null,
  vector blob not null check (length(vector) = 4 * dimension),
  primary key (collection, id)
) strict, without rowid;

-- The engine-wide number of a collection's last vector change, for caches.
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

-- Runs: a record of each, its entries and last events; checkpoints.

create table runs (
  workspace text not null,
  id text not null,
  kind text not null check (kind in (
    'step', 'task', 'plan', 'team', 'workflow', 'network', 'agent', 'session', 'memory'
  )),
  name text not null,
  definition text,
  definition_version text,
  agent text,
  status text not null check (status in (
    'queued', 'running', 'waiting', 'lost', 'completed', 'failed', 'cancelled'
  )),
  reason text,                     -- of its end
  detail text,
  error text,                      -- a JSON object: name, message
  metadata text not null,          -- a JSON object
  input text,                      -- JSON
  queue text,
  priority integer,
  not_before integer,
  thread_id text,
  parent_id text,                  -- the run that it is part of
  forked_run text,
  forked_version integer,
  fence integer not null,          -- how often it was acquired; only the last owner writes
  holder text,                     -- that owner; null where there never was one
  place text,                      -- the process of that owner
  lease_until integer,             -- null while it has no owner
  cancel_wanted text,              -- the reason why another process wants its end
  usage text,                      -- a JSON object
  extras text,                     -- a JSON object
  batch integer not null,          -- the holder's last report that was taken
  seq integer not null,            -- of its last event
  entries integer not null,
  bytes integer not null,
  versions integer not null default 0,       -- the number of the newest
  version_bytes integer not null default 0,  -- of the rows of versions and of messages
  losses integer not null default 0,         -- how often it was lost since its newest version
  started_at integer not null,
  seen_at integer not null,        -- the last sign of life
  ended_at integer,
  primary key (workspace, id),
  check ((status in ('completed', 'failed', 'cancelled')) = (ended_at is not null))
) strict, without rowid;

create index runs_by_age on runs (workspace, started_at, id);
-- Records that make room for newer ones; those of a thread go with the thread.
create index runs_by_end on runs (workspace, coalesce(ended_at, seen_at), id)
  where thread_id is null;
create index runs_of_thread on runs (workspace, thread_id, started_at, id)
  where thread_id is not null;
create index runs_of_parent on runs (workspace, parent_id, started_at, id)
  where parent_id is not null;
create index runs_in_queue on runs (workspace, queue, priority, not_before)
  where status = 'queued';
create index runs_waiting on runs (workspace, id) where status = 'waiting';
create index runs_to_lapse on runs (lease_until) where status = 'running';

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
  part text,
  agent text,
  call_id text,
  data text not null,              -- a JSON object
  written integer not null,        -- bytes of the data of the run's events up to this one
  primary key (workspace, run_id, seq),
  foreign key (workspace, run_id) references runs (workspace, id)
) strict, without rowid;

-- The parts of a run as they are now: its tasks, steps, items, nodes, calls of agents.
create table run_parts (
  workspace text not null,
  run_id text not null,
  id text not null,
  kind text not null check (kind in ('task', 'step', 'item', 'node', 'agent', 'board_task')),
  title text,
  state text not null check (state in (
    'pending', 'running', 'waiting', 'completed', 'failed', 'blocked', 'cancelled'
  )),
  within text,                     -- the part that it belongs to
  depends_on text not null,        -- a JSON array of parts
  agent text,
  model text,
  attempts integer not null,
  cause text,                      -- why it failed, waits, or is blocked
  usage text,                      -- a JSON object
  place integer not null,          -- in the order of their first events
  started_at integer,
  ended_at integer,
  primary key (workspace, run_id, kind, id),
  foreign key (workspace, run_id) references runs (workspace, id) on delete cascade
) strict, without rowid;

-- What a run knew, version by version. A version has rows for what it changed alone.
create table run_versions (
  workspace text not null,
  run_id text not null,
  number integer not null,
  at integer not null,
  cause text not null,
  part text,
  agent text,
  fence integer not null,
  changed text not null,           -- a JSON array of the keys that it changed, 1,000 at most
  bytes integer not null,          -- of its rows
  gaps integer not null,           -- rows of it that were forgotten
  primary key (workspace, run_id, number),
  foreign key (workspace, run_id) references runs (workspace, id) on delete cascade
) strict, without rowid;

create table run_version_rows (
  workspace text not null,
  run_id text not null,
  kind text not null,              -- entry, value, part, board, message, result, start, once, state
  key text not null,
  number integer not null,
  place integer not null,          -- in the order of first writes since the key was deleted
  body blob,                       -- JSON; null where the key was deleted
  bytes integer not null,
  primary key (workspace, run_id, kind, key, number),
  foreign key (workspace, run_id) references runs (workspace, id) on delete cascade
) strict;

create index run_rows_by_version on run_version_rows (workspace, run_id, number);

-- Messages of a part, as its model was sent and has answered them.
create table run_turns (
  workspace text not null,
  run_id text not null,
  part text not null,
  n integer not null,
  agent text,
  body blob not null,              -- JSON
  primary key (workspace, run_id, part, n),
  foreign key (workspace, run_id) references runs (workspace, id) on delete cascade
) strict;

-- Long texts of a run, such as system texts and schemas, once each.
create table run_texts (
  workspace text not null,
  run_id text not null,
  sha256 text not null,
  body blob not null,
  primary key (workspace, run_id, sha256),
  foreign key (workspace, run_id) references runs (workspace, id) on delete cascade
) strict;

create table run_questions (
  workspace text not null,
  id text not null,
  run_id text not null,
  kind text not null check (kind in ('approval', 'question', 'external')),
  key text not null,               -- what makes it the same question when it is asked again
  text text not null,
  schema text,                     -- a JSON Schema
  options text,                    -- a JSON array
  part text,
  agent text,
  tool text,
  call_id text,
  arguments text,                  -- JSON
  who text not null,               -- a JSON array
  status text not null check (status in ('open', 'answered', 'expired', 'withdrawn')),
  default_value text,              -- JSON: the answer once it has expired
  answer text,                     -- JSON
  answered_by text,
  note text,
  asked_at integer not null,
  expires_at integer,
  answered_at integer,
  primary key (workspace, id),
  foreign key (workspace, run_id) references runs (workspace, id) on delete cascade
) strict;

create index run_questions_of_run on run_questions (workspace, run_id, asked_at, id);
create index run_questions_by_age on run_questions (workspace, status, asked_at, id);
create index run_questions_to_expire on run_questions (expires_at)
  where status = 'open' and expires_at is not null;

-- Effects of tool calls that happen once, with their first answers.
create table run_effects (
  workspace text not null,
  run_id text not null,
  key text not null,               -- part:call_id
  fence integer not null,
  at integer not null,
  outcome text not null,           -- JSON
  primary key (workspace, run_id, key),
  foreign key (workspace, run_id) references runs (workspace, id) on delete cascade
) strict;

-- How much a workspace keeps of its runs; without a row it is the default.
create table run_limits (
  workspace text not null,
  versions integer not null check (versions >= 1),
  bytes integer not null check (bytes >= 0),
  ended integer not null check (ended >= 0),
  primary key (workspace)
) strict, without rowid;

-- Threads: conversations with networks of agents over many runs.

create table threads (
  workspace text not null,
  id text not null check (length(id) between 1 and 128),
  created_at integer not null,
  updated_at integer not null,
  turns integer not null,
  user_id text,                      -- whose it is; null is nobody's
  primary key (workspace, id)
) strict, without rowid;

create index threads_by_age on threads (workspace, created_at, id);
create index threads_of_user on threads (workspace, user_id, created_at, id)
  where user_id is not null;

-- The number is that of the writing in the engine-wide order, so it orders a thread's turns.
create table thread_turns (
  seq integer primary key,
  workspace text not null,
  thread_id text not null,
  id text not null,
  kind text not null check (kind in ('user', 'result', 'foreign')),
  run_id text,
  agent text,                        -- the author of a result
  at integer not null,
  checksum text not null,
  size_bytes integer not null,       -- of the body
  body text not null,                -- JSON
  check ((kind = 'result') = (agent is not null))
) strict;

create unique index thread_turns_by_id on thread_turns (workspace, thread_id, id);
-- Covers planning of a page and forgetting of an agent, which read no bodies.
create index thread_turns_in_order on thread_turns
  (workspace, thread_id, seq, kind, agent, size_bytes);

-- Sizes of a workspace, one row a day; the bytes are those of the whole database.
create table samples (
  workspace text not null,
  day integer not null,            -- days since 1970, UTC
  bytes integer not null,
  memories integer not null,
  versions integer not null,
  entries integer not null,
  items integer not null,
  turns integer not null,
  runs integer not null,
  primary key (workspace, day)
) strict, without rowid;

-- Which objects belong to a person, besides the rows that carry the user.
create table subjects (
  workspace text not null,
  user_id text not null,
  kind text not null check (kind in (
    'thread', 'run', 'network_run', 'durable_entry', 'store', 'memory', 'version', 'consolidation'
  )),
  object_id text not null,
  at integer not null,
  primary key (workspace, user_id, kind, object_id)
) strict, without rowid;

create index subjects_by_object on subjects (workspace, kind, object_id);

-- Runs and threads take their links with them.
create trigger run_went after delete on runs
begin
  delete from subjects
  where workspace = old.workspace and kind in ('run', 'network_run') and object_id = old.id;
end;

create trigger thread_went after delete on threads
begin
  delete from subjects
  where workspace = old.workspace and kind = 'thread' and object_id = old.id;
end;

-- Erasures of people and agents, by the keyed hash of the name; none holds a name.
create table erasures (
  workspace text not null,
  id text not null,
  number integer not null,         -- its place in the workspace's chain; 0 until completed
  kind text not null check (kind in ('user', 'agent')),
  subject blob not null,
  at integer not null,             -- what was recorded up to then is erased
  seq integer not null,
  state text not null check (state in ('running', 'pending', 'completed')),
  completed_at integer,
  counts text not null,            -- JSON
  unreached text not null,         -- JSON
  pending text not null,           -- JSON: vectors still to be deleted elsewhere
  names text not null,             -- JSON: keyed hashes of names redacted in texts of others
  actor text not null,             -- JSON
  receipt text,                    -- canonical JSON, once completed
  link text,
  mac text,
  primary key (workspace, id)
) strict, without rowid;

create index erasures_by_subject on erasures (workspace, kind, subject);

-- Backups that were made, which may hold what was erased since.
create table backups (
  workspace text not null,
  at integer not null,
  seq integer not null,
  rows integer not null,
  name text not null,
  primary key (workspace, at, name)
) strict, without rowid;

-- Proposals to tidy a memory, made by jobs and accepted or rejected by people.
create table consolidations (
  workspace text not null,
  id text not null,
  owner_kind text not null check (owner_kind in ('user', 'store', 'agent')),
  owner text not null,             -- the user, store or agent
  scope text not null,             -- JSON: namespace and workspace_id of a collection
  status text not null check (status in (
    'pending', 'running', 'partial', 'completed', 'failed', 'cancelled'
  )),
  proposal text not null check (proposal in (
    'open', 'accepted', 'rejected', 'stale', 'undone'
  )),
  request text not null,           -- JSON: model, instructions, output
  base integer not null,
  budget text not null,            -- JSON
  usage text not null,             -- JSON
  progress text not null,          -- JSON
  token text,
  leased_until integer,
  error text,
  created_at integer not null,
  ended_at integer,
  dream text,                      -- JSON: what a dream was asked for, and its output
  archived_at integer,
  primary key (workspace, id)
) strict, without rowid;

create index consolidations_due on consolidations (status, leased_until);
create index consolidations_of_owner on consolidations (workspace, owner_kind, owner, id);

create table consolidation_changes (
  workspace text not null,
  job text not null,
  n integer not null,
  op text not null check (op in (
    'merge', 'supersede', 'promote', 'expire', 'hold', 'edit', 'create', 'move', 'conflict'
  )),
  before text not null,            -- JSON
  after text not null,             -- JSON
  reason text not null,
  evidence text not null,          -- JSON
  state text not null check (state in ('open', 'applied', 'rejected', 'stale', 'undone')),
  applied text,                    -- JSON: what was written, to undo it
  primary key (workspace, job, n)
) strict, without rowid;

-- Calls to a model, for replays; redacted.
create table consolidation_calls (
  workspace text not null,
  job text not null,
  n integer not null,
  prompt text not null,
  answer text not null,
  usage text not null,             -- JSON
  at integer not null,
  primary key (workspace, job, n)
) strict, without rowid;

-- What is consolidated by itself, and which changes are then accepted without a person.
create table consolidation_policies (
  workspace text not null,
  owner_kind text not null check (owner_kind in ('user', 'store', 'agent')),
  owner text not null,             -- the user, store or agent
  scope text not null,             -- JSON: namespace and workspace_id of a collection
  request text not null,           -- JSON: operations, hours, writes, model, budget
  base integer not null,
  job text,                        -- the job that runs
  due_at integer not null,
  created_at integer not null,
  primary key (workspace, owner_kind, owner, scope)
) strict, without rowid;

create index consolidation_policies_due on consolidation_policies (due_at);

-- Names of what was deleted, so that it stays deleted when an older backup is restored.

-- Of a user who was forgotten only the keyed hash of the name is left.
create table user_tombstones (
  workspace text not null,
  user_hash blob not null,
  seq integer not null,
  at integer not null,
  primary key (workspace, user_hash)
) strict, without rowid;

-- Of a thread that was deleted only the keyed hash of its id is left.
create table thread_tombstones (
  workspace text not null,
  thread_hash blob not null,
  seq integer not null,
  at integer not null,
  primary key (workspace, thread_hash)
) strict, without rowid;

-- The random key of those hashes, made when a workspace first needs one.
create table tombstone_secrets (
  workspace text not null primary key,
  secret blob not null check (length(secret) = 32)
) strict, without rowid;
