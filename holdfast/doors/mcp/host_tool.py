"""A tool as a host lists it, and its results in the form and size of the protocol."""

import re
from collections.abc import Callable
from typing import Final, cast

import mcp_types as types
import msgspec
from msgspec import Struct

from holdfast.ground.errors import HoldfastError
from holdfast.ground.text import CONTROLS, INVISIBLE
from holdfast.tools.base import JSON, Schema, Tool, told

RESULT_BYTES: Final = 60_000
"""Bytes of text in a result: hosts cut at about 25,000 tokens, silently."""
_LISTED_FIRST: Final = ("results", "entries", "versions", "entities")


class Hints(Struct, frozen=True, kw_only=True):
    """What a host shows of a tool, and how its result looks."""

    title: str
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = True
    output: Schema | None = None
    content: str | None = None
    """The member of a structured result that is its text, if not the whole."""


class HostTool(Struct, frozen=True, kw_only=True):
    """A tool with its hints."""

    tool: Tool
    hints: Hints

    @property
    def definition(self) -> types.Tool:
        """The tool as a host lists it."""
        hints = self.hints
        return types.Tool(
            name=self.tool.name,
            title=hints.title,
            description=self.tool.description,
            input_schema=self.tool.parameters,
            output_schema=hints.output,
            annotations=types.ToolAnnotations(
                read_only_hint=hints.read_only,
                destructive_hint=hints.destructive,
                idempotent_hint=hints.idempotent,
                open_world_hint=False,
            ),
        )

    def refused(self, error: HoldfastError) -> types.CallToolResult:
        """Return *error* as a result, in the tool's form."""
        return failed(str(error) if self.hints.output is None else encoded(told(error)))


# Characters that a terminal or a browser acts on, and those that are not drawn, are escaped in the
# text of a JSON result. In JSON they occur only within strings.
_UNSAFE: Final = re.compile(rf"[{CONTROLS}{INVISIBLE}]")


def encoded(answer: object) -> str:
    """Return *answer* as compact JSON, its control and format characters escaped."""
    return _UNSAFE.sub(_escape, msgspec.json.encode(answer).decode())


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code <= 0xFFFF:  # noqa: PLR2004 - the basic plane
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def _size(answer: object) -> int:
    return len(encoded(answer).encode())


def fitting(answer: dict[str, JSON]) -> dict[str, JSON]:
    """Return *answer* cut to the size of a result, with the number `omitted`.

    These are members of its list. An entry that is too long by itself loses the end of its content;
    `omitted` are its bytes.
    """
    if _size(answer) <= RESULT_BYTES:
        return answer
    name = next((each for each in _LISTED_FIRST if each in answer), None)
    if name is None:
        return _cut_entry(answer)
    members = cast("list[JSON]", answer[name])

    def cut(number: int) -> dict[str, JSON]:
        shown: dict[str, JSON] = {**answer, name: members[:number]}
        shown["omitted"] = len(members) - number
        if "count" in answer:
            shown["count"] = number
        return shown

    return cut(_most(len(members), cut))


def _cut_entry(answer: dict[str, JSON]) -> dict[str, JSON]:
    entry = cast("dict[str, JSON]", answer["entry"])
    content = str(entry["content"])

    def cut(number: int) -> dict[str, JSON]:
        shown: dict[str, JSON] = {**answer, "entry": {**entry, "content": content[:number]}}
        shown["omitted"] = len(content[number:].encode())
        return shown

    return cut(_most(len(content), cut))


def _most(count: int, cut: Callable[[int], dict[str, JSON]]) -> int:
    """Return how many of *count* parts fit into a result."""
    low, high = 0, count
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _size(cut(middle)) <= RESULT_BYTES else (low, middle - 1)
    return low


def shortened_view(text: str) -> str:
    """Return *text* cut after a whole line to fit, and say how much is left."""
    if len(text.encode()) <= RESULT_BYTES:
        return text
    lines = text.split("\n")
    room, shown = RESULT_BYTES - 200, 0
    for line in lines:
        room -= len(line.encode()) + 1
        if room < 0:
            break
        shown += 1
    left = len(lines) - shown
    first = shown
    if shown <= 1:
        # One line fills the result: its beginning is all that can be shown.
        head = lines[shown].encode()[: RESULT_BYTES - 400].decode("utf-8", "ignore")
        rest = len(lines[shown].encode()) - len(head.encode())
        lines[shown] = f"{head} [{rest} more bytes of this line]"
        shown, left = shown + 1, left - 1
        first = shown
    last = min(len(lines) - 1, first + max(first - 1, 1) - 1)
    more = f"[{left} more lines. View a part: view_range [{first}, {last}], or a directory below.]"
    return "\n".join([*lines[:shown], more]) if left else "\n".join(lines[:shown])


def block(text: str) -> types.TextContent:
    """Return *text* as a part of a result."""
    return types.TextContent(type="text", text=text)


def failed(text: str) -> types.CallToolResult:
    """Return *text* as a result with the error flag."""
    return types.CallToolResult(content=[block(text)], is_error=True)
