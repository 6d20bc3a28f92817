-- Work in the background. `:workspace` and `:user` are the caller's own.

-- standing --
-- By which model a collection is compared, and how far that is.
select number, id, embedding_model, dimension, vector_provider, text_form, version, items, superseded,
    turns, (
        select count(*) from ltm_jobs j
        where j.workspace = c.workspace and j.collection = c.number and j.kind = 'reembed'
    ) as reembedding, (
        select v.seq from ltm_vector_sets v
        where v.workspace = c.workspace and v.collection = c.id
    ) as vectors_seq
from ltm_collections c
where workspace = :workspace and user_id = :user and namespace = :namespace
    and workspace_id = :workspace_id

-- name_model --
update ltm_collections
set embedding_model = :model, vector_provider = :provider, text_form = :form, dimension = null
where workspace = :workspace and number = :collection

-- name_provider --
update ltm_collections set vector_provider = :provider
where workspace = :workspace and number = :collection

-- set_dimension --
update ltm_collections set dimension = :dimension
where workspace = :workspace and number = :collection and dimension is null

-- dimension_of --
select dimension from ltm_collections where workspace = :workspace and number = :collection

-- due_job --
-- Those whose lease ended were left by a crash.
select number, kind, state, about, attempts, failing_since
from ltm_jobs
where workspace = :workspace and collection = :collection and kind in (:kind, :other)
    and ((state = 'queued' and next_at <= :now) or (state = 'running' and leased_until <= :now))
order by number
limit 1

-- next_due --
select min(case when state = 'running' then leased_until else next_at end) as at
from ltm_jobs
where workspace = :workspace and collection = :collection and kind in (:kind, :other)
    and state <> 'failed'

-- claim_job --
update ltm_jobs
set state = 'running', token = :token, leased_until = :until, attempts = :attempts
where workspace = :workspace and number = :number
    and ((state = 'queued' and next_at <= :now) or (state = 'running' and leased_until <= :now))

-- renew_job --
update ltm_jobs set leased_until = :until
where workspace = :workspace and number = :number and token = :token

-- hold_job (sqlite) --
select number from ltm_jobs
where workspace = :workspace and number = :number and token = :token

-- hold_job (postgres) --
select number from ltm_jobs
where workspace = :workspace and number = :number and token = :token
for update

-- end_job --
delete from ltm_jobs where workspace = :workspace and number = :number and token = :token

-- shrink_job --
-- A part of it is done.
update ltm_jobs
set about = :about, attempts = 0, error = null, tried_at = null, failing_since = null
where workspace = :workspace and number = :number and token = :token

-- put_off_job --
update ltm_jobs
set state = :state, attempts = :attempts, next_at = :at, error = :error, token = null,
    leased_until = null, tried_at = :now, failing_since = coalesce(failing_since, :now)
where workspace = :workspace and number = :number and token = :token

-- release_job --
-- It was claimed, and not tried.
update ltm_jobs set state = 'queued', token = null, leased_until = null
where workspace = :workspace and number = :number and token = :token

-- last_failure --
-- Of the jobs to mine a collection.
select error, tried_at
from ltm_jobs
where workspace = :workspace and collection = :collection and kind = 'extract'
    and tried_at is not null
order by tried_at desc
limit 1

-- set_mined --
update ltm_collections set mined_at = :now
where workspace = :workspace and number = :collection

-- set_extractor --
update ltm_collections set extractor = :extractor
where workspace = :workspace and number = :collection

-- count_uncovered --
select count(*) as turns
from ltm_turns
where workspace = :workspace and collection = :collection and covered = 0
    and tier in ('said', 'assistant') and held is null

-- uncovered --
select number, thread_id
from ltm_turns
where workspace = :workspace and collection = :collection and covered = 0
    and tier in ('said', 'assistant') and held is null
    and (:any_thread = 1 or thread_id = :thread_id) and at >= :since

-- cover (sqlite) --
update ltm_turns set covered = :covered
where workspace = :workspace and collection = :collection
    and number in (select n.value from json_each(:numbers) n)

-- cover (postgres) --
update ltm_turns set covered = :covered
where workspace = :workspace and collection = :collection and number = any (array(
    select cast(n as bigint) from jsonb_array_elements_text(cast(:numbers as jsonb)) n
))

-- withdrawable --
-- What queued and failed jobs of a collection are about: all, or those for one model.
select about
from ltm_jobs
where workspace = :workspace and collection = :collection and kind = 'extract'
    and state <> 'running' and (:model = '' or model = :model)

-- withdraw --
delete from ltm_jobs
where workspace = :workspace and collection = :collection and kind = 'extract'
    and state <> 'running' and (:model = '' or model = :model)

-- spent --
select coalesce(sum(tokens), 0) as tokens
from mining_spending
where workspace = :workspace and day = :day

-- spend --
insert into mining_spending (workspace, day, tokens)
values (:workspace, :day, :tokens)
on conflict (workspace, day) do update set tokens = mining_spending.tokens + excluded.tokens

-- drop_spending --
delete from mining_spending where workspace = :workspace and day < :before

-- mining_of_all --
-- The collections that are to be mined, and the last failure of each.
select c.workspace, c.user_id, c.id, c.extractor, c.mined_at,
    count(j.number) as jobs, sum(case when j.state = 'queued' then 1 else 0 end) as queued,
    max(j.model) as model, max(j.tried_at) as tried_at,
    max(case when j.tried_at is not null then j.error end) as error
from ltm_collections c
left join ltm_jobs j on j.workspace = c.workspace and j.collection = c.number and j.kind = 'extract'
where :workspace in (c.workspace, '*')
group by c.number, c.workspace, c.user_id, c.id, c.extractor, c.mined_at
having c.extractor is not null or count(j.number) > 0
order by c.number
limit :most

-- drop_embedding_jobs --
delete from ltm_jobs
where workspace = :workspace and collection = :collection and kind <> 'extract'

-- items_to_embed (sqlite) --
select i.number, i.id, i.text
from json_each(:numbers) n
join ltm_items i on i.collection = :collection and i.number = n.value
where i.workspace = :workspace and i.superseded_at is null and i.held is null

-- items_to_embed (postgres) --
select i.number, i.id, i.text
from jsonb_array_elements_text(cast(:numbers as jsonb)) n
join ltm_items i on i.collection = :collection and i.number = cast(n as bigint)
where i.workspace = :workspace and i.superseded_at is null and i.held is null

-- turns_to_embed (sqlite) --
select t.number, t.id, t.text, t.caption
from json_each(:numbers) n
join ltm_turns t on t.collection = :collection and t.number = n.value
where t.workspace = :workspace and t.held is null

-- turns_to_embed (postgres) --
select t.number, t.id, t.text, t.caption
from jsonb_array_elements_text(cast(:numbers as jsonb)) n
join ltm_turns t on t.collection = :collection and t.number = cast(n as bigint)
where t.workspace = :workspace and t.held is null

-- live_items --
select number, id from ltm_items
where workspace = :workspace and collection = :collection and superseded_at is null
    and held is null
order by number

-- all_turns --
select number, id from ltm_turns
where workspace = :workspace and collection = :collection and held is null
order by number

-- left_over --
-- Collections with jobs whose lease ended, or that were due for as long as :grace, so that nobody
-- seems to see to them, and with which models those can be done. :any is 1 where the process has
-- an extractor for all of them.
select c.workspace, c.user_id, c.namespace, c.workspace_id, c.vector_provider, c.extractor,
    max(case when j.kind = 'extract' then j.model end) as miner,
    max(case when j.kind <> 'extract' then c.embedding_model end) as embedder
from ltm_jobs j
join ltm_collections c on c.workspace = j.workspace and c.number = j.collection
where j.state <> 'failed'
    and case when j.state = 'running' then j.leased_until else j.next_at + :grace end <= :now
    and case
        when j.kind <> 'extract' then c.embedding_model is not null
        else j.model is not null or c.extractor is not null or :any = 1
    end
group by c.number, c.workspace, c.user_id, c.namespace, c.workspace_id, c.vector_provider,
    c.extractor
order by min(j.number)
limit :most
