"""How an operation fails: an errno, in the system's words."""

import os


def failure(number: int) -> OSError:
    """Return what an operation raises that fails with the errno *number*."""
    return OSError(number, os.strerror(number))
