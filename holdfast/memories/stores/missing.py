"""What is answered when an id leads nowhere: unknown, malformed and another workspace's alike."""

from holdfast.ground.errors import NotFound
from holdfast.ground.ids import KINDS


def missing(prefix: str, given: str) -> NotFound:
    """Return the NotFound of *given*, which should have been an id of the kind *prefix*.

    When it is tagged as another kind's, the sentence says so.
    """
    tag = given.partition("_")[0]
    hint = "Check the id."
    if tag != prefix and tag in KINDS:
        hint = f"That is the id of a different kind of thing, {KINDS[tag]}: send {prefix}_…"
    return NotFound(KINDS[prefix], given, next=hint)
