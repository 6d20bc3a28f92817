-- What the engine itself keeps: which migrations ran, the engine-wide number, the change feed.
create table migrations (
  number integer primary key,
  name text not null,
  sha256 text not null,
  at integer not null,
  release text not null
) strict;

-- One row. The writer reads it when a group begins and writes it back before the commit, so
-- number order is commit order, across processes too. Which writer that was tells it, after a
-- commit whose outcome it could not see, whether the number is its own.
create table engine_state (
  only_row integer primary key check (only_row = 1),
  seq integer not null,
  writer text not null
) strict;

insert into engine_state (only_row, seq, writer) values (1, 0, '');

-- The newest row that was trimmed away stays behind as 'feed.trimmed', empty: it tells a cursor
-- that is too old from one that has merely seen nothing yet.
create table changes (
  seq integer primary key,
  at integer not null,
  workspace text not null,
  owner text,
  type text not null,
  ids text not null,
  data text not null,
  actor text
) strict;
