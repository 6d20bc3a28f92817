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
