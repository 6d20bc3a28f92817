"""A memory store behind LangGraph's `BaseStore`."""

import secrets
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from operator import ge, gt, le, lt
from typing import Any, Final, cast
from urllib.parse import quote, unquote

import msgspec
from msgspec import Struct

from holdfast.doors.adapters.tools import finished, plain_handle
from holdfast.ground import json_values
from holdfast.ground.errors import (
    HeadVersion,
    InvalidInput,
    MissingExtra,
    NotFound,
    TooLarge,
    Unavailable,
)
from holdfast.library.bridges import IndexedMemory, MemoryIndex, NamedStore
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.edits import Edit, Remove, Save
from holdfast.memories.stores.records import Memory, Version

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

    from holdfast.doors.adapters.langchain_tools import tools_for as tools_for
except ImportError as error:
    raise MissingExtra("langgraph", command="pip install langgraph") from error

LABELS_MOST: Final = 19
PATH_BYTES: Final = 1_024
VALUE_BYTES: Final = 102_400
VALUE_DEPTH: Final = 64
PUTS_MOST: Final = 1_000
"""Puts of one batch, which are one transaction."""
JOINED_MOST, JOINED_CHARACTERS = 128, 1_048_576
"""Batches of async callers that are one transaction, and characters of their values."""
MATCHES_MOST: Final = 10_000
"""Matches of a query that a search considers, the best ones."""
_ENDING: Final = ".json"
_SAFE: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) not in "/%.")
_VALUES_AT_ONCE: Final = 50
_MATCHES_FIRST: Final = 100
"""Matches that a search with a filter considers before it considers ten times as many."""
_type: Final = cast("Callable[[object], Any]", type)
_sorted: Final = msgspec.json.Encoder(order="sorted").encode
Namespace = tuple[str, ...]


class HoldfastStore(BaseStore):
    """LangGraph's store on a memory store of *hf*.

    *store* is an id, or a name that the first write gives to a new store. *root* is put before
    every namespace and taken off every answer: nothing outside of it can be reached. Each item is
    one memory, with versions, full text and a file in a mount. `ttl` is not supported, and `index`
    is ignored: every text can be searched, and the words of namespaces and keys that
    percent-encoding leaves whole.
    """

    __slots__ = ("_hf", "_index", "_joining", "_root", "_store", "_waiting")

    def __init__(self, hf: Holdfast, store: str = "langgraph", *, root: Namespace = ()) -> None:
        if isinstance(root, str):  # pyright: ignore[reportUnnecessaryIsInstance] - of a caller
            raise InvalidInput("root", "must be a tuple of labels", given=root)
        self._hf = plain_handle(hf)
        self._root = tuple(root)
        self._store = NamedStore(self._hf.memory_stores, store)
        self._index = MemoryIndex(self._hf.memory_stores, _names_of, _decoded)
        self._waiting: deque[_Waiting] = deque()
        self._joining = threading.Lock()
        self._directory(())

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run *ops*: reads see the state before them, and all puts are one transaction."""
        given = list(ops)
        with _host_errors():
            puts = self._prepared(given)
            try:
                return self._run(given, puts)
            except NotFound as error:
                # A store of a name that was deleted is made again by the next write.
                if not self._store.forget_missing(error):
                    raise
            return self._run(given, puts)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run *ops* as `batch` does, on a thread; a batch that has begun is done whole.

        Batches with puts that wait for one another are written in one transaction.
        """
        given = list(ops)
        if not any(isinstance(op, PutOp) for op in given):
            return await finished(lambda: self.batch(given))
        waiting = _Waiting(given, Future())
        self._waiting.append(waiting)
        return await finished(lambda: self._joined(waiting))

    def history(self, namespace: Namespace, key: str) -> list[Version]:
        """Return the versions of an item without their values, newest first.

        Of a deleted item they are those of its last life.
        """
        path = self._path(namespace, key)
        with _host_errors():
            if (store := self._store.id()) is None:
                return []
            versions = self._hf.memory_stores.memory_versions
            if (memory := self._hf.memory_stores.memories.at(store, path)) is not None:
                return list(versions.list(store, memory_id=memory.id, limit=100).all())
            deleted = versions.list(store, operation="deleted", limit=100).all()
            id = next((each.memory_id for each in deleted if each.path == path), None)
            return list(versions.list(store, memory_id=id, limit=100).all()) if id else []

    def restore(self, version_id: str) -> Item:
        """Bring a version of an item back, as a new version.

        Raise NotFound for a version of anything that is no item below the root, and ContentGone
        for one whose value was redacted.
        """
        memories, versions = self._hf.memory_stores.memories, self._hf.memory_stores.memory_versions
        with _host_errors():
            if (store := self._store.id()) is None:
                raise NotFound("version", version_id)
            self._check_item(versions.retrieve(version_id, memory_store_id=store))
            memory = versions.restore(version_id, memory_store_id=store)
            found = self._item(memories.retrieve(memory.id, memory_store_id=store))
            if found is None:
                raise NotFound("version", version_id, next="It was changed meanwhile.")
            return found

    def forget(self, namespace: Namespace) -> int:
        """Delete all below *namespace* for good, with its versions; return how much.

        Nothing of it can be restored, and no byte of it stays. Items that others put meanwhile
        stay.
        """
        directory = self._directory(namespace)
        with _host_errors():
            if (store := self._store.id()) is None:
                return 0
            deleted = self._hf.memory_stores.memories.delete_under(store, directory)
            self._redact_below(store, directory)
            return deleted

    def _redact_below(self, store: str, directory: str) -> None:
        """Redact all versions below *directory*, and of what was deleted there."""
        versions = self._hf.memory_stores.memory_versions
        known = [each for each in versions.list(store, limit=100).all() if each.redacted_at is None]
        below = [each for each in known if (each.path or "").startswith(directory)]
        deleted = {each.memory_id for each in below if each.operation == "deleted"}
        ids = [each.id for each in below]
        ids += [each.id for each in known if each not in below and each.memory_id in deleted]
        for id in ids:
            try:
                versions.redact(id, memory_store_id=store)
            except HeadVersion:
                continue

    def _check_item(self, version: Version) -> None:
        """Raise NotFound unless a restore of *version* writes an item below the root."""
        try:
            path = self._hf.memory_stores.memories.retrieve(
                version.memory_id, memory_store_id=version.memory_store_id, view="basic"
            ).path
        except NotFound:
            path = version.path or ""
        lacks_value = version.operation == "deleted" or version.redacted_at is not None
        is_item = lacks_value or _decoded(version.content) is not None
        # Of a redacted version of a deleted item there is no path: its restore is ContentGone.
        if not is_item or (path and self._placed(path) is None):
            raise NotFound("version", version.id, next="It is of no item of this store.")

    def _joined(self, own: "_Waiting") -> list[Result]:
        """Return the results of *own*, once this thread or another has run it."""
        while not own.results.done():
            with self._joining:
                if not own.results.done():
                    self._run_waiting()
        return own.results.result()

    def _run_waiting(self) -> None:
        """Run the batches that wait, together unless one of them is refused."""
        group = [self._waiting.popleft() for _ in range(min(len(self._waiting), JOINED_MOST))]
        if len(group) > 1 and self._run_together(group):
            return
        for each in group:
            try:
                each.results.set_result(self.batch(each.ops))
            except BaseException as error:  # noqa: BLE001 - raised to its caller
                each.results.set_exception(error)

    def _run_together(self, group: Sequence["_Waiting"]) -> bool:
        """Run *group*, its puts in one transaction; return whether results are set."""
        try:
            with _host_errors():
                puts = [self._prepared(each.ops) for each in group]
                joined = {path: content for each in puts for path, content in each.items()}
                size = sum(len(content or "") for content in joined.values())
                # Each put of a key is a version of its own.
                repeats = len(joined) < sum(map(len, puts))
                if repeats or len(joined) > PUTS_MOST or size > JOINED_CHARACTERS:
                    return False
                results = [[self._read(op) for op in each.ops] for each in group]
                self._write(joined)
        except Unavailable as error:
            for each in group:
                each.results.set_exception(error)
            return True
        except Exception:  # noqa: BLE001 - each is run by itself then, and raises its own
            return False
        for each, result in zip(group, results, strict=True):
            each.results.set_result(result)
        return True

    def _run(self, ops: Sequence[Op], puts: Mapping[str, str | None]) -> list[Result]:
        results = [self._read(op) for op in ops]
        self._write(puts)
        return results

    def _read(self, op: Op) -> Result:
        match op:
            case PutOp():
                return None
            case GetOp():
                return self._get(op)
            case SearchOp():
                return self._search(op)
            case ListNamespacesOp():
                return self._namespaces(op)
            case _:
                raise ValueError(f"{type(op).__name__} is no operation of a store")

    def _get(self, op: GetOp) -> Item | None:
        path, store = self._path(op.namespace, op.key), self._store.id()
        memory = None if store is None else self._hf.memory_stores.memories.at(store, path)
        return None if memory is None else self._item(memory)

    def _search(self, op: SearchOp) -> list[SearchItem]:
        _check_page(op)
        fits = _members_filter({} if op.filter is None else op.filter)
        directory, store = self._directory(op.namespace_prefix), self._store.id()
        if store is None:
            return []
        if not (op.query and op.query.strip()):
            return self._page(store, directory, op, fits, self._index.below(store, directory))
        most = _MATCHES_FIRST if op.filter else min(max(op.offset + op.limit, 1), MATCHES_MOST)
        while True:
            ranked, scores, reached = self._ranked(store, directory, op.query, most)
            found = self._page(store, directory, op, fits, ranked, scores=scores)
            if len(found) >= op.limit or reached < most or most == MATCHES_MOST:
                return found
            most = min(10 * most, MATCHES_MOST)

    def _page(
        self,
        store: str,
        directory: str,
        op: SearchOp,
        fits: "Condition",
        items: Sequence[IndexedMemory],
        *,
        scores: Mapping[str, float] | None = None,
    ) -> list[SearchItem]:
        """Return the page of a search from all *items*, in their order."""
        first, last = op.offset, op.offset + op.limit
        if not op.filter:
            items, first, last = items[first:last], 0, op.limit
        chosen: list[tuple[IndexedMemory, dict[str, Any]]] = []
        for start in range(0, len(items), _VALUES_AT_ONCE):
            if len(chosen) >= last:
                break
            part = items[start : start + _VALUES_AT_ONCE]
            values = self._index.values(store, directory, part)
            chosen += [
                (head, values[head.id])
                for head in part
                if head.id in values and fits(values[head.id])
            ]
        return [
            self._found(head, value, None if scores is None else scores[head.id])
            for head, value in chosen[first:last]
        ]

    def _ranked(
        self, store: str, directory: str, query: str, most: int
    ) -> tuple[list[IndexedMemory], dict[str, float], int]:
        """Return the best items below *directory*, their scores, and how many files match."""
        matches = self._hf.memory_stores.memories.search(
            store, query, limit=most, path_prefix=directory
        )
        heads = {head.id: head for head in self._index.below(store, directory)}
        found: list[IndexedMemory] = []
        scores: dict[str, float] = {}
        score = best = matches[0].score if matches else 1.0
        for each in matches:
            # More of the words count before the score: a later match never has a higher one.
            score = min(score, each.score)
            if (head := heads.get(each.memory.id)) is not None:
                found.append(head)
                scores[head.id] = score / best if best else 1.0
        return found, scores, len(matches)

    def _namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        _check_page(op)
        validate_op_namespace(op)
        store, depth = self._store.id(), len(self._root)
        heads = [] if store is None else self._index.below(store, self._directory(()))
        found = {
            each[: op.max_depth]
            for each in {head.namespace[depth:] for head in heads}
            if all(_fits(each, condition) for condition in op.match_conditions or ())
        }
        return sorted(found)[op.offset : op.offset + op.limit]

    def _prepared(self, ops: Iterable[Op]) -> dict[str, str | None]:
        """Return the contents that *ops* put, by path; None deletes, the last wins."""
        puts = (op for op in ops if isinstance(op, PutOp))
        return {self._path(op.namespace, op.key): self._content(op) for op in puts}

    def _content(self, op: PutOp) -> str | None:
        if op.value is None:
            return None
        if not isinstance(op.value, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - of a caller
            raise TypeError(f"value must be a mapping, is {type(op.value).__name__}")
        content = _encoded(op.value)
        size = len(content.encode())
        if size > VALUE_BYTES:
            raise ValueError(f"value is {size:,} bytes as JSON, more than {VALUE_BYTES:,}")
        return content

    def _write(self, puts: Mapping[str, str | None]) -> None:
        if not puts:
            return
        if len(puts) > PUTS_MOST:
            raise ValueError(f"a batch has {len(puts):,} puts, more than {PUTS_MOST:,}")
        store = self._store.id(create=any(content is not None for content in puts.values()))
        if store is None:
            return
        memories = self._hf.memory_stores.memories
        edits: list[Edit] = []
        for path, content in puts.items():
            if content is not None:
                edits.append(Save(path=path, content=content))
            elif (memory := memories.at(store, path)) is not None:
                edits.append(Remove(memory_id=memory.id))
        if edits:
            memories.apply(store, edits, edit_id=f"edit_{secrets.token_hex(16)}")

    def _directory(self, namespace: Namespace) -> str:
        """Return the directory of *namespace*; InvalidNamespaceError for one over a limit."""
        labels = (*self._root, *namespace)
        validate_op_namespace(GetOp(labels, ""))
        if len(labels) > LABELS_MOST:
            raise InvalidNamespaceError(
                f"the namespace has {len(labels)} labels, more than {LABELS_MOST}"
            )
        directory = _directory_of(labels)
        size = len(directory) + len(_ENDING)
        if size > PATH_BYTES:
            raise InvalidNamespaceError(
                f"the namespace is {size:,} bytes as a path, more than {PATH_BYTES:,}"
            )
        return directory

    def _path(self, namespace: Namespace, key: str) -> str:
        if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance] - of a caller
            raise TypeError(f"key must be text, is {type(key).__name__}")
        path = f"{self._directory(namespace)}{_segment(key)}{_ENDING}"
        if len(path) > PATH_BYTES:
            raise ValueError(
                f"namespace and key are {len(path):,} bytes as a path, more than {PATH_BYTES:,}"
            )
        return path

    def _placed(self, path: str) -> tuple[Namespace, str] | None:
        """Return the namespace below the root and the key of *path*, or None."""
        place, depth = _names_of(path), len(self._root)
        if place is None or place[0][:depth] != self._root:
            return None
        return place[0][depth:], place[1]

    def _item(self, memory: Memory) -> Item | None:
        place, value = self._placed(memory.path), _decoded(memory.content)
        if place is None or value is None:
            return None
        return Item(
            value=value,
            key=place[1],
            namespace=place[0],
            created_at=memory.created_at,
            updated_at=memory.updated_at,
        )

    def _found(self, head: IndexedMemory, value: dict[str, Any], score: float | None) -> SearchItem:
        return SearchItem(
            head.namespace[len(self._root) :],
            head.key,
            # The caller's own: the cached value is not for others to change.
            cast("dict[str, Any]", msgspec.json.decode(msgspec.json.encode(value))),
            head.memory.created_at,
            head.memory.updated_at,
            score,
        )


@contextmanager
def _host_errors() -> Generator[None]:
    """Raise errors about what was given as ValueError, which LangGraph documents."""
    try:
        yield
    except (InvalidInput, TooLarge) as error:
        raise ValueError(str(error)) from error


class _Waiting(Struct, frozen=True):
    """A batch of an async caller, and its results to come."""

    ops: list[Op]
    results: "Future[list[Result]]"


def _check_page(op: SearchOp | ListNamespacesOp) -> None:
    if op.limit < 0 or op.offset < 0:
        raise ValueError(f"limit and offset must be 0 or more, are {op.limit} and {op.offset}")


def _fits(namespace: Namespace, condition: MatchCondition) -> bool:
    wanted = condition.path
    if len(wanted) > len(namespace):
        return False
    part = namespace[: len(wanted)]
    if condition.match_type == "suffix":
        part = namespace[len(namespace) - len(wanted) :]
    return all(sought in {"*", label} for sought, label in zip(wanted, part, strict=True))


# Names and values.


def _directory_of(labels: Namespace) -> str:
    """Return the directory of the items of a namespace, and of those below it."""
    return "/" + "".join(f"{_segment(label)}/" for label in labels)


def _segment(text: str) -> str:
    """Return *text* as a segment of a path; two texts never have the same one."""
    return quote(text.encode("utf-8", "surrogatepass"), safe=_SAFE).replace(".", "%2E")


def _names_of(path: str) -> tuple[Namespace, str] | None:
    """Return the labels and the key of *path*; None for a path that no item has."""
    *labels, name = path[1:].split("/")
    try:
        key = unquote(name.removesuffix(_ENDING), errors="surrogatepass")
        namespace = tuple(unquote(label, errors="surrogatepass") for label in labels)
    except UnicodeDecodeError:
        return None
    if not all(namespace) or f"{_directory_of(namespace)}{_segment(key)}{_ENDING}" != path:
        return None
    return namespace, key


def _encoded(value: Mapping[str, Any]) -> str:
    """Return *value* as canonical JSON, indented; TypeError for what is not JSON."""
    try:
        raw = json_values.encode(dict(value), root="$", depth=VALUE_DEPTH, field="value")
    except InvalidInput as error:
        raise TypeError(str(error)) from error
    return msgspec.json.format(_sorted(json_values.decode(raw)), indent=2).decode()


def _decoded(content: str | None) -> dict[str, Any] | None:
    """Return the value that is *content*; None if it is no JSON of a mapping."""
    try:
        value = msgspec.json.decode(content or "")
    except (msgspec.DecodeError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


# Filters.

_ORDERS: Final = {"$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}
_KNOWN: Final = ("$eq", "$ne", *_ORDERS)
Condition = Callable[[Any], bool]


def _members_filter(wanted: Mapping[str, Any]) -> Condition:
    """Return whether a mapping has the members of a filter; only those count.

    Raise ValueError for an operator that is not known, wherever it stands.
    """
    conditions = {str(name): _condition(each) for name, each in wanted.items()}
    if unknown := next((name for name in conditions if name.startswith("$")), None):
        raise ValueError(f"{unknown} is not known as a filter; filters are by the name of a field")
    tests = tuple(conditions.items())

    def fits(given: Any) -> bool:
        if _type(given) is not dict:
            return False
        for name, test in tests:  # noqa: SIM110 - a generator for each value costs more than the tests
            if not test(given.get(name)):
                return False
        return True

    return fits


def _condition(wanted: Any) -> Condition:
    if isinstance(wanted, Mapping):
        members = cast("Mapping[str, Any]", wanted)
        if not any(str(each).startswith("$") for each in members):
            return _members_filter(members)
        tests = [_operator(str(name), against) for name, against in members.items()]
        return lambda given: all(test(given) for test in tests)
    if isinstance(wanted, list | tuple):
        elements = [_condition(each) for each in cast("Sequence[Any]", wanted)]
        return lambda given: (
            isinstance(given, list)
            and len(cast("list[Any]", given)) == len(elements)
            and all(
                fits(each) for fits, each in zip(elements, cast("list[Any]", given), strict=True)
            )
        )
    if isinstance(wanted, bool):
        return lambda given: given is wanted
    return lambda given: not isinstance(given, bool) and given == wanted


def _operator(operator: str, against: Any) -> Condition:
    if operator not in _KNOWN:
        raise ValueError(f"{operator} is not known as an operator; there are {', '.join(_KNOWN)}")
    compare = _ORDERS.get(operator)
    if compare is None:
        equal = _condition(against)
        return equal if operator == "$eq" else lambda given: not equal(given)
    kind = _kind(against)
    return lambda given: kind is not None and _kind(given) is kind and compare(given, against)


def _kind(value: object) -> type | None:
    """Return the type by which *value* is ordered, float for any number, or None."""
    if isinstance(value, bool):
        return None
    return float if isinstance(value, int | float) else str if isinstance(value, str) else None
