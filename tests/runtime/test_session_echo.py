"""A conversation that comes back to the same question: the fact is recalled each time, once."""

from collections.abc import Iterator
from contextlib import closing

import pytest

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.runtime import Agent, Session
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.scripted import ScriptedModel

pytestmark = pytest.mark.anyio

FACT = "I work at Acme as a welder"
QUESTION = "Where do I work?"
DAY = 86_400


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def hf(clock: FrozenClock) -> Iterator[Holdfast]:
    with closing(holdfast.open(":memory:", clock=clock)) as hf:
        yield hf


@pytest.fixture
def ltm(hf: Holdfast) -> LongTermMemory:
    memory = hf.longterm("ada", enabled=True, embedder=False)
    assert memory is not None
    return memory


async def sent(hf: Holdfast, ltm: LongTermMemory, texts: list[str], answer: str) -> list[list[str]]:
    """Send *texts* in a session of its own; return the lines that were recalled for each."""
    model = ScriptedModel([answer] * len(texts))
    agent = Agent("support", instructions="Help.", model=model)
    async with Session(agent, hf=hf, longterm=ltm) as session:
        for text in texts:
            await session.send(text)
    return [
        [line for line in request.text.splitlines() if line.startswith("- [")]
        for request in model.asked
    ]


@pytest.mark.parametrize("answer", ["I do not know.", "You work at Acme as a welder.", "Noted!"])
async def test_in_a_week_in_which_the_same_is_asked_ten_times_the_fact_is_recalled_each_time_once(
    hf: Holdfast, ltm: LongTermMemory, clock: FrozenClock, answer: str
) -> None:
    await sent(hf, ltm, [FACT, "The weather was lovely on Sunday"], "Noted!")
    recalled: list[list[str]] = []
    for day in range(7):
        clock.tick(DAY)
        smalltalk = ["Good morning!", f"I had soup number {day} for lunch"]
        asking = [QUESTION] * (2 if day < 3 else 1)
        recalled += (await sent(hf, ltm, [*smalltalk, *asking], answer))[2:]

    assert len(recalled) == 10
    for lines in recalled:
        assert len([line for line in lines if "Acme" in line]) == 1
        assert FACT in lines[0]
        assert not any("?" in line or "do not know" in line for line in lines)


async def test_the_fact_is_recalled_however_it_is_asked_for(
    hf: Holdfast, ltm: LongTermMemory
) -> None:
    asked = ["Where do I work?", "Do you remember where I work?", "At which place do I work?"]
    await sent(hf, ltm, [FACT], "Noted!")
    recalled = await sent(hf, ltm, asked * 4, "I don't remember.")

    assert len(recalled) == 12
    assert all([line for line in lines if FACT in line] for lines in recalled)


async def test_thanks_and_questions_off_the_topic_bring_no_block(
    hf: Holdfast, ltm: LongTermMemory
) -> None:
    await sent(hf, ltm, [FACT, "I painted the sky of my room blue"], "Noted!")

    recalled = await sent(hf, ltm, ["Thanks, that works!", "Who wrote Hamlet?", "ok"], "Sure!")

    assert recalled == [[], [], []]
