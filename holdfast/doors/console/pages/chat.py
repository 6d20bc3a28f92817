"""Pages of the chat: a conversation with an agent, with memory or without."""

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from importlib import util
from typing import Any, Final

from msgspec import Struct

from holdfast.doors import console
from holdfast.doors.console.pages.threads import (
    NAMESPACE,
    CallView,
    GivenRow,
    MemoryLookup,
    call_views,
    kept_memory,
    turn_views,
)
from holdfast.doors.console.views import (
    ROWS,
    Answer,
    ConsoleRoute,
    Fragment,
    Live,
    PageView,
    Redirect,
    Visit,
    act,
    address,
    confirmation,
    page,
)
from holdfast.doors.console.visitors import ConsoleVisitor
from holdfast.ground.clock import to_microseconds
from holdfast.ground.errors import (
    HoldfastError,
    InvalidInput,
    MissingExtra,
    NotFound,
    ScopeDenied,
)
from holdfast.ground.ids import Ids
from holdfast.ground.scope import checked_name

SECTION: Final = "Chat"
SCRIPTED: Final = "scripted"
"""The model that calls no provider; it is there while no other is named."""
AGENT: Final = "chat"
"""The agent, with its durable memory, unless another is chosen."""
AGENTS_LISTED: Final = 100
THREADS_LOOKED_AT: Final = 20
"""Newest threads among which the user of the last chat is looked for."""
TURNS_LOOKED_AT: Final = 10
"""Newest turns of a thread among which a result that was just stored is looked for."""
ON: Final = "true"

DONE: Final = {"chat-forgotten": "It was forgotten, and what came from it alone."}

_log: Final = logging.getLogger(__name__)
_ids: Final = Ids()


class AnswerMemory(Struct, frozen=True, kw_only=True):
    """What memory gave to an answer that was just made, and what it has of it since."""

    agent: str
    hydrated: int
    omitted: int
    block: str
    recalled: Sequence[GivenRow]
    left_out: int
    stored: Sequence[GivenRow]
    troubles: Sequence[str]


class AnswerView(Struct, frozen=True, kw_only=True):
    """An answer that was just made; `memory` is None while memory is off."""

    by: str
    text: str
    calls: Sequence[CallView]
    failure: str | None
    memory: AnswerMemory | None
    result: str | None


def _owners(visitor: ConsoleVisitor) -> None:
    """Raise ScopeDenied for a bound key that does not name both agent and user.

    A turn reads the memory of an agent and writes to that of a user.
    """
    if visitor.bound and (visitor.agent is None or visitor.user is None):
        raise ScopeDenied(
            "A chat needs a key that is bound to an agent and a user, or not bound.",
            needed="a key that is not bound",
            next="Sign in with another key.",
        )


def begin(visit: Visit) -> Answer:
    """Show an empty conversation, under the id of a new thread."""
    _owners(visit.visitor)
    return _chat_page(visit, _ids.new("thread", to_microseconds(visit.now)))


def show_chat(visit: Visit) -> Answer:
    """Show the newest turns of a conversation, and the box to go on."""
    _owners(visit.visitor)
    # The form of a conversation that has not begun is shown again, too.
    return _chat_page(visit, visit["thread"], known=not visit.form)


def _thread_user(visit: Visit, id: str, *, known: bool) -> tuple[bool, str | None]:
    """Return whether the thread is there, and its user.

    Raise NotFound if it must be *known* and is not, or is of another user than the key's.
    """
    own = visit.visitor.user
    try:
        thread = visit.hf.threads.retrieve(id)
    except NotFound:
        if known:
            raise
        return False, own
    if own is not None and thread.user != own:
        raise NotFound("thread", id, next="Begin another chat.")
    return True, thread.user


def _chat_page(
    visit: Visit,
    id: str,
    *,
    known: bool = False,
    fresh: AnswerView | None = None,
) -> PageView:
    there, user = _thread_user(visit, id, known=known)
    turns = visit.hf.threads.turns(id, ROWS, last=ROWS).data if there else []
    if fresh is not None:
        turns = [turn for turn in turns if turn.id != fresh.result]
    models = visit.chat_models or (SCRIPTED,)
    agent = visit.visitor.agent or _chosen(visit, "agent", _last_agent(turns))
    veto = vetoed(visit)
    values: dict[str, Any] = {
        "thread": id,
        "there": there,
        "turns": turn_views(visit, turns, user),
        "earlier": len(turns) >= ROWS,
        "fresh": fresh,
        "models": models,
        "model": _chosen(visit, "model", models[0]),
        "agents": _agents(visit, agent),
        "agent": agent,
        "user": user or ("" if there else _chosen(visit, "user", _last_user(visit))),
        "own_user": there or visit.visitor.user is not None,
        "memory": is_on(visit) and not veto,
        "vetoed": veto,
        "missing": missing_extra(),
        "draft": "" if fresh else visit.typed("message"),
        "forgetting": _forgetting(visit, user),
    }
    return PageView(
        template="chat.html",
        title="Chat",
        section=SECTION,
        values=values,
        up=(("Threads", address("threads")),) if there and not visit.visitor.bound else (),
    )


def _chosen(visit: Visit, name: str, default: str) -> str:
    return visit.form.get(name) or visit.query.get(name) or default


def _last_agent(turns: Sequence[Any]) -> str:
    answered = [turn.result.agent for turn in turns if turn.result is not None]
    return answered[-1] if answered else AGENT


def _last_user(visit: Visit) -> str:
    """Return the user of the newest thread that has one."""
    if visit.visitor.user is not None:
        return visit.visitor.user
    found = visit.hf.threads.list(THREADS_LOOKED_AT).data
    return next((each.user for each in found if each.user), "")


def _agents(visit: Visit, chosen: str) -> list[str]:
    if visit.visitor.agent is not None:
        return [visit.visitor.agent]
    known = [each.agent for each in visit.hf.durable_agents(AGENTS_LISTED).data]
    return sorted({AGENT, chosen, *known})


def is_on(visit: Visit) -> bool:
    """Return whether the form or the address switches memory on."""
    given = visit.form.get("memory_enabled") or visit.query.get("memory_enabled")
    return given == ON


def vetoed(visit: Visit) -> bool:
    """Return whether the server's setting keeps long-term memory off for everyone."""
    return visit.hf.longterm(AGENT, namespace=NAMESPACE, enabled=True, embedder=False) is None


def missing_extra() -> MissingExtra | None:
    """Return the error that says how to have the extra `agents`, or None."""
    # Nothing is imported for it: only a turn needs what is in the extra.
    there = util.find_spec("pydantic_ai") and util.find_spec("jsonschema")
    return None if there else MissingExtra("agents")


# A turn


def _request(visit: Visit) -> "console.ChatRequest":
    """Return what the form sends, validated; load what a turn needs."""
    _owners(visit.visitor)
    if (error := missing_extra()) is not None:
        raise error
    text, model = visit.written("message"), visit.written("model")
    if not text.strip():
        raise InvalidInput("message", "is empty", next="Type a message.")
    models = visit.chat_models or (SCRIPTED,)
    if model not in models:
        raise InvalidInput("model", f"must be one of: {', '.join(models)}", given=model)
    there, owner = _thread_user(visit, visit["thread"], known=False)
    user = visit.visitor.user or visit.written("user").strip() or None
    if user is not None:
        checked_name("user", user)
    if there and user != owner:
        why = "is of another user" if owner else "was begun without a user"
        raise InvalidInput("user", f"is not this thread's, which {why}", next="Begin a new chat.")
    memory = is_on(visit) and not vetoed(visit)
    if memory and user is None:
        advice = "Name a user, or switch memory off."
        raise InvalidInput("user", "is missing, and memory is on", next=advice)
    agent = visit.visitor.agent or visit.written("agent").strip() or AGENT
    return console.ChatRequest(
        thread=visit["thread"],
        text=text,
        model=model,
        agent=checked_name("agent", agent),
        user=user,
        memory=memory,
    )


def _answer_view(visit: Visit, turn: "console.ChatTurn") -> AnswerView:
    """Return the answer of *turn*, which is over."""
    given, result = turn.request, turn.result
    memory = None
    if given.memory:
        lookup = MemoryLookup(visit, given.user)
        scores = _scores(visit, turn)
        memory = AnswerMemory(
            agent=given.agent,
            hydrated=turn.hydrated,
            omitted=turn.omitted,
            block=turn.block,
            recalled=[lookup.recalled(id, scores.get(id)) for id in turn.recalled],
            left_out=turn.left_out,
            stored=[lookup.recalled(id) for id in turn.stored],
            troubles=turn.troubles,
        )
    return AnswerView(
        by=given.agent,
        text=result.text if result else "",
        calls=call_views(result) if result else (),
        failure=turn.failure,
        memory=memory,
        result=result.id if result else None,
    )


def _scores(visit: Visit, turn: "console.ChatTurn") -> dict[str, float | None]:
    """Return the scores of what was recalled, which are kept with the stored result."""
    if turn.result is None:
        return {}
    stored = visit.hf.threads.turns(turn.request.thread, last=TURNS_LOOKED_AT).data
    results = [each.result for each in stored if each.id == turn.result.id and each.result]
    kept = kept_memory(results[0]) if results else None
    return {each.id: each.score for each in kept.recalled} if kept else {}


async def answer_whole(visit: Visit) -> Answer:
    """Take a turn, and show the page with the answer: for browsers without script."""
    run = visit.server.run
    try:
        request = await run(partial(_request, visit))
    except (InvalidInput, MissingExtra) as error:
        visit.error = error
        return await run(partial(_chat_page, visit, visit["thread"]))
    turn = console.ChatTurn(visit.hf, request, visit.server.clock)
    async with aclosing(turn.pieces()) as pieces:
        async for _ in pieces:
            pass
    fresh = await run(partial(_answer_view, visit, turn))
    return await run(partial(_chat_page, visit, request.thread, fresh=fresh))


async def answer_live(visit: Visit) -> Live | Answer:
    """Take a turn, and stream its answer into the page that sent it."""
    _owners(visit.visitor)
    try:
        request = await visit.server.run(partial(_request, visit))
    except HoldfastError as error:
        values = {"error": error, "draft": visit.typed("message")}
        return Fragment(template="chat_refused.html", values=values)
    return Live(_live(visit, request))


async def _live(
    visit: Visit, request: "console.ChatRequest"
) -> AsyncGenerator[tuple[int | None, str, str]]:
    """Yield what changes in the page while the turn is taken, and its answer."""
    # Names the elements of this turn in the page.
    key = _ids.new("turn", to_microseconds(visit.server.clock.now()))
    here: dict[str, Any] = {"key": key, "request": request, "thread": request.thread}
    yield None, "", visit.render("chat_begun.html", here)
    turn = console.ChatTurn(visit.hf, request, visit.server.clock)
    try:
        async with aclosing(turn.pieces()) as pieces:
            async for piece in pieces:
                yield None, "", visit.render("chat_piece.html", here | {"piece": piece})
        fresh = await visit.server.run(partial(_answer_view, visit, turn))
    except Exception:  # noqa: BLE001 - the page that waits for the answer is to say so
        _log.exception("a turn of a chat failed")
        failure = "The turn failed. The reason is in the server's log."
        fresh = AnswerView(
            by=request.agent, text="", calls=(), failure=failure, memory=None, result=None
        )
    yield None, "", visit.render("chat_answer.html", here | {"fresh": fresh})


# Forgetting what a turn left in memory


def _forgetting(visit: Visit, user: str | None) -> GivenRow | None:
    """Return the item or turn that the visitor is to confirm the forgetting of."""
    id = visit.text("forget") or visit.form.get("forget")
    if not id or user is None or not visit.visitor.may("write"):
        return None
    found = MemoryLookup(visit, user).recalled(id)
    return found if found.state == "there" else None


def forget(visit: Visit) -> Answer:
    """Forget an item or a turn of the user of the thread for good, once confirmed."""
    _owners(visit.visitor)
    id = visit.written("forget")
    _, user = _thread_user(visit, visit["thread"], known=True)
    data = user and visit.hf.longterm_data(user, namespace=NAMESPACE)
    if not data or data.get(id) is None:
        raise NotFound("memory", id, next="It may have been forgotten already.")
    visit.confirm(confirmation("", id))
    data.forget(id)
    return Redirect(address("chat", visit["thread"], done="chat-forgotten"))


def _turn_route(path: str, answer: Any, again: Any = None) -> ConsoleRoute:
    return ConsoleRoute(
        method="POST", path=path, needs="write", bound="any", stream=answer, again=again
    )


ROUTES: Final[tuple[ConsoleRoute, ...]] = (
    page("/chat", begin, bound="any"),
    page("/chat/{thread}", show_chat, bound="any"),
    _turn_route("/chat/{thread}", answer_whole, show_chat),
    _turn_route("/chat/{thread}/answer", answer_live),
    act("/chat/{thread}/forget", forget, bound="any", again=show_chat),
)
