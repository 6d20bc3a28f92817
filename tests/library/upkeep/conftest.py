"""A database with something of everything in it, on each engine, and a way around the library."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from library.upkeep.meddling import Ask, asking, fill, opened

from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Store


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, sqlite_file: Path) -> str:
    if request.param == "sqlite":
        return str(sqlite_file)
    return request.getfixturevalue("fresh_postgres_url")


@pytest.fixture
def hf(target: str) -> Iterator[Holdfast]:
    with opened(target) as hf:
        yield hf


@pytest.fixture
def store(hf: Holdfast) -> Store:
    return fill(hf)


@pytest.fixture
def ask(target: str, store: Store) -> Iterator[Ask]:
    """Give a way around the library, once `store` is there."""
    assert store.id
    with asking(target) as ask:
        yield ask
