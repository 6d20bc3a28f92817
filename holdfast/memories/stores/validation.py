"""What a path may be, and what lies above and below it. Pure rules."""

from holdfast.ground.errors import InvalidInput
from holdfast.ground.text import encoded, first_of_category, is_nfc, to_nfc

BYTES_MAX, BYTES_MIN, SEGMENTS_MAX = 1024, 2, 20
RESERVED = "/.anthropic-memory-store"
_UNFIT = ("Cc", "Cf", "Zl", "Zp")
"""Categories of characters; the last two hold U+2028 and U+2029 alone."""


def checked_path(given: object, *, field: str = "path") -> str:
    """Return *given* if it can be the path of a memory; else InvalidInput names the rule."""
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
    """Return the advice to send what is left of *given* without anything that is not allowed."""
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
    if "\0" in given:
        raise InvalidInput("path_prefix", "must not hold the character U+0000")
    return given


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
    """Return the bound from which every path sorts after *path*: none holds what is below ' '."""
    return path + " "


def lineage(path: str) -> list[str]:
    """Return *path* and every path above it, the shortest first."""
    ends = [i for i, char in enumerate(path) if char == "/"][1:]
    return [*(path[:end] for end in ends), path]
