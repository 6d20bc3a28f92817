"""The ASGI app of the console: dispatch, sign-in, errors, rendering."""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import chain
from time import perf_counter
from typing import Any, Final

from msgspec import Struct, ValidationError, convert

from holdfast.doors.console import charts, text
from holdfast.doors.console.pages import (
    activity,
    agents,
    chat,
    entries,
    forget,
    items,
    memories,
    overview,
    people,
    progress,
    proposals,
    recall,
    runs,
    search,
    sessions,
    stores,
    threads,
)
from holdfast.doors.console.response import (
    PAGES,
    SECONDS,
    TITLES,
    Assets,
    ConsoleRequest,
    ConsoleResponse,
    Message,
    Receive,
    Send,
    send_live,
    status_of,
)
from holdfast.doors.console.views import (
    Answer,
    ConsoleRoute,
    ConsoleRoutes,
    Download,
    Fragment,
    Live,
    PageView,
    Redirect,
    Visit,
    address,
    page,
    read_pairs,
)
from holdfast.doors.console.visitors import (
    SIGN_IN,
    WORKSPACE,
    ConsoleServer,
    ConsoleVisitor,
    chosen_workspace,
    cookie,
    demand_same_site,
    open_visitor,
    safe_next,
    theme_of,
    visitor_of,
)
from holdfast.ground.errors import (
    Conflict,
    HoldfastError,
    InvalidInput,
    MissingExtra,
    NotAuthenticated,
    NotFound,
    NotRunnable,
    Refused,
    TooLarge,
)
from holdfast.ground.events import Event

try:
    from jinja2 import Environment, PackageLoader, StrictUndefined
except ImportError as error:
    raise MissingExtra("console") from error

BODY_BYTES: Final = 4 * 1_048_576
SIGN_IN_SECONDS: Final = 7 * 86_400
QUESTIONS_MOST: Final = 99
"""Open questions that are counted for the menu."""
CHECKED_EVERY: Final = 1.0
"""Seconds between two checks that the visitor of a live page is still signed in."""
_log = logging.getLogger(__name__)

MENU: Final = (
    # Title, segment, and the letter that opens it after `g`.
    ("Overview", "", "o"),
    ("Stores", "stores", "s"),
    ("Agents", "agents", "a"),
    ("People", "people", "p"),
    ("Runs", "runs", "r"),
    ("Threads", "threads", "t"),
    ("Chat", "chat", "c"),
    ("Sessions", "sessions", "e"),
    ("Activity", "activity", "v"),
    ("Health", "health", "h"),
    ("Keys", "keys", "k"),
)
_MODULES: Final = (
    overview, stores, memories, agents, people, runs, progress, threads, chat, sessions, activity,
    search, entries, items, recall, forget, proposals,
)  # fmt: skip

DONE: Final = {code: each for module in _MODULES for code, each in module.DONE.items()}
"""Sentences about what was just done, by the code in the address."""


def menu_of(visitor: ConsoleVisitor) -> list[tuple[str, str, str]]:
    """Return title, address and letter of each section that *visitor* may see."""
    if visitor.bound:
        own: list[tuple[str, str, str]] = []
        if visitor.agent is not None:
            own.append(("Agents", address("agents", visitor.agent), "a"))
        if visitor.user is not None:
            own.append(("People", address("people", visitor.user), "p"))
        if visitor.agent is not None and visitor.user is not None:
            own.append(("Chat", address("chat"), "c"))
        return own
    seen = [each for each in MENU if each[0] != "Keys" or visitor.may("admin")]
    return [(title, address(*filter(None, [part])), letter) for title, part, letter in seen]


def _home(visit: Visit) -> Answer:
    """Show the overview, or to a visitor with a bound key what it is bound to."""
    if visit.visitor.bound:
        return Redirect(menu_of(visit.visitor)[0][1])
    return overview.show(visit)


class _KeptForm(Struct, frozen=True):
    """A form that was sent without a sign-in, to be shown again after it."""

    path: str
    form: list[tuple[str, str]]


@cache
def _assets_and_templates() -> tuple[Assets, Environment]:
    """Return the static files and templates, which all consoles of a process share."""
    assets = Assets()
    templates = Environment(
        loader=PackageLoader("holdfast.doors.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    templates.filters.update(text.FILTERS)
    shared: dict[str, Any] = {"url": address, "asset": assets.address, "charts": charts}
    templates.globals.update(shared)
    return assets, templates


class Console:
    """The console of one server process; `prefix` is where it is mounted."""

    prefix: bytes = b"/console"
    limit: int = BODY_BYTES
    notice: str = "Its console is at /console."

    def __init__(self, server: ConsoleServer, *, chat_models: Sequence[str] = ()) -> None:
        self._server, self._chat_models = server, tuple(chat_models)
        self._routes = ConsoleRoutes(self.routes())
        self._assets, self._env = _assets_and_templates()
        activity.watch(server.hf.events)

    def routes(self) -> tuple[ConsoleRoute, ...]:
        """Return every route but those of sign-in, sign-out and static files."""
        home = page("/", _home, bound="any")
        return (home, *chain.from_iterable(module.ROUTES for module in _MODULES))

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> int:
        """Answer one request, whose `Host` was checked; return the status."""
        began = perf_counter()
        request = ConsoleRequest(scope)
        if (found := self._assets.find(request.path)) is not None:
            await found.send(request, send)
            return 200
        try:
            answer = await self._answer(request, receive)
            response = answer if isinstance(answer, Live) else self._response(request, answer)
        except HoldfastError as error:
            response = await self._failure(request, error)
        except Exception:  # noqa: BLE001 - each request is answered, without internals
            _log.exception("a page of the console failed")
            response = await self._failure(request, None)
        status = 200
        if isinstance(response, Live):
            signed_out = self._signed_out(request)
            stopping = self._server.stopping
            await send_live(response, stopping, receive, send, signed_out=signed_out)
        else:
            status = response.status
            await response.send(request, send)
        PAGES.add(request.route, str(status))
        SECONDS.observe(perf_counter() - began, request.route)
        return status

    async def _answer(self, request: ConsoleRequest, receive: Receive) -> Answer | Live:
        form: list[tuple[str, str]] = []
        if request.method == "POST":
            demand_same_site(request.headers, self._server.public_url)
            form = read_pairs(await _body(receive))
        if request.path in {"/console/sign-in", "/console/sign-out"}:
            request.route = request.path.removeprefix("/console")
            signed = self._sign_in if request.route == "/sign-in" else self._sign_out
            return await self._server.run(partial(signed, request, form))
        try:
            methods, segments = self._routes.find(request.raw_path)
        except NotFound:
            # The page that says so has the menu of its visitor.
            await self._server.run(partial(self._visitor, request))
            raise
        request.route = next(iter(methods.values())).path
        route = methods.get(request.method)
        if route is None:
            raise NotFound("page", request.path, next="Go to the overview.")
        answer = await self._server.run(partial(self._page, request, route, segments, form))
        if answer is None and route.stream is not None and request.visit is not None:
            return await route.stream(request.visit)
        assert answer is not None  # noqa: S101 - a route has one of the two
        return answer

    # Pages

    def _page(
        self,
        request: ConsoleRequest,
        route: ConsoleRoute,
        segments: Mapping[str, str],
        form: list[tuple[str, str]],
    ) -> Answer | None:
        """Return what *route* answers; None if it is a stream that the visitor may follow."""
        visitor = self._visitor(request)
        if visitor is None:
            return self._unsigned(request, form)
        visitor.demand_owner(route.bound, segments)
        visitor.demand(route.needs)
        visit = request.visit = self._visit(request, visitor, segments, form)
        if route.answer is None:
            return None
        try:
            answer = route.answer(visit)
        except (InvalidInput, Refused, Conflict, NotRunnable) as error:
            if route.again is None:
                raise
            visit.error = error
            answer = route.again(visit)
        if isinstance(answer, PageView):
            self._count_questions(request)
        return answer

    def _count_questions(self, request: ConsoleRequest) -> None:
        """Count the open questions for the menu of a visitor who may see all of them."""
        visitor = request.visitor
        if visitor is not None and not visitor.bound:
            request.open_questions = _open_questions(
                request.visit or self._visit(request, visitor, {}, [])
            )

    def _visitor(self, request: ConsoleRequest) -> ConsoleVisitor | None:
        """Return the visitor; None if they have to sign in."""
        request.visitor = self._signed_in(request)
        return request.visitor

    def _signed_in(self, request: ConsoleRequest) -> ConsoleVisitor | None:
        secret = request.cookies.get(SIGN_IN)
        rights = self._server.sign_ins.find(secret) if secret else None
        if rights is not None:
            return visitor_of(rights)
        if self._server.is_open():
            return open_visitor(chosen_workspace(dict(request.query), request.cookies))
        return None

    async def _signed_out(self, request: ConsoleRequest) -> None:
        """Return once the visitor of a live page has to sign in."""
        while True:
            if await self._server.run(partial(self._signed_in, request)) is None:
                return
            await asyncio.sleep(CHECKED_EVERY)

    def _visit(
        self,
        request: ConsoleRequest,
        visitor: ConsoleVisitor,
        segments: Mapping[str, str],
        form: list[tuple[str, str]],
    ) -> Visit:
        render = partial(self._render, request)
        visit = Visit(self._server, visitor, segments, request.query, form, render=render)
        visit.chat_models = self._chat_models
        visit.last_event_id = request.headers.get("last-event-id")
        return visit

    def _unsigned(self, request: ConsoleRequest, form: list[tuple[str, str]]) -> Answer:
        """Show the sign-in page; a form that was sent is kept in it."""
        if request.method != "POST":
            here = request.here
            return Redirect(address("sign-in", next=None if here == "/console" else here))
        kept = json.dumps({"path": request.here, "form": form})
        return _sign_in_view("/console", status=401, kept=kept)

    async def _failure(
        self, request: ConsoleRequest, error: HoldfastError | None
    ) -> ConsoleResponse:
        # Where the database fails, the page that says so has no count.
        with suppress(HoldfastError):
            await self._server.run(partial(self._count_questions, request))
        return self._response(request, self._failed(request, error))

    def _failed(self, request: ConsoleRequest, error: HoldfastError | None) -> PageView:
        status = 500 if error is None else status_of(error)
        if status in {401, 403}:
            self._publish_denied(request, status)
        values = {"failure": error, "retry": request.here if request.method == "GET" else None}
        title = TITLES.get(status, "Refused")
        return PageView(
            template="error.html", title=title, section="", values=values, status=status
        )

    def _publish_denied(self, request: ConsoleRequest, status: int) -> None:
        visitor = request.visitor
        self._server.hf.events.publish(
            Event(
                type="access.denied",
                at=self._server.clock.now(),
                workspace=visitor.workspace if visitor else "",
                data={
                    "status": status,
                    "method": request.method,
                    "route": f"/console{request.route}",
                },
            )
        )

    # Sign-in

    def _sign_in(self, request: ConsoleRequest, form: list[tuple[str, str]]) -> Answer:
        fields = {**dict(request.query), **dict(form)}
        following = safe_next(fields.get("next", "/console"))
        if request.method != "POST":
            if self._visitor(request) is not None:
                return Redirect(following)
            return _sign_in_view(following, status=200)
        secret = self._server.sign_ins.begin(fields.get("key", "").strip())
        if secret is None:
            self._publish_denied(request, 401)
            return _sign_in_view(following, status=401, kept=fields.get("kept", ""), wrong=True)
        self._set_sign_in(request, secret)
        request.cookies[SIGN_IN] = secret
        return self._again(request, fields.get("kept", "")) or Redirect(following)

    def _again(self, request: ConsoleRequest, kept: str) -> Answer | None:
        """Return the form that a lapsed sign-in kept from being carried out, if any."""
        visitor = self._visitor(request)
        try:
            held = convert(json.loads(kept or "null"), _KeptForm | None)
            if held is None or visitor is None:
                return None
            path, _, query = safe_next(held.path).partition("?")
            methods, segments = self._routes.find(path.encode())
        except (ValueError, ValidationError, NotFound):
            return None
        route = methods.get("POST")
        if route is None or route.again is None or not visitor.may(route.needs):
            return None
        visitor.demand_owner(route.bound, segments)
        request.query = read_pairs(query.encode())
        visit = request.visit = self._visit(request, visitor, segments, held.form)
        return route.again(visit)

    def _sign_out(self, request: ConsoleRequest, form: list[tuple[str, str]]) -> Answer:
        del form
        if request.method != "POST":
            return Redirect("/console")
        if secret := request.cookies.get(SIGN_IN):
            self._server.sign_ins.end(secret)
        request.set_cookies.append(cookie(SIGN_IN, "", seconds=0, secure=self._secure))
        return Redirect("/console/sign-in")

    def _set_sign_in(self, request: ConsoleRequest, secret: str) -> None:
        header = cookie(SIGN_IN, secret, seconds=SIGN_IN_SECONDS, secure=self._secure)
        request.set_cookies.append(header)

    @property
    def _secure(self) -> bool:
        return (self._server.public_url or "").startswith("https:")

    # Responses

    def _response(self, request: ConsoleRequest, answer: Answer) -> ConsoleResponse:
        given = dict(request.query).get("workspace")
        if given and request.visitor is not None and request.visitor.key_id is None:
            request.set_cookies.append(cookie(WORKSPACE, given, seconds=None, secure=False))
        response = ConsoleResponse(cookies=request.set_cookies)
        if isinstance(answer, Redirect):
            response.status = 303
            response.headers.append((b"location", answer.to.encode("ascii")))
        elif isinstance(answer, Download):
            name = "".join(each if each.isalnum() or each in "._-" else "_" for each in answer.name)
            disposition = f'attachment; filename="{name}"'.encode("ascii", "replace")
            response.type, response.body = answer.type, answer.body
            response.headers += [
                (b"content-disposition", disposition),
                (b"content-security-policy", b"sandbox"),
            ]
        elif isinstance(answer, Fragment):
            html = self._render(request, answer.template, answer.values)
            response.body = html.encode("utf-8", "replace")
        else:
            self._fill(request, response, answer)
        return response

    def _fill(self, request: ConsoleRequest, response: ConsoleResponse, view: PageView) -> None:
        """Put the page of *view* into *response*."""
        if view.sign_in is not None and (secret := self._server.sign_ins.begin(view.sign_in)):
            self._set_sign_in(request, secret)
            request.cookies[SIGN_IN] = secret
            self._visitor(request)
        error = request.visit.error if request.visit else None
        response.status = view.status if error is None else status_of(error)
        response.secret = view.secret
        done = view.done or DONE.get(dict(request.query).get("done", ""))
        html = self._render(request, view.template, {**view.values, "view": view, "done": done})
        response.body = html.encode("utf-8", "replace")

    def _render(self, request: ConsoleRequest, template: str, values: Mapping[str, Any]) -> str:
        visitor, visit = request.visitor, request.visit
        shown: dict[str, Any] = {
            "visitor": visitor,
            "visit": visit,
            "error": visit.error if visit else None,
            "menu": menu_of(visitor) if visitor else [],
            "open_questions": request.open_questions,
            "theme": theme_of(request.cookies),
            "now": self._server.clock.now(),
            "here": request.here,
            "may": visitor.may if visitor else _may_nothing,
            **values,
        }
        return self._env.get_template(template).render(shown)


def _open_questions(visit: Visit) -> str:
    """Return how many questions are open, for the menu; empty if none is."""
    found = visit.hf.runs.questions(limit=QUESTIONS_MOST)
    return f"{len(found.data)}{'+' if found.next_page else ''}" if found.data else ""


def _may_nothing(needed: str) -> bool:
    del needed
    return False


def _sign_in_view(following: str, *, status: int, kept: str = "", wrong: bool = False) -> PageView:
    values = {"following": following, "kept": kept}
    failure = NotAuthenticated() if wrong else None
    return PageView(
        template="sign_in.html",
        title="Sign in",
        section="",
        values={**values, "failure": failure},
        status=status,
    )


async def _body(receive: Receive) -> bytes:
    """Return the body of a form; raise TooLarge above the limit."""
    raw, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise InvalidInput("form", "did not arrive whole", next="Send it again.")
        raw += message.get("body", b"")
        more = message.get("more_body", False)
        if len(raw) > BODY_BYTES:
            raise TooLarge(BODY_BYTES, what="form")
    return bytes(raw)
