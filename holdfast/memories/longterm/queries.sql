-- What users told. `:workspace` and `:user` are the caller's own; `:collection` is the number of one
-- of the user's collections, and `:numbers` a JSON array of the numbers of its rows.

-- find_collection --
select number, id, version, redone, marks, items, superseded, turns, analyzer, indexed, mean_rows,
    mean_length, mean_window, embedding_model, vector_provider, extractor, mined_at, held
from ltm_collections
where workspace = :workspace and user_id = :user and namespace = :namespace
    and workspace_id = :workspace_id

-- lock_collection (sqlite) --
-- Whoever writes here is alone.
select c.number, c.id, c.version, c.redone, c.marks, c.items, c.superseded, c.turns, c.analyzer,
    c.indexed, c.mean_rows, c.mean_length, c.mean_window, c.embedding_model, c.vector_provider,
    c.extractor, c.mined_at, c.held, h.secret, exists (
        select 1 from ltm_tombstones t where t.workspace = c.workspace and t.collection = c.number
    ) as buried
from ltm_collections c
left join ltm_secrets h on h.workspace = c.workspace and h.user_id = c.user_id
where c.workspace = :workspace and c.user_id = :user and c.namespace = :namespace
    and c.workspace_id = :workspace_id

-- lock_collection (postgres) --
select c.number, c.id, c.version, c.redone, c.marks, c.items, c.superseded, c.turns, c.analyzer,
    c.indexed, c.mean_rows, c.mean_length, c.mean_window, c.embedding_model, c.vector_provider,
    c.extractor, c.mined_at, c.held, h.secret, exists (
        select 1 from ltm_tombstones t where t.workspace = c.workspace and t.collection = c.number
    ) as buried
from ltm_collections c
left join ltm_secrets h on h.workspace = c.workspace and h.user_id = c.user_id
where c.workspace = :workspace and c.user_id = :user and c.namespace = :namespace
    and c.workspace_id = :workspace_id
for update of c

-- make_collection --
insert into ltm_collections (number, id, workspace, user_id, namespace, workspace_id, version,
    redone, marks, items, superseded, turns, analyzer, indexed, created_at)
values (:number, :id, :workspace, :user, :namespace, :workspace_id, 0, 0, 0, 0, 0, 0, :analyzer, 0,
    :now)
on conflict (workspace, user_id, namespace, workspace_id) do nothing

-- change_collection --
update ltm_collections
set version = version + 1, redone = case when :redone = 1 then version + 1 else redone end,
    items = items + :items, superseded = superseded + :superseded, turns = turns + :turns,
    held = held + :held
where workspace = :workspace and number = :collection

-- make_secret --
insert into ltm_secrets (workspace, user_id, secret)
values (:workspace, :user, :secret)
on conflict (workspace, user_id) do nothing

-- get_secret --
select secret from ltm_secrets where workspace = :workspace and user_id = :user

-- drop_secret --
delete from ltm_secrets where workspace = :workspace and user_id = :user

-- put_item --
insert into ltm_items (collection, number, id, workspace, kind, importance, origin, source,
    created_at, updated_at, superseded_by, superseded_at, tier, held, held_at, said_by,
    origin_ref, valid_from, valid_to, flags, terms, fold, body, text)
values (:collection, :number, :id, :workspace, :kind, :importance, :origin, :source,
    :created_at, :updated_at, :superseded_by, :superseded_at, :tier, :held, :held_at, :said_by,
    :origin_ref, :valid_from, :valid_to, :flags, :terms, :fold, :body, :text)

-- put_turn --
insert into ltm_turns (collection, number, id, workspace, role, speaker, at, thread_id, session,
    created_at, tier, held, held_at, said_by, origin_ref, flags, covered, terms, fingerprint, caption,
    body, text)
values (:collection, :number, :id, :workspace, :role, :speaker, :at, :thread_id, :session,
    :created_at, :tier, :held, :held_at, :said_by, :origin_ref, :flags, :covered, :terms,
    :fingerprint, :caption, :body, :text)

-- put_link --
insert into ltm_links (workspace, collection, item, turn, at)
values (:workspace, :collection, :item, :turn, :now)
on conflict (collection, item, turn) do nothing

-- put_first_state --
-- The state of an item before its first change. Unchanged items have no history: a row costs a
-- statement for each that is remembered, and says what the item says.
insert into ltm_item_history (workspace, collection, item, seq, at, actor, op, text, kind,
    importance, tier, valid_from, valid_to)
select workspace, collection, number, number, created_at, '', 'create', text, kind, importance,
    tier, valid_from, valid_to
from ltm_items
where workspace = :workspace and collection = :collection and number = :number
on conflict (collection, item, seq) do nothing

-- put_state --
insert into ltm_item_history (workspace, collection, item, seq, at, actor, op, text, kind,
    importance, tier, valid_from, valid_to)
select workspace, collection, number, :seq, :now, :actor, :op, text, kind, importance, tier,
    valid_from, valid_to
from ltm_items
where workspace = :workspace and collection = :collection and number = :number

-- drop_states --
delete from ltm_item_history
where workspace = :workspace and collection = :collection and item = :number

-- clear_item_history --
delete from ltm_item_history where workspace = :workspace and collection = :collection

-- turns_at --
-- Turns recorded by then, as recall sees them; access since does not count.
select t.id, t.number, t.body, t.at, t.role, t.speaker, t.thread_id, t.session, t.flags,
    cast(null as bigint) as last_accessed_at, t.tier
from ltm_turns t
where t.workspace = :workspace and t.collection = :collection and t.created_at <= :at
    and t.held is null
order by t.number

-- states_at --
-- Items as they were then: recorded, not superseded, and not waiting for a person.
select i.number, i.id, i.created_at, coalesce(h.at, i.updated_at) as updated_at,
    coalesce(h.text, i.text) as text, coalesce(h.kind, i.kind) as kind,
    coalesce(h.importance, i.importance) as importance, coalesce(h.tier, i.tier) as tier,
    coalesce(h.valid_from, i.valid_from) as valid_from,
    case when h.seq is null then i.valid_to else h.valid_to end as valid_to,
    case when h.text is null or h.text = i.text then 0 else 1 end as changed
from ltm_items i
left join ltm_item_history h on h.collection = i.collection and h.item = i.number and h.seq = (
        select max(x.seq) from ltm_item_history x
        where x.collection = i.collection and x.item = i.number and x.at <= :at
    )
where i.workspace = :workspace and i.collection = :collection and i.created_at <= :at
    and (i.held is null or i.held_at > :at)
    and not exists (
        select 1 from ltm_item_history a
        where a.collection = i.collection and a.item = i.number and a.op = 'accept' and a.at > :at
    )
    and case when h.op is null then i.superseded_at is null or i.superseded_at > :at
        else h.op <> 'supersede' end
order by i.number

-- links_at --
-- What items came from by then, oldest first.
select l.item, t.id, t.at, t.thread_id, t.session, t.speaker
from ltm_links l
join ltm_turns t on t.collection = l.collection and t.number = l.turn
where l.workspace = :workspace and l.collection = :collection and l.at <= :at
    and t.created_at <= :at
order by l.item, l.turn

-- changes_around --
-- The last change by then, and the first one after it.
select max(case when e.at <= :at then e.at end) as last,
    min(case when e.at > :at then e.at end) as next
from (
    select created_at as at from ltm_turns
    where workspace = :workspace and collection = :collection
    union all
    select created_at from ltm_items
    where workspace = :workspace and collection = :collection
    union all
    select superseded_at from ltm_items
    where workspace = :workspace and collection = :collection
    union all
    select held_at from ltm_items
    where workspace = :workspace and collection = :collection
    union all
    select at from ltm_links
    where workspace = :workspace and collection = :collection
    union all
    select at from ltm_item_history
    where workspace = :workspace and collection = :collection
) e

-- erased_since --
-- Rows that were recorded by then and forgotten after.
select count(*) as rows from ltm_tombstones
where workspace = :workspace and collection = :collection and at > :at
    and id >= :first and id < :last

-- alike (sqlite) --
-- Live items of about so many terms that hold one of some and one of others, and those whose texts
-- are the same but for case and marks.
select number, id, fold, body, text
from ltm_items
where workspace = :workspace and collection = :collection and superseded_at is null
    and held is null and terms between :least and :most
    and (instr(body, :first) or instr(body, :second) or instr(body, :third) or instr(body, :fourth))
    and (instr(body, :fifth) or instr(body, :sixth) or instr(body, :seventh) or instr(body, :eighth))
union all
select number, id, fold, body, text
from ltm_items
where workspace = :workspace and collection = :collection and superseded_at is null
    and held is null and fold = :fold

-- alike (postgres) --
select number, id, fold, body, text
from ltm_items
where workspace = :workspace and collection = :collection and superseded_at is null
    and held is null and terms between :least and :most
    and (strpos(body, cast(:first as text)) > 0 or strpos(body, cast(:second as text)) > 0
        or strpos(body, cast(:third as text)) > 0 or strpos(body, cast(:fourth as text)) > 0)
    and (strpos(body, cast(:fifth as text)) > 0 or strpos(body, cast(:sixth as text)) > 0
        or strpos(body, cast(:seventh as text)) > 0 or strpos(body, cast(:eighth as text)) > 0)
union all
select number, id, fold, body, text
from ltm_items
where workspace = :workspace and collection = :collection and superseded_at is null
    and held is null and fold = :fold

-- held_alike --
-- A row that waits for a person and says the same.
select number
from ltm_items
where workspace = :workspace and collection = :collection and superseded_at is null
    and held is not null and fold = :fold
order by number
limit 1

-- recent_items --
-- Of one source or writer, not the user's own, since a moment.
select count(*) as items
from ltm_items
where workspace = :workspace and collection = :collection and created_at > :since
    and tier not in ('said', 'confirmed') and source = :source and said_by = :said_by

-- canary_seen --
select exists (
        select 1 from ltm_turns
        where workspace = :workspace and collection = :collection and held = 'canary'
            and thread_id = :thread_id
    ) or exists (
        select 1 from ltm_items
        where workspace = :workspace and collection = :collection and held = 'canary'
            and source = :source and source <> ''
    ) as seen

-- held_items_over --
-- The oldest beyond a number, and those that waited too long.
select number, id, body, superseded_at, held
from ltm_items
where workspace = :workspace and collection = :collection and held is not null
    and (held_at < :before or number in (
        select o.number from ltm_items o
        where o.workspace = :workspace and o.collection = :collection and o.held is not null
        order by o.number desc
        limit 1000000 offset :most
    ))
order by number
limit 500

-- held_turns_over --
select number, id, body, fingerprint, held
from ltm_turns
where workspace = :workspace and collection = :collection and held is not null
    and held_at < :before
order by number
limit 500

-- accept_item --
update ltm_items set held = null, held_at = null, tier = 'confirmed', updated_at = :now
where workspace = :workspace and collection = :collection and number = :number

-- accept_turn --
update ltm_turns set held = null, held_at = null
where workspace = :workspace and collection = :collection and number = :number

-- held_turn --
select number, text, caption, held
from ltm_turns
where workspace = :workspace and collection = :collection and number = :number

-- raise_tier --
update ltm_items set tier = :tier
where workspace = :workspace and collection = :collection and number = :number

-- refresh_item --
update ltm_items
set importance = case when importance < :importance then :importance else importance end,
    updated_at = :now
where workspace = :workspace and collection = :collection and number = :number

-- change_item --
update ltm_items
set kind = :kind, importance = :importance, updated_at = :now, flags = :flags, terms = :terms,
    fold = :fold, body = :body, text = :text, valid_from = :valid_from, valid_to = :valid_to
where workspace = :workspace and collection = :collection and number = :number

-- supersede_item --
update ltm_items
set superseded_by = :by, superseded_at = :now
where workspace = :workspace and collection = :collection and id = :id and superseded_at is null

-- mark_access (sqlite) --
-- Of a row that is there; what was forgotten meanwhile is not brought back.
insert into ltm_access (workspace, collection, number, last_accessed_at, access_count)
select r.workspace, r.collection, r.number, :at, :times
from (
    select workspace, collection, number from ltm_items
    where workspace = :workspace and collection = :collection and number = :number
    union all
    select workspace, collection, number from ltm_turns
    where workspace = :workspace and collection = :collection and number = :number
) r
where true
on conflict (collection, number) do update
set last_accessed_at = max(ltm_access.last_accessed_at, excluded.last_accessed_at),
    access_count = ltm_access.access_count + excluded.access_count

-- mark_access (postgres) --
insert into ltm_access (workspace, collection, number, last_accessed_at, access_count)
select r.workspace, r.collection, r.number, cast(:at as bigint), cast(:times as bigint)
from (
    select workspace, collection, number from ltm_items
    where workspace = :workspace and collection = :collection and number = :number
    union all
    select workspace, collection, number from ltm_turns
    where workspace = :workspace and collection = :collection and number = :number
) r
on conflict (collection, number) do update
set last_accessed_at = greatest(ltm_access.last_accessed_at, excluded.last_accessed_at),
    access_count = ltm_access.access_count + excluded.access_count

-- hold_collection (sqlite) --
select number from ltm_collections where workspace = :workspace and number = :collection

-- hold_collection (postgres) --
select number from ltm_collections where workspace = :workspace and number = :collection
for update

-- count_marks --
update ltm_collections set marks = marks + 1
where workspace = :workspace and number = :collection

-- put_access --
insert into ltm_access (workspace, collection, number, last_accessed_at, access_count)
values (:workspace, :collection, :number, :last_accessed_at, :access_count)

-- item_number --
select number from ltm_items
where workspace = :workspace and collection = :collection and id = :id

-- turn_number --
select number from ltm_turns
where workspace = :workspace and collection = :collection and id = :id

-- turns_by_id (sqlite) --
select t.number, t.id, t.at
from json_each(:ids) j cross join ltm_turns t
where t.workspace = :workspace and t.collection = :collection and t.id = j.value

-- turns_by_id (postgres) --
select number, id, at
from ltm_turns
where workspace = :workspace and collection = :collection
    and id = any (array(select jsonb_array_elements_text(cast(:ids as jsonb))))

-- numbers_by_id (sqlite) --
select t.number
from json_each(:ids) j cross join ltm_turns t
where t.workspace = :workspace and t.collection = :collection and t.id = j.value
    and t.held is null
union all
select i.number
from json_each(:ids) j cross join ltm_items i
where i.workspace = :workspace and i.collection = :collection and i.id = j.value
    and i.superseded_at is null and i.held is null

-- numbers_by_id (postgres) --
select number
from ltm_turns
where workspace = :workspace and collection = :collection and held is null
    and id = any (array(select jsonb_array_elements_text(cast(:ids as jsonb))))
union all
select number
from ltm_items
where workspace = :workspace and collection = :collection and superseded_at is null
    and held is null
    and id = any (array(select jsonb_array_elements_text(cast(:ids as jsonb))))

-- ids_there (sqlite) --
select j.value as id
from json_each(:ids) j
where exists (
        select 1 from ltm_turns t
        where t.workspace = :workspace and t.collection = :collection and t.id = j.value
    ) or exists (
        select 1 from ltm_items i
        where i.workspace = :workspace and i.collection = :collection and i.id = j.value
    )

-- ids_there (postgres) --
select j.id
from jsonb_array_elements_text(cast(:ids as jsonb)) j (id)
where exists (
        select 1 from ltm_turns t
        where t.workspace = :workspace and t.collection = :collection and t.id = j.id
    ) or exists (
        select 1 from ltm_items i
        where i.workspace = :workspace and i.collection = :collection and i.id = j.id
    )

-- items_numbered (sqlite) --
select i.number, i.id, i.text, i.kind, i.importance, i.origin, i.source, (
        select json_group_array(t.id order by t.number)
        from ltm_links l
        join ltm_turns t on t.collection = l.collection and t.number = l.turn
        where l.collection = i.collection and l.item = i.number
    ) as turns, (
        select json_group_array(s.id order by s.number)
        from ltm_items s
        where s.collection = i.collection and s.superseded_by = i.id
    ) as supersedes,
    i.superseded_by, i.superseded_at, i.created_at, i.updated_at, i.tier, i.flags, i.held,
    i.said_by, i.origin_ref, i.valid_from, i.valid_to, a.last_accessed_at,
    coalesce(a.access_count, 0) as access_count
from json_each(:numbers) j
cross join ltm_items i
left join ltm_access a on a.collection = i.collection and a.number = i.number
where i.workspace = :workspace and i.collection = :collection and i.number = j.value

-- items_numbered (postgres) --
select i.number, i.id, i.text, i.kind, i.importance, i.origin, i.source, (
        select cast(coalesce(json_agg(t.id order by t.number), '[]') as text)
        from ltm_links l
        join ltm_turns t on t.collection = l.collection and t.number = l.turn
        where l.collection = i.collection and l.item = i.number
    ) as turns, (
        select cast(coalesce(json_agg(s.id order by s.number), '[]') as text)
        from ltm_items s
        where s.collection = i.collection and s.superseded_by = i.id
    ) as supersedes,
    i.superseded_by, i.superseded_at, i.created_at, i.updated_at, i.tier, i.flags, i.held,
    i.said_by, i.origin_ref, i.valid_from, i.valid_to, a.last_accessed_at,
    coalesce(a.access_count, 0) as access_count
from ltm_items i
left join ltm_access a on a.collection = i.collection and a.number = i.number
where i.workspace = :workspace and i.collection = :collection
    and i.number = any (array(
        select cast(jsonb_array_elements_text(cast(:numbers as jsonb)) as bigint)))

-- turns_numbered (sqlite) --
select t.number, t.id, t.role, t.text, t.speaker, t.at, t.session, t.thread_id, t.caption,
    t.created_at, t.tier, t.flags, t.held, t.said_by, t.origin_ref, (
        select json_group_array(i.id order by i.number)
        from ltm_links l
        join ltm_items i on i.collection = l.collection and i.number = l.item
        where l.collection = t.collection and l.turn = t.number
    ) as items
from json_each(:numbers) j
cross join ltm_turns t
where t.workspace = :workspace and t.collection = :collection and t.number = j.value

-- turns_numbered (postgres) --
select t.number, t.id, t.role, t.text, t.speaker, t.at, t.session, t.thread_id, t.caption,
    t.created_at, t.tier, t.flags, t.held, t.said_by, t.origin_ref, (
        select cast(coalesce(json_agg(i.id order by i.number), '[]') as text)
        from ltm_links l
        join ltm_items i on i.collection = l.collection and i.number = l.item
        where l.collection = t.collection and l.turn = t.number
    ) as items
from ltm_turns t
where t.workspace = :workspace and t.collection = :collection
    and t.number = any (array(
        select cast(jsonb_array_elements_text(cast(:numbers as jsonb)) as bigint)))

-- recalled (sqlite) --
-- The collection as it stands, its marks and version last, then the items, then the turns.
with c as (
    select number, id, version, marks
    from ltm_collections
    where workspace = :workspace and user_id = :user and namespace = :namespace
        and workspace_id = :workspace_id
)
select 0 as what, c.number, c.id, '' as text, '' as label, null as importance,
    '' as origin, '' as source, '' as linked, '' as supersedes, null as by,
    null as first_at, null as created_at, null as updated_at, '' as tier, 0 as flags,
    null as held, '' as said_by, '' as origin_ref, null as valid_from, null as valid_to,
    c.marks as last_at, c.version as times
from c
union all
select 1 as what, i.number, i.id, i.text, i.kind, i.importance, i.origin, i.source, (
        select json_group_array(t.id order by t.number)
        from ltm_links l
        join ltm_turns t on t.collection = l.collection and t.number = l.turn
        where l.collection = i.collection and l.item = i.number
    ),
    (
        select json_group_array(s.id order by s.number)
        from ltm_items s
        where s.collection = i.collection and s.superseded_by = i.id
    ), i.superseded_by, i.superseded_at, i.created_at,
    i.updated_at, i.tier, i.flags, i.held, i.said_by, i.origin_ref, i.valid_from, i.valid_to,
    a.last_accessed_at, coalesce(a.access_count, 0)
from c
cross join json_each(:items) j
cross join ltm_items i
left join ltm_access a on a.collection = i.collection and a.number = i.number
where i.workspace = :workspace and i.collection = c.number and i.number = j.value
union all
select 2 as what, t.number, t.id, t.text, t.role, null, t.speaker, t.session,
    (
        select json_group_array(i.id order by i.number)
        from ltm_links l
        join ltm_items i on i.collection = l.collection and i.number = l.item
        where l.collection = t.collection and l.turn = t.number
    ), t.thread_id, t.caption, t.at, t.created_at,
    null, t.tier, t.flags, t.held, t.said_by, t.origin_ref, null, null, null, 0
from c
cross join json_each(:turns) j
cross join ltm_turns t
where t.workspace = :workspace and t.collection = c.number and t.number = j.value

-- recalled (postgres) --
with c as (
    select number, id, version, marks
    from ltm_collections
    where workspace = :workspace and user_id = :user and namespace = :namespace
        and workspace_id = :workspace_id
)
select 0 as what, c.number, c.id, '' as text, '' as label, cast(null as double precision) as importance,
    '' as origin, '' as source, '' as linked, '' as supersedes, cast(null as text) as by,
    cast(null as bigint) as first_at, cast(null as bigint) as created_at, cast(null as bigint) as updated_at,
    '' as tier, 0 as flags, cast(null as text) as held, '' as said_by, '' as origin_ref,
    cast(null as bigint) as valid_from, cast(null as bigint) as valid_to,
    c.marks as last_at, c.version as times
from c
union all
select 1 as what, i.number, i.id, i.text, i.kind, i.importance, i.origin, i.source, (
        select cast(coalesce(json_agg(t.id order by t.number), '[]') as text)
        from ltm_links l
        join ltm_turns t on t.collection = l.collection and t.number = l.turn
        where l.collection = i.collection and l.item = i.number
    ),
    (
        select cast(coalesce(json_agg(s.id order by s.number), '[]') as text)
        from ltm_items s
        where s.collection = i.collection and s.superseded_by = i.id
    ), i.superseded_by, i.superseded_at, i.created_at,
    i.updated_at, i.tier, i.flags, i.held, i.said_by, i.origin_ref, i.valid_from, i.valid_to,
    a.last_accessed_at, coalesce(a.access_count, 0)
from c
join ltm_items i on i.workspace = :workspace and i.collection = c.number
    and i.number = any (array(
        select cast(jsonb_array_elements_text(cast(:items as jsonb)) as bigint)))
left join ltm_access a on a.collection = i.collection and a.number = i.number
union all
select 2 as what, t.number, t.id, t.text, t.role, cast(null as double precision), t.speaker, t.session,
    (
        select cast(coalesce(json_agg(i.id order by i.number), '[]') as text)
        from ltm_links l
        join ltm_items i on i.collection = l.collection and i.number = l.item
        where l.collection = t.collection and l.turn = t.number
    ), t.thread_id, t.caption, t.at, t.created_at,
    cast(null as bigint), t.tier, t.flags, t.held, t.said_by, t.origin_ref,
    cast(null as bigint), cast(null as bigint), cast(null as bigint), 0
from c
join ltm_turns t on t.workspace = :workspace and t.collection = c.number
    and t.number = any (array(
        select cast(jsonb_array_elements_text(cast(:turns as jsonb)) as bigint)))

-- item_numbers --
-- Newest first.
select number from ltm_items
where workspace = :workspace and collection = :collection and number < :before
    and (:superseded = 1 or superseded_at is null)
    and case when held is null then 0 else 1 end = :held
    and (:kinds = '' or :kinds like '%,' || kind || ',%')
order by number desc
limit :rows

-- turn_numbers --
-- Newest first.
select number from ltm_turns
where workspace = :workspace and collection = :collection and number < :before
    and case when held is null then 0 else 1 end = :held
order by number desc
limit :rows

-- item_numbers_after --
select number from ltm_items
where workspace = :workspace and collection = :collection and number > :after
order by number
limit :rows

-- turn_numbers_after --
select number from ltm_turns
where workspace = :workspace and collection = :collection and number > :after
order by number
limit :rows

-- turn_rows --
-- Turns as recall sees them, in order of recording.
select t.id, t.number, t.body, t.at, t.role, t.speaker, t.thread_id, t.session, t.flags,
    a.last_accessed_at, t.tier
from ltm_turns t
left join ltm_access a on a.collection = t.collection and a.number = t.number
where t.workspace = :workspace and t.collection = :collection and t.number > :after
    and t.held is null
order by t.number

-- item_rows --
-- Live items as recall sees them, in order of recording.
select i.id, i.number, i.body, i.created_at, i.kind, i.importance, i.flags, i.text,
    a.last_accessed_at, i.tier, i.valid_to
from ltm_items i
left join ltm_access a on a.collection = i.collection and a.number = i.number
where i.workspace = :workspace and i.collection = :collection and i.number > :after
    and i.superseded_at is null and i.held is null
order by i.number

-- link_rows --
-- What items came from, oldest first.
select l.item, t.id, t.at, t.thread_id, t.session, t.speaker
from ltm_links l
join ltm_turns t on t.collection = l.collection and t.number = l.turn
where l.workspace = :workspace and l.collection = :collection and l.item > :after
order by l.item, l.turn

-- access_rows --
select number, last_accessed_at
from ltm_access
where workspace = :workspace and collection = :collection

-- turns_of_item --
select turn as number from ltm_links
where workspace = :workspace and collection = :collection and item = :item

-- items_of_turns_alone (sqlite) --
-- Items that came from these turns and from no other.
select distinct l.item as number
from json_each(:numbers) j
cross join ltm_links l
where l.workspace = :workspace and l.collection = :collection and l.turn = j.value
    and not exists (
        select 1 from ltm_links o
        where o.collection = l.collection and o.item = l.item
            and o.turn not in (select value from json_each(:numbers))
    )

-- items_of_turns_alone (postgres) --
select distinct l.item as number
from ltm_links l
where l.workspace = :workspace and l.collection = :collection
    and l.turn = any (array(
        select cast(jsonb_array_elements_text(cast(:numbers as jsonb)) as bigint)))
    and not exists (
        select 1 from ltm_links o
        where o.collection = l.collection and o.item = l.item
            and o.turn <> all (array(
                select cast(jsonb_array_elements_text(cast(:numbers as jsonb)) as bigint)))
    )

-- items_to_bury (sqlite) --
select i.number, i.id, i.body, i.superseded_at, i.held
from json_each(:numbers) j
cross join ltm_items i
where i.workspace = :workspace and i.collection = :collection and i.number = j.value
order by i.number

-- items_to_bury (postgres) --
select number, id, body, superseded_at, held
from ltm_items
where workspace = :workspace and collection = :collection
    and number = any (array(
        select cast(jsonb_array_elements_text(cast(:numbers as jsonb)) as bigint)))
order by number

-- turns_to_bury (sqlite) --
select t.number, t.id, t.body, t.fingerprint, t.held
from json_each(:numbers) j
cross join ltm_turns t
where t.workspace = :workspace and t.collection = :collection and t.number = j.value
order by t.number

-- turns_to_bury (postgres) --
select number, id, body, fingerprint, held
from ltm_turns
where workspace = :workspace and collection = :collection
    and number = any (array(
        select cast(jsonb_array_elements_text(cast(:numbers as jsonb)) as bigint)))
order by number

-- drop_item --
delete from ltm_items
where workspace = :workspace and collection = :collection and number = :number

-- drop_turn --
delete from ltm_turns
where workspace = :workspace and collection = :collection and number = :number

-- drop_links_of_item --
delete from ltm_links
where workspace = :workspace and collection = :collection and item = :number

-- drop_links_of_turn --
delete from ltm_links
where workspace = :workspace and collection = :collection and turn = :number

-- drop_access --
delete from ltm_access
where workspace = :workspace and collection = :collection and number = :number

-- drop_vector --
delete from ltm_vectors
where workspace = :workspace and collection = :collection_id and id = :id

-- drop_successor --
-- What a row superseded stays so, and no longer says by what.
update ltm_items set superseded_by = null
where workspace = :workspace and collection = :collection and superseded_by = :id

-- blank_changes --
-- Proposed changes that name a row which is deleted.
update consolidation_changes
set after = '{}', reason = '', state = case when state = 'open' then 'stale' else state end
where workspace = :workspace
    and job in (
        select id from consolidations
        where workspace = :workspace and owner_kind = 'user' and owner = :user
    )
    and (before like :like or evidence like :like or applied like :like)

-- drop_calls --
delete from consolidation_calls
where workspace = :workspace and job in (
        select id from consolidations
        where workspace = :workspace and owner_kind = 'user' and owner = :user
    )

-- clear_changes --
update consolidation_changes
set after = '{}', reason = '', state = case when state = 'open' then 'stale' else state end
where workspace = :workspace and job in (
        select id from consolidations
        where workspace = :workspace and owner_kind = 'user' and owner = :user
    )

-- items_to_evict --
-- Superseded items first, then by retention: two parts of recency, by half-life, and one of
-- importance. Ties, and superseded ones, go by age.
select s.number, s.id, s.body, s.superseded_at, s.held
from (
    select i.number, i.id, i.body, i.superseded_at, i.held, i.importance,
        case when a.last_accessed_at > i.created_at then a.last_accessed_at
            else i.created_at end as seen
    from ltm_items i
    left join ltm_access a on a.collection = i.collection and a.number = i.number
    where i.workspace = :workspace and i.collection = :collection and i.held is null
        and i.number <> :keep
) s
order by case when s.superseded_at is null then 1 else 0 end,
    case when s.superseded_at is not null then 0
        else 0.1 * s.importance + 0.2 * power(cast(2 as double precision), 0 - case
            when s.seen >= :now then 0
            when :now - s.seen > 1000 * cast(:half_life as double precision) then 1000
            else (:now - s.seen) / cast(:half_life as double precision) end)
        end,
    s.number
limit :rows

-- oldest_turns --
select number, id, body, fingerprint, held
from ltm_turns
where workspace = :workspace and collection = :collection and held is null
order by at, number
limit :rows

-- bury --
insert into ltm_tombstones (workspace, collection, id, at, terms, fingerprint)
values (:workspace, :collection, :id, :now, :terms, :fingerprint)
on conflict (collection, id) do update
set at = excluded.at, terms = excluded.terms, fingerprint = excluded.fingerprint

-- graves --
select id, at, terms, fingerprint
from ltm_tombstones
where workspace = :workspace and collection = :collection
    and (length(terms) > 0 or fingerprint is not null)
order by id

-- blank_tombstone --
-- The id stays, so that no older backup brings the row itself back.
update ltm_tombstones set terms = :none, fingerprint = null
where workspace = :workspace and collection = :collection and id = :id

-- unbury --
delete from ltm_tombstones
where workspace = :workspace and collection = :collection and id = :id

-- cursor_chunks --
select chunk, fingerprints
from ltm_cursors
where workspace = :workspace and collection = :collection and thread_id = :thread_id
order by chunk

-- last_chunk --
select chunk, fingerprints
from ltm_cursors
where workspace = :workspace and collection = :collection and thread_id = :thread_id
order by chunk desc
limit 1

-- put_chunk --
insert into ltm_cursors (workspace, collection, thread_id, chunk, fingerprints)
values (:workspace, :collection, :thread_id, :chunk, :fingerprints)
on conflict (collection, thread_id, chunk) do update set fingerprints = excluded.fingerprints

-- queue_job --
insert into ltm_jobs (number, workspace, collection, kind, state, about, model, attempts, next_at,
    created_at)
values (:number, :workspace, :collection, :kind, 'queued', :about, :model, 0, :now, :now)

-- count_jobs --
-- Of those queued, the ones that have failed more often than :quick are apart until they are due.
-- A running one whose lease has ended is queued.
select kind, case
        when state = 'queued' and attempts > :quick and next_at > :now then 'put_off'
        when state = 'running' and leased_until <= :now then 'queued'
        else state
    end as state, count(*) as jobs
from ltm_jobs
where workspace = :workspace and collection = :collection
group by 1, 2

-- retry_jobs --
update ltm_jobs
set state = 'queued', attempts = 0, next_at = :now, error = null, tried_at = null,
    failing_since = null
where workspace = :workspace and collection = :collection and state = 'failed'

-- clear_items --
delete from ltm_items where workspace = :workspace and collection = :collection

-- clear_turns --
delete from ltm_turns where workspace = :workspace and collection = :collection

-- clear_links --
delete from ltm_links where workspace = :workspace and collection = :collection

-- clear_access --
delete from ltm_access where workspace = :workspace and collection = :collection

-- clear_cursors --
delete from ltm_cursors where workspace = :workspace and collection = :collection

-- clear_tombstones --
delete from ltm_tombstones where workspace = :workspace and collection = :collection

-- clear_jobs --
delete from ltm_jobs where workspace = :workspace and collection = :collection

-- clear_vectors --
delete from ltm_vectors where workspace = :workspace and collection = :collection_id

-- clear_vector_sets --
delete from ltm_vector_sets where workspace = :workspace and collection = :collection_id

-- collections_of_user --
select number, id, namespace, workspace_id
from ltm_collections
where workspace = :workspace and user_id = :user
order by number

-- drop_collection --
delete from ltm_collections where workspace = :workspace and number = :collection

-- make_tombstone_secret --
insert into tombstone_secrets (workspace, secret) values (:workspace, :secret)
on conflict (workspace) do nothing

-- get_tombstone_secret --
select secret from tombstone_secrets where workspace = :workspace

-- erased_at --
-- When the user was last erased.
select at from user_tombstones where workspace = :workspace and user_hash = :user_hash

-- bury_user --
insert into user_tombstones (workspace, user_hash, seq, at)
values (:workspace, :user_hash, :seq, :now)
on conflict (workspace, user_hash) do update set seq = excluded.seq, at = excluded.at

-- forget_feed --
-- An agent of that name keeps its own.
update changes set owner = null, actor = null, ids = '{}'
where workspace = :workspace and owner = :user and type like 'longterm.%'

-- held_item --
select number, kind, importance, flags, terms, fold, body, text, superseded_at, tier, held, valid_from, valid_to
from ltm_items
where workspace = :workspace and collection = :collection and number = :number

-- empty_collection --
update ltm_collections
set version = version + 1, redone = version + 1, items = 0, superseded = 0, turns = 0, held = 0, indexed = 0,
    mean_rows = null, mean_length = null, mean_window = null, cleared_seq = :seq
where workspace = :workspace and number = :collection

-- index_row (sqlite) --
-- Each term with its collection's mark; the marks stand where the spaces did.
insert into ltm_lex (rowid, body)
values (:number, case when :words = '' then '' else
    'c' || :collection || 'x' || replace(:words, ' ', ' c' || :collection || 'x') end)

-- index_row (postgres) --
insert into ltm_lex (workspace, collection, number, lex)
values (:workspace, :collection, :number, array_to_tsvector(string_to_array(:words, ' ')))

-- unindex_row (sqlite) --
insert into ltm_lex (ltm_lex, rowid, body)
values ('delete', :number, case when :words = '' then '' else
    'c' || :collection || 'x' || replace(:words, ' ', ' c' || :collection || 'x') end)

-- unindex_row (postgres) --
delete from ltm_lex
where workspace = :workspace and collection = :collection and number = :number
    and cast(:words as text) is not null

-- count_terms (sqlite) --
-- They are counted in the index itself.
select :counts as counts, :collection as collection

-- count_terms (postgres) --
insert into ltm_df (workspace, collection, term, n)
select :workspace, :collection, c.key, cast(c.value as bigint)
from jsonb_each_text(cast(:counts as jsonb)) c
on conflict (collection, term) do update set n = ltm_df.n + excluded.n

-- drop_terms (sqlite) --
select :collection as collection

-- drop_terms (postgres) --
delete from ltm_df where workspace = :workspace and collection = :collection and n <= 0

-- set_indexed --
update ltm_collections set indexed = 1 where workspace = :workspace and number = :collection

-- set_means --
update ltm_collections set mean_rows = :rows, mean_length = :length, mean_window = :window
where workspace = :workspace and number = :collection

-- bodies_after --
select r.number, r.body
from (
    select number, body from ltm_turns
    where workspace = :workspace and collection = :collection and number > :after
        and held is null
    union all
    select number, body from ltm_items
    where workspace = :workspace and collection = :collection and number > :after
        and superseded_at is null and held is null
) r
order by r.number
limit :rows

-- lengths --
-- Of the first rows: whether it is a turn, how long it is, where it was said and by whom.
select 1 as is_turn, terms, thread_id, session,
    case when tier = 'outside' then 'assistant' else role end as role, speaker, number
from ltm_turns
where workspace = :workspace and collection = :collection and held is null
union all
select 0 as is_turn, terms, '' as thread_id, '' as session, '' as role, '' as speaker, number
from ltm_items
where workspace = :workspace and collection = :collection and superseded_at is null
    and held is null
order by number
limit :rows

-- speakers --
-- From one name to the next by the index, however many turns each has.
with recursive names (speaker) as (
    select min(speaker) from ltm_turns
    where workspace = :workspace and collection = :collection
    union all
    select (
        select min(t.speaker) from ltm_turns t
        where t.workspace = :workspace and t.collection = :collection and t.speaker > n.speaker
    )
    from names n
    where n.speaker is not null
)
select n.speaker, r.role
from names n
cross join (select 'user' as role union all select 'assistant' as role) r
where n.speaker is not null and exists (
    select 1 from ltm_turns t
    where t.workspace = :workspace and t.collection = :collection and t.speaker = n.speaker
        and t.role = r.role
)
order by n.speaker, r.role

-- frequencies (sqlite) --
select j.value as term, t.doc as n
from json_each(:terms) j
cross join ltm_terms t
where t.term = 'c' || :collection || 'x' || j.value and :workspace is not null

-- frequencies (postgres) --
select term, n
from ltm_df
where workspace = :workspace and collection = :collection
    and term = any (array(select jsonb_array_elements_text(cast(:terms as jsonb))))

-- proposed (sqlite) --
select rowid as number
from ltm_lex
where ltm_lex match (
        select group_concat('"c' || :collection || 'x' || j.key || '"', ' OR ')
        from json_each(:weights) j
    ) and :workspace is not null
order by bm25(ltm_lex), rowid
limit :rows

-- proposed (postgres) --
-- By how telling the terms are that a row has, and how short it is; the exact rule follows.
with asked as materialized (
    select cast(quote_literal(j.key) as tsquery) as term, cast(j.value as double precision) as weight
    from jsonb_each_text(cast(:weights as jsonb)) j
)
select l.number
from ltm_lex l
where l.workspace = :workspace and l.collection = :collection
    and l.lex @@ (
        select cast(string_agg(quote_literal(j.key), ' | ') as tsquery)
        from jsonb_each_text(cast(:weights as jsonb)) j
    )
order by (select sum(a.weight) from asked a where l.lex @@ a.term)
    / (1 + cast(0.02 as double precision) * length(l.lex)) desc, l.number
limit :rows

-- around (sqlite) --
select t.number, (
        select json_group_array(b.number) from (
            select e.number from ltm_turns e
            where e.collection = t.collection and e.thread_id = t.thread_id
                and e.session = t.session and e.number < t.number and e.held is null
            order by e.number desc
            limit 3
        ) b
    ) as earlier, (
        select json_group_array(b.number) from (
            select e.number from ltm_turns e
            where e.collection = t.collection and e.thread_id = t.thread_id
                and e.session = t.session and e.number > t.number and e.held is null
            order by e.number
            limit 2
        ) b
    ) as later
from json_each(:numbers) j
cross join ltm_turns t
where t.workspace = :workspace and t.collection = :collection and t.number = j.value

-- around (postgres) --
select t.number, (
        select cast(coalesce(json_agg(b.number order by b.number desc), '[]') as text) from (
            select e.number from ltm_turns e
            where e.collection = t.collection and e.thread_id = t.thread_id
                and e.session = t.session and e.number < t.number and e.held is null
            order by e.number desc
            limit 3
        ) b
    ) as earlier, (
        select cast(coalesce(json_agg(b.number order by b.number), '[]') as text) from (
            select e.number from ltm_turns e
            where e.collection = t.collection and e.thread_id = t.thread_id
                and e.session = t.session and e.number > t.number and e.held is null
            order by e.number
            limit 2
        ) b
    ) as later
from ltm_turns t
where t.workspace = :workspace and t.collection = :collection
    and t.number = any (array(
        select cast(jsonb_array_elements_text(cast(:numbers as jsonb)) as bigint)))

-- turn_rows_of (sqlite) --
-- When they were last recalled is asked apart, since that changes with no version.
select t.id, t.number, t.body, t.at, t.role, t.speaker, t.thread_id, t.session, t.flags,
    null as last_accessed_at, t.tier
from json_each(:numbers) j
cross join ltm_turns t
where t.workspace = :workspace and t.collection = :collection and t.number = j.value
    and t.held is null

-- turn_rows_of (postgres) --
select t.id, t.number, t.body, t.at, t.role, t.speaker, t.thread_id, t.session, t.flags,
    cast(null as bigint) as last_accessed_at, t.tier
from ltm_turns t
where t.workspace = :workspace and t.collection = :collection
    and t.held is null and t.number = any (array(
        select cast(jsonb_array_elements_text(cast(:numbers as jsonb)) as bigint)))

-- access_of (sqlite) --
select a.number, a.last_accessed_at
from json_each(:numbers) j
cross join ltm_access a
where a.workspace = :workspace and a.collection = :collection and a.number = j.value

-- access_of (postgres) --
select number, last_accessed_at
from ltm_access
where workspace = :workspace and collection = :collection
    and number = any (array(
        select cast(jsonb_array_elements_text(cast(:numbers as jsonb)) as bigint)))

-- item_rows_of (sqlite) --
select i.id, i.number, i.body, i.created_at, i.kind, i.importance, i.flags, i.text,
    a.last_accessed_at, i.tier, i.valid_to
from json_each(:numbers) j
cross join ltm_items i
left join ltm_access a on a.collection = i.collection and a.number = i.number
where i.workspace = :workspace and i.collection = :collection and i.number = j.value
    and i.superseded_at is null and i.held is null

-- item_rows_of (postgres) --
select i.id, i.number, i.body, i.created_at, i.kind, i.importance, i.flags, i.text,
    a.last_accessed_at, i.tier, i.valid_to
from ltm_items i
left join ltm_access a on a.collection = i.collection and a.number = i.number
where i.workspace = :workspace and i.collection = :collection and i.superseded_at is null
    and i.held is null and i.number = any (array(
        select cast(jsonb_array_elements_text(cast(:numbers as jsonb)) as bigint)))

-- link_rows_of (sqlite) --
select l.item, t.id, t.at, t.thread_id, t.session, t.speaker, t.number
from json_each(:numbers) j
cross join ltm_links l
join ltm_turns t on t.collection = l.collection and t.number = l.turn
where l.workspace = :workspace and l.collection = :collection and l.item = j.value
order by l.item, l.turn

-- link_rows_of (postgres) --
select l.item, t.id, t.at, t.thread_id, t.session, t.speaker, t.number
from ltm_links l
join ltm_turns t on t.collection = l.collection and t.number = l.turn
where l.workspace = :workspace and l.collection = :collection
    and l.item = any (array(
        select cast(jsonb_array_elements_text(cast(:numbers as jsonb)) as bigint)))
order by l.item, l.turn

-- items_citing (sqlite) --
select distinct l.item as number
from json_each(:numbers) j
cross join ltm_links l
where l.workspace = :workspace and l.collection = :collection and l.turn = j.value

-- items_citing (postgres) --
select distinct l.item as number
from ltm_links l
where l.workspace = :workspace and l.collection = :collection
    and l.turn = any (array(
        select cast(jsonb_array_elements_text(cast(:numbers as jsonb)) as bigint)))

-- span_of_turns --
select min(at) as first, max(at) as last
from ltm_turns
where workspace = :workspace and collection = :collection and held is null

-- turns_between --
select number from ltm_turns
where workspace = :workspace and collection = :collection and at >= :since and at < :until
    and held is null
order by at, number
limit :rows

-- held_by_all --
select coalesce(sum(items), 0) as items, coalesce(sum(turns), 0) as turns,
    coalesce(sum(held), 0) as held
from ltm_collections
where :workspace in (workspace, '*')

-- jobs_of_all --
select kind, state, count(*) as jobs
from ltm_jobs
where :workspace in (workspace, '*')
group by kind, state
order by kind, state

-- turn_texts --
select number, flags, terms, body, text, caption
from ltm_turns
where workspace = :workspace and collection = :collection and number > :after
    and held is null
order by number
limit :rows

-- item_texts --
select number, flags, terms, fold, body, text, superseded_at
from ltm_items
where workspace = :workspace and collection = :collection and number > :after
    and held is null
order by number
limit :rows

-- set_turn_terms --
update ltm_turns set body = :body, flags = :flags, terms = :terms
where workspace = :workspace and collection = :collection and number = :number

-- set_item_terms --
update ltm_items set body = :body, flags = :flags, terms = :terms, fold = :fold
where workspace = :workspace and collection = :collection and number = :number

-- set_analyzer --
-- Of two releases at work the newer one has the last word.
update ltm_collections set analyzer = :analyzer
where workspace = :workspace and number = :collection and analyzer < :analyzer

-- list_people --
-- The scope spans the users of the workspace. No namespace is "", so a row of a user comes after
-- (user, "", "").
select c.user_id, c.namespace, c.workspace_id, c.items - c.superseded as items, c.turns,
    (select i.created_at from ltm_items i where i.collection = c.number
        order by i.number desc limit 1) as item_at,
    (select t.created_at from ltm_turns t where t.collection = c.number
        order by t.number desc limit 1) as turn_at
from ltm_collections c
where c.workspace = :workspace and (c.items > 0 or c.turns > 0 or c.held > 0)
    and c.user_id < :end and (c.user_id, c.namespace, c.workspace_id) > (:after_user, :after_namespace, :after_id)
order by c.user_id, c.namespace, c.workspace_id
limit :rows
