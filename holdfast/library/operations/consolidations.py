"""Operations on consolidations: jobs that propose changes to a memory."""

from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Struct

from holdfast.library.consolidations import Consolidations
from holdfast.library.operations.base import (
    Operation,
    OperationTable,
    Param,
    WireForm,
    field_form,
)
from holdfast.memories.longterm.consolidation.records import (
    AppliedChanges,
    Budget,
    ChangeOp,
    Consolidation,
    ConsolidationOutput,
    ConsolidationPolicy,
    Proposal,
)

_ALL: Final = "/api/consolidations"
_ONE: Final = f"{_ALL}/{{id}}"
_POLICIES: Final = "/api/consolidation_policies"


class CreateConsolidation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The memory to consolidate, and the model, budget and instructions."""

    user: str | None = None
    store: str | None = None
    agent: str | None = None
    namespace: str = "chat"
    workspace_id: str | None = None
    model: str | None = None
    budget: Budget | None = None
    instructions: str = ""
    into: ConsolidationOutput = "proposal"


class SetPolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The memory to consolidate by itself, how often, and what is accepted then."""

    user: str | None = None
    store: str | None = None
    agent: str | None = None
    namespace: str = "chat"
    workspace_id: str | None = None
    auto: tuple[ChangeOp, ...] = ("merge",)
    every_hours: int = 24
    min_new: int = 20
    model: str | None = None
    budget: Budget | None = None
    instructions: str = ""


class ResumeConsolidation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another budget or model, to go on with."""

    budget: Budget | None = None
    model: str | None = None


class AcceptChanges(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ids of the changes to accept; null for all."""

    only: list[str] | None = None


def proposal_to_wire(proposal: Proposal) -> dict[str, Any]:
    """Return *proposal* as the JSON object of the wire, each change with its diff."""
    changes = [{**msgspec.to_builtins(each), "diff": each.diff} for each in proposal.changes]
    return {"type": "proposal", **msgspec.to_builtins(proposal), "changes": changes}


def consolidation_to_wire(job: Consolidation) -> dict[str, Any]:
    """Return *job* as the JSON object of the wire."""
    proposal = proposal_to_wire(job.proposal)
    return {"type": "consolidation", **msgspec.to_builtins(job), "proposal": proposal}


def applied_to_wire(applied: AppliedChanges) -> dict[str, Any]:
    """Return *applied* as the JSON object of the wire."""
    return {"type": "applied_changes", **msgspec.to_builtins(applied)}


def policy_to_wire(policy: ConsolidationPolicy) -> dict[str, Any]:
    """Return *policy* as the JSON object of the wire."""
    return {"type": "consolidation_policy", **msgspec.to_builtins(policy)}


def _policies_to_wire(policies: list[ConsolidationPolicy]) -> dict[str, Any]:
    return {"data": [policy_to_wire(each) for each in policies]}


def _policies_of(wire: Any) -> list[ConsolidationPolicy]:
    return msgspec.convert(wire["data"], list[ConsolidationPolicy])


_JOB: Final = WireForm(consolidation_to_wire, partial(msgspec.convert, type=Consolidation))
_APPLIED: Final = WireForm(applied_to_wire, partial(msgspec.convert, type=AppliedChanges))
_PROPOSAL: Final = WireForm(proposal_to_wire, partial(msgspec.convert, type=Proposal))
_POLICY: Final = WireForm(policy_to_wire, partial(msgspec.convert, type=ConsolidationPolicy))
_get = partial(Operation, method="GET", scope="read", lane="slow")
_post = partial(Operation, method="POST", scope="write", lane="slow")

CONSOLIDATIONS: Final = OperationTable(
    facade=Consolidations,
    operations=(
        _post(
            "consolidations.create",
            _ALL,
            "Start a job that proposes changes to a memory.",
            _JOB,
            params=CreateConsolidation,
            status=202,
        ),
        _get(
            "consolidations.list",
            _ALL,
            "List consolidations, newest first, without their changes.",
            _JOB,
            special={
                "user": Param(type=str),
                "store": Param(type=str),
                "agent": Param(type=str),
                "status": Param(type=str),
            },
            paged=True,
        ),
        _get("consolidations.retrieve", _ONE, "Retrieve a consolidation and its proposal.", _JOB),
        _get(
            "consolidations.replay",
            f"{_ONE}/replay",
            "Make the proposal again from the log of calls; nothing is stored.",
            _PROPOSAL,
        ),
        _post("consolidations.cancel", f"{_ONE}/cancel", "Stop a job.", _JOB, retry="safe"),
        _post(
            "consolidations.resume",
            f"{_ONE}/resume",
            "Go on with a partial or failed job.",
            _JOB,
            params=ResumeConsolidation,
            optional=True,
        ),
        _post(
            "consolidations.accept",
            f"{_ONE}/accept",
            "Apply changes of a proposal, in one transaction.",
            _APPLIED,
            params=AcceptChanges,
            optional=True,
            special={"actor": Param(sent=False)},
        ),
        _post("consolidations.reject", f"{_ONE}/reject", "Reject the open changes.", _JOB),
        _post("consolidations.undo", f"{_ONE}/undo", "Undo what was accepted.", _APPLIED),
        _post(
            "consolidations.policy",
            _POLICIES,
            "Consolidate a memory by itself from now on.",
            _POLICY,
            params=SetPolicy,
            retry="safe",
        ),
        _get(
            "consolidations.policies",
            _POLICIES,
            "List the policies of consolidation.",
            WireForm(_policies_to_wire, _policies_of),
        ),
        Operation(
            "consolidations.drop_policy",
            _POLICIES,
            "Delete the policy of a memory.",
            field_form("deleted", bool),
            method="DELETE",
            scope="write",
            lane="slow",
            special={
                name: Param(type=str)
                for name in ("user", "store", "agent", "namespace", "workspace_id")
            },
            retry="safe",
        ),
    ),
)
