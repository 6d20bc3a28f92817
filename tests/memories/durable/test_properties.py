"""What holds of any hydration and any eviction, as hypothesis chooses what is there."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.memories.durable.records import EntryScope
from holdfast.memories.durable.rules import (
    HydrationCandidate,
    Leaving,
    OmittedEntry,
    ScopeSize,
    digest,
    excess,
    plan,
    who_goes,
)

scopes: list[EntryScope] = ["run", "agent", "workspace"]
budgets = st.integers(min_value=0, max_value=400)


@st.composite
def candidates(draw: st.DrawFn) -> list[HydrationCandidate]:
    """Draw what may be hydrated: one entry at most of each scope and key, in any order."""
    names = draw(
        st.lists(st.tuples(st.sampled_from(scopes), st.sampled_from("abcdefgh")), unique=True)
    )
    numbers = draw(st.permutations(range(1, len(names) + 1)))
    return [
        HydrationCandidate(
            key=key,
            category=draw(st.sampled_from(["core", "note"])) if scope == "agent" else scope,
            scope=scope,
            size_bytes=draw(st.integers(min_value=3, max_value=200)),
            seq=seq,
            id=f"entry_{seq}",
        )
        for (scope, key), seq in zip(names, numbers, strict=True)
    ]


def divided(
    there: list[HydrationCandidate], budget: int
) -> tuple[tuple[HydrationCandidate, ...], tuple[OmittedEntry, ...]]:
    """Return who is taken of *there*, in that order, and who is left out."""
    return plan(there, budget=budget).divided()


@given(candidates(), budgets)
def test_a_budget_is_never_exceeded(there: list[HydrationCandidate], budget: int) -> None:
    assert sum(each.size_bytes for each in divided(there, budget)[0]) <= budget


@given(candidates(), budgets)
def test_each_candidate_is_taken_or_left_out_once(
    there: list[HydrationCandidate], budget: int
) -> None:
    chosen, omitted = divided(there, budget)

    numbers = [each.seq for each in (*chosen, *omitted)]

    assert sorted(numbers) == sorted(each.seq for each in there)


@given(candidates(), budgets)
def test_core_stands_first_and_each_tier_newest_first(
    there: list[HydrationCandidate], budget: int
) -> None:
    chosen, _ = divided(there, budget)

    assert list(chosen) == sorted(chosen, key=lambda each: (each.category != "core", -each.seq))


@given(candidates(), budgets)
def test_what_was_left_out_did_not_fit_at_its_turn(
    there: list[HydrationCandidate], budget: int
) -> None:
    chosen, omitted = divided(there, budget)

    for each in omitted:
        if each.reason == "shadowed":
            continue
        before = [
            one
            for one in chosen
            if (one.category != "core", -one.seq) < (each.category != "core", -each.seq)
        ]
        assert each.size_bytes > budget - sum(one.size_bytes for one in before)


@given(candidates(), budgets)
def test_no_windowed_entry_changes_which_core_are_taken(
    there: list[HydrationCandidate], budget: int
) -> None:
    chosen, omitted = divided(there, budget)
    shadowed = {each.seq for each in omitted if each.reason == "shadowed"}
    core = [each for each in there if each.category == "core" and each.seq not in shadowed]

    taken = [each for each in chosen if each.category == "core"]

    assert taken == list(divided(core, budget)[0])


@given(candidates(), budgets)
def test_of_one_key_only_the_nearest_is_considered(
    there: list[HydrationCandidate], budget: int
) -> None:
    planned = plan(there, budget=budget)

    considered: dict[str, EntryScope] = {
        each.candidate.key: each.candidate.scope for each in planned.considered
    }

    for each in there:
        assert scopes.index(considered[each.key]) <= scopes.index(each.scope)


@given(candidates(), budgets, st.randoms())
def test_the_order_in_which_entries_are_found_is_nothing(
    there: list[HydrationCandidate], budget: int, random: Random
) -> None:
    shuffled = there.copy()
    random.shuffle(shuffled)

    one, two = divided(there, budget), divided(shuffled, budget)

    assert (one, digest(one[0])) == (two, digest(two[0]))


@given(candidates(), candidates())
def test_a_digest_tells_what_was_taken_apart(
    one: list[HydrationCandidate], two: list[HydrationCandidate]
) -> None:
    names = [[(each.scope, each.key, each.seq) for each in there] for there in (one, two)]

    assert (digest(one) == digest(two)) == (names[0] == names[1])


@st.composite
def holdings(draw: st.DrawFn) -> ScopeSize:
    """Draw how many entries there are, and how many of them are core."""
    entries = draw(st.integers(min_value=0, max_value=12))
    return ScopeSize(entries=entries, core=draw(st.integers(min_value=0, max_value=entries)))


@given(holdings(), st.integers(min_value=1, max_value=12))
def test_core_goes_only_when_nothing_else_is_left(held: ScopeSize, cap: int) -> None:
    leaving = excess(held, cap=cap)

    assert leaving.windowed + leaving.core == max(0, held.entries - cap)
    assert leaving.core == 0 or leaving.windowed == held.entries - held.core


@pytest.mark.parametrize("core", [True, False])
@given(holdings(), st.integers(min_value=1, max_value=12))
def test_a_new_entry_has_a_place_or_is_refused(core: bool, held: ScopeSize, cap: int) -> None:
    leaving = who_goes(held, cap=cap, core=core)

    if leaving == "full":
        assert not core
        assert held.entries - (held.entries - held.core) >= cap
    else:
        assert isinstance(leaving, Leaving)
        assert held.entries - leaving.windowed - leaving.core + 1 <= max(cap, 1)
        assert core or not leaving.core
