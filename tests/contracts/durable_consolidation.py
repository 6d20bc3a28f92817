"""Contract of consolidating an agent's entries: merged, expired, undone."""

from random import Random

import pytest

from contracts.longterm_items import bad
from holdfast.ground.errors import Conflict
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.memory import DurableMemory
from holdfast.memories.longterm.consolidation.records import Consolidation
from holdfast.testing.fakes import FrozenClock

HOUR, DAY = 3_600, 86_400
OFFICE = "The harbour office in Porto is near the old bridge"
AGAIN = "The harbour office in Porto is near the old bridge now"
TEXTS = (OFFICE, AGAIN, "Deploys go to fly.io", "Tests run on 3 cores", "Tests run on 4 cores")


def proposed(hf: Holdfast) -> Consolidation:
    """Return a job on the entries of agent_7 that has ended."""
    job = hf.consolidations.create(agent="agent_7")
    return hf.consolidations.wait(job.id)


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

    def test_a_model_is_not_for_entries(self, hf: Holdfast) -> None:
        with bad("model"):
            hf.consolidations.create(agent="agent_7", model="openai:gpt-5-mini")
        with bad("agent"):
            hf.consolidations.create(agent="*")

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
