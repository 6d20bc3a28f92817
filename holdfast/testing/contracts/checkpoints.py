"""Contract of a place for checkpoints, independent of its storage."""

from concurrent.futures import ThreadPoolExecutor

from holdfast.memories.run.entry import RunEntry
from holdfast.runtime.checkpoints import Checkpoint, Checkpoints


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
