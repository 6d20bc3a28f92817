"""Commands of upkeep: backup, restore, scrub, verify, doctor, eval, forget."""

from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import msgspec
import typer

from holdfast import library
from holdfast.doors import http
from holdfast.doors.cli.command import CommandContext, command
from holdfast.doors.cli.output import Wire, bar, brief, print_fields, print_table, put_json
from holdfast.doors.mount import process
from holdfast.ground.clock import SystemClock
from holdfast.ground.errors import MissingExtra
from holdfast.library import upkeep
from holdfast.library.consolidations import serve_policies
from holdfast.library.erasure import receipt as receipts
from holdfast.library.erasure.proof import purge_copies
from holdfast.library.erasure.records import ForgetReport, MentionChoice
from holdfast.library.open import resume_erasures
from holdfast.library.operations.erasures import erasure_to_wire
from holdfast.library.upkeep.reapply import write_ledger
from holdfast.memories.durable.wire import entry_to_wire

backup_app = typer.Typer(rich_markup_mode=None)


@command(backup_app, "backup")
def backup(
    call: CommandContext,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where the backup goes.")],
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Copy everything, at one moment, into a file. Writers go on meanwhile."""
    hf = call.database(migrate=False)
    with bar("Backing up") as progress:
        report = upkeep.backup.backup(hf.engine, file, force=force, progress=progress)
    call.answer.one(msgspec.to_builtins(report))


restore_app = typer.Typer(rich_markup_mode=None)


@command(restore_app, "restore")
def restore(
    call: CommandContext,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A backup.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the content of the database.")
    ] = False,
    erasures: Annotated[
        Path | None,
        typer.Option("--erasures", metavar="LEDGER", help="Erase what this ledger has erased."),
    ] = None,
) -> None:
    """Bring a backup into an empty database, or with --replace into a used one."""
    call.needs_database()
    if call.db is None:
        raise typer.BadParameter("say which database to restore into", param_hint="--db")
    with bar("Restoring") as progress:
        report = upkeep.restore.restore(
            file, call.db, replace=replace, erasures=erasures, progress=progress
        )
    call.answer.one(msgspec.to_builtins(report))


POLICY_SECONDS = 660.0
"""How long a scrub waits for one job of a policy."""
scrub_app = typer.Typer(rich_markup_mode=None)


@command(scrub_app, "scrub")
def scrub(
    call: CommandContext,
    full: Annotated[bool, typer.Option("--full", help="Rewrite the files as well.")] = False,
) -> None:
    """Make deleted bytes unreadable in the database's files.

    Finishes pending erasures, and consolidates what is due by policies. Says where some may remain,
    and exits 1 then.
    """
    hf = call.database(migrate=False)
    engine = hf.engine
    with bar("Scrubbing"):
        scrubbed = engine.scrub_full() if full else engine.scrub()
        resume_erasures(hf, SystemClock())
        serve_policies(engine, hf.longterm_shared, SystemClock(), wait=POLICY_SECONDS)
    call.answer.one(msgspec.to_builtins(scrubbed))
    if not scrubbed.done:
        raise typer.Exit(1)


verify_app = typer.Typer(rich_markup_mode=None)

FINDING_COLUMNS = ("check", "table", "id", "expected", "found")


@command(verify_app, "verify")
def verify(
    call: CommandContext,
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Check the storage less deeply.")] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Rebuild what is derived from the rest.")
    ] = False,
    head: Annotated[
        str | None,
        typer.Option("--head", metavar="LINK", help="A link noted earlier; some chain has it."),
    ] = None,
    receipt: Annotated[
        Path | None,
        typer.Option("--receipt", metavar="FILE", help="Check this receipt of an erasure."),
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", metavar="U", help="The user it should be about.")
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="A", help="The agent it should be about.")
    ] = None,
    public_key: Annotated[
        Path | None,
        typer.Option("--public-key", metavar="PEM", help="The key that signed the receipt."),
    ] = None,
) -> None:
    """Check that everything stored is whole, or a receipt; exit 1 with what is not."""
    if receipt is not None:
        _verify_receipt(call, receipt, user=user, agent=agent, public_key=public_key)
        return
    if user is not None or agent is not None or public_key is not None:
        raise typer.BadParameter("is needed with the options of a receipt", param_hint="--receipt")
    hf = call.database(migrate=repair)
    with bar("Verifying"):
        report = upkeep.verify.verify(hf.engine, quick=quick, repair=repair, head=head)
    wire: Wire = msgspec.to_builtins(report)
    if call.answer.as_json:
        call.answer.one(wire)
    else:
        _draw(call, wire)
    if not report.ok:
        raise typer.Exit(1)


def _verify_receipt(
    call: CommandContext,
    file: Path,
    *,
    user: str | None,
    agent: str | None,
    public_key: Path | None,
) -> None:
    """Print the checks of a receipt, one a line, up to the first that failed."""
    raw = receipts.read_receipt(file)
    alone = receipts.verify_file(raw, public_key=public_key)
    lines, parsed = [*alone.checks], receipts.parsed(raw)
    if alone.ok and parsed is not None and call.db is not None:
        signed = [each for each in lines if each.name == "signature"]
        here = call.hf.erasures.verify(parsed, user=user, agent=agent).checks
        lines = [*(each for each in here if each.name != "signature"), *signed]
    elif alone.ok and (user is not None or agent is not None):
        raise typer.BadParameter("name it to check whom the receipt is about", param_hint="--db")
    failed = next((at for at, each in enumerate(lines) if each.ok is False), None)
    if call.answer.as_json:
        checks = msgspec.to_builtins(lines)
        call.answer.one({"type": "receipt_check", "ok": failed is None, "checks": checks})
    else:
        for each in lines if failed is None else lines[: failed + 1]:
            typer.echo(f"{each.name}: {each.says}")
        if failed is None:
            typer.echo("receipt: valid")
    if failed is not None:
        raise typer.Exit(1)


def _draw(call: CommandContext, wire: Wire) -> None:
    findings, links = wire.pop("findings"), wire.pop("links")
    call.answer.one(wire)
    call.answer.many(
        [{"store": store, "last_link": link} for store, link in links.items()],
        ("store", "last_link"),
    )
    if findings:
        call.answer.many(findings, FINDING_COLUMNS)


doctor_app = typer.Typer(rich_markup_mode=None)

DOCTOR_COLUMNS = ("name", "ok", "says")


@command(doctor_app, "doctor")
def doctor(call: CommandContext) -> None:
    """Check the database and its environment; exit 1 if something needs an operator.

    What a mount lacks is shown, and does not change the exit code.
    """
    hf = call.database(migrate=False)
    with bar("Examining"):
        checks, seen = upkeep.doctor.doctor(hf), process.look()
        if all(each.ok for each in checks if each.name in ("database", "storage")):
            checks += _on_dbos(hf)
    rows: list[Wire] = [
        {"name": each.name, "ok": each.ok, "says": each.says} for each in (*checks, *seen)
    ]
    call.answer.many(rows, DOCTOR_COLUMNS, paged=False)
    if not all(each.ok for each in (*checks, *(each for each in seen if not each.optional))):
        raise typer.Exit(1)


def _on_dbos(hf: library.Holdfast) -> Iterator[upkeep.doctor.Check]:
    """Yield how runs and DBOS differ, where it has tables."""
    if upkeep.doctor.has_dbos(hf):
        try:
            yield http.check_dbos(hf)
        except MissingExtra as error:
            yield upkeep.doctor.Check("runs on DBOS", ok=True, says=f"not compared: {error}")


eval_app = typer.Typer(rich_markup_mode=None)

DEEPEST = 100
"""Most results of one recall."""
_OF_EACH = ("sample_id", "n", "recall@10")


@command(eval_app, "locomo")
def locomo(
    call: CommandContext,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Conversations and questions, in LoCoMo's JSON.")
    ],
    *,
    k: Annotated[
        int | None,
        typer.Option("--k", metavar="N", min=1, max=DEEPEST, help="Show recall@N too."),
    ] = None,
    embedder: Annotated[
        str | None,
        typer.Option("--embedder", metavar="MODEL", help="Compare by meaning, and by words too."),
    ] = None,
) -> None:
    """Measure recall on conversations with questions about them; no network, no model."""
    evaluation = library.evaluation
    sample = evaluation.read(file)

    def outcome_of(opening: Any) -> Any:
        with bar("Asking") as progress:
            return evaluation.evaluate(
                sample, opening, k=k or 1, watch=perf_counter, progress=progress
            )

    lexical = outcome_of(evaluation.remembered)
    outcome, by_meaning = lexical, partial(evaluation.remembered, embedder=embedder)
    if embedder is not None:
        outcome = outcome_of(by_meaning)
    found = evaluation.report(sample, outcome, k=k, version=version("holdfast"))
    if embedder is not None:
        found = evaluation.beside_lexical(found, sample, outcome, lexical)
    if call.answer.as_json:
        put_json(found)
    else:
        _show(found)


@command(eval_app, "poisoning")
def poisoning(call: CommandContext) -> None:
    """Measure what poisoned texts achieve, with tiers and holding and without.

    No network, no model. Exits with 1 if a class is above its limit.
    """
    with bar("Attacking") as progress:
        found = library.attacks.evaluate(progress)
    if call.answer.as_json:
        put_json(found)
    else:
        for rows in (library.attacks.rows(found), library.attacks.channel_rows(found)):
            print_table(rows[0], rows[1:])
    missed = library.attacks.failures(found)
    if missed:
        typer.echo("\n".join(missed), err=True)
        raise typer.Exit(1)


def _show(found: dict[str, Any]) -> None:
    """Print the report *found*: its source, its figures, then recall by conversation."""
    groups = {
        "main": found["overall"],
        "shipped": found["as_shipped"],
        **({"by words": found["lexical"]} if "lexical" in found else {}),
        "FTS5": found["baseline"],
        **{f"cat {name}": each for name, each in found["categories"].items()},
    }
    about = ("file", "sha256", "version", "mode", "conversations", "turns", "questions", "skipped")
    print_fields({name: brief(found[name]) for name in about})
    measures = ("empty", *found["overall"])
    print_table(
        ("", *groups),
        [[name, *(_number(each.get(name)) for each in groups.values())] for name in measures],
    )
    print_table(
        ("conversation", "n", "recall@10"),
        [[brief(each[name]) for name in _OF_EACH] for each in found["by_conversation"]],
    )
    foreign, took = found["foreign"], found["ms"]
    print_fields(
        {f"empty, of {foreign['n']:,} foreign questions": _number(foreign["empty"])}
        | {f"{name}, ms": brief(took[name]) for name in took}
    )
    if found.get("advice"):
        print_fields({"advice": found["advice"]})


def _number(value: object) -> str:
    """Return a share to three places, a count as it is."""
    return f"{value:.3f}" if isinstance(value, float) else brief(value)


forget_app = typer.Typer(rich_markup_mode=None)


@command(forget_app, "forget")
def forget(
    call: CommandContext,
    *,
    user: Annotated[
        str | None, typer.Option("--user", metavar="U", help="The user to forget.")
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="A", help="The agent to forget.")
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option("--names", metavar="TEXT", help="A name to search in texts of others."),
    ] = None,
    mentions: Annotated[
        MentionChoice, typer.Option("--mentions", help="What is done about names in texts.")
    ] = "report",
    receipt: Annotated[
        Path | None,
        typer.Option("--receipt", metavar="FILE", help="Write the receipt to a new file."),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option("--ledger", metavar="FILE", help="Write the ledger, for restores elsewhere."),
    ] = None,
    copies: Annotated[
        bool,
        typer.Option("--purge-copies", help="Delete the copies that restore and upgrades left."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation.")] = False,
) -> None:
    """Forget everything of a user's or an agent's, and the name; report what went.

    Exits 1 if something is pending. Without a user and an agent, --ledger writes the ledger alone.
    """
    for each in (receipt, ledger):
        if each is not None:
            receipts.check_new_file(each)
    if ledger is not None or copies:
        call.needs_database()
    if user is None and agent is None and receipt is None and (ledger is not None or copies):
        _after(call, ledger, copies=copies)
        return
    if (user is None) == (agent is None):
        raise typer.BadParameter(
            "one of them is needed, and not both", param_hint="--user, --agent"
        )
    whom = f"the agent {agent} remembers" if user is None else f"was remembered of {user}"
    call.make_sure(f"Forget everything that {whom}?", yes=yes)
    forget: Callable[..., ForgetReport] = (
        call.hf.forget_agent if user is None else call.hf.forget_user
    )
    report = forget(user or agent, names=names or [], mentions=mentions)
    if receipt is not None and report.receipt is not None:
        receipts.write_receipt(receipt, report.receipt)
    _after(call, ledger, copies=copies)
    call.answer.one({"type": "forget_report", **entry_to_wire(report)})
    if report.pending:
        raise typer.Exit(1)


def _after(call: CommandContext, ledger: Path | None, *, copies: bool) -> None:
    """Write the ledger and delete the copies beside the database, where requested."""
    if ledger is not None:
        write_ledger(call.database(migrate=False).engine, ledger)
    if copies:
        for each in purge_copies(call.database(migrate=False).engine):
            typer.echo(f"deleted {each.name}", err=True)


erasures_app = typer.Typer(rich_markup_mode=None)

_ERASURES = ("id", "kind", "state", "at", "completed_at")


@command(erasures_app, "list")
def list_erasures(
    call: CommandContext,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", help="At most so many.")
    ] = None,
) -> None:
    """List the erasures of the workspace, newest first. None holds a name."""
    found = call.hf.erasures.list(limit=limit)
    rows: list[Wire] = [erasure_to_wire(each) for each in found.data]
    call.answer.many(rows, _ERASURES)
