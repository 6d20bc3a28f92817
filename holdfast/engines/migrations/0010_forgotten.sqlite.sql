-- What was forgotten stays forgotten when an older backup is restored: users, cleared collections,
-- threads. What expired leaves no content in the log of changes.

-- Of a user who was forgotten only the keyed hash of the name is left.
create table user_tombstones (
  workspace text not null,
  user_hash blob not null,
  seq integer not null,
  at integer not null,
  primary key (workspace, user_hash)
) strict, without rowid;

-- The number of the last clearing: what an older copy holds was cleared.
alter table ltm_collections add column cleared_seq integer not null default 0;

-- Of a thread that was deleted only the keyed hash of its id is left.
create table thread_tombstones (
  workspace text not null,
  thread_hash blob not null,
  seq integer not null,
  at integer not null,
  primary key (workspace, thread_hash)
) strict, without rowid;

-- The random key of those hashes, made when a workspace first needs one.
create table tombstone_secrets (
  workspace text not null primary key,
  secret blob not null check (length(secret) = 32)
) strict, without rowid;

-- When an entry that was evicted would have expired.
alter table durable_changes add column expires_at integer;

create index durable_changes_to_expire on durable_changes (expires_at)
  where expires_at is not null and content_sha256 is not null;

update durable_changes set content = null, content_sha256 = null
where content_sha256 is not null and exists (
  select 1 from durable_changes later
  where later.workspace = durable_changes.workspace and later.agent = durable_changes.agent
    and later.key = durable_changes.key and later.seq > durable_changes.seq
    and later.op = 'expire'
);
