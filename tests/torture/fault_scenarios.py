"""Runs scenarios with faults of the calls on files, in a process that has loaded `faults.c`.

    python -m torture.fault_scenarios ROOT PLAN MOST SEED SCENARIO[=CALL[:ERROR[:TIMES]]]…

Each scenario is first run without faults to count its calls, then once for each fault, or for MOST
of them that are drawn by SEED, of one kind or of all. After each, what was acknowledged must be
there and what was refused must not, the next write must succeed, `verify` must find nothing, and no
descriptor may be left open. It prints a JSON line for each scenario: how many faults happened, and
what was wrong.
"""

import logging
import os
import random
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from copy import copy
from pathlib import Path
from threading import Event, Thread
from typing import TypeVar

import msgspec
from torture.faults import LASTING, Call, Fault, FaultPlan, faults_of
from torture.power_writer import OPTIONS, RUN, SPOOLED, Values

import holdfast
from holdfast.doors.mount.storage.spool import Spool, SpoolEntry
from holdfast.engines import migrate as migrations
from holdfast.engines.migrate import Migration
from holdfast.engines.sqlite import SQLiteEngine, database
from holdfast.engines.sqlite.readers import FileReaders
from holdfast.ground.clock import SystemClock
from holdfast.ground.errors import HoldfastError, PathTaken, Unavailable
from holdfast.library.holdfast import Holdfast
from holdfast.library.upkeep.restore import restore
from holdfast.memories.durable.markdown.folder import read_folder
from holdfast.runtime.runs.checkpoints import CheckpointChange, FileCheckpoints, FileLog

T = TypeVar("T")
LARGE = "x" * 60_000
"""A text of many pages."""

_HALF_A_MILLISECOND = 0.0005


class Outcomes:
    """What must be stored, by the outcomes of acts under *fault*.

    Keys are as in `power_writer`. No two acts of a scenario change the same key. *plan* shows
    whether calls fail: while none can be synced, nothing may be acknowledged.
    """

    def __init__(self, fault: Fault | None, known: Values, plan: FaultPlan | None = None) -> None:
        self.fault, self.known, self._plan = fault, dict(known), plan
        self.doubts: list[tuple[Values, Values]] = []
        self.acknowledged = 0

    def act(
        self, values: Values, do: Callable[[], T], refusal: type[HoldfastError] | None = None
    ) -> T | None:
        """Do an act that gives *values* if it succeeds, or is refused with *refusal* at best."""
        unsynced = self._never_synced
        try:
            result = do()
        except Unavailable as error:
            self.check(error)
            if error.written is None:
                before = {key: self.known.get(key) for key in values}
                self.doubts.append((before, values))
            return None
        except HoldfastError as error:
            if refusal is None or not isinstance(error, refusal):
                raise AssertionError(f"{error!r} is no error of a fault") from error
            return None
        assert refusal is None, "an act was not refused"
        assert not (unsynced and values), f"{list(values)} was acknowledged without a sync"
        self.known |= values
        self.acknowledged += 1
        return result

    @property
    def _never_synced(self) -> bool:
        fault = self.fault
        lasting = fault is not None and fault.call == Call.SYNC and fault.times == LASTING
        return lasting and self._plan is not None and self._plan.is_failing

    def read(self, do: Callable[[], object]) -> None:
        """Read; what is returned is compared at the end."""
        try:
            do()
        except Unavailable as error:
            self.check(error)

    def check(self, error: Unavailable) -> None:
        """Assert that the fault explains *error*."""
        assert self.fault is not None, f"{error!r} without a fault"
        assert self.fault.explains(error), f"{error!r}, {error.reason}"

    def compare(self, found: Values) -> None:
        """Assert that *found* is what the acts left."""
        unsure = {key for before, _ in self.doubts for key in before}
        for before, after in self.doubts:
            there = {key: found.get(key) for key in before}
            assert there in (before, after), f"half of an act: {there}"
        for key in {*self.known, *found} - unsure:
            assert _cut(found.get(key)) == _cut(self.known.get(key)), key


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) < 100 else f"{text[:80]}… {len(text)}"


BEFORE: Values = {
    "d/old": "was there",
    "d/gone": "is forgotten",
    "m/a": "a memory",
    "m/b": "another",
    "m/c": "a third",
}
"""What each database has at first."""


def filled(hf: Holdfast) -> None:
    """Store `BEFORE` in an empty database."""
    durable = hf.durable("agent")
    store = hf.memory_stores.create(name="store").id
    for key, text in BEFORE.items():
        if key[0] == "d":
            durable.set(key[2:], text or "", category="note")
        else:
            hf.memory_stores.memories.create(store, path=key[1:], content=text or "")


def stored(hf: Holdfast) -> Values:
    """Return what the database has."""
    found: Values = {
        f"d/{entry.key}": entry.content for entry in hf.durable("agent").list(limit=1000).data
    }
    for store in hf.memory_stores.list().all():
        for item in hf.memory_stores.memories.list(store.id, view="full").all():
            assert item.type == "memory"
            found[f"m{item.path}"] = item.content
    ltm = hf.longterm("user", enabled=True, options=OPTIONS)
    assert ltm is not None
    return found | {f"l/{item.text}": item.text for item in ltm.list(limit=1000).data}


class Acts:
    """Writes of all kinds through a handle, local or remote."""

    def __init__(self, hf: Holdfast) -> None:
        self._use(hf)
        self.store = next(iter(hf.memory_stores.list().all())).id
        self.ids = {
            item.path: item.id
            for item in hf.memory_stores.memories.list(self.store).all()
            if item.type == "memory"
        }

    def on(self, hf: Holdfast) -> "Acts":
        """Return the same on another handle of this database."""
        acts = copy(self)
        acts._use(hf)
        return acts

    def _use(self, hf: Holdfast) -> None:
        # All are opened before calls fail: opening a collection of a server sends a request.
        longterm = hf.longterm("user", enabled=True, options=OPTIONS)
        assert longterm is not None
        self.hf, self.durable, self.longterm = hf, hf.durable("agent"), longterm

    def neighbours(self, outcomes: Outcomes, *others: Callable[[], object]) -> None:
        """Let three writes wait together: a small one, a large one, one that is refused.

        *others* are done meanwhile.
        """
        create = self.hf.memory_stores.memories.create
        writes: list[Callable[[], object]] = [
            lambda: outcomes.act(
                {"d/near": "small"}, lambda: self.durable.set("near", "small", category="note")
            ),
            lambda: outcomes.act(
                {"m/near": LARGE}, lambda: create(self.store, path="/near", content=LARGE)
            ),
            lambda: outcomes.act(
                {}, lambda: create(self.store, path="/a", content="taken"), refusal=PathTaken
            ),
        ]
        together(self.hf, writes, others)

    def write(self, outcomes: Outcomes) -> None:
        """Change, rename, delete and remember something, and forget an entry."""
        memories = self.hf.memory_stores.memories
        outcomes.act({"d/old": "new"}, lambda: self.durable.set("old", "new", category="note"))
        outcomes.act(
            {"m/a": LARGE},
            lambda: memories.update(self.ids["/a"], memory_store_id=self.store, content=LARGE),
        )
        outcomes.act(
            {"m/b": None, "m/moved": "another"},
            lambda: memories.rename(self.store, "/b", "/moved"),
        )
        outcomes.act(
            {"m/c": None}, lambda: memories.delete(self.ids["/c"], memory_store_id=self.store)
        )
        outcomes.act({"l/A fact.": "A fact."}, lambda: self.longterm.remember("A fact."))
        outcomes.act({"d/gone": None}, lambda: self.durable.forget("gone"))
        outcomes.read(lambda: stored(self.hf))


def together(
    hf: Holdfast, writes: Sequence[Callable[[], object]], others: Sequence[Callable[[], object]]
) -> None:
    """Run *writes* and *others* in threads; on a local engine the writes wait for one group."""
    wrong: list[BaseException] = []

    def run(act: Callable[[], object]) -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - raised by the caller
            wrong.append(error)

    threads = [Thread(target=run, args=(act,)) for act in (*writes, *others)]
    with ExitStack() as stack:
        waiting: Callable[[], bool] = lambda: False  # noqa: E731 - one expression
        engine = getattr(hf, "engine", None)
        if isinstance(engine, SQLiteEngine):
            gate, queue = Event(), engine.core.writer.queue
            first = engine.submit(lambda _: gate.wait())
            stack.callback(first.exception)
            stack.callback(gate.set)
            waiting = lambda: len(queue) < len(writes)  # noqa: E731 - one expression
        for thread in threads:
            thread.start()
        while waiting() and any(thread.is_alive() for thread in threads):
            Event().wait(_HALF_A_MILLISECOND)
    for thread in threads:
        thread.join()
    if wrong:
        raise wrong[0]


class Scenario:
    """Acts on the files of *folder*, and what must be there afterwards."""

    def __init__(self, folder: Path, fault: Fault | None, plan: FaultPlan) -> None:
        self.folder, self.fault, self.plan = folder, fault, plan
        self.path = folder / "h.db"
        self.outcomes = Outcomes(fault, {}, plan)

    def prepare(self) -> None:
        """Make the files, before any fault."""

    def act(self) -> None:
        """Act while calls fail."""
        raise NotImplementedError

    def check(self) -> None:
        """Check the files after the fault."""
        raise NotImplementedError

    def end(self) -> None:
        """Close what is open."""


class OnDatabase(Scenario):
    """Acts on a database that has something."""

    hf: Holdfast | None = None

    def prepare(self) -> None:
        self.outcomes = Outcomes(self.fault, BEFORE, self.plan)
        with holdfast.open(self.path) as hf:
            filled(hf)
            self.acts = Acts(hf)

    def check(self) -> None:
        """Compare what is stored, write and verify, with the open handle and with another."""
        if self.hf is not None:
            self._check(self.hf, "d/same")
            self.hf.close()
        with holdfast.open(self.path) as hf:
            self._check(hf, "d/other")

    def end(self) -> None:
        if self.hf is not None:
            self.hf.close()

    def _check(self, hf: Holdfast, key: str) -> None:
        hf.durable("agent").set(key[2:], "written", category="note")
        self.outcomes.known[key] = "written"
        self.outcomes.compare(stored(hf))
        assert hf.verify().findings == ()

    def _opened(self) -> Holdfast | None:
        """Open the database; an error must be one that the fault explains."""
        try:
            return holdfast.open(self.path)
        except Unavailable as error:
            self.outcomes.check(error)
            return None


class Writes(OnDatabase):
    """Writes on an open handle."""

    def prepare(self) -> None:
        super().prepare()
        self.hf = holdfast.open(self.path)
        self.acts = self.acts.on(self.hf)

    def act(self) -> None:
        self.acts.neighbours(self.outcomes)
        self.acts.write(self.outcomes)


class Alone(OnDatabase):
    """Writes with the only connection: once that is closed, the log is read again."""

    def prepare(self) -> None:
        super().prepare()
        self.hf = holdfast.open(self.path)
        self.hf.durable("agent").set("log", "x", category="note")
        self.outcomes.known["d/log"] = "x"
        engine = self.hf.engine
        assert isinstance(engine, SQLiteEngine)
        readers = engine.core.readers
        assert isinstance(readers, FileReaders)
        readers.hold(1.0)
        readers.release()

    def act(self) -> None:
        assert self.hf is not None
        durable = self.hf.durable("agent")
        self.outcomes.act({"d/alone": "x"}, lambda: durable.set("alone", "x", category="note"))
        never = (Call.SYNC, 1, LASTING)
        if (
            self.fault is not None
            and (self.fault.call, self.fault.number, self.fault.times) == never
        ):
            assert not self.outcomes.acknowledged, "acknowledged without a sync"


class Opening(OnDatabase):
    """Opens a database whose last process was killed, so that its log is read again."""

    def prepare(self) -> None:
        super().prepare()
        with holdfast.open(self.path) as hf:
            Acts(hf).write(self.outcomes)
            hf.durable("agent").set("log", LARGE[:9_000], category="note")
            self.outcomes.known["d/log"] = LARGE[:9_000]
            left = self.folder / "left"
            left.mkdir()
            for ending in ("", "-wal", "-shm"):
                shutil.copyfile(f"{self.path}{ending}", left / f"h.db{ending}")
        self.path = left / "h.db"

    def act(self) -> None:
        hf = self._opened()
        if hf is not None:
            with hf:
                self.outcomes.read(lambda: stored(hf))
                self.outcomes.act(
                    {"d/opened": "x"},
                    lambda: hf.durable("agent").set("opened", "x", category="note"),
                )


class Joining(OnDatabase):
    """Opens a database that another process has open."""

    def prepare(self) -> None:
        super().prepare()
        begin, opened = os.pipe()
        end, self._ends = os.pipe()
        if not (child := os.fork()):
            os.close(self._ends)
            with holdfast.open(self.path) as hf:
                stored(hf)
                os.write(opened, b"x")
                os.read(end, 1)
            os._exit(0)
        os.close(opened)
        os.close(end)
        os.read(begin, 1)
        os.close(begin)
        self._child = child

    def act(self) -> None:
        self.hf = self._opened()
        if self.hf is not None:
            self.acts.on(self.hf).write(self.outcomes)

    def end(self) -> None:
        super().end()
        os.close(self._ends)
        os.waitpid(self._child, 0)


class Creating(OnDatabase):
    """Makes a new database and writes to it."""

    def prepare(self) -> None:
        """Begin with an empty folder."""

    def act(self) -> None:
        hf = self._opened()
        if hf is not None:
            with hf:
                self.outcomes.act(
                    {"d/first": "x"}, lambda: hf.durable("agent").set("first", "x", category="note")
                )


class Migrating(OnDatabase):
    """Opens a database that lacks a migration: it is copied, then changed."""

    def prepare(self) -> None:
        super().prepare()
        known = migrations.known("sqlite")
        change = "update durable_entries set content = content"
        later = Migration(number=9000, name="later", sha256="x", statements=(change,))
        self._replace(lambda _: (*known, later))

    def _replace(self, known: Callable[[str], tuple[Migration, ...]]) -> None:
        self._real = getattr(self, "_real", migrations.known)
        for module in (migrations, database):
            setattr(module, "known", known)  # noqa: B010 - a release that is newer

    def act(self) -> None:
        hf = self._opened()
        if hf is not None:
            with hf:
                self.outcomes.read(lambda: stored(hf))

    def check(self) -> None:
        super().check()
        self._replace(self._real)
        for kept in self.folder.glob("*.before-*"):
            if kept.name.endswith(".before-9000"):
                with holdfast.open(kept) as hf:
                    assert stored(hf) == BEFORE
            else:
                assert self.fault is not None
                assert self.fault.call == Call.REMOVE, f"{kept.name} is left over"

    def end(self) -> None:
        self._replace(self._real)


class Forking(OnDatabase):
    """Forks while threads write; the child writes too."""

    def prepare(self) -> None:
        super().prepare()
        self.hf = holdfast.open(self.path)
        self.acts = self.acts.on(self.hf)

    def act(self) -> None:
        self.acts.neighbours(self.outcomes, self._fork)

    def _fork(self) -> None:
        child = os.fork()
        if not child:
            os._exit(self._outcome_of_child())
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        values: Values = {"d/child": "x"}
        if code == UNKNOWN:
            self.outcomes.doubts.append(({"d/child": None}, values))
        else:
            assert code in (WRITTEN, REFUSED), f"the child ended with {code}"
            self.outcomes.known |= values if code == WRITTEN else {}

    def _outcome_of_child(self) -> int:
        outcomes = Outcomes(self.fault, {})
        try:
            outcomes.act(
                {"d/child": "x"},
                lambda: self.acts.durable.set("child", "x", category="note"),
            )
        except BaseException as error:  # noqa: BLE001 - the exit code is all that is seen
            os.write(2, f"{error!r}\n".encode())
            return WRONG
        return WRITTEN if outcomes.acknowledged else UNKNOWN if outcomes.doubts else REFUSED


WRITTEN, WRONG, REFUSED, UNKNOWN = range(4)
"""Exit codes of a child."""


class Closing(OnDatabase):
    """Closes a handle that has written."""

    def prepare(self) -> None:
        super().prepare()
        self.hf = holdfast.open(self.path)
        Acts(self.hf).write(self.outcomes)

    def act(self) -> None:
        assert self.hf is not None
        self.hf.close()
        self.hf = None


class Saving(OnDatabase):
    """Makes a backup of an open database over an earlier one."""

    def prepare(self) -> None:
        super().prepare()
        self.hf = holdfast.open(self.path)
        self.copy = self.folder / "copy.db"
        self.hf.backup(self.copy)
        self.earlier = stored(self.hf)
        Acts(self.hf).write(self.outcomes)

    def act(self) -> None:
        assert self.hf is not None
        hf = self.hf
        outcomes = Outcomes(self.fault, {})
        outcomes.act({}, lambda: hf.backup(self.copy, force=True))
        self.done = bool(outcomes.acknowledged)

    def check(self) -> None:
        allowed = [self.outcomes.known] if self.done else [self.outcomes.known, self.earlier]
        allowed = [{key: text for key, text in each.items() if text} for each in allowed]
        super().check()
        with holdfast.open(self.copy) as hf:
            assert stored(hf) in allowed
            assert hf.verify().findings == ()
        if self.fault is None or self.fault.call != Call.REMOVE:
            assert not list(self.folder.glob(".copy.db.*")), "a part is left over"


class Restoring(OnDatabase):
    """Restores a backup over a database that was written since."""

    def prepare(self) -> None:
        super().prepare()
        self.copy = self.folder / "copy.db"
        with holdfast.open(self.path) as hf:
            hf.backup(self.copy)
            hf.durable("agent").set("later", "x", category="note")

    def act(self) -> None:
        outcomes = Outcomes(self.fault, {})
        outcomes.act({}, lambda: restore(self.copy, str(self.path), replace=True))
        self.done = bool(outcomes.acknowledged)

    def check(self) -> None:
        with holdfast.open(self.path) as hf:
            found = stored(hf)
        assert found in ([BEFORE] if self.done else [BEFORE, BEFORE | {"d/later": "x"}])
        self.outcomes.known = found
        super().check()
        if self.fault is None or self.fault.call != Call.REMOVE:
            assert not list(self.folder.glob(".h.db.*")), "a part is left over"


class Spooling(Scenario):
    """Puts unsaved bytes of a mount aside, in place of others too."""

    def prepare(self) -> None:
        self.spool = Spool(self.folder / "spool", clock=SystemClock())
        self.old = self._put("old", "was there")
        self.known: dict[str, str] = {"old": "was there"}
        self.unsure: dict[str, str] = {}
        self.held: list[SpoolEntry] = []

    def _put(self, edit: str, text: str, instead_of: SpoolEntry | None = None) -> SpoolEntry:
        spooled = msgspec.structs.replace(SPOOLED, edit_id=edit)
        return self.spool.put(spooled, text.encode(), instead_of=instead_of)

    def act(self) -> None:
        self._try("new", LARGE)
        self._try("instead", "of the old", self.old)
        if "instead" in self.known:
            self.unsure["old"] = self.known.pop("old")

    def _try(self, edit: str, text: str, instead_of: SpoolEntry | None = None) -> None:
        try:
            self.held.append(self._put(edit, text, instead_of))
        except OSError:
            assert self.fault is not None
            assert self.fault.error, "a short transfer is no error"
            if self.fault.call == Call.REMOVE:
                self.unsure |= {edit: text, "old": "was there"}
                self.known.pop("old", None)
        else:
            self.known[edit] = text

    def check(self) -> None:
        self.known["later"] = "x"
        for entry in (self.old, *self.held, self._put("later", "x")):
            entry.release()
        found: dict[str, str] = {}
        for entry, spooled, content in self.spool.take(SPOOLED.store_id):
            found[spooled.edit_id] = content.decode()
            entry.release()
        if self.fault is not None and self.fault.call == Call.REMOVE:
            found = {key: text for key, text in found.items() if self.unsure.get(key) != text}
        assert found == self.known


class Checkpointing(Scenario):
    """Saves a run in a checkpoint file: whole, then by its changes."""

    def prepare(self) -> None:
        self.place = FileCheckpoints(self.folder / "checkpoints")
        self.steps: list[str] = []
        self.allowed: list[tuple[str, ...]] = []
        self._save("0")

    def _save(self, step: str) -> FileLog:
        steps = (*self.steps, step)
        log = self.place.begin(msgspec.structs.replace(RUN, completed_steps=steps))
        self.steps.append(step)
        return log

    def act(self) -> None:
        log: FileLog | None = None
        for number in range(1, 4):
            steps = (*self.steps, str(number) * 5000)
            self.allowed = [tuple(self.steps), steps]
            try:
                if log is None or not log.append(self._change(steps[-1])):
                    log = self._save(steps[-1])
                else:
                    self.steps.append(steps[-1])
            except OSError:
                assert self.fault is not None
                assert self.fault.error, "a short transfer is no error"
                return
        self.allowed = [tuple(self.steps)]

    def _change(self, step: str) -> CheckpointChange:
        return CheckpointChange(
            run_id=RUN.run_id,
            completed_tasks=(),
            completed_steps=(step,),
            removed=(),
            entries=(),
            saved_at=0,
        )

    def check(self) -> None:
        found = FileCheckpoints(self.folder / "checkpoints").load(RUN.run_id)
        assert found is not None
        assert found.completed_steps in self.allowed
        self.steps = list(found.completed_steps)
        log = self._save("later")
        assert log.append(self._change("last"))
        found = self.place.load(RUN.run_id)
        assert found is not None
        assert found.completed_steps == (*self.steps, "last")


class Exporting(Scenario):
    """Exports durable memory over an earlier export."""

    def prepare(self) -> None:
        self.hf = holdfast.open(":memory:")
        self.durable = self.hf.durable("agent")
        for key in ("same", "changed", "gone"):
            self.durable.set(key, f"{key} before", category="note")
        self.target = self.folder / "export"
        self.durable.export_markdown(self.target)
        self.before = self._files()
        self.durable.set("changed", LARGE[:9_000], category="note")
        self.durable.forget("gone")
        self.done = False

    def _files(self) -> dict[str, str]:
        return {Path(path).stem: text for path, text in read_folder(self.target).files}

    def act(self) -> None:
        outcomes = Outcomes(self.fault, {})
        outcomes.act({}, lambda: self.durable.export_markdown(self.target))
        self.done = bool(outcomes.acknowledged)

    def check(self) -> None:
        between = self._files()
        self.durable.export_markdown(self.target)
        after = self._files()
        assert set(after) == {"same", "changed"}
        assert LARGE[:9_000] in after["changed"]
        for key, text in between.items():
            assert text in (self.before.get(key), after.get(key)), f"half of {key}"
        assert set(between) >= set(after)
        if self.done:
            assert between == after
        if self.fault is None or self.fault.call != Call.REMOVE:
            assert not list(self.target.rglob("*.part")), "a part is left over"

    def end(self) -> None:
        self.hf.close()


SCENARIOS: dict[str, type[Scenario]] = {
    "writes": Writes,
    "alone": Alone,
    "opening": Opening,
    "joining": Joining,
    "creating": Creating,
    "migrating": Migrating,
    "closing": Closing,
    "forking": Forking,
    "backup": Saving,
    "restore": Restoring,
    "spool": Spooling,
    "checkpoints": Checkpointing,
    "export": Exporting,
}


class Report(msgspec.Struct, frozen=True):
    """What came of a scenario under faults."""

    scenario: str
    faults: int
    of: int
    wrong: list[str]


class Harness:
    """Runs scenarios below *root* by a plan."""

    def __init__(self, root: Path, plan: FaultPlan) -> None:
        self.root, self.plan = root, plan
        self._number = 0

    def run(self, kind: type[Scenario], fault: Fault | None) -> None:
        """Run *kind* under *fault*."""
        self._number += 1
        folder = self.root / f"{self._number}"
        folder.mkdir()
        scenario = kind(folder, fault, self.plan)
        try:
            scenario.prepare()
            if fault is None:
                self.plan.count()
            else:
                self.plan.arm(fault)
            try:
                scenario.act()
            finally:
                self.plan.heal()
            scenario.check()
        finally:
            scenario.end()
        assert open_files(folder) == []
        shutil.rmtree(folder)

    def report(self, name: str, most: int, chance: random.Random) -> Report:
        """Run a scenario under all its faults, or at most *most* of them."""
        scenario, _, only = name.partition("=")
        kind, fired, wrong = SCENARIOS[scenario], 0, list[str]()
        self.run(kind, None)
        faults = [each for each in faults_of(self.plan.counts) if each.is_a(only)]
        for fault in faults if most >= len(faults) else chance.sample(faults, most):
            try:
                self.run(kind, fault)
            except Exception as error:  # noqa: BLE001 - any is reported
                wrong.append(f"{name}, {fault}, {self.plan.last}: {error!r}"[:1500])
            fired += self.plan.fired > 0
        return Report(name, fired, len(faults), wrong)


def open_files(folder: Path) -> list[str]:
    """Return the paths below *folder* that this process has open."""
    paths: list[str] = []
    for each in Path("/proc/self/fd").iterdir():
        try:
            paths.append(str(each.readlink()))
        except FileNotFoundError:
            continue
    return [path for path in paths if path.startswith(f"{folder}/")]


def main() -> None:
    """Run the scenarios that the command line names."""
    root, plan, most, seed, *names = sys.argv[1:]
    # A file that showed damage is checked again at once, not after a second.
    setattr(database, "CHECK_SECONDS", 0.0)  # noqa: B010 - a constant
    setattr(database, "_CHECK_SHARE", 0)  # noqa: B010 - the same
    logging.getLogger("holdfast").addHandler(logging.NullHandler())
    harness, chance = Harness(Path(root), FaultPlan(Path(plan))), random.Random(seed)
    for name in names:
        report = harness.report(name, int(most), chance)
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
