"""The contract of mining on each engine, model extractors, and killed processes."""

import signal
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from contracts.longterm_extraction import LongTermMiningContract, Scripted, told
from contracts.longterm_items import items, memory_of
from contracts.longterm_vectors import SECONDS, until
from fork_server import ForkedProcess, forked_script
from memories.longterm.model_servers import model_server
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.library.open import resume_work
from holdfast.memories.longterm.memory import LongTermMemory
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

        assert ltm.status().extractor_reason == "openai-chat:gpt: no key OPENAI_CHAT_API_KEY"

        ltm = memory_of(hf, "ada", extractor="openai:gpt", embedder=False, options=options)
        told(ltm, "I like tea")

        assert items(ltm) == ["Ana likes tea"]
        assert {asked.headers["authorization"] for asked in server.asked} == {"Bearer ada's"}


def test_a_model_without_a_key_waits_and_says_why() -> None:
    with holdfast.open(":memory:") as hf:
        options = LongTermOptions(credentials=lambda _user, _name: None)
        events: list[object] = []
        hf.events.subscribe(events.append, types=["longterm.extraction_waiting"])
        ltm = memory_of(hf, "ada", extractor="openai:gpt", options=options)

        assert ltm.remember_conversation([{"role": "user", "content": "tea"}]).queued is True
        until(lambda: bool(events))
        status = ltm.status()
        assert (status.extractor, status.extractor_state) == ("openai:gpt", "waiting")
        assert status.extractor_reason == "openai:gpt: no key OPENAI_API_KEY"
        assert status.pending_extraction == 1
        assert ltm.flush(SECONDS).pending == 1
        assert "openai:gpt: no key OPENAI_API_KEY" in repr(events)


def test_closing_waits_for_what_is_under_way(sqlite_file: Path) -> None:
    with holdfast.open(sqlite_file) as hf:
        ltm = memory_of(hf, "ada", extractor=Scripted('[{"text": "Ana likes tea"}]'))
        ltm.remember_conversation([{"role": "user", "content": "I like tea"}])

    with holdfast.open(sqlite_file) as hf:
        again = memory_of(hf, "ada", extractor=Scripted())
        assert again.flush(SECONDS).pending == 0
        assert items(again) == ["Ana likes tea"]


MINER = Path(__file__).with_name("miner.py")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.touch()
    return path


def miner(
    database: Path, log: Path, how: str, *, thread: str = "Ana", count: int = 1
) -> "subprocess.Popen[str]":
    arguments = (str(database), str(log), how, thread, str(count))
    return ForkedProcess(forked_script(MINER, *arguments), stdout=subprocess.PIPE, text=True)


@contextmanager
def later(database: Path, *answers: str) -> Generator[LongTermMemory]:
    """Give the memory in another process's time: when a lease taken now is over."""
    clock = FrozenClock(datetime.now(UTC) + timedelta(seconds=7))
    with holdfast.open(database, clock=clock) as hf:
        yield memory_of(hf, "ada", embedder=False, extractor=Scripted(*answers))


def test_killed_while_it_waits_for_an_answer(sqlite_file: Path, log: Path) -> None:
    with miner(sqlite_file, log, "waits") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "asked\n"
        process.kill()

    with later(sqlite_file, '[{"text": "Ana planted 0 trees"}]') as ltm:
        assert [each.outcome for each in ltm.flush(SECONDS).results] == ["stored"]
        assert items(ltm) == ["Ana planted 0 trees"]


def test_killed_before_it_keeps_what_it_was_answered(sqlite_file: Path, log: Path) -> None:
    with miner(sqlite_file, log, "dies") as process:
        assert process.wait(SECONDS) == -signal.SIGKILL

    with later(sqlite_file, '[{"text": "Ana planted 0 trees"}]') as ltm:
        assert ltm.flush(SECONDS).pending == 0
        assert items(ltm) == ["Ana planted 0 trees"]


def test_killed_when_all_is_mined(sqlite_file: Path, log: Path) -> None:
    with miner(sqlite_file, log, "kills", count=3) as process:
        assert process.wait(SECONDS) == -signal.SIGKILL

    with later(sqlite_file, '[{"text": "Ana is mined again"}]') as ltm:
        assert ltm.flush(SECONDS).results == ()
        assert len(items(ltm)) == 3


def test_two_processes_on_one_queue_mine_each_turn_once(sqlite_file: Path, log: Path) -> None:
    holdfast.open(sqlite_file).close()
    with (
        miner(sqlite_file, log, "ends", thread="Ana", count=12) as one,
        miner(sqlite_file, log, "ends", thread="Bob", count=12) as other,
    ):
        assert (one.wait(60), other.wait(60)) == (0, 0)

    said = [f"{who} planted {number} trees" for who in ("Ana", "Bob") for number in range(12)]
    assert sorted(log.read_text().splitlines()) == sorted(said)
    with later(sqlite_file) as ltm:
        assert ltm.status().pending_extraction == 0
        assert sorted(items(ltm)) == sorted(said)


def test_a_server_takes_up_what_a_killed_process_was_mining(
    sqlite_file: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with miner(sqlite_file, log, "named") as process:
        assert process.wait(SECONDS) == -signal.SIGKILL
    late = FrozenClock(datetime.now(UTC) + timedelta(seconds=7))

    with model_server() as model, holdfast.open(sqlite_file, clock=late) as hf:
        model.says = '[{"text": "Ana planted 0 trees"}]'
        monkeypatch.setenv("OLLAMA_BASE_URL", f"{model.url}/v1")
        assert resume_work(hf, late.now()) == 1
        until(lambda: bool(items(memory_of(hf, "ada", embedder=False))))

        assert items(memory_of(hf, "ada", embedder=False)) == ["Ana planted 0 trees"]
        assert resume_work(hf, late.now()) == 0


def test_what_only_a_function_can_mine_is_left_to_whoever_has_it(
    sqlite_file: Path, log: Path
) -> None:
    with miner(sqlite_file, log, "dies") as process:
        assert process.wait(SECONDS) == -signal.SIGKILL
    late = FrozenClock(datetime.now(UTC) + timedelta(seconds=7))

    with holdfast.open(sqlite_file, clock=late) as hf:
        assert resume_work(hf, late.now()) == 0
        assert memory_of(hf, "ada", embedder=False).status().pending_extraction == 1
