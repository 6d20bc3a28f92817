"""LangGraph's store on a memory store, beside LangGraph's own."""

import pytest
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from holdfast.doors.adapters.langgraph import HoldfastStore
from holdfast.library.holdfast import Holdfast


@pytest.fixture(params=["memory", "postgres", "http", "langgraph"])
def target(request: pytest.FixtureRequest) -> str:
    """Name what the store is on: our handles, or LangGraph's own store, which must agree."""
    return request.param


@pytest.fixture
def store(request: pytest.FixtureRequest, target: str) -> BaseStore:
    if target == "langgraph":
        return InMemoryStore()
    hf: Holdfast = request.getfixturevalue("hf")
    return HoldfastStore(hf)


def test_what_was_put_is_read_back(store: BaseStore) -> None:
    value = {"text": "likes tabs", "n": [1, 2.5, None, True]}

    store.put(("users", "ada"), "a/b", value)

    item = store.get(("users", "ada"), "a/b")
    assert item is not None
    assert (item.namespace, item.key, item.value) == (("users", "ada"), "a/b", value)
