"""Contract of edits applied together, in one transaction or none, and once."""

import pytest

from contracts.stores import GivenAStore, invalid, sha256_of, written
from holdfast.ground.errors import (
    IdempotencyMismatch,
    InvalidInput,
    NotFound,
    PathTaken,
    PreconditionFailed,
    StoreArchived,
    StoreFull,
    TooLarge,
)
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.edits import Edit, Move, Moved, Remove, Replace, Save
from holdfast.memories.stores.records import Applied, Memory, Store
from holdfast.testing.fakes import FrozenClock

FIRST, SECOND, THIRD = "edit_1", "edit_2", "edit_3"
OTHER = sha256_of("what is not there")
GONE = "mem_" + "0" * 24


class GivenEdits(GivenAStore):
    """Gives short ways to apply edits to the store, and to look at what came of it."""

    def apply(self, hf: Holdfast, store: Store, *edits: Edit, id: str = FIRST) -> list[Applied]:
        """Return what the store answers to *edits* under the id *id*."""
        return hf.memory_stores.memories.apply(store.id, edits, edit_id=id)

    def one(self, hf: Holdfast, store: Store, edit: Edit, id: str = FIRST) -> Applied:
        """Return what the store answers to *edit* alone."""
        (applied,) = self.apply(hf, store, edit, id=id)
        return applied

    def held(self, hf: Holdfast, store: Store) -> dict[str, str | None]:
        """Return the content of every memory by its path."""
        listed = hf.memory_stores.memories.list(store.id, view="full").all()
        return {each.path: each.content for each in listed if isinstance(each, Memory)}

    def operations(self, hf: Holdfast, store: Store) -> list[str]:
        """Return what the versions of the store are of, oldest first."""
        versions = hf.memory_stores.memory_versions.list(store.id, limit=100).data
        return [each.operation for each in reversed(versions)]


@pytest.mark.surface("file", "a transaction is committed to disk")
class SavesContract(GivenEdits):
    """Subclass it, and give it an `hf` fixture."""

    def test_a_save_at_a_free_path_makes_a_memory(self, hf: Holdfast, store: Store) -> None:
        applied = self.one(hf, store, Save(path="/a.md", content="tabs"))

        (memory,) = applied.memories
        assert hf.memory_stores.memories.retrieve(
            memory.id, memory_store_id=store.id, view="basic"
        ) == (memory)
        assert (applied.changed, applied.deleted) == (True, ())
        assert self.held(hf, store) == {"/a.md": "tabs"}

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_a_save_of_something_new_goes_to_no_memory_that_is_there(
        self, hf: Holdfast, store: Store
    ) -> None:
        written(hf, store, "/a.md", content="tabs")

        with pytest.raises(PathTaken):
            self.one(hf, store, Save(path="/a.md", content="spaces", new=True))
        self.one(hf, store, Save(path="/b.md", content="spaces", new=True), id=SECOND)

        assert self.held(hf, store) == {"/a.md": "tabs", "/b.md": "spaces"}

    def test_a_save_goes_to_the_memory_at_its_path(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a.md", content="tabs")

        applied = self.one(hf, store, Save(path="/a.md", content="spaces"))

        assert [each.id for each in applied.memories] == [memory.id]
        assert self.operations(hf, store) == ["created", "modified"]

    def test_a_save_by_id_follows_the_memory_and_leaves_its_path(
        self, hf: Holdfast, store: Store
    ) -> None:
        (memory,) = written(hf, store, "/elsewhere.md")

        self.one(hf, store, Save(path="/a.md", content="spaces", memory_id=memory.id))

        assert self.held(hf, store) == {"/elsewhere.md": "spaces"}

    @pytest.mark.parametrize("base", [None, sha256_of("x"), OTHER])
    def test_a_save_of_what_is_there_makes_no_version(
        self, hf: Holdfast, store: Store, base: str | None
    ) -> None:
        (memory,) = written(hf, store, "/a.md", content="x")
        before = hf.memory_stores.memories.snapshot(store.id)

        edit = Save(path="/a.md", content="x", memory_id=memory.id, base_sha256=base)
        applied = self.one(hf, store, edit)

        assert applied == Applied(
            seq=before.seq, changed=False, memories=before.memories, deleted=()
        )
        assert hf.memory_stores.memories.snapshot(store.id) == before

    def test_a_save_on_the_base_that_is_there_replaces_it(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, "/a.md", content="tabs")

        self.one(hf, store, Save(path="/a.md", content="new", base_sha256=sha256_of("tabs")))

        assert self.held(hf, store) == {"/a.md": "new"}

    def test_a_save_on_another_base_is_refused(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a.md", content="tabs")

        with pytest.raises(PreconditionFailed) as refusal:
            self.one(hf, store, Save(path="/a.md", content="new", base_sha256=OTHER))

        assert refusal.value.key == memory.id
        assert self.held(hf, store) == {"/a.md": "tabs"}

    def test_an_append_goes_after_whatever_the_head_is(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a.md", content="one\n")
        append = Save(
            path="/a.md",
            content="one\nmine\n",
            memory_id=memory.id,
            base_sha256=sha256_of("one\n"),
            appended="mine\n",
        )

        for id in (FIRST, SECOND):
            self.one(hf, store, append, id=id)

        assert self.held(hf, store) == {"/a.md": "one\nmine\nmine\n"}

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_an_append_beyond_the_limit_is_too_large(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, "/a.md", content="x" * 102_399)
        self.one(hf, store, Save(path="/a.md", content="", base_sha256=OTHER, appended="y"))

        with pytest.raises(TooLarge) as refusal:
            self.one(
                hf,
                store,
                Save(path="/a.md", content="", base_sha256=OTHER, appended="z"),
                id=SECOND,
            )

        assert refusal.value.limit == 102_400

    @pytest.mark.parametrize("id", [GONE, None])
    def test_on_a_base_that_is_gone_only_an_append_is_made_anew(
        self, hf: Holdfast, store: Store, id: str | None
    ) -> None:
        edit = Save(path="/a.md", content="old new", memory_id=id, base_sha256=OTHER)
        with pytest.raises(PreconditionFailed) as refusal:
            self.one(hf, store, edit)
        assert refusal.value.current is None

        edit = Save(
            path="/a.md", content="old new", memory_id=id, base_sha256=OTHER, appended=" new"
        )
        applied = self.one(hf, store, edit)

        assert self.held(hf, store) == {"/a.md": " new"}
        assert applied.memories[0].id != GONE

    def test_a_replacement_of_a_memory_that_is_gone_makes_it_anew(
        self, hf: Holdfast, store: Store
    ) -> None:
        self.one(hf, store, Save(path="/a.md", content="whole", memory_id=GONE))

        assert self.held(hf, store) == {"/a.md": "whole"}

    def test_a_save_of_a_gone_id_goes_to_who_took_its_path(
        self, hf: Holdfast, store: Store
    ) -> None:
        (memory,) = written(hf, store, "/a.md", content="theirs\n")
        append = Save(
            path="/a.md", content="m", memory_id=GONE, base_sha256=OTHER, appended="mine\n"
        )

        applied = self.one(hf, store, append)

        assert [each.id for each in applied.memories] == [memory.id]
        assert self.held(hf, store) == {"/a.md": "theirs\nmine\n"}

    @pytest.mark.parametrize("there", ["/a", "/a/b/c"])
    def test_a_save_above_or_below_a_memory_is_refused(
        self, hf: Holdfast, store: Store, there: str
    ) -> None:
        (memory,) = written(hf, store, there)

        with pytest.raises(PathTaken) as refusal:
            self.one(hf, store, Save(path="/a/b", content=""))

        assert refusal.value.conflicting_memory_id == memory.id

    def test_at_the_cap_only_a_new_memory_is_refused(self, hf: Holdfast, store: Store) -> None:
        hf.memory_stores.configure(memories_cap=1)
        self.one(hf, store, Save(path="/a", content="x"))

        with pytest.raises(StoreFull):
            self.one(hf, store, Save(path="/b", content="x"), id=SECOND)

        self.apply(hf, store, Save(path="/a", content="y"), id=THIRD)
        assert self.held(hf, store) == {"/a": "y"}


class EditsContract(GivenEdits):
    """Subclass it, and give it an `hf` fixture."""

    def test_a_replace_gives_its_content_to_the_target_and_takes_the_source(
        self, hf: Holdfast, store: Store
    ) -> None:
        target, source = written(hf, store, "/a.md", "/a.md.tmp", content="old")

        edit = Replace(memory_id=target.id, path="/a.md", content="new", source_id=source.id)
        applied = self.one(hf, store, edit)

        assert (applied.memories[0].id, applied.deleted) == (target.id, (source.id,))
        assert self.held(hf, store) == {"/a.md": "new"}
        assert sorted(self.operations(hf, store)) == ["created", "created", "deleted", "modified"]

    def test_a_replace_brings_the_target_to_its_path(self, hf: Holdfast, store: Store) -> None:
        (target,) = written(hf, store, "/moved.md")

        self.one(hf, store, Replace(memory_id=target.id, path="/a.md", content="new"))

        assert self.held(hf, store) == {"/a.md": "new"}
        assert self.operations(hf, store) == ["created", "modified"]

    @pytest.mark.parametrize("there", [(), ("/a.md",)])
    def test_a_replace_of_what_is_gone_goes_to_the_path(
        self, hf: Holdfast, store: Store, there: tuple[str, ...]
    ) -> None:
        written(hf, store, *there)

        edit = Replace(memory_id=GONE, path="/a.md", content="new", source_id="mem_1")
        applied = self.one(hf, store, edit)

        assert applied.deleted == ()
        assert self.held(hf, store) == {"/a.md": "new"}

    def test_a_replace_by_a_source_may_land_where_the_source_was(
        self, hf: Holdfast, store: Store
    ) -> None:
        target, source = written(hf, store, "/a", "/b/c")

        edit = Replace(memory_id=target.id, path="/b", content="new", source_id=source.id)
        self.one(hf, store, edit)

        assert self.held(hf, store) == {"/b": "new"}

    def test_a_move_swaps_and_turns_files_into_directories(
        self, hf: Holdfast, store: Store
    ) -> None:
        a, b, c = written(hf, store, "/a", "/b", "/c")
        goals = ((a.id, "/b"), (b.id, "/a/x"), (c.id, "/c"))

        edit = Move(moves=tuple(Moved(memory_id=id, path=path) for id, path in goals))
        applied = self.one(hf, store, edit)

        assert tuple((each.id, each.path) for each in applied.memories) == goals
        assert sorted(self.held(hf, store)) == ["/a/x", "/b", "/c"]
        assert self.operations(hf, store).count("modified") == 2

    @pytest.mark.parametrize("target", ["/taken", "/taken/x", "/dir", "/free", "/free/x"])
    def test_nothing_moves_when_any_target_is_taken(
        self, hf: Holdfast, store: Store, target: str
    ) -> None:
        a, b, *_ = written(hf, store, "/a", "/b", "/taken", "/dir/1")
        before = hf.memory_stores.memories.snapshot(store.id)
        moves = (Moved(memory_id=a.id, path="/free"), Moved(memory_id=b.id, path=target))

        with pytest.raises(PathTaken):
            self.one(hf, store, Move(moves=moves))

        assert hf.memory_stores.memories.snapshot(store.id) == before

    def test_nothing_moves_when_one_of_them_is_gone(self, hf: Holdfast, store: Store) -> None:
        (a,) = written(hf, store, "/a")
        moves = (Moved(memory_id=a.id, path="/b"), Moved(memory_id=GONE, path="/c"))

        with pytest.raises(NotFound):
            self.one(hf, store, Move(moves=moves))

        assert list(self.held(hf, store)) == ["/a"]

    def test_a_removal_deletes_and_one_of_what_is_gone_is_fine(
        self, hf: Holdfast, store: Store
    ) -> None:
        (memory,) = written(hf, store, "/a")

        first, second = self.apply(
            hf, store, Remove(memory_id=memory.id), Remove(memory_id=memory.id)
        )

        assert (first.changed, first.deleted) == (True, (memory.id,))
        assert (second.changed, second.deleted) == (False, ())
        assert self.operations(hf, store) == ["created", "deleted"]

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_edits_see_what_those_before_them_did(self, hf: Holdfast, store: Store) -> None:
        (a,) = written(hf, store, "/a", content="1")

        self.apply(
            hf,
            store,
            Save(path="/a", content="2", memory_id=a.id, base_sha256=sha256_of("1")),
            Save(path="/a", content="3", memory_id=a.id, base_sha256=sha256_of("2")),
            Move(moves=(Moved(memory_id=a.id, path="/b"),)),
            Save(path="/a", content="4"),
        )

        assert self.held(hf, store) == {"/a": "4", "/b": "3"}
        assert self.operations(hf, store) == ["created", *["modified"] * 3, "created"]

    def test_all_edits_of_one_call_have_one_number(self, hf: Holdfast, store: Store) -> None:
        applied = self.apply(hf, store, Save(path="/a", content="1"), Save(path="/b", content="2"))

        seq = hf.memory_stores.memories.snapshot(store.id).seq
        assert [each.seq for each in applied] == [seq, seq]

    def test_when_one_edit_is_refused_none_is_done(self, hf: Holdfast, store: Store) -> None:
        (a,) = written(hf, store, "/a")
        before = hf.memory_stores.memories.snapshot(store.id)

        with pytest.raises(PreconditionFailed):
            self.apply(
                hf,
                store,
                Remove(memory_id=a.id),
                Save(path="/b", content="2", base_sha256=OTHER),
            )

        assert hf.memory_stores.memories.snapshot(store.id) == before

    def test_words_of_what_was_applied_are_found(self, hf: Holdfast, store: Store) -> None:
        self.apply(hf, store, Save(path="/a", content="marmalade"), Save(path="/b", content="jam"))

        found = hf.memory_stores.memories.search(store.id, "marmalade")

        assert [each.memory.path for each in found] == ["/a"]

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_an_archived_store_takes_no_edit(self, hf: Holdfast, store: Store) -> None:
        (a,) = written(hf, store, "/a")
        hf.memory_stores.archive(store.id)

        for edit in (Save(path="/b", content=""), Remove(memory_id=a.id)):
            with pytest.raises(StoreArchived):
                self.one(hf, store, edit)


DAY = 24 * 3600


@pytest.mark.surface("file", "answers are stored on disk")
@pytest.mark.surface("http", "an answer that is lost is asked for again")
class OnceContract(GivenEdits):
    """Subclass it, and give it `hf`, `elsewhere` and `clock` fixtures."""

    def append(self, text: str = "x") -> Save:
        """Return an edit whose every doing shows."""
        return Save(path="/a", content=text, base_sha256=OTHER, appended=text)

    def test_edits_asked_for_again_are_not_done_again(self, hf: Holdfast, store: Store) -> None:
        (b,) = written(hf, store, "/b")
        edits = (self.append(), Remove(memory_id=b.id), Save(path="/c", content="c"))
        first = self.apply(hf, store, *edits)
        self.one(hf, store, Save(path="/a", content="newer"), id=SECOND)

        again = self.apply(hf, store, *edits)

        assert again == first
        assert self.held(hf, store) == {"/a": "newer", "/c": "c"}

    def test_edits_that_changed_nothing_are_not_done_later(
        self, hf: Holdfast, store: Store
    ) -> None:
        (a,) = written(hf, store, "/a", content="x")
        edit = Save(path="/a", content="x", memory_id=a.id)
        first = self.one(hf, store, edit)
        self.one(hf, store, Save(path="/a", content="newer"), id=SECOND)

        assert self.one(hf, store, edit) == first
        assert self.held(hf, store) == {"/a": "newer"}

    def test_what_was_refused_may_be_asked_for_again(self, hf: Holdfast, store: Store) -> None:
        edit = Save(path="/a", content="new", base_sha256=sha256_of("old"))
        with pytest.raises(PreconditionFailed):
            self.one(hf, store, edit)
        written(hf, store, "/a", content="old")

        assert self.one(hf, store, edit).changed

    @pytest.mark.parametrize(
        "other",
        [
            Save(path="/a", content="y", base_sha256=OTHER, appended="x"),
            Save(path="/b", content="x", base_sha256=OTHER, appended="x"),
            Save(path="/a", content="x", base_sha256=OTHER, appended="y"),
            Remove(memory_id=GONE),
        ],
    )
    def test_an_id_is_of_its_edits_alone(self, hf: Holdfast, store: Store, other: Edit) -> None:
        self.one(hf, store, self.append())

        with pytest.raises(IdempotencyMismatch):
            self.one(hf, store, other)

    def test_the_same_id_in_another_store_or_workspace_is_another(
        self, hf: Holdfast, elsewhere: Holdfast, store: Store
    ) -> None:
        self.one(hf, store, self.append())

        for handle in (hf, elsewhere):
            other = handle.memory_stores.create(name="Other")
            assert self.one(handle, other, Save(path="/z", content="z")).changed

    def test_an_id_is_known_for_a_day_even_if_the_store_was_archived(
        self, hf: Holdfast, store: Store, clock: FrozenClock
    ) -> None:
        first = self.one(hf, store, self.append())
        clock.tick(DAY - 1)
        self.one(hf, store, Save(path="/b", content="b"), id=SECOND)
        hf.memory_stores.archive(store.id)

        assert self.one(hf, store, self.append()) == first

    def test_an_id_is_forgotten_some_time_after_a_day(
        self, hf: Holdfast, store: Store, clock: FrozenClock
    ) -> None:
        self.one(hf, store, self.append("x"))
        clock.tick(DAY + 3601)
        self.one(hf, store, Save(path="/b", content="b"), id=SECOND)

        assert self.one(hf, store, self.append("y")).changed
        assert self.held(hf, store) == {"/a": "xy", "/b": "b"}

    def test_the_answer_outlives_a_redaction_without_what_was_redacted(
        self, hf: Holdfast, store: Store
    ) -> None:
        first = self.one(hf, store, self.append("secret"))
        newer = self.one(hf, store, Save(path="/a", content="new"), id=SECOND)
        version = first.memories[0].memory_version_id
        hf.memory_stores.memory_versions.redact(version, memory_store_id=store.id)

        again = self.one(hf, store, self.append("secret"))

        assert again.memories == newer.memories
        assert self.held(hf, store) == {"/a": "new"}

    def test_a_store_is_deleted_with_its_edits(self, hf: Holdfast, store: Store) -> None:
        self.one(hf, store, self.append())

        hf.memory_stores.delete(store.id)

        with pytest.raises(NotFound):
            self.one(hf, store, self.append())


class RefusedEditsContract(GivenEdits):
    """Subclass it, and give it an `hf` fixture."""

    @pytest.mark.parametrize("id", ["", "edit_", "edit_a b", "mem_1", "edit_" + "1" * 65, "\0"])
    def test_an_id_has_a_shape(self, hf: Holdfast, store: Store, id: str) -> None:
        with invalid("edit_id"):
            self.one(hf, store, Remove(memory_id=GONE), id=id)

    def test_no_edits_and_too_many_are_refused(self, hf: Holdfast, store: Store) -> None:
        for edits in ((), (Remove(memory_id=GONE),) * 1_001):
            with invalid("edits"):
                self.apply(hf, store, *edits)

    @pytest.mark.parametrize(
        ("field", "edit"),
        [
            ("path", Save(path="a", content="")),
            ("content", Save(path="/a", content="x" * 102_401)),
            ("base_sha256", Save(path="/a", content="", base_sha256="x")),
            ("appended", Save(path="/a", content="", appended="x" * 102_401)),
            ("path", Replace(memory_id=GONE, path="/a/", content="")),
            ("content", Replace(memory_id=GONE, path="/a", content="x" * 102_401)),
            ("source_id", Replace(memory_id=GONE, path="/a", content="", source_id=GONE)),
            ("moves", Move(moves=())),
            ("path", Move(moves=(Moved(memory_id=GONE, path="/../a"),))),
            ("moves", Move(moves=(Moved(memory_id=GONE, path="/a"),) * 2)),
        ],
    )
    def test_a_wrong_edit_is_named_and_numbered(
        self, hf: Holdfast, store: Store, field: str, edit: Edit
    ) -> None:
        with pytest.raises(InvalidInput) as refusal:
            self.apply(hf, store, Save(path="/fine", content=""), edit)

        assert (refusal.value.field, refusal.value.index) == (field, 1)
        assert self.held(hf, store) == {}

    def test_the_store_answers_before_its_edits_do(self, hf: Holdfast) -> None:
        with pytest.raises(NotFound):
            hf.memory_stores.memories.apply("memstore_" + "0" * 24, [], edit_id="")
