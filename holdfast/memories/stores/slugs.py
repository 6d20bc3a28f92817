"""Where an attached store is found as a directory."""

import re
from collections.abc import Collection

ROOT = "/mnt/memory"

_OTHER = re.compile(r"[^a-z0-9]+")


def slug(name: str, store_id: str, taken: Collection[str]) -> str:
    """Return the directory name of the store *store_id* called *name*, none of *taken*.

    It is of lowercase ASCII letters, digits and single hyphens; a name without any of these,
    or one that is taken, borrows the end of the id.
    """
    made = _OTHER.sub("-", name.lower()).strip("-") or f"memory-{store_id[-8:].lower()}"
    while made in taken:
        made = f"{made}-{store_id[-6:].lower()}"
    return made
