-- hold_thread (sqlite) --
insert into threads (workspace, id, created_at, updated_at, turns)
values (:workspace, :thread, :now, :now, 0)
on conflict (workspace, id) do nothing

-- hold_thread (postgres) --
-- Makes the thread if it is not there, and in any case its row is ours until the commit: so the
-- numbers drawn after it stand in the order of commits.
insert into threads (workspace, id, created_at, updated_at, turns)
values (:workspace, :thread, :now, :now, 0)
on conflict (workspace, id) do update set turns = threads.turns

-- hold_thread_of_user --
-- A thread without turns is nobody's yet: the record of its first run has made it.
insert into threads (workspace, id, created_at, updated_at, turns, user_id)
values (:workspace, :thread, :now, :now, 0, :user)
on conflict (workspace, id) do update set user_id = case
    when threads.user_id is null and threads.turns = 0 then excluded.user_id
    else threads.user_id
end
returning user_id

-- put_turn --
insert into thread_turns (seq, workspace, thread_id, id, kind, run_id, agent, at, checksum,
    size_bytes, body)
values (:seq, :workspace, :thread, :id, :kind, :run_id, :agent, :at, :checksum, :size_bytes, :body)
on conflict (workspace, thread_id, id) do nothing

-- fence_of_run (sqlite) --
select fence from runs where workspace = :workspace and id = :run

-- fence_of_run (postgres) --
-- Locked until the commit: a takeover waits for it, or this one for the takeover.
select fence from runs where workspace = :workspace and id = :run for share

-- held_turns (sqlite) --
select t.id, t.seq, t.checksum
from json_each(:ids) j cross join thread_turns t
where t.workspace = :workspace and t.thread_id = :thread and t.id = j.value

-- held_turns (postgres) --
select id, seq, checksum
from thread_turns
where workspace = :workspace and thread_id = :thread
    and id = any (array(select jsonb_array_elements_text(cast(:ids as jsonb))))

-- count_turns --
update threads
set turns = turns + :stored,
    updated_at = case when updated_at < :now then :now else updated_at end
where workspace = :workspace and id = :thread

-- get_thread --
select t.id, t.created_at, t.updated_at, t.turns, t.user_id, (
    select count(*) from runs r where r.workspace = :workspace and r.thread_id = t.id
) as runs
from threads t
where t.workspace = :workspace and t.id = :thread

-- list_threads --
select t.id, t.created_at, t.updated_at, t.turns, t.user_id, (
    select count(*) from runs r where r.workspace = :workspace and r.thread_id = t.id
) as runs
from threads t
where t.workspace = :workspace and (t.created_at, t.id) < (:at, :after)
order by t.created_at desc, t.id desc
limit :rows

-- list_threads_of_user --
select t.id, t.created_at, t.updated_at, t.turns, t.user_id, (
    select count(*) from runs r where r.workspace = :workspace and r.thread_id = t.id
) as runs
from threads t
where t.workspace = :workspace and t.user_id = :user and (t.created_at, t.id) < (:at, :after)
order by t.created_at desc, t.id desc
limit :rows

-- turn_before_last --
-- The number of the turn before the :last newest ones.
select seq
from thread_turns
where workspace = :workspace and thread_id = :thread and (:kind = '' or kind = :kind)
order by seq desc
limit 1 offset :last

-- lock_thread (sqlite) --
select user_id from threads where workspace = :workspace and id = :thread

-- lock_thread (postgres) --
select user_id from threads where workspace = :workspace and id = :thread for update

-- last_turn --
select seq, kind, id, run_id, body
from thread_turns
where workspace = :workspace and thread_id = :thread and kind = :kind
order by seq desc
limit 1

-- delete_turn --
delete from thread_turns where workspace = :workspace and thread_id = :thread and seq = :seq

-- threads_of_user --
select id from threads where workspace = :workspace and user_id = :user
order by id

-- sizes_of_turns --
-- Bodies may be large: a page ends where they come to too much, so they are read after this.
-- Of a kind that is '' are all.
select seq, size_bytes
from thread_turns
where workspace = :workspace and thread_id = :thread and seq > :after
    and (:kind = '' or kind = :kind)
order by seq
limit :rows

-- list_turns --
select seq, kind, id, run_id, body
from thread_turns
where workspace = :workspace and thread_id = :thread and seq > :after and seq <= :last
    and (:kind = '' or kind = :kind)
order by seq

-- forget_thread --
delete from threads where workspace = :workspace and id = :thread

-- forget_turns --
delete from thread_turns where workspace = :workspace and thread_id = :thread

-- hold_runs (sqlite) --
select id from runs where workspace = :workspace and thread_id = :thread

-- hold_runs (postgres) --
select id from runs where workspace = :workspace and thread_id = :thread order by id for update

-- forget_run_entries --
delete from run_entries
where workspace = :workspace
  and run_id in (select id from runs where workspace = :workspace and thread_id = :thread)

-- forget_run_events --
delete from run_events
where workspace = :workspace
  and run_id in (select id from runs where workspace = :workspace and thread_id = :thread)

-- forget_runs --
delete from runs where workspace = :workspace and thread_id = :thread

-- make_tombstone_secret --
insert into tombstone_secrets (workspace, secret) values (:workspace, :secret)
on conflict (workspace) do nothing

-- erased_at --
-- When a person was last erased.
select at from user_tombstones where workspace = :workspace and user_hash = :user_hash

-- get_tombstone_secret --
select secret from tombstone_secrets where workspace = :workspace

-- bury_thread --
insert into thread_tombstones (workspace, thread_hash, seq, at)
values (:workspace, :thread_hash, :seq, :now)
on conflict (workspace, thread_hash) do update set seq = excluded.seq, at = excluded.at

-- threads_of_agent --
select distinct thread_id from thread_turns where workspace = :workspace and agent = :agent

-- hold_threads (sqlite) --
select id from threads
where workspace = :workspace and id in (select value from json_each(:ids))

-- hold_threads (postgres) --
-- In one order, so that no two of these wait for each other.
select id from threads
where workspace = :workspace
    and id = any (array(select jsonb_array_elements_text(cast(:ids as jsonb))))
order by id
for update

-- forget_results (sqlite) --
delete from thread_turns
where workspace = :workspace and agent = :agent
    and thread_id in (select value from json_each(:ids))

-- forget_results (postgres) --
delete from thread_turns
where workspace = :workspace and agent = :agent
    and thread_id = any (array(select jsonb_array_elements_text(cast(:ids as jsonb))))

-- recount_turns (sqlite) --
update threads
set turns = (
    select count(*) from thread_turns t
    where t.workspace = :workspace and t.thread_id = threads.id)
where workspace = :workspace and id in (select value from json_each(:ids))

-- recount_turns (postgres) --
update threads
set turns = (
    select count(*) from thread_turns t
    where t.workspace = :workspace and t.thread_id = threads.id)
where workspace = :workspace
    and id = any (array(select jsonb_array_elements_text(cast(:ids as jsonb))))
