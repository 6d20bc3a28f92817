"""Synced directories for the tests: over one store in memory, each ended at the end."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from doors.mount.synced.directories import Side

import holdfast
from holdfast.library.holdfast import Holdfast

Sides = Callable[..., Side]


@pytest.fixture
def hf() -> Iterator[Holdfast]:
    with holdfast.open(":memory:") as hf:
        yield hf


@pytest.fixture
def store(hf: Holdfast) -> str:
    return hf.memory_stores.create(name="Notes").id


@pytest.fixture
def sides(hf: Holdfast, store: str, tmp_path: Path) -> Iterator[Sides]:
    """Give what makes directories of the store, not yet started."""
    made: list[Side] = []
    number = count(1)

    def side(**options: Any) -> Side:
        stores = options.pop("stores", [store])
        made.append(Side(hf, stores, tmp_path / f"side{next(number)}", **options))
        return made[-1]

    yield side
    for each in made:
        each.stop()


@pytest.fixture
def side(sides: Sides) -> Side:
    """Give a directory that is synced."""
    return sides().start()
