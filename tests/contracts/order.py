"""Which refusal comes first where a request could be refused for several reasons."""

import pytest

from contracts.given import GivenAStore
from holdfast.ground.errors import NotFound
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Store


class OrderContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_an_unknown_store_answers_before_a_bad_query(self, hf: Holdfast) -> None:
        with pytest.raises(NotFound):
            hf.memory_stores.memories.list("memstore_" + "0" * 24, limit=0)
        with pytest.raises(NotFound):
            hf.memory_stores.memory_versions.list("memstore_" + "0" * 24, page="nonsense")

    def test_an_unknown_store_answers_before_a_bad_body(self, hf: Holdfast) -> None:
        with pytest.raises(NotFound):
            hf.memory_stores.memories.create("memstore_" + "0" * 24, path="a", content="x")
        with pytest.raises(NotFound):
            hf.memory_stores.update("memstore_" + "0" * 24, name="")

    def test_an_unknown_memory_answers_before_a_bad_body(self, hf: Holdfast, store: Store) -> None:
        with pytest.raises(NotFound):
            hf.memory_stores.memories.update("mem_" + "0" * 24, memory_store_id=store.id, path="a")
        with pytest.raises(NotFound):
            hf.memory_stores.memories.delete(
                "mem_" + "0" * 24, memory_store_id=store.id, expected_content_sha256="A"
            )
