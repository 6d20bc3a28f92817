"""What is answered when an id leads nowhere: unknown, malformed and another workspace's alike."""

import re

from holdfast.ground.errors import NotFound
from holdfast.ground.ids import KINDS

_BODY = re.compile(r"_[0-9A-Za-z]{24}")


def is_id(prefix: str, given: object) -> bool:
    """Tell whether *given* is shaped like an id of the kind *prefix*."""
    return (
        isinstance(given, str)
        and given.startswith(prefix)
        and _BODY.fullmatch(given, len(prefix)) is not None
    )


def shaped(prefix: str, given: str) -> str:
    """Return *given* if it is shaped like an id of the kind *prefix*; else raise its NotFound.

    What is not is never handed to an engine, which may know no such text.
    """
    if not is_id(prefix, given):
        raise missing(prefix, given)
    return given


def sought(prefix: str, given: str) -> str:
    """Return *given* to look for, or "", which nothing is called, when it cannot be an id.

    An engine may know no such text (U+0000), and what is malformed is merely not there.
    """
    return given if is_id(prefix, given) else ""


def missing(prefix: str, given: object) -> NotFound:
    """Return the NotFound of *given*, which should have been an id of the kind *prefix*.

    When it is tagged as another kind's, the sentence says so.
    """
    shown = given if isinstance(given, str) else repr(given)
    tag = shown.partition("_")[0]
    hint = "Check the id."
    if tag != prefix and tag in KINDS:
        hint = f"That is the id of a different kind of thing, {KINDS[tag]}: send {prefix}_…"
    return NotFound(KINDS[prefix], shown, next=hint)
