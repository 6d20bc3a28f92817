"""Contract of a place for checkpoints, independent of its storage."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from holdfast.memories.run.entry import RunEntry
from holdfast.memories.run.history.turns import KeptTurn
from holdfast.memories.run.history.versions import StateRow
from holdfast.memories.run.records.question import Question
from holdfast.runtime.runs.checkpoints import (
    Checkpoint,
    CheckpointChange,
    Checkpoints,
    LoggedCheckpoints,
    changed,
)


def checkpoint(run_id: str = "run_1", *, saved_at: int = 7, steps: int = 2) -> Checkpoint:
    """Return a checkpoint that has something of everything."""
    entries = tuple(
        RunEntry(
            key=f"step:s{number}",
            kind="step_result",
            value_json=b'{"n":1.5,"list":[null,true,"\\u00e4\xc3\xa4"]}',
            source=f"s{number}",
            title="A step",
            description=None if number else "The first.",
            created_at=number,
            updated_at=number + 1,
            version=number + 1,
            failed=bool(number % 2),
        )
        for number in range(steps)
    )
    return Checkpoint(
        run_id=run_id,
        plan_hash="0f" * 32,
        parts={"inputs": "aa", "plan.tasks[0]": "bb"},
        completed_tasks=("t",),
        completed_steps=tuple(f"s{number}" for number in range(steps)),
        entries=entries,
        saved_at=saved_at,
        rows=(
            StateRow("once", "s1:call_1:mail", b"null"),
            StateRow("state", "queue", b'["ada","\xc3\xa4"]'),
        ),
        turns=(
            KeptTurn("read", 0, b'{"kind":"request"}', "ada"),
            KeptTurn("read", 1, b'{"kind":"response"}'),
        ),
        questions=(question(run_id),),
    )


def question(run_id: str = "run_1", **changes: Any) -> Question:
    """Return a question of the run *run_id*."""
    asked = Question(
        id=f"question_{sha256(run_id.encode()).hexdigest()[:12]}",
        run_id=run_id,
        kind="question",
        key="berth",
        text="Which berth?",
        schema={"type": "integer"},
        part="s1",
        asked_at=datetime(2026, 7, 1, tzinfo=UTC),
    )
    return replace(asked, **changes)


def change(*steps: str, removed: tuple[str, ...] = (), saved_at: int = 8) -> CheckpointChange:
    """Return a change that completes *steps*, and deletes the keys *removed* first."""
    entries = tuple(
        RunEntry(
            key=f"step:{step}",
            kind="step_result",
            value_json=b'{"again":[1.5,"\xc3\xa4\\n"]}',
            created_at=1,
            updated_at=saved_at,
            version=1,
        )
        for step in steps
    )
    return CheckpointChange(
        run_id="run_1",
        completed_tasks=("u",),
        completed_steps=steps,
        removed=removed,
        entries=entries,
        saved_at=saved_at,
    )


class CheckpointsContract:
    """Subclass it, and give it a `checkpoints` fixture that holds nothing."""

    def test_of_an_unknown_run_there_is_none(self, checkpoints: Checkpoints) -> None:
        assert checkpoints.load("run_1") is None

    def test_what_was_saved_is_loaded_whole(self, checkpoints: Checkpoints) -> None:
        saved = checkpoint()

        checkpoints.save(saved)

        assert checkpoints.load("run_1") == saved

    def test_values_come_back_byte_by_byte(self, checkpoints: Checkpoints) -> None:
        saved = checkpoint()
        checkpoints.save(saved)

        loaded = checkpoints.load("run_1")

        assert loaded is not None
        assert [each.value_json for each in loaded.entries] == [
            each.value_json for each in saved.entries
        ]

    def test_the_last_one_saved_counts(self, checkpoints: Checkpoints) -> None:
        checkpoints.save(checkpoint(saved_at=1, steps=3))
        last = checkpoint(saved_at=2, steps=1)

        checkpoints.save(last)

        assert checkpoints.load("run_1") == last

    def test_runs_have_their_own(self, checkpoints: Checkpoints) -> None:
        one, other = checkpoint("run_1"), checkpoint("run_2", saved_at=9)

        checkpoints.save(one)
        checkpoints.save(other)

        assert checkpoints.load("run_1") == one
        assert checkpoints.load("run_2") == other

    def test_facts_messages_and_questions_come_back_as_they_were(
        self, checkpoints: Checkpoints
    ) -> None:
        saved = checkpoint()
        checkpoints.save(saved)

        loaded = checkpoints.load("run_1")

        assert loaded is not None
        assert loaded.rows == saved.rows
        assert loaded.turns == saved.turns
        assert loaded.questions == saved.questions

    def test_what_was_deleted_is_gone_and_the_rest_stays(self, checkpoints: Checkpoints) -> None:
        checkpoints.save(checkpoint("run_1"))
        checkpoints.save(checkpoint("run_2"))

        checkpoints.delete("run_1")

        assert checkpoints.load("run_1") is None
        assert checkpoints.load("run_2") is not None

    def test_deleting_what_is_not_there_does_nothing(self, checkpoints: Checkpoints) -> None:
        checkpoints.delete("run_1")

        assert checkpoints.load("run_1") is None

    def test_a_checkpoint_may_be_empty_or_large(self, checkpoints: Checkpoints) -> None:
        empty, large = checkpoint("run_1", steps=0), checkpoint("run_2", steps=2_000)

        checkpoints.save(empty)
        checkpoints.save(large)

        assert checkpoints.load("run_1") == empty
        assert checkpoints.load("run_2") == large

    def test_many_threads_may_save_at_once(self, checkpoints: Checkpoints) -> None:
        saved = [checkpoint(f"run_{number % 4}", saved_at=number) for number in range(32)]

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(checkpoints.save, saved))

        for number in range(4):
            loaded = checkpoints.load(f"run_{number}")
            assert loaded in saved
            assert loaded.run_id == f"run_{number}"


class LoggedCheckpointsContract(CheckpointsContract):
    """The contract of a place that takes changes as well."""

    def test_what_a_change_completes_is_loaded(self, checkpoints: LoggedCheckpoints) -> None:
        saved, later = checkpoint(), change("s7", "s8")
        log = checkpoints.begin(saved)

        assert log.append(later)

        loaded = checkpoints.load("run_1")
        assert loaded is not None
        assert loaded.entries == (*saved.entries, *later.entries)
        assert loaded.completed_steps == ("s0", "s1", "s7", "s8")
        assert loaded.completed_tasks == ("t", "u")
        assert (loaded.saved_at, loaded.parts) == (8, saved.parts)

    def test_changes_count_in_their_order(self, checkpoints: LoggedCheckpoints) -> None:
        saved = checkpoint(steps=3)
        changes = [
            change("s1", saved_at=8),
            change(removed=("step:s0", "step:s9"), saved_at=9),
            change("s2", removed=("step:s2",), saved_at=10),
            change("s0", saved_at=11),
        ]
        log = checkpoints.begin(saved)

        assert all(map(log.append, changes))

        loaded = checkpoints.load("run_1")
        assert loaded is not None
        assert loaded == changed(saved, changes)
        assert [each.key for each in loaded.entries] == ["step:s1", "step:s2", "step:s0"]

    def test_a_change_replaces_facts_messages_and_questions_of_the_same_key(
        self, checkpoints: LoggedCheckpoints
    ) -> None:
        log, at = checkpoints.begin(checkpoint()), datetime(2026, 7, 2, tzinfo=UTC)
        answered = question(status="answered", answer=7, answered_at=at)
        turns = (KeptTurn("read", 1, b'{"again":1}', "ada"), KeptTurn("s9", 2, b"{}"))
        rows = (
            StateRow("state", "queue", None),
            StateRow("once", "s1:call_1:mail", b"1"),
            StateRow("state", "mode", b'"plan"'),
        )

        assert log.append(
            replace(change("s7"), rows=rows, turns=turns, questions=(answered,), cause="turn")
        )

        loaded = checkpoints.load("run_1")
        assert loaded is not None
        assert loaded.rows == rows[1:]
        assert loaded.turns == (checkpoint().turns[0], *turns)
        assert loaded.questions == (answered,)

    def test_messages_alone_are_kept(self, checkpoints: LoggedCheckpoints) -> None:
        saved, turn = checkpoint(), KeptTurn("read", 2, b"{}")
        log = checkpoints.begin(saved)
        alone = CheckpointChange(
            run_id="run_1",
            completed_tasks=(),
            completed_steps=(),
            removed=(),
            entries=(),
            saved_at=saved.saved_at,
            turns=(turn,),
            cause=None,
        )

        assert log.append(alone)

        assert checkpoints.load("run_1") == replace(saved, turns=(*saved.turns, turn))

    def test_a_change_of_what_was_replaced_is_refused(self, checkpoints: LoggedCheckpoints) -> None:
        log = checkpoints.begin(checkpoint())
        last = checkpoint(saved_at=9, steps=3)
        checkpoints.save(last)

        assert not log.append(change("s7"))
        assert checkpoints.load("run_1") == last

    def test_a_change_beside_another_is_refused(self, checkpoints: LoggedCheckpoints) -> None:
        older, log = checkpoints.begin(checkpoint()), checkpoints.begin(checkpoint())
        assert log.append(change("s7"))

        assert not older.append(change("s8"))
        assert checkpoints.load("run_1") == changed(checkpoint(), [change("s7")])

    def test_a_change_of_what_was_deleted_is_refused(self, checkpoints: LoggedCheckpoints) -> None:
        log = checkpoints.begin(checkpoint())
        checkpoints.delete("run_1")

        assert not log.append(change("s7"))
        assert checkpoints.load("run_1") is None

    def test_a_saved_whole_replaces_its_changes(self, checkpoints: LoggedCheckpoints) -> None:
        log = checkpoints.begin(checkpoint())
        log.append(change("s7"))
        last = checkpoint(saved_at=9, steps=1)

        checkpoints.save(last)

        assert checkpoints.load("run_1") == last
