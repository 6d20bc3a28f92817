-- What `apply` did, kept for a day, so that asking for it once more does nothing.

create table store_edits (
  store_id text not null references stores (id),
  id text not null,                -- its caller's
  workspace text not null,
  digest blob,                     -- of what was asked; null once a version was redacted
  answer text not null,            -- by ids alone: no path, no content, no hash
  created_at integer not null,
  primary key (store_id, id)
) strict, without rowid;

create index store_edits_by_age on store_edits (store_id, created_at);
