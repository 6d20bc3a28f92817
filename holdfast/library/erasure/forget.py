"""Forget a person or an agent in every memory, with a report."""

from collections.abc import Callable

from holdfast import library, memories
from holdfast.engines.base import Engine, Transaction
from holdfast.library.erasure.records import ForgetReport
from holdfast.memories.stores.rows import StoresContext, refuse_narrowed


def forget_agent(context: "memories.AgentContext", agent: str) -> ForgetReport:
    """Forget *agent*: durable memory, results in threads, runs, and its name.

    *context* reaches every agent of its workspace.
    """
    also = outside_durable(context.engine, context.workspace, agent)
    counts = memories.forget_agent(context, agent, also)
    return ForgetReport(counts=counts, pending=context.engine.scrub().pending)


def forget_user(context: StoresContext, shared: "memories.Shared", user_id: str) -> ForgetReport:
    """Forget all data of *user_id* in the workspace of *context*, and the name."""
    refuse_narrowed(context, "admin")
    spec = library.LongTermSpec(user_id=user_id)
    collection = library.collection_context(context, shared, spec)
    shared.access_log.flush()
    also = outside_longterm(context.engine, context.workspace, user_id)
    counts = memories.forget_user(collection, also)
    return ForgetReport(counts=counts, pending=collection.engine.scrub().pending)


def outside_durable(
    engine: Engine, workspace: str, agent: str
) -> Callable[[Transaction], dict[str, int]]:
    """Return the work that removes *agent* from threads and runs.

    It takes the agent's results out of threads, deletes its runs, and returns both counts.
    """

    def forget(tx: Transaction) -> dict[str, int]:
        turns = memories.forget_results(engine, tx, workspace=workspace, agent=agent)
        return turns | memories.forget_runs(engine, tx, workspace=workspace, agent=agent)

    return forget


def outside_longterm(
    engine: Engine, workspace: str, user: str
) -> Callable[[Transaction], dict[str, int]]:
    """Return the work that deletes threads and answers of *user*."""

    def forget(tx: Transaction) -> dict[str, int]:
        gone = memories.forget_user_threads(engine, tx, workspace=workspace, user=user)
        return gone | memories.forget_user_runs(engine, tx, workspace=workspace, user=user)

    return forget
