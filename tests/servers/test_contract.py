"""The memory stores' contract when each call may reach another server than the one before."""

import os

import pytest
from contracts.access import SessionTokensContract
from contracts.changes import ChangesContract, SnapshotContract, WaitingContract
from contracts.edits import EditsContract, SavesContract
from contracts.lists import CursorsContract, ListingContract, StoreSettingsContract
from contracts.memories import ContentsContract, PreconditionsContract
from contracts.paths import DeleteUnderContract, ExclusivityContract, RenameContract, SearchContract
from contracts.sessions import AttachmentsContract
from contracts.stores import DeletedStoresContract
from contracts.versions import RestoreContract

TARGETS = ["on_postgres", *(["on_sqlite"] if os.environ.get("HOLDFAST_ALL_SURFACES") else [])]


@pytest.fixture(params=TARGETS)
def urls(request: pytest.FixtureRequest) -> list[str]:
    return request.getfixturevalue(request.param)


class TestAttachments(AttachmentsContract): ...


class TestChanges(ChangesContract): ...


class TestContents(ContentsContract): ...


class TestCursors(CursorsContract): ...


class TestDeleteUnder(DeleteUnderContract): ...


class TestDeletedStores(DeletedStoresContract): ...


class TestEdits(EditsContract): ...


class TestExclusivity(ExclusivityContract): ...


class TestListing(ListingContract): ...


class TestPreconditions(PreconditionsContract): ...


class TestRename(RenameContract): ...


class TestRestore(RestoreContract): ...


class TestSaves(SavesContract): ...


class TestSearch(SearchContract): ...


class TestSessionTokens(SessionTokensContract): ...


class TestSnapshot(SnapshotContract): ...


class TestStoreSettings(StoreSettingsContract): ...


class TestWaiting(WaitingContract): ...
