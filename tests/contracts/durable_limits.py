"""Contract of limits, eviction, texts and categories of durable memory."""

from typing import Any

import pytest

from contracts.durable_writes import (
    WIDTHS,
    GivenAnAgent,
    bad,
    keys_of,
    listed,
    refused,
    seen,
    text_of,
)
from holdfast.ground.errors import InvalidInput, MemoryFull
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.memory import DurableMemory
from holdfast.testing.fakes import FrozenClock

RANGES: dict[str, tuple[int, int]] = {
    "cap": (1, 100_000),
    "workspace_cap": (1, 100_000),
    "run_cap": (1, 100_000),
    "content_bytes": (1, 65_536),
    "budget": (0, 16_777_216),
    "daily_hours": (1, 8_760),
}


def only(name: str, value: int) -> dict[str, Any]:
    """Return the arguments that set the limit *name* alone."""
    return {name: value}


class DurableLimitsContract(GivenAnAgent):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_the_defaults(self, durable: DurableMemory) -> None:
        limits = durable.limits()

        assert (limits.cap, limits.workspace_cap, limits.run_cap) == (1000, 1000, 1000)
        assert (limits.content_bytes, limits.budget, limits.daily_hours) == (16_384, 262_144, 72)

    @pytest.mark.parametrize("name", [each for each in RANGES if each != "workspace_cap"])
    def test_an_agents_limit_goes_from_end_to_end_of_its_range(
        self, durable: DurableMemory, other: DurableMemory, name: str
    ) -> None:
        least, most = RANGES[name]

        for value in (least, most):
            changed = durable.set_limits(**only(name, value))
            assert getattr(changed.limits, name) == getattr(durable.limits(), name) == value
        assert getattr(other.limits(), name) not in {least, most}

    @pytest.mark.surface("http", "fields of the body cross the wire")
    @pytest.mark.parametrize("name", RANGES)
    def test_a_workspaces_limit_is_every_agents(
        self, hf: Holdfast, durable: DurableMemory, name: str
    ) -> None:
        most = RANGES[name][1]

        hf.set_durable_limits(**only(name, most))

        assert getattr(durable.limits(), name) == most

    @pytest.mark.surface("http", "error fields cross the wire")
    @pytest.mark.parametrize("past", [-1, 1])
    @pytest.mark.parametrize("name", RANGES)
    def test_one_past_an_end_is_refused(
        self, hf: Holdfast, durable: DurableMemory, name: str, past: int
    ) -> None:
        least, most = RANGES[name]
        value = least - 1 if past < 0 else most + 1

        with bad(name):
            durable.set_limits(**only(name, value))
        with bad(name):
            hf.set_durable_limits(**only(name, value))

    @pytest.mark.parametrize("value", ["7", 1.5, True])
    def test_what_is_no_number_is_refused(self, durable: DurableMemory, value: Any) -> None:
        with bad("cap"):
            durable.set_limits(cap=value)

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_a_limit_nobody_knows_is_refused(self, durable: DurableMemory) -> None:
        unknown: Any = {"entries": 5}

        with bad("entries"):
            durable.set_limits(**unknown)

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_an_agents_own_limit_goes_over_the_workspaces(
        self, hf: Holdfast, durable: DurableMemory, other: DurableMemory
    ) -> None:
        durable.set_limits(cap=5)
        hf.set_durable_limits(cap=7)

        assert (durable.limits().cap, other.limits().cap) == (5, 7)

    def test_one_limit_leaves_the_others(self, durable: DurableMemory) -> None:
        durable.set_limits(cap=5)
        durable.set_limits(budget=6)

        assert (durable.limits().cap, durable.limits().budget) == (5, 6)

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_a_cap_below_what_is_held_changes_nothing(self, durable: DurableMemory) -> None:
        for key in "abc":
            durable.set(key, "x", category="note")

        with refused(MemoryFull, "005") as refusal:
            durable.set_limits(cap=1, budget=7)

        error: Any = refusal.value
        assert error.would_evict == 2
        assert (durable.limits().cap, durable.limits().budget) == (1000, 262_144)
        assert listed(durable) == ["c", "b", "a"]

    def test_a_cap_of_exactly_what_is_held_is_taken(self, durable: DurableMemory) -> None:
        for key in "abc":
            durable.set(key, "x", category="note")

        assert durable.set_limits(cap=3).evicted == ()

    def test_told_to_evict_the_coldest_go_windowed_first(self, durable: DurableMemory) -> None:
        for key, category in (("A", "core"), ("b", "note"), ("C", "core"), ("d", "note")):
            durable.set(key, "x", category=category)

        changed = durable.set_limits(cap=1, evict=True)

        assert keys_of(changed.evicted) == ["b", "d", "A"]
        assert listed(durable) == ["C"]
        assert [each.key for each in durable.history(op="evict").data] == ["A", "d", "b"]

    def test_raising_the_cap_acts_at_once(self, durable: DurableMemory) -> None:
        durable.set_limits(cap=1)
        durable.set("a", "x", category="core")
        durable.set_limits(cap=2)

        assert durable.set("b", "x", category="note").evicted == ()

    def test_another_handle_goes_by_a_change_with_its_next_act(
        self, hf: Holdfast, durable: DurableMemory
    ) -> None:
        beside = hf.durable("agent_7")
        durable.set_limits(cap=1, budget=0)
        beside.set("a", "x", category="note")

        stored = beside.set("b", "x", category="note")

        assert keys_of(stored.evicted) == ["a"]
        assert beside.hydrate().entries == ()
        assert beside.limits() == durable.limits()

    @pytest.mark.surface("http", "fields of the body cross the wire")
    def test_a_lowered_content_limit_holds_only_for_new_writes(
        self, durable: DurableMemory
    ) -> None:
        durable.set("a", text_of(100), category="core")
        durable.set_limits(content_bytes=10)

        assert durable.get("a") is not None
        assert seen(durable.hydrate()) == ["a"]
        with bad("content"):
            durable.set("b", text_of(11), category="core")
        assert durable.set("b", text_of(10), category="core").seq

    def test_a_raised_content_limit_lets_more_in(self, durable: DurableMemory) -> None:
        durable.set_limits(content_bytes=65_536)

        durable.set("a", text_of(65_536, "🦀"), category="core")

        with bad("content"):
            durable.set("b", text_of(65_537, "🦀"), category="core")

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_the_agents_budget_is_what_a_hydration_has(self, durable: DurableMemory) -> None:
        durable.set("a", "x" * 20, category="core")
        durable.set_limits(budget=10)

        hydration = durable.hydrate()

        assert (hydration.budget, seen(hydration)) == (10, [])
        assert seen(durable.hydrate(1000)) == ["a"]


def fill(durable: DurableMemory, entries: str, cap: int | None = None) -> None:
    """Set the cap to the number of *entries* and store them; upper-case ones are core."""
    durable.set_limits(cap=cap or len(entries))
    for key in entries:
        durable.set(key, "x", category="core" if key.isupper() else "note")


class DurableEvictionContract(GivenAnAgent):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.mark.parametrize(
        ("held", "new", "gone"),
        [
            ("abc", "d", "a"),
            ("abc", "D", "a"),
            ("Abc", "d", "b"),
            ("aBC", "D", "a"),
            ("ABC", "D", "A"),
            ("BAC", "D", "B"),
        ],
    )
    def test_the_coldest_windowed_goes_and_core_only_without_one(
        self, durable: DurableMemory, held: str, new: str, gone: str
    ) -> None:
        fill(durable, held)
        before = durable.get(gone)
        assert before is not None

        stored = durable.set(new, "x", category="core" if new.isupper() else "note")

        (victim,) = stored.evicted
        assert (victim.key, victim.category, victim.scope) == (gone, before.category, "agent")
        assert (victim.seq, victim.size_bytes) == (before.seq, before.size_bytes)
        assert sorted(listed(durable)) == sorted(held.replace(gone, new))

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_a_windowed_entry_among_core_alone_is_refused(self, durable: DurableMemory) -> None:
        fill(durable, "ABCD")
        before = durable.list().data

        with refused(MemoryFull, "005") as refusal:
            durable.set("e", "x", category="note")

        error: Any = refusal.value
        assert (error.cap, error.entries, error.core_entries) == (4, 4, 4)
        assert tuple(error.coldest) == ("A", "B", "C")
        assert "core" in error.next
        assert durable.list().data == before
        assert len(durable.history().data) == 4

    def test_storing_a_held_key_again_never_evicts(self, durable: DurableMemory) -> None:
        fill(durable, "abC")

        again = [
            durable.set("a", "x", category="note"),
            durable.set("a", "y", category="note"),
            durable.set("a", "y", category="core"),
            durable.set("C", "y", category="note"),
        ]

        assert [each.evicted for each in again] == [()] * 4
        assert sorted(listed(durable)) == ["C", "a", "b"]

    def test_a_stored_key_is_warm_again(self, durable: DurableMemory) -> None:
        fill(durable, "abc")
        durable.set("a", "x", category="note")

        assert keys_of(durable.set("d", "x", category="note").evicted) == ["b"]

    def test_a_read_or_an_unchanged_store_warms_nothing(self, durable: DurableMemory) -> None:
        fill(durable, "abc")
        durable.get("a")
        durable.hydrate()
        durable.set("a", "x", category="note", refresh=False)

        assert keys_of(durable.set("d", "x", category="note").evicted) == ["a"]

    def test_many_writes_evict_among_themselves(self, durable: DurableMemory) -> None:
        fill(durable, "a", cap=2)

        many = durable.set_many(
            [{"key": key, "content": "x", "category": "note"} for key in "bcde"]
        )

        assert [keys_of(each.evicted) for each in many.stored] == [[], ["a"], ["b"], ["c"]]
        assert listed(durable) == ["e", "d"]

    def test_an_evicted_key_stored_again_is_a_new_entry(self, durable: DurableMemory) -> None:
        fill(durable, "a")
        first = durable.get("a")
        durable.set("b", "x", category="note")

        again = durable.set("a", "x", category="note")

        assert first is not None
        assert again.outcome == "created"
        assert again.id != first.id

    def test_workspace_entries_compete_among_themselves(
        self, hf: Holdfast, durable: DurableMemory, other: DurableMemory
    ) -> None:
        hf.set_durable_limits(workspace_cap=2)
        durable.set("own", "x", category="note")
        durable.set("w1", "x", category="workspace")
        other.set("w2", "x", category="workspace")

        stored = other.set("w3", "x", category="workspace")

        assert [(each.key, each.scope) for each in stored.evicted] == [("w1", "workspace")]
        assert listed(durable) == ["w3", "w2", "own"]

    @pytest.mark.surface("http", "fields of the body cross the wire")
    def test_conversation_entries_compete_within_their_run(self, durable: DurableMemory) -> None:
        durable.set_limits(run_cap=2, cap=1)
        durable.set("own", "x", category="core")

        with durable.run(lane="a") as first, durable.run(lane="b") as second:
            first.set("c1", "x", category="conversation")
            second.set("s1", "x", category="conversation")
            first.set("c2", "x", category="conversation")
            stored = first.set("c3", "x", category="conversation")

            assert [(each.key, each.scope) for each in stored.evicted] == [("c1", "run")]
            assert keys_of(first.list().data) == ["c3", "c2", "own"]
            assert keys_of(second.list().data) == ["s1", "own"]

    def test_other_scopes_do_not_count_towards_the_cap(self, durable: DurableMemory) -> None:
        durable.set_limits(cap=1)
        durable.set("own", "x", category="note")

        assert durable.set("w", "x", category="workspace").evicted == ()
        with durable.run() as run:
            assert run.set("c", "x", category="conversation").evicted == ()

    def test_moving_an_entry_out_frees_its_place(self, durable: DurableMemory) -> None:
        fill(durable, "ab")
        durable.set("a", "x", category="workspace")

        assert durable.set("c", "x", category="note").evicted == ()

    def test_from_nine_tenths_of_core_each_core_write_says_so(self, durable: DurableMemory) -> None:
        fill(durable, "ABCDEFGH", cap=10)

        ninth = durable.set("I", "x", category="core")
        windowed = durable.set("i", "x", category="note")
        again = durable.set("A", "x", category="core")

        assert "9" in ninth.notices[0]
        assert "10" in ninth.notices[0]
        assert windowed.notices == ()
        assert again.notices == ninth.notices

    def test_below_nine_tenths_nothing_is_said(self, durable: DurableMemory) -> None:
        fill(durable, "ABCDEFG", cap=10)

        assert durable.set("H", "x", category="core").notices == ()

    def test_a_victim_is_logged_with_its_content_and_what_it_made_way_for(
        self, durable: DurableMemory
    ) -> None:
        fill(durable, "a")
        durable.set("b", "x", category="note")

        (change,) = durable.history(op="evict").data

        assert (change.key, change.content) == ("a", "x")
        assert change.cause == {"evicted_for": "b"}

    def test_the_content_of_a_victim_can_be_restored_for_30_days(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        fill(durable, "a")
        durable.set("b", "x", category="note")
        clock.tick(30 * 86_400 - 1)
        durable.sweep()
        (kept,) = durable.history(op="evict").data
        clock.tick(86_400)
        durable.sweep()
        (let_go,) = durable.history(op="evict").data

        assert (kept.content, let_go.content) == ("x", None)


FIELDS = {"key": 255, "content": 16_384, "category": 64, "tags": 64}
NARROW = ("key", "category", "tags")
CONTROLS = ["a\x01b", "a\tb", "a\nb", "a\x7fb", "a\x85b", "a\x9fb"]
AROUND = [" a", "a ", "\u3000a", "a\u00a0"]


def given(field: str, value: str) -> dict[str, Any]:
    """Return the arguments of a `set` that is sound but for *value* in *field*."""
    whole: dict[str, Any] = {"key": "a", "content": "x", "category": "core", "tags": ()}
    return {**whole, field: (value,) if field == "tags" else value}


@pytest.mark.surface("file", "texts of any size and letters are written to disk")
class DurableTextsContract(GivenAnAgent):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.mark.parametrize("char", WIDTHS)
    @pytest.mark.parametrize("field", FIELDS)
    def test_the_most_bytes_are_taken_and_one_more_is_refused(
        self, durable: DurableMemory, field: str, char: str
    ) -> None:
        longest = FIELDS[field]

        with bad(field) as refusal:
            durable.set(**given(field, text_of(longest + 1, char)))
        error: Any = refusal.value
        assert str(longest) in str(error.limit).replace(",", "")
        assert error.given is None or len(error.given) <= 60 + len("…")
        stored = durable.set(**given(field, text_of(longest, char)))
        entry = durable.get(stored.key)
        assert entry is not None
        assert (entry.content, entry.category, entry.tags) == (
            stored.content,
            stored.category,
            stored.tags,
        )

    @pytest.mark.parametrize("text", ["", "a\0b", "a\ud800b"], ids=["empty", "NUL", "surrogate"])
    @pytest.mark.parametrize("field", FIELDS)
    def test_what_no_text_may_be_is_refused(
        self, durable: DurableMemory, field: str, text: str
    ) -> None:
        with bad(field):
            durable.set(**given(field, text))

        assert listed(durable) == []

    @pytest.mark.parametrize("text", [*CONTROLS, *AROUND], ids=ascii)
    @pytest.mark.parametrize("field", NARROW)
    def test_controls_and_space_around_are_refused_in_all_but_content(
        self, durable: DurableMemory, field: str, text: str
    ) -> None:
        with bad(field):
            durable.set(**given(field, text))

    @pytest.mark.parametrize("field", NARROW)
    def test_text_that_is_not_in_nfc_is_refused_with_the_form_that_is(
        self, durable: DurableMemory, field: str
    ) -> None:
        with bad(field) as refusal:
            durable.set(**given(field, "e\u0301"))

        assert "é" in f"{refusal.value.message} {refusal.value.next}"

    @pytest.mark.parametrize(
        "content", [*CONTROLS, *AROUND, "\r\na\r\n", "e\u0301", "\ufeffa", "\u200b"], ids=ascii
    )
    def test_content_is_kept_byte_for_byte(self, durable: DurableMemory, content: str) -> None:
        durable.set("a", content, category="core")

        entry = durable.get("a")
        assert entry is not None
        assert entry.content == content

    @pytest.mark.parametrize("content", [" ", "\n\t ", "\u3000\u00a0"], ids=ascii)
    def test_content_of_whitespace_alone_is_refused(
        self, durable: DurableMemory, content: str
    ) -> None:
        with bad("content"):
            durable.set("a", content, category="core")

    @pytest.mark.parametrize("field", FIELDS)
    @pytest.mark.parametrize("value", [None, 7, b"x"])
    def test_what_is_no_text_is_refused(
        self, durable: DurableMemory, field: str, value: Any
    ) -> None:
        with pytest.raises((InvalidInput, TypeError)):
            durable.set(**given(field, value))

        assert listed(durable) == []

    def test_a_refusal_says_what_to_do_next(self, durable: DurableMemory) -> None:
        with bad("key") as refusal:
            durable.set("", "x", category="core")

        assert refusal.value.next

    def test_32_tags_are_taken_and_one_more_is_refused(self, durable: DurableMemory) -> None:
        tags = [f"t{number:02}" for number in range(33)]

        with bad("tags"):
            durable.set("a", "x", category="core", tags=tags)
        stored = durable.set("a", "x", category="core", tags=[*tags[:32], *tags[:32]])

        assert stored.tags == tuple(tags[:32])

    def test_tags_are_sorted_by_code_point(self, durable: DurableMemory) -> None:
        tags = ("é", "b", "B", "🦀", "\uffee", "a")

        assert durable.set("a", "x", category="core", tags=tags).tags == tuple(sorted(tags))

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_one_text_is_no_list_of_tags(self, durable: DurableMemory) -> None:
        with bad("tags"):
            durable.set("a", "x", category="core", tags="web")

    @pytest.mark.surface("http", "query parameters cross the wire")
    @pytest.mark.parametrize("key", ["__run__", "holdfast:seq", "a/b", "..", "%", "'", "Ⅷ", "A"])
    def test_no_key_is_reserved_or_folded(self, durable: DurableMemory, key: str) -> None:
        durable.set("a", "near", category="core")

        durable.set(key, "x", category="core")

        assert listed(durable) == [key, "a"]
        entry = durable.get(key)
        assert entry is not None
        assert entry.content == "x"

    @pytest.mark.surface("http", "the client has a branch for it")
    @pytest.mark.parametrize("key", ["A", "a ", "\uff41", "a%", "_"])
    def test_get_finds_no_near_match(self, durable: DurableMemory, key: str) -> None:
        durable.set("a", "x", category="core")

        try:
            found = durable.get(key)
        except InvalidInput:
            found = None

        assert found is None

    @pytest.mark.parametrize("name", ["a", "7", "A" * 128, "a._:@+-"])
    def test_a_name_of_the_rule_is_an_agent(self, hf: Holdfast, name: str) -> None:
        assert hf.durable(name).set("a", "x", category="core").agent == name

    @pytest.mark.surface("http", "the client has a branch for it")
    @pytest.mark.parametrize("name", ["", "A" * 129, "-a", "a b", "a/b", "é", "a\n", "*", "a\0"])
    def test_any_other_name_is_refused(self, hf: Holdfast, name: str) -> None:
        with bad("agent"):
            hf.durable(name).get("a")

    @pytest.mark.parametrize("name", ["", "A" * 129, "-a", "a b", "a/b", "é", "a\n", "*"])
    def test_run_ids_and_lanes_follow_the_same_rule(
        self, durable: DurableMemory, name: str
    ) -> None:
        with bad("run_id"):
            durable.run(name)
        with bad("lane"):
            durable.run("r", lane=name)


class DurableCategoriesContract(GivenAnAgent):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.mark.parametrize("category", ["CORE", "Daily", "Workspace", "cores", "CONVERSATIONS"])
    def test_nearly_one_of_the_four_is_a_custom_category_with_a_notice(
        self, durable: DurableMemory, category: str
    ) -> None:
        stored = durable.set("a", "x", category=category)

        assert (stored.category, stored.scope, stored.expires_at) == (category, "agent", None)
        assert category in stored.notices[0]

    @pytest.mark.parametrize("category", ["core", "daily", "workspace", "note", "corey", "daily_2"])
    def test_any_other_category_has_no_notice(self, durable: DurableMemory, category: str) -> None:
        assert durable.set("a", "x", category=category).notices == ()

    def test_a_near_core_entry_is_windowed(self, durable: DurableMemory) -> None:
        durable.set("a", "x", category="core")
        durable.set("b", "x", category="CORE")

        assert durable.explain("a").tier == "pinned"
        assert durable.explain("b").tier == "windowed"
