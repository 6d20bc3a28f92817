"""The databases that outlive their process, for what must hold on each of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.testing.serving import new_workspace


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, sqlite_file: Path) -> str:
    """Give what to open: a SQLite file of the test's own, or the PostgreSQL that all share."""
    if request.param == "sqlite":
        return str(sqlite_file)
    return request.getfixturevalue("postgres_url")


@pytest.fixture
def kept(target: str) -> Iterator[Holdfast]:
    """Give a handle to a workspace of the test's own in `target`."""
    with holdfast.open(target, workspace=new_workspace()) as hf:
        yield hf
