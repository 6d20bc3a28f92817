-- The schema of the first release.

-- The engine: applied migrations, the engine-wide number, the change feed.
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
-- trimmed away stays behind as 'feed.trimmed', empty: so a cursor that is too old differs
-- from one that is only idle.
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
  updated_at bigint not null,
  tier text not null default 'said'
    check (tier in ('said', 'confirmed', 'assistant', 'outside', 'imported')),
  held text                        -- why it is held for a person, null if it is not
);

create unique index memories_by_path on holdfast.memories (store_id, path);
create index memories_held on holdfast.memories (workspace, id) where held is not null;

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
  link bytea not null,
  tier text not null default 'said'
    check (tier in ('said', 'confirmed', 'assistant', 'outside', 'imported')),
  origin_ref text collate "C",
  held text                        -- why its file is held while it is the head
);

create index versions_by_seq on holdfast.versions (store_id, seq);
create index versions_of_memory on holdfast.versions (memory_id, seq);

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

-- Sessions with the stores they attach, agents, environments and credentials.

create table holdfast.sessions (
  id text collate "C" not null primary key,
  workspace text collate "C" not null,
  title text collate "C",
  environment_id text collate "C" not null,
  agent_id text collate "C" not null,
  agent_version bigint not null,
  agent text collate "C" not null,
  metadata text collate "C" not null,
  created_at bigint not null,
  updated_at bigint not null,
  archived_at bigint
);

create index sessions_by_age on holdfast.sessions (workspace, created_at, id);

-- Name and description are as they were when the store was attached.
create table holdfast.session_stores (
  workspace text collate "C" not null,
  session_id text collate "C" not null references holdfast.sessions (id),
  position bigint not null,
  memory_store_id text collate "C" not null,
  access text collate "C" not null check (access in ('read_write', 'read_only')),
  name text collate "C" not null,
  description text collate "C" not null,
  instructions text collate "C",
  mount_path text collate "C" not null,
  primary key (session_id, memory_store_id)
);

create index sessions_of_store on holdfast.session_stores (memory_store_id, session_id);

create table holdfast.session_tokens (
  id text collate "C" not null primary key,
  workspace text collate "C" not null,
  session_id text collate "C" not null references holdfast.sessions (id),
  secret_hash text collate "C" not null unique,
  created_at bigint not null,
  expires_at bigint,
  revoked_at bigint
);

create index tokens_of_session on holdfast.session_tokens (session_id);

-- Agents and environments. One row a version; created_at and archived_at are the object's and the
-- same in all of them. An environment has one version.
create table holdfast.stored_objects (
  id text collate "C" not null,
  workspace text collate "C" not null,
  kind text collate "C" not null check (kind in ('agent', 'env')),
  version bigint not null,
  newest bigint not null check (newest in (0, 1)),
  parts text collate "C" not null,
  created_at bigint not null,
  updated_at bigint not null,
  archived_at bigint,
  primary key (id, version)
);

create index stored_objects_by_age on holdfast.stored_objects (workspace, kind, created_at, id)
  where newest = 1;

create table holdfast.api_keys (
  id text collate "C" not null primary key,
  workspace text collate "C" not null,
  name text collate "C" not null,
  scope text collate "C" not null check (scope in ('read', 'write', 'admin')),
  bound_agent text collate "C",
  bound_user text collate "C",
  secret_hash text collate "C" not null unique,
  created_at bigint not null,
  last_used_at bigint,
  revoked_at bigint
);

create index api_keys_by_age on holdfast.api_keys (workspace, created_at, id);

-- Sign-ins to the console, by the sha256 of the secret that the browser holds.
create table holdfast.console_sessions (
  hash text collate "C" not null primary key,
  key_id text collate "C" not null,
  workspace text collate "C" not null,
  created_at bigint not null,
  seen_at bigint not null,
  expires_at bigint not null
);

create index console_sessions_by_expiry on holdfast.console_sessions (expires_at);
create index console_sessions_by_use on holdfast.console_sessions (seen_at);

-- Results of `apply`, stored for a day, so that a repeated request does nothing.

create table holdfast.store_edits (
  store_id text collate "C" not null references holdfast.stores (id),
  id text collate "C" not null,    -- chosen by the client
  workspace text collate "C" not null,
  digest bytea,                    -- of the request; null once a version was redacted
  answer text collate "C" not null,  -- ids only: no path, no content, no hash
  created_at bigint not null,
  primary key (store_id, id)
);

create index store_edits_by_age on holdfast.store_edits (store_id, created_at);

-- Durable memory: entries of agents, the log of changes, runs and tombstones.
--
-- Everywhere agent is '' for what a workspace shares, and run_id '' for all but conversation
-- entries. An actor is a JSON array: kind, id, run, token.

create table holdfast.durable_entries (
  workspace text collate "C" not null,
  agent text collate "C" not null,
  run_id text collate "C" not null,
  key text collate "C" not null check (octet_length(key) between 1 and 255),
  id text collate "C" not null,
  category text collate "C" not null check (octet_length(category) between 1 and 64),
  pinned integer not null check (pinned = case when category = 'core' then 1 else 0 end),
  tags text collate "C" not null,  -- a JSON array
  size_bytes integer not null,     -- of key, content, category and tags
  seq bigint not null,
  created_at bigint not null,
  updated_at bigint not null,
  expires_at bigint,
  created_by text collate "C" not null,
  updated_by text collate "C" not null,
  content text collate "C" not null check (octet_length(content) between 1 and 65536),
  tier text not null default 'said'
    check (tier in ('said', 'confirmed', 'assistant', 'outside', 'imported')),
  origin_ref text collate "C",
  held text,                       -- why it is held for a person, null if it is not
  primary key (workspace, agent, run_id, key),
  check ((category = 'workspace') = (agent = '')),
  check ((category = 'conversation') = (run_id <> '')),
  check ((category = 'daily' or held is not null) = (expires_at is not null))
);

-- Covers planning of a hydration or an eviction, which reads no contents.
create index durable_entries_by_seq on holdfast.durable_entries
  (workspace, agent, run_id, pinned, seq)
  include (size_bytes, expires_at, category, key, id, held);

create index durable_entries_to_expire on holdfast.durable_entries (workspace, agent, expires_at)
  where expires_at is not null;
create index durable_entries_by_expiry on holdfast.durable_entries (expires_at)
  where expires_at is not null;

-- One row an agent, by which its writes are serial, and one for what the workspace shares.
create table holdfast.durable_agents (
  workspace text collate "C" not null,
  agent text collate "C" not null,
  entries bigint not null,         -- without those of runs, as all that is counted here
  core_entries bigint not null,
  size_bytes bigint not null,
  last_write bigint,
  expires_at bigint,               -- no entry expires before this
  forgot_seq bigint not null,      -- of the last time that something was forgotten
  tidy_at bigint not null,         -- when a write next drops what is no longer kept
  primary key (workspace, agent)
);

-- Triggers count, so that every write is counted.
create function holdfast.durable_count() returns trigger language plpgsql as $$
begin
  if tg_op = 'INSERT' then
    update holdfast.durable_agents a
    set entries = a.entries + t.entries, core_entries = a.core_entries + t.core,
        size_bytes = a.size_bytes + t.size_bytes,
        last_write = greatest(a.last_write, t.last_write),
        expires_at = least(a.expires_at, t.expires_at)
    from (
      select c.workspace, c.agent, count(*) as entries, sum(c.pinned) as core,
          sum(c.size_bytes) as size_bytes, max(c.updated_at) as last_write,
          min(c.expires_at) as expires_at
      from came c
      where c.run_id = ''
      group by c.workspace, c.agent
    ) t
    where a.workspace = t.workspace and a.agent = t.agent;
  elsif tg_op = 'UPDATE' then
    update holdfast.durable_agents a
    set core_entries = a.core_entries + t.core, size_bytes = a.size_bytes + t.size_bytes,
        last_write = greatest(a.last_write, t.last_write),
        expires_at = least(a.expires_at, t.expires_at)
    from (
      select b.workspace, b.agent, sum(b.core) as core, sum(b.size_bytes) as size_bytes,
          max(b.last_write) as last_write, min(b.expires_at) as expires_at
      from (
        select c.workspace, c.agent, c.pinned as core, c.size_bytes, c.updated_at as last_write,
            c.expires_at
        from came c
        where c.run_id = ''
        union all
        select w.workspace, w.agent, -w.pinned, -w.size_bytes, null, null
        from went w
        where w.run_id = ''
      ) b
      group by b.workspace, b.agent
    ) t
    where a.workspace = t.workspace and a.agent = t.agent;
  else
    update holdfast.durable_agents a
    set entries = a.entries - t.entries, core_entries = a.core_entries - t.core,
        size_bytes = a.size_bytes - t.size_bytes
    from (
      select w.workspace, w.agent, count(*) as entries, sum(w.pinned) as core,
          sum(w.size_bytes) as size_bytes
      from went w
      where w.run_id = ''
      group by w.workspace, w.agent
    ) t
    where a.workspace = t.workspace and a.agent = t.agent;
  end if;
  return null;
end
$$;

create trigger durable_entry_came after insert on holdfast.durable_entries
  referencing new table as came for each statement
  execute function holdfast.durable_count();
create trigger durable_entry_changed after update on holdfast.durable_entries
  referencing old table as went new table as came for each statement
  execute function holdfast.durable_count();
create trigger durable_entry_went after delete on holdfast.durable_entries
  referencing old table as went for each statement
  execute function holdfast.durable_count();

-- Null is not set; agent '' holds the workspace's defaults.
create table holdfast.durable_limits (
  workspace text collate "C" not null,
  agent text collate "C" not null,
  cap integer check (cap between 1 and 100000),
  workspace_cap integer check (workspace_cap between 1 and 100000),
  run_cap integer check (run_cap between 1 and 100000),
  content_bytes integer check (content_bytes between 1 and 65536),
  budget integer check (budget between 0 and 16777216),
  daily_hours integer check (daily_hours between 1 and 8760),
  primary key (workspace, agent)
);

-- Of a key that was forgotten only its keyed hash is left, here as among the tombstones.
create table holdfast.durable_changes (
  seq bigint primary key,
  workspace text collate "C" not null,
  agent text collate "C" not null,
  run_id text collate "C" not null,
  at bigint not null,
  op text collate "C" not null check (op in ('create', 'replace', 'refresh', 'move', 'evict',
    'expire', 'forget', 'end', 'redact', 'restore')),
  key text collate "C",
  key_hash bytea,
  category text collate "C",
  size_bytes integer not null,
  content text collate "C",
  content_sha256 text collate "C",
  actor text collate "C" not null,
  evicted_for text collate "C",    -- the key whose write took this entry's place
  cause text collate "C" not null, -- what else brought it about: a JSON object
  redacted_at bigint,
  expires_at bigint,               -- when an entry that was evicted would have expired
  entry text collate "C",          -- what else a written entry has: a JSON array
  check (key is null or key_hash is null)
);

create index durable_changes_of_agent on holdfast.durable_changes (workspace, agent, seq);
create index durable_changes_of_key on holdfast.durable_changes (workspace, agent, key, seq)
  where key is not null;
create index durable_changes_of_hash on holdfast.durable_changes (workspace, agent, key_hash, seq)
  where key_hash is not null;
create index durable_changes_caused on holdfast.durable_changes (workspace, agent, evicted_for)
  where evicted_for is not null;
create index durable_changes_evicted on holdfast.durable_changes (at)
  where op = 'evict' and content is not null;
create index durable_changes_to_expire on holdfast.durable_changes (expires_at)
  where expires_at is not null and content_sha256 is not null;

-- Only the newest twenty changes of a key stay.
create function holdfast.durable_trim() returns trigger language plpgsql as $$
begin
  -- As an array, so that they are found by their numbers: joined, all there is would be read.
  delete from holdfast.durable_changes
  where seq = any (array(
    select past.seq
    from (select distinct n.workspace, n.agent, n.key from came n where n.key is not null) k
    cross join lateral (
      select c.seq from holdfast.durable_changes c
      where c.workspace = k.workspace and c.agent = k.agent and c.key = k.key
      order by c.seq desc
      offset 20
    ) past
  ));
  return null;
end
$$;

create trigger durable_change_came after insert on holdfast.durable_changes
  referencing new table as came for each statement
  execute function holdfast.durable_trim();

create table holdfast.durable_tombstones (
  workspace text collate "C" not null,
  agent text collate "C" not null,
  run_id text collate "C" not null,
  key_hash bytea not null,
  seq bigint not null,
  at bigint not null,
  actor text collate "C" not null,
  primary key (workspace, agent, run_id, key_hash)
);

create index durable_tombstones_by_age on holdfast.durable_tombstones (at);

-- The random key of those hashes, made when a workspace first needs one.
create table holdfast.durable_secrets (
  workspace text collate "C" primary key,
  secret bytea not null check (octet_length(secret) = 32)
);

-- A run's token is the number of its opening, so none is ever given out twice.
create table holdfast.durable_runs (
  workspace text collate "C" not null,
  agent text collate "C" not null,
  token bigint not null,
  run_id text collate "C" not null check (run_id <> ''),
  lane text collate "C" not null,
  knew_seq bigint not null,         -- forgot_seq of its agent when it began
  knew_shared_seq bigint not null,  -- and that of what the workspace shares
  began_at bigint not null,
  seen_at bigint not null,          -- its last write or heartbeat
  ended_at bigint,
  outcome text collate "C" check (outcome in ('ok', 'failed', 'superseded', 'lapsed')),
  primary key (workspace, agent, token),
  check ((ended_at is null) = (outcome is null))
);

create unique index durable_runs_live on holdfast.durable_runs (workspace, agent, run_id)
  where ended_at is null;
create unique index durable_runs_in_lane on holdfast.durable_runs (workspace, agent, lane)
  where ended_at is null;
create index durable_runs_to_lapse on holdfast.durable_runs (seen_at) where ended_at is null;
create index durable_runs_by_end on holdfast.durable_runs (ended_at) where ended_at is not null;

-- The token that a lane is held by, or was last.
create table holdfast.durable_lanes (
  workspace text collate "C" not null,
  agent text collate "C" not null,
  lane text collate "C" not null,
  token bigint not null,
  primary key (workspace, agent, lane)
);

-- A run that begins takes its lane.
create function holdfast.durable_take_lane() returns trigger language plpgsql as $$
begin
  insert into holdfast.durable_lanes (workspace, agent, lane, token)
  values (new.workspace, new.agent, new.lane, new.token)
  on conflict (workspace, agent, lane)
  do update set token = greatest(durable_lanes.token, excluded.token);
  return null;
end
$$;

create trigger durable_run_began after insert on holdfast.durable_runs
  for each row execute function holdfast.durable_take_lane();

-- Request and result under an idempotency key: hashes, ids and numbers.
create table holdfast.durable_replays (
  workspace text collate "C" not null,
  agent text collate "C" not null,
  key_hash bytea not null,
  asked bytea not null,
  answer text collate "C" not null,
  at bigint not null,
  primary key (workspace, agent, key_hash)
);

create index durable_replays_by_age on holdfast.durable_replays (at);

-- Long-term memory: items and turns of users, with the tables to find and to forget them.
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
  extractor text collate "C",                  -- its own wish; null without one, 'none' for no mining
  mined_at bigint,                -- when a job last mined turns of it
  held bigint not null default 0, -- so many items wait for a person
  text_form integer not null default 1,  -- the form in which texts were embedded
  created_at bigint not null,
  cleared_seq bigint not null default 0  -- of the last clearing: rows of an older copy were cleared
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
  tier text collate "C" not null
    check (tier in ('said', 'confirmed', 'assistant', 'outside', 'imported')),
  held text collate "C",                       -- why it waits for a person; null: it does not
  held_at bigint,
  said_by text collate "C" not null,           -- the user who wrote it, or ''
  origin_ref text collate "C" not null,        -- where outside text came from, or ''
  valid_from bigint not null,
  valid_to bigint,                -- null: still
  flags integer not null,          -- 1 asks, 2 first person, 4 names a time, 32 gives orders
  terms integer not null,          -- how many the body has
  fold bytea not null,              -- a hash of what is left of the text without case and marks
  body text collate "C" not null,              -- the terms that the analyzer makes of it, in order
  text text collate "C" not null check (octet_length(text) between 1 and 4096),
  primary key (collection, number),
  unique (collection, id)
);

create index ltm_items_by_fold on holdfast.ltm_items (collection, fold) where superseded_at is null;
create index ltm_items_by_terms on holdfast.ltm_items (collection, terms) where superseded_at is null;
create index ltm_items_by_time on holdfast.ltm_items (collection, created_at, superseded_at);
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
  tier text collate "C" not null check (tier in ('said', 'assistant', 'outside', 'imported')),
  held text collate "C",
  held_at bigint,
  said_by text collate "C" not null,
  origin_ref text collate "C" not null,
  flags integer not null,          -- as of items; 8 only asks, 16 says nothing
  covered integer not null default 0,  -- 1 once a job to mine it was queued
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
create index ltm_turns_uncovered on holdfast.ltm_turns (collection, number) where covered = 0;
create index ltm_turns_by_speaker on holdfast.ltm_turns (collection, speaker, role);

-- Which turns an item came from, by their numbers.
create table holdfast.ltm_links (
  workspace text collate "C" not null,
  collection bigint not null,
  item bigint not null,
  turn bigint not null,
  at bigint not null,             -- when it was linked
  primary key (collection, item, turn)
);

create index ltm_links_of_turn on holdfast.ltm_links (collection, turn, item);

-- What an item was at each change, for answers as of an earlier moment.
create table holdfast.ltm_item_history (
  workspace text collate "C" not null,
  collection bigint not null,
  item bigint not null,           -- its number
  seq bigint not null,            -- of the change, in the engine-wide order
  at bigint not null,
  actor text collate "C" not null,
  op text collate "C" not null check (op in ('create', 'update', 'supersede', 'restore', 'accept')),
  text text collate "C" not null,
  kind text collate "C" not null,
  importance double precision not null,
  tier text collate "C" not null,
  valid_from bigint not null,
  valid_to bigint,
  primary key (collection, item, seq)
);

-- When a row was last recalled, and how often; apart, so that a mark never writes a text again.
create table holdfast.ltm_access (
  workspace text collate "C" not null,
  collection bigint not null,
  number bigint not null,
  last_accessed_at bigint not null,
  access_count bigint not null,
  primary key (collection, number)
);

-- Recorded messages of a thread, in order: 8-byte fingerprints, in chunks.
create table holdfast.ltm_cursors (
  workspace text collate "C" not null,
  collection bigint not null,
  thread_id text collate "C" not null,
  chunk integer not null,
  fingerprints bytea not null,
  primary key (collection, thread_id, chunk)
);

-- Of a forgotten row: keyed 8-byte hashes of its terms, and of a turn its fingerprint.
create table holdfast.ltm_tombstones (
  workspace text collate "C" not null,
  collection bigint not null,
  id text collate "C" not null,
  at bigint not null,
  terms bytea not null,
  fingerprint bytea,
  primary key (collection, id)
);

-- The random key of a user's hashes, made when it is first needed.
create table holdfast.ltm_secrets (
  workspace text collate "C" not null,
  user_id text collate "C" not null,
  secret bytea not null check (octet_length(secret) = 32),
  primary key (workspace, user_id)
);

-- Background jobs. A finished one is deleted; a running one is leased to one worker.
create table holdfast.ltm_jobs (
  number bigint primary key,
  workspace text collate "C" not null,
  collection bigint not null,
  kind text collate "C" not null check (kind in ('extract', 'embed', 'reembed')),
  state text collate "C" not null check (state in ('queued', 'running', 'failed')),
  about text collate "C" not null,             -- the numbers of the rows it is about: a JSON array
  model text collate "C",         -- the extractor's name; null without one
  attempts integer not null,
  next_at bigint not null,        -- not before then
  token text collate "C",                      -- of the worker that runs it
  leased_until bigint,
  error text collate "C",                      -- the type of what it failed with
  tried_at bigint,                   -- when it last failed
  failing_since bigint,              -- since when each try of it has failed
  created_at bigint not null,
  check ((state = 'running') = (token is not null and leased_until is not null))
);

create index ltm_jobs_due on holdfast.ltm_jobs (state, next_at);
create index ltm_jobs_of_collection on holdfast.ltm_jobs (collection, kind, state);

-- Tokens that mining has used, a row for each day: the number of days since 1970, UTC.
create table holdfast.mining_spending (
  workspace text collate "C" not null,
  day integer not null,
  tokens bigint not null,
  primary key (workspace, day)
);

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

-- The engine-wide number of a collection's last vector change, for caches.
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

-- Runs: a record of each, its entries and last events; checkpoints.

create table holdfast.runs (
  workspace text collate "C" not null,
  id text collate "C" not null,
  kind text collate "C" not null check (kind in (
    'step', 'task', 'plan', 'team', 'workflow', 'network', 'agent', 'session', 'memory'
  )),
  name text collate "C" not null,
  definition text collate "C",
  definition_version text collate "C",
  agent text collate "C",
  status text collate "C" not null check (status in (
    'queued', 'running', 'waiting', 'lost', 'completed', 'failed', 'cancelled'
  )),
  reason text collate "C",                     -- of its end
  detail text collate "C",
  error text collate "C",                      -- a JSON object: name, message
  metadata text collate "C" not null,          -- a JSON object
  input text collate "C",                      -- JSON
  queue text collate "C",
  priority bigint,
  not_before bigint,
  thread_id text collate "C",
  parent_id text collate "C",                  -- the run that it is part of
  forked_run text collate "C",
  forked_version bigint,
  fence bigint not null,          -- how often it was acquired; only the last owner writes
  holder text collate "C",                     -- that owner; null where there never was one
  place text collate "C",                      -- the process of that owner
  lease_until bigint,             -- null while it has no owner
  cancel_wanted text collate "C",              -- the reason why another process wants its end
  usage text collate "C",                      -- a JSON object
  extras text collate "C",                     -- a JSON object
  batch bigint not null,          -- the holder's last report that was taken
  seq bigint not null,            -- of its last event
  entries bigint not null,
  bytes bigint not null,
  versions bigint not null default 0,       -- the number of the newest
  version_bytes bigint not null default 0,  -- of the rows of versions and of messages
  losses integer not null default 0,        -- how often it was lost since its newest version
  started_at bigint not null,
  seen_at bigint not null,        -- the last sign of life
  ended_at bigint,
  primary key (workspace, id),
  check ((status in ('completed', 'failed', 'cancelled')) = (ended_at is not null))
);

create index runs_by_age on holdfast.runs (workspace, started_at, id);
-- Records that make room for newer ones; those of a thread go with the thread.
create index runs_by_end on holdfast.runs (workspace, coalesce(ended_at, seen_at), id)
  where thread_id is null;
create index runs_of_thread on holdfast.runs (workspace, thread_id, started_at, id)
  where thread_id is not null;
create index runs_of_parent on holdfast.runs (workspace, parent_id, started_at, id)
  where parent_id is not null;
create index runs_in_queue on holdfast.runs (workspace, queue, priority, not_before)
  where status = 'queued';
create index runs_waiting on holdfast.runs (workspace, id) where status = 'waiting';
create index runs_to_lapse on holdfast.runs (lease_until) where status = 'running';

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
  part text collate "C",
  agent text collate "C",
  call_id text collate "C",
  data text collate "C" not null,              -- a JSON object
  written bigint not null,        -- bytes of the data of the run's events up to this one
  primary key (workspace, run_id, seq),
  foreign key (workspace, run_id) references holdfast.runs (workspace, id)
);

-- The parts of a run as they are now: its tasks, steps, items, nodes, calls of agents.
create table holdfast.run_parts (
  workspace text collate "C" not null,
  run_id text collate "C" not null,
  id text collate "C" not null,
  kind text collate "C" not null check (kind in ('task', 'step', 'item', 'node', 'agent', 'board_task')),
  title text collate "C",
  state text collate "C" not null check (state in (
    'pending', 'running', 'waiting', 'completed', 'failed', 'blocked', 'cancelled'
  )),
  within text collate "C",                     -- the part that it belongs to
  depends_on text collate "C" not null,        -- a JSON array of parts
  agent text collate "C",
  model text collate "C",
  attempts bigint not null,
  cause text collate "C",                      -- why it failed, waits, or is blocked
  usage text collate "C",                      -- a JSON object
  place bigint not null,          -- in the order of their first events
  started_at bigint,
  ended_at bigint,
  primary key (workspace, run_id, kind, id),
  foreign key (workspace, run_id) references holdfast.runs (workspace, id) on delete cascade
);

-- What a run knew, version by version. A version has rows for what it changed alone.
create table holdfast.run_versions (
  workspace text collate "C" not null,
  run_id text collate "C" not null,
  number bigint not null,
  at bigint not null,
  cause text collate "C" not null,
  part text collate "C",
  agent text collate "C",
  fence bigint not null,
  changed text collate "C" not null,           -- a JSON array of the keys that it changed, 1,000 at most
  bytes bigint not null,          -- of its rows
  gaps bigint not null,           -- rows of it that were forgotten
  primary key (workspace, run_id, number),
  foreign key (workspace, run_id) references holdfast.runs (workspace, id) on delete cascade
);

create table holdfast.run_version_rows (
  workspace text collate "C" not null,
  run_id text collate "C" not null,
  kind text collate "C" not null,              -- entry, value, part, board, message, result, start, once, state
  key text collate "C" not null,
  number bigint not null,
  place bigint not null,          -- in the order of first writes since the key was deleted
  body bytea,                       -- JSON; null where the key was deleted
  bytes bigint not null,
  primary key (workspace, run_id, kind, key, number),
  foreign key (workspace, run_id) references holdfast.runs (workspace, id) on delete cascade
);

create index run_rows_by_version on holdfast.run_version_rows (workspace, run_id, number);

-- Messages of a part, as its model was sent and has answered them.
create table holdfast.run_turns (
  workspace text collate "C" not null,
  run_id text collate "C" not null,
  part text collate "C" not null,
  n bigint not null,
  agent text collate "C",
  body bytea not null,              -- JSON
  primary key (workspace, run_id, part, n),
  foreign key (workspace, run_id) references holdfast.runs (workspace, id) on delete cascade
);

-- Long texts of a run, such as system texts and schemas, once each.
create table holdfast.run_texts (
  workspace text collate "C" not null,
  run_id text collate "C" not null,
  sha256 text collate "C" not null,
  body bytea not null,
  primary key (workspace, run_id, sha256),
  foreign key (workspace, run_id) references holdfast.runs (workspace, id) on delete cascade
);

create table holdfast.run_questions (
  workspace text collate "C" not null,
  id text collate "C" not null,
  run_id text collate "C" not null,
  kind text collate "C" not null check (kind in ('approval', 'question', 'external')),
  key text collate "C" not null,               -- what makes it the same question when it is asked again
  text text collate "C" not null,
  schema text collate "C",                     -- a JSON Schema
  options text collate "C",                    -- a JSON array
  part text collate "C",
  agent text collate "C",
  tool text collate "C",
  call_id text collate "C",
  arguments text collate "C",                  -- JSON
  who text collate "C" not null,               -- a JSON array
  status text collate "C" not null check (status in ('open', 'answered', 'expired', 'withdrawn')),
  default_value text collate "C",              -- JSON: the answer once it has expired
  answer text collate "C",                     -- JSON
  answered_by text collate "C",
  note text collate "C",
  asked_at bigint not null,
  expires_at bigint,
  answered_at bigint,
  primary key (workspace, id),
  foreign key (workspace, run_id) references holdfast.runs (workspace, id) on delete cascade
);

create index run_questions_of_run on holdfast.run_questions (workspace, run_id, asked_at, id);
create index run_questions_by_age on holdfast.run_questions (workspace, status, asked_at, id);
create index run_questions_to_expire on holdfast.run_questions (expires_at)
  where status = 'open' and expires_at is not null;

-- Effects of tool calls that happen once, with their first answers.
create table holdfast.run_effects (
  workspace text collate "C" not null,
  run_id text collate "C" not null,
  key text collate "C" not null,               -- part:call_id
  fence bigint not null,
  at bigint not null,
  outcome text collate "C" not null,           -- JSON
  primary key (workspace, run_id, key),
  foreign key (workspace, run_id) references holdfast.runs (workspace, id) on delete cascade
);

-- How much a workspace keeps of its runs; without a row it is the default.
create table holdfast.run_limits (
  workspace text collate "C" not null,
  versions bigint not null check (versions >= 1),
  bytes bigint not null check (bytes >= 0),
  ended bigint not null check (ended >= 0),
  primary key (workspace)
);

-- Threads: conversations with networks of agents over many runs.

create table holdfast.threads (
  workspace text collate "C" not null,
  id text collate "C" not null check (octet_length(id) between 1 and 128),
  created_at bigint not null,
  updated_at bigint not null,
  turns bigint not null,
  user_id text collate "C",          -- whose it is; null is nobody's
  primary key (workspace, id)
);

create index threads_by_age on holdfast.threads (workspace, created_at, id);
create index threads_of_user on holdfast.threads (workspace, user_id, created_at, id)
  where user_id is not null;

-- The number is that of the writing in the engine-wide order, so it orders a thread's turns.
create table holdfast.thread_turns (
  seq bigint primary key,
  workspace text collate "C" not null,
  thread_id text collate "C" not null,
  id text collate "C" not null,
  kind text collate "C" not null check (kind in ('user', 'result', 'foreign')),
  run_id text collate "C",
  agent text collate "C",            -- the author of a result
  at bigint not null,
  checksum text collate "C" not null,
  size_bytes bigint not null,        -- of the body
  body text collate "C" not null,    -- JSON
  check ((kind = 'result') = (agent is not null))
);

create unique index thread_turns_by_id on holdfast.thread_turns (workspace, thread_id, id);
-- Covers planning of a page and forgetting of an agent, which read no bodies.
create index thread_turns_in_order on holdfast.thread_turns
  (workspace, thread_id, seq) include (kind, agent, size_bytes);

-- Sizes of a workspace, one row a day; the bytes are those of the whole database.
create table holdfast.samples (
  workspace text collate "C" not null,
  day bigint not null,            -- days since 1970, UTC
  bytes bigint not null,
  memories bigint not null,
  versions bigint not null,
  entries bigint not null,
  items bigint not null,
  turns bigint not null,
  runs bigint not null,
  primary key (workspace, day)
);

-- Which objects belong to a person, besides the rows that carry the user.
create table holdfast.subjects (
  workspace text collate "C" not null,
  user_id text collate "C" not null,
  kind text collate "C" not null check (kind in (
    'thread', 'run', 'network_run', 'durable_entry', 'store', 'memory', 'version', 'consolidation'
  )),
  object_id text collate "C" not null,
  at bigint not null,
  primary key (workspace, user_id, kind, object_id)
);

create index subjects_by_object on holdfast.subjects (workspace, kind, object_id);

-- Runs and threads take their links with them.
create function holdfast.subject_went() returns trigger language plpgsql as $$
begin
  delete from holdfast.subjects
  where workspace = old.workspace and kind = any (tg_argv::text[]) and object_id = old.id;
  return null;
end
$$;

create trigger run_went after delete on holdfast.runs
  for each row execute function holdfast.subject_went('run', 'network_run');
create trigger thread_went after delete on holdfast.threads
  for each row execute function holdfast.subject_went('thread');

-- Erasures of people and agents, by the keyed hash of the name; none holds a name.
create table holdfast.erasures (
  workspace text collate "C" not null,
  id text collate "C" not null,
  number bigint not null,         -- its place in the workspace's chain; 0 until completed
  kind text collate "C" not null check (kind in ('user', 'agent')),
  subject bytea not null,
  at bigint not null,             -- what was recorded up to then is erased
  seq bigint not null,
  state text collate "C" not null check (state in ('running', 'pending', 'completed')),
  completed_at bigint,
  counts text collate "C" not null,            -- JSON
  unreached text collate "C" not null,         -- JSON
  pending text collate "C" not null,           -- JSON: vectors still to be deleted elsewhere
  names text collate "C" not null,             -- JSON: keyed hashes of names redacted elsewhere
  actor text collate "C" not null,             -- JSON
  receipt text collate "C",                    -- canonical JSON, once completed
  link text collate "C",
  mac text collate "C",
  primary key (workspace, id)
);

create index erasures_by_subject on holdfast.erasures (workspace, kind, subject);

-- Backups that were made, which may hold what was erased since.
create table holdfast.backups (
  workspace text collate "C" not null,
  at bigint not null,
  seq bigint not null,
  rows bigint not null,
  name text collate "C" not null,
  primary key (workspace, at, name)
);

-- Proposals to tidy a memory, made by jobs and accepted or rejected by people.
create table holdfast.consolidations (
  workspace text collate "C" not null,
  id text collate "C" not null,
  owner_kind text collate "C" not null check (owner_kind in ('user', 'store', 'agent')),
  owner text collate "C" not null,             -- the user, store or agent
  scope text collate "C" not null,             -- JSON: namespace and workspace_id of a collection
  status text collate "C" not null check (status in (
    'pending', 'running', 'partial', 'completed', 'failed', 'cancelled'
  )),
  proposal text collate "C" not null check (proposal in (
    'open', 'accepted', 'rejected', 'stale', 'undone'
  )),
  request text collate "C" not null,           -- JSON: model, instructions, output
  base bigint not null,
  budget text collate "C" not null,            -- JSON
  usage text collate "C" not null,             -- JSON
  progress text collate "C" not null,          -- JSON
  token text collate "C",
  leased_until bigint,
  error text collate "C",
  created_at bigint not null,
  ended_at bigint,
  dream text collate "C",                      -- JSON: what a dream was asked for, and its output
  archived_at bigint,
  primary key (workspace, id)
);

create index consolidations_due on holdfast.consolidations (status, leased_until);
create index consolidations_of_owner on holdfast.consolidations (workspace, owner_kind, owner, id);

create table holdfast.consolidation_changes (
  workspace text collate "C" not null,
  job text collate "C" not null,
  n integer not null,
  op text collate "C" not null check (op in (
    'merge', 'supersede', 'promote', 'expire', 'hold', 'edit', 'create', 'move', 'conflict'
  )),
  before text collate "C" not null,            -- JSON
  after text collate "C" not null,             -- JSON
  reason text collate "C" not null,
  evidence text collate "C" not null,          -- JSON
  state text collate "C" not null check (state in ('open', 'applied', 'rejected', 'stale', 'undone')),
  applied text collate "C",                    -- JSON: what was written, to undo it
  primary key (workspace, job, n)
);

-- Calls to a model, for replays; redacted.
create table holdfast.consolidation_calls (
  workspace text collate "C" not null,
  job text collate "C" not null,
  n integer not null,
  prompt text collate "C" not null,
  answer text collate "C" not null,
  usage text collate "C" not null,             -- JSON
  at bigint not null,
  primary key (workspace, job, n)
);

-- What is consolidated by itself, and which changes are then accepted without a person.
create table holdfast.consolidation_policies (
  workspace text collate "C" not null,
  owner_kind text collate "C" not null check (owner_kind in ('user', 'store', 'agent')),
  owner text collate "C" not null,             -- the user, store or agent
  scope text collate "C" not null,             -- JSON: namespace and workspace_id of a collection
  request text collate "C" not null,           -- JSON: operations, hours, writes, model, budget
  base bigint not null,
  job text collate "C",                        -- the job that runs
  due_at bigint not null,
  created_at bigint not null,
  primary key (workspace, owner_kind, owner, scope)
);

create index consolidation_policies_due on holdfast.consolidation_policies (due_at);

-- Names of what was deleted, so that it stays deleted when an older backup is restored.

-- Of a user who was forgotten only the keyed hash of the name is left.
create table holdfast.user_tombstones (
  workspace text collate "C" not null,
  user_hash bytea not null,
  seq bigint not null,
  at bigint not null,
  primary key (workspace, user_hash)
);

-- Of a thread that was deleted only the keyed hash of its id is left.
create table holdfast.thread_tombstones (
  workspace text collate "C" not null,
  thread_hash bytea not null,
  seq bigint not null,
  at bigint not null,
  primary key (workspace, thread_hash)
);

-- The random key of those hashes, made when a workspace first needs one.
create table holdfast.tombstone_secrets (
  workspace text collate "C" primary key,
  secret bytea not null check (octet_length(secret) = 32)
);

-- The planner's statistics hold samples of a column, also of deleted rows: none of columns with
-- content or names that can be redacted, deleted or forgotten.
alter table holdfast.stores
  alter column name set statistics 0, alter column description set statistics 0,
  alter column metadata set statistics 0;
alter table holdfast.memories
  alter column path set statistics 0, alter column content_sha256 set statistics 0;
alter table holdfast.versions
  alter column path set statistics 0, alter column content set statistics 0,
  alter column content_sha256 set statistics 0;
alter table holdfast.memory_words alter column word set statistics 0;
alter table holdfast.store_edits alter column digest set statistics 0;
alter table holdfast.session_stores
  alter column name set statistics 0, alter column description set statistics 0,
  alter column instructions set statistics 0, alter column mount_path set statistics 0;
alter table holdfast.sessions
  alter column title set statistics 0, alter column agent set statistics 0,
  alter column metadata set statistics 0;
alter table holdfast.stored_objects alter column parts set statistics 0;
alter table holdfast.durable_entries
  alter column key set statistics 0, alter column category set statistics 0,
  alter column tags set statistics 0, alter column created_by set statistics 0,
  alter column updated_by set statistics 0, alter column content set statistics 0,
  alter column agent set statistics 0, alter column run_id set statistics 0;
alter table holdfast.durable_changes
  alter column key set statistics 0, alter column category set statistics 0,
  alter column content set statistics 0, alter column content_sha256 set statistics 0,
  alter column actor set statistics 0, alter column evicted_for set statistics 0,
  alter column cause set statistics 0, alter column agent set statistics 0,
  alter column run_id set statistics 0;
alter table holdfast.durable_tombstones
  alter column actor set statistics 0, alter column agent set statistics 0,
  alter column run_id set statistics 0;
alter table holdfast.durable_runs
  alter column lane set statistics 0, alter column agent set statistics 0,
  alter column run_id set statistics 0;
alter table holdfast.durable_lanes
  alter column lane set statistics 0, alter column agent set statistics 0;
alter table holdfast.durable_agents alter column agent set statistics 0;
alter table holdfast.durable_limits alter column agent set statistics 0;
alter table holdfast.durable_replays alter column agent set statistics 0;
alter table holdfast.ltm_collections
  alter column user_id set statistics 0, alter column namespace set statistics 0,
  alter column workspace_id set statistics 0;
alter table holdfast.ltm_items
  alter column source set statistics 0, alter column said_by set statistics 0,
  alter column origin_ref set statistics 0, alter column fold set statistics 0,
  alter column body set statistics 0, alter column text set statistics 0;
alter table holdfast.ltm_turns
  alter column speaker set statistics 0, alter column thread_id set statistics 0,
  alter column session set statistics 0, alter column said_by set statistics 0,
  alter column origin_ref set statistics 0, alter column fingerprint set statistics 0,
  alter column caption set statistics 0, alter column body set statistics 0,
  alter column text set statistics 0;
alter table holdfast.ltm_cursors
  alter column thread_id set statistics 0, alter column fingerprints set statistics 0;
alter table holdfast.ltm_tombstones
  alter column terms set statistics 0, alter column fingerprint set statistics 0;
alter table holdfast.ltm_vectors alter column vector set statistics 0;
alter table holdfast.ltm_lex alter column lex set statistics 0;
alter table holdfast.ltm_df alter column term set statistics 0;
alter table holdfast.runs
  alter column name set statistics 0, alter column definition set statistics 0,
  alter column agent set statistics 0, alter column metadata set statistics 0,
  alter column detail set statistics 0, alter column error set statistics 0,
  alter column input set statistics 0, alter column thread_id set statistics 0,
  alter column cancel_wanted set statistics 0, alter column usage set statistics 0,
  alter column extras set statistics 0;
alter table holdfast.run_entries
  alter column key set statistics 0, alter column told set statistics 0,
  alter column value set statistics 0;
alter table holdfast.run_events
  alter column data set statistics 0, alter column agent set statistics 0,
  alter column part set statistics 0;
alter table holdfast.run_parts
  alter column id set statistics 0, alter column title set statistics 0,
  alter column within set statistics 0, alter column depends_on set statistics 0,
  alter column agent set statistics 0, alter column cause set statistics 0,
  alter column usage set statistics 0;
alter table holdfast.run_versions
  alter column part set statistics 0, alter column agent set statistics 0,
  alter column changed set statistics 0;
alter table holdfast.run_version_rows
  alter column key set statistics 0, alter column body set statistics 0;
alter table holdfast.run_turns
  alter column part set statistics 0, alter column agent set statistics 0,
  alter column body set statistics 0;
alter table holdfast.run_texts alter column body set statistics 0;
alter table holdfast.run_questions
  alter column key set statistics 0, alter column text set statistics 0,
  alter column schema set statistics 0, alter column options set statistics 0,
  alter column part set statistics 0, alter column agent set statistics 0,
  alter column tool set statistics 0, alter column arguments set statistics 0,
  alter column who set statistics 0, alter column default_value set statistics 0,
  alter column answer set statistics 0, alter column answered_by set statistics 0,
  alter column note set statistics 0;
alter table holdfast.run_effects
  alter column key set statistics 0, alter column outcome set statistics 0;
alter table holdfast.threads
  alter column id set statistics 0, alter column user_id set statistics 0;
alter table holdfast.thread_turns
  alter column thread_id set statistics 0, alter column id set statistics 0,
  alter column run_id set statistics 0, alter column agent set statistics 0,
  alter column checksum set statistics 0, alter column body set statistics 0;
alter table holdfast.ltm_secrets alter column user_id set statistics 0;
alter table holdfast.ltm_item_history
  alter column actor set statistics 0, alter column text set statistics 0;
alter table holdfast.subjects
  alter column user_id set statistics 0, alter column object_id set statistics 0;
alter table holdfast.consolidations
  alter column owner set statistics 0, alter column scope set statistics 0,
  alter column request set statistics 0;
alter table holdfast.consolidation_changes
  alter column before set statistics 0, alter column after set statistics 0,
  alter column reason set statistics 0, alter column evidence set statistics 0,
  alter column applied set statistics 0;
alter table holdfast.consolidation_calls
  alter column prompt set statistics 0, alter column answer set statistics 0;

-- Compression of vectors saves nothing.
alter table holdfast.ltm_vectors alter column vector set storage external;

-- Every row belongs to a workspace, whatever a statement requests.
do $$
declare
  name text;
begin
  for name in
    select relname from pg_class
    where relnamespace = cast('holdfast' as regnamespace) and relkind = 'r'
      and relname <> 'migrations'
  loop
    execute format('alter table holdfast.%I enable row level security', name);
    execute format('alter table holdfast.%I force row level security', name);
    execute format('create policy its_workspace on holdfast.%I
      using (current_setting(''holdfast.workspace'', true) in (workspace, ''*''))
      with check (current_setting(''holdfast.workspace'', true) in (workspace, ''*''))', name);
  end loop;
end
$$;

-- Rows of durable memory belong to an agent, or to the workspace (agent '').
do $$
declare
  name text;
begin
  foreach name in array array[
    'durable_entries', 'durable_agents', 'durable_limits', 'durable_changes',
    'durable_tombstones', 'durable_runs', 'durable_lanes', 'durable_replays'
  ] loop
    execute format('create policy its_agent on holdfast.%I as restrictive
      using (agent = '''' or current_setting(''holdfast.agent'', true) in (agent, ''*''))
      with check (agent = '''' or current_setting(''holdfast.agent'', true) in (agent, ''*''))', name);
  end loop;
end
$$;

-- Rows of a collection belong to its user. An index finds the user's collections once per
-- statement. `*` is for upkeep, which spans users. The tables of vectors name a collection by its id.
do $$
declare
  name text;
  col text;
  own text;
begin
  foreach name in array array[
    'ltm_items', 'ltm_turns', 'ltm_links', 'ltm_access', 'ltm_cursors', 'ltm_tombstones',
    'ltm_jobs', 'ltm_lex', 'ltm_df', 'ltm_vectors', 'ltm_vector_sets', 'ltm_item_history'
  ] loop
    col := case when name in ('ltm_vectors', 'ltm_vector_sets') then 'id' else 'number' end;
    own := format('collection in (
        select c.%I from holdfast.ltm_collections c
        where c.workspace = current_setting(''holdfast.workspace'', true)
          and c.user_id = current_setting(''holdfast.user'', true)
      ) or current_setting(''holdfast.user'', true) = ''*''', col);
    execute format('create policy its_user on holdfast.%I as restrictive using (%s) with check (%s)',
      name, own, own);
  end loop;
end
$$;

create policy its_user on holdfast.ltm_collections as restrictive
  using (current_setting('holdfast.user', true) in (user_id, '*'))
  with check (current_setting('holdfast.user', true) in (user_id, '*'));

create policy its_user on holdfast.ltm_secrets as restrictive
  using (current_setting('holdfast.user', true) in (user_id, '*'))
  with check (current_setting('holdfast.user', true) in (user_id, '*'));

-- Events of long-term memory belong to a user; other events with an owner belong to an agent.
create policy its_owner on holdfast.changes as restrictive
  using (owner is null or current_setting(
      case when type like 'longterm.%' then 'holdfast.user' else 'holdfast.agent' end, true
    ) in (owner, '*'))
  with check (owner is null or current_setting(
      case when type like 'longterm.%' then 'holdfast.user' else 'holdfast.agent' end, true
    ) in (owner, '*'));

-- A credential is looked up before its workspace is known: a client that has the secret's hash
-- sees that one row, and may not write it.
create policy its_holder on holdfast.session_tokens for select
  using (secret_hash = current_setting('holdfast.credential', true));

create policy its_holder on holdfast.api_keys for select
  using (secret_hash = current_setting('holdfast.credential', true));

create policy its_holder on holdfast.console_sessions for select
  using (hash = current_setting('holdfast.credential', true));
