"""Faults at each statement of a write: all of it or nothing, and the next call works."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import apsw
import pytest
from hypothesis import settings
from memories.durable.beneath import everything, how_many, misfits_of
from memories.durable.faults import Failing, FailingPostgres, FailingSQLite, numbers_until
from msgspec import Struct

from holdfast.engines.sqlite import SQLiteEngine
from holdfast.ground.errors import EngineFault, Unavailable
from holdfast.ground.ids import Ids
from holdfast.ground.scope import LOCAL, Scope
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.context import AgentContext
from holdfast.memories.durable.forget import forget_agent
from holdfast.memories.durable.memory import DurableMemory, DurableRun
from holdfast.memories.durable.records import StoredEntry, StoredMany
from holdfast.memories.durable.rows import SHARED
from holdfast.memories.stores.rows import StoresContext
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.postgres import TEMPLATE, PostgresServer
from holdfast.testing.serving import new_workspace

Act = Callable[[], object]


class Given(Struct, frozen=True):
    """What a write starts from."""

    hf: Holdfast
    durable: DurableMemory
    clock: FrozenClock
    everyone: AgentContext


def told(stored: StoredEntry) -> object:
    """Return what *stored* says that is the same wherever and whenever it is done."""
    gone = [(each.key, each.category, each.scope) for each in (*stored.evicted, *stored.expired)]
    return stored.key, stored.content, stored.category, stored.outcome, stored.shadows, gone


def told_of_many(many: StoredMany) -> object:
    return [told(each) for each in many.stored], [(one.index, one.key) for one in many.refused]


def creating(given: Given) -> Act:
    given.durable.set("there", "x", category="core")
    return lambda: told(given.durable.set("a", "x", category="core", tags=["t"]))


def creating_the_first(given: Given) -> Act:
    return lambda: told(given.durable.set("a", "x", category="core"))


def creating_to_be_repeated(given: Given) -> Act:
    return lambda: told(given.durable.set("a", "x", category="core", idempotency_key="once"))


def replacing(given: Given) -> Act:
    given.durable.set("a", "x", category="core")
    return lambda: told(given.durable.set("a", "y", category="note"))


def evicting(given: Given) -> Act:
    given.durable.set_limits(cap=2)
    for key in ("cold", "warm"):
        given.durable.set(key, "x", category="note")
    return lambda: told(given.durable.set("a", "x", category="note"))


def expiring(given: Given) -> Act:
    given.durable.set("old", "x", category="daily")
    given.clock.tick(73 * 3600)
    return lambda: told(given.durable.set("a", "x", category="daily"))


def moving_to_the_workspace(given: Given) -> Act:
    given.durable.set("a", "own", category="core")
    return lambda: told(given.durable.set("a", "all", category="workspace"))


def moving_out_of_a_run(given: Given) -> Act:
    run = given.durable.run()
    run.set("a", "scratch", category="conversation")
    return lambda: told(run.set("a", "known", category="core"))


def all_at_once(given: Given) -> Act:
    """Write a shared entry: one expires, one is evicted, one moves."""
    given.hf.set_durable_limits(workspace_cap=1)
    given.durable.set("old", "x", category="daily")
    given.durable.set("cold", "x", category="workspace")
    given.durable.set("a", "own", category="core")
    given.clock.tick(73 * 3600)
    return lambda: told(given.durable.set("a", "all", category="workspace", idempotency_key="k"))


def writing_many(given: Given) -> Act:
    given.durable.set_limits(cap=3)
    given.durable.set("cold", "x", category="note")
    items = [{"key": f"k{n}", "content": "x", "category": "note"} for n in range(4)]
    return lambda: told_of_many(given.durable.set_many(items))


def writing_many_but_the_bad(given: Given) -> Act:
    given.durable.set_limits(cap=1)
    given.durable.set("there", "x", category="core")
    items = [
        {"key": "there", "content": "y", "category": "core"},
        {"key": "full", "content": "x", "category": "note"},
        {"key": "w", "content": "x", "category": "workspace"},
    ]
    return lambda: told_of_many(given.durable.set_many(items, on_error="skip"))


def forgotten(durable: DurableMemory) -> Act:
    def forget() -> object:
        durable.forget("a")
        return durable.history("a").data[0].op

    return forget


def forgetting(given: Given) -> Act:
    given.durable.set("a", "x", category="core")
    given.durable.set("a", "y", category="core")
    given.durable.run()
    return forgotten(given.durable)


def forgetting_what_is_shared(given: Given) -> Act:
    given.durable.set("a", "own", category="core")
    given.durable.set("a", "x", category="workspace")
    return forgotten(given.durable)


def opened(run: DurableRun) -> object:
    return run.lane, [each.key for each in run.hydration.entries]


def opening_a_run(given: Given) -> Act:
    given.durable.set("a", "x", category="core")
    before = given.durable.run("r")
    before.set("scratch", "x", category="conversation")
    return lambda: opened(given.durable.run("r"))


def resuming_a_run(given: Given) -> Act:
    given.durable.run("r").set("scratch", "x", category="conversation")
    return lambda: opened(given.durable.run("r", resume=True))


def ending_a_run(given: Given) -> Act:
    run = given.durable.run()
    run.set("scratch", "x", category="conversation")
    return lambda: run.end().removed


def lowering_the_cap(given: Given) -> Act:
    for key in ("a", "b", "c"):
        given.durable.set(key, "x", category="note")
    return lambda: [gone.key for gone in given.durable.set_limits(cap=1, evict=True).evicted]


def sweeping(given: Given) -> Act:
    given.durable.set("old", "x", category="daily")
    given.durable.run().set("scratch", "x", category="conversation")
    given.clock.tick(73 * 3600)

    def sweep() -> object:
        swept = given.durable.sweep()
        return [gone.key for gone in swept.expired], swept.ended_runs, swept.removed

    return sweep


def redacting(given: Given) -> Act:
    seq = given.durable.set("a", "x", category="core").seq
    return lambda: given.durable.redact(seq).redacted_at is not None


def restoring(given: Given) -> Act:
    seq = given.durable.set("a", "x", category="core").seq
    given.durable.set("a", "y", category="core")
    return lambda: told(given.durable.restore("a", seq))


def forgetting_an_agent(given: Given) -> Act:
    """Forget its durable memory; the ledger around it has transactions of its own."""
    given.durable.set("a", "x", category="core")
    given.durable.set("w", "x", category="workspace")
    given.durable.run()
    return lambda: forget_agent(given.everyone, "agent_7", lambda _: {})


ACTS = [
    creating,
    creating_the_first,
    creating_to_be_repeated,
    replacing,
    evicting,
    expiring,
    moving_to_the_workspace,
    moving_out_of_a_run,
    all_at_once,
    writing_many,
    writing_many_but_the_bad,
    forgetting,
    forgetting_what_is_shared,
    opening_a_run,
    resuming_a_run,
    ending_a_run,
    lowering_the_cap,
    sweeping,
    redacting,
    restoring,
    forgetting_an_agent,
]
LEADING = [evicting, all_at_once, writing_many, forgetting, opening_a_run]
"""Tried with every kind of fault; the others with one, and in full runs with one on each engine."""
ON_SERVER = ACTS if settings.get_current_profile_name() == "full" else LEADING
KINDS = {"full": ACTS, "io": LEADING, "server full": ON_SERVER, "server lost": LEADING}
CASES = [
    pytest.param(kind, act, id=f"{kind}, {act.__name__}") for kind in KINDS for act in KINDS[kind]
]


@pytest.fixture(scope="module")
def fault_clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture(scope="module")
def failing(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    fault_clock: FrozenClock,
) -> Iterator[Failing]:
    if request.param.startswith("server"):
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.url(server.new_database(TEMPLATE))
        failing = FailingPostgres(url, fault_clock, lost=request.param == "server lost")
    else:
        path = tmp_path_factory.mktemp("faults") / "h.db"
        code = apsw.SQLITE_FULL if request.param == "full" else apsw.SQLITE_IOERR
        failing = FailingSQLite(SQLiteEngine.open(path, clock=fault_clock), code)
    yield failing
    failing.close()


@pytest.fixture
def given(failing: Failing, fault_clock: FrozenClock) -> Callable[[], Given]:
    """Give what makes a workspace of its own, each time."""

    def make() -> Given:
        workspace = new_workspace()
        caller = StoresContext(
            engine=failing.engine.scoped(Scope(workspace=workspace)),
            workspace=workspace,
            actor=LOCAL,
            clock=fault_clock,
            ids=Ids(),
        )
        hf = Holdfast(failing.engine, caller)
        everyone = AgentContext(
            engine=failing.engine.scoped(Scope(workspace=workspace, agent="*")),
            workspace=workspace,
            agent=SHARED,
            actor=LOCAL,
            clock=fault_clock,
            ids=caller.ids,
        )
        return Given(hf, hf.durable("agent_7"), fault_clock, everyone)

    return make


@pytest.mark.parametrize(("failing", "prepared"), CASES, indirect=["failing"])
def test_a_fault_at_any_statement_leaves_all_or_nothing(
    failing: Failing, given: Callable[[], Given], prepared: Callable[[Given], Act]
) -> None:
    whole = given()
    wanted = prepared(whole)()
    rows = how_many(everything(whole.hf))

    def untouched(number: int) -> bool:
        one = given()
        act = prepared(one)
        before = everything(one.hf)
        with failing.at(number) as fired:
            try:
                assert act() == wanted
            except Unavailable:
                assert fired
                if everything(one.hf) == before:
                    assert act() == wanted
        after = everything(one.hf)
        assert misfits_of(after) == []
        assert how_many(after) == rows, fired
        return not fired

    assert numbers_until(untouched)


@pytest.mark.parametrize(
    ("failing", "prepared"),
    [each for each in CASES if each.values[0] in ("full", "server full")],
    indirect=["failing"],
)
def test_a_fault_at_any_row_leaves_all_or_nothing(
    failing: Failing, given: Callable[[], Given], prepared: Callable[[Given], Act]
) -> None:
    whole = given()
    act = prepared(whole)
    with failing.touched() as touched:
        wanted = act()
    rows = how_many(everything(whole.hf))

    assert touched
    for table, verb in sorted(touched):
        one = given()
        act = prepared(one)
        before = everything(one.hf)
        done = None
        with failing.on(table, verb), suppress(EngineFault):
            done = act()
        if done is None:
            assert everything(one.hf) == before
            done = act()
        assert done == wanted
        after = everything(one.hf)
        assert misfits_of(after) == []
        assert how_many(after) == rows, (table, verb)
