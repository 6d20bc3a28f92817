"""Databases of which people are erased."""

from pathlib import Path

import pytest

from holdfast.testing.postgres import TEMPLATE, PostgresServer


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        (tmp_path / "db").mkdir()
        return str(tmp_path / "db" / "h.db")
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.url(server.new_database(TEMPLATE))


@pytest.fixture
def empty(request: pytest.FixtureRequest, target: str, tmp_path: Path) -> str:
    """Give another target, which is empty, on the engine of *target*."""
    if not target.startswith("postgres"):
        return str(tmp_path / "db" / "other.db")
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.url(server.new_database(TEMPLATE))
