"""What holds when many entries are written at once."""

from typing import Any

import pytest

from contracts.durable_given import GivenAnAgent, bad, keys_of, listed, refused
from holdfast.ground.errors import InvalidInput, MemoryFull
from holdfast.memories.durable.memory import DurableMemory


def item(key: str, content: str = "x", category: str = "core") -> dict[str, Any]:
    """Return what `set_many` is given for one entry."""
    return {"key": key, "content": content, "category": category}


class DurableManyContract(GivenAnAgent):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_all_are_written_in_their_order(self, durable: DurableMemory) -> None:
        many = durable.set_many([item("a"), item("b"), {**item("c"), "tags": ["u", "t"]}])

        assert keys_of(many.stored) == ["a", "b", "c"]
        assert [each.outcome for each in many.stored] == ["created"] * 3
        assert many.stored[2].tags == ("t", "u")
        assert many.refused == ()
        assert listed(durable) == ["c", "b", "a"]

    def test_entries_may_be_given_as_they_were_read(
        self, durable: DurableMemory, other: DurableMemory
    ) -> None:
        durable.set("a", "x", category="core", tags=("t",))

        other.set_many(durable.list().data)

        entry = other.get("a")
        assert entry is not None
        assert (entry.content, entry.category, entry.tags) == ("x", "core", ("t",))

    def test_none_at_all_may_be_given(self, durable: DurableMemory) -> None:
        assert durable.set_many([]).stored == ()

    def test_the_same_key_twice_is_written_twice(self, durable: DurableMemory) -> None:
        many = durable.set_many([item("a"), item("a", "y")])

        assert [each.outcome for each in many.stored] == ["created", "replaced"]

    def test_the_first_bad_item_raises_and_nothing_is_written(self, durable: DurableMemory) -> None:
        with refused(InvalidInput, "004") as refusal:
            durable.set_many([item("a"), item("b", "\0"), item("", "y")])

        error: Any = refusal.value
        assert error.index == 1
        assert listed(durable) == []

    def test_a_bad_item_that_only_the_store_can_tell_carries_its_index(
        self, durable: DurableMemory
    ) -> None:
        durable.set_limits(cap=1)
        durable.set("a", "x", category="core")

        with refused(MemoryFull, "005") as refusal:
            durable.set_many([item("a", "y"), item("b", category="note")])

        error: Any = refusal.value
        assert error.index == 1
        assert durable.get("a").content == "x"  # pyright: ignore[reportOptionalMemberAccess]

    def test_bad_items_are_skipped_when_asked(self, durable: DurableMemory) -> None:
        durable.set_limits(cap=2)

        many = durable.set_many(
            [item("a"), item("b", "\0"), item("c"), item("d", category="note"), item(" e")],
            on_error="skip",
        )

        assert keys_of(many.stored) == ["a", "c"]
        assert [(each.index, each.key) for each in many.refused] == [
            (1, "b"),
            (3, "d"),
            (4, " e"),
        ]
        assert [each.error.code for each in many.refused] == [
            "HF-MEM-004",
            "HF-MEM-005",
            "HF-MEM-004",
        ]
        assert all(each.error.message and each.error.next for each in many.refused)
        assert listed(durable) == ["c", "a"]

    def test_in_a_run_conversation_entries_go_in_with_the_others(
        self, durable: DurableMemory
    ) -> None:
        items = [item("a"), item("b", category="conversation"), item("c", category="workspace")]

        with durable.run() as run:
            many = run.set_many(items)

        assert [each.scope for each in many.stored] == ["agent", "run", "workspace"]
        assert listed(durable) == ["c", "a"]

    def test_an_eviction_is_told_with_the_entry_that_brought_it(
        self, durable: DurableMemory
    ) -> None:
        durable.set_limits(cap=2)
        durable.set("cold", "x", category="note")

        many = durable.set_many([item("a"), item("b"), item("a", "y")])

        assert [keys_of(each.evicted) for each in many.stored] == [[], ["cold"], []]

    def test_without_refresh_what_is_the_same_stays_as_it_is(self, durable: DurableMemory) -> None:
        first = durable.set("a", "x", category="core")

        many = durable.set_many([item("a"), item("b")], refresh=False)

        assert [each.outcome for each in many.stored] == ["unchanged", "created"]
        assert many.stored[0].seq == first.seq

    def test_a_thousand_are_taken_and_one_more_is_not(self, durable: DurableMemory) -> None:
        most = [item(f"k{number}") for number in range(1000)]

        with bad("items"):
            durable.set_many([*most, item("one more")])
        assert len(durable.set_many(most).stored) == 1000

    @pytest.mark.parametrize("on_error", ["stop", "", None])
    def test_another_way_with_errors_is_refused(
        self, durable: DurableMemory, on_error: Any
    ) -> None:
        with bad("on_error"):
            durable.set_many([item("a")], on_error=on_error)
