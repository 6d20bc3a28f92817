"""Names of an erased person in texts of others: found, reported, and redacted if chosen."""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final, LiteralString, TypeAlias, cast, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Engine, Transaction, scalar
from holdfast.ground.errors import Conflict, InvalidInput, NotFound, Refused
from holdfast.ground.json_values import JSON
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
from holdfast.memories.state.result import InferenceResult, encoded_result
from holdfast.memories.state.thread import ThreadTurnRow
from holdfast.memories.state.threads import prepared
from holdfast.memories.stores.rows import StoresContext
from holdfast.memories.stores.stores import MemoryStores

Word: TypeAlias = re.Pattern[str]
Change: TypeAlias = Callable[["MentionRow"], bool]

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
    text: str | bytes
    place: str

    @property
    def words(self) -> str:
        """The text as such."""
        return self.text if isinstance(self.text, str) else bytes(self.text).decode()


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
    """Find the names of *subject* in texts of others; redact them if chosen.

    What cannot be changed now, such as an archived memory or a run at work, stays reported.
    """
    if options.mentions == "ignore":
        return {}
    names = {*options.names, *([subject.name] if len(subject.name) >= LEAST else ())}
    if not names:
        return {}
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    word = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)", re.IGNORECASE)
    engine = whole(context)
    redact = options.mentions == "redact"
    found: dict[str, Mentions] = {}
    for place, (statement, start, change) in _places(context, engine, word).items():
        rows = [each for each in _rows(engine, statement, start) if word.search(each.words)]
        if rows:
            by_id = {each.id: each for each in rows}
            changed = sum(map(change, by_id.values())) if redact else 0
            found[place] = Mentions(count=len(by_id), ids=tuple(by_id)[:_IDS], redacted=changed)
    return found


def _places(
    context: StoresContext, engine: Engine, word: Word
) -> dict[str, tuple[LiteralString, int | str, Change]]:
    """Return where names are sought: statement, first mark, and how one is redacted."""
    sql = statements(engine)
    return {
        "stores": (sql.texts_in_stores, "", lambda row: _redact_memory(context, row, word)),
        "durable_entries": (
            sql.texts_in_entries,
            "",
            lambda row: _redact_entry(context, row, word),
        ),
        "threads": (sql.texts_in_threads, 0, lambda row: _redact_turn(engine, row, word)),
        "runs": (sql.texts_in_runs, "", lambda row: _redact_run(context, row.id, word)),
    }


def _rows(engine: Engine, statement: LiteralString, after: int | str) -> Iterator[MentionRow]:
    while rows := engine.all(MentionRow, statement, after=after, rows=_AT_ONCE):
        yield from rows
        after = rows[-1].mark


def _redact_memory(context: StoresContext, row: MentionRow, word: Word) -> bool:
    """Write a version without the names, and redact the older ones that have them."""
    stores = MemoryStores(context)
    try:
        stores.memories.update(
            row.id, memory_store_id=row.place, content=word.sub(ERASED, row.words)
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


def _redact_entry(context: StoresContext, row: MentionRow, word: Word) -> bool:
    """Replace the names in an agent's entry, and redact older contents with them.

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


# Turns and runs are JSON: texts within change, ids and names of fields do not.

_KEPT: Final = frozenset(
    {"id", "agent", "role", "kind", "type", "key", "run_id", "thread_id", "at"}
)
_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


def without_names(value: JSON, word: Word) -> JSON:
    """Return *value* with `[erased]` for each match of *word* in its texts."""
    if isinstance(value, str):
        return word.sub(ERASED, value)
    if isinstance(value, list):
        return [without_names(each, word) for each in value]
    if not isinstance(value, dict):
        return value
    made = {
        name: each if name in _KEPT else without_names(each, word) for name, each in value.items()
    }
    # A result is stored with the checksum of its other members.
    return _resealed(made) if "checksum" in made and made != value else made


def _resealed(members: dict[str, JSON]) -> dict[str, JSON]:
    try:
        result = InferenceResult.from_dict(members, verify=False)
    except InvalidInput:
        return members
    return cast("dict[str, JSON]", _decode(encoded_result(result)))


def _redact_turn(engine: Engine, row: MentionRow, word: Word) -> bool:
    """Write the turn without the names, under its id and at its place."""

    def work(tx: Transaction) -> bool:
        sql = statements(engine)
        found = tx.first(ThreadTurnRow, sql.turn_to_redact, seq=row.mark)
        if found is None:
            return False
        body = _encode(without_names(_decode(found.body), word)).decode()
        new = prepared(replace(found, body=body).record())
        facts = {"body": new.body, "checksum": new.checksum, "size": new.size_bytes}
        return bool(tx.run(sql.redact_turn, seq=row.mark, **facts))

    return engine.write(work)


_RUN_TEXTS: Final = (
    ("run_values", "set_run_value"),
    ("run_facts", "set_run_fact"),
    ("run_messages", "set_run_message"),
    ("run_texts", "set_run_text"),
    ("run_data", "set_run_data"),
    ("run_asks", "set_run_ask"),
)
"""Statements that read the texts of a run, as JSON in `body`, and write one of them."""


def _redact_run(context: StoresContext, run: str, word: Word) -> bool:
    """Replace the names in all texts of a run; False while a process executes it."""
    engine = whole(context)
    sql, now = statements(engine), context.now()

    def work(tx: Transaction) -> bool:
        if tx.first(scalar, sql.run_at_rest, run=run, now=now) is None:
            return False
        for read, write in _RUN_TEXTS:
            for row in tx.all(_row, getattr(sql, read), run=run):
                body = _in_text(row.pop("body"), word)
                if body is not None:
                    tx.run(getattr(sql, write), run=run, body=body, **row)
        tx.run(sql.recount_run, run=run)
        return True

    return engine.write(work)


def _row(**columns: Any) -> dict[str, Any]:
    return columns


def _in_text(body: str | bytes, word: Word) -> str | bytes | None:
    """Return *body*, JSON or plain text, without the names; None if it has none."""
    text = body if isinstance(body, str) else bytes(body).decode()
    if not word.search(text):
        return None
    try:
        made = _encode(without_names(_decode(text), word)).decode()
    except (msgspec.DecodeError, RecursionError):
        made = word.sub(ERASED, text)
    return made if isinstance(body, str) else made.encode()
