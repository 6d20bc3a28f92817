"""Ids of threads, turns and runs: one's own, or a caller's, which is used as it is."""

import re
from hashlib import sha256
from typing import Final

from holdfast.ground.errors import InvalidInput
from holdfast.ground.ids import base62

MOST: Final = 128

_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


def checked_id(field: str, given: object) -> str:
    """Return *given* if it can be the id of a thread, a turn or a run; else InvalidInput."""
    if not isinstance(given, str) or not _ID.fullmatch(given):
        reason = f"must be 1 to {MOST} of the characters A-Z a-z 0-9 _ . : -"
        raise InvalidInput(field, reason, limit=MOST, given=given)
    return given


def checked_id_or_none(field: str, given: object) -> str | None:
    """Return *given* if it is None or can be such an id; else InvalidInput."""
    return None if given is None else checked_id(field, given)


def message_id(run_id: str) -> str:
    """Return the id of what a user said to the run *run_id*, the same in every replay."""
    digest = sha256(run_id.encode("utf-8", "surrogatepass")).digest()
    return f"msg_{base62(int.from_bytes(digest[:18]) % 62**24, 24)}"
