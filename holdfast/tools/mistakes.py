"""A mistake, or trouble, as an answer that a model can read and act on."""

from holdfast.ground.errors import HoldfastError, InvalidInput
from holdfast.tools.base import JSON


def told(error: HoldfastError) -> JSON:
    """Return *error* as the answer of a tool."""
    return {
        "error": {
            "type": _snake(type(error).__name__),
            "message": error.message,
            "next": error.next,
            "field": error.field if isinstance(error, InvalidInput) else None,
        }
    }


def is_error(answer: JSON) -> bool:
    """Tell whether *answer* says that something went wrong."""
    return isinstance(answer, dict) and "error" in answer


def _snake(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name).lstrip("_")
