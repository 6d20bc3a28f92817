"""Every page and form of the console answers every kind of visitor as the table says."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import pytest
from doors.console.client import ORIGIN
from doors.http.asking import Asker, Said
from doors.test_authorisation import RANK, Outcome
from doors.world import Credential, Watch, World, copied, marks_in, world
from torture.counts import counted

from holdfast.doors.console.app import Console
from holdfast.doors.console.views import ConsoleRoute
from holdfast.testing.fakes import FrozenClock

ENTRY, ITEM, TURN = (
    "/agents/{agent}/entries/{key}",
    "/people/{user}/items/{id}",
    "/people/{user}/turns/{id}",
)
TABLE: Final = {
    # path: (read, write, admin), each the methods that need it
    "/": ("GET", "", ""),
    "/stores": ("GET", "POST", ""),
    "/stores/{s}": ("GET", "", ""),
    "/stores/{s}/settings": ("GET", "POST", ""),
    "/stores/{s}/archive": ("", "POST", ""),
    "/stores/{s}/delete": ("", "", "POST"),
    "/stores/{s}/versions": ("GET", "", ""),
    "/stores/{s}/versions/plan": ("", "POST", ""),
    "/stores/{s}/versions/put-back": ("", "POST", ""),
    "/stores/{s}/new": ("", "GET POST", ""),
    "/stores/{s}/memories/{m}": ("GET", "POST", ""),
    "/stores/{s}/memories/{m}/accept": ("", "POST", ""),
    "/stores/{s}/memories/{m}/delete": ("", "POST", ""),
    "/stores/{s}/memories/{m}/restore": ("", "POST", ""),
    "/stores/{s}/memories/{m}/redact": ("", "", "POST"),
    "/stores/{s}/memories/{m}/receipt": ("GET", "", ""),
    "/stores/{s}/versions/{v}": ("GET", "", ""),
    "/stores/{s}/diff": ("GET", "", ""),
    "/agents": ("GET", "", ""),
    "/agents/{agent}": ("GET", "", ""),
    "/agents/{agent}/new": ("", "GET POST", ""),
    "/agents/{agent}/history": ("GET", "", ""),
    "/agents/{agent}/limits": ("GET", "", "POST"),
    "/agents/{agent}/export": ("GET", "", ""),
    ENTRY: ("GET", "POST", ""),
    f"{ENTRY}/accept": ("", "POST", ""),
    f"{ENTRY}/restore": ("", "POST", ""),
    f"{ENTRY}/forget": ("", "POST", ""),
    f"{ENTRY}/redact": ("", "", "POST"),
    "/agents/{agent}/hydration": ("GET", "", ""),
    "/agents/{agent}/hydration/text": ("GET", "", ""),
    "/people": ("GET", "", ""),
    "/people/{user}": ("GET", "", ""),
    "/people/{user}/turns": ("GET", "", ""),
    "/people/{user}/held": ("GET", "", ""),
    "/people/{user}/status": ("GET", "", ""),
    "/people/{user}/retry": ("", "POST", ""),
    "/people/{user}/remine": ("", "POST", ""),
    "/people/{user}/remember": ("", "GET POST", ""),
    "/people/{user}/export": ("GET", "", ""),
    "/people/{user}/recall": ("GET", "", ""),
    ITEM: ("GET", "POST", ""),
    f"{ITEM}/forget": ("", "POST", ""),
    f"{ITEM}/accept": ("", "POST", ""),
    f"{ITEM}/reject": ("", "POST", ""),
    TURN: ("GET", "", ""),
    f"{TURN}/accept": ("", "POST", ""),
    f"{TURN}/reject": ("", "POST", ""),
    f"{TURN}/forget": ("", "POST", ""),
    **{
        f"{above}/proposals{below}": needs
        for above in ("/people/{user}", "/stores/{s}", "/agents/{agent}")
        for below, needs in {
            "": ("GET", "POST", ""),
            "/{job}": ("GET", "", ""),
            "/{job}/accept": ("", "POST", ""),
            "/{job}/reject": ("", "POST", ""),
            "/{job}/undo": ("", "POST", ""),
        }.items()
    },
    "/runs": ("GET", "", ""),
    "/runs/live": ("GET", "", ""),
    "/runs/poll": ("GET", "", ""),
    "/runs/compare": ("GET", "", ""),
    "/runs/{run}": ("GET", "", ""),
    "/runs/{run}/live": ("GET", "", ""),
    "/runs/{run}/poll": ("GET", "", ""),
    "/runs/{run}/parts/{part}": ("GET", "", ""),
    "/runs/{run}/cancel": ("", "POST", ""),
    "/runs/{run}/steer": ("", "POST", ""),
    "/runs/{run}/fork": ("", "POST", ""),
    "/runs/{run}/delete": ("", "POST", ""),
    "/runs/{run}/questions/{question}": ("", "POST", ""),
    "/questions": ("GET", "", ""),
    "/questions/{question}": ("", "POST", ""),
    "/threads": ("GET", "", ""),
    "/threads/{thread}": ("GET", "", ""),
    "/threads/{thread}/delete": ("", "POST", ""),
    "/chat": ("GET", "", ""),
    "/chat/{thread}": ("GET", "POST", ""),
    "/chat/{thread}/answer": ("", "POST", ""),
    "/chat/{thread}/forget": ("", "POST", ""),
    "/sessions": ("GET", "", ""),
    "/sessions/{id}": ("GET", "", ""),
    "/sessions/{id}/archive": ("", "POST", ""),
    "/sessions/{id}/delete": ("", "POST", ""),
    "/sessions/{id}/tokens/{token}/revoke": ("", "POST", ""),
    "/keys": ("", "", "GET POST"),
    "/keys/{key}/revoke": ("", "", "POST"),
    "/activity": ("GET", "", ""),
    "/activity/live": ("GET", "", ""),
    "/activity/poll": ("GET", "", ""),
    "/health": ("GET", "", "POST"),
    "/health/checks": ("", "", "GET"),
    "/health/failed": ("", "", "GET"),
    "/health/verification": ("", "", "POST"),
    "/search": ("GET", "", ""),
    "/forget": ("", "", "GET POST"),
    "/forget/erasures/{erasure}": ("", "", "GET"),
    "/forget/erasures/{erasure}/receipt": ("", "", "GET"),
    "/forget/receipt": ("GET", "", ""),
}
NEEDS: Final = {
    f"{method} {path}": scope
    for path, by_scope in TABLE.items()
    for scope, methods in zip(RANK, by_scope, strict=True)
    for method in methods.split()
}
LIMITS = ("cap", "run_cap", "content_bytes", "budget", "daily_hours")
CHAT = {"message": "Hello.", "model": "scripted", "user": "", "agent": "chat"}
ENTRY_FIELDS = {"content": "z", "category": "core", "tags": ""}
ITEM_FIELDS = {"text": "Likes coffee", "kind": "fact", "importance": "0.5"}
CALLS: Final[dict[str, tuple[str, dict[str, str]]]] = {
    # Query and form of the requests that need one.
    "POST /stores": ("", {"name": "n", "description": ""}),
    "POST /stores/{s}/settings": ("", {"name": "n", "description": "", "metadata": ""}),
    "POST /stores/{s}/delete": ("", {"confirmation": "{end of s}"}),
    "POST /stores/{s}/versions/plan": ("", {"version": "{v}"}),
    "POST /stores/{s}/versions/put-back": ("", {"version": "{newest v}", "memory": "{m}"}),
    "POST /stores/{s}/new": ("", {"path": "/b.md", "content": "z"}),
    "POST /stores/{s}/memories/{m}": (
        "",
        {"path": "/a.md", "content": "z", "shown": "{sha256}"},
    ),
    "POST /stores/{s}/memories/{m}/restore": ("", {"version": "{v}"}),
    "POST /stores/{s}/memories/{m}/redact": ("", {"redact": "{v}", "confirmation": "{end of v}"}),
    "GET /stores/{s}/memories/{m}/receipt": ("?redact={redacted v}", {}),
    "GET /stores/{s}/diff": ("?from={v}&to={newest v}", {}),
    "POST /agents/{agent}/new": ("", {"key": "k", **ENTRY_FIELDS}),
    "POST /agents/{agent}/limits": ("", dict.fromkeys(LIMITS, "") | {"cap": "9"}),
    f"POST {ENTRY}": ("", {"shown": "{newest seq}", **ENTRY_FIELDS}),
    f"POST {ENTRY}/restore": ("", {"seq": "{seq}"}),
    f"POST {ENTRY}/forget": ("", {"confirmation": "key"}),
    f"POST {ENTRY}/redact": ("", {"redact": "{seq}", "confirmation": "change {seq}"}),
    "POST /people/{user}/remember": ("", ITEM_FIELDS),
    "GET /people/{user}/recall": ("?query=tea", {}),
    f"POST {ITEM}": ("", {"shown": "{item at}", **ITEM_FIELDS}),
    f"POST {ITEM}/forget": ("", {"confirmation": "{end of item}"}),
    f"POST {ITEM}/reject": ("", {"confirmation": "{end of held item}"}),
    f"POST {TURN}/forget": ("", {"confirmation": "{end of turn}"}),
    f"POST {TURN}/reject": ("", {"confirmation": "{end of held turn}"}),
    "POST /people/{user}/proposals/{job}/accept": ("", {"change": "{change}"}),
    "GET /runs/compare": ("?a={run}&b={ended run}", {}),
    "POST /runs/{run}/steer": ("", {"steer": "Faster."}),
    "POST /runs/{run}/fork": ("", {"changes": "shared:a=1"}),
    "POST /runs/{run}/delete": ("", {"confirmation": "{end of ended run}"}),
    "POST /runs/{run}/questions/{question}": ("", {"answer": "7"}),
    "POST /questions/{question}": ("", {"answer": "7"}),
    "POST /threads/{thread}/delete": ("", {"confirmation": "{end of thread}"}),
    "POST /chat/{thread}": ("", CHAT),
    "POST /chat/{thread}/answer": ("", CHAT),
    "POST /chat/{thread}/forget": ("", {"forget": "{item}"}),
    "POST /sessions/{id}/delete": ("", {"confirmation": "{end of session}"}),
    "POST /sessions/{id}/tokens/{token}/revoke": ("", {"confirmation": "{end of tid}"}),
    "POST /keys": ("", {"name": "n", "scope": "read"}),
    "POST /keys/{key}/revoke": ("", {"confirmation": "{end of api key}"}),
    "GET /search": ("?q=tea", {}),
    "POST /forget": ("?user=ada", {"confirmation": "ada"}),
    "GET /forget/receipt": ("?count=ltm_items:1&at=2026-01-01T00:00:00Z", {}),
}
OWN_IDS: Final = {
    # What a segment stands for on some paths alone, by the pattern of the route.
    r".* /stores/{s}/memories/{m}/accept": {"m": "held memory"},
    r".* /stores/{s}/memories/{m}/receipt": {"m": "redacted memory"},
    r".* /agents/.*/entries/{key}/accept": {"key": "held key"},
    r".* /people/{user}/items/": {"id": "item"},
    r".* /people/{user}/items/{id}/(accept|reject)": {"id": "held item"},
    r".* /people/{user}/turns/": {"id": "turn"},
    r".* /people/{user}/turns/{id}/(accept|reject)": {"id": "held turn"},
    r".* /people/{user}/proposals/": {"user": "consolidated user", "job": "consolidation"},
    r".* /people/{user}/proposals/{job}/undo": {"job": "accepted consolidation"},
    r".* /stores/{s}/proposals/": {"job": "consolidation of the store"},
    r".* /agents/{agent}/proposals/": {"job": "consolidation of the agent"},
    r"POST /runs/{run}/delete": {"run": "ended run"},
    r"POST /runs/{run}/questions/": {"run": "reported run"},
    r".* /sessions/": {"id": "session", "token": "tid"},
    r".* /keys/": {"key": "api key"},
}
ANY_BOND: Final = {"GET /", "GET /forget/receipt"}
NOT_DONE: Final = {
    # Admitted requests for what is not there in this world, with the status.
    "POST /chat/{thread}/forget": 404,
    **{
        f"POST {above}/proposals/{{job}}/{act}": status
        for above in ("/stores/{s}", "/agents/{agent}")
        for act, status in {"accept": 400, "undo": 409}.items()
    },
}
CHANGES_NOTHING: Final = {
    # The visitor is not there for the answer.
    "POST /chat/{thread}/answer",
    "POST /people/{user}/remine",
    "POST /people/{user}/retry",
    # The control of the run is in this process.
    "POST /runs/{run}/cancel",
    "POST /runs/{run}/steer",
    "POST /stores/{s}/versions/plan",
    "POST /health",
    "POST /health/verification",
}


def expected(name: str, visitor: Credential) -> Outcome:
    """Return what the page *name* answers to *visitor*."""
    needs, (method, path) = NEEDS[name], name.split()
    if visitor.everywhere is not None:
        return visitor.everywhere
    if visitor.cookie is None:
        return 401 if method == "POST" else 303
    if visitor.bound and not _bond_reaches(name, path, visitor):
        return 403
    if RANK[visitor.scope] < RANK[needs]:
        return 403
    if visitor.user is not None and path.startswith(("/questions/{question}", "/chat/{thread}")):
        # They are not of this user.
        return "absent"
    return "admitted" if visitor.home else "absent"


def _bond_reaches(name: str, path: str, visitor: Credential) -> bool:
    if name in ANY_BOND:
        return True
    if path.startswith("/chat"):
        return visitor.agent is not None and visitor.user is not None
    if path.startswith("/questions"):
        return visitor.user is not None
    if "/proposals" in path:
        # The jobs are of another person.
        own = path == "/people/{user}/proposals"
        return own and visitor.user == "ada"
    if path.startswith("/agents/{agent}"):
        return visitor.agent == "agent_7"
    return path.startswith("/people/{user}") and visitor.user == "ada"


def name_of(route: ConsoleRoute) -> str:
    return f"{route.method} {route.path}"


def filled(text: str, name: str, ids: dict[str, str]) -> str:
    """Return *text* with the ids of objects for its `{names}`."""
    own: dict[str, str] = {}
    for pattern, names in OWN_IDS.items():
        if re.match(pattern, name):
            own |= {each: ids[kind] for each, kind in names.items()}
    known = ids | own
    for each, value in known.items():
        text = text.replace(f"{{{each}}}", value).replace(f"{{end of {each}}}", value[-6:])
    return text


def sent(place: World, route: ConsoleRoute, headers: dict[str, str]) -> Said:
    """Return the response to the request for *route* that succeeds for an administrator."""
    name, ids = name_of(route), dict(place.ids)
    query, fields = CALLS.get(name, ("", {}))
    form = {key: filled(value, name, ids) for key, value in fields.items()}
    target = "/console" + filled(route.path.rstrip("/") + query, name, ids)
    if route.method == "GET":
        return Asker(place.app, place.runner, {"accept": "text/html", **headers})("GET", target)
    own = {
        "content-type": "application/x-www-form-urlencoded",
        "sec-fetch-site": "same-origin",
        "origin": ORIGIN,
    }
    body = urlencode(form).encode()
    return Asker(place.app, place.runner, {**own, **headers})("POST", target, body)


def headers_of(visitor: Credential) -> dict[str, str]:
    """Return what a browser of *visitor* sends."""
    if visitor.cookie is None:
        return dict(visitor.headers)
    cookie = {"cookie": f"holdfast_session={visitor.cookie}"}
    return cookie | {k: v for k, v in visitor.headers.items() if k != "x-api-key"}


def visitors(place: World) -> list[Credential]:
    """Return those who signed in with each key, and those who did not."""
    found = [each for each in place.credentials if each.cookie is not None]
    admin = found[-1]
    unsigned = [
        each
        for each in place.credentials
        if each.cookie is None and each.everywhere is None and "cookie" not in each.headers
    ]
    # What the console gave, and no longer or in no such place.
    begin, end = place.app.state.sign_ins.begin, place.app.state.sign_ins.end
    ended = begin(admin.headers["x-api-key"])
    assert ended is not None
    end(ended)
    key = place.app.state.hf.keys.create("revoked", "admin")
    revoked = begin(str(key.secret))
    place.app.state.hf.keys.revoke(key.id)
    cookies = {
        "unknown cookie": "x" * 43,
        "empty cookie": "",
        "key as a cookie": admin.headers["x-api-key"],
        "lapsed cookie": place.ids["lapsed cookie"],
        "cookie after signing out": ended,
        "cookie of a revoked key": str(revoked),
    }
    unsigned += [
        Credential(name=name, headers={"cookie": f"holdfast_session={cookie}"})
        for name, cookie in cookies.items()
    ]
    unsigned.append(
        Credential(name="cookie of another name", headers={"cookie": f"session={admin.cookie}"})
    )
    foreign = Credential(
        name="admin for a foreign host",
        headers={"host": "a.test"},
        everywhere=421,
        cookie=admin.cookie,
    )
    # Tokens are no keys: they cannot sign in.
    tokens = [each.headers["authorization"] for each in place.credentials if each.token]
    assert [begin(each.removeprefix("Bearer ")) for each in tokens] == [None] * len(tokens)
    return [*found, *unsigned, foreign]


CROSS_SITE: Final = {
    "cross-site": {"sec-fetch-site": "cross-site"},
    "same-site": {"sec-fetch-site": "same-site"},
    "by the address bar": {"sec-fetch-site": "none"},
    "foreign origin": {"sec-fetch-site": "", "origin": "http://a.test"},
}


@pytest.fixture(scope="module")
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, clock: FrozenClock) -> Iterator[World]:
    """Give a world in a file."""
    with world(str(tmp_path_factory.mktemp("world") / "world.db"), clock) as place:
        yield place


@pytest.fixture(scope="module")
def routes(place: World) -> tuple[ConsoleRoute, ...]:
    console = place.app.site
    assert isinstance(console, Console)
    return console.routes()


def fault_of(said: Said, outcome: Outcome, visitor: Credential, name: str) -> str:
    """Return what is wrong with an answer, '' if nothing is."""
    shown = marks_in(said.body, *(value.encode() for value in said.headers.values()))
    away = said.headers.get("location", "").startswith("/console/sign-in")
    match outcome:
        case "admitted":
            done = NOT_DONE.get(name)
            right = said.status in ({200, 303} if done is None else {done}) and not away
        case "absent":
            right = said.status < 500 and said.status not in {401, 421} and not away
        case 303:
            right = said.status == 303 and away
        case status:
            right = said.status == status
    if not right:
        return f"{said.status} instead of {outcome}: {text_of(said)[:300]}"
    return f"shows {unseen}" if (unseen := shown - visitor.sees) else ""


def text_of(said: Said) -> str:
    main = said.body.decode("utf-8", "replace").partition("<main")[2]
    return " ".join(re.sub(r"<[^>]*>", " ", main).split())


def test_every_page_has_a_row(routes: tuple[ConsoleRoute, ...]) -> None:
    assert {name_of(each) for each in routes} == NEEDS.keys()
    assert NEEDS.keys() >= set(CALLS) | ANY_BOND | set(NOT_DONE) | CHANGES_NOTHING


def test_each_page_refuses_each_visitor_who_lacks_the_right(
    place: World, routes: tuple[ConsoleRoute, ...]
) -> None:
    """Try all but the forms that are carried out."""
    faults, cells, watch = list[str](), 0, Watch(place.database)
    everyone = visitors(place)
    admin = next(each for each in everyone if each.name == "admin key")
    watch.changed()
    for route in routes:
        name = name_of(route)
        tries: list[tuple[str, dict[str, str], Outcome, Credential]] = [
            (visitor.name, headers_of(visitor), expected(name, visitor), visitor)
            for visitor in everyone
        ]
        if route.method == "POST":
            tries += [
                (f"admin {how}", headers_of(admin) | headers, 403, admin)
                for how, headers in CROSS_SITE.items()
            ]
        for who, headers, outcome, visitor in tries:
            if outcome == "admitted" and route.method == "POST":
                continue
            said = sent(place, route, headers)
            fault = fault_of(said, outcome, visitor, name)
            changed = watch.changed()
            if not fault and changed and (outcome != "admitted" or visitor.reads):
                fault = f"changes {changed}"
            if fault:
                faults.append(f"{name}, {who}: {fault}")
            cells += 1
    counted("authorisation", cells, door="console", engine=place.database.dialect)
    assert not faults, "\n".join(faults)
    assert place.control.asked == []
    assert cells > 3_000


def test_each_form_is_carried_out_for_each_visitor_who_has_the_right(
    place: World, routes: tuple[ConsoleRoute, ...], tmp_path: Path, clock: FrozenClock
) -> None:
    """Try each form on a copy, first by the visitor with the least rights."""
    faults, cells, idle = list[str](), 0, set[str]()
    signed_in = [each for each in place.credentials if each.cookie is not None]
    for route in routes:
        name = name_of(route)
        if route.method == "GET":
            continue
        with copied(place, tmp_path, clock) as copy:
            watch, done = Watch(copy.database), False
            for visitor in signed_in:
                if expected(name, visitor) != "admitted":
                    continue
                said = sent(copy, route, headers_of(visitor))
                if not done:
                    fault, done = fault_of(said, "admitted", visitor, name), True
                    if not watch.changed():
                        idle.add(name)
                else:
                    # What the first did may be no more to do.
                    refused = said.status in {401, 403, 421} or said.status >= 500
                    fault = f"{said.status}: {text_of(said)[:300]}" if refused else ""
                if fault:
                    faults.append(f"{name}, {visitor.name}: {fault}")
                cells += 1
    counted("authorisation", cells, door="console", engine=place.database.dialect)
    assert not faults, "\n".join(faults)
    assert idle == CHANGES_NOTHING | set(NOT_DONE)
