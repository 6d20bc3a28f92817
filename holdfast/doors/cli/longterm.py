"""Commands of `holdfast ltm`, and `holdfast import` of files of other programs."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer
from msgspec import UNSET

from holdfast.doors.cli.command import CommandContext, command
from holdfast.doors.cli.durable import preview, put_page
from holdfast.doors.cli.output import Wire, bar, brief, print_table, put_bytes, put_json
from holdfast.ground.clock import to_rfc3339
from holdfast.ground.errors import InvalidInput, NotFound, NotPermitted
from holdfast.ground.permissions import create_file
from holdfast.ground.text import one_line
from holdfast.memories.longterm.memory import LongTermData, LongTermMemory
from holdfast.memories.longterm.read import LISTED, MOST_LISTED
from holdfast.memories.longterm.records import Item, Recalled, Turn, What, to_wire

Row = dict[str, Any]


def put_recalled(call: CommandContext, found: Iterable[Recalled], mode: str) -> None:
    """Print recalled items and turns as the server's JSON, or as a table, best first."""
    if call.answer.as_json:
        put_json({"results": [to_wire(each) for each in found], "mode": mode})
        return
    rows = [
        {
            "SCORE": f"{each.score:.2f}",
            "RELEVANCE": f"{each.relevance:.2f}",
            "TEXT": preview(each.text),
            "WHY": one_line(str(each.why["text"])),
            "ID": each.id,
        }
        for each in found
    ]
    call.answer.many(rows, ("SCORE", "RELEVANCE", "TEXT", "WHY", "ID"))


def _row(thing: Item | Turn) -> Row:
    if isinstance(thing, Item):
        return {
            "ID": thing.id,
            "KIND": thing.kind,
            "UPDATED": brief(to_rfc3339(thing.updated_at)),
            "IMPORTANCE": thing.importance,
            "TEXT": preview(thing.text),
        }
    at = thing.at or thing.created_at
    return {
        "ID": thing.id,
        "SPEAKER": one_line(thing.speaker or thing.role),
        "AT": brief(to_rfc3339(at)) if at else "",
        "TEXT": preview(thing.text),
    }


ltm_app = typer.Typer(rich_markup_mode=None)

MOST_RECALLED = 100
KindOf = Literal["fact", "preference", "decision", "event"]

User = Annotated[str, typer.Argument(metavar="USER", help="The user's id.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The id of an item or a turn.")]
Namespace = Annotated[
    str, typer.Option("--namespace", metavar="N", help="The namespace of the collection.")
]
Workspace = Annotated[
    str | None,
    typer.Option("--workspace-id", metavar="W", help="The workspace of the application's own."),
]
Kinds = Annotated[
    list[str] | None,
    typer.Option("--kind", metavar="K", help="Only items of this kind; repeatable."),
]
Importance = Annotated[
    float | None,
    typer.Option("--importance", metavar="X", min=0, max=1, help="How important it is, to 1."),
]


At = Annotated[
    str | None,
    typer.Option("--at", metavar="T", help="What was believed at this time (RFC 3339)."),
]
ValidAt = Annotated[
    str | None,
    typer.Option("--valid-at", metavar="T", help="What was true at this time (RFC 3339)."),
]


@command(ltm_app, "status")
def status(
    call: CommandContext, user: User, namespace: Namespace = "chat", workspace_id: Workspace = None
) -> None:
    """Say how a collection stands: what it holds, how it is recalled from, what waits."""
    memory = _memory_if_on(call, user, namespace, workspace_id)
    fields = to_wire((memory or _data(call, user, namespace, workspace_id)).status())
    call.answer.one({**fields, "enabled": memory is not None})


@command(ltm_app, "recall")
def recall(
    call: CommandContext,
    user: User,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="The question.")],
    *,
    k: Annotated[
        int, typer.Option("--k", metavar="N", min=0, max=MOST_RECALLED, help="Most to show.")
    ] = 5,
    what: Annotated[What, typer.Option("--what", help="Search items, turns or both.")] = "all",
    kind: Kinds = None,
    min_relevance: Annotated[
        float | None,
        typer.Option(
            "--min-relevance", metavar="X", min=0, max=1, help="0: the nearest, however far."
        ),
    ] = None,
    at: At = None,
    valid_at: ValidAt = None,
    noise: Annotated[
        bool, typer.Option("--noise", help="Questions and other turns that say nothing, too.")
    ] = False,
    namespace: Namespace = "chat",
    workspace_id: Workspace = None,
) -> None:
    """Find what answers a query, with its score and why."""
    memory = _memory(call, user, namespace, workspace_id)
    found = memory.recall(
        query,
        k,
        what=what,
        kinds=kind or None,
        min_relevance=min_relevance,
        noise=noise,
        at=at,
        valid_at=valid_at,
    )
    mode = str(found[0].why["mode"]) if found else memory.status().mode
    put_recalled(call, found, mode)


@command(ltm_app, "remember", creates=True)
def remember(
    call: CommandContext,
    user: User,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="One sentence about the user.")],
    *,
    kind: Annotated[KindOf, typer.Option("--kind", help="What it is.")] = "fact",
    importance: Importance = 0.5,
    source: Annotated[
        str, typer.Option("--source", metavar="S", help="Where it comes from, in free words.")
    ] = "",
    namespace: Namespace = "chat",
    workspace_id: Workspace = None,
) -> None:
    """Remember one sentence, unless it is known or holds a secret."""
    memory = _memory(call, user, namespace, workspace_id)
    done = memory.remember(text, kind, 0.5 if importance is None else importance, source=source)
    call.answer.one(to_wire(done))


@command(ltm_app, "list")
def list_all(
    call: CommandContext,
    user: User,
    *,
    turns: Annotated[bool, typer.Option("--turns", help="List turns instead of items.")] = False,
    kind: Kinds = None,
    query: Annotated[
        str | None, typer.Option("--query", metavar="Q", help="Only with all of these words.")
    ] = None,
    superseded: Annotated[
        bool, typer.Option("--superseded", help="Items that were superseded, too.")
    ] = False,
    held: Annotated[
        bool, typer.Option("--held", help="Only what waits for a person to decide.")
    ] = False,
    at: At = None,
    valid_at: ValidAt = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=MOST_LISTED, help="Most to show.")
    ] = LISTED,
    page: Annotated[
        str | None, typer.Option("--page", metavar="P", help="The page token of an earlier list.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All of them, page after page.")] = False,
    namespace: Namespace = "chat",
    workspace_id: Workspace = None,
) -> None:
    """List items, or turns, newest first."""
    found = _data(call, user, namespace, workspace_id).list(
        "turns" if turns else "items",
        kinds=kind or None,
        query=query,
        include_superseded=superseded,
        held=held,
        at=at,
        valid_at=valid_at,
        limit=limit,
        page=page,
    )
    things = call.walk("Listing", found.all()) if every else found.data
    put_page(call, things, _row, None if every else found.next_page, to_wire)


@command(ltm_app, "show")
def show(
    call: CommandContext,
    user: User,
    id: Id,
    *,
    at: At = None,
    namespace: Namespace = "chat",
    workspace_id: Workspace = None,
) -> None:
    """Show an item or a turn whole."""
    found = _data(call, user, namespace, workspace_id).get(id, at=at)
    if found is None:
        raise _absent(id)
    call.answer.one(to_wire(found))


@command(ltm_app, "update")
def update(
    call: CommandContext,
    user: User,
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of an item.")],
    *,
    text: Annotated[str | None, typer.Option("--text", metavar="T", help="The new text.")] = None,
    kind: Annotated[KindOf | None, typer.Option("--kind", help="What it is.")] = None,
    importance: Importance = None,
    namespace: Namespace = "chat",
    workspace_id: Workspace = None,
) -> None:
    """Change an item; what is not given stays."""
    changed = _memory(call, user, namespace, workspace_id).update(
        id,
        text=UNSET if text is None else text,
        kind=UNSET if kind is None else kind,
        importance=UNSET if importance is None else importance,
    )
    call.answer.one(to_wire(changed))


@command(ltm_app, "forget")
def forget(
    call: CommandContext,
    user: User,
    id: Id,
    namespace: Namespace = "chat",
    workspace_id: Workspace = None,
) -> None:
    """Forget an item or a turn for good, with what goes with it."""
    forgotten = _data(call, user, namespace, workspace_id).forget(id)
    if not forgotten:
        raise _absent(id)
    call.answer.one(to_wire(forgotten))


@command(ltm_app, "accept")
def accept(
    call: CommandContext,
    user: User,
    id: Id,
    namespace: Namespace = "chat",
    workspace_id: Workspace = None,
) -> None:
    """Release a held item or turn; an item counts as confirmed."""
    call.answer.one(to_wire(_data(call, user, namespace, workspace_id).accept(id)))


@command(ltm_app, "reject")
def reject(
    call: CommandContext,
    user: User,
    id: Id,
    namespace: Namespace = "chat",
    workspace_id: Workspace = None,
) -> None:
    """Forget a held item or turn for good, and nothing with it."""
    call.answer.one(to_wire(_data(call, user, namespace, workspace_id).reject(id)))


@command(ltm_app, "clear")
def clear(
    call: CommandContext,
    user: User,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation.")] = False,
    namespace: Namespace = "chat",
    workspace_id: Workspace = None,
) -> None:
    """Forget a whole collection for good."""
    call.make_sure(f"Forget everything of {user} in {namespace}?", yes=yes)
    call.answer.one(to_wire(_data(call, user, namespace, workspace_id).clear()))


@command(ltm_app, "export")
def export(
    call: CommandContext,
    user: User,
    file: Annotated[
        str, typer.Argument(metavar="FILE|-", help="A new file; - is standard output.")
    ] = "-",
    namespace: Namespace = "chat",
    workspace_id: Workspace = None,
) -> None:
    """Write every turn and every item, a line of JSON each."""
    records = _data(call, user, namespace, workspace_id).export()
    if file == "-":
        for each in records:
            put_bytes(msgspec.json.encode(each) + b"\n")
        return
    counts = {"items": 0, "turns": 0}
    try:
        with create_file(file) as out:
            for each in records:
                out.write(msgspec.json.encode(each) + b"\n")
                counts[f"{each['type']}s"] += 1
    except OSError as error:
        raise InvalidInput("FILE", f"cannot be written: {error.strerror}", given=file) from None
    call.answer.one({"file": file, **counts})


@command(ltm_app, "import", creates=True)
def import_(
    call: CommandContext,
    user: User,
    file: Annotated[
        str, typer.Argument(metavar="FILE|-", help="Lines of an export; - is standard input.")
    ] = "-",
    namespace: Namespace = "chat",
    workspace_id: Workspace = None,
) -> None:
    """Take in the lines of an export; existing ones stay unchanged."""
    records = _records(file)
    memory = _memory(call, user, namespace, workspace_id)
    call.answer.one(to_wire(memory.import_(records)))


@command(ltm_app, "flush")
def flush(
    call: CommandContext,
    user: User,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="S", min=0, help="Seconds to wait at most.")
    ] = 60,
    namespace: Namespace = "chat",
    workspace_id: Workspace = None,
) -> None:
    """Wait for what is done in the background."""
    call.answer.one(to_wire(_memory(call, user, namespace, workspace_id).flush(timeout)))


@command(ltm_app, "retry")
def retry(
    call: CommandContext, user: User, namespace: Namespace = "chat", workspace_id: Workspace = None
) -> None:
    """Queue the jobs again that failed."""
    call.answer.one({"queued": _memory(call, user, namespace, workspace_id).retry()})


@command(ltm_app, "remine")
def remine(
    call: CommandContext,
    user: User,
    *,
    since: Annotated[
        str | None, typer.Option("--since", metavar="T", help="Said then or later (RFC 3339).")
    ] = None,
    thread: Annotated[
        str | None, typer.Option("--thread", metavar="ID", help="Only turns of this thread.")
    ] = None,
    namespace: Namespace = "chat",
    workspace_id: Workspace = None,
) -> None:
    """Queue turns to be mined that no job has covered."""
    memory = _memory(call, user, namespace, workspace_id)
    call.answer.one({"queued": memory.remine(since, thread)})


@command(ltm_app, "configure", creates=True)
def configure(
    call: CommandContext,
    user: User,
    *,
    extractor: Annotated[
        str | None,
        typer.Option(
            "--extractor",
            metavar="NAME",
            help='provider:model; none for no mining; "" for no extractor of its own.',
        ),
    ] = None,
    namespace: Namespace = "chat",
    workspace_id: Workspace = None,
) -> None:
    """Set the extractor of a collection, which later processes use too."""
    wish = UNSET if extractor is None else extractor or None
    done = _data(call, user, namespace, workspace_id).configure(extractor=wish)
    call.answer.one(to_wire(done))


def _data(
    call: CommandContext, user: str, namespace: str, workspace_id: str | None
) -> LongTermData:
    return call.hf.longterm_data(user, namespace=namespace, workspace_id=workspace_id)


def _memory_if_on(
    call: CommandContext, user: str, namespace: str, workspace_id: str | None
) -> LongTermMemory | None:
    """Return the memory, or None if HOLDFAST_LTM_ENABLED switches it off.

    Running the command counts as consent.
    """
    return call.hf.longterm(user, namespace=namespace, workspace_id=workspace_id, enabled=True)


def _memory(
    call: CommandContext, user: str, namespace: str, workspace_id: str | None
) -> LongTermMemory:
    memory = _memory_if_on(call, user, namespace, workspace_id)
    if memory is None:
        raise NotPermitted(
            "Long-term memory is off: HOLDFAST_LTM_ENABLED says no.",
            needed="long-term memory",
            next="Unset it, here or where the server runs.",
        )
    return memory


def _absent(id: str) -> NotFound:
    kind = "turn" if id.startswith("turn_") else "item"
    return NotFound(kind, id, next="holdfast ltm list shows the ids.")


def _records(file: str) -> list[Any]:
    """Return the JSON value of each line of *file*; `-` is standard input.

    Raise InvalidInput for a file that cannot be read, or a line that is not JSON.
    """
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise InvalidInput("FILE", f"cannot be read: {error.strerror}", given=file) from None
    records: list[Any] = []
    for number, line in enumerate(content.splitlines(), start=1):
        if line.strip():
            try:
                records.append(msgspec.json.decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                raise InvalidInput("FILE", f"has no JSON in line {number:,}", given=file) from None
    return records


import_app = typer.Typer(rich_markup_mode=None)


@command(import_app, "import", creates=True)
def import_files(
    call: CommandContext,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND", help="One of mem0, langmem, letta, mcp-graph, chatgpt, claude."
        ),
    ],
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Exports, zipped or not.")],
    *,
    user: Annotated[
        str | None,
        typer.Option("--user", metavar="U", help="The user; * keeps the users of mem0."),
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="A", help="Only this agent's records.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store", metavar="STORE", help="The store, by id or name, for other than facts."
        ),
    ] = None,
    namespace: Annotated[
        str, typer.Option("--namespace", metavar="N", help="The namespace of the collection.")
    ] = "chat",
    workspace_id: Annotated[
        str | None,
        typer.Option("--workspace-id", metavar="W", help="The workspace of the application's own."),
    ] = None,
    human: Annotated[
        list[str] | None,
        typer.Option(
            "--human", metavar="LABEL", help="A block of Letta about the user; repeatable."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the same report, and write nothing.")
    ] = False,
    mine: Annotated[
        bool, typer.Option("--mine", help="Queue the imported messages for mining.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="Most records to read.")
    ] = None,
) -> None:
    """Import the files of another program into a user's memory, or a store."""
    with bar("Importing"):
        report = call.hf.import_(
            kind,
            files,
            user=user,
            agent=agent,
            store=store,
            namespace=namespace,
            workspace_id=workspace_id,
            human=human or (),
            dry_run=dry_run,
            mine=mine,
            limit=limit,
        )
    wire: Wire = msgspec.to_builtins(report)
    if call.answer.as_json:
        call.answer.one(wire)
        return
    skipped: list[dict[str, str]] = wire.pop("skipped")
    call.answer.one(wire)
    if skipped:
        print_table(("SKIPPED", "REASON"), [(each["place"], each["reason"]) for each in skipped])
