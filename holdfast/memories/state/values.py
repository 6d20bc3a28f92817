"""The key-value part of a network state."""

import copy
from collections.abc import Callable, ItemsView, Iterator, MutableMapping, ValuesView
from contextlib import AbstractContextManager
from typing import Any, TypeVar, overload

from holdfast.ground import json_values
from holdfast.ground.json_values import JSON
from holdfast.memories.state.cells import (
    Cell,
    CellTable,
    ValueInfo,
    WriteOrigin,
    encoded_value,
    info_of,
)
from holdfast.memories.state.frozen import shown
from holdfast.memories.state.message import checked_key

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
