"""Lazy exports: public names of a package that load on first access.

Importing the package stays cheap.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return a `__getattr__` that loads the public names of *package*.

    *homes* maps each name to its module.

    A module's own name, with the package before it, stands for the module itself.
    """

    def find(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(home)
        found = module if home == f"{package}.{name}" else getattr(module, name)
        setattr(sys.modules[package], name, found)
        return found

    return find


def public(package: str) -> Callable[[], list[str]]:
    """Return a `__dir__` for *package* that lists its public names, loaded or not."""

    def names() -> list[str]:
        module = vars(sys.modules[package])
        return sorted({*module["__all__"], *(name for name in module if name.startswith("__"))})

    return names
