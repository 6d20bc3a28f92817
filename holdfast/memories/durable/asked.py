"""What a caller may ask for, held against its limits."""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec import Struct

from holdfast.ground.clock import to_microseconds
from holdfast.ground.errors import InvalidInput, shortened
from holdfast.ground.text import encoded, is_nfc, to_nfc
from holdfast.memories.durable.entry import CATEGORIES, CORE
from holdfast.memories.durable.limits import (
    MOST_CATEGORY,
    MOST_IDEMPOTENCY_KEY,
    MOST_KEY,
    MOST_TAG,
    MOST_TAGS,
)

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Asked(Struct, frozen=True, kw_only=True):
    """An entry as it is to be kept: checked, its tags in order, its size known."""

    key: str
    content: bytes
    category: str
    tags: tuple[str, ...]
    size_bytes: int


def checked_entry(
    key: object, content: object, category: object, tags: object, *, content_bytes: int
) -> Asked:
    """Return the entry that is asked for; InvalidInput names the field that breaks a rule."""
    named, labelled = checked_key(key), checked_category(category)
    told, marks = checked_content(content, most=content_bytes), checked_tags(tags)
    size = len(named.encode()) + len(told) + len(labelled.encode())
    return Asked(
        key=named,
        content=told,
        category=labelled,
        tags=marks,
        size_bytes=size + sum(len(tag.encode()) for tag in marks),
    )


def checked_key(given: object) -> str:
    """Return *given* if it can be a key: 1 to 255 bytes, no control character, in NFC."""
    return _name("key", given, most=MOST_KEY)


def checked_category(given: object) -> str:
    """Return *given* if it can be a category: 1 to 64 bytes, no control character, in NFC."""
    return _name("category", given, most=MOST_CATEGORY)


def checked_tags(given: object, *, field: str = "tags") -> tuple[str, ...]:
    """Return *given*'s distinct tags by code point: at most 32, each of 1 to 64 bytes."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise InvalidInput(field, "must be a list of strings", given=given)
    tags = tuple(sorted({_name(field, tag, most=MOST_TAG, part="a tag ") for tag in given}))
    if len(tags) > MOST_TAGS:
        reason = f"must have at most {MOST_TAGS} distinct tags, has {len(tags)}"
        raise InvalidInput(field, reason, limit=MOST_TAGS)
    return tags


def checked_content(given: object, *, most: int) -> bytes:
    """Return *given* as UTF-8 if it can be a content: 1 to *most* bytes, not whitespace alone."""
    content = _sized("content", given, most=most)
    if b"\0" in content:
        raise InvalidInput("content", "must not hold the character U+0000")
    if content.isspace() or (not content.isascii() and content.decode().isspace()):
        raise InvalidInput("content", "must be more than whitespace", given=given)
    return content


def checked_idempotency_key(given: object) -> str | None:
    """Return *given*, None or 1 to 128 bytes without control characters."""
    if given is None:
        return None
    return _name("idempotency_key", given, most=MOST_IDEMPOTENCY_KEY)


def checked_since(given: object, *, now: datetime) -> int | None:
    """Return *given*, an aware datetime or a timedelta back from *now*, in microseconds."""
    if given is None or given == "":
        return None
    if isinstance(given, timedelta):
        try:
            given = now - given
        except OverflowError:
            raise InvalidInput("since", "reaches beyond the years 1 to 9999") from None
    if not isinstance(given, datetime) or given.tzinfo is None:
        raise InvalidInput(
            "since", "must be an aware datetime, or a timedelta back from now", given=given
        )
    return to_microseconds(given)


def near_miss(category: str) -> str | None:
    """Return the notice for a category that is almost one of the four, or None."""
    folded = category.strip().casefold()
    for meant in CATEGORIES:
        if category != meant and folded in (meant, f"{meant}s"):
            lost = "pinned" if meant == CORE else f"kept as {meant} entries are"
            return f"`{category}` is not `{meant}`: this entry is not {lost}."
    return None


def _name(field: str, given: object, *, most: int, part: str = "") -> str:
    _sized(field, given, most=most, part=part)
    name = str(given)
    if _CONTROL.search(name):
        raise InvalidInput(field, f"{part}must not hold control characters", given=given)
    if name != name.strip():
        raise InvalidInput(field, f"{part}must not begin or end with whitespace", given=f"{name!r}")
    if not is_nfc(name):
        raise InvalidInput(
            field,
            f"{part}must be in Unicode normal form C, which is {shortened(to_nfc(name))}",
            given=given,
        )
    return name


def _sized(field: str, given: object, *, most: int, part: str = "") -> bytes:
    content = encoded(field, given)
    if not 1 <= len(content) <= most:
        reason = f"{part}must have 1 to {most:,} bytes, has {len(content):,}"
        raise InvalidInput(field, reason, limit=most, given=given if content else None)
    return content
