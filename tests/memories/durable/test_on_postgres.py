"""The contract of durable memory on PostgreSQL, each test in a workspace of its own."""

from collections.abc import Iterator

import pytest

import holdfast
from holdfast.library.holdfast import Holdfast
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


class TestEviction(DurableEvictionContract):
    pass


class TestOrder(DurableOrderContract):
    pass


class TestExpiry(DurableExpiryContract):
    pass


class TestForgetting(DurableForgettingContract):
    pass


class TestRevival(DurableRevivalContract):
    pass


class TestForgottenAgent(DurableForgottenAgentContract):
    pass


class TestHistory(DurableHistoryContract):
    pass


class TestRedaction(DurableRedactionContract):
    pass


class TestHydration(DurableHydrationContract):
    pass


class TestExplanations(DurableExplanationsContract):
    pass


class TestLimits(DurableLimitsContract):
    pass


class TestMany(DurableManyContract):
    pass


class TestListing(DurableListingContract):
    pass


class TestPages(DurablePagesContract):
    pass


class TestRuns(DurableRunsContract):
    pass


class TestConversations(DurableConversationsContract):
    pass


class TestCapture(DurableCaptureContract):
    pass


class TestScopes(DurableScopesContract):
    pass


class TestTexts(DurableTextsContract):
    pass


class TestCategories(DurableCategoriesContract):
    pass


class TestWriting(DurableWritingContract):
    pass


class TestPreconditions(DurablePreconditionsContract):
    pass


class TestReplays(DurableReplaysContract):
    pass
