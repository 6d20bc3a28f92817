"""Errors to errno numbers, and time limits of operations.

The nearest ancestor of an error in the table decides its errno. No Holdfast exception leaves the
adapter: a program sees an errno and nothing else.
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
from holdfast.ground.errors import EngineFault, HoldfastError, Unavailable
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
    errors.RunTaken: EIO,
    errors.AlreadyAnswered: EIO,
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
    errors.RunWaiting: EIO,
    errors.WaitTimeout: EIO,
    errors.Unavailable: EIO,
    errors.EngineFault: EIO,
    errors.MissingExtra: EIO,
}
"""The errno of each error, by its class alone; `errno_of` looks at its facts too."""

PASSING = frozenset({EIO, ENOSPC, EDQUOT, EACCES})
"""Errnos after which a save is spooled and retried, now and at the next start."""

CONTENT_FIELDS = frozenset({"content", "appended"})
"""Names of fields with file content, as the last part of an error's `field`."""


def errno_of(error: BaseException, *, content: bool = False) -> int:
    """Return the errno that a program gets for *error*.

    InvalidInput about content (if *content* is set or its field names content) is EFBIG over a
    limit, else EILSEQ. An OSError keeps its own errno. Any other exception is EIO; the calling
    code logs its traceback.
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
    """Return the OSError that an operation raises for *error*, with it as the cause.

    Its message is the system's text for the errno, without the facts of *error*.
    """
    if isinstance(error, OSError):
        return error
    number = errno_of(error, content=content)
    raised = OSError(number, os.strerror(number))
    raised.__cause__ = error
    return raised


def in_doubt(error: BaseException) -> bool:
    """Check whether an edit that failed with *error* may still have been applied."""
    if isinstance(error, Unavailable):
        return error.written is None
    return isinstance(error, EngineFault) or not isinstance(error, HoldfastError | OSError)


def passing(error: BaseException) -> bool:
    """Check whether a save that failed with *error* may succeed on a retry.

    A full disk is temporary; a store at its cap needs a person.
    """
    lasting = isinstance(error, errors.StoreFull | errors.IdempotencyMismatch)
    return errno_of(error) in PASSING and not lasting


# An operation's calls to the storage and its waits before them share one time limit. Work that no
# program waits for may take as long as one call to the storage.

SLACK = 0.9
"""Seconds that a request may take beyond the deadline, without the time to respond."""
_LEAST = 0.05


class _Begun(local):
    at: float | None = None


_begun = _Begun()


def seconds_left(deadline: float) -> float | None:
    """Return the time limit of one call to the storage, None for its full deadline.

    Raise Unavailable if too little time remains.
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
    """Return the OSError with the errno *number* and the system's text for it."""
    return OSError(number, os.strerror(number))


def guarded(operation: Callable[P, R], *, timed: bool = False) -> Callable[P, R]:
    """Wrap *operation* so that it raises only OSError.

    An exception that is neither OSError nor HoldfastError is logged and becomes EIO. If *timed*,
    its waits on the storage share one time limit.
    """

    @wraps(operation)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        _begun.at = monotonic() if timed else None
        try:
            return operation(*args, **kwargs)
        except OSError:
            raise
        except Exception as error:
            if not isinstance(error, HoldfastError):
                _log.exception("%s failed", operation.__name__)
            raise oserror(error) from error
        finally:
            _begun.at = None

    return run
