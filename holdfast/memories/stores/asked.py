"""What a caller may ask for: views, preconditions, contents, depths. Pure checks of arguments."""

import re

from msgspec import UNSET, UnsetType

from holdfast.ground.errors import InvalidInput
from holdfast.ground.text import encoded
from holdfast.memories.stores.records import View

CONTENT_BYTES_MAX = 102_400
FULL_VIEW_MAX = 20
"""Things that a page of the full view holds at most, whatever its limit says."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


def checked_view(given: object, default: View) -> View:
    """Return *given*, or *default* when it was left out."""
    if given is None:
        return default
    if given in ("basic", "full"):
        return given
    raise InvalidInput("view", 'must be "basic" or "full"', given=given)


def checked_content(given: object) -> bytes:
    """Return *given* as UTF-8, at most 102,400 bytes of it."""
    if given is None:
        raise InvalidInput(
            "content", "must not be null", next='Send "" for a memory without content.'
        )
    if not isinstance(given, str):
        raise InvalidInput("content", "must be a string", given=given)
    content = encoded("content", given)
    if len(content) > CONTENT_BYTES_MAX:
        raise InvalidInput(
            "content",
            f"must be at most {CONTENT_BYTES_MAX:,} bytes of UTF-8, is {len(content):,}",
            limit=CONTENT_BYTES_MAX,
            next="Split it into several memories.",
        )
    return content


def checked_precondition(given: object) -> str | None:
    """Return the content hash that *given* demands, or None when it was left out."""
    if given is None or isinstance(given, UnsetType):
        return None
    if not isinstance(given, dict):
        raise InvalidInput("precondition", "must be an object", given=given)
    wanted: dict[object, object] = {**given}
    if unknown := [key for key in wanted if key not in ("type", "content_sha256")]:
        raise InvalidInput(f"precondition.{unknown[0]}", "is not known")
    if wanted.get("type") != "content_sha256":
        raise InvalidInput("precondition.type", 'must be "content_sha256"')
    if "content_sha256" not in wanted:
        raise InvalidInput("precondition.content_sha256", "is required")
    return checked_sha256(wanted["content_sha256"], field="precondition.content_sha256")


def checked_sha256(given: object, *, field: str) -> str:
    """Return *given* if it is a sha256 in 64 lowercase hex digits."""
    if not isinstance(given, str) or not _SHA256.fullmatch(given):
        raise InvalidInput(field, "must be 64 lowercase hex digits", limit=64)
    return given


def checked_depth(given: object) -> int:
    """Return 0 (everything below) or 1 (direct children); None is 0."""
    if given is None:
        return 0
    if isinstance(given, int) and not isinstance(given, bool) and given in (0, 1):
        return given
    raise InvalidInput("depth", "must be 0 or 1", given=given)


def given_or_none(given: object) -> object:
    """Return *given*, or None when it was left out."""
    return None if given is UNSET else given
