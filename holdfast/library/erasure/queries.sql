-- Erasures: the ledger, links of objects to people, and what is left of a subject.

-- workspace_secret --
select secret from tombstone_secrets where workspace = :workspace

-- make_workspace_secret --
insert into tombstone_secrets (workspace, secret) values (:workspace, :secret)
on conflict (workspace) do nothing

-- begin --
insert into erasures (workspace, id, number, kind, subject, at, seq, state, completed_at, counts,
  unreached, pending, actor, names, receipt, link, mac)
values (:workspace, :id, 0, :kind, :subject, :at, :seq, 'running', null, '{}', '[]', '[]', :actor,
  :names, null, null, null)

-- get_erasure --
select id, number, kind, subject, at, seq, state, completed_at, counts, unreached, pending, actor,
  names, receipt, link, mac
from erasures
where workspace = :workspace and id = :id

-- list_erasures --
select id, number, kind, subject, at, seq, state, completed_at, counts, unreached, pending, actor,
  names, receipt, link, mac
from erasures
where workspace = :workspace and (at < :at or (at = :at and id < :id))
order by at desc, id desc
limit :rows

-- carried_erasures --
select e.workspace, id, number, kind, subject, at, seq, state, completed_at, counts, unreached,
  pending, actor, names, receipt, link, mac, s.secret
from erasures e join tombstone_secrets s on s.workspace = e.workspace
order by e.workspace, at, id

-- carry_erasure --
insert into erasures (workspace, id, number, kind, subject, at, seq, state, completed_at, counts,
  unreached, pending, actor, names, receipt, link, mac)
values (:of, :id, :number, :kind, :subject, :at, :seq, :state, :completed_at, :counts, :unreached,
  :pending, :actor, :names, :receipt, :link, :mac)
on conflict (workspace, id) do update
set number = excluded.number, state = excluded.state, completed_at = excluded.completed_at,
  counts = excluded.counts, unreached = excluded.unreached, pending = excluded.pending,
  receipt = excluded.receipt, link = excluded.link, mac = excluded.mac

-- carry_secret --
insert into tombstone_secrets (workspace, secret) values (:of, :secret)
on conflict (workspace) do nothing

-- carried_secret --
select secret from tombstone_secrets where workspace = :of

-- carried_backups --
select at, seq, rows, name from backups order by at, name

-- chain --
select receipt, link
from erasures
where workspace = :workspace and number > 0
order by number

-- chain_end --
select number, link
from erasures
where workspace = :workspace and number > 0
order by number desc
limit 1

-- hold_chain (sqlite) --
select 1 as held

-- hold_chain (postgres) --
select 1 as held from tombstone_secrets where workspace = :workspace for update

-- set_counts --
update erasures set counts = :counts where workspace = :workspace and id = :id

-- set_pending --
update erasures
set state = 'pending', pending = :pending, unreached = :unreached
where workspace = :workspace and id = :id and state <> 'completed'

-- set_deleted --
-- In the transaction of the deletion: what is left to do is the proof.
update erasures set state = 'pending'
where workspace = :workspace and id = :id and state = 'running'

-- keep_places --
update erasures set pending = :pending, unreached = :unreached
where workspace = :workspace and id = :id and state = 'running'

-- complete --
update erasures
set state = 'completed', number = :number, completed_at = :now, pending = '[]',
  unreached = :unreached, receipt = :receipt, link = :link, mac = :mac
where workspace = :workspace and id = :id and state <> 'completed'

-- has_unfinished --
select 1 as found from erasures where state <> 'completed' limit 1

-- unfinished --
select workspace, id from erasures where state <> 'completed' order by workspace, at, id

-- names_in_workspace --
-- Users who have anything here.
select user_id as name from ltm_collections where workspace = :workspace
union
select user_id from ltm_secrets where workspace = :workspace
union
select user_id from threads where workspace = :workspace and user_id is not null
union
select user_id from subjects where workspace = :workspace
union
select owner from consolidations where workspace = :workspace and owner_kind = 'user'
union
select owner from consolidation_policies where workspace = :workspace and owner_kind = 'user'

-- agents_in_workspace --
select agent as name from durable_agents where workspace = :workspace and agent <> ''
union
select agent from durable_entries where workspace = :workspace and agent <> ''
union
select agent from thread_turns where workspace = :workspace and agent is not null
union
select agent from runs where workspace = :workspace and agent is not null
union
select owner from consolidations where workspace = :workspace and owner_kind = 'agent'
union
select owner from consolidation_policies where workspace = :workspace and owner_kind = 'agent'

-- put_backup --
insert into backups (workspace, at, seq, rows, name) values ('', :at, :seq, :rows, :name)
on conflict (workspace, at, name) do nothing

-- backups_with --
-- Backups made since the first thing of the subject was recorded, and before its erasure.
select count(*) as backups from backups where seq >= :since and seq < :until

-- link --
insert into subjects (workspace, user_id, kind, object_id, at)
values (:workspace, :user, :kind, :id, :now)
on conflict (workspace, user_id, kind, object_id) do nothing

-- get_link --
select user_id as "user", kind, object_id as id, at from subjects
where workspace = :workspace and user_id = :user and kind = :kind and object_id = :id

-- list_links --
select user_id as "user", kind, object_id as id, at from subjects
where workspace = :workspace and (:user = '' or user_id = :user)
  and (user_id, kind, object_id) > (:after_user, :after_kind, :after_id)
order by user_id, kind, object_id
limit :rows

-- links_of --
select kind, object_id as id,
  exists (
    select 1 from subjects o
    where o.workspace = s.workspace and o.kind = s.kind and o.object_id = s.object_id
      and o.user_id <> s.user_id
  ) as shared
from subjects s
where workspace = :workspace and user_id = :user

-- shared_links --
-- Objects of the user that are of others too; of threads only turns are the user's.
select count(*) as shared from subjects s
where workspace = :workspace and user_id = :user and kind <> 'thread' and exists (
  select 1 from subjects o
  where o.workspace = s.workspace and o.kind = s.kind and o.object_id = s.object_id
    and o.user_id <> s.user_id)

-- has_object --
-- Whether the workspace has the object of a link.
select 1 as found from threads where :kind = 'thread' and workspace = :workspace and id = :id
union all
select 1 from runs
where :kind in ('run', 'network_run') and workspace = :workspace and id = :id
union all
select 1 from durable_entries
where :kind = 'durable_entry' and workspace = :workspace and id = :id
union all
select 1 from stores where :kind = 'store' and workspace = :workspace and id = :id
union all
select 1 from versions where :kind = 'memory' and workspace = :workspace and memory_id = :id
union all
select 1 from versions where :kind = 'version' and workspace = :workspace and id = :id
union all
select 1 from consolidations where :kind = 'consolidation' and workspace = :workspace and id = :id

-- hold_thread (sqlite) --
select 1 as held

-- hold_thread (postgres) --
select 1 as held from threads where workspace = :workspace and id = :id for update

-- threads_with_others --
-- Threads of the user that are linked to others, or are of others and linked to the user.
select t.id, t.user_id as owner
from threads t
where t.workspace = :workspace and (
  t.user_id = :user and exists (
    select 1 from subjects o
    where o.workspace = t.workspace and o.kind = 'thread' and o.object_id = t.id
      and o.user_id <> :user)
  or exists (
    select 1 from subjects s
    where s.workspace = t.workspace and s.user_id = :user and s.kind = 'thread'
      and s.object_id = t.id and (t.user_id <> :user or t.user_id is null and exists (
        select 1 from subjects o
        where o.workspace = t.workspace and o.kind = 'thread' and o.object_id = t.id
          and o.user_id <> :user))))
order by t.id

-- scrub_turns --
-- Turns of the user's runs; with :owned also those of runs that are not linked to others.
delete from thread_turns
where workspace = :workspace and thread_id = :id and (
  run_id in (
    select object_id from subjects
    where workspace = :workspace and user_id = :user and kind in ('run', 'network_run'))
  or :owned = 1 and (run_id is null or run_id not in (
    select object_id from subjects
    where workspace = :workspace and user_id <> :user and kind in ('run', 'network_run'))))

-- count_turns --
update threads
set turns = (
    select count(*) from thread_turns t
    where t.workspace = :workspace and t.thread_id = threads.id),
  user_id = case when user_id = :user then null else user_id end
where workspace = :workspace and id = :id

-- own_thread --
update threads set user_id = :user where workspace = :workspace and id = :id and user_id is null

-- drop_run_entries --
delete from run_entries where workspace = :workspace and run_id = :id

-- drop_run_events --
delete from run_events where workspace = :workspace and run_id = :id

-- drop_run --
delete from runs where workspace = :workspace and id = :id

-- drop_links --
delete from subjects where workspace = :workspace and user_id = :user

-- consolidations_of --
select id from consolidations
where workspace = :workspace and owner_kind = :kind and owner = :owner

-- drop_consolidation_policies --
delete from consolidation_policies
where workspace = :workspace and owner_kind = :kind and owner = :owner

-- drop_consolidation_calls --
delete from consolidation_calls where workspace = :workspace and job = :id

-- drop_consolidation_changes --
delete from consolidation_changes where workspace = :workspace and job = :id

-- drop_consolidation --
delete from consolidations where workspace = :workspace and id = :id

-- logged_links (sqlite) --
-- Keys of which the log has a linked entry, also where that is no longer there.
select distinct c.agent, c.run_id, c.key, s.object_id as id
from durable_changes c join subjects s on s.workspace = c.workspace
  and s.kind = 'durable_entry' and s.object_id = json_extract(c.entry, '$[0]')
where c.workspace = :workspace and s.user_id = :user and c.key is not null

-- logged_links (postgres) --
select distinct c.agent, c.run_id, c.key, s.object_id as id
from durable_changes c join subjects s on s.workspace = c.workspace
  and s.kind = 'durable_entry' and s.object_id = cast(c.entry as jsonb) ->> 0
where c.workspace = :workspace and s.user_id = :user and c.key is not null

-- entry_at --
select id from durable_entries
where workspace = :workspace and agent = :owner and run_id = '' and key = :key

-- changes_before (sqlite) --
-- Contents that the log has of a key from before the entry :id was there, the newest first: the
-- oldest one names its entry, by which it is found again after a crash.
select seq from durable_changes
where workspace = :workspace and agent = :owner and key = :key and content is not null
  and seq < (
    select min(c.seq) from durable_changes c
    where c.workspace = :workspace and c.agent = :owner and c.key = :key
      and json_extract(c.entry, '$[0]') = :id)
order by seq desc

-- changes_before (postgres) --
select seq from durable_changes
where workspace = :workspace and agent = :owner and key = :key and content is not null
  and seq < (
    select min(c.seq) from durable_changes c
    where c.workspace = :workspace and c.agent = :owner and c.key = :key
      and cast(c.entry as jsonb) ->> 0 = :id)
order by seq desc

-- entry_of_link --
select agent, run_id, key from durable_entries where workspace = :workspace and id = :id

-- stores_of (sqlite) --
select id from stores
where workspace = :workspace and json_extract(metadata, '$."holdfast.user"') = :user

-- stores_of (postgres) --
select id from stores
where workspace = :workspace and cast(metadata as jsonb) ->> 'holdfast.user' = :user

-- stores_of_versions --
-- Stores of others with memories or versions of the user.
select v.store_id from subjects s join versions v on v.workspace = s.workspace and v.id = s.object_id
where s.workspace = :workspace and s.user_id = :user and s.kind = 'version'
union
select v.store_id from subjects s join versions v
  on v.workspace = s.workspace and v.memory_id = s.object_id
where s.workspace = :workspace and s.user_id = :user and s.kind = 'memory'

-- users_of_stores (sqlite) --
select distinct json_extract(metadata, '$."holdfast.user"') as name from stores
where workspace = :workspace and json_extract(metadata, '$."holdfast.user"') is not null

-- users_of_stores (postgres) --
select distinct cast(metadata as jsonb) ->> 'holdfast.user' as name from stores
where workspace = :workspace and cast(metadata as jsonb) ->> 'holdfast.user' is not null

-- versions_of_memory --
select v.id, v.store_id, v.memory_id, v.operation, v.redacted_at, v.held, m.id as live
from versions v left join memories m on m.version_id = v.id
where v.workspace = :workspace and v.memory_id = :id
order by v.number

-- version_of_link --
select v.id, v.store_id, v.memory_id, v.operation, v.redacted_at, v.held, m.id as live
from versions v left join memories m on m.version_id = v.id
where v.workspace = :workspace and v.id = :id

-- held_files --
-- Memories that are held since a moment or earlier, also where a held text was moved since.
select m.workspace, m.store_id as store, m.id as memory
from memories m
where m.held is not null and (:workspace = '*' or m.workspace = :workspace) and (
  select min(v.created_at) from versions v
  where v.memory_id = m.id and v.held is not null and not exists (
    select 1 from versions later
    where later.memory_id = m.id and later.held is null and later.number > v.number)) < :before
order by m.workspace, m.id

-- held_collections --
select workspace, user_id as "user", namespace, workspace_id
from ltm_collections
where held > 0 and (:workspace = '*' or workspace = :workspace)
order by workspace, number

-- vectors_of --
select number, id, vector_provider as provider from ltm_collections
where workspace = :workspace and user_id = :user

-- since_user --
-- The number of the first thing that was recorded of the user, or 0 where none is known.
select min(seq) as seq from (
  select min(number) as seq from ltm_collections
  where workspace = :workspace and user_id = :user
  union all
  select min(t.seq) from threads h join thread_turns t
    on t.workspace = h.workspace and t.thread_id = h.id
  where h.workspace = :workspace and h.user_id = :user
  union all
  select 0 from subjects where workspace = :workspace and user_id = :user
) firsts

-- since_agent --
select min(seq) as seq from (
  select min(seq) as seq from durable_entries
  where workspace = :workspace and agent = :agent_name
  union all
  select min(seq) from durable_changes where workspace = :workspace and agent = :agent_name
  union all
  select min(seq) from thread_turns where workspace = :workspace and agent = :agent_name
) firsts

-- keys_of --
select count(*) as keys from api_keys
where workspace = :workspace and (:user <> '' and bound_user = :user or :agent_name <> '' and
  bound_agent = :agent_name)

-- texts_of_user (sqlite) --
-- Texts of a user, which are sought in the files after they were deleted.
select text from ltm_items i join ltm_collections c on c.number = i.collection
where c.workspace = :workspace and c.user_id = :user and length(text) >= :least
union all
select text from ltm_turns t join ltm_collections c on c.number = t.collection
where c.workspace = :workspace and c.user_id = :user and length(text) >= :least
union all
select body from thread_turns b join threads h on h.workspace = b.workspace and h.id = b.thread_id
where h.workspace = :workspace and h.user_id = :user and length(body) >= :least
union all
select e.content from durable_entries e join subjects s on s.workspace = e.workspace
  and s.kind = 'durable_entry' and s.object_id = e.id
where s.workspace = :workspace and s.user_id = :user and length(e.content) >= :least
union all
select c.content from durable_changes c join subjects s on s.workspace = c.workspace
  and s.kind = 'durable_entry' and s.object_id = json_extract(c.entry, '$[0]')
where s.workspace = :workspace and s.user_id = :user and length(c.content) >= :least
union all
select cast(v.content as text) from versions v join subjects s on s.workspace = v.workspace
  and s.kind = 'version' and s.object_id = v.id
where s.workspace = :workspace and s.user_id = :user and length(v.content) >= :least
union all
select e.value from run_entries e join subjects s on s.workspace = e.workspace
  and s.kind in ('run', 'network_run') and s.object_id = e.run_id
where s.workspace = :workspace and s.user_id = :user and length(e.value) >= :least
limit :most

-- texts_of_user (postgres) --
-- Its files are the server's, in which nothing is sought.
select text from ltm_items i join ltm_collections c on c.number = i.collection
where c.workspace = :workspace and c.user_id = :user and length(text) >= :least
union all
select text from ltm_turns t join ltm_collections c on c.number = t.collection
where c.workspace = :workspace and c.user_id = :user and length(text) >= :least
union all
select body from thread_turns b join threads h on h.workspace = b.workspace and h.id = b.thread_id
where h.workspace = :workspace and h.user_id = :user and length(body) >= :least
limit :most

-- texts_of_agent --
select content as text from durable_entries
where workspace = :workspace and agent = :agent_name and length(content) >= :least
union all
select content from durable_changes
where workspace = :workspace and agent = :agent_name and length(content) >= :least
union all
select body from thread_turns
where workspace = :workspace and agent = :agent_name and length(body) >= :least
limit :most

-- still_said (sqlite) --
-- Whether another object has the text, which is so allowed to be in the files.
select 1 as found where exists (select 1 from ltm_items where instr(text, :text) > 0)
  or exists (select 1 from ltm_turns where instr(text, :text) > 0)
  or exists (select 1 from thread_turns where instr(body, :text) > 0)
  or exists (select 1 from durable_entries where instr(content, :text) > 0)
  or exists (select 1 from durable_changes where instr(content, :text) > 0)
  or exists (select 1 from versions where instr(content, cast(:text as blob)) > 0)
  or exists (select 1 from run_entries where instr(value, :text) > 0)

-- still_said (postgres) --
select 1 as found where exists (select 1 from ltm_items where strpos(text, :text) > 0)

-- left_of_user --
-- Rows scanned, and rows of the user recorded up to :at. :owned are the numbers and ids of the
-- collections and threads, each between two commas.
select 'ltm_collections' as place, count(*) as scanned, coalesce(sum(
  case when user_id = :user and created_at <= :at then 1 else 0 end), 0) as found
from ltm_collections where workspace = :workspace
union all
select 'ltm_secrets', count(*), coalesce(sum(
  case when user_id = :user and not exists (
    select 1 from ltm_collections c where c.workspace = s.workspace and c.user_id = s.user_id
  ) then 1 else 0 end), 0)
from ltm_secrets s where workspace = :workspace
union all
select 'ltm_items', count(*), coalesce(sum(
  case when :owned like '%,' || cast(collection as text) || ',%' then 1 else 0 end), 0)
from ltm_items where workspace = :workspace
union all
select 'ltm_turns', count(*), coalesce(sum(
  case when :owned like '%,' || cast(collection as text) || ',%' then 1 else 0 end), 0)
from ltm_turns where workspace = :workspace
union all
select 'ltm_links', count(*), coalesce(sum(
  case when :owned like '%,' || cast(collection as text) || ',%' then 1 else 0 end), 0)
from ltm_links where workspace = :workspace
union all
select 'ltm_item_history', count(*), coalesce(sum(
  case when :owned like '%,' || cast(collection as text) || ',%' then 1 else 0 end), 0)
from ltm_item_history where workspace = :workspace
union all
select 'ltm_access', count(*), coalesce(sum(
  case when :owned like '%,' || cast(collection as text) || ',%' then 1 else 0 end), 0)
from ltm_access where workspace = :workspace
union all
select 'ltm_cursors', count(*), coalesce(sum(
  case when :owned like '%,' || cast(collection as text) || ',%' then 1 else 0 end), 0)
from ltm_cursors where workspace = :workspace
union all
select 'ltm_tombstones', count(*), coalesce(sum(
  case when :owned like '%,' || cast(collection as text) || ',%' then 1 else 0 end), 0)
from ltm_tombstones where workspace = :workspace
union all
select 'ltm_jobs', count(*), coalesce(sum(
  case when :owned like '%,' || cast(collection as text) || ',%' then 1 else 0 end), 0)
from ltm_jobs where workspace = :workspace
union all
select 'ltm_vectors', count(*), coalesce(sum(
  case when :owned like '%,' || collection || ',%' then 1 else 0 end), 0)
from ltm_vectors where workspace = :workspace
union all
select 'ltm_vector_sets', count(*), coalesce(sum(
  case when :owned like '%,' || collection || ',%' then 1 else 0 end), 0)
from ltm_vector_sets where workspace = :workspace
union all
select 'threads', count(*), coalesce(sum(
  case when user_id = :user and created_at <= :at then 1 else 0 end), 0)
from threads where workspace = :workspace
union all
select 'subjects', count(*), coalesce(sum(
  case when user_id = :user and at <= :at then 1 else 0 end), 0)
from subjects where workspace = :workspace
union all
select 'consolidations', count(*), coalesce(sum(
  case when owner_kind = 'user' and owner = :user and created_at <= :at then 1 else 0 end), 0)
from consolidations where workspace = :workspace
union all
select 'consolidation_policies', count(*), coalesce(sum(
  case when owner_kind = 'user' and owner = :user and created_at <= :at then 1 else 0 end), 0)
from consolidation_policies where workspace = :workspace
union all
select 'changes', count(*), coalesce(sum(
  case when owner = :user and type like 'longterm.%' and at <= :at then 1 else 0 end), 0)
from changes where workspace = :workspace
union all
select 'durable_entries', count(*), coalesce(sum(
  case when :owned like '%,' || id || ',%' then 1 else 0 end), 0)
from durable_entries where workspace = :workspace
union all
select 'runs', count(*), coalesce(sum(
  case when :owned like '%,' || id || ',%' then 1 else 0 end), 0)
from runs where workspace = :workspace
union all
select 'stores', count(*), coalesce(sum(
  case when :owned like '%,' || id || ',%' then 1 else 0 end), 0)
from stores where workspace = :workspace
union all
select 'run_questions', count(*), coalesce(sum(
  case when answered_by = 'user:' || :user and asked_at <= :at then 1 else 0 end), 0)
from run_questions where workspace = :workspace

-- left_of_agent --
select 'durable_entries' as place, count(*) as scanned, coalesce(sum(
  case when agent = :agent_name and created_at <= :at then 1 else 0 end), 0) as found
from durable_entries where workspace = :workspace
union all
select 'durable_changes', count(*), coalesce(sum(
  case when agent = :agent_name and at <= :at then 1 else 0 end), 0)
from durable_changes where workspace = :workspace
union all
select 'durable_agents', count(*), coalesce(sum(
  case when agent = :agent_name and last_write <= :at then 1 else 0 end), 0)
from durable_agents where workspace = :workspace
union all
select 'durable_runs', count(*), coalesce(sum(
  case when agent = :agent_name and began_at <= :at then 1 else 0 end), 0)
from durable_runs where workspace = :workspace
union all
select 'durable_replays', count(*), coalesce(sum(
  case when agent = :agent_name and at <= :at then 1 else 0 end), 0)
from durable_replays where workspace = :workspace
union all
select 'runs', count(*), coalesce(sum(
  case when agent = :agent_name and started_at <= :at then 1 else 0 end), 0)
from runs where workspace = :workspace
union all
select 'thread_turns', count(*), coalesce(sum(
  case when agent = :agent_name and seq <= :seq then 1 else 0 end), 0)
from thread_turns where workspace = :workspace
union all
select 'consolidations', count(*), coalesce(sum(
  case when owner_kind = 'agent' and owner = :agent_name and created_at <= :at then 1 else 0 end), 0)
from consolidations where workspace = :workspace
union all
select 'consolidation_policies', count(*), coalesce(sum(
  case when owner_kind = 'agent' and owner = :agent_name and created_at <= :at then 1 else 0 end), 0)
from consolidation_policies where workspace = :workspace
union all
select 'changes', count(*), coalesce(sum(
  case when owner = :agent_name and type not like 'longterm.%' and at <= :at then 1 else 0 end), 0)
from changes where workspace = :workspace

-- texts_in_stores --
-- As bytes: a content may hold U+0000, which is in no text of PostgreSQL.
select m.id as mark, m.id, v.content as text, m.store_id as place
from memories m join versions v on v.id = m.version_id
where m.workspace = :workspace and m.id > :after and v.created_at <= :at
order by m.id
limit :rows

-- texts_in_entries --
select id as mark, id, content as text, agent as place from durable_entries
where workspace = :workspace and id > :after and updated_at <= :at
order by id
limit :rows

-- texts_in_threads --
select seq as mark, id, body as text, thread_id as place from thread_turns
where workspace = :workspace and seq > :after and seq <= :seq
order by seq
limit :rows

-- runs_to_search --
select id from runs
where workspace = :workspace and id > :after and started_at <= :at
order by id
limit :rows

-- turn_to_redact --
select seq, kind, id, run_id, body from thread_turns where workspace = :workspace and seq = :seq

-- redact_turn --
update thread_turns set body = :body, checksum = :checksum, size_bytes = :size
where workspace = :workspace and seq = :seq

-- run_at_rest (sqlite) --
select 1 as found from runs
where workspace = :workspace and id = :run
  and (status <> 'running' or lease_until is null or lease_until < :now)

-- run_at_rest (postgres) --
select 1 as found from runs
where workspace = :workspace and id = :run
  and (status <> 'running' or lease_until is null or lease_until < :now)
for update

-- run_fields --
select 'input' as field, input as body from runs
where workspace = :workspace and id = :run and input is not null
union all
select 'detail', detail from runs
where workspace = :workspace and id = :run and detail is not null
union all
select 'error', error from runs
where workspace = :workspace and id = :run and error is not null
union all
select 'metadata', metadata from runs
where workspace = :workspace and id = :run and metadata is not null
union all
select 'extras', extras from runs
where workspace = :workspace and id = :run and extras is not null

-- set_run_field --
update runs
set input = case when :field = 'input' then :body else input end,
  detail = case when :field = 'detail' then :body else detail end,
  error = case when :field = 'error' then :body else error end,
  metadata = case when :field = 'metadata' then :body else metadata end,
  extras = case when :field = 'extras' then :body else extras end
where workspace = :workspace and id = :run

-- run_values --
select key, 'value' as field, value as body from run_entries
where workspace = :workspace and run_id = :run
union all
select key, 'told', told from run_entries
where workspace = :workspace and run_id = :run

-- set_run_value (sqlite) --
update run_entries
set told = case when :field = 'told' then :body else told end,
  value = case when :field = 'value' then :body else value end,
  value_bytes = case when :field = 'value' and part_of is null
    then length(cast(:body as blob)) else value_bytes end
where workspace = :workspace and run_id = :run and key = :key

-- set_run_value (postgres) --
update run_entries
set told = case when :field = 'told' then :body else told end,
  value = case when :field = 'value' then :body else value end,
  value_bytes = case when :field = 'value' and part_of is null
    then octet_length(cast(:body as text)) else value_bytes end
where workspace = :workspace and run_id = :run and key = :key

-- run_titles --
select kind, id, 'title' as field, title as body from run_parts
where workspace = :workspace and run_id = :run and title is not null
union all
select kind, id, 'cause', cause from run_parts
where workspace = :workspace and run_id = :run and cause is not null

-- set_run_title --
update run_parts
set title = case when :field = 'title' then :body else title end,
  cause = case when :field = 'cause' then :body else cause end
where workspace = :workspace and run_id = :run and kind = :kind and id = :id

-- run_outcomes --
select key, outcome as body from run_effects where workspace = :workspace and run_id = :run

-- set_run_outcome --
update run_effects set outcome = :body
where workspace = :workspace and run_id = :run and key = :key

-- run_facts --
select kind, key, number, body from run_version_rows
where workspace = :workspace and run_id = :run and body is not null

-- set_run_fact --
update run_version_rows set body = :body
where workspace = :workspace and run_id = :run and kind = :kind and key = :key and number = :number

-- run_messages --
select part, n, body from run_turns where workspace = :workspace and run_id = :run

-- set_run_message --
update run_turns set body = :body
where workspace = :workspace and run_id = :run and part = :part and n = :n

-- run_texts --
select sha256, body from run_texts where workspace = :workspace and run_id = :run

-- set_run_text --
update run_texts set body = :body
where workspace = :workspace and run_id = :run and sha256 = :sha256

-- run_data --
select seq, data as body from run_events where workspace = :workspace and run_id = :run

-- set_run_data --
update run_events set data = :body where workspace = :workspace and run_id = :run and seq = :seq

-- run_asks --
select id, 'text' as field, text as body from run_questions
where workspace = :workspace and run_id = :run
union all
select id, 'options', options from run_questions
where workspace = :workspace and run_id = :run and options is not null
union all
select id, 'arguments', arguments from run_questions
where workspace = :workspace and run_id = :run and arguments is not null
union all
select id, 'default_value', default_value from run_questions
where workspace = :workspace and run_id = :run and default_value is not null
union all
select id, 'answer', answer from run_questions
where workspace = :workspace and run_id = :run and answer is not null
union all
select id, 'note', note from run_questions
where workspace = :workspace and run_id = :run and note is not null

-- set_run_ask --
update run_questions
set text = case when :field = 'text' then :body else text end,
  options = case when :field = 'options' then :body else options end,
  arguments = case when :field = 'arguments' then :body else arguments end,
  default_value = case when :field = 'default_value' then :body else default_value end,
  answer = case when :field = 'answer' then :body else answer end,
  note = case when :field = 'note' then :body else note end
where workspace = :workspace and run_id = :run and id = :id

-- recount_run --
update runs
set bytes = (
  select cast(coalesce(sum(e.value_bytes), 0) as bigint) from run_entries e
  where e.workspace = :workspace and e.run_id = :run)
where workspace = :workspace and id = :run
