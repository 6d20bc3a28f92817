"""The contract of mining on each engine, and extractors that are models."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from contracts.longterm_extraction import LongTermMiningContract, Scripted, told
from contracts.longterm_items import items, memory_of
from contracts.longterm_vectors import SECONDS
from memories.longterm.model_servers import model_server
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.records import LongTermOptions
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.postgres import TEMPLATE, PostgresServer
from holdfast.testing.serving import Shared, new_workspace


class TestOnSQLite(LongTermMiningContract):
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


class TestOnPostgres(LongTermMiningContract):
    @pytest.fixture
    def clock(self, shared: Shared) -> FrozenClock:
        return shared.clock

    @pytest.fixture
    def hf(self, shared: Shared) -> Holdfast:
        return shared.hf.acting(workspace=new_workspace())


def test_a_model_of_pydantic_ai_extracts() -> None:
    seen: list[tuple[str | None, str]] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append((info.instructions, repr(messages)))
        return ModelResponse(parts=[TextPart('{"items": [{"text": "Ana likes tea"}]}')])

    with holdfast.open(":memory:") as hf:
        ltm = memory_of(hf, "ada", extractor=FunctionModel(answer))
        told(ltm, "I like <tea>")

        assert items(ltm) == ["Ana likes tea"]
        assert "worth knowing" in str(seen[0][0])
        assert "[t1] user: I like &lt;tea&gt;" in seen[0][1]


def test_a_model_by_its_name_extracts_with_the_users_own_key() -> None:
    with model_server() as server, holdfast.open(":memory:") as hf:
        server.says = '{"items": [{"text": "Ana likes tea"}]}'
        keys = {"OPENAI_API_KEY": "ada's", "OPENAI_BASE_URL": f"{server.url}/v1"}
        options = LongTermOptions(credentials=lambda user, name: keys.get(name) if user else None)
        ltm = memory_of(hf, "ada", extractor="openai-chat:gpt", embedder=False, options=options)

        assert ltm.status().reason is not None or told(ltm, "I like tea").done

        ltm = memory_of(hf, "ada", extractor="openai:gpt", embedder=False, options=options)
        told(ltm, "I like cake")

        assert items(ltm) == ["Ana likes tea"]
        assert {asked.headers["authorization"] for asked in server.asked} == {"Bearer ada's"}


def test_a_model_without_a_key_mines_nothing_and_says_why() -> None:
    with holdfast.open(":memory:") as hf:
        options = LongTermOptions(credentials=lambda _user, _name: None)
        heard: list[object] = []
        hf.events.subscribe(heard.append, types=["longterm.degraded"])
        ltm = memory_of(hf, "ada", extractor="openai:gpt", options=options)

        assert ltm.remember_conversation([{"role": "user", "content": "tea"}]).queued is False
        assert "openai:gpt needs OPENAI_API_KEY" in repr(heard)


def test_closing_waits_for_what_is_under_way(sqlite_file: Path) -> None:
    with holdfast.open(sqlite_file) as hf:
        ltm = memory_of(hf, "ada", extractor=Scripted('[{"text": "Ana likes tea"}]'))
        ltm.remember_conversation([{"role": "user", "content": "I like tea"}])

    with holdfast.open(sqlite_file) as hf:
        again = memory_of(hf, "ada", extractor=Scripted())
        assert again.flush(SECONDS).pending == 0
        assert items(again) == ["Ana likes tea"]
