"""The bytes of requests, in events of a run."""

from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from runtime.networks.played import agent, in_turn, network

from holdfast.memories.run.records.event import RunEvent
from holdfast.runtime.runs import part_log
from holdfast.testing.scripted import Asked, ScriptedModel, call

pytestmark = pytest.mark.anyio


def look() -> str:
    """Look."""
    return "12 seals"


async def requested(names: str, **options: Any) -> list[tuple[int, int]]:
    """Let agents take turns; return the bytes of each request, as told and as they are."""
    sent: list[int] = []

    def act(asked: Asked) -> object:
        sent.append(sum(map(size, asked.messages)))
        return "I see them." if asked.messages[-1].parts[-1].part_kind == "tool-return" else LOOK

    def size(message: ModelMessage) -> int:
        return len(ModelMessagesTypeAdapter.dump_json([message]))

    told: list[RunEvent] = []
    agents = [agent(name, tools=[look], model=ScriptedModel(act)) for name in {*names}]
    desk = network(*agents, router=in_turn(*names))
    await desk.run("Count.", on_event=told.append, max_turns=len(names) + 1, **options)
    return [
        (event.data["bytes"], size)
        for event, size in zip(
            [each for each in told if each.type == "model.requested"], sent, strict=True
        )
    ]


LOOK = call("look")


@pytest.mark.parametrize("names", ["a" * 8, "ab" * 4])
async def test_a_request_tells_the_bytes_of_its_messages(names: str) -> None:
    # The last message gets the id of its run and a time once it is told.
    assert all(abs(told - size) < 80 for told, size in await requested(names))


@pytest.mark.parametrize("names", ["a", "ab"])
async def test_a_message_is_not_measured_again_in_each_turn(
    names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[ModelMessage] = []
    whole = part_log.size_of

    def size_of(message: ModelMessage) -> int:
        measured.append(message)
        return whole(message)

    monkeypatch.setattr(part_log, "size_of", size_of)
    counts: list[int] = []
    for turns in (8, 16, 32):
        measured.clear()
        await requested((names * turns)[:turns])
        counts.append(len(measured))

    few, some, many = counts
    assert many - some == 2 * (some - few)
