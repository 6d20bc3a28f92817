"""No contract of durable memory is left out where it must hold."""

import inspect
import pkgutil
from importlib import import_module

import contracts
from contracts.suites import DURABLE


def test_every_contract_is_run_on_every_target() -> None:
    modules = [
        import_module(f"{contracts.__name__}.{each.name}")
        for each in pkgutil.iter_modules(contracts.__path__)
        if each.name.startswith("durable_")
    ]

    written = {
        value
        for module in modules
        for name, value in inspect.getmembers(module, inspect.isclass)
        if name.endswith("Contract")
    }

    assert written == set(DURABLE)
