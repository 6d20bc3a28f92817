"""What other memories than durable memory have of an agent, forgotten with it."""

from collections.abc import Callable

from holdfast.engines.base import Engine, Transaction
from holdfast.memories.run.records.write import forget_runs
from holdfast.memories.state.thread_store import forget_results


def elsewhere(
    engine: Engine, workspace: str, agent: str
) -> Callable[[Transaction], dict[str, int]]:
    """Return what takes *agent*'s results out of threads and deletes its runs, and counts both."""

    def forget(tx: Transaction) -> dict[str, int]:
        results = forget_results(engine, tx, workspace=workspace, agent=agent)
        return results | forget_runs(engine, tx, workspace=workspace, agent=agent)

    return forget
