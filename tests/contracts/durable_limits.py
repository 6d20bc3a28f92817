"""What holds of the limits of durable memory, and when they change."""

from typing import Any

import pytest

from contracts.durable_writes import (
    GivenAnAgent,
    bad,
    keys_of,
    listed,
    refused,
    seen,
    text_of,
)
from holdfast.ground.errors import MemoryFull
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.memory import DurableMemory

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

    @pytest.mark.parametrize("name", RANGES)
    def test_a_workspaces_limit_is_every_agents(
        self, hf: Holdfast, durable: DurableMemory, name: str
    ) -> None:
        most = RANGES[name][1]

        hf.set_durable_limits(**only(name, most))

        assert getattr(durable.limits(), name) == most

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

    def test_a_limit_nobody_knows_is_refused(self, durable: DurableMemory) -> None:
        unknown: Any = {"entries": 5}

        with bad("entries"):
            durable.set_limits(**unknown)

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

    def test_the_agents_budget_is_what_a_hydration_has(self, durable: DurableMemory) -> None:
        durable.set("a", "x" * 20, category="core")
        durable.set_limits(budget=10)

        hydration = durable.hydrate()

        assert (hydration.budget, seen(hydration)) == (10, [])
        assert seen(durable.hydrate(1000)) == ["a"]
