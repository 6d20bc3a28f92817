"""Fixtures and expected errors of the contracts of memory stores."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import sha256

import pytest

from holdfast.ground.errors import InvalidInput
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Memory, Precondition, Store


class GivenAStore:
    """Gives an empty store, made through the subclass's `hf`."""

    @pytest.fixture
    def store(self, hf: Holdfast) -> Store:
        return hf.memory_stores.create(name="Notes")


def sha256_of(text: str) -> str:
    """Return the hash by which a precondition names the content *text*."""
    return sha256(text.encode()).hexdigest()


def still(text: str) -> Precondition:
    """Return the precondition that a memory's content is *text*."""
    return {"type": "content_sha256", "content_sha256": sha256_of(text)}


def written(hf: Holdfast, store: Store, *paths: str, content: str = "x") -> list[Memory]:
    """Return new memories of *store* at *paths*, in that order, all with *content*."""
    return [
        hf.memory_stores.memories.create(store.id, path=path, content=content) for path in paths
    ]


@contextmanager
def invalid(field: str) -> Generator[None]:
    """Expect InvalidInput that names *field*, or something within it."""
    with pytest.raises(InvalidInput) as caught:
        yield
    assert re.split(r"[^a-z_0-9]", caught.value.field)[0] == field
