"""Results of tools for models and for records: pages of long ones, and failures.

A result too long for a prompt is sent in parts; a record keeps its beginning and its size.
"""

from dataclasses import replace
from typing import Any, Final, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace as replaced
from pydantic_ai.messages import ToolReturn, is_multi_modal_content
from pydantic_ai.toolsets import ToolsetTool

from holdfast.ground.json_values import JSON
from holdfast.ground.text import whole
from holdfast.ground.validation import check_whole
from holdfast.runtime.inference.validation import JsonForm, NotJSON
from holdfast.tools.base import Schema, Tool

READ_RESULT: Final = "read_result"

OURS: Final = "holdfast"
"""The key of a tool's metadata for the `Tool` it was made from."""

LIMIT: Final = 25_000
"""Characters of a tool's result in a prompt; a longer one is paged."""

STORED: Final = 65_536
"""Bytes of a paged result that a record keeps."""

ROOM: Final = 4_194_304
"""Bytes of the results of one call that a record keeps; of each later one it keeps 1 KiB."""

STORED_LATE: Final = 1_024
"""Bytes of a result past `ROOM` that a record keeps."""

PAGED: Final = "paged"
"""The member of a stored result that says how it was paged."""

_PARAMETERS: Final[Schema] = {
    "type": "object",
    "properties": {
        "result_id": {"type": "string", "description": "The result_id that a part gave."},
        "offset": {
            "type": "integer",
            "minimum": 0,
            "description": "Where to go on: the next_offset of the part before.",
        },
    },
    "required": ["result_id", "offset"],
    "additionalProperties": False,
}


def check_limit(limit: object) -> int:
    """Return *limit*, characters of a tool's result; raise InvalidInput if it is none."""
    return check_whole("tool_result_limit", limit, "must be a whole number from 1", least=1)


class ResultPages:
    """The long results of one loop, in parts of at most *most* characters."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.results: dict[str, str] = {}

    def keep(self, text: str) -> JSON:
        """Store *text* whole, and return its first part."""
        result_id = f"result_{len(self.results) + 1}"
        self.results[result_id] = text
        return self.part(result_id, 0)

    def part(self, result_id: str, offset: int) -> JSON:
        """Return the part of a stored result that begins at *offset*, or an error."""
        text = self.results.get(result_id)
        if text is None:
            known = ", ".join(self.results) or "none"
            return _paging_error(f"there is no result {result_id!r}; those kept are: {known}")
        if offset > len(text):
            return _paging_error(f"the result has {len(text)} characters; {offset} is past its end")
        return page(result_id, text[offset : offset + self.most], offset, len(text))

    def tool(self) -> Tool:
        """Return the tool that reads the other parts."""

        def read(arguments: Any) -> JSON:
            return self.part(arguments["result_id"], arguments["offset"])

        return Tool(
            id="step.read_result",
            name=READ_RESULT,
            description=(
                "Read on in a tool result that was too long and came in part. "
                "Parts put together in order give the whole."
            ),
            parameters=_PARAMETERS,
            work=read,
            refused=lambda answer: isinstance(answer, dict) and "error" in answer,
        )


def page(result_id: str, piece: str, offset: int, total: int) -> JSON:
    """Return the part *piece* of a result of *total* characters, for a model."""
    end = offset + len(piece)
    return {
        "part": {
            "result_id": result_id,
            "offset": offset,
            "returned": len(piece),
            "total": total,
            "next_offset": end if end < total else None,
        },
        "text": piece,
    }


def _paging_error(message: str) -> JSON:
    return {"error": {"type": "invalid_input", "message": message}}


class ToolAnswer(Struct, frozen=True, kw_only=True):
    """The result of a call: *shown* to the model, *stored* in a record.

    It has *characters* of text; if it is *paged* the model got a part of them. *extras* has the
    size where *stored* is the beginning alone. It is *repaired* if lone surrogates were replaced.
    """

    shown: Any
    stored: JSON
    characters: int
    ok: bool = True
    paged: bool = False
    repaired: bool = False
    extras: dict[str, JSON] = {}


def answer(value: Any, tool: ToolsetTool[Any], pages: ResultPages | None) -> ToolAnswer:
    """Return *value*, which *tool* returned, as its result.

    A long one is kept in *pages*. Files, images and audio are sent unchanged and count no
    characters. Raise NotJSON for a value without a JSON form.
    """
    if isinstance(value, ToolReturn):
        return _returned(cast("ToolReturn[Any]", value), tool, pages)
    listed: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [value]
    files = [each for each in listed if is_multi_modal_content(each)]
    if files:
        rest = [each for each in listed if not is_multi_modal_content(each)]
        return _with_files(files, rest, value, pages)
    form = JsonForm(cast("object", value))
    ok = not _refused(form.value, tool)
    return replaced(paged(form.value, pages), ok=ok, repaired=form.repaired)


def _returned(
    value: ToolReturn[Any], tool: ToolsetTool[Any], pages: ResultPages | None
) -> ToolAnswer:
    inner = answer(value.return_value, tool, pages)
    content, metadata = _prompt(value.content), _metadata(value.metadata)
    given = replace(value, return_value=inner.shown, content=content, metadata=metadata)
    return replaced(inner, shown=given)


def _prompt(content: Any) -> Any:
    if isinstance(content, str):
        return whole(content)
    if not isinstance(content, list | tuple):
        return content
    parts = cast("list[Any]", content)
    return [whole(each) if isinstance(each, str) else each for each in parts]


def _metadata(given: object) -> Any:
    """Return *given* if a record can hold it, else a note: no model sees it."""
    try:
        JsonForm(given)
    except NotJSON as error:
        return {"left_out": str(error)}
    return given


def _with_files(
    files: list[Any], rest: list[Any], value: Any, pages: ResultPages | None
) -> ToolAnswer:
    """Return *value* with its *files*; the texts *rest* are paged if they are long."""
    forms = [JsonForm(each) for each in rest]
    texts = [as_text(each.value) for each in forms]
    size = sum(map(len, texts))
    repaired = any(each.repaired for each in forms)
    shown: Any = [*files, *(each.value for each in forms)] if repaired else value
    is_long = pages is not None and size > pages.most
    if pages is not None and is_long:
        shown = [*files, pages.keep("\n".join(texts))]
    data = JsonForm(value).value
    kept, extras = stored(data)
    return ToolAnswer(
        shown=shown,
        stored=kept,
        characters=size,
        paged=is_long,
        repaired=repaired,
        extras=extras,
    )


def stored(data: JSON, most: int = STORED) -> tuple[JSON, dict[str, JSON]]:
    """Return what a record keeps of *data*, and the size if that is a part.

    It keeps *most* bytes of text.
    """
    text = as_text(data)
    kept = beginning(text, most)
    if kept == text:
        return data, {}
    return kept, {PAGED: {"bytes": len(text.encode())}}


def paged(data: JSON, pages: ResultPages | None) -> ToolAnswer:
    """Return *data* as a result; a long one is kept in *pages*."""
    text = as_text(data)
    if pages is None or len(text) <= pages.most:
        return ToolAnswer(shown=data, stored=data, characters=len(text))
    shown = cast("dict[str, Any]", pages.keep(text))
    size: dict[str, JSON] = {
        "result_id": shown["part"]["result_id"],
        "returned": shown["part"]["returned"],
        "total": len(text),
        "bytes": len(text.encode()),
    }
    return ToolAnswer(
        shown=shown,
        stored=beginning(text),
        characters=len(text),
        paged=True,
        extras={PAGED: size},
    )


def beginning(text: str, most: int = STORED) -> str:
    """Return what a record keeps of *text*: at most its first *most* bytes."""
    if len(text) * 4 <= most:
        return text
    return text[:most].encode()[:most].decode(errors="ignore")


def as_text(data: JSON) -> str:
    """Return *data* as a model sees it."""
    return data if isinstance(data, str) else msgspec.json.encode(data).decode()


def shown_again(stored: JSON, extras: dict[str, JSON]) -> JSON:
    """Return what a model got of a result that is *stored* with *extras*."""
    size = extras.get(PAGED)
    if not isinstance(size, dict) or not isinstance(stored, str):
        return stored
    match size:
        case {"result_id": str() as result_id, "returned": int() as returned, "total": int(total)}:
            return page(result_id, stored[:returned], 0, total)
        case _:
            return stored


def _refused(data: JSON, tool: ToolsetTool[Any]) -> bool:
    ours = our_tool(tool)
    return ours is not None and ours.refused is not None and ours.refused(data)


def our_tool(tool: ToolsetTool[Any]) -> Tool | None:
    """Return the `Tool` that *tool* was made from, if it is ours."""
    ours = (tool.tool_def.metadata or {}).get(OURS)
    return ours if isinstance(ours, Tool) else None
