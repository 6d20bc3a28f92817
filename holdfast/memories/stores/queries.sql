-- Stores, their memories, and every version of these.

-- insert_store --
insert into stores (id, workspace, name, description, metadata, created_at, updated_at, seq, last_at, link)
values (:id, :workspace, :name, :description, :metadata, :now, :now, :seq, :now, :link)

-- get_store --
select id, name, description, metadata, created_at, updated_at, archived_at
from stores
where id = :store and workspace = :workspace

-- store_number --
select number from stores where id = :store and workspace = :workspace

-- lock_store (sqlite) --
select s.id, s.number, s.name, s.description, s.metadata, s.created_at, s.updated_at, s.archived_at,
    s.memories, s.words, s.seq, s.last_at, s.link, t.memories_cap
from stores s left join store_settings t on t.workspace = s.workspace
where s.id = :store and s.workspace = :workspace

-- lock_store (postgres) --
-- The lock makes the writes of one store serial, so that its numbers rise as it commits.
select s.id, s.number, s.name, s.description, s.metadata, s.created_at, s.updated_at, s.archived_at,
    s.memories, s.words, s.seq, s.last_at, s.link, t.memories_cap
from stores s left join store_settings t on t.workspace = s.workspace
where s.id = :store and s.workspace = :workspace
for update of s

-- lock_store_of_edit (sqlite) --
-- With the edit, if it is stored, and whether the store has edits past their retention.
select s.id, s.number, s.name, s.description, s.metadata, s.created_at, s.updated_at, s.archived_at,
    s.memories, s.words, s.seq, s.last_at, s.link, t.memories_cap, e.digest, e.answer,
    exists (select 1 from store_edits o
        where o.store_id = s.id and o.workspace = :workspace and o.created_at < :stale) as stale
from stores s left join store_settings t on t.workspace = s.workspace
    left join store_edits e on e.store_id = s.id and e.id = :edit and e.workspace = :workspace
where s.id = :store and s.workspace = :workspace

-- lock_store_of_edit (postgres) --
-- Without the edit: one that is stored while this waits for the lock would not be seen.
select s.id, s.number, s.name, s.description, s.metadata, s.created_at, s.updated_at, s.archived_at,
    s.memories, s.words, s.seq, s.last_at, s.link, t.memories_cap, cast(null as bytea) as digest,
    cast(null as text) as answer, 0 as stale
from stores s left join store_settings t on t.workspace = s.workspace
where s.id = :store and s.workspace = :workspace
for update of s

-- list_stores --
select id, name, description, metadata, created_at, updated_at, archived_at
from stores
where workspace = :workspace
    and (:archived = 1 or archived_at is null)
    and created_at >= :oldest and (created_at, id) < (:at, :id)
order by created_at desc, id desc
limit :rows

-- store_sizes (sqlite) --
select s.id, s.memories
from json_each(:ids) i cross join stores s
where s.id = i.value and s.workspace = :workspace

-- store_sizes (postgres) --
select id, memories
from stores
where workspace = :workspace
    and id = any (array(select jsonb_array_elements_text(cast(:ids as jsonb))))

-- update_store --
update stores
set name = :name, description = :description, metadata = :metadata,
    updated_at = :now, last_at = :now, archived_at = :archived_at
where id = :store and workspace = :workspace

-- delete_store --
delete from stores where id = :store and workspace = :workspace

-- delete_memories_of_store --
delete from memories where store_id = :store and workspace = :workspace

-- delete_edits_of_store --
delete from store_edits where store_id = :store and workspace = :workspace

-- delete_versions_of_store --
delete from versions where store_id = :store and workspace = :workspace

-- get_settings --
select memories_cap, versions_keep_days, versions_keep_last
from store_settings
where workspace = :workspace

-- set_memories_cap --
insert into store_settings (workspace, memories_cap)
values (:workspace, :memories_cap)
on conflict (workspace) do update set memories_cap = excluded.memories_cap

-- get_memory --
select m.id, m.store_id, m.version_id, m.path, v.content, m.content_sha256, m.content_size_bytes,
    m.created_at, m.updated_at, m.tier, m.held
from memories m join versions v on v.id = m.version_id
where m.id = :memory and m.store_id = :store and m.workspace = :workspace

-- get_memories (sqlite) --
select m.id, m.store_id, m.version_id, m.path, v.content, m.content_sha256, m.content_size_bytes,
    m.created_at, m.updated_at, m.tier, m.held
from json_each(:memories) wanted
    cross join memories m on m.id = wanted.value
    cross join versions v on v.id = m.version_id
where m.store_id = :store and m.workspace = :workspace

-- get_memories (postgres) --
select m.id, m.store_id, m.version_id, m.path, v.content, m.content_sha256, m.content_size_bytes,
    m.created_at, m.updated_at, m.tier, m.held
from memories m join versions v on v.id = m.version_id
where m.id in (select jsonb_array_elements_text(cast(:memories as jsonb)))
    and m.store_id = :store and m.workspace = :workspace

-- get_memory_basic --
select id, store_id, version_id, path, null as content, content_sha256, content_size_bytes,
    created_at, updated_at, tier, held
from memories
where id = :memory and store_id = :store and workspace = :workspace

-- get_memory_at --
select m.id, m.store_id, m.version_id, m.path, v.content, m.content_sha256, m.content_size_bytes,
    m.created_at, m.updated_at, m.tier, m.held
from memories m join versions v on v.id = m.version_id
where m.store_id = :store and m.path = :path and m.workspace = :workspace

-- get_head --
select m.id, m.store_id, m.version_id, m.path, v.content, m.content_sha256, m.content_size_bytes,
    m.created_at, m.updated_at, m.words, m.tier, m.held, v.origin_ref
from memories m join versions v on v.id = m.version_id
where m.id = :memory and m.store_id = :store and m.workspace = :workspace

-- get_heads (sqlite) --
select m.id, m.store_id, m.version_id, m.path, v.content, m.content_sha256, m.content_size_bytes,
    m.created_at, m.updated_at, m.words, m.tier, m.held, v.origin_ref
from json_each(:memories) wanted
    cross join memories m on m.id = wanted.value
    cross join versions v on v.id = m.version_id
where m.store_id = :store and m.workspace = :workspace

-- get_heads (postgres) --
select m.id, m.store_id, m.version_id, m.path, v.content, m.content_sha256, m.content_size_bytes,
    m.created_at, m.updated_at, m.words, m.tier, m.held, v.origin_ref
from memories m join versions v on v.id = m.version_id
where m.id in (select jsonb_array_elements_text(cast(:memories as jsonb)))
    and m.store_id = :store and m.workspace = :workspace

-- heads_under --
-- The memories at a path or below it, in path order, in batches.
select m.id, m.store_id, m.version_id, m.path, v.content, m.content_sha256, m.content_size_bytes,
    m.created_at, m.updated_at, m.words, m.tier, m.held, v.origin_ref
from memories m join versions v on v.id = m.version_id
where m.store_id = :store and m.workspace = :workspace
    and m.path >= :start and m.path < :high and (m.path = :path or m.path >= :low)
order by m.path
limit :rows

-- taken_path (sqlite) --
-- The first memory, by path bytes, at a path, above it or below it.
select id as conflicting_memory_id, path as conflicting_path
from (
    select id, path from memories
    where store_id = :store and workspace = :workspace
        and path in (select value from json_each(:lineage))
    union all
    select * from (
        select id, path from memories
        where store_id = :store and workspace = :workspace and path >= :low and path < :high
            and id <> :mine
        order by path
        limit 1
    )
)
where id <> :mine
order by path
limit 1

-- taken_path (postgres) --
-- The first memory, by path bytes, at a path, above it or below it.
select id as conflicting_memory_id, path as conflicting_path
from (
    select id, path from memories
    where store_id = :store and workspace = :workspace
        and path = any (array(select jsonb_array_elements_text(cast(:lineage as jsonb))))
    union all
    select * from (
        select id, path from memories
        where store_id = :store and workspace = :workspace and path >= :low and path < :high
            and id <> :mine
        order by path
        limit 1
    ) below
) taken
where id <> :mine
order by path
limit 1

-- taken_by_others (sqlite) --
-- The first memory, by path bytes, at one of several paths, above it or below it. Those that move
-- have stepped aside.
select id as conflicting_memory_id, path as conflicting_path
from (
    select id, path from memories
    where store_id = :store and workspace = :workspace
        and path in (select value from json_each(:lineages))
    union all
    select m.id, m.path
    from json_each(:targets) target
        cross join memories m on m.store_id = :store and m.workspace = :workspace
            and m.path > target.value || '/' and m.path < target.value || '0'
)
order by path
limit 1

-- taken_by_others (postgres) --
-- The first memory, by path bytes, at one of several paths, above it or below it. Those that move
-- have stepped aside.
select id as conflicting_memory_id, path as conflicting_path
from (
    select id, path from memories
    where store_id = :store and workspace = :workspace
        and path = any (array(select jsonb_array_elements_text(cast(:lineages as jsonb))))
    union all
    select m.id, m.path
    from jsonb_array_elements_text(cast(:targets as jsonb)) target (path)
        join memories m on m.store_id = :store and m.workspace = :workspace
            and m.path > target.path || '/' and m.path < target.path || '0'
) taken
order by path
limit 1

-- places_under --
select id, path
from memories
where store_id = :store and workspace = :workspace
    and path >= :path and path < :high and (path = :path or path >= :low)
order by path

-- places_of (sqlite) --
select id, path
from memories
where store_id = :store and workspace = :workspace
    and id in (select value from json_each(:memories))

-- places_of (postgres) --
select id, path
from memories
where store_id = :store and workspace = :workspace
    and id = any (array(select jsonb_array_elements_text(cast(:memories as jsonb))))

-- insert_memory (sqlite) --
-- With its words in the index, by a trigger of the view.
insert into memory_writes (id, workspace, store_id, path, version_id, content_sha256,
    content_size_bytes, words, created_at, updated_at, tier, held, indexed)
values (:memory, :workspace, :store, :path, :version, :sha256, :size_bytes, :words, :created_at,
    :now, :tier, :held, :indexed)

-- insert_memory (postgres) --
with made as (
    insert into memories (id, workspace, store_id, path, version_id, content_sha256,
        content_size_bytes, words, created_at, updated_at, tier, held)
    values (:memory, :workspace, :store, :path, :version, :sha256, :size_bytes, :words, :created_at,
        :now, :tier, :held)
)
insert into memory_words (workspace, word, memory_id, hits)
select :workspace, word, :memory, count(*)
from regexp_split_to_table(:indexed, ' ') word
where word <> ''
group by word

-- move_head (sqlite) --
-- With its words in the index, by a trigger of the view: the old ones, then the new ones.
update memory_writes
set path = :path, version_id = :version, content_sha256 = :sha256,
    content_size_bytes = :size_bytes, words = :words, updated_at = :now, tier = :tier, held = :held,
    removed = :removed, indexed = :indexed
where id = :memory and workspace = :workspace

-- move_head (postgres) --
-- The old words are counted, and so deleted, before the first new one is inserted.
with gone as (
    delete from memory_words
    where memory_id = :memory and workspace = :workspace and cast(:removed as text) is not null
    returning 1
),
moved as (
    update memories
    set path = :path, version_id = :version, content_sha256 = :sha256,
        content_size_bytes = :size_bytes, words = :words, updated_at = :now, tier = :tier,
        held = :held
    where id = :memory and workspace = :workspace
)
insert into memory_words (workspace, word, memory_id, hits)
select :workspace, word, :memory, count(*)
from regexp_split_to_table(:indexed, ' ') word
where word <> '' and (select count(*) from gone) >= 0
group by word

-- step_aside (sqlite) --
-- A memory may move to the path of another that moves too, so all free their paths first.
update memories
set path = id
where store_id = :store and workspace = :workspace
    and id in (select value from json_each(:memories))

-- step_aside (postgres) --
-- A memory may move to the path of another that moves too, so all free their paths first.
update memories
set path = id
where store_id = :store and workspace = :workspace
    and id = any (array(select jsonb_array_elements_text(cast(:memories as jsonb))))

-- delete_memory --
delete from memories where id = :memory and workspace = :workspace

-- insert_version --
insert into versions (id, workspace, store_id, memory_id, seq, operation, path, content,
    content_sha256, content_size_bytes, created_at, actor_kind, actor_id, salt, seal, link, tier,
    origin_ref, held)
values (:version, :workspace, :store, :memory, :seq, :operation, :path, :content,
    :sha256, :size_bytes, :now, :actor_kind, :actor_id, :salt, :seal, :link,
    :tier, :origin_ref, :held)

-- link_version --
insert into subjects (workspace, user_id, kind, object_id, at)
values (:workspace, :user, 'version', :version, :now)
on conflict (workspace, user_id, kind, object_id) do nothing

-- workspace_secret --
select secret from tombstone_secrets where workspace = :workspace

-- erased_at --
-- When a person was last erased.
select at from user_tombstones where workspace = :workspace and user_hash = :user_hash

-- touch_store --
update stores
set memories = memories + :memories, words = words + :words, seq = :seq, last_at = :now, link = :link
where id = :store and workspace = :workspace

-- delete_words (sqlite) --
-- The index keeps no text of its own: it is handed the words to take out.
insert into memory_words (memory_words, rowid, words)
select 'delete', number, :words from memories where id = :memory and workspace = :workspace

-- delete_words (postgres) --
delete from memory_words
where memory_id = :memory and workspace = :workspace and cast(:words as text) is not null

-- list_memories --
select m.id, m.store_id, m.version_id, m.path, null as content, m.content_sha256,
    m.content_size_bytes, m.created_at, m.updated_at, m.tier, m.held
from memories m
where m.store_id = :store and m.workspace = :workspace
    and m.path > :after and m.path < :high
order by m.path
limit :rows

-- list_memories_full --
select m.id, m.store_id, m.version_id, m.path, v.content, m.content_sha256, m.content_size_bytes,
    m.created_at, m.updated_at, m.tier, m.held
from memories m join versions v on v.id = m.version_id
where m.store_id = :store and m.workspace = :workspace
    and m.path > :after and m.path < :high
order by m.path
limit :rows

-- list_children (sqlite) --
-- Leaps from one direct child to the next, so a page costs what it gives out.
-- '0' follows '/', and no path holds a character before ' '. A cross join keeps its order.
with recursive walk (path, n) as (
    select (select min(path) from memories
        where store_id = :store and workspace = :workspace and path >= :from and path < :high), 1
    union all
    select (select min(m.path) from memories m
        where m.store_id = :store and m.workspace = :workspace and m.path < :high
            and m.path >= case instr(substr(walk.path, :skip), '/')
                when 0 then walk.path || ' '
                else substr(walk.path, 1, :skip + instr(substr(walk.path, :skip), '/') - 2) || '0'
            end), n + 1
    from walk
    where walk.path is not null and n < :rows
)
select m.id, m.store_id, m.version_id, m.path, case when :full = 1 then v.content end as content,
    m.content_sha256, m.content_size_bytes, m.created_at, m.updated_at, m.tier, m.held
from walk
    cross join memories m on m.store_id = :store and m.path = walk.path and m.workspace = :workspace
    left join versions v on :full = 1 and v.id = m.version_id
order by m.path

-- list_children (postgres) --
-- Leaps from one direct child to the next, so a page costs what it gives out.
-- '0' follows '/', and no path holds a character before ' '.
with recursive walk (path, n) as (
    select (select min(path) from memories
        where store_id = :store and workspace = :workspace and path >= :from and path < :high), 1
    union all
    select (select min(m.path) from memories m
        where m.store_id = :store and m.workspace = :workspace and m.path < :high
            and m.path >= case strpos(substr(walk.path, :skip), '/')
                when 0 then walk.path || ' '
                else substr(walk.path, 1, :skip + strpos(substr(walk.path, :skip), '/') - 2) || '0'
            end), n + 1
    from walk
    where walk.path is not null and n < :rows
)
select m.id, m.store_id, m.version_id, m.path, case when :full = 1 then v.content end as content,
    m.content_sha256, m.content_size_bytes, m.created_at, m.updated_at, m.tier, m.held
from walk
    join memories m on m.store_id = :store and m.path = walk.path and m.workspace = :workspace
    left join versions v on :full = 1 and v.id = m.version_id
order by m.path

-- search_memories (sqlite) --
-- More of the distinct words first, then BM25 (k1 1.2, b 0.75) within this store alone, then path.
-- The index counts who holds a word in a fraction of the time that counting its hits takes.
-- A cross join keeps its order: SQLite cannot know how many terms there are, and would read all.
with asked as materialized (
    select w.key as word, w.value as term,
        (select count(*) from memory_words where memory_words match '"' || w.value || '"') as held
    from json_each(:terms) w
),
hit as (
    select t.doc, a.word, a.held, count(*) as hits
    from asked a cross join memory_terms t on t.term = a.term
    group by t.doc, a.word
)
select m.id, m.path, count(*) as words,
    round(sum(ln(1 + (s.memories - hit.held + 0.5) / (hit.held + 0.5)) * hit.hits * 2.2
        / (hit.hits + 1.2 * (0.25 + 0.75 * m.words * s.memories / s.words))), 6) as score
from hit
    cross join memories m on m.number = hit.doc
    cross join stores s on s.id = m.store_id
where m.store_id = :store and m.workspace = :workspace and m.path >= :low and m.path < :high
group by m.number
order by words desc, score desc, m.path
limit :rows

-- search_memories (postgres) --
-- More of the distinct words first, then BM25 (k1 1.2, b 0.75) within this store alone, then path.
with hit as (
    select w.word, w.memory_id, w.hits
    from memory_words w
    where w.workspace = :workspace
        and w.word in (select jsonb_array_elements_text(cast(:terms as jsonb)))
),
rarity as (select word, count(*) as held from hit group by word)
select m.id, m.path, count(*) as words,
    cast(round(cast(sum(ln(cast(1 + (s.memories - r.held + 0.5) / (r.held + 0.5) as float8))
        * hit.hits * 2.2
        / (hit.hits + 1.2 * (0.25 + cast(0.75 * m.words * s.memories as float8) / s.words)))
        as numeric), 6) as float8) as score
from hit
    join rarity r on r.word = hit.word
    join memories m on m.id = hit.memory_id
    join stores s on s.id = m.store_id
where m.store_id = :store and m.workspace = :workspace and m.path >= :low and m.path < :high
group by m.id, m.path
order by words desc, score desc, m.path
limit :rows

-- get_version --
select id, store_id, memory_id, operation, path, case when :full = 1 then content end as content,
    content_size_bytes, content_sha256, created_at, actor_kind, actor_id,
    redacted_at, redacted_by_kind, redacted_by_id, tier, origin_ref, held
from versions
where id = :version and store_id = :store and workspace = :workspace

-- seq_at --
-- The number of a store's last version up to a moment, bit by bit; null before all of them.
-- The times of a store's versions never fall as their numbers rise.
with recursive walk (low, step) as (
    select cast(0 as bigint), cast(4611686018427387904 as bigint)
    union all
    select walk.low + case when (
            select v.created_at from versions v
            where v.store_id = :store and v.workspace = :workspace
                and v.seq >= walk.low + walk.step
            order by v.seq, v.number
            limit 1
        ) <= :at then walk.step else 0 end,
        walk.step / 2
    from walk
    where walk.step > 0
)
select nullif(max(low), 0) as seq from walk

-- list_versions --
select seq, id, store_id, memory_id, operation, path,
    case when :full = 1 then content end as content, content_size_bytes, content_sha256, created_at,
    actor_kind, actor_id, redacted_at, redacted_by_kind, redacted_by_id, tier, origin_ref, held
from versions
where store_id = :store and workspace = :workspace
    and seq >= :since and (seq, id) < (:seq, :id)
    and created_at >= :oldest and created_at <= :newest
    and (cast(:operation as text) is null or operation = :operation)
    and (cast(:actor_kind as text) is null or (actor_kind = :actor_kind and actor_id = :actor_id))
order by seq desc, id desc
limit :rows

-- list_versions_of_memory --
select seq, id, store_id, memory_id, operation, path,
    case when :full = 1 then content end as content, content_size_bytes, content_sha256, created_at,
    actor_kind, actor_id, redacted_at, redacted_by_kind, redacted_by_id, tier, origin_ref, held
from versions
where memory_id = :memory and store_id = :store and workspace = :workspace
    and seq >= :since and (seq, id) < (:seq, :id)
    and created_at >= :oldest and created_at <= :newest
    and (cast(:operation as text) is null or operation = :operation)
    and (cast(:actor_kind as text) is null or (actor_kind = :actor_kind and actor_id = :actor_id))
order by seq desc, id desc
limit :rows

-- first_version_at --
select min(created_at) as at from versions
where memory_id = :memory and store_id = :store and workspace = :workspace

-- head_of --
select id from memories where version_id = :version and id = :memory and workspace = :workspace

-- redact_version --
update versions
set path = null, content = null, content_sha256 = null, content_size_bytes = null, salt = null,
    origin_ref = null, redacted_at = :now, redacted_by_kind = :actor_kind, redacted_by_id = :actor_id
where id = :version and store_id = :store and workspace = :workspace

-- tiers_of_stores (sqlite) --
select m.store_id, m.tier, count(m.held) as held
from json_each(:stores) wanted cross join memories m on m.store_id = wanted.value
where m.workspace = :workspace
group by m.store_id, m.tier

-- tiers_of_stores (postgres) --
select store_id, tier, count(held) as held
from memories
where workspace = :workspace
    and store_id = any (array(select jsonb_array_elements_text(cast(:stores as jsonb))))
group by store_id, tier

-- store_times --
select last_at from stores where id = :store and workspace = :workspace

-- memories_at --
-- The last version of each memory up to a moment, by path. `:seq` is the last number up to it.
select v.memory_id as id, v.store_id, v.id as version_id, v.path, null as content,
    v.content_sha256, v.content_size_bytes,
    (select first.created_at from versions first
        where first.memory_id = v.memory_id and first.store_id = v.store_id
        order by first.seq, first.number limit 1) as created_at,
    v.created_at as updated_at, v.tier, v.held
from versions v
where v.store_id = :store and v.workspace = :workspace and v.seq <= :seq and v.created_at <= :at
    and v.operation <> 'deleted' and v.redacted_at is null
    and v.path >= :low and v.path < :high
    and not exists (
        select 1 from versions later
        where later.memory_id = v.memory_id and later.seq >= v.seq and later.seq <= :seq
            and later.number > v.number and (later.seq < :seq or later.created_at <= :at))
order by v.path
limit :rows

-- redacted_at --
-- The memories that were there at a moment with a version that was redacted since.
select v.memory_id
from versions v
where v.store_id = :store and v.workspace = :workspace and v.seq <= :seq and v.created_at <= :at
    and v.operation <> 'deleted' and v.redacted_at is not null
    and not exists (
        select 1 from versions later
        where later.memory_id = v.memory_id and later.seq >= v.seq and later.seq <= :seq
            and later.number > v.number and (later.seq < :seq or later.created_at <= :at))

-- version_contents (sqlite) --
select v.id, v.content, v.tier, v.origin_ref, v.held
from json_each(:versions) wanted cross join versions v on v.id = wanted.value
where v.store_id = :store and v.workspace = :workspace

-- version_contents (postgres) --
select id, content, tier, origin_ref, held
from versions
where store_id = :store and workspace = :workspace
    and id = any (array(select jsonb_array_elements_text(cast(:versions as jsonb))))

-- What a mount asks: the present state, what changed since, edits that are applied once.

-- store_state --
select s.seq, s.name, s.description, s.metadata, s.archived_at, t.memories_cap
from stores s left join store_settings t on t.workspace = s.workspace
where s.id = :store and s.workspace = :workspace

-- all_heads --
select id, store_id, version_id, path, null as content, content_sha256, content_size_bytes,
    created_at, updated_at, tier, held
from memories
where store_id = :store and workspace = :workspace
order by path

-- version_up_to --
-- The last number up to another that the store came to, but for that of its making.
select seq from versions
where store_id = :store and workspace = :workspace and seq <= :after
order by seq desc
limit 1

-- changes_after --
-- The last version of each memory alone: its head's, or that of its deletion when none follows.
select v.seq, v.memory_id, v.operation, m.version_id, m.path, m.content_sha256,
    m.content_size_bytes, m.created_at, m.updated_at, m.tier, m.held
from versions v left join memories m on m.id = v.memory_id and m.workspace = :workspace
where v.store_id = :store and v.workspace = :workspace and v.seq > :after and v.seq <= :until
    and (m.version_id = v.id or (m.id is null and not exists (
        select 1 from versions later
        where later.memory_id = v.memory_id and later.seq >= v.seq
            and later.number > v.number)))
order by v.seq, v.number
limit :rows

-- get_edits (sqlite) --
-- A stale row means that the store has edits past their retention.
select id, digest, answer, 0 as stale from store_edits
where store_id = :store and workspace = :workspace and id in (select value from json_each(:edits))
union all
select * from (
    select id, digest, answer, 1 as stale from store_edits
    where store_id = :store and workspace = :workspace and created_at < :stale
    order by created_at
    limit 1
) old

-- get_edits (postgres) --
-- A stale row means that the store has edits past their retention.
select id, digest, answer, 0 as stale from store_edits
where store_id = :store and workspace = :workspace
    and id in (select jsonb_array_elements_text(cast(:edits as jsonb)))
union all
select * from (
    select id, digest, answer, 1 as stale from store_edits
    where store_id = :store and workspace = :workspace and created_at < :stale
    order by created_at
    limit 1
) old

-- insert_edit --
insert into store_edits (store_id, id, workspace, digest, answer, created_at)
values (:store, :edit, :workspace, :digest, :answer, :now)

-- drop_edits_before --
delete from store_edits
where store_id = :store and workspace = :workspace and created_at < :before

-- drop_old_edits --
-- Whose they are does not matter: upkeep's scope alone may.
delete from store_edits
where :workspace = '*' and (store_id, id) in (
    select store_id, id from store_edits where created_at < :before limit :rows)

-- forget_digests --
-- A digest is made of what was written, so it goes where that goes.
update store_edits set digest = null
where store_id = :store and workspace = :workspace and digest is not null

-- versions_of_edit (sqlite) --
select id, memory_id, path, content_sha256, content_size_bytes, created_at, tier, held
from versions
where store_id = :store and workspace = :workspace
    and id in (select value from json_each(:versions))

-- versions_of_edit (postgres) --
select id, memory_id, path, content_sha256, content_size_bytes, created_at, tier, held
from versions
where store_id = :store and workspace = :workspace
    and id = any (array(select jsonb_array_elements_text(cast(:versions as jsonb))))

-- Sessions, their tokens, agents, environments and keys.

-- attachment --
select s.archived_at as session_archived_at, a.access, a.name
from sessions s
    left join session_stores a
        on a.session_id = s.id and a.workspace = s.workspace and a.memory_store_id = :store_id
where s.id = :session_id and s.workspace = :workspace

-- insert_session --
insert into sessions (id, workspace, title, environment_id, agent_id, agent_version, agent,
    metadata, created_at, updated_at)
values (:id, :workspace, :title, :environment_id, :agent_id, :agent_version, :agent_snapshot,
    :metadata, :now, :now)

-- insert_session_store --
insert into session_stores (workspace, session_id, position, memory_store_id, access, name,
    description, instructions, mount_path)
values (:workspace, :session_id, :position, :memory_store_id, :access, :name,
    :description, :instructions, :mount_path)

-- stores_to_attach (sqlite) --
select id, name, description, archived_at
from stores
where workspace = :workspace and id in (select value from json_each(:store_ids))

-- stores_to_attach (postgres) --
-- Locked, so that none is archived or deleted before the session is there.
select id, name, description, archived_at
from stores
where workspace = :workspace
    and id in (select jsonb_array_elements_text(cast(:store_ids as jsonb)))
order by id
for share

-- get_session --
select id, title, environment_id, agent, metadata, created_at, updated_at, archived_at
from sessions
where id = :session_id and workspace = :workspace

-- lock_session (sqlite) --
select id, title, environment_id, agent, metadata, created_at, updated_at, archived_at
from sessions
where id = :session_id and workspace = :workspace

-- lock_session (postgres) --
select id, title, environment_id, agent, metadata, created_at, updated_at, archived_at
from sessions
where id = :session_id and workspace = :workspace
for update

-- stores_of_sessions (sqlite) --
select session_id, memory_store_id, access, name, description, instructions, mount_path
from session_stores
where workspace = :workspace and session_id in (select value from json_each(:session_ids))
order by session_id, position

-- stores_of_sessions (postgres) --
select session_id, memory_store_id, access, name, description, instructions, mount_path
from session_stores
where workspace = :workspace
    and session_id in (select jsonb_array_elements_text(cast(:session_ids as jsonb)))
order by session_id, position

-- sessions_before --
select id, title, environment_id, agent, metadata, created_at, updated_at, archived_at
from sessions
where workspace = :workspace
    and created_at >= :since and created_at <= :until and (created_at, id) < (:at, :id)
    and ((archived_at is null and :idle = 1) or (archived_at is not null and :terminated = 1))
    and (cast(:agent_id as text) is null or agent_id = :agent_id)
    and (cast(:agent_version as bigint) is null or agent_version = :agent_version)
    and (cast(:store_id as text) is null or exists (
        select 1 from session_stores a
        where a.memory_store_id = :store_id and a.session_id = sessions.id))
order by created_at desc, id desc
limit :rows

-- sessions_after --
select id, title, environment_id, agent, metadata, created_at, updated_at, archived_at
from sessions
where workspace = :workspace
    and created_at >= :since and created_at <= :until and (created_at, id) > (:at, :id)
    and ((archived_at is null and :idle = 1) or (archived_at is not null and :terminated = 1))
    and (cast(:agent_id as text) is null or agent_id = :agent_id)
    and (cast(:agent_version as bigint) is null or agent_version = :agent_version)
    and (cast(:store_id as text) is null or exists (
        select 1 from session_stores a
        where a.memory_store_id = :store_id and a.session_id = sessions.id))
order by created_at, id
limit :rows

-- change_session --
update sessions
set title = :title, metadata = :metadata, updated_at = :now
where id = :session_id and workspace = :workspace

-- archive_session --
update sessions
set archived_at = :now, updated_at = :now
where id = :session_id and workspace = :workspace

-- delete_tokens_of_session --
delete from session_tokens where session_id = :session_id and workspace = :workspace

-- delete_stores_of_session --
delete from session_stores where session_id = :session_id and workspace = :workspace

-- delete_session --
delete from sessions where id = :session_id and workspace = :workspace

-- insert_token --
insert into session_tokens (id, workspace, session_id, secret_hash, created_at, expires_at)
values (:id, :workspace, :session_id, :secret_hash, :now, :expires_at)

-- live_tokens --
select id, session_id, created_at, expires_at
from session_tokens
where session_id = :session_id and workspace = :workspace and revoked_at is null
    and (expires_at is null or expires_at > :now)
order by created_at desc, id desc

-- get_token --
select id, session_id, created_at, expires_at
from session_tokens
where id = :token_id and session_id = :session_id and workspace = :workspace

-- revoke_token --
update session_tokens
set revoked_at = coalesce(revoked_at, :now)
where id = :token_id and session_id = :session_id and workspace = :workspace

-- revoke_tokens_of_session --
update session_tokens
set revoked_at = coalesce(revoked_at, :now)
where session_id = :session_id and workspace = :workspace

-- token_by_credential --
-- Archiving a session revokes its tokens, and deleting it takes them along: a token that is here
-- and not revoked is of a live session.
select id, workspace, session_id, secret_hash, expires_at
from session_tokens
where secret_hash = :secret_hash and revoked_at is null

-- insert_object --
insert into stored_objects
  (id, workspace, kind, version, newest, parts, created_at, updated_at, archived_at)
values (:id, :workspace, :kind, :version, 1, :parts, :created_at, :updated_at, :archived_at)

-- newest_object --
select id, version, parts, created_at, updated_at, archived_at
from stored_objects
where id = :id and workspace = :workspace and kind = :kind and newest = 1

-- lock_object (sqlite) --
select id from stored_objects where id = :id and workspace = :workspace and version = 1

-- lock_object (postgres) --
-- The first version stays for good, so two changes of one object meet at it.
select id from stored_objects where id = :id and workspace = :workspace and version = 1 for update

-- object_version --
select id, version, parts, created_at, updated_at, archived_at
from stored_objects
where id = :id and workspace = :workspace and version = :version

-- object_is_no_longer_newest --
update stored_objects set newest = 0 where id = :id and workspace = :workspace and newest = 1

-- replace_object --
update stored_objects set parts = :parts, updated_at = :updated_at
where id = :id and workspace = :workspace and newest = 1

-- archive_object --
update stored_objects
set archived_at = :now, updated_at = case when newest = 1 then :now else updated_at end
where id = :id and workspace = :workspace and archived_at is null

-- list_objects --
select id, version, parts, created_at, updated_at, archived_at
from stored_objects
where workspace = :workspace and kind = :kind and newest = 1
    and created_at >= :since and created_at <= :until and (created_at, id) < (:at, :after)
    and (archived_at is null or :include_archived = 1)
order by created_at desc, id desc
limit :rows

-- list_object_versions --
select id, version, parts, created_at, updated_at, archived_at
from stored_objects
where id = :id and workspace = :workspace and version < :before
order by version desc
limit :rows

-- insert_key --
insert into api_keys (id, workspace, name, scope, bound_agent, bound_user, secret_hash, created_at)
values (:id, :workspace, :name, :scope, :bound_agent, :bound_user, :secret_hash, :now)

-- list_keys --
select id, workspace, name, scope, bound_agent, bound_user, created_at, last_used_at, revoked_at
from api_keys
where workspace = :workspace
order by created_at desc, id desc

-- get_key --
select id, workspace, name, scope, bound_agent, bound_user, created_at, last_used_at, revoked_at
from api_keys
where id = :id and workspace = :workspace

-- revoke_key --
update api_keys set revoked_at = :now
where id = :id and workspace = :workspace and revoked_at is null

-- key_by_credential --
select id, workspace, name, scope, bound_agent, bound_user, secret_hash, last_used_at
from api_keys
where secret_hash = :secret_hash and revoked_at is null

-- mark_key_used --
update api_keys set last_used_at = :now
where id = :id and workspace = :workspace and (last_used_at is null or last_used_at <= :before)

-- any_key --
-- The client is not authenticated yet: only upkeep's scope sees the keys of all workspaces.
select 1 as found from api_keys where :workspace = '*' limit 1

-- insert_sign_in --
insert into console_sessions (hash, key_id, workspace, created_at, seen_at, expires_at)
values (:hash, :key_id, :workspace, :now, :now, :expires_at)

-- sign_in_by_credential --
select hash, key_id, workspace, seen_at, expires_at from console_sessions where hash = :hash

-- key_of_sign_in --
select k.id, k.workspace, k.name, k.scope, k.bound_agent, k.bound_user, k.secret_hash,
    k.last_used_at
from console_sessions s join api_keys k on k.id = s.key_id and k.workspace = s.workspace
where s.hash = :hash and s.workspace = :workspace and k.revoked_at is null

-- mark_sign_in_seen --
update console_sessions set seen_at = :now
where hash = :hash and workspace = :workspace and seen_at <= :before

-- end_sign_in --
delete from console_sessions where hash = :hash and workspace = :workspace

-- drop_old_sign_ins --
-- Upkeep's scope alone may.
delete from console_sessions
where :workspace = '*' and (expires_at <= :now or seen_at <= :idle)

-- drop_calls --
-- Calls to a model by consolidations of a store.
delete from consolidation_calls
where workspace = :workspace and job in (
        select id from consolidations
        where workspace = :workspace and owner_kind = 'store' and owner = :store
    )

-- drop_changes --
delete from consolidation_changes
where workspace = :workspace and job in (
        select id from consolidations
        where workspace = :workspace and owner_kind = 'store' and owner = :store
    )

-- drop_consolidations --
delete from consolidations
where workspace = :workspace and owner_kind = 'store' and owner = :store

-- blank_changes --
-- Proposed changes of a store that name a memory with a redacted version.
update consolidation_changes
set after = '{}', reason = '', state = case when state = 'open' then 'stale' else state end
where workspace = :workspace and before like :like
    and job in (
        select id from consolidations
        where workspace = :workspace and owner_kind = 'store' and owner = :store
    )

-- versions_since --
select count(*) from versions
where store_id = :store and workspace = :workspace and seq > :base

-- drop_policies --
delete from consolidation_policies
where workspace = :workspace and owner_kind = 'store' and owner = :store
