"""Contract of the tool `memory`, for each way in which a model calls it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from contracts.files_cases import (
    ABC,
    ARGUMENTS,
    CREATES,
    DELETES,
    EDITS,
    ILLEGAL,
    PATHS,
    RENAMES,
    TWO,
    VIEWS,
    WRITES,
)
from contracts.files_commands import (
    READ_ONLY,
    Case,
    Clear,
    Run,
    create,
    delete,
    insert,
    listed,
    named_by_command,
    numbered,
    read_files,
    rename,
    str_replace,
    versions,
    view,
    write_files,
)
from holdfast.ground.errors import InvalidInput, NotFound, ToolRefused
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

    def for_tier(self, _: str) -> "Meddling":
        """Return this handle, whatever the tier."""
        return self

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

    @pytest.mark.surface("http", "actors and ids cross the wire")
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

    @pytest.mark.surface("http", "conflicts cross the wire")
    def test_an_edit_is_done_again_on_what_somebody_else_wrote_meanwhile(
        self, hf: Holdfast, run: Run, store_id: str
    ) -> None:
        write_files(hf, store_id, ABC)
        newer = iter(f"{n}\nthree\n" for n in range(4))

        run(
            cast("Holdfast", Meddling(hf, newer)),
            store_id,
            str_replace("/memories/a.md", "three", "3"),
        )

        assert read_files(hf, store_id) == {"/a.md": "3\n3\n"}

    @pytest.mark.surface("http", "conflicts cross the wire")
    def test_an_edit_gives_way_after_five_tries(
        self, hf: Holdfast, run: Run, store_id: str
    ) -> None:
        write_files(hf, store_id, ABC)
        newer = iter(f"{n}\nthree\n" for n in range(9))

        with pytest.raises(ToolRefused) as refusal:
            run(
                cast("Holdfast", Meddling(hf, newer)),
                store_id,
                str_replace("/memories/a.md", "three", "x"),
            )

        assert str(refusal.value) == (
            "The file /memories/a.md is being changed by someone else."
            " View it again before editing."
        )
        assert read_files(hf, store_id) == {"/a.md": "4\nthree\n"}

    @pytest.mark.surface("http", "conflicts cross the wire")
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

    @pytest.mark.surface("http", "actors cross the wire")
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
    @pytest.mark.surface("http", "error fields cross the wire")
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


ARCHIVED = (
    "The memory store is archived: it can be read, and files can be deleted,"
    " but nothing can be written."
)


def name_of(case: object) -> str:
    """Return the name of a test by its case."""
    return cast("Case", case).name


def check(hf: Holdfast, run: Run, store_id: str, case: Case) -> None:
    """Check the result of *case*, and the files that it leaves."""
    write_files(hf, store_id, case.files)

    if case.refused:
        with pytest.raises(ToolRefused) as refusal:
            run(hf, store_id, case.asks)
        says = str(refusal.value)
    else:
        says = run(hf, store_id, case.asks)

    assert says == case.says
    assert read_files(hf, store_id) == (case.files if case.leaves is None else case.leaves)


class FilesContract(FilesWritesContract):
    """Subclass it, and give it the fixtures `hf`, `run` and `clear`."""

    @pytest.mark.parametrize("case", [*VIEWS, *EDITS, *PATHS, *ARGUMENTS], ids=name_of)
    def test_each_command_answers_in_the_words_that_models_know(
        self, hf: Holdfast, run: Run, store_id: str, case: Case
    ) -> None:
        check(hf, run, store_id, case)

    @pytest.mark.surface("http", "conflicts and their fields cross the wire")
    @pytest.mark.parametrize("case", [*CREATES, *DELETES, *RENAMES], ids=name_of)
    def test_each_command_that_can_meet_other_files_answers_in_the_same_words(
        self, hf: Holdfast, run: Run, store_id: str, case: Case
    ) -> None:
        check(hf, run, store_id, case)

    @pytest.mark.parametrize("path", ILLEGAL)
    @pytest.mark.parametrize("ask", [view, create, delete])
    def test_a_path_no_memory_can_have_is_refused_with_the_reason(
        self, hf: Holdfast, run: Run, store_id: str, path: str, ask: Any
    ) -> None:
        with pytest.raises(ToolRefused) as refusal:
            run(hf, store_id, ask(path))

        assert str(refusal.value).startswith(f"Invalid path {path}: ")
        assert not read_files(hf, store_id)

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_a_rename_that_would_make_a_path_too_long_moves_nothing(
        self, hf: Holdfast, run: Run, store_id: str
    ) -> None:
        files = {"/d/a.md": "1", "/d/" + "x" * 600: "2"}
        write_files(hf, store_id, files)
        new = "/memories/" + "y" * 600

        with pytest.raises(ToolRefused, match=f"^Invalid path {new}: "):
            run(hf, store_id, rename("/memories/d", new))

        assert read_files(hf, store_id) == files

    @pytest.mark.parametrize("asks", ["view", 7, None, []])
    def test_arguments_that_are_no_object_are_refused(
        self, hf: Holdfast, run: Run, store_id: str, asks: object
    ) -> None:
        with pytest.raises(ToolRefused, match=r"^Invalid type for parameter arguments"):
            run(hf, store_id, asks)

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_a_full_store_says_what_to_do(self, hf: Holdfast, run: Run, store_id: str) -> None:
        hf.memory_stores.configure(memories_cap=1)
        write_files(hf, store_id, ABC)

        with pytest.raises(ToolRefused) as refusal:
            run(hf, store_id, create("/memories/b.md"))

        assert str(refusal.value) == (
            "The memory store is full (1 files). Delete or merge files, then try again."
        )
        assert run(hf, store_id, insert("/memories/a.md", 0, "zero"))

    @pytest.mark.parametrize("asks", WRITES, ids=named_by_command)
    @pytest.mark.surface("http", "error fields cross the wire")
    def test_an_archived_store_takes_no_writes(
        self, hf: Holdfast, run: Run, store_id: str, asks: dict[str, object]
    ) -> None:
        write_files(hf, store_id, ABC)
        hf.memory_stores.archive(store_id)

        with pytest.raises(ToolRefused) as refusal:
            run(hf, store_id, asks)

        assert str(refusal.value) == ARCHIVED
        assert read_files(hf, store_id) == ABC

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_an_archived_store_can_be_viewed_and_deleted_from(
        self, hf: Holdfast, run: Run, store_id: str
    ) -> None:
        write_files(hf, store_id, ABC)
        hf.memory_stores.archive(store_id)

        assert run(hf, store_id, view("/memories/a.md")).endswith("3\tthree\n     4\t")
        assert run(hf, store_id, delete("/memories/a.md")).startswith("Successfully")
        assert not read_files(hf, store_id)

    @pytest.mark.parametrize(
        "asks",
        [*WRITES, delete("/memories"), rename("/memories", "/memories/x")],
        ids=named_by_command,
    )
    def test_a_read_only_tool_only_views(
        self, hf: Holdfast, run: Run, store_id: str, asks: dict[str, object]
    ) -> None:
        write_files(hf, store_id, ABC)

        with pytest.raises(ToolRefused) as refusal:
            run(hf, store_id, asks, read_only=True)

        assert str(refusal.value) == READ_ONLY
        assert run(hf, store_id, view("/memories"), read_only=True) == listed(
            "/memories", "14B\t/memories", "14B\t/memories/a.md"
        )

    def test_an_illegal_path_is_told_before_read_only_is(
        self, hf: Holdfast, run: Run, store_id: str
    ) -> None:
        with pytest.raises(ToolRefused, match=r"^Path must start with /memories"):
            run(hf, store_id, create("/etc/passwd"), read_only=True)

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_a_store_that_is_gone_is_not_the_models_fault(
        self, hf: Holdfast, run: Run, store_id: str
    ) -> None:
        hf.memory_stores.delete(store_id)

        for asks in (view("/memories"), *WRITES, delete("/memories/a.md")):
            with pytest.raises(NotFound):
                run(hf, store_id, asks)

    @pytest.mark.surface("http", "paths cross the wire")
    def test_a_prefix_is_all_the_model_sees(self, hf: Holdfast, run: Run, store_id: str) -> None:
        write_files(hf, store_id, {"/agents/a/x.md": "mine", "/agents/b/x.md": "theirs"})

        run(hf, store_id, rename("/memories/x.md", "/memories/y/z.md"), prefix="/agents/a/")

        assert run(hf, store_id, view("/memories"), prefix="/agents/a/") == listed(
            "/memories", "4B\t/memories", "4B\t/memories/y/", "4B\t/memories/y/z.md"
        )
        assert read_files(hf, store_id) == {"/agents/a/y/z.md": "mine", "/agents/b/x.md": "theirs"}

    @pytest.mark.parametrize("path", ["/agents", "/agents/a"])
    @pytest.mark.surface("http", "error fields cross the wire")
    def test_a_memory_in_the_way_of_the_prefix_is_called_by_the_roots_name(
        self, hf: Holdfast, run: Run, store_id: str, path: str
    ) -> None:
        write_files(hf, store_id, {path: "in the way"})

        with pytest.raises(ToolRefused) as refusal:
            run(hf, store_id, create("/memories/x.md"), prefix="/agents/a/")

        assert str(refusal.value) == (
            "Cannot create /memories/x.md: /memories is a file, not a directory."
        )

    @pytest.mark.parametrize("prefix", ["agents/", "/agents", "", "//", "/a//", "/a//b/"])
    def test_a_prefix_that_is_no_directory_is_refused_to_the_developer(
        self, hf: Holdfast, run: Run, store_id: str, prefix: str
    ) -> None:
        with pytest.raises(InvalidInput) as refused:
            run(hf, store_id, view("/memories"), prefix=prefix)

        assert refused.value.given == prefix
        assert refused.value.next == "Send a path with a slash at both ends, such as /notes/."

    def test_a_prefix_that_leaves_its_place_is_refused_to_the_developer(
        self, hf: Holdfast, run: Run, store_id: str
    ) -> None:
        with pytest.raises(InvalidInput):
            run(hf, store_id, view("/memories"), prefix="/../")

    @pytest.mark.surface("http", "paths cross the wire")
    def test_clearing_takes_what_is_below_the_prefix_and_no_more(
        self, hf: Holdfast, clear: Clear, store_id: str
    ) -> None:
        write_files(hf, store_id, {"/a/x": "1", "/a/b/y": "2", "/ab": "3"})

        assert clear(hf, store_id, prefix="/a/") == "All memory cleared"
        assert read_files(hf, store_id) == {"/ab": "3"}
        assert clear(hf, store_id, prefix="/ab/") == "All memory cleared"
        assert read_files(hf, store_id) == {"/ab": "3"}
        assert clear(hf, store_id) == "All memory cleared"
        assert not read_files(hf, store_id)

    def test_clearing_a_read_only_memory_is_refused(
        self, hf: Holdfast, clear: Clear, store_id: str
    ) -> None:
        write_files(hf, store_id, ABC)

        with pytest.raises(ToolRefused, match=READ_ONLY):
            clear(hf, store_id, read_only=True)

        assert read_files(hf, store_id) == ABC

    @pytest.mark.surface("http", "cursors cross the wire")
    def test_a_directory_of_many_pages_is_shown_whole(
        self, hf: Holdfast, run: Run, store_id: str
    ) -> None:
        write_files(hf, store_id, {f"/d/{n:03}.md": "x" for n in range(205)})

        shown = run(hf, store_id, view("/memories/d"))

        assert shown.count("\n1B\t/memories/d/") == 205
        assert "\n205B\t/memories/d\n" in shown

    def test_what_was_shown_last_can_be_viewed_by_its_line(
        self, hf: Holdfast, run: Run, store_id: str
    ) -> None:
        write_files(hf, store_id, {"/a.md": "\n".join(map(str, range(1, 12)))})

        says = run(hf, store_id, view("/memories/a.md", view_range=[10, 11]))

        assert says == numbered("/memories/a.md", "10", "11", first=10)
