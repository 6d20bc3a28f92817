"""Random jobs, accepts, undos and writes against a reference of items."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import holdfast
from holdfast.ground.errors import Conflict
from holdfast.library.open import resume_work
from holdfast.memories.longterm.consolidation.jobs import unfinished_jobs
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.records import Item
from holdfast.testing.fakes import FrozenClock

CITIES = ("Lisbon", "Madrid", "Vienna", "Oslo")
HOURS = ("nine", "ten")


class Consolidated(RuleBasedStateMachine):
    """A collection whose superseded items and versions are compared with what was applied."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FrozenClock()
        self.hf = holdfast.open(":memory:", clock=self.clock)
        ltm = self.hf.longterm("ada", enabled=True)
        assert ltm is not None
        self.ltm: LongTermMemory = ltm
        self.jobs: list[str] = []
        self.touched: set[str] = set()
        self.all: set[str] = set()

    def items(self) -> dict[str, Item]:
        return {each.id: each for each in self.ltm.list(include_superseded=True, limit=1_000)}

    def live(self) -> dict[str, str]:
        return {id: each.text for id, each in self.items().items() if each.superseded_at is None}

    @rule(city=st.sampled_from(CITIES))
    def moves(self, city: str) -> None:
        self.clock.tick(60)
        self.all.add(self.stored(f"Lives in {city}"))

    @rule(hour=st.sampled_from(HOURS), kind=st.sampled_from(["early", "gladly early"]))
    def repeats(self, hour: str, kind: str) -> None:
        self.clock.tick(60)
        text = f"Takes the harbour ferry {kind} at {hour}"
        self.all.add(self.stored(text))

    def stored(self, text: str) -> str:
        item = self.ltm.remember(text).stored
        assert item is not None
        self.touched.add(item.id)
        return item.id

    @rule()
    def proposes(self) -> None:
        before = self.items()
        self.clock.tick(60)
        job = self.hf.consolidations.wait(self.hf.consolidations.create("ada").id)
        assert job.status == "completed"
        assert self.items() == before
        again = self.hf.consolidations.replay(job.id)
        assert [(c.op, c.after) for c in again.changes] == [
            (c.op, c.after) for c in job.proposal.changes
        ]
        self.jobs.append(job.id)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def accepts_and_maybe_undoes(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(self.jobs))
        self.clock.tick(60)
        before, live = self.items(), self.live()
        proposal = self.hf.consolidations.retrieve(id).proposal
        choices = [c.id for c in proposal.changes if c.state == "open" and c.op != "conflict"]
        only = data.draw(st.sets(st.sampled_from(choices))) if choices else set[str]()
        try:
            applied = self.hf.consolidations.accept(id, only=sorted(only))
        except Conflict:
            assert proposal.status != "open"
            return
        after = self.items()
        assert set(applied.changed) | set(applied.stale) == only
        changed = {
            item.id for c in proposal.changes if c.id in applied.changed for item in c.before
        }
        assert {each for each in before if before[each] != after[each]} <= changed
        assert set(before) <= set(after)
        if applied.changed and data.draw(st.booleans()):
            self.clock.tick(60)
            undone = self.hf.consolidations.undo(applied.id)
            assert undone.kept == ()
            assert self.live() == live
            assert _timeless(self.items()) == _timeless(before)

    @precondition(lambda self: self.all)
    @rule(data=st.data())
    def forgets(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.all)))
        self.ltm.forget(id)
        self.all.discard(id)

    @invariant()
    def counts_and_recall_agree_with_the_live_items(self) -> None:
        status, live = self.ltm.status(), self.live()
        assert status.items - status.superseded == len(live) or status.items == len(live)
        found = self.ltm.recall("Lives harbour ferry Lisbon Madrid Vienna Oslo", 50, touch=False)
        assert {each.id for each in found} <= set(live)
        then = self.ltm.list(at=self.clock.now(), limit=1_000)
        assert {each.id: each.text for each in then} == live

    def teardown(self) -> None:
        self.hf.close()


def _timeless(items: dict[str, Item]) -> dict[str, object]:
    return {
        id: (each.text, each.importance, each.valid_from, each.valid_to, each.superseded_by)
        for id, each in items.items()
    }


TestConsolidated = Consolidated.TestCase


def test_a_job_that_a_process_left_is_done_by_the_next() -> None:
    clock = FrozenClock()
    with holdfast.open(":memory:", clock=clock) as hf:
        hf.longterm_shared.worker.close()
        job = hf.consolidations.create("ada")
        assert job.status == "pending"
        clock.tick(60)
        now = int(clock.now().timestamp() * 1_000_000)
        assert [each.id for each in unfinished_jobs(hf.engine, now)] == [job.id]
        assert resume_work(hf, clock.now()) == 0
