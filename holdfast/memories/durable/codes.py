"""The code that an error of a durable call carries, by its class."""

from collections.abc import Generator
from contextlib import contextmanager

from holdfast.ground import errors
from holdfast.ground.errors import HoldfastError

CODES: dict[type[HoldfastError], str] = {
    errors.NotPermitted: "HF-MEM-001",
    errors.NotFound: "HF-MEM-002",
    errors.Unavailable: "HF-MEM-003",
    errors.InvalidInput: "HF-MEM-004",
    errors.TooLarge: "HF-MEM-004",
    errors.MemoryFull: "HF-MEM-005",
    errors.StaleRun: "HF-MEM-006",
    errors.Forgotten: "HF-MEM-007",
    errors.RunRequired: "HF-MEM-008",
    errors.PreconditionFailed: "HF-MEM-009",
    errors.IdempotencyMismatch: "HF-MEM-010",
    errors.ImportRefused: "HF-MEM-011",
}


def code_of(error: HoldfastError) -> str | None:
    """Return the code of *error*'s class or its nearest ancestor that has one."""
    return next((CODES[kind] for kind in type(error).__mro__ if kind in CODES), None)


@contextmanager
def coded() -> Generator[None, None, None]:
    """Let what is raised within carry its code."""
    try:
        yield
    except HoldfastError as error:
        error.code = error.code or code_of(error)
        raise
