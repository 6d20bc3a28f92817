"""Sessions of the OpenAI Agents SDK on threads, beside the SDK's own."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from agents import SQLiteSession
from agents.memory import Session, SessionSettings

import holdfast
from holdfast import tools
from holdfast.doors.adapters.openai_agents import HoldfastSession, tools_for
from holdfast.ground.errors import InvalidInput, ToolNameTaken
from holdfast.library.holdfast import Holdfast

pytestmark = pytest.mark.anyio

HI: Any = {"role": "user", "content": "Hi"}
REASONING: Any = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": None}
CALL: Any = {
    "type": "function_call",
    "call_id": "call_1",
    "name": "look",
    "arguments": '{"b": 1, "a": 2.0}',
}
OUTPUT: Any = {"type": "function_call_output", "call_id": "call_1", "output": "3"}
IMAGE: Any = {
    "role": "user",
    "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA==", "n": 1.0}],
}
ITEMS = [HI, REASONING, CALL, OUTPUT, IMAGE]


@pytest.fixture(params=["memory", "postgres", "http", "agents"])
def target(request: pytest.FixtureRequest) -> str:
    """Name what the session is on: our handles, or the SDK's own, which must agree."""
    return request.param


@pytest.fixture
def session(request: pytest.FixtureRequest, target: str) -> Iterator[Session]:
    if target == "agents":
        own = SQLiteSession("s1")
        yield cast("Session", own)
        own.close()
    else:
        hf: Holdfast = request.getfixturevalue("hf")
        yield HoldfastSession("s1", hf)


async def test_items_come_back_equal_and_in_order(session: Session) -> None:
    await session.add_items(ITEMS[:2])
    await session.add_items([])
    await session.add_items(ITEMS[2:])

    assert json.dumps(await session.get_items()) == json.dumps(ITEMS)


@pytest.mark.parametrize(("limit", "count"), [(0, 0), (1, 1), (3, 3), (99, 5), (None, 5)])
async def test_a_limit_gives_the_newest_in_order(
    session: Session, limit: int | None, count: int
) -> None:
    await session.add_items(ITEMS)

    assert await session.get_items(limit) == (ITEMS[-count:] if count else [])


async def test_the_last_item_is_popped(session: Session) -> None:
    await session.add_items([HI, OUTPUT])

    assert [await session.pop_item() for _ in range(3)] == [OUTPUT, HI, None]
    assert await session.get_items() == []


async def test_a_cleared_session_goes_on(session: Session) -> None:
    await session.clear_session()
    await session.add_items([HI, OUTPUT])
    await session.clear_session()
    await session.add_items([CALL])

    assert await session.get_items() == [CALL]


async def test_it_is_what_the_sdk_calls_a_session(session: Session) -> None:
    assert isinstance(session, Session)
    assert session.session_id == "s1"


async def test_2000_items_are_kept(hf: Holdfast) -> None:
    session = HoldfastSession("long", hf)
    items: list[Any] = [{"role": "user", "content": str(number)} for number in range(2_000)]

    await session.add_items(items)

    assert await session.get_items() == items
    assert await session.get_items(1_500) == items[500:]


async def test_the_limit_of_the_settings_is_taken(hf: Holdfast) -> None:
    session = HoldfastSession("s1", hf, session_settings=SessionSettings(limit=2))
    await session.add_items(ITEMS)

    assert await session.get_items() == ITEMS[-2:]
    assert await session.get_items(3) == ITEMS[-3:]


LOOK_ALIKES = ["a:b", "a.3ab", "a", "A", "a b", "é", "e\u0301", "%", "/", ".", "..", "x" * 300]


async def test_sessions_that_look_alike_are_apart(hf: Holdfast) -> None:
    sessions = [HoldfastSession(name, hf) for name in LOOK_ALIKES]
    sessions += [HoldfastSession("b", hf, user="a"), HoldfastSession("x" * 301, hf)]

    for number, session in enumerate(sessions):
        await session.add_items([{"role": "user", "content": str(number)}])

    found = [await session.get_items() for session in sessions]
    assert found == [[{"role": "user", "content": str(n)}] for n in range(len(sessions))]


async def test_a_session_of_a_user_is_no_other_users(hf: Holdfast) -> None:
    ada, bob = (HoldfastSession("s1", hf, user=user) for user in ("ada", "bob"))
    await ada.add_items([HI])

    assert await bob.get_items() == []
    assert await HoldfastSession("s1", hf).get_items() == []


async def test_no_name_is_refused_at_once(hf: Holdfast) -> None:
    with pytest.raises(InvalidInput):
        HoldfastSession("", hf)
    with pytest.raises(InvalidInput):
        HoldfastSession("s1", hf, user="")


async def test_two_objects_on_one_session_lose_nothing(hf: Holdfast) -> None:
    one, two = HoldfastSession("s1", hf), HoldfastSession("s1", hf)

    async def add(session: HoldfastSession, name: str) -> None:
        for number in range(20):
            await session.add_items([{"role": "user", "content": f"{name} {number}"}] * 2)

    await asyncio.gather(add(one, "one"), add(two, "two"))

    found = [cast("Any", each)["content"] for each in await one.get_items()]
    assert len(found) == 80
    assert found[::2] == found[1::2]


async def test_a_forgotten_user_takes_the_sessions_along(hf: Holdfast) -> None:
    session = HoldfastSession("s1", hf, user="ada")
    await session.add_items([HI])

    hf.forget_user("ada")

    assert await session.get_items() == []


async def test_nothing_of_a_cleared_or_popped_item_is_left(tmp_path: Path) -> None:
    mark: Any = {"role": "user", "content": "zq7mark " * 500}
    with holdfast.open(tmp_path / "h.db") as hf:
        session = HoldfastSession("s1", hf)
        await session.add_items([HI, mark])
        await session.pop_item()
        await session.add_items([mark])
        await session.clear_session()

        assert holding(tmp_path, b"zq7mark") == []


def holding(folder: Path, mark: bytes) -> list[str]:
    """Return the files in *folder* that hold *mark*."""
    return [each.name for each in folder.iterdir() if mark in each.read_bytes()]


async def test_names_of_tools_are_given_once(hf: Holdfast) -> None:
    durable = tools.durable(hf.durable("scout"))

    assert [each.name for each in tools_for(durable)] == [each.name for each in durable]
    with pytest.raises(ToolNameTaken):
        tools_for(durable, durable)
