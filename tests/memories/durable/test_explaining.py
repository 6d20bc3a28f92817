"""Why a key is seen at a run's start, or is not; and what became of one that is gone."""

import pytest

from holdfast.ground.errors import InvalidInput, StaleRun
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.hydration import explain, hydrate
from holdfast.memories.durable.memory import DurableMemory
from holdfast.memories.durable.records import Explanation
from holdfast.testing.fakes import FrozenClock


def test_a_core_entry_that_fits_is_there(durable: DurableMemory) -> None:
    durable.set("older", "1234", category="core")
    durable.set("window", "x", category="notes")
    durable.set("newer", "1234", category="core")

    assert explain(durable.context, "older", 100) == Explanation(
        key="older",
        hydrated=True,
        reason="core",
        text='"older" is hydrated: it is core, and as number 2 in order its 13 bytes fit the 87'
        " that were left.",
        budget=100,
        category="core",
        scope="agent",
        tier="pinned",
        rank=2,
        size_bytes=13,
        left_before=87,
    )


def test_a_windowed_entry_comes_after_all_core_ones(durable: DurableMemory) -> None:
    durable.set("core", "x", category="core")
    durable.set("house", "x", category="workspace")

    told = explain(durable.context, "house", 100)

    assert (told.hydrated, told.reason, told.tier) == (True, "window", "windowed")
    assert (told.scope, told.rank, told.left_before) == ("workspace", 2, 91)


def test_what_exceeds_the_whole_budget_is_too_big(durable: DurableMemory) -> None:
    durable.set("k", "x" * 100, category="core")

    told = explain(durable.context, "k", 104)

    assert (told.hydrated, told.reason, told.tier) == (False, "too_big", "pinned")
    assert (told.rank, told.size_bytes, told.left_before) == (1, 105, 104)
    assert told.text == '"k" is not hydrated: its 105 bytes exceed the whole budget of 104.'


def test_what_does_not_fit_what_is_left_is_over_budget(durable: DurableMemory) -> None:
    durable.set("k", "x", category="notes")
    durable.set("core", "x", category="core")

    told = explain(durable.context, "k", 14)

    assert (told.hydrated, told.reason) == (False, "over_budget")
    assert (told.rank, told.size_bytes, told.left_before) == (2, 7, 5)


@pytest.mark.parametrize("budget", [None, 0, 7, 20, 1000])
def test_it_agrees_with_the_hydration(durable: DurableMemory, budget: int | None) -> None:
    durable.set("house", "ours", category="workspace")
    for number in range(4):
        durable.set(f"k{number}", "x" * number * 3 + "x", category="core" if number % 2 else "n")
    durable.set("house", "mine", category="core")

    hydration = hydrate(durable.context, budget)

    taken = [entry.key for entry in hydration.entries]
    told = {key: explain(durable.context, key, budget) for key in ["house", "k0", "k1", "k2", "k3"]}
    assert {key for key, each in told.items() if each.hydrated} == set(taken)
    assert {each.budget for each in told.values()} == {hydration.budget}
    omitted = {each.key: each.reason for each in hydration.omitted if each.reason != "shadowed"}
    assert {key: each.reason for key, each in told.items() if not each.hydrated} == omitted
    assert sorted(taken, key=lambda key: told[key].rank or 0) == taken


def test_of_several_under_a_key_it_is_about_the_nearest(durable: DurableMemory) -> None:
    durable.set("house", "ours", category="workspace")
    durable.set("house", "mine", category="core")

    assert explain(durable.context, "house").scope == "agent"


def test_without_a_budget_it_is_the_agents_own(durable: DurableMemory) -> None:
    durable.set("k", "x", category="core")
    durable.set_limits(budget=3)

    told = explain(durable.context, "k")

    assert (told.reason, told.budget) == ("too_big", 3)


def test_of_a_key_that_never_was_nothing_is_known(durable: DurableMemory) -> None:
    assert explain(durable.context, "never") == Explanation(
        key="never",
        hydrated=False,
        reason="never_stored",
        text='"never" was never stored, or so long ago that no trace of it is kept.',
        budget=262_144,
    )


def test_an_expired_entry_says_so_before_it_is_removed(
    durable: DurableMemory, clock: FrozenClock
) -> None:
    entry = durable.set("ticket", "x", category="daily")
    clock.tick(72 * 3600 + 1)

    told = explain(durable.context, "ticket")

    assert (told.hydrated, told.reason, told.category) == (False, "expired", "daily")
    assert told.at == entry.expires_at
    assert told.by == entry.updated_by
    assert (told.tier, told.rank, told.left_before) == (None, None, None)


def test_an_expired_entry_says_so_after_it_was_removed(
    durable: DurableMemory, clock: FrozenClock
) -> None:
    durable.set("ticket", "x", category="daily")
    clock.tick(80 * 3600)
    durable.sweep()

    told = explain(durable.context, "ticket")

    assert (told.reason, told.category, told.size_bytes) == ("expired", "daily", 12)
    assert told.at == clock.now()
    assert told.by


def test_an_evicted_entry_says_when_and_through_whom(
    durable: DurableMemory, clock: FrozenClock
) -> None:
    durable.set("cold", "x", category="notes")
    durable.set_limits(cap=1)
    clock.tick()
    with durable.run("run_1") as run:
        run.set("new", "x", category="notes")

    told = explain(durable.context, "cold")

    assert (told.reason, told.category, told.scope) == ("evicted", "notes", "agent")
    assert told.at == clock.now()
    assert told.by
    assert str(told.by) == "agent:agent_7 run:run_1"
    assert told.text == (
        '"cold" was evicted at 2026-01-01T00:00:01.000Z, to stay within the cap when agent:agent_7'
        " run:run_1 wrote."
    )


def test_a_forgotten_key_is_known_to_whoever_knows_it(
    durable: DurableMemory, clock: FrozenClock
) -> None:
    durable.set("owner", "Ada", category="core")
    clock.tick()
    durable.forget("owner")

    told = explain(durable.context, "owner")

    assert (told.reason, told.category, told.size_bytes) == ("forgotten", None, None)
    assert told.at == clock.now()
    assert told.by
    assert told.by.actor == durable.context.actor


def test_what_was_stored_again_and_evicted_is_no_longer_forgotten(durable: DurableMemory) -> None:
    durable.set("owner", "Ada", category="notes")
    durable.forget("owner")
    durable.set("owner", "Bob", category="notes")
    durable.set_limits(cap=1)
    durable.set("new", "x", category="notes")

    assert explain(durable.context, "owner").reason == "evicted"


def test_a_trace_that_was_forgotten_is_still_known_by_its_key(durable: DurableMemory) -> None:
    durable.set("cold", "x", category="notes")
    durable.set_limits(cap=1)
    durable.set("new", "x", category="notes")
    durable.forget("cold")

    assert explain(durable.context, "cold").reason == "evicted"


def test_a_shared_entry_that_another_agent_forgot_was_forgotten(
    durable: DurableMemory, other: DurableMemory
) -> None:
    durable.set("house", "style", category="workspace")
    other.forget("house")

    told = explain(durable.context, "house")

    assert (told.reason, told.scope) == ("forgotten", "workspace")


def test_another_agents_key_is_one_that_never_was(
    durable: DurableMemory, other: DurableMemory
) -> None:
    for key in ("there", "gone", "old"):
        other.set(key, "x", category="notes")
    other.forget("gone")
    other.set_limits(cap=1, evict=True)

    reasons = {explain(durable.context, key).reason for key in ("there", "gone", "old")}

    assert reasons == {"never_stored"}


def test_an_agent_that_was_forgotten_has_no_past(durable: DurableMemory, hf: Holdfast) -> None:
    durable.set("owner", "Ada", category="core")
    durable.forget("owner")
    hf.forget_agent("agent_7")

    assert explain(durable.context, "owner").reason == "never_stored"


def test_conversation_entries_are_explained_in_their_own_run_alone(
    durable: DurableMemory, clock: FrozenClock
) -> None:
    with durable.run("run_1") as run:
        run.set("scratch", "x", category="conversation")
        inside = explain(run.context, "scratch")
        outside = explain(durable.context, "scratch")
        clock.tick()
    after = explain(durable.context, "scratch")

    assert (inside.hydrated, inside.scope) == (True, "run")
    assert outside.reason == "never_stored"
    assert (after.reason, after.scope, after.category) == ("run_ended", "run", "conversation")
    assert after.at == clock.now()
    assert after.by


def test_what_a_run_forgot_of_its_own_it_alone_knows(durable: DurableMemory) -> None:
    with durable.run("run_1") as run:
        run.set("scratch", "x", category="conversation")
        run.forget("scratch")

        assert explain(run.context, "scratch").reason == "forgotten"
        assert explain(durable.context, "scratch").reason == "never_stored"


def test_a_run_that_was_superseded_learns_nothing(durable: DurableMemory) -> None:
    durable.set("k", "x", category="core")
    first = durable.run("run_1")
    with durable.run("run_2"), pytest.raises(StaleRun) as stale:
        explain(first.context, "k")

    assert stale.value.code == "HF-MEM-006"


@pytest.mark.parametrize(("key", "budget"), [("", None), (7, None), ("k", -1), ("k", True)])
def test_what_breaks_a_rule_is_refused(durable: DurableMemory, key: object, budget: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        explain(durable.context, key, budget)  # pyright: ignore[reportArgumentType]

    assert refused.value.code == "HF-MEM-004"


def test_a_key_that_hides_characters_shows_them_in_the_sentence(durable: DurableMemory) -> None:
    assert explain(durable.context, "a\u202eb").text.startswith('"a\\u202eb" was never')
