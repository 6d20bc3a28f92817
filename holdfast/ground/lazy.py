"""Lazy exports: public names of a package that load on first access.

Importing the package stays cheap, and type checkers see the same names in its stub.
"""

import sys
from collections.abc import Callable
from importlib import import_module


def lazy_names(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for the names in the stub of *package*.

    The stub, `__init__.pyi`, has a line for each: `from module import name as name`. `__all__`
    comes from it too. A name from *package* itself is one of its modules.
    """
    homes: dict[str, str] = {}

    def names() -> dict[str, str]:
        if not homes:
            path = f"{sys.modules[package].__path__[0]}/__init__.pyi"
            with open(path, encoding="utf-8") as stub:  # noqa: PTH123 - pathlib loads slowly
                words = [line.split() for line in stub if line.startswith("from ")]
            homes.update({name: home for _, home, _, name, *_ in words})
        return homes

    def load(name: str) -> object:
        if name == "__all__":
            return sorted(names())
        home = names().get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if home == package:
            return import_module(f"{package}.{name}")
        found = getattr(import_module(home), name)
        setattr(sys.modules[package], name, found)
        return found

    def listed() -> list[str]:
        special = {name for name in vars(sys.modules[package]) if name.startswith("__")}
        return sorted({"__all__", *names(), *special})

    return load, listed
