"""Runs of the items of a distributed step, each one queued for any worker."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias, cast

from msgspec import Struct

from holdfast import library
from holdfast.ground.json_values import JSON
from holdfast.memories.run import keys
from holdfast.memories.run.records.event import Reason
from holdfast.memories.run.records.lease import RunSubmission, statuses, submit
from holdfast.memories.run.records.run import ENDINGS
from holdfast.runtime.context import Context
from holdfast.runtime.events import Spending, StepError


class ItemResult(Struct, frozen=True):
    """The result of an item that a run of its own did, and what that run used."""

    value: JSON
    usage: Spending


ItemOutcome: TypeAlias = ItemResult | StepError
"""How the run of an item ended."""


class ItemRuns(Struct, frozen=True, kw_only=True):
    """The runs of the items of the run *run_id*, which a worker has, of *definition*.

    Each has the id of the run and of its item, and the same definition, queue and metadata. What it
    needs of the run, such as its input, is read there when it begins.
    With *item*, a step and an index, the run is itself that of an item, of the run *parent*.
    """

    hf: "library.Holdfast"
    run_id: str
    definition: str
    queue: str
    priority: int
    metadata: Mapping[str, str]
    item: tuple[str, int] | None = None
    parent: str = ""

    def outcomes(self, ids: Sequence[str]) -> dict[str, ItemOutcome]:
        """Queue a run for each of the item steps *ids* that has none.

        Return the outcomes of those that are over, by id of the item step.
        """
        context = self.hf.runs.context
        for each in ids:
            submission = RunSubmission(
                run_id=self._id(each),
                definition=self.definition,
                queue=self.queue,
                priority=self.priority,
                metadata=self.metadata,
                parent=self.run_id,
            )
            submit(context, submission)
        found = statuses(context, [self._id(each) for each in ids])
        return {each: self._outcome(each) for each in ids if found[self._id(each)] in ENDINGS}

    def _id(self, step: str) -> str:
        return f"{self.run_id}.{step}"

    def _outcome(self, step: str) -> ItemOutcome:
        runs, id = self.hf.runs, self._id(step)
        run = runs.retrieve(id)
        if run.status == "completed":
            used = run.usage
            tokens = used.input_tokens, used.output_tokens
            usage = Spending(used.requests, *tokens, sum(tokens))
            return ItemResult(runs.at(id).memory.get_value(keys.step(step)), usage)
        reason = cast("Reason", run.reason or "cancelled")
        return StepError(reason, run.detail or run.status)

    def seed(self, context: Context) -> None:
        """Put what the run *parent* knows into *context*, of the run of its item."""
        there = self.hf.runs.at(self.parent).memory.snapshot()
        context.memory.restore(there)
        context.versions.known = frozenset(entry.key for entry in there)


def runs_of_items(context: Context) -> ItemRuns | None:
    """Return the runs of items of *context*'s run; None where no worker has that run."""
    runs = cast("ItemRuns | None", context.root.items)
    return runs if runs is not None and runs.run_id == context.run_id else None
