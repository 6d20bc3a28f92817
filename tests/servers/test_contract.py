"""The memory stores' contract when each call may reach another server than the one before."""

from holdfast.testing.contracts.attachments import AttachmentsContract
from holdfast.testing.contracts.changes import ChangesContract, SnapshotContract
from holdfast.testing.contracts.contents import ContentsContract
from holdfast.testing.contracts.edits import EditsContract, SavesContract
from holdfast.testing.contracts.history import RestoreContract
from holdfast.testing.contracts.listing import CursorsContract, ListingContract
from holdfast.testing.contracts.moves import DeleteUnderContract, RenameContract
from holdfast.testing.contracts.narrowing import SessionTokensContract
from holdfast.testing.contracts.paths import ExclusivityContract
from holdfast.testing.contracts.search import SearchContract
from holdfast.testing.contracts.store_ends import DeletedStoresContract
from holdfast.testing.contracts.store_lists import StoreSettingsContract
from holdfast.testing.contracts.updates import PreconditionsContract
from holdfast.testing.contracts.waiting import WaitingContract


class TestAttachments(AttachmentsContract):
    pass


class TestContents(ContentsContract):
    pass


class TestCursors(CursorsContract):
    pass


class TestDeletedStores(DeletedStoresContract):
    pass


class TestDeleteUnder(DeleteUnderContract):
    pass


class TestExclusivity(ExclusivityContract):
    pass


class TestListing(ListingContract):
    pass


class TestPreconditions(PreconditionsContract):
    pass


class TestRename(RenameContract):
    pass


class TestRestore(RestoreContract):
    pass


class TestSearch(SearchContract):
    pass


class TestSessionTokens(SessionTokensContract):
    pass


class TestStoreSettings(StoreSettingsContract):
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
