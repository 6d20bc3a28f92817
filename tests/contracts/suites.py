"""Which contracts must hold, wherever memories are kept."""

from collections.abc import Iterable
from typing import Final

from contracts.access import (
    KeysContract,
    NarrowingContract,
    SessionTokensContract,
    ShapesContract,
    WorkspacesContract,
)
from contracts.changes import ChangesContract, EventsContract, SnapshotContract, WaitingContract
from contracts.durable_forget import (
    DurableExpiryContract,
    DurableForgettingContract,
    DurableForgottenAgentContract,
    DurableOrderContract,
    DurableRevivalContract,
)
from contracts.durable_limits import (
    DurableCategoriesContract,
    DurableEvictionContract,
    DurableLimitsContract,
    DurableTextsContract,
)
from contracts.durable_reads import (
    DurableExplanationsContract,
    DurableHydrationContract,
    DurableListingContract,
    DurablePagesContract,
    DurableScopesContract,
)
from contracts.durable_runs import (
    DurableCaptureContract,
    DurableConversationsContract,
    DurableHistoryContract,
    DurableRedactionContract,
    DurableRunsContract,
)
from contracts.durable_writes import (
    DurableManyContract,
    DurablePreconditionsContract,
    DurablePromotingContract,
    DurableReplaysContract,
    DurableWritingContract,
)
from contracts.edits import EditsContract, OnceContract, RefusedEditsContract, SavesContract
from contracts.lists import (
    CursorsContract,
    ListingContract,
    StoreListsContract,
    StoreSettingsContract,
)
from contracts.longterm_items import (
    LongTermCapsContract,
    LongTermChangingContract,
    LongTermDuplicatesContract,
    LongTermForgettingContract,
    LongTermRememberingContract,
)
from contracts.longterm_reads import (
    LongTermEventsContract,
    LongTermExportContract,
    LongTermListingContract,
    LongTermScopesContract,
    LongTermSwitchContract,
)
from contracts.longterm_recall import (
    LongTermConversationContract,
    LongTermMarksContract,
    LongTermOptionsContract,
    LongTermRecallingContract,
    LongTermRecordingContract,
)
from contracts.memories import (
    ContentsContract,
    DeletedMemoriesContract,
    MemoriesContract,
    MemoryUpdatesContract,
    PreconditionsContract,
)
from contracts.paths import (
    DeleteUnderContract,
    ExclusivityContract,
    PathsContract,
    RenameContract,
    SearchContract,
)
from contracts.run_memory import (
    RunKeysContract,
    RunLimitsContract,
    RunValuesContract,
    RunWritingContract,
)
from contracts.run_reads import (
    RunEventsContract,
    RunFiltersContract,
    RunListenersContract,
    RunRenderingContract,
    RunRestoringContract,
    RunWaitingContract,
)
from contracts.run_records import (
    RunRecordEntriesContract,
    RunRecordEventsContract,
)
from contracts.run_tool_reads import RunPiecesContract, RunReadToolContract
from contracts.run_tools import (
    RunListToolContract,
    RunPromptContract,
    RunToolsContract,
    RunWriteToolContract,
)
from contracts.runs import RunControlContract, RunsContract, SavedRunsContract
from contracts.sessions import (
    AgentsContract,
    AttachmentsContract,
    EnvironmentsContract,
    MountPathsContract,
    NotesContract,
    SessionListsContract,
    SessionsContract,
)
from contracts.stores import (
    ArchivedStoresContract,
    DeletedStoresContract,
    OrderContract,
    StoresContract,
    StoreUpdatesContract,
)
from contracts.threads import (
    NetworkRunsContract,
    ThreadForgettingContract,
    ThreadsContract,
    ThreadTurnsContract,
)
from contracts.versions import DiffContract, RedactionContract, RestoreContract, VersionsContract

STORES: Final = (
    AgentsContract,
    ArchivedStoresContract,
    AttachmentsContract,
    ChangesContract,
    ContentsContract,
    CursorsContract,
    DeleteUnderContract,
    DeletedMemoriesContract,
    DeletedStoresContract,
    DiffContract,
    EditsContract,
    EnvironmentsContract,
    EventsContract,
    ExclusivityContract,
    KeysContract,
    ListingContract,
    MemoriesContract,
    MemoryUpdatesContract,
    MountPathsContract,
    NarrowingContract,
    NotesContract,
    OnceContract,
    OrderContract,
    PathsContract,
    PreconditionsContract,
    RedactionContract,
    RefusedEditsContract,
    RenameContract,
    RestoreContract,
    SavesContract,
    SearchContract,
    SessionListsContract,
    SessionTokensContract,
    SessionsContract,
    ShapesContract,
    SnapshotContract,
    StoreListsContract,
    StoreSettingsContract,
    StoreUpdatesContract,
    StoresContract,
    VersionsContract,
    WaitingContract,
    WorkspacesContract,
)
"""Of memory stores, sessions and keys."""

DURABLE: Final = (
    DurableCaptureContract,
    DurableCategoriesContract,
    DurableConversationsContract,
    DurableEvictionContract,
    DurableExpiryContract,
    DurableExplanationsContract,
    DurableForgettingContract,
    DurableForgottenAgentContract,
    DurableHistoryContract,
    DurableHydrationContract,
    DurableLimitsContract,
    DurableListingContract,
    DurableManyContract,
    DurableOrderContract,
    DurablePagesContract,
    DurablePreconditionsContract,
    DurablePromotingContract,
    DurableRedactionContract,
    DurableReplaysContract,
    DurableRevivalContract,
    DurableRunsContract,
    DurableScopesContract,
    DurableTextsContract,
    DurableWritingContract,
)
"""Of durable memory."""

LONGTERM: Final = (
    LongTermCapsContract,
    LongTermChangingContract,
    LongTermConversationContract,
    LongTermDuplicatesContract,
    LongTermEventsContract,
    LongTermExportContract,
    LongTermForgettingContract,
    LongTermListingContract,
    LongTermMarksContract,
    LongTermOptionsContract,
    LongTermRecallingContract,
    LongTermRecordingContract,
    LongTermRememberingContract,
    LongTermScopesContract,
    LongTermSwitchContract,
)
"""Of long-term memory."""


THREADS: Final = (
    NetworkRunsContract,
    ThreadForgettingContract,
    ThreadTurnsContract,
    ThreadsContract,
)
"""Of threads, and of the records of runs."""


RUN_MEMORY: Final = (
    RunEventsContract,
    RunFiltersContract,
    RunKeysContract,
    RunLimitsContract,
    RunListToolContract,
    RunListenersContract,
    RunPiecesContract,
    RunPromptContract,
    RunReadToolContract,
    RunRenderingContract,
    RunRestoringContract,
    RunToolsContract,
    RunValuesContract,
    RunWaitingContract,
    RunWriteToolContract,
    RunWritingContract,
)
"""Of run memory and its tools."""


RUNS: Final = (
    RunControlContract,
    RunRecordEntriesContract,
    RunRecordEventsContract,
    RunsContract,
    SavedRunsContract,
)
"""Of records of runs."""


def suites_of(contracts: Iterable[type]) -> dict[str, type]:
    """Return a class of tests for each contract, for a module's `globals()`.

    Each is a class of its own, so that it runs with the fixtures of the module that holds it.
    """
    named = {f"Test{each.__name__.removesuffix('Contract')}": each for each in contracts}
    return {name: type(name, (each,), {"__doc__": each.__doc__}) for name, each in named.items()}
