"""What the library says to a value of a wrong type: which argument it is, as of any bad value."""

from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Store


@pytest.fixture
def hf() -> Iterator[Holdfast]:
    with holdfast.open(":memory:") as hf:
        yield hf


@pytest.fixture
def store(hf: Holdfast) -> Store:
    return hf.memory_stores.create(name="Notes")


@pytest.mark.parametrize("id", [None, 7, b"memstore_"])
def test_what_is_no_string_is_the_id_of_nothing(hf: Holdfast, store: Store, id: Any) -> None:
    with pytest.raises(NotFound, match="There is no memory store"):
        hf.memory_stores.retrieve(id)
    with pytest.raises(NotFound, match="There is no memory"):
        hf.memory_stores.memories.retrieve(id, memory_store_id=store.id)
    with pytest.raises(NotFound, match="There is no session"):
        hf.sessions.retrieve(id)


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("limit", "5"),
        ("page", 5),
        ("created_at_gte", "2026-01-01"),
        ("created_at_lte", 1_800_000_000),
    ],
)
def test_a_list_names_the_argument(hf: Holdfast, store: Store, field: str, given: Any) -> None:
    asked: dict[str, Any] = {field: given}

    for listed in (
        lambda: hf.memory_stores.list(**asked),
        lambda: hf.memory_stores.memory_versions.list(store.id, **asked),
        lambda: hf.sessions.list(**asked),
    ):
        with pytest.raises(InvalidInput) as refused:
            listed()
        assert refused.value.field == field


def test_the_versions_of_what_is_no_string_are_none(hf: Holdfast, store: Store) -> None:
    memory_id: Any = 7

    assert list(hf.memory_stores.memory_versions.list(store.id, memory_id=memory_id)) == []


@pytest.mark.parametrize("given", ["5", 1.5, None, True])
def test_a_cap_is_an_integer(hf: Holdfast, given: Any) -> None:
    with pytest.raises(InvalidInput, match="memories_cap"):
        hf.memory_stores.configure(memories_cap=given)


def test_the_name_of_a_key_is_a_string(hf: Holdfast) -> None:
    name: Any = 5

    with pytest.raises(InvalidInput, match="name: must be a string"):
        hf.keys.create(name)


def test_a_query_and_a_name_are_strings(hf: Holdfast, store: Store) -> None:
    five: Any = 5

    with pytest.raises(InvalidInput) as refused:
        hf.memory_stores.memories.search(store.id, five)
    assert refused.value.field == "q"
    with pytest.raises(InvalidInput) as refused:
        hf.keys.create("ci", agent=five)
    assert refused.value.field == "agent"
