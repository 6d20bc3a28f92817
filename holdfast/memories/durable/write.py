"""Set entries, one or several, and promote values of a run."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, Protocol, cast, get_args

from msgspec import UNSET, Struct
from msgspec.structs import fields, replace

from holdfast.engines.base import BatchedWork, Transaction
from holdfast.ground.errors import HoldfastError, InvalidInput, NotFound, shortened
from holdfast.ground.trust import checked_origin_ref
from holdfast.ground.validation import check_one_of, check_whole, is_list
from holdfast.memories.durable.context import AgentContext
from holdfast.memories.durable.idempotency import (
    EntryAnswer,
    ManyAnswer,
    Replay,
    entry_again,
    kept_of,
    kept_refusal,
    refusal_again,
)
from holdfast.memories.durable.records import (
    MOST_BATCH,
    EntryFields,
    NewEntry,
    NotStored,
    StoredEntry,
    StoredMany,
    coded,
    give_code,
)
from holdfast.memories.durable.transaction import (
    AgentTransaction,
    refusals,
    tell_refused,
    tidy_when_due,
    write,
)
from holdfast.memories.durable.validation import (
    CheckedEntry,
    checked_entry,
    checked_origin,
    checked_promoted_from,
    checked_subject,
)
from holdfast.memories.durable.write_entry import (
    PLAIN,
    PROMOTED_FROM,
    EntryWrite,
    needs_shared,
    store,
)

OnError = Literal["abort", "skip"]

_FEW: Final = 16
"""Items of a capture that is done together with others: 64 of them are still a short group."""

_KNOWN: Final = frozenset(NewEntry.__struct_fields__)
_NEEDED: Final = frozenset(each.name for each in fields(NewEntry) if each.required)


def set_one(
    context: AgentContext, key: object, given: EntryFields, *, options: EntryWrite = PLAIN
) -> StoredEntry:
    """Write one whole entry."""
    with refusals(context):
        request = checked_entry(key, given)
        expected = _checked_expectation(options.expected_seq)
        subject = checked_subject(options.subject)
        checked_origin_ref(options.origin_ref)
        origin = () if options.origin_ref is None else ("origin_ref", options.origin_ref)
        once = (
            context.idempotency_key if options.idempotency_key is None else options.idempotency_key
        )
        facts = (request, options.refresh, expected, options.cause)
        replay = Replay(once, "set", *facts, *(() if subject is None else (subject,)), *origin)
    if not replay and subject is None and context.subject is None:
        kin = context.kin("set", shared=needs_shared(request.category))
        return write(context, BatchedWork(kin, (request, options), partial(_set_each, context)))

    def work(tx: Transaction) -> StoredEntry:
        unit = _opened(context, tx, [request])
        first = replay.answer(unit, EntryAnswer)
        if first is not None:
            entry = entry_again(unit, request, first)
        else:
            entry = store(unit, request, options)
            if replay:
                replay.keep(unit, kept_of(unit, entry))
        unit.close()
        return entry

    return write(context, work)


def _set_each(
    context: AgentContext, tx: Transaction, items: Sequence[tuple[CheckedEntry, EntryWrite]]
) -> list[StoredEntry | Exception]:
    """Write *items*, without an idempotency key; return an entry or error for each."""
    unit = _opened(context, tx, [request for request, _ in items])
    results: list[StoredEntry | Exception] = []
    for request, options in items:
        try:
            results.append(store(unit, request, options))
        except HoldfastError as error:
            results.append(error)
    if len(items) == 1 or any(isinstance(result, StoredEntry) for result in results):
        unit.close()
    else:
        # Each by itself leaves nothing, neither a new agent nor what was due.
        raise _NothingStored
    return results


class _NothingStored(Exception):
    """Each of a batch was refused."""


class _CheckedItems(Struct, frozen=True):
    """Checked items of `set_many`: valid and refused ones, by index."""

    tried: dict[int, CheckedEntry]
    refused: dict[int, NotStored]


def set_many(
    context: AgentContext,
    items: Iterable[object],
    *,
    on_error: OnError = "abort",
    refresh: bool = True,
) -> StoredMany:
    """Write many entries in one transaction, in their order.

    `abort`: the first refused item raises, with its `index`, and nothing is written. `skip`: the
    other items are written.
    """
    with refusals(context):
        check_one_of("on_error", on_error, get_args(OnError), "must be abort or skip")
        given = _checked_items(items)
        reasons = [(index, each.error.message) for index, each in given.refused.items()]
        replay = Replay(
            context.idempotency_key, "set_many", given.tried, reasons, on_error, refresh
        )
    options = EntryWrite(refresh=refresh)
    alone = on_error == "abort" or len(given.tried) > _FEW
    if not (alone or replay or context.subject):
        shared = any(needs_shared(request.category) for request in given.tried.values())
        kin = context.kin("set_many", shared=shared)
        return write(context, BatchedWork(kin, (given, options), partial(_set_many_each, context)))

    def work(tx: Transaction) -> StoredMany:
        unit = _opened(context, tx, list(given.tried.values()))
        answer = replay.answer(unit, ManyAnswer)
        if answer is not None:
            many = _rebuild(unit, given, answer)
        else:
            tried = _write_each(unit, given, options, on_error)
            many = _many(tried.stored, tried.refused)
            if replay:
                replay.keep(unit, _stored_results(unit, tried))
            _tell_refused(unit, many)
        unit.close()
        return many

    return write(context, work)


def _set_many_each(
    context: AgentContext, tx: Transaction, batches: Sequence[tuple[_CheckedItems, EntryWrite]]
) -> list[StoredMany | Exception]:
    """Write the items of each of *batches*, and skip refused ones."""
    requests = [request for given, _ in batches for request in given.tried.values()]
    unit = _opened(context, tx, requests)
    results: list[StoredMany | Exception] = []
    for given, options in batches:
        tried = _write_each(unit, given, options, "skip")
        many = _many(tried.stored, tried.refused)
        _tell_refused(unit, many)
        results.append(many)
    unit.close()
    return results


def _tell_refused(unit: AgentTransaction, many: StoredMany) -> None:
    for each in many.refused:
        unit.tx.after_commit(lambda error=each.error: tell_refused(unit.context, error))


def _opened(
    context: AgentContext, tx: Transaction, requests: Sequence[CheckedEntry]
) -> AgentTransaction:
    """Return the unit of work opened at the keys of *requests*."""
    unit = AgentTransaction(context, tx)
    keys = sorted({request.key for request in requests})
    shared = any(needs_shared(request.category) for request in requests)
    unit.open(keys, shared=shared, mutations=len(requests))
    tidy_when_due(unit)
    return unit


class _ItemResults(Struct, frozen=True):
    """The results of all items by index.

    `here` has the errors that the transaction itself raised.
    """

    stored: dict[int, StoredEntry]
    refused: dict[int, NotStored]
    here: dict[int, HoldfastError]


def _write_each(
    unit: AgentTransaction, given: _CheckedItems, options: EntryWrite, on_error: OnError
) -> _ItemResults:
    tried = _ItemResults({}, {}, {})
    for index in range(len(given.tried) + len(given.refused)):
        request = given.tried.get(index)
        if request is None:
            item = given.refused[index]
            tried.refused[index] = _not_stored(index, item.key, item.error, on_error)
            continue
        try:
            tried.stored[index] = store(unit, request, options)
        except HoldfastError as error:
            tried.here[index] = error
            tried.refused[index] = _not_stored(index, request.key, error, on_error)
    return tried


def _stored_results(unit: AgentTransaction, tried: _ItemResults) -> ManyAnswer:
    return ManyAnswer(
        stored={index: kept_of(unit, entry) for index, entry in tried.stored.items()},
        refused={index: kept_refusal(error) for index, error in tried.here.items()},
    )


def _rebuild(unit: AgentTransaction, given: _CheckedItems, answer: ManyAnswer) -> StoredMany:
    stored: dict[int, StoredEntry] = {}
    refused = dict(given.refused)
    for index, request in given.tried.items():
        if index in answer.stored:
            stored[index] = entry_again(unit, request, answer.stored[index])
        else:
            error = refusal_again(request, answer.refused[index])
            refused[index] = _not_stored(index, request.key, error, "skip")
    return _many(stored, refused)


def _many(stored: Mapping[int, StoredEntry], refused: Mapping[int, NotStored]) -> StoredMany:
    return StoredMany(
        stored=tuple(stored.values()), refused=tuple(refused[index] for index in sorted(refused))
    )


def _checked_items(items: object) -> _CheckedItems:
    if not is_list(items):
        raise InvalidInput("items", "must be a list of entries")
    given = _CheckedItems({}, {})
    for index, item in enumerate(items):
        if index >= MOST_BATCH:
            reason = f"must have at most {MOST_BATCH:,} entries"
            raise InvalidInput("items", reason, limit=MOST_BATCH)
        try:
            entry = _new_entry(item)
            given.tried[index] = checked_entry(entry.key, entry)
        except InvalidInput as error:
            given.refused[index] = _not_stored(index, _key_of(item), error, "skip")
    return given


def _not_stored(index: int, key: str, error: HoldfastError, on_error: OnError) -> NotStored:
    error.index = index
    if on_error == "abort":
        raise error
    give_code(error)
    return NotStored(index, key, error)


def _new_entry(item: object) -> NewEntry:
    """Return the unchecked fields of *item*, a mapping or an object with attributes."""
    if not isinstance(item, Mapping):
        given = {name: getattr(item, name) for name in _KNOWN if hasattr(item, name)}
        if not given.keys() >= _NEEDED:
            raise InvalidInput("items", "must each be an entry: key, content, category and tags")
        return NewEntry(**given)
    given = dict(cast("Mapping[Any, Any]", item))
    for name in given:
        if name not in _KNOWN:
            raise InvalidInput(str(name), "is no field of an entry")
    for name in sorted(_NEEDED - given.keys()):
        raise InvalidInput(name, "is needed")
    return NewEntry(**given)


def _key_of(item: object) -> str:
    """Return the shortened key of *item*, which cannot be stored, for a report."""
    if isinstance(item, Mapping):
        return shortened(cast("Mapping[Any, object]", item).get("key", ""))
    return shortened(getattr(item, "key", ""))


def _checked_expectation(given: object) -> int | None:
    """Return the expected `seq`: 0 for no entry, None for any."""
    if given is UNSET or given is None:
        return None
    return check_whole("expected_seq", given, "must be a whole number, 0 for no entry")


_NAMESPACES: Final = frozenset({"step", "task", "input", "shared"})
"""Namespaces of run memory: the part of a key before its first colon."""


class Promotable(Protocol):
    """A value of run memory with its metadata."""

    @property
    def value(self) -> object:
        """The value: text, or anything else that is JSON."""
        ...

    @property
    def kind(self) -> str:
        """The kind of the value."""
        ...

    @property
    def source(self) -> str | None:
        """The author, or None if unknown."""
        ...


class Promotes(Protocol):
    """A memory that values can be promoted from."""

    def get(self, key: str, /) -> Promotable | None:
        """Return the value under *key*, or None."""
        ...


class PromotionSource(
    Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The origin of a promoted value: key, run, author and version."""

    key: str
    run_id: str | None = None
    source: str | None = None
    version: int | None = None

    def cause(self) -> dict[str, str]:
        """Return it as a cause for the log; raise InvalidInput if it cannot be one."""
        cause = {PROMOTED_FROM: checked_promoted_from(self.key)}
        named = {"run_id": self.run_id, "source": self.source}
        cause |= {name: checked_origin(name, each) for name, each in named.items() if each}
        return cause if self.version is None else cause | {"version": str(self.version)}


class Promotion(Struct, frozen=True, kw_only=True):
    """A value to promote: its new key, content and origin."""

    key: str
    content: str
    origin: PromotionSource


def promotion(memory: Promotes, key: str, as_key: str | None = None) -> Promotion:
    """Return the promotion of the value under *key* in *memory*.

    Raises NotFound without a value. Text stays as it is, another value becomes canonical JSON. The
    key loses its namespace, unless *as_key* is given.
    """
    found = memory.get(key)
    with coded():
        if found is None:
            raise NotFound("value", key, next="List the keys of the memory.")
        origin = _origin(memory, key, found)
        origin.cause()
        content = _content(found.value)
    name = _without_namespace(key) if as_key is None else as_key
    return Promotion(key=name, content=content, origin=origin)


def promote(
    context: AgentContext,
    what: Promotion,
    *,
    category: str,
    tags: Iterable[str] = (),
    options: EntryWrite = PLAIN,
) -> StoredEntry:
    """Write the entry of the promotion *what*."""
    options = replace(options, cause=what.origin.cause())
    entry = EntryFields(content=what.content, category=category, tags=tags)
    return set_one(context, what.key, entry, options=options)


def _origin(memory: Promotes, key: str, found: Promotable) -> PromotionSource:
    """Return the origin of *found*, as far as its memory knows it."""
    version = getattr(found, "version", None)
    return PromotionSource(
        key=key,
        run_id=_origin_or_none("run_id", getattr(memory, "run_id", None)),
        source=_origin_or_none("source", found.source),
        version=version if isinstance(version, int) else None,
    )


def _origin_or_none(name: str, given: object) -> str | None:
    """Return *given*, or None if it is no valid name: runs name sources freely."""
    try:
        return checked_origin(name, given)
    except InvalidInput:
        return None


def _without_namespace(key: str) -> str:
    namespace, colon, name = key.partition(":")
    return name if colon and namespace in _NAMESPACES else key


def _content(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(
            value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
        )
    except (TypeError, ValueError, RecursionError):
        raise InvalidInput("value", "must be text or JSON", given=type(value).__name__) from None
