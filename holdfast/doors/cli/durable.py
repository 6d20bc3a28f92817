"""Commands of `holdfast durable`."""

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, TypeVar

import typer
from msgspec import Struct

from holdfast.doors.cli.command import CommandContext, command
from holdfast.doors.cli.output import brief, put_bytes, put_json
from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.ground.text import one_line
from holdfast.memories.durable.hydration import Hydration
from holdfast.memories.durable.memory import DurableMemory
from holdfast.memories.durable.records import RANGES, DurableEntry, EntryChange
from holdfast.memories.durable.rules import similar_keys
from holdfast.memories.durable.wire import entry_to_wire, value_to_wire

T = TypeVar("T", bound=Struct)

PREVIEW = 80
"""Characters of a content that a table shows at most."""
NAMED = 20
"""Keys of omitted entries that are listed at most."""

Row = dict[str, Any]


def put_page(
    call: CommandContext,
    things: Sequence[T],
    row: Callable[[T], Row],
    next_page: str | None,
    to_json: Callable[[T], Row] = entry_to_wire,
    *,
    erased: int = 0,
) -> None:
    """Print a page of *things* as the server's JSON, or as a table.

    *row* makes a row of the table. *next_page* is the token of the next page. *erased* counts what
    was there at an earlier moment and was erased since.
    """
    if call.answer.as_json:
        gone = {"erased": erased} if erased else {}
        put_json({"data": [to_json(each) for each in things], "next_page": next_page, **gone})
        return
    shown = [row(each) for each in things]
    call.answer.many(shown, tuple(shown[0]) if shown else ())
    if erased:
        call.answer.text(f"Erased since: {erased:,}.", {})
    if next_page is not None:
        call.answer.text(f"There are more: --page {next_page}", {})


def row_of_entry(entry: DurableEntry) -> Row:
    """Return the row of *entry*."""
    return {
        "KEY": entry.key,
        "CATEGORY": entry.category,
        "UPDATED": _second(entry.updated_at),
        "SIZE": entry.size_bytes,
        "PREVIEW": preview(entry.content),
    }


def row_of_change(change: EntryChange) -> Row:
    """Return the row of *change*."""
    return {
        "SEQ": change.seq,
        "AT": _second(change.at),
        "OP": change.op,
        "KEY": change.key,
        "CATEGORY": change.category,
        "SIZE": change.size_bytes,
        "BY": str(change.actor),
    }


def preview(content: str) -> str:
    """Return the first `PREVIEW` characters of *content*, on one line.

    Escape sequences and control characters are removed: they could control a terminal.
    """
    return " ".join(one_line(content).split())[:PREVIEW]


def omitted_line(hydration: Hydration) -> str:
    """Return one line with the entries that *hydration* omitted."""
    if not hydration.omitted:
        return "Nothing was left out."
    keys = [one_line(each.key) for each in hydration.omitted]
    more = f", and {len(keys) - NAMED} more" if len(keys) > NAMED else ""
    return (
        f"Left out: {len(keys)} entries, {hydration.omitted_bytes:,} bytes:"
        f" {', '.join(keys[:NAMED])}{more}"
    )


def _second(instant: object) -> str:
    return brief(value_to_wire(instant))


durable_app = typer.Typer(rich_markup_mode=None)

MOST_LISTED = 1_000
_LONGEST = RANGES["content_bytes"][1]
_SPAN = re.compile(r"(\d{1,6})([smhd])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

Agent = Annotated[str, typer.Argument(metavar="AGENT", help="The agent's name.")]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The entry's key, exactly.")]
Category = Annotated[
    str | None, typer.Option("--category", metavar="C", help="Only this category.")
]
Limit = Annotated[
    int,
    typer.Option("--limit", metavar="N", min=1, max=MOST_LISTED, help="Most entries to show."),
]
Budget = Annotated[
    int | None,
    typer.Option(
        "--budget",
        metavar="N",
        min=0,
        max=RANGES["budget"][1],
        help="Bytes; the agent's own limit, unless given.",
    ),
]
At = Annotated[
    str | None, typer.Option("--at", metavar="T", help="As it was at this time (RFC 3339).")
]
Folder = Annotated[str, typer.Argument(metavar="DIR", help="A folder of Markdown files.")]


@command(durable_app, "list")
def list_all(
    call: CommandContext,
    agent: Agent,
    *,
    category: Category = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", metavar="T", help="Only with this tag; repeatable.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="S", help="Written since: 90m, 24h, 7d, or an instant."),
    ] = None,
    prefix: Annotated[
        str | None, typer.Option("--prefix", metavar="P", help="Only keys that begin so.")
    ] = None,
    query: Annotated[
        str | None, typer.Option("--query", metavar="Q", help="Only with all of these words.")
    ] = None,
    limit: Limit = 100,
    page: Annotated[
        str | None, typer.Option("--page", metavar="P", help="The page token of an earlier list.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All of them, page after page.")] = False,
    at: At = None,
) -> None:
    """List entries, newest first: the agent's own and what its workspace shares."""
    _demand_words(query, "--query")
    written, durable = _moment(since), call.hf.durable(agent)
    found = durable.list(category, tag or None, written, prefix, query, limit, page, at=at)
    entries = call.walk("Listing entries", found.all()) if every else found.data
    more = None if every else found.next_page
    put_page(call, entries, row_of_entry, more, erased=found.erased)


@command(durable_app, "get")
def get(call: CommandContext, agent: Agent, key: Key, at: At = None) -> None:
    """Show the entry under a key: the agent's own, or else the workspace's."""
    durable = call.hf.durable(agent)
    entry = durable.get(key, at=at)
    if entry is None:
        raise _absent(durable, key)
    fields = entry_to_wire(entry)
    if call.answer.as_json:
        call.answer.one(fields)
        return
    del fields["content"]
    call.answer.one(fields)
    call.answer.text("\n" + entry.content, {})


@command(durable_app, "set", creates=True)
def set_one(
    call: CommandContext,
    agent: Agent,
    key: Key,
    content: Annotated[
        str, typer.Argument(metavar="CONTENT|-", help="What to keep; - is standard input.")
    ] = "-",
    *,
    category: Annotated[
        str,
        typer.Option("--category", metavar="C", help="core, daily, workspace or one of your own."),
    ],
    tag: Annotated[
        list[str] | None, typer.Option("--tag", metavar="T", help="A tag; repeatable.")
    ] = None,
    subject: Annotated[
        str | None,
        typer.Option("--subject", metavar="U", help="The person with whom it is erased."),
    ] = None,
) -> None:
    """Write an entry whole, new or not."""
    text = _piped() if content == "-" else content
    durable = call.hf.durable(agent)
    stored = durable.set(key, text, category=category, tags=tag or (), subject=subject)
    call.answer.one(entry_to_wire(stored))


@command(durable_app, "accept")
def accept(call: CommandContext, agent: Agent, key: Key) -> None:
    """Release a held entry; its content counts as confirmed."""
    call.answer.one(entry_to_wire(call.hf.durable(agent).accept(key)))


@command(durable_app, "forget")
def forget(
    call: CommandContext,
    agent: Agent,
    key: Key,
    scope: Annotated[
        Literal["agent", "workspace", "run"] | None,
        typer.Option("--scope", metavar="S", help="agent or workspace; else the agent's first."),
    ] = None,
) -> None:
    """Forget a key: no byte of it stays."""
    durable = call.hf.durable(agent)
    if not durable.forget(key, scope=scope):
        raise _absent(durable, key)
    call.answer.one({"forgotten": True, "key": key})


@command(durable_app, "search")
def search(
    call: CommandContext,
    agent: Agent,
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="Words, each in key, content or a tag.")
    ],
    category: Category = None,
    limit: Limit = 100,
) -> None:
    """Find the entries that hold all of these words, newest first."""
    _demand_words(query, "QUERY")
    found = call.hf.durable(agent).list(category, query=query, limit=limit)
    put_page(call, found.data, row_of_entry, found.next_page)


@command(durable_app, "hydrate")
def hydrate(
    call: CommandContext,
    agent: Agent,
    budget: Budget = None,
    render: Annotated[
        bool, typer.Option("--render", help="Write the block for a prompt, exactly.")
    ] = False,
) -> None:
    """Show what the agent would see at a run's start, and what was left out."""
    hydration = call.hf.durable(agent).hydrate(budget)
    if render:
        put_bytes(hydration.render().encode())
    elif call.answer.as_json:
        call.answer.one(entry_to_wire(hydration))
    else:
        put_page(call, hydration.entries, row_of_entry, None)
        call.answer.text(omitted_line(hydration), {})


@command(durable_app, "explain")
def explain(call: CommandContext, agent: Agent, key: Key, budget: Budget = None) -> None:
    """Say why an entry is hydrated, or is not."""
    explanation = call.hf.durable(agent).explain(key, budget)
    call.answer.text(explanation.text, entry_to_wire(explanation))


@command(durable_app, "export")
def export(call: CommandContext, agent: Agent, folder: Folder) -> None:
    """Write the entries to a folder, a Markdown file for each."""
    call.answer.one(entry_to_wire(call.hf.durable(agent).export_markdown(folder)))


@command(durable_app, "import", creates=True)
def import_(
    call: CommandContext,
    agent: Agent,
    folder: Folder,
    *,
    mode: Annotated[
        Literal["upsert", "replace"],
        typer.Option("--mode", help="replace: forget what no file holds, too."),
    ] = "upsert",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done.")
    ] = False,
    rebind: Annotated[
        bool, typer.Option("--rebind", help="Take another agent's files as this one's.")
    ] = False,
) -> None:
    """Take in the Markdown files of a folder, all at once."""
    report = call.hf.durable(agent).import_markdown(folder, mode, dry_run=dry_run, rebind=rebind)
    call.answer.one(entry_to_wire(report))


@command(durable_app, "history")
def history(
    call: CommandContext,
    agent: Agent,
    key: Annotated[
        str | None, typer.Argument(metavar="KEY", help="Only this key, forgotten or not.")
    ] = None,
) -> None:
    """List what was done, newest first."""
    changes = call.hf.durable(agent).history(key, limit=MOST_LISTED).all()
    put_page(call, call.walk("Listing changes", changes), row_of_change, None)


@command(durable_app, "agents")
def agents(call: CommandContext) -> None:
    """List the agents that have durable memory."""
    every = call.walk("Listing agents", call.hf.durable_agents(limit=MOST_LISTED).all())
    call.answer.many(map(entry_to_wire, every), ("agent", "entries", "size_bytes", "last_write"))


@command(durable_app, "sweep")
def sweep(
    call: CommandContext,
    agent: Annotated[
        str | None, typer.Argument(metavar="AGENT", help="Only this agent's; default: all.")
    ] = None,
) -> None:
    """Remove expired entries and lapsed runs."""
    swept = call.hf.sweep() if agent is None else call.hf.durable(agent).sweep()
    call.answer.one(entry_to_wire(swept))


def _limit(name: str, says: str) -> Any:
    least, most = RANGES[name]
    option = "--" + name.replace("_", "-")
    return typer.Option(option, metavar="N", min=least, max=most, help=says)


@command(durable_app, "limits")
def limits(
    call: CommandContext,
    agent: Agent,
    *,
    cap: Annotated[int | None, _limit("cap", "Most entries.")] = None,
    run_cap: Annotated[int | None, _limit("run_cap", "Most entries of one run.")] = None,
    content_bytes: Annotated[int | None, _limit("content_bytes", "Longest content.")] = None,
    budget: Annotated[int | None, _limit("budget", "Bytes that are hydrated.")] = None,
    daily_hours: Annotated[
        int | None, _limit("daily_hours", "How long daily entries are kept.")
    ] = None,
    evict: Annotated[
        bool, typer.Option("--evict", help="Evict entries beyond a new cap, coldest first.")
    ] = False,
) -> None:
    """Show the limits of an agent, or set some."""
    given = {
        "cap": cap,
        "run_cap": run_cap,
        "content_bytes": content_bytes,
        "budget": budget,
        "daily_hours": daily_hours,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    if evict and cap is None:
        raise typer.BadParameter("goes with --cap", param_hint="--evict")
    call.creates = bool(changes)
    durable = call.hf.durable(agent)
    in_force = durable.set_limits(evict=evict, **changes) if changes else durable.limits()
    call.answer.one(entry_to_wire(in_force))


def _piped() -> str:
    """Return standard input as text.

    Raise InvalidInput if it is not UTF-8, or longer than a content may be.
    """
    content = sys.stdin.buffer.read(_LONGEST + 1)
    if len(content) > _LONGEST:
        raise InvalidInput("content", f"has more than {_LONGEST:,} bytes", limit=_LONGEST)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        reason = f"is not UTF-8 at byte {error.start:,}"
        raise InvalidInput("content", reason, next="An entry is text: convert it first.") from None


def _demand_words(query: str | None, named: str) -> None:
    if query is not None and not query.strip():
        raise typer.BadParameter("must have a word at least", param_hint=named)


def _moment(given: str | None) -> datetime | timedelta | None:
    """Parse *given* as a span back from now, or as an instant.

    An instant without a zone is UTC. Raise BadParameter if it is neither.
    """
    if not given:
        return None
    if found := _SPAN.fullmatch(given):
        return timedelta(**{_UNITS[found[2]]: int(found[1])})
    try:
        instant = datetime.fromisoformat(given.upper())
    except ValueError:
        reason = "must be a span such as 90m, 24h or 7d, or an instant as RFC 3339 has it"
        raise typer.BadParameter(reason, param_hint="--since") from None
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def _absent(durable: DurableMemory, key: str) -> NotFound:
    """Return NotFound for *key*, with similar keys that exist."""
    keys: Iterable[str] = (entry.key for entry in durable.list(limit=MOST_LISTED).all())
    meant = ", ".join(similar_keys(key, keys))
    return NotFound(
        "entry",
        key,
        next=f"Similar keys: {meant}." if meant else "holdfast durable list shows the keys.",
    )
