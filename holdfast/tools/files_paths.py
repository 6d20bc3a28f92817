"""Where a path of the tool `memory` leads: from `/memories/…` to a path in the store, and back."""

from msgspec import Struct

from holdfast.ground.errors import InvalidInput
from holdfast.ground.text import to_nfc
from holdfast.memories.stores.validation import checked_path, checked_place
from holdfast.tools import files_refusals as refusals

ROOT = "/memories"


class ToolPath(Struct, frozen=True, kw_only=True):
    """A path as the model gave it, and what it is in the store.

    `path` is a memory's path, and the root's has no meaning; `below` is the prefix of all that
    is under it.
    """

    given: str
    path: str
    below: str
    is_root: bool

    def holds(self, other: "ToolPath") -> bool:
        """Tell whether *other* lies below this place."""
        return other.below != self.below and other.below.startswith(self.below)


def checked_root(prefix: str) -> str:
    """Return *prefix* if the paths below it can be paths of memories; else InvalidInput."""
    if not (prefix.startswith("/") and prefix.endswith("/")) or "//" in prefix:
        raise InvalidInput(
            "prefix",
            "must start and end with a slash, and not hold //",
            given=prefix,
            next="Send a path with a slash at both ends, such as /notes/.",
        )
    checked_place(prefix, field="prefix")
    return prefix


def place(given: str, prefix: str) -> ToolPath:
    """Return where *given* leads when the store's *prefix* is the root.

    Dots and superfluous slashes are resolved on the text, and what is left is brought to the
    normal form that stores keep. ToolRefused when it leads out of the root, or nowhere.
    """
    if given != ROOT and not given.startswith(f"{ROOT}/"):
        raise refusals.outside(given)
    inside = to_nfc("/".join(_resolved(given)))
    if not inside:
        return ToolPath(given=given, path=prefix, below=prefix, is_root=True)
    path = prefix + inside
    try:
        checked_path(path)
    except InvalidInput as error:
        raise refusals.illegal(given, error.reason) from error
    return ToolPath(given=given, path=path, below=f"{path}/", is_root=False)


def _resolved(given: str) -> list[str]:
    walked: list[str] = []
    for segment in given.split("/"):
        if segment == "..":
            # What lies above the root's parent has no name here: nothing leads back from there.
            if not walked:
                raise refusals.escaping(given)
            walked.pop()
        elif segment not in ("", "."):
            walked.append(segment)
    if walked[:1] != [ROOT[1:]]:
        raise refusals.escaping(given)
    return walked[1:]


def as_given(path: str, prefix: str) -> str:
    """Return the store's *path* as the model knows it; what is above the *prefix* is the root."""
    inside = path.removeprefix(prefix) if path.startswith(prefix) else ""
    return f"{ROOT}/{inside}" if inside else ROOT
