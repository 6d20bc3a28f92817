"""What holds when durable memory is listed."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from contracts.durable_writes import GivenAnAgent, bad, keys_of, listed
from holdfast.memories.durable.memory import DurableMemory
from holdfast.testing.fakes import FrozenClock


class DurableListingContract(GivenAnAgent):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_newest_first_by_number(self, durable: DurableMemory) -> None:
        for key in ("a", "b", "c", "a"):
            durable.set(key, "x", category="note")

        assert listed(durable) == ["a", "c", "b"]

    def test_the_workspaces_and_the_shadowed_are_listed(
        self, durable: DurableMemory, other: DurableMemory
    ) -> None:
        other.set("a", "shared", category="workspace")
        other.set("mine", "x", category="core")
        durable.set("a", "own", category="core")

        found = durable.list().data

        assert [(each.key, each.content, each.scope) for each in found] == [
            ("a", "own", "agent"),
            ("a", "shared", "workspace"),
        ]

    def test_filters_combine(self, durable: DurableMemory) -> None:
        durable.set("a1", "x", category="core", tags=("t", "u"))
        durable.set("a2", "x", category="core", tags=("t",))
        durable.set("a3", "x", category="note", tags=("t", "u"))
        durable.set("b1", "x", category="core", tags=("t", "u"))

        found = durable.list(category="core", tags=("u", "t"), key_prefix="a", query="X")

        assert keys_of(found.data) == ["a1"]

    def test_a_category_is_exact(self, durable: DurableMemory) -> None:
        durable.set("a", "x", category="note")
        durable.set("b", "x", category="Note")

        assert keys_of(durable.list(category="note").data) == ["a"]

    def test_since_an_instant_holds_that_instant(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set("a", "x", category="note")
        at = clock.tick(60)
        durable.set("b", "x", category="note")

        assert keys_of(durable.list(since=at).data) == ["b"]
        assert keys_of(durable.list(since=at + timedelta(milliseconds=1)).data) == []

    def test_since_a_span_is_back_from_now(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set("a", "x", category="note")
        clock.tick(60)
        durable.set("b", "x", category="note")
        clock.tick(30)

        assert keys_of(durable.list(since=timedelta(seconds=30)).data) == ["b"]
        assert keys_of(durable.list(since=timedelta(seconds=90)).data) == ["b", "a"]

    def test_since_a_time_without_a_zone_is_refused(self, durable: DurableMemory) -> None:
        with bad("since"):
            durable.list(since=datetime(2026, 1, 1))  # noqa: DTZ001 - what is refused

    @pytest.mark.parametrize("prefix", ["a%", "a_", "a\\", "a'", "a*", "a[", "é", "🦀"])
    def test_a_prefix_is_literal(self, durable: DurableMemory, prefix: str) -> None:
        durable.set(prefix + "z", "x", category="note")
        durable.set("abz", "x", category="note")
        durable.set(prefix.upper() + "Z", "x", category="note")

        found = keys_of(durable.list(key_prefix=prefix).data)

        assert sorted(found) == sorted(
            {key for key in (prefix + "z", prefix.upper() + "Z") if key.startswith(prefix)}
        )

    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ("strasse", ["b"]),
            ("STRASSE", ["b"]),
            ("ÉTÉ", ["a"]),
            ("50%", ["c"]),
            ("a_b", ["d"]),
            ("x\\y", ["d"]),
            ("it's", ["c"]),
            ('"q"', ["c"]),
            ("  rot\tβ ", ["b"]),
            ("rot missing", []),
            ("OR", []),
            ("*", []),
            ("  ", ["d", "c", "b", "a"]),
        ],
    )
    def test_each_term_of_a_query_occurs_in_key_content_or_a_tag(
        self, durable: DurableMemory, query: str, found: list[str]
    ) -> None:
        durable.set("a", "an été", category="note")
        durable.set("b", "Straße", category="note", tags=("rot", "\u0392"))
        durable.set("c", '50% of it\'s "Q"', category="note")
        durable.set("d", "a_b x\\y", category="note")

        assert keys_of(durable.list(query=query).data) == found

    def test_a_query_does_not_search_categories(self, durable: DurableMemory) -> None:
        durable.set("a", "x", category="findme")

        assert durable.list(query="findme").data == []

    def test_an_empty_filter_is_no_filter(self, durable: DurableMemory) -> None:
        durable.set("a", "x", category="note")

        found = durable.list(category="", tags=(), key_prefix="", query="")

        assert keys_of(found.data) == ["a"]

    def test_listing_changes_no_order(self, durable: DurableMemory) -> None:
        durable.set("a", "x", category="note")
        durable.set("b", "x", category="note")
        durable.get("a")
        durable.list(key_prefix="a")
        durable.hydrate()

        assert listed(durable) == ["b", "a"]


class DurablePagesContract(GivenAnAgent):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.mark.parametrize("limit", [0, -1, 1001, "7", 1.5, True])
    def test_a_limit_beyond_1_to_1000_is_refused(self, durable: DurableMemory, limit: Any) -> None:
        with bad("limit"):
            durable.list(limit=limit)

    def test_the_edges_of_a_limit_are_taken(self, durable: DurableMemory) -> None:
        durable.set("a", "x", category="note")

        assert len(durable.list(limit=1).data) == len(durable.list(limit=1000).data) == 1

    @pytest.mark.parametrize("limit", [1, 2, 3, 7])
    def test_a_walk_sees_each_entry_once(self, durable: DurableMemory, limit: int) -> None:
        for number in range(6):
            durable.set(f"k{number}", "x", category="workspace" if number % 2 else "core")

        assert keys_of(durable.list(limit=limit).all()) == [f"k{5 - each}" for each in range(6)]

    def test_writes_meanwhile_neither_hide_nor_double_the_unwritten(
        self, durable: DurableMemory
    ) -> None:
        for number in range(6):
            durable.set(f"k{number}", "x", category="note")
        first = durable.list(limit=2)

        durable.set("k0", "y", category="note")
        durable.set("k5", "y", category="note")
        durable.forget("k3")
        durable.set("new", "x", category="note")
        rest = durable.list(limit=2, page=first.next_page)
        walked = keys_of(first.data) + keys_of(rest.all())

        assert [key for key in walked if key in {"k1", "k2", "k4"}] == ["k4", "k2", "k1"]
        assert len(walked) == len(set(walked))

    def test_a_cursor_with_other_filters_is_refused(self, durable: DurableMemory) -> None:
        for number in range(3):
            durable.set(f"k{number}", "x", category="note")
        page = durable.list(category="note", limit=1).next_page

        with bad("page"):
            durable.list(category="core", limit=1, page=page)

    def test_another_agents_cursor_is_refused(
        self, durable: DurableMemory, other: DurableMemory
    ) -> None:
        for number in range(3):
            durable.set(f"k{number}", "x", category="note")

        with bad("page"):
            other.list(limit=1, page=durable.list(limit=1).next_page)

    @pytest.mark.parametrize("damage", ["", "AAAA", "x" * 5000, "é"])
    def test_a_damaged_cursor_is_refused(self, durable: DurableMemory, damage: str) -> None:
        for number in range(3):
            durable.set(f"k{number}", "x", category="note")
        page = durable.list(limit=1).next_page
        assert page is not None

        with bad("page"):
            durable.list(limit=1, page=damage or page[:-3])
