"""Threads deleted, and an agent's results taken out of those that stay."""

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Engine, Transaction
from holdfast.memories.state.caller import QUERIES, Caller, queries_of
from holdfast.memories.state.run_records import body_of, record_of
from holdfast.memories.state.thread_ids import checked_id


class _InThread(Struct, frozen=True, kw_only=True):
    thread_id: str


class _Held(Struct, frozen=True, kw_only=True):
    id: str


class _Run(Struct, frozen=True, kw_only=True):
    id: str
    body: str


def delete_thread(caller: Caller, thread_id: str) -> bool:
    """Delete the thread with its turns and runs; tell whether there was anything.

    When this returns the bytes are in no file of the database, unless a reader holds the log.
    """
    thread = checked_id("thread_id", thread_id)

    def work(tx: Transaction) -> bool:
        sql = queries_of(caller)
        # The thread first: who would add to it meanwhile waits, and begins it anew.
        gone = tx.run(sql.forget_thread, thread=thread)
        gone += tx.run(sql.forget_turns, thread=thread)
        return bool(gone + tx.run(sql.forget_runs, thread=thread))

    deleted = caller.engine.write(work)
    if deleted:
        caller.engine.scrub()
    return deleted


def forget_results(
    engine: Engine, tx: Transaction, *, workspace: str, agent: str
) -> dict[str, int]:
    """Take *agent*'s results out of every thread, and its name out of the records of runs.

    Returns how many rows went, or lost the name, by table. What other agents were told of it
    stands in their results, which are theirs. Whoever calls this scrubs.
    """
    sql, whose = engine.queries(QUERIES), {"workspace": workspace}
    found = tx.all(_InThread, sql.threads_of_agent, agent=agent, **whose)
    gone = 0
    if found:
        ids = msgspec.json.encode([each.thread_id for each in found]).decode()
        # Ours until the commit, so that what is counted is what will be there.
        tx.all(_Held, sql.hold_threads, ids=ids, **whose)
        gone = tx.run(sql.forget_results, ids=ids, agent=agent, **whose)
        tx.send(sql.recount_turns, ids=ids, **whose)
    quoted = msgspec.json.encode(agent).decode()
    runs = tx.all(_Run, sql.runs_naming, quoted=quoted, **whose)
    for run in runs:
        record = replace(record_of(run.body), extras={}, error=None, stop_detail=None)
        tx.send(sql.unname_run, id=run.id, body=body_of(record), **whose)
    return {"thread_turns": gone, "network_runs": len(runs)}
