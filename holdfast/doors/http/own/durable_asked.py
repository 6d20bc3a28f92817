"""Agent, run and idempotency key of a request about durable memory."""

from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.doors.http.call import Call
from holdfast.doors.http.request import DURABLE_LIMIT, Handler, HttpRoute, Method, Needs
from holdfast.ground.errors import InvalidInput
from holdfast.library.holdfast import Holdfast
from holdfast.library.spans import within
from holdfast.memories.durable.context import AgentContext, InRun
from holdfast.memories.durable.memory import DurableMemory
from holdfast.memories.durable.validation import checked_idempotency_key

T = TypeVar("T")

AGENT = "/api/durable/{agent}"

RUN, TOKEN, IDEMPOTENCY = b"holdfast-run", b"holdfast-run-token", b"idempotency-key"

_TOKEN_DIGITS = 18


def agents_route(
    method: Method, below: str, needs: Needs, answer: Handler, summary: str, **more: Any
) -> HttpRoute:
    """Return a route of one agent's memory; a key bound to that agent may use it."""
    options: dict[str, Any] = {"bound": "agent", **more}
    return HttpRoute(
        method=method,
        path=AGENT + below,
        needs=needs,
        answer=answer,
        summary=summary,
        limit=DURABLE_LIMIT,
        durable=True,
        **options,
    )


def caller_of(call: Call, hf: Holdfast) -> AgentContext:
    """Return the context of *call*: the agent of its path, the run of its headers."""
    context, run = hf.durable(call["agent"]).context, run_of(call)
    return context if run is None else context.within(run.run_id, run.token)


def acted(
    call: Call,
    hf: Holdfast,
    act: str,
    work: Callable[[AgentContext], T],
    *,
    query: str | None = None,
) -> T:
    """Return *work*(context of *call*), in a span of the memory that names *act*."""
    memory, run = hf.durable(call["agent"]), run_of(call)
    whole = memory.context
    context = whole if run is None else whole.within(run.run_id, run.token)
    return within(memory, act, lambda: work(context), query=query)


def memory_of(call: Call, hf: Holdfast) -> DurableMemory:
    """Return the memory of the path's agent; raise InvalidInput if a run is named."""
    if run_of(call) is not None:
        raise InvalidInput(RUN.decode(), "names a run, and this is no act of a run")
    return hf.durable(call["agent"])


def run_of(call: Call) -> InRun | None:
    """Return the run that the headers of *call* name, or None.

    Raise InvalidInput for one header without the other, and for a token that is not a number.
    """
    run_id, token = call.headers.get(RUN), call.headers.get(TOKEN)
    if run_id is None and token is None:
        return None
    if run_id is None or token is None:
        missing = RUN if run_id is None else TOKEN
        reason = "is needed: a run is named by its id and its token"
        raise InvalidInput(missing.decode(), reason)
    if not token.isdigit() or len(token) > _TOKEN_DIGITS:
        given = token.decode("latin-1")
        raise InvalidInput(TOKEN.decode(), "must be the number that the run was given", given=given)
    return InRun(run_id=run_id.decode("latin-1"), token=int(token))


def idempotency_key_of(call: Call) -> str | None:
    """Return the idempotency key of *call*, or None; raise InvalidInput if invalid."""
    raw = call.headers.get(IDEMPOTENCY)
    if raw is None:
        return None
    try:
        return checked_idempotency_key(raw.decode())
    except UnicodeDecodeError:
        raise InvalidInput(IDEMPOTENCY.decode(), "is not UTF-8") from None
