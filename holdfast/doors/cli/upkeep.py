"""`holdfast eval`: how well recall finds what was said."""

from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer

from holdfast.doors.cli.command import CommandContext, command
from holdfast.doors.cli.output import bar, brief, put_json

eval_app = typer.Typer(rich_markup_mode=None)

DEEPEST = 100
"""Recall gives no more."""
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
) -> None:
    """Measure recall on conversations with questions about them; no network, no model."""
    from holdfast.library.evaluation.evaluate import evaluate
    from holdfast.library.evaluation.locomo import read
    from holdfast.library.evaluation.remembered import remembered
    from holdfast.library.evaluation.report import report

    with bar("Asking") as told:
        sample = read(file)
        outcome = evaluate(sample, remembered, k=k or 1, watch=perf_counter, told=told)
    found = report(sample, outcome, k=k, version=version("holdfast"))
    if call.answer.as_json:
        put_json(found)
    else:
        _show(found)


def _show(found: dict[str, Any]) -> None:
    """Show what was *found* on a terminal: of what, all figures of each kind, by conversation."""
    from holdfast.doors.cli.output import print_fields, print_table

    groups = {
        "main": found["overall"],
        "shipped": found["as_shipped"],
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


def _number(value: object) -> str:
    """Return a share to three places, a count as it is."""
    return f"{value:.3f}" if isinstance(value, float) else brief(value)
