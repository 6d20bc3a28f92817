"""Names of a mount that no directory shows, and errors as system error numbers."""

import errno
import os
from errno import ENAMETOOLONG

import pytest

from holdfast.doors.mount.errors import PASSING, errno_of, oserror, passing
from holdfast.doors.mount.names import checked, is_shown
from holdfast.ground import errors
from holdfast.ground.errors import HoldfastError
from holdfast.testing.fakes import FrozenClock


@pytest.mark.parametrize(
    "path", ["/a.md", "/" + "x" * 255, "/" + "\u00e9" * 127, "/" + "/".join(["x" * 200] * 5)]
)
def test_a_path_of_short_components_is_shown(path: str) -> None:
    assert is_shown(path)


@pytest.mark.parametrize("path", ["/" + "x" * 256, "/a/" + "\u00e9" * 128, "/" + "x" * 300 + "/a"])
def test_a_path_with_a_long_component_is_hidden(path: str) -> None:
    assert not is_shown(path)


def test_a_path_is_measured_in_bytes() -> None:
    fits = "/".join(["", *["\u00e9" * 100] * 5])

    assert checked(fits) == fits
    with pytest.raises(OSError, match="too long") as raised:
        checked(fits + "/" + "\u00e9" * 10)
    assert raised.value.errno == ENAMETOOLONG


ALL: list[tuple[HoldfastError, int]] = [
    (HoldfastError("It failed."), errno.EIO),
    (errors.InvalidInput("path", "must start with a slash"), errno.EINVAL),
    (errors.UnknownFormat("state", format="x", version=9, known="y"), errno.EIO),
    (errors.ChecksumMismatch("res_1", stored="a", computed="b"), errno.EIO),
    (errors.InvalidPlan(["no tasks"]), errno.EIO),
    (errors.PlanningFailed("too many failures"), errno.EIO),
    (errors.CheckpointUnreadable("run_1.json", "no JSON"), errno.EIO),
    (errors.Refused("It may not be."), errno.EPERM),
    (errors.StoreArchived("memstore_1"), errno.EROFS),
    (errors.StoreFull("memstore_1", 9), errno.ENOSPC),
    (errors.HeadVersion("memver_1", "mem_1"), errno.EIO),
    (errors.Unsupported("That"), errno.ENOTSUP),
    (errors.LimitExceeded("value_bytes", allowed=1, actual=2), errno.EFBIG),
    (errors.TooLarge(102_400), errno.EFBIG),
    (errors.RunRequired(), errno.EIO),
    (errors.ImportRefused("Files were rejected."), errno.EIO),
    (errors.SecretRefused(("prose",)), errno.EIO),
    (errors.ToolRefused("No."), errno.EIO),
    (errors.NotAuthenticated(), errno.EACCES),
    (errors.NotPermitted("No.", needed="write"), errno.EROFS),
    (errors.ScopeDenied("No.", needed="workspace"), errno.EROFS),
    (errors.LongTermOff("server"), errno.EIO),
    (errors.NotFound("memory", "mem_1"), errno.ENOENT),
    (errors.HistoryGone("res_1"), errno.ENOENT),
    (errors.Conflict("It lost."), errno.EEXIST),
    (errors.PathTaken("mem_1", "/a.md"), errno.EEXIST),
    (errors.PreconditionFailed("mem_1", expected="a", current="b"), errno.ESTALE),
    (errors.ContentGone("memver_1", FrozenClock().now()), errno.EIO),
    (errors.CursorExpired(7), errno.EIO),
    (errors.MemoryFull(cap=9, entries=9, core_entries=9), errno.EIO),
    (errors.StaleRun("ended", token=3, live_token=None), errno.EIO),
    (errors.RunTaken("run_1"), errno.EIO),
    (errors.AlreadyAnswered("question_1", by="user:ada", at=FrozenClock().now()), errno.EIO),
    (errors.Forgotten(FrozenClock().now(), "user:ada"), errno.EIO),
    (errors.IdempotencyMismatch("edit_1"), errno.EIO),
    (errors.ResultDiffers("res_1", stored="a", given="b"), errno.EIO),
    (errors.CheckpointMismatch(["inputs"]), errno.EIO),
    (errors.ClaimRefused("task_1", "taken", "ada has it"), errno.EIO),
    (errors.NotOwner("task_1", "ada"), errno.EIO),
    (errors.TaskSettled("task_1", "done"), errno.EIO),
    (errors.AgentNameTaken("ada"), errno.EIO),
    (errors.ToolNameTaken("a", "b", "c"), errno.EIO),
    (errors.NotRunnable("It cannot run."), errno.EIO),
    (errors.NoModel("No model."), errno.EIO),
    (errors.NoRouter("No router."), errno.EIO),
    (errors.NoAgentEnabled("No agent."), errno.EIO),
    (errors.RunFailed("It failed."), errno.EIO),
    (errors.StepFailed("a", "no answer"), errno.EIO),
    (errors.TaskFailed("a", "b failed", failed=["b"], blocked=[]), errno.EIO),
    (errors.PlanFailed("a failed", failed=["a"], blocked=[], report=None), errno.EIO),
    (errors.RunCancelled("enough"), errno.EIO),
    (errors.RunWaiting("run_1", ["question_1"]), errno.EIO),
    (errors.WaitTimeout("shared:a", 1.0), errno.EIO),
    (errors.Unavailable("It is away.", reason="lost"), errno.EIO),
    (errors.Corrupt("h.db", "no header"), errno.EIO),
    (errors.TooNew(9, 3), errno.EIO),
    (errors.EngineFault("A bug."), errno.EIO),
    (errors.MissingExtra("mount"), errno.EIO),
]
"""Every error of the tree, with the errno that its row of the tree's table promises."""


def tree(root: type[HoldfastError]) -> set[type[HoldfastError]]:
    """Return *root* and all below it that are of the package's own tree."""
    below = [each for child in root.__subclasses__() for each in tree(child)]
    return {each for each in (root, *below) if each.__module__ == errors.__name__}


def test_every_error_of_the_tree_has_its_promised_errno_here() -> None:
    assert {type(error) for error, _ in ALL} == tree(HoldfastError)


@pytest.mark.parametrize(("error", "number"), ALL, ids=[type(error).__name__ for error, _ in ALL])
def test_an_error_is_its_errno(error: HoldfastError, number: int) -> None:
    assert errno.errorcode[errno_of(error)] == errno.errorcode[number]


def test_an_error_without_a_row_is_what_its_nearest_ancestor_is() -> None:
    class BufferSnapshot(errors.StoreArchived):
        pass

    assert errno_of(BufferSnapshot("memstore_1")) == errno.EROFS


@pytest.mark.parametrize(
    ("error", "number"),
    [
        (errors.InvalidInput("content", "holds a lone surrogate"), errno.EILSEQ),
        (errors.InvalidInput("edits.0.content", "holds a lone surrogate"), errno.EILSEQ),
        (errors.InvalidInput("content", "is too long", limit=102_400), errno.EFBIG),
        (errors.InvalidInput("appended", "makes it too long", limit=102_400), errno.EFBIG),
        (errors.InvalidInput("path", "is too long", limit=1_024), errno.EINVAL),
        (errors.NotFound("memory store", "memstore_1"), errno.ESTALE),
        (errors.Unavailable("The disk is full.", reason="full"), errno.ENOSPC),
        (OSError(errno.ENAMETOOLONG, "too long"), errno.ENAMETOOLONG),
        (OSError("without a number"), errno.EIO),
        (ValueError("a bug"), errno.EIO),
        (KeyboardInterrupt(), errno.EIO),
    ],
)
def test_the_facts_of_an_error_count_too(error: BaseException, number: int) -> None:
    assert errno_of(error) == number


def test_a_check_of_content_may_say_that_it_was_one() -> None:
    assert errno_of(errors.InvalidInput("file", "is not UTF-8"), content=True) == errno.EILSEQ


def test_what_is_raised_keeps_the_error_as_its_cause_and_says_nothing_of_it() -> None:
    error = errors.PathTaken("mem_1", "/secret-plans.md")

    raised = oserror(error)

    assert (raised.errno, raised.strerror) == (errno.EEXIST, os.strerror(errno.EEXIST))
    assert raised.__cause__ is error


def test_an_error_of_the_system_is_raised_as_it_is() -> None:
    error = OSError(errno.ENOTEMPTY, "not empty")

    assert oserror(error) is error


def test_what_may_succeed_later_passes() -> None:
    pass_ = {type(error).__name__ for error, _ in ALL if passing(error)}

    assert {"Unavailable", "NotAuthenticated", "EngineFault"} <= pass_
    assert passing(errors.Unavailable("The disk is full.", reason="full"))
    assert passing(OSError(errno.EDQUOT, "the quota is full"))
    assert passing(RuntimeError("a bug"))


def test_what_a_person_must_mend_does_not_pass() -> None:
    assert not passing(errors.StoreFull("memstore_1", 9))
    assert not passing(errors.IdempotencyMismatch("edit_1"))
    assert not any(passing(error) for error, number in ALL if number not in PASSING)
