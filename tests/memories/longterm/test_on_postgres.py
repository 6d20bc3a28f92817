"""The contract of long-term memory on PostgreSQL, each test in a workspace of its own."""

from collections.abc import Iterator

import pytest

import holdfast
from holdfast.library.holdfast import Holdfast
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


class TestCaps(LongTermCapsContract):
    pass


class TestConversation(LongTermConversationContract):
    pass


class TestEvents(LongTermEventsContract):
    pass


class TestForgetting(LongTermForgettingContract):
    pass


class TestExport(LongTermExportContract):
    pass


class TestListing(LongTermListingContract):
    pass


class TestMarks(LongTermMarksContract):
    pass


class TestOptions(LongTermOptionsContract):
    pass


class TestRecalling(LongTermRecallingContract):
    pass


class TestRecording(LongTermRecordingContract):
    pass


class TestChanging(LongTermChangingContract):
    pass


class TestDuplicates(LongTermDuplicatesContract):
    pass


class TestRemembering(LongTermRememberingContract):
    pass


class TestScopes(LongTermScopesContract):
    pass


class TestSwitch(LongTermSwitchContract):
    pass
