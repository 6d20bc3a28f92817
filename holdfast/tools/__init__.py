"""Tools that a model calls, with their descriptions and schemas."""

from holdfast.ground.errors import ToolRefused as ToolRefused
from holdfast.tools.base import Tool as Tool
from holdfast.tools.base import ask_human as ask_human
from holdfast.tools.base import lay_out as lay_out
from holdfast.tools.durable import durable as durable
from holdfast.tools.files import files as files
from holdfast.tools.longterm import longterm as longterm
from holdfast.tools.run import RUN_TOOL_NAMES as RUN_TOOL_NAMES
from holdfast.tools.run import run as run
from holdfast.tools.run import run_hint as run_hint
from holdfast.tools.run import run_prompt as run_prompt
