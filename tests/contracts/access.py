"""What a session may and may not do to the stores of its workspace."""

from collections.abc import Callable

import pytest

from contracts.sessions import attached
from contracts.stores import GivenAStore, written
from holdfast.ground.errors import (
    NotAuthenticated,
    NotFound,
    NotPermitted,
    PathTaken,
    StoreArchived,
)
from holdfast.ground.scope import Actor
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.edits import Save
from holdfast.memories.stores.records import Memory, SessionRecord, Store

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

    @pytest.mark.parametrize("act", [*READS.values(), *WRITES.values()], ids=[*READS, *WRITES])
    def test_a_session_may_read_and_write_what_it_attaches(
        self, hf: Holdfast, memory: Memory, session: SessionRecord, act: Act
    ) -> None:
        assert act(hf.for_session(session.id), memory) is not None

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

    def test_it_sees_itself_and_its_attachments_and_no_other_session(
        self, hf: Holdfast, session: SessionRecord, store: Store
    ) -> None:
        other = attached(hf, store)
        narrowed = hf.for_session(session.id)

        assert narrowed.sessions.retrieve(session.id) == session
        assert narrowed.sessions.resources(session.id) == session.resources
        with pytest.raises(NotPermitted):
            narrowed.sessions.retrieve(other.id)

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
