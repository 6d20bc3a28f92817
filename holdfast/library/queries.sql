-- Events and sizes of workspaces. `:workspace` is the caller's own, or `*` for upkeep.

-- events_floor --
-- The lowest of the :looked newest numbers below :before, of whatever workspace.
select seq from changes
where :workspace = '*' and seq < :before
order by seq desc
limit 1 offset :looked - 1

-- events_before (sqlite) --
select seq, at, workspace, owner, type, ids, data, actor
from changes
where workspace = :workspace and seq < :before and seq >= :floor and type <> :trimmed
    and (:types = '' or instr(:types, ',' || type || ',') > 0)
    and (:owner = '' or owner = :owner)
    and (:id = '' or exists (
        select 1 from json_each(ids) e where instr(' ' || e.value || ' ', ' ' || :id || ' ') > 0))
    and (:actor = '' or exists (
        select 1 from json_each(actor) e where e.key <> 'type' and e.value = :actor))
order by seq desc
limit :rows

-- events_before (postgres) --
select seq, xid, at, workspace, owner, type, ids, data, actor
from changes
where workspace = :workspace and seq < :before and seq >= :floor and type <> :trimmed
    and (:types = '' or strpos(:types, ',' || type || ',') > 0)
    and (:owner = '' or owner = :owner)
    and (:id = '' or exists (
        select 1 from jsonb_each_text(ids) e
        where strpos(' ' || e.value || ' ', ' ' || :id || ' ') > 0))
    and (:actor = '' or exists (
        select 1 from jsonb_each_text(coalesce(actor, cast('{}' as jsonb))) e
        where e.key <> 'type' and e.value = :actor))
order by seq desc
limit :rows

-- list_samples --
select day, bytes, memories, versions, entries, items, turns, runs
from samples
where workspace = :workspace and day > :after
order by day

-- database_bytes (sqlite) --
select p.page_count * s.page_size as bytes from pragma_page_count() p, pragma_page_size() s

-- database_bytes (postgres) --
select cast(coalesce(sum(pg_total_relation_size(c.oid)), 0) as bigint) as bytes
from pg_class c
where c.relnamespace = cast('holdfast' as regnamespace) and c.relkind = 'r'

-- sizes_of_all --
-- A row for each workspace that has anything.
select workspace as home, cast(sum(memories) as bigint) as memories,
    cast(sum(versions) as bigint) as versions, cast(sum(entries) as bigint) as entries,
    cast(sum(items) as bigint) as items, cast(sum(turns) as bigint) as turns,
    cast(sum(runs) as bigint) as runs
from (
    select s.workspace, s.memories,
        (select count(*) from versions v where v.store_id = s.id) as versions,
        0 as entries, 0 as items, 0 as turns, 0 as runs
    from stores s
    union all
    select workspace, 0, 0, entries, 0, 0, 0 from durable_agents
    union all
    select workspace, 0, 0, 0, items - superseded, turns, 0 from ltm_collections
    union all
    select workspace, 0, 0, 0, 0, 0, count(*) from runs group by workspace
) held
where :workspace = '*'
group by workspace
order by workspace

-- put_sample --
-- The last of a day stays. Upkeep's scope alone may.
insert into samples (workspace, day, bytes, memories, versions, entries, items, turns, runs)
select :home, :day, :bytes, :memories, :versions, :entries, :items, :turns, :runs
where :workspace = '*'
on conflict (workspace, day) do update
set bytes = excluded.bytes, memories = excluded.memories, versions = excluded.versions,
    entries = excluded.entries, items = excluded.items, turns = excluded.turns,
    runs = excluded.runs

-- drop_samples --
delete from samples where :workspace = '*' and day <= :before

-- holdings --
-- Sums of counters that stand beside the rows.
select
  (select count(*) from stores where workspace = :workspace) as stores,
  (select cast(coalesce(sum(memories), 0) as bigint) from stores where workspace = :workspace)
    as memories,
  (select count(*) from durable_agents where workspace = :workspace and agent <> '') as agents,
  (select cast(coalesce(sum(entries), 0) as bigint) from durable_agents
    where workspace = :workspace) as entries,
  (select count(distinct user_id) from ltm_collections
    where workspace = :workspace and (items > 0 or turns > 0)) as people,
  (select cast(coalesce(sum(items - superseded), 0) as bigint) from ltm_collections
    where workspace = :workspace) as items,
  (select cast(coalesce(sum(turns), 0) as bigint) from ltm_collections
    where workspace = :workspace) as turns

-- newest_agents --
select agent, entries, size_bytes, last_write
from durable_agents
where workspace = :workspace and agent <> '' and last_write is not null
order by last_write desc, agent
limit :rows

-- newest_collections --
select user_id, namespace, workspace_id, items - superseded as items, turns
from ltm_collections
where workspace = :workspace and (items > 0 or turns > 0)
order by number desc
limit :rows

-- agents_from --
select agent, entries, size_bytes, last_write
from durable_agents
where workspace = :workspace and agent <> '' and agent >= :start and agent < :end
order by agent
limit :rows

-- keys_from --
-- A seek for each agent; entries of runs are not looked at.
select e.agent, e.key, e.category, e.size_bytes, e.updated_at
from durable_agents a
join durable_entries e on e.workspace = a.workspace and e.agent = a.agent and e.run_id = ''
where a.workspace = :workspace and e.key >= :start and e.key < :end
    and (e.expires_at is null or e.expires_at > :now)
order by e.agent, e.key
limit :rows

-- place_of_memory --
select store_id as holder, id as part, '' as more
from memories where workspace = :workspace and id = :id
union all
select store_id, memory_id, '' from versions where workspace = :workspace and memory_id = :id
limit 1

-- place_of_version --
select store_id as holder, id as part, '' as more
from versions where workspace = :workspace and id = :id

-- place_of_token --
select session_id as holder, id as part, '' as more
from session_tokens where workspace = :workspace and id = :id

-- place_of_entry --
select agent as holder, key as part, run_id as more
from durable_entries where workspace = :workspace and id = :id
limit 1

-- place_of_collection --
select user_id as holder, namespace as part, workspace_id as more
from ltm_collections where workspace = :workspace and id = :id

-- place_of_item --
select c.user_id as holder, c.namespace as part, c.workspace_id as more
from ltm_collections c
join ltm_items i on i.collection = c.number and i.id = :id
where c.workspace = :workspace
limit 1

-- place_of_turn --
select c.user_id as holder, c.namespace as part, c.workspace_id as more
from ltm_collections c
join ltm_turns t on t.collection = c.number and t.id = :id
where c.workspace = :workspace
limit 1

-- place_of_result --
select t.id as holder, r.id as part, '' as more
from threads t
join thread_turns r on r.workspace = t.workspace and r.thread_id = t.id and r.id = :id
where t.workspace = :workspace
limit 1

-- full_stores --
select s.id, s.name, s.memories as held, coalesce(c.memories_cap, :cap) as cap
from stores s
left join store_settings c on c.workspace = s.workspace
where s.workspace = :workspace and s.archived_at is null
    and s.memories * 10 >= coalesce(c.memories_cap, :cap) * 9
order by s.memories desc, s.id
limit :rows

-- full_agents --
select a.agent as id, a.agent as name, a.entries as held,
    case when a.agent = '' then coalesce(ours.workspace_cap, :workspace_cap)
        else coalesce(mine.cap, ours.cap, :cap) end as cap
from durable_agents a
left join durable_limits mine on mine.workspace = a.workspace and mine.agent = a.agent
left join durable_limits ours on ours.workspace = a.workspace and ours.agent = ''
where a.workspace = :workspace and a.entries * 10 >= 9 * (
    case when a.agent = '' then coalesce(ours.workspace_cap, :workspace_cap)
        else coalesce(mine.cap, ours.cap, :cap) end)
order by a.entries desc, a.agent
limit :rows

-- expiring_entries --
select agent as id, agent as name, count(*) as held, 0 as cap
from durable_entries
where workspace = :workspace and expires_at > :now and expires_at <= :soon and run_id = ''
group by agent
order by held desc, agent
limit :rows

-- held_rows --
-- Items and turns that a person has to accept or reject.
select user_id, namespace, workspace_id, held
from ltm_collections
where workspace = :workspace and held > 0
order by held desc, user_id, namespace, workspace_id
limit :rows

-- failed_work --
select c.user_id, c.namespace, c.workspace_id, count(*) as held
from ltm_jobs j
join ltm_collections c on c.number = j.collection
where j.workspace = :workspace and j.state = 'failed'
group by c.user_id, c.namespace, c.workspace_id
order by held desc, c.user_id, c.namespace, c.workspace_id
limit :rows
