"""What the tool `memory` leaves in the store, and how it shares it with others."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from contracts.files_cases import ABC
from contracts.files_commands import create, delete, insert, rename, str_replace, view
from contracts.files_given import (
    READ_ONLY,
    Run,
    named_by_command,
    read_files,
    versions,
    write_files,
)
from contracts.files_moves import RENAMES, TWO, WRITES
from holdfast.ground.errors import ToolRefused
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Memory


class Meddling:
    """A handle that writes to a memory as another client after each read of it."""

    def __init__(self, hf: Holdfast, writes: Iterator[str]) -> None:
        self.memory_stores = self
        self.memories: Any = self
        self._memories, self._writes = hf.memory_stores.memories, writes

    def __getattr__(self, name: str) -> object:
        return getattr(self._memories, name)

    def at(self, store_id: str, path: str) -> Memory | None:
        """Return the memory at *path*, no longer as it is."""
        memory = self._memories.at(store_id, path)
        content = next(self._writes, None)
        if memory is not None and content is not None:
            self._memories.update(memory.id, memory_store_id=store_id, content=content)
        return memory


class FilesWritesContract:
    """Its versions, their actors, and other writers; a part of `FilesContract`."""

    @pytest.fixture
    def store_id(self, hf: Holdfast) -> str:
        """Return a new store's id."""
        return hf.memory_stores.create(name="Notes").id

    def test_each_change_leaves_one_version_per_memory_and_keeps_ids(
        self, hf: Holdfast, run: Run, store_id: str
    ) -> None:
        run(hf, store_id, create("/memories/d/a.md", "1\n"))
        run(hf, store_id, create("/memories/d/b.md", "2\n"))
        run(hf, store_id, str_replace("/memories/d/a.md", "1", "one"))
        run(hf, store_id, str_replace("/memories/d/a.md", "one", "one"))
        run(hf, store_id, insert("/memories/d/a.md", 1, "two"))
        run(hf, store_id, rename("/memories/d", "/memories/e"))
        run(hf, store_id, delete("/memories/e"))

        left = versions(hf, store_id)
        a, b = left[0].memory_id, left[1].memory_id
        assert sorted((each.memory_id, each.operation, str(each.path)) for each in left) == sorted(
            [
                (a, "created", "/d/a.md"),
                (b, "created", "/d/b.md"),
                (a, "modified", "/d/a.md"),
                (a, "modified", "/d/a.md"),
                (a, "modified", "/e/a.md"),
                (b, "modified", "/e/b.md"),
                (a, "deleted", "/e/a.md"),
                (b, "deleted", "/e/b.md"),
            ]
        )
        assert {each.created_by for each in left} == {hf.actor}

    def test_a_refusal_leaves_no_version(self, hf: Holdfast, run: Run, store_id: str) -> None:
        write_files(hf, store_id, TWO)

        for case in RENAMES:
            if case.refused:
                with pytest.raises(ToolRefused):
                    run(hf, store_id, case.asks)

        assert [each.operation for each in versions(hf, store_id)] == ["created"] * len(TWO)

    def test_an_edit_is_done_again_on_what_somebody_else_wrote_meanwhile(
        self, hf: Holdfast, run: Run, store_id: str
    ) -> None:
        write_files(hf, store_id, ABC)
        newer = iter(f"{n}\nthree\n" for n in range(4))

        run(Meddling(hf, newer), store_id, str_replace("/memories/a.md", "three", "3"))

        assert read_files(hf, store_id) == {"/a.md": "3\n3\n"}

    def test_an_edit_gives_way_after_five_tries(
        self, hf: Holdfast, run: Run, store_id: str
    ) -> None:
        write_files(hf, store_id, ABC)
        newer = iter(f"{n}\nthree\n" for n in range(9))

        with pytest.raises(ToolRefused) as refusal:
            run(Meddling(hf, newer), store_id, str_replace("/memories/a.md", "three", "x"))

        assert str(refusal.value) == (
            "The file /memories/a.md is being changed by someone else."
            " View it again before editing."
        )
        assert read_files(hf, store_id) == {"/a.md": "4\nthree\n"}

    def test_every_acknowledged_insert_of_eight_threads_is_in_the_file(
        self, hf: Holdfast, run: Run, store_id: str
    ) -> None:
        write_files(hf, store_id, {"/a.md": ""})

        def writer(thread: int) -> list[str]:
            lines = [f"{thread}-{n}" for n in range(10)]
            return [line for line in lines if _acknowledged(hf, run, store_id, line)]

        with ThreadPoolExecutor(8) as pool:
            kept = [line for lines in pool.map(writer, range(8)) for line in lines]

        assert kept
        assert sorted(read_files(hf, store_id)["/a.md"].split()) == sorted(kept)

    def test_a_session_writes_in_its_own_name(self, hf: Holdfast, run: Run, store_id: str) -> None:
        narrowed, session_id = _attached(hf, store_id, "read_write")

        run(narrowed, store_id, create("/memories/a.md"))

        [version] = versions(hf, store_id)
        assert version.created_by.to_wire() == {"type": "session_actor", "session_id": session_id}

    @pytest.mark.parametrize(
        "asks",
        [*WRITES, delete("/memories/a.md")],
        ids=named_by_command,
    )
    def test_a_session_attached_read_only_only_views(
        self, hf: Holdfast, run: Run, store_id: str, asks: dict[str, object]
    ) -> None:
        write_files(hf, store_id, ABC)
        narrowed, _ = _attached(hf, store_id, "read_only")

        with pytest.raises(ToolRefused) as refusal:
            run(narrowed, store_id, asks)

        assert str(refusal.value) == READ_ONLY
        assert run(narrowed, store_id, view("/memories/a.md"))


def _acknowledged(hf: Holdfast, run: Run, store_id: str, line: str) -> bool:
    try:
        run(hf, store_id, insert("/memories/a.md", 0, line))
    except ToolRefused as refusal:
        if "being changed by someone else" not in refusal.message:
            raise
        return False
    return True


def _attached(hf: Holdfast, store_id: str, access: str) -> tuple[Holdfast, str]:
    session = hf.sessions.create(
        agent="agent_7",
        environment_id="env_7",
        resources=[{"type": "memory_store", "memory_store_id": store_id, "access": access}],
    )
    return hf.for_session(session.id), session.id
