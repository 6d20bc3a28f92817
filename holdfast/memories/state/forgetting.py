"""Threads deleted, and an agent's results taken out of those that stay."""

import hmac
import re
import secrets
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Engine, Transaction
from holdfast.memories.state.run_record import RunRecord
from holdfast.memories.state.run_records import body_of, record_of
from holdfast.memories.state.thread import QUERIES, ThreadsContext, checked_id, queries_of

SECRET_BYTES: Final = 32


class _InThread(Struct, frozen=True, kw_only=True):
    thread_id: str


class _ThreadId(Struct, frozen=True, kw_only=True):
    id: str


class _Run(Struct, frozen=True, kw_only=True):
    id: str
    body: str


def delete_thread(caller: ThreadsContext, thread_id: str) -> bool:
    """Delete the thread with its turns and runs; tell whether there was anything.

    When this returns the bytes are in no file of the database, unless a reader holds the log. A
    keyed hash of the id stays, so that a restored backup does not bring the thread back.
    """
    deleted = delete_thread_again(caller, checked_id("thread_id", thread_id))
    if deleted:
        caller.engine.scrub()
    return deleted


def delete_thread_again(caller: ThreadsContext, thread: str) -> bool:
    """Delete the thread as `delete_thread` does; whoever calls this scrubs."""

    def work(tx: Transaction) -> bool:
        sql = queries_of(caller)
        # The thread first: who would add to it meanwhile waits, and begins it anew.
        gone = tx.run(sql.forget_thread, thread=thread)
        gone += tx.run(sql.forget_turns, thread=thread)
        gone += tx.run(sql.forget_runs, thread=thread)
        if gone:
            tx.send(sql.make_tombstone_secret, secret=secrets.token_bytes(SECRET_BYTES))
            hashed = thread_hash(tx.one(_secret, sql.get_tombstone_secret), thread)
            tx.send(sql.bury_thread, thread_hash=hashed, seq=tx.seq, now=caller.now())
        return bool(gone)

    return caller.engine.write(work)


def thread_hash(secret: bytes, thread: str) -> bytes:
    """Return what is kept of the id of a thread that was deleted: 32 bytes of HMAC-SHA256."""
    return hmac.digest(secret, f"thread\0{thread}".encode(), "sha256")


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
        tx.all(_ThreadId, sql.hold_threads, ids=ids, **whose)
        gone = tx.run(sql.forget_results, ids=ids, agent=agent, **whose)
        tx.send(sql.recount_turns, ids=ids, **whose)
    renamed = 0
    for run in tx.all(_Run, sql.runs_naming, text=_within_json(agent), **whose):
        record = record_of(run.body)
        if (unnamed := _without(record, agent)) != record:
            tx.send(sql.unname_run, id=run.id, body=body_of(unnamed), **whose)
            renamed += 1
    return {"thread_turns": gone, "network_runs": renamed}


def _without(record: RunRecord, agent: str) -> RunRecord:
    """Return *record* without what names *agent* as a word of its own."""
    word = re.compile(rf"(?<!\w){re.escape(_within_json(agent))}(?!\w)")

    def named(value: object) -> bool:
        return word.search(msgspec.json.encode(value).decode()) is not None

    return replace(
        record,
        extras={name: each for name, each in record.extras.items() if not named({name: each})},
        error=None if named(record.error) else record.error,
        stop_detail=None if named(record.stop_detail) else record.stop_detail,
    )


def _secret(*, secret: bytes) -> bytes:
    return secret


def _within_json(text: str) -> str:
    """Return *text* as it stands within a string of JSON."""
    return msgspec.json.encode(text).decode()[1:-1]
