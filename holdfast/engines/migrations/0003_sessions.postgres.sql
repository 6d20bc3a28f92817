-- Sessions with the stores they attach, agents and environments as they were told, and credentials.

create table holdfast.sessions (
  id text collate "C" not null primary key,
  workspace text collate "C" not null,
  title text collate "C",
  environment_id text collate "C" not null,
  agent_id text collate "C" not null,
  agent_version bigint not null,
  agent text collate "C" not null,
  metadata text collate "C" not null,
  created_at bigint not null,
  updated_at bigint not null,
  archived_at bigint
);

create index sessions_by_age on holdfast.sessions (workspace, created_at, id);

-- Name and description are as they were when the store was attached.
create table holdfast.session_stores (
  workspace text collate "C" not null,
  session_id text collate "C" not null references holdfast.sessions (id),
  position bigint not null,
  memory_store_id text collate "C" not null,
  access text collate "C" not null check (access in ('read_write', 'read_only')),
  name text collate "C" not null,
  description text collate "C" not null,
  instructions text collate "C",
  mount_path text collate "C" not null,
  primary key (session_id, memory_store_id)
);

create index sessions_of_store on holdfast.session_stores (memory_store_id, session_id);

create table holdfast.session_tokens (
  id text collate "C" not null primary key,
  workspace text collate "C" not null,
  session_id text collate "C" not null references holdfast.sessions (id),
  secret_hash text collate "C" not null unique,
  created_at bigint not null,
  expires_at bigint,
  revoked_at bigint
);

create index tokens_of_session on holdfast.session_tokens (session_id);

-- One row a version; created_at and archived_at are the agent's and the same in all of them.
create table holdfast.agents (
  id text collate "C" not null,
  workspace text collate "C" not null,
  version bigint not null,
  newest bigint not null check (newest in (0, 1)),
  parts text collate "C" not null,
  created_at bigint not null,
  updated_at bigint not null,
  archived_at bigint,
  primary key (id, version)
);

create index agents_by_age on holdfast.agents (workspace, created_at, id) where newest = 1;

create table holdfast.environments (
  id text collate "C" not null primary key,
  workspace text collate "C" not null,
  parts text collate "C" not null,
  created_at bigint not null,
  updated_at bigint not null,
  archived_at bigint
);

create index environments_by_age on holdfast.environments (workspace, created_at, id);

create table holdfast.api_keys (
  id text collate "C" not null primary key,
  workspace text collate "C" not null,
  name text collate "C" not null,
  scope text collate "C" not null check (scope in ('read', 'write', 'admin')),
  bound_agent text collate "C",
  bound_user text collate "C",
  secret_hash text collate "C" not null unique,
  created_at bigint not null,
  last_used_at bigint,
  revoked_at bigint
);

create index api_keys_by_age on holdfast.api_keys (workspace, created_at, id);

alter table holdfast.sessions enable row level security;
alter table holdfast.sessions force row level security;

create policy its_workspace on holdfast.sessions
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));

alter table holdfast.session_stores enable row level security;
alter table holdfast.session_stores force row level security;

create policy its_workspace on holdfast.session_stores
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));

alter table holdfast.agents enable row level security;
alter table holdfast.agents force row level security;

create policy its_workspace on holdfast.agents
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));

alter table holdfast.environments enable row level security;
alter table holdfast.environments force row level security;

create policy its_workspace on holdfast.environments
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));

-- A credential is looked up before its workspace is known: whoever holds the secret's hash sees
-- that one row, and may not write it.
alter table holdfast.session_tokens enable row level security;
alter table holdfast.session_tokens force row level security;

create policy its_workspace on holdfast.session_tokens
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));

create policy its_holder on holdfast.session_tokens for select
  using (secret_hash = current_setting('holdfast.credential', true));

alter table holdfast.api_keys enable row level security;
alter table holdfast.api_keys force row level security;

create policy its_workspace on holdfast.api_keys
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));

create policy its_holder on holdfast.api_keys for select
  using (secret_hash = current_setting('holdfast.credential', true));
