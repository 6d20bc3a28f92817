-- create_scratch (sqlite) --
create table scratch (
  key text primary key,
  number integer,
  real real,
  text text,
  bytes blob
) strict, without rowid

-- create_scratch (postgres) --
create table scratch (
  key text collate "C" primary key,
  number bigint,
  real double precision,
  text text collate "C",
  bytes bytea
)

-- put --
insert into scratch (key, number, real, text, bytes)
values (:key, :number, :real, :text, :bytes)
on conflict (key) do update
set number = excluded.number, real = excluded.real, text = excluded.text, bytes = excluded.bytes

-- put_new --
insert into scratch (key, number) values (:key, :number)

-- put_number --
insert into scratch (key, number)
values (:key, :number)
on conflict (key) do update set number = excluded.number

-- add --
insert into scratch (key, number)
values (:key, 1)
on conflict (key) do update set number = scratch.number + 1
returning number

-- get --
select key, number, real, text, bytes from scratch where key = :key

-- get_number --
select number from scratch where key = :key

-- list --
select key, number from scratch order by key

-- list_starting --
-- A percent sign of its own, since one engine's driver reads them as placeholders.
select key from scratch where key like '%' || :prefix || '%' and number % 2 = 0 order by key

-- count --
select count(*) as n from scratch

-- delete --
delete from scratch where key = :key

-- owner --
select :workspace as workspace, :agent as agent, :user as person

-- wrong --
select nothing from nowhere_at_all
