"""The tools of one call: each call of one ends in one answer, and the agent goes on."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, cast

from msgspec.json import encode
from pydantic_ai import RunContext
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.messages import ToolReturn, is_multi_modal_content
from pydantic_ai.toolsets import ToolsetTool, WrapperToolset

from holdfast.memories.state.message import ErrorKind
from holdfast.runtime.inference.messages import (
    Content,
    NotJSON,
    ToolOutcome,
    error_text,
    failure,
    json_form,
)
from holdfast.runtime.inference.tool_calls import ToolCalls, ToolContract, working
from holdfast.runtime.mcp import is_remote
from holdfast.runtime.tools import OURS
from holdfast.tools.base import Tool

log = logging.getLogger(__name__)


@dataclass
class ToolErrorToolset(WrapperToolset[Any]):
    """Tools one after another, whose failures are answers. The `deps` are `CallDeps`."""

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools, without what would end the agent's run in place of an answer."""
        calls: ToolCalls = ctx.deps.tools
        tools = await super().get_tools(ctx)
        calls.offer(tools)
        for name, tool in tools.items():
            definition = tool.tool_def
            calls.terms[name] = ToolContract(definition.timeout, definition.kind)
            plain = replace(definition, timeout=None, kind="function", sequential=True)
            # The ceiling on errors of all tools together acts before one tool's own could.
            tools[name] = replace(tool, tool_def=plain, max_retries=calls.most_errors + 1)
        return tools

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Return what the tool returned, in its JSON form; ToolFailed for whatever went wrong."""
        calls: ToolCalls = ctx.deps.tools
        terms = calls.terms[name]
        call_id = ctx.tool_call_id or ""
        began = await calls.called(call_id)
        given, cause = None, None
        token = working.set(calls.at_work(name, call_id))
        try:
            value = await _worked(
                lambda: super(ToolErrorToolset, self).call_tool(name, tool_args, ctx, tool), terms
            )
            content, given = _answer(value, tool)
        except Exception as error:  # noqa: BLE001 - whatever a user's tool raises is its answer
            content, cause = _failed(error, name, tool), error
        finally:
            working.reset(token)
        await calls.answered(call_id, ToolOutcome(content, calls.since(began)), cause)
        if "error" in content:
            raise ToolFailed(_shown(content, given))
        return given


class _NotHere(Exception):
    """The tool waits for somebody outside of the run."""


class _TooSlow(Exception):
    """The tool ran past its timeout."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"it ran past its {seconds:g} s")


async def _worked(work: Callable[[], Awaitable[Any]], terms: ToolContract) -> Any:
    if terms.kind != "function":
        raise _NotHere
    if terms.timeout is None:
        return await work()
    limit = asyncio.timeout(terms.timeout)
    try:
        async with limit:
            return await work()
    except TimeoutError:
        if limit.expired():
            raise _TooSlow(terms.timeout) from None
        raise


def _answer(value: object, tool: ToolsetTool[Any]) -> tuple[Content, Any]:
    """Return the content of a call that returned *value*, and what the model is given."""
    ours = (tool.tool_def.metadata or {}).get(OURS)
    if isinstance(ours, Tool) and ours.refused and ours.refused(cast("Any", value)):
        return _refusal(cast("dict[str, Any]", value)), value
    if isinstance(value, ToolReturn):
        found = cast("ToolReturn[Any]", value)
        return {"data": json_form(found.return_value)}, found
    if _has_files(value):
        return {"data": json_form(value)}, value
    data = json_form(value)
    return {"data": data}, data


def _refusal(answer: dict[str, Any]) -> Content:
    error = answer["error"]
    message = " ".join(filter(None, (error.get("message"), error.get("next"))))
    return failure(error["type"], message, "raised")


def _has_files(value: object) -> bool:
    if isinstance(value, list):
        return any(map(is_multi_modal_content, cast("list[object]", value)))
    return is_multi_modal_content(value)


def _failed(error: Exception, name: str, tool: ToolsetTool[Any]) -> Content:
    kind: ErrorKind = "raised"
    match error:
        case NotJSON():
            return failure("NotJSON", str(error), "not_json")
        case _TooSlow():
            return failure("TimeoutError", str(error), "timeout")
        case _NotHere() | ApprovalRequired() | CallDeferred():
            return failure("Denied", "it needs an approval, and no approver is present", "denied")
        case ModelRetry() if isinstance(error.__context__, TimeoutError):
            return failure("TimeoutError", str(error), "timeout")
        case _ if is_remote(tool.toolset):
            kind = "remote"
        case _:
            log.info("the tool %s raised", name, exc_info=error)
    return failure(type(error).__name__, str(error), kind)


def _shown(content: Content, given: object) -> str:
    """Return what the model sees of an error: a tool's own answer where it gave one."""
    if given is not None:
        return encode(given).decode()
    return error_text(cast("dict[str, Any]", content["error"]))
