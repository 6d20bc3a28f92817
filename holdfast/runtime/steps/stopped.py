"""Why a step's loop ended without a result, and what of that may pass."""

from typing import Any, Final, cast

from pydantic_ai.exceptions import (
    FallbackExceptionGroup,
    ModelAPIError,
    ModelHTTPError,
    UnexpectedModelBehavior,
)

from holdfast.runtime.events import Reason, StepError

RETRIED: Final = frozenset({"model_error", "timeout"})
"""Reasons that may have passed when the step is tried again."""

LONGEST_WAIT: Final = 30.0
"""Seconds between two tries; the first wait is one, and each is twice the one before."""


class Stopped(Exception):
    """The loop ended without a result, for *reason*; *message* tells the true cause."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.error = StepError(reason, message)


def wait_after(tries: int) -> float:
    """Return the seconds to wait after so many failed *tries*."""
    return min(2.0 ** (tries - 1), LONGEST_WAIT)


def of_model(error: Exception) -> Stopped:
    """Return what *error*, raised by a request to a model, means for the step."""
    if isinstance(error, UnexpectedModelBehavior):
        return Stopped("no_answer", str(error))
    return Stopped("model_error", _model_error_text(error))


def _model_error_text(error: BaseException) -> str:
    if isinstance(error, ModelHTTPError):
        return f"{error.model_name} answered {error.status_code}: {_body(error)}"
    if isinstance(error, ModelAPIError):
        return f"{error.model_name}: {error.message}"
    if isinstance(error, FallbackExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return "; ".join(map(_model_error_text, group.exceptions))
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _body(error: ModelHTTPError) -> str:
    """Return the provider's own message."""
    body: Any = error.body
    while isinstance(body, dict):
        known = cast("dict[str, Any]", body)
        body = known.get("error", known.get("message"))
    return str(body) if body else error.message
