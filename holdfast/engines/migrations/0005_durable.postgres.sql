-- Durable memory: what agents keep between runs, its log, its runs, and what was forgotten.
--
-- Everywhere agent is '' for what a workspace shares, and run_id '' for all but conversation
-- entries. Who wrote is a JSON array: kind, id, run, token.

create table holdfast.durable_entries (
  workspace text collate "C" not null,
  agent text collate "C" not null,
  run_id text collate "C" not null,
  key text collate "C" not null check (octet_length(key) between 1 and 255),
  id text collate "C" not null,
  category text collate "C" not null check (octet_length(category) between 1 and 64),
  pinned integer not null check (pinned = case when category = 'core' then 1 else 0 end),
  tags text collate "C" not null,  -- a JSON array
  size_bytes integer not null,     -- of key, content, category and tags
  seq bigint not null,
  created_at bigint not null,
  updated_at bigint not null,
  expires_at bigint,
  created_by text collate "C" not null,
  updated_by text collate "C" not null,
  content text collate "C" not null check (octet_length(content) between 1 and 65536),
  primary key (workspace, agent, run_id, key),
  check ((category = 'workspace') = (agent = '')),
  check ((category = 'conversation') = (run_id <> '')),
  check ((category = 'daily') = (expires_at is not null))
);

-- All that planning a hydration or an eviction reads: contents stay untouched.
create index durable_entries_by_seq on holdfast.durable_entries
  (workspace, agent, run_id, pinned, seq) include (size_bytes, expires_at, category, key);

create index durable_entries_to_expire on holdfast.durable_entries (workspace, agent, expires_at)
  where expires_at is not null;
create index durable_entries_by_expiry on holdfast.durable_entries (expires_at)
  where expires_at is not null;

-- One row an agent, by which its writes are serial, and one for what the workspace shares.
create table holdfast.durable_agents (
  workspace text collate "C" not null,
  agent text collate "C" not null,
  entries bigint not null,         -- without those of runs, as all that is counted here
  core_entries bigint not null,
  size_bytes bigint not null,
  last_write bigint,
  expires_at bigint,               -- no entry expires before this
  forgot_seq bigint not null,      -- of the last time that something was forgotten
  tidy_at bigint not null,         -- when a write next drops what is no longer kept
  primary key (workspace, agent)
);

-- Triggers count, so that no way of writing can forget to.
create function holdfast.durable_count() returns trigger language plpgsql as $$
begin
  if tg_op = 'INSERT' then
    update holdfast.durable_agents a
    set entries = a.entries + t.entries, core_entries = a.core_entries + t.core,
        size_bytes = a.size_bytes + t.size_bytes,
        last_write = greatest(a.last_write, t.last_write),
        expires_at = least(a.expires_at, t.expires_at)
    from (
      select c.workspace, c.agent, count(*) as entries, sum(c.pinned) as core,
          sum(c.size_bytes) as size_bytes, max(c.updated_at) as last_write,
          min(c.expires_at) as expires_at
      from came c
      where c.run_id = ''
      group by c.workspace, c.agent
    ) t
    where a.workspace = t.workspace and a.agent = t.agent;
  elsif tg_op = 'UPDATE' then
    update holdfast.durable_agents a
    set core_entries = a.core_entries + t.core, size_bytes = a.size_bytes + t.size_bytes,
        last_write = greatest(a.last_write, t.last_write),
        expires_at = least(a.expires_at, t.expires_at)
    from (
      select b.workspace, b.agent, sum(b.core) as core, sum(b.size_bytes) as size_bytes,
          max(b.last_write) as last_write, min(b.expires_at) as expires_at
      from (
        select c.workspace, c.agent, c.pinned as core, c.size_bytes, c.updated_at as last_write,
            c.expires_at
        from came c
        where c.run_id = ''
        union all
        select w.workspace, w.agent, -w.pinned, -w.size_bytes, null, null
        from went w
        where w.run_id = ''
      ) b
      group by b.workspace, b.agent
    ) t
    where a.workspace = t.workspace and a.agent = t.agent;
  else
    update holdfast.durable_agents a
    set entries = a.entries - t.entries, core_entries = a.core_entries - t.core,
        size_bytes = a.size_bytes - t.size_bytes
    from (
      select w.workspace, w.agent, count(*) as entries, sum(w.pinned) as core,
          sum(w.size_bytes) as size_bytes
      from went w
      where w.run_id = ''
      group by w.workspace, w.agent
    ) t
    where a.workspace = t.workspace and a.agent = t.agent;
  end if;
  return null;
end
$$;

create trigger durable_entry_came after insert on holdfast.durable_entries
  referencing new table as came for each statement
  execute function holdfast.durable_count();
create trigger durable_entry_changed after update on holdfast.durable_entries
  referencing old table as went new table as came for each statement
  execute function holdfast.durable_count();
create trigger durable_entry_went after delete on holdfast.durable_entries
  referencing old table as went for each statement
  execute function holdfast.durable_count();

-- What is null is not set; agent '' holds the workspace's defaults.
create table holdfast.durable_limits (
  workspace text collate "C" not null,
  agent text collate "C" not null,
  cap integer check (cap between 1 and 100000),
  workspace_cap integer check (workspace_cap between 1 and 100000),
  run_cap integer check (run_cap between 1 and 100000),
  content_bytes integer check (content_bytes between 1 and 65536),
  budget integer check (budget between 0 and 16777216),
  daily_hours integer check (daily_hours between 1 and 8760),
  primary key (workspace, agent)
);

-- Of a key that was forgotten only its keyed hash is left, here as among the tombstones.
create table holdfast.durable_changes (
  seq bigint primary key,
  workspace text collate "C" not null,
  agent text collate "C" not null,
  run_id text collate "C" not null,
  at bigint not null,
  op text collate "C" not null check (op in ('create', 'replace', 'refresh', 'move', 'evict',
    'expire', 'forget', 'end', 'redact', 'restore')),
  key text collate "C",
  key_hash bytea,
  category text collate "C",
  size_bytes integer not null,
  content text collate "C",
  content_sha256 text collate "C",
  actor text collate "C" not null,
  evicted_for text collate "C",    -- the key whose write took this entry's place
  cause text collate "C" not null, -- what else brought it about: a JSON object
  redacted_at bigint,
  check (key is null or key_hash is null)
);

create index durable_changes_of_agent on holdfast.durable_changes (workspace, agent, seq);
create index durable_changes_of_key on holdfast.durable_changes (workspace, agent, key, seq)
  where key is not null;
create index durable_changes_of_hash on holdfast.durable_changes (workspace, agent, key_hash, seq)
  where key_hash is not null;
create index durable_changes_caused on holdfast.durable_changes (workspace, agent, evicted_for)
  where evicted_for is not null;
create index durable_changes_evicted on holdfast.durable_changes (at)
  where op = 'evict' and content is not null;

-- The newest twenty changes of a key are kept, whoever writes them.
create function holdfast.durable_trim() returns trigger language plpgsql as $$
begin
  -- As an array, so that they are found by their numbers: joined, all there is would be read.
  delete from holdfast.durable_changes
  where seq = any (array(
    select past.seq
    from (select distinct n.workspace, n.agent, n.key from came n where n.key is not null) k
    cross join lateral (
      select c.seq from holdfast.durable_changes c
      where c.workspace = k.workspace and c.agent = k.agent and c.key = k.key
      order by c.seq desc
      offset 20
    ) past
  ));
  return null;
end
$$;

create trigger durable_change_came after insert on holdfast.durable_changes
  referencing new table as came for each statement
  execute function holdfast.durable_trim();

create table holdfast.durable_tombstones (
  workspace text collate "C" not null,
  agent text collate "C" not null,
  run_id text collate "C" not null,
  key_hash bytea not null,
  seq bigint not null,
  at bigint not null,
  actor text collate "C" not null,
  primary key (workspace, agent, run_id, key_hash)
);

create index durable_tombstones_by_age on holdfast.durable_tombstones (at);

-- The random key of those hashes, made when a workspace first needs one.
create table holdfast.durable_secrets (
  workspace text collate "C" primary key,
  secret bytea not null check (octet_length(secret) = 32)
);

-- A run's token is the number of its opening, so none is ever given out twice.
create table holdfast.durable_runs (
  workspace text collate "C" not null,
  agent text collate "C" not null,
  token bigint not null,
  run_id text collate "C" not null check (run_id <> ''),
  lane text collate "C" not null,
  knew_seq bigint not null,         -- forgot_seq of its agent when it began
  knew_shared_seq bigint not null,  -- and that of what the workspace shares
  began_at bigint not null,
  seen_at bigint not null,          -- its last write or heartbeat
  ended_at bigint,
  outcome text collate "C" check (outcome in ('ok', 'failed', 'superseded', 'lapsed')),
  primary key (workspace, agent, token),
  check ((ended_at is null) = (outcome is null))
);

create unique index durable_runs_live on holdfast.durable_runs (workspace, agent, run_id)
  where ended_at is null;
create unique index durable_runs_in_lane on holdfast.durable_runs (workspace, agent, lane)
  where ended_at is null;
create index durable_runs_to_lapse on holdfast.durable_runs (seen_at) where ended_at is null;
create index durable_runs_by_end on holdfast.durable_runs (ended_at) where ended_at is not null;

-- The token that a lane is held by, or was last.
create table holdfast.durable_lanes (
  workspace text collate "C" not null,
  agent text collate "C" not null,
  lane text collate "C" not null,
  token bigint not null,
  primary key (workspace, agent, lane)
);

-- A run that begins takes its lane.
create function holdfast.durable_take_lane() returns trigger language plpgsql as $$
begin
  insert into holdfast.durable_lanes (workspace, agent, lane, token)
  values (new.workspace, new.agent, new.lane, new.token)
  on conflict (workspace, agent, lane)
  do update set token = greatest(durable_lanes.token, excluded.token);
  return null;
end
$$;

create trigger durable_run_began after insert on holdfast.durable_runs
  for each row execute function holdfast.durable_take_lane();

-- What was asked under an idempotency key, and what became of it: hashes, ids and numbers.
create table holdfast.durable_replays (
  workspace text collate "C" not null,
  agent text collate "C" not null,
  key_hash bytea not null,
  asked bytea not null,
  answer text collate "C" not null,
  at bigint not null,
  primary key (workspace, agent, key_hash)
);

create index durable_replays_by_age on holdfast.durable_replays (at);

-- The planner's statistics keep samples of a column, also of rows that are gone: none of what can
-- be forgotten.
alter table holdfast.session_stores alter column name set statistics 0;
alter table holdfast.session_stores alter column description set statistics 0;
alter table holdfast.session_stores alter column instructions set statistics 0;
alter table holdfast.session_stores alter column mount_path set statistics 0;
alter table holdfast.sessions alter column title set statistics 0;
alter table holdfast.sessions alter column agent set statistics 0;
alter table holdfast.sessions alter column metadata set statistics 0;
alter table holdfast.agents alter column parts set statistics 0;
alter table holdfast.environments alter column parts set statistics 0;
alter table holdfast.durable_entries alter column key set statistics 0;
alter table holdfast.durable_entries alter column category set statistics 0;
alter table holdfast.durable_entries alter column tags set statistics 0;
alter table holdfast.durable_entries alter column created_by set statistics 0;
alter table holdfast.durable_entries alter column updated_by set statistics 0;
alter table holdfast.durable_entries alter column content set statistics 0;
alter table holdfast.durable_changes alter column key set statistics 0;
alter table holdfast.durable_changes alter column category set statistics 0;
alter table holdfast.durable_changes alter column content set statistics 0;
alter table holdfast.durable_changes alter column content_sha256 set statistics 0;
alter table holdfast.durable_changes alter column actor set statistics 0;
alter table holdfast.durable_changes alter column evicted_for set statistics 0;
alter table holdfast.durable_changes alter column cause set statistics 0;
alter table holdfast.durable_tombstones alter column actor set statistics 0;
alter table holdfast.durable_runs alter column lane set statistics 0;
alter table holdfast.durable_lanes alter column lane set statistics 0;
alter table holdfast.durable_entries alter column agent set statistics 0;
alter table holdfast.durable_agents alter column agent set statistics 0;
alter table holdfast.durable_limits alter column agent set statistics 0;
alter table holdfast.durable_changes alter column agent set statistics 0;
alter table holdfast.durable_tombstones alter column agent set statistics 0;
alter table holdfast.durable_runs alter column agent set statistics 0;
alter table holdfast.durable_lanes alter column agent set statistics 0;
alter table holdfast.durable_replays alter column agent set statistics 0;
alter table holdfast.durable_entries alter column run_id set statistics 0;
alter table holdfast.durable_changes alter column run_id set statistics 0;
alter table holdfast.durable_tombstones alter column run_id set statistics 0;
alter table holdfast.durable_runs alter column run_id set statistics 0;

alter table holdfast.durable_entries enable row level security;
alter table holdfast.durable_entries force row level security;
create policy its_workspace on holdfast.durable_entries
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));
create policy its_agent on holdfast.durable_entries as restrictive
  using (agent = '' or current_setting('holdfast.agent', true) in (agent, '*'))
  with check (agent = '' or current_setting('holdfast.agent', true) in (agent, '*'));

alter table holdfast.durable_agents enable row level security;
alter table holdfast.durable_agents force row level security;
create policy its_workspace on holdfast.durable_agents
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));
create policy its_agent on holdfast.durable_agents as restrictive
  using (agent = '' or current_setting('holdfast.agent', true) in (agent, '*'))
  with check (agent = '' or current_setting('holdfast.agent', true) in (agent, '*'));

alter table holdfast.durable_limits enable row level security;
alter table holdfast.durable_limits force row level security;
create policy its_workspace on holdfast.durable_limits
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));
create policy its_agent on holdfast.durable_limits as restrictive
  using (agent = '' or current_setting('holdfast.agent', true) in (agent, '*'))
  with check (agent = '' or current_setting('holdfast.agent', true) in (agent, '*'));

alter table holdfast.durable_changes enable row level security;
alter table holdfast.durable_changes force row level security;
create policy its_workspace on holdfast.durable_changes
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));
create policy its_agent on holdfast.durable_changes as restrictive
  using (agent = '' or current_setting('holdfast.agent', true) in (agent, '*'))
  with check (agent = '' or current_setting('holdfast.agent', true) in (agent, '*'));

alter table holdfast.durable_tombstones enable row level security;
alter table holdfast.durable_tombstones force row level security;
create policy its_workspace on holdfast.durable_tombstones
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));
create policy its_agent on holdfast.durable_tombstones as restrictive
  using (agent = '' or current_setting('holdfast.agent', true) in (agent, '*'))
  with check (agent = '' or current_setting('holdfast.agent', true) in (agent, '*'));

alter table holdfast.durable_secrets enable row level security;
alter table holdfast.durable_secrets force row level security;
create policy its_workspace on holdfast.durable_secrets
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));

alter table holdfast.durable_runs enable row level security;
alter table holdfast.durable_runs force row level security;
create policy its_workspace on holdfast.durable_runs
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));
create policy its_agent on holdfast.durable_runs as restrictive
  using (agent = '' or current_setting('holdfast.agent', true) in (agent, '*'))
  with check (agent = '' or current_setting('holdfast.agent', true) in (agent, '*'));

alter table holdfast.durable_lanes enable row level security;
alter table holdfast.durable_lanes force row level security;
create policy its_workspace on holdfast.durable_lanes
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));
create policy its_agent on holdfast.durable_lanes as restrictive
  using (agent = '' or current_setting('holdfast.agent', true) in (agent, '*'))
  with check (agent = '' or current_setting('holdfast.agent', true) in (agent, '*'));

alter table holdfast.durable_replays enable row level security;
alter table holdfast.durable_replays force row level security;
create policy its_workspace on holdfast.durable_replays
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));
create policy its_agent on holdfast.durable_replays as restrictive
  using (agent = '' or current_setting('holdfast.agent', true) in (agent, '*'))
  with check (agent = '' or current_setting('holdfast.agent', true) in (agent, '*'));
