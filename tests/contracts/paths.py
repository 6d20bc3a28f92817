"""What a memory's path may be, and when it is taken."""

from typing import Any

import pytest

from contracts.stores import GivenAStore, invalid, written
from holdfast.ground.errors import InvalidInput, PathTaken
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Store

GOOD = {
    "two bytes": "/a",
    "1,024 bytes": "/" + "x" * 1023,
    "1,024 bytes of four each": "/" + "\U0001f600" * 255 + "xxx",
    "20 segments": "/a" * 20,
    "spaces": "/ a b / c ",
    "a backslash": "/a\\b",
    "wildcards": "/%_*?[a]",
    "quotes": "/'\"`",
    "dots that are no dot segment": "/.../..a/a..",
    "a hidden name": "/.env",
    "an ideographic space": "/a\u3000b",
    "no-break space": "/a\u00a0b",
    "letters beyond ASCII": "/\u00fc\u4e2d\U0001f600",
    "private use": "/\ue000",
    "the reserved name, deeper": "/a/.anthropic-memory-store",
    "below the reserved name's look-alike": "/.anthropic-memory-stores",
}

BAD = {
    "empty": "",
    "the root": "/",
    "no slash at the start": "a",
    "no slash at the start, deeper": "a/b",
    "a slash at the end": "/a/",
    "two slashes": "/a//b",
    "two slashes at the start": "//a",
    "a dot segment": "/a/./b",
    "a dot segment alone": "/.",
    "a dot segment at the end": "/a/.",
    "two dots": "/a/../b",
    "two dots alone": "/..",
    "two dots at the end": "/a/..",
    "1,025 bytes": "/" + "x" * 1024,
    "1,025 bytes, fewer code points": "/" + "\U0001f600" * 256,
    "21 segments": "/a" * 21,
    "U+0000": "/a\x00b",
    "a newline": "/a\nb",
    "a tab": "/a\tb",
    "delete": "/a\x7fb",
    "a C1 control": "/a\x85b",
    "a zero width joiner": "/a\u200db",
    "a zero width space": "/a\u200bb",
    "a soft hyphen": "/a\u00adb",
    "right to left override": "/a\u202eb",
    "a byte order mark": "/\ufeffa",
    "a language tag": "/a\U000e0061",
    "a line separator": "/a\u2028b",
    "a paragraph separator": "/a\u2029b",
    "not in normal form C": "/e\u0301",
    "a sign that is not its own normal form": "/\u212a",
    "a lone surrogate": "/a\ud800",
    "the reserved name": "/.anthropic-memory-store",
}


class PathsContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.mark.parametrize("path", GOOD.values(), ids=GOOD)
    def test_a_good_path_is_kept_as_given(self, hf: Holdfast, store: Store, path: str) -> None:
        (memory,) = written(hf, store, path)

        assert memory.path == path
        found = hf.memory_stores.memories.at(store.id, path)
        assert found is not None
        assert found.id == memory.id

    @pytest.mark.parametrize("path", BAD.values(), ids=BAD)
    def test_a_bad_path_is_refused_on_create(self, hf: Holdfast, store: Store, path: str) -> None:
        with invalid("path"):
            written(hf, store, path)

        assert list(hf.memory_stores.memories.list(store.id)) == []

    @pytest.mark.parametrize("path", BAD.values(), ids=BAD)
    def test_a_bad_path_is_refused_on_update(self, hf: Holdfast, store: Store, path: str) -> None:
        (memory,) = written(hf, store, "/a")

        with invalid("path"):
            hf.memory_stores.memories.update(memory.id, memory_store_id=store.id, path=path)

        assert [each.path for each in hf.memory_stores.memories.list(store.id)] == ["/a"]

    def test_a_path_that_is_no_text_is_refused(self, hf: Holdfast, store: Store) -> None:
        bad: Any = 7

        with invalid("path"):
            written(hf, store, bad)

    @pytest.mark.parametrize(
        ("path", "fixed"),
        [
            ("/e\u0301", "/\u00e9"),
            ("a/b", "/a/b"),
            ("/a//b", "/a/b"),
            ("a//b\n/\u200b/", "/a/b"),
            ("/e\u200b\u0301/", "/\u00e9"),
        ],
    )
    def test_the_message_shows_the_fixed_path(
        self, hf: Holdfast, store: Store, path: str, fixed: str
    ) -> None:
        with pytest.raises(InvalidInput) as refusal:
            written(hf, store, path)

        assert str(refusal.value).endswith(f"Send {fixed} instead.")

    @pytest.mark.parametrize("path", ["//", "..//a", "/.anthropic-memory-store/", "x" * 1024])
    def test_the_message_shows_no_path_that_would_be_refused_too(
        self, hf: Holdfast, store: Store, path: str
    ) -> None:
        with pytest.raises(InvalidInput) as refusal:
            written(hf, store, path)

        assert str(refusal.value).endswith("Choose another path.")

    def test_what_nobody_would_see_is_spelled_out(self, hf: Holdfast, store: Store) -> None:
        with pytest.raises(InvalidInput) as refusal:
            written(hf, store, "/a\u200b\nb")

        assert "(given: /a\\u200b\\nb)" in str(refusal.value)

    def test_the_message_never_repeats_more_than_60_characters(
        self, hf: Holdfast, store: Store
    ) -> None:
        with pytest.raises(InvalidInput) as refusal:
            written(hf, store, "/" + "xyz" * 500)

        assert "xyz" * 25 not in str(refusal.value)


class ExclusivityContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.mark.parametrize(
        ("there", "wanted"),
        [("/a", "/a/b"), ("/a", "/a/b/c/d"), ("/a/b", "/a"), ("/a/b/c/d", "/a"), ("/a", "/a")],
    )
    def test_a_path_is_taken_by_a_memory_at_it_above_it_or_below_it(
        self, hf: Holdfast, store: Store, there: str, wanted: str
    ) -> None:
        (blocker,) = written(hf, store, there)

        with pytest.raises(PathTaken) as refusal:
            written(hf, store, wanted)

        assert refusal.value.conflicting_memory_id == blocker.id
        assert refusal.value.conflicting_path == there
        assert [each.path for each in hf.memory_stores.memories.list(store.id)] == [there]

    @pytest.mark.parametrize(
        "paths",
        [
            ("/a", "/A"),
            ("/a", "/a "),
            ("/a", "/ a"),
            ("/a", "/ab", "/a.md", "/a-b/c", "/a0/b", "/a!/b"),
            ("/a/b", "/a/c", "/ab"),
            ("/a", "/\u0430"),
            ("/%", "/a", "/b/c"),
            ("/_", "/a", "/b/c"),
            ("/a_/x", "/ab", "/a%"),
            ("/a\\b", "/a"),
        ],
    )
    def test_paths_that_only_look_alike_are_different(
        self, hf: Holdfast, store: Store, paths: tuple[str, ...]
    ) -> None:
        written(hf, store, *paths)

        assert {each.path for each in hf.memory_stores.memories.list(store.id)} == set(paths)

    def test_of_several_blockers_the_first_by_bytes_is_named(
        self, hf: Holdfast, store: Store
    ) -> None:
        written(hf, store, "/a/\U0001f600", "/a/\uff5e", "/a/z")
        (first,) = written(hf, store, "/a/B/c")

        with pytest.raises(PathTaken) as refusal:
            written(hf, store, "/a")

        assert refusal.value.conflicting_memory_id == first.id
        assert refusal.value.conflicting_path == "/a/B/c"

    @pytest.mark.parametrize("wanted", ["/b", "/b/c", "/c"])
    def test_renaming_onto_another_memory_is_a_conflict(
        self, hf: Holdfast, store: Store, wanted: str
    ) -> None:
        memory, _, _ = written(hf, store, "/a", "/b", "/c/d")

        with pytest.raises(PathTaken):
            hf.memory_stores.memories.update(memory.id, memory_store_id=store.id, path=wanted)

        assert hf.memory_stores.memories.at(store.id, "/a") is not None

    @pytest.mark.parametrize(("old", "new"), [("/a", "/a/b"), ("/a", "/a/b/c"), ("/a/b", "/a")])
    def test_a_memory_is_not_in_its_own_way(
        self, hf: Holdfast, store: Store, old: str, new: str
    ) -> None:
        (memory,) = written(hf, store, old)

        moved = hf.memory_stores.memories.update(memory.id, memory_store_id=store.id, path=new)

        assert (moved.id, moved.path) == (memory.id, new)
        assert [each.path for each in hf.memory_stores.memories.list(store.id)] == [new]

    def test_a_deleted_memory_blocks_nothing(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a/b")
        hf.memory_stores.memories.delete(memory.id, memory_store_id=store.id)

        (above,) = written(hf, store, "/a")

        assert above.path == "/a"

    def test_a_path_that_was_moved_away_from_is_free(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a")
        hf.memory_stores.memories.update(memory.id, memory_store_id=store.id, path="/b")

        (successor,) = written(hf, store, "/a/c")

        assert successor.id != memory.id

    def test_stores_do_not_know_of_each_others_paths(self, hf: Holdfast, store: Store) -> None:
        other = hf.memory_stores.create(name="Other")
        written(hf, store, "/a")

        (memory,) = written(hf, other, "/a/b")

        assert memory.memory_store_id == other.id
