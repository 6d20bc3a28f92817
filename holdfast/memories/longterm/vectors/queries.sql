-- put_vector --
insert into ltm_vectors (workspace, collection, id, dimension, vector)
values (:workspace, :collection, :id, :dimension, :vector)
on conflict (collection, id) do update
set dimension = excluded.dimension, vector = excluded.vector

-- drop_vector --
delete from ltm_vectors
where workspace = :workspace and collection = :collection and id = :id

-- drop_vectors --
delete from ltm_vectors where workspace = :workspace and collection = :collection

-- vectors_changed --
-- Who holds a collection's vectors in memory sees by this that they are others now.
insert into ltm_vector_sets (workspace, collection, seq)
values (:workspace, :collection, :seq)
on conflict (collection) do update set seq = excluded.seq

-- drop_set --
delete from ltm_vector_sets where workspace = :workspace and collection = :collection

-- vector_set --
select seq from ltm_vector_sets where workspace = :workspace and collection = :collection

-- all_vectors --
select id, vector
from ltm_vectors
where workspace = :workspace and collection = :collection and dimension = :dimension
order by id

-- vector_ids --
select id from ltm_vectors where workspace = :workspace and collection = :collection order by id
