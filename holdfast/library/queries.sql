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

-- put_samples --
-- A row for each workspace that has anything; the last of a day stays.
insert into samples (workspace, day, bytes, memories, versions, entries, items, turns, runs)
select workspace, :day, :bytes, sum(memories), sum(versions), sum(entries), sum(items),
    sum(turns), sum(runs)
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
on conflict (workspace, day) do update
set bytes = excluded.bytes, memories = excluded.memories, versions = excluded.versions,
    entries = excluded.entries, items = excluded.items, turns = excluded.turns,
    runs = excluded.runs

-- drop_samples --
delete from samples where :workspace = '*' and day <= :before
