"""Contract of paths: which are valid, exclusive, renamed, deleted and found."""

import json
from typing import Any

import pytest

from contracts.stores import GivenAStore, invalid, written
from holdfast.ground.errors import InvalidInput, NotFound, PathTaken
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

    @pytest.mark.surface("http", "the server has a branch for it")
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

    @pytest.mark.surface("http", "error fields cross the wire")
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


class RenameContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def paths(self, hf: Holdfast, store: Store) -> list[str]:
        """Return the paths of the store's memories."""
        return [each.path for each in hf.memory_stores.memories.list(store.id)]

    def test_a_memory_is_renamed_and_keeps_its_id(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a")

        (moved,) = hf.memory_stores.memories.rename(store.id, "/a", "/b/c")

        assert (moved.id, moved.path) == (memory.id, "/b/c")
        assert self.paths(hf, store) == ["/b/c"]
        assert [each.operation for each in hf.memory_stores.memory_versions.list(store.id)] == [
            "modified",
            "created",
        ]

    def test_a_directory_moves_with_everything_below_it(self, hf: Holdfast, store: Store) -> None:
        inside = written(hf, store, "/a/1", "/a/b/2")
        written(hf, store, "/ab", "/a.md", "/A/1", "/b/a/1")

        moved = hf.memory_stores.memories.rename(store.id, "/a", "/z/y")

        assert {each.id: each.path for each in moved} == {
            inside[0].id: "/z/y/1",
            inside[1].id: "/z/y/b/2",
        }
        assert self.paths(hf, store) == ["/A/1", "/a.md", "/ab", "/b/a/1", "/z/y/1", "/z/y/b/2"]

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_each_memory_that_moves_gets_one_version(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, "/a/1", "/a/2", "/b")

        hf.memory_stores.memories.rename(store.id, "/a", "/c")

        versions = hf.memory_stores.memory_versions.list(store.id, operation="modified")
        assert {each.path for each in versions} == {"/c/1", "/c/2"}
        assert len(versions) == 2

    def test_a_memory_found_by_words_of_its_path_is_found_by_the_new_ones(
        self, hf: Holdfast, store: Store
    ) -> None:
        (memory,) = written(hf, store, "/drafts/letter")

        hf.memory_stores.memories.rename(store.id, "/drafts", "/archive")

        search = hf.memory_stores.memories.search
        assert [match.memory.id for match in search(store.id, "archive")] == [memory.id]
        assert search(store.id, "drafts") == []

    @pytest.mark.parametrize("there", ["/z/1", "/z", "/z/1/x"])
    def test_nothing_moves_when_any_target_is_taken(
        self, hf: Holdfast, store: Store, there: str
    ) -> None:
        written(hf, store, "/a/0", "/a/1", "/a/2")
        (blocker,) = written(hf, store, there)
        before = self.paths(hf, store)

        with pytest.raises(PathTaken) as refusal:
            hf.memory_stores.memories.rename(store.id, "/a", "/z")

        assert refusal.value.conflicting_memory_id == blocker.id
        assert self.paths(hf, store) == before
        assert len(hf.memory_stores.memory_versions.list(store.id)) == 4

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_a_directory_that_is_there_is_taken_too(self, hf: Holdfast, store: Store) -> None:
        _, there = written(hf, store, "/a/1", "/z/2")

        with pytest.raises(PathTaken) as refusal:
            hf.memory_stores.memories.rename(store.id, "/a", "/z")

        assert refusal.value.conflicting_memory_id == there.id
        assert self.paths(hf, store) == ["/a/1", "/z/2"]

    def test_a_directory_may_move_up(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, "/a/a/x", "/a/a/y")

        hf.memory_stores.memories.rename(store.id, "/a/a", "/a")

        assert self.paths(hf, store) == ["/a/x", "/a/y"]

    @pytest.mark.parametrize("old", ["/a", "/a/1"])
    def test_nothing_can_move_into_itself(self, hf: Holdfast, store: Store, old: str) -> None:
        written(hf, store, "/a/1", "/a/2")

        with pytest.raises(InvalidInput):
            hf.memory_stores.memories.rename(store.id, old, f"{old}/b")

        assert self.paths(hf, store) == ["/a/1", "/a/2"]

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_nothing_moves_when_any_target_is_no_path(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, "/a/1", "/a/" + "x" * 1000)

        with pytest.raises(InvalidInput):
            hf.memory_stores.memories.rename(store.id, "/a", "/" + "z" * 100)

        assert self.paths(hf, store) == ["/a/1", "/a/" + "x" * 1000]

    @pytest.mark.parametrize("path", ["no slash", "/a//b", "/a/../b", "/.anthropic-memory-store"])
    def test_a_bad_new_path_is_refused(self, hf: Holdfast, store: Store, path: str) -> None:
        written(hf, store, "/a")

        with invalid("new_path"):
            hf.memory_stores.memories.rename(store.id, "/a", path)

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_nothing_at_the_old_path_is_not_found(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, "/ab")

        with pytest.raises(NotFound):
            hf.memory_stores.memories.rename(store.id, "/a", "/b")

    def test_an_unknown_store_is_not_found(self, hf: Holdfast) -> None:
        with pytest.raises(NotFound):
            hf.memory_stores.memories.rename("memstore_" + "0" * 24, "/a", "/b")


class DeleteUnderContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_one_memory_is_deleted(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, "/a", "/ab")

        assert hf.memory_stores.memories.delete_under(store.id, "/a") == 1
        assert [each.path for each in hf.memory_stores.memories.list(store.id)] == ["/ab"]

    def test_everything_below_a_directory_is_deleted_and_nothing_beside_it(
        self, hf: Holdfast, store: Store
    ) -> None:
        written(hf, store, "/a/1", "/a/b/2", "/ab/3", "/a.md", "/A/1")

        assert hf.memory_stores.memories.delete_under(store.id, "/a") == 2
        assert [each.path for each in hf.memory_stores.memories.list(store.id)] == [
            "/A/1",
            "/a.md",
            "/ab/3",
        ]

    def test_each_deleted_memory_leaves_a_version(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, "/a/1", "/a/2", "/b")

        hf.memory_stores.memories.delete_under(store.id, "/a")

        deleted = hf.memory_stores.memory_versions.list(store.id, operation="deleted")
        assert {each.path for each in deleted} == {"/a/1", "/a/2"}

    def test_what_was_deleted_is_found_no_more(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, "/a/1", "/a/2", content="tabs")

        hf.memory_stores.memories.delete_under(store.id, "/a")

        assert hf.memory_stores.memories.search(store.id, "tabs") == []

    def test_it_makes_room(self, hf: Holdfast, store: Store) -> None:
        hf.memory_stores.configure(memories_cap=2)
        written(hf, store, "/a/1", "/a/2")

        hf.memory_stores.memories.delete_under(store.id, "/a")

        assert len(written(hf, store, "/b", "/c")) == 2

    def test_it_works_in_an_archived_store(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, "/a/1", "/a/2")
        hf.memory_stores.archive(store.id)

        assert hf.memory_stores.memories.delete_under(store.id, "/a") == 2

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_an_unknown_store_is_not_found(self, hf: Holdfast) -> None:
        with pytest.raises(NotFound):
            hf.memory_stores.memories.delete_under("memstore_" + "0" * 24, "/a")


@pytest.mark.surface("file", "the text index is written to disk")
class SearchContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def found(self, hf: Holdfast, store: Store, query: str) -> list[str]:
        """Return the paths of what *query* finds, best first."""
        return [match.memory.path for match in hf.memory_stores.memories.search(store.id, query)]

    def test_a_memory_is_found_by_a_word_of_its_content(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a", content="We indent with tabs, always.")
        written(hf, store, "/b", content="We indent with spaces.")

        (match,) = hf.memory_stores.memories.search(store.id, "tabs")

        assert (match.type, match.memory) == ("memory_match", memory)
        assert "tabs" in match.snippet

    def test_a_memory_is_found_by_a_word_of_its_path(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, "/projects/holdfast/style-guide.md", "/other")

        for word in ("projects", "holdfast", "style", "guide"):
            assert self.found(hf, store, word) == ["/projects/holdfast/style-guide.md"]

    def test_what_holds_no_word_of_the_query_is_not_found(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, "/a", content="tabs")

        assert hf.memory_stores.memories.search(store.id, "zebra") == []

    @pytest.mark.parametrize("query", ["cafe", "CAFE", "Café", "CAFÉ", "cafe\u0301"])
    def test_case_and_accents_are_folded(self, hf: Holdfast, store: Store, query: str) -> None:
        written(hf, store, "/a", content="the Café at the corner")
        written(hf, store, "/b", content="THE CAFE")

        assert sorted(self.found(hf, store, query)) == ["/a", "/b"]

    def test_more_of_the_distinct_words_come_first(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, "/often", content="tabs " * 50)
        written(hf, store, "/both", content="tabs and spaces " + "filler " * 200)

        assert self.found(hf, store, "tabs spaces") == ["/both", "/often"]
        assert self.found(hf, store, "tabs tabs tabs spaces") == ["/both", "/often"]

    def test_what_ranks_equal_comes_in_the_order_of_paths(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, "/c", "/a", "/b", content="tabs")

        assert self.found(hf, store, "tabs") == ["/a", "/b", "/c"]

    def test_a_phrase_is_found_as_it_stands(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, "/a", content="tabs before spaces")
        written(hf, store, "/b", content="spaces before tabs")

        assert self.found(hf, store, '"before tabs"') == ["/b"]

    @pytest.mark.parametrize(
        "query", ["world", "spaces", "quoted", "été", "été 漢", '"hello world"', "tabs", "new"]
    )
    def test_words_of_json_stay_apart_at_its_escapes(
        self, hf: Holdfast, store: Store, query: str
    ) -> None:
        value = {"a": 'hello\nworld\ttabs\rspaces "quoted" é\bt\fé C:\\new été', "漢\n": 1}
        written(hf, store, "/raw.json", content=json.dumps(value, ensure_ascii=False))
        written(hf, store, "/ascii.json", content=json.dumps(value, indent=2))
        written(hf, store, "/list", content=json.dumps([value]))

        assert sorted(self.found(hf, store, query)) == ["/ascii.json", "/list", "/raw.json"]
        assert self.found(hf, store, "nworld") == []

    def test_a_backslash_in_text_that_is_no_json_is_no_escape(
        self, hf: Holdfast, store: Store
    ) -> None:
        written(hf, store, "/a.md", content='C:\\new\\tests and "\\u0041da"')

        for query in ("new", "tests", "u0041da"):
            assert self.found(hf, store, query) == ["/a.md"]
        assert self.found(hf, store, "ada") == []

    def test_json_that_is_replaced_is_found_by_no_word_of_its_escapes(
        self, hf: Holdfast, store: Store
    ) -> None:
        (memory,) = written(hf, store, "/a.json", content='"hello\\nworld"')
        update = hf.memory_stores.memories.update

        update(memory.id, memory_store_id=store.id, content='hello\\nworld, "')

        assert self.found(hf, store, "world") == []
        assert self.found(hf, store, "nworld") == ["/a.json"]

    def test_a_snippet_of_json_is_around_the_hit_after_an_escape(
        self, hf: Holdfast, store: Store
    ) -> None:
        text = "filler " * 100 + "\nneedle \x1b" + "straw " * 100
        written(hf, store, "/a.json", content=json.dumps({"text": text}))

        (match,) = hf.memory_stores.memories.search(store.id, "needle")

        assert "filler needle straw" in match.snippet

    @pytest.mark.parametrize(
        "query",
        [
            "tabs AND",
            "NOT tabs",
            "tabs OR zebra",
            "NEAR(tabs, 2)",
            "tabs*",
            "-tabs",
            "+tabs",
            "^tabs",
            "content:tabs",
            "path : tabs",
            '"tabs',
            'tabs"',
            "(tabs",
            "tabs)",
            "tabs'; drop table memories; --",
            "tabs & | ! <-> :*",
            "tabs \\ % _",
            "{tabs}",
            "tabs\x00",
            "tabs \U0001f600",
        ],
    )
    def test_a_query_is_plain_text_without_operators(
        self, hf: Holdfast, store: Store, query: str
    ) -> None:
        written(hf, store, "/a", content="tabs")

        assert self.found(hf, store, query) == ["/a"]

    @pytest.mark.parametrize("query", ["***", '"', '""', "-", "\U0001f600"])
    def test_a_query_without_words_finds_nothing(
        self, hf: Holdfast, store: Store, query: str
    ) -> None:
        written(hf, store, "/a", content="tabs")

        assert self.found(hf, store, query) == []

    @pytest.mark.parametrize("query", ["", " ", "\n\t "])
    def test_a_blank_query_is_refused(self, hf: Holdfast, store: Store, query: str) -> None:
        with pytest.raises(InvalidInput):
            hf.memory_stores.memories.search(store.id, query)

    def test_an_update_is_found_when_it_returns_and_what_it_replaced_is_not(
        self, hf: Holdfast, store: Store
    ) -> None:
        (memory,) = written(hf, store, "/a", content="tabs")

        hf.memory_stores.memories.update(memory.id, memory_store_id=store.id, content="spaces")

        assert self.found(hf, store, "spaces") == ["/a"]
        assert self.found(hf, store, "tabs") == []

    def test_a_deleted_memory_is_found_no_more(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a", content="tabs")

        hf.memory_stores.memories.delete(memory.id, memory_store_id=store.id)

        assert self.found(hf, store, "tabs") == []

    def test_only_the_store_that_was_asked_is_searched(self, hf: Holdfast, store: Store) -> None:
        written(hf, hf.memory_stores.create(name="Other"), "/a", content="tabs")

        assert self.found(hf, store, "tabs") == []

    @pytest.mark.parametrize(
        ("prefix", "expected"), [("/", ["/a/x", "/ab/x", "/b"]), ("/a/", ["/a/x"]), ("/%/", [])]
    )
    def test_a_prefix_narrows_by_whole_segments(
        self, hf: Holdfast, store: Store, prefix: str, expected: list[str]
    ) -> None:
        written(hf, store, "/a/x", "/ab/x", "/b", content="tabs")

        matches = hf.memory_stores.memories.search(store.id, "tabs", path_prefix=prefix)

        assert sorted(match.memory.path for match in matches) == expected

    def test_ten_come_unless_told(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, *(f"/{n:02}" for n in range(12)), content="tabs")
        search = hf.memory_stores.memories.search

        assert len(search(store.id, "tabs")) == 10
        assert len(search(store.id, "tabs", limit=3)) == 3
        assert len(search(store.id, "tabs", limit=12)) == 12

    def test_more_than_a_hundred_matches_come_if_told(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, *(f"/{n:03}" for n in range(130)), content="tabs")
        search = hf.memory_stores.memories.search

        assert len(search(store.id, "tabs", limit=10_000)) == 130
        assert len(search(store.id, "tabs", limit=101)) == 101

    @pytest.mark.surface("http", "error fields cross the wire")
    @pytest.mark.parametrize("limit", [0, 10_001])
    def test_a_limit_outside_1_to_10_000_is_refused(
        self, hf: Holdfast, store: Store, limit: int
    ) -> None:
        with pytest.raises(InvalidInput):
            hf.memory_stores.memories.search(store.id, "tabs", limit=limit)

    def test_a_snippet_is_short_and_around_the_hit(self, hf: Holdfast, store: Store) -> None:
        content = "filler " * 500 + "the needle is here " + "straw " * 500
        written(hf, store, "/a", content=content)

        (match,) = hf.memory_stores.memories.search(store.id, "needle")

        assert "needle" in match.snippet
        assert len(match.snippet) <= 160

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_a_snippet_is_cut_between_characters(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, "/a", content="\U0001f600" * 400 + " needle " + "\U0001f600" * 400)

        (match,) = hf.memory_stores.memories.search(store.id, "needle")

        assert "needle" in match.snippet
        assert len(match.snippet) <= 160

    def test_content_with_zero_bytes_is_searched_to_its_end(
        self, hf: Holdfast, store: Store
    ) -> None:
        written(hf, store, "/a", content="tabs\x00spaces\x00 zebra")

        for word in ("tabs", "spaces", "zebra"):
            assert self.found(hf, store, word) == ["/a"]

    def test_a_very_long_word_does_no_harm(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, "/a", content="x" * 100_000 + " tabs")

        assert self.found(hf, store, "tabs") == ["/a"]

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_an_unknown_store_is_not_found(self, hf: Holdfast) -> None:
        with pytest.raises(NotFound):
            hf.memory_stores.memories.search("memstore_" + "0" * 24, "tabs")
