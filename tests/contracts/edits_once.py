"""Contract of repeated edits, and of edits refused before the store is read."""

import pytest

from contracts.edits import GONE, OTHER, SECOND, GivenEdits
from contracts.stores import invalid, sha256_of, written
from holdfast.ground.errors import (
    IdempotencyMismatch,
    InvalidInput,
    NotFound,
    PreconditionFailed,
)
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.edits import Edit, Move, Moved, Remove, Replace, Save
from holdfast.memories.stores.records import Store
from holdfast.testing.fakes import FrozenClock

DAY = 24 * 3600


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
