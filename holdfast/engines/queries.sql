-- changes_after (sqlite) --
select seq, at, workspace, owner, type, ids, data, actor
from changes
where seq > :seq
order by seq
limit :batch

-- changes_after (postgres) --
-- A transaction may commit after one that began later, so a feed returns only changes older than
-- the oldest running transaction: nothing can appear behind its cursor.
select seq, xid, at, workspace, owner, type, ids, data, actor
from changes
where (xid, seq) > (cast(cast(:xid as text) as xid8), :seq)
  and xid < pg_snapshot_xmin(pg_current_snapshot())
order by xid, seq
limit :batch

-- oldest_change (sqlite) --
select seq, type from changes order by seq limit 1

-- oldest_change (postgres) --
select seq, xid, type from changes order by xid, seq limit 1

-- newest_change (sqlite) --
select coalesce(max(seq), 0) as seq from changes

-- newest_change (postgres) --
-- A running transaction may still write below the newest number, so "now" is the last transaction
-- before the oldest running one.
select seq, xid
from changes
where xid < pg_snapshot_xmin(pg_current_snapshot())
order by xid desc, seq desc
limit 1

-- count_changes --
select count(*) as kept from changes where type <> :type

-- oldest_changes --
select seq, at
from changes
where type <> :type
order by seq
limit :batch

-- drop_changes_before --
delete from changes where seq < :seq

-- empty_change (sqlite) --
-- What is left of the newest change that is dropped, so that a cursor older than it is known
-- to have missed something.
update changes
set workspace = '*', owner = null, type = :type, ids = '{}', data = '{}', actor = null
where seq = :seq

-- empty_change (postgres) --
update changes
set workspace = '*', owner = null, type = :type,
    ids = cast('{}' as jsonb), data = cast('{}' as jsonb), actor = null
where seq = :seq
