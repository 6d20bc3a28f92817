"""A database full of everything, read whole, and changed behind the library's back."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, LiteralString

import apsw
import psycopg
from contracts.stores import written

import holdfast
from holdfast.ground.scope import Actor
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.history.turns import KeptTurn
from holdfast.memories.run.history.versions import StateRow, VersionSave
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.stores.edits import Save
from holdfast.memories.stores.records import Store
from holdfast.testing.contracts.history import THREAD, began, ended, made, said

MARKER = "kelpmarker"
Rows = list[tuple[Any, ...]]
Ask = Callable[..., Rows]


def _fill_run(hf: Holdfast) -> None:
    memory = RunMemory(run_id="run_1")
    over = hf.runs.attach(memory, name="research", agent="agent_7", metadata={"a": "b"})
    memory.set("shared:owner", "Ada\x00", title="The owner")
    memory.set("task:t", {"a": [1]}, source="t")
    over("failed")
    assert hf.runs.retrieve("run_1").status == "failed"
    save = VersionSave(
        run_id="run_1",
        fence=0,
        at=1,
        cause="step",
        rows=(StateRow("entry", "shared:owner", b"\x00kept"),),
        turns=(KeptTurn("read", 1, b"\x00said"),),
    )
    hf.runs.checkpoints.append(save)


def _fill_thread(hf: Holdfast) -> None:
    hf.threads.append(THREAD, [said("Write, \U0001f40b\x00."), made(0), made(1, agent="editor")])
    hf.runs.put(ended("run_4"))
    hf.runs.put(began("run_2", thread_id=None))


@contextmanager
def asking(target: str) -> Generator[Ask]:
    """Give a function that runs a statement with `?` for its values, held back by no rule."""
    if target.startswith("postgresql:"):
        with psycopg.connect(target, autocommit=True) as server:
            server.execute("set search_path = holdfast")
            server.execute("set session_replication_role = replica")

            def ask_server(statement: LiteralString, *values: object) -> Rows:
                cursor = server.execute(statement.replace("?", "%s"), values)
                return cursor.fetchall() if cursor.description else []

            yield ask_server
    else:
        file: Any = apsw.Connection(target)
        file.set_busy_timeout(5000)

        def ask_file(statement: str, *values: object) -> Rows:
            return list(file.execute(statement, values))

        yield ask_file
        file.close()


def fill(hf: Holdfast) -> Store:
    """Put something of every kind into two workspaces; return a store of the first."""
    store = _fill_one(hf)
    _fill_one(hf.acting(workspace="other", actor=Actor.api("apikey_1")))
    return store


def _fill_one(hf: Holdfast) -> Store:
    _fill_run(hf)
    _fill_thread(hf)
    stores, memories = hf.memory_stores, hf.memory_stores.memories
    versions = stores.memory_versions
    store = stores.create(name="Notes", description="d", metadata={"a": "b"})
    first, second = written(hf, store, "/\u00e9", "/b", content="one\x00 two \U0001f40b")
    memories.update(first.id, memory_store_id=store.id, content="tabs and spaces")
    memories.rename(store.id, "/b", "/c/d")
    memories.delete(second.id, memory_store_id=store.id)
    versions.redact(first.memory_version_id, memory_store_id=store.id)
    versions.restore(second.memory_version_id, memory_store_id=store.id)
    written(hf, store, "/empty", content="")
    memories.apply(store.id, [Save(path="/empty", content="")], edit_id="edit_1")
    old = stores.create(name="Old")
    written(hf, old, "/kept")
    stores.archive(old.id)
    stores.create(name="Empty")
    stores.configure(memories_cap=500)
    agent = hf.agents.create({"name": "Ada", "model": "m"})
    environment = hf.environments.create({"name": "here"})
    attached = {"type": "memory_store", "memory_store_id": store.id, "access": "read_only"}
    session = hf.sessions.create(
        agent=str(agent["id"]), environment_id=str(environment["id"]), resources=[attached]
    )
    hf.sessions.create_token(session.id, expires_in=3_600)
    hf.sessions.archive(hf.sessions.create(agent="a", environment_id="e", title="t").id)
    hf.keys.create("k", scope="read")
    hf.keys.revoke(hf.keys.create("gone").id)
    _remember(hf)
    return store


def _remember(hf: Holdfast) -> None:
    """Put something of every kind into durable memory."""
    for agent in ("coder", "tester"):
        durable = hf.durable(agent)
        durable.set_limits(cap=4, budget=1_000)
        for number in range(3):
            durable.set(f"k{number}", f"v{number} \U0001f40b", category="core", tags=["b", "a"])
        durable.set("k2", "v", category="core", idempotency_key="again")
        durable.set("evicted", "soon", category="notes")
        durable.set("gone", "for good", category="notes")
        durable.set("house", agent, category="workspace")
        durable.forget("gone")
        durable.set("open", "a ticket", category="daily")
        durable.redact(durable.history("k1").data[0].seq)
        durable.run("run_0").end()
        durable.run("run_1").set("scratch", "kept", category="conversation")
    hf.set_durable_limits(workspace_cap=7)


def everything(hf: Holdfast) -> list[object]:
    """Return all that two workspaces hold, as the library tells it."""
    return [_everything(hf), _everything(hf.acting(workspace="other"))]


def _everything(hf: Holdfast) -> list[object]:
    stores = list(hf.memory_stores.list(include_archived=True).all())
    sessions = list(hf.sessions.list(include_archived=True).all())
    found: list[object] = [hf.memory_stores.settings(), *stores, *sessions, *hf.keys.list()]
    for store in stores:
        found += hf.memory_stores.memories.list(store.id, view="full").all()
        found += hf.memory_stores.memory_versions.list(store.id, view="full").all()
        found += hf.memory_stores.memories.search(store.id, "two tabs")
    for session in sessions:
        found += hf.sessions.list_tokens(session.id)
    agents = list(hf.agents.list(include_archived=True).all())
    found += [agents, list(hf.environments.list(include_archived=True).all())]
    found += [list(hf.durable_agents()), hf.durable_limits()]
    for agent in ("coder", "tester"):
        durable = hf.durable(agent)
        found += [list(durable.list()), list(durable.history()), durable.hydrate().render()]
        found += [durable.limits(), durable.explain("gone")]
    for thread in hf.threads.list():
        found += [thread, list(hf.threads.turns(thread.id)), list(hf.runs.list(thread=thread.id))]
    return [*found, *hf.runs.list()]


def opened(target: str | Path) -> Holdfast:
    return holdfast.open(str(target))


def checks(hf: Holdfast, *, quick: bool = False) -> set[tuple[str, str]]:
    """Return which checks found something, and in which table."""
    report = hf.verify(quick=quick)
    assert report.ok == (not report.findings)
    return {(each.check, each.table) for each in report.findings}
