"""What each error is in the mount: one table from error to errno, and which failures pass.

The nearest ancestor in the table answers. No exception of ours leaves the adapter: a program sees
an errno and nothing else.
"""

import os
from errno import (
    EACCES,
    EDQUOT,
    EEXIST,
    EFBIG,
    EILSEQ,
    EINVAL,
    EIO,
    ENOENT,
    ENOSPC,
    ENOTSUP,
    EPERM,
    EROFS,
    ESTALE,
)

from holdfast.ground import errors
from holdfast.ground.errors import HoldfastError
from holdfast.ground.ids import KINDS

ERRNOS: dict[type[HoldfastError], int] = {
    HoldfastError: EIO,
    errors.InvalidInput: EINVAL,
    errors.UnknownFormat: EIO,
    errors.ChecksumMismatch: EIO,
    errors.InvalidPlan: EIO,
    errors.PlanningFailed: EIO,
    errors.CheckpointUnreadable: EIO,
    errors.Refused: EPERM,
    errors.StoreArchived: EROFS,
    errors.StoreFull: ENOSPC,
    errors.HeadVersion: EIO,
    errors.Unsupported: ENOTSUP,
    errors.LimitExceeded: EFBIG,
    errors.TooLarge: EFBIG,
    errors.RunRequired: EIO,
    errors.ImportRefused: EIO,
    errors.SecretRefused: EIO,
    errors.ToolRefused: EIO,
    errors.NotAuthenticated: EACCES,
    errors.NotPermitted: EROFS,
    errors.LongTermOff: EIO,
    errors.NotFound: ENOENT,
    errors.Conflict: EEXIST,
    errors.PreconditionFailed: ESTALE,
    errors.ContentGone: EIO,
    errors.CursorExpired: EIO,
    errors.MemoryFull: EIO,
    errors.StaleRun: EIO,
    errors.Forgotten: EIO,
    errors.IdempotencyMismatch: EIO,
    errors.ResultDiffers: EIO,
    errors.CheckpointMismatch: EIO,
    errors.ClaimRefused: EIO,
    errors.NotOwner: EIO,
    errors.TaskSettled: EIO,
    errors.AgentNameTaken: EIO,
    errors.ToolNameTaken: EIO,
    errors.NotRunnable: EIO,
    errors.RunFailed: EIO,
    errors.RunCancelled: EIO,
    errors.WaitTimeout: EIO,
    errors.Unavailable: EIO,
    errors.EngineFault: EIO,
    errors.MissingExtra: EIO,
}
"""The errno of each error, by its class alone; `errno_of` looks at its facts too."""

PASSING = frozenset({EIO, ENOSPC, EDQUOT, EACCES})
"""Errnos whose save is kept and tried again, now and at the next start."""

CONTENT_FIELDS = frozenset({"content", "appended"})
"""Names of fields that hold what is in a file, at the end of an error's `field`."""


def errno_of(error: BaseException, *, content: bool = False) -> int:
    """Return the errno that a program gets for *error*.

    InvalidInput is of content where *content* says so or its field does: EFBIG over a limit, else
    EILSEQ. An OSError keeps its own. What is nobody's is EIO, and the caller logs its traceback.
    """
    if isinstance(error, OSError):
        return error.errno or EIO
    if isinstance(error, errors.NotFound) and error.kind == KINDS["memstore"]:
        return ESTALE
    if isinstance(error, errors.Unavailable) and error.reason == "full":
        return ENOSPC
    number = next((ERRNOS[kind] for kind in type(error).__mro__ if kind in ERRNOS), EIO)
    if isinstance(error, errors.InvalidInput) and number == EINVAL:
        content = content or error.field.rpartition(".")[2] in CONTENT_FIELDS
        return (EILSEQ if error.limit is None else EFBIG) if content else EINVAL
    return number


def oserror(error: BaseException, *, content: bool = False) -> OSError:
    """Return what an operation raises for *error*: its errno, with *error* as the cause.

    It says what the system says of that errno, and nothing of what *error* knows.
    """
    if isinstance(error, OSError):
        return error
    number = errno_of(error, content=content)
    raised = OSError(number, os.strerror(number))
    raised.__cause__ = error
    return raised


def passing(error: BaseException) -> bool:
    """Tell whether what failed with *error* may succeed later, so that it is kept and retried.

    A full disk passes; a store at its cap is for a person to mend.
    """
    lasting = isinstance(error, errors.StoreFull | errors.IdempotencyMismatch)
    return errno_of(error) in PASSING and not lasting
