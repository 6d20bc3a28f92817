"""The memory stores' contract on PostgreSQL, each test in a workspace of its own."""

from collections.abc import Iterator

import pytest

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.testing.contracts.agents import AgentsContract, EnvironmentsContract
from holdfast.testing.contracts.attachments import (
    AttachmentsContract,
    MountPathsContract,
    NotesContract,
)
from holdfast.testing.contracts.changes import ChangesContract, SnapshotContract
from holdfast.testing.contracts.contents import ContentsContract
from holdfast.testing.contracts.edits import EditsContract, SavesContract
from holdfast.testing.contracts.edits_once import OnceContract, RefusedEditsContract
from holdfast.testing.contracts.events import EventsContract
from holdfast.testing.contracts.history import DiffContract, RestoreContract
from holdfast.testing.contracts.keys import KeysContract
from holdfast.testing.contracts.listing import CursorsContract, ListingContract
from holdfast.testing.contracts.memories import DeletedMemoriesContract, MemoriesContract
from holdfast.testing.contracts.moves import DeleteUnderContract, RenameContract
from holdfast.testing.contracts.narrowing import NarrowingContract, SessionTokensContract
from holdfast.testing.contracts.order import OrderContract
from holdfast.testing.contracts.paths import ExclusivityContract, PathsContract
from holdfast.testing.contracts.redaction import RedactionContract
from holdfast.testing.contracts.search import SearchContract
from holdfast.testing.contracts.sessions import SessionListsContract, SessionsContract
from holdfast.testing.contracts.shapes import ShapesContract
from holdfast.testing.contracts.store_ends import ArchivedStoresContract, DeletedStoresContract
from holdfast.testing.contracts.store_lists import StoreListsContract, StoreSettingsContract
from holdfast.testing.contracts.stores import StoresContract, StoreUpdatesContract
from holdfast.testing.contracts.updates import MemoryUpdatesContract, PreconditionsContract
from holdfast.testing.contracts.versions import VersionsContract
from holdfast.testing.contracts.waiting import WaitingContract
from holdfast.testing.contracts.workspaces import WorkspacesContract
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.postgres import TEMPLATE, PostgresServer
from holdfast.testing.shared import Shared, new_workspace


@pytest.fixture(scope="module")
def shared(postgres_server: PostgresServer) -> Iterator[Shared]:
    clock = FrozenClock()
    url = postgres_server.url(postgres_server.new_database(TEMPLATE))
    with holdfast.open(url, clock=clock) as hf:
        yield Shared(hf, clock)


@pytest.fixture
def clock(shared: Shared) -> FrozenClock:
    return shared.clock


@pytest.fixture
def hf(shared: Shared) -> Holdfast:
    return shared.hf.acting(workspace=new_workspace())


@pytest.fixture
def elsewhere(shared: Shared) -> Holdfast:
    return shared.hf.acting(workspace=new_workspace())


class TestAgents(AgentsContract):
    pass


class TestEnvironments(EnvironmentsContract):
    pass


class TestAttachments(AttachmentsContract):
    pass


class TestMountPaths(MountPathsContract):
    pass


class TestNotes(NotesContract):
    pass


class TestContents(ContentsContract):
    pass


class TestEvents(EventsContract):
    pass


class TestDiff(DiffContract):
    pass


class TestRestore(RestoreContract):
    pass


class TestKeys(KeysContract):
    pass


class TestCursors(CursorsContract):
    pass


class TestListing(ListingContract):
    pass


class TestDeletedMemories(DeletedMemoriesContract):
    pass


class TestMemories(MemoriesContract):
    pass


class TestDeleteUnder(DeleteUnderContract):
    pass


class TestRename(RenameContract):
    pass


class TestNarrowing(NarrowingContract):
    pass


class TestSessionTokens(SessionTokensContract):
    pass


class TestExclusivity(ExclusivityContract):
    pass


class TestOrder(OrderContract):
    pass


class TestPaths(PathsContract):
    pass


class TestRedaction(RedactionContract):
    pass


class TestSearch(SearchContract):
    pass


class TestSessionLists(SessionListsContract):
    pass


class TestSessions(SessionsContract):
    pass


class TestShapes(ShapesContract):
    pass


class TestArchivedStores(ArchivedStoresContract):
    pass


class TestDeletedStores(DeletedStoresContract):
    pass


class TestStoreLists(StoreListsContract):
    pass


class TestStoreSettings(StoreSettingsContract):
    pass


class TestStores(StoresContract):
    pass


class TestStoreUpdates(StoreUpdatesContract):
    pass


class TestMemoryUpdates(MemoryUpdatesContract):
    pass


class TestPreconditions(PreconditionsContract):
    pass


class TestVersions(VersionsContract):
    pass


class TestWorkspaces(WorkspacesContract):
    pass


class TestSnapshot(SnapshotContract):
    pass


class TestChanges(ChangesContract):
    pass


class TestWaiting(WaitingContract):
    pass


class TestSaves(SavesContract):
    pass


class TestEdits(EditsContract):
    pass


class TestEditsOnce(OnceContract):
    pass


class TestRefusedEdits(RefusedEditsContract):
    pass
