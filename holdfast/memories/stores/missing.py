"""What is answered when an id leads nowhere: unknown, malformed and another workspace's alike."""

import re
from collections.abc import Sequence

from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.ground.ids import KINDS
from holdfast.ground.text import nearest

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
    return NotFound(KINDS[prefix], shown, next=_of_another_kind(prefix, shown) or "Check the id.")


def _of_another_kind(prefix: str, given: str) -> str | None:
    tag = given.partition("_")[0]
    if tag == prefix or tag not in KINDS:
        return None
    return f"That is the id of a different kind of thing, {KINDS[tag]}: send {prefix}_…"


def id_of_name(
    wanted: str,
    names: Sequence[tuple[str, str]],
    *,
    field: str,
    place: str,
    kind: str = KINDS["memstore"],
) -> str:
    """Return the id of the store called *wanted* among *names*, each with its id.

    NotFound names *place*, where they are from, and the nearest name; InvalidInput lists the ids
    when several have the name.
    """
    ids = [id for name, id in names if name == wanted]
    if len(ids) > 1:
        reason = f"{len(ids)} stores have this name: {' '.join(ids)}"
        raise InvalidInput(field, reason, given=wanted, next="Say which by its id.")
    if not ids:
        near = nearest(wanted, [name for name, _ in names])
        found = "There are no stores" if near is None else f"The nearest is {near!r},"
        other = _of_another_kind("memstore", wanted)
        raise NotFound(kind, wanted, next=f"{found} in {place}." + (f" {other}" if other else ""))
    return ids[0]
