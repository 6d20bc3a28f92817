"""How an operation fails: with an errno, in the system's words, whatever went wrong."""

import logging
import os
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from holdfast.doors.mount.errors import oserror
from holdfast.doors.mount.filesystem import pace
from holdfast.ground.errors import HoldfastError

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
        pace.begin()
        try:
            return run(*args, **kwargs)
        finally:
            pace.end()

    return within
