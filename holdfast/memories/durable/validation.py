"""Validate the arguments of durable memory."""

import re
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TypeGuard

from holdfast.ground.clock import to_microseconds
from holdfast.ground.errors import InvalidInput, shortened
from holdfast.ground.scope import checked_name
from holdfast.ground.text import encoded, is_nfc, to_nfc
from holdfast.ground.validation import check_no_nul, is_list
from holdfast.memories.durable.records import (
    CATEGORIES,
    CORE,
    MOST_CATEGORY,
    MOST_IDEMPOTENCY_KEY,
    MOST_KEY,
    MOST_PROMOTED_FROM,
    MOST_TAG,
    MOST_TAGS,
    EntryFields,
    NewEntry,
)

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class CheckedEntry(NewEntry, frozen=True, kw_only=True):
    """A checked entry: tags sorted, sizes in UTF-8 bytes."""

    content_bytes: int
    size_bytes: int


def checked_entry(key: object, given: EntryFields) -> CheckedEntry:
    """Check *key* and the fields of its entry; InvalidInput names the invalid field.

    The limit of a content is stored in the database: `refuse_long` checks it in the transaction.
    """
    named, category = checked_key(key), checked_category(given.category)
    content, length = _checked_content(given.content)
    tags = checked_tags(given.tags)
    return CheckedEntry(
        key=named,
        content=content,
        category=category,
        tags=tags,
        content_bytes=length,
        size_bytes=_bytes(named) + length + _bytes(category) + sum(map(_bytes, tags)),
    )


def refuse_long(entry: CheckedEntry, *, most: int) -> None:
    """Raise InvalidInput if the content of *entry* has more than *most* bytes."""
    if entry.content_bytes > most:
        raise _sized("content", entry.content_bytes, most, given=entry.content)


def checked_key(given: object) -> str:
    """Return *given* if it is a key: 1 to 255 bytes, no control characters, in NFC."""
    return _name("key", given, most=MOST_KEY)


def checked_category(given: object) -> str:
    """Return *given* if it is a category.

    It has 1 to 64 bytes and no control characters, and is in NFC.
    """
    return _name("category", given, most=MOST_CATEGORY)


def checked_tags(given: object, *, field: str = "tags") -> tuple[str, ...]:
    """Return the distinct tags, sorted: at most 32, each of 1 to 64 bytes."""
    if not is_list(given):
        raise InvalidInput(field, "must be a list of strings", given=given)
    tags = tuple(sorted({_name(field, tag, most=MOST_TAG, part="a tag ") for tag in given}))
    if len(tags) > MOST_TAGS:
        reason = f"must have at most {MOST_TAGS} distinct tags, has {len(tags)}"
        raise InvalidInput(field, reason, limit=MOST_TAGS)
    return tags


def checked_subject(given: object) -> str | None:
    """Return *given* if it is None or the name of a person."""
    return None if given is None else checked_name("subject", given)


def checked_idempotency_key(given: object) -> str | None:
    """Return *given*, None or 1 to 128 bytes without control characters."""
    if given is None:
        return None
    return _name("idempotency_key", given, most=MOST_IDEMPOTENCY_KEY)


def checked_promoted_from(given: object) -> str:
    """Return *given* if it is a key of run memory: 1 to 487 bytes."""
    return checked_origin("promoted_from", given)


def checked_origin(field: str, given: object) -> str:
    """Return *given* if it is a name of an origin for the log: 1 to 487 bytes."""
    return _name(field, given, most=MOST_PROMOTED_FROM)


def checked_since(given: object, *, now: datetime) -> int | None:
    """Return *given* in microseconds since 1970, or None for None and "".

    *given* is an aware datetime, or a timedelta back from *now*.
    """
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


@lru_cache(maxsize=256)
def near_miss(category: str) -> str | None:
    """Return a notice if *category* nearly equals a built-in one, or None."""
    folded = category.strip().casefold()
    for meant in CATEGORIES:
        if category != meant and folded in (meant, f"{meant}s"):
            lost = "pinned" if meant == CORE else f"kept as {meant} entries are"
            return f"`{category}` is not `{meant}`: this entry is not {lost}."
    return None


def _checked_content(given: object) -> tuple[str, int]:
    """Return *given* and its size if it is a valid content; its limit is not checked."""
    length = len(encoded("content", given))
    content = str(given)
    if not length:
        raise InvalidInput("content", "must not be empty", limit=1)
    check_no_nul("content", content)
    if content.isspace():
        raise InvalidInput("content", "must be more than whitespace")
    return content, length


def _name(field: str, given: object, *, most: int, part: str = "") -> str:
    if _is_plain(given) and len(given) <= most:
        return given
    length = len(encoded(field, given))
    name = str(given)
    if not 1 <= length <= most:
        raise _sized(field, length, most, given=name, part=part)
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


def _is_plain(given: object) -> TypeGuard[str]:
    """Return whether *given* is a simple ASCII name.

    Nearly all names are; then only the length remains to be checked.
    """
    if not isinstance(given, str) or not given:
        return False
    return given.isascii() and given.isprintable() and given[0] != " " != given[-1]


def _sized(field: str, length: int, most: int, *, given: str, part: str = "") -> InvalidInput:
    reason = f"{part}must have 1 to {most:,} bytes, has {length:,}"
    shown = given if given and field != "content" else None
    return InvalidInput(field, reason, limit=most, given=shown)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
