-- What was forgotten stays forgotten when an older backup is restored: users, cleared collections,
-- threads. What expired leaves no content in the log of changes.

-- Of a user who was forgotten only the keyed hash of the name is left.
create table holdfast.user_tombstones (
  workspace text collate "C" not null,
  user_hash bytea not null,
  seq bigint not null,
  at bigint not null,
  primary key (workspace, user_hash)
);

-- The number of the last clearing: what an older copy holds was cleared.
alter table holdfast.ltm_collections add column cleared_seq bigint not null default 0;

-- Of a thread that was deleted only the keyed hash of its id is left.
create table holdfast.thread_tombstones (
  workspace text collate "C" not null,
  thread_hash bytea not null,
  seq bigint not null,
  at bigint not null,
  primary key (workspace, thread_hash)
);

-- The random key of those hashes, made when a workspace first needs one.
create table holdfast.tombstone_secrets (
  workspace text collate "C" primary key,
  secret bytea not null check (octet_length(secret) = 32)
);

-- When an entry that was evicted would have expired.
alter table holdfast.durable_changes add column expires_at bigint;

create index durable_changes_to_expire on holdfast.durable_changes (expires_at)
  where expires_at is not null and content_sha256 is not null;

alter table holdfast.user_tombstones enable row level security;
alter table holdfast.user_tombstones force row level security;
create policy its_workspace on holdfast.user_tombstones
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));

alter table holdfast.thread_tombstones enable row level security;
alter table holdfast.thread_tombstones force row level security;
create policy its_workspace on holdfast.thread_tombstones
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));

alter table holdfast.tombstone_secrets enable row level security;
alter table holdfast.tombstone_secrets force row level security;
create policy its_workspace on holdfast.tombstone_secrets
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));

select set_config('holdfast.workspace', '*', true), set_config('holdfast.agent', '*', true);

update holdfast.durable_changes set content = null, content_sha256 = null
where content_sha256 is not null and exists (
  select 1 from holdfast.durable_changes later
  where later.workspace = durable_changes.workspace and later.agent = durable_changes.agent
    and later.key = durable_changes.key and later.seq > durable_changes.seq
    and later.op = 'expire'
);
