"""NetworkState: results in order and values by key, shared by a network's agents."""

import copy
from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    ValuesView,
)
from contextlib import AbstractContextManager
from typing import Any, Self, TypeVar, cast, overload

from holdfast.ground import json_values
from holdfast.ground.clock import Clock, SystemClock
from holdfast.ground.json_values import JSON
from holdfast.memories.state import message as checks
from holdfast.memories.state.cells import (
    OUTSIDE,
    Cell,
    CellTable,
    Hydrated,
    Shares,
    StateChange,
    ValueInfo,
    WriteOrigin,
    encoded_value,
    fitting,
    info_of,
    nothing,
    schema_of,
    share,
)
from holdfast.memories.state.frozen import shown
from holdfast.memories.state.history import (
    EVERYTHING,
    Formatter,
    View,
    Window,
    WindowMessage,
    formatted,
    from_dict,
    windowed,
)
from holdfast.memories.state.message import (
    UNLESS_SAID,
    GivenMessage,
    Message,
    StateLimits,
    checked_key,
    messages_of,
)
from holdfast.memories.state.result import InferenceResult, result_of
from holdfast.memories.state.serialize import from_wire, parsed, to_json
from holdfast.memories.state.sources import in_order
from holdfast.memories.state.thread import checked_id, checked_id_or_none

T = TypeVar("T")


class Values:
    """The values of a state by key; each read returns a new copy."""

    def __init__(self, store: CellTable, origin: WriteOrigin) -> None:
        self._store, self._origin = store, origin

    def set(self, key: str, value: object, *, expected_version: int | None = None) -> int:
        """Write *value* under *key* and return its version.

        With *expected_version* (0: there is no value), raise `PreconditionFailed` if the version
        is another.
        """
        store = self._store
        if type(key) is not str:
            key = checked_key(key, store.limits)
        data = encoded_value(key, value, store.limits, store.schema)
        return store.put(key, data, self._origin, expected_version)

    @overload
    def get(self, key: str) -> JSON: ...
    @overload
    def get(self, key: str, default: T) -> "JSON | T": ...
    def get(self, key: str, default: object = None) -> object:
        """Return a copy of the value under *key*, or *default* where there is none."""
        cell = self._store.cell(key)
        return default if cell is None else json_values.decode(cell.data)

    def delete(self, key: str, *, expected_version: int | None = None) -> bool:
        """Delete the value under *key*; return whether there was one."""
        return self._store.drop(key, self._origin, expected_version)

    def has(self, key: str) -> bool:
        """Check whether there is a value under *key*; it may be None."""
        return self._store.has(key)

    def all(self) -> dict[str, JSON]:
        """Return a copy of all values, in the order of the first write."""
        cells = self._store.cells()
        return {key: json_values.decode(cell.data) for key, cell in cells.items()}

    def update(self, key: str, fn: Callable[[Any], object], default: object = None) -> JSON:
        """Write the result of *fn* for the value under *key*, or for *default*.

        Return a copy of it. No other write comes between, and *fn* is called once. If it raises,
        nothing changes.
        """
        with self._store.alone():
            cell = self._store.cell(key)
            old = copy.deepcopy(default) if cell is None else json_values.decode(cell.data)
            self.set(key, fn(old))
            return self.get(key)

    def info(self, key: str) -> ValueInfo | None:
        """Return the value under *key* with its version and origin, or None."""
        cell = self._store.cell(key)
        return None if cell is None else info_of(key, cell)

    def batch(self) -> AbstractContextManager[None]:
        """Commit the writes of a `with` block together; an exception rolls back.

        Its own writes are readable inside; other threads wait. A nested batch joins the outer one.
        """
        return self._store.together()

    def __len__(self) -> int:
        return self._store.count()

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.has(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._store.cells())

    def __repr__(self) -> str:
        return f"Values({self.all()!r})"


class Data(MutableMapping[str, JSON]):
    """The same values as `kv`, by subscript.

    Its values compare and encode as plain JSON; a change within one raises `TypeError`, because
    it would be lost.
    """

    def __init__(self, store: CellTable, values: Values) -> None:
        self._store, self._values = store, values

    def __getitem__(self, key: str) -> JSON:
        cell = self._store.cell(key)
        if cell is None:
            raise KeyError(key)
        return _shown(key, cell)

    def __setitem__(self, key: str, value: object) -> None:
        self._values.set(key, value)

    def __delitem__(self, key: str) -> None:
        if not self._values.delete(key):
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __repr__(self) -> str:
        return repr(self._values.all())

    def items(self) -> ItemsView[str, JSON]:
        """Return a snapshot of keys and values."""
        return self._at_once().items()

    def values(self) -> ValuesView[JSON]:
        """Return a snapshot of the values."""
        return self._at_once().values()

    def update(self, other: Any = (), /, **more: JSON) -> None:
        """Set all of *other* and *more*, together or not at all."""
        with self._values.batch():
            super().update(other, **more)

    def pop(self, key: str, *default: Any) -> Any:
        """Delete the value under *key* and return it, or *default* where there is none."""
        with self._values.batch():
            return super().pop(key, *default)

    def popitem(self) -> tuple[str, JSON]:
        """Delete the value that was first set longest ago; return its key and it."""
        with self._values.batch():
            return super().popitem()

    def setdefault(self, key: str, default: JSON = None) -> JSON:
        """Return the value under *key*; set it to *default* first if there is none."""
        with self._values.batch():
            return super().setdefault(key, default)

    def clear(self) -> None:
        """Delete all values, together."""
        with self._values.batch():
            super().clear()

    def _at_once(self) -> dict[str, JSON]:
        return {key: _shown(key, cell) for key, cell in self._store.cells().items()}


def _shown(key: str, cell: Cell) -> JSON:
    refusal = f'data["{key}"] is read-only; change it with kv.update("{key}", …)'
    return shown(json_values.decode(cell.data), refusal)


E = TypeVar("E")

GivenResult = InferenceResult | dict[str, Any]
"""A result, or its plain dict."""


class NetworkState:
    """State that the agents of one network share in one run; any thread may use it.

    >>> from holdfast import NetworkState
    >>> state = NetworkState({"city": "Oslo"})
    >>> state.kv.update("visits", lambda old: old + 1, 0)
    1
    >>> dict(state.data)
    {'city': 'Oslo', 'visits': 1}
    """

    def __init__(
        self,
        data: Mapping[str, object] | None = None,
        *,
        messages: Iterable[GivenMessage] = (),
        results: Iterable[GivenResult] = (),
        thread_id: str | None = None,
        schema: object = None,
        limits: StateLimits = UNLESS_SAID,
        clock: Clock | None = None,
    ) -> None:
        held = nothing()
        held.messages = list(messages_of("messages", list(messages)))
        held.results, held.newest = in_order(_results(results, limits))
        held.thread_id = checked_id_or_none("thread_id", thread_id)
        store = CellTable(
            held, limits=limits, schema=schema_of(schema), clock=clock or SystemClock()
        )
        self._be(store, OUTSIDE)
        self.data.update({} if data is None else cast("Mapping[str, JSON]", data))

    @classmethod
    def _of(cls, store: CellTable, origin: WriteOrigin) -> Self:
        """Return a handle to *store* for writes with *origin*."""
        state = cls.__new__(cls)
        cls._be(state, store, origin)
        return state

    def _be(self, store: CellTable, origin: WriteOrigin) -> None:
        self._store, self._origin = store, origin
        self.kv = Values(store, origin)
        self.data = Data(store, self.kv)

    @property
    def messages(self) -> list[Message]:
        """The opening: messages before the first result; a new list each time."""
        return self._store.messages()

    def append_message(self, message: GivenMessage) -> None:
        """Add *message* to the opening; InvalidInput once there is a result."""
        self._store.say(from_dict(message), self._origin)

    @property
    def results(self) -> list[InferenceResult]:
        """The results of the agents' calls, oldest first; a new list each time."""
        return self._store.results()

    def append_result(self, result: GivenResult) -> None:
        """Add *result* after all others."""
        with checks.whole_is("result"):
            made = result_of(result, verify=True)
        self._store.append(fitting(made, self._store.limits), self._origin)

    def set_results(self, results: Iterable[GivenResult]) -> None:
        """Replace all results with *results*."""
        self._store.replace(_results(results, self._store.limits), self._origin)

    def results_from(self, start: int) -> list[InferenceResult]:
        """Return the results from the place *start* on.

        It counts from the end if negative.
        """
        return self.results[start:]

    @property
    def thread_id(self) -> str | None:
        """The thread that the run belongs to; it may be set while it is None."""
        return self._store.thread_id

    @thread_id.setter
    def thread_id(self, thread_id: str) -> None:
        self._store.join(checked_id("thread_id", thread_id), self._origin)

    @property
    def revision(self) -> int:
        """Number of committed writes."""
        return self._store.revision

    @property
    def hydration(self) -> Hydrated | None:
        """The hydration given to `from_hydration`, with the entries left out; else None."""
        return self._store.hydration

    @property
    def subscriber_errors(self) -> int:
        """Number of errors raised by subscribers."""
        return self._store.subscriber_errors

    def subscribe(self, fn: Callable[[StateChange], object]) -> Callable[[], None]:
        """Call *fn* with each change after its commit; return a function to stop.

        It runs on the writer's thread. If it raises, the error is counted, and the write stands.
        """
        return self._store.subscribe(fn)

    def get(self, key: str) -> ValueInfo | None:
        """Return the value under *key* with its version and origin, or None."""
        return self.kv.info(key)

    def cells(self) -> dict[str, Cell]:
        """Return the values as they are stored, by key, in the order of the first write."""
        return self._store.cells()

    def format_history(
        self,
        formatter: Formatter | None = None,
        *,
        agent: str | None = None,
        view: View | None = None,
    ) -> list[Message]:
        """Return the opening, then each result's messages, as *agent* sees them.

        They are filtered through *view*. The messages of a result are its input, its texts, and its
        calls with their results, unless *formatter* returns others. Calls never stand alone.
        """
        said = self._said(formatter, agent, view)
        return [each.message for each in said]

    def window(self, *, agent: str | None = None, view: View | None = None) -> Window:
        """Return the newest history within the budget of *view*, and what is left out."""
        view = view or EVERYTHING
        said = self._said(None, agent, view)
        return windowed(said, budget=view.budget, measure=view.measure)

    def clone(self) -> Self:
        """Return an independent copy, without the subscriptions."""
        return self._of(self._store.cloned(), OUTSIDE)

    def on_behalf(
        self,
        *,
        agent: str | None = None,
        run_id: str | None = None,
        tool: str | None = None,
        call_id: str | None = None,
    ) -> Self:
        """Return a handle to this state for writes with this origin."""
        origin = WriteOrigin(agent=agent, run_id=run_id, tool=tool, call_id=call_id)
        return self._of(self._store, origin)

    def to_json(self) -> str:
        """Return all of it as one line of JSON, which `from_json` reads."""
        return to_json(self._store.held()).decode()

    def to_dict(self) -> dict[str, JSON]:
        """Return all of it as a plain dict, which `from_dict` reads."""
        return cast("dict[str, JSON]", json_values.decode(to_json(self._store.held())))

    @classmethod
    def from_json(
        cls,
        text: str | bytes,
        *,
        verify: bool = True,
        schema: object = None,
        limits: StateLimits = UNLESS_SAID,
        clock: Clock | None = None,
    ) -> Self:
        """Return the state in *text*, JSON from `to_json`.

        Raise `UnknownFormat` if it is not a state, `InvalidInput`, with the place, for a wrong
        member, and with *verify* `ChecksumMismatch` for a result that was changed.
        """
        given = parsed(text)
        return cls.from_dict(given, verify=verify, schema=schema, limits=limits, clock=clock)

    @classmethod
    def from_dict(
        cls,
        given: object,
        *,
        verify: bool = True,
        schema: object = None,
        limits: StateLimits = UNLESS_SAID,
        clock: Clock | None = None,
    ) -> Self:
        """Return the state in the dict *given* from `to_dict`."""
        typed = schema_of(schema)
        held = from_wire(given, verify=verify, limits=limits, schema=typed)
        store = CellTable(held, limits=limits, schema=typed, clock=clock or SystemClock())
        return cls._of(store, OUTSIDE)

    @classmethod
    def from_hydration(
        cls, hydration: Hydrated, *, prefix: str = "memory/", clock: Clock | None = None
    ) -> Self:
        """Return a state with a value for each entry of *hydration*.

        Its key is that of the entry after *prefix*.
        """
        data = {f"{prefix}{each.key}": each.content for each in hydration.entries}
        state = cls(data, clock=clock)
        cls._keep(state, hydration)
        return state

    def share(self, key: str, memory: Shares[E], *, as_key: str | None = None) -> E:
        """Set the value under *key* as `shared:` in a run's *memory*; return the entry.

        Its source is the agent that wrote the value, or `network`. Raise `NotFound` if there is
        none.
        """
        return share(self.get(key), key, memory, as_key)

    def _keep(self, hydration: Hydrated) -> None:
        self._store.hydration = hydration

    def _said(
        self, formatter: Formatter | None, agent: str | None, view: View | None
    ) -> list[WindowMessage]:
        held = self._store.held()
        return formatted(held.messages, held.results, formatter=formatter, agent=agent, view=view)


def _results(given: Iterable[GivenResult], limits: StateLimits) -> list[InferenceResult]:
    """Validate the results *given*, and the size of each."""
    with checks.whole_is("results"):
        made = checks.items("results", list(given), lambda each: result_of(each, verify=True))
    return [fitting(each, limits) for each in made]
