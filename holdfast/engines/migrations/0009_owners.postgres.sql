-- Rows of long-term memory and changes are their owner's, whatever a statement says.

-- Whoever migrates may be bound by the policies too.
select set_config('holdfast.workspace', '*', true), set_config('holdfast.user', '*', true);

-- A user's hashes have a key of the user's own. What was hashed before keeps the key that it had.
alter table holdfast.ltm_secrets add column user_id text collate "C" not null default '';
alter table holdfast.ltm_secrets alter column user_id drop default;
alter table holdfast.ltm_secrets alter column user_id set statistics 0;
alter table holdfast.ltm_secrets drop constraint ltm_secrets_pkey;
alter table holdfast.ltm_secrets add primary key (workspace, user_id);

insert into holdfast.ltm_secrets (workspace, user_id, secret)
select distinct c.workspace, c.user_id, s.secret
from holdfast.ltm_collections c
join holdfast.ltm_secrets s on s.workspace = c.workspace and s.user_id = '';

delete from holdfast.ltm_secrets where user_id = '';

create policy its_user on holdfast.ltm_secrets as restrictive
  using (current_setting('holdfast.user', true) in (user_id, '*'))
  with check (current_setting('holdfast.user', true) in (user_id, '*'));

-- A row of a collection is its user's. Which collections those are is found by their index, once
-- a statement; `*` is upkeep, which spans users.
create policy its_user on holdfast.ltm_items as restrictive
  using (collection in (
      select c.number from holdfast.ltm_collections c
      where c.workspace = current_setting('holdfast.workspace', true)
        and c.user_id = current_setting('holdfast.user', true)
    ) or current_setting('holdfast.user', true) = '*')
  with check (collection in (
      select c.number from holdfast.ltm_collections c
      where c.workspace = current_setting('holdfast.workspace', true)
        and c.user_id = current_setting('holdfast.user', true)
    ) or current_setting('holdfast.user', true) = '*');

create policy its_user on holdfast.ltm_turns as restrictive
  using (collection in (
      select c.number from holdfast.ltm_collections c
      where c.workspace = current_setting('holdfast.workspace', true)
        and c.user_id = current_setting('holdfast.user', true)
    ) or current_setting('holdfast.user', true) = '*')
  with check (collection in (
      select c.number from holdfast.ltm_collections c
      where c.workspace = current_setting('holdfast.workspace', true)
        and c.user_id = current_setting('holdfast.user', true)
    ) or current_setting('holdfast.user', true) = '*');

create policy its_user on holdfast.ltm_links as restrictive
  using (collection in (
      select c.number from holdfast.ltm_collections c
      where c.workspace = current_setting('holdfast.workspace', true)
        and c.user_id = current_setting('holdfast.user', true)
    ) or current_setting('holdfast.user', true) = '*')
  with check (collection in (
      select c.number from holdfast.ltm_collections c
      where c.workspace = current_setting('holdfast.workspace', true)
        and c.user_id = current_setting('holdfast.user', true)
    ) or current_setting('holdfast.user', true) = '*');

create policy its_user on holdfast.ltm_access as restrictive
  using (collection in (
      select c.number from holdfast.ltm_collections c
      where c.workspace = current_setting('holdfast.workspace', true)
        and c.user_id = current_setting('holdfast.user', true)
    ) or current_setting('holdfast.user', true) = '*')
  with check (collection in (
      select c.number from holdfast.ltm_collections c
      where c.workspace = current_setting('holdfast.workspace', true)
        and c.user_id = current_setting('holdfast.user', true)
    ) or current_setting('holdfast.user', true) = '*');

create policy its_user on holdfast.ltm_cursors as restrictive
  using (collection in (
      select c.number from holdfast.ltm_collections c
      where c.workspace = current_setting('holdfast.workspace', true)
        and c.user_id = current_setting('holdfast.user', true)
    ) or current_setting('holdfast.user', true) = '*')
  with check (collection in (
      select c.number from holdfast.ltm_collections c
      where c.workspace = current_setting('holdfast.workspace', true)
        and c.user_id = current_setting('holdfast.user', true)
    ) or current_setting('holdfast.user', true) = '*');

create policy its_user on holdfast.ltm_tombstones as restrictive
  using (collection in (
      select c.number from holdfast.ltm_collections c
      where c.workspace = current_setting('holdfast.workspace', true)
        and c.user_id = current_setting('holdfast.user', true)
    ) or current_setting('holdfast.user', true) = '*')
  with check (collection in (
      select c.number from holdfast.ltm_collections c
      where c.workspace = current_setting('holdfast.workspace', true)
        and c.user_id = current_setting('holdfast.user', true)
    ) or current_setting('holdfast.user', true) = '*');

create policy its_user on holdfast.ltm_jobs as restrictive
  using (collection in (
      select c.number from holdfast.ltm_collections c
      where c.workspace = current_setting('holdfast.workspace', true)
        and c.user_id = current_setting('holdfast.user', true)
    ) or current_setting('holdfast.user', true) = '*')
  with check (collection in (
      select c.number from holdfast.ltm_collections c
      where c.workspace = current_setting('holdfast.workspace', true)
        and c.user_id = current_setting('holdfast.user', true)
    ) or current_setting('holdfast.user', true) = '*');

create policy its_user on holdfast.ltm_vectors as restrictive
  using (collection in (
      select c.id from holdfast.ltm_collections c
      where c.workspace = current_setting('holdfast.workspace', true)
        and c.user_id = current_setting('holdfast.user', true)
    ) or current_setting('holdfast.user', true) = '*')
  with check (collection in (
      select c.id from holdfast.ltm_collections c
      where c.workspace = current_setting('holdfast.workspace', true)
        and c.user_id = current_setting('holdfast.user', true)
    ) or current_setting('holdfast.user', true) = '*');

create policy its_user on holdfast.ltm_vector_sets as restrictive
  using (collection in (
      select c.id from holdfast.ltm_collections c
      where c.workspace = current_setting('holdfast.workspace', true)
        and c.user_id = current_setting('holdfast.user', true)
    ) or current_setting('holdfast.user', true) = '*')
  with check (collection in (
      select c.id from holdfast.ltm_collections c
      where c.workspace = current_setting('holdfast.workspace', true)
        and c.user_id = current_setting('holdfast.user', true)
    ) or current_setting('holdfast.user', true) = '*');

create policy its_user on holdfast.ltm_lex as restrictive
  using (collection in (
      select c.number from holdfast.ltm_collections c
      where c.workspace = current_setting('holdfast.workspace', true)
        and c.user_id = current_setting('holdfast.user', true)
    ) or current_setting('holdfast.user', true) = '*')
  with check (collection in (
      select c.number from holdfast.ltm_collections c
      where c.workspace = current_setting('holdfast.workspace', true)
        and c.user_id = current_setting('holdfast.user', true)
    ) or current_setting('holdfast.user', true) = '*');

create policy its_user on holdfast.ltm_df as restrictive
  using (collection in (
      select c.number from holdfast.ltm_collections c
      where c.workspace = current_setting('holdfast.workspace', true)
        and c.user_id = current_setting('holdfast.user', true)
    ) or current_setting('holdfast.user', true) = '*')
  with check (collection in (
      select c.number from holdfast.ltm_collections c
      where c.workspace = current_setting('holdfast.workspace', true)
        and c.user_id = current_setting('holdfast.user', true)
    ) or current_setting('holdfast.user', true) = '*');

-- Events of long-term memory are a user's; of the others those that have an owner are an agent's.
create policy its_owner on holdfast.changes as restrictive
  using (owner is null or current_setting(
      case when type like 'longterm.%' then 'holdfast.user' else 'holdfast.agent' end, true
    ) in (owner, '*'))
  with check (owner is null or current_setting(
      case when type like 'longterm.%' then 'holdfast.user' else 'holdfast.agent' end, true
    ) in (owner, '*'));
