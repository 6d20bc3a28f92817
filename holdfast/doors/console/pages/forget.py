"""Pages that forget a person or an agent, and receipts of what was erased."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from importlib.metadata import version as release
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec import Struct

from holdfast.doors.console.views import (
    Answer,
    ConsoleRoute,
    Download,
    PageView,
    Visit,
    act,
    address,
    confirmation,
    page,
    pager,
)
from holdfast.ground.clock import to_rfc3339
from holdfast.ground.errors import Conflict, InvalidInput, NotFound
from holdfast.library.erasure.records import Mentions, ReceiptJSON, Unreached
from holdfast.memories.durable.records import AgentSummary
from holdfast.memories.longterm.records import Person

COUNTED: Final = 1_000
"""Runs and threads that are looked at before something is forgotten."""
COLLECTIONS: Final = 100
"""Collections of a person that are listed."""
_LISTED: Final = 100
_PARTS_MOST: Final = 200
_TEXT_MOST: Final = 200

_OUTSIDE: Final = frozenset({"sqlite-vec", "chroma", "qdrant", "pinecone"})
"""Vector providers outside the database, from which vectors are deleted in the background."""

_NOWHERE: Final = "no byte of it is left in the database's files"
_POSTGRES: Final = (
    "none in live tables and indexes; log segments until they are recycled, archives, base backups"
    " and standbys keep what they hold, and only the server's owner can clear them"
)

SECTION: Final = "People"
"""The entry of the menu of erasures, which has none of its own."""

DONE: Final[dict[str, str]] = {}


class ErasureReceipt(Struct, frozen=True, kw_only=True):
    """What was erased: ids, rows by table, when; `pending` is where bytes remain.

    It holds nothing of the content.
    """

    done: str
    ids: Sequence[str] = ()
    counts: Mapping[str, int]
    pending: Sequence[str] = ()
    further: Sequence[tuple[str, str]] = ()
    """What could not be reached, and who is mentioned elsewhere."""
    ledger: str | None = None
    """The erasure in the ledger, which has the receipt."""
    at: datetime


def pending_erasure(visit: Visit) -> tuple[str, ...]:
    """Return where bytes of what was erased remain; empty once no file has any."""
    return tuple(visit.hf.engine.scrub().pending)


def vectors_outside(
    visit: Visit, user: str, collections: Iterable[tuple[str, str | None]]
) -> tuple[str, ...]:
    """Return where vectors of *collections* of *user* are outside the database."""
    found = (
        visit.hf.longterm_data(user, namespace=namespace, workspace_id=workspace_id).status()
        for namespace, workspace_id in collections
    )
    providers = {each.vector_provider for each in found} & _OUTSIDE
    return tuple(
        f"vectors in {each}, outside the database: deleted in the background, within seconds"
        for each in sorted(filter(None, providers))
    )


def erasure_facts(visit: Visit, erasure: ErasureReceipt) -> list[tuple[str, str]]:
    """Return what a receipt says, for people."""
    left = "; ".join(erasure.pending)
    if not left:
        left = _POSTGRES if visit.hf.engine.dialect == "postgres" else _NOWHERE
    return [
        ("Done", erasure.done),
        *((("Ids", ", ".join(erasure.ids)),) if erasure.ids else ()),
        *((table, f"{rows:,}") for table, rows in erasure.counts.items()),
        ("Pending", left),
        *erasure.further,
        ("By", visit.visitor.actor.id),
        ("At", to_rfc3339(erasure.at)),
        ("Server", release("holdfast")),
    ]


def receipt_view(
    visit: Visit,
    erasure: ErasureReceipt,
    *,
    title: str,
    section: str,
    up: Sequence[tuple[str, str]],
) -> PageView:
    """Return the page with the receipt of *erasure*."""
    download = address(
        "forget",
        "receipt",
        done=erasure.done,
        id=list(erasure.ids),
        count=[f"{table}:{rows}" for table, rows in erasure.counts.items()],
        pending=list(erasure.pending),
        at=to_rfc3339(erasure.at),
    )
    values = {"facts": erasure_facts(visit, erasure), "download": download, "ledger": None}
    if erasure.ledger is not None:
        values |= {
            "download": address("forget", "erasures", erasure.ledger, "receipt"),
            "ledger": address("forget", "erasures", erasure.ledger),
        }
    return PageView(template="receipt.html", title=title, section=section, values=values, up=up)


def download_receipt(visit: Visit) -> Answer:
    """Give a receipt as JSON, from the facts in its address: the server keeps none."""
    counts: dict[str, int] = {}
    for each in visit.ticks("count")[:_PARTS_MOST]:
        table, _, rows = each.rpartition(":")
        if not (table.replace("_", "").isalnum() and table.isascii() and rows.isdecimal()):
            raise InvalidInput("count", "must be a table and its rows, such as ltm_items:3")
        counts[table] = int(rows[:18])
    try:
        at = datetime.fromisoformat(visit.text("at") or "")
    except ValueError:
        raise InvalidInput("at", "must be an instant in RFC 3339") from None
    receipt = {
        "type": "erasure_receipt",
        "done": (visit.text("done") or "erased")[:_TEXT_MOST],
        "ids": [each[:_TEXT_MOST] for each in visit.ticks("id")[:_PARTS_MOST]],
        "counts": counts,
        "pending": [each[:_TEXT_MOST] for each in visit.ticks("pending")[:_PARTS_MOST]],
        "limits": _POSTGRES if visit.hf.engine.dialect == "postgres" else None,
        "by": visit.visitor.actor.id,
        "at": at.isoformat(),
        "server": release("holdfast"),
    }
    body = msgspec.json.format(msgspec.json.encode(receipt), indent=2)
    return Download(name="receipt.json", type="application/json", body=body)


# A person or an agent, whole


def show_forget(visit: Visit) -> Answer:
    """Show what is known of a person or an agent, what stays, and the confirmation.

    Of neither it is the ledger of erasures.
    """
    if not (visit.text("user") or visit.text("agent")):
        return list_erasures(visit)
    user, agent = _named(visit)
    values: dict[str, Any] = {
        "user": user,
        "agent": agent,
        "name": user or agent,
        "token": _token(user or agent or ""),
        "action": address("forget", user=user, agent=agent),
        "back": address("people", user) if user else address("agents", agent or ""),
        "known": _known_of_user(visit, user) if user else _known_of_agent(visit, agent or ""),
    }
    section = "People" if user else "Agents"
    return PageView(
        template="forget.html", title="Forget", section=section, values=values, up=_up(user, agent)
    )


def _named(visit: Visit) -> tuple[str | None, str | None]:
    user, agent = visit.text("user"), visit.text("agent")
    if (user is None) == (agent is None):
        advice = "Open the person's or the agent's page, and go on from there."
        raise InvalidInput("user", "or agent must be given, one of them", next=advice)
    return user, agent


def _token(name: str) -> str:
    return confirmation(name, sha256(name.encode("utf-8", "replace")).hexdigest())


def _up(user: str | None, agent: str | None) -> tuple[tuple[str, str], ...]:
    if user is not None:
        return (("People", address("people")), (user, address("people", user)))
    return (("Agents", address("agents")), (agent or "", address("agents", agent or "")))


def _collections(visit: Visit, user: str) -> list[Person]:
    found = visit.hf.longterm_people(prefix=user, limit=COLLECTIONS)
    return [each for each in found.data if each.user == user]


def _known_of_user(visit: Visit, user: str) -> list[tuple[str, str, str | None]]:
    """Return what is known of *user*: what it is, how much, and where it is shown."""
    known: list[tuple[str, str, str | None]] = [
        (
            f"Collection {each.namespace}" + (f" of {each.workspace_id}" * bool(each.workspace_id)),
            f"{counted(each.items, 'item')}, {counted(each.turns, 'turn')}",
            address("people", user, namespace=each.namespace, workspace_id=each.workspace_id),
        )
        for each in _collections(visit, user)
    ]
    try:
        owned = len(visit.hf.threads.list(_LISTED, user=user).data)
    except InvalidInput:
        # Names of people are of any characters, those of owners of threads are not.
        owned = 0
    shown = f"{owned:,}" + (" or more" if owned == _LISTED else "")
    known.append(("Threads", shown, address("threads", user=user) if owned else None))
    links = visit.hf.subjects.list(user=user, limit=_LISTED)
    more = " or more" if links.next_page else ""
    return [*known, ("Linked objects", f"{len(links.data):,}{more}", None)]


def _known_of_agent(visit: Visit, agent: str) -> list[tuple[str, str, str | None]]:
    """Return what is known of *agent*: what it is, how much, and where it is shown."""
    there = _summary(visit, agent)
    entries = "none"
    if there is not None:
        amount = counted(there.entries, "entry", "entries")
        entries = f"{amount}, {counted(there.size_bytes, 'byte')}"
    runs = list(islice(visit.hf.runs.list(limit=_LISTED).all(), COUNTED))
    own = sum(each.agent == agent for each in runs)
    among = f"{own:,}" + (f" among the newest {COUNTED:,}" if len(runs) == COUNTED else "")
    return [
        ("Durable memory", entries, address("agents", agent)),
        ("Runs", among, address("runs")),
        ("Results in threads", "counted in the receipt", None),
    ]


def counted(number: int, one: str, several: str = "") -> str:
    """Return *number* with the noun *one*, or *several*."""
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


def _summary(visit: Visit, agent: str) -> AgentSummary | None:
    pages = visit.hf.durable_agents(limit=1_000).all()
    return next((each for each in pages if each.agent == agent), None)


def forget_owner(visit: Visit) -> Answer:
    """Forget a person or an agent in every memory, once confirmed; show the receipt."""
    user, agent = _named(visit)
    visit.confirm(_token(user or agent or ""))
    outside: tuple[str, ...] = ()
    if user:
        people = _collections(visit, user)
        outside = vectors_outside(visit, user, [(e.namespace, e.workspace_id) for e in people])
    report = visit.hf.forget_user(user) if user else visit.hf.forget_agent(agent or "")
    counts = {table: rows for table, rows in report.counts.items() if rows}
    if not counts:
        raise NotFound("person" if user else "agent", user or agent or "")
    erasure = ErasureReceipt(
        done=f"forgotten: {'person' if user else 'agent'} {user or agent}",
        counts=counts,
        pending=(*report.pending, *outside),
        further=(*_unreached(report.unreached), *_mentions(report.mentions)),
        ledger=report.receipt["id"] if report.receipt else None,
        at=visit.now,
    )
    up = _up(user, agent)[:1]
    section = "People" if user else "Agents"
    return receipt_view(visit, erasure, title="Forgotten", section=section, up=up)


def _unreached(copies: Iterable[Unreached]) -> list[tuple[str, str]]:
    """Return what an erasure could not reach, as facts."""
    return [
        (f"Not reached: {each.what}", f"{each.count:,} ({_words(each.reason)}), by the {each.who}")
        for each in copies
    ]


def _mentions(mentions: Mapping[str, Mentions]) -> list[tuple[str, str]]:
    """Return where names are mentioned in texts of others, as facts."""
    return [
        (f"Mentioned: {_words(place)}", f"{each.count:,}, not changed")
        for place, each in mentions.items()
        if each.count
    ]


def _words(name: str) -> str:
    return name.replace("_", " ")


# The ledger of erasures


def list_erasures(visit: Visit) -> Answer:
    """Show the erasures of the workspace, newest first."""
    found = visit.hf.erasures.list(visit.limit, visit.page)
    values = {
        "erasures": [(each, sum(each.counts.values())) for each in found.data],
        "pager": pager(visit, found, "forget"),
    }
    return PageView(template="erasures.html", title="Erasures", section=SECTION, values=values)


def show_erasure(visit: Visit) -> Answer:
    """Show one erasure; on request check its receipt, which changes nothing."""
    id = visit["erasure"]
    values: dict[str, Any] = {"id": id, "receipt": None, "check": None, "unreached": ()}
    values["waits"] = None
    values["user"], values["agent"] = visit.query.get("user", ""), visit.query.get("agent", "")
    try:
        receipt = visit.hf.erasures.receipt(id)
        values |= {"receipt": receipt, "unreached": _unreached(_copies(receipt))}
        if visit.text("verify") == "1":
            user, agent = visit.text("user"), visit.text("agent")
            values["check"] = visit.hf.erasures.verify(receipt, user=user, agent=agent)
    except Conflict as error:
        values["waits"] = error
    except InvalidInput as error:
        visit.error = error
    up = (("Erasures", address("forget")),)
    return PageView(template="erasure.html", title="Erasure", section=SECTION, values=values, up=up)


def _copies(receipt: ReceiptJSON) -> list[Unreached]:
    return msgspec.convert(receipt["unreached"], list[Unreached])


def give_receipt(visit: Visit) -> Answer:
    """Give the receipt of an erasure, as the ledger has it."""
    id = visit["erasure"]
    # Canonical: the file is checked byte by byte.
    body = msgspec.json.encode(visit.hf.erasures.receipt(id), order="sorted")
    return Download(name=f"{id}.json", type="application/json", body=body)


ROUTES: Final[tuple[ConsoleRoute, ...]] = (
    page("/forget", show_forget, needs="admin"),
    page("/forget/erasures/{erasure}", show_erasure, needs="admin"),
    page("/forget/erasures/{erasure}/receipt", give_receipt, needs="admin"),
    act("/forget", forget_owner, needs="admin", again=show_forget),
    page("/forget/receipt", download_receipt, bound="any"),
)
