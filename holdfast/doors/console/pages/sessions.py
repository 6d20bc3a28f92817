"""Pages of sessions with their tokens, and of the API keys of a workspace."""

from itertools import dropwhile, islice
from typing import Any, Final, cast

from holdfast.doors.console.views import (
    ROWS_MOST,
    Answer,
    ConsoleRoute,
    Pager,
    PageView,
    Redirect,
    Visit,
    act,
    address,
    confirmation,
    page,
    pager,
)
from holdfast.ground.errors import NotFound
from holdfast.memories.stores.records import ApiKey, KeyScope, SessionRecord

SECTION: Final = "Sessions"
KEYS: Final = "Keys"
SCOPES: Final = ("read", "write", "admin")

DONE: Final = {
    "session-archived": "The session was archived, and its tokens are no longer valid.",
    "session-deleted": "The session was deleted, with its tokens.",
    "token-revoked": "The token was revoked.",
    "key-revoked": "The key was revoked.",
}


def title_of(session: SessionRecord) -> str:
    """Return what a page calls *session*: its title, else its id."""
    return session.title or session.id


def list_sessions(visit: Visit) -> Answer:
    """Show sessions, newest first, of one store if the address names it."""
    archived = visit.text("archived") == "1"
    store = visit.text("store")
    found = visit.hf.sessions.list(
        memory_store_id=store, include_archived=archived, limit=visit.limit, page=visit.page
    )
    values = {
        "sessions": found.data,
        "archived": archived,
        "store": None if store is None else visit.hf.memory_stores.retrieve(store),
        "pager": pager(visit, found, "sessions"),
    }
    return PageView(template="sessions.html", title="Sessions", section=SECTION, values=values)


def show_session(visit: Visit) -> Answer:
    """Show a session: its stores, its valid tokens, what it wrote, and its note."""
    session = visit.hf.sessions.retrieve(visit["id"])
    tokens = visit.hf.sessions.list_tokens(session.id)
    chosen = visit.segments.get("token") or visit.text("revoke")
    begin = visit.number("from", 0, least=0, most=10_000_000)
    after = address("sessions", session.id, **{"from": begin + ROWS_MOST})
    values = {
        "session": session,
        "there": visit.hf.memory_stores.sizes(each.memory_store_id for each in session.resources),
        "tokens": tokens[begin : begin + ROWS_MOST],
        "pager": Pager(
            address("sessions", session.id) if begin else None,
            after if len(tokens) > begin + ROWS_MOST else None,
        ),
        "revoked": next((each for each in tokens if each.id == chosen), None),
        "note": visit.hf.sessions.note(session.id),
        "token": confirmation(session.title or "", session.id),
        "deleted": "delete" in (visit.text("confirm"), visit.form.get("confirm")),
    }
    return PageView(
        template="session.html",
        title=title_of(session),
        section=SECTION,
        values=values,
        up=(("Sessions", address("sessions")),),
    )


def archive_session(visit: Visit) -> Answer:
    """Archive a session, which ends its tokens."""
    visit.hf.sessions.archive(visit["id"])
    return Redirect(address("sessions", visit["id"], done="session-archived"))


def delete_session(visit: Visit) -> Answer:
    """Delete a session, once it was confirmed."""
    session = visit.hf.sessions.retrieve(visit["id"])
    visit.confirm(confirmation(session.title or "", session.id))
    visit.hf.sessions.delete(session.id)
    return Redirect(address("sessions", done="session-deleted"))


def revoke_token(visit: Visit) -> Answer:
    """Revoke a token of a session, once it was confirmed."""
    visit.confirm(confirmation("", visit["token"]))
    visit.hf.sessions.revoke_token(visit["token"], session_id=visit["id"])
    return Redirect(address("sessions", visit["id"], done="token-revoked"))


# Keys


def list_keys(visit: Visit) -> Answer:
    """Show the keys of the workspace, newest first, revoked ones too."""
    return _keys_view(visit)


def _keys_view(
    visit: Visit, made: ApiKey | None = None, *, signed_in: bool = False, closed: bool = False
) -> PageView:
    keys = visit.hf.keys.list()
    shown, links = _page_of_keys(visit, keys)
    chosen = visit.segments.get("key") or visit.text("revoke")
    revoked = next((each for each in keys if each.id == chosen and not each.revoked_at), None)
    values: dict[str, Any] = {
        "keys": shown,
        "pager": links,
        "made": made,
        "signed_in": signed_in,
        "closed": closed,
        "scopes": SCOPES,
        "opens": visit.server.is_open(),
        "new": visit.text("new") == "1" or (visit.error is not None and chosen is None),
        "revoked": revoked,
        "token": confirmation(revoked.name, revoked.id) if revoked else "",
        "own": revoked is not None and revoked.id == visit.visitor.key_id,
        "last": revoked is not None and not _admins(keys, without=revoked.id),
    }
    return PageView(
        template="keys.html",
        title="Keys",
        section=KEYS,
        values=values,
        secret=made is not None,
        sign_in=made.secret if made is not None and signed_in else None,
        done="The key was created." if made is not None else None,
    )


def _page_of_keys(visit: Visit, keys: list[ApiKey]) -> tuple[list[ApiKey], Pager]:
    """Return the keys that follow the one that the address names, and the links."""
    after = visit.page
    rest = iter(keys)
    if after is not None:
        rest = islice(dropwhile(lambda each: each.id != after, rest), 1, None)
    shown = list(islice(rest, visit.limit + 1))
    more = len(shown) > visit.limit
    del shown[visit.limit :]
    limit = visit.text("limit")
    return shown, Pager(
        address("keys", limit=limit) if after is not None else None,
        address("keys", limit=limit, page=shown[-1].id) if more else None,
    )


def _admins(keys: list[ApiKey], *, without: str) -> bool:
    """Return whether a valid key but *without* may administer the workspace."""
    return any(
        each.scope == "admin" and not (each.revoked_at or each.agent or each.user)
        for each in keys
        if each.id != without
    )


def create_key(visit: Visit) -> Answer:
    """Create a key, and show its secret in this answer alone.

    The first key closes an open server, so the visitor is signed in with it if it is an admin's.
    """
    scope = visit.written("scope")
    agent, user = (visit.form.get(name, "").strip() or None for name in ("agent", "user"))
    opens = visit.server.is_open()
    made = visit.hf.keys.create(
        visit.written("name").strip(), scope=cast("KeyScope", scope), agent=agent, user=user
    )
    return _keys_view(visit, made, signed_in=opens and scope == "admin", closed=opens)


def revoke_key(visit: Visit) -> Answer:
    """Revoke a key, once it was confirmed."""
    id = visit["key"]
    key = next((each for each in visit.hf.keys.list() if each.id == id), None)
    if key is None:
        raise NotFound("key", id, next="List the keys that there are.")
    visit.confirm(confirmation(key.name, key.id))
    visit.hf.keys.revoke(key.id)
    return Redirect(address("keys", done="key-revoked"))


ROUTES: Final[tuple[ConsoleRoute, ...]] = (
    page("/sessions", list_sessions),
    page("/sessions/{id}", show_session),
    act("/sessions/{id}/archive", archive_session, again=show_session),
    act("/sessions/{id}/delete", delete_session, again=show_session),
    act("/sessions/{id}/tokens/{token}/revoke", revoke_token, again=show_session),
    page("/keys", list_keys, needs="admin"),
    act("/keys", create_key, needs="admin", again=list_keys),
    act("/keys/{key}/revoke", revoke_key, needs="admin", again=list_keys),
)
