"""Forget an agent in run memory and threads, together with durable memory."""

from collections.abc import Callable

from holdfast.engines.base import Engine, Transaction
from holdfast.memories.run.records.write import forget_runs
from holdfast.memories.state.thread_store import forget_results


def elsewhere(
    engine: Engine, workspace: str, agent: str
) -> Callable[[Transaction], dict[str, int]]:
    """Return the work that removes *agent* from threads and runs.

    It takes the agent's results out of threads, deletes its runs, and returns both counts.
    """

    def forget(tx: Transaction) -> dict[str, int]:
        results = forget_results(engine, tx, workspace=workspace, agent=agent)
        return results | forget_runs(engine, tx, workspace=workspace, agent=agent)

    return forget
