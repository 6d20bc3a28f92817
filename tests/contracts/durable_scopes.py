"""Contract of the scopes of durable entries: visibility, and writes across scopes."""

import pytest

from contracts.durable_writes import GivenAnAgent, bad, keys_of, listed, seen
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.memory import DurableMemory


class DurableScopesContract(GivenAnAgent):
    """Subclass it, and give it `hf`, `clock` and `elsewhere` fixtures."""

    @pytest.mark.parametrize("category", ["core", "daily", "note"])
    def test_an_agents_entry_is_its_own(
        self, durable: DurableMemory, other: DurableMemory, category: str
    ) -> None:
        durable.set("a", "x", category=category)

        assert other.get("a") is None
        assert listed(other) == seen(other.hydrate()) == []
        assert other.history().data == []
        assert other.explain("a").reason == "never_stored"
        assert other.forget("a") is False
        assert listed(durable) == ["a"]

    def test_a_workspace_entry_is_everybodys(
        self, durable: DurableMemory, other: DurableMemory
    ) -> None:
        stored = durable.set("a", "x", category="workspace")

        assert (stored.scope, stored.agent) == ("workspace", None)
        entry = other.get("a")
        assert entry is not None
        assert (entry.id, entry.content) == (stored.id, "x")
        assert listed(other) == seen(other.hydrate()) == ["a"]

    def test_another_workspace_sees_none_of_it(
        self, durable: DurableMemory, elsewhere: Holdfast
    ) -> None:
        durable.set("a", "x", category="workspace")
        durable.set("b", "x", category="core")
        there = elsewhere.durable("agent_7")

        assert (there.get("a"), there.get("b"), listed(there)) == (None, None, [])
        assert seen(there.hydrate()) == []
        assert there.history().data == []
        assert there.forget("a") is False
        assert keys_of(durable.list().data) == ["b", "a"]

    def test_anybody_may_write_over_a_workspace_entry(
        self, durable: DurableMemory, other: DurableMemory
    ) -> None:
        first = durable.set("a", "x", category="workspace")

        again = other.set("a", "y", category="workspace")

        assert (again.id, again.outcome) == (first.id, "replaced")

    def test_an_own_entry_stored_as_workspace_moves_there(
        self, durable: DurableMemory, other: DurableMemory
    ) -> None:
        own = durable.set("a", "x", category="core")

        stored = durable.set("a", "x", category="workspace")

        assert (stored.scope, stored.outcome) == ("workspace", "created")
        assert stored.id != own.id
        assert [(each.key, each.scope) for each in durable.list().data] == [("a", "workspace")]
        assert other.get("a") is not None
        assert "move" in [each.op for each in durable.history("a").data]

    def test_a_shared_key_stored_as_core_leaves_the_others_theirs(
        self, durable: DurableMemory, other: DurableMemory
    ) -> None:
        other.set("a", "theirs", category="workspace")

        stored = durable.set("a", "mine", category="core")

        assert (stored.outcome, stored.shadows) == ("created", "workspace")
        mine, theirs = durable.get("a"), other.get("a")
        assert mine is not None
        assert theirs is not None
        assert (mine.content, theirs.content) == ("mine", "theirs")

    def test_a_workspace_entry_moves_only_the_writers_own_away(
        self, durable: DurableMemory, other: DurableMemory
    ) -> None:
        other.set("a", "theirs", category="core")
        durable.set("a", "mine", category="core")

        durable.set("a", "all", category="workspace")

        mine, theirs = durable.get("a"), other.get("a")
        assert mine is not None
        assert theirs is not None
        assert (mine.content, theirs.content) == ("all", "theirs")

    @pytest.mark.parametrize("category", ["core", "daily", "note", "workspace", "conversation"])
    @pytest.mark.parametrize("before", ["core", "workspace", "conversation"])
    def test_in_a_run_what_was_set_is_what_get_returns(
        self, durable: DurableMemory, before: str, category: str
    ) -> None:
        with durable.run() as run:
            run.set("a", "before", category=before)

            stored = run.set("a", "after", category=category)

            entry = run.get("a")
            assert entry is not None
            assert (entry.id, entry.content, entry.category) == (stored.id, "after", category)

    def test_a_run_entry_shadows_the_agents(self, durable: DurableMemory) -> None:
        durable.set("a", "all", category="workspace")
        durable.set("a", "mine", category="core")

        with durable.run() as run:
            stored = run.set("a", "now", category="conversation")

            assert stored.shadows == "agent"
            assert [each.scope for each in run.list().data] == ["run", "agent", "workspace"]
        entry = durable.get("a")
        assert entry is not None
        assert entry.content == "mine"

    def test_a_run_entry_over_a_shared_one_shadows_the_workspace(
        self, durable: DurableMemory
    ) -> None:
        durable.set("a", "all", category="workspace")

        with durable.run() as run:
            assert run.set("a", "now", category="conversation").shadows == "workspace"

    def test_agents_of_a_workspace_are_listed_with_what_they_hold(
        self, hf: Holdfast, durable: DurableMemory, other: DurableMemory
    ) -> None:
        first = durable.set("a", "x", category="core")
        second = durable.set("b", "x", category="note")
        other.set("c", "x", category="core")

        agents = {each.agent: each for each in hf.durable_agents().data}

        assert list(agents) == ["agent_7", "agent_8"]
        totals = agents["agent_7"]
        assert (totals.entries, totals.size_bytes) == (2, first.size_bytes + second.size_bytes)
        assert totals.last_write == second.updated_at

    def test_the_list_of_agents_is_walked_by_name(self, hf: Holdfast) -> None:
        for name in ("c", "a", "b"):
            hf.durable(name).set("k", "x", category="core")

        page = hf.durable_agents(limit=2)

        assert [each.agent for each in page] == ["a", "b"]
        assert [each.agent for each in page.all()] == ["a", "b", "c"]
        assert hf.durable_agents(limit=3).next_page is None

    def test_no_list_of_agents_goes_by_a_limit_or_a_cursor_that_is_none(self, hf: Holdfast) -> None:
        with bad("limit"):
            hf.durable_agents(limit=0)
        with bad("limit"):
            hf.durable_agents(limit=1001)
        with bad("page"):
            hf.durable_agents(page="page_of_nothing")

    def test_the_agents_of_another_workspace_are_not_listed(
        self, durable: DurableMemory, elsewhere: Holdfast
    ) -> None:
        durable.set("a", "x", category="workspace")

        assert elsewhere.durable_agents().data == []
