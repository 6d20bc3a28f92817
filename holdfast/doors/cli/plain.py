"""Options taken as they stand, where there is nothing to convert.

Typer converts values with pydantic, whose import takes longer than most of our commands do. Text
needs no converting, and neither does what was not given.
"""

from typing import Any

import typer

_SLOT = "_runtime_param"  # where Typer keeps a parameter's converter once it is built


class _Plain:
    """A converter that hands on what needs no converting, and asks Typer's for the rest."""

    def __init__(self, kind: Any) -> None:
        self._texts = kind in (str, list[str])

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        if self._texts or not isinstance(value, str):
            return tuple(value) if several else value
        setattr(param, _SLOT, None)
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def take_plainly(command: Any) -> None:
    """Let *command*, and those below it, take text and defaults without a conversion."""
    for below in getattr(command, "commands", {}).values():
        take_plainly(below)
    for param in command.get_params(typer.Context(command)):
        if getattr(param, _SLOT, param) is None:
            setattr(param, _SLOT, _Plain(param.type_descriptor.annotation))
