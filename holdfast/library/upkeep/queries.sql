-- What upkeep looks at: every workspace's rows.

-- all_stores --
select id, workspace, number, memories, words, link, last_at from stores order by id

-- versions_after --
select number, id, workspace, memory_id, seq, operation, path, content, content_sha256,
  content_size_bytes, created_at, actor_kind, actor_id, redacted_at, redacted_by_kind,
  redacted_by_id, salt, seal, link, tier, held
from versions
where store_id = :store and number > :after
order by number
limit :rows

-- heads_of_store --
select id, path, version_id, content_sha256, content_size_bytes, words, created_at, updated_at, tier,
  held
from memories
where store_id = :store
order by path

-- indexed_words (sqlite) --
select m.id, count(*) as words
from memory_terms t left join memories m on m.number = t.doc
group by t.doc

-- indexed_words (postgres) --
select memory_id as id, cast(sum(hits) as bigint) as words from memory_words group by memory_id

-- counted_words --
select id, words from memories where words > 0

-- words_of_store (sqlite) --
select term as word, count(distinct doc) as memories, count(*) as hits
from memory_terms
where term >= :low and term < :high
group by term

-- words_of_store (postgres) --
select word, count(*) as memories, cast(sum(hits) as bigint) as hits
from memory_words
where word >= :low and word < :high
group by word

-- strays (sqlite) --
-- Rows whose owner is not there, or is in another workspace.
select 'memories' as "table", m.id as id, coalesce(s.workspace, 'none') as found
from memories m left join stores s on s.id = m.store_id
where s.workspace is not m.workspace
union all
select 'versions', v.id, coalesce(s.workspace, 'none')
from versions v left join stores s on s.id = v.store_id
where s.workspace is not v.workspace
union all
select 'store_edits', e.id, coalesce(s.workspace, 'none')
from store_edits e left join stores s on s.id = e.store_id
where s.workspace is not e.workspace
union all
select 'session_stores', a.session_id, coalesce(s.workspace, 'none')
from session_stores a left join sessions s on s.id = a.session_id
where s.workspace is not a.workspace
union all
-- A session outlives the stores that it attached.
select 'session_stores', a.session_id, s.workspace
from session_stores a join stores s on s.id = a.memory_store_id
where s.workspace is not a.workspace
union all
select 'session_tokens', t.id, coalesce(s.workspace, 'none')
from session_tokens t left join sessions s on s.id = t.session_id
where s.workspace is not t.workspace

-- strays (postgres) --
select 'memories' as "table", m.id as id, coalesce(s.workspace, 'none') as found
from memories m left join stores s on s.id = m.store_id
where s.workspace is distinct from m.workspace
union all
select 'versions', v.id, coalesce(s.workspace, 'none')
from versions v left join stores s on s.id = v.store_id
where s.workspace is distinct from v.workspace
union all
select 'store_edits', e.id, coalesce(s.workspace, 'none')
from store_edits e left join stores s on s.id = e.store_id
where s.workspace is distinct from e.workspace
union all
select 'memory_words', w.memory_id, coalesce(m.workspace, 'none')
from (select distinct memory_id, workspace from memory_words) w
  left join memories m on m.id = w.memory_id
where m.workspace is distinct from w.workspace
union all
select 'session_stores', a.session_id, coalesce(s.workspace, 'none')
from session_stores a left join sessions s on s.id = a.session_id
where s.workspace is distinct from a.workspace
union all
select 'session_stores', a.session_id, s.workspace
from session_stores a join stores s on s.id = a.memory_store_id
where s.workspace is distinct from a.workspace
union all
select 'session_tokens', t.id, coalesce(s.workspace, 'none')
from session_tokens t left join sessions s on s.id = t.session_id
where s.workspace is distinct from t.workspace

-- miscounted_agents --
-- Agents whose row does not say what their entries come to, each with both.
select a.workspace, a.agent, a.entries, a.core_entries, a.size_bytes,
  coalesce(t.entries, 0) as counted_entries, coalesce(t.core_entries, 0) as counted_core_entries,
  coalesce(t.size_bytes, 0) as counted_size_bytes,
  case when t.expires_at is not null and (a.expires_at is null or a.expires_at > t.expires_at)
    then 1 else 0 end as late
from durable_agents a
left join (
  select workspace, agent, count(*) as entries, sum(pinned) as core_entries,
    cast(sum(size_bytes) as bigint) as size_bytes, min(expires_at) as expires_at
  from durable_entries
  where run_id = ''
  group by workspace, agent
) t on t.workspace = a.workspace and t.agent = a.agent
where a.entries <> coalesce(t.entries, 0) or a.core_entries <> coalesce(t.core_entries, 0)
  or a.size_bytes <> coalesce(t.size_bytes, 0)
  or (t.expires_at is not null and (a.expires_at is null or a.expires_at > t.expires_at))
order by a.workspace, a.agent

-- overdue --
-- What is over and still on disk: entries, and runs that nobody heard of.
select
  (select count(*) from durable_entries where expires_at is not null and expires_at < :now)
    as entries,
  (select count(*) from durable_runs where ended_at is null and seen_at < :lapsed) as runs,
  (select min(expires_at) from durable_entries
    where expires_at is not null and expires_at < :now) as expired_at,
  (select min(seen_at) from durable_runs where ended_at is null and seen_at < :lapsed) as seen_at

-- overdue_questions --
-- What runs wait for, and questions whose time is over and that nothing settled.
select
  (select count(*) from runs where status = 'waiting') as waiting,
  count(*) as questions,
  count(distinct workspace || ' ' || run_id) as runs,
  min(expires_at) as expired_at
from run_questions
where status = 'open' and expires_at is not null and expires_at < :now

-- untaken_runs --
-- Queued runs that no worker has taken, though it might have since :before, by what they need. A
-- worker that is at work on the same may only be busy.
select q.definition, coalesce(q.definition_version, '') as version, count(*) as runs
from runs q
where q.status = 'queued' and q.queue is not null and q.definition is not null
  and q.seen_at < :before and coalesce(q.not_before, 0) < :before
  and not exists (
    select 1 from runs r
    where r.workspace = q.workspace and r.definition = q.definition
      and r.status = 'running' and r.lease_until >= :now
      and (q.definition_version is null or r.definition_version = q.definition_version))
group by q.definition, coalesce(q.definition_version, '')
order by 1, 2
limit 10

-- dbos_tables (sqlite) --
-- They are in a file of their own.
select false

-- dbos_tables (postgres) --
-- Looked up in the catalog, which every role may read.
select exists (
  select 1 from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = 'dbos' and c.relname = 'workflow_status')

-- other_tiers (sqlite) --
-- Entries with another tier or hold than the change of the log that wrote them.
select 'durable_entries' as "table", e.id as id, e.tier || coalesce(' ' || e.held, '') as found
from durable_entries e join durable_changes c on c.seq = e.seq and c.entry is not null
where coalesce(json_extract(c.entry, '$[5]'), 'said') <> e.tier
  or coalesce(json_extract(c.entry, '$[7]'), '') <> coalesce(e.held, '')

-- other_tiers (postgres) --
select 'durable_entries' as "table", e.id as id, e.tier || coalesce(' ' || e.held, '') as found
from durable_entries e join durable_changes c on c.seq = e.seq and c.entry is not null
where coalesce(cast(c.entry as jsonb) ->> 5, 'said') <> e.tier
  or coalesce(cast(c.entry as jsonb) ->> 7, '') <> coalesce(e.held, '')

-- stray_durable --
-- Rows of agents that are not there, and entries of runs that are not live.
select 'durable_entries' as "table", e.id as id, 'no agent' as found
from durable_entries e
where not exists (
  select 1 from durable_agents a where a.workspace = e.workspace and a.agent = e.agent)
union all
select 'durable_entries', e.id, 'no live run'
from durable_entries e
where e.run_id <> '' and not exists (
  select 1 from durable_runs r
  where r.workspace = e.workspace and r.agent = e.agent and r.run_id = e.run_id
    and r.ended_at is null)
union all
select 'durable_changes', cast(c.seq as text), 'no agent'
from durable_changes c
where not exists (
  select 1 from durable_agents a where a.workspace = c.workspace and a.agent = c.agent)
union all
select 'durable_runs', r.run_id, 'no agent'
from durable_runs r
where not exists (
  select 1 from durable_agents a where a.workspace = r.workspace and a.agent = r.agent)
union all
select 'durable_runs', r.run_id, 'no lane'
from durable_runs r
where r.ended_at is null and not exists (
  select 1 from durable_lanes l
  where l.workspace = r.workspace and l.agent = r.agent and l.lane = r.lane and l.token = r.token)

-- stray_runs --
-- Entries and events of runs that there is no record of.
select 'run_entries' as "table", e.run_id as id, 'no run' as found
from run_entries e
where not exists (select 1 from runs r where r.workspace = e.workspace and r.id = e.run_id)
union
select 'run_events', e.run_id, 'no run'
from run_events e
where not exists (select 1 from runs r where r.workspace = e.workspace and r.id = e.run_id)

-- all_runs --
select r.id, r.entries, r.bytes, r.seq,
  (select count(*) from run_entries e where e.workspace = r.workspace and e.run_id = r.id)
    as counted_entries,
  (select cast(coalesce(sum(e.value_bytes), 0) as bigint) from run_entries e
    where e.workspace = r.workspace and e.run_id = r.id) as counted_bytes,
  (select coalesce(max(e.seq), 0) from run_events e
    where e.workspace = r.workspace and e.run_id = r.id) as last_seq
from runs r
order by r.workspace, r.id

-- stray_threads --
-- Turns and runs of threads that are not there.
select 'thread_turns' as "table", t.id as id, 'no thread' as found
from thread_turns t
where not exists (
  select 1 from threads h where h.workspace = t.workspace and h.id = t.thread_id)
union all
select 'runs', r.id, 'no thread'
from runs r
where r.thread_id is not null and not exists (
  select 1 from threads h where h.workspace = r.workspace and h.id = r.thread_id)

-- miscounted_threads --
select h.id, h.turns, h.counted_turns
from (
  select t.id, t.turns, (
    select count(*) from thread_turns u
    where u.workspace = t.workspace and u.thread_id = t.id
  ) as counted_turns
  from threads t
) h
where h.turns <> h.counted_turns

-- thread_turns_after --
select seq, workspace, id, kind, agent, checksum, size_bytes,
  case when :bodies = 1 then body else '' end as body
from thread_turns
where seq > :after
order by seq
limit :rows

-- durable_entries_after (sqlite) --
select workspace, agent, run_id, key, id, category, tags, size_bytes, seq,
  length(cast(content as blob)) as content_bytes
from durable_entries
where (workspace, agent, run_id, key) > (:workspace_after, :agent_after, :run_after, :key_after)
order by workspace, agent, run_id, key
limit :rows

-- durable_entries_after (postgres) --
select workspace, agent, run_id, key, id, category, tags, size_bytes, seq,
  octet_length(content) as content_bytes
from durable_entries
where (workspace, agent, run_id, key) > (:workspace_after, :agent_after, :run_after, :key_after)
order by workspace, agent, run_id, key
limit :rows

-- durable_changes_after --
select seq, workspace, agent, run_id, key, content, content_sha256
from durable_changes
where seq > :after
order by seq
limit :rows

-- tombstones --
select t.workspace, t.agent, t.run_id, t.key_hash, t.seq, t.at, t.actor, s.secret
from durable_tombstones t
join durable_secrets s on s.workspace = t.workspace
order by t.seq

-- longterm_graves --
select c.workspace, c.user_id, c.namespace, c.workspace_id, c.id as collection_id, t.id, t.at,
    t.terms, t.fingerprint, s.secret
from ltm_tombstones t
join ltm_collections c on c.number = t.collection
join ltm_secrets s on s.workspace = c.workspace and s.user_id = c.user_id
order by c.number, t.id

-- user_tombstones --
select t.workspace, t.user_hash as name_hash, t.seq, t.at, s.secret
from user_tombstones t
join tombstone_secrets s on s.workspace = t.workspace
order by t.seq

-- users_with_memory (sqlite) --
select workspace, user_id as name from ltm_collections
union
select workspace, user_id from threads where user_id is not null
union
select workspace, user_id from subjects
union
select workspace, owner from consolidations where owner_kind = 'user'
union
select workspace, owner from consolidation_policies where owner_kind = 'user'
union
select workspace, json_extract(metadata, '$."holdfast.user"') from stores
where json_extract(metadata, '$."holdfast.user"') is not null
order by workspace, name

-- users_with_memory (postgres) --
select workspace, user_id as name from ltm_collections
union
select workspace, user_id from threads where user_id is not null
union
select workspace, user_id from subjects
union
select workspace, owner from consolidations where owner_kind = 'user'
union
select workspace, owner from consolidation_policies where owner_kind = 'user'
union
select workspace, cast(metadata as jsonb) ->> 'holdfast.user' from stores
where cast(metadata as jsonb) ->> 'holdfast.user' is not null
order by workspace, name

-- carry_user_tombstone --
insert into user_tombstones (workspace, user_hash, seq, at)
values (:of, :name_hash, :seq, :at)
on conflict (workspace, user_hash) do update set seq = excluded.seq, at = excluded.at

-- carry_tombstone_secret --
insert into tombstone_secrets (workspace, secret) values (:of, :secret)
on conflict (workspace) do nothing

-- tombstone_secret --
select secret from tombstone_secrets where workspace = :of

-- cleared_collections --
select workspace, user_id, namespace, workspace_id, id as collection_id, cleared_seq as seq
from ltm_collections
where cleared_seq > 0
order by number

-- collection_clearings --
select id as collection_id, cleared_seq as seq from ltm_collections

-- thread_tombstones --
select t.workspace, t.thread_hash as name_hash, t.seq, t.at, s.secret
from thread_tombstones t
join tombstone_secrets s on s.workspace = t.workspace
order by t.seq

-- threads_with_rows --
-- Threads, and turns by thread, slash and id.
select workspace, id as name from threads
union
select workspace, thread_id from thread_turns
union
select workspace, thread_id || '/' || id from thread_turns
union
select workspace, thread_id from runs where thread_id is not null
order by workspace, name

-- carry_thread_tombstone --
insert into thread_tombstones (workspace, thread_hash, seq, at)
values (:of, :name_hash, :seq, :at)
on conflict (workspace, thread_hash) do update set seq = excluded.seq, at = excluded.at

-- oldest_of_users --
-- The oldest row of each collection, and whose that is.
select c.id, c.workspace, c.user_id as name, c.cleared_seq, min(r.number) as number
from ltm_collections c
join (
  select collection, number from ltm_items
  union all
  select collection, number from ltm_turns
) r on r.collection = c.number
group by c.id, c.workspace, c.user_id, c.cleared_seq
order by c.id

-- oldest_of_threads --
select workspace, thread_id as name, min(seq) as number
from thread_turns
group by workspace, thread_id
union all
select workspace, thread_id || '/' || id, seq
from thread_turns
order by workspace, name

-- secret_of_workspace --
select secret from durable_secrets where workspace = :of

-- carry_secret --
insert into durable_secrets (workspace, secret) values (:of, :secret)
on conflict (workspace) do nothing

-- carry_tombstone --
insert into durable_tombstones (workspace, agent, run_id, key_hash, seq, at, actor)
values (:of, :owner, :run, :key_hash, :seq, :at, :actor)
on conflict (workspace, agent, run_id, key_hash) do nothing

-- redacted_changes --
select c.workspace, c.seq, c.redacted_at, case when exists (
    select 1 from durable_entries e
    where e.workspace = c.workspace and e.agent = c.agent and e.run_id = c.run_id
      and e.key = c.key and e.seq = c.seq
  ) then 1 else 0 end as live
from durable_changes c
where c.redacted_at is not null

-- redact_change_again --
update durable_changes
set content = null, content_sha256 = null, entry = null, redacted_at = :redacted_at
where seq = :seq and workspace = :of and redacted_at is null

-- agents_with_memory --
-- Durable memory, results in threads, or runs.
select workspace, agent from durable_agents where agent <> ''
union
select workspace, agent from thread_turns where agent is not null
union
select workspace, agent from runs where agent is not null
order by workspace, agent

-- redacted_versions --
select id, redacted_at, redacted_by_kind, redacted_by_id
from versions
where redacted_at is not null
order by redacted_at, number

-- integrity (sqlite) --
select integrity_check as finding from pragma_integrity_check

-- quick_integrity (sqlite) --
select quick_check as finding from pragma_quick_check

-- integrity (postgres) --
-- Tables are counted one by one instead.
select '' as finding where false

-- quick_integrity (postgres) --
select '' as finding where false

-- by_rows (sqlite) --
select 1 as done

-- by_rows (postgres) --
select set_config('enable_seqscan', 'on', true), set_config('enable_indexscan', 'off', true),
  set_config('enable_indexonlyscan', 'off', true), set_config('enable_bitmapscan', 'off', true)

-- by_key (sqlite) --
select 1 as done

-- by_key (postgres) --
select set_config('enable_seqscan', 'off', true), set_config('enable_sort', 'off', true),
  set_config('enable_indexscan', 'on', true), set_config('enable_indexonlyscan', 'on', true)

-- by_any (sqlite) --
select 1 as done

-- by_any (postgres) --
select set_config(name, reset_val, true)
from pg_settings
where name in ('enable_seqscan', 'enable_indexscan', 'enable_indexonlyscan', 'enable_bitmapscan',
  'enable_sort')

-- index_checks (sqlite) --
select '' as name, '' as statement where false

-- index_checks (postgres) --
-- Of the extension alone: whoever may make functions could make one of that name.
select i.relname as name,
  format('select %I.bt_index_check(cast(%s as regclass), true)', n.nspname, i.oid) as statement
from pg_extension e
  join pg_depend d on d.refclassid = cast('pg_extension' as regclass) and d.refobjid = e.oid
    and d.classid = cast('pg_proc' as regclass)
  join pg_proc p on p.oid = d.objid and p.proname = 'bt_index_check' and p.pronargs = 2
  join pg_namespace n on n.oid = p.pronamespace
  join pg_class i on i.relnamespace = cast('holdfast' as regnamespace) and i.relkind = 'i'
  join pg_am a on a.oid = i.relam and a.amname = 'btree'
where e.extname = 'amcheck' and has_schema_privilege(n.oid, 'usage')
  and has_function_privilege(p.oid, 'execute')
order by 1

-- make_ready (sqlite) --
-- What a connection knows of the index of words it looks up again when it is asked for one, and
-- not when it is told to check the index, which then seems damaged after another's writes.
select (select 1 from memory_words where memory_words match '0_' limit 1) as memories,
  (select 1 from ltm_lex where ltm_lex match 'c0x' limit 1) as longterm

-- make_ready (postgres) --
-- Upkeep looks at everything, and that may take long.
select set_config('statement_timeout', '0', true),
  set_config('idle_in_transaction_session_timeout', '0', true)

-- hold_writers (sqlite) --
select 1 as done

-- hold_writers (postgres) --
-- Whoever writes to a store locks its row first.
lock table stores in exclusive mode

-- orphans (sqlite) --
select "table" || ' row ' || coalesce(rowid, '') || ' wants ' || parent as finding
from pragma_foreign_key_check

-- orphans (postgres) --
-- Foreign keys are the server's to hold.
select '' as finding where false

-- contents_of_store --
select m.id, m.workspace, m.path, m.words, v.content
from memories m left join versions v on v.id = m.version_id
where m.store_id = :store and m.path > :after
order by m.path
limit :rows

-- set_words --
update memories set words = :words where id = :memory

-- sum_words --
update stores
set words = (select coalesce(sum(m.words), 0) from memories m where m.store_id = stores.id)

-- clear_words (sqlite) --
insert into memory_words (memory_words) values ('delete-all')

-- clear_words (postgres) --
delete from memory_words

-- clear_terms (sqlite) --
insert into ltm_lex (ltm_lex) values ('delete-all')

-- clear_terms (postgres) --
delete from ltm_lex

-- clear_frequencies (sqlite) --
-- They are counted in the index itself.
update ltm_collections set indexed = 0 where indexed = 1

-- clear_frequencies (postgres) --
delete from ltm_df

-- unindex --
update ltm_collections set indexed = 0 where indexed = 1

-- fill_words (sqlite) --
insert into memory_words (rowid, words) select number, :words from memories where id = :memory

-- fill_words (postgres) --
insert into memory_words (workspace, word, memory_id, hits)
select cast(:of as text), word, :memory, count(*)
from regexp_split_to_table(:words, ' ') word
group by word

-- schema_objects (sqlite) --
select type as kind, tbl_name as "table", name, sql as text
from sqlite_schema
where sql is not null and substr(name, 1, 7) <> 'sqlite_' and name not in
  (select name from pragma_table_list where type = 'shadow')

-- schema_objects (postgres) --
-- What an extension brought along is its own.
select case c.relkind when 'i' then 'index' when 'S' then 'sequence' when 'v' then 'view'
    when 'm' then 'materialized view' when 'f' then 'foreign table' else 'table' end as kind,
  case c.relkind when 'S' then '' else coalesce(t.relname, c.relname) end as "table",
  c.relname as name, '' as text
from pg_class c
left join pg_index i on i.indexrelid = c.oid
left join pg_class t on t.oid = i.indrelid
where c.relnamespace = cast('holdfast' as regnamespace)
  and c.relkind in ('r', 'p', 'i', 'S', 'v', 'm', 'f')
union all
select 'column', c.relname, a.attname, ''
from pg_class c join pg_attribute a on a.attrelid = c.oid
where c.relnamespace = cast('holdfast' as regnamespace) and c.relkind in ('r', 'p')
  and a.attnum > 0 and not a.attisdropped
union all
select 'trigger', c.relname, t.tgname, ''
from pg_class c join pg_trigger t on t.tgrelid = c.oid
where c.relnamespace = cast('holdfast' as regnamespace) and not t.tgisinternal
union all
select 'rule', c.relname, r.rulename, ''
from pg_class c join pg_rewrite r on r.ev_class = c.oid
where c.relnamespace = cast('holdfast' as regnamespace) and r.rulename <> '_RETURN'
union all
select 'policy', c.relname, p.polname, ''
from pg_class c join pg_policy p on p.polrelid = c.oid
where c.relnamespace = cast('holdfast' as regnamespace)
union all
select 'function', '', p.proname, p.prosrc
from pg_proc p
where p.pronamespace = cast('holdfast' as regnamespace) and not exists (
  select 1 from pg_depend d
  where d.classid = cast('pg_proc' as regclass) and d.objid = p.oid and d.deptype = 'e')

-- columns_of (sqlite) --
select name, pk from pragma_table_info(:table)

-- columns_of (postgres) --
select column_name as name, 0 as pk from information_schema.columns
where table_schema = 'holdfast' and table_name = :table

-- last_seq (sqlite) --
select seq from engine_state

-- last_seq (postgres) --
select case when is_called then last_value else 0 end as seq from seq

-- raise_seq (sqlite) --
update engine_state set seq = max(seq, :seq)

-- raise_seq (postgres) --
select setval('holdfast.seq', greatest(nextval('holdfast.seq'), cast(:seq as bigint))) as seq

-- raise_store_numbers (sqlite) --
-- A rowid follows the greatest there is by itself.
select max(number) as seq from stores

-- raise_version_numbers (sqlite) --
select max(number) as seq from versions

-- raise_store_numbers (postgres) --
select setval(pg_get_serial_sequence('holdfast.stores', 'number'),
  greatest(coalesce(max(number), 0), 1)) as seq
from stores

-- raise_version_numbers (postgres) --
select setval(pg_get_serial_sequence('holdfast.versions', 'number'),
  greatest(coalesce(max(number), 0), 1)) as seq
from versions

-- version_anywhere --
select v.id, v.workspace, v.store_id, v.memory_id, v.redacted_at, m.id as live_memory_id
from versions v left join memories m on m.version_id = v.id
where v.id = :version

-- last_version_of --
select id from versions where memory_id = :memory order by number desc limit 1

-- journal (sqlite) --
pragma journal_mode

-- journal (postgres) --
select setting as journal_mode from pg_settings where name = 'wal_level'

-- durability (sqlite) --
pragma synchronous

-- durability (postgres) --
select case when setting in ('on', 'remote_apply', 'remote_write') then 2 else 0 end as synchronous
from pg_settings where name = 'synchronous_commit'

-- application_id (sqlite) --
pragma application_id

-- application_id (postgres) --
select 0 as value

-- page_size (sqlite) --
pragma page_size

-- page_size (postgres) --
select 0 as value

-- auto_vacuum (sqlite) --
pragma auto_vacuum

-- auto_vacuum (postgres) --
select 0 as value

-- freelist_count (sqlite) --
pragma freelist_count

-- freelist_count (postgres) --
select 0 as value

-- foreign_keys (sqlite) --
pragma foreign_keys

-- foreign_keys (postgres) --
select 0 as value

-- schema_taken --
select coalesce(max(number), 0) as number from migrations

-- role (sqlite) --
select '' as name, false as powerful, 0 as owned

-- role (postgres) --
select rolname as name, rolsuper or rolbypassrls as powerful,
  (select count(*) from pg_class c
    where c.relnamespace = cast('holdfast' as regnamespace) and c.relkind in ('r', 'p')
      and c.relowner = r.oid) as owned
from pg_roles r
where rolname = current_user

-- extensions (sqlite) --
select '' as name where false

-- extensions (postgres) --
select extname || ' ' || extversion as name from pg_extension order by 1

-- unforced (sqlite) --
-- Rows are kept apart by what each statement says.
select '' as name where false

-- unforced (postgres) --
-- Policies add up, so one too many lets through as much as one that is missing.
select c.relname || ' is not forced' as name
from pg_class c
where c.relnamespace = cast('holdfast' as regnamespace) and c.relkind in ('r', 'p')
  and c.relname <> 'migrations' and not (c.relrowsecurity and c.relforcerowsecurity)
union all
select c.relname || ' has no policy its_workspace'
from pg_class c
where c.relnamespace = cast('holdfast' as regnamespace) and c.relkind in ('r', 'p')
  and c.relname <> 'migrations'
  and not exists (
    select 1 from pg_policies p
    where p.schemaname = 'holdfast' and p.tablename = c.relname
      and p.policyname = 'its_workspace' and p.qual like '%holdfast.workspace%'
      and p.with_check like '%holdfast.workspace%')
union all
select c.relname || ' has no policy its_agent'
from pg_class c
join pg_attribute a on a.attrelid = c.oid and a.attname = 'agent' and not a.attisdropped
where c.relnamespace = cast('holdfast' as regnamespace) and c.relkind in ('r', 'p')
  and left(c.relname, 8) = 'durable_'
  and not exists (
    select 1 from pg_policies p
    where p.schemaname = 'holdfast' and p.tablename = c.relname
      and p.policyname = 'its_agent' and p.permissive = 'RESTRICTIVE' and p.cmd = 'ALL'
      and p.qual like '%holdfast.agent%' and p.with_check like '%holdfast.agent%')
union all
select p.tablename || ' has a policy ' || p.policyname || ' that is not ours'
from pg_policies p
where p.schemaname = 'holdfast' and p.permissive = 'PERMISSIVE'
  and p.policyname <> 'its_workspace'
  and not (p.policyname = 'its_holder' and p.cmd = 'SELECT' and p.qual like '%holdfast.credential%')
order by 1

-- archiving (sqlite) --
select '' as name where false

-- archiving (postgres) --
select name || ' = ' || setting as name
from pg_settings
where name in ('wal_level', 'archive_mode', 'archive_command', 'archive_library', 'wal_keep_size',
  'max_wal_size', 'synchronous_standby_names') and setting <> ''
order by 1

-- server_clock (sqlite) --
select cast(1000000 * unixepoch('subsec') as integer) as at

-- server_clock (postgres) --
select cast(1000000 * extract(epoch from clock_timestamp()) as bigint) as at

-- revoked_credentials --
select id, revoked_at from api_keys where revoked_at is not null
union all
select id, revoked_at from session_tokens where revoked_at is not null

-- revoke_key_again --
update api_keys set revoked_at = :revoked_at where id = :id and revoked_at is null

-- revoke_token_again --
update session_tokens set revoked_at = :revoked_at where id = :id and revoked_at is null

-- all_collections --
-- Each with what its rows come to.
select c.number, c.id, c.analyzer, c.indexed, c.items, c.superseded, c.turns, c.held,
  coalesce(i.items, 0) as counted_items, coalesce(i.superseded, 0) as counted_superseded,
  coalesce(t.turns, 0) as counted_turns, coalesce(h.held, 0) as counted_held
from ltm_collections c
left join (
  select collection, count(*) as items, count(superseded_at) as superseded
  from ltm_items
  where held is null
  group by collection
) i on i.collection = c.number
left join (
  select collection, count(*) as turns from ltm_turns where held is null group by collection
) t on t.collection = c.number
left join (
  select collection, count(*) as held
  from (
    select collection from ltm_items where held is not null
    union all
    select collection from ltm_turns where held is not null
  ) w
  group by collection
) h on h.collection = c.number
order by c.number

-- stray_longterm --
-- Rows of collections that are not there, and what hangs on rows that are not.
select 'ltm_items' as "table", r.id as id, 'no collection' as found
from ltm_items r
where not exists (
  select 1 from ltm_collections c where c.number = r.collection and c.workspace = r.workspace)
union all
select 'ltm_turns', r.id, 'no collection'
from ltm_turns r
where not exists (
  select 1 from ltm_collections c where c.number = r.collection and c.workspace = r.workspace)
union all
select 'ltm_jobs', cast(r.number as text), 'no collection'
from ltm_jobs r
where not exists (
  select 1 from ltm_collections c where c.number = r.collection and c.workspace = r.workspace)
union all
select 'ltm_tombstones', r.id, 'no collection'
from ltm_tombstones r
where not exists (
  select 1 from ltm_collections c where c.number = r.collection and c.workspace = r.workspace)
union all
select distinct 'ltm_cursors', cast(r.collection as text), 'no collection'
from ltm_cursors r
where not exists (
  select 1 from ltm_collections c where c.number = r.collection and c.workspace = r.workspace)
union all
select 'ltm_vector_sets', r.collection, 'no collection'
from ltm_vector_sets r
where not exists (
  select 1 from ltm_collections c where c.id = r.collection and c.workspace = r.workspace)
union all
select 'ltm_links', cast(l.item as text), 'no item'
from ltm_links l
where not exists (
  select 1 from ltm_items i
  where i.collection = l.collection and i.number = l.item and i.workspace = l.workspace)
union all
select 'ltm_links', cast(l.item as text), 'no turn'
from ltm_links l
where not exists (
  select 1 from ltm_turns t
  where t.collection = l.collection and t.number = l.turn and t.workspace = l.workspace)
union all
select 'ltm_access', cast(a.number as text), 'no row'
from ltm_access a
where not exists (
  select 1 from ltm_items i
  where i.collection = a.collection and i.number = a.number and i.workspace = a.workspace
) and not exists (
  select 1 from ltm_turns t
  where t.collection = a.collection and t.number = a.number and t.workspace = a.workspace)

-- unburied --
-- What was forgotten, and is there.
select 'ltm_items' as "table", t.id as id, 'it' as found
from ltm_tombstones t join ltm_items i on i.collection = t.collection and i.id = t.id
union all
select 'ltm_turns', t.id, 'it'
from ltm_tombstones t join ltm_turns r on r.collection = t.collection and r.id = t.id
union all
select 'ltm_vectors', t.id, 'it'
from ltm_tombstones t
join ltm_collections c on c.number = t.collection
join ltm_vectors v on v.collection = c.id and v.id = t.id

-- stray_vectors --
-- Of rows that are gone.
select 'ltm_vectors' as "table", v.id as id, 'no row' as found
from ltm_vectors v
where not exists (
  select 1 from ltm_collections c join ltm_items i on i.collection = c.number and i.id = v.id
  where c.id = v.collection and c.workspace = v.workspace
) and not exists (
  select 1 from ltm_collections c join ltm_turns t on t.collection = c.number and t.id = v.id
  where c.id = v.collection and c.workspace = v.workspace)

-- drop_stray_vectors --
delete from ltm_vectors
where not exists (
  select 1 from ltm_collections c join ltm_items i on i.collection = c.number and i.id = ltm_vectors.id
  where c.id = ltm_vectors.collection and c.workspace = ltm_vectors.workspace
) and not exists (
  select 1 from ltm_collections c join ltm_turns t on t.collection = c.number and t.id = ltm_vectors.id
  where c.id = ltm_vectors.collection and c.workspace = ltm_vectors.workspace)

-- touch_vectors --
update ltm_vector_sets set seq = :seq

-- touch_collection --
update ltm_collections set version = version + 1, redone = version + 1 where number = :collection

-- stray_lexed (sqlite) --
-- Entries of the index of words without a row of an indexed collection.
select 'ltm_lex' as "table", cast(number as text) as id, 'no row' as found
from (
  select rowid as number from ltm_lex
  except
  select number from (
    select r.number from ltm_turns r join ltm_collections c on c.number = r.collection
    where c.indexed = 1 and r.held is null
    union all
    select r.number from ltm_items r join ltm_collections c on c.number = r.collection
    where c.indexed = 1 and r.superseded_at is null and r.held is null
  )
)

-- stray_lexed (postgres) --
select 'ltm_lex' as "table", cast(number as text) as id, 'no row' as found
from (
  select workspace, collection, number from ltm_lex
  except
  select workspace, collection, number from (
    select r.workspace, r.collection, r.number
    from ltm_turns r join ltm_collections c on c.number = r.collection
    where c.indexed = 1 and r.held is null
    union all
    select r.workspace, r.collection, r.number
    from ltm_items r join ltm_collections c on c.number = r.collection
    where c.indexed = 1 and r.superseded_at is null and r.held is null
  ) e
) s

-- unlexed (sqlite) --
-- Rows of indexed collections without an entry.
select 'ltm_lex' as "table", cast(number as text) as id, 'none' as found
from (
  select number from (
    select r.number from ltm_turns r join ltm_collections c on c.number = r.collection
    where c.indexed = 1 and r.held is null
    union all
    select r.number from ltm_items r join ltm_collections c on c.number = r.collection
    where c.indexed = 1 and r.superseded_at is null and r.held is null
  )
  except
  select rowid from ltm_lex
)

-- unlexed (postgres) --
select 'ltm_lex' as "table", cast(number as text) as id, 'none' as found
from (
  select workspace, collection, number from (
    select r.workspace, r.collection, r.number
    from ltm_turns r join ltm_collections c on c.number = r.collection
    where c.indexed = 1 and r.held is null
    union all
    select r.workspace, r.collection, r.number
    from ltm_items r join ltm_collections c on c.number = r.collection
    where c.indexed = 1 and r.superseded_at is null and r.held is null
  ) e
  except
  select workspace, collection, number from ltm_lex
) s

-- lexed_terms (sqlite) --
select substr(term, length('c' || :collection || 'x') + 1) as term, doc as n
from ltm_terms
where term >= 'c' || :collection || 'x' and term < 'c' || :collection || 'y'

-- lexed_terms (postgres) --
-- Where the rows and the count kept of them differ, neither is told.
select coalesce(w.term, d.term) as term,
  case when w.n is distinct from d.n then -1 else d.n end as n
from (
  select u.term, count(*) as n
  from ltm_lex l cross join unnest(tsvector_to_array(l.lex)) u (term)
  where l.collection = :collection
  group by u.term
) w
full join (select term, n from ltm_df where collection = :collection) d on d.term = w.term

-- turns_of_collection (sqlite) --
select number, id, 0 as is_item, flags, terms, x'' as fold, body, text, caption,
  null as superseded_at
from ltm_turns
where collection = :collection and number > :after
order by number
limit :rows

-- turns_of_collection (postgres) --
select number, id, 0 as is_item, flags, terms, cast('' as bytea) as fold, body, text, caption,
  cast(null as bigint) as superseded_at
from ltm_turns
where collection = :collection and number > :after
order by number
limit :rows

-- items_of_collection --
select number, id, 1 as is_item, flags, terms, fold, body, text, '' as caption, superseded_at
from ltm_items
where collection = :collection and number > :after
order by number
limit :rows

-- mend_turn --
update ltm_turns set body = :body, flags = :flags, terms = :terms
where collection = :collection and number = :number

-- mend_item --
update ltm_items set body = :body, flags = :flags, terms = :terms, fold = :fold
where collection = :collection and number = :number

-- failed_jobs --
select kind, coalesce(error, 'unknown') as error, count(*) as jobs
from ltm_jobs
where state = 'failed'
group by kind, error
order by kind, error

-- other_analyzers --
select count(*) as collections, coalesce(sum(case when analyzer > :ours then 1 else 0 end), 0) as newer
from ltm_collections
where analyzer <> :ours
