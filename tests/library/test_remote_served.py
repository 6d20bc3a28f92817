"""A handle on a real server: what only the two together can show."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from contracts.questions import come_to_rest

import holdfast
from holdfast.ground.errors import (
    HoldfastError,
    InvalidInput,
    NotAuthenticated,
    NotPermitted,
    PreconditionFailed,
    Unavailable,
    Unsupported,
)
from holdfast.ground.events import Event
from holdfast.ground.scope import LOCAL, Actor
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import SessionRecord, Store
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.serving import Server, new_workspace, serving


@pytest.fixture
def store(remote: Holdfast) -> Store:
    return remote.memory_stores.create(name="Notes")


@pytest.fixture
def session(remote: Holdfast, store: Store) -> SessionRecord:
    return remote.sessions.create(
        agent="agent_7",
        environment_id="env_1",
        resources=[{"type": "memory_store", "memory_store_id": store.id}],
    )


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Give the address of a server that no other test asks."""
    clock = FrozenClock()
    with holdfast.open(tmp_path / "h.db", clock=clock) as hf, serving(hf, clock=clock) as url:
        yield url


class TestWho:
    def test_a_client_of_a_server_answers_as_its_key_and_for_no_other(self, tmp_path: Path) -> None:
        clock = FrozenClock()
        with (
            holdfast.open(tmp_path / "h.db", clock=clock) as kept,
            serving(kept, clock=clock) as url,
        ):
            (asked,) = come_to_rest(kept.runs.context, {"who": "user:anna"})
            phone = kept.keys.create("phone", scope="write", user="anna").secret
            with holdfast.open(url, api_key=phone) as hf:
                with pytest.raises(Unsupported):
                    hf.runs.answer("run_1", "7", question=asked.id, by="user:bob")
                assert hf.runs.questions(run="run_1").data == [asked]
                answered = hf.runs.answer("run_1", "7")

        assert (answered.id, answered.answered_by) == (asked.id, "user:anna")

    def test_an_open_server_knows_everybody_as_local(self, remote: Holdfast) -> None:
        assert remote.actor == LOCAL
        assert remote.workspace.startswith("test-")

    def test_a_key_tells_workspace_and_actor(self, url: str) -> None:
        with holdfast.open(url) as first:
            key = first.keys.create("ci", scope="write", workspace="w2")
        assert key.secret is not None

        with holdfast.open(url, api_key=key.secret) as hf:
            assert (hf.workspace, hf.actor) == ("w2", Actor.api(key.id))
            with pytest.raises(NotPermitted):
                hf.keys.list()

    def test_a_wrong_key_is_not_known(self, url: str) -> None:
        with holdfast.open(url) as first:
            first.keys.create("ci")

        with holdfast.open(url, api_key="hf_wrong") as hf, pytest.raises(NotAuthenticated):
            hf.memory_stores.list()

    def test_a_workspace_that_is_not_the_key_s_is_refused(self, url: str) -> None:
        with holdfast.open(url) as first:
            key = first.keys.create("ci", workspace="w2")

        with (
            holdfast.open(url, api_key=key.secret, workspace="w3") as hf,
            pytest.raises(NotPermitted),
        ):
            hf.memory_stores.list()


class TestForSession:
    def test_it_writes_as_the_session(
        self, remote: Holdfast, store: Store, session: SessionRecord
    ) -> None:
        with remote.for_session(session.id) as narrowed:
            memory = narrowed.memory_stores.memories.create(store.id, path="/a.md", content="x")
            version = narrowed.memory_stores.memory_versions.retrieve(
                memory.memory_version_id, memory_store_id=store.id
            )

        assert version.created_by == Actor.session(session.id)

    def test_it_reaches_nothing_else(self, remote: Holdfast, session: SessionRecord) -> None:
        other = remote.memory_stores.create(name="Other")

        with remote.for_session(session.id) as narrowed, pytest.raises(NotPermitted):
            narrowed.memory_stores.retrieve(other.id)

    def test_its_token_is_gone_when_it_closes(
        self, remote: Holdfast, session: SessionRecord
    ) -> None:
        with remote.for_session(session.id):
            assert len(remote.sessions.list_tokens(session.id)) == 1

        assert remote.sessions.list_tokens(session.id) == []

    def test_there_is_none_for_a_session_that_ended(
        self, remote: Holdfast, session: SessionRecord
    ) -> None:
        remote.sessions.archive(session.id)

        with pytest.raises(NotAuthenticated):
            remote.for_session(session.id)

    def test_the_note_is_the_one_the_server_would_write(
        self, server: Server, remote: Holdfast, session: SessionRecord
    ) -> None:
        here = server.hf.acting(workspace=remote.workspace)

        assert remote.sessions.note(session.id) == here.sessions.note(session.id)


class TestEvents:
    def test_what_happens_there_is_heard_here(self, remote: Holdfast) -> None:
        heard: list[Event] = []
        both = threading.Event()

        def listen(event: Event) -> None:
            heard.append(event)
            if len(heard) == 2:
                both.set()

        off = remote.events.subscribe(listen, ["store.created", "store.archived"])
        store = remote.memory_stores.create(name="Notes")
        remote.memory_stores.memories.create(store.id, path="/a.md", content="x")
        remote.memory_stores.archive(store.id)

        assert both.wait(30)
        off()
        assert [each.type for each in heard] == ["store.created", "store.archived"]
        assert heard[0].actor == LOCAL
        assert heard[0].workspace == remote.workspace
        assert heard[0].cursor < heard[1].cursor or heard[0].seq < heard[1].seq

    def test_another_workspace_is_not_heard(self, server: Server, remote: Holdfast) -> None:
        heard: list[str] = []
        last = threading.Event()

        def listen(event: Event) -> None:
            heard.append(event.workspace)
            last.set()

        remote.events.subscribe(listen, ["store.created"])
        with holdfast.open(server.url, workspace=new_workspace()) as other:
            other.memory_stores.create(name="Theirs")
        remote.memory_stores.create(name="Ours")

        assert last.wait(30)
        assert heard == [remote.workspace]


class TestManyAtOnce:
    def test_of_racing_updates_one_wins(self, remote: Holdfast, store: Store) -> None:
        memories = remote.memory_stores.memories
        memory = memories.create(store.id, path="/a.md", content="0")
        seen = {"type": "content_sha256", "content_sha256": memory.content_sha256}

        def update(number: int) -> str:
            try:
                memories.update(
                    memory.id, memory_store_id=store.id, content=str(number), precondition=seen
                )
            except PreconditionFailed:
                return "lost"
            return "won"

        with ThreadPoolExecutor(16) as threads:
            outcomes = list(threads.map(update, range(1, 17)))

        assert sorted(outcomes) == ["lost"] * 15 + ["won"]

    def test_many_pages_are_walked_through(self, remote: Holdfast, store: Store) -> None:
        memories = remote.memory_stores.memories

        def create(number: int) -> None:
            memories.create(store.id, path=f"/{number:02}.md", content="x")

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(create, range(50)))

        paths = [each.path for each in memories.list(store.id, limit=7).all()]

        assert paths == [f"/{n:02}.md" for n in range(50)]


class TestTheSameRefusal:
    @pytest.mark.parametrize(
        "arguments",
        [
            {"path": "no-slash", "content": "x"},
            {"path": "/a//b", "content": "x"},
            {"path": "/a.md", "content": None},
            {"path": "/a.md", "content": 7},
            {"path": 7, "content": "x"},
            {"path": "/a.md", "content": "x" * 102_401},
            {"path": "/\ud800.md", "content": "x"},
            {"path": "/a.md", "content": "\ud800"},
            {"path": "/a.md", "content": "x", "view": "whole"},
        ],
    )
    def test_a_bad_argument_is_refused_alike_here_and_there(
        self, server: Server, remote: Holdfast, store: Store, arguments: dict[str, str]
    ) -> None:
        def refused(hf: Holdfast) -> HoldfastError:
            with pytest.raises(InvalidInput) as refused:
                hf.memory_stores.memories.create(store.id, **arguments)  # pyright: ignore[reportArgumentType] - the point is that they are wrong
            return refused.value

        here = refused(server.hf.acting(workspace=remote.workspace))
        there = refused(remote)

        assert there.carried()["field"] == here.carried()["field"]


def test_a_strict_server_finds_nothing_missing(tmp_path: Path) -> None:
    clock = FrozenClock()
    with (
        holdfast.open(tmp_path / "h.db", clock=clock) as hf,
        serving(hf, clock=clock, strict=True) as url,
        holdfast.open(url) as remote,
    ):
        store = remote.memory_stores.create(name="Notes")
        memory = remote.memory_stores.memories.create(store.id, path="/a.md", content="x")

        updated = remote.memory_stores.memories.update(
            memory.id, memory_store_id=store.id, content="y"
        )

    assert updated.id == memory.id


def test_a_server_that_is_gone_is_unavailable(tmp_path: Path) -> None:
    clock = FrozenClock()
    with holdfast.open(tmp_path / "h.db", clock=clock) as hf, serving(hf, clock=clock) as url:
        remote = holdfast.open(url)
        remote.memory_stores.list()

    with remote, pytest.raises(Unavailable) as gone:
        remote.memory_stores.create(name="Notes")

    assert (gone.value.reason, gone.value.written) == ("lost", False)
