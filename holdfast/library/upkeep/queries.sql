-- What verify looks at: every workspace's rows, in one snapshot.

-- all_stores --
select id, workspace, number, memories, words, link, last_at from stores order by id

-- versions_after --
select number, id, workspace, memory_id, seq, operation, path, content, content_sha256,
  content_size_bytes, created_at, actor_kind, actor_id, redacted_at, salt, seal, link
from versions
where store_id = :store and number > :after
order by number
limit :rows

-- heads_of_store --
select m.id, m.workspace, m.path, m.version_id, m.content_sha256, m.content_size_bytes, m.words,
  v.content_sha256 as version_sha256, v.content_size_bytes as version_size_bytes,
  v.memory_id as version_memory_id
from memories m left join versions v on v.id = m.version_id
where m.store_id = :store
order by m.path

-- indexed_words (sqlite) --
select m.id, count(*) as words
from memory_terms t left join memories m on m.number = t.doc
group by t.doc

-- indexed_words (postgres) --
select memory_id as id, cast(sum(hits) as bigint) as words from memory_words group by memory_id

-- counted_words --
select id, words from memories where words > 0

-- strays --
-- Rows whose owner is not there, or is in another workspace.
select 'memories' as "table", m.id as id
from memories m left join stores s on s.id = m.store_id and s.workspace = m.workspace
where s.id is null
union all
select 'versions', v.id
from versions v left join stores s on s.id = v.store_id and s.workspace = v.workspace
where s.id is null
union all
select 'session_stores', a.session_id
from session_stores a left join sessions s on s.id = a.session_id and s.workspace = a.workspace
where s.id is null
union all
select 'session_tokens', t.id
from session_tokens t left join sessions s on s.id = t.session_id and s.workspace = t.workspace
where s.id is null

-- redacted_versions --
select id, redacted_at, redacted_by_kind, redacted_by_id from versions where redacted_at is not null

-- integrity (sqlite) --
select integrity_check as finding from pragma_integrity_check

-- quick_integrity (sqlite) --
select quick_check as finding from pragma_quick_check

-- integrity (postgres) --
-- A damaged index shows as a count that differs from the table's.
select 'stores, by row and by id' as finding
from (select count(*) as rows, count(distinct id) as ids from stores) s where rows <> ids
union all
select 'memories, by row and by id'
from (select count(*) as rows, count(distinct id) as ids from memories) m where rows <> ids
union all
select 'versions, by row and by id'
from (select count(*) as rows, count(distinct id) as ids from versions) v where rows <> ids

-- quick_integrity (postgres) --
select 'stores, by row and by id' as finding
from (select count(*) as rows, count(distinct id) as ids from stores) s where rows <> ids
union all
select 'memories, by row and by id'
from (select count(*) as rows, count(distinct id) as ids from memories) m where rows <> ids
union all
select 'versions, by row and by id'
from (select count(*) as rows, count(distinct id) as ids from versions) v where rows <> ids

-- orphans (sqlite) --
select "table" || ' row ' || coalesce(rowid, '') || ' wants ' || parent as finding
from pragma_foreign_key_check

-- orphans (postgres) --
-- Foreign keys are the server's to hold.
select '' as finding where false

-- heads_with_content --
select m.id, m.workspace, m.path, s.number, v.content
from memories m join versions v on v.id = m.version_id join stores s on s.id = m.store_id
where m.id > :after
order by m.id
limit :rows

-- clear_words (sqlite) --
insert into memory_words (memory_words) values ('delete-all')

-- clear_words (postgres) --
delete from memory_words

-- fill_words (sqlite) --
insert into memory_words (rowid, words) select number, :words from memories where id = :memory

-- fill_words (postgres) --
insert into memory_words (workspace, word, memory_id, hits)
select cast(:of as text), word, :memory, count(*)
from regexp_split_to_table(:words, ' ') word
group by word

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

-- unforced (sqlite) --
-- Rows are kept apart by what each statement says.
select '' as name where false

-- unforced (postgres) --
select c.relname as name
from pg_class c
where c.relnamespace = cast('holdfast' as regnamespace) and c.relkind in ('r', 'p')
  and c.relname <> 'migrations' and not (c.relrowsecurity and c.relforcerowsecurity)
order by 1

-- archiving (sqlite) --
select '' as name where false

-- archiving (postgres) --
select name || ' = ' || setting as name
from pg_settings
where name in ('archive_mode', 'archive_library', 'wal_keep_size', 'max_wal_size')
order by 1

-- server_clock (sqlite) --
select cast(1000000 * unixepoch('subsec') as integer) as at

-- server_clock (postgres) --
select cast(1000000 * extract(epoch from clock_timestamp()) as bigint) as at
