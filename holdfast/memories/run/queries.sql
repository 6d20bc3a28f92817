-- Records of runs. They are reports: run memory itself never reads them.

-- get_run (sqlite) --
select id, kind, name, definition, agent, status, reason, detail, error, metadata, thread_id,
  parent_id, queue, priority, fence, holder, place, lease_until, cancel_wanted, usage, extras,
  batch, seq, entries, bytes, versions, started_at, seen_at, ended_at, forked_run,
  forked_version,
  (select json_group_object(c.state, c.n) from (
    select p.state, count(*) as n from run_parts p
    where p.workspace = runs.workspace and p.run_id = runs.id group by p.state
  ) c) as parts,
  (select json_group_array(json_array(o.id, o.expires_at)) from (
    select q.id, q.expires_at from run_questions q
    where q.workspace = runs.workspace and q.run_id = runs.id and q.status = 'open'
    order by q.asked_at, q.id
  ) o) as questions
from runs
where workspace = :workspace and id = :run

-- get_run (postgres) --
select id, kind, name, definition, agent, status, reason, detail, error, metadata, thread_id,
  parent_id, queue, priority, fence, holder, place, lease_until, cancel_wanted, usage, extras,
  batch, seq, entries, bytes, versions, started_at, seen_at, ended_at, forked_run,
  forked_version,
  (select cast(json_object_agg(c.state, c.n) as text) from (
    select p.state, count(*) as n from run_parts p
    where p.workspace = runs.workspace and p.run_id = runs.id group by p.state
  ) c) as parts,
  (select cast(json_agg(json_build_array(o.id, o.expires_at)) as text) from (
    select q.id, q.expires_at from run_questions q
    where q.workspace = runs.workspace and q.run_id = runs.id and q.status = 'open'
    order by q.asked_at, q.id
  ) o) as questions
from runs
where workspace = :workspace and id = :run

-- lock_run (sqlite) --
select id, kind, name, definition, agent, status, reason, detail, error, metadata, thread_id,
  parent_id, queue, priority, fence, holder, place, lease_until, cancel_wanted, usage, extras,
  batch, seq, entries, bytes, versions, started_at, seen_at, ended_at, forked_run,
  forked_version
from runs
where workspace = :workspace and id = :run

-- lock_run (postgres) --
select id, kind, name, definition, agent, status, reason, detail, error, metadata, thread_id,
  parent_id, queue, priority, fence, holder, place, lease_until, cancel_wanted, usage, extras,
  batch, seq, entries, bytes, versions, started_at, seen_at, ended_at, forked_run,
  forked_version
from runs
where workspace = :workspace and id = :run
for update

-- list_runs (sqlite) --
-- A run whose lease has run out is lost, whatever it said last. What is '' is no filter.
select id, kind, name, definition, agent, status, reason, detail, error, metadata, thread_id,
  parent_id, queue, priority, fence, holder, place, lease_until, cancel_wanted, usage, extras,
  batch, seq, entries, bytes, versions, started_at, seen_at, ended_at, forked_run,
  forked_version,
  (select json_group_object(c.state, c.n) from (
    select p.state, count(*) as n from run_parts p
    where p.workspace = runs.workspace and p.run_id = runs.id group by p.state
  ) c) as parts,
  (select json_group_array(json_array(o.id, o.expires_at)) from (
    select q.id, q.expires_at from run_questions q
    where q.workspace = runs.workspace and q.run_id = runs.id and q.status = 'open'
    order by q.asked_at, q.id
  ) o) as questions
from runs
where workspace = :workspace and (started_at, id) < (:before, :before_id)
  and started_at >= :since
  and case when status = 'running' and lease_until < :now then 'lost' else status end
    in (select value from json_each(:statuses))
  and (:kind = '' or kind = :kind) and (:definition = '' or definition = :definition)
  and (:queue = '' or queue = :queue)
order by started_at desc, id desc
limit :rows

-- list_runs (postgres) --
-- A run whose lease has run out is lost, whatever it said last. What is '' is no filter.
select id, kind, name, definition, agent, status, reason, detail, error, metadata, thread_id,
  parent_id, queue, priority, fence, holder, place, lease_until, cancel_wanted, usage, extras,
  batch, seq, entries, bytes, versions, started_at, seen_at, ended_at, forked_run,
  forked_version,
  (select cast(json_object_agg(c.state, c.n) as text) from (
    select p.state, count(*) as n from run_parts p
    where p.workspace = runs.workspace and p.run_id = runs.id group by p.state
  ) c) as parts,
  (select cast(json_agg(json_build_array(o.id, o.expires_at)) as text) from (
    select q.id, q.expires_at from run_questions q
    where q.workspace = runs.workspace and q.run_id = runs.id and q.status = 'open'
    order by q.asked_at, q.id
  ) o) as questions
from runs
where workspace = :workspace and (started_at, id) < (:before, :before_id)
  and started_at >= :since
  and case when status = 'running' and lease_until < :now then 'lost' else status end
    = any (array(select jsonb_array_elements_text(cast(:statuses as jsonb))))
  and (:kind = '' or kind = :kind) and (:definition = '' or definition = :definition)
  and (:queue = '' or queue = :queue)
order by started_at desc, id desc
limit :rows

-- list_runs_of_thread (sqlite) --
-- A run whose lease has run out is lost, whatever it said last. What is '' is no filter.
select id, kind, name, definition, agent, status, reason, detail, error, metadata, thread_id,
  parent_id, queue, priority, fence, holder, place, lease_until, cancel_wanted, usage, extras,
  batch, seq, entries, bytes, versions, started_at, seen_at, ended_at, forked_run,
  forked_version,
  (select json_group_object(c.state, c.n) from (
    select p.state, count(*) as n from run_parts p
    where p.workspace = runs.workspace and p.run_id = runs.id group by p.state
  ) c) as parts,
  (select json_group_array(json_array(o.id, o.expires_at)) from (
    select q.id, q.expires_at from run_questions q
    where q.workspace = runs.workspace and q.run_id = runs.id and q.status = 'open'
    order by q.asked_at, q.id
  ) o) as questions
from runs
where workspace = :workspace and (started_at, id) < (:before, :before_id)
  and started_at >= :since
  and thread_id = :thread and (:parent = '' or parent_id = :parent)
  and case when status = 'running' and lease_until < :now then 'lost' else status end
    in (select value from json_each(:statuses))
  and (:kind = '' or kind = :kind) and (:definition = '' or definition = :definition)
  and (:queue = '' or queue = :queue)
order by started_at desc, id desc
limit :rows

-- list_runs_of_thread (postgres) --
-- A run whose lease has run out is lost, whatever it said last. What is '' is no filter.
select id, kind, name, definition, agent, status, reason, detail, error, metadata, thread_id,
  parent_id, queue, priority, fence, holder, place, lease_until, cancel_wanted, usage, extras,
  batch, seq, entries, bytes, versions, started_at, seen_at, ended_at, forked_run,
  forked_version,
  (select cast(json_object_agg(c.state, c.n) as text) from (
    select p.state, count(*) as n from run_parts p
    where p.workspace = runs.workspace and p.run_id = runs.id group by p.state
  ) c) as parts,
  (select cast(json_agg(json_build_array(o.id, o.expires_at)) as text) from (
    select q.id, q.expires_at from run_questions q
    where q.workspace = runs.workspace and q.run_id = runs.id and q.status = 'open'
    order by q.asked_at, q.id
  ) o) as questions
from runs
where workspace = :workspace and (started_at, id) < (:before, :before_id)
  and started_at >= :since
  and thread_id = :thread and (:parent = '' or parent_id = :parent)
  and case when status = 'running' and lease_until < :now then 'lost' else status end
    = any (array(select jsonb_array_elements_text(cast(:statuses as jsonb))))
  and (:kind = '' or kind = :kind) and (:definition = '' or definition = :definition)
  and (:queue = '' or queue = :queue)
order by started_at desc, id desc
limit :rows

-- list_runs_of_parent (sqlite) --
-- A run whose lease has run out is lost, whatever it said last. What is '' is no filter.
select id, kind, name, definition, agent, status, reason, detail, error, metadata, thread_id,
  parent_id, queue, priority, fence, holder, place, lease_until, cancel_wanted, usage, extras,
  batch, seq, entries, bytes, versions, started_at, seen_at, ended_at, forked_run,
  forked_version,
  (select json_group_object(c.state, c.n) from (
    select p.state, count(*) as n from run_parts p
    where p.workspace = runs.workspace and p.run_id = runs.id group by p.state
  ) c) as parts,
  (select json_group_array(json_array(o.id, o.expires_at)) from (
    select q.id, q.expires_at from run_questions q
    where q.workspace = runs.workspace and q.run_id = runs.id and q.status = 'open'
    order by q.asked_at, q.id
  ) o) as questions
from runs
where workspace = :workspace and (started_at, id) < (:before, :before_id)
  and started_at >= :since
  and parent_id = :parent
  and case when status = 'running' and lease_until < :now then 'lost' else status end
    in (select value from json_each(:statuses))
  and (:kind = '' or kind = :kind) and (:definition = '' or definition = :definition)
  and (:queue = '' or queue = :queue)
order by started_at desc, id desc
limit :rows

-- list_runs_of_parent (postgres) --
-- A run whose lease has run out is lost, whatever it said last. What is '' is no filter.
select id, kind, name, definition, agent, status, reason, detail, error, metadata, thread_id,
  parent_id, queue, priority, fence, holder, place, lease_until, cancel_wanted, usage, extras,
  batch, seq, entries, bytes, versions, started_at, seen_at, ended_at, forked_run,
  forked_version,
  (select cast(json_object_agg(c.state, c.n) as text) from (
    select p.state, count(*) as n from run_parts p
    where p.workspace = runs.workspace and p.run_id = runs.id group by p.state
  ) c) as parts,
  (select cast(json_agg(json_build_array(o.id, o.expires_at)) as text) from (
    select q.id, q.expires_at from run_questions q
    where q.workspace = runs.workspace and q.run_id = runs.id and q.status = 'open'
    order by q.asked_at, q.id
  ) o) as questions
from runs
where workspace = :workspace and (started_at, id) < (:before, :before_id)
  and started_at >= :since
  and parent_id = :parent
  and case when status = 'running' and lease_until < :now then 'lost' else status end
    = any (array(select jsonb_array_elements_text(cast(:statuses as jsonb))))
  and (:kind = '' or kind = :kind) and (:definition = '' or definition = :definition)
  and (:queue = '' or queue = :queue)
order by started_at desc, id desc
limit :rows

-- hold_thread --
-- As in the statements of threads: makes the thread, and its row is ours until the commit.
insert into threads (workspace, id, created_at, updated_at, turns)
values (:workspace, :thread, :now, :now, 0)
on conflict (workspace, id) do update set turns = threads.turns

-- put_run --
insert into runs (
  workspace, id, kind, name, definition, agent, status, reason, detail, error, metadata, queue,
  priority, thread_id, parent_id, fence, usage, extras, batch, seq, entries, bytes, started_at,
  seen_at, ended_at
)
values (
  :workspace, :run, :kind, :name, :definition, :agent, :status, :reason, :detail, :error,
  :metadata, :queue, :priority, :thread_id, :parent_id, 0, :usage, :extras, 0, :seq, 0, 0,
  :started_at, :seen_at, :ended_at
)
on conflict (workspace, id) do nothing

-- change_run --
-- The owner's columns stay as they are, and so does where the run was queued.
update runs
set kind = :kind, name = :name, definition = coalesce(:definition, definition), agent = :agent,
  status = :status, reason = :reason, detail = :detail, error = :error,
  metadata = case when cast(:metadata as text) = '{}' then metadata else :metadata end,
  queue = coalesce(:queue, queue), priority = coalesce(:priority, priority), thread_id = :thread_id, parent_id = :parent_id, usage = :usage,
  extras = :extras, seq = :seq, started_at = :started_at, seen_at = :seen_at,
  ended_at = :ended_at
where workspace = :workspace and id = :run

-- begin_run --
-- A run that is begun anew goes on with its numbers, for those who follow it.
insert into runs (
  workspace, id, kind, name, definition, agent, status, metadata, thread_id, parent_id, fence,
  holder, place, lease_until, batch, seq, entries, bytes, started_at, seen_at
)
values (
  :workspace, :run, :kind, :name, :definition, :agent, 'running', :metadata, :thread_id,
  :parent_id, :fence, :holder, :place, :until, 0, :seq, 0, 0, :started_at, :now
)
on conflict (workspace, id) do update
set kind = excluded.kind, name = excluded.name,
  definition = coalesce(excluded.definition, runs.definition), agent = excluded.agent,
  metadata = case when excluded.metadata = '{}' and runs.ended_at is null then runs.metadata
    else excluded.metadata end,
  status = 'running', reason = null, detail = null, error = null,
  thread_id = coalesce(excluded.thread_id, runs.thread_id),
  parent_id = coalesce(excluded.parent_id, runs.parent_id), fence = excluded.fence,
  holder = excluded.holder, place = excluded.place, lease_until = excluded.lease_until,
  cancel_wanted = null, usage = null, batch = 0, seq = excluded.seq, entries = 0, bytes = 0,
  losses = case when runs.ended_at is null then runs.losses else 0 end,
  started_at = case when runs.ended_at is null then runs.started_at else excluded.started_at end,
  seen_at = excluded.seen_at, ended_at = null

-- link_run --
insert into subjects (workspace, user_id, kind, object_id, at)
values (:workspace, :user, :kind, :run, :now)
on conflict (workspace, user_id, kind, object_id) do nothing

-- link_run_as --
-- The run is of the people of the run :other.
insert into subjects (workspace, user_id, kind, object_id, at)
select workspace, user_id, :kind, :run, :now
from subjects
where workspace = :workspace and kind in ('run', 'network_run') and object_id = :other
on conflict (workspace, user_id, kind, object_id) do nothing

-- link_thread --
insert into subjects (workspace, user_id, kind, object_id, at)
select workspace, :user, 'thread', id, :now
from threads
where workspace = :workspace and id = :thread and (user_id is null or user_id <> :user)
on conflict (workspace, user_id, kind, object_id) do nothing

-- link_thread_as --
insert into subjects (workspace, user_id, kind, object_id, at)
select workspace, user_id, 'thread', :thread, :now
from subjects
where workspace = :workspace and kind = 'thread' and object_id = :old
on conflict (workspace, user_id, kind, object_id) do nothing

-- set_run --
-- An owner that comes back was not lost.
update runs
set losses = losses - case when status = 'lost' and losses > 0 then 1 else 0 end,
  status = case when ended_at is null then 'running' else status end, batch = :batch, seq = :seq,
  entries = entries + :entries, bytes = bytes + :bytes, seen_at = :now, lease_until = :until
where workspace = :workspace and id = :run

-- end_run --
-- A record that was written at the end says the same or more.
update runs
set status = case when ended_at is null then :status else status end,
  reason = coalesce(reason, :reason), detail = coalesce(detail, :detail),
  error = coalesce(error, :error), usage = coalesce(usage, :usage), batch = :batch, seq = :seq,
  entries = entries + :entries, bytes = bytes + :bytes, seen_at = :now,
  ended_at = coalesce(ended_at, :ended_at), lease_until = null, cancel_wanted = null
where workspace = :workspace and id = :run

-- renew_runs (sqlite) --
update runs
set lease_until = :until, seen_at = :now,
  losses = losses - case when status = 'lost' and losses > 0 then 1 else 0 end,
  status = case when ended_at is null then 'running' else status end
where workspace = :workspace and id in (select value from json_each(:ids))
  and holder in (select value from json_each(:holders)) and (lease_until is not null or status = 'lost')
returning id, holder, cancel_wanted

-- renew_runs (postgres) --
update runs
set lease_until = :until, seen_at = :now,
  losses = losses - case when status = 'lost' and losses > 0 then 1 else 0 end,
  status = case when ended_at is null then 'running' else status end
where workspace = :workspace
  and id = any (array(select jsonb_array_elements_text(cast(:ids as jsonb))))
  and holder = any (array(select jsonb_array_elements_text(cast(:holders as jsonb))))
  and (lease_until is not null or status = 'lost')
returning id, holder, cancel_wanted

-- held_runs (sqlite) --
select id, holder, cancel_wanted
from runs
where workspace = :workspace and id in (select value from json_each(:ids))
  and holder in (select value from json_each(:holders)) and (lease_until is not null or status = 'lost')

-- held_runs (postgres) --
select id, holder, cancel_wanted
from runs
where workspace = :workspace
  and id = any (array(select jsonb_array_elements_text(cast(:ids as jsonb))))
  and holder = any (array(select jsonb_array_elements_text(cast(:holders as jsonb))))
  and (lease_until is not null or status = 'lost')

-- submit_run --
insert into runs (
  workspace, id, kind, name, definition, status, metadata, input, queue, priority, not_before,
  parent_id, fence, batch, seq, entries, bytes, started_at, seen_at
)
values (
  :workspace, :run, :kind, :name, :definition, 'queued', :metadata, :input, :queue, :priority,
  :not_before, :parent, 0, 0, 1, 0, 0, :now, :now
)
on conflict (workspace, id) do nothing

-- submitted_run --
select definition, input from runs where workspace = :workspace and id = :run

-- claimable (sqlite) --
-- The workspaces with runs that may be claimed, or that lost their owner. *known* are definitions
-- with the versions of runs that they take.
select distinct workspace
from runs, json_each(:known) as d
where :workspace in (workspace, '*') and queue is not null and definition = json_extract(d.value, '$.name')
  and (definition_version is null
    or definition_version in (select value from json_each(d.value, '$.versions')))
  and (status = 'lost' or (status = 'running' and lease_until < :now)
    or (status = 'queued' and (lease_until is null or lease_until < :now)
      and (not_before is null or not_before <= :now)))

-- claimable (postgres) --
-- The workspaces with runs that may be claimed, or that lost their owner. *known* are definitions
-- with the versions of runs that they take.
select distinct workspace
from runs, jsonb_to_recordset(cast(:known as jsonb)) as d (name text, versions jsonb)
where :workspace in (workspace, '*') and queue is not null and definition = d.name
  and (definition_version is null or d.versions @> to_jsonb(definition_version))
  and (status = 'lost' or (status = 'running' and lease_until < :now)
    or (status = 'queued' and (lease_until is null or lease_until < :now)
      and (not_before is null or not_before <= :now)))

-- claim_run (sqlite) --
-- The first run by priority, then age. With the queue '' it is in that of its definition; without a
-- queue no worker takes it, such as a fork that was not started. What is '' or [] is no condition.
-- A queued run with a lease was claimed by a worker that did not begin it.
update runs
set holder = :holder, place = :place, lease_until = :until,
  losses = losses + case when lease_until is null then 0 else 1 end,
  definition_version = coalesce(definition_version, (
    select json_extract(d.value, '$.version') from json_each(:known) as d
    where json_extract(d.value, '$.name') = runs.definition)),
  queue = coalesce(nullif(queue, ''), (
    select json_extract(d.value, '$.queue') from json_each(:known) as d
    where json_extract(d.value, '$.name') = runs.definition))
where workspace = :workspace and id = (
  select r.id
  from runs as r, json_each(:known) as d
  where r.workspace = :workspace and r.status = 'queued' and :run in ('', r.id)
    and (r.lease_until is null or r.lease_until < :now)
    and (:run <> '' or (r.queue is not null and (r.not_before is null or r.not_before <= :now)))
    and r.definition = json_extract(d.value, '$.name')
    and (r.definition_version is null
      or r.definition_version in (select value from json_each(d.value, '$.versions')))
    and (:queues = '[]' or coalesce(nullif(r.queue, ''), json_extract(d.value, '$.queue'))
      in (select value from json_each(:queues)))
    and coalesce(nullif(r.queue, ''), json_extract(d.value, '$.queue'))
      not in (select value from json_each(:full))
  order by coalesce(r.priority, 5), r.started_at, r.id
  limit 1)
returning id, kind, name, definition, definition_version, input, metadata, thread_id, parent_id,
  queue, priority, fence, not_before, seen_at, losses

-- claim_run (postgres) --
-- The first run by priority, then age. With the queue '' it is in that of its definition; without a
-- queue no worker takes it, such as a fork that was not started. What is '' or [] is no condition. Materialized, because a join may look for the run once for each row.
with found as materialized (
  select r.id, d.version, d.queue
  from runs as r, jsonb_to_recordset(cast(:known as jsonb))
    as d (name text, version text, queue text, versions jsonb)
  where r.workspace = :workspace and r.status = 'queued' and :run in ('', r.id)
    and (r.lease_until is null or r.lease_until < :now)
    and (:run <> '' or (r.queue is not null and (r.not_before is null or r.not_before <= :now)))
    and r.definition = d.name
    and (r.definition_version is null or d.versions @> to_jsonb(r.definition_version))
    and (:queues = '[]' or cast(:queues as jsonb) @> to_jsonb(coalesce(nullif(r.queue, ''), d.queue)))
    and not cast(:full as jsonb) @> to_jsonb(coalesce(nullif(r.queue, ''), d.queue))
  order by coalesce(r.priority, 5), r.started_at, r.id
  limit 1
  for update of r skip locked
)
update runs
set holder = :holder, place = :place, lease_until = :until,
  losses = runs.losses + case when runs.lease_until is null then 0 else 1 end,
  definition_version = coalesce(runs.definition_version, found.version),
  queue = coalesce(nullif(runs.queue, ''), found.queue)
from found
where runs.workspace = :workspace and runs.id = found.id
returning runs.id, runs.kind, runs.name, runs.definition, runs.definition_version, runs.input,
  runs.metadata, runs.thread_id, runs.parent_id, runs.queue, runs.priority, runs.fence,
  runs.not_before, runs.seen_at, runs.losses

-- runs_to_go_on --
-- Runs that wait for nothing but the runs of their items, which are all over.
select distinct p.workspace, p.id
from runs as p
join runs as c on c.workspace = p.workspace and c.parent_id = p.id and c.queue is not null
where :workspace in (p.workspace, '*') and p.status = 'waiting'
  and not exists (
    select 1 from run_questions as q
    where q.workspace = p.workspace and q.run_id = p.id and q.status = 'open')
  and not exists (
    select 1 from runs as o
    where o.workspace = p.workspace and o.parent_id = p.id and o.queue is not null
      and o.status not in ('completed', 'failed', 'cancelled'))

-- open_item --
-- The run of an item that the run waits for.
select id
from runs
where workspace = :workspace and parent_id = :run and queue is not null
  and status not in ('completed', 'failed', 'cancelled')
limit 1

-- input_of_run --
select input from runs where workspace = :workspace and id = :run

-- items_of_over --
-- Runs of items that go on though the run that they are for is over.
select c.workspace, c.id
from runs as c
join runs as p on p.workspace = c.workspace and p.id = c.parent_id
where :workspace in (c.workspace, '*') and c.parent_id is not null and c.queue is not null
  and c.status not in ('completed', 'failed', 'cancelled') and c.cancel_wanted is null
  and p.status in ('completed', 'failed', 'cancelled')

-- due_runs (sqlite) --
-- What a claim may take, the first of each queue by priority, then age.
select id, queue, priority, metadata
from (
  select r.id, coalesce(nullif(r.queue, ''), json_extract(d.value, '$.queue')) as queue,
    coalesce(r.priority, 5) as priority, r.metadata, r.started_at,
    row_number() over (
      partition by coalesce(nullif(r.queue, ''), json_extract(d.value, '$.queue'))
      order by coalesce(r.priority, 5), r.started_at, r.id) as place
  from runs as r, json_each(:known) as d
  where r.workspace = :workspace and r.status = 'queued' and r.queue is not null
    and (r.lease_until is null or r.lease_until < :now)
    and (r.not_before is null or r.not_before <= :now)
    and r.definition = json_extract(d.value, '$.name')
    and (r.definition_version is null
      or r.definition_version in (select value from json_each(d.value, '$.versions')))
    and (:queues = '[]' or coalesce(nullif(r.queue, ''), json_extract(d.value, '$.queue'))
      in (select value from json_each(:queues)))
)
where place <= :most
order by priority, started_at, id

-- due_runs (postgres) --
-- What a claim may take, the first of each queue by priority, then age.
select id, queue, priority, metadata
from (
  select r.id, coalesce(nullif(r.queue, ''), d.queue) as queue,
    coalesce(r.priority, 5) as priority, r.metadata, r.started_at,
    row_number() over (
      partition by coalesce(nullif(r.queue, ''), d.queue)
      order by coalesce(r.priority, 5), r.started_at, r.id) as place
  from runs as r, jsonb_to_recordset(cast(:known as jsonb))
    as d (name text, queue text, versions jsonb)
  where r.workspace = :workspace and r.status = 'queued' and r.queue is not null
    and (r.lease_until is null or r.lease_until < :now)
    and (r.not_before is null or r.not_before <= :now)
    and r.definition = d.name
    and (r.definition_version is null or d.versions @> to_jsonb(r.definition_version))
    and (:queues = '[]' or cast(:queues as jsonb) @> to_jsonb(coalesce(nullif(r.queue, ''), d.queue)))
) as due
where place <= :most
order by priority, started_at, id

-- run_statuses (sqlite) --
select id, status
from runs
where workspace = :workspace and id in (select value from json_each(:ids))

-- run_statuses (postgres) --
select id, status
from runs
where workspace = :workspace
  and id = any (array(select jsonb_array_elements_text(cast(:ids as jsonb))))

-- free_run (sqlite) --
-- A lost run of a definition that is known may be taken up again.
update runs
set status = 'queued', holder = null, lease_until = null, seq = seq + 1, seen_at = :now
where workspace = :workspace and id = (
  select r.id
  from runs as r, json_each(:known) as d
  where r.workspace = :workspace and r.status = 'lost' and :run in ('', r.id)
    and (:run <> '' or r.queue is not null)
    and r.definition = json_extract(d.value, '$.name')
    and (r.definition_version is null
      or r.definition_version in (select value from json_each(d.value, '$.versions')))
  order by r.started_at, r.id
  limit 1)
returning id, seq, queue

-- free_run (postgres) --
-- A lost run of a definition that is known may be taken up again.
with found as materialized (
  select r.id
  from runs as r, jsonb_to_recordset(cast(:known as jsonb)) as d (name text, versions jsonb)
  where r.workspace = :workspace and r.status = 'lost' and :run in ('', r.id)
    and (:run <> '' or r.queue is not null)
    and r.definition = d.name
    and (r.definition_version is null or d.versions @> to_jsonb(r.definition_version))
  order by r.started_at, r.id
  limit 1
  for update of r skip locked
)
update runs
set status = 'queued', holder = null, lease_until = null, seq = seq + 1, seen_at = :now
from found
where runs.workspace = :workspace and runs.id = found.id
returning runs.id, runs.seq, runs.queue

-- requeue_run --
-- The token stays: the next owner raises it, and the former one writes nothing any more.
update runs
set status = 'queued', holder = null, lease_until = null, seq = :seq, seen_at = :now
where workspace = :workspace and id = :run

-- queued_runs --
-- Queued runs that may be taken up, by queue.
select coalesce(nullif(queue, ''), 'default') as queue, cast(count(*) as bigint) as runs
from runs
where :workspace in (workspace, '*') and status = 'queued' and queue is not null
  and (not_before is null or not_before <= :now)
group by coalesce(nullif(queue, ''), 'default')
order by 1

-- want_cancel --
update runs set cancel_wanted = :reason where workspace = :workspace and id = :run

-- end_ownerless --
-- The token rises, so that a former owner writes nothing any more.
update runs
set status = :status, reason = :reason, detail = :detail, fence = fence + 1, holder = null,
  lease_until = null, cancel_wanted = null, seq = :seq, ended_at = :ended_at
where workspace = :workspace and id = :run

-- lapsed_runs --
select workspace, id
from runs
where :workspace in (workspace, '*') and status = 'running' and lease_until < :now
order by lease_until
limit 1000

-- lose_run --
update runs
set status = 'lost', lease_until = null, seq = seq + 1, losses = losses + 1
where workspace = :workspace and id = :run and status = 'running' and lease_until < :now
returning seq, seen_at, place, losses, definition, queue

-- delete_run --
delete from runs where workspace = :workspace and id = :run

-- surplus_runs --
-- The oldest of the runs that are over, past so many of them, but for items of one that is not.
select id
from runs
where workspace = :workspace and thread_id is null and status not in ('queued', 'waiting')
  and (status <> 'running' or lease_until < :now)
  and not exists (
    select 1 from runs as p
    where p.workspace = runs.workspace and p.id = runs.parent_id and runs.queue is not null
      and p.status not in ('completed', 'failed', 'cancelled'))
order by coalesce(ended_at, seen_at) desc, id desc
limit 100 offset :cap

-- runs_of_agent --
select id from runs where workspace = :workspace and agent = :named order by id

-- runs_naming (sqlite) --
-- May name an agent: the caller reads them.
select id, detail, error, extras from runs
where workspace = :workspace
  and (instr(detail, :text) > 0 or instr(error, :text) > 0 or instr(extras, :text) > 0)

-- runs_naming (postgres) --
select id, detail, error, extras from runs
where workspace = :workspace
  and (strpos(detail, :text) > 0 or strpos(error, :text) > 0 or strpos(extras, :text) > 0)
order by id
for update

-- unname_run --
update runs set detail = :detail, error = :error, extras = :extras
where workspace = :workspace and id = :run

-- forget_events (sqlite) --
delete from run_events
where workspace = :workspace and (agent = :named or instr(data, :text) > 0)

-- forget_events (postgres) --
delete from run_events
where workspace = :workspace and (agent = :named or strpos(data, :text) > 0)

-- held --
select cast(coalesce(sum(entries), 0) as bigint) as entries,
  cast(coalesce(sum(bytes), 0) as bigint) as bytes,
  cast(coalesce(sum(case when status = 'running' and lease_until >= :now then 1 else 0 end), 0)
    as bigint) as live
from runs
where :workspace in (workspace, '*')

-- sizes_of (sqlite) --
select key, value_bytes
from run_entries
where workspace = :workspace and run_id = :run and key in (select value from json_each(:keys))

-- sizes_of (postgres) --
select key, value_bytes
from run_entries
where workspace = :workspace and run_id = :run
  and key in (select jsonb_array_elements_text(cast(:keys as jsonb)))

-- set_entry --
insert into run_entries (
  workspace, run_id, key, kind, told, failed, version, written, created_at, updated_at,
  value_bytes, part_of, total, value
)
values (
  :workspace, :run, :key, :kind, :told, :failed, :version, :written, :created_at, :updated_at,
  :value_bytes, :part_of, :total, :value
)
on conflict (workspace, run_id, key) do update
set kind = excluded.kind, told = excluded.told, failed = excluded.failed,
  version = excluded.version, written = excluded.written, created_at = excluded.created_at,
  updated_at = excluded.updated_at, value_bytes = excluded.value_bytes,
  part_of = excluded.part_of, total = excluded.total, value = excluded.value

-- delete_entries (sqlite) --
delete from run_entries
where workspace = :workspace and run_id = :run and key in (select value from json_each(:keys))

-- delete_entries (postgres) --
delete from run_entries
where workspace = :workspace and run_id = :run
  and key in (select jsonb_array_elements_text(cast(:keys as jsonb)))

-- clear_entries --
delete from run_entries where workspace = :workspace and run_id = :run

-- list_entries --
select key, kind, told, failed, version, written, created_at, updated_at, value_bytes
from run_entries
where workspace = :workspace and run_id = :run
order by written

-- get_entry --
select key, kind, told, failed, version, written, created_at, updated_at, value_bytes, part_of,
  total, value
from run_entries
where workspace = :workspace and run_id = :run and key = :key

-- add_event --
insert into run_events (
  workspace, run_id, seq, type, at, part, agent, call_id, data, written
)
values (:workspace, :run, :seq, :type, :at, :part, :agent, :call_id, :data, :written)

-- trim_events --
delete from run_events where workspace = :workspace and run_id = :run and seq <= :seq

-- trim_event_bytes --
delete from run_events
where workspace = :workspace and run_id = :run and seq < (
  select e.seq from run_events e
  where e.workspace = :workspace and e.run_id = :run and e.written > :written
  order by e.seq
  limit 1
)

-- last_event --
select written from run_events
where workspace = :workspace and run_id = :run
order by seq desc
limit 1

-- clear_events --
delete from run_events where workspace = :workspace and run_id = :run

-- events_after --
select seq, type, at, part, agent, call_id, data
from run_events
where workspace = :workspace and run_id = :run and seq > :after
order by seq
limit :rows

-- lock_versions (sqlite) --
select fence, status, lease_until, seq, versions, version_bytes, queue, thread_id, (
    select min(v.number) from run_versions v where v.workspace = :workspace and v.run_id = :run
  ) as oldest
from runs
where workspace = :workspace and id = :run

-- lock_versions (postgres) --
select fence, status, lease_until, seq, versions, version_bytes, queue, thread_id, (
    select min(v.number) from run_versions v where v.workspace = :workspace and v.run_id = :run
  ) as oldest
from runs
where workspace = :workspace and id = :run
for update

-- add_version --
insert into run_versions (
  workspace, run_id, number, at, cause, part, agent, fence, changed, bytes, gaps
)
values (
  :workspace, :run, :number, :at, :cause, :part, :agent, :fence, :changed, :bytes, 0
)

-- set_version_row --
-- A key that is written again keeps its place, unless it was deleted meanwhile.
insert into run_version_rows (workspace, run_id, kind, key, number, place, body, bytes)
values (
  :workspace, :run, :kind, :key, :number,
  coalesce(
    (
      select case when r.body is null then null else r.place end
      from run_version_rows r
      where r.workspace = :workspace and r.run_id = :run and r.kind = :kind and r.key = :key
      order by r.number desc
      limit 1
    ),
    :place
  ),
  :body, :bytes
)
on conflict (workspace, run_id, kind, key, number) do update
set body = excluded.body, bytes = excluded.bytes

-- set_turn --
insert into run_turns (workspace, run_id, part, n, agent, body)
values (:workspace, :run, :part, :n, :agent, :body)
on conflict (workspace, run_id, part, n) do update
set agent = excluded.agent, body = excluded.body

-- set_text --
insert into run_texts (workspace, run_id, sha256, body)
values (:workspace, :run, :sha256, :body)
on conflict (workspace, run_id, sha256) do nothing

-- get_text --
select body from run_texts where workspace = :workspace and run_id = :run and sha256 = :sha256

-- keep_version --
-- What is kept is progress, which a lost owner has made.
update runs
set losses = case when versions < :versions or cast(:kept as integer) > 0 then 0 else losses end,
  versions = :versions, version_bytes = version_bytes + :size, seq = :seq
where workspace = :workspace and id = :run

-- rest_run --
update runs
set status = :status, holder = null, lease_until = null, seen_at = :now
where workspace = :workspace and id = :run

-- state_at --
select r.kind, r.key, r.body
from run_version_rows r
where r.workspace = :workspace and r.run_id = :run and r.number <= :number
  and r.body is not null
  and not exists (
    select 1 from run_version_rows n
    where n.workspace = r.workspace and n.run_id = r.run_id and n.kind = r.kind
      and n.key = r.key and n.number > r.number and n.number <= :number
  )
order by r.place

-- get_versions --
select fence, status, lease_until, seq, versions, version_bytes, queue, thread_id, (
    select min(v.number) from run_versions v where v.workspace = :workspace and v.run_id = :run
  ) as oldest
from runs
where workspace = :workspace and id = :run

-- list_versions --
select number, at, cause, part, agent, changed, bytes, fence, gaps
from run_versions
where workspace = :workspace and run_id = :run and number < :before
order by number desc
limit :rows

-- oldest_version --
select min(number) from run_versions where workspace = :workspace and run_id = :run

-- versions_of_part --
select min(number), max(number)
from run_versions
where workspace = :workspace and run_id = :run and part = :part and number <= :number

-- turns_of_part --
select part, n, agent, body
from run_turns
where workspace = :workspace and run_id = :run and part = :part
order by n

-- result_of_part --
-- What the newest version holds of the call :key of an agent.
select body
from run_version_rows
where workspace = :workspace and run_id = :run and kind = 'result' and key = :key
order by number desc
limit 1

-- results_in_thread (sqlite) --
select t.id, t.body
from json_each(:ids) j
cross join runs r
cross join thread_turns t
where r.workspace = :workspace and r.id = :run
  and t.workspace = :workspace and t.thread_id = r.thread_id and t.id = j.value
  and t.kind = 'result'

-- results_in_thread (postgres) --
select t.id, t.body
from runs r
join thread_turns t on t.workspace = r.workspace and t.thread_id = r.thread_id
where r.workspace = :workspace and r.id = :run and t.kind = 'result'
  and t.id = any (array(select jsonb_array_elements_text(cast(:ids as jsonb))))

-- result_with_text (sqlite) --
-- The first result of the thread that names a text holds it.
select t.body
from runs r
join thread_turns t on t.workspace = r.workspace and t.thread_id = r.thread_id
where r.workspace = :workspace and r.id = :run and t.kind = 'result' and instr(t.body, :text) > 0
order by t.seq
limit 1

-- result_with_text (postgres) --
select t.body
from runs r
join thread_turns t on t.workspace = r.workspace and t.thread_id = r.thread_id
where r.workspace = :workspace and r.id = :run and t.kind = 'result' and strpos(t.body, :text) > 0
order by t.seq
limit 1

-- parts_named (sqlite) --
select id, kind, title, state, within, depends_on, agent, model, attempts, cause, usage, place,
  started_at, ended_at
from run_parts
where workspace = :workspace and run_id = :run and id in (select value from json_each(:ids))

-- parts_named (postgres) --
select id, kind, title, state, within, depends_on, agent, model, attempts, cause, usage, place,
  started_at, ended_at
from run_parts
where workspace = :workspace and run_id = :run
  and id = any (array(select jsonb_array_elements_text(cast(:ids as jsonb))))

-- list_parts --
select id, kind, title, state, within, depends_on, agent, model, attempts, cause, usage, place,
  started_at, ended_at
from run_parts
where workspace = :workspace and run_id = :run
order by place, kind, id

-- set_part --
insert into run_parts (
  workspace, run_id, id, kind, title, state, within, depends_on, agent, model, attempts, cause,
  usage, place, started_at, ended_at
)
values (
  :workspace, :run, :id, :kind, :title, :state, :within, :depends_on, :agent, :model, :attempts,
  :cause, :usage, :place, :started_at, :ended_at
)
on conflict (workspace, run_id, kind, id) do update
set title = excluded.title, state = excluded.state, within = excluded.within,
  depends_on = excluded.depends_on, agent = excluded.agent, model = excluded.model,
  attempts = excluded.attempts, cause = excluded.cause, usage = excluded.usage,
  started_at = excluded.started_at, ended_at = excluded.ended_at

-- delete_part --
delete from run_parts
where workspace = :workspace and run_id = :run and kind = :kind and id = :id

-- rest_parts --
update run_parts set state = 'waiting'
where workspace = :workspace and run_id = :run and state = 'running'

-- requeue_parts --
-- Nothing of a queued run is at work.
update run_parts set state = 'pending'
where workspace = :workspace and run_id = :run and state = 'running'

-- end_parts --
-- No part outlasts its run.
update run_parts set state = 'cancelled', ended_at = :now
where workspace = :workspace and run_id = :run and state in ('running', 'waiting')

-- clear_parts --
delete from run_parts where workspace = :workspace and run_id = :run

-- forget_parts (sqlite) --
delete from run_parts
where workspace = :workspace
  and (agent = :named or instr(title, :text) > 0 or instr(cause, :text) > 0)

-- forget_parts (postgres) --
delete from run_parts
where workspace = :workspace
  and (agent = :named or strpos(title, :text) > 0 or strpos(cause, :text) > 0)

-- forget_version_rows (sqlite) --
-- What it wrote is absent; no older value takes its place.
update run_version_rows
set body = null, bytes = 0
where workspace = :workspace and body is not null and (
  instr(body, cast(:text as blob)) > 0 or instr(body, cast(:also as blob)) > 0
  or exists (
    select 1 from run_versions v
    where v.workspace = run_version_rows.workspace and v.run_id = run_version_rows.run_id
      and v.number = run_version_rows.number and v.agent = :named
  )
  or exists (
    select 1 from run_parts p
    where p.workspace = run_version_rows.workspace and p.run_id = run_version_rows.run_id
      and p.agent = :named
      and run_version_rows.key in (p.id, 'step:' || p.id, 'task:' || p.id)
  )
)
returning run_id, number

-- forget_version_rows (postgres) --
-- What it wrote is absent; no older value takes its place.
update run_version_rows
set body = null, bytes = 0
where workspace = :workspace and body is not null and (
  position(convert_to(:text, 'UTF8') in body) > 0 or position(convert_to(:also, 'UTF8') in body) > 0
  or exists (
    select 1 from run_versions v
    where v.workspace = run_version_rows.workspace and v.run_id = run_version_rows.run_id
      and v.number = run_version_rows.number and v.agent = :named
  )
  or exists (
    select 1 from run_parts p
    where p.workspace = run_version_rows.workspace and p.run_id = run_version_rows.run_id
      and p.agent = :named
      and run_version_rows.key in (p.id, 'step:' || p.id, 'task:' || p.id)
  )
)
returning run_id, number

-- add_gaps --
update run_versions
set gaps = gaps + :gaps
where workspace = :workspace and run_id = :run and number = :number

-- unname_versions (sqlite) --
update run_versions
set agent = case when agent = :named then null else agent end,
  part = case when part = :named then null else part end,
  changed = case when instr(changed, :text) > 0 or instr(changed, :also) > 0 then '[]' else changed end
where workspace = :workspace
  and (agent = :named or part = :named or instr(changed, :text) > 0 or instr(changed, :also) > 0)

-- unname_versions (postgres) --
update run_versions
set agent = case when agent = :named then null else agent end,
  part = case when part = :named then null else part end,
  changed = case when strpos(changed, :text) > 0 or strpos(changed, :also) > 0 then '[]' else changed end
where workspace = :workspace
  and (agent = :named or part = :named or strpos(changed, :text) > 0 or strpos(changed, :also) > 0)

-- forget_questions (sqlite) --
delete from run_questions
where workspace = :workspace and (agent = :named
  or instr(arguments, :text) > 0
  or instr(arguments, :also) > 0
  or instr(answer, :text) > 0
  or instr(answer, :also) > 0
  or instr(who, :text) > 0
  or instr(who, :also) > 0)
returning run_id

-- forget_questions (postgres) --
delete from run_questions
where workspace = :workspace and (agent = :named
  or strpos(arguments, :text) > 0
  or strpos(arguments, :also) > 0
  or strpos(answer, :text) > 0
  or strpos(answer, :also) > 0
  or strpos(who, :text) > 0
  or strpos(who, :also) > 0)
returning run_id

-- forget_turns (sqlite) --
delete from run_turns
where workspace = :workspace and (agent = :named or instr(body, cast(:text as blob)) > 0 or instr(body, cast(:also as blob)) > 0)

-- forget_turns (postgres) --
delete from run_turns
where workspace = :workspace and (agent = :named or position(convert_to(:text, 'UTF8') in body) > 0 or position(convert_to(:also, 'UTF8') in body) > 0)

-- forget_texts (sqlite) --
delete from run_texts
where workspace = :workspace and (instr(body, cast(:text as blob)) > 0 or instr(body, cast(:also as blob)) > 0)

-- forget_texts (postgres) --
delete from run_texts
where workspace = :workspace and (position(convert_to(:text, 'UTF8') in body) > 0 or position(convert_to(:also, 'UTF8') in body) > 0)

-- forget_effects (sqlite) --
delete from run_effects
where workspace = :workspace and (instr(outcome, :text) > 0 or instr(outcome, :also) > 0
  or exists (
    select 1 from run_parts p
    where p.workspace = run_effects.workspace and p.run_id = run_effects.run_id
      and p.agent = :named and instr(key, p.id || ':') = 1
  )
)

-- forget_effects (postgres) --
delete from run_effects
where workspace = :workspace and (strpos(outcome, :text) > 0 or strpos(outcome, :also) > 0
  or exists (
    select 1 from run_parts p
    where p.workspace = run_effects.workspace and p.run_id = run_effects.run_id
      and p.agent = :named and strpos(key, p.id || ':') = 1
  )
)

-- forget_entries (sqlite) --
delete from run_entries
where workspace = :workspace and (
  instr(told, :text) > 0 or instr(told, :also) > 0 or instr(value, :text) > 0 or instr(value, :also) > 0
  or exists (
    select 1 from run_parts p
    where p.workspace = run_entries.workspace and p.run_id = run_entries.run_id
      and p.agent = :named and run_entries.key in ('step:' || p.id, 'task:' || p.id)
  )
)
returning run_id

-- forget_entries (postgres) --
delete from run_entries
where workspace = :workspace and (
  strpos(told, :text) > 0 or strpos(told, :also) > 0 or strpos(value, :text) > 0 or strpos(value, :also) > 0
  or exists (
    select 1 from run_parts p
    where p.workspace = run_entries.workspace and p.run_id = run_entries.run_id
      and p.agent = :named and run_entries.key in ('step:' || p.id, 'task:' || p.id)
  )
)
returning run_id

-- recount_entries --
update runs
set entries = (
    select count(*) from run_entries e where e.workspace = :workspace and e.run_id = :run
  ),
  bytes = (
    select cast(coalesce(sum(e.value_bytes), 0) as bigint) from run_entries e
    where e.workspace = :workspace and e.run_id = :run
  )
where workspace = :workspace and id = :run

-- free_waiting --
-- A run whose questions are gone may be taken up.
update runs
set status = 'queued'
where workspace = :workspace and id = :run and status = 'waiting'
  and not exists (
    select 1 from run_questions q
    where q.workspace = :workspace and q.run_id = :run and q.status = 'open'
  )
  and not exists (
    select 1 from runs o
    where o.workspace = :workspace and o.parent_id = :run and o.queue is not null
      and o.status not in ('completed', 'failed', 'cancelled')
  )

-- questions_of_user (sqlite) --
select run_id, id, part, call_id
from run_questions
where workspace = :workspace and (answered_by = :actor or instr(who, :text) > 0)
order by run_id, id

-- questions_of_user (postgres) --
select run_id, id, part, call_id
from run_questions
where workspace = :workspace and (answered_by = :actor or strpos(who, :text) > 0)
order by run_id, id

-- delete_question --
delete from run_questions where workspace = :workspace and id = :question

-- forget_call (sqlite) --
delete from run_turns
where workspace = :workspace and run_id = :run and part = :part and instr(body, cast(:text as blob)) > 0

-- forget_call (postgres) --
delete from run_turns
where workspace = :workspace and run_id = :run and part = :part and position(convert_to(:text, 'UTF8') in body) > 0

-- forget_question_events (sqlite) --
delete from run_events
where workspace = :workspace and run_id = :run and type like 'question.%' and instr(data, :text) > 0

-- forget_question_events (postgres) --
delete from run_events
where workspace = :workspace and run_id = :run and type like 'question.%' and strpos(data, :text) > 0

-- forks_of --
select id, forked_version from runs where workspace = :workspace and forked_run = :run

-- rows_of_key --
select kind, number, body
from run_version_rows
where workspace = :workspace and run_id = :run and key = :key and kind in ('entry', 'value')

-- redact_row --
delete from run_version_rows
where workspace = :workspace and run_id = :run and kind = :kind and key = :key and number = :number

-- results_of_run --
select t.thread_id, t.seq, t.body
from runs r
join thread_turns t on t.workspace = r.workspace and t.thread_id = r.thread_id
where r.workspace = :workspace and r.id = :run and t.kind = 'result' and t.run_id = :run

-- change_result --
update thread_turns
set body = :body, checksum = :checksum, size_bytes = :size
where workspace = :workspace and thread_id = :thread and seq = :seq

-- whole_results --
select key, number, body
from run_version_rows
where workspace = :workspace and run_id = :run and kind = 'result' and body is not null

-- change_row --
update run_version_rows
set body = :body, bytes = :bytes
where workspace = :workspace and run_id = :run and kind = 'result' and key = :key
  and number = :number

-- redact_question --
update run_questions
set arguments = :data
where workspace = :workspace and run_id = :run and call_id = :call_id and arguments is not null

-- redact_entry --
delete from run_entries where workspace = :workspace and run_id = :run and key = :key

-- redact_results --
update run_events
set data = :data
where workspace = :workspace and run_id = :run and part = :part and type = 'step.result'

-- turn_bodies --
select part, n, body from run_turns where workspace = :workspace and run_id = :run order by part, n

-- change_turn --
update run_turns
set body = :body
where workspace = :workspace and run_id = :run and part = :part and n = :n

-- tool_calls --
select call_id, data
from run_events
where workspace = :workspace and run_id = :run and type = 'tool.called' and call_id is not null

-- redact_call_events --
update run_events
set data = :data
where workspace = :workspace and run_id = :run and call_id = :call_id
  and type in ('tool.called', 'tool.returned')

-- redact_effect --
update run_effects
set outcome = :data
where workspace = :workspace and run_id = :run
  and key like :pattern escape '!'

-- lock_owner (sqlite) --
select workspace, holder, fence from runs where workspace = :workspace and id = :run

-- lock_owner (postgres) --
select workspace, holder, fence from runs where workspace = :workspace and id = :run for update

-- get_effect --
select outcome from run_effects where workspace = :workspace and run_id = :run and key = :key

-- add_effect --
insert into run_effects (workspace, run_id, key, fence, at, outcome)
values (:workspace, :run, :key, :fence, :now, :outcome)

-- drop_effects --
delete from run_effects where workspace = :workspace and run_id = :run

-- get_room --
select versions, bytes, ended from run_limits where workspace = :workspace

-- most_ended --
select ended from run_limits where workspace = :workspace

-- set_room --
insert into run_limits (workspace, versions, bytes, ended)
values (:workspace, :versions, :bytes, :ended)
on conflict (workspace) do update
set versions = excluded.versions, bytes = excluded.bytes, ended = excluded.ended

-- drop_completed_turns --
delete from run_turns
where workspace = :workspace and run_id = :run and part in (
  select r.key
  from run_version_rows r
  where r.workspace = :workspace and r.run_id = :run and r.kind = 'part' and r.body = :completed
    and not exists (
      select 1 from run_version_rows n
      where n.workspace = r.workspace and n.run_id = r.run_id and n.kind = r.kind
        and n.key = r.key and n.number > r.number
    )
)

-- drop_unnamed_texts (sqlite) --
delete from run_texts
where workspace = :workspace and run_id = :run and not exists (
  select 1 from run_turns t
  where t.workspace = run_texts.workspace and t.run_id = run_texts.run_id
    and instr(t.body, cast(run_texts.sha256 as blob)) > 0
)

-- drop_unnamed_texts (postgres) --
delete from run_texts
where workspace = :workspace and run_id = :run and not exists (
  select 1 from run_turns t
  where t.workspace = run_texts.workspace and t.run_id = run_texts.run_id
    and position(convert_to(run_texts.sha256, 'UTF8') in t.body) > 0
)

-- fold_rows --
-- Rows that the version no longer shows: others of their keys are newer.
delete from run_version_rows as r
where r.workspace = :workspace and r.run_id = :run and r.number < :number
  and exists (
    select 1 from run_version_rows n
    where n.workspace = r.workspace and n.run_id = r.run_id and n.kind = r.kind
      and n.key = r.key and n.number > r.number and n.number <= :number
  )

-- fold_deleted --
delete from run_version_rows
where workspace = :workspace and run_id = :run and number <= :number and body is null

-- fold_versions --
delete from run_versions where workspace = :workspace and run_id = :run and number < :number

-- recount_versions --
update runs
set version_bytes = (
    select cast(coalesce(sum(r.bytes), 0) as bigint) from run_version_rows r
    where r.workspace = :workspace and r.run_id = :run
  ) + (
    select cast(coalesce(sum(length(t.body)), 0) as bigint) from run_turns t
    where t.workspace = :workspace and t.run_id = :run
  ) + (
    select cast(coalesce(sum(length(x.body)), 0) as bigint) from run_texts x
    where x.workspace = :workspace and x.run_id = :run
  )
where workspace = :workspace and id = :run
returning version_bytes

-- newest_version --
select number, at
from run_versions
where workspace = :workspace and run_id = :run
order by number desc
limit 1

-- make_run --
-- The record of a run of which there are versions alone: nobody has it.
insert into runs (
  workspace, id, kind, name, status, metadata, fence, batch, seq, entries, bytes, started_at,
  seen_at
)
values (:workspace, :run, 'plan', :run, 'queued', '{}', 0, 0, 0, 0, 0, :now, :now)
on conflict (workspace, id) do nothing

-- parts_with_turns --
select distinct part from run_turns where workspace = :workspace and run_id = :run

-- clear_turns --
delete from run_turns where workspace = :workspace and run_id = :run and part = :part

-- drop_texts --
delete from run_texts where workspace = :workspace and run_id = :run

-- drop_turns --
delete from run_turns where workspace = :workspace and run_id = :run

-- drop_versions --
delete from run_versions where workspace = :workspace and run_id = :run

-- drop_version_rows --
delete from run_version_rows where workspace = :workspace and run_id = :run

-- forget_versions --
update runs set versions = 0, version_bytes = 0 where workspace = :workspace and id = :run

-- add_question --
insert into run_questions (
  workspace, id, run_id, kind, key, text, schema, options, part, agent, tool, call_id, arguments,
  who, status, default_value, answer, answered_by, note, asked_at, expires_at, answered_at
)
values (
  :workspace, :question, :run, :kind, :key, :text, :schema, :options, :part, :agent, :tool,
  :call_id, :arguments, :who, :status, :default_value, :answer, :answered_by, :note, :asked_at,
  :expires_at, :answered_at
)
on conflict (workspace, id) do nothing

-- get_question --
select id, run_id, kind, key, text, schema, options, part, agent, tool, call_id, arguments, who, status,
  default_value, answer, answered_by, note, asked_at, expires_at, answered_at
from run_questions
where workspace = :workspace and id = :question

-- clear_questions --
delete from run_questions where workspace = :workspace and run_id = :run

-- questions_of_run --
select id, run_id, kind, key, text, schema, options, part, agent, tool, call_id, arguments, who, status,
  default_value, answer, answered_by, note, asked_at, expires_at, answered_at
from run_questions
where workspace = :workspace and run_id = :run
order by asked_at, id

-- open_questions --
select id
from run_questions
where workspace = :workspace and run_id = :run and status = 'open'
order by asked_at, id

-- settle_question --
update run_questions
set status = :status, answer = :answer, answered_by = :answered_by, note = :note,
  answered_at = :now
where workspace = :workspace and id = :question and status = 'open'

-- due_questions --
select distinct workspace, run_id
from run_questions
where :workspace in (workspace, '*') and status = 'open' and expires_at is not null
  and expires_at <= :now and (:run = '' or run_id = :run)
limit 1000

-- list_questions (sqlite) --
-- What is '' is no filter.
select id, run_id, kind, key, text, schema, options, part, agent, tool, call_id, arguments, who, status,
  default_value, answer, answered_by, note, asked_at, expires_at, answered_at
from run_questions
where workspace = :workspace and (asked_at, id) < (:before, :before_id)
  and status in (select value from json_each(:statuses)) and (:run = '' or run_id = :run)
  and (:who = '' or exists (select 1 from json_each(who) named where named.value = :who))
order by asked_at desc, id desc
limit :rows

-- list_questions (postgres) --
-- What is '' is no filter.
select id, run_id, kind, key, text, schema, options, part, agent, tool, call_id, arguments, who, status,
  default_value, answer, answered_by, note, asked_at, expires_at, answered_at
from run_questions
where workspace = :workspace and (asked_at, id) < (:before, :before_id)
  and status = any (array(select jsonb_array_elements_text(cast(:statuses as jsonb))))
  and (:run = '' or run_id = :run)
  and (:who = '' or cast(who as jsonb) @> to_jsonb(cast(:who as text)))
order by asked_at desc, id desc
limit :rows

-- set_status --
update runs set status = :status, seq = :seq where workspace = :workspace and id = :run

-- status_counts --
-- A run whose lease has run out is lost, whatever it said last.
select case when status = 'running' and lease_until < :now then 'lost' else status end as status,
  count(*) as number
from runs
where :workspace in (workspace, '*')
group by 1

-- question_counts --
select status, count(*) as number
from run_questions
where :workspace in (workspace, '*')
group by status

-- touches --
-- What the parts of a run have read and written.
select distinct type, part, agent, data
from run_events
where workspace = :workspace and run_id = :run
  and type in ('memory.read', 'memory.written', 'value.read', 'value.changed')

-- part_began --
-- The first event of a part, with the data of the last version before it.
select e.seq as seq,
  (
    select v.data from run_events v
    where v.workspace = :workspace and v.run_id = :run and v.type = 'version.kept'
      and v.seq < e.seq
    order by v.seq desc
    limit 1
  ) as version,
  (
    select min(o.seq) from run_events o where o.workspace = :workspace and o.run_id = :run
  ) as oldest
from run_events e
where e.workspace = :workspace and e.run_id = :run
  and (
    (
      e.part = :part
      and e.type in ('task.created', 'step.started', 'board.claimed', 'agent.started')
    )
    or (e.agent = :part and e.type = 'agent.started')
  )
order by e.seq
limit 1

-- last_version --
select max(number) from run_versions where workspace = :workspace and run_id = :run

-- version_at --
select number from run_versions
where workspace = :workspace and run_id = :run and number = :number

-- input_of --
select input from runs where workspace = :workspace and id = :run

-- fork_run --
insert into runs (
  workspace, id, kind, name, definition, definition_version, agent, status, metadata, input, queue,
  priority, thread_id, forked_run, forked_version, fence, batch, seq, entries, bytes, versions,
  version_bytes, started_at, seen_at
)
select workspace, :fork, kind, coalesce(:name, name), definition, definition_version, agent,
  'queued', metadata, :input,
  case when :queued = 1 and definition is not null then coalesce(queue, 'default') end,
  priority, :thread, id, :version, 0, 0, 0, :entries, :bytes, :version,
  (
    select cast(coalesce(sum(v.bytes), 0) as bigint) from run_versions v
    where v.workspace = :workspace and v.run_id = :run and v.number <= :version
  ),
  :now, :now
from runs
where workspace = :workspace and id = :run
on conflict (workspace, id) do nothing

-- fork_versions --
insert into run_versions (
  workspace, run_id, number, at, cause, part, agent, fence, changed, bytes, gaps
)
select workspace, :fork, number, at, cause, part, agent, fence, changed, bytes, gaps
from run_versions
where workspace = :workspace and run_id = :run and number <= :version

-- fork_version_rows --
insert into run_version_rows (workspace, run_id, kind, key, number, place, body, bytes)
select workspace, :fork, kind, key, number, place, body, bytes
from run_version_rows
where workspace = :workspace and run_id = :run and number <= :version

-- fork_texts --
insert into run_texts (workspace, run_id, sha256, body)
select workspace, :fork, sha256, body
from run_texts
where workspace = :workspace and run_id = :run

-- fork_turns (sqlite) --
insert into run_turns (workspace, run_id, part, n, agent, body)
select workspace, :fork, part, n, agent, body
from run_turns
where workspace = :workspace and run_id = :run
  and part in (select value from json_each(:parts))

-- fork_turns (postgres) --
insert into run_turns (workspace, run_id, part, n, agent, body)
select workspace, :fork, part, n, agent, body
from run_turns
where workspace = :workspace and run_id = :run
  and part = any (array(select jsonb_array_elements_text(cast(:parts as jsonb))))

-- entry_values --
select key, value, value_bytes from run_entries
where workspace = :workspace and run_id = :run
order by written

-- parts_that_ask --
select distinct part from run_questions
where workspace = :workspace and run_id = :run and part is not null

-- fork_thread --
insert into threads (workspace, id, created_at, updated_at, turns, user_id)
select workspace, :thread, :now, :now, 0, user_id
from threads
where workspace = :workspace and id = :old

-- erased_at --
-- When a person was last erased.
select at from user_tombstones where workspace = :workspace and user_hash = :user_hash

-- get_tombstone_secret --
select secret from tombstone_secrets where workspace = :workspace
