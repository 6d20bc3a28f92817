"""Sign-in, the cookie, rights, and requests of other sites."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from doors.console.client import ORIGIN, ConsoleClient

from holdfast.doors.console.app import BODY_BYTES, Console
from holdfast.doors.console.response import POLICY, STATUSES, frame, status_of
from holdfast.doors.console.visitors import safe_next
from holdfast.doors.http.app import make_app
from holdfast.doors.http.auth import host_policy
from holdfast.ground import errors
from holdfast.ground.events import Event
from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock

SignedIn = Callable[..., ConsoleClient]


def key_of(hf: Holdfast, scope: Any = "admin", **bound: str) -> str:
    secret = hf.keys.create(scope, scope=scope, **bound).secret
    assert secret is not None
    return secret


def test_an_open_server_needs_no_sign_in(visitor: ConsoleClient) -> None:
    shown = visitor.get("/console/stores")

    assert shown.status == 200
    assert "Open server" in shown.text
    assert visitor.get("/console/sign-in").location == "/console"


def test_a_browser_at_the_root_is_led_to_the_console(visitor: ConsoleClient) -> None:
    assert visitor.get("/").location == "/console"
    assert visitor.send("GET", "/", headers={"accept": "*/*"}).status == 200


def test_once_a_key_exists_pages_lead_to_the_sign_in(hf: Holdfast, visitor: ConsoleClient) -> None:
    key_of(hf)

    shown = visitor.get("/console/stores?archived=1")

    assert shown.location == "/console/sign-in?next=%2Fconsole%2Fstores%3Farchived%3D1"
    assert "API key" in visitor.follow(shown).text


def test_a_key_is_exchanged_for_a_cookie_that_only_the_console_gets(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    secret = key_of(hf)

    shown = visitor.post("/console/sign-in?next=/console/stores", {"key": f" {secret}\n"})

    assert shown.location == "/console/stores"
    (cookie,) = shown.cookies
    assert all(part in cookie for part in ("; HttpOnly", "; SameSite=Lax", "; Path=/console;"))
    assert "Secure" not in cookie
    assert secret not in cookie
    assert visitor.get("/console/stores").status == 200
    held = {"cookie": f"holdfast_session={visitor.cookies['holdfast_session']}"}
    assert visitor.send("GET", "/v1/memory_stores", headers=held).status == 401


def test_under_an_https_address_the_cookie_is_secure(
    hf: Holdfast, clock: FrozenClock, runner: asyncio.Runner
) -> None:
    policy = host_policy("127.0.0.1", public_url="https://memory.example")
    app = make_app(hf, clock=clock, make_site=Console, policy=policy)

    shown = ConsoleClient(app, runner).sign_in(key_of(hf))

    assert "; Secure" in shown.cookies[0]
    app.state.close()


@pytest.mark.parametrize("key", ["", "hf_wrong", "hfs_" + "x" * 43, "revoked"])
def test_each_wrong_key_gets_the_same_sentence(
    hf: Holdfast, visitor: ConsoleClient, key: str
) -> None:
    key_of(hf)
    if key == "revoked":
        made = hf.keys.create("gone", scope="admin")
        hf.keys.revoke(made.id)
        key = made.secret or ""
    denied: list[Event] = []
    hf.events.subscribe(denied.append, types=("access.denied",))

    shown = visitor.sign_in(key)

    assert shown.status == 401
    assert "The key is not known, or no longer valid." in shown.text
    assert "holdfast_session" not in visitor.cookies
    assert [each.data["status"] for each in denied] == [401]
    assert not key or key not in shown.html


def test_signing_out_ends_the_sign_in(hf: Holdfast, visitor: ConsoleClient) -> None:
    visitor.sign_in(key_of(hf))
    held = dict(visitor.cookies)

    assert visitor.post("/console/sign-out").location == "/console/sign-in"

    visitor.cookies = held
    assert visitor.get("/console/stores").status == 303


def test_revoking_the_key_ends_the_sign_in(hf: Holdfast, visitor: ConsoleClient) -> None:
    made = hf.keys.create("lent", scope="read")
    visitor.sign_in(made.secret or "")
    assert visitor.get("/console/stores").status == 200

    hf.keys.revoke(made.id)

    assert visitor.get("/console/stores").status == 303


def test_a_sign_in_is_over_twelve_hours_after_its_last_use(
    hf: Holdfast, visitor: ConsoleClient, clock: FrozenClock
) -> None:
    visitor.sign_in(key_of(hf))
    for _ in range(3):
        clock.tick(11 * 3_600)
        assert visitor.get("/console/stores").status == 200
        # When it was used is written without waiting, before what is written next.
        hf.memory_stores.create(name="written after it")

    clock.tick(12 * 3_600 + 1)

    assert visitor.get("/console/stores").status == 303


@pytest.mark.parametrize(
    "given",
    [
        "https://evil.example/console",
        "//evil.example/console",
        "/api/keys",
        "/consolex",
        "/console\\@evil.example",
        "/console/\r\nset-cookie: a=b",
        "javascript:alert(1)",
    ],
)
def test_the_sign_in_leads_nowhere_else(given: str) -> None:
    assert safe_next(given) == "/console"


def test_what_was_typed_is_there_again_after_a_lapsed_sign_in(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    store = hf.memory_stores.create(name="notes")
    secret = key_of(hf)
    fields = {"path": "/a.md", "content": "an hour of work"}

    asked = visitor.post(f"/console/stores/{store.id}/new", fields)
    assert asked.status == 401
    (kept,) = asked.named("input", name="kept")
    shown = visitor.post("/console/sign-in", {"key": secret, "kept": kept["value"] or ""})

    assert shown.status == 200
    assert "an hour of work" in shown.text
    assert len(hf.memory_stores.memories.list(store.id)) == 0
    assert visitor.get("/console/stores").status == 200


def test_writes_have_the_name_of_the_key_as_their_author(hf: Holdfast, signed_in: SignedIn) -> None:
    store = hf.memory_stores.create(name="notes")

    shown = signed_in("write").post(
        f"/console/stores/{store.id}/new", {"path": "/a.md", "content": "x"}
    )

    assert shown.status == 303
    (version,) = hf.memory_stores.memory_versions.list(store.id)
    assert version.created_by.to_wire() == {"type": "user_actor", "user_id": "user_write-key"}


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none"])
def test_a_form_of_another_site_changes_nothing(
    hf: Holdfast, visitor: ConsoleClient, site: str
) -> None:
    shown = visitor.post(
        "/console/stores", {"name": "x", "description": ""}, **{"sec-fetch-site": site}
    )

    assert shown.status == 403
    assert len(hf.memory_stores.list()) == 0


def test_a_form_without_a_referrer_has_the_origin_null(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    assert visitor.post("/console/stores", {"name": "x", "description": ""}, origin="null")

    assert [store.name for store in hf.memory_stores.list()] == ["x"]


@pytest.mark.parametrize(("origin", "status"), [(ORIGIN, 303), ("null", 403), ("", 403)])
def test_without_fetch_metadata_the_origin_must_be_the_server(
    hf: Holdfast, visitor: ConsoleClient, origin: str, status: int
) -> None:
    headers = {"origin": origin} if origin else {}

    shown = visitor.send("POST", "/console/stores", b"name=x&description=", headers=headers)

    assert shown.status == status
    assert len(hf.memory_stores.list()) == (1 if status == 303 else 0)


def test_a_foreign_host_is_refused_before_anything_is_looked_at(visitor: ConsoleClient) -> None:
    assert visitor.get("/console", host="evil.example").status == 421


def test_every_page_has_the_policy_and_is_not_cached(visitor: ConsoleClient) -> None:
    for target in ("/console/stores", "/console/missing", "/console/sign-in?next=/console"):
        headers = visitor.get(target).headers
        assert headers["content-security-policy"] == POLICY
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


def test_pages_are_compressed_where_the_browser_takes_it(visitor: ConsoleClient) -> None:
    shown = visitor.get("/console/stores", **{"accept-encoding": "gzip, br"})

    assert shown.headers["content-encoding"] == "gzip"
    assert "Stores" in shown.text
    assert "content-encoding" not in visitor.get("/console/stores").headers


def test_a_form_has_a_limit(visitor: ConsoleClient) -> None:
    shown = visitor.post("/console/stores", {"name": "x" * (BODY_BYTES + 1), "description": ""})

    assert shown.status == 413


def test_an_open_server_has_the_workspace_that_the_address_selects(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    hf.acting(workspace="lab").memory_stores.create(name="of the lab")

    assert "of the lab" in visitor.get("/console/stores?workspace=lab").text
    assert "of the lab" in visitor.get("/console/stores").text
    assert "of the lab" not in visitor.get("/console/stores?workspace=default").text


def test_a_read_key_sees_no_acts_and_may_not_do_them(hf: Holdfast, signed_in: SignedIn) -> None:
    store = hf.memory_stores.create(name="notes")
    reader = signed_in("read")

    assert "New store" not in reader.get("/console/stores").text
    assert reader.get("/console/stores").named("form", method="post") == [
        {"method": "post", "action": "/console/sign-out"}
    ]
    assert reader.get(f"/console/stores/{store.id}/new").status == 403
    refused = reader.post("/console/stores", {"name": "x", "description": ""})
    assert refused.status == 403
    assert "scope write" in refused.text
    assert len(hf.memory_stores.list()) == 1


def test_a_bound_key_sees_its_own_part_only(signed_in: SignedIn) -> None:
    bound = signed_in("write", agent="agent_7")

    assert bound.get("/console").location == "/console/agents/agent_7"
    assert bound.get("/console/stores").status == 403


def test_each_error_has_a_status_of_its_kind() -> None:
    kinds = [kind for kind, _ in STATUSES]
    roots = {each for each in vars(errors).values() if isinstance(each, type)}
    listed = {
        each
        for each in roots
        if issubclass(each, errors.HoldfastError) and any(issubclass(each, k) for k in kinds)
    }

    assert status_of(errors.NotFound("page", "x")) == 404
    # What only a program of the runtime, or a fault of ours, can raise is a failed page.
    assert {each.__name__ for each in roots - listed if issubclass(each, errors.HoldfastError)} == {
        "HoldfastError", "RunFailed", "StepFailed", "TaskFailed", "PlanFailed", "RunCancelled",
        "RunWaiting", "WaitTimeout", "EngineFault",
    }  # fmt: skip


def test_an_event_has_a_line_for_each_line_of_its_text_alone() -> None:
    sent = frame(3, "row", "<p>a\u2028b\x85c\r\nd\re</p>").decode()

    assert sent == "id: 3\nevent: row\ndata: <p>a\u2028b\x85c\ndata: d\ndata: e</p>\n\n"
