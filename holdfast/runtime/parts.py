"""What an agent is made of, in all the forms it may be given in."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from pydantic_ai import Tool as ModelTool
from pydantic_ai.models import KnownModelName, Model
from pydantic_ai.toolsets import AbstractToolset

from holdfast.runtime.hooks import AnyRun
from holdfast.tools.base import Tool

AnyTool: TypeAlias = Tool | ModelTool[Any] | Callable[..., Any]
AnyToolset: TypeAlias = AbstractToolset[Any]
AnyModel: TypeAlias = Model | KnownModelName | str
Instructions: TypeAlias = str | Callable[[AnyRun], str | Awaitable[str]]
