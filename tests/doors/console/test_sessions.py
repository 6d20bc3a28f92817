"""Pages of sessions with their tokens, and of API keys."""

from collections.abc import Callable

import pytest
from doors.console.client import HOSTILE, ConsoleClient

import holdfast
from holdfast.doors.console.app import Console
from holdfast.doors.http.app import make_app
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import SessionRecord

SignedIn = Callable[..., ConsoleClient]
UNKNOWN = f"sesn_{'0' * 24}"


@pytest.fixture
def store(hf: Holdfast) -> str:
    return hf.memory_stores.create(name="Team notes", description="What the team knows").id


def begin(hf: Holdfast, store: str | None = None, **given: str) -> SessionRecord:
    resources = [
        {
            "type": "memory_store",
            "memory_store_id": store,
            "access": "read_only",
            "instructions": given.pop("instructions", "Look here first"),
        }
    ]
    title = given.pop("title", "Weekly report")
    return hf.sessions.create(
        agent=given.pop("agent", "agent_7"),
        environment_id="env",
        title=title,
        metadata=given,
        resources=resources if store else [],
    )


# Sessions


def test_without_sessions_the_list_says_how_one_comes(visitor: ConsoleClient, store: str) -> None:
    assert "hf.sessions.create" in visitor.get("/console/sessions").text
    assert store in visitor.get(f"/console/sessions?store={store}").text


def test_the_list_shows_open_sessions_and_archived_ones_on_request(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    session, old = begin(hf), begin(hf, title="Old report")
    hf.sessions.archive(old.id)

    shown = visitor.get("/console/sessions")

    assert shown.named("table", aria_label="Sessions")
    assert f"/console/sessions/{session.id}" in shown.page.links
    assert "Old report" not in shown.text
    assert "Old report" in visitor.get("/console/sessions?archived=1").text


def test_the_list_has_the_sessions_of_one_store(
    hf: Holdfast, visitor: ConsoleClient, store: str
) -> None:
    begin(hf, store, title="With notes")
    begin(hf, title="Without")

    shown = visitor.get(f"/console/sessions?store={store}")

    assert "With notes" in shown.text
    assert "Without" not in shown.text
    assert visitor.get(f"/console/sessions?store=memstore_{'0' * 24}").status == 404


def test_all_sessions_are_reached_by_next_page(hf: Holdfast, visitor: ConsoleClient) -> None:
    made = {begin(hf).id for _ in range(70)}

    first = visitor.get("/console/sessions")
    (following,) = [each for each in first.named("a") if "data-next" in each]
    second = visitor.get(str(following["href"]))

    links = [*first.page.links, *second.page.links]
    assert {each.rpartition("/")[2] for each in links if "/sesn_" in each} == made


def test_a_session_shows_its_stores_tokens_writes_and_note(
    hf: Holdfast, visitor: ConsoleClient, store: str
) -> None:
    session = begin(hf, store, team="search")
    token = hf.sessions.create_token(session.id)

    shown = visitor.get(f"/console/sessions/{session.id}")

    assert shown.named("h1")
    for text in (
        "Weekly report",
        "read only",
        "Look here first",
        "search",
        "agent_7",
        token.id[-6:],
    ):
        assert text in shown.text
    assert f"/console/stores/{store}/versions?session_id={session.id}" in shown.page.links
    assert hf.sessions.note(session.id).splitlines()[0] in shown.text
    assert str(token.token) not in shown.html


def test_a_session_without_stores_and_tokens_says_so(hf: Holdfast, visitor: ConsoleClient) -> None:
    session = begin(hf)

    shown = visitor.get(f"/console/sessions/{session.id}")

    assert "attaches no store" in shown.text
    assert "hf.sessions.create_token" in shown.text


def test_a_store_that_was_deleted_is_named_and_not_linked(
    hf: Holdfast, visitor: ConsoleClient, store: str
) -> None:
    session = begin(hf, store)
    hf.memory_stores.delete(store)

    shown = visitor.get(f"/console/sessions/{session.id}")

    assert "Team notes" in shown.text
    assert not [each for each in shown.page.links if store in each]


def test_an_unknown_session_is_not_found(visitor: ConsoleClient) -> None:
    assert visitor.get(f"/console/sessions/{UNKNOWN}").status == 404
    for act in ("archive", "delete"):
        assert visitor.post(f"/console/sessions/{UNKNOWN}/{act}").status == 404


def test_archiving_ends_a_session_and_its_tokens(hf: Holdfast, visitor: ConsoleClient) -> None:
    session = begin(hf)
    hf.sessions.create_token(session.id)

    shown = visitor.follow(visitor.post(f"/console/sessions/{session.id}/archive"))

    assert "The session was archived" in shown.text
    assert hf.sessions.retrieve(session.id).archived_at is not None
    assert not shown.named("form", action=f"/console/sessions/{session.id}/archive")


def test_a_token_is_revoked_by_the_end_of_its_id_alone(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    session = begin(hf)
    token, other = (hf.sessions.create_token(session.id) for _ in range(2))
    target = f"/console/sessions/{session.id}/tokens/{token.id}/revoke"
    assert visitor.get(f"/console/sessions/{session.id}?revoke={token.id}").named("dialog")

    wrong = visitor.post(target, {"confirmation": other.id[-6:]})
    assert wrong.status == 400
    assert wrong.named("input", name="confirmation", aria_invalid="true")
    assert len(hf.sessions.list_tokens(session.id)) == 2

    visitor.post(target, {"confirmation": token.id[-6:]})
    assert [each.id for each in hf.sessions.list_tokens(session.id)] == [other.id]


@pytest.mark.parametrize("title", ["Weekly report", "Wöchentlicher Bericht", None])
def test_a_session_is_deleted_by_its_title_or_the_end_of_its_id(
    hf: Holdfast, visitor: ConsoleClient, title: str | None
) -> None:
    session = hf.sessions.create(agent="agent_7", environment_id="env", title=title)
    right = title if title and title.isascii() else session.id[-6:]
    assert right in visitor.get(f"/console/sessions/{session.id}?confirm=delete").text
    target = f"/console/sessions/{session.id}/delete"

    assert visitor.post(target, {"confirmation": "yes", "confirm": "delete"}).status == 400
    assert hf.sessions.retrieve(session.id)

    shown = visitor.follow(visitor.post(target, {"confirmation": right, "confirm": "delete"}))
    assert "The session was deleted" in shown.text
    assert not hf.sessions.list().data


def test_a_reader_sees_a_session_and_may_not_act(hf: Holdfast, signed_in: SignedIn) -> None:
    session = begin(hf)
    token = hf.sessions.create_token(session.id)
    reader = signed_in("read")

    shown = reader.get(f"/console/sessions/{session.id}?confirm=delete")

    assert shown.status == 200
    assert not shown.named("dialog")
    assert "Revoke" not in shown.text
    for act in ("archive", "delete", f"tokens/{token.id}/revoke"):
        refused = reader.post(
            f"/console/sessions/{session.id}/{act}", {"confirmation": "Weekly report"}
        )
        assert refused.status == 403
    assert hf.sessions.retrieve(session.id).archived_at is None


def test_a_bound_key_sees_no_session(hf: Holdfast, signed_in: SignedIn) -> None:
    session = begin(hf)
    bound = signed_in("admin", agent="helper")

    for page in ("sessions", f"sessions/{session.id}", "keys"):
        assert bound.get(f"/console/{page}").status == 403


# Keys


def test_without_keys_the_page_says_that_the_server_is_open(visitor: ConsoleClient) -> None:
    shown = visitor.get("/console/keys")

    assert "the server is open" in shown.text
    assert "holdfast keys create" in shown.text


def test_the_first_key_closes_the_server_and_signs_its_maker_in(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    assert "closes with it" in visitor.get("/console/keys?new=1").text

    shown = visitor.post(
        "/console/keys", {"name": "ops", "scope": "admin", "agent": "", "user": ""}
    )

    assert shown.status == 200
    assert shown.named("section", aria_labelledby="secret-title")
    (code,) = shown.named("code", id="secret")
    assert code is not None
    assert "You are signed in with this key" in shown.text
    assert shown.named("form", action="/console/sign-out")
    assert "Open server" not in shown.text
    assert "content-encoding" not in shown.headers
    after = visitor.get("/console/keys")
    assert after.status == 200
    assert not after.named("code", id="secret")
    assert "ops" in after.text
    (key,) = hf.keys.list()
    assert (key.name, key.scope, key.agent, key.user) == ("ops", "admin", None, None)


def test_a_first_key_that_is_no_admin_begins_no_sign_in(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    shown = visitor.post("/console/keys", {"name": "app", "scope": "read", "agent": "", "user": ""})

    assert "sign in with a key" in shown.text
    assert "holdfast_session" not in visitor.cookies
    assert visitor.get("/console/keys").status == 303
    assert len(hf.keys.list()) == 1


def test_an_admin_makes_bound_keys(hf: Holdfast, signed_in: SignedIn) -> None:
    admin = signed_in("admin")

    shown = admin.post(
        "/console/keys", {"name": "app", "scope": "write", "agent": "helper", "user": ""}
    )

    assert "The key was created." in shown.text
    assert "agent helper" in shown.text
    assert hf.keys.list()[0].agent == "helper"


@pytest.mark.parametrize(
    ("field", "value"), [("name", ""), ("scope", "owner"), ("agent", "a b"), ("user", "/")]
)
def test_a_refused_key_comes_back_with_what_was_typed(
    hf: Holdfast, visitor: ConsoleClient, field: str, value: str
) -> None:
    fields = {"name": "kept text", "scope": "read", "agent": "", "user": "", field: value}

    shown = visitor.post("/console/keys", fields)

    assert shown.status == 400
    assert shown.named("div", role="alert")
    if field != "name":
        assert shown.named("input", id="f-name", value="kept text")
    if field != "scope":
        assert shown.named("input", id=f"f-{field}", aria_invalid="true")
    assert not hf.keys.list()


def test_a_key_is_revoked_by_its_name_alone(hf: Holdfast, signed_in: SignedIn) -> None:
    admin = signed_in("admin")
    key = hf.keys.create("app")
    assert "app" in admin.get(f"/console/keys?revoke={key.id}").text

    wrong = admin.post(f"/console/keys/{key.id}/revoke", {"confirmation": "App"})
    assert wrong.status == 400
    assert wrong.named("dialog")
    assert hf.keys.list()[0].revoked_at is None

    shown = admin.follow(admin.post(f"/console/keys/{key.id}/revoke", {"confirmation": "app"}))
    assert "The key was revoked." in shown.text
    assert hf.keys.list()[0].revoked_at is not None


def test_who_revokes_the_own_and_last_admin_key_is_warned_and_signed_out(
    hf: Holdfast, signed_in: SignedIn
) -> None:
    admin = signed_in("admin")
    (key,) = hf.keys.list()

    shown = admin.get(f"/console/keys?revoke={key.id}")
    assert "You are signed in with this key" in shown.text
    assert "No other admin key is valid" in shown.text

    admin.post(f"/console/keys/{key.id}/revoke", {"confirmation": key.name})
    assert admin.get("/console/keys").location.startswith("/console/sign-in")


@pytest.mark.parametrize("scope", ["read", "write"])
def test_only_an_admin_sees_and_changes_keys(hf: Holdfast, signed_in: SignedIn, scope: str) -> None:
    other = signed_in(scope)
    (key,) = hf.keys.list()

    assert other.get("/console/keys").status == 403
    assert other.post("/console/keys", {"name": "x", "scope": "admin"}).status == 403
    refused = other.post(f"/console/keys/{key.id}/revoke", {"confirmation": key.name})
    assert refused.status == 403
    assert "Keys" not in [text.strip() for text in other.get("/console/sessions").page.texts]
    assert len(hf.keys.list()) == 1


def test_an_unknown_key_is_not_found(visitor: ConsoleClient) -> None:
    assert visitor.post(f"/console/keys/apikey_{'0' * 24}/revoke").status == 404


def test_all_keys_are_reached_by_next_page(hf: Holdfast, signed_in: SignedIn) -> None:
    made = {hf.keys.create(f"key {n}").id for n in range(110)}
    admin = signed_in("admin")

    seen: list[str] = []
    target: str | None = "/console/keys"
    while target:
        shown = admin.get(target)
        rows = [str(each["id"]) for each in shown.named("tr") if each.get("id")]
        assert len(rows) <= 50
        seen += rows
        target = next((a["href"] for a in shown.named("a") if "data-next" in a), None)

    assert len(seen) == len(set(seen)) == 111
    assert made < set(seen)


def test_hostile_texts_change_no_element(hf: Holdfast, signed_in: SignedIn) -> None:
    admin = signed_in("admin")

    def skeleton(text: str) -> list[list[str]]:
        store = hf.memory_stores.create(name=text, description=text)
        session = begin(hf, store.id, title=text, instructions=text, agent=text, note=text)
        key = hf.keys.create(text)
        token = hf.sessions.create_token(session.id)
        pages = (
            f"sessions?store={store.id}",
            f"sessions/{session.id}",
            f"sessions/{session.id}?confirm=delete",
            f"sessions/{session.id}?revoke={token.id}",
            f"keys?limit=1&revoke={key.id}",
        )
        shown = [admin.get(f"/console/{each}") for each in pages]
        assert {each.status for each in shown} == {200}
        return [each.skeleton for each in shown]

    plain = skeleton("plain")
    for text in HOSTILE:
        assert skeleton(text) == plain


def test_pages_are_the_same_on_postgresql(postgres_url: str, runner: object) -> None:
    with holdfast.open(postgres_url) as hf:
        app = make_app(hf, make_site=Console)
        visitor = ConsoleClient(app, runner)  # pyright: ignore[reportArgumentType] - the fixture
        session = begin(hf, hf.memory_stores.create(name="notes of postgres").id)
        token = hf.sessions.create_token(session.id)

        assert "Weekly report" in visitor.get("/console/sessions").text
        assert "notes of postgres" in visitor.get(f"/console/sessions/{session.id}").text
        revoked = visitor.post(
            f"/console/sessions/{session.id}/tokens/{token.id}/revoke",
            {"confirmation": token.id[-6:]},
        )
        assert "The token was revoked." in visitor.follow(revoked).text
        app.state.close()
