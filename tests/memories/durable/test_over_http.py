"""The contract of durable memory through the HTTP door and the client for it."""

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
from holdfast.testing.serving import serving
from holdfast.testing.shared import Server, new_workspace


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serve a file of these tests' own, for they let years pass."""
    clock = FrozenClock()
    path = tmp_path_factory.mktemp("served") / "h.db"
    with holdfast.open(path, clock=clock) as hf, serving(hf, clock=clock) as url:
        yield Server(url, hf, clock)


@pytest.fixture
def hf(server: Server) -> Iterator[Holdfast]:
    with holdfast.open(server.url, workspace=new_workspace()) as hf:
        yield hf


@pytest.fixture
def clock(server: Server) -> FrozenClock:
    return server.clock


@pytest.fixture
def elsewhere(server: Server) -> Iterator[Holdfast]:
    with holdfast.open(server.url, workspace=new_workspace()) as hf:
        yield hf


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
