"""The three tools of run memory, list, read and write, and their prompt section.

An error of the model is a result, `{"error": …}`, never an exception.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache, partial
from importlib.resources import files
from types import MappingProxyType
from typing import Final, Literal, Protocol, cast

from msgspec import UNSET, Struct
from msgspec.structs import replace

from holdfast.ground.clock import milliseconds_text
from holdfast.ground.errors import HoldfastError, InvalidInput, LimitExceeded, PreconditionFailed
from holdfast.ground.validation import is_whole
from holdfast.memories.run import keys as run_keys
from holdfast.memories.run.entry import RunEntry, filter_of
from holdfast.memories.run.keys import KINDS
from holdfast.memories.run.memory import RunMemory, one_line
from holdfast.memories.run.model_view import (
    ORDERS,
    PAGE_MOST,
    EntryPageRequest,
    Piece,
    ValuePart,
    chars,
    checked_order,
    checked_path,
    list_page,
    read_entry,
)
from holdfast.tools.base import JSON, Schema, Tool, is_error, object_schema, told, wording

KEYS_MOST: Final = 100
KEY_CHARS: Final = 200

_STRINGS: Final = {"type": "array", "items": {"type": "string"}}


SCHEMAS: Final[dict[str, Schema]] = {
    "list": object_schema(
        {
            "kind": {
                "type": "array",
                "items": {"type": "string", "enum": list(KINDS.values())},
                "description": "Only entries of these kinds.",
            },
            "key_prefix": {
                "type": "string",
                "description": "Only keys that begin with this, such as step: or shared:plan.",
            },
            "sources": {**_STRINGS, "description": "Only entries that one of these produced."},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": PAGE_MOST,
                "default": PAGE_MOST,
                "description": "The most entries to list.",
            },
            "page": {
                "type": "string",
                "description": "The next_page of the list before, to go on from there.",
            },
            "order": {
                "type": "string",
                "enum": list(ORDERS),
                "default": "newest",
                "description": "Whether what was written last comes first or last.",
            },
        }
    ),
    "read": object_schema(
        {
            "keys": {
                **_STRINGS,
                "maxItems": KEYS_MOST,
                "description": "The keys to read, as they are listed.",
            },
            "path": {
                "type": "string",
                "description": "A JSON Pointer into each value, such as /rows/0/name.",
            },
            "offset": {
                "type": "integer",
                "minimum": 0,
                "description": "Where to go on in the value of one key: its next_offset.",
            },
        },
        "keys",
    ),
    "write": object_schema(
        {
            "key": {
                "type": "string",
                "minLength": 1,
                "maxLength": KEY_CHARS,
                "description": "The name to store it under; shared: is put before it.",
            },
            "value": {"description": "What to store: any JSON value."},
            "title": {"type": "string", "description": "What it is, in a few words."},
            "description": {"type": "string", "description": "What it is about, for a list."},
            "expected_version": {
                "type": "integer",
                "minimum": 0,
                "description": "Write only over this version of it; 0 means only if it is new.",
            },
        },
        "key",
        "value",
    ),
}
"""The JSON Schema of each tool's arguments."""


class ToolArguments:
    """The arguments of one call. Null counts as a missing optional argument."""

    def __init__(self, given: object, tool: str) -> None:
        known = list(SCHEMAS[tool]["properties"])
        if not isinstance(given, dict):
            raise InvalidInput(
                "arguments",
                f"must be an object, is {_type_name(given)}",
                next=f"Send an object with {_named(known)}.",
            )
        self._given = cast("dict[object, object]", given)
        for name in self._given:
            if name not in known:
                raise InvalidInput(
                    str(name), f"is no argument; there are {_named(known)}", next="Leave it out."
                )

    def has(self, name: str) -> bool:
        """Check whether *name* is present, even as null."""
        return name in self._given

    def any(self, name: str) -> object:
        """Return the value of *name*, or None."""
        return self._given.get(name)

    def required(self, name: str, what: str) -> object:
        """Return the value of *name*, of type *what*; InvalidInput if it is missing."""
        if (given := self._given.get(name)) is None:
            raise InvalidInput(name, f"must be {what}, is missing", next=f"Send {name}.")
        return given

    def text(self, name: str) -> str | None:
        """Return the string *name*, or None."""
        given = self._given.get(name)
        if given is not None and not isinstance(given, str):
            raise InvalidInput(
                name, f"must be a string, is {_type_name(given)}", next=f"Send {name} as a string."
            )
        return given

    def texts(self, name: str) -> list[str] | None:
        """Return the list of strings *name*, or None; a string becomes a list of one."""
        given = self._given.get(name)
        if given is None:
            return None
        many = [given] if isinstance(given, str) else given
        if not isinstance(many, list):
            raise _no_strings(name, _type_name(given))
        for index, each in enumerate(cast("list[object]", many)):
            if not isinstance(each, str):
                raise _no_strings(name, f"{_type_name(each)} at {index}")
        return cast("list[str]", many)

    def whole(self, name: str, least: int, most: int) -> int | None:
        """Return the integer *name*, between *least* and *most*, or None."""
        given = self._given.get(name)
        if given is None:
            return None
        if not is_whole(given, least, most):
            to = f" to {most:,}" if most < 2**63 - 1 else ""
            raise InvalidInput(
                name,
                f"must be a whole number from {least}{to}",
                limit=most if to else None,
                given=given,
                next=f"Send {name} as such a number, or leave it out.",
            )
        return given


def _no_strings(name: str, found: str) -> InvalidInput:
    return InvalidInput(
        name, f"must be a list of strings, is {found}", next=f"Send {name} as a list of strings."
    )


def _named(names: Collection[str]) -> str:
    return ", ".join(names)


_TYPES: Final[dict[type, str]] = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
    type(None): "null",
}


def _type_name(given: object) -> str:
    return _TYPES.get(type(given), type(given).__name__)


NEAR_MOST: Final = 3
"""Limit of similar keys suggested for a missing key."""
NEAR_AMONG: Final = 500
"""Number of the last written entries that are searched for similar keys."""
NEAR_SOUGHT: Final = 10
"""Limit of missing keys with suggestions."""
NEAR_CHARS: Final = 10_000
"""Limit of the characters of a missing key times the searched entries, to bound the time."""
_LIKE: Final = 0.75

Answer = dict[str, JSON]


class _Found(Struct, frozen=True):
    """An entry, with the name under which it was requested."""

    name: str
    entry: RunEntry


class EntrySource(Protocol):
    """What the read tool reads: a run's memory, or the values of a network."""

    def get(self, key: str, /) -> RunEntry | None:
        """Return the entry under *key*, or None."""
        ...

    def by_last_write(self) -> tuple[Sequence[RunEntry], Mapping[str, int]]:
        """Return all entries by last write, with the number of each write."""
        ...

    def note_read(self, key: str, /, *, reader: str, part: bool) -> None:
        """Record that *reader* read *key*, or a part of it."""
        ...

    def __len__(self) -> int:
        """Return the number of entries."""
        ...


def shared_name(name: str) -> str:
    """Return the key for *name*; without a colon, it is a name below `shared:`."""
    return name if ":" in name else run_keys.shared(name)


def read_keys(
    memory: EntrySource,
    params: ToolArguments,
    *,
    reader: str,
    budget: int | None,
    key_of: Callable[[str], str] = shared_name,
) -> Answer:
    """Return the result of the read tool, at most *budget* characters of compact JSON.

    *key_of* returns the key for the name of one.
    """
    names = _requested_names(params)
    wanted = ValuePart(
        path=checked_path(params.text("path") or ""),
        offset=params.whole("offset", 0, 2**63 - 1) or 0,
        budget=budget,
    )
    if wanted.offset and len(names) > 1:
        raise InvalidInput(
            "offset",
            f"must go with one key, there are {len(names)}",
            next="Read that key alone.",
        )
    found = [_Found(name, entry) for name in names if (entry := _entry(memory, name, key_of))]
    there = {each.name for each in found}
    missing = [name for name in names if name not in there]
    answer, read = _served(found, missing, wanted)
    for key, part in read:
        memory.note_read(key, reader=reader, part=part)
    return _with_near(answer, memory, missing, budget)


def _requested_names(params: ToolArguments) -> list[str]:
    params.required("keys", "a list of strings")
    names = params.texts("keys") or []
    if len(names) > KEYS_MOST:
        raise InvalidInput(
            "keys",
            f"must be at most {KEYS_MOST}, are {len(names)}",
            limit=KEYS_MOST,
            next="Read the ones you need first.",
        )
    return list(dict.fromkeys(names))


def _entry(memory: EntrySource, name: str, key_of: Callable[[str], str]) -> RunEntry | None:
    """Return the entry for *name*, or None."""
    try:
        return memory.get(key_of(name))
    except InvalidInput:
        # An invalid key counts as missing: the result suggests similar keys.
        return None


def _served(
    found: Sequence[_Found], missing: Sequence[str], wanted: ValuePart
) -> tuple[Answer, list[tuple[str, bool]]]:
    """Return the result and its keys, each with whether its value is only a part."""
    names = [each.name for each in found]
    pieces: list[Piece] = []
    spent = [chars({"entries": {}, "missing": missing})]
    for each in found:
        piece = _piece(each, wanted, spent[-1], (), must=False)
        if piece is None or (piece.part and len(found) > 1):
            break
        pieces.append(piece)
        spent.append(spent[-1] + chars({each.name: piece.entry}) - len("{}") + len(","))
    else:
        return _answer(found, pieces, (), missing)
    # One does not fit. Listing the deferred names takes space too, so more may be deferred.
    for at in range(len(pieces), 0, -1):
        piece = _piece(found[at], wanted, spent[at], names[at + 1 :], must=False)
        if piece is not None:
            return _answer(found, [*pieces[:at], piece], names[at + 1 :], missing)
        if spent[at] + _naming(names[at:]) <= (wanted.budget or 0):
            return _answer(found, pieces[:at], names[at:], missing)
    first = _piece(found[0], wanted, spent[0], names[1:], must=True)
    return _answer(found, [first] if first else [], names[1:], missing)


def _piece(
    found: _Found, wanted: ValuePart, spent: int, later: Sequence[str], *, must: bool
) -> Piece | None:
    """Return the part of *found* that fits after *spent* and the names of *later*."""
    room = None
    if wanted.budget is not None:
        room = wanted.budget - spent - _naming(later) - chars(found.name) - len(":,")
    return read_entry(found.entry, replace(wanted, room=room), must=must)


def _naming(later: Sequence[str]) -> int:
    return chars({"deferred": later}) if later else 0


def _answer(
    found: Sequence[_Found], pieces: Sequence[Piece], later: Sequence[str], missing: Sequence[str]
) -> tuple[Answer, list[tuple[str, bool]]]:
    served = list(zip(found, pieces, strict=False))
    entries: Answer = {each.name: piece.entry for each, piece in served}
    answer: Answer = {"entries": entries, "missing": cast("list[JSON]", list(missing))}
    if later:
        answer["deferred"] = cast("list[JSON]", list(later))
    return answer, [(each.entry.key, piece.part) for each, piece in served]


def _with_near(
    answer: Answer, memory: EntrySource, missing: Sequence[str], budget: int | None
) -> Answer:
    """Return *answer* with suggestions for *missing* keys, as far as they fit."""
    if not missing or not len(memory):
        return answer
    recent = [each.key for each in memory.by_last_write()[0][-NEAR_AMONG:]]
    near: Answer = {}
    for name in missing[:NEAR_SOUGHT]:
        if alike := _alike(name, recent):
            near[name] = cast("list[JSON]", alike)
            if budget is not None and chars({**answer, "did_you_mean": near}) > budget:
                del near[name]
                break
    return {**answer, "did_you_mean": near} if near else answer


def _alike(name: str, keys: Sequence[str]) -> list[str]:
    """Return those of *keys* that are similar to *name*, the most similar first."""
    own = name.partition(":")[2] or name
    keys = keys[-(NEAR_CHARS // max(1, len(name))) :] if len(name) <= NEAR_CHARS else ()
    # Compared without the namespace, whose common prefix would make all short keys similar.
    named: dict[str, list[str]] = {}
    for key in keys:
        named.setdefault(key.partition(":")[2] or key, []).append(key)
    close = get_close_matches(own, named, NEAR_MOST, _LIKE)
    return [key for each in close for key in named[each]][:NEAR_MOST]


Profile = Literal["alone", "together"]

RUN_TOOL_NAMES: Final = MappingProxyType(
    {
        "alone": ("memory_list", "memory_read", "memory_write"),
        "together": ("run_list", "run_read", "run_write"),
    }
)
"""Names of the three tools by profile: list, read, write."""

HINT_TITLE_CHARS: Final = 120

_HINT: Final = "# Required upstream memory (call `{read}` with these keys):"
_SHARED: Final = "shared:"

Act = Callable[[ToolArguments], Answer]


def run(
    memory: RunMemory,
    *,
    profile: Profile = "alone",
    writer: str | None = None,
    budget: int | None = None,
    write: bool = True,
) -> list[Tool]:
    """Return the tools list, read and write of *memory*, with the names of *profile*.

    *writer* is the source of written entries; by default the tool's name. *budget* is the limit of
    one result in characters of compact JSON. Without *write* only the first two are returned.
    """
    names = _names(profile)
    words = wording("run_tools").parameters
    reader, source = writer or names[1], writer or names[2]
    acts: dict[str, Act] = {
        "list": lambda params: _list(memory, params, budget),
        "read": lambda params: read_keys(memory, params, reader=reader, budget=budget),
        "write": lambda params: _write(memory, params, source),
    }
    if not write:
        del acts["write"]
    return [
        Tool(
            id=f"run.{act}",
            name=name,
            description=words[act],
            parameters=SCHEMAS[act],
            work=partial(_answered, act, work),
            refused=is_error,
            checks=True,
        )
        for (act, work), name in zip(acts.items(), names, strict=False)
    ]


def run_prompt(profile: Profile = "alone", write: bool = True) -> str:
    """Return the system prompt section about the use of the tools."""
    names = _names(profile)
    lines = _page().splitlines()
    if not write:
        lines = [line for line in lines if "{write}" not in line]
    return "\n".join(lines).format(**dict(zip(("list", "read", "write"), names, strict=True)))


def run_hint(memory: RunMemory, keys: Iterable[str], profile: Profile = "alone") -> str:
    """Return a prompt section that lists those of *keys* that exist and did not fail.

    Each is listed once, with its title and never its value. Return "" if there are none.
    """
    heading = _HINT.format(read=_names(profile)[1])
    entries = [memory.get(key) for key in dict.fromkeys(keys)]
    lines = [_hinted(each) for each in entries if each is not None and not each.failed]
    return "\n".join([heading, *dict.fromkeys(lines)]) if lines else ""


@cache
def _page() -> str:
    return files("holdfast.tools").joinpath("prompts", "run.md").read_text("utf-8").strip()


def _names(profile: str) -> tuple[str, str, str]:
    if profile not in RUN_TOOL_NAMES:
        raise InvalidInput(
            "profile",
            f"must be {' or '.join(RUN_TOOL_NAMES)}",
            given=profile,
            next="Choose together where durable memory's tools are offered too.",
        )
    return RUN_TOOL_NAMES[profile]


def _hinted(entry: RunEntry) -> str:
    title = one_line(entry.title or "")
    if len(title) > HINT_TITLE_CHARS:
        title = f"{title[: HINT_TITLE_CHARS - 1]}…"
    return f"- {entry.key} — {title}" if title else f"- {entry.key}"


def _answered(tool: str, act: Act, arguments: object) -> JSON:
    try:
        return act(ToolArguments(arguments, tool))
    except HoldfastError as error:
        return _refusal(error)


def _refusal(error: HoldfastError) -> JSON:
    """Return *error* as a result, with the facts that the model needs to correct it."""
    answer = cast("dict[str, dict[str, JSON]]", told(error))
    about = answer["error"]
    if about["field"] == "arguments":
        about["field"] = None
    if isinstance(error, LimitExceeded):
        about["allowed"], about["actual"] = error.allowed, error.actual
        about["field"] = "value" if error.limit in ("value_bytes", "tool_value_bytes") else None
        about["next"] = "Store a summary or a reference instead."
    if isinstance(error, PreconditionFailed):
        about["field"] = "expected_version"
        current = error.current
        about["current"] = _current(current) if isinstance(current, RunEntry) else None
    return cast("JSON", answer)


def _current(entry: RunEntry) -> Answer:
    at = milliseconds_text(entry.updated_at)
    return {"version": entry.version, "source": entry.source, "updatedAt": at}


def _list(memory: RunMemory, params: ToolArguments, budget: int | None) -> Answer:
    kinds, prefix = params.texts("kind"), params.text("key_prefix")
    sources, order = params.texts("sources"), params.text("order")
    given = kinds is not None or prefix is not None or sources is not None
    wanted = EntryPageRequest(
        among=filter_of(kinds, None, prefix, sources) if given else None,
        order=None if order is None else checked_order(order),
        limit=params.whole("limit", 1, PAGE_MOST) or PAGE_MOST,
        page=params.text("page"),
    )
    return list_page(*memory.by_last_write(), wanted, run_id=memory.run_id, budget=budget)


def _write(memory: RunMemory, params: ToolArguments, source: str) -> Answer:
    params.required("key", "a string")
    name = _name(params.text("key") or "")
    if not params.has("value"):
        raise InvalidInput(
            "value", "must be present, null or any other JSON value", next="Send value as well."
        )
    description = params.text("description")
    done = memory.publish(
        name,
        params.any("value"),
        source=source,
        title=params.text("title") or name,
        description=UNSET if description is None else description,
        expected_version=params.whole("expected_version", 0, 2**63 - 1),
    )
    entry, replaced = done.entry, done.replaced
    answer: Answer = {
        "ok": True,
        "key": entry.key,
        "kind": entry.kind,
        "createdAt": milliseconds_text(entry.created_at),
        "updatedAt": milliseconds_text(entry.updated_at),
        "version": entry.version,
    }
    if replaced is not None:
        by: Answer = {} if replaced.source is None else {"source": replaced.source}
        answer["replaced"] = {**by, "version": replaced.version}
    return answer


def _name(key: str) -> str:
    """Return the name below `shared:` for *key*; InvalidInput if it is no valid name."""
    if not 1 <= len(key) <= KEY_CHARS:
        raise InvalidInput(
            "key",
            f"must have 1 to {KEY_CHARS} characters, has {len(key):,}",
            limit=KEY_CHARS,
            next="Choose a shorter name, and put the details into the value.",
        )
    return key.removeprefix(_SHARED)
