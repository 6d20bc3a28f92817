-- What agents keep between runs. `:workspace` and `:agent` are the caller's own.

-- lock_agent (sqlite) --
-- Writes are serial here; the row only has to be there.
insert into durable_agents (workspace, agent, entries, core_entries, size_bytes)
values (:workspace, :owner, 0, 0, 0)
on conflict (workspace, agent) do nothing

-- lock_agent (postgres) --
insert into durable_agents (workspace, agent, entries, core_entries, size_bytes)
values (:workspace, :owner, 0, 0, 0)
on conflict (workspace, agent) do update set agent = excluded.agent

-- open_book --
-- One row for each entry under the key, nearest first, or one without.
select a.entries, a.core_entries, a.expires_at as first_expiry,
    coalesce(mine.cap, ours.cap) as cap, ours.workspace_cap,
    coalesce(mine.run_cap, ours.run_cap) as run_cap,
    coalesce(mine.content_bytes, ours.content_bytes) as content_bytes,
    coalesce(mine.budget, ours.budget) as budget,
    coalesce(mine.daily_hours, ours.daily_hours) as daily_hours,
    e.id, e.agent, e.run_id, e.key, e.content, e.category, e.tags, e.size_bytes, e.seq,
    e.created_at, e.updated_at, e.expires_at, e.created_by, e.updated_by, e.writes
from durable_agents a
left join durable_limits mine on mine.workspace = a.workspace and mine.agent = a.agent
left join durable_limits ours on ours.workspace = a.workspace and ours.agent = ''
left join durable_entries e on e.workspace = a.workspace and e.key = :key
    and e.agent in (a.agent, '') and e.run_id in ('', :run_id)
where a.workspace = :workspace and a.agent = :agent
order by e.run_id desc, e.agent desc

-- held_by --
select entries, core_entries from durable_agents where workspace = :workspace and agent = :owner

-- held_by_run --
select count(*) as entries, 0 as core_entries
from durable_entries
where workspace = :workspace and agent = :agent and run_id = :run_id

-- insert_entry --
insert into durable_entries (id, workspace, agent, run_id, key, category, pinned, tags, size_bytes,
    seq, created_at, updated_at, expires_at, created_by, updated_by, writes, content)
values (:id, :workspace, :owner, :run_id, :key, :category, :pinned, :tags, :size_bytes,
    :seq, :created_at, :updated_at, :expires_at, :by, :by, 1, :content)

-- replace_entry --
update durable_entries
set category = :category, pinned = :pinned, tags = :tags, size_bytes = :size_bytes, seq = :seq,
    updated_at = :updated_at, expires_at = :expires_at, updated_by = :by, writes = writes + 1,
    content = :content
where workspace = :workspace and agent = :owner and run_id = :run_id and key = :key

-- remove_entry --
delete from durable_entries
where workspace = :workspace and agent = :owner and run_id = :run_id and key = :key

-- remove_entries_of_run --
delete from durable_entries
where workspace = :workspace and agent = :agent and run_id = :run_id
returning id, agent, run_id, key, content, category, tags, size_bytes, seq, created_at, updated_at,
    expires_at, created_by, updated_by, writes

-- expire_entries --
delete from durable_entries
where workspace = :workspace and agent = :agent and expires_at < :now
returning id, agent, run_id, key, content, category, tags, size_bytes, seq, created_at, updated_at,
    expires_at, created_by, updated_by, writes

-- set_first_expiry --
update durable_agents
set expires_at = (
    select min(e.expires_at) from durable_entries e
    where e.workspace = :workspace and e.agent = :agent and e.expires_at is not null
)
where workspace = :workspace and agent = :agent

-- coldest_keys --
select key
from durable_entries
where workspace = :workspace and agent = :owner and run_id = :run_id
order by seq
limit :rows

-- take_coldest --
delete from durable_entries
where id in (
    select c.id from durable_entries c
    where c.workspace = :workspace and c.agent = :owner and c.run_id = :run_id and c.pinned = :pinned
    order by c.seq
    limit :rows
)
returning id, agent, run_id, key, content, category, tags, size_bytes, seq, created_at, updated_at,
    expires_at, created_by, updated_by, writes

-- entry_under --
select id, agent, run_id, key, content, category, tags, size_bytes, seq, created_at, updated_at,
    expires_at, created_by, updated_by, writes
from durable_entries
where workspace = :workspace and agent = :owner and run_id = :run_id and key = :key

-- get_entry --
-- The nearest of the run's, the agent's and the workspace's.
select id, agent, run_id, key, content, category, tags, size_bytes, seq, created_at, updated_at,
    expires_at, created_by, updated_by, writes
from durable_entries
where workspace = :workspace and key = :key and agent in (:agent, '') and run_id in ('', :run_id)
    and (expires_at is null or expires_at >= :now)
order by run_id desc, agent desc
limit 1

-- list_entries --
-- Each part is read in the order of its index, and only as far as it is needed.
select id, agent, run_id, key, content, category, tags, size_bytes, seq, created_at, updated_at,
    expires_at, created_by, updated_by, writes
from durable_entries
where workspace = :workspace and agent = :agent and run_id = '' and seq < :before
    and (expires_at is null or expires_at >= :now)
union all
select id, agent, run_id, key, content, category, tags, size_bytes, seq, created_at, updated_at,
    expires_at, created_by, updated_by, writes
from durable_entries
where workspace = :workspace and agent = '' and run_id = '' and seq < :before
    and (expires_at is null or expires_at >= :now)
union all
select id, agent, run_id, key, content, category, tags, size_bytes, seq, created_at, updated_at,
    expires_at, created_by, updated_by, writes
from durable_entries
where workspace = :workspace and agent = :agent and run_id = :run_id and :run_id <> '' and seq < :before
    and (expires_at is null or expires_at >= :now)
order by seq desc
limit :rows

-- candidates --
-- All that a hydration is planned from, out of the index alone.
select id, key, category, agent, run_id, size_bytes, seq
from durable_entries
where workspace = :workspace and agent in (:agent, '') and run_id in ('', :run_id)
    and (expires_at is null or expires_at >= :now)

-- entries_by_id (sqlite) --
select e.id, e.agent, e.run_id, e.key, e.content, e.category, e.tags, e.size_bytes, e.seq,
    e.created_at, e.updated_at, e.expires_at, e.created_by, e.updated_by, e.writes
from json_each(:ids) wanted cross join durable_entries e
where e.id = wanted.value and e.workspace = :workspace and e.agent in (:agent, '')

-- entries_by_id (postgres) --
select e.id, e.agent, e.run_id, e.key, e.content, e.category, e.tags, e.size_bytes, e.seq,
    e.created_at, e.updated_at, e.expires_at, e.created_by, e.updated_by, e.writes
from durable_entries e
where e.workspace = :workspace and e.agent in (:agent, '')
    and e.id in (select jsonb_array_elements_text(cast(:ids as jsonb)))

-- insert_change --
insert into durable_changes (seq, workspace, agent, run_id, at, op, key, category, size_bytes,
    content, content_sha256, actor, cause)
values (:seq, :workspace, :owner, :run_id, :at, :op, :key, :category, :size_bytes,
    :content, :content_sha256, :actor, :cause)

-- trim_changes_of_key --
delete from durable_changes
where workspace = :workspace and agent = :owner and key = :key and seq <= (
    select max(kept.seq) from (
        select c.seq from durable_changes c
        where c.workspace = :workspace and c.agent = :owner and c.key = :key
        order by c.seq desc
        limit 1 offset :keep
    ) kept
)

-- fence --
select l.token as live_token, l.run_id as live_run, r.began_seq, r.seen_at, r.ended_at, r.outcome, s.secret
from durable_lanes l
left join durable_runs r on r.workspace = l.workspace and r.agent = l.agent and r.lane = l.lane
    and r.token = :token and r.run_id = :run_id
left join durable_secrets s on s.workspace = l.workspace
where l.workspace = :workspace and l.agent = :agent and l.lane = :lane

-- lock_fence (sqlite) --
select l.token as live_token, l.run_id as live_run, r.began_seq, r.seen_at, r.ended_at, r.outcome, s.secret
from durable_lanes l
left join durable_runs r on r.workspace = l.workspace and r.agent = l.agent and r.lane = l.lane
    and r.token = :token and r.run_id = :run_id
left join durable_secrets s on s.workspace = l.workspace
where l.workspace = :workspace and l.agent = :agent and l.lane = :lane

-- lock_fence (postgres) --
select l.token as live_token, l.run_id as live_run, r.began_seq, r.seen_at, r.ended_at, r.outcome, s.secret
from durable_lanes l
left join durable_runs r on r.workspace = l.workspace and r.agent = l.agent and r.lane = l.lane
    and r.token = :token and r.run_id = :run_id
left join durable_secrets s on s.workspace = l.workspace
where l.workspace = :workspace and l.agent = :agent and l.lane = :lane
for update of l

-- see_run --
update durable_runs set seen_at = :now
where workspace = :workspace and agent = :agent and lane = :lane and token = :token

-- tombstones_of --
select seq, at, actor
from durable_tombstones
where workspace = :workspace and agent in (:agent, '') and key_hash = :key_hash
order by seq desc

-- get_secret --
select secret from durable_secrets where workspace = :workspace

-- insert_secret --
insert into durable_secrets (workspace, secret)
values (:workspace, :secret)
on conflict (workspace) do nothing

-- entries_under_key --
select id, agent, run_id, key, content, category, tags, size_bytes, seq, created_at, updated_at,
    expires_at, created_by, updated_by, writes
from durable_entries
where workspace = :workspace and key = :key and agent in (:agent, '') and run_id in ('', :run_id)
order by run_id desc, agent desc

-- forget_changes --
-- What else was brought about by a write of this key names it in its cause.
update durable_changes
set key = null, category = null, content = null, content_sha256 = null, cause = '{}'
where workspace = :workspace and agent = :owner and key = :key

-- forget_causes --
update durable_changes
set cause = '{}'
where workspace = :workspace and agent in (:agent, '') and cause = :cause

-- bury --
insert into durable_tombstones (workspace, agent, run_id, key_hash, seq, at, actor)
values (:workspace, :owner, :run_id, :key_hash, :seq, :now, :by)
on conflict (workspace, agent, run_id, key_hash) do update
set seq = excluded.seq, at = excluded.at, actor = excluded.actor

-- take_lane --
-- The next token, and with it the lane until the transaction ends.
insert into durable_lanes (workspace, agent, lane, token, run_id)
values (:workspace, :agent, :lane, 1, :run_id)
on conflict (workspace, agent, lane) do update
set token = durable_lanes.token + 1, run_id = excluded.run_id
returning token, coalesce(
    (select l.budget from durable_limits l where l.workspace = :workspace and l.agent = :agent),
    (select l.budget from durable_limits l where l.workspace = :workspace and l.agent = '')
) as budget

-- leave_lane --
update durable_lanes set run_id = null
where workspace = :workspace and agent = :agent and lane = :lane and token = :token

-- begin_run --
insert into durable_runs (workspace, agent, lane, token, run_id, began_seq, began_at, seen_at)
values (:workspace, :agent, :lane, :token, :run_id, :seq, :now, :now)

-- supersede_runs --
-- Those open in the lane, and one open in another lane under the same id.
update durable_runs
set ended_at = :now, outcome = case when seen_at < :lapsed then 'lapsed' else 'superseded' end
where workspace = :workspace and agent = :agent and ended_at is null
    and ((lane = :lane and token < :token) or run_id = :run_id)
returning run_id, token, outcome

-- end_run --
update durable_runs set ended_at = :now, outcome = :outcome
where workspace = :workspace and agent = :agent and lane = :lane and token = :token

-- limits_of_agent --
-- The workspace's first, so that the agent's own lie over them; its cap on shared entries is its alone.
select cap, workspace_cap, run_cap, content_bytes, budget, daily_hours
from durable_limits
where workspace = :workspace and agent in ('', :agent)
order by agent
