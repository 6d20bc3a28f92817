"""Forget a person or an agent in every memory, with a ledger row and a receipt."""

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final, LiteralString, TypeAlias, cast, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast import library, memories
from holdfast.engines.base import Engine, Transaction, scalar
from holdfast.ground.clock import Clock
from holdfast.ground.errors import Conflict, InvalidInput, NotFound, Refused, Unavailable
from holdfast.ground.json_values import JSON
from holdfast.ground.scope import EVERYBODY, Scope
from holdfast.ground.validation import check_one_of, check_text
from holdfast.library.erasure.ledger import (
    ERASURES,
    UNREACHED,
    LedgerRow,
    OutsideVectors,
    add_counts,
    begin,
    complete,
    encoded,
    put_pending,
    row_of,
    statements,
    subject_of,
    whole,
)
from holdfast.library.erasure.places import (
    EntryPlace,
    StoresErasure,
    agent_context,
    drop_vectors,
    erase_linked,
    outside_durable,
    outside_longterm,
    upkeep_context,
    vectors_of,
)
from holdfast.library.erasure.proof import Evidence, evidence_of, prove, unreached_of
from holdfast.library.erasure.receipt import signing_key
from holdfast.library.erasure.records import (
    ERASED,
    ErasureOptions,
    ErasureSubject,
    ForgetReport,
    MentionChoice,
    Mentions,
    Unreached,
)
from holdfast.memories.durable.context import AgentContext
from holdfast.memories.durable.forget import checked_agent
from holdfast.memories.durable.memory import DurableMemory
from holdfast.memories.longterm.context import CollectionContext
from holdfast.memories.state.result import InferenceResult, encoded_result
from holdfast.memories.state.thread import ThreadTurnRow
from holdfast.memories.state.threads import prepared
from holdfast.memories.stores.rows import StoresContext, refuse_narrowed
from holdfast.memories.stores.stores import MemoryStores

_log = logging.getLogger(__name__)

_NO_EVIDENCE: Final = Evidence(needles=(), owned=",", since=None, keys=0, shared=0)


class _Erasing(Struct, frozen=True, kw_only=True):
    """An erasure at work, with all that it needs."""

    context: StoresContext
    shared: "memories.Shared"
    row: LedgerRow
    key: Any
    subject: ErasureSubject | None


def forget_agent(
    context: StoresContext,
    shared: "memories.Shared",
    agent: str,
    options: ErasureOptions,
) -> ForgetReport:
    """Forget *agent*: durable memory, results in threads, runs, and its name."""
    refuse_narrowed(context, "admin")
    checked_agent(agent)
    return _forget(context, shared, ErasureSubject(kind="agent", name=agent), options)


def forget_user(
    context: StoresContext,
    shared: "memories.Shared",
    user_id: str,
    options: ErasureOptions,
) -> ForgetReport:
    """Forget all data of *user_id* in the workspace of *context*, and the name."""
    refuse_narrowed(context, "admin")
    user = _collection(context, shared, user_id).user
    return _forget(context, shared, ErasureSubject(kind="user", name=user), options)


def _forget(
    context: StoresContext,
    shared: "memories.Shared",
    subject: ErasureSubject,
    options: ErasureOptions,
) -> ForgetReport:
    checked_mentions(options)
    key = signing_key()
    row = begin(context, subject)
    erasing = _Erasing(context=context, shared=shared, row=row, key=key, subject=subject)
    done = _erase(erasing)
    row, pending = done.row, done.pending
    mentions = find_mentions(context, subject, options)
    if done.heads:
        mentions["versions"] = Mentions(count=len(done.heads), ids=done.heads)
    redacted = any(each.redacted for each in mentions.values())
    pending = (*pending, *context.engine.scrub().pending) if redacted else pending
    return ForgetReport(
        counts=done.counts,
        pending=tuple(dict.fromkeys(pending)),
        unreached=row.places,
        mentions=mentions,
        receipt=row.sealed if options.receipt else None,
    )


class _Erasure(Struct, frozen=True, kw_only=True):
    """The row of an erasure, deleted rows by table, and what remains."""

    row: LedgerRow
    counts: dict[str, int]
    pending: tuple[str, ...]
    heads: tuple[str, ...]


def _erase(erasing: _Erasing) -> _Erasure:
    """Delete what is left of the subject, prove it, and complete the ledger's row.

    Each step may be repeated, so that it goes on after a crash at any of them.
    """
    context, subject, row = erasing.context, erasing.subject, erasing.row
    counts, heads = dict[str, int](), tuple[str, ...]()
    evidence, vectors, places = _NO_EVIDENCE, row.vectors, row.places
    if subject is not None and row.state == "running":
        evidence = evidence_of(context, subject)
        if subject.kind == "user":
            vectors += vectors_of(context, subject.name)
        counts, heads, places = _delete_all(erasing, subject, evidence, vectors)
    remaining = drop_vectors(_providers(erasing), vectors) if vectors else ()
    pending = (*context.engine.scrub().pending, *_where(remaining))
    proof = prove(
        context,
        subject or ErasureSubject(kind=row.kind, name=""),
        evidence,
        at=row.at,
        seq=row.seq,
    )
    if proof.found:
        pending = (*pending, f"{proof.found} rows or texts were found after the deletion")
    if pending:
        row = put_pending(context, row, places, remaining)
    else:
        row = complete(context, row, places, proof, key=erasing.key)
        UNREACHED.add(by=sum(each.count for each in places))
    ERASURES.add(row.kind, "pending" if pending else "completed")
    return _Erasure(row=row, counts=counts, pending=pending, heads=heads)


def _delete_all(
    erasing: _Erasing,
    subject: ErasureSubject,
    evidence: Evidence,
    vectors: tuple[OutsideVectors, ...],
) -> tuple[dict[str, int], tuple[str, ...], tuple[Unreached, ...]]:
    """Delete all of *subject*; return counts, heads left, what was not reached.

    What must be known after a crash is in the ledger before the rows that name it are deleted.
    """
    context, row = erasing.context, erasing.row
    engine = whole(context)
    sql = statements(engine)
    linked = StoresErasure()
    if subject.kind == "user":
        linked = erase_linked(context, subject.name)
    counts = dict(linked.counts)
    places = unreached_of(context, evidence, linked, until=row.seq)

    def keep(tx: Transaction) -> None:
        add_counts(tx, sql, row.id, counts)
        tx.run(sql.keep_places, id=row.id, pending=encoded(vectors), unreached=encoded(places))

    engine.write(keep)
    for table, rows in _delete(erasing, subject).items():
        counts[table] = counts.get(table, 0) + rows
    return counts, linked.heads, places


def _where(vectors: tuple[OutsideVectors, ...]) -> tuple[str, ...]:
    providers = sorted({each.provider for each in vectors})
    return tuple(f"vectors in {each}, outside the database" for each in providers)


def _delete(erasing: _Erasing, subject: ErasureSubject) -> dict[str, int]:
    """Delete the rows of *subject* in one transaction, with the ledger's counts."""
    context, row = erasing.context, erasing.row
    sql = statements(context.engine)

    def done(tx: Transaction, counts: dict[str, int]) -> None:
        add_counts(tx, sql, row.id, counts)
        tx.run(sql.set_deleted, id=row.id, workspace=context.workspace)

    workspace, name = context.workspace, subject.name
    if subject.kind == "user":
        erasing.shared.access_log.flush()
        collection = _collection(context, erasing.shared, name)
        also = outside_longterm(context.engine, workspace, name)
        return memories.forget_user(collection, also, done)
    agents = _agents(context)
    also = outside_durable(agents.engine, workspace, name)
    return memories.forget_agent(agents, name, also, done)


def _agents(context: StoresContext) -> AgentContext:
    return AgentContext(
        engine=context.engine.scoped(Scope(workspace=context.workspace, agent="*")),
        workspace=context.workspace,
        agent=memories.SHARED,
        actor=context.actor,
        clock=context.clock,
        ids=context.ids,
    )


def _collection(context: StoresContext, shared: "memories.Shared", user: str) -> CollectionContext:
    return library.collection_context(context, shared, library.LongTermSpec(user_id=user))


def _providers(erasing: _Erasing) -> CollectionContext:
    """Return a context that opens vector providers, for vectors of any user."""
    name = "erasure" if erasing.subject is None else erasing.subject.name
    return _collection(erasing.context, erasing.shared, name)


# Erasures that a crash, a reader or a provider left unfinished


def finish_erasures(
    engine: Engine, shared: "memories.Shared", clock: Clock, *, grace: int = 0
) -> int:
    """Finish the erasures of all workspaces that are not complete; return how many.

    The name of the subject is not stored: it is found among those in the database, by its hash.
    Those younger than *grace* microseconds are left alone. Raises Unavailable.
    """
    everywhere = engine.scoped(EVERYBODY)
    finished = 0
    for workspace, id in everywhere.rows(statements(engine).unfinished):
        context = upkeep_context(engine, workspace, clock)
        row = row_of(whole(context), statements(engine), id)
        if grace and row.at + grace > context.now():
            continue
        subject = subject_of(whole(context), statements(engine), row)
        erasing = _Erasing(
            context=context, shared=shared, row=row, key=signing_key(), subject=subject
        )
        finished += not _erase(erasing).pending
    return finished


def finish_at_open(engine: Engine, shared: "memories.Shared", clock: Clock) -> None:
    """Finish erasures as `finish_erasures`; log what prevents it."""
    try:
        finish_erasures(engine, shared, clock)
    except (Unavailable, InvalidInput) as error:
        _log.warning("an erasure could not be finished: %s", type(error).__name__)


# Names in texts of others

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
