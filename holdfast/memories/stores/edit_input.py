"""What `apply` may be asked: the checks of edits, and what tells two requests apart."""

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import cast

import msgspec
from msgspec import Struct

from holdfast.ground.errors import InvalidInput
from holdfast.memories.stores.edits import Move, Remove, Replace, Save
from holdfast.memories.stores.transaction import Text
from holdfast.memories.stores.validation import checked_content, checked_path, checked_sha256

EDITS_MAX = 1_000
"""Edits of one `apply`."""

_EDIT_ID = re.compile(r"edit_[0-9A-Za-z]{1,64}")
Stated = tuple[object, ...]


class AskedSave(Struct, frozen=True):
    """A `Save` that was checked, hashed and split into words."""

    edit: Save
    text: Text
    appended: bytes | None


class AskedReplace(Struct, frozen=True):
    """A `Replace` that was checked, hashed and split into words."""

    edit: Replace
    text: Text


AskedEdit = AskedSave | AskedReplace | Move | Remove


class CheckedEdits(Struct, frozen=True):
    """Edits that were checked, and the digest of all of them."""

    edits: list[AskedEdit]
    digest: bytes


def checked_edit_id(given: object) -> str:
    """Return *given* if it can be an edit's id: `edit_` and 1 to 64 ASCII letters and digits."""
    if isinstance(given, str) and _EDIT_ID.fullmatch(given):
        return given
    raise InvalidInput(
        "edit_id", "must be edit_ and 1 to 64 ASCII letters and digits", limit=64, given=given
    )


def checked_edits(given: object) -> CheckedEdits:
    """Return *given*, 1 to 1,000 edits, checked; InvalidInput tells the index of a wrong one."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidInput("edits", "must be a list", given=given)
    edits = cast("Sequence[object]", given)
    if not 1 <= len(edits) <= EDITS_MAX:
        reason = f"must be 1 to {EDITS_MAX:,} edits, are {len(edits):,}"
        raise InvalidInput("edits", reason, limit=EDITS_MAX)
    asked: list[AskedEdit] = []
    stated: list[Stated] = []
    for index, edit in enumerate(edits):
        try:
            checked, said = _checked(edit)
        except InvalidInput as wrong:
            raise _at(wrong, index) from None
        asked.append(checked)
        stated.append(said)
    return CheckedEdits(asked, sha256(msgspec.json.encode(stated)).digest())


def _checked(edit: object) -> tuple[AskedEdit, Stated]:
    """Return *edit* checked, and what it says, its texts as their hashes."""
    match edit:
        case Save():
            return _save(edit)
        case Replace():
            return _replace(edit)
        case Move():
            return edit, _move(edit)
        case Remove():
            return edit, ("delete", _id("memory_id", edit.memory_id))
        case _:
            raise InvalidInput("edits", "must be Save, Replace, Move or Remove", given=edit)


def _save(edit: Save) -> tuple[AskedSave, Stated]:
    path = checked_path(edit.path)
    text = Text.of(checked_content(edit.content))
    memory_id = None if edit.memory_id is None else _id("memory_id", edit.memory_id)
    base = edit.base_sha256
    if base is not None:
        checked_sha256(base, field="base_sha256")
    appended = None if edit.appended is None else _appended(edit.appended)
    added = None if appended is None else sha256(appended).hexdigest()
    said: Stated = ("save", path, text.sha256, memory_id, base, added)
    return AskedSave(edit, text, appended), (*said, "new") if edit.new else said


def _appended(given: object) -> bytes:
    try:
        return checked_content(given)
    except InvalidInput as wrong:
        raise InvalidInput("appended", wrong.reason, limit=wrong.limit, next=wrong.next) from None


def _replace(edit: Replace) -> tuple[AskedReplace, Stated]:
    memory_id = _id("memory_id", edit.memory_id)
    path = checked_path(edit.path)
    text = Text.of(checked_content(edit.content))
    source_id = None if edit.source_id is None else _id("source_id", edit.source_id)
    if source_id == memory_id:
        raise InvalidInput("source_id", "must be another memory than memory_id", given=source_id)
    return AskedReplace(edit, text), ("replace", memory_id, path, text.sha256, source_id)


def _move(edit: Move) -> Stated:
    moves = [(_id("memory_id", move.memory_id), checked_path(move.path)) for move in edit.moves]
    if not moves:
        raise InvalidInput("moves", "must name a memory")
    if len({memory_id for memory_id, _ in moves}) < len(moves):
        raise InvalidInput("moves", "must name each memory once")
    return ("move", *moves)


def _id(field: str, given: object) -> str:
    if not isinstance(given, str):
        raise InvalidInput(field, "must be a string", given=given)
    # What is shaped like no id is merely not there; but its text must be text.
    return given.encode("utf-8", "backslashreplace").decode()


def _at(wrong: InvalidInput, index: int) -> InvalidInput:
    return InvalidInput(
        wrong.field,
        wrong.reason,
        limit=wrong.limit,
        given=wrong.given,
        index=index,
        next=wrong.next,
    )
