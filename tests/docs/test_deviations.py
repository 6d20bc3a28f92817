"""The page of deviations from the hosted contract is true of a server."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doors.http.asking import Asker

import holdfast
from holdfast.doors.http.app import make_app
from holdfast.doors.http.state import IN_FLIGHT_MOST
from holdfast.memories.stores.stores import CAP_MAX
from holdfast.memories.stores.transaction import MEMORIES_CAP

PAGE = (Path(__file__).parents[2] / "docs" / "deviations.md").read_text(encoding="utf-8")
REFUSED = re.findall(r"^\| `POST (\S+)` \| `(\w+)` \|$", PAGE, re.MULTILINE)
MISSING = re.findall(r"^\| `(/v1/\S+)` \|", PAGE, re.MULTILINE)


@pytest.fixture
def ask() -> Iterator[Asker]:
    with holdfast.open(":memory:") as hf, asyncio.Runner() as runner:
        app = make_app(hf)
        yield Asker(app, runner)
        app.state.close()


@pytest.fixture
def session(ask: Asker) -> str:
    made = ask.post("/v1/sessions", {"agent": "agent_7", "environment_id": "e"})
    return made.json()["id"]


def test_the_page_lists_what_is_refused_and_what_is_missing() -> None:
    assert (len(REFUSED), len(MISSING)) == (6, 7)


@pytest.mark.parametrize(("path", "key"), REFUSED)
def test_what_is_listed_as_refused_is_400(ask: Asker, session: str, path: str, key: str) -> None:
    body: dict[str, Any] = {"agent": "agent_7", "environment_id": "e"}
    if path != "/v1/sessions":
        body = {}
    given: dict[str, Any] = {"agent": "agent_8", "budget": {"x": 1}}

    said = ask.post(path.replace("{id}", session), {**body, key: given.get(key, ["x"])})

    assert said.status == 400
    assert key in said.error["message"]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", MISSING)
def test_what_is_listed_as_not_served_is_404(
    ask: Asker, session: str, path: str, method: str
) -> None:
    assert ask(method, path.replace("{id}", session)).status == 404


@pytest.mark.parametrize(
    "query",
    ["sessions?deployment_id=d", "memory_stores/{s}/memories?order_by=created_at"],
)
def test_what_the_page_says_of_queries_is_400(ask: Asker, query: str) -> None:
    store = ask.post("/v1/memory_stores", {"name": "Prefs"}).json()["id"]
    name = query.partition("?")[2].partition("=")[0]

    assert f"`{name}`" in PAGE
    assert ask.get(f"/v1/{query.replace('{s}', store)}").status == 400


def test_the_figures_of_the_page_are_the_codes() -> None:
    assert f"{MEMORIES_CAP:,} live memories in a store" in PAGE
    assert f"from 1 to {CAP_MAX:,}" in PAGE
    assert f"its limit of {IN_FLIGHT_MOST:,} requests" in PAGE
