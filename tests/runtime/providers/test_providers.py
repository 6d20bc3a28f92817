"""Steps and agents on the real providers of pydantic-ai, against servers that speak their wire."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from runtime.providers.speaking import Answer, Call, Say, Speaker, speaker

import holdfast
from holdfast import keys
from holdfast.runtime import (
    Agent,
    Chunk,
    Context,
    InMemoryHistory,
    Session,
    Step,
    StepExecutor,
    Task,
)

pytestmark = pytest.mark.anyio

Speaks: TypeAlias = Callable[[AsyncOpenAI, AsyncAnthropic], Model]

SPEAKS: dict[str, Speaks] = {
    "openai-chat": lambda openai, _: OpenAIChatModel(
        "gpt-4o", provider=OpenAIProvider(openai_client=openai)
    ),
    "openai-responses": lambda openai, _: OpenAIResponsesModel(
        "gpt-4o", provider=OpenAIProvider(openai_client=openai)
    ),
    "anthropic": lambda _, anthropic: AnthropicModel(
        "claude-of-tomorrow", provider=AnthropicProvider(anthropic_client=anthropic)
    ),
}


@pytest.fixture(params=SPEAKS)
def speaks(request: pytest.FixtureRequest) -> Speaks:
    return SPEAKS[request.param]


@asynccontextmanager
async def served(speaks: Speaks, *answers: Answer) -> AsyncGenerator[tuple[Model, Speaker]]:
    """Give a model whose provider asks a server on this machine, which says *answers*."""
    with speaker(*answers) as server:
        openai = AsyncOpenAI(api_key="none", base_url=f"{server.url}/v1", max_retries=0)
        anthropic = AsyncAnthropic(api_key="none", base_url=server.url, max_retries=0)
        async with openai, anthropic:
            yield speaks(openai, anthropic), server


def tide(harbour: str) -> str:
    """Tell the tide.

    Args:
        harbour: where
    """
    return f"high at {harbour}"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_step_lists_memory_and_finishes(speaks: Speaks, stream: bool) -> None:
    answers = [Call("memory_list", {}), Call("finish_step", {"result": {"ships": 3}})]
    async with served(speaks, *answers) as (model, server):
        context = Context(model=model, stream=stream)
        context.memory.set(keys.shared("log"), "three ships", title="The log")
        step = Step(id="count", instructions="Count.", output_schema={"type": "object"})
        task = Task(id="task", title="Count", steps=[step])

        result = await StepExecutor(task=task, step=step, context=context).run()

    assert result == {"ships": 3}
    assert context.memory.get_value(keys.step("count")) == {"ships": 3}
    assert "shared:log" in str(server.bodies[1])
    assert context.usage.input_tokens == 14
    assert [bool(body.get("stream")) for body in server.bodies] == [stream, stream]


async def test_a_step_tells_its_words_as_they_come(speaks: Speaks) -> None:
    async with served(speaks, Say(["Three ", "ships."])) as (model, _):
        step = Step(id="count", instructions="Count.")
        task = Task(id="task", title="Count", steps=[step])
        executor = StepExecutor(task=task, step=step, context=Context(model=model))

        chunks = [each.content async for each in executor.execute() if isinstance(each, Chunk)]

    assert executor.result == "Three ships."
    assert "".join(chunks) == "Three ships."
    assert len([each for each in chunks if each]) == 2


async def test_an_agent_calls_its_tool_and_answers(speaks: Speaks) -> None:
    async with served(speaks, Call("tide", {"harbour": "Kiel"}), Say(["High."])) as (model, server):
        agent = Agent("ada", instructions="Be brief.", tools=[tide], model=model)

        result = await agent.run("How is the tide?")

    assert result.text == "High."
    assert "high at Kiel" in str(server.bodies[1])
    assert "Be brief." in str(server.bodies[0])
    assert (result.usage.requests, result.usage.output_tokens) == (2, 6)


async def test_an_agent_streams_its_words_and_its_calls(speaks: Speaks) -> None:
    answers = [Call("tide", {"harbour": "Kiel"}), Say(["It is ", "high."])]
    async with served(speaks, *answers) as (model, server):
        agent = Agent("ada", instructions="Be brief.", tools=[tide], model=model)

        events = [event async for event in agent.stream("How is the tide?")]

    deltas = [event.data["delta"] for event in events if event.type == "text.delta"]
    assert deltas == ["It is ", "high."]
    assert [event.type for event in events if event.type.startswith("tool.")] == [
        "tool.called",
        "tool.returned",
    ]
    assert all(body["stream"] for body in server.bodies)


async def test_an_agent_goes_on_with_what_its_provider_said_before(speaks: Speaks) -> None:
    answers = [Call("tide", {"harbour": "Kiel"}), Say(["High."]), Say(["At Kiel."])]
    async with served(speaks, *answers) as (model, server):
        agent = Agent("ada", instructions="", tools=[tide], model=model, history=InMemoryHistory())
        await agent.run("How is the tide?", thread_id="thread_1")

        result = await agent.run("Where?", thread_id="thread_1")

    assert result.text == "At Kiel."
    told = str(server.bodies[2])
    for said in ("How is the tide?", "high at Kiel", "High.", "Where?"):
        assert told.count(said) == 1


async def test_what_a_session_knows_reaches_the_provider_once(speaks: Speaks) -> None:
    with holdfast.open(":memory:") as hf:
        ltm = hf.longterm("ada", enabled=True, embedder=False)
        assert ltm is not None
        ltm.remember("Ada prefers answers by mail", kind="preference")
        hf.durable("ada").set("plan", "She is on the gold plan.", category="core")
        async with served(speaks, Say(["Hi."]), Say(["By mail."])) as (model, server):
            agent = Agent("ada", instructions="Be brief.", model=model)
            async with Session(agent, hf=hf, longterm=ltm) as session:
                await session.send("Hello.")
                result = await session.send("How does Ada prefer answers?")

    assert result.text == "By mail."
    told = str(server.bodies[1])
    for said in ("Ada prefers answers by mail", "She is on the gold plan.", "Hello."):
        assert told.count(said) == 1
    assert told.index("Hello.") < told.index("How does Ada prefer answers?")
