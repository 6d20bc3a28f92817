"""A memory store behind LangGraph's `BaseStore`."""

import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import ge, gt, le, lt
from typing import Any, Final, cast
from urllib.parse import quote, unquote

import msgspec
from msgspec import Struct

from holdfast.doors.adapters.tools import finished, plain_handle
from holdfast.ground import json_values
from holdfast.ground.errors import CursorExpired, InvalidInput, MissingExtra, NotFound
from holdfast.library.bridges import NamedStore
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.edits import Edit, Remove, Save
from holdfast.memories.stores.records import Memory

try:
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        InvalidNamespaceError,
        Item,
        ListNamespacesOp,
        MatchCondition,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        validate_op_namespace,
    )
except ImportError as error:
    raise MissingExtra("langgraph", command="pip install langgraph") from error

LABELS_MOST: Final = 19
PATH_BYTES: Final = 1_024
VALUE_BYTES: Final = 102_400
PUTS_MOST: Final = 1_000
"""Puts of one batch, which are one transaction."""
_ENDING: Final = ".json"
_SAFE: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) not in "/%.")
_CACHE_BYTES: Final = 67_108_864
_DEPTH: Final = 64
_FETCHED_ONE_BY_ONE: Final = 20
_MATCHES_MOST: Final = 100

_sorted: Final = msgspec.json.Encoder(order="sorted").encode
Namespace = tuple[str, ...]


class HoldfastStore(BaseStore):
    """LangGraph's store on a memory store of *hf*.

    *store* is an id, or a name that the first write gives to a new store. *root* is put before
    every namespace and taken off every answer: nothing outside of it can be reached. Each item is
    one memory, with versions, full text and a file in a mount. `ttl` and `index` are not supported:
    every text can be searched.
    """

    __slots__ = ("_hf", "_index", "_root", "_store")

    def __init__(self, hf: Holdfast, store: str = "langgraph", *, root: Namespace = ()) -> None:
        self._hf = plain_handle(hf)
        self._root = tuple(root)
        self._store = NamedStore(self._hf.memory_stores, store)
        self._index = _Index(self._hf)
        if self._root:
            validate_op_namespace(PutOp(self._root, "key", {}))

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run *ops*: reads see the state before the batch, and all puts are one transaction."""
        given = list(ops)
        for op in given:
            validate_op_namespace(op)
        puts = {(op.namespace, op.key): op for op in given if isinstance(op, PutOp)}
        prepared = [self._prepared(op) for op in puts.values()]
        results: list[Result] = [None if isinstance(op, PutOp) else self._read(op) for op in given]
        self._write(prepared)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run *ops* as `batch` does, on a thread; a batch that has begun is done whole."""
        given = list(ops)
        return await finished(lambda: self.batch(given))

    def history(self, namespace: Namespace, key: str) -> list[Any]:
        """Return the versions of an item, newest first, also of a deleted one."""
        store, path = self._store.id(), self._path(namespace, key)
        if store is None:
            return []
        memories, versions = self._hf.memory_stores.memories, self._hf.memory_stores.memory_versions
        memory = memories.at(store, path)
        if memory is not None:
            return list(versions.list(store, memory_id=memory.id, limit=100).all())
        deleted = versions.list(store, operation="deleted", limit=100).all()
        known = next((each.memory_id for each in deleted if each.path == path), None)
        return list(versions.list(store, memory_id=known, limit=100).all()) if known else []

    def restore(self, version_id: str) -> Item:
        """Bring a version of an item back, as a new version."""
        memory = self._hf.memory_stores.memory_versions.restore(
            version_id, memory_store_id=self._known_store()
        )
        full = self._hf.memory_stores.memories.retrieve(
            memory.id, memory_store_id=memory.memory_store_id
        )
        found = self._item(full)
        if found is None:
            raise NotFound("item", version_id, next="The version is outside of this store's root.")
        return found

    def forget(self, namespace: Namespace) -> int:
        """Delete everything below *namespace* for good, and redact its versions; return how much.

        Nothing of it can be restored.
        """
        store = self._store.id()
        if store is None:
            return 0
        directory = _directory((*self._root, *namespace))
        stores = self._hf.memory_stores
        deleted = stores.memories.delete_under(store, directory)
        for version in stores.memory_versions.list(store, limit=100).all():
            below = version.path is not None and version.path.startswith(directory)
            if below and version.redacted_at is None:
                stores.memory_versions.redact(version.id, memory_store_id=store)
        return deleted

    def _known_store(self) -> str:
        store = self._store.id()
        if store is None:
            raise NotFound("memory store", self._store.name, next="Put an item first.")
        return store

    def _read(self, op: Op) -> Result:
        match op:
            case GetOp():
                return self._get(op)
            case SearchOp():
                return self._search(op)
            case ListNamespacesOp():
                return self._namespaces(op)
            case _:
                raise TypeError(f"{type(op).__name__} is no operation of a store")

    def _get(self, op: GetOp) -> Item | None:
        path, store = self._path(op.namespace, op.key), self._store.id()
        memory = None
        if store is not None:
            memory = self._hf.memory_stores.memories.at(store, path)
        return None if memory is None else self._item(memory)

    def _search(self, op: SearchOp) -> list[SearchItem]:
        tests = [_test(name, wanted) for name, wanted in (op.filter or {}).items()]
        store = self._store.id()
        if store is None:
            return []
        directory = _directory((*self._root, *op.namespace_prefix))
        if op.query:
            found = self._matching(store, op.query, directory, op.offset + op.limit, bool(tests))
        else:
            heads = self._index.below(store, directory)
            heads.sort(key=_newest_first)
            found = [(each, None) for each in heads]
        if not tests:
            found = found[op.offset : op.offset + op.limit]
        values = self._index.values(store, directory, [head for head, _ in found])
        items = [
            self._found(head, values[head.id], score) for head, score in found if head.id in values
        ]
        if tests:
            items = [each for each in items if all(test(each.value) for test in tests)]
            items = items[op.offset : op.offset + op.limit]
        return items

    def _matching(
        self, store: str, query: str, directory: str, most: int, filtered: bool
    ) -> list[tuple[Memory, float | None]]:
        limit = _MATCHES_MOST if filtered else min(max(most, 1), _MATCHES_MOST)
        matches = self._hf.memory_stores.memories.search(
            store, query, limit=limit, path_prefix=directory
        )
        best = max((each.score for each in matches), default=1.0) or 1.0
        return [(each.memory, min(1.0, max(0.0, each.score / best))) for each in matches]

    def _namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        store = self._store.id()
        heads = [] if store is None else self._index.below(store, _directory(self._root))
        depth = len(self._root)
        namespaces = {_labels(head.path)[0][depth:] for head in heads}
        conditions = op.match_conditions or ()
        found = {
            each[: op.max_depth] if op.max_depth is not None else each
            for each in namespaces
            if all(_fits(each, condition) for condition in conditions)
        }
        return sorted(found)[op.offset : op.offset + op.limit]

    def _prepared(self, op: PutOp) -> tuple[str, str | None]:
        """Return the path of a put and its content; None deletes."""
        path = self._path(op.namespace, op.key)
        if op.value is None:
            return path, None
        if not isinstance(op.value, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - of a caller
            raise TypeError(f"value must be a mapping, is {type(op.value).__name__}")
        content = _encoded(op.value)
        size = len(content.encode())
        if size > VALUE_BYTES:
            raise ValueError(f"value is {size:,} bytes as JSON, more than {VALUE_BYTES:,}")
        return path, content

    def _write(self, puts: Sequence[tuple[str, str | None]]) -> None:
        if not puts:
            return
        if len(puts) > PUTS_MOST:
            raise ValueError(f"a batch has {len(puts):,} puts, more than {PUTS_MOST:,}")
        store = self._store.id(create=any(content is not None for _, content in puts))
        if store is None:
            return
        memories = self._hf.memory_stores.memories
        edits: list[Edit] = []
        for path, content in puts:
            if content is not None:
                edits.append(Save(path=path, content=content))
            elif (memory := memories.at(store, path)) is not None:
                edits.append(Remove(memory_id=memory.id))
        if edits:
            memories.apply(store, edits, edit_id=f"edit_{secrets.token_hex(16)}")

    def _path(self, namespace: Namespace, key: str) -> str:
        labels = (*self._root, *namespace)
        if len(labels) > LABELS_MOST:
            raise InvalidNamespaceError(
                f"the namespace has {len(labels)} labels, more than {LABELS_MOST}"
            )
        if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance] - of a caller
            raise TypeError(f"key must be text, is {type(key).__name__}")
        path = f"{_directory(labels)}{quote(_text(key), safe=_SAFE)}{_ENDING}"
        if len(path) > PATH_BYTES:
            raise ValueError(
                f"namespace and key are {len(path):,} bytes as a path, more than {PATH_BYTES:,}"
            )
        return path

    def _item(self, memory: Memory) -> Item | None:
        namespace, key = _labels(memory.path)
        depth = len(self._root)
        value = _decoded(memory.content)
        if namespace[:depth] != self._root or value is None:
            return None
        return Item(
            value=value,
            key=key,
            namespace=namespace[depth:],
            created_at=memory.created_at,
            updated_at=memory.updated_at,
        )

    def _found(self, head: Memory, value: dict[str, Any], score: float | None) -> SearchItem:
        namespace, key = _labels(head.path)
        return SearchItem(
            namespace[len(self._root) :],
            key,
            dict(value),
            head.created_at,
            head.updated_at,
            score,
        )


class _Value(Struct, frozen=True):
    sha256: str
    value: dict[str, Any]
    size: int


class _Index:
    """Heads of a store by path, brought up to date by its changes before each use.

    Values are cached up to a byte budget.
    """

    def __init__(self, hf: Holdfast) -> None:
        self._hf, self._lock = hf, threading.Lock()
        self._store, self._seq = "", 0
        self._heads: dict[str, Memory] = {}
        self._values: dict[str, _Value] = {}
        self._bytes = 0

    def below(self, store: str, directory: str) -> list[Memory]:
        """Return the items of *store* below *directory*, in the basic view."""
        with self._lock:
            self._refresh(store)
            return [
                head
                for head in self._heads.values()
                if head.path.startswith(directory) and head.path.endswith(_ENDING)
            ]

    def values(
        self, store: str, directory: str, heads: Sequence[Memory]
    ) -> dict[str, dict[str, Any]]:
        """Return the values of *heads* by their ids; what was deleted meanwhile is left out."""
        with self._lock:
            missing = {head.id: head for head in heads if not self._cached(head)}
            for memory in self._fetched(store, directory, missing):
                self._store_value(memory)
            found = {head.id: self._values.get(head.id) for head in heads}
            return {id: each.value for id, each in found.items() if each is not None}

    def _cached(self, head: Memory) -> bool:
        known = self._values.get(head.id)
        return known is not None and known.sha256 == head.content_sha256

    def _fetched(self, store: str, directory: str, missing: dict[str, Memory]) -> list[Memory]:
        memories = self._hf.memory_stores.memories
        if len(missing) > _FETCHED_ONE_BY_ONE:
            page = memories.list(store, path_prefix=directory, limit=100, view="full")
            return [each for each in page.all() if isinstance(each, Memory) and each.id in missing]
        found: list[Memory] = []
        for id in missing:
            try:
                found.append(memories.retrieve(id, memory_store_id=store))
            except NotFound:
                self._values.pop(id, None)
        return found

    def _store_value(self, memory: Memory) -> None:
        value = _decoded(memory.content)
        if value is None:
            return
        if self._bytes > _CACHE_BYTES:
            self._values, self._bytes = {}, 0
        self._bytes += memory.content_size_bytes
        self._values[memory.id] = _Value(memory.content_sha256, value, memory.content_size_bytes)

    def _refresh(self, store: str) -> None:
        memories = self._hf.memory_stores.memories
        if self._store != store:
            self._load(store)
            return
        try:
            more = True
            while more:
                page = memories.changes(store, self._seq)
                for change in page.changes:
                    self._heads.pop(change.memory_id, None)
                    if change.memory is not None:
                        self._heads[change.memory_id] = change.memory
                more, self._seq = bool(page.changes), page.seq
        except CursorExpired:
            self._load(store)

    def _load(self, store: str) -> None:
        snapshot = self._hf.memory_stores.memories.snapshot(store)
        self._store, self._seq = store, snapshot.seq
        self._heads = {each.id: each for each in snapshot.memories}


def _newest_first(head: Memory) -> tuple[float, Namespace, str]:
    namespace, key = _labels(head.path)
    return -head.updated_at.timestamp(), namespace, key


def _directory(labels: Namespace) -> str:
    return "/" + "".join(f"{quote(_text(label), safe=_SAFE)}/" for label in labels)


def _text(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _labels(path: str) -> tuple[Namespace, str]:
    *labels, name = path[1:].split("/")
    return tuple(map(_unquoted, labels)), _unquoted(name.removesuffix(_ENDING))


def _unquoted(segment: str) -> str:
    return unquote(segment, errors="surrogatepass")


def _encoded(value: Mapping[str, Any]) -> str:
    try:
        raw = json_values.encode(dict(value), root="$", depth=_DEPTH, field="value")
    except InvalidInput as error:
        raise TypeError(str(error)) from error
    return msgspec.json.format(_sorted(json_values.decode(raw)), indent=2).decode()


def _decoded(content: str | None) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(content or "")
    except msgspec.DecodeError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _fits(namespace: Namespace, condition: MatchCondition) -> bool:
    wanted = condition.path
    if len(wanted) > len(namespace):
        return False
    part = namespace[: len(wanted)]
    if condition.match_type == "suffix":
        part = namespace[len(namespace) - len(wanted) :]
    return all(sought in {"*", label} for sought, label in zip(wanted, part, strict=True))


# Filters.

_ORDERS: Final = {"$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}
Test = Callable[[Mapping[str, Any]], bool]


def _test(name: str, wanted: object) -> Test:
    """Return the test of one member of a filter; ValueError for an unknown operator."""
    if name.startswith("$"):
        raise ValueError(f"{name} is not known as a filter; filters are by the name of a field")
    if isinstance(wanted, Mapping) and any(str(each).startswith("$") for each in wanted):
        tests = [_operator(str(each), against) for each, against in wanted.items()]
        return lambda value: all(test(value.get(name)) for test in tests)
    return lambda value: _equal(value.get(name), wanted)


def _operator(operator: str, against: object) -> Callable[[object], bool]:
    if operator == "$eq":
        return lambda given: _equal(given, against)
    if operator == "$ne":
        return lambda given: not _equal(given, against)
    compare = _ORDERS.get(operator)
    if compare is None:
        known = ", ".join(("$eq", "$ne", *_ORDERS))
        raise ValueError(f"{operator} is not known as an operator; there are {known}")
    return lambda given: _comparable(given, against) and compare(given, against)


def _comparable(given: object, against: object) -> bool:
    numbers = all(
        isinstance(each, int | float) and not isinstance(each, bool) for each in (given, against)
    )
    return numbers or (isinstance(given, str) and isinstance(against, str))


def _equal(given: object, wanted: object) -> bool:
    """Return whether *given* is *wanted*; of a mapping only the members of *wanted* count."""
    if isinstance(wanted, Mapping):
        return isinstance(given, Mapping) and all(
            _equal(given.get(name), each) for name, each in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        return (
            isinstance(given, list)
            and len(given) == len(wanted)
            and all(map(_equal, given, wanted))
        )
    if isinstance(given, bool) or isinstance(wanted, bool):
        return given is wanted
    return given == wanted
