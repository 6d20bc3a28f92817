"""What outlives the handle that made it."""

from collections.abc import Iterator

import pytest
from contracts.stores import written

import holdfast
from holdfast.ground.scope import Actor
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Store
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.serving import new_workspace


@pytest.fixture
def workspace() -> str:
    return new_workspace()


@pytest.fixture
def store(target: str, workspace: str) -> Store:
    """Give a store with three memories, made by a handle that is closed."""
    with holdfast.open(target, workspace=workspace) as hf:
        store = hf.memory_stores.create(name="Notes")
        written(hf, store, "/a", "/b", "/c")
        return store


@pytest.fixture
def hf(target: str, workspace: str, store: Store) -> Iterator[Holdfast]:
    """Give a handle that was opened after the store was made."""
    assert store
    with holdfast.open(target, workspace=workspace) as hf:
        yield hf


def test_what_was_written_is_there(hf: Holdfast, store: Store) -> None:
    assert hf.memory_stores.retrieve(store.id) == store
    assert [each.path for each in hf.memory_stores.memories.list(store.id)] == ["/a", "/b", "/c"]
    assert len(hf.memory_stores.memories.search(store.id, "x")) == 3
    assert hf.verify().findings == ()


def test_a_cursor_leads_on_in_another_handle(
    hf: Holdfast, store: Store, target: str, workspace: str
) -> None:
    page = hf.memory_stores.memories.list(store.id, limit=1)
    hf.close()

    with holdfast.open(target, workspace=workspace) as later:
        rest = later.memory_stores.memories.list(store.id, page=page.next_page)

        assert [each.path for each in rest] == ["/b", "/c"]


def test_a_setting_holds_for_other_handles(
    hf: Holdfast, store: Store, target: str, workspace: str
) -> None:
    with holdfast.open(target, workspace=workspace) as other:
        other.memory_stores.configure(memories_cap=3)

    with pytest.raises(holdfast.errors.StoreFull):
        written(hf, store, "/d")


def test_ids_go_on_rising_though_the_clock_was_set_back(
    hf: Holdfast, store: Store, target: str, workspace: str
) -> None:
    newest = hf.memory_stores.memory_versions.list(store.id).data[0]
    past = FrozenClock()

    with holdfast.open(target, workspace=workspace, clock=past) as later:
        (memory,) = written(later, store, "/d")
        listed = later.memory_stores.memory_versions.list(store.id)

        assert memory.memory_version_id > newest.id
        assert listed.data[0].id == memory.memory_version_id


@pytest.mark.parametrize(
    "actor",
    [Actor.user("user_ada"), Actor.service_account("svac_1"), Actor.api("apikey_x")],
    ids=lambda actor: actor.kind,
)
def test_writes_are_by_whom_the_handle_was_opened_for(
    target: str, workspace: str, store: Store, actor: Actor
) -> None:
    with holdfast.open(target, workspace=workspace, actor=actor) as hf:
        written(hf, store, "/d")

        assert hf.memory_stores.memory_versions.list(store.id).data[0].created_by == actor
