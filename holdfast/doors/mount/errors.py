"""Errors to errno numbers, and time limits of operations.

The nearest ancestor in the table answers. No exception of ours leaves the adapter: a program sees
an errno and nothing else.
"""

import logging
import os
from collections.abc import Callable
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
from functools import wraps
from threading import local
from time import monotonic
from typing import ParamSpec, TypeVar

from holdfast.ground import errors
from holdfast.ground.errors import HoldfastError, Unavailable
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


# What an operation asks of the storage, and what it waits for before, share that time. Work that no
# program waits for has all the time that one call to the storage may take.

SLACK = 0.9
"""Seconds that a request may take beyond the deadline, less what its answer takes."""
_LEAST = 0.05


class _Begun(local):
    at: float | None = None


_begun = _Begun()


def begin() -> None:
    """Note that this thread begins an operation."""
    _begun.at = monotonic()


def end() -> None:
    """Note that the operation is over."""
    _begun.at = None


def seconds_left(deadline: float) -> float | None:
    """Return what one call to the storage may take, None for all it may.

    Unavailable when there is not enough of it.
    """
    if _begun.at is None:
        return None
    left = deadline + SLACK - (monotonic() - _begun.at)
    if left < _LEAST:
        raise Unavailable("The operation took too long already.", reason="timeout")
    return left if left < deadline else None


P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger(__name__)


def failure(number: int) -> OSError:
    """Return what an operation raises that fails with the errno *number*."""
    return OSError(number, os.strerror(number))


def guarded(operation: Callable[P, R]) -> Callable[P, R]:
    """Return *operation*, raising nothing but OSError; a bug of ours is EIO, and logged."""

    @wraps(operation)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return operation(*args, **kwargs)
        except OSError:
            raise
        except Exception as error:
            if not isinstance(error, HoldfastError):
                _log.exception("%s failed", operation.__name__)
            raise oserror(error) from error

    return run


def paced(operation: Callable[P, R]) -> Callable[P, R]:
    """Return *operation*, guarded, that may wait for the storage, within its time."""
    run = guarded(operation)

    @wraps(operation)
    def within(*args: P.args, **kwargs: P.kwargs) -> R:
        begin()
        try:
            return run(*args, **kwargs)
        finally:
            end()

    return within
