"""A database with something of everything in it, on each engine, and a way around the library.

It is filled once for each engine; a test that requests `store` gets a copy of its own.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from library.upkeep.meddling import Ask, asking, fill, opened

from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Store
from holdfast.testing.postgres import TEMPLATE, PostgresServer


class Filled(NamedTuple):
    """A database with something of everything, which nobody has open, and one of its stores."""

    database: str
    store_id: str


@pytest.fixture(scope="session")
def filled_file(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    path = str(tmp_path_factory.mktemp("filled") / "h.db")
    with opened(path) as hf:
        return Filled(path, fill(hf).id)


@pytest.fixture(scope="session")
def filled_database(postgres_server: PostgresServer) -> Filled:
    database = postgres_server.new_database(TEMPLATE)
    with opened(postgres_server.url(database)) as hf:
        return Filled(database, fill(hf).id)


@pytest.fixture(params=["sqlite", "postgres"])
def engine_name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def target(request: pytest.FixtureRequest, engine_name: str, sqlite_file: Path) -> str:
    """Give an empty database, or a filled one if the test requests `store`."""
    filled = "store" in request.fixturenames
    if engine_name == "sqlite":
        if filled:
            shutil.copy(request.getfixturevalue("filled_file").database, sqlite_file)
        return str(sqlite_file)
    server: PostgresServer = request.getfixturevalue("postgres_server")
    template = request.getfixturevalue("filled_database").database if filled else TEMPLATE
    return server.url(server.new_database(template))


@pytest.fixture
def hf(target: str) -> Iterator[Holdfast]:
    with opened(target) as hf:
        yield hf


@pytest.fixture
def store(request: pytest.FixtureRequest, engine_name: str, hf: Holdfast) -> Store:
    name = "filled_file" if engine_name == "sqlite" else "filled_database"
    return hf.memory_stores.retrieve(request.getfixturevalue(name).store_id)


@pytest.fixture
def ask(target: str, store: Store) -> Iterator[Ask]:
    """Give a way around the library, once `store` is there."""
    assert store.id
    with asking(target) as ask:
        yield ask
