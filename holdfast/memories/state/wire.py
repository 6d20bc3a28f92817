"""Plain records of threads as JSON values, and back. Instants have three fraction digits."""

from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from holdfast.memories.state.message import to_text

R = TypeVar("R", bound=Struct)


def exported(record: Struct) -> dict[str, Any]:
    """Return *record*, whose fields are text, numbers, instants and tuples of text, as JSON."""
    return {name: _plain(value) for name, value in asdict(record).items()}


def imported(make: type[R], wire: object) -> R:
    """Return the *make* that *wire* tells of; msgspec.ValidationError for something else."""
    return msgspec.convert(wire, make)


def _plain(value: object) -> object:
    return to_text(value) if isinstance(value, datetime) else value
