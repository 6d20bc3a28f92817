"""Interface for hosts that speak the Model Context Protocol."""

from importlib.util import find_spec

from holdfast.ground.errors import MissingExtra

if find_spec("mcp") is None:
    raise MissingExtra("mcp")
