"""Rename the directories of stores when the stores' names changed or were swapped.

A directory is renamed through a temporary name derived from its store's id, so that the next start
can identify it after a crash.
"""

from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from holdfast.doors.mount.sync.state import State
from holdfast.ground.errors import InvalidInput

MOVING = ".moving-"


def check(directory: Path, states: Mapping[str, State], *, known: bool) -> None:
    """Raise InvalidInput if *directory* has files without a recorded state.

    *known*: whether anything was ever synced with it; *states* are by current name.
    """
    theirs = {state.slug for state in states.values() if state.kept}
    strangers = [] if known else _names(directory)
    strangers += [slug for slug in states if slug not in theirs and _names(directory / slug)]
    if strangers:
        reason = f"holds {strangers[0]!r}, and was not synced with these stores before"
        raise InvalidInput("DIR", reason, given=directory, next="Choose an empty directory.")


def give_names(directory: Path, states: Mapping[str, State]) -> None:
    """Rename the directory of each store to its current name, and record that."""
    for slug, state in states.items():
        if state.kept and state.slug != slug:
            with suppress(FileNotFoundError):
                (directory / state.slug).rename(_moving(directory, state))
    for state in states.values():
        state.open()
    for slug, state in states.items():
        with suppress(FileNotFoundError):
            _moving(directory, state).rename(directory / slug)


def _moving(directory: Path, state: State) -> Path:
    return directory / (MOVING + sha256(state.store_id.encode()).hexdigest()[:16])


def _names(directory: Path) -> list[str]:
    """Return the names in *directory*; none if it does not exist."""
    try:
        return sorted(each.name for each in directory.iterdir())
    except FileNotFoundError:
        return []
