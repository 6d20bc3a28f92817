"""What a mount asks to be done to a store, all of it in one transaction or none."""

from msgspec import Struct


class Save(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="save"
):
    """Write *content*: to the memory *memory_id*, else to the one at *path*, else to a new one.

    With a *base_sha256* the head must still be that; if it is not, *appended*, where it is given,
    goes after whatever the head is. A save that follows its id leaves the memory's path alone.
    One that is of something *new* goes to no memory that is there already at the path.
    """

    path: str
    content: str
    memory_id: str | None = None
    base_sha256: str | None = None
    appended: str | None = None
    new: bool = False


class Replace(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="replace"
):
    """Make *content* the head of *memory_id*, at *path*; the memory *source_id* goes."""

    memory_id: str
    path: str
    content: str
    source_id: str | None = None


class Moved(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One memory and where it goes."""

    memory_id: str
    path: str


class Move(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="move"
):
    """Give memories new paths, all or none."""

    moves: tuple[Moved, ...]


class Remove(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="delete"
):
    """Delete a memory; one that is gone already is fine."""

    memory_id: str


Edit = Save | Replace | Move | Remove
