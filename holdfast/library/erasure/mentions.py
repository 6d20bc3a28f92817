"""Find the names of an erased person or agent in texts of others, and redact them."""

import hmac
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, Final, LiteralString, Protocol, TypeAlias, cast, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Engine, Transaction, scalar
from holdfast.ground.errors import Conflict, InvalidInput, NotFound, Refused
from holdfast.ground.json_values import JSON
from holdfast.ground.validation import check_one_of, check_text
from holdfast.library.erasure.ledger import NameHash, statements, whole
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

LEAST: Final = 3
"""Code points of the shortest name that is searched."""
MOST_NAMES: Final = 50
_MOST_NAME: Final = 256
_AT_ONCE: Final = 500
_IDS: Final = 100
_LATEST: Final = 2**62
_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


def checked_mentions(options: ErasureOptions) -> None:
    """Raise InvalidInput unless the choice and the names of *options* are valid."""
    choices = get_args(MentionChoice)
    check_one_of("mentions", options.mentions, choices, "must be report, redact or ignore")
    names = options.names
    if len(names) > MOST_NAMES:
        raise InvalidInput("names", f"must be a list of at most {MOST_NAMES}", limit=MOST_NAMES)
    for name in names:
        check_text("names", name, least=LEAST, most=_MOST_NAME, part="a name ")


def sought_names(subject: ErasureSubject, options: ErasureOptions) -> tuple[str, ...]:
    """Return the names that are searched, the longest first; () if none is to be."""
    if options.mentions == "ignore":
        return ()
    names = {*options.names, *([subject.name] if len(subject.name) >= LEAST else ())}
    return tuple(sorted(names, key=lambda name: (-len(name), name)))


class Word(Protocol):
    """Names that are found as whole words, without regard to case."""

    def search(self, text: str, /) -> object:
        """Return a true value if *text* has one of the names."""
        ...

    def sub(self, by: str, text: str, /) -> str:
        """Return *text* with *by* for each name."""
        ...


_BEGINS: Final = r"(?<!\w)"
_BEGINS_IN_JSON: Final = r"(?:(?<!\w)|(?<=\\[nrtbf]))"
"""Where a word may begin; in JSON `\\n` may stand before it."""


class _Words(Struct, frozen=True):
    """The same names for plain text, and for text that is JSON or may hold some."""

    plain: Word
    json: Word


def _words_of(names: tuple[str, ...]) -> _Words:
    def words(begins: str, spelled: Iterable[str]) -> re.Pattern[str]:
        return re.compile(rf"{begins}(?:{'|'.join(map(re.escape, spelled))})(?!\w)", re.IGNORECASE)

    return _Words(words(_BEGINS, names), words(_BEGINS_IN_JSON, _in_json(names)))


def _in_json(names: Iterable[str]) -> dict[str, None]:
    """Return *names* as they are, and as they stand within JSON."""
    spelled = (each for name in names for each in (name, _encode(name).decode()[1:-1]))
    return dict.fromkeys(spelled)


def name_hash(secret: bytes, name: str) -> bytes:
    """Return the keyed hash of *name* without its case: 32 bytes of HMAC-SHA256."""
    return hmac.digest(secret, f"name\0{name.casefold()}".encode(), "sha256")


def name_hashes(secret: bytes, names: Iterable[str]) -> tuple[NameHash, ...]:
    """Return what the ledger keeps of redacted *names*: a keyed hash and the length."""
    return tuple(
        NameHash(length=len(each), hash=name_hash(secret, each)) for each in _in_json(names)
    )


class HashedNames:
    """Names of which only keyed hashes are known, as words of a text."""

    def __init__(self, secret: bytes, hashes: tuple[NameHash, ...], begins: str) -> None:
        self._lengths = sorted({each.length for each in hashes}, reverse=True)
        known = {each.hash for each in hashes}
        self._begins = re.compile(begins)

        @lru_cache(65_536)
        def is_name(part: str) -> bool:
            return name_hash(secret, part) in known

        self._is_name = is_name

    def search(self, text: str, /) -> bool:
        """Return whether *text* has one of the names."""
        return next(self._found(text), None) is not None

    def sub(self, by: str, text: str, /) -> str:
        """Return *text* with *by* for each name."""
        parts, end = list[str](), 0
        for start, stop in self._found(text):
            parts += (text[end:start], by)
            end = stop
        return "".join((*parts, text[end:]))

    def _found(self, text: str) -> Iterator[tuple[int, int]]:
        end = 0
        for each in self._begins.finditer(text):
            start = each.start()
            if start < end:
                continue
            for stop in (start + length for length in self._lengths):
                if _ends_word(text, stop) and self._is_name(text[start:stop]):
                    yield start, stop
                    end = stop
                    break


def _ends_word(text: str, stop: int) -> bool:
    after = text[stop : stop + 1]
    return stop <= len(text) and not (after.isalnum() or after == "_")


class MentionRow(Struct, frozen=True, kw_only=True):
    """A text that may contain a name; `place` is its store, agent, thread or run."""

    mark: int | str
    id: str
    text: str | bytes
    place: str

    @property
    def words(self) -> str:
        """The text as such."""
        return _text(self.text)


class _Until(Struct, frozen=True):
    """What was written up to then is searched; `rests` if no process executes runs."""

    at: int = _LATEST
    seq: int = _LATEST
    rests: bool = False


def find_mentions(
    context: StoresContext, names: tuple[str, ...], *, redact: bool
) -> dict[str, Mentions]:
    """Find *names* in texts of others; replace them by `[erased]` if *redact*.

    What cannot be changed now, such as an archived memory or a run at work, stays reported.
    """
    return _find(context, _words_of(names), _Until(), redact=redact) if names else {}


def redact_mentions_again(
    context: StoresContext, secret: bytes, hashes: tuple[NameHash, ...], *, at: int, seq: int
) -> int:
    """Redact the names of *hashes* in what was written up to *at*, in a restored copy.

    *seq* is the number of that moment. Return how many texts changed.
    """
    words = _Words(
        HashedNames(secret, hashes, _BEGINS), HashedNames(secret, hashes, _BEGINS_IN_JSON)
    )
    found = _find(context, words, _Until(at, seq, rests=True), redact=True)
    return sum(each.redacted for each in found.values())


class _Place(Struct, frozen=True):
    """Where names are sought: its texts, the names there, and how one is redacted."""

    rows: Iterator[MentionRow]
    word: Word
    change: Callable[[MentionRow], bool]


def _find(
    context: StoresContext, words: _Words, until: _Until, *, redact: bool
) -> dict[str, Mentions]:
    engine, found = whole(context), dict[str, Mentions]()
    for name, place in _places(context, engine, words, until).items():
        by_id = {each.id: each for each in place.rows if place.word.search(each.words)}
        if by_id:
            changed = sum(map(place.change, by_id.values())) if redact else 0
            found[name] = Mentions(count=len(by_id), ids=tuple(by_id)[:_IDS], redacted=changed)
    return found


def _places(
    context: StoresContext, engine: Engine, words: _Words, until: _Until
) -> dict[str, _Place]:
    sql, plain, json, rests = statements(engine), words.plain, words.json, until.rests
    at, seq = {"at": until.at}, {"seq": until.seq}
    return {
        "stores": _Place(
            _rows(engine, sql.texts_in_stores, "", at),
            plain,
            lambda row: _redact_memory(context, row, plain),
        ),
        "durable_entries": _Place(
            _rows(engine, sql.texts_in_entries, "", at),
            plain,
            lambda row: _redact_entry(context, row, plain),
        ),
        "threads": _Place(
            _rows(engine, sql.texts_in_threads, 0, seq),
            json,
            lambda row: _redact_turn(engine, row, json),
        ),
        "runs": _Place(
            _texts_of_runs(engine, at),
            json,
            lambda row: _redact_run(context, row.id, json, rests=rests),
        ),
    }


def _rows(
    engine: Engine, statement: LiteralString, after: int | str, until: Mapping[str, int]
) -> Iterator[MentionRow]:
    while rows := engine.all(MentionRow, statement, after=after, rows=_AT_ONCE, **until):
        yield from rows
        after = rows[-1].mark


def _texts_of_runs(engine: Engine, until: Mapping[str, int]) -> Iterator[MentionRow]:
    sql, after = statements(engine), ""
    while ids := engine.all(scalar, sql.runs_to_search, after=after, rows=_AT_ONCE, **until):
        for id in ids:
            for read, _ in _RUN_TEXTS:
                for row in engine.all(_row, getattr(sql, read), run=id):
                    yield MentionRow(mark=id, id=id, text=row["body"], place="")
        after = ids[-1]


def _text(body: str | bytes) -> str:
    return body if isinstance(body, str) else bytes(body).decode(errors="replace")


def _redact_memory(context: StoresContext, row: MentionRow, word: Word) -> bool:
    """Write a version without the names, and redact the older ones that have them.

    It has the tier of the text. A memory that was held stays so.
    """
    stores, store = MemoryStores(context), row.place
    try:
        head = stores.memories.retrieve(row.id, memory_store_id=store, view="basic")
        source = stores.memory_versions.retrieve(
            head.memory_version_id, memory_store_id=store, view="basic"
        ).provenance
        alike = replace(context, tier=source.tier, origin_ref=source.origin_ref)
        MemoryStores(alike).memories.update(
            row.id, memory_store_id=store, content=word.sub(ERASED, row.words)
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

    The entry keeps its tier, and is held as before. Entries of the workspace and of runs stay in
    the report.
    """
    engine = whole(context)
    place = engine.first(EntryPlace, statements(engine).entry_of_link, id=row.id)
    if place is None or not place.agent or place.run_id:
        return False
    agents = agent_context(context, place.agent)
    durable = DurableMemory(agents)
    entry = durable.get(place.key)
    if entry is None:
        return False
    try:
        DurableMemory(replace(agents, tier=entry.tier)).set(
            place.key,
            word.sub(ERASED, entry.content),
            category=entry.category,
            tags=entry.tags,
            expected_seq=entry.seq,
            origin_ref=entry.origin_ref if entry.tier == "outside" else None,
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
    ("run_fields", "set_run_field"),
    ("run_values", "set_run_value"),
    ("run_titles", "set_run_title"),
    ("run_facts", "set_run_fact"),
    ("run_messages", "set_run_message"),
    ("run_texts", "set_run_text"),
    ("run_data", "set_run_data"),
    ("run_asks", "set_run_ask"),
    ("run_outcomes", "set_run_outcome"),
)
"""Statements that read the texts of a run, as JSON in `body`, and write one of them."""

Body: TypeAlias = str | bytes


def _redact_run(context: StoresContext, run: str, word: Word, *, rests: bool) -> bool:
    """Replace the names in all texts of a run; False while a process executes it."""
    engine = whole(context)
    sql, now = statements(engine), _LATEST if rests else context.now()

    def work(tx: Transaction) -> bool:
        if tx.first(scalar, sql.run_at_rest, run=run, now=now) is None:
            return False
        for read, write in _RUN_TEXTS:
            _redact_texts(tx, sql, run, word, (read, write))
        tx.run(sql.recount_run, run=run)
        return True

    return engine.write(work)


def _redact_texts(
    tx: Transaction, sql: SimpleNamespace, run: str, word: Word, names: tuple[str, str]
) -> None:
    read, write = (getattr(sql, name) for name in names)
    for row in tx.all(_row, read, run=run):
        body = _in_text(row.pop("body"), word)
        if body is not None:
            tx.run(write, run=run, body=body, **row)


def _row(**columns: Any) -> dict[str, Any]:
    return columns


def _in_text(body: Body, word: Word) -> Body | None:
    """Return *body*, JSON or plain text, without the names; None if it has none."""
    text = _text(body)
    if not word.search(text):
        return None
    try:
        made = _encode(without_names(_decode(text), word)).decode()
    except (msgspec.DecodeError, RecursionError):
        made = word.sub(ERASED, text)
    return made if isinstance(body, str) else made.encode()
