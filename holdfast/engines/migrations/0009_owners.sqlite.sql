-- Hashes of long-term memory have a key of their user's own.
--
-- What was hashed before keeps the key that it had. That rows are their owner's is in every
-- statement here.

create table ltm_secrets_by_user (
  workspace text not null,
  user_id text not null,
  secret blob not null check (length(secret) = 32),
  primary key (workspace, user_id)
) strict, without rowid;

insert into ltm_secrets_by_user (workspace, user_id, secret)
select distinct c.workspace, c.user_id, s.secret
from ltm_collections c
join ltm_secrets s on s.workspace = c.workspace;

drop table ltm_secrets;

alter table ltm_secrets_by_user rename to ltm_secrets;
