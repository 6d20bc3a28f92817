"""Surfaces of the adapters: they translate, so in memory; with HOLDFAST_ALL_SURFACES=1 on all."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from targets import ALL_SURFACES, FULL, MARKED, handle_on
from targets import in_memory as in_memory
from targets import postgres as postgres

from holdfast.library.holdfast import Holdfast


@pytest.fixture(params=[*FULL, *MARKED] if ALL_SURFACES else ["memory"])
def hf(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Holdfast]:
    """Give a handle to a workspace of the test's own."""
    yield from handle_on(request.param, tmp_path, request)
