"""Tool results too long for a prompt come in parts, and nothing of them is lost."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepping import Stepping

from holdfast.runtime import ToolResultUpdate
from holdfast.runtime.steps.tools import ResultPages
from holdfast.testing import call
from holdfast.testing.scripted import Asked

pytestmark = pytest.mark.anyio

LOG = "".join(f"{number:05}\n" for number in range(30))


def log() -> str:
    """Read the log."""
    return LOG


def read_on(asked: Asked) -> Any:
    """Read the log to its end, part by part."""
    given = [each for each in asked.messages[-1].parts if each.part_kind == "tool-return"]
    if not given:
        return call("log")
    found: Any = given[0].content
    if found["part"]["next_offset"] is None:
        return "Read."
    return call(
        "read_result", result_id=found["part"]["result_id"], offset=found["part"]["next_offset"]
    )


async def test_a_long_result_comes_in_parts_that_make_the_whole() -> None:
    stepping = Stepping(read_on, tools=[log], tool_result_limit=50)

    await stepping.executor.run()

    parts = stepping.given
    assert "".join(each["text"] for each in parts) == LOG
    assert parts[0]["part"] == {
        "result_id": "result_1",
        "offset": 0,
        "returned": 50,
        "total": 180,
        "next_offset": 50,
    }
    assert parts[-1]["part"]["next_offset"] is None


async def test_the_tool_that_reads_on_is_there_only_when_there_is_something_to_read() -> None:
    stepping = Stepping(read_on, tools=[log], tool_result_limit=100)

    await stepping.executor.run()

    assert "read_result" not in stepping.model.asked[0].offered
    assert "read_result" in stepping.model.asked[1].offered


async def test_a_result_of_exactly_the_limit_is_whole() -> None:
    stepping = Stepping([call("log"), "Read."], tools=[log], tool_result_limit=len(LOG))

    await stepping.executor.run()

    assert stepping.given == [LOG]


async def test_other_than_text_is_paged_as_its_json() -> None:
    rows = [{"ship": number} for number in range(20)]

    def ships() -> list[dict[str, int]]:
        """List the ships."""
        return rows

    stepping = Stepping([call("ships"), "Read."], tools=[ships], tool_result_limit=60)

    await stepping.executor.run()

    whole = json.dumps(rows, separators=(",", ":"))
    assert stepping.given[0]["text"] == whole[:60]
    assert stepping.given[0]["part"]["total"] == len(whole)


async def test_that_a_part_was_given_is_told() -> None:
    stepping = Stepping([call("log"), "Read."], tools=[log], tool_result_limit=50)

    told = await stepping.told(ToolResultUpdate)

    assert (told[0].ok, told[0].characters, told[0].paged) == (True, 180, True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"result_id": "result_9", "offset": 0}, "those kept are: result_1"),
        ({"result_id": "result_1", "offset": 999}, "past its end"),
        ({"result_id": "result_1"}, "offset"),
        ({"result_id": "result_1", "offset": -1}, "-1"),
    ],
)
async def test_a_wrong_place_is_answered(arguments: dict[str, Any], says: str) -> None:
    turns = [call("log"), call("read_result", **arguments), "Read."]
    stepping = Stepping(turns, tools=[log], tool_result_limit=50)

    await stepping.executor.run()

    assert says in stepping.given[1]["error"]["message"]


async def test_a_long_error_is_paged_too() -> None:
    def hail() -> None:
        """Hail."""
        raise ValueError("x" * 500)

    stepping = Stepping([call("hail"), "Read."], tools=[hail], tool_result_limit=100)

    (told,) = await stepping.told(ToolResultUpdate)

    assert stepping.given[0]["part"]["returned"] == 100
    assert stepping.given[0]["text"].startswith('{"error":{"type":"ValueError","message":"xx')
    assert (told.ok, told.characters, told.paged) == (False, 500, True)
    assert "read_result" in stepping.model.asked[1].offered


async def test_a_memory_tool_pages_itself() -> None:
    stepping = Stepping([call("memory_read", keys=["shared:log"]), "Read."], tool_result_limit=900)
    stepping.context.memory.set("shared:log", "x" * 5_000)

    told = await stepping.told(ToolResultUpdate)

    given = stepping.given[0]["entries"]["shared:log"]
    assert given["part"]["total"] == 5_000
    assert len(json.dumps(stepping.given[0])) <= 1_000
    assert told[0].paged is False


@given(text=st.text(min_size=1), most=st.integers(1, 50))
def test_parts_of_any_size_make_the_whole(text: str, most: int) -> None:
    pages = ResultPages(most)
    part: Any = pages.keep(text)
    found = part["text"]

    while part["part"]["next_offset"] is not None:
        part = pages.part("result_1", part["part"]["next_offset"])
        found += part["text"]

    assert found == text
