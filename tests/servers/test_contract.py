"""The memory stores' contract when each call may reach another server than the one before."""

from holdfast.testing.contracts.attachments import AttachmentsContract
from holdfast.testing.contracts.changes import ChangesContract, SnapshotContract
from holdfast.testing.contracts.contents import ContentsContract
from holdfast.testing.contracts.edits import EditsContract, SavesContract
from holdfast.testing.contracts.listing import CursorsContract, ListingContract
from holdfast.testing.contracts.moves import DeleteUnderContract, RenameContract
from holdfast.testing.contracts.narrowing import SessionTokensContract
from holdfast.testing.contracts.paths import ExclusivityContract
from holdfast.testing.contracts.search import SearchContract
from holdfast.testing.contracts.store_ends import DeletedStoresContract
from holdfast.testing.contracts.store_lists import StoreSettingsContract
from holdfast.testing.contracts.suites import suites_of
from holdfast.testing.contracts.updates import PreconditionsContract
from holdfast.testing.contracts.version_history import RestoreContract
from holdfast.testing.contracts.waiting import WaitingContract

WRITTEN = (
    AttachmentsContract,
    ChangesContract,
    ContentsContract,
    CursorsContract,
    DeleteUnderContract,
    DeletedStoresContract,
    EditsContract,
    ExclusivityContract,
    ListingContract,
    PreconditionsContract,
    RenameContract,
    RestoreContract,
    SavesContract,
    SearchContract,
    SessionTokensContract,
    SnapshotContract,
    StoreSettingsContract,
    WaitingContract,
)

globals().update(suites_of(WRITTEN))
