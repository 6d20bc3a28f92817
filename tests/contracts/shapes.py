"""What every record looks like on the wire: all its keys, in order, and no other."""

import re

from contracts.sessions import attached
from contracts.stores import GivenAStore, written
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Store, record_to_wire

INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")

STORE = "type id name description metadata created_at updated_at archived_at"
MEMORY = (
    "type id memory_store_id memory_version_id path content content_sha256 content_size_bytes"
    " created_at updated_at"
)
VERSION = (
    "type id memory_store_id memory_id operation path content content_size_bytes content_sha256"
    " created_at created_by redacted_at redacted_by"
)
SESSION = (
    "type id status title environment_id agent resources vault_ids metadata outcome_evaluations"
    " usage stats budget deployment_id created_at updated_at archived_at"
)
RESOURCE = "type memory_store_id access name description instructions mount_path"


class ShapesContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_a_store(self, hf: Holdfast, store: Store) -> None:
        wire = record_to_wire(hf.memory_stores.retrieve(store.id))

        assert list(wire) == STORE.split()
        assert wire["archived_at"] is None
        assert INSTANT.fullmatch(wire["created_at"])

    def test_a_memory(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a")

        wire = record_to_wire(memory)

        assert list(wire) == MEMORY.split()
        assert wire["content"] is None
        assert re.fullmatch("[0-9a-f]{64}", wire["content_sha256"])

    def test_a_version(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, "/a")

        wire = record_to_wire(hf.memory_stores.memory_versions.list(store.id).data[0])

        assert list(wire) == VERSION.split()
        assert wire["created_by"] == {"type": "api_actor", "api_key_id": "apikey_local"}
        assert (wire["redacted_at"], wire["redacted_by"]) == (None, None)

    def test_a_session(self, hf: Holdfast, store: Store) -> None:
        wire = record_to_wire(attached(hf, store))

        assert list(wire) == SESSION.split()
        assert list(wire["resources"][0]) == RESOURCE.split()
        assert (wire["vault_ids"], wire["outcome_evaluations"]) == ([], [])

    def test_what_was_deleted(self, hf: Holdfast, store: Store) -> None:
        assert record_to_wire(hf.memory_stores.delete(store.id)) == {
            "id": store.id,
            "type": "memory_store_deleted",
        }
