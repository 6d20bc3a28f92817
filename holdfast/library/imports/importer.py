"""Import files: parse them, and write to a user's memory and a store."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from os import PathLike
from pathlib import PurePosixPath
from typing import Any, Final, Protocol, cast

import msgspec
from msgspec import Struct

from holdfast.ground import secrets
from holdfast.ground.errors import InvalidInput, LongTermOff, PathTaken, StoreFull
from holdfast.library.bridges import NamedStore
from holdfast.library.graph import KnowledgeGraph, import_lines
from holdfast.library.imports.agent_file import letta
from holdfast.library.imports.conversations import chatgpt, claude, is_conversations
from holdfast.library.imports.exports import langmem, mcp_graph, mem0
from holdfast.library.imports.files import Readable, members, opened
from holdfast.library.imports.records import (
    EVERY_USER,
    FileImport,
    ForeignItem,
    ForeignLine,
    ForeignMessage,
    ForeignPage,
    ForeignRecord,
    ImportKind,
    ImportLog,
    ImportOptions,
    Parser,
    row_id,
    source_of,
)
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.records import Imported
from holdfast.memories.stores.stores import MemoryStores
from holdfast.memories.stores.validation import checked_content, checked_path

Row = dict[str, object]

_PARSERS: Final[Mapping[ImportKind, Parser]] = {
    "mem0": mem0,
    "langmem": langmem,
    "letta": letta,
    "mcp-graph": mcp_graph,
    "chatgpt": chatgpt,
    "claude": claude,
}


class ImportTarget(Protocol):
    """The handle that an import writes through, embedded or on a server."""

    memory_stores: MemoryStores

    def longterm(
        self,
        user_id: str,
        *,
        namespace: str,
        workspace_id: str | None,
        enabled: bool | None,
    ) -> LongTermMemory | None:
        """Return the memory of a user; None if it is disabled."""
        ...


class _Counts(Struct):
    """What was stored so far."""

    items: int = 0
    turns: int = 0
    memories: int = 0
    duplicates: int = 0
    held: int = 0
    queued: int = 0


def import_files(
    target: ImportTarget,
    kind: str,
    files: Iterable[Readable],
    options: ImportOptions,
    *,
    enabled: bool | None = True,
) -> FileImport:
    """Import *files*, exports of *kind*; return how each record ended.

    Raises UnknownFormat for a file of another kind, InvalidInput for one that cannot be read, and
    LongTermOff if the user's memory is disabled, also without *enabled*.
    """
    options = options.checked(kind)
    if isinstance(files, str | bytes | PathLike):
        raise InvalidInput("files", "must be a list of paths or of open files", given=files)
    run = _Import(target, cast("ImportKind", kind), options, enabled=enabled)
    return run.take(list(files))


class _Import:
    """One import: its records in the order of the files, and how each ended."""

    def __init__(
        self,
        target: ImportTarget,
        kind: ImportKind,
        options: ImportOptions,
        *,
        enabled: bool | None,
    ) -> None:
        self._target, self._options, self._enabled = target, options, enabled
        self._kind: ImportKind = kind
        self._withheld = 0
        self._log, self._counts = ImportLog(), _Counts()
        self._seen: set[str] = set()
        self._pages: list[ForeignPage] = []
        self._lines: list[ForeignLine] = []

    def take(self, files: list[Readable]) -> FileImport:
        """Import *files*."""
        options = self._options
        records = self._limited(self._records(files))
        if options.user is None:
            self._no_user(records)
        elif options.user == EVERY_USER:
            self._every_user(records)
        else:
            self._take_rows(options.user, self._rows(records))
        if options.store is not None:
            self._write_pages(NamedStore(self._target.memory_stores, options.store))
        log, counts = self._log, self._counts
        return FileImport(
            kind=self._kind,
            dry_run=options.dry_run,
            read=log.read,
            stored=counts.items + counts.turns + counts.memories,
            skipped=tuple(log.skipped),
            unmapped=dict(sorted(log.unmapped.items())),
            **msgspec.structs.asdict(counts),
        )

    def _records(self, files: list[Readable]) -> Iterator[ForeignRecord]:
        parse = _PARSERS[self._kind]
        for file in files:
            with opened(file) as (name, content):
                wanted = is_conversations if self._kind in {"chatgpt", "claude"} else _is_data
                found = 0
                for member, stream in members(name, content, wanted, self._log):
                    found += 1
                    yield from parse(member, stream, self._options, self._log)
                    self._log.end_of("files", member, self._kind)
                if not found:
                    self._log.unlike("a zip archive without its files", name, "it has none")
                    self._log.end_of("files", name, self._kind)

    def _limited(self, records: Iterator[ForeignRecord]) -> Iterator[ForeignRecord]:
        """Yield *records* up to the limit, counted."""
        most = self._options.limit
        for each in records:
            if most is not None and self._log.read >= most:
                return
            self._log.read += 1 if not isinstance(each, ForeignLine) else _size(each)
            yield each

    def _no_user(self, records: Iterator[ForeignRecord]) -> None:
        for each in records:
            if self._set_aside(each):
                self._leave(each.place, "it needs a user")

    def _every_user(self, records: Iterator[ForeignRecord]) -> None:
        """Import each record for the user that it names."""
        by_user: dict[str, list[tuple[str, Row]]] = defaultdict(list)
        for each in records:
            if isinstance(each, ForeignItem) and each.user is not None:
                by_user[each.user] += self._rows(iter((each,)))
        for user, rows in by_user.items():
            try:
                self._take_rows(user, iter(rows))
            except InvalidInput as error:
                for place, _ in rows:
                    self._leave(place, f"{error.field}: {error.reason}")

    def _set_aside(self, record: ForeignRecord) -> bool:
        """Keep what is for a store; return whether *record* is for a user."""
        if isinstance(record, ForeignLine):
            self._lines.append(record)
        elif isinstance(record, ForeignPage):
            if self._options.store is None:
                self._leave(record.place, "it needs a store")
            else:
                self._pages.append(record)
        else:
            return True
        return False

    def _leave(self, place: str, reason: str) -> None:
        """Skip a record that is counted as read already."""
        self._log.read -= 1
        self._log.skip(place, reason)

    def _rows(self, records: Iterator[ForeignRecord]) -> Iterator[tuple[str, Row]]:
        """Yield the rows of *records* with their places, each id once."""
        for each in records:
            if not self._set_aside(each):
                continue
            row = self._item(each) if isinstance(each, ForeignItem) else self._turn(each)
            id = f"{getattr(each, 'user', None)}\0{row['id']}"
            if id in self._seen:
                self._counts.duplicates += 1
            else:
                self._seen.add(id)
                yield each.place, row

    def _item(self, item: ForeignItem) -> Row:
        return {
            "type": "item",
            "id": row_id("item", self._kind, item.id, item.created_at),
            "text": item.text,
            "source": source_of(self._kind, item.id),
            "created_at": _wire(item.created_at),
            "valid_to": _wire(item.valid_to),
        }

    def _turn(self, record: ForeignRecord) -> Row:
        turn = cast("ForeignMessage", record)
        return {
            "type": "turn",
            "id": row_id("turn", self._kind, turn.id, turn.at),
            "role": turn.role,
            "text": turn.text,
            "at": _wire(turn.at),
            "thread_id": source_of(self._kind, turn.thread),
            "origin_ref": source_of(self._kind, turn.id),
        }

    def _take_rows(self, user: str, rows: Iterator[tuple[str, Row]]) -> None:
        """Import *rows* into the memory of *user*."""
        options, places = self._options, list[str]()

        def placed() -> Iterator[Row]:
            for place, row in rows:
                places.append(place)
                yield row

        memory = self._target.longterm(
            user,
            namespace=options.namespace,
            workspace_id=options.workspace_id,
            enabled=self._enabled,
        )
        if memory is None:
            raise LongTermOff("request" if self._enabled is False else "server")
        done: Imported = memory.import_(
            placed(), foreign=True, dry_run=options.dry_run, mine=options.mine
        )
        counts = self._counts
        for name in ("items", "turns", "duplicates", "held", "queued"):
            setattr(counts, name, getattr(counts, name) + getattr(done, name))
        for each in done.rejected:
            self._leave(places[each.index], each.reason)

    def _write_pages(self, store: NamedStore) -> None:
        if self._lines:
            self._write_graph(store)
        for page in self._pages:
            reason = self._page_refused(store, page)
            if reason is not None:
                self._leave(page.place, reason)

    def _page_refused(self, store: NamedStore, page: ForeignPage) -> str | None:
        """Write *page* to *store*; return why it was not, or None."""
        if secrets.find(page.text):
            return "secret"
        try:
            checked_content(page.text)
            checked_path(page.path)
        except InvalidInput as error:
            return f"{error.field}: {error.reason}"
        memories, id = self._target.memory_stores.memories, store.id()
        found = None if id is None else memories.at(id, page.path)
        if found is not None and found.content != page.text:
            return f"another memory is at {page.path}"
        if found is not None:
            self._counts.duplicates += 1
            return None
        if not self._options.dry_run:
            place = cast("str", store.id(create=True))
            try:
                memories.create(place, path=page.path, content=page.text)
            except (PathTaken, StoreFull) as error:
                return str(error)
        self._counts.memories += 1
        return None

    def _write_graph(self, store: NamedStore) -> None:
        clean = [self._without_secrets(each) for each in self._lines]
        graph = KnowledgeGraph(self._target.memory_stores, store)
        lines = (json.dumps(each) for each in clean)
        done = import_lines(graph, lines, dry_run=self._options.dry_run)
        lost = 0
        for each in done.skipped:
            line = self._lines[each.line - 1]
            lost += _size(line)
            self._log.read -= _size(line) - 1
            self._leave(line.place, each.reason)
        stored = done.entities + done.observations + done.relations
        whole = sum(map(_size, self._lines)) - self._withheld
        self._counts.memories += stored
        self._counts.duplicates += whole - lost - stored

    def _without_secrets(self, line: ForeignLine) -> dict[str, Any]:
        """Return the members of *line* without observations that hold a secret."""
        found = line.members.get("observations")
        if not isinstance(found, list):
            return line.members
        kept: list[object] = []
        for each in cast("list[object]", found):
            if isinstance(each, str) and secrets.find(each):
                self._withheld += 1
                self._leave(line.place, "secret")
            else:
                kept.append(each)
        return {**line.members, "observations": kept}


def _size(line: ForeignLine) -> int:
    """Return how many entities, observations and relations *line* has."""
    found = line.members.get("observations")
    return 1 + (len(cast("list[object]", found)) if isinstance(found, list) else 0)


def _wire(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _is_data(path: str) -> bool:
    return PurePosixPath(path).suffix in {".json", ".jsonl", ".af"}
