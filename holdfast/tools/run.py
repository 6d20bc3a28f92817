"""The three tools of run memory, list, read and write, and their prompt section.

An error of the model is a result, `{"error": …}`, never an exception.
"""

from collections.abc import Callable, Iterable
from functools import cache, partial
from importlib.resources import files
from types import MappingProxyType
from typing import Final, Literal, cast

from msgspec import UNSET

from holdfast.ground.clock import milliseconds_text
from holdfast.ground.errors import (
    HoldfastError,
    InvalidInput,
    LimitExceeded,
    PreconditionFailed,
)
from holdfast.memories.run.entry import RunEntry, filter_of
from holdfast.memories.run.memory import RunMemory, one_line
from holdfast.memories.run.model_view import PAGE_MOST, EntryPageRequest, checked_order, list_page
from holdfast.tools.base import JSON, Tool, is_error, told, wording
from holdfast.tools.run_arguments import KEY_CHARS, SCHEMAS, ToolArguments, read_keys

Profile = Literal["alone", "together"]

RUN_TOOL_NAMES: Final = MappingProxyType(
    {
        "alone": ("memory_list", "memory_read", "memory_write"),
        "together": ("run_list", "run_read", "run_write"),
    }
)
"""Names of the three tools by profile: list, read, write."""

HINT_TITLE_CHARS: Final = 120

_HINT: Final = "# Required upstream memory (call `{read}` with these keys):"
_SHARED: Final = "shared:"

Answer = dict[str, JSON]
Act = Callable[[ToolArguments], Answer]


def run(
    memory: RunMemory,
    *,
    profile: Profile = "alone",
    writer: str | None = None,
    budget: int | None = None,
    write: bool = True,
) -> list[Tool]:
    """Return the tools list, read and write of *memory*, with the names of *profile*.

    *writer* is the source of written entries; by default the tool's name. *budget* is the limit of
    one result in characters of compact JSON. Without *write* only the first two are returned.
    """
    names = _names(profile)
    words = wording("run_tools").parameters
    reader, source = writer or names[1], writer or names[2]
    acts: dict[str, Act] = {
        "list": lambda params: _list(memory, params, budget),
        "read": lambda params: read_keys(memory, params, reader=reader, budget=budget),
        "write": lambda params: _write(memory, params, source),
    }
    if not write:
        del acts["write"]
    return [
        Tool(
            id=f"run.{act}",
            name=name,
            description=words[act],
            parameters=SCHEMAS[act],
            work=partial(_answered, act, work),
            refused=is_error,
            checks=True,
        )
        for (act, work), name in zip(acts.items(), names, strict=False)
    ]


def run_prompt(profile: Profile = "alone", write: bool = True) -> str:
    """Return the system prompt section about the use of the tools."""
    names = _names(profile)
    lines = _page().splitlines()
    if not write:
        lines = [line for line in lines if "{write}" not in line]
    return "\n".join(lines).format(**dict(zip(("list", "read", "write"), names, strict=True)))


def run_hint(memory: RunMemory, keys: Iterable[str], profile: Profile = "alone") -> str:
    """Return a prompt section that lists those of *keys* that exist and did not fail.

    Each is listed once, with its title and never its value. Return "" if there are none.
    """
    heading = _HINT.format(read=_names(profile)[1])
    entries = [memory.get(key) for key in dict.fromkeys(keys)]
    lines = [_hinted(each) for each in entries if each is not None and not each.failed]
    return "\n".join([heading, *dict.fromkeys(lines)]) if lines else ""


@cache
def _page() -> str:
    return files("holdfast.tools").joinpath("prompts", "run.md").read_text("utf-8").strip()


def _names(profile: str) -> tuple[str, str, str]:
    if profile not in RUN_TOOL_NAMES:
        raise InvalidInput(
            "profile",
            f"must be {' or '.join(RUN_TOOL_NAMES)}",
            given=profile,
            next="Choose together where durable memory's tools are offered too.",
        )
    return RUN_TOOL_NAMES[profile]


def _hinted(entry: RunEntry) -> str:
    title = one_line(entry.title or "")
    if len(title) > HINT_TITLE_CHARS:
        title = f"{title[: HINT_TITLE_CHARS - 1]}…"
    return f"- {entry.key} — {title}" if title else f"- {entry.key}"


def _answered(tool: str, act: Act, arguments: object) -> JSON:
    try:
        return act(ToolArguments(arguments, tool))
    except HoldfastError as error:
        return _refusal(error)


def _refusal(error: HoldfastError) -> JSON:
    """Return *error* as a result, with the facts that the model needs to correct it."""
    answer = cast("dict[str, dict[str, JSON]]", told(error))
    about = answer["error"]
    if about["field"] == "arguments":
        about["field"] = None
    if isinstance(error, LimitExceeded):
        about["allowed"], about["actual"] = error.allowed, error.actual
        about["field"] = "value" if error.limit in ("value_bytes", "tool_value_bytes") else None
        about["next"] = "Store a summary or a reference instead."
    if isinstance(error, PreconditionFailed):
        about["field"] = "expected_version"
        current = error.current
        about["current"] = _current(current) if isinstance(current, RunEntry) else None
    return cast("JSON", answer)


def _current(entry: RunEntry) -> Answer:
    at = milliseconds_text(entry.updated_at)
    return {"version": entry.version, "source": entry.source, "updatedAt": at}


def _list(memory: RunMemory, params: ToolArguments, budget: int | None) -> Answer:
    kinds, prefix = params.texts("kind"), params.text("key_prefix")
    sources, order = params.texts("sources"), params.text("order")
    given = kinds is not None or prefix is not None or sources is not None
    wanted = EntryPageRequest(
        among=filter_of(kinds, None, prefix, sources) if given else None,
        order=None if order is None else checked_order(order),
        limit=params.whole("limit", 1, PAGE_MOST) or PAGE_MOST,
        page=params.text("page"),
    )
    return list_page(*memory.by_last_write(), wanted, run_id=memory.run_id, budget=budget)


def _write(memory: RunMemory, params: ToolArguments, source: str) -> Answer:
    params.required("key", "a string")
    name = _name(params.text("key") or "")
    if not params.has("value"):
        raise InvalidInput(
            "value", "must be present, null or any other JSON value", next="Send value as well."
        )
    description = params.text("description")
    done = memory.publish(
        name,
        params.any("value"),
        source=source,
        title=params.text("title") or name,
        description=UNSET if description is None else description,
        expected_version=params.whole("expected_version", 0, 2**63 - 1),
    )
    entry, replaced = done.entry, done.replaced
    answer: Answer = {
        "ok": True,
        "key": entry.key,
        "kind": entry.kind,
        "createdAt": milliseconds_text(entry.created_at),
        "updatedAt": milliseconds_text(entry.updated_at),
        "version": entry.version,
    }
    if replaced is not None:
        by: Answer = {} if replaced.source is None else {"source": replaced.source}
        answer["replaced"] = {**by, "version": replaced.version}
    return answer


def _name(key: str) -> str:
    """Return the name below `shared:` for *key*; InvalidInput if it is no valid name."""
    if not 1 <= len(key) <= KEY_CHARS:
        raise InvalidInput(
            "key",
            f"must have 1 to {KEY_CHARS} characters, has {len(key):,}",
            limit=KEY_CHARS,
            next="Choose a shorter name, and put the details into the value.",
        )
    return key.removeprefix(_SHARED)
