"""Prompts: which are listed, what each gives, and what is refused."""

import json

import mcp_types as types
import pytest
from doors.mcp.hosting import NOTES, hosted
from mcp import Client
from mcp.shared.exceptions import MCPError

from holdfast.doors.mcp.owners import Owners
from holdfast.library.holdfast import Holdfast

pytestmark = pytest.mark.anyio

EVERY_OWNER = Owners(user="ada", agent="scout", store="Notes")


def remember(hf: Holdfast, text: str, importance: float = 0.5) -> None:
    ltm = hf.longterm("ada", enabled=True)
    assert ltm is not None
    ltm.remember(text, importance=importance)


async def prompt(client: Client, name: str, **arguments: str) -> str:
    result = await client.get_prompt(name, arguments)
    (message,) = result.messages
    assert message.role == "user"
    assert isinstance(message.content, types.TextContent)
    return message.content.text


@pytest.mark.parametrize(
    ("owners", "names"),
    [
        (EVERY_OWNER, ["recall", "briefing", "keep"]),
        (Owners(user="ada", read_only=True), ["recall", "briefing"]),
        (Owners(store="Notes"), ["briefing"]),
        (Owners(agent="scout"), ["briefing"]),
        (Owners(store="Graph", profile="graph"), []),
        (Owners(), []),
    ],
)
async def test_a_prompt_without_its_owner_is_neither_listed_nor_found(
    hf: Holdfast, mode: str, owners: Owners, names: list[str]
) -> None:
    async with hosted(hf, owners, mode) as client:
        assert [each.name for each in (await client.list_prompts()).prompts] == names

        for name in {"recall", "briefing", "keep", "other"} - set(names):
            with pytest.raises(MCPError) as caught:
                await client.get_prompt(name, {"topic": "tea"} if name == "recall" else {})
            assert caught.value.error.code == types.INVALID_PARAMS
            assert all(each in caught.value.error.message for each in names)


async def test_arguments_are_listed(client: Client) -> None:
    prompts = (await client.list_prompts()).prompts

    listed = {
        each.name: [(argument.name, argument.required) for argument in each.arguments or ()]
        for each in prompts
    }
    assert listed == {"recall": [("topic", True)], "briefing": [], "keep": [("what", False)]}
    assert all(each.description for each in prompts)


async def test_recall_gives_what_is_known_and_a_request_to_use_it(
    client: Client, hf: Holdfast
) -> None:
    remember(hf, "Ada drinks <b>green tea</b> in the morning.")

    found = await prompt(client, "recall", topic="tea")

    assert "&lt;b&gt;green tea" in found or "green tea" in found
    assert "<b>" not in found
    assert found.endswith("say so if it does not answer the question.")


async def test_recall_says_that_nothing_is_known(client: Client) -> None:
    assert (await prompt(client, "recall", topic="tea")).startswith("Nothing is remembered")


async def test_a_briefing_has_the_agents_memory_the_most_important_items_and_the_paths(
    hf: Holdfast, mode: str
) -> None:
    hf.durable("scout").set("target", "fly.io", category="core")
    store = hf.memory_stores.create(name="Notes").id
    hf.memory_stores.memories.create(store, path="/plans/a.md", content="hidden text")
    for number in range(12):
        remember(hf, f"Fact number {number:02} about the user.", importance=number / 12)

    async with hosted(hf, EVERY_OWNER, mode) as client:
        found = await prompt(client, "briefing")

    assert "fly.io" in found
    assert [n for n in range(12) if f"Fact number {n:02} " in found] == list(range(2, 12))
    assert '"/memories/plans/a.md"' in found
    assert "hidden text" not in found


async def test_a_briefing_of_many_files_says_that_there_are_more(hf: Holdfast) -> None:
    store = hf.memory_stores.create(name="Notes").id
    for number in range(101):
        hf.memory_stores.memories.create(store, path=f"/{number:03}.md", content="")

    async with hosted(hf, Owners(store="Notes")) as client:
        found = await prompt(client, "briefing")

    listing = json.loads(found.splitlines()[0])
    assert (len(listing["files"]), listing["more"]) == (100, True)


async def test_a_briefing_of_an_empty_memory_creates_nothing(client: Client, hf: Holdfast) -> None:
    assert await prompt(client, "briefing")
    assert not hf.memory_stores.list().data


async def test_keep_asks_to_store_what_was_decided(client: Client) -> None:
    everything = await prompt(client, "keep")
    only = await prompt(client, "keep", what="the deploy target")

    assert "ltm_remember" in everything
    assert only == f"{everything}\n\nKeep only this: the deploy target"


@pytest.mark.parametrize(
    ("name", "arguments", "field"),
    [
        ("recall", {}, "topic"),
        ("recall", {"topic": " "}, "topic"),
        ("recall", {"topic": "x" * 4_097}, "topic"),
        ("recall", {"topic": "tea", "k": "3"}, "k"),
        ("briefing", {"topic": "tea"}, "topic"),
        ("keep", {"why": "so"}, "why"),
    ],
)
async def test_an_invalid_argument_is_an_error_of_the_protocol(
    client: Client, name: str, arguments: dict[str, str], field: str
) -> None:
    with pytest.raises(MCPError) as caught:
        await client.get_prompt(name, arguments)

    assert caught.value.error.code == types.INVALID_PARAMS
    assert field in caught.value.error.message


async def test_a_store_that_was_deleted_is_not_in_the_briefing(hf: Holdfast) -> None:
    store = hf.memory_stores.create(name="Notes").id
    hf.memory_stores.memories.create(store, path="/a.md", content="")
    async with hosted(hf, NOTES) as client:
        assert "/a.md" in await prompt(client, "briefing")
        hf.memory_stores.delete(store)

        assert "/a.md" not in await prompt(client, "briefing")
