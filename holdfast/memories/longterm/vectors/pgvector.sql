-- extension --
select n.nspname as name
from pg_extension e join pg_namespace n on n.oid = e.extnamespace
where e.extname = 'vector'

-- use_extension --
-- Its types and operators are wherever it was created, and our transactions look in ours alone.
select set_config('search_path', 'holdfast, ' || quote_ident(:schema), true)

-- nearest --
select id, -(cast(vector as vector) <#> cast(cast(:vector as real[]) as vector)) as cosine
from ltm_vectors
where workspace = :workspace and collection = :collection and dimension = :dimension
order by 2 desc, id
limit :k
