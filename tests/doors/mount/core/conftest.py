"""A mount without a kernel: three stores, two of which can be written."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doors.mount.core.driven import Drive, Driven

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Access, Store
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.serving import new_workspace

ACCESS: dict[str, Access] = {"notes": "read_write", "other": "read_write", "rules": "read_only"}


@pytest.fixture(scope="module")
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture(scope="module")
def in_memory(clock: FrozenClock) -> Iterator[Holdfast]:
    with holdfast.open(":memory:", clock=clock) as hf:
        yield hf


@pytest.fixture
def hf(in_memory: Holdfast) -> Holdfast:
    """Give a workspace of the test's own in a database that its module shares."""
    return in_memory.acting(workspace=new_workspace())


@pytest.fixture
def drive(hf: Holdfast, clock: FrozenClock, tmp_path: Path) -> Iterator[Drive]:
    """Give what drives a core, not yet started, over stores of its own: notes, other, rules."""
    driven: list[Driven] = []

    def drive(**options: Any) -> Driven:
        stores: dict[str, tuple[Store, Access]] = {
            slug: (hf.memory_stores.create(name=slug.title()), access)
            for slug, access in ACCESS.items()
        }
        driven.append(Driven(hf, clock, tmp_path / "spool", stores, options))
        return driven[-1]

    yield drive
    for each in driven:
        each.end()


@pytest.fixture
def mount(drive: Drive) -> Driven:
    """Give a started core."""
    return drive().start()
