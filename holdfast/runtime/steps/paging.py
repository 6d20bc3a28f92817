"""Tool results too long for a prompt: kept whole, and read part by part."""

from typing import Any, Final

from holdfast.tools.base import JSON, Schema, Tool

READ_RESULT: Final = "read_result"

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


class ResultPages:
    """The long results of one step; parts have at most *most* characters."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, text: str) -> JSON:
        """Keep *text* whole, and return its first part."""
        result_id = f"result_{len(self._kept) + 1}"
        self._kept[result_id] = text
        return self.part(result_id, 0)

    def part(self, result_id: str, offset: int) -> JSON:
        """Return the part of a kept result that begins at *offset*, or what is wrong with that."""
        text = self._kept.get(result_id)
        if text is None:
            known = ", ".join(self._kept) or "none"
            return _paging_error(f"there is no result {result_id!r}; those kept are: {known}")
        if offset > len(text):
            return _paging_error(f"the result has {len(text)} characters; {offset} is past its end")
        piece = text[offset : offset + self.most]
        end = offset + len(piece)
        return {
            "part": {
                "result_id": result_id,
                "offset": offset,
                "returned": len(piece),
                "total": len(text),
                "next_offset": end if end < len(text) else None,
            },
            "text": piece,
        }

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


def _paging_error(message: str) -> JSON:
    return {"error": {"type": "invalid_input", "message": message}}
