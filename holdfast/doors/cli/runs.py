"""Commands of `holdfast runs`, and `holdfast work`, which takes queued ones."""

import asyncio
import json
import logging
import signal
from contextlib import suppress
from itertools import count
from typing import Annotated, Any, Literal, cast

import msgspec
import typer

from holdfast.doors import http
from holdfast.doors.cli.command import CommandContext, command
from holdfast.doors.cli.output import put_bytes, put_json
from holdfast.ground import json_values
from holdfast.ground.clock import SystemClock, milliseconds_text
from holdfast.ground.errors import InvalidInput, Unavailable
from holdfast.ground.text import one_line, printable
from holdfast.library.holdfast import Holdfast
from holdfast.library.open import tend_work
from holdfast.library.operations.runs import FORM, QUESTION_FORM
from holdfast.memories.run.model_view import described
from holdfast.memories.run.records.read import GAP, RunEvent

_log = logging.getLogger(__name__)

runs_app = typer.Typer(rich_markup_mode=None)
work_app = typer.Typer(rich_markup_mode=None)

COLUMNS = ("id", "kind", "name", "agent", "status", "entries", "bytes", "started_at", "ended_at")
PAGE = 100
PARTS = (
    *("id", "kind", "within", "state", "agent", "attempts", "started_at", "ended_at", "cause"),
)
DIFFERENCES = ("of", "key", "change", "a", "b")
VERSIONS = ("number", "at", "cause", "part", "agent", "bytes", "gaps")
GRACE = 30.0
"""Seconds that requests in flight have to end, once a worker is stopped."""
TEND_EVERY = 5.0
"""Seconds between two looks for work that was left over, and for policies that are due."""

ENTRIES = ("key", "title", "source", "valueBytes", "version", "updatedAt")

QUESTIONS = ("id", "run_id", "kind", "part", "text", "who", "asked_at", "expires_at")

Run = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")]


@command(runs_app, "list")
def list_all(
    call: CommandContext,
    status: Annotated[
        list[str] | None,
        typer.Option("--status", metavar="S", help="Only runs of this status; repeatable."),
    ] = None,
) -> None:
    """List runs, those that began last first."""
    statuses = cast("Any", status or None)
    runs = call.walk("Listing runs", call.hf.runs.list(statuses, limit=PAGE).all())
    call.answer.many([FORM.encode(each) for each in runs], COLUMNS)


@command(runs_app, "show")
def show(call: CommandContext, run: Run) -> None:
    """Show a run."""
    call.answer.one(FORM.encode(call.hf.runs.retrieve(run)))


@command(runs_app, "parts")
def parts(call: CommandContext, run: Run) -> None:
    """List the parts of a run: tasks, steps, items, nodes, agents, with their states."""
    call.answer.many([each.export() for each in call.hf.runs.parts(run)], PARTS)


@command(runs_app, "fork")
def fork(
    call: CommandContext,
    run: Run,
    *,
    before: Annotated[
        str | None,
        typer.Option("--before", metavar="P", help="Fork it before this part began."),
    ] = None,
    version: Annotated[
        int | None, typer.Option("--version", metavar="N", help="Fork it at this version.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=JSON", help="A changed value; repeatable."),
    ] = None,
    deleted: Annotated[
        list[str] | None,
        typer.Option("--delete", metavar="KEY", help="A key that it has not; repeatable."),
    ] = None,
    run_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The id of the new run.")
    ] = None,
    start: Annotated[
        bool, typer.Option("--start", help="Let a worker take it up, if it has a definition.")
    ] = False,
) -> None:
    """Make a new run with the history of a run up to a version."""
    made = call.hf.runs.fork(
        run,
        before=before,
        version=version,
        set=dict(_assigned(each) for each in changes or ()),
        delete=deleted or (),
        run_id=run_id,
        start=start,
    )
    call.answer.one(FORM.encode(made))


def _assigned(text: str) -> tuple[str, Any]:
    """Return key and value of a change; raise `InvalidInput` if it is no KEY=JSON."""
    key, equals, value = text.partition("=")
    if not equals:
        raise InvalidInput("--set", "must be KEY=JSON", given=text)
    return key, json_values.read(value, f"--set {key}")


@command(runs_app, "compare")
def compare(
    call: CommandContext,
    run: Run,
    other: Annotated[str, typer.Argument(metavar="OTHER", help="The id of the other run.")],
) -> None:
    """Show what two runs differ in, key by key."""
    found = call.hf.runs.compare(run, other).export()
    if call.answer.as_json:
        call.answer.one(found)
        return
    rows: list[dict[str, Any]] = [
        {"of": of, "key": key, "change": each["change"], "a": each["a"], "b": each["b"]}
        for of in ("entries", "values", "parts")
        for key, each in found[of].items()
    ]
    call.answer.many([row | _sizes(row) for row in rows], DIFFERENCES)


def _sizes(row: dict[str, Any]) -> dict[str, Any]:
    """Return the bytes of the values of a difference, in place of the values."""
    return {name: each and each["value_bytes"] for name, each in row.items() if name in "ab"}


@command(runs_app, "entries")
def entries(
    call: CommandContext,
    run: Run,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind", metavar="K", help="task_result, step_result, input or shared; repeatable."
        ),
    ] = None,
    prefix: Annotated[
        str | None, typer.Option("--prefix", metavar="P", help="Only keys that begin so.")
    ] = None,
) -> None:
    """List what the memory of a run held last, without values."""
    found = call.hf.runs.entries(run, kind=kind or None, key_prefix=prefix)
    listed: list[dict[str, Any]] = [
        dict(described(each)) for each in call.walk("Listing entries", found.all())
    ]
    if call.answer.as_json:
        counts = {"total": len(listed), "returned": len(listed)}
        put_json({**counts, "truncated": False, "next_page": None, "entries": listed})
    else:
        call.answer.many(listed, ENTRIES)


@command(runs_app, "read")
def read(
    call: CommandContext,
    run: Run,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The entry's key, exactly.")],
) -> None:
    """Show an entry of a run with its value."""
    entry = call.hf.runs.entry(run, key)
    fields: dict[str, Any] = msgspec.to_builtins(entry)
    if call.answer.as_json:
        call.answer.one(fields)
        return
    value = fields.pop("value")
    call.answer.one(fields)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    call.answer.text("\n" + text, {})


@command(runs_app, "versions")
def versions(call: CommandContext, run: Run) -> None:
    """List the versions of a run, the newest first."""
    found = call.walk("Listing versions", call.hf.runs.versions(run, limit=PAGE).all())
    call.answer.many([each.export() for each in found], VERSIONS)


@command(runs_app, "at")
def at(
    call: CommandContext,
    run: Run,
    number: Annotated[int, typer.Argument(metavar="N", help="The number of the version.")],
) -> None:
    """Show what a run knew at a version: its entries, values, parts and board."""
    state = call.hf.runs.at(run, number).export()
    if call.answer.as_json:
        call.answer.one(state)
        return
    call.answer.one({name: state[name] for name in ("number", "run_id", "pending")})
    call.answer.text("\n" + json.dumps(state, ensure_ascii=False, indent=2), {})


@command(runs_app, "messages")
def messages(
    call: CommandContext,
    run: Run,
    part: Annotated[str, typer.Argument(metavar="PART", help="The id of a part of the run.")],
) -> None:
    """Show what a part of a run sent to its model and was answered."""
    told = [each.export() for each in call.hf.runs.messages(run, part)]
    if call.answer.as_json:
        put_json({"messages": told})
    else:
        call.answer.text(json.dumps(told, ensure_ascii=False, indent=2), {})


@command(runs_app, "watch")
def watch(
    call: CommandContext,
    *,
    run: Run,
    wait: Annotated[
        float,
        typer.Option("--wait", metavar="N", help="Seconds to wait for a run not there yet."),
    ] = 0,
    after: Annotated[
        int, typer.Option("--after", metavar="N", help="Begin after the event of this number.")
    ] = 0,
    types: Annotated[
        list[str] | None, typer.Option("--type", metavar="T", help="Only these types of events.")
    ] = None,
    rest: Annotated[
        bool, typer.Option("--rest", help="End also where the run waits or is lost.")
    ] = False,
) -> None:
    """Print what happens in a run, a line for each event, until it ends."""
    for event in call.hf.runs.follow(run, after=after, wait=wait, types=types or None, rest=rest):
        if call.answer.as_json:
            put_bytes(msgspec.json.encode(event.to_dict()) + b"\n")
        else:
            put_bytes((printable(_line(event)) + "\n").encode())


@command(runs_app, "questions")
def questions(
    call: CommandContext,
    run: Annotated[
        str | None, typer.Option("--run", metavar="R", help="Only those of this run.")
    ] = None,
) -> None:
    """List the open questions of runs, newest first."""
    found = call.hf.runs.questions(run=run, limit=PAGE)
    listed = call.walk("Listing questions", found.all())
    call.answer.many([QUESTION_FORM.encode(each) for each in listed], QUESTIONS)


@command(runs_app, "answer")
def answer(
    call: CommandContext,
    *,
    run: Run,
    question: Annotated[
        str | None,
        typer.Argument(metavar="QUESTION", help="Its id; not needed where one is open."),
    ] = None,
    approve: Annotated[bool, typer.Option("--approve", help="Approve the call.")] = False,
    deny: Annotated[bool, typer.Option("--deny", help="Deny the call.")] = False,
    value: Annotated[
        str | None, typer.Option("--value", metavar="JSON", help="The answer as JSON.")
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text", metavar="T", help="The answer as text.")
    ] = None,
    note: Annotated[
        str | None, typer.Option("--note", metavar="N", help="A note with the answer.")
    ] = None,
) -> None:
    """Answer a question of a run; the first answer wins."""
    given: list[Any] = [True] if approve else []
    given += [False] if deny else []
    given += [] if value is None else [json_values.read(value, "value")]
    given += [] if text is None else [text]
    if len(given) != 1:
        raise typer.BadParameter("give one of --approve, --deny, --value and --text")
    answered = call.hf.runs.answer(run, given[0], question=question, note=note)
    call.answer.one(QUESTION_FORM.encode(answered))


@command(runs_app, "start", creates=True)
def start(
    call: CommandContext,
    definition: Annotated[
        str, typer.Argument(metavar="DEFINITION", help="The name of what is run.")
    ],
    input: Annotated[
        str, typer.Option("--input", metavar="JSON", help="The input of the run.")
    ] = "null",
) -> None:
    """Queue a run of a definition; a worker or a server that knows it takes it."""
    try:
        given = json.loads(input)
    except ValueError as error:
        raise typer.BadParameter(f"must be JSON: {error}", param_hint="--input") from error
    call.answer.one(FORM.encode(call.hf.runs.start(definition, given)))


@command(work_app, "work", creates=True)
def work(
    call: CommandContext,
    definitions: Annotated[
        list[str],
        typer.Argument(
            metavar="MODULE:NAME", help="A Network, an Agent, a definition, or several."
        ),
    ],
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", metavar="Q", help="Only runs of this queue; repeatable."),
    ] = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", metavar="N", min=1, help="Runs at once.")
    ] = 4,
    engine: Annotated[
        Literal["own", "dbos"],
        typer.Option("--engine", help="What says when a run is taken up; dbos is an extra."),
    ] = "own",
) -> None:
    """Take queued runs of definitions, until interrupted.

    What is at work then is given back, and another worker goes on with it. Unfinished mining is
    resumed, and what is due by policies is consolidated, as by a server.
    """
    call.needs_database()
    known = http.load(definitions)
    worker = http.Worker(
        call.hf, known.values(), concurrency=concurrency, queues=queue or None, engine=engine
    )
    typer.echo(f"Holdfast takes runs of {', '.join(known) or 'nothing'}.", err=True)
    asyncio.run(_worked(worker, call.hf))


async def _worked(worker: "http.Worker", hf: Holdfast) -> None:
    """Let *worker* work until a signal; a second one ends its requests in flight."""
    loop, signals, ended = asyncio.get_running_loop(), count(), asyncio.Event()

    def stop() -> None:
        first = next(signals) == 0
        worker.stop(GRACE if first else 0)
        if first:
            typer.echo(
                f"Holdfast stops; requests in flight have {GRACE:g} s, or until a second signal.",
                err=True,
            )

    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop)
    tending = asyncio.create_task(_tended(hf, ended))
    try:
        await worker.work()
    finally:
        ended.set()
        await tending


async def _tended(hf: Holdfast, ended: asyncio.Event) -> None:
    """Do what is left over or due in the background, until *ended*."""
    clock = SystemClock()
    while not ended.is_set():
        try:
            await asyncio.to_thread(tend_work, hf, clock)
        except Unavailable as error:
            _log.warning("work that was left over could not be taken up: %s", error.reason)
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), TEND_EVERY)


@command(runs_app, "cancel")
def cancel(call: CommandContext, run: Run) -> None:
    """Cancel a run; the process that has it obeys within 5 s."""
    call.hf.runs.cancel(run)
    call.answer.one({"id": run})


@command(runs_app, "steer")
def steer(
    call: CommandContext,
    run: Run,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The message to its running steps.")],
) -> None:
    """Send a message to the running steps of a run, before their next request."""
    call.answer.one({"steps": call.hf.runs.steer(run, text)})


@command(runs_app, "delete")
def delete(call: CommandContext, run: Run) -> None:
    """Delete the record of a run that has ended."""
    call.hf.runs.delete(run)
    call.answer.one({"id": run, "type": "run_deleted"})


def _line(event: RunEvent) -> str:
    """Format *event* as one line: instant, type, part or key, then its other fields."""
    if event.type == GAP:
        return f"… {event.data['missed']} earlier events are not kept"
    fields = {"agent": event.agent, **event.data}
    about = event.part or fields.pop("key", None) or ""
    rest = " ".join(
        f"{name}={one_line(str(each))}"
        for name, each in fields.items()
        if each is not None and each is not False and each not in ([], {}, "")
    )
    at = milliseconds_text(event.at)
    return " ".join(word for word in (at, event.type, one_line(str(about)), rest) if word)
