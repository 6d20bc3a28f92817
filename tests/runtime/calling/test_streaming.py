"""Models that stream, and models that turn out not to: the same request is made whole."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from gc import collect
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models import StreamedResponse
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, DeltaToolCalls, FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from runtime.calling.asked import Heard
from runtime.networks.played import network

from holdfast.ground.errors import RunFailed
from holdfast.runtime import (
    Agent,
    Context,
    MultiModeAgent,
    Step,
    StepExecutor,
    Task,
    TeamExecutor,
)
from holdfast.runtime.events import Chunk
from holdfast.runtime.inference.request import StreamingModels

pytestmark = pytest.mark.anyio


class Asked:
    """A model function that counts its requests."""

    def __init__(self) -> None:
        self.whole = self.streams = 0

    def function(self, _: list[ModelMessage], __: AgentInfo) -> ModelResponse:
        self.whole += 1
        return ModelResponse([TextPart("Done.")])


class NoStream(FunctionModel):
    """It counts the streams it is asked for, and has no function for them."""

    asked: Asked

    @asynccontextmanager
    async def request_stream(self, *given: Any, **named: Any) -> AsyncGenerator[StreamedResponse]:
        self.asked.streams += 1
        async with super().request_stream(*given, **named) as stream:
            yield stream


def no_stream(asked: Asked) -> FunctionModel:
    model = NoStream(asked.function)
    model.asked = asked
    return model


def refusing(error: type[Exception]) -> Callable[[Asked], FunctionModel]:
    """Return what makes a model whose stream raises *error* at once."""

    def make(asked: Asked) -> FunctionModel:
        async def stream(
            _: list[ModelMessage], __: AgentInfo
        ) -> AsyncIterator[str | DeltaToolCalls]:
            asked.streams += 1
            raise error("not here")
            yield ""

        return FunctionModel(asked.function, stream_function=stream)

    return make


def plain(asked: Asked) -> FunctionModel:
    return FunctionModel(asked.function)


MODELS = {
    "without a function": plain,
    "of a class of its own": no_stream,
    "not implemented": refusing(NotImplementedError),
    "asserting": refusing(AssertionError),
}
models = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)


@models
async def test_an_agent_gets_its_reply_whole_and_the_next_time_at_once(make: Any) -> None:
    asked, heard = Asked(), Heard()
    ada = Agent("ada", instructions="", model=make(asked))

    first = await ada.run("Go.", on_event=heard)
    await ada.run("Go.", on_event=heard)

    assert first.text == "Done."
    assert [each.data["delta"] for each in heard.of("text.delta")] == ["Done."] * 2
    assert first.usage.requests == 1
    assert (asked.whole, asked.streams) == (2, 0 if make is plain else 1)


@models
async def test_a_step_gets_its_reply_whole(make: Any) -> None:
    asked = Asked()
    context = Context(model=make(asked))
    for id in ("one", "two"):
        step = Step(id=id, instructions="Go.")
        task = Task(id="go", title="Go", steps=[step])
        executor = StepExecutor(task=task, step=step, context=context)

        events = [event async for event in executor.execute()]

        assert executor.result == "Done."
        said = [each.content for each in events if isinstance(each, Chunk) and each.content]
        assert "".join(said) == "Done."
    assert context.usage.requests == 2
    assert (asked.whole, asked.streams) == (2, 0 if make is plain else 1)


@models
async def test_a_network_a_team_and_a_mode_get_theirs_whole(make: Any) -> None:
    context = Context(model=make(Asked()))
    ada = Agent("ada", instructions="", model=make(Asked()))
    bob = Agent("bob", instructions="", model=make(Asked()))
    mode = MultiModeAgent(name="go", objective="Go.")

    run = await network(ada).run("Go.", on_event=Heard())
    team = await TeamExecutor(objective="Go.", agents=[ada, bob], context=Context()).run()

    assert run.results[0].text == await mode.run(context) == "Done."
    assert team.status == "stalled"


@pytest.mark.parametrize("wrap", [WrapperModel, FallbackModel])
@models
async def test_a_model_within_another_is_asked_whole_too(wrap: Any, make: Any) -> None:
    ada = Agent("ada", instructions="", model=wrap(make(Asked())))

    assert (await ada.run("Go.", on_event=Heard())).text == "Done."


async def test_a_stream_that_breaks_off_is_a_failure() -> None:
    asked = Asked()

    async def stream(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        yield "Do"
        raise AssertionError("broken off")

    model = FunctionModel(asked.function, stream_function=stream)
    ada = Agent("ada", instructions="", model=model)

    with pytest.raises(RunFailed, match="broken off"):
        await ada.run("Go.", on_event=Heard())
    assert asked.whole == 0


async def test_another_error_before_the_first_event_is_a_failure() -> None:
    asked = Asked()
    ada = Agent("ada", instructions="", model=refusing(ValueError)(asked))

    with pytest.raises(RunFailed, match="not here"):
        await ada.run("Go.", on_event=Heard())
    assert asked.whole == 0


async def test_what_fails_whole_as_well_is_not_remembered() -> None:
    def fail(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
        raise ConnectionError("no network")

    asked = Asked()
    model = refusing(AssertionError)(asked)
    model.function = fail
    ada = Agent("ada", instructions="", model=model)
    with pytest.raises(RunFailed, match="no network"):
        await ada.run("Go.", on_event=Heard())

    model.function = asked.function
    await ada.run("Go.", on_event=Heard())

    assert asked.streams == 2


def test_what_is_known_of_a_model_object_is_dropped_with_it() -> None:
    known, model = StreamingModels(), plain(Asked())
    known.set(model, streams=False)
    known.set("openai:gpt", streams=True)

    assert (known.get(model), known.get("openai:gpt"), known.get("x")) == (False, True, None)
    place = id(model)
    del model
    collect()
    assert place not in known.__dict__["_known"]
