"""The contract of the wish to mine on each surface, and a wish that outlives its process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from contracts.longterm_extraction import Scripted, told
from contracts.longterm_items import items, memory_of
from contracts.longterm_vectors import SECONDS, until
from contracts.longterm_wishes import (
    FAR,
    TEA,
    LongTermWishContract,
    WishByNameContract,
    no_variables,
)
from memories.longterm.model_servers import model_server

import holdfast
from holdfast.ground.clock import SystemClock
from holdfast.ground.errors import NotPermitted
from holdfast.library.holdfast import Holdfast
from holdfast.library.longterm import mining_gauges
from holdfast.library.open import resume_work
from holdfast.library.upkeep.doctor import doctor
from holdfast.memories.longterm.background.wishes import tokens_left
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.postgres import TEMPLATE, PostgresServer
from holdfast.testing.serving import Shared, new_workspace, serving

__all__ = ["no_variables"]


class TestOnSQLite(LongTermWishContract):
    @pytest.fixture
    def clock(self) -> FrozenClock:
        return FrozenClock()

    @pytest.fixture
    def hf(self, sqlite_file: Path, clock: FrozenClock) -> Iterator[Holdfast]:
        with holdfast.open(sqlite_file, clock=clock) as hf:
            yield hf


class TestInMemory(TestOnSQLite):
    @pytest.fixture
    def hf(self, clock: FrozenClock) -> Iterator[Holdfast]:
        with holdfast.open(":memory:", clock=clock) as hf:
            yield hf


@pytest.fixture(scope="module")
def shared(postgres_server: PostgresServer) -> Iterator[Shared]:
    clock = FrozenClock()
    url = postgres_server.url(postgres_server.new_database(TEMPLATE))
    with holdfast.open(url, clock=clock) as hf:
        yield Shared(hf, clock)


class TestOnPostgres(LongTermWishContract):
    @pytest.fixture
    def clock(self, shared: Shared) -> FrozenClock:
        return shared.clock

    @pytest.fixture
    def hf(self, shared: Shared) -> Holdfast:
        return shared.hf.acting(workspace=new_workspace())


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    models = [FAR, "openai:near"]
    with (
        holdfast.open(":memory:") as local,
        serving(local, clock=SystemClock(), models=models) as url,
    ):
        yield url


class TestOverHTTP(WishByNameContract):
    @pytest.fixture
    def hf(self, url: str) -> Iterator[Holdfast]:
        with holdfast.open(url, workspace=new_workspace()) as hf:
            yield hf

    def test_a_model_that_the_server_does_not_allow_cannot_be_configured(
        self, hf: Holdfast
    ) -> None:
        with pytest.raises(NotPermitted):
            hf.longterm_data("ada").configure(extractor="openai:dear")

    def test_the_extractor_of_the_server_may_be_named(
        self, hf: Holdfast, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOLDFAST_LTM_EXTRACTOR", "openai:dear")

        status = hf.longterm_data("ada").configure(extractor="openai:dear")

        assert status.extractor == "openai:dear"


def test_a_wish_is_fulfilled_by_a_later_process_that_has_the_key(
    sqlite_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holdfast.open(sqlite_file) as hf:
        hf.longterm_data("ada").configure(extractor="ollama:tea")
        ltm = memory_of(hf, "ada", embedder=False)
        ltm.remember_conversation([{"role": "user", "content": "I like tea"}])
        assert ltm.status().extractor_state == "waiting"

    with model_server() as model, holdfast.open(sqlite_file) as hf:
        model.says = TEA
        monkeypatch.setenv("OLLAMA_BASE_URL", f"{model.url}/v1")
        ltm = memory_of(hf, "ada", embedder=False)
        assert ltm.flush(SECONDS).done
        assert items(ltm) == ["Ana likes tea"]
        assert ltm.status().extractor_state == "ready"


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, sqlite_file: Path) -> str:
    """Give a database of the test's own: the work of all its workspaces is resumed."""
    if request.param == "sqlite":
        return str(sqlite_file)
    return request.getfixturevalue("fresh_postgres_url")


def test_a_server_mines_for_every_collection_with_the_extractor_of_its_variable(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, workspace = FrozenClock(), new_workspace()
    with holdfast.open(target, workspace=workspace, clock=clock) as hf:
        ltm = memory_of(hf, "ada", embedder=False, extractor=Scripted(ValueError("x")))
        ltm.remember_conversation([{"role": "user", "content": "I like tea"}])
        until(lambda: ltm.status().extractor_state == "failing")
    clock.tick(60)

    with model_server() as model, holdfast.open(target, workspace=workspace, clock=clock) as hf:
        model.says = TEA
        assert resume_work(hf, clock.now()) == 0
        monkeypatch.setenv("OLLAMA_BASE_URL", f"{model.url}/v1")
        monkeypatch.setenv("HOLDFAST_LTM_EXTRACTOR", "ollama:tea")
        assert resume_work(hf, clock.now()) >= 1
        ltm = memory_of(hf, "ada", embedder=False)
        until(lambda: bool(items(ltm)))

        assert items(ltm) == ["Ana likes tea"]


def test_what_a_model_says_it_used_counts_against_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOLDFAST_LTM_EXTRACTOR_BUDGET", "1000000")
    with model_server() as model, holdfast.open(":memory:") as hf:
        model.says = TEA
        monkeypatch.setenv("OLLAMA_BASE_URL", f"{model.url}/v1")
        ltm = memory_of(hf, "ada", embedder=False, extractor="ollama:tea")
        told(ltm, "I like tea")

        left = tokens_left(ltm.context, ltm.context.engine)

    assert left == 1_000_000 - 2


def test_the_doctor_and_the_metrics_name_extractors_that_are_not_ready() -> None:
    with holdfast.open(":memory:") as hf:
        assert {each.name: each.ok for each in doctor(hf)}["long-term extractors"]
        hf.longterm_data("ada").configure(extractor=FAR)
        memory_of(hf, "ada").remember_conversation([{"role": "user", "content": "tea"}])

        check = next(each for each in doctor(hf) if each.name == "long-term extractors")
        gauges = mining_gauges(hf.engine, hf.longterm_shared)

    assert not check.ok
    assert f"is waiting ({FAR}: no key OPENAI_API_KEY)" in check.says
    assert gauges['extractor_state{state="waiting"}'] == 1
    assert gauges['jobs{kind="extract",state="waiting"}'] == 1
