-- Sessions with the stores they attach, agents and environments as they were told, and credentials.

create table sessions (
  id text not null primary key,
  workspace text not null,
  title text,
  environment_id text not null,
  agent_id text not null,
  agent_version integer not null,
  agent text not null,
  metadata text not null,
  created_at integer not null,
  updated_at integer not null,
  archived_at integer
) strict, without rowid;

create index sessions_by_age on sessions (workspace, created_at, id);

-- Name and description are as they were when the store was attached.
create table session_stores (
  workspace text not null,
  session_id text not null references sessions (id),
  position integer not null,
  memory_store_id text not null,
  access text not null check (access in ('read_write', 'read_only')),
  name text not null,
  description text not null,
  instructions text,
  mount_path text not null,
  primary key (session_id, memory_store_id)
) strict, without rowid;

create index sessions_of_store on session_stores (memory_store_id, session_id);

create table session_tokens (
  id text not null primary key,
  workspace text not null,
  session_id text not null references sessions (id),
  secret_hash text not null unique,
  created_at integer not null,
  expires_at integer,
  revoked_at integer
) strict, without rowid;

create index tokens_of_session on session_tokens (session_id);

-- One row a version; created_at and archived_at are the agent's and the same in all of them.
create table agents (
  id text not null,
  workspace text not null,
  version integer not null,
  newest integer not null check (newest in (0, 1)),
  parts text not null,
  created_at integer not null,
  updated_at integer not null,
  archived_at integer,
  primary key (id, version)
) strict, without rowid;

create index agents_by_age on agents (workspace, created_at, id) where newest = 1;

create table environments (
  id text not null primary key,
  workspace text not null,
  parts text not null,
  created_at integer not null,
  updated_at integer not null,
  archived_at integer
) strict, without rowid;

create index environments_by_age on environments (workspace, created_at, id);

create table api_keys (
  id text not null primary key,
  workspace text not null,
  name text not null,
  scope text not null check (scope in ('read', 'write', 'admin')),
  bound_agent text,
  bound_user text,
  secret_hash text not null unique,
  created_at integer not null,
  last_used_at integer,
  revoked_at integer
) strict, without rowid;

create index api_keys_by_age on api_keys (workspace, created_at, id);
