"""Whatever is done on both sides, seen or not, and whoever is killed meanwhile: nothing is lost.

Nothing is deleted either that nobody deleted, and both sides come to be equal.
"""

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from doors.mount.synced.played import Played
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

import holdfast
from holdfast.doors.mount.sync import files as local_files
from holdfast.doors.mount.sync.files import FRESH_NS
from holdfast.ground.errors import HoldfastError
from holdfast.memories.stores.memories import Memories

PATHS = st.sampled_from(["/a", "/b", "/c", "/d/a", "/d/b", "/e/f/a"])
PLACES = PATHS | st.sampled_from(["/d", "/e", "/e/f", "/g"])
STEPS = st.none() | st.integers(0, 12)


class Both(RuleBasedStateMachine):
    """Files and memories, changed by turns."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = TemporaryDirectory()
        self._hf = holdfast.open(":memory:")
        self.played = Played(self._hf, Path(self._folder.name))

    @initialize(trusting=st.booleans())
    def trust_marks(self, trusting: bool) -> None:
        """Let files that did not change be known by their marks, as they are after some seconds."""
        local_files.FRESH_NS = 0 if trusting else FRESH_NS

    @rule(path=PATHS, seen=st.booleans())
    def write_a_file(self, path: str, seen: bool) -> None:
        if self.played.write(path, self.played.content()) and seen:
            self.played.touch(path)

    @rule(path=PLACES, seen=st.booleans())
    def remove_a_file(self, path: str, seen: bool) -> None:
        if self.played.remove(path) and seen:
            self.played.touch(path)

    @rule(old=PLACES, new=PLACES, seen=st.booleans())
    def rename_a_file(self, old: str, new: str, seen: bool) -> None:
        if self.played.rename(old, new) and seen:
            self.played.touch(old, new)

    @rule(path=PATHS)
    def make_a_memory(self, path: str) -> None:
        with suppress(HoldfastError):
            self._memories.create(self._store, path=path, content=self.played.content())

    @rule(path=PATHS)
    def change_a_memory(self, path: str) -> None:
        memory = self._memories.at(self._store, path)
        if memory is not None:
            self._memories.update(
                memory.id, memory_store_id=self._store, content=self.played.content()
            )

    @rule(path=PATHS, to=PATHS)
    def move_a_memory(self, path: str, to: str) -> None:
        memory = self._memories.at(self._store, path)
        if memory is not None:
            with suppress(HoldfastError):
                self._memories.update(memory.id, memory_store_id=self._store, path=to)

    @rule(path=PATHS)
    def delete_a_memory(self, path: str) -> None:
        memory = self._memories.at(self._store, path)
        if memory is not None:
            self._memories.delete(memory.id, memory_store_id=self._store)

    @rule(seen=st.booleans(), kill_after=STEPS, at_once=st.integers(1, 4))
    def sync(self, seen: bool, kill_after: int | None, at_once: int) -> None:
        there = self.played.contents()
        self.played.step(seen=seen, kill_after=kill_after, at_once=at_once)
        assert there <= self.played.history() | self.played.contents()

    def teardown(self) -> None:
        there = self.played.contents()
        try:
            self.played.rest()
            assert there <= self.played.history() | self.played.contents()
            assert self.played.unlisted() == self.played.heads_shown()
            assert self.played.removed() <= self.played.removable
        finally:
            local_files.FRESH_NS = FRESH_NS
            self.played.close()
            self._hf.close()
            self._folder.cleanup()

    @property
    def _memories(self) -> Memories:
        return self._hf.memory_stores.memories

    @property
    def _store(self) -> str:
        return self.played.store.id


TestBoth = Both.TestCase
