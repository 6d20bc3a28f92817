"""Contract of rights: of sessions, tokens and keys, and between workspaces."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from contracts.sessions import attached
from contracts.stores import GivenAStore, invalid, written
from holdfast.ground.errors import (
    InvalidInput,
    NotAuthenticated,
    NotFound,
    NotPermitted,
    PathTaken,
    StoreArchived,
)
from holdfast.ground.scope import Actor
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.edits import Save
from holdfast.memories.stores.records import Memory, SessionRecord, Store, record_to_wire
from holdfast.testing.fakes import FrozenClock


@pytest.mark.surface("file", "hashes of secrets are stored on disk")
@pytest.mark.surface("http", "keys open a server")
class KeysContract:
    """Keys of the API, made and revoked by an administrator."""

    @pytest.fixture
    def hf(self, administrator: Holdfast) -> Holdfast:
        return administrator

    def test_a_new_key_holds_what_was_given(self, hf: Holdfast, clock: FrozenClock) -> None:
        key = hf.keys.create("ci", scope="admin")

        assert (key.type, key.name, key.scope) == ("api_key", "ci", "admin")
        assert (key.workspace, key.agent, key.user) == (hf.workspace, None, None)
        assert (key.created_at, key.last_used_at, key.revoked_at) == (clock.now(), None, None)
        assert key.id.startswith("apikey_")

    def test_a_key_may_write_unless_told(self, hf: Holdfast) -> None:
        assert hf.keys.create("ci").scope == "write"

    def test_a_secret_is_shown_once(self, hf: Holdfast) -> None:
        key = hf.keys.create("ci")

        (listed,) = [each for each in hf.keys.list() if each.id == key.id]

        assert key.secret is not None
        assert (key.secret[:3], len(key.secret)) == ("hf_", 46)
        assert (listed.secret, listed.name) == (None, "ci")

    def test_no_two_secrets_are_alike(self, hf: Holdfast) -> None:
        secrets = {hf.keys.create("ci").secret for _ in range(5)}

        assert len(secrets) == 5

    def test_a_key_may_be_bound_to_an_agent_and_a_user(self, hf: Holdfast) -> None:
        key = hf.keys.create("ci", agent="agent_7", user="ada")

        assert (key.agent, key.user) == ("agent_7", "ada")

    def test_a_bad_scope_is_refused(self, hf: Holdfast) -> None:
        bad: Any = "root"

        with invalid("scope"):
            hf.keys.create("ci", scope=bad)

    def test_a_revoked_key_says_when(self, hf: Holdfast, clock: FrozenClock) -> None:
        key = hf.keys.create("ci")
        now = clock.tick()

        revoked = hf.keys.revoke(key.id)

        assert (revoked.id, revoked.revoked_at, revoked.secret) == (key.id, now, None)

    def test_an_unknown_key_is_not_found(self, hf: Holdfast) -> None:
        with pytest.raises(NotFound):
            hf.keys.revoke("apikey_" + "0" * 24)


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


Act = Callable[[Holdfast, Memory], object]

READS: dict[str, Act] = {
    "retrieve the store": lambda hf, m: hf.memory_stores.retrieve(m.memory_store_id),
    "list": lambda hf, m: hf.memory_stores.memories.list(m.memory_store_id).data,
    "retrieve": lambda hf, m: hf.memory_stores.memories.retrieve(
        m.id, memory_store_id=m.memory_store_id
    ),
    "at": lambda hf, m: hf.memory_stores.memories.at(m.memory_store_id, m.path),
    "search": lambda hf, m: hf.memory_stores.memories.search(m.memory_store_id, "tabs"),
    "snapshot": lambda hf, m: hf.memory_stores.memories.snapshot(m.memory_store_id),
    "changes": lambda hf, m: hf.memory_stores.memories.changes(m.memory_store_id, 0),
    "list versions": lambda hf, m: hf.memory_stores.memory_versions.list(m.memory_store_id).data,
    "retrieve a version": lambda hf, m: hf.memory_stores.memory_versions.retrieve(
        m.memory_version_id, memory_store_id=m.memory_store_id
    ),
    "diff": lambda hf, m: hf.memory_stores.memory_versions.diff(
        m.memory_version_id, m.memory_version_id, memory_store_id=m.memory_store_id
    ),
}

WRITES: dict[str, Act] = {
    "create": lambda hf, m: hf.memory_stores.memories.create(
        m.memory_store_id, path="/new", content="x"
    ),
    "update": lambda hf, m: hf.memory_stores.memories.update(
        m.id, memory_store_id=m.memory_store_id, content="new"
    ),
    "rename": lambda hf, m: hf.memory_stores.memories.rename(m.memory_store_id, m.path, "/new"),
    "restore": lambda hf, m: hf.memory_stores.memory_versions.restore(
        m.memory_version_id, memory_store_id=m.memory_store_id
    ),
    "delete": lambda hf, m: hf.memory_stores.memories.delete(
        m.id, memory_store_id=m.memory_store_id
    ),
    "delete under": lambda hf, m: hf.memory_stores.memories.delete_under(m.memory_store_id, m.path),
    "apply": lambda hf, m: hf.memory_stores.memories.apply(
        m.memory_store_id, [Save(path=m.path, content="new")], edit_id="edit_1"
    ),
}

NEVER: dict[str, Act] = {
    "create a store": lambda hf, _: hf.memory_stores.create(name="Mine"),
    "list stores": lambda hf, _: hf.memory_stores.list().data,
    "update the store": lambda hf, m: hf.memory_stores.update(m.memory_store_id, name="Mine"),
    "archive the store": lambda hf, m: hf.memory_stores.archive(m.memory_store_id),
    "delete the store": lambda hf, m: hf.memory_stores.delete(m.memory_store_id),
    "configure": lambda hf, _: hf.memory_stores.configure(memories_cap=1),
    "redact": lambda hf, m: hf.memory_stores.memory_versions.redact(
        m.memory_version_id, memory_store_id=m.memory_store_id
    ),
    "list sessions": lambda hf, _: hf.sessions.list().data,
    "begin a session": lambda hf, _: hf.sessions.create(agent="coder", environment_id="laptop"),
    "make a key": lambda hf, _: hf.keys.create("mine", scope="admin"),
    "list keys": lambda hf, _: hf.keys.list(),
}


class NarrowingContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.fixture
    def memory(self, hf: Holdfast, store: Store) -> Memory:
        """Give a memory that has changed once since this was its head."""
        (memory,) = written(hf, store, "/a", content="tabs")
        hf.memory_stores.memories.update(
            memory.id, memory_store_id=store.id, content="tabs, always"
        )
        return memory

    @pytest.fixture
    def session(self, hf: Holdfast, store: Store) -> SessionRecord:
        return attached(hf, store)

    @pytest.mark.surface("http", "query parameters cross the wire")
    @pytest.mark.parametrize("act", [*READS.values(), *WRITES.values()], ids=[*READS, *WRITES])
    def test_a_session_may_read_and_write_what_it_attaches(
        self, hf: Holdfast, memory: Memory, session: SessionRecord, act: Act
    ) -> None:
        assert act(hf.for_session(session.id), memory) is not None

    @pytest.mark.surface("http", "error fields cross the wire")
    @pytest.mark.parametrize("act", NEVER.values(), ids=NEVER)
    def test_what_a_session_may_never_do(
        self, hf: Holdfast, memory: Memory, session: SessionRecord, act: Act
    ) -> None:
        with pytest.raises(NotPermitted):
            act(hf.for_session(session.id), memory)

    @pytest.mark.parametrize("act", READS.values(), ids=READS)
    def test_read_only_may_read(self, hf: Holdfast, store: Store, memory: Memory, act: Act) -> None:
        session = attached(hf, store, access="read_only")

        assert act(hf.for_session(session.id), memory) is not None

    @pytest.mark.parametrize("act", WRITES.values(), ids=WRITES)
    def test_read_only_may_not_write_and_is_told_why(
        self, hf: Holdfast, store: Store, memory: Memory, act: Act
    ) -> None:
        session = attached(hf, store, access="read_only")
        before = len(hf.memory_stores.memory_versions.list(store.id))

        with pytest.raises(NotPermitted, match="read_only") as refusal:
            act(hf.for_session(session.id), memory)

        assert store.id in str(refusal.value) or store.name in str(refusal.value)
        assert len(hf.memory_stores.memory_versions.list(store.id)) == before

    @pytest.mark.surface("http", "error fields cross the wire")
    @pytest.mark.parametrize("act", [*READS.values(), *WRITES.values()], ids=[*READS, *WRITES])
    def test_a_store_that_is_not_attached_is_out_of_reach(
        self, hf: Holdfast, memory: Memory, act: Act
    ) -> None:
        session = attached(hf, hf.memory_stores.create(name="Other"))

        with pytest.raises(NotPermitted):
            act(hf.for_session(session.id), memory)

    def test_so_is_a_store_that_does_not_exist(self, hf: Holdfast, session: SessionRecord) -> None:
        with pytest.raises(NotPermitted):
            hf.for_session(session.id).memory_stores.memories.list("memstore_" + "0" * 24)

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_its_writes_are_its_own(
        self, hf: Holdfast, store: Store, memory: Memory, session: SessionRecord
    ) -> None:
        for act in (WRITES["update"], WRITES["rename"], WRITES["create"]):
            if act is WRITES["create"]:
                hf.memory_stores.memories.delete_under(store.id, "/new")
            act(hf.for_session(session.id), memory)

        of_session = hf.memory_stores.memory_versions.list(store.id, session_id=session.id)
        assert [each.operation for each in of_session] == ["created", "modified", "modified"]
        assert {each.created_by for each in of_session} == {Actor.session(session.id)}

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_it_sees_itself_and_its_attachments_and_no_other_session(
        self, hf: Holdfast, session: SessionRecord, store: Store
    ) -> None:
        other = attached(hf, store)
        narrowed = hf.for_session(session.id)

        assert narrowed.sessions.retrieve(session.id) == session
        assert narrowed.sessions.resources(session.id) == session.resources
        with pytest.raises(NotPermitted):
            narrowed.sessions.retrieve(other.id)

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_it_meets_the_same_conflicts(
        self, hf: Holdfast, store: Store, memory: Memory, session: SessionRecord
    ) -> None:
        with pytest.raises(PathTaken) as refusal:
            written(hf.for_session(session.id), store, "/a/b")

        assert refusal.value.conflicting_memory_id == memory.id

    def test_a_deleted_store_is_not_found(
        self, hf: Holdfast, store: Store, memory: Memory, session: SessionRecord
    ) -> None:
        narrowed = hf.for_session(session.id)
        hf.memory_stores.delete(store.id)

        with pytest.raises(NotFound):
            READS["retrieve"](narrowed, memory)
        with pytest.raises(NotFound):
            WRITES["create"](narrowed, memory)

    def test_an_archived_store_can_be_read_and_not_written(
        self, hf: Holdfast, store: Store, memory: Memory, session: SessionRecord
    ) -> None:
        narrowed = hf.for_session(session.id)
        hf.memory_stores.archive(store.id)

        assert READS["retrieve"](narrowed, memory) is not None
        with pytest.raises(StoreArchived):
            WRITES["create"](narrowed, memory)
        with pytest.raises(StoreArchived):
            WRITES["update"](narrowed, memory)

    @pytest.mark.surface("http", "error fields cross the wire")
    @pytest.mark.parametrize("end", ["archive", "delete"])
    def test_it_ends_with_its_session(
        self, hf: Holdfast, memory: Memory, session: SessionRecord, end: str
    ) -> None:
        narrowed = hf.for_session(session.id)
        READS["retrieve"](narrowed, memory)

        if end == "archive":
            hf.sessions.archive(session.id)
        else:
            hf.sessions.delete(session.id)

        with pytest.raises(NotAuthenticated):
            READS["retrieve"](narrowed, memory)
        with pytest.raises(NotAuthenticated):
            WRITES["create"](narrowed, memory)

    def test_an_unknown_session_is_not_found(self, hf: Holdfast) -> None:
        with pytest.raises(NotFound):
            hf.for_session("sesn_" + "0" * 24)


@pytest.mark.surface("http", "tokens open a server")
class SessionTokensContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_a_token_is_shown_once(self, hf: Holdfast, store: Store) -> None:
        session = attached(hf, store)

        token = hf.sessions.create_token(session.id)
        (listed,) = hf.sessions.list_tokens(session.id)

        assert token.token is not None
        assert (token.token[:4], len(token.token)) == ("hfs_", 47)
        assert (listed.id, listed.token) == (token.id, None)
        assert (token.session_id, token.expires_at) == (session.id, None)
        assert token.id.startswith("sestok_")

    def test_no_two_tokens_are_alike(self, hf: Holdfast, store: Store) -> None:
        session = attached(hf, store)

        tokens = {hf.sessions.create_token(session.id).token for _ in range(5)}

        assert len(tokens) == 5

    def test_a_token_may_expire(self, hf: Holdfast, store: Store) -> None:
        token = hf.sessions.create_token(attached(hf, store).id, expires_in=60)

        assert token.expires_at is not None
        assert (token.expires_at - token.created_at).total_seconds() == 60

    def test_a_revoked_token_is_answered(self, hf: Holdfast, store: Store) -> None:
        session = attached(hf, store)
        token = hf.sessions.create_token(session.id)

        revoked = hf.sessions.revoke_token(token.id, session_id=session.id)

        assert (revoked.id, revoked.session_id, revoked.token) == (token.id, session.id, None)

    def test_tokens_of_an_unknown_session_are_not_found(self, hf: Holdfast) -> None:
        with pytest.raises(NotFound):
            hf.sessions.create_token("sesn_" + "0" * 24)
        with pytest.raises(NotFound):
            hf.sessions.list_tokens("sesn_" + "0" * 24)

    def test_an_unknown_token_is_not_found(self, hf: Holdfast, store: Store) -> None:
        session = attached(hf, store)

        with pytest.raises(NotFound):
            hf.sessions.revoke_token("sestok_" + "0" * 24, session_id=session.id)


class WorkspacesContract(GivenAStore):
    """A subclass provides `hf`, `clock`, and `elsewhere` in another workspace."""

    def test_each_has_its_own_stores(self, hf: Holdfast, elsewhere: Holdfast, store: Store) -> None:
        theirs = elsewhere.memory_stores.create(name="Theirs")

        assert list(hf.memory_stores.list()) == [store]
        assert list(elsewhere.memory_stores.list()) == [theirs]

    @pytest.mark.parametrize("act", [*READS.values(), *WRITES.values()], ids=[*READS, *WRITES])
    def test_anothers_memories_are_not_found(
        self, hf: Holdfast, elsewhere: Holdfast, store: Store, act: Act
    ) -> None:
        (memory,) = written(hf, store, "/a")

        with pytest.raises(NotFound):
            act(elsewhere, memory)

        found = hf.memory_stores.memories.retrieve(
            memory.id, memory_store_id=store.id, view="basic"
        )
        assert found == memory

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_anothers_store_cannot_be_changed(
        self, hf: Holdfast, elsewhere: Holdfast, store: Store
    ) -> None:
        with pytest.raises(NotFound):
            elsewhere.memory_stores.update(store.id, name="Mine")
        with pytest.raises(NotFound):
            elsewhere.memory_stores.archive(store.id)
        with pytest.raises(NotFound):
            elsewhere.memory_stores.delete(store.id)
        with pytest.raises(NotFound):
            attached(elsewhere, store)

        assert hf.memory_stores.retrieve(store.id) == store

    def test_a_memory_is_not_found_through_a_store_of_ones_own(
        self, hf: Holdfast, elsewhere: Holdfast, store: Store
    ) -> None:
        (memory,) = written(hf, store, "/a")
        own = elsewhere.memory_stores.create(name="Own")

        with pytest.raises(NotFound):
            elsewhere.memory_stores.memories.retrieve(memory.id, memory_store_id=own.id)
        with pytest.raises(NotFound):
            elsewhere.memory_stores.memory_versions.redact(
                memory.memory_version_id, memory_store_id=own.id
            )

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_anothers_sessions_and_agents_are_not_found(
        self, hf: Holdfast, elsewhere: Holdfast, store: Store
    ) -> None:
        session = attached(hf, store)
        agent = hf.agents.create({"name": "Coder", "model": "claude-x"})

        with pytest.raises(NotFound):
            elsewhere.sessions.retrieve(session.id)
        with pytest.raises(NotFound):
            elsewhere.for_session(session.id)
        with pytest.raises(NotFound):
            elsewhere.agents.retrieve(agent["id"])
        assert list(elsewhere.sessions.list()) == []
        assert list(elsewhere.agents.list()) == []

    def test_each_has_its_own_settings(self, hf: Holdfast, elsewhere: Holdfast) -> None:
        hf.memory_stores.configure(memories_cap=1)

        assert elsewhere.memory_stores.settings().memories_cap == 10_000

    @pytest.mark.surface("http", "the server has a branch for it")
    @pytest.mark.parametrize("name", ["*", "a b", "a/b", "-a", "x" * 129, "a\n", "\u00fc"])
    def test_what_is_no_name_is_refused(self, hf: Holdfast, name: str) -> None:
        with pytest.raises(InvalidInput):
            hf.acting(workspace=name).memory_stores.list()
