"""One durable entry as Markdown, and back.

A file is a path with slashes and a text: front matter of `name: value` lines, then the content and
one line feed. The front matter decides; the path is not interpreted.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from hashlib import sha256
from json import dumps
from typing import Any, Final, cast, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import fields

from holdfast.ground.errors import InvalidInput
from holdfast.ground.trust import Tier, checked_origin_ref
from holdfast.memories.durable.records import (
    DurableEntry,
    EntryFields,
    to_milliseconds,
    to_milliseconds_text,
)
from holdfast.memories.durable.validation import CheckedEntry, checked_entry

File = tuple[str, str]
"""A path and a text."""

MARKER: Final = ".holdfast-export"
"""The file at the top of a folder that marks it as an export."""
FORMAT: Final = 1
SUFFIX: Final = ".md"

_LONGEST_NAME: Final = 80
"""Greatest number of characters of a key in a file name."""
_DIGITS: Final = 8
"""Hex digits of a key's sha256 in a name; all 64, of category and key, if two names collide."""
_OTHER = re.compile(r"[^a-z0-9._-]")
_HASHED = re.compile(r"--[0-9a-f]{8,64}$")
_DEVICES: Final = frozenset(
    ["con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))]
)
"""Reserved names of Windows devices, with any suffix after the first dot."""

_FENCE: Final = "---"
_FIELDS: Final = tuple(each for each in fields(EntryFields) if each.name != "content")
"""The fields of an entry in the front matter, besides its key."""
_KNOWN: Final = frozenset(
    (
        "key",
        *(each.name for each in _FIELDS),
        *("tier", "origin_ref", "agent", "created", "updated", "seq"),
    )
)
_LIST_ITEM = re.compile(r'\s*+("(?:[^"\\]|\\.)*+"|[^",\s][^,]*+)?\s*+(,|$)')
_INSTANT = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE
)
_SEQ = re.compile(r"[0-9]{1,18}")
_FIRST_YEAR: Final = to_milliseconds(datetime.fromisoformat("0001-01-01T00:00:00Z"))
_string = msgspec.json.Decoder(str)


class Marker(Struct, frozen=True, kw_only=True):
    """The marker file of an export: agent, workspace and number of entries."""

    format: int
    agent: str
    workspace: str
    count: int


class MarkdownEntry(Struct, frozen=True, kw_only=True):
    """The parsed content of one file.

    Times are whole milliseconds in microseconds since 1970, or None. `tier` and `origin_ref` say
    where the content came from, as the file states. `ignored` counts unknown fields.
    """

    path: str
    checked: CheckedEntry
    tier: Tier | None
    origin_ref: str | None
    agent: str | None
    created: int | None
    updated: int | None
    seq: int | None
    ignored: int


def to_files(entries: Iterable[DurableEntry], *, agent: str, workspace: str) -> tuple[File, ...]:
    """Return an export of *entries*: the marker, then a file for each, by path.

    Paths are unique, also on file systems that ignore case.
    """
    named = list(entries)
    paths = [path_of(each.category, each.key) for each in named]
    often = Counter(paths)
    files = [
        (path if often[path] == 1 else _long_path(each.category, each.key), to_text(each))
        for path, each in zip(paths, named, strict=True)
    ]
    marker = Marker(format=FORMAT, agent=agent, workspace=workspace, count=len(files))
    line = dumps(msgspec.structs.asdict(marker), ensure_ascii=False)
    return (MARKER, f"{line}\n"), *sorted(files)


def to_text(entry: DurableEntry) -> str:
    """Render *entry* as the text of its file."""
    fields: dict[str, object] = {
        "key": entry.key,
        **{each.name: getattr(entry, each.name) for each in _FIELDS},
        "tier": entry.tier,
        "origin_ref": entry.origin_ref,
        "agent": entry.agent,
        "created": to_milliseconds_text(entry.created_at),
        "updated": to_milliseconds_text(entry.updated_at),
        "seq": entry.seq,
    }
    if entry.origin_ref is None:
        del fields["origin_ref"]
    if entry.agent is None:
        # A workspace entry has no agent, so that any agent can import it.
        del fields["agent"]
    front = "".join(
        f"{name}: {dumps(value, ensure_ascii=False)}\n" for name, value in fields.items()
    )
    return f"{_FENCE}\n{front}{_FENCE}\n{entry.content}\n"


def path_of(category: str, key: str) -> str:
    """Return the path of the entry's file, unless two short hashes collide."""
    return f"{_name(category, folder=True)}/{_name(key)}{SUFFIX}"


def is_path_of(path: str, category: str, key: str) -> bool:
    """Return whether an export would write the entry's file at *path*."""
    return path in (path_of(category, key), _long_path(category, key))


def told_path(path: str, key: str) -> str:
    """Return *path* for the log, with the name `*.md` if it is of another key.

    A file name is derived from a key. When *key* is forgotten its traces are deleted; another key,
    in the name of a file that was edited by hand, would not be found.
    """
    folder, slash, name = path.rpartition("/")
    stem = name.removesuffix(SUFFIX)
    whole = stem.startswith(f"{_plain(key).replace('.', '-')}--") and is_exported_name(name)
    return path if whole or stem in (key, _name(key)) else f"{folder}{slash}*{SUFFIX}"


def is_exported_name(name: str) -> bool:
    """Return whether *name* may be one that an export wrote with a hash."""
    return _HASHED.search(name.removesuffix(SUFFIX)) is not None


def read_marker(text: str) -> Marker | None:
    """Parse *text* as a marker; None if it is not one."""
    try:
        return msgspec.json.decode(text, type=Marker)
    except msgspec.DecodeError:
        return None


def read_file(path: str, text: str) -> MarkdownEntry:
    """Parse the file at *path*; raise InvalidInput if it is invalid.

    The length of the content is checked in the transaction, against the limit in the database.
    """
    front, content = _front_matter(text)
    for name in ("key", *(each.name for each in _FIELDS if each.required)):
        if not front.get(name):
            raise InvalidInput(name, "is needed in the front matter")
    key = _text("key", front["key"])
    given: dict[str, Any] = {
        each.name: (_text if each.type is str else _list)(each.name, front.get(each.name, ""))
        for each in _FIELDS
    }
    return MarkdownEntry(
        path=path,
        checked=checked_entry(key, EntryFields(content=content, **given)),
        tier=_tier(front),
        origin_ref=checked_origin_ref(_optional(front.get("origin_ref", ""), "origin_ref")),
        agent=_optional(front.get("agent", ""), "agent"),
        created=_instant("created", front),
        updated=_instant("updated", front),
        seq=_seq(front.get("seq", "")),
        ignored=len(front.keys() - _KNOWN),
    )


def _name(text: str, *, folder: bool = False) -> str:
    """Return *text* as a file name, with part of its hash where names could collide."""
    plain = _plain(text)
    device = plain.partition(".")[0] in _DEVICES
    if device:
        # A hash at the end does not help while the part before the first dot is the device.
        plain = plain.replace(".", "-")
    # Windows strips the last dot of a folder; a name that ends like a hash could collide.
    ends_badly = _HASHED.search(plain) or (folder and plain.endswith("."))
    if plain == text and not plain.startswith(".") and not device and not ends_badly:
        return plain
    return f"{plain}--{_sha256(text)[:_DIGITS]}"


def _plain(text: str) -> str:
    return _OTHER.sub("-", text.lower())[:_LONGEST_NAME]


def _long_path(category: str, key: str) -> str:
    """Return the path of the entry's file when two short hashes collide."""
    whole = _sha256(f"{category}\0{key}")
    name = f"{_plain(key).replace('.', '-')}--{whole}{SUFFIX}"
    return f"{_name(category, folder=True)}/{name}"


def _sha256(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _front_matter(text: str) -> tuple[dict[str, str], str]:
    """Return the raw fields of the front matter of *text*, and the content.

    CR LF line ends in the front matter come from a conversion, as an export writes none; they are
    converted back in the content as well.
    """
    lines, content, converted = _lines_and_content(text.removeprefix("\ufeff"))
    fields: dict[str, str] = {}
    for number, line in enumerate(lines, 2):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, value = line.partition(":")
        if not colon or not name.strip() or line[0] in " \t-":
            raise _bad(f"line {number} is not `name: value`")
        if name.strip() in fields:
            raise _bad(f"line {number} gives a field a second time")
        fields[name.strip()] = value.strip()
    if converted:
        content = content.replace("\r\n", "\n")
    return fields, content.removesuffix("\n")


def _lines_and_content(text: str) -> tuple[Sequence[str], str, bool]:
    """Return the lines of the front matter, the content, and whether CR LF ends them."""
    lines: list[str] = []
    end = text.find("\n")
    if end < 0 or text[:end].rstrip() != _FENCE:
        raise _bad("does not begin with a line of ---")
    converted = text[:end].endswith("\r")
    while end < len(text):
        start, end = end + 1, text.find("\n", end + 1)
        end = len(text) if end < 0 else end
        line = text[start:end]
        if line.rstrip() == _FENCE:
            return lines, text[end + 1 :], converted
        lines.append(line.removesuffix("\r"))
    raise _bad("has no line of --- at its end")


def _text(field: str, raw: str) -> str:
    """Parse *raw*: a JSON string, or bare text."""
    if not raw.startswith('"'):
        return raw
    try:
        return _string.decode(raw)
    except msgspec.DecodeError:
        raise InvalidInput(field, "begins with a quote and is no JSON string") from None


def _optional(raw: str, field: str) -> str | None:
    return None if raw in ("", "null") else _text(field, raw)


def _tier(front: dict[str, str]) -> Tier | None:
    tier = _optional(front.get("tier", ""), "tier")
    if tier is not None and tier not in get_args(Tier):
        raise InvalidInput("tier", f"must be one of {', '.join(get_args(Tier))}", given=tier)
    return cast("Tier | None", tier)


def _list(field: str, raw: str) -> list[str]:
    """Parse a list such as `["billing", "eu"]` or `[billing, eu]`."""
    if raw in ("", "null"):
        return []
    inner = raw[1:-1].strip()
    if not (raw.startswith("[") and raw.endswith("]")):
        raise InvalidInput(field, "must be a list, such as [billing, eu]")
    items: list[str] = []
    start, more = 0, bool(inner)
    while more:
        found = _LIST_ITEM.match(inner, start)
        if found is None:
            raise InvalidInput(field, "must be a list, such as [billing, eu]")
        items.append(_text(field, (found[1] or "").rstrip()))
        start, more = found.end(), found[2] == ","
    return items


def _instant(field: str, fields: dict[str, str]) -> int | None:
    text = _optional(fields.get(field, ""), field)
    if text is None:
        return None
    try:
        instant = datetime.fromisoformat(text.upper() if _INSTANT.fullmatch(text) else "")
    except ValueError:
        reason = "must be a time of RFC 3339, such as 2026-11-21T10:00:00.000Z"
        raise InvalidInput(field, reason, given=text) from None
    return max(to_milliseconds(instant), _FIRST_YEAR)


def _seq(raw: str) -> int | None:
    if raw in ("", "null"):
        return None
    if not _SEQ.fullmatch(raw):
        raise InvalidInput("seq", "must be a whole number")
    return int(raw)


def _bad(reason: str) -> InvalidInput:
    return InvalidInput("front matter", reason)
