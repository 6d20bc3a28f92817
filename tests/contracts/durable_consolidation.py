"""Contract of consolidating an agent's entries: merged, expired, undone."""

import json
from collections.abc import Callable
from datetime import datetime
from random import Random
from typing import Any

import pytest

from contracts.longterm_items import bad
from holdfast import Budget
from holdfast.ground.errors import Conflict, HistoryGone
from holdfast.ground.scope import Scope
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.memory import DurableMemory
from holdfast.memories.durable.records import DurableEntry
from holdfast.memories.longterm.background.extractor import ExtractionRequest
from holdfast.memories.longterm.consolidation.jobs import calls_of
from holdfast.memories.longterm.consolidation.records import Consolidation
from holdfast.testing.fakes import FrozenClock

HOUR, DAY = 3_600, 86_400
OFFICE = "The harbour office in Porto is near the old bridge"
AGAIN = "The harbour office in Porto is near the old bridge now"
TEXTS = (OFFICE, AGAIN, "Deploys go to fly.io", "Tests run on 3 cores", "Tests run on 4 cores")


PROPOSED: dict[str, list[dict[str, object]]] = {
    "merge": [
        {
            "entries": ["e1", "e2"],
            "text": "Deploys go to fly.io, at night",
            "reason": "One subject.",
        }
    ],
    "edit": [{"entry": "e3", "text": "Run tests with make"}],
    "supersede": [{"old": "e4", "new": "e5"}],
    "expire": [{"entry": "e6", "reason": "The printer is gone."}],
}
"""A model's answer about the entries of `noted`."""
Answer = Callable[[ExtractionRequest], str]


def answers(**lists: list[dict[str, object]]) -> Answer:
    """Return a model that answers *lists*."""
    return lambda _request: json.dumps(lists)


def unreadable(request: ExtractionRequest) -> str:
    """Answer what is no object of lists."""
    del request
    return "I would rather not."


def noted(durable: DurableMemory, clock: FrozenClock) -> None:
    """Write entries that no rule joins; e1 to e6 of a request are these in order."""
    durable.set("deploy_at", "Deploys run at night", category="core", tags=["b"])
    clock.tick(HOUR)
    durable.set("deploy", "Deploys go to fly.io", category="core", tags=["a"])
    durable.set("tests", "One runs tests with make", category="core")
    durable.set("lives", "The team is in Lisbon", category="notes")
    clock.tick(HOUR)
    durable.set("lives_2", "The team is in Porto", category="notes")
    durable.set("old", "The printer is on floor two", category="notes")
    clock.tick(HOUR)


def proposed(hf: Holdfast, **given: Any) -> Consolidation:
    """Return a job on the entries of agent_7 that has ended."""
    job = hf.consolidations.create(agent="agent_7", **given)
    return hf.consolidations.wait(job.id)


def entry_of(durable: DurableMemory, key: str, at: datetime | None = None) -> DurableEntry:
    """Return the entry under *key*, which is there."""
    found = durable.get(key, at=at)
    assert found is not None
    return found


def contents(durable: DurableMemory) -> dict[str, tuple[str, str, tuple[str, ...], str]]:
    """Return id, content, tags and time of each entry by key."""
    return {
        each.key: (each.id, each.content, each.tags, each.updated_at.isoformat())
        for each in durable.list(limit=1_000).all()
    }


class AgentConsolidationContract:
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.fixture
    def durable(self, hf: Holdfast) -> DurableMemory:
        """Give the durable memory of agent_7."""
        return hf.durable("agent_7")

    @pytest.mark.surface("http", "jobs, proposals and decisions cross the wire")
    @pytest.mark.surface("file", "jobs and undoing are stored")
    def test_entries_that_say_the_same_become_one_and_return_with_undo(
        self, hf: Holdfast, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set("office", OFFICE, category="core", tags=["porto"])
        clock.tick(HOUR)
        durable.set("office_2", AGAIN, category="core", tags=["office"])
        durable.set("office_3", AGAIN, category="notes")
        durable.set("three", "Tests run on 3 cores", category="core")
        durable.set("four", "Tests run on 4 cores", category="core")
        clock.tick(HOUR)
        before = contents(durable)
        job = proposed(hf)
        (change,) = job.proposal.changes

        assert (job.agent, job.user, job.store) == ("agent_7", None, None)
        assert change.op == "merge"
        assert [(each.place, each.after is None) for each in change.texts] == [
            ("office_2", False),
            ("office", True),
        ]
        assert f"-{OFFICE}" in change.diff
        assert contents(durable) == before
        clock.tick(HOUR)
        applied = hf.consolidations.accept(job.id)

        assert (applied.changed, applied.store_id) == ((change.id,), None)
        after = contents(durable)
        assert sorted(after) == ["four", "office_2", "office_3", "three"]
        assert after["office_2"][2] == ("office", "porto")
        clock.tick(HOUR)
        assert hf.consolidations.retrieve(job.id).proposal.changes[0].diff == change.diff
        undone = hf.consolidations.undo(job.id)

        assert (undone.changed, undone.kept) == ((change.id,), ())
        assert contents(durable) == before
        with pytest.raises(Conflict):
            hf.consolidations.undo(job.id)

    def test_an_entry_that_was_not_written_for_a_year_is_proposed_to_expire(
        self, hf: Holdfast, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set("rule", "Never push on Friday", category="core")
        durable.set("old", "The printer is on floor two", category="notes")
        clock.tick(366 * DAY)
        durable.set("new", "The scanner is on floor one", category="notes")
        clock.tick(HOUR)
        job = proposed(hf)
        (change,) = job.proposal.changes

        assert (change.op, [each.place for each in change.texts]) == ("expire", ["old"])
        hf.consolidations.accept(job.id)
        assert sorted(contents(durable)) == ["new", "rule"]
        clock.tick(HOUR)
        hf.consolidations.undo(job.id)
        assert sorted(contents(durable)) == ["new", "old", "rule"]

    def test_a_change_of_an_entry_that_was_written_since_is_refused_alone(
        self, hf: Holdfast, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        for key in ("a", "b"):
            durable.set(key, OFFICE, category="core")
            durable.set(f"{key}_2", "Deploys go to fly.io", category=key)
        durable.set("b_3", "Deploys go to fly.io", category="b")
        clock.tick(HOUR)
        job = proposed(hf)
        durable.set("a", "The office has closed", category="core")
        clock.tick(HOUR)

        done = hf.consolidations.accept(job.id)

        assert (len(done.changed), len(done.stale)) == (1, 1)
        assert sorted(contents(durable)) == ["a", "a_2", "b", "b_3"]

    def test_undoing_leaves_a_key_that_was_written_since(
        self, hf: Holdfast, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set("a", OFFICE, category="core")
        durable.set("b", OFFICE, category="core")
        clock.tick(HOUR)
        hf.consolidations.accept(proposed(hf).id)
        durable.set("a", "Another office", category="core")
        (job,) = hf.consolidations.list(agent="agent_7").data

        assert hf.consolidations.undo(job.id).kept == ("a",)
        assert contents(durable)["a"][1] == "Another office"

    def test_the_jobs_of_an_agent_are_listed_in_pages(self, hf: Holdfast) -> None:
        made = [proposed(hf).id for _ in range(3)]
        hf.consolidations.create(agent="agent_8")

        listed = hf.consolidations.list(agent="agent_7", limit=1).all()

        assert [job.id for job in listed] == made[::-1]

    def test_a_forgotten_key_is_in_no_proposal_and_does_not_return(
        self, hf: Holdfast, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set('se"cret\\%', OFFICE, category="core")
        durable.set("b", OFFICE, category="core")
        clock.tick(HOUR)
        first, second = proposed(hf), proposed(hf)
        hf.consolidations.accept(first.id)
        durable.forget('se"cret\\%')

        for job in (first, second):
            assert 'se"cret' not in hf.consolidations.retrieve(job.id).proposal.diff
            (change,) = hf.consolidations.retrieve(job.id).proposal.changes
            assert change.texts == ()
        hf.consolidations.undo(first.id)
        assert sorted(contents(durable)) == ["b"]

    def test_entries_of_the_workspace_and_of_runs_are_no_input(
        self, hf: Holdfast, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set("a", OFFICE, category="workspace")
        with durable.run("run_1") as run:
            run.set("b", OFFICE, category="conversation")
            durable.set("c", OFFICE, category="core")
            clock.tick(HOUR)
            assert proposed(hf).proposal.changes == ()

    def test_an_agent_is_named(self, hf: Holdfast) -> None:
        with bad("agent"):
            hf.consolidations.create(agent="*")

    @pytest.mark.embedded("a function is no model of a server")
    @pytest.mark.surface("file", "texts of a model and undoing are stored")
    def test_a_model_merges_edits_supersedes_and_expires_and_all_is_undone(
        self, hf: Holdfast, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        noted(durable, clock)
        before = contents(durable)
        job = proposed(hf, model=answers(**PROPOSED))
        changes = {each.op: each for each in job.proposal.changes}

        assert (job.status, job.usage.calls) == ("completed", 1)
        assert list(changes) == ["merge", "edit", "supersede", "expire"]
        assert changes["merge"].reason == "One subject."
        merged = {each.place: each.after for each in changes["merge"].texts}
        assert merged == {"deploy": "Deploys go to fly.io, at night", "deploy_at": None}
        assert "+Deploys go to fly.io, at night" in changes["merge"].diff
        assert contents(durable) == before
        again = hf.consolidations.replay(job.id)
        assert [each.diff for each in again.changes] == [each.diff for each in changes.values()]
        clock.tick(HOUR)
        wanted = [changes["merge"].id, changes["edit"].id]
        half = hf.consolidations.accept(job.id, only=wanted)

        assert half.changed == tuple(wanted)
        assert hf.consolidations.retrieve(job.id).proposal.status == "open"
        after = contents(durable)
        assert sorted(after) == ["deploy", "lives", "lives_2", "old", "tests"]
        assert after["deploy"][1:3] == ("Deploys go to fly.io, at night", ("a", "b"))
        assert after["tests"][1] == "Run tests with make"
        assert after["lives"] == before["lives"]
        clock.tick(HOUR)
        assert hf.consolidations.accept(job.id).stale == ()
        assert sorted(contents(durable)) == ["deploy", "lives_2", "tests"]
        clock.tick(HOUR)
        undone = hf.consolidations.undo(job.id)

        assert (len(undone.changed), undone.kept) == (4, ())
        assert contents(durable) == before
        assert entry_of(durable, "tests", at=clock.now()).content == "One runs tests with make"

    @pytest.mark.embedded("a function is no model of a server")
    def test_what_a_model_makes_up_is_left_out(
        self, hf: Holdfast, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set("a", "Deploys go to fly.io on port 8080", category="core")
        durable.set("b", "Never push on Friday", category="core")
        durable.set("c", "The office is in Porto", category="notes")
        texts = ["Deploys go to port 9090", "Deploys go to Heroku now", ""]
        edits: list[dict[str, object]] = [{"entry": "e1", "text": text} for text in texts]
        clock.tick(HOUR)
        job = proposed(
            hf,
            model=answers(
                edit=[*edits, {"entry": "e2", "text": "Push on Friday"}, {"entry": "e9"}],
                merge=[
                    {"entries": ["e1", "e3"], "text": "Deploys go to fly.io"},
                    {"entries": ["e1"], "text": "Deploys go to fly.io"},
                ],
                supersede=[{"old": "e1", "new": "e1"}, {"old": "e1", "new": "e7"}],
                expire=[{"entry": "e1", "reason": "It is core."}],
            ),
        )

        assert (job.status, job.proposal.changes) == ("completed", ())
        failed = proposed(hf, model=unreadable)
        assert (failed.status, failed.error) == ("failed", "UnreadableAnswer")
        long = proposed(hf, model=answers(edit=[{"entry": "e3", "text": "The office. " * 2_000}]))
        assert len(hf.consolidations.accept(long.id).stale) == 1
        assert contents(durable)["c"][1] == "The office is in Porto"

    @pytest.mark.embedded("a function is no model of a server")
    def test_a_text_of_a_model_is_as_sure_as_the_least_of_its_sources(
        self, hf: Holdfast, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        tool = hf.for_tier("assistant").durable("agent_7")
        durable.set("said", "Deploys go to fly.io", category="core")
        tool.set("seen", "Deploys run at night", category="core")
        tool.set("guess", "The office is in Faro", category="notes")
        durable.set("known", "The office is in Porto", category="notes")
        clock.tick(HOUR)
        job = proposed(
            hf,
            model=answers(
                merge=[{"entries": ["e1", "e2"], "text": "Deploys go to fly.io at night"}],
                supersede=[{"old": "e4", "new": "e3", "reason": "Moved."}],
            ),
        )

        assert [each.op for each in job.proposal.changes] == ["merge", "conflict"]
        hf.consolidations.accept(job.id)
        said = entry_of(durable, "said")
        assert (said.content, said.tier) == ("Deploys go to fly.io at night", "assistant")
        assert entry_of(durable, "known").content == "The office is in Porto"
        clock.tick(HOUR)
        hf.consolidations.undo(job.id)
        tiers = [entry_of(durable, key).tier for key in ("said", "seen")]
        assert tiers == ["said", "assistant"]

    @pytest.mark.embedded("a function is no model of a server")
    def test_a_changed_text_is_left_by_undo_once_it_was_written_since(
        self, hf: Holdfast, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        noted(durable, clock)
        job = proposed(hf, model=answers(**PROPOSED))
        hf.consolidations.accept(job.id)
        clock.tick(HOUR)
        durable.set("tests", "Tests run in the cloud", category="core")

        assert hf.consolidations.undo(job.id).kept == ("tests",)
        assert entry_of(durable, "tests").content == "Tests run in the cloud"
        assert entry_of(durable, "deploy").content == "Deploys go to fly.io"

    @pytest.mark.embedded("a function is no model of a server")
    def test_what_is_forgotten_or_redacted_is_in_no_text_and_no_call(
        self, hf: Holdfast, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        noted(durable, clock)
        durable.set("daily", "The canary of the day", category="daily")
        seen: list[str] = []

        def model(request: ExtractionRequest) -> str:
            seen.append(request.conversation)
            return json.dumps(PROPOSED)

        job = proposed(hf, model=model)
        engine = hf.engine.scoped(Scope(workspace=hf.workspace, agent="*", user="*"))
        assert "Deploys go to fly.io" in seen[0]
        assert "canary" not in seen[0]
        assert len(calls_of(engine, job.id)) == 1
        durable.redact(entry_of(durable, "tests").seq)

        assert calls_of(engine, job.id) == []
        diff = hf.consolidations.retrieve(job.id).proposal.diff
        assert "Run tests with make" not in diff
        assert "+Deploys go to fly.io, at night" in diff
        with pytest.raises(HistoryGone):
            hf.consolidations.replay(job.id)
        durable.forget("deploy_at")
        assert "at night" not in hf.consolidations.retrieve(job.id).proposal.diff
        done = hf.consolidations.accept(job.id)
        assert entry_of(durable, "deploy").content == "Deploys go to fly.io"
        assert len(done.changed) == 2

    @pytest.mark.embedded("a function is no model of a server")
    def test_a_budget_of_one_token_leaves_the_rules(
        self, hf: Holdfast, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set("a", OFFICE, category="core")
        durable.set("b", OFFICE, category="core")
        durable.set("c", "Deploys go to fly.io", category="core")
        clock.tick(HOUR)
        edit = answers(edit=[{"entry": "e1", "text": "Deploys go to fly.io"}])
        job = proposed(hf, model=edit, budget=Budget(tokens=1))

        assert (job.status, [each.op for each in job.proposal.changes]) == ("partial", ["merge"])

    @pytest.mark.parametrize("seed", range(4))
    def test_random_writes_between_jobs_and_decisions_lose_nothing(
        self, hf: Holdfast, durable: DurableMemory, clock: FrozenClock, seed: int
    ) -> None:
        random = Random(seed)

        def write() -> None:
            key = random.choice("abcde")
            if random.random() < 0.15:
                durable.forget(key)
            else:
                tags = random.sample(["x", "y", "z"], 1)
                durable.set(key, random.choice(TEXTS), category="core", tags=tags)
            clock.tick(60)

        for _ in range(6):
            for _ in range(3):
                write()
            before = contents(durable)
            job = proposed(hf)
            assert contents(durable) == before
            clock.tick(60)
            if random.random() < 0.5:
                write()
            here = contents(durable)
            done = hf.consolidations.accept(job.id)
            after = contents(durable)
            assert {key: after[key][:2] for key in after} == {key: here[key][:2] for key in after}
            clock.tick(60)
            if done.changed and random.random() < 0.7:
                assert hf.consolidations.undo(done.id).kept == ()
                assert contents(durable) == here
                clock.tick(60)
