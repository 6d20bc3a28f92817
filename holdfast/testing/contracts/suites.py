"""Which contracts must hold, wherever memories are kept."""

from collections.abc import Iterable
from typing import Final

from holdfast.testing.contracts.agents import AgentsContract, EnvironmentsContract
from holdfast.testing.contracts.attachments import (
    AttachmentsContract,
    MountPathsContract,
    NotesContract,
)
from holdfast.testing.contracts.changes import ChangesContract, SnapshotContract
from holdfast.testing.contracts.contents import ContentsContract
from holdfast.testing.contracts.durable_eviction import DurableEvictionContract
from holdfast.testing.contracts.durable_expiry import DurableExpiryContract, DurableOrderContract
from holdfast.testing.contracts.durable_forgetting import (
    DurableForgettingContract,
    DurableForgottenAgentContract,
    DurableRevivalContract,
)
from holdfast.testing.contracts.durable_history import (
    DurableHistoryContract,
    DurableRedactionContract,
)
from holdfast.testing.contracts.durable_hydration import (
    DurableExplanationsContract,
    DurableHydrationContract,
)
from holdfast.testing.contracts.durable_limits import DurableLimitsContract
from holdfast.testing.contracts.durable_many import DurableManyContract
from holdfast.testing.contracts.durable_promoting import DurablePromotingContract
from holdfast.testing.contracts.durable_reading import DurableListingContract, DurablePagesContract
from holdfast.testing.contracts.durable_runs import (
    DurableCaptureContract,
    DurableConversationsContract,
    DurableRunsContract,
)
from holdfast.testing.contracts.durable_scopes import DurableScopesContract
from holdfast.testing.contracts.durable_texts import DurableCategoriesContract, DurableTextsContract
from holdfast.testing.contracts.durable_writing import (
    DurablePreconditionsContract,
    DurableReplaysContract,
    DurableWritingContract,
)
from holdfast.testing.contracts.edits import EditsContract, SavesContract
from holdfast.testing.contracts.edits_once import OnceContract, RefusedEditsContract
from holdfast.testing.contracts.events import EventsContract
from holdfast.testing.contracts.keys import KeysContract
from holdfast.testing.contracts.listing import CursorsContract, ListingContract
from holdfast.testing.contracts.longterm_caps import LongTermCapsContract
from holdfast.testing.contracts.longterm_conversing import LongTermConversationContract
from holdfast.testing.contracts.longterm_events import LongTermEventsContract
from holdfast.testing.contracts.longterm_forgetting import LongTermForgettingContract
from holdfast.testing.contracts.longterm_listing import (
    LongTermExportContract,
    LongTermListingContract,
)
from holdfast.testing.contracts.longterm_recalling import (
    LongTermMarksContract,
    LongTermOptionsContract,
    LongTermRecallingContract,
)
from holdfast.testing.contracts.longterm_recording import LongTermRecordingContract
from holdfast.testing.contracts.longterm_remembering import (
    LongTermChangingContract,
    LongTermDuplicatesContract,
    LongTermRememberingContract,
)
from holdfast.testing.contracts.longterm_scopes import (
    LongTermScopesContract,
    LongTermSwitchContract,
)
from holdfast.testing.contracts.memories import DeletedMemoriesContract, MemoriesContract
from holdfast.testing.contracts.moves import DeleteUnderContract, RenameContract
from holdfast.testing.contracts.narrowing import NarrowingContract, SessionTokensContract
from holdfast.testing.contracts.network_runs import NetworkRunsContract
from holdfast.testing.contracts.order import OrderContract
from holdfast.testing.contracts.paths import ExclusivityContract, PathsContract
from holdfast.testing.contracts.redaction import RedactionContract
from holdfast.testing.contracts.run_filters import (
    RunFiltersContract,
    RunRenderingContract,
    RunRestoringContract,
)
from holdfast.testing.contracts.run_listeners import (
    RunEventsContract,
    RunListenersContract,
    RunWaitingContract,
)
from holdfast.testing.contracts.run_memory import (
    RunKeysContract,
    RunLimitsContract,
    RunValuesContract,
    RunWritingContract,
)
from holdfast.testing.contracts.run_records import (
    RunRecordEntriesContract,
    RunRecordEventsContract,
)
from holdfast.testing.contracts.run_tool_lists import RunListToolContract
from holdfast.testing.contracts.run_tool_reads import RunPiecesContract, RunReadToolContract
from holdfast.testing.contracts.run_tools import (
    RunPromptContract,
    RunToolsContract,
    RunWriteToolContract,
)
from holdfast.testing.contracts.runs import RunControlContract, RunsContract
from holdfast.testing.contracts.saved_runs import SavedRunsContract
from holdfast.testing.contracts.search import SearchContract
from holdfast.testing.contracts.sessions import SessionListsContract, SessionsContract
from holdfast.testing.contracts.shapes import ShapesContract
from holdfast.testing.contracts.store_ends import ArchivedStoresContract, DeletedStoresContract
from holdfast.testing.contracts.store_lists import StoreListsContract, StoreSettingsContract
from holdfast.testing.contracts.stores import StoresContract, StoreUpdatesContract
from holdfast.testing.contracts.threads import ThreadsContract, ThreadTurnsContract
from holdfast.testing.contracts.threads_forgetting import ThreadForgettingContract
from holdfast.testing.contracts.updates import MemoryUpdatesContract, PreconditionsContract
from holdfast.testing.contracts.version_history import DiffContract, RestoreContract
from holdfast.testing.contracts.versions import VersionsContract
from holdfast.testing.contracts.waiting import WaitingContract
from holdfast.testing.contracts.workspaces import WorkspacesContract

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
