-- What `apply` did, kept for a day, so that asking for it once more does nothing.

create table holdfast.store_edits (
  store_id text collate "C" not null references holdfast.stores (id),
  id text collate "C" not null,    -- its caller's
  workspace text collate "C" not null,
  digest bytea,                    -- of what was asked; null once a version was redacted
  answer text collate "C" not null,  -- by ids alone: no path, no content, no hash
  created_at bigint not null,
  primary key (store_id, id)
);

create index store_edits_by_age on holdfast.store_edits (store_id, created_at);

-- The planner's statistics keep samples of a column, also of rows that are gone.
alter table holdfast.store_edits alter column digest set statistics 0;

alter table holdfast.store_edits enable row level security;
alter table holdfast.store_edits force row level security;

create policy its_workspace on holdfast.store_edits
  using (current_setting('holdfast.workspace', true) in (workspace, '*'))
  with check (current_setting('holdfast.workspace', true) in (workspace, '*'));
