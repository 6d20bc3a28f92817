"""Agents on pydantic-ai: steps, tasks, plans, teams, networks (extra `agents`)."""

from importlib.util import find_spec

from holdfast.ground.errors import MissingExtra
from holdfast.ground.lazy import lazy_names

if find_spec("pydantic_ai") is None or find_spec("jsonschema") is None:
    raise MissingExtra("agents")

__getattr__, __dir__ = lazy_names(__name__)
