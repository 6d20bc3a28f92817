"""The runner of the OpenAI Agents SDK on our sessions and tools; its wrappers; two processes."""

import asyncio
import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from errno import ENOSPC
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agents import (
    Agent,
    OpenAIResponsesCompactionSession,
    RunConfig,
    Runner,
    SessionSettings,
)
from agents.extensions.memory import EncryptedSession
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call
from agents.tool_context import ToolContext

import holdfast
from holdfast import tools
from holdfast.doors.adapters.openai_agents import HoldfastSession, tools_for
from holdfast.errors import ScopeDenied
from holdfast.library.holdfast import Holdfast

pytestmark = pytest.mark.anyio

WAIT = 60
NUMBERS = itertools.count(1)
UNTRACED = RunConfig(tracing_disabled=True)


def said(text: str) -> Any:
    return {"role": "user", "content": text}


async def answer(agent: Agent[Any], text: str, session: Any = None) -> str:
    """Run *agent* once and return its output."""
    result = await Runner.run(agent, text, session=session, run_config=UNTRACED)
    return result.final_output_as(str)


def called(name: str, arguments: str) -> Any:
    return function_call(name, arguments, call_id=f"call_{next(NUMBERS)}")


def shown(model: ScriptedModel) -> str:
    """Return the input of the last request as JSON."""
    assert model.last_call is not None
    return json.dumps(model.last_call.input, ensure_ascii=False)


# The runner.


async def test_a_conversation_goes_on_after_a_restart(tmp_path: Path) -> None:
    model = ScriptedModel([[assistant_message("Hello Ada.")], [assistant_message("Ada.")]])
    agent = Agent("helper", model=model)
    outputs: list[str] = []
    for text in ("I am Ada.", "Who am I?"):
        with holdfast.open(tmp_path / "h.db") as hf:
            session = HoldfastSession("s1", hf, user="ada")
            outputs.append(await answer(agent, text, session))

    assert outputs == ["Hello Ada.", "Ada."]
    assert "I am Ada." in shown(model)
    assert "Hello Ada." in shown(model)


@pytest.mark.parametrize("streamed", [False, True])
async def test_calls_of_tools_and_their_results_are_items_of_the_session(
    hf: Holdfast, streamed: bool
) -> None:
    durable = tools_for(tools.durable(hf.durable("helper")))
    model = ScriptedModel(
        [
            [called("memory_store", store("Rome"))],
            [assistant_message("Stored.")],
            [assistant_message("Rome.")],
        ]
    )
    agent = Agent("helper", model=model, tools=[*durable])
    session = HoldfastSession("s1", hf)
    if streamed:
        result = Runner.run_streamed(agent, "I live in Rome.", session=session, run_config=UNTRACED)
        assert [each async for each in result.stream_events()] != []
    else:
        await answer(agent, "I live in Rome.", session)

    await answer(agent, "Where?", session)

    items: list[Any] = await session.get_items()
    assert [each.get("type", each.get("role")) for each in items] == [
        *("user", "function_call", "function_call_output", "message", "user", "message")
    ]
    assert "function_call_output" in shown(model)


async def test_one_conversation_writes_and_another_reads_after_a_restart(tmp_path: Path) -> None:
    model = ScriptedModel(
        [
            [called("ltm_remember", json.dumps({"text": "Ada prefers tabs"}))],
            [assistant_message("Noted.")],
            [called("ltm_recall", json.dumps({"query": "tabs or spaces?"}))],
            [assistant_message("Tabs.")],
        ]
    )
    for name, text in (("s1", "I prefer tabs."), ("s2", "Tabs or spaces?")):
        with holdfast.open(tmp_path / "h.db") as hf:
            ours = tools_for(tools.longterm(hf.longterm("ada", enabled=True)))
            agent = Agent("helper", model=model, tools=[*ours])
            await answer(agent, text, HoldfastSession(name, hf, user="ada"))

    assert "Ada prefers tabs" in shown(model)
    assert "I prefer tabs." not in shown(model)


async def test_the_limit_of_a_run_is_taken(hf: Holdfast) -> None:
    session = HoldfastSession("s1", hf)
    await session.add_items([said(str(n)) for n in range(10)])
    model = ScriptedModel([[assistant_message("Ok.")]])
    config = RunConfig(tracing_disabled=True, session_settings=SessionSettings(limit=2))

    await Runner.run(Agent("a", model=model), "Hi", session=session, run_config=config)

    assert model.last_call is not None
    assert [each["content"] for each in model.last_call.input] == ["8", "9", "Hi"]
    assert len(await session.get_items()) == 12


async def test_an_async_handle_serves_as_well(tmp_path: Path) -> None:
    async with await holdfast.aio.open(tmp_path / "h.db") as hf:
        session = HoldfastSession("s1", hf)
        model = ScriptedModel([[assistant_message("One.")], [assistant_message("Two.")]])
        for text in ("First.", "Second."):
            await answer(Agent("a", model=model), text, session)
        assert (await session.pop_item()) is not None
        assert len(await session.get_items()) == 3
        await session.clear_session()
        assert await session.get_items() == []


# Tools.


def store(content: str, **arguments: str) -> str:
    return json.dumps({"key": "city", "category": "core", "content": content, **arguments})


async def test_a_mistake_that_the_model_reads_is_corrected(hf: Holdfast) -> None:
    def correct(call: ModelCall) -> Sequence[Any]:
        last = call.input[-1]
        if "forbidden" in last["output"] or "unknown" in last["output"]:
            return [called("memory_store", store("Rome"))]
        return [assistant_message(last["output"])]

    wrong = called("memory_store", store("Rome", colour="red"))
    model = ScriptedModel([[wrong], ModelStep.respond(correct), [assistant_message("Stored.")]])
    ours = tools_for(tools.durable(hf.durable("helper")))

    output = await answer(Agent("helper", model=model, tools=[*ours]), "Remember: Rome.")

    entry = hf.durable("helper").get("city")
    assert output == "Stored."
    assert entry is not None
    assert entry.content == "Rome"


MISTAKES = [
    ("ltm_recall", "{}", "query"),
    ("ltm_recall", '{"query": 7}', "query"),
    ("ltm_recall", "[1]", "object"),
    ("ltm_recall", "not JSON", "JSON"),
    ("ltm_remember", '{"text": "x", "kind": "opinion"}', "kind"),
    ("memory", '{"command": "explode"}', "explode"),
    ("memory", '{"command": "view", "path": "/etc/passwd"}', "/etc/passwd"),
]


@pytest.mark.parametrize("target", ["memory"], indirect=True)
@pytest.mark.parametrize(("name", "arguments", "named"), MISTAKES)
async def test_a_mistake_of_the_model_is_a_result_and_the_run_goes_on(
    hf: Holdfast, name: str, arguments: str, named: str
) -> None:
    notes = hf.memory_stores.create(name="notes")
    ours = tools_for(tools.longterm(hf.longterm("ada", enabled=True)), tools.files(hf, notes.id))
    model = ScriptedModel([[called(name, arguments)], [assistant_message("Sorry.")]])

    assert await answer(Agent("helper", model=model, tools=[*ours]), "Go.") == "Sorry."

    assert model.last_call is not None
    assert named in model.last_call.input[-1]["output"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("[" * 100_000, "JSON"),
        ('{"command": "create", "path": "/memories/a", "file_text": "\\ud800"}', "surrogates"),
    ],
    ids=["nested", "surrogate"],
)
async def test_a_call_that_the_runner_itself_cannot_read_is_a_result_too(
    arguments: str, named: str
) -> None:
    with holdfast.open(":memory:") as hf:
        [tool] = tools_for(tools.files(hf, hf.memory_stores.create(name="notes").id))
        context = ToolContext(None, tool_name="memory", tool_call_id="1", tool_arguments=arguments)

        assert named in await tool.on_invoke_tool(context, arguments)


async def test_a_handle_that_is_closed_is_a_result_too(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "h.db") as hf:
        ours = tools_for(tools.durable(hf.durable("helper")))
    call = called("memory_recall", '{"key": "city"}')
    model = ScriptedModel([[call], [assistant_message("Sorry.")]])

    assert await answer(Agent("helper", model=model, tools=[*ours]), "Go.") == "Sorry."

    assert "closed" in shown(model)


async def test_the_schemas_of_tools_are_ours_as_they_stand(hf: Holdfast) -> None:
    ours = tools.durable(hf.durable("helper"))

    theirs = tools_for(ours)

    assert [each.params_json_schema for each in theirs] == [each.parameters for each in ours]
    assert [each.description for each in theirs] == [each.description for each in ours]
    assert {each.strict_json_schema for each in theirs} == {False}


# The SDK's wrappers.


def encrypted(session: HoldfastSession, key: str = "k" * 32) -> EncryptedSession:
    underlying: Any = session
    return EncryptedSession(session.session_id, underlying, encryption_key=key)


async def test_an_encrypted_session_is_stored_as_its_wrapper_writes_it(hf: Holdfast) -> None:
    own = HoldfastSession("s1", hf, user="ada")
    session = encrypted(own)
    model = ScriptedModel([[assistant_message("Hello Ada.")], [assistant_message("Ada.")]])
    for text in ("I am Ada.", "Who am I?"):
        await answer(Agent("a", model=model), text, session)

    stored: list[Any] = await own.get_items()
    items: list[Any] = await session.get_items()
    assert "I am Ada." in shown(model)
    assert len(stored) == len(items) == 4
    assert "Ada" not in json.dumps(stored)
    assert (await session.get_items(2)) == items[-2:]
    assert (await session.pop_item()) == items[-1]
    assert await encrypted(own, "another key").get_items() == []
    await session.clear_session()
    assert await own.get_items() == []


class Compacting:
    """A client of the SDK whose compaction answers with one summary."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.responses = self

    async def compact(self, **request: Any) -> Any:
        self.requests.append(request)
        return SimpleNamespace(output=[said("Summary.")], usage=None)


@pytest.mark.parametrize("wrapped", [False, True])
async def test_a_compacted_session_holds_the_summary(hf: Holdfast, wrapped: bool) -> None:
    own, client = HoldfastSession("s1", hf), Compacting()
    items = [said(str(n)) for n in range(1_200)]
    given: Any = client
    compaction = OpenAIResponsesCompactionSession("s1", own, client=given, compaction_mode="input")
    session: Any = compaction
    if wrapped:
        session = EncryptedSession("s1", session, encryption_key="k" * 32)
    await session.add_items(items)

    await session.run_compaction({"force": True})

    [request] = client.requests
    assert len(request["input"]) == 1_200
    kept: list[Any] = await session.get_items()
    assert [each["content"] for each in kept] == ["Summary."]
    assert len(await own.get_items()) == 1


async def test_a_compaction_that_fails_loses_nothing(hf: Holdfast) -> None:
    class Failing(HoldfastSession):
        """A session that fails once, when it is given the summary."""

        failed = False

        async def add_items(self, items: list[Any]) -> None:
            if not self.failed and items == [said("Summary.")]:
                self.failed = True
                raise OSError(ENOSPC, "no space")
            await super().add_items(items)

    own, client = Failing("s1", hf), Compacting()
    given: Any = client
    session = OpenAIResponsesCompactionSession("s1", own, client=given, compaction_mode="input")
    await session.add_items([said("One."), said("Two.")])

    with pytest.raises(OSError, match="no space"):
        await session.run_compaction({"force": True})

    assert await own.get_items() == [said("One."), said("Two.")]


# Users.


async def test_a_session_that_another_user_has_made_is_not_opened(hf: Holdfast) -> None:
    turn = {"kind": "foreign", "source": "test", "value": 1}
    hf.threads.append("openai-agents:ada:s1", [turn], user="bob")
    session = HoldfastSession("s1", hf, user="ada")

    for call in (
        session.get_items(),
        session.get_items(1),
        session.add_items([said("Hi")]),
        session.pop_item(),
        session.clear_session(),
    ):
        with pytest.raises(ScopeDenied):
            await call
    assert len(hf.threads.turns("openai-agents:ada:s1").data) == 1


# Several writers, and cancellation.

WRITER = """
import asyncio, sys
import holdfast
from holdfast.doors.adapters.openai_agents import HoldfastSession
async def main(path, name):
    with holdfast.open(path) as hf:
        session = HoldfastSession("s1", hf, user="ada")
        for number in range(40):
            item = {"role": "user", "content": f"{name} {number}"}
            await session.add_items([item, item])
asyncio.run(main(*sys.argv[1:]))
"""


async def test_two_processes_on_one_file_lose_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "h.db")
    holdfast.open(path).close()
    commands = [[sys.executable, "-c", WRITER, path, name] for name in ("one", "two")]
    running = [subprocess.Popen(command) for command in commands]  # noqa: ASYNC220 - nothing else runs

    assert [each.wait(2 * WAIT) for each in running] == [0, 0]

    with holdfast.open(path) as hf:
        items: list[Any] = await HoldfastSession("s1", hf, user="ada").get_items()
    found = [each["content"] for each in items]
    assert found[::2] == found[1::2]
    for name in ("one", "two"):
        own = [each for each in found[::2] if each.startswith(name)]
        assert own == [f"{name} {n}" for n in range(40)]


KILLED = """
import asyncio, os, sys
import holdfast
from holdfast.doors.adapters.openai_agents import HoldfastSession
session = HoldfastSession("s1", holdfast.open(sys.argv[1]))
asyncio.run(session.add_items([{"role": "user", "content": "Hi"}]))
os._exit(9)
"""


async def test_items_are_there_after_the_process_was_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path / "h.db")]
    ended = subprocess.run(command, check=False, timeout=WAIT)  # noqa: ASYNC221 - nothing else runs

    assert ended.returncode == 9
    with holdfast.open(tmp_path / "h.db") as hf:
        assert await HoldfastSession("s1", hf).get_items() == [said("Hi")]


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

    def pop(self, *arguments: Any, **options: Any) -> Any:
        self._wait()
        return self._hf.threads.pop(*arguments, **options)

    def delete(self, *arguments: Any) -> Any:
        self._wait()
        return self._hf.threads.delete(*arguments)

    def _wait(self) -> None:
        self.begun.set()
        assert self.release.wait(WAIT)


@pytest.mark.parametrize("write", ["add", "pop", "clear"])
async def test_a_write_that_has_begun_is_done_before_its_cancellation_goes_on(
    hf: Holdfast, write: str
) -> None:
    await HoldfastSession("s1", hf).add_items([said("One."), said("Two.")])
    held: Any = Held(hf)
    session = HoldfastSession("s1", held)
    call, left = {
        "add": (lambda: session.add_items([said("Three.")]), ["One.", "Two.", "Three."]),
        "pop": (session.pop_item, ["One."]),
        "clear": (session.clear_session, []),
    }[write]
    writing: asyncio.Future[Any] = asyncio.ensure_future(call())
    assert await asyncio.to_thread(held.begun.wait, WAIT)

    for _ in range(3):
        writing.cancel()
        await asyncio.sleep(0)
    assert not writing.done()
    held.release.set()
    with pytest.raises(asyncio.CancelledError):
        await writing

    items: list[Any] = await HoldfastSession("s1", hf).get_items()
    assert [each["content"] for each in items] == left


# Imports.

OTHERS = """
import sys
from holdfast.doors.adapters import openai_agents
hosts = ("pydantic_ai", "agent_framework", "google.adk", "llama_index", "langchain", "langgraph",
    "strands", "crewai", "anthropic")
print([each for each in hosts if each in sys.modules])
"""
MISSING = """
import sys
sys.modules["agents"] = None
try:
    from holdfast.doors.adapters import openai_agents
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

    package = "openai-agents"
    assert shown == f"MissingExtra '{package}' is not installed. Install it: pip install {package}"
