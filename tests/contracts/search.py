"""What holds when the memories of a store are searched."""

import pytest

from contracts.stores import GivenAStore, written
from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Store


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

    def test_a_limit_below_1_is_refused(self, hf: Holdfast, store: Store) -> None:
        with pytest.raises(InvalidInput):
            hf.memory_stores.memories.search(store.id, "tabs", limit=0)

    def test_a_snippet_is_short_and_around_the_hit(self, hf: Holdfast, store: Store) -> None:
        content = "filler " * 500 + "the needle is here " + "straw " * 500
        written(hf, store, "/a", content=content)

        (match,) = hf.memory_stores.memories.search(store.id, "needle")

        assert "needle" in match.snippet
        assert len(match.snippet) <= 160

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

    def test_an_unknown_store_is_not_found(self, hf: Holdfast) -> None:
        with pytest.raises(NotFound):
            hf.memory_stores.memories.search("memstore_" + "0" * 24, "tabs")
