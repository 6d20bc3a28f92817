"""Entries that come back from where they were kept: each is checked before any is taken."""

from collections.abc import Iterable, Mapping
from typing import Final, cast

import msgspec

from holdfast.ground.errors import InvalidInput, shortened
from holdfast.memories.run.entry import (
    RunEntry,
    checked_description,
    checked_source,
    checked_time,
    checked_title,
    checked_version,
    value_json,
)
from holdfast.memories.run.keys import Kind, checked, checked_kind, kind_of

_NEEDED: Final = ("key", "value", "created_at", "updated_at", "version")
_KNOWN: Final = frozenset({*_NEEDED, "kind", "source", "title", "description", "failed"})


def checked_entries(given: object) -> list[RunEntry]:
    """Return *given*, entries or objects as in `to_json`, as entries.

    InvalidInput says by its `index` which of them is none, and by its field why.
    """
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        kind = type(cast("object", given)).__name__
        raise InvalidInput(
            "entries",
            f"must be a list of entries, is {kind}",
            next="Give what snapshot() gave.",
        )
    many = cast("Iterable[object]", given)
    return [_checked(each, index) for index, each in enumerate(many)]


def text_of(run_id: str, entries: Iterable[RunEntry]) -> str:
    """Return the JSON text of a memory, values as they are kept."""
    told = [each.to_wire() | {"value": msgspec.Raw(each.value_json)} for each in entries]
    return msgspec.json.encode({"run_id": run_id, "entries": told}).decode()


def parsed(text: object) -> tuple[object, object]:
    """Return the run id and the entries in *text*, what `text_of` gave, neither checked yet."""
    if not isinstance(text, str | bytes):
        raise _no_memory(f"must be text, is {type(text).__name__}")
    try:
        told = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise _no_memory("is not JSON") from None
    if not isinstance(told, dict):
        raise _no_memory("must be an object")
    members = cast("dict[str, object]", told)
    if set(members) != {"run_id", "entries"}:
        raise _no_memory("must have run_id and entries, and nothing else")
    return members["run_id"], members["entries"]


def fitting_kind(kind: object, key: str) -> Kind:
    """Return what is kept under *key*; InvalidInput unless *kind* is that, or None."""
    right = kind_of(key)
    if kind is not None and checked_kind(kind) != right:
        raise InvalidInput(
            "kind",
            f"the key {shortened(key)} is of the kind {right}, not {kind}",
            next="Leave kind out, or use the key's own namespace.",
        )
    return right


def _checked(given: object, index: int) -> RunEntry:
    try:
        if isinstance(given, RunEntry):
            return _of_entry(given)
        return _of_object(given)
    except InvalidInput as error:
        raise InvalidInput(
            f"entries[{index}].{error.field}",
            error.reason,
            limit=error.limit,
            given=error.given,
            index=index,
            next="Correct that entry; none was restored.",
        ) from None


def _of_entry(given: RunEntry) -> RunEntry:
    try:
        value = given.value
    except (msgspec.DecodeError, TypeError):
        raise InvalidInput("value_json", "is not JSON") from None
    return _of_object({**_facts(given), "value": value})


def _facts(entry: RunEntry) -> dict[str, object]:
    facts = msgspec.structs.asdict(entry)
    del facts["value_json"]
    return facts


def _of_object(given: object) -> RunEntry:
    if not isinstance(given, Mapping):
        raise InvalidInput("entry", f"must be an object, is {type(given).__name__}")
    told = cast("Mapping[str, object]", given)
    for name in _NEEDED:
        if name not in told:
            raise InvalidInput(name, "must be there")
    for name in told:
        if name not in _KNOWN:
            raise InvalidInput(str(name), f"is none of {', '.join(sorted(_KNOWN))}")
    key = checked(told["key"])
    failed = told.get("failed", False)
    if not isinstance(failed, bool):
        raise InvalidInput("failed", f"must be true or false, is {type(failed).__name__}")
    return RunEntry(
        key=key,
        kind=fitting_kind(told.get("kind"), key),
        value_json=value_json(told["value"]),
        source=checked_source(told.get("source")),
        title=checked_title(told.get("title")),
        description=checked_description(told.get("description")),
        created_at=checked_time("created_at", told["created_at"]),
        updated_at=checked_time("updated_at", told["updated_at"]),
        version=checked_version("version", told["version"], least=1),
        failed=failed,
    )


def _no_memory(reason: str) -> InvalidInput:
    return InvalidInput("text", reason, next="Give what to_json() made.")
