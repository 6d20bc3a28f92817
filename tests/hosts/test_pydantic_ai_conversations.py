"""Conversations of pydantic-ai in threads, beside the host's own store of conversations."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import pytest
from hosts.pydantic_ai_script import as_json, holding
from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict, InMemoryConversationStore
from pydantic_ai.messages import (
    BinaryImage,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RequestUsage

import holdfast
from holdfast.doors.adapters.conversation import HostConversation
from holdfast.doors.adapters.pydantic_ai import Conversations
from holdfast.errors import Conflict, InvalidInput, ScopeDenied
from holdfast.library.holdfast import Holdfast

pytestmark = pytest.mark.anyio

WAIT = 60
OURS = ("memory", "postgres", "http")
ours_alone = pytest.mark.parametrize("target", OURS, indirect=True)
differs = pytest.mark.differs


class Store(Protocol):
    """What the cases call: ours, and the host's own store in the same three calls."""

    async def load(self, id: str) -> list[ModelMessage]: ...

    async def save(self, id: str, messages: Sequence[ModelMessage]) -> None: ...

    async def delete(self, id: str) -> None: ...


class HostStore:
    """The host's own store, by the messages of its conversations."""

    def __init__(self) -> None:
        self._store = InMemoryConversationStore()

    async def load(self, id: str) -> list[ModelMessage]:
        found = await self._store.load(id)
        return [] if found is None else found.messages

    async def save(self, id: str, messages: Sequence[ModelMessage]) -> None:
        found = await self._store.load(id)
        revision = None if found is None else found.revision
        given = Conversation(messages=list(messages), conversation_id=id, revision=revision)
        try:
            await self._store.save(given)
        except ConversationConflict as error:
            raise Conflict(str(error)) from error

    async def delete(self, id: str) -> None:
        await self._store.delete(id)


@pytest.fixture(params=[*OURS, "InMemoryConversationStore"])
def target(request: pytest.FixtureRequest) -> str:
    """Name what the conversations are on: our handles, or the host's own store."""
    return request.param


@pytest.fixture
def store(request: pytest.FixtureRequest, target: str) -> Iterator[Store]:
    for marker in request.node.iter_markers("differs"):
        if marker.args[0] == target:
            request.applymarker(pytest.mark.xfail(reason=marker.args[1], strict=True))
    if target == "InMemoryConversationStore":
        yield HostStore()
    else:
        yield Conversations(request.getfixturevalue("hf"))


AT = datetime(2026, 11, 23, 3, 0, 0, 123_456, tzinfo=UTC)
RICH: list[ModelMessage] = [
    ModelRequest(
        [
            SystemPromptPart("Be brief.", timestamp=AT),
            UserPromptPart(
                [
                    "What is this? Grüße\n\U0001f600",
                    ImageUrl("https://example.com/a.png"),
                    BinaryImage(b"\x00\xff", media_type="image/png"),
                ],
                timestamp=AT,
            ),
        ],
        instructions="Be kind.",
        run_id="run_1",
        metadata={"b": 1, "a": 2.0},
    ),
    ModelResponse(
        [
            ThinkingPart("Hm.", signature="sig"),
            TextPart("Let me look."),
            ToolCallPart("look", {"b": 1, "a": [1.0, None, True]}, "call_1"),
        ],
        usage=RequestUsage(input_tokens=5, output_tokens=7),
        model_name="m",
        timestamp=AT,
        provider_details={"x": {"y": 1}},
    ),
    ModelRequest([ToolReturnPart("look", {"n": 3}, "call_1", timestamp=AT)]),
    ModelRequest([ToolReturnPart("look", "Again.", "call_2", timestamp=AT, outcome="retried")]),
    ModelResponse([TextPart("A dot.")], timestamp=AT),
]


def said(text: str) -> ModelMessage:
    return ModelRequest([UserPromptPart(text, timestamp=AT)])


async def test_messages_of_every_kind_come_back_equal_and_in_order(store: Store) -> None:
    await store.save("c1", RICH[:2])
    await store.save("c1", RICH)

    loaded = await store.load("c1")
    assert loaded == RICH
    assert as_json(loaded) == as_json(RICH)


async def test_a_conversation_that_has_not_begun_is_empty(store: Store) -> None:
    assert await store.load("c1") == []
    await store.delete("c1")
    assert await store.load("c1") == []


async def test_what_is_saved_twice_is_stored_once(store: Store) -> None:
    for _ in range(3):
        await store.save("c1", RICH)
        await store.save("c1", await store.load("c1"))

    assert await store.load("c1") == RICH


async def test_a_deleted_conversation_may_begin_again(store: Store) -> None:
    await store.save("c1", RICH)
    await store.delete("c1")
    await store.save("c1", [said("Hi")])

    assert await store.load("c1") == [said("Hi")]


@differs("InMemoryConversationStore", "stores a list that differs as a branch")
@pytest.mark.parametrize("given", [RICH[:2], RICH[1:], [said("Hi")], [said("Hi"), *RICH[1:]]])
async def test_a_list_that_does_not_begin_with_what_is_stored_conflicts(
    store: Store, given: list[ModelMessage]
) -> None:
    await store.save("c1", RICH[:3])

    with pytest.raises(Conflict):
        await store.save("c1", given)

    assert await store.load("c1") == RICH[:3]


async def test_an_agent_goes_on_with_a_saved_conversation_after_a_restart(tmp_path: Path) -> None:
    history: list[ModelMessage] = []
    for turn in range(4):
        with holdfast.open(tmp_path / "h.db") as hf:
            conversations = Conversations(hf, user="ada")
            history = await conversations.load("c1")
            agent = Agent(TestModel(), instructions="Be brief.", system_prompt="You know.")
            result = await agent.run(f"Turn {turn}.", message_history=history)
            await conversations.save("c1", result.all_messages())

    assert len(history) == 6
    prompts = [
        part.content for each in history for part in each.parts if part.part_kind == "user-prompt"
    ]
    assert prompts == ["Turn 0.", "Turn 1.", "Turn 2."]


@ours_alone
async def test_2000_messages_are_kept(hf: Holdfast) -> None:
    conversations, messages = Conversations(hf), [said(str(n)) for n in range(2_000)]

    await conversations.save("c1", messages[:1_500])
    await conversations.save("c1", messages)

    assert await conversations.load("c1") == messages


LOOK_ALIKES = ["a:b", "a.3ab", "a", "A", "a b", "é", "e\u0301", "%", "/", ".", "..", "x" * 300]


@ours_alone
async def test_conversations_that_look_alike_are_apart(hf: Holdfast) -> None:
    plain, of_user = Conversations(hf), Conversations(hf, user="a")
    places = [(plain, id) for id in LOOK_ALIKES] + [(of_user, "b"), (of_user, "a")]

    for number, (conversations, id) in enumerate(places):
        await conversations.save(id, [said(str(number))])

    found = [await conversations.load(id) for conversations, id in places]
    assert found == [[said(str(number))] for number in range(len(places))]


@ours_alone
async def test_no_name_is_refused_before_anything_is_read(hf: Holdfast) -> None:
    with pytest.raises(InvalidInput):
        Conversations(hf, user="")
    for id in ("", None):
        name: Any = id
        with pytest.raises(InvalidInput):
            await Conversations(hf).load(name)
        with pytest.raises(InvalidInput):
            await Conversations(hf).save(name, RICH)
    assert hf.threads.list().data == []


@ours_alone
async def test_a_thread_of_another_user_is_not_opened(hf: Holdfast) -> None:
    turn = {"kind": "foreign", "source": "test", "value": 1}
    hf.threads.append("pydantic-ai:ada:c1", [turn], user="bob")
    conversations = Conversations(hf, user="ada")

    for call in (
        conversations.load("c1"),
        conversations.save("c1", RICH),
        conversations.delete("c1"),
    ):
        with pytest.raises(ScopeDenied):
            await call
    assert len(hf.threads.turns("pydantic-ai:ada:c1").data) == 1


# Several writers.


@ours_alone
async def test_two_that_save_the_same_at_once_store_it_once(hf: Holdfast) -> None:
    for number in range(10):
        await asyncio.gather(*(Conversations(hf).save(f"c{number}", RICH) for _ in range(4)))

        assert await Conversations(hf).load(f"c{number}") == RICH


@ours_alone
async def test_of_two_that_go_on_differently_at_once_one_conflicts(hf: Holdfast) -> None:
    one, two = [*RICH, said("one"), said("more")], [*RICH, said("two")]
    for number in range(10):
        id = f"c{number}"
        await Conversations(hf).save(id, RICH)

        calls = [Conversations(hf).save(id, given) for given in (one, two)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)

        assert sorted(type(each).__name__ for each in outcomes) == ["Conflict", "NoneType"]
        assert await Conversations(hf).load(id) == (one if outcomes[0] is None else two)


class DeletedMeanwhile(HostConversation):
    """A conversation that another caller deletes after it was read."""

    def values(self, last: int | None = None) -> list[Any]:
        found = super().values(last)
        self.delete()
        return found


@ours_alone
def test_a_conversation_that_is_deleted_while_it_is_saved_has_no_gap(hf: Holdfast) -> None:
    HostConversation(hf, "test", "c1").extend([1, 2, 3])

    with pytest.raises(Conflict):
        DeletedMeanwhile(hf, "test", "c1").extend([1, 2, 3, 4])

    assert HostConversation(hf, "test", "c1").values() == []


WRITER = """
import asyncio, sys
import holdfast
from holdfast.doors.adapters.pydantic_ai import Conversations
from holdfast.errors import Conflict
from pydantic_ai.messages import ModelRequest, UserPromptPart
async def main(path, name):
    with holdfast.open(path) as hf:
        conversations, done = Conversations(hf, user="ada"), 0
        while done < 20:
            messages = await conversations.load("c1")
            messages.append(ModelRequest([UserPromptPart(f"{name} {done}")]))
            try:
                await conversations.save("c1", messages)
            except Conflict:
                continue
            done += 1
asyncio.run(main(*sys.argv[1:]))
"""


async def test_two_processes_on_one_file_lose_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "h.db")
    holdfast.open(path).close()
    commands = [[sys.executable, "-c", WRITER, path, name] for name in ("one", "two")]
    running = [subprocess.Popen(command) for command in commands]  # noqa: ASYNC220 - nothing else runs

    assert [each.wait(2 * WAIT) for each in running] == [0, 0]

    with holdfast.open(path) as hf:
        loaded = await Conversations(hf, user="ada").load("c1")
    found = [
        str(part.content)
        for each in loaded
        for part in each.parts
        if isinstance(part, UserPromptPart)
    ]
    assert sorted(found) == sorted(f"{name} {n}" for name in ("one", "two") for n in range(20))
    for name in ("one", "two"):
        own = [each for each in found if each.startswith(name)]
        assert own == [f"{name} {n}" for n in range(20)]


# Cancellation.


class Held:
    """The threads of a handle; each write waits, once it has begun, until it is released."""

    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf
        self.begun, self.release = threading.Event(), threading.Event()

    @property
    def threads(self) -> "Held":
        return self

    def turns(self, *arguments: Any, **options: Any) -> Any:
        return self._hf.threads.turns(*arguments, **options)

    def append(self, *arguments: Any, **options: Any) -> Any:
        self._wait()
        return self._hf.threads.append(*arguments, **options)

    def delete(self, *arguments: Any) -> Any:
        self._wait()
        return self._hf.threads.delete(*arguments)

    def _wait(self) -> None:
        self.begun.set()
        assert self.release.wait(WAIT)


@ours_alone
@pytest.mark.parametrize("write", ["save", "delete"])
async def test_a_write_that_has_begun_is_done_before_its_cancellation_goes_on(
    hf: Holdfast, write: str
) -> None:
    await Conversations(hf).save("c1", RICH[:2])
    held: Any = Held(hf)
    conversations = Conversations(held)
    call = conversations.save("c1", RICH) if write == "save" else conversations.delete("c1")
    writing = asyncio.ensure_future(call)
    assert await asyncio.to_thread(held.begun.wait, WAIT)

    for _ in range(3):
        writing.cancel()
        await asyncio.sleep(0)
    assert not writing.done()
    held.release.set()
    with pytest.raises(asyncio.CancelledError):
        await writing

    assert await Conversations(hf).load("c1") == (RICH if write == "save" else [])


# What is deleted.


async def test_nothing_of_a_deleted_conversation_is_left(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "h.db") as hf:
        conversations = Conversations(hf)
        await conversations.save("c1", [said("zq7mark " * 500)])
        assert holding(tmp_path, "zq7mark") != []

        await conversations.delete("c1")

        assert holding(tmp_path, "zq7mark") == []


@ours_alone
async def test_a_forgotten_user_takes_the_conversations_along(hf: Holdfast) -> None:
    ada, bob = Conversations(hf, user="ada"), Conversations(hf, user="bob")
    for conversations in (ada, bob):
        await conversations.save("c1", RICH)

    hf.forget_user("ada")

    assert await ada.load("c1") == []
    assert await bob.load("c1") == RICH
    assert "ada" not in json.dumps([each.id for each in hf.threads.list().data])


# Imports.

OTHERS = """
import sys
from holdfast.doors.adapters import pydantic_ai
hosts = ("agents", "agent_framework", "google.adk", "llama_index", "langchain", "langgraph",
    "strands", "crewai", "anthropic", "openai", "mcp")
print([each for each in hosts if each in sys.modules])
"""
MISSING = """
import sys
sys.modules["pydantic_ai"] = None
try:
    from holdfast.doors.adapters import pydantic_ai
except ImportError as error:
    print(type(error).__name__, error)
"""


def output(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=WAIT
    ).stdout.strip()


def test_the_import_of_the_adapter_imports_no_other_host() -> None:
    assert output(OTHERS) == "[]"


def test_a_missing_host_is_named() -> None:
    shown = output(MISSING)

    package = "pydantic-ai-slim"
    assert shown == f"MissingExtra '{package}' is not installed. Install it: pip install {package}"
