-- Jobs of consolidation, their proposed changes, and the calls to a model.

-- put_job --
insert into consolidations (workspace, id, owner_kind, owner, scope, status, proposal, request, base,
    budget, usage, progress, token, leased_until, error, created_at, ended_at, dream, archived_at)
values (:workspace, :id, :owner_kind, :owner, :scope, 'pending', 'open', :request, :base, :budget,
    :usage, :progress, null, null, null, :now, null, :dream, null)

-- get_job --
select id, owner_kind, owner, scope, status, proposal, request, base, budget, usage, progress, token,
    leased_until, error, created_at, ended_at, dream, archived_at
from consolidations
where workspace = :workspace and id = :id

-- list_jobs --
select id, owner_kind, owner, scope, status, proposal, request, base, budget, usage, progress, token,
    leased_until, error, created_at, ended_at, dream, archived_at
from consolidations
where workspace = :workspace and id < :before
    and (:status = '' or status = :status)
    and (:owner_kind = '' or (owner_kind = :owner_kind and (:owner = '' or owner = :owner)))
order by id desc
limit :rows

-- list_dreams --
-- `:statuses` has each status between commas.
select id, owner_kind, owner, scope, status, proposal, request, base, budget, usage, progress, token,
    leased_until, error, created_at, ended_at, dream, archived_at
from consolidations
where workspace = :workspace and dream is not null and id < :before
    and created_at >= :since and created_at <= :until
    and (:archived = 1 or archived_at is null)
    and (:statuses = '' or :statuses like '%,' || status || ',%')
order by id desc
limit :rows

-- dreams_under_way --
select dream from consolidations
where workspace = :workspace and owner_kind = 'store' and owner = :store and dream is not null
    and status in ('pending', 'running')

-- set_dream --
update consolidations set dream = :dream where workspace = :workspace and id = :id

-- archive_job --
update consolidations set archived_at = :now
where workspace = :workspace and id = :id and archived_at is null
    and status not in ('pending', 'running')

-- claim_job --
update consolidations set status = 'running', token = :token, leased_until = :until
where workspace = :workspace and id = :id
    and (status = 'pending' or (status = 'running' and leased_until < :now))

-- renew_job --
update consolidations set leased_until = :until
where workspace = :workspace and id = :id and status = 'running' and token = :token

-- keep_progress --
update consolidations set leased_until = :until, progress = :progress, usage = :usage,
    request = :request, base = :base
where workspace = :workspace and id = :id and status = 'running' and token = :token

-- end_job --
update consolidations set status = :status, error = :error, ended_at = :now, token = null,
    leased_until = null
where workspace = :workspace and id = :id and status = 'running' and token = :token

-- cancel_job --
update consolidations set status = 'cancelled', ended_at = :now, token = null, leased_until = null
where workspace = :workspace and id = :id and status in ('pending', 'running')

-- resume_job --
-- Also one of a process that ended, or that no process could do yet.
update consolidations set status = 'pending', ended_at = null, error = null, budget = :budget,
    request = :request, token = null, leased_until = null
where workspace = :workspace and id = :id
    and (status in ('partial', 'failed', 'pending') or (status = 'running' and leased_until < :now))

-- set_proposal --
update consolidations set proposal = :proposal
where workspace = :workspace and id = :id

-- unfinished_jobs --
-- Of all workspaces: those that no process has begun or renewed lately.
select workspace, id from consolidations
where (status = 'pending' and created_at < :before)
    or (status = 'running' and leased_until < :now)
order by workspace, id
limit :most

-- written_by_sessions (sqlite) --
-- What sessions wrote into a store up to a moment, newest first; nothing that is held.
select memory_id, path, content, content_sha256, actor_id as session_id, created_at
from versions
where workspace = :workspace and store_id = :store and actor_kind = 'session'
    and actor_id in (select value from json_each(:sessions))
    and operation <> 'deleted' and redacted_at is null and created_at <= :at
    and held is null and tier <> 'outside'
order by number desc
limit :rows

-- written_by_sessions (postgres) --
select memory_id, path, content, content_sha256, actor_id as session_id, created_at
from versions
where workspace = :workspace and store_id = :store and actor_kind = 'session'
    and actor_id in (select jsonb_array_elements_text(cast(:sessions as jsonb)))
    and operation <> 'deleted' and redacted_at is null and created_at <= :at
    and held is null and tier <> 'outside'
order by number desc
limit :rows

-- known_sessions (sqlite) --
select id from sessions
where workspace = :workspace and id in (select value from json_each(:sessions))

-- known_sessions (postgres) --
select id from sessions
where workspace = :workspace
    and id in (select jsonb_array_elements_text(cast(:sessions as jsonb)))

-- put_change --
insert into consolidation_changes (workspace, job, n, op, before, after, reason, evidence, state,
    applied)
values (:workspace, :id, :n, :op, :before, :after, :reason, :evidence, 'open', null)

-- list_changes --
select n, op, before, after, reason, evidence, state, applied
from consolidation_changes
where workspace = :workspace and job = :id
order by n

-- decide_change --
update consolidation_changes set state = :state, applied = :applied
where workspace = :workspace and job = :id and n = :n

-- reject_changes --
update consolidation_changes set state = 'rejected'
where workspace = :workspace and job = :id and state = 'open'

-- put_call --
insert into consolidation_calls (workspace, job, n, prompt, answer, usage, at)
values (:workspace, :id, :n, :prompt, :answer, :usage, :now)

-- list_calls --
select n, prompt, answer, usage from consolidation_calls
where workspace = :workspace and job = :id
order by n

-- item_image --
select i.number, i.id, i.kind, i.importance, i.tier, i.valid_from, i.valid_to, i.superseded_by,
    i.superseded_at, i.held, i.held_at, i.updated_at, i.body, a.last_accessed_at, a.access_count
from ltm_items i
left join ltm_access a on a.collection = i.collection and a.number = i.number
where i.workspace = :workspace and i.collection = :collection and i.id = :id

-- set_image --
update ltm_items
set kind = :kind, importance = :importance, tier = :tier, valid_from = :valid_from,
    valid_to = :valid_to, superseded_by = :superseded_by, superseded_at = :superseded_at,
    held = :held, held_at = :held_at, updated_at = :updated_at
where workspace = :workspace and collection = :collection and number = :number

-- drop_link --
delete from ltm_links
where workspace = :workspace and collection = :collection and item = :item and turn = :turn

-- drop_marks --
delete from ltm_access
where workspace = :workspace and collection = :collection and number = :number

-- put_marks --
insert into ltm_access (workspace, collection, number, last_accessed_at, access_count)
values (:workspace, :collection, :number, :last_accessed_at, :access_count)

-- put_policy --
insert into consolidation_policies (workspace, owner_kind, owner, scope, request, base, job, due_at,
    created_at)
values (:workspace, :owner_kind, :owner, :scope, :request, 0, null, :now, :now)
on conflict (workspace, owner_kind, owner, scope) do update
set request = excluded.request, due_at = excluded.due_at

-- get_policy --
select workspace, owner_kind, owner, scope, request, base, job, due_at, created_at
from consolidation_policies
where workspace = :workspace and owner_kind = :owner_kind and owner = :owner and scope = :scope

-- list_policies --
select workspace, owner_kind, owner, scope, request, base, job, due_at, created_at
from consolidation_policies
where workspace = :workspace
order by owner_kind, owner, scope

-- due_policies --
-- Of all workspaces.
select workspace, owner_kind, owner, scope, request, base, job, due_at, created_at
from consolidation_policies
where due_at <= :now
order by due_at, workspace, owner_kind, owner, scope
limit :most

-- claim_policy --
update consolidation_policies set due_at = :until
where workspace = :workspace and owner_kind = :owner_kind and owner = :owner and scope = :scope
    and due_at = :due

-- set_policy_job --
update consolidation_policies set base = :base, job = :job, due_at = :due
where workspace = :workspace and owner_kind = :owner_kind and owner = :owner and scope = :scope

-- drop_policy --
delete from consolidation_policies
where workspace = :workspace and owner_kind = :owner_kind and owner = :owner and scope = :scope
