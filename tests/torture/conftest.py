"""The process that killed writers are forked from, one for each worker."""

from collections.abc import Iterator

import pytest
from torture.zygote import Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    with Zygote() as zygote:
        yield zygote
