"""Commands `consolidate`: propose changes to a memory, and decide on them."""

from typing import Annotated, cast

import typer

from holdfast.doors.cli.command import CommandContext, command
from holdfast.doors.cli.output import Wire
from holdfast.library.operations.consolidations import (
    applied_to_wire,
    consolidation_to_wire,
    policy_to_wire,
)
from holdfast.memories.longterm.consolidation.records import (
    Budget,
    ChangeOp,
    Consolidation,
    ConsolidationOutput,
)

consolidate_app = typer.Typer(rich_markup_mode=None)

COLUMNS = ("id", "user", "store", "agent", "status", "proposal", "created_at")
POLICY_COLUMNS = ("user", "store", "agent", "auto", "every_hours", "min_new", "due_at")
StoreOption = Annotated[
    str | None, typer.Option("--store", metavar="STORE", help="The id of a memory store.")
]
AgentOption = Annotated[
    str | None, typer.Option("--agent", metavar="A", help="An agent with durable entries.")
]
Job = Annotated[str, typer.Argument(metavar="ID", help="The id of the consolidation.")]


@command(consolidate_app, "start")
def start(
    call: CommandContext,
    user: Annotated[
        str | None, typer.Argument(metavar="USER", help="Whom the memory is of.")
    ] = None,
    *,
    store: StoreOption = None,
    agent: AgentOption = None,
    namespace: Annotated[
        str, typer.Option("--namespace", metavar="N", help="The namespace of the collection.")
    ] = "chat",
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="M", help="provider:model; without it rules alone."),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option("--budget-tokens", metavar="N", help="The most tokens of the model."),
    ] = None,
    into: Annotated[
        str, typer.Option("--into", metavar="OUTPUT", help="Of a store: proposal or new_store.")
    ] = "proposal",
) -> None:
    """Propose changes of a memory, and show them once made; nothing is changed."""
    budget = Budget() if tokens is None else Budget(tokens=tokens)
    jobs = call.hf.consolidations
    job = jobs.create(
        user,
        store=store,
        agent=agent,
        namespace=namespace,
        model=model,
        budget=budget,
        into=cast("ConsolidationOutput", into),
    )
    _show(call, jobs.wait(job.id, timeout=budget.seconds + 60.0))


@command(consolidate_app, "policy")
def policy(
    call: CommandContext,
    user: Annotated[
        str | None, typer.Argument(metavar="USER", help="Whom the memory is of.")
    ] = None,
    *,
    store: StoreOption = None,
    agent: AgentOption = None,
    auto: Annotated[
        list[str] | None,
        typer.Option("--auto", metavar="OP", help="Accept these changes; none: no changes."),
    ] = None,
    every_hours: Annotated[
        int, typer.Option("--every-hours", metavar="N", help="Hours between two jobs.")
    ] = 24,
    min_new: Annotated[
        int, typer.Option("--min-new", metavar="N", help="Writes that a job waits for.")
    ] = 20,
    model: Annotated[
        str | None, typer.Option("--model", metavar="M", help="provider:model, or none.")
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Delete the policy instead.")] = False,
) -> None:
    """Consolidate a memory by itself, in a server or with scrub.

    Changes of the operations that --auto names are accepted without a person.
    """
    jobs = call.hf.consolidations
    if drop:
        call.answer.one({"deleted": jobs.drop_policy(user, store=store, agent=agent)})
        return
    made = jobs.policy(
        user,
        store=store,
        agent=agent,
        auto=cast("list[ChangeOp]", auto or []),
        every_hours=every_hours,
        min_new=min_new,
        model=model,
    )
    call.answer.one(policy_to_wire(made))


@command(consolidate_app, "policies")
def policies(call: CommandContext) -> None:
    """List the policies of consolidation."""
    rows: list[Wire] = [policy_to_wire(each) for each in call.hf.consolidations.policies()]
    call.answer.many(rows, POLICY_COLUMNS)


@command(consolidate_app, "list")
def list_all(
    call: CommandContext,
    user: Annotated[
        str | None, typer.Option("--user", metavar="U", help="Only jobs on this user's memory.")
    ] = None,
    *,
    store: StoreOption = None,
    agent: AgentOption = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", help="At most so many.")
    ] = None,
) -> None:
    """List consolidations, newest first."""
    found = call.hf.consolidations.list(user, store=store, agent=agent, limit=limit)
    rows: list[Wire] = [
        {**consolidation_to_wire(job), "proposal": job.proposal.status} for job in found.data
    ]
    call.answer.many(rows, COLUMNS)


@command(consolidate_app, "show")
def show(call: CommandContext, id: Job) -> None:
    """Show a proposal as a diff, each change below its id."""
    _show(call, call.hf.consolidations.retrieve(id))


@command(consolidate_app, "accept")
def accept(
    call: CommandContext,
    id: Job,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="CHANGE", help="The id of a change; the others wait."),
    ] = None,
) -> None:
    """Apply the open changes, in one transaction. Exits 1 if some are stale."""
    done = call.hf.consolidations.accept(id, only=only or None)
    call.answer.one(applied_to_wire(done))
    if done.stale:
        raise typer.Exit(1)


@command(consolidate_app, "reject")
def reject(call: CommandContext, id: Job) -> None:
    """Reject the open changes."""
    _show(call, call.hf.consolidations.reject(id))


@command(consolidate_app, "undo")
def undo(call: CommandContext, id: Job) -> None:
    """Undo what was accepted, as a whole or of one accept. Exits 1 if items were kept."""
    done = call.hf.consolidations.undo(id)
    call.answer.one(applied_to_wire(done))
    if done.kept:
        raise typer.Exit(1)


@command(consolidate_app, "resume")
def resume(call: CommandContext, id: Job) -> None:
    """Go on with a partial or failed job, and wait for it."""
    jobs = call.hf.consolidations
    job = jobs.resume(id)
    _show(call, jobs.wait(id, timeout=job.budget.seconds + 60.0))


@command(consolidate_app, "cancel")
def cancel(call: CommandContext, id: Job) -> None:
    """Stop a job; what it has proposed stays."""
    _show(call, call.hf.consolidations.cancel(id))


def _show(call: CommandContext, job: Consolidation) -> None:
    """Print the job and the diff of its proposal, or both as JSON."""
    lines = [f"{job.id}: {job.status}, proposal {job.proposal.status}"]
    lines += [job.error] if job.error else []
    lines += [job.proposal.diff] if job.proposal.changes else ["no changes"]
    call.answer.text("\n\n".join(lines), consolidation_to_wire(job))
