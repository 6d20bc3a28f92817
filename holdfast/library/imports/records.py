"""Records of an import: what a file holds, the options, the report."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, BinaryIO, Final, Literal, cast, get_args

from msgspec import Struct, field

from holdfast.ground.clock import to_microseconds
from holdfast.ground.errors import InvalidInput, UnknownFormat
from holdfast.ground.ids import COUNT, RANDOM, TIME, base62
from holdfast.ground.text import to_nfc
from holdfast.ground.validation import check_one_of, check_whole
from holdfast.memories.longterm.validation import ITEM_BYTES, NAME_BYTES, checked_name

ImportKind = Literal["mem0", "langmem", "letta", "mcp-graph", "chatgpt", "claude"]
_SHOWN: Final = 100
KINDS: Final[tuple[ImportKind, ...]] = get_args(ImportKind)


class ForeignItem(Struct, frozen=True, kw_only=True):
    """A fact of a file; `id` is its own within the program it comes from.

    `user` is its owner there, None if the file does not name one. Times are aware.
    """

    id: str
    place: str
    text: str
    user: str | None = None
    created_at: datetime | None = None
    valid_to: datetime | None = None


class ForeignMessage(Struct, frozen=True, kw_only=True):
    """A message of a conversation of a file."""

    id: str
    place: str
    text: str
    role: Literal["user", "assistant"]
    thread: str
    at: datetime | None = None


class ForeignPage(Struct, frozen=True, kw_only=True):
    """A text of a file that becomes a memory of a store."""

    id: str
    place: str
    text: str
    path: str


class ForeignLine(Struct, frozen=True, kw_only=True):
    """A line of a knowledge graph: an entity or a relation."""

    place: str
    members: dict[str, Any]


ForeignRecord = ForeignItem | ForeignMessage | ForeignPage | ForeignLine


class SkippedRecord(Struct, frozen=True):
    """A record that was not imported: its place in its file, and why."""

    place: str
    reason: str


class ImportOptions(Struct, frozen=True, kw_only=True):
    """Owners and options of an import.

    `user` is the owner of items and turns; `*` keeps the users of a `mem0` export. `agent` admits
    only the records of this agent of a `mem0` or `letta` export. `store`, an id or a name, gets
    what is no fact about the user. `human` are labels of `letta` blocks about the user, besides
    `human`. At most `limit` records are read.
    """

    user: str | None = None
    agent: str | None = None
    store: str | None = None
    namespace: str = "chat"
    workspace_id: str | None = None
    human: tuple[str, ...] = ()
    dry_run: bool = False
    mine: bool = False
    limit: int | None = None

    def checked(self, kind: str) -> "ImportOptions":
        """Return it if it fits an import of *kind*; else raise InvalidInput."""
        check_one_of("kind", kind, KINDS)
        checked_name("namespace", self.namespace)
        if self.workspace_id is not None:
            checked_name("workspace_id", self.workspace_id)
        if self.limit is not None:
            check_whole("limit", self.limit, "must be at least 1", least=1)
        stores = kind in STORED
        if self.user is None and (self.store is None or not stores):
            named = "a user or a store" if stores else "a user"
            raise InvalidInput("user", f"is required: an import of {kind} needs {named}")
        if self.user == EVERY_USER and kind != "mem0":
            raise InvalidInput("user", "may be * for mem0 alone", given=self.user)
        if self.store is not None and not stores:
            raise InvalidInput("store", f"is not for {kind}", next="Leave it out.")
        return self


EVERY_USER: Final = "*"
STORED: Final[frozenset[str]] = frozenset(("letta", "mcp-graph"))
"""Kinds of which something becomes a memory of a store."""


class FileImport(Struct, frozen=True, kw_only=True):
    """The result of an import, or of a dry run of it.

    `read` records were found. Of them `stored` were stored: `items`, `turns` and `memories` (of a
    knowledge graph: entities, observations and relations). `duplicates` are known already, by their
    id or their text. `held` of the stored ones wait for a person, because they give orders to a
    machine. `skipped` could not be imported. `unmapped` counts what has no counterpart here, by
    its name in the file.
    """

    kind: ImportKind
    dry_run: bool = False
    read: int = 0
    stored: int = 0
    items: int = 0
    turns: int = 0
    memories: int = 0
    duplicates: int = 0
    held: int = 0
    queued: bool = False
    skipped: tuple[SkippedRecord, ...] = ()
    unmapped: dict[str, int] = field(default_factory=dict[str, int])


class ImportLog:
    """What the parser of a file leaves out, and whether it knows the file's form."""

    def __init__(self) -> None:
        self.read = 0
        self.skipped: list[SkippedRecord] = []
        self.unmapped: Counter[str] = Counter()
        self.known = False
        self._foreign: str | None = None

    def skip(self, place: str, reason: str) -> None:
        """Record that a record, at *place*, was read and left out."""
        self.read += 1
        self.skipped.append(SkippedRecord(_legible(place), _legible(reason)))

    def leave(self, name: str, count: int = 1) -> None:
        """Count what has no counterpart here under *name*."""
        if count:
            self.unmapped[_legible(name)] += count

    def others(self, record: dict[str, Any], known: frozenset[str], prefix: str = "") -> None:
        """Count the members of *record* that have a value and are not *known*."""
        for name, value in record.items():
            if name not in known and value not in (None, "", [], {}):
                self.leave(f"{prefix}{name}")

    def unlike(self, found: str, place: str, reason: str) -> None:
        """Record what has not the form of the kind; *found* is what it looks like."""
        self._foreign = self._foreign or found
        self.skip(place, reason)

    def end_of(self, field: str, name: str, kind: ImportKind) -> None:
        """Raise UnknownFormat if nothing of the file *name* had the form of *kind*."""
        known, foreign = self.known, self._foreign
        self.known, self._foreign = False, None
        if foreign is not None and not known:
            raise UnknownFormat(
                field,
                format=f"{foreign} (in {name})",
                version=None,
                known=FORMS[kind],
                next="Check the kind and the file; docs/import.md says what each kind reads.",
            )


FORMS: Final[dict[ImportKind, str]] = {
    "mem0": "a list of memories of mem0, or an object with its results",
    "langmem": "items of a LangGraph store, as a list or a line each",
    "letta": "an agent file of Letta",
    "mcp-graph": "lines of entities and relations of the memory server of MCP",
    "chatgpt": "an export of ChatGPT, zipped or its conversations.json",
    "claude": "an export of Claude, zipped or its conversations.json",
}
"""What each kind reads, in words for a message."""

Parser = Callable[[str, BinaryIO, ImportOptions, ImportLog], Iterator[ForeignRecord]]
"""Yields the records of one file, given its name and content."""


def fields_of(given: object) -> dict[str, Any]:
    """Return *given* if it is a JSON object, else an empty one."""
    return cast("dict[str, Any]", given) if isinstance(given, dict) else {}


def list_of(given: object) -> list[Any]:
    """Return *given* if it is a list, else an empty one."""
    return cast("list[Any]", given) if isinstance(given, list) else []


def word_of(given: object) -> str:
    """Return *given* if it is text, else the name of its type."""
    return given if isinstance(given, str) else type(given).__name__


def _legible(text: str) -> str:
    """Return *text* as valid UTF-8 of at most 100 characters."""
    valid = text.encode("utf-8", "replace").decode()
    return valid if len(valid) <= _SHOWN else f"{valid[: _SHOWN - 1]}…"


def digest(*parts: str) -> str:
    """Return 16 hexadecimal digits that depend on *parts*."""
    return sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def row_id(prefix: str, kind: str, source_id: str, at: datetime | None) -> str:
    """Return the id of a row for *source_id* of *kind*, the same at each import.

    Like every id it begins with its time, that of the source, or 1970 if it has none.
    """
    whole = sha256(f"{kind}\0{source_id}".encode("utf-8", "surrogatepass")).digest()
    time = 0 if at is None else min(max(0, to_microseconds(at)), 62**TIME - 1)
    rest = int.from_bytes(whole) % 62 ** (COUNT + RANDOM)
    return f"{prefix}_{base62(time, TIME)}{base62(rest, COUNT + RANDOM)}"


def source_of(kind: str, source_id: str) -> str:
    """Return the source of a row: `import:<kind>:<id>`, cut to 256 bytes."""
    printable = "".join(char if char.isprintable() else " " for char in source_id)
    return cut(to_nfc(f"import:{kind}:{printable}"), NAME_BYTES)


def cut(text: str, most: int) -> str:
    """Return the first *most* bytes of *text* as valid UTF-8."""
    return text.encode("utf-8", "replace")[:most].decode("utf-8", "ignore")


def instant(given: object) -> datetime | None:
    """Return *given*, RFC 3339 text or seconds since 1970, in UTC, or None.

    A time without a zone is one of UTC.
    """
    try:
        if isinstance(given, str):
            found = datetime.fromisoformat(given)
            return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
        if isinstance(given, int | float) and not isinstance(given, bool):
            return datetime.fromtimestamp(given, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return None


def pieces(text: str, most: int = ITEM_BYTES) -> list[str]:
    """Split *text* into pieces of at most *most* bytes, at ends of sentences or words."""
    found: list[str] = []
    left = text.strip()
    while len(left.encode("utf-8", "replace")) > most:
        head = cut(left, most)
        ends = (head.rfind(mark) + 1 for mark in (". ", "! ", "? ", "\n", " "))
        end = next((place for place in ends if place > 1), len(head))
        found.append(left[:end].strip())
        left = left[end:].strip()
    return [*found, left] if left else found
