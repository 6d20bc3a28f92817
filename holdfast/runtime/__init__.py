"""Agents at work, on pydantic-ai: steps, tasks, plans, teams and networks (extra `agents`)."""

from importlib.util import find_spec

from holdfast.ground.errors import MissingExtra

if find_spec("pydantic_ai") is None or find_spec("jsonschema") is None:
    raise MissingExtra("agents")
