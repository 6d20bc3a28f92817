"""The values of a state as a mapping, whose values are read-only all the way down."""

from collections.abc import ItemsView, Iterator, MutableMapping, ValuesView
from typing import Any

from holdfast.ground import json_values
from holdfast.ground.json_values import JSON
from holdfast.memories.state.cells import CellTable
from holdfast.memories.state.frozen import shown
from holdfast.memories.state.info import Cell
from holdfast.memories.state.values import Values


class Data(MutableMapping[str, JSON]):
    """The same values as `kv`, by subscript.

    What it gives compares and encodes as plain JSON; a change to it raises TypeError, for it
    would be lost.
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
        """Return keys and values of one moment."""
        return self._at_once().items()

    def values(self) -> ValuesView[JSON]:
        """Return the values of one moment."""
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
        """Return the value under *key*, once it is *default* where there was none."""
        with self._values.batch():
            return super().setdefault(key, default)

    def clear(self) -> None:
        """Delete all values, together."""
        with self._values.batch():
            super().clear()

    def _at_once(self) -> dict[str, JSON]:
        return {key: _shown(key, cell) for key, cell in self._store.cells().items()}


def _shown(key: str, cell: Cell) -> JSON:
    told = f'data["{key}"] is read-only; change it with kv.update("{key}", …)'
    return shown(json_values.decode(cell.data), told)
