"""Owners of one run in any order leave what a single owner could have made."""

from collections.abc import Callable
from typing import Any, LiteralString

from hypothesis import example, given
from hypothesis import strategies as st

import holdfast
from holdfast.ground.errors import Conflict, RunTaken, StaleRun
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.history.versions import StateRow, VersionSave, save_version
from holdfast.memories.run.records.event import ENDS
from holdfast.memories.run.records.lease import (
    ClaimTerms,
    KnownDefinition,
    RunSubmission,
    claim,
    free_lost,
    give_back,
    renew,
    submit,
)
from holdfast.memories.run.records.question import Question
from holdfast.memories.run.records.record import (
    HeldRun,
    LeaseGrant,
    ReportedEntry,
    RunAcquisition,
    RunReport,
    RunRow,
    TakeOver,
)
from holdfast.memories.run.records.write import begin, statements, take
from holdfast.testing.fakes import FrozenClock

HALF = 31
"""Seconds, of which two are longer than a lease."""

TERMS = ClaimTerms(
    known=(KnownDefinition(name="report", version="1", queue="default", versions=("1",)),)
)

ACTS = (
    *("acquire", "steal", "begin", "renew", "save", "version", "turns", "ask", "end"),
    *("claim", "give_back", "answer", "cancel", "wait", "lapse"),
)
STEPS = st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 2)), max_size=40)


EVENTS: LiteralString = "select seq, type from run_events where run_id = 'run_1' order by seq"


class Owners:
    """Three owners of the run `run_1`, and what they were allowed to write.

    `row` is the record before each step, `written` the value of the last accepted write.
    """

    def __init__(self, hf: Holdfast, clock: FrozenClock) -> None:
        self.hf, self.context, self.clock = hf, hf.runs.context, clock
        self.grants: dict[int, tuple[str, LeaseGrant]] = {}
        self.claims: dict[int, str] = {}
        self.numbers = [0, 0, 0]
        self.holders = self.written = self.questions = self.ends = 0
        submit(self.context, RunSubmission(run_id="run_1", definition="report"))
        self.row = self._read()

    def step(self, act: str, who: int) -> None:
        """Let *who* do *act*, and check that tokens and versions only rise."""
        self.row = self._read()
        known: Callable[[int], object] = getattr(self, act)
        known(who)
        after = self._read()
        assert after.fence >= self.row.fence
        assert after.seq >= self.row.seq

    def _read(self) -> RunRow:
        rows = self.context.engine.all(RunRow, statements(self.context).lock_run, run="run_1")
        return rows[0]

    def _owns(self, who: int) -> bool:
        """Return whether *who* has the run, perhaps past its lease, and nobody after it."""
        return (
            self.grants[who][1].fence == self.row.fence
            and self.row.holder == self.grants[who][0]
            and self.row.status in {"running", "lost"}
        )

    def _judged(self, who: int, write: Callable[[], object]) -> bool:
        """Write as *who*; check that it is refused exactly where another has the run."""
        owns = self._owns(who)
        try:
            write()
        except StaleRun:
            assert not owns
            return False
        assert owns
        return True

    def acquire(self, who: int, take_over: TakeOver = "expired") -> None:
        self.holders += 1
        self._begun(who, f"holder-{self.holders}", take_over)

    def steal(self, who: int) -> None:
        self.acquire(who, "always")

    def begin(self, who: int) -> None:
        """Acquire the run that *who* has claimed."""
        if who in self.claims:
            self._begun(who, self.claims.pop(who), "expired", claimed=True)

    def _begun(self, who: int, holder: str, take_over: TakeOver, *, claimed: bool = False) -> None:
        opening = RunAcquisition(
            run_id="run_1",
            holder=holder,
            name="n",
            kind="task",
            definition="report",
            place="rock:7",
            started_at=1,
            take_over=take_over,
            continues=True,
            claimed=claimed,
        )
        try:
            grant = begin(self.context, opening)
        except RunTaken:
            assert take_over == "expired"
            assert self.row.live_at(self.context.now())
            return
        except StaleRun:
            assert claimed
            assert self.row.holder != holder
            return
        assert grant.fence == self.row.fence + 1
        self.grants[who], self.numbers[who] = (holder, grant), 0

    def renew(self, who: int) -> None:
        if who in self.grants:
            holder, grant = self.grants[who]
            held = HeldRun(run_id="run_1", holder=holder, fence=grant.fence, number=0)
            assert (holder in renew(self.context, [held])) == self._owns(who)

    def save(self, who: int) -> None:
        value = str(self.written + 1)
        entry = ReportedEntry(
            key="shared:a",
            kind="shared",
            version=1,
            created_at=1,
            updated_at=1,
            value=value,
            value_bytes=len(value),
        )
        self.written += self._reported(who, entries=(entry,))

    def end(self, who: int) -> None:
        self.ends += self._reported(who, ended="completed")

    def _reported(self, who: int, **facts: Any) -> bool:
        if who not in self.grants:
            return False
        holder, grant = self.grants[who]
        self.numbers[who] += 1
        report = RunReport(holder=holder, fence=grant.fence, number=self.numbers[who], **facts)
        return self._judged(who, lambda: take(self.context, "run_1", report))

    def version(self, who: int) -> None:
        self._kept(who, cause="step")

    def turns(self, who: int) -> None:
        self._kept(who, cause=None)

    def ask(self, who: int) -> None:
        """Rest with a question."""
        self.questions += 1
        question = Question(
            id=f"question_{self.questions:024d}",
            run_id="run_1",
            kind="question",
            key=f"k{self.questions}",
            text="Which?",
            asked_at=self.clock.now(),
        )
        self._kept(who, cause="question", questions=(question,), status="waiting")

    def _kept(self, who: int, **facts: Any) -> None:
        if who in self.grants:
            body = b"%d" % self.grants[who][1].fence
            save = VersionSave(
                run_id="run_1",
                fence=self.grants[who][1].fence,
                at=1,
                rows=(StateRow("value", "owner", body),),
                **facts,
            )
            self._judged(who, lambda: save_version(self.context, save))

    def claim(self, who: int) -> None:
        """Do as a worker does: free the run if it is lost, and claim it if it is queued."""
        free_lost(self.context, TERMS)
        if (found := claim(self.context, TERMS)) is not None:
            self.claims[who] = found.holder

    def give_back(self, who: int) -> None:
        if who in self.grants:
            owns = self._owns(who)
            told = give_back(self.context, "run_1", self.grants[who][0])
            assert (told is not None) == owns
            self.ends += told is not None and told.type in ENDS

    def answer(self, who: int) -> None:
        del who
        for question in self.hf.runs.questions(run="run_1").data:
            self.hf.runs.answer("run_1", "b7", question=question.id)

    def cancel(self, who: int) -> None:
        del who
        try:
            self.hf.runs.cancel("run_1", "enough")
        except Conflict:
            assert self.row.ended
            return
        self.ends += self._read().ended

    def wait(self, who: int) -> None:
        del who
        self.clock.tick(HALF)

    def lapse(self, who: int) -> None:
        del who
        self.clock.tick(2 * HALF)


@given(steps=STEPS)
@example(steps=[("acquire", 0), ("lapse", 0), ("claim", 1), ("version", 0), ("begin", 1)])
@example(steps=[("acquire", 0), ("ask", 0), ("answer", 1), ("claim", 1), ("turns", 0)])
@example(steps=[("acquire", 0), ("give_back", 0), ("claim", 1), ("end", 0), ("cancel", 2)])
@example(steps=[("acquire", 0), ("lapse", 0), ("cancel", 1), ("version", 0), ("end", 0)])
def test_any_interleaving_leaves_what_one_owner_could_have_made(
    steps: list[tuple[str, int]],
) -> None:
    clock = FrozenClock()
    with holdfast.open(":memory:", clock=clock) as hf:
        owners = Owners(hf, clock)
        for act, who in steps:
            owners.step(act, who)

        events = hf.runs.context.engine.rows(EVENTS)
        versions = list(hf.runs.versions("run_1", limit=1000).data)
        run = hf.runs.retrieve("run_1")
        types = [type for _, type in events]
        assert [seq for seq, _ in events] == list(range(1, len(events) + 1))
        assert sum(type in ENDS for type in types) == owners.ends
        assert run.ended == (types[-1] in ENDS)
        assert [each.number for each in versions] == list(range(len(versions), 0, -1))
        fences = [each.fence for each in versions]
        assert fences == sorted(fences, reverse=True)
        if run.entries:
            assert hf.runs.entry("run_1", "shared:a").value == owners.written
        assert hf.verify().ok
