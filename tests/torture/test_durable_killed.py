"""Durable memory after `kill -9`: what was acknowledged is there, nothing went without cause."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from memories.durable.beneath import everything, misfits
from torture.counts import counted
from torture.durable_writer import CAP, THREADS
from torture.zygote import Life, Zygote

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.testing.postgres import PostgresServer, running_postgres
from holdfast.testing.serving import new_workspace

LIVES = int(os.environ.get("HOLDFAST_TORTURE_LIVES", "3"))
LIVES_OF_A_FILE = 50
LINES = (60, 1, 400, 8)
"""How much a writer does before it is killed, life by life."""
WRITER = "torture.durable_writer"

Held = dict[str, tuple[str, str]]
"""What an agent keeps by key, coldest first: category and content."""
Said = tuple[str, int, str, str, str, str]


def after(held: Held, act: str, key: str, category: str, text: str) -> tuple[Held, list[str]]:
    """Return what an agent keeps once it did *act*, and which keys were evicted for it."""
    held, evicted = dict(held), list[str]()
    if act == "forget":
        held.pop(key, None)
    elif category != "conversation":
        if key not in held and len(held) == CAP:
            windowed = [each for each, (kind, _) in held.items() if kind != "core"]
            if not windowed and category != "core":
                return held, []
            evicted = [windowed[0] if windowed else next(iter(held))]
            del held[evicted[0]]
        held.pop(key, None)
        held[key] = (category, text)
    return held, evicted


def possible(said: list[Said]) -> list[list[Held]]:
    """Return what each agent may keep: all it did, and perhaps what it began."""
    held: list[Held] = [{} for _ in range(THREADS)]
    begun: list[Held] = [{} for _ in range(THREADS)]
    evicted: list[list[str]] = [[] for _ in range(THREADS)]
    for word, thread, act, key, category, text in said:
        if word == "will":
            begun[thread], evicted[thread] = after(held[thread], act, key, category, text)
        else:
            assert text.split() == evicted[thread]
            held[thread] = begun[thread]
    return [list(pair) for pair in zip(held, begun, strict=True)]


def kept(hf: Holdfast, agent: str) -> Held:
    """Return what *agent* keeps, coldest first."""
    entries = hf.durable(agent).list(limit=1000).data
    return {each.key: (each.category, each.content) for each in reversed(entries)}


Run = Callable[[str, int], Life]
"""Runs a writer in a workspace until it has said so many lines."""


def check_a_life(target: str, life: int, run: Run) -> int:
    """Let a writer live and die; return how many writes were acknowledged."""
    workspace = new_workspace()
    with holdfast.open(target, workspace=workspace) as hf:
        hf.set_durable_limits(cap=CAP)

    said: list[Said] = [tuple(line) for line in run(workspace, LINES[life % len(LINES)]).said]

    with holdfast.open(target, workspace=workspace) as hf:
        assert misfits(hf) == []
        for thread, states in enumerate(possible(said)):
            there = kept(hf, f"agent_{thread}")
            assert any(list(there.items()) == list(state.items()) for state in states)
            assert hf.durable(f"agent_{thread}").run().hydration.omitted == ()
        assert not any(entry["run_id"] for entry in everything(hf)["durable_entries"])
        assert misfits(hf) == []
        assert hf.verify().findings == ()
        for thread in range(THREADS):
            hf.forget_agent(f"agent_{thread}")
    return sum(word == "did" for word, *_ in said)


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """Give a server that nobody else uses, for it is to crash."""
    with running_postgres() as server:
        server.make_template()
        yield server


@pytest.mark.timeout(60 + 15 * LIVES)
@pytest.mark.parametrize("target", ["sqlite_file", "fresh_postgres_url"])
def test_no_acknowledged_write_is_lost_with_its_writer(
    request: pytest.FixtureRequest, target: str, zygote: Zygote
) -> None:
    database = str(request.getfixturevalue(target))

    def run(workspace: str, lines: int) -> Life:
        life = zygote.life(WRITER, database, workspace, lines=lines)
        assert life.status == -signal.SIGKILL
        return life

    # A life takes several times as long on PostgreSQL.
    lives = max(3, LIVES // 2 if target == "sqlite_file" else LIVES // 8)
    acknowledged = 0
    for life in range(lives):
        if target == "sqlite_file" and life % LIVES_OF_A_FILE == 0:
            # Each life reads all that is stored.
            database = str(Path(database).with_name(f"{life}.db"))
        acknowledged += check_a_life(database, life, run)

    assert acknowledged > 0
    counted("kills", lives)
    counted("acknowledged writes compared after a kill", acknowledged)


@pytest.mark.timeout(60 + 15 * LIVES)
def test_no_acknowledged_write_is_lost_with_the_server(
    server: PostgresServer, zygote: Zygote
) -> None:
    url = server.url(server.new_database("holdfast_template"))
    lives = max(3, LIVES // 20)

    def crash() -> None:
        server.stop("immediate")
        server.start()

    def run(workspace: str, lines: int) -> Life:
        return zygote.life(WRITER, url, workspace, lines=lines, meanwhile=crash)

    acknowledged = sum(check_a_life(url, life, run) for life in range(lives))

    assert acknowledged > 0
    counted("kills", lives)
    counted("acknowledged writes compared after a kill", acknowledged)
