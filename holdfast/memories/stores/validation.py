"""Validate names, slugs, metadata, paths and page bounds of stores."""

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import cast

from msgspec import UNSET, UnsetType

from holdfast.ground.clock import to_microseconds
from holdfast.ground.errors import InvalidInput
from holdfast.ground.pages import Key, no_cursor, read_cursor
from holdfast.ground.text import encoded, first_of_category, is_nfc, to_nfc
from holdfast.ground.validation import check_no_nul, check_text
from holdfast.memories.stores.records import Metadata, View

ROOT = "/mnt/memory"

_OTHER = re.compile(r"[^a-z0-9]+")


def slug(name: str, store_id: str, taken: Collection[str]) -> str:
    """Return a directory name for the store that is not in *taken*.

    It has lowercase ASCII letters, digits and single hyphens; a *name* without any of these, or one
    that is taken, gets the end of the id appended.
    """
    made = _OTHER.sub("-", name.lower()).strip("-") or f"memory-{store_id[-8:].lower()}"
    while made in taken:
        made = f"{made}-{store_id[-6:].lower()}"
    return made


MOST_PAIRS = 16
MOST_KEY, MOST_VALUE = 64, 512
"""Code points."""


def checked_metadata(given: object) -> Metadata:
    """Check metadata: at most 16 pairs of strings.

    Raises InvalidInput, also for a null value.
    """
    pairs = {
        _checked_key(key): _checked_value(key, value) for key, value in _mapping(given).items()
    }
    return _counted(pairs)


def patched_metadata(present: Metadata, patch: object) -> Metadata:
    """Return *present* with *patch* applied: a string sets, None removes.

    Raises InvalidInput when the result has more than 16 pairs.
    """
    result = dict(present)
    for key, value in _mapping(patch).items():
        if value is None:
            result.pop(_checked_key(key), None)
        else:
            result[_checked_key(key)] = _checked_value(key, value)
    return _counted(result)


def _mapping(given: object) -> Mapping[object, object]:
    if not isinstance(given, Mapping):
        raise InvalidInput("metadata", "must be an object of strings", given=given)
    return cast("Mapping[object, object]", given)


def _checked_key(key: object) -> str:
    if not isinstance(key, str):
        raise InvalidInput("metadata", "must have strings as keys", given=key)
    return check_text("metadata", key, least=1, most=MOST_KEY, part="a key ")


def _checked_value(key: object, value: object) -> str:
    return check_text(f"metadata.{key}", value, most=MOST_VALUE)


def _counted(pairs: Metadata) -> Metadata:
    if len(pairs) > MOST_PAIRS:
        raise InvalidInput(
            "metadata", f"may hold at most {MOST_PAIRS} pairs, holds {len(pairs)}", limit=MOST_PAIRS
        )
    return pairs


CONTENT_BYTES_MAX = 102_400
FULL_VIEW_MAX = 20
"""Greatest number of items on a page of the full view, even with a higher limit."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


def checked_view(given: object, default: View) -> View:
    """Return *given*, or *default* when it was omitted."""
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
    """Return the expected content hash, or None when *given* was omitted."""
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
    """Return *given*, or None when it was omitted."""
    return None if given is UNSET else given


BYTES_MAX, BYTES_MIN, SEGMENTS_MAX = 1024, 2, 20
RESERVED = "/.anthropic-memory-store"
_UNFIT = ("Cc", "Cf", "Zl", "Zp")
"""Categories of characters; the last two hold U+2028 and U+2029 alone."""


def checked_path(given: object, *, field: str = "path") -> str:
    """Return *given* if it is a path of a memory.

    InvalidInput names the broken rule.
    """
    if not isinstance(given, str):
        raise InvalidInput(field, "must be a string", given=given)
    size = len(encoded(field, given))
    if not given.startswith("/"):
        raise InvalidInput(field, "must start with a slash", given=given, next=_instead(given))
    if not BYTES_MIN <= size <= BYTES_MAX:
        reason = f"must be {BYTES_MIN} to {BYTES_MAX:,} bytes of UTF-8, is {size:,}"
        raise InvalidInput(field, reason, limit=BYTES_MAX, given=given)
    _check_segments(field, given)
    _check_characters(field, given)
    if given == RESERVED:
        raise InvalidInput(field, "is reserved", given=given, next="Choose another name.")
    return given


def _check_segments(field: str, given: str) -> None:
    segments = given[1:].split("/")
    if "" in segments:
        raise InvalidInput(
            field, "must not hold // or end in a slash", given=given, next=_instead(given)
        )
    if "." in segments or ".." in segments:
        raise InvalidInput(
            field,
            "must not hold the segments . or ..",
            given=given,
            next="Write the path out from the root.",
        )
    if len(segments) > SEGMENTS_MAX:
        reason = f"must have at most {SEGMENTS_MAX} segments, has {len(segments)}"
        raise InvalidInput(field, reason, limit=SEGMENTS_MAX, given=given)


def _check_characters(field: str, given: str) -> None:
    bad = first_of_category(given, *_UNFIT)
    if bad is not None:
        raise InvalidInput(
            field,
            f"must not hold control or format characters, holds U+{ord(bad):04X}",
            given=given,
            next=_instead(given),
        )
    if not is_nfc(given):
        raise InvalidInput(
            field,
            "must be in Unicode Normalization Form C",
            given=given,
            next=_instead(given),
        )


def _instead(given: str) -> str:
    """Return advice for a correction: *given* without invalid characters."""
    plain = to_nfc("".join(char for char in given if not first_of_category(char, *_UNFIT)))
    segments = [segment for segment in plain.split("/") if segment]
    fixed = "/" + "/".join(segments)
    fits = (
        BYTES_MIN <= len(fixed.encode()) <= BYTES_MAX
        and len(segments) <= SEGMENTS_MAX
        and {".", ".."}.isdisjoint(segments)
        and fixed != RESERVED
    )
    return f"Send {fixed} instead." if fits else "Choose another path."


def checked_prefix(given: object) -> str:
    """Return *given* if it starts and ends with a slash; None and "/" mean all."""
    if given is None:
        return "/"
    if not isinstance(given, str) or not given.startswith("/") or not given.endswith("/"):
        raise InvalidInput(
            "path_prefix",
            "must start and end with a slash",
            given=given,
            next="A prefix matches whole segments: /notes/ finds /notes/a.md.",
        )
    encoded("path_prefix", given)
    return check_no_nul("path_prefix", given)


def checked_place(given: object, *, field: str) -> str:
    """Return *given* as a path, or as "/" for the root; one trailing slash is dropped."""
    if given == "/":
        return "/"
    if isinstance(given, str) and len(given) > 1:
        given = given.removesuffix("/")
    return checked_path(given, field=field)


def span_below(path: str) -> tuple[str, str]:
    """Return the bounds (from, before) of all paths below *path*; "/" is the root.

    '0' is the character after '/'.
    """
    return ("/", "0") if path == "/" else (path + "/", path + "0")


def just_after(path: str) -> str:
    """Return a bound greater than *path* and at most any later path.

    No path contains a character below ' '.
    """
    return path + " "


def lineage(path: str) -> list[str]:
    """Return *path* and every path above it, the shortest first."""
    ends = [i for i, char in enumerate(path) if char == "/"][1:]
    return [*[path[:end] for end in ends], path]


BEGINNING, END = 0, 2**63 - 1
"""Least and greatest instant, in microseconds since 1970."""

LAST_ID = "~"
"""Sorts after every id."""


def bounds(
    *,
    gt: datetime | None = None,
    gte: datetime | None = None,
    lt: datetime | None = None,
    lte: datetime | None = None,
) -> tuple[int, int]:
    """Return the first and last microsecond since 1970 within all given bounds.

    An instant without a zone is UTC.
    """
    since = max(
        BEGINNING if gte is None else _microseconds("created_at_gte", gte),
        BEGINNING if gt is None else _microseconds("created_at_gt", gt) + 1,
    )
    until = min(
        END if lte is None else _microseconds("created_at_lte", lte),
        END if lt is None else _microseconds("created_at_lt", lt) - 1,
    )
    return since, until


def age_key(created_at: datetime, id: str) -> Key:
    """Return the key of the cursor after an object of this age and id."""
    return [to_microseconds(created_at), id]


def after_age(page: str | None, list: str, filters: str, newest: int) -> Key:
    """Return the (age, id) before the first item of a page, in a list newest first."""
    return [newest, LAST_ID] if page is None else checked_age(read_cursor(list, filters, page)[0])


def checked_age(key: Key) -> Key:
    """Return *key*, which was read from a cursor, if it is an (age, id).

    Raises InvalidInput if the cursor is not of this list.
    """
    match key:
        case [int(at), str(id)] if 0 <= at <= END and id.isascii() and id.isprintable():
            return key
        case _:
            raise no_cursor()


def _microseconds(field: str, instant: object) -> int:
    if not isinstance(instant, datetime):
        raise InvalidInput(field, "must be a datetime", given=instant)
    return to_microseconds(instant if instant.tzinfo else instant.replace(tzinfo=UTC))
