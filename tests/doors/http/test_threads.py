"""Threads and the records of runs over HTTP: who reaches them, and what goes over the wire."""

from typing import Any

import pytest
from doors.http.asking import Asker

from holdfast.doors.http.app import routes
from holdfast.doors.http.request import HttpRoute
from holdfast.library.holdfast import Holdfast
from holdfast.testing.contracts.history import THREAD, ended, made, said

OURS = [
    each
    for each in routes(strict=False)
    if each.path.startswith("/api/threads")
    or (each.path in {"/api/runs", "/api/runs/{run}"} and each.method in {"GET", "PUT"})
]
RANK = {"read": 0, "write": 1, "admin": 2}
MIB = 1_048_576


def named(route: HttpRoute) -> str:
    return f"{route.method} {route.path}"


def asked(ask: Asker, route: HttpRoute) -> Any:
    id = "run_1" if "runs" in route.path else THREAD
    posted = {} if route.path.endswith("/pop") else {"turns": [made(5).export()]}
    bodies = {"POST": posted, "PUT": ended().export()}
    return ask(
        route.method, route.path.replace("{id}", id).replace("{run}", id), bodies.get(route.method)
    )


def holder(hf: Holdfast, ask: Asker, scope: str = "admin", **bound: str) -> Asker:
    key = hf.keys.create("k", scope, **bound)  # pyright: ignore[reportArgumentType] - one of them
    assert key.secret is not None
    return ask.as_(x_api_key=key.secret)


@pytest.fixture
def thread(hf: Holdfast) -> str:
    hf.threads.append(THREAD, [said("Hello.", "m1"), made()])
    hf.runs.put(ended())
    return THREAD


@pytest.mark.usefixtures("thread")
@pytest.mark.parametrize("route", OURS, ids=named)
@pytest.mark.parametrize("scope", RANK)
def test_a_key_reaches_as_far_as_its_scope(
    hf: Holdfast, ask: Asker, route: HttpRoute, scope: str
) -> None:
    status = asked(holder(hf, ask, scope), route).status

    assert (status == 200) == (RANK[scope] >= RANK[route.needs])
    assert status in {200, 403}


@pytest.mark.usefixtures("thread")
@pytest.mark.parametrize("route", OURS, ids=named)
def test_a_bound_key_reaches_none_of_it(hf: Holdfast, ask: Asker, route: HttpRoute) -> None:
    for bound in ({"agent": "writer"}, {"user": "ada"}):
        assert asked(holder(hf, ask, **bound), route).status == 403
    assert hf.threads.retrieve(THREAD).turns == 2


@pytest.mark.usefixtures("thread")
@pytest.mark.parametrize("route", OURS, ids=named)
def test_another_workspace_finds_nothing(hf: Holdfast, ask: Asker, route: HttpRoute) -> None:
    elsewhere = ask.as_(anthropic_workspace_id="elsewhere")

    said = asked(elsewhere, route)

    if route.method == "GET":
        assert said.status == (404 if "{" in route.path else 200)
        assert said.status == 404 or said.json()["data"] == []
    assert hf.threads.retrieve(THREAD).turns == 2


@pytest.mark.usefixtures("thread")
def test_a_thread_is_told_with_instants_of_three_digits(ask: Asker) -> None:
    assert ask.get(f"/api/threads/{THREAD}").json() == {
        "id": THREAD,
        "created_at": "2026-01-01T00:00:00.000Z",
        "updated_at": "2026-01-01T00:00:00.000Z",
        "turns": 2,
        "runs": 1,
        "user": None,
    }
    assert ask.get("/api/runs/run_1").json() == ended().export()


@pytest.mark.usefixtures("thread")
def test_turns_are_told_as_they_are_given(ask: Asker, hf: Holdfast) -> None:
    answer = ask.get(f"/api/threads/{THREAD}/turns").json()

    message, result = answer["data"]
    assert answer["next_page"] is None
    assert message["message"] == {
        "id": "m1",
        "content": "Hello.",
        "role": "user",
        "at": "2026-01-02T03:04:05.678Z",
    }
    assert result["result"] == made().export()
    assert result["at"] == result["result"]["created_at"]
    told = ask.post("/api/threads/copy/turns", {"turns": answer["data"]}).json()
    assert told == {"stored": ["m1", made().id], "duplicates": []}
    assert hf.threads.results("copy") == [made()]


def test_another_result_of_one_id_is_a_conflict_that_says_which(ask: Asker, thread: str) -> None:
    other = made(text="Else.")

    said = ask.post(f"/api/threads/{thread}/turns", {"turns": [other.export()]})

    assert (said.status, said.error["type"]) == (409, "conflict_error")
    assert (said.error["id"], said.error["stored"]) == (made().id, made().checksum)
    assert said.error["next"].startswith("Use a new run_id")


@pytest.mark.usefixtures("thread")
def test_a_deleted_thread_is_gone_and_again_is_nothing(ask: Asker) -> None:
    first, second = (ask("DELETE", f"/api/threads/{THREAD}").json() for _ in range(2))

    assert (first, second) == (
        {"id": THREAD, "deleted": True},
        {"id": THREAD, "deleted": False},
    )
    assert ask.get(f"/api/threads/{THREAD}").status == 404


@pytest.mark.parametrize(
    ("method", "target", "body", "field"),
    [
        ("POST", "/api/threads/t/turns", {}, "turns"),
        ("POST", "/api/threads/t/turns", {"turns": [], "more": 1}, "more"),
        ("POST", "/api/threads/t/turns", {"turns": 7}, "turns"),
        ("POST", "/api/threads/t/turns", {"turns": [{"kind": "else"}]}, "turns[0].kind"),
        ("GET", "/api/threads?kind=user", None, "kind"),
        ("GET", "/api/threads/t/turns?kind=else", None, "kind"),
        ("GET", "/api/threads/a%2Fb", None, "thread_id"),
        ("GET", "/api/runs?status=done", None, "status"),
        ("PUT", "/api/runs/run_2", ended().export(), "id"),
        ("PUT", "/api/runs/run_2", {"kind": "agent", "name": "ada"}, "started_at"),
    ],
)
def test_what_is_asked_wrongly_is_refused_by_its_field(
    ask: Asker, method: str, target: str, body: object, field: str
) -> None:
    said = ask(method, target, body)

    assert (said.status, said.error["field"]) == (400, field)


def test_a_record_needs_no_id_beside_that_of_the_path(ask: Asker, hf: Holdfast) -> None:
    body = {name: each for name, each in ended().export().items() if name != "id"}

    assert ask("PUT", "/api/runs/run_1", body).status == 200
    assert hf.runs.retrieve("run_1") == ended()


def test_turns_may_be_large_up_to_the_limit_of_a_body(ask: Asker, hf: Holdfast) -> None:
    large = [made(each).replace(input="x" * (10 * MIB)).export() for each in range(4)]

    within = ask.post("/api/threads/t/turns", {"turns": large[:2]})
    beyond = ask.post("/api/threads/t/turns", {"turns": large})

    assert within.status == 200
    assert (beyond.status, beyond.error["type"]) == (413, "request_too_large")
    assert hf.threads.retrieve("t").turns == 2


def test_what_became_of_turns_is_counted(ask: Asker, hf: Holdfast) -> None:
    def counted() -> dict[str, int]:
        lines = ask.get("/metrics").body.decode().splitlines()
        name = "holdfast_network_thread_turns_total{"
        found = (line.removeprefix(name).split("} ") for line in lines if line.startswith(name))
        return {labels: int(number) for labels, number in found}

    before = counted()
    hf.threads.append("t", [said(), made(0), made(1)])
    hf.threads.append("t", [made(1)])
    ask.post("/api/threads/t/turns", {"turns": [made(1, text="Else.").export()]})

    rises = {labels: number - before[labels] for labels, number in counted().items()}
    assert rises == {
        'kind="user",outcome="stored"': 1,
        'kind="user",outcome="duplicate"': 0,
        'kind="user",outcome="differs"': 0,
        'kind="result",outcome="stored"': 2,
        'kind="result",outcome="duplicate"': 1,
        'kind="result",outcome="differs"': 1,
        'kind="foreign",outcome="stored"': 0,
        'kind="foreign",outcome="duplicate"': 0,
        'kind="foreign",outcome="differs"': 0,
    }
