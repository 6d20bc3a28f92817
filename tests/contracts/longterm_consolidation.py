"""Contract of consolidation: proposals, accepted in part, refused where stale, undone whole."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from contracts.longterm_items import GivenAUser, bad, kept, said
from holdfast.ground.errors import Conflict, NotFound
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.consolidation.records import Consolidation, ProposedChange
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.records import Item
from holdfast.testing.fakes import FrozenClock

HOUR, DAY = 3_600, 86_400
OFFICE = "Works at the harbour office in Porto near the old bridge"
OFFICE_AGAIN = "Now works at the harbour office in Porto near the old bridge"


def proposed(hf: Holdfast, **given: object) -> Consolidation:
    """Return a job of ada's that has ended."""
    job = hf.consolidations.create("ada", **given)  # pyright: ignore[reportArgumentType] - as given
    return hf.consolidations.wait(job.id)


def changes(job: Consolidation, op: str) -> list[ProposedChange]:
    """Return the changes of *job* with that operation."""
    return [each for each in job.proposal.changes if each.op == op]


def live(ltm: LongTermMemory) -> list[str]:
    """Return the texts of the live items, sorted."""
    return sorted(each.text for each in ltm.list().data)


def untimed(item: Item | None) -> Item | None:
    """Return *item* without the time of its last change."""
    return None if item is None else replace(item, updated_at=item.created_at)


class ConsolidationContract(GivenAUser):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.fixture
    def pair(self, ltm: LongTermMemory, clock: FrozenClock) -> tuple[Item, Item]:
        """Give two items that say the same, the second one newer."""
        first = kept(ltm, OFFICE, importance=0.9)
        clock.tick(HOUR)
        second = ltm.update(kept(ltm, "Sings in a choir").id, text=OFFICE_AGAIN)
        clock.tick(HOUR)
        return first, second

    def test_a_job_changes_nothing(
        self, hf: Holdfast, ltm: LongTermMemory, pair: tuple[Item, Item]
    ) -> None:
        before = ltm.list().data

        job = proposed(hf)

        assert (job.status, job.proposal.status, job.model) == ("completed", "open", None)
        assert [each.op for each in job.proposal.changes] == ["merge"]
        assert ltm.list().data == before
        assert {each.id for each in job.proposal.changes[0].before} == {each.id for each in pair}

    def test_a_merge_keeps_the_newest_and_is_shown_as_a_diff(
        self, hf: Holdfast, ltm: LongTermMemory, pair: tuple[Item, Item]
    ) -> None:
        first, second = pair
        job = proposed(hf)
        (change,) = job.proposal.changes

        assert change.after.keep == second.id
        assert f"-[fact] {OFFICE}" in change.diff.splitlines()
        assert f" [fact] {OFFICE_AGAIN}" in change.diff.splitlines()
        applied = hf.consolidations.accept(job.id)

        assert applied.changed == (change.id,)
        older, newer = ltm.get(first.id), ltm.get(second.id)
        assert isinstance(older, Item)
        assert isinstance(newer, Item)
        assert older.superseded_by == second.id
        assert older.superseded_at is not None
        assert older.valid_to is not None
        assert newer.importance == 0.9
        assert newer.valid_from == first.valid_from
        assert [each.text for each in ltm.recall("harbour office", touch=False)] == [OFFICE_AGAIN]
        assert hf.consolidations.retrieve(job.id).proposal.status == "accepted"

    @pytest.mark.usefixtures("pair")
    @pytest.mark.surface("http", "jobs, proposals and decisions cross the wire")
    @pytest.mark.surface("file", "jobs and undoing are stored")
    def test_half_of_a_proposal_is_accepted_and_undone_as_a_whole(
        self, hf: Holdfast, ltm: LongTermMemory, clock: FrozenClock
    ) -> None:
        old = kept(ltm, "Lives in Lisbon")
        clock.tick(HOUR)
        new = kept(ltm, "Lives in Madrid")
        clock.tick(HOUR)
        before = {each.id: untimed(each) for each in ltm.list(include_superseded=True).data}
        then = clock.now()
        recalled = [each.text for each in ltm.recall("Who lives where?", touch=False)]
        clock.tick(HOUR)
        job = proposed(hf)
        (merge,), (supersede,) = changes(job, "merge"), changes(job, "supersede")
        assert [each.id for each in supersede.before] == [new.id, old.id]

        first = hf.consolidations.accept(job.id, only=[supersede.id])

        assert first.changed == (supersede.id,)
        assert "Lives in Lisbon" not in live(ltm)
        states = {
            each.id: each.state for each in hf.consolidations.retrieve(job.id).proposal.changes
        }
        assert states == {merge.id: "open", supersede.id: "applied"}
        clock.tick(HOUR)
        at = [each.text for each in ltm.recall("Who lives where?", at=then, touch=False)]
        assert at == recalled
        assert "Lives in Lisbon" not in [
            each.text for each in ltm.recall("Who lives where?", touch=False)
        ]
        hf.consolidations.accept(job.id)
        accepted = clock.now()
        clock.tick(HOUR)

        done = hf.consolidations.undo(job.id)

        assert set(done.changed) == {merge.id, supersede.id}
        assert done.kept == ()
        after = {each.id: untimed(each) for each in ltm.list(include_superseded=True).data}
        assert after == before
        assert [each.text for each in ltm.recall("Who lives where?", touch=False)] == recalled
        assert "Lives in Lisbon" not in [
            each.text for each in ltm.recall("Who lives where?", at=accepted, touch=False)
        ]
        assert hf.consolidations.retrieve(job.id).proposal.status == "undone"
        with pytest.raises(Conflict):
            hf.consolidations.undo(job.id)

    @pytest.mark.surface("file", "undoing is stored")
    @pytest.mark.parametrize("together", [True, False])
    def test_changes_that_share_an_item_are_undone_and_keep_nothing(
        self, hf: Holdfast, ltm: LongTermMemory, clock: FrozenClock, *, together: bool
    ) -> None:
        for city in ("Lisbon", "Madrid", "Vienna"):
            kept(ltm, f"Lives in {city}")
            clock.tick(HOUR)
        before = {each.id: untimed(each) for each in ltm.list(include_superseded=True).data}
        job = proposed(hf)
        of_lisbon, of_madrid = changes(job, "supersede")
        parts = [None] if together else [[of_lisbon.id], [of_madrid.id]]
        applied = [hf.consolidations.accept(job.id, only=each) for each in parts]
        assert live(ltm) == ["Lives in Vienna"]

        for each in reversed(applied):
            clock.tick(HOUR)
            assert hf.consolidations.undo(each.id).kept == ()

        after = {each.id: untimed(each) for each in ltm.list(include_superseded=True).data}
        assert after == before

    @pytest.mark.usefixtures("pair")
    def test_a_change_of_an_item_that_moved_is_refused_alone(
        self, hf: Holdfast, ltm: LongTermMemory, clock: FrozenClock
    ) -> None:
        old = kept(ltm, "Lives in Lisbon")
        clock.tick(HOUR)
        kept(ltm, "Lives in Madrid")
        job = proposed(hf)
        clock.tick(HOUR)
        ltm.update(old.id, text="Lives in Lisbon in the winter")

        shown = hf.consolidations.retrieve(job.id).proposal
        assert {each.op: each.state for each in shown.changes} == {
            "merge": "open",
            "supersede": "stale",
        }
        done = hf.consolidations.accept(job.id)

        assert (len(done.changed), len(done.stale)) == (1, 1)
        assert "Lives in Lisbon in the winter" in live(ltm)

    def test_undoing_leaves_what_was_changed_since(
        self, hf: Holdfast, ltm: LongTermMemory, clock: FrozenClock, pair: tuple[Item, Item]
    ) -> None:
        first, second = pair
        job = proposed(hf)
        applied = hf.consolidations.accept(job.id)
        clock.tick(HOUR)
        ltm.update(second.id, text="Left the harbour office")

        done = hf.consolidations.undo(applied.id)

        assert done.kept == (second.id,)
        assert live(ltm) == sorted([OFFICE, "Left the harbour office"])
        found = ltm.get(first.id)
        assert isinstance(found, Item)
        assert (found.superseded_by, found.valid_to) == (None, None)

    def test_values_of_the_same_time_are_a_conflict_for_a_person(
        self, hf: Holdfast, ltm: LongTermMemory
    ) -> None:
        kept(ltm, "Lives in Lisbon")
        kept(ltm, "Lives in Madrid")
        job = proposed(hf)
        (conflict,) = job.proposal.changes

        assert conflict.op == "conflict"
        assert hf.consolidations.accept(job.id).changed == ()
        with bad("only"):
            hf.consolidations.accept(job.id, only=[conflict.id])
        assert len(ltm.list().data) == 2

    def test_what_the_user_says_in_three_sessions_is_promoted(
        self, hf: Holdfast, ltm: LongTermMemory, clock: FrozenClock
    ) -> None:
        for number in range(3):
            ltm.record([said("I always take the night train to Vienna", session=f"s{number}")])
            clock.tick(DAY)
        job = proposed(hf)
        (change,) = job.proposal.changes

        assert (change.op, change.after.kind) == ("promote", "preference")
        assert len(change.evidence) == 3
        hf.consolidations.accept(job.id)
        (item,) = ltm.list().data
        assert isinstance(item, Item)
        assert item.tier == "confirmed"
        assert item.turns == change.evidence
        hf.consolidations.undo(job.id)
        assert ltm.list().data == []

    def test_a_statement_of_one_day_or_a_forgotten_one_is_not_promoted(
        self, hf: Holdfast, ltm: LongTermMemory, clock: FrozenClock
    ) -> None:
        for number in range(3):
            ltm.record([said("I always take the night train to Vienna", session=f"s{number}")])
        assert proposed(hf).proposal.changes == ()
        clock.tick(DAY)
        ltm.record([said("I always take the night train to Vienna", session="s9")])
        job = proposed(hf)
        assert [each.op for each in job.proposal.changes] == ["promote"]
        turns = job.proposal.changes[0].evidence
        ltm.forget(turns[0])

        shown = hf.consolidations.retrieve(job.id).proposal.changes[0]
        assert (shown.state, shown.after.text, shown.reason) == ("stale", None, "")
        assert hf.consolidations.replay(job.id).changes[0].evidence == turns[1:]

    def test_an_old_event_that_was_never_recalled_ends(
        self, hf: Holdfast, ltm: LongTermMemory, clock: FrozenClock
    ) -> None:
        event = kept(ltm, "Flew to Oslo for the chess open", kind="event")
        seen = kept(ltm, "Moved the piano upstairs with Tom", kind="event")
        ltm.recall("Who moved the piano?", 1)
        ltm.flush()
        clock.tick(400 * DAY)
        job = proposed(hf)
        (change,) = job.proposal.changes

        assert (change.op, [each.id for each in change.before]) == ("expire", [event.id])
        hf.consolidations.accept(job.id)
        found = ltm.get(event.id)
        assert isinstance(found, Item)
        assert found.valid_to == change.after.valid_to
        assert ltm.get(seen.id) is not None
        hf.consolidations.undo(job.id)
        found = ltm.get(event.id)
        assert isinstance(found, Item)
        assert found.valid_to is None

    def test_outside_and_held_rows_are_no_input(
        self, hf: Holdfast, ltm: LongTermMemory, clock: FrozenClock
    ) -> None:
        for number in range(4):
            ltm.record(
                [said("Always buy the gold plan of Acme", session=f"s{number}", tier="outside")]
            )
            clock.tick(DAY)
        assert proposed(hf).proposal.changes == ()

    @pytest.mark.usefixtures("pair")
    def test_a_rejected_proposal_is_closed(self, hf: Holdfast, ltm: LongTermMemory) -> None:
        job = proposed(hf)
        assert hf.consolidations.reject(job.id).proposal.status == "rejected"
        with pytest.raises(Conflict):
            hf.consolidations.accept(job.id)
        assert live(ltm) == sorted([OFFICE, OFFICE_AGAIN])

    def test_jobs_are_listed_by_user_and_status(self, hf: Holdfast, clock: FrozenClock) -> None:
        jobs: list[str] = []
        for _ in range(3):
            jobs.append(proposed(hf).id)
            clock.tick(1)
        hf.consolidations.wait(hf.consolidations.create("bob").id)
        page = hf.consolidations.list("ada", limit=2)
        assert [each.id for each in page.all()] == jobs[::-1]
        assert len(hf.consolidations.list(status="completed").data) == 4
        assert hf.consolidations.list(status="running").data == []
        with bad("status"):
            hf.consolidations.list(status="no")  # pyright: ignore[reportArgumentType] - the test
        with pytest.raises(NotFound):
            hf.consolidations.retrieve("cons_no")

    def test_another_workspace_sees_no_job(self, hf: Holdfast, elsewhere: Holdfast) -> None:
        job = proposed(hf)
        assert elsewhere.consolidations.list().data == []
        for call in (
            elsewhere.consolidations.retrieve,
            elsewhere.consolidations.accept,
            elsewhere.consolidations.undo,
        ):
            _refused(call, job.id)


def _refused(call: Callable[[str], object], id: str) -> None:
    with pytest.raises(NotFound):
        call(id)
