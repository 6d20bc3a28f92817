"""NetworkState: results in order and values by key, shared by a network's agents."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self, TypeVar, cast

from holdfast.ground import json_values
from holdfast.ground.clock import Clock, SystemClock
from holdfast.ground.json_values import JSON
from holdfast.memories.state import message as checks
from holdfast.memories.state.cells import (
    OUTSIDE,
    CellTable,
    Hydrated,
    Shares,
    StateChange,
    ValueInfo,
    WriteOrigin,
    fitting,
    nothing,
    schema_of,
    share,
)
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
    messages_of,
)
from holdfast.memories.state.result import InferenceResult, result_of
from holdfast.memories.state.serialize import from_wire, parsed, to_json
from holdfast.memories.state.thread import checked_id, checked_id_or_none
from holdfast.memories.state.values import Data, Values

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
        held.results = _results(results, limits)
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
        said = list(self._said(None, agent, view))
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
    ) -> Iterator[WindowMessage]:
        held = self._store.held()
        return formatted(held.messages, held.results, formatter=formatter, agent=agent, view=view)


def _results(given: Iterable[GivenResult], limits: StateLimits) -> list[InferenceResult]:
    """Validate the results *given*, and the size of each."""
    with checks.whole_is("results"):
        made = checks.items("results", list(given), lambda each: result_of(each, verify=True))
    return [fitting(each, limits) for each in made]
