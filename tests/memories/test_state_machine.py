"""A store against the one drawn on paper: random writes, and both must say the same."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
from contracts.stores import sha256_of, still
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec import UNSET

import holdfast
from holdfast.ground.errors import HoldfastError
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Memory
from holdfast.testing.models import ModelStore, same_refusal
from holdfast.testing.serving import new_workspace
from holdfast.testing.strategies import contents, nasty_paths, plain_paths

pytestmark = pytest.mark.hypothesis

T = TypeVar("T")
M = TypeVar("M")

CAP = 6
# A lone surrogate cannot be sent: a client refuses it before the server can say what is missing.
paths = st.one_of(
    plain_paths(), plain_paths(), nasty_paths().filter(lambda path: "\ud800" not in path)
)
picks = st.integers(min_value=0, max_value=40)


class StoreMachine(RuleBasedStateMachine):
    """Does to a store what it does to the drawn one. Things go by number, modulo how many."""

    def __init__(self, hf: Holdfast) -> None:
        super().__init__()
        self.hf, self.stores = hf, hf.memory_stores
        self.store_id = self.stores.create(name="Notes").id
        self.stores.configure(memories_cap=CAP)
        self.drawn = ModelStore(CAP)
        self.memory_ids: list[str] = []
        self.version_ids: list[str] = []

    def both(self, real: Callable[[], T], drawn: Callable[[], M]) -> tuple[T, M] | None:
        """Return what both answer, or None if both refuse alike."""
        ours = theirs = answer = wanted = None
        try:
            wanted = drawn()
        except HoldfastError as error:
            theirs = error
        try:
            answer = real()
        except HoldfastError as error:
            ours = error
        assert same_refusal(ours, theirs), f"{ours!r} where the drawn store says {theirs!r}"
        return None if ours else (answer, wanted)  # pyright: ignore[reportReturnType] - both ran

    def memory(self, pick: int) -> tuple[int, str]:
        """Return number and id of a memory, which may be deleted."""
        number = pick % len(self.memory_ids)
        return number, self.memory_ids[number]

    @rule(path=paths, content=contents())
    def create(self, path: str, content: str) -> None:
        made = self.both(
            lambda: self.stores.memories.create(self.store_id, path=path, content=content),
            lambda: self.drawn.create(path, content),
        )
        if made:
            memory, number = made
            assert number == len(self.memory_ids)
            self.memory_ids.append(memory.id)

    @precondition(lambda self: self.memory_ids)
    @rule(
        pick=picks,
        path=st.none() | paths,
        content=st.none() | contents(),
        expected=st.none() | contents(),
    )
    def update(
        self, pick: int, path: str | None, content: str | None, expected: str | None
    ) -> None:
        number, id = self.memory(pick)
        self.both(
            lambda: self.stores.memories.update(
                id,
                memory_store_id=self.store_id,
                path=path,
                content=content,
                precondition=UNSET if expected is None else still(expected),
            ),
            lambda: self.drawn.update(number, path=path, content=content, expected=expected),
        )

    @precondition(lambda self: self.memory_ids)
    @rule(pick=picks, expected=st.none() | st.none() | contents())
    def delete(self, pick: int, expected: str | None) -> None:
        number, id = self.memory(pick)
        self.both(
            lambda: self.stores.memories.delete(
                id,
                memory_store_id=self.store_id,
                expected_content_sha256=None if expected is None else sha256_of(expected),
            ),
            lambda: self.drawn.delete(number, expected=expected),
        )

    @rule(old=plain_paths(), new=paths.filter(lambda path: not path.endswith("/")))
    def rename(self, old: str, new: str) -> None:
        self.both(
            lambda: self.stores.memories.rename(self.store_id, old, new),
            lambda: self.drawn.rename(old, new),
        )

    @precondition(lambda self: self.version_ids)
    @rule(pick=picks)
    def redact(self, pick: int) -> None:
        version = pick % len(self.version_ids)
        self.both(
            lambda: self.stores.memory_versions.redact(
                self.version_ids[version], memory_store_id=self.store_id
            ),
            lambda: self.drawn.redact(version),
        )

    @precondition(lambda self: self.version_ids)
    @rule(pick=picks)
    def restore(self, pick: int) -> None:
        version = pick % len(self.version_ids)
        self.both(
            lambda: self.stores.memory_versions.restore(
                self.version_ids[version], memory_store_id=self.store_id
            ),
            lambda: self.drawn.restore(version),
        )

    @precondition(lambda self: self.memory_ids)
    @rule(path=plain_paths())
    def delete_under(self, path: str) -> None:
        both = self.both(
            lambda: self.stores.memories.delete_under(self.store_id, path),
            lambda: self.drawn.delete_under(path),
        )
        assert both is not None
        assert both[0] == both[1]

    @invariant()
    def versions_tell_the_same(self) -> None:
        newest_first = self.stores.memory_versions.list(self.store_id, view="full", limit=7)
        real = list(newest_first.all())[::-1]
        drawn = self.drawn.versions
        assert len(real) == len(drawn)
        # Of several versions made by one act only the memory says which is which.
        known = len(self.version_ids)
        by_memory = {each.memory_id: each.id for each in real[known:]}
        self.version_ids += [by_memory[self.memory_ids[each.memory]] for each in drawn[known:]]
        told = {each.id: each for each in real}
        for id, wanted in zip(self.version_ids, drawn, strict=True):
            each = told[id]
            assert (each.operation, each.path, each.content) == wanted[1:4]
            assert (each.redacted_at is not None) == wanted.redacted

    @invariant()
    def lists_tell_the_same(self) -> None:
        whole = self.stores.memories.list(self.store_id, view="full", limit=2).all()
        shown = {each.path: each.content for each in whole if isinstance(each, Memory)}
        children = self.stores.memories.list(self.store_id, depth=1, limit=2).all()

        assert list(shown) == self.drawn.listed()
        assert shown == {each.path: each.content for each in self.drawn.memories.values()}
        assert [each.path for each in children] == self.drawn.listed(depth=1)

    @invariant()
    def every_memory_is_where_it_is_drawn(self) -> None:
        for number, each in self.drawn.memories.items():
            found = self.stores.memories.at(self.store_id, each.path)
            assert found is not None
            assert found.id == self.memory_ids[number]
            assert found.content_sha256 == sha256_of(each.content)


def play(hf: Holdfast, *, share: int = 1) -> None:
    """Play one in *share* of the games of the profile, each in a workspace of its own."""

    class Game(StoreMachine):
        def __init__(self) -> None:
            super().__init__(hf.acting(workspace=new_workspace()))

    games = settings().max_examples // share
    run_state_machine_as_test(Game, settings=settings(max_examples=games))


@pytest.fixture
def in_memory() -> Iterator[Holdfast]:
    with holdfast.open(":memory:") as hf:
        yield hf


def test_in_memory(in_memory: Holdfast) -> None:
    play(in_memory)


def test_on_a_sqlite_file(sqlite_file: str) -> None:
    with holdfast.open(sqlite_file) as hf:
        play(hf, share=5)


def test_on_postgres(postgres_url: str) -> None:
    with holdfast.open(postgres_url) as hf:
        play(hf, share=5)


def test_over_http(remote: Holdfast) -> None:
    play(remote, share=5)
