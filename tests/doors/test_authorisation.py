"""Every route answers every kind of credential as the tables say, and does what it answers.

A refused request changes no row and shows no text; a key that reads changes nothing; what a bound
key or a token reads is its owner's. A route without a row in the tables fails.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, LiteralString, cast

import pytest
from doors.http.asking import Said
from doors.http.calls import ALWAYS_REFUSED, CALLS, filled, name_of
from doors.http.test_routes import CONTRACT, OURS, WITHOUT_SCOPE
from doors.http.test_session_tokens import REACHED
from doors.world import HERE, LAB, Credential, Watch, World, copied, marks_in, world
from torture.counts import counted

from holdfast.doors.http.app import routes
from holdfast.doors.http.request import HttpRoute
from holdfast.ground.scope import Scope
from holdfast.testing.fakes import FrozenClock

Outcome = int | Literal["admitted", "absent"]
"""A status of refusal, the success of the call, or that nothing of the workspace is there."""

RANK: Final = {"read": 0, "write": 1, "admin": 2}
NEEDS: Final = {
    f"{method} {path}": scope
    for path, by_scope in (CONTRACT | OURS).items()
    for scope, methods in zip(RANK, by_scope, strict=True)
    for method in methods.split()
} | {f"{method} {path}": needs for (method, path), needs in WITHOUT_SCOPE.items()}
BOUND: Final = {
    # The owner that a bound key needs, by the beginning of the path.
    "/api/durable/{agent}/": "agent",
    "/api/longterm/{user}": "user",
    "/api/questions": "named",
    "/api/import/{kind}": "user",
}
NEVER_BOUND: Final = {"PATCH /api/durable/{agent}/limits"}
"""Routes below these that no bound key may use."""
UNBOUND: Final = {"POST /api/import/{kind}": "admin"}
"""What a key needs that is not bound, where it is more."""
NAMES_A_USER: Final = {
    "GET /api/questions/{question}",
    "POST /api/questions/{question}/answer",
}
"""Routes of an object that names other users than the user's key."""
CHANGES_NOTHING: Final = {
    "POST /api/consolidations/{id}/cancel",
    "POST /api/erasures/{id}/verify",
    "POST /api/longterm/{user}/conversations",
    "POST /api/longterm/{user}/flush",
    "POST /api/longterm/{user}/import",
    "POST /api/longterm/{user}/recall",
    "POST /api/longterm/{user}/remine",
    "POST /api/longterm/{user}/retry",
    "POST /api/memory_stores/{s}/restore",
    # The control of the run is in this process.
    "POST /api/runs/{run}/cancel",
    "POST /api/runs/{run}/lease",
    "POST /api/runs/{run}/steer",
    "POST /api/sweep",
    "POST /api/threads/{id}/pop",
    "POST /v1/dreams/{id}/cancel",
    "PUT /api/runs/{run}/versions/{version}",
}
"""Requests that change no row here: they only read, or there is nothing to be done."""
SHOWS_NOTHING: Final = {
    "GET /",
    "GET /api/activity",
    "GET /api/consolidations/{id}/replay",
    "GET /api/definitions",
    "GET /api/durable/{agent}/entries/{key}/explanation",
    "GET /api/durable/{agent}/limits",
    "GET /api/erasures",
    "GET /api/erasures/{id}",
    "GET /api/events",
    "GET /api/longterm/{user}/status",
    "GET /api/me",
    "GET /api/memory_stores/sizes",
    "GET /api/networks",
    "GET /api/runs/{run}/compare",
    "GET /api/runs/{run}/messages",
    "GET /api/runs/{run}/parts",
    "GET /api/runs/{run}/versions",
    "GET /api/runs/{run}/versions/{version}",
    "GET /api/samples",
    "GET /api/sessions/{id}/tokens",
    "GET /api/settings/durable",
    "GET /api/settings/memory_stores",
    "GET /api/threads/{id}",
    "GET /healthz",
    "GET /metrics",
    "GET /openapi.json",
    "GET /readyz",
}
"""Reads that show no text: figures, settings, events, and what has no text here."""
ROUTES: Final = routes(strict=False)


def expected(name: str, credential: Credential) -> Outcome:  # noqa: PLR0911 - one rule a line
    """Return what the route *name* answers to *credential*."""
    needs, path = NEEDS[name], name.partition(" ")[2]
    if credential.everywhere is not None:
        return credential.everywhere
    if needs == "nothing":
        return "admitted"
    if credential.refusal is not None:
        return credential.refusal
    if needs == "any":
        return "admitted"
    if credential.token is not None:
        return "admitted" if _token_reaches(name, credential) else 403
    if credential.bound:
        if name in NEVER_BOUND or not _bond_reaches(path, credential):
            return 403
    else:
        needs = UNBOUND.get(name, needs)
    if RANK[credential.scope] < RANK[needs]:
        return 403
    hidden = credential.user is not None and name in NAMES_A_USER
    return "absent" if hidden or not credential.home else "admitted"


def _token_reaches(name: str, credential: Credential) -> bool:
    method, path = name.split()
    if (method, path) not in REACHED:
        return False
    if path.startswith(("/v1/sessions/", "/api/sessions/")):
        return credential.token == "own session"
    if credential.token == "read-only store":
        return method == "GET"
    return credential.token == "own session"


def _bond_reaches(path: str, credential: Credential) -> bool:
    for beginning, owner in BOUND.items():
        if path.startswith(beginning):
            match owner:
                case "agent":
                    return credential.agent == "agent_7"
                case "user":
                    return credential.user == "ada"
                case _:
                    return credential.user is not None
    return False


def requested(place: World, route: HttpRoute, credential: Credential) -> Said:
    """Return the response to the call of *route* that succeeds for an administrator."""
    query, body = CALLS.get(name_of(route), ("", None))
    if isinstance(body, str):
        body = filled(body, route, place.ids).encode()
    headers = {"holdfast-run": "run_1", "holdfast-run-token": place.ids["token"]}
    return place.asker(credential)(
        route.method,
        filled(route.path + query, route, place.ids),
        body,
        headers=headers if "{run_id}" in route.path else {},
    )


def fault_of(said: Said, outcome: Outcome, credential: Credential, *, succeeds: bool) -> str:
    """Return what is wrong with an answer, '' if nothing is."""
    shown = marks_in(said.body, *(value.encode() for value in said.headers.values()))
    match outcome:
        case "admitted":
            right = said.status in {200, 201, 202, 204} if succeeds else said.status == 400
        case "absent":
            right = said.status < 500 and said.status not in {401, 421}
        case status:
            right = said.status == status
    if not right:
        return f"{said.status} instead of {outcome}: {said.body[:300]!r}"
    return f"shows {unseen}" if (unseen := shown - credential.sees) else ""


def test_every_route_has_a_row() -> None:
    assert {name_of(each) for each in ROUTES} == NEEDS.keys()
    assert NEEDS.keys() >= set(CALLS) | CHANGES_NOTHING | SHOWS_NOTHING | NAMES_A_USER
    assert {f"{method} {path}" for method, path in REACHED} <= NEEDS.keys()


@pytest.fixture(scope="module")
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, clock: FrozenClock) -> Iterator[World]:
    """Give a world in a file."""
    with world(str(tmp_path_factory.mktemp("world") / "world.db"), clock) as place:
        yield place


def test_each_route_refuses_each_credential_without_the_right(
    place: World,
) -> None:
    """Try all but the writes that succeed."""
    faults, cells, quiet = list[str](), 0, set[str]()
    watch = Watch(place.database)
    for route in ROUTES:
        name, shown = name_of(route), set[str]()
        for credential in place.credentials:
            outcome = expected(name, credential)
            if outcome == "admitted" and route.method != "GET":
                continue
            said = requested(place, route, credential)
            fault = fault_of(said, outcome, credential, succeeds=True)
            changed = watch.changed()
            if not fault and changed and (outcome != "admitted" or credential.reads):
                fault = f"changes {changed}"
            if fault:
                faults.append(f"{name}, {credential.name}: {fault}")
            if outcome == "admitted":
                shown |= marks_in(said.body)
            cells += 1
        if route.method == "GET" and not shown:
            quiet.add(name)
    counted("authorisation", cells, door="http", engine=place.database.dialect)
    assert not faults, "\n".join(faults)
    assert place.control.asked == []
    assert quiet == SHOWS_NOTHING
    assert cells > 4_000


def test_each_write_is_done_for_each_credential_that_has_the_right(
    place: World, tmp_path: Path, clock: FrozenClock
) -> None:
    """Try each write on a copy, first by the credential with the least rights."""
    faults, cells, idle = list[str](), 0, set[str]()
    for route in ROUTES:
        name = name_of(route)
        if route.method == "GET":
            continue
        succeeds = name not in ALWAYS_REFUSED
        with copied(place, tmp_path, clock) as copy:
            watch, done = Watch(copy.database), False
            for credential in copy.credentials:
                if expected(name, credential) != "admitted":
                    continue
                said = requested(copy, route, credential)
                if route.path.startswith("/api/longterm/"):
                    copy.settle()
                changed = watch.changed()
                if not done:
                    fault = fault_of(said, "admitted", credential, succeeds=succeeds)
                    if not changed:
                        idle.add(name)
                    done = True
                else:
                    # What the first did may be no more to do.
                    refused = said.status in {401, 403, 421} or said.status >= 500
                    fault = f"{said.status}: {said.body[:200]!r}" if refused else ""
                if not fault and changed and credential.reads:
                    fault = f"changes {changed}"
                if fault:
                    faults.append(f"{name}, {credential.name}: {fault}")
                cells += 1
    counted("authorisation", cells, door="http", engine=place.database.dialect)
    assert not faults, "\n".join(faults)
    assert idle == CHANGES_NOTHING | ALWAYS_REFUSED


def test_on_postgresql_each_credential_that_is_admitted_sees_its_own(
    fresh_postgres_url: str, clock: FrozenClock
) -> None:
    """Try what depends on the database: reads, and requests from another workspace."""
    faults, cells = list[str](), 0
    with world(fresh_postgres_url, clock) as place:
        watch = Watch(place.database)
        for number, route in enumerate(ROUTES):
            name = name_of(route)
            for credential in place.credentials:
                outcome = expected(name, credential)
                # Refusals are the same for all routes: which credentials are valid is looked up.
                if isinstance(outcome, int) and number >= len(ROUTES) // 20:
                    continue
                if outcome == "admitted" and route.method != "GET":
                    continue
                said = requested(place, route, credential)
                fault = fault_of(said, outcome, credential, succeeds=True)
                changed = watch.changed()
                if not fault and changed and (outcome != "admitted" or credential.reads):
                    fault = f"changes {changed}"
                if fault:
                    faults.append(f"{name}, {credential.name}: {fault}")
                cells += 1
    counted("authorisation", cells, door="http", engine="postgres")
    assert not faults, "\n".join(faults)
    assert cells > 800


OF_AGENTS: Final = {
    *("durable_entries", "durable_agents", "durable_limits", "durable_changes"),
    *("durable_tombstones", "durable_runs", "durable_lanes", "durable_replays"),
}
"""Tables whose rows are of an agent, or with the agent '' of all."""
SHARED_BY_USERS: Final[set[str]] = set()
"""Tables of long-term memory that are not of one user."""


def test_on_postgresql_a_statement_reaches_the_rows_of_its_owners_alone_in_every_table(
    fresh_postgres_url: str, clock: FrozenClock
) -> None:
    """Run statements without a condition on the owner, as a fault of ours would be."""
    with world(fresh_postgres_url, clock) as place:
        engine, rows = place.app.state.hf.engine, place.database.named_rows()
        scopes = {
            "no owner": engine,
            "another workspace": engine.scoped(Scope(workspace=LAB, agent="*", user="*")),
            "another agent": engine.scoped(Scope(workspace=HERE, agent="agent_9", user="*")),
            "another user": engine.scoped(Scope(workspace=HERE, agent="*", user="mallory")),
        }
        faults = list[str]()
        for table, own in rows.items():
            for scope, scoped in scopes.items():
                reached = [each for each in own if is_reached(table, scope, each)]
                condition = f"{table} where workspace = '{HERE}'"
                read = cast("LiteralString", f"select workspace from {condition}")
                change = cast(
                    "LiteralString",
                    f"update {table} set workspace = workspace where workspace = '{HERE}'",
                )
                seen = len(scoped.rows(read))
                changed = scoped.write(lambda tx, change=change: tx.run(change))
                if (seen, changed) != (len(reached), len(reached)):
                    faults.append(
                        f"{table}, {scope}: reads {seen}, changes {changed} of {len(reached)}"
                    )
        policies = place.database.policies()
        cells = len(rows) * len(scopes)
    counted("authorisation", cells, door="row-level security", engine="postgres")
    assert not faults, "\n".join(faults)
    assert {table for table, *_ in policies} == rows.keys()
    # What a policy does not show it does not let be written.
    assert [each for each in policies if each.written not in {each.read, None}] == []


def is_reached(table: str, scope: str, row: Mapping[str, Any]) -> bool:
    """Return whether a statement with *scope* reaches *row* of *table*."""
    owner, of_user = row.get("owner"), str(row.get("type", "")).startswith("longterm.")
    match scope:
        case "another agent":
            if table == "changes":
                return owner is None or of_user
            return table not in OF_AGENTS or row["agent"] == ""
        case "another user":
            if table == "changes":
                return owner is None or not of_user
            return not table.startswith("ltm_") or table in SHARED_BY_USERS
        case _:
            return False
