"""The memory stores' contract when each call may reach another server than the one before."""

from contracts.access import SessionTokensContract
from contracts.changes import ChangesContract, SnapshotContract, WaitingContract
from contracts.edits import EditsContract, SavesContract
from contracts.lists import CursorsContract, ListingContract, StoreSettingsContract
from contracts.memories import ContentsContract, PreconditionsContract
from contracts.paths import DeleteUnderContract, ExclusivityContract, RenameContract, SearchContract
from contracts.sessions import AttachmentsContract
from contracts.stores import DeletedStoresContract
from contracts.suites import suites_of
from contracts.versions import RestoreContract

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
