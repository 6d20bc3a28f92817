"""Histories of the Agent Framework in threads, beside the framework's own providers."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_framework import (
    AgentSession,
    Content,
    FileHistoryProvider,
    HistoryProvider,
    InMemoryHistoryProvider,
    Message,
)
from hosts.agent_framework_script import ScriptedClient, agent_of, called

import holdfast
from holdfast import tools
from holdfast.doors.adapters.agent_framework import HoldfastHistoryProvider, tools_for
from holdfast.errors import InvalidInput, ScopeDenied
from holdfast.library.holdfast import Holdfast

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore:.*FILE_HISTORY")]

WAIT = 60
OURS = ("memory", "postgres", "http")
THEIRS = ("InMemoryHistoryProvider", "FileHistoryProvider")
ours_alone = pytest.mark.parametrize("target", OURS, indirect=True)
differs = pytest.mark.differs


@pytest.fixture(params=[*OURS, *THEIRS])
def target(request: pytest.FixtureRequest) -> str:
    """Name what the history is on: our handles, or the framework's own providers."""
    return request.param


@pytest.fixture
def provider(
    request: pytest.FixtureRequest, target: str, tmp_path: Path
) -> Iterator[HistoryProvider]:
    for marker in request.node.iter_markers("differs"):
        if marker.args[0] == target:
            request.applymarker(pytest.mark.xfail(reason=marker.args[1], strict=True))
    if target == "InMemoryHistoryProvider":
        yield InMemoryHistoryProvider()
    elif target == "FileHistoryProvider":
        yield FileHistoryProvider(tmp_path)
    else:
        yield HoldfastHistoryProvider(request.getfixturevalue("hf"))


class Session:
    """One session of a provider, with the state that the framework passes it."""

    def __init__(self, provider: HistoryProvider, id: str | None = "s1") -> None:
        self._provider, self._id, self._state = provider, id, dict[str, Any]()

    async def save(self, *messages: Message) -> None:
        await self._provider.save_messages(self._id, messages, state=self._state)

    async def messages(self) -> list[dict[str, Any]]:
        found = await self._provider.get_messages(self._id, state=self._state)
        return [each.to_dict() for each in found]


def said(text: str, role: str = "user", id: str | None = None) -> Message:
    return Message(role, [text], message_id=id)


RICH = [
    Message(
        "user",
        ["Grüße\n\U0001f600", Content.from_uri("https://e.com/a.png", media_type="image/png")],
    ),
    Message(
        "assistant",
        [
            Content.from_text_reasoning(text="Hm."),
            Content.from_function_call(call_id="c1", name="look", arguments={"b": 1, "a": [1.0]}),
        ],
        author_name="helper",
        message_id="m1",
    ),
    Message("tool", [Content.from_function_result(call_id="c1", result="3")]),
    Message("assistant", ["Three."], message_id="m2", additional_properties={"b": 1, "a": 2.0}),
]


def dicts(*messages: Message) -> list[dict[str, Any]]:
    return [each.to_dict() for each in messages]


async def test_messages_of_every_kind_come_back_equal_and_in_order(
    provider: HistoryProvider,
) -> None:
    session = Session(provider)
    await session.save(*RICH[:1])
    await session.save()
    await session.save(*RICH[1:])

    assert json.dumps(await session.messages()) == json.dumps(dicts(*RICH))


async def test_a_session_that_has_not_begun_is_empty(provider: HistoryProvider) -> None:
    assert await Session(provider).messages() == []


async def test_a_whole_conversation_that_is_given_again_is_stored_once(
    provider: HistoryProvider,
) -> None:
    session = Session(provider)
    await session.save(*RICH[:2])
    await session.save(*RICH)
    await session.save(*RICH[2:], said("More."))

    assert await session.messages() == dicts(*RICH, said("More."))


async def test_an_input_that_is_said_twice_is_stored_twice(provider: HistoryProvider) -> None:
    session = Session(provider)
    for _ in range(3):
        await session.save(said("Again."))

    assert await session.messages() == dicts(*[said("Again.")] * 3)


async def test_the_same_words_with_another_id_are_another_message(
    provider: HistoryProvider,
) -> None:
    session = Session(provider)
    for id in ("m1", "m2", "m2"):
        await session.save(said("Ok.", "assistant", id))

    assert await session.messages() == dicts(
        said("Ok.", "assistant", "m1"), said("Ok.", "assistant", "m2")
    )


@differs("InMemoryHistoryProvider", "is in the state of one session, whatever its id")
@differs("FileHistoryProvider", "names a file by the id, which may be too long for one")
async def test_sessions_are_apart(provider: HistoryProvider) -> None:
    names = ["a:b", "a.3ab", "a", "A", "a b", "é", "e\u0301", "%", "/", ".", "..", "x" * 300]
    state: dict[str, Any] = {}

    for number, name in enumerate(names):
        await provider.save_messages(name, [said(str(number))], state=state)

    found = [await provider.get_messages(name, state=state) for name in names]
    assert [[each.text for each in one] for one in found] == [[str(n)] for n in range(len(names))]


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_agent_goes_on_with_its_session(provider: HistoryProvider, streamed: bool) -> None:
    client = ScriptedClient("One.", "Two.")
    agent = agent_of(client, provider)
    session = agent.create_session(session_id="s1")

    for text in ("First.", "Second."):
        if streamed:
            stream = agent.run(text, session=session, stream=True)
            assert [each async for each in stream] != []
        else:
            await agent.run(text, session=session)

    assert client.shown() == ["First.", "One.", "Second."]


async def test_an_agent_goes_on_after_a_restart_with_nothing_but_the_id(tmp_path: Path) -> None:
    client = ScriptedClient("One.", called("memory_list"), "Two.", "Three.")
    for text in ("First.", "Second.", "Third."):
        with holdfast.open(tmp_path / "h.db") as hf:
            agent = agent_of(
                client,
                HoldfastHistoryProvider(hf, user="ada"),
                tools=tools_for(tools.durable(hf.durable("helper"))),
            )
            await agent.run(text, session=AgentSession(session_id="s1"))

    shown = client.requests[-1]
    assert [each.role for each in shown] == [
        *("user", "assistant", "user", "assistant", "tool", "assistant", "user")
    ]
    assert [each.text for each in shown if each.text] == [
        *("First.", "One.", "Second.", "Two.", "Third.")
    ]


async def test_each_service_call_is_stored_where_the_agent_asks_for_it(
    provider: HistoryProvider,
) -> None:
    def look() -> str:
        return "3"

    agent = agent_of(
        ScriptedClient(called("look"), "Done."),
        provider,
        tools=[look],
        require_per_service_call_history_persistence=True,
    )
    session = agent.create_session(session_id="s1")

    await agent.run("Go.", session=session)

    state = session.state.get(provider.source_id, {})
    stored = await provider.get_messages("s1", state=state)
    assert [each.role for each in stored] == ["user", "assistant", "tool", "assistant"]


@ours_alone
async def test_the_provider_keeps_nothing_in_the_session(hf: Holdfast) -> None:
    agent = agent_of(ScriptedClient("One."), HoldfastHistoryProvider(hf))
    session = agent.create_session(session_id="s1")

    await agent.run("First.", session=session)

    assert session.to_dict()["state"] == {"holdfast-history": {}}


@ours_alone
async def test_the_frameworks_options_are_taken(hf: Holdfast) -> None:
    provider = HoldfastHistoryProvider(hf, load_messages=False, store_outputs=False)
    agent = agent_of(ScriptedClient("One.", "Two."), provider)
    session = agent.create_session(session_id="s1")

    for text in ("First.", "Second."):
        await agent.run(text, session=session)

    assert [each.text for each in await provider.get_messages("s1")] == ["First.", "Second."]


@ours_alone
async def test_2000_messages_are_kept(hf: Holdfast) -> None:
    session = Session(HoldfastHistoryProvider(hf))
    messages = [said(str(n)) for n in range(2_000)]

    await session.save(*messages)

    assert await session.messages() == dicts(*messages)


@ours_alone
async def test_no_name_is_refused_before_anything_is_read(hf: Holdfast) -> None:
    with pytest.raises(InvalidInput):
        HoldfastHistoryProvider(hf, user="")
    for id in (None, ""):
        session = Session(HoldfastHistoryProvider(hf), id)
        with pytest.raises(InvalidInput, match="session_id"):
            await session.messages()
        with pytest.raises(InvalidInput, match="session_id"):
            await session.save(said("Hi"))
    assert hf.threads.list().data == []


@ours_alone
async def test_a_session_of_a_user_is_no_other_users(hf: Holdfast) -> None:
    turn = {"kind": "foreign", "source": "test", "value": 1}
    hf.threads.append("agent-framework:ada:s1", [turn], user="bob")
    ada = Session(HoldfastHistoryProvider(hf, user="ada"))
    plain = Session(HoldfastHistoryProvider(hf))
    await plain.save(said("Mine."))

    for call in (ada.messages(), ada.save(said("Hi"))):
        with pytest.raises(ScopeDenied):
            await call
    assert await Session(HoldfastHistoryProvider(hf, user="bob")).messages() == []
    assert len(hf.threads.turns("agent-framework:ada:s1").data) == 1


@ours_alone
async def test_two_agents_on_one_session_lose_nothing(hf: Holdfast) -> None:
    async def save(name: str) -> None:
        session = Session(HoldfastHistoryProvider(hf))
        for number in range(20):
            await session.save(said(f"{name} {number}"), said(f"{name} {number}", "assistant"))

    await asyncio.gather(save("one"), save("two"))

    found = [
        (each["role"], each["contents"][0]["text"])
        for each in await Session(HoldfastHistoryProvider(hf)).messages()
    ]
    assert len(found) == 80
    assert [text for _, text in found[::2]] == [text for _, text in found[1::2]]
    assert {role for role, _ in found[::2]} == {"user"}


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
        self.begun.set()
        assert self.release.wait(WAIT)
        return self._hf.threads.append(*arguments, **options)


@ours_alone
async def test_a_write_that_has_begun_is_done_before_its_cancellation_goes_on(
    hf: Holdfast,
) -> None:
    held: Any = Held(hf)
    saving = asyncio.create_task(Session(HoldfastHistoryProvider(held)).save(said("Hi")))
    assert await asyncio.to_thread(held.begun.wait, WAIT)

    for _ in range(3):
        saving.cancel()
        await asyncio.sleep(0)
    assert not saving.done()
    held.release.set()
    with pytest.raises(asyncio.CancelledError):
        await saving

    assert await Session(HoldfastHistoryProvider(hf)).messages() == dicts(said("Hi"))


# Imports.

OTHERS = """
import sys
from holdfast.doors.adapters import agent_framework
hosts = ("agents", "pydantic_ai", "google.adk", "llama_index", "langchain", "langgraph",
    "strands", "crewai", "anthropic", "openai", "mcp")
print([each for each in hosts if each in sys.modules])
"""
MISSING = """
import sys
sys.modules["agent_framework"] = None
try:
    from holdfast.doors.adapters import agent_framework
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

    package = "agent-framework-core"
    assert shown == f"MissingExtra '{package}' is not installed. Install it: pip install {package}"
