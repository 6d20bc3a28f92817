"""The code that an error of a durable call carries, by its class."""

from types import TracebackType
from typing import Final

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


_NEXT: Final = "Correct the request and retry."


def code_of(error: HoldfastError) -> str | None:
    """Return the code of *error*'s class or its nearest ancestor that has one."""
    return next((CODES[kind] for kind in type(error).__mro__ if kind in CODES), None)


def give_code(error: HoldfastError) -> None:
    """Let *error* carry its code, and say what to do where it says nothing."""
    error.code = error.code or code_of(error)
    error.next = error.next or _NEXT


class _Coded:
    """Lets what is raised within carry its code; it has no state, so one is enough for all."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, HoldfastError):
            give_code(error)


_CODED: Final = _Coded()


def coded() -> _Coded:
    """Return what lets the errors raised within it carry their codes."""
    return _CODED
