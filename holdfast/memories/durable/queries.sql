-- What agents keep between runs. `:workspace` and `:agent` are the caller's own; `:owner` is that
-- agent, or '' for what the workspace shares.

-- lock_agent (sqlite) --
-- Whoever writes here is alone.
select 1 as locked

-- lock_agent (postgres) --
-- The agent's row first, then with :shared the workspace's.
select 1 as locked
from durable_agents
where workspace = :workspace and agent in (:agent, case when :shared = 1 then '' else :agent end)
order by agent desc
for update

-- make_agent --
insert into durable_agents (workspace, agent, entries, core_entries, size_bytes, forgot_seq, tidy_at)
values (:workspace, :owner, 0, 0, 0, 0, :tidy_at)
on conflict (workspace, agent) do nothing

-- open_book --
-- Sizes, limits and the state of the run; one row for each entry under the key, or one without.
select a.entries, a.core_entries, a.expires_at as first_expiry, a.forgot_seq, a.tidy_at,
    s.entries as shared_entries, s.forgot_seq as shared_forgot_seq,
    coalesce(mine.cap, ours.cap) as cap, ours.workspace_cap,
    coalesce(mine.run_cap, ours.run_cap) as run_cap,
    coalesce(mine.content_bytes, ours.content_bytes) as content_bytes,
    coalesce(mine.budget, ours.budget) as budget,
    coalesce(mine.daily_hours, ours.daily_hours) as daily_hours,
    h.secret, r.lane, r.knew_seq, r.knew_shared_seq, r.seen_at, r.outcome as run_outcome,
    l.token as live_token,
    e.agent, e.run_id, e.key, e.id, e.content, e.category, e.tags, e.size_bytes, e.seq,
    e.created_at, e.updated_at, e.expires_at, e.created_by, e.updated_by, e.tier, e.origin_ref, e.held
from durable_agents a
left join durable_agents s on s.workspace = a.workspace and s.agent = ''
left join durable_limits mine on mine.workspace = a.workspace and mine.agent = a.agent
left join durable_limits ours on ours.workspace = a.workspace and ours.agent = ''
left join durable_secrets h on h.workspace = a.workspace
left join durable_runs r on r.workspace = a.workspace and r.agent = a.agent
    and r.token = :token and r.run_id = :run_id
left join durable_lanes l on l.workspace = r.workspace and l.agent = r.agent and l.lane = r.lane
left join durable_entries e on e.workspace = a.workspace and e.agent in (a.agent, '')
    and e.run_id in ('', :run_id) and e.key = :key
where a.workspace = :workspace and a.agent = :agent

-- entries_under (sqlite) --
select e.agent, e.run_id, e.key, e.id, e.content, e.category, e.tags, e.size_bytes, e.seq,
    e.created_at, e.updated_at, e.expires_at, e.created_by, e.updated_by, e.tier, e.origin_ref, e.held
from json_each(:keys) k cross join durable_entries e
where e.workspace = :workspace and e.agent in (:agent, '') and e.run_id in ('', :run_id)
    and e.key = k.value

-- entries_under (postgres) --
select e.agent, e.run_id, e.key, e.id, e.content, e.category, e.tags, e.size_bytes, e.seq,
    e.created_at, e.updated_at, e.expires_at, e.created_by, e.updated_by, e.tier, e.origin_ref, e.held
from durable_entries e
where e.workspace = :workspace and e.agent in (:agent, '') and e.run_id in ('', :run_id)
    and e.key = any (array(select jsonb_array_elements_text(cast(:keys as jsonb))))

-- due_entries --
-- The contents are deleted unread.
select agent, run_id, key, id, '' as content, category, tags, size_bytes, seq, created_at, updated_at,
    expires_at, created_by, updated_by, tier, origin_ref, held
from durable_entries
where workspace = :workspace and agent = :agent and expires_at < :now
order by seq

-- erase_expired (sqlite) --
-- Erases content and hash from the log of keys with an expired entry. The rows stay.
update durable_changes set content = null, content_sha256 = null, entry = null
where workspace = :workspace and agent = :agent and content_sha256 is not null
    and key in (select value from json_each(:keys))

-- erase_expired (postgres) --
update durable_changes set content = null, content_sha256 = null, entry = null
where workspace = :workspace and agent = :agent and content_sha256 is not null
    and key = any (array(select jsonb_array_elements_text(cast(:keys as jsonb))))

-- expired_entries --
-- Those whose time is over and whose contents no write or sweep has erased yet; evicted ones too.
select key, seq
from durable_entries
where workspace = :workspace and agent = :agent and expires_at < :now
union all
select key, seq
from durable_changes
where workspace = :workspace and agent = :agent and key is not null and expires_at < :now
    and content_sha256 is not null

-- entries_of_run --
-- The contents are deleted unread.
select agent, run_id, key, id, '' as content, category, tags, size_bytes, seq, created_at, updated_at,
    expires_at, created_by, updated_by, tier, origin_ref, held
from durable_entries
where workspace = :workspace and agent = :agent and run_id = :run
order by seq

-- coldest --
select agent, run_id, key, id, content, category, tags, size_bytes, seq, created_at, updated_at,
    expires_at, created_by, updated_by, tier, origin_ref, held
from durable_entries
where workspace = :workspace and agent = :owner and run_id = :run and pinned = :pinned
    and seq > :after
order by seq
limit :rows

-- coldest_keys --
-- Of a scope that holds core entries alone.
select key
from durable_entries
where workspace = :workspace and agent = :owner and run_id = :run and pinned = 1
order by seq
limit :rows

-- held_by_run --
select count(*) as entries
from durable_entries
where workspace = :workspace and agent = :agent and run_id = :run and pinned = 0

-- put_entry (sqlite) --
insert into durable_entries (workspace, agent, run_id, key, id, category, pinned, tags, size_bytes,
    seq, created_at, updated_at, expires_at, created_by, updated_by, tier,
    origin_ref, held, content)
values (:workspace, :owner, :run, :key, :id, :category, :pinned, :tags, :size_bytes,
    :seq, :created_at, :updated_at, :expires_at, :created_by, :updated_by, :tier,
    :origin_ref, :held, :content)
on conflict (workspace, agent, run_id, key) do update
set id = excluded.id, category = excluded.category, pinned = excluded.pinned, tags = excluded.tags,
    size_bytes = excluded.size_bytes, seq = excluded.seq, created_at = excluded.created_at,
    updated_at = excluded.updated_at, expires_at = excluded.expires_at,
    created_by = excluded.created_by, updated_by = excluded.updated_by, tier = excluded.tier,
    origin_ref = excluded.origin_ref, held = excluded.held, content = excluded.content

-- put_entry (postgres) --
-- All of a batch at once: as many statements, each by itself, would take as many times as long.
insert into durable_entries (workspace, agent, run_id, key, id, category, pinned, tags, size_bytes,
    seq, created_at, updated_at, expires_at, created_by, updated_by, tier,
    origin_ref, held, content)
select :workspace, n.owner, n.run, n.key, n.id, n.category, n.pinned, n.tags, n.size_bytes, n.seq,
    n.created_at, n.updated_at, n.expires_at, n.created_by, n.updated_by, n.tier,
    n.origin_ref, n.held, n.content
from jsonb_to_recordset(cast(:rows as jsonb)) as n (owner text, run text, key text, id text,
    category text, pinned integer, tags text, size_bytes integer, seq bigint, created_at bigint,
    updated_at bigint, expires_at bigint, created_by text, updated_by text, tier text,
    origin_ref text, held text, content text)
on conflict (workspace, agent, run_id, key) do update
set id = excluded.id, category = excluded.category, pinned = excluded.pinned, tags = excluded.tags,
    size_bytes = excluded.size_bytes, seq = excluded.seq, created_at = excluded.created_at,
    updated_at = excluded.updated_at, expires_at = excluded.expires_at,
    created_by = excluded.created_by, updated_by = excluded.updated_by, tier = excluded.tier,
    origin_ref = excluded.origin_ref, held = excluded.held, content = excluded.content

-- remove_entry (sqlite) --
delete from durable_entries
where workspace = :workspace and agent = :owner and run_id = :run and key = :key

-- remove_entry (postgres) --
delete from durable_entries e
using jsonb_to_recordset(cast(:rows as jsonb)) as n (owner text, run text, key text)
where e.workspace = :workspace and e.agent = n.owner and e.run_id = n.run and e.key = n.key

-- log_change (sqlite) --
insert into durable_changes (seq, workspace, agent, run_id, at, op, key, key_hash, category,
    size_bytes, content, content_sha256, actor, evicted_for, cause, expires_at, entry)
values (:seq, :workspace, :owner, :run, :at, :op, :key, unhex(:key_hash), :category, :size_bytes,
    :content, :content_sha256, :actor, :evicted_for, :cause, :expires_at, :entry)

-- log_change (postgres) --
insert into durable_changes (seq, workspace, agent, run_id, at, op, key, key_hash, category,
    size_bytes, content, content_sha256, actor, evicted_for, cause, expires_at, entry)
select n.seq, :workspace, n.owner, n.run, n.at, n.op, n.key, decode(n.key_hash, 'hex'), n.category,
    n.size_bytes, n.content, n.content_sha256, n.actor, n.evicted_for, n.cause, n.expires_at,
    n.entry
from jsonb_to_recordset(cast(:rows as jsonb)) as n (seq bigint, owner text, run text, at bigint,
    op text, key text, key_hash text, category text, size_bytes integer, content text,
    content_sha256 text, actor text, evicted_for text, cause text, expires_at bigint, entry text)

-- set_first_expiry --
update durable_agents
set expires_at = (
    select min(e.expires_at) from durable_entries e
    where e.workspace = :workspace and e.agent = :agent and e.expires_at is not null
)
where workspace = :workspace and agent = :agent

-- get_entries --
-- The agent's own and the workspace's, one of each at most: no sort, no limit, two probes.
select agent, run_id, key, id, content, category, tags, size_bytes, seq, created_at, updated_at,
    expires_at, created_by, updated_by, tier, origin_ref, held
from durable_entries
where workspace = :workspace and agent = :agent and run_id = '' and key = :key
union all
select agent, run_id, key, id, content, category, tags, size_bytes, seq, created_at, updated_at,
    expires_at, created_by, updated_by, tier, origin_ref, held
from durable_entries
where workspace = :workspace and agent = '' and run_id = '' and key = :key

-- get_entry_of_run --
select agent, run_id, key, id, content, category, tags, size_bytes, seq, created_at, updated_at,
    expires_at, created_by, updated_by, tier, origin_ref, held
from durable_entries
where workspace = :workspace and agent = :agent and run_id = :run and key = :key

-- list_entries --
-- Each part is read in the order of its index, and only as far as it is needed.
select agent, run_id, key, id, content, category, tags, size_bytes, seq, created_at, updated_at,
    expires_at, created_by, updated_by, tier, origin_ref, held
from durable_entries
where workspace = :workspace and agent = :agent and run_id = '' and pinned = 1 and seq < :before
    and (:category = '' or category = :category) and updated_at >= :since
    and substr(key, 1, :prefix_length) = :prefix
union all
select agent, run_id, key, id, content, category, tags, size_bytes, seq, created_at, updated_at,
    expires_at, created_by, updated_by, tier, origin_ref, held
from durable_entries
where workspace = :workspace and agent = :agent and run_id = '' and pinned = 0 and seq < :before
    and (:category = '' or category = :category) and updated_at >= :since
    and substr(key, 1, :prefix_length) = :prefix
    and (expires_at is null or expires_at >= :now)
union all
select agent, run_id, key, id, content, category, tags, size_bytes, seq, created_at, updated_at,
    expires_at, created_by, updated_by, tier, origin_ref, held
from durable_entries
where workspace = :workspace and agent = '' and run_id = '' and pinned = 0 and seq < :before
    and (:category = '' or category = :category) and updated_at >= :since
    and substr(key, 1, :prefix_length) = :prefix
union all
select agent, run_id, key, id, content, category, tags, size_bytes, seq, created_at, updated_at,
    expires_at, created_by, updated_by, tier, origin_ref, held
from durable_entries
where workspace = :workspace and agent = :agent and run_id = :run_id and :run_id <> ''
    and pinned = 0 and seq < :before
    and (:category = '' or category = :category) and updated_at >= :since
    and substr(key, 1, :prefix_length) = :prefix
order by seq desc
limit :rows

-- candidates (sqlite) --
-- All that a hydration is planned from, out of the index alone; each column of a place as an
-- array, which takes a third of the time of as many rows.
select :agent as agent, '' as run_id, json_group_array(key) as keys,
    json_group_array(category) as categories, json_group_array(size_bytes) as sizes,
    json_group_array(seq) as seqs, json_group_array(id) as ids, json_group_array(held) as held
from durable_entries
where workspace = :workspace and agent = :agent and run_id = '' and pinned in (0, 1)
    and (expires_at is null or expires_at >= :now)
union all
select '', '', json_group_array(key), json_group_array(category), json_group_array(size_bytes),
    json_group_array(seq), json_group_array(id), json_group_array(held)
from durable_entries
where workspace = :workspace and agent = '' and run_id = '' and pinned = 0
union all
select :agent, :run_id, json_group_array(key), json_group_array(category),
    json_group_array(size_bytes), json_group_array(seq), json_group_array(id),
    json_group_array(held)
from durable_entries
where workspace = :workspace and agent = :agent and run_id = :run_id and :run_id <> ''
    and pinned = 0

-- candidates (postgres) --
select agent, run_id, cast(json_agg(key) as text) as keys,
    cast(json_agg(category) as text) as categories, cast(json_agg(size_bytes) as text) as sizes,
    cast(json_agg(seq) as text) as seqs, cast(json_agg(id) as text) as ids,
    cast(json_agg(held) as text) as held
from durable_entries
where workspace = :workspace and agent in (:agent, '') and run_id in ('', :run_id)
    and pinned in (0, 1) and (expires_at is null or expires_at >= :now)
group by agent, run_id

-- all_entries --
select agent, run_id, key, id, content, category, tags, size_bytes, seq, created_at, updated_at,
    expires_at, created_by, updated_by, tier, origin_ref, held
from durable_entries
where workspace = :workspace and agent in (:agent, '') and run_id in ('', :run_id)
    and pinned in (0, 1) and (expires_at is null or expires_at >= :now)

-- chosen_entries (sqlite) --
select e.agent, e.run_id, e.key, e.id, e.content, e.category, e.tags, e.size_bytes, e.seq,
    e.created_at, e.updated_at, e.expires_at, e.created_by, e.updated_by, e.tier, e.origin_ref, e.held
from json_each(:chosen) c cross join durable_entries e
where e.workspace = :workspace and e.agent = c.value ->> 0 and e.run_id = c.value ->> 1
    and e.key = c.value ->> 2

-- chosen_entries (postgres) --
select e.agent, e.run_id, e.key, e.id, e.content, e.category, e.tags, e.size_bytes, e.seq,
    e.created_at, e.updated_at, e.expires_at, e.created_by, e.updated_by, e.tier, e.origin_ref, e.held
from jsonb_array_elements(cast(:chosen as jsonb)) c
join durable_entries e on e.workspace = :workspace and e.agent = c.value ->> 0
    and e.run_id = c.value ->> 1 and e.key = c.value ->> 2

-- fence --
-- The state of the run, and the live token of its lane.
select r.lane, r.seen_at, r.outcome as run_outcome, l.token as live_token
from durable_runs r
join durable_lanes l on l.workspace = r.workspace and l.agent = r.agent and l.lane = r.lane
where r.workspace = :workspace and r.agent = :agent and r.token = :token and r.run_id = :run_id

-- live_token --
select token
from durable_runs
where workspace = :workspace and agent = :agent and ended_at is null
    and (lane = :lane or (:lane is null and run_id = :run_id))
order by token desc
limit 1

-- see_run --
update durable_runs set seen_at = :now
where workspace = :workspace and agent = :agent and token = :token

-- open_lane --
-- What a run begins with: its budget, what was forgotten before it, how much there is to see; one
-- row for each run that it ends, or one without.
select a.forgot_seq, s.forgot_seq as shared_forgot_seq, a.size_bytes,
    s.size_bytes as shared_size_bytes, coalesce(mine.budget, ours.budget) as budget,
    a.expires_at as first_expiry, r.run_id, r.token, r.seen_at,
    case when exists (
        select 1 from durable_entries e
        where e.workspace = r.workspace and e.agent = r.agent and e.run_id = r.run_id
    ) then 1 else 0 end as talked
from durable_agents a
left join durable_agents s on s.workspace = a.workspace and s.agent = ''
left join durable_limits mine on mine.workspace = a.workspace and mine.agent = a.agent
left join durable_limits ours on ours.workspace = a.workspace and ours.agent = ''
left join durable_runs r on r.workspace = a.workspace and r.agent = a.agent
    and r.ended_at is null and (r.lane = :lane or r.run_id = :run)
where a.workspace = :workspace and a.agent = :agent

-- begin_run --
insert into durable_runs (workspace, agent, token, run_id, lane, knew_seq, knew_shared_seq,
    began_at, seen_at)
values (:workspace, :agent, :token, :run, :lane, :knew_seq, :knew_shared_seq, :now, :now)

-- end_run --
update durable_runs set ended_at = :now, outcome = :outcome
where workspace = :workspace and agent = :agent and token = :token

-- to_see --
-- Bytes of the visible entries, by the counters, and the budget for them.
select coalesce(a.size_bytes, 0) as size_bytes, coalesce(s.size_bytes, 0) as shared_size_bytes,
    coalesce(mine.budget, ours.budget) as budget
from (select 1 as one) x
left join durable_agents a on a.workspace = :workspace and a.agent = :agent
left join durable_agents s on s.workspace = :workspace and s.agent = ''
left join durable_limits mine on mine.workspace = :workspace and mine.agent = :agent
left join durable_limits ours on ours.workspace = :workspace and ours.agent = ''

-- limits_of_agent --
-- The workspace's first, so that the agent's own lie over them.
select cap, workspace_cap, run_cap, content_bytes, budget, daily_hours
from durable_limits
where workspace = :workspace and agent in ('', :agent)
order by agent

-- own_limits --
select cap, workspace_cap, run_cap, content_bytes, budget, daily_hours
from durable_limits
where workspace = :workspace and agent = :owner

-- put_limits --
insert into durable_limits (workspace, agent, cap, workspace_cap, run_cap, content_bytes, budget,
    daily_hours)
values (:workspace, :owner, :cap, :workspace_cap, :run_cap, :content_bytes, :budget, :daily_hours)
on conflict (workspace, agent) do update
set cap = excluded.cap, workspace_cap = excluded.workspace_cap, run_cap = excluded.run_cap,
    content_bytes = excluded.content_bytes, budget = excluded.budget,
    daily_hours = excluded.daily_hours

-- agents_over --
-- Agents with more entries than a new default permits.
select a.agent, a.entries, a.core_entries
from durable_agents a
left join durable_limits l on l.workspace = a.workspace and l.agent = a.agent
where a.workspace = :workspace and a.agent <> '' and a.entries > :cap and l.cap is null
order by a.agent

-- tombstones_of --
select key_hash, agent, seq, at, actor
from durable_tombstones
where workspace = :workspace and agent in (:agent, '') and run_id in ('', :run_id)
    and key_hash = :key_hash

-- make_secret --
insert into durable_secrets (workspace, secret)
values (:workspace, :secret)
on conflict (workspace) do nothing

-- get_secret --
select secret from durable_secrets where workspace = :workspace

-- forget_changes --
update durable_changes
set key = null, key_hash = :key_hash, category = null, content = null, content_sha256 = null,
    entry = null, cause = '{}'
where workspace = :workspace and agent = :owner and key = :key

-- entry_before --
select agent, run_id, key, id, '' as content, category, tags, size_bytes, seq, created_at, updated_at,
    expires_at, created_by, updated_by, tier, origin_ref, held
from durable_entries
where workspace = :workspace and agent = :owner and run_id = :run and key = :key and seq < :seq

-- trace --
select seq
from durable_changes
where workspace = :workspace and agent = :owner and key = :key
limit 1

-- forget_causes --
-- What went for this key's sake no longer says so.
update durable_changes set evicted_for = null
where workspace = :workspace and agent = :owner and evicted_for = :key

-- trim_forgotten --
-- As with keys that are known, the newest twenty.
delete from durable_changes
where workspace = :workspace and agent = :owner and key_hash = :key_hash and seq <= (
    select c.seq from durable_changes c
    where c.workspace = :workspace and c.agent = :owner and c.key_hash = :key_hash
    order by c.seq desc
    limit 1 offset 20
)

-- link_entry --
insert into subjects (workspace, user_id, kind, object_id, at)
values (:workspace, :subject, 'durable_entry', :id, :now)
on conflict (workspace, user_id, kind, object_id) do nothing

-- unlink_entries_of_run --
-- Entries of runs leave no content in the log.
delete from subjects
where workspace = :workspace and kind = 'durable_entry' and object_id in (
  select id from durable_entries
  where workspace = :workspace and agent = :agent and run_id = :run)

-- workspace_secret --
select secret from tombstone_secrets where workspace = :workspace

-- erased --
-- When a person was last erased.
select seq, at from user_tombstones where workspace = :workspace and user_hash = :user_hash

-- blank_changes (sqlite) --
-- Proposed changes that name the key, and have the text `:having`.
update consolidation_changes
set before = '[]', after = '{}', reason = '',
    applied = case when applied is not null then '{"number":0}' end,
    state = case when state = 'open' then 'stale' else state end
where workspace = :workspace and instr(before, :needle) > 0 and instr(after, :having) > 0
    and job in (
        select id from consolidations
        where workspace = :workspace and owner_kind = 'agent' and owner = :owner
    )

-- blank_changes (postgres) --
update consolidation_changes
set before = '[]', after = '{}', reason = '',
    applied = case when applied is not null then '{"number":0}' end,
    state = case when state = 'open' then 'stale' else state end
where workspace = :workspace and strpos(before, :needle) > 0 and strpos(after, :having) > 0
    and job in (
        select id from consolidations
        where workspace = :workspace and owner_kind = 'agent' and owner = :owner
    )

-- drop_consolidation_calls --
-- Calls to a model by consolidations of an agent's entries.
delete from consolidation_calls
where workspace = :workspace and job in (
        select id from consolidations
        where workspace = :workspace and owner_kind = 'agent' and owner = :owner
    )

-- bury --
insert into durable_tombstones (workspace, agent, run_id, key_hash, seq, at, actor)
values (:workspace, :owner, :run, :key_hash, :seq, :now, :actor)
on conflict (workspace, agent, run_id, key_hash) do update
set seq = excluded.seq, at = excluded.at, actor = excluded.actor

-- set_forgot_seq --
update durable_agents set forgot_seq = :seq where workspace = :workspace and agent = :owner

-- drop_changes --
delete from durable_changes
where workspace = :workspace and agent in (:agent, '') and at < :before

-- drop_evicted_contents --
update durable_changes set content = null
where workspace = :workspace and agent in (:agent, '') and op = 'evict' and content is not null
    and at < :before

-- erase_expired_evicted --
-- The log of an evicted entry loses its content when the entry would have expired.
update durable_changes set content = null, content_sha256 = null, entry = null
where workspace = :workspace and agent = :agent and content_sha256 is not null and exists (
    select 1 from durable_changes e
    where e.workspace = durable_changes.workspace and e.agent = durable_changes.agent
        and e.key = durable_changes.key and e.seq >= durable_changes.seq and e.expires_at < :now
)

-- drop_replays --
delete from durable_replays where workspace = :workspace and agent = :agent and at < :before

-- drop_tombstones --
-- A tombstone stays while a run may be stopped by it, and thirty days beyond.
delete from durable_tombstones
where workspace = :workspace and agent = :agent and at < :before and not exists (
    select 1 from durable_runs r
    where r.workspace = durable_tombstones.workspace and r.agent = durable_tombstones.agent
        and r.token < durable_tombstones.seq and (r.ended_at is null or r.ended_at >= :before)
)

-- drop_runs --
delete from durable_runs
where workspace = :workspace and agent = :agent and ended_at < :before

-- drop_lanes --
-- A lane is stored while one of its runs is.
delete from durable_lanes
where workspace = :workspace and agent = :agent and not exists (
    select 1 from durable_runs r
    where r.workspace = durable_lanes.workspace and r.agent = durable_lanes.agent
        and r.token = durable_lanes.token
)

-- tidied --
update durable_agents set tidy_at = :next_at where workspace = :workspace and agent = :agent

-- get_replay --
select asked, answer, at
from durable_replays
where workspace = :workspace and agent = :agent and key_hash = :key_hash

-- keep_replay --
insert into durable_replays (workspace, agent, key_hash, asked, answer, at)
values (:workspace, :agent, :key_hash, :asked, :answer, :now)
on conflict (workspace, agent, key_hash) do update
set asked = excluded.asked, answer = excluded.answer, at = excluded.at

-- changes_at (sqlite) --
select c.seq, c.key, c.category
from json_each(:seqs) s cross join durable_changes c
where c.seq = s.value and c.workspace = :workspace and c.agent in (:agent, '')

-- changes_at (postgres) --
select c.seq, c.key, c.category
from durable_changes c
where c.workspace = :workspace and c.agent in (:agent, '')
    and c.seq = any (array(select cast(jsonb_array_elements_text(cast(:seqs as jsonb)) as bigint)))

-- history_of_all --
select seq, at, op, key, category, agent, run_id, size_bytes, content, content_sha256, actor,
    evicted_for, cause, redacted_at
from durable_changes
where workspace = :workspace and agent = :agent and seq < :before
    and at >= :since and (:op = '' or op = :op)
union all
select seq, at, op, key, category, agent, run_id, size_bytes, content, content_sha256, actor,
    evicted_for, cause, redacted_at
from durable_changes
where workspace = :workspace and agent = '' and seq < :before
    and at >= :since and (:op = '' or op = :op)
order by seq desc
limit :rows

-- history_of_key --
-- Where it is known, and where only its hash is left.
select seq, at, op, key, category, agent, run_id, size_bytes, content, content_sha256, actor,
    evicted_for, cause, redacted_at
from durable_changes
where workspace = :workspace and agent = :agent and key = :key and seq < :before
    and at >= :since and (:op = '' or op = :op)
union all
select seq, at, op, key, category, agent, run_id, size_bytes, content, content_sha256, actor,
    evicted_for, cause, redacted_at
from durable_changes
where workspace = :workspace and agent = '' and key = :key and seq < :before
    and at >= :since and (:op = '' or op = :op)
union all
select seq, at, op, key, category, agent, run_id, size_bytes, content, content_sha256, actor,
    evicted_for, cause, redacted_at
from durable_changes
where workspace = :workspace and agent = :agent and key_hash = :key_hash and seq < :before
    and at >= :since and (:op = '' or op = :op)
union all
select seq, at, op, key, category, agent, run_id, size_bytes, content, content_sha256, actor,
    evicted_for, cause, redacted_at
from durable_changes
where workspace = :workspace and agent = '' and key_hash = :key_hash and seq < :before
    and at >= :since and (:op = '' or op = :op)
order by seq desc
limit :rows

-- change_at --
select seq, at, op, key, category, agent, run_id, size_bytes, content, content_sha256, actor,
    evicted_for, cause, redacted_at, key_hash, entry
from durable_changes
where workspace = :workspace and agent in (:agent, '') and seq = :seq

-- entries_at --
-- The last change of each key up to a moment, in the order of writes, where it wrote an entry.
-- Entries of runs are logged without contents.
select c.seq, c.at, c.op, c.key, c.category, c.agent, c.run_id, c.size_bytes, c.content,
    c.content_sha256, c.actor, c.evicted_for, c.cause, c.redacted_at, c.entry,
    e.id as live_id, e.created_by as live_creator,
    (select b.actor from durable_changes b
        where b.workspace = c.workspace and b.agent = c.agent and b.run_id = '' and b.key = c.key
            and b.op = 'create' and b.seq <= c.seq
        order by b.seq desc
        limit 1) as creator
from durable_changes c
left join durable_entries e
    on e.workspace = c.workspace and e.agent = c.agent and e.run_id = '' and e.key = c.key
where c.workspace = :workspace and c.agent in (:agent, '') and c.run_id = '' and c.at <= :at
    and c.key is not null and (:key = '' or c.key = :key)
    and c.op in ('create', 'replace', 'refresh', 'restore')
    and not exists (
        select 1 from durable_changes later
        where later.workspace = c.workspace and later.agent = c.agent and later.run_id = ''
            and later.key = c.key and later.seq > c.seq and later.at <= :at
            and later.op <> 'redact')
order by c.seq desc

-- unlogged_at --
-- Entries as they are since before the oldest change that is stored.
select agent, run_id, key, id, content, category, tags, size_bytes, seq, created_at, updated_at,
    expires_at, created_by, updated_by, tier, origin_ref, held
from durable_entries e
where workspace = :workspace and agent in (:agent, '') and run_id = '' and updated_at <= :at
    and (:key = '' or key = :key) and (expires_at is null or expires_at >= :now)
    and not exists (select 1 from durable_changes c where c.seq = e.seq)

-- cut_at --
-- The oldest change of each key that is stored, where it came after a moment and changed an entry
-- that was there before.
select c.agent, c.key, c.at
from durable_changes c
where c.workspace = :workspace and c.agent in (:agent, '') and c.run_id = '' and c.at > :at
    and c.key is not null and (:key = '' or c.key = :key) and c.op not in ('create', 'redact')
    and not exists (
        select 1 from durable_changes other
        where other.workspace = c.workspace and other.agent = c.agent and other.run_id = ''
            and other.key = c.key and other.op <> 'redact'
            and (other.seq < c.seq or other.at <= :at))

-- forgotten_at --
-- Entries of forgotten keys that were there at a moment, or may have been.
select count(*) as entries
from durable_changes c
where c.workspace = :workspace and c.agent in (:agent, '') and c.run_id = ''
    and c.key_hash is not null and (
        (c.at <= :at and c.op in ('create', 'replace', 'refresh', 'restore') and not exists (
            select 1 from durable_changes later
            where later.workspace = c.workspace and later.agent = c.agent and later.run_id = ''
                and later.key_hash = c.key_hash and later.seq > c.seq and later.at <= :at
                and later.op <> 'redact'))
        or (c.at > :at and c.op not in ('create', 'redact') and not exists (
            select 1 from durable_changes other
            where other.workspace = c.workspace and other.agent = c.agent and other.run_id = ''
                and other.key_hash = c.key_hash and other.op <> 'redact'
                and (other.seq < c.seq or other.at <= :at))))

-- redact_change --
update durable_changes
set content = null, content_sha256 = null, entry = null, redacted_at = :now
where workspace = :workspace and agent = :owner and seq = :seq

-- lapsed_runs --
select run_id, token
from durable_runs
where workspace = :workspace and agent = :agent and ended_at is null and seen_at < :lapsed
order by token

-- due_owners --
-- Agents with expired entries, then with lapsed runs.
select e.workspace, e.agent from (
    select workspace, agent from durable_entries
    where expires_at is not null and expires_at < :now
        and (:workspace = '*' or workspace = :workspace)
    order by expires_at
    limit :rows
) e
union
select r.workspace, r.agent from (
    select workspace, agent from durable_runs
    where ended_at is null and seen_at < :lapsed and (:workspace = '*' or workspace = :workspace)
    order by seen_at
    limit :rows
) r
order by workspace, agent

-- oldest_due --
select min(expires_at) as at
from durable_entries
where expires_at is not null and expires_at < :now and (:workspace = '*' or workspace = :workspace)

-- drop_old_changes --
-- The log is in the order of time, but for a clock that was set back: what stands behind such rows
-- goes when they do, or with a write of its own agent.
delete from durable_changes
where at < :before and (:workspace = '*' or workspace = :workspace) and seq in (
    select seq from durable_changes
    order by seq
    limit coalesce((
        select case when at < :before then cast(:rows as integer) else 0 end
        from durable_changes
        order by seq
        limit 1
    ), 0)
)

-- drop_old_evicted --
update durable_changes set content = null
where seq in (
    select seq from durable_changes
    where op = 'evict' and content is not null and at < :before
        and (:workspace = '*' or workspace = :workspace)
    order by at
    limit :rows
)

-- erase_all_expired_evicted --
update durable_changes set content = null, content_sha256 = null, entry = null
where content_sha256 is not null and seq in (
    select c.seq
    from (
        select workspace, agent, key, seq from durable_changes
        where expires_at is not null and content_sha256 is not null and expires_at < :now
            and (:workspace = '*' or workspace = :workspace)
        order by expires_at
        limit :rows
    ) e
    join durable_changes c on c.workspace = e.workspace and c.agent = e.agent and c.key = e.key
        and c.seq <= e.seq
)

-- drop_old_replays --
delete from durable_replays
where (workspace, agent, key_hash) in (
    select workspace, agent, key_hash from durable_replays
    where at < :before and (:workspace = '*' or workspace = :workspace)
    order by at
    limit :rows
)

-- drop_old_tombstones --
-- What the workspace shares may be forgotten in the midst of any agent's run.
delete from durable_tombstones
where at < :before and (:workspace = '*' or workspace = :workspace) and not exists (
    select 1 from durable_runs r
    where r.workspace = durable_tombstones.workspace
        and (r.agent = durable_tombstones.agent or durable_tombstones.agent = '')
        and r.token < durable_tombstones.seq and (r.ended_at is null or r.ended_at >= :before)
)

-- drop_old_lanes --
-- A lane is deleted with its last run.
delete from durable_lanes
where (workspace, agent, lane, token) in (
    select workspace, agent, lane, token from durable_runs
    where ended_at is not null and ended_at < :before
        and (:workspace = '*' or workspace = :workspace)
    order by ended_at
    limit :rows
)

-- drop_old_runs --
delete from durable_runs
where (workspace, agent, token) in (
    select workspace, agent, token from durable_runs
    where ended_at is not null and ended_at < :before
        and (:workspace = '*' or workspace = :workspace)
    order by ended_at
    limit :rows
)

-- list_agents --
select agent, entries, size_bytes, last_write
from durable_agents
where workspace = :workspace and agent > :after
order by agent
limit :rows

-- count_agent --
select count(*) as agents from durable_agents where workspace = :workspace and agent = :agent

-- forget_agents --
delete from durable_agents where workspace = :workspace and agent = :agent

-- forget_entries --
delete from durable_entries where workspace = :workspace and agent = :agent

-- forget_log --
delete from durable_changes where workspace = :workspace and agent = :agent

-- forget_tombstones --
delete from durable_tombstones where workspace = :workspace and agent = :agent

-- forget_runs --
delete from durable_runs where workspace = :workspace and agent = :agent

-- forget_lanes --
delete from durable_lanes where workspace = :workspace and agent = :agent

-- forget_limits --
delete from durable_limits where workspace = :workspace and agent = :agent

-- forget_replays --
delete from durable_replays where workspace = :workspace and agent = :agent

-- unsign_entries --
-- Workspace entries of the forgotten agent get an anonymous author.
update durable_entries
set created_by = case when substr(created_by, 1, :length) = :prefix then :nobody else created_by end,
    updated_by = case when substr(updated_by, 1, :length) = :prefix then :nobody else updated_by end
where workspace = :workspace and agent = ''
    and (substr(created_by, 1, :length) = :prefix or substr(updated_by, 1, :length) = :prefix)

-- unsign_changes --
update durable_changes set actor = :nobody
where workspace = :workspace and agent = '' and substr(actor, 1, :length) = :prefix

-- unsign_tombstones --
update durable_tombstones set actor = :nobody
where workspace = :workspace and agent = '' and substr(actor, 1, :length) = :prefix

-- forget_feed --
-- A user of that name keeps theirs.
update changes set owner = null, actor = null, ids = '{}'
where workspace = :workspace and owner = :agent and type not like 'longterm.%'

-- entries_to_export --
-- The agent's own, and with :shared = '' what the workspace shares.
select agent, run_id, key, id, content, category, tags, size_bytes, seq, created_at, updated_at,
    expires_at, created_by, updated_by, tier, origin_ref, held
from durable_entries
where workspace = :workspace and agent in (:agent, :shared) and run_id = ''
    and (expires_at is null or expires_at >= :now)

-- own_keys --
select key
from durable_entries
where workspace = :workspace and agent = :agent and run_id = ''
    and (expires_at is null or expires_at >= :now)

-- entry_expired --
-- An expired entry that is on disk until the next write or sweep.
select category, size_bytes, expires_at, updated_by
from durable_entries
where workspace = :workspace and agent = :agent and run_id = '' and key = :key
    and expires_at < :now

-- last_gone --
-- How and when something under a key last went. What a run had is its own until that has ended.
select seq, at, op, category, agent, run_id, size_bytes, actor
from durable_changes
where workspace = :workspace and agent in (:agent, '') and key = :key
    and op in ('expire', 'evict', 'forget', 'end') and (op = 'end' or run_id in ('', :run_id))
union all
select seq, at, op, category, agent, run_id, size_bytes, actor
from durable_changes
where workspace = :workspace and agent in (:agent, '') and key_hash = :key_hash
    and op in ('expire', 'evict', 'forget', 'end') and (op = 'end' or run_id in ('', :run_id))
union all
select seq, at, cast('forget' as text), cast(null as text), agent, run_id, 0, actor
from durable_tombstones
where workspace = :workspace and agent in (:agent, '') and key_hash = :key_hash
    and run_id in ('', :run_id)
order by seq desc
limit 1
