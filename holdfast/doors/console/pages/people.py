"""Pages of people: the list; items, turns, held rows and status of one."""

from typing import Any, Final, get_args

import msgspec

from holdfast.doors.console.text import plain
from holdfast.doors.console.views import (
    Answer,
    ConsoleRoute,
    Download,
    PageView,
    Redirect,
    Visit,
    act,
    address,
    page,
    pager,
)
from holdfast.ground.errors import InvalidInput, LongTermOff
from holdfast.library.longterm import NAMESPACE, is_disabled_here
from holdfast.memories.longterm.records import Kind, Remembered

SECTION: Final = "People"
KINDS: Final[tuple[str, ...]] = get_args(Kind)
COLLECTIONS: Final = 20
"""Collections of one person that its page names."""

DONE: Final = {
    "remembered": "The item is remembered.",
    "known": "That was known already: the item was refreshed.",
    "retried": "The failed jobs are queued again.",
    "queued": "The turns are queued to be mined.",
}

HELD: Final = {
    "ungrounded": "the turns that it cites do not say it",
    "instruction": "gives orders to a machine",
    "echo": "repeats what was recalled in the same session",
    "burst": "came with too many others at once",
    "canary": "came after a planted text was repeated",
}
"""Why a row is held, by its reason."""

_REFUSED: Final = {
    "secret": "holds what looks like a secret, so it is not stored",
    "blank": "must hold a sentence",
    "forgotten": "was forgotten before, so it is not stored again",
    "unconfirmed": "is not confirmed by its turns, so it is not stored",
    "over_limit": "is not stored: the collection is full of more important items",
}


def where(visit: Visit, *below: str, **query: object) -> str:
    """Return the address of a page of the person and collection that *visit* names."""
    place = {name: visit.query.get(name) for name in ("namespace", "workspace_id")}
    return address("people", visit["user"], *below, **place, **query)


def crumbs(visit: Visit, *, person: bool = True) -> tuple[tuple[str, str], ...]:
    """Return the links above a page of a person that the visitor may follow."""
    first = () if visit.visitor.bound else (("People", address("people")),)
    return (*first, (visit["user"], where(visit))) if person else first


def tabs(visit: Visit, current: str) -> list[tuple[str, str, bool]]:
    """Return the navigation of one person."""
    found = (
        ("Items", where(visit)),
        ("Turns", where(visit, "turns")),
        ("Held", where(visit, "held")),
        ("Proposals", where(visit, "proposals")),
        ("Recall", where(visit, "recall")),
        ("Status", where(visit, "status")),
    )
    return [(label, target, label == current) for label, target in found]


def place_of(visit: Visit) -> dict[str, Any]:
    """Return the namespace and workspace id of the collection that the address names."""
    return {
        "namespace": visit.text("namespace") or NAMESPACE,
        "workspace_id": visit.text("workspace_id"),
    }


def shared_values(visit: Visit, current: str) -> dict[str, Any]:
    """Return what every page of a person shows."""
    return {
        "user": visit["user"],
        "here": where(visit),
        "place": place_of(visit),
        "given": {name: visit.query.get(name, "") for name in ("namespace", "workspace_id")},
        "tabs": tabs(visit, current),
        "off": is_disabled_here(),
    }


def demand_on() -> None:
    """Raise LongTermOff where the server's variable switches long-term memory off."""
    if is_disabled_here():
        raise LongTermOff("server")


def list_people(visit: Visit) -> Answer:
    """Show who has a long-term memory, by name."""
    prefix = visit.query.get("prefix", "")
    found = visit.hf.longterm_people(prefix=prefix, limit=visit.limit, page=visit.page)
    values = {
        "people": found.data,
        "prefix": prefix,
        "usual": NAMESPACE,
        "pager": pager(visit, found, "people"),
    }
    return PageView(template="people.html", title="People", section=SECTION, values=values)


def show_person(visit: Visit) -> Answer:
    """Show the items of a person, newest first."""
    kind, superseded = visit.text("kind"), visit.text("superseded") == "1"
    data = visit.hf.longterm_data(visit["user"], **place_of(visit))
    found = data.list(
        kinds=[kind] if kind else None,
        query=visit.text("words"),
        include_superseded=superseded,
        limit=visit.limit,
        page=visit.page,
    )
    values = shared_values(visit, "Items") | {
        "items": found.data,
        "filters": {name: visit.query.get(name, "") for name in ("words", "kind")},
        "filtered": bool(kind or visit.text("words")),
        "superseded": superseded,
        "kinds": [("", "any"), *KINDS],
        "others": _others(visit),
        "status": data.status(),
        "pager": pager(visit, found, "people", visit["user"]),
    }
    return PageView(
        template="person.html",
        title=visit["user"],
        section=SECTION,
        values=values,
        up=crumbs(visit, person=False),
    )


def _others(visit: Visit) -> list[tuple[str, str, bool]]:
    """Return the collections of the person; none if the visitor may not see others."""
    if visit.visitor.bound:
        return []
    user, here = visit["user"], place_of(visit)
    found = [
        (each.namespace, each.workspace_id)
        for each in visit.hf.longterm_people(prefix=user, limit=COLLECTIONS).data
        if each.user == user
    ]
    if not [each for each in found if each != (here["namespace"], here["workspace_id"])]:
        return []
    return [
        (
            plain(f"{namespace} · {workspace_id}" if workspace_id else namespace),
            address("people", user, namespace=namespace, workspace_id=workspace_id),
            (namespace, workspace_id) == (here["namespace"], here["workspace_id"]),
        )
        for namespace, workspace_id in found
    ]


def list_turns(visit: Visit) -> Answer:
    """Show what a person and their agents said, newest first."""
    found = visit.hf.longterm_data(visit["user"], **place_of(visit)).list(
        "turns", query=visit.text("words"), limit=visit.limit, page=visit.page
    )
    values = shared_values(visit, "Turns") | {
        "turns": found.data,
        "words": visit.query.get("words", ""),
        "pager": pager(visit, found, "people", visit["user"], "turns"),
    }
    return PageView(
        template="turns.html", title="Turns", section=SECTION, values=values, up=crumbs(visit)
    )


def list_held(visit: Visit) -> Answer:
    """Show the items or turns that wait for a person, newest first."""
    what = visit.text("what") or "items"
    data = visit.hf.longterm_data(visit["user"], **place_of(visit))
    found = data.list(what, held=True, limit=visit.limit, page=visit.page)
    kinds = (("Items", where(visit, "held")), ("Turns", where(visit, "held", what="turns")))
    values = shared_values(visit, "Held") | {
        "what": what,
        "rows": found.data,
        "held": data.status().held,
        "reasons": HELD,
        "whats": [(label, target, label.lower() == what) for label, target in kinds],
        "pager": pager(visit, found, "people", visit["user"], "held"),
    }
    return PageView(
        template="person_held.html", title="Held", section=SECTION, values=values, up=crumbs(visit)
    )


def show_status(visit: Visit) -> Answer:
    """Show the state of a collection: sizes, mode of recall, jobs."""
    place = place_of(visit)
    memory = visit.hf.longterm(visit["user"], enabled=True, **place)
    data = memory or visit.hf.longterm_data(visit["user"], **place)
    values = shared_values(visit, "Status") | {"status": data.status()}
    return PageView(
        template="person_status.html",
        title="Status",
        section=SECTION,
        values=values,
        up=crumbs(visit),
    )


def retry_jobs(visit: Visit) -> Answer:
    """Queue failed jobs of background work again."""
    memory = visit.hf.longterm(visit["user"], enabled=True, **place_of(visit))
    if memory is None:
        raise LongTermOff("server")
    memory.retry()
    return Redirect(where(visit, "status", done="retried"))


def mine_again(visit: Visit) -> Answer:
    """Queue the turns that no job of mining has covered."""
    memory = visit.hf.longterm(visit["user"], enabled=True, **place_of(visit))
    if memory is None:
        raise LongTermOff("server")
    memory.remine()
    return Redirect(where(visit, "status", done="queued"))


def remember_form(visit: Visit) -> Answer:
    """Show the form of a new item."""
    demand_on()
    values = shared_values(visit, "Items") | {"kinds": KINDS}
    return PageView(
        template="item_new.html", title="Remember", section=SECTION, values=values, up=crumbs(visit)
    )


def remember(visit: Visit) -> Answer:
    """Remember the sentence of the form."""
    memory = visit.hf.longterm(visit["user"], enabled=True, **place_of(visit))
    if memory is None:
        raise LongTermOff("server")
    done = memory.remember(
        visit.written("text"), kind=visit.written("kind"), importance=written_share(visit)
    )
    if done.stored is None:
        raise _refused(done)
    code = "known" if done.outcome == "duplicate" else "remembered"
    return Redirect(where(visit, "items", done.stored.id, done=code))


def _refused(done: Remembered) -> InvalidInput:
    reason = _REFUSED.get(done.outcome, "was not stored")
    if done.reasons:
        reason = f"{reason} ({', '.join(done.reasons)})"
    return InvalidInput("text", reason, next="Change the text, and try again.")


def written_share(visit: Visit, name: str = "importance") -> float:
    """Return the number from 0 to 1 that a form holds; raise InvalidInput otherwise."""
    given = visit.written(name).strip()
    try:
        return float(given)
    except ValueError:
        raise InvalidInput(name, "must be a number from 0 to 1", given=given) from None


def export(visit: Visit) -> Answer:
    """Give every turn and item of a collection, a line each."""
    data = visit.hf.longterm_data(visit["user"], **place_of(visit))
    body = msgspec.json.Encoder().encode_lines(data.export())
    return Download(name=f"{visit['user']}.jsonl", type="application/x-ndjson", body=body)


_PERSON: Final = "/people/{user}"

ROUTES: Final[tuple[ConsoleRoute, ...]] = (
    page("/people", list_people),
    page(_PERSON, show_person, bound="user"),
    page(f"{_PERSON}/turns", list_turns, bound="user"),
    page(f"{_PERSON}/held", list_held, bound="user"),
    page(f"{_PERSON}/status", show_status, bound="user"),
    act(f"{_PERSON}/retry", retry_jobs, bound="user", again=show_status),
    act(f"{_PERSON}/remine", mine_again, bound="user", again=show_status),
    page(f"{_PERSON}/remember", remember_form, needs="write", bound="user"),
    act(f"{_PERSON}/remember", remember, bound="user", again=remember_form),
    page(f"{_PERSON}/export", export, bound="user"),
)
