"""What several servers on one database owe to each other's clients."""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import combinations
from threading import Barrier
from typing import TypeVar

import httpx
from contracts.stores import still, written
from racing import add_lines
from served import TLS

from holdfast.ground.errors import HoldfastError, PathTaken, PreconditionFailed
from holdfast.library.holdfast import Holdfast
from holdfast.testing.models import excludes

T = TypeVar("T")

WRITERS = 16


def at_once(act: Callable[[int], T]) -> list[T | HoldfastError]:
    """Return what *act* answered or raised for each of many clients that begin together."""
    start = Barrier(WRITERS)

    def one(number: int) -> T | HoldfastError:
        start.wait()
        try:
            return act(number)
        except HoldfastError as error:
            return error

    with ThreadPoolExecutor(WRITERS) as pool:
        return list(pool.map(one, range(WRITERS)))


def of(handles: Sequence[Holdfast], number: int) -> Holdfast:
    return handles[number % len(handles)]


def test_of_racing_updates_exactly_one_wins(handles: list[Holdfast]) -> None:
    store = handles[0].memory_stores.create(name="Notes")
    (memory,) = written(handles[0], store, "/a", content="0")

    outcomes = at_once(
        lambda number: of(handles, number).memory_stores.memories.update(
            memory.id, memory_store_id=store.id, content=f"by {number}", precondition=still("0")
        )
    )

    assert sum(isinstance(each, PreconditionFailed) for each in outcomes) == WRITERS - 1
    assert len(handles[0].memory_stores.memory_versions.list(store.id)) == 2


def test_no_line_is_lost_among_clients(handles: list[Holdfast]) -> None:
    store = handles[0].memory_stores.create(name="Notes")
    (memory,) = written(handles[0], store, "/a", content="")

    outcomes = at_once(
        lambda number: add_lines(
            of(handles, number), store.id, memory.id, who=f"client {number}", times=2
        )
    )

    assert outcomes == [None] * WRITERS
    found = handles[-1].memory_stores.memories.at(store.id, "/a")
    assert found is not None
    assert found.content is not None
    wanted = sorted(f"client {number} {n}" for number in range(WRITERS) for n in range(2))
    assert sorted(found.content.splitlines()) == wanted


def test_a_path_and_one_below_it_are_never_both_made(handles: list[Holdfast]) -> None:
    store = handles[0].memory_stores.create(name="Notes")

    outcomes = at_once(
        lambda number: written(
            of(handles, number), store, "/a" if number % 3 else f"/a/b{number}", content="x"
        )
    )

    assert all(isinstance(each, list | PathTaken) for each in outcomes)
    shown = [each.path for each in handles[-1].memory_stores.memories.list(store.id).all()]
    assert shown
    assert not any(excludes(*pair) for pair in combinations(shown, 2))


def test_what_one_server_took_away_no_other_shows(handles: list[Holdfast]) -> None:
    store = handles[0].memory_stores.create(name="Notes")
    (memory,) = written(handles[0], store, "/secret", content="marker")
    for hf in handles:
        hf.memory_stores.memories.search(store.id, "marker")

    handles[0].memory_stores.memories.delete(memory.id, memory_store_id=store.id)
    for version in handles[1].memory_stores.memory_versions.list(store.id):
        handles[1].memory_stores.memory_versions.redact(version.id, memory_store_id=store.id)

    for hf in handles:
        assert hf.memory_stores.memories.search(store.id, "marker") == []
        shown = hf.memory_stores.memory_versions.list(store.id, view="full")
        assert {(each.path, each.content) for each in shown} == {(None, None)}


def test_a_token_that_one_server_revoked_opens_no_other(
    urls: list[str], handles: list[Holdfast]
) -> None:
    store = handles[0].memory_stores.create(name="Notes")
    session = handles[0].sessions.create(
        agent="agent_1",
        environment_id="env_1",
        resources=[{"type": "memory_store", "memory_store_id": store.id}],
    )
    made = handles[0].sessions.create_token(session.id)
    headers = {"x-api-key": made.token or ""}

    def statuses() -> list[int]:
        said = [httpx.get(f"{url}/api/me", headers=headers, timeout=60, verify=TLS) for url in urls]
        return [each.status_code for each in said]

    before = statuses()

    handles[0].sessions.revoke_token(made.id, session_id=session.id)

    assert (before, statuses()) == ([200] * len(urls), [401] * len(urls))


def test_the_feed_of_each_server_tells_of_the_writes_of_all(
    urls: list[str], handles: list[Holdfast], workspace: str
) -> None:
    store = handles[0].memory_stores.create(name="Notes")
    headers = {"anthropic-workspace-id": workspace}

    with ExitStack() as stack:
        feeds = [
            stack.enter_context(
                httpx.stream(
                    "GET", f"{url}/api/events?types=memory.created", headers=headers, timeout=60
                )
            ).iter_lines()
            for url in urls
        ]
        for lines in feeds:
            assert next(lines).startswith(":")
        made = {written(hf, store, f"/{number}")[0].id for number, hf in enumerate(handles)}

        for lines in feeds:
            heard = (json.loads(each[6:]) for each in lines if each.startswith("data: "))
            seen = {next(heard)["ids"]["memory_id"] for _ in handles}
            assert seen == made
