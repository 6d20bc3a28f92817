"""Names of an erased subject in texts of others: find, and redact where possible."""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, LiteralString, get_args

from msgspec import Struct

from holdfast.engines.base import Engine
from holdfast.ground.errors import Conflict, InvalidInput, NotFound, Refused
from holdfast.ground.validation import check_one_of, check_text
from holdfast.library.erasure.ledger import statements, whole
from holdfast.library.erasure.places import EntryPlace, agent_context
from holdfast.library.erasure.records import (
    ERASED,
    ErasureOptions,
    ErasureSubject,
    MentionChoice,
    Mentions,
)
from holdfast.memories.durable.memory import DurableMemory
from holdfast.memories.stores.rows import StoresContext
from holdfast.memories.stores.stores import MemoryStores

LEAST: Final = 3
"""Code points of the shortest name that is searched."""
MOST_NAMES: Final = 50
_MOST_NAME: Final = 256
_AT_ONCE: Final = 500
_IDS: Final = 100


class MentionRow(Struct, frozen=True, kw_only=True):
    """A text that may contain a name; `place` is its store, agent or thread."""

    mark: int | str
    id: str
    text: str
    place: str


def checked_mentions(options: ErasureOptions) -> None:
    """Raise InvalidInput unless the choice and the names of *options* are valid."""
    choices = get_args(MentionChoice)
    check_one_of("mentions", options.mentions, choices, "must be report, redact or ignore")
    names = options.names
    if len(names) > MOST_NAMES:
        raise InvalidInput("names", f"must be a list of at most {MOST_NAMES}", limit=MOST_NAMES)
    for name in names:
        check_text("names", name, least=LEAST, most=_MOST_NAME, part="a name ")


def find_mentions(
    context: StoresContext, subject: ErasureSubject, options: ErasureOptions
) -> dict[str, Mentions]:
    """Return where the names of *subject* are in texts of others; redact them if chosen.

    Texts in stores and durable entries are redacted, those in threads and runs are reported.
    """
    if options.mentions == "ignore":
        return {}
    names = {*options.names, *([subject.name] if len(subject.name) >= LEAST else ())}
    if not names:
        return {}
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    word = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)", re.IGNORECASE)
    engine = whole(context)
    sql = statements(engine)
    redact = options.mentions == "redact"
    places: dict[str, tuple[LiteralString, int | str, Callable[[MentionRow], bool] | None]] = {
        "stores": (sql.texts_in_stores, "", lambda row: _redact_memory(context, row, word)),
        "durable_entries": (
            sql.texts_in_entries,
            "",
            lambda row: _redact_entry(context, row, word),
        ),
        "threads": (sql.texts_in_threads, 0, None),
        "runs": (sql.texts_in_runs, "", None),
    }
    found: dict[str, Mentions] = {}
    for place, (statement, start, change) in places.items():
        rows = [each for each in _rows(engine, statement, start) if word.search(each.text)]
        if rows:
            changed = sum(change(each) for each in rows) if redact and change else 0
            ids = tuple(dict.fromkeys(each.id for each in rows))
            found[place] = Mentions(count=len(ids), ids=ids[:_IDS], redacted=changed)
    return found


def _rows(engine: Engine, statement: LiteralString, after: int | str) -> Iterator[MentionRow]:
    while rows := engine.all(MentionRow, statement, after=after, rows=_AT_ONCE):
        yield from rows
        after = rows[-1].mark


def _redact_memory(context: StoresContext, row: MentionRow, word: re.Pattern[str]) -> bool:
    """Write a version without the names, and redact the older ones that have them."""
    stores = MemoryStores(context)
    try:
        stores.memories.update(
            row.id, memory_store_id=row.place, content=word.sub(ERASED, row.text)
        )
    except (Refused, Conflict, NotFound):
        # Archived, changed or deleted meanwhile: it stays in the report.
        return False
    versions = stores.memory_versions
    for each in [*versions.list(row.place, memory_id=row.id, view="full").all()]:
        if each.content is not None and word.search(each.content):
            with suppress(Conflict, Refused):
                versions.redact(each.id, memory_store_id=row.place)
    return True


def _redact_entry(context: StoresContext, row: MentionRow, word: re.Pattern[str]) -> bool:
    """Replace the names in an agent's entry, and redact its older contents that have them.

    Entries of the workspace and of runs stay in the report.
    """
    engine = whole(context)
    place = engine.first(EntryPlace, statements(engine).entry_of_link, id=row.id)
    if place is None or not place.agent or place.run_id:
        return False
    durable = DurableMemory(agent_context(context, place.agent))
    entry = durable.get(place.key)
    if entry is None:
        return False
    try:
        durable.set(
            place.key,
            word.sub(ERASED, entry.content),
            category=entry.category,
            tags=entry.tags,
            expected_seq=entry.seq,
        )
    except (Refused, Conflict):
        return False
    for change in [*durable.history(place.key).all()]:
        if change.content is not None and word.search(change.content):
            durable.redact(change.seq)
    return True
