"""One durable entry as Markdown, and back.

A file is its path, with slashes, and its text: front matter of `name: value` lines, then the
content and one line feed. What a file says of itself counts; its path says nothing.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from hashlib import sha256
from json import dumps
from typing import Final

import msgspec
from msgspec import Struct

from holdfast.ground.errors import InvalidInput
from holdfast.memories.durable.records import DurableEntry, to_milliseconds, to_milliseconds_text
from holdfast.memories.durable.validation import CheckedEntry, checked_entry

File = tuple[str, str]
"""A path and a text."""

MARKER: Final = ".holdfast-export"
"""What makes a folder an export: a file at its top."""
FORMAT: Final = 1
SUFFIX: Final = ".md"

_LONGEST_NAME: Final = 80
"""Characters of a key that a file's name takes over."""
_DIGITS: Final = 8
"""Of a key's sha256 in a name; all 64, of category and key, where two would be the same."""
_OTHER = re.compile(r"[^a-z0-9._-]")
_HASHED = re.compile(r"--[0-9a-f]{8,64}$")
_DEVICES: Final = frozenset(
    ["con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))]
)
"""Names that Windows keeps for itself, whatever follows their first dot."""

_FENCE: Final = "---"
_KNOWN: Final = frozenset({"key", "category", "tags", "agent", "created", "updated", "seq"})
_LIST_ITEM = re.compile(r'\s*+("(?:[^"\\]|\\.)*+"|[^",\s][^,]*+)?\s*+(,|$)')
_INSTANT = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE
)
_SEQ = re.compile(r"[0-9]{1,18}")
_FIRST_YEAR: Final = to_milliseconds(datetime.fromisoformat("0001-01-01T00:00:00Z"))
_string = msgspec.json.Decoder(str)


class Marker(Struct, frozen=True, kw_only=True):
    """What an export says of itself: whose it is, and how many entries it has."""

    format: int
    agent: str
    workspace: str
    count: int


class MarkdownEntry(Struct, frozen=True, kw_only=True):
    """What one file says. Times are whole milliseconds in microseconds since 1970, or None.

    `ignored` counts the fields that nobody knows.
    """

    path: str
    asked: CheckedEntry
    agent: str | None
    created: int | None
    updated: int | None
    seq: int | None
    ignored: int


def to_files(entries: Iterable[DurableEntry], *, agent: str, workspace: str) -> tuple[File, ...]:
    """Return an export of *entries*: the marker, then a file for each, by path.

    No two paths are the same, where upper and lower case are one as well.
    """
    named = list(entries)
    paths = [path_of(each.category, each.key) for each in named]
    often = Counter(paths)
    files = [
        (path if often[path] == 1 else _long_path(each.category, each.key), to_text(each))
        for path, each in zip(paths, named, strict=True)
    ]
    marker = Marker(format=FORMAT, agent=agent, workspace=workspace, count=len(files))
    told = dumps(msgspec.structs.asdict(marker), ensure_ascii=False)
    return (MARKER, f"{told}\n"), *sorted(files)


def to_text(entry: DurableEntry) -> str:
    """Return the file of *entry*."""
    fields: dict[str, object] = {
        "key": entry.key,
        "category": entry.category,
        "tags": list(entry.tags),
        "agent": entry.agent,
        "created": to_milliseconds_text(entry.created_at),
        "updated": to_milliseconds_text(entry.updated_at),
        "seq": entry.seq,
    }
    if entry.agent is None:
        # What a workspace shares is nobody's own, and may go into any agent's import.
        del fields["agent"]
    front = "".join(f"{name}: {dumps(told, ensure_ascii=False)}\n" for name, told in fields.items())
    return f"{_FENCE}\n{front}{_FENCE}\n{entry.content}\n"


def path_of(category: str, key: str) -> str:
    """Return where the entry's file is, where no other entry's would be."""
    return f"{_name(category, folder=True)}/{_name(key)}{SUFFIX}"


def is_path_of(path: str, category: str, key: str) -> bool:
    """Tell whether an export would write the entry's file at *path*."""
    return path in (path_of(category, key), _long_path(category, key))


def told_path(path: str, key: str) -> str:
    """Return what is kept of *path*, where a file with *key* was: `*.md` for another's name.

    A file's name is made of a key. When *key* is forgotten its traces go; those of another key,
    in the name of a file that was edited by hand, nobody would find.
    """
    folder, slash, name = path.rpartition("/")
    stem = name.removesuffix(SUFFIX)
    whole = stem.startswith(f"{_plain(key).replace('.', '-')}--") and is_exported_name(name)
    return path if whole or stem in (key, _name(key)) else f"{folder}{slash}*{SUFFIX}"


def is_exported_name(name: str) -> bool:
    """Tell whether *name*, of a file or a folder, may be one that an export wrote with a hash."""
    return _HASHED.search(name.removesuffix(SUFFIX)) is not None


def read_marker(text: str) -> Marker | None:
    """Return the marker that *text* is, or None."""
    try:
        return msgspec.json.decode(text, type=Marker)
    except msgspec.DecodeError:
        return None


def read_file(path: str, text: str) -> MarkdownEntry:
    """Return what the file at *path* says; InvalidInput if that breaks a rule.

    Whether its content is too long only the database knows.
    """
    fields, content = _parted(text)
    for name in ("key", "category"):
        if not fields.get(name):
            raise InvalidInput(name, "is needed in the front matter")
    return MarkdownEntry(
        path=path,
        asked=checked_entry(
            _text("key", fields["key"]),
            content,
            _text("category", fields["category"]),
            _list("tags", fields.get("tags", "")),
        ),
        agent=_optional(fields.get("agent", ""), "agent"),
        created=_instant("created", fields),
        updated=_instant("updated", fields),
        seq=_seq(fields.get("seq", "")),
        ignored=len(fields.keys() - _KNOWN),
    )


def _name(text: str, *, folder: bool = False) -> str:
    """Return *text* as a name, with some of its hash where it could be another's too."""
    plain = _plain(text)
    device = plain.partition(".")[0] in _DEVICES
    if device:
        # A hash at the end helps nothing where the name before the first dot is the device.
        plain = plain.replace(".", "-")
    # A folder loses a last dot on Windows; one that looks hashed could be another's.
    ends_badly = _HASHED.search(plain) or (folder and plain.endswith("."))
    if plain == text and not plain.startswith(".") and not device and not ends_badly:
        return plain
    return f"{plain}--{_sha256(text)[:_DIGITS]}"


def _plain(text: str) -> str:
    return _OTHER.sub("-", text.lower())[:_LONGEST_NAME]


def _long_path(category: str, key: str) -> str:
    """Return where the entry's file is when another one's short hashes are the same."""
    whole = _sha256(f"{category}\0{key}")
    name = f"{_plain(key).replace('.', '-')}--{whole}{SUFFIX}"
    return f"{_name(category, folder=True)}/{name}"


def _sha256(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _parted(text: str) -> tuple[dict[str, str], str]:
    """Return the fields of *text*'s front matter, as they are written, and the content.

    Line ends of carriage return and line feed in the front matter are a conversion, for an export
    writes none: it is undone in the content as well.
    """
    lines, content, converted = _fenced(text.removeprefix("\ufeff"))
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


def _fenced(text: str) -> tuple[Sequence[str], str, bool]:
    """Return the lines of the front matter, what follows it, and whether they end in CR LF."""
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
    """Return the text that *raw* is: a JSON string, or bare."""
    if not raw.startswith('"'):
        return raw
    try:
        return _string.decode(raw)
    except msgspec.DecodeError:
        raise InvalidInput(field, "begins with a quote and is no JSON string") from None


def _optional(raw: str, field: str) -> str | None:
    return None if raw in ("", "null") else _text(field, raw)


def _list(field: str, raw: str) -> list[str]:
    """Return the texts of *raw*, `["billing", "eu"]` or `[billing, eu]`."""
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
    told = _optional(fields.get(field, ""), field)
    if told is None:
        return None
    try:
        instant = datetime.fromisoformat(told.upper() if _INSTANT.fullmatch(told) else "")
    except ValueError:
        reason = "must be a time of RFC 3339, such as 2026-11-21T10:00:00.000Z"
        raise InvalidInput(field, reason, given=told) from None
    return max(to_milliseconds(instant), _FIRST_YEAR)


def _seq(raw: str) -> int | None:
    if raw in ("", "null"):
        return None
    if not _SEQ.fullmatch(raw):
        raise InvalidInput("seq", "must be a whole number")
    return int(raw)


def _bad(reason: str) -> InvalidInput:
    return InvalidInput("front matter", reason)
