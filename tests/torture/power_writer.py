"""Writes every kind of memory while its database, or its spool, is recorded for power losses.

    python -m torture.power_writer library DATABASE LOG ACTS
    python -m torture.power_writer spool FOLDER LOG ACTS
    python -m torture.power_writer checkpoints FOLDER LOG ACTS
    python -m torture.power_writer exports FOLDER LOG ACTS

Each thread keeps to keys of its own, so what must be there follows from its lines in the log alone.
A line has the values that an act gives to keys, another follows once the act was acknowledged; None
is absence.
"""

import random
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import TypeVar

import msgspec
from torture.disks import append_line

import holdfast
from holdfast.doors.mount.storage.spool import Spool, Spooled, SpoolEntry
from holdfast.ground.clock import SystemClock
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.records import LongTermOptions
from holdfast.runtime.runs.checkpoints import (
    Checkpoint,
    CheckpointChange,
    FileCheckpoints,
    FileLog,
)

T = TypeVar("T")
THREADS = 3
STORE = "what must be there"
OPTIONS = LongTermOptions(dedupe_similarity=0, max_items=0)

Values = dict[str, str | None]
"""What an act gives to keys: `m` and a path, `d` a key, `l` a sentence, `s` an edit, `e` a file."""


class Line(msgspec.Struct, frozen=True, array_like=True):
    """A line of the log: of an act of one thread, whether it begins or was acknowledged."""

    did: bool
    thread: int
    values: dict[str, str | None] = {}


class Writer:
    """One thread's acts, each in the log before and after it."""

    def __init__(self, log: Path, thread: int) -> None:
        self.log, self.thread, self.chance = log, thread, random.Random()
        self.ids: dict[str, str] = {}
        self.texts: dict[str, str] = {}

    def act(self, values: Values, do: Callable[[], T]) -> T:
        """Do an act that gives *values*; return what it returned."""
        append_line(
            self.log, msgspec.json.encode(Line(did=False, thread=self.thread, values=values))
        )
        result = do()
        append_line(self.log, msgspec.json.encode(Line(did=True, thread=self.thread)))
        return result

    def text(self, number: int) -> str:
        """Return a text that no other act writes, of any size up to some pages."""
        size = self.chance.choice((0, 40, 700, 9_000))
        return f"{self.thread} wrote {number} " + "x" * self.chance.randrange(size + 1)


class LibraryWriter(Writer):
    """Writes to memory stores, durable and long-term memory through a handle, local or remote."""

    def write(self, hf: Holdfast, store_id: str, begin: int, acts: int) -> None:
        """Do *acts* acts at random, numbered from *begin*."""
        kinds = (self.create, self.create, self.change, self.delete, self.durable, self.longterm)
        for number in range(begin, begin + acts):
            self.chance.choice(kinds)(hf, store_id, number)

    def create(self, hf: Holdfast, store_id: str, number: int) -> None:
        path, text = f"/t{self.thread}/{number}", self.text(number)
        memories = hf.memory_stores.memories
        self.ids[path] = ""
        made = self.act(
            {f"m{path}": text}, lambda: memories.create(store_id, path=path, content=text).id
        )
        self.ids[path], self.texts[path] = made, text

    def change(self, hf: Holdfast, store_id: str, number: int) -> None:
        """Update or rename a memory."""
        if not self.ids:
            return self.create(hf, store_id, number)
        path, memories = self.chance.choice(list(self.ids)), hf.memory_stores.memories
        if self.chance.random() < 0.5:
            text = self.texts[path] = self.text(number)
            self.act(
                {f"m{path}": text},
                lambda: memories.update(self.ids[path], memory_store_id=store_id, content=text),
            )
            return None
        new = f"/t{self.thread}/{number}"
        self.ids[new], self.texts[new] = self.ids.pop(path), self.texts.pop(path)
        self.act(
            {f"m{path}": None, f"m{new}": self.texts[new]},
            lambda: memories.rename(store_id, path, new),
        )
        return None

    def delete(self, hf: Holdfast, store_id: str, number: int) -> None:
        if not self.ids:
            return self.create(hf, store_id, number)
        path = self.chance.choice(list(self.ids))
        memory_id, _ = self.ids.pop(path), self.texts.pop(path)
        self.act(
            {f"m{path}": None},
            lambda: hf.memory_stores.memories.delete(memory_id, memory_store_id=store_id),
        )
        return None

    def durable(self, hf: Holdfast, _: str, number: int) -> None:
        """Set or forget an entry of the thread's agent."""
        durable, key = hf.durable(f"agent_{self.thread}"), f"key_{self.chance.randrange(6)}"
        if self.chance.random() < 0.3:
            self.act({f"d{key}": None}, lambda: durable.forget(key))
            return
        text = self.text(number)
        self.act({f"d{key}": text}, lambda: durable.set(key, text, category="note"))

    def longterm(self, hf: Holdfast, _: str, number: int) -> None:
        """Remember a sentence, or forget one: that also cleans the log of the database."""
        ltm = hf.longterm(f"user_{self.thread}", enabled=True, options=OPTIONS)
        assert ltm is not None
        known = [each for each in self.texts if each.startswith("remembered ")]
        if known and self.chance.random() < 0.4:
            text = self.chance.choice(known)
            item = self.texts.pop(text)
            self.act({f"l{text}": None}, lambda: ltm.forget(item))
            return
        text = f"remembered {number} by {self.thread}"

        def remember() -> str:
            stored = ltm.remember(text).stored
            assert stored is not None
            return stored.id

        self.texts[text] = self.act({f"l{text}": text}, remember)


def write_all(target: str, log: Path, acts: int, *, rounds: int) -> None:
    """Let all threads do *acts* acts in each of *rounds*, each with a handle of its own."""
    setup, writers = Writer(log, THREADS), [LibraryWriter(log, each) for each in range(THREADS)]
    for each in range(rounds):
        with holdfast.open(target) as hf:
            if each == 0:
                setup.act({"store": STORE}, lambda hf=hf: hf.memory_stores.create(name=STORE))
            store_id = next(iter(hf.memory_stores.list().all())).id
            threads = [
                Thread(target=one.write, args=(hf, store_id, each * acts, acts)) for one in writers
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()


SPOOLED = Spooled(
    store_id="memstore_1",
    memory_id=None,
    path="/notes.md",
    base_sha256=None,
    kind="save",
    errno="EIO",
    message="",
    edit_id="",
    at="2026-01-01T00:00:00.000000Z",
    session_id=None,
)


def spool_all(root: Path, log: Path, acts: int) -> None:
    """Put unsaved bytes into a spool, replace and remove them."""
    spool, writer = Spool(root, clock=SystemClock()), Writer(log, 0)
    entries = dict[str, SpoolEntry]()
    for number in range(acts):
        edit, text = f"edit_{number}", writer.text(number)
        spooled = msgspec.structs.replace(SPOOLED, edit_id=edit, store_id=f"memstore_{number % 3}")
        old = next(iter(entries), None) if writer.chance.random() < 0.4 else None
        held = entries.pop(old) if old else None
        values: Values = {f"s{edit}": text} | ({f"s{old}": None} if old else {})
        entries[edit] = writer.act(
            values, lambda s=spooled, t=text, h=held: spool.put(s, t.encode(), instead_of=h)
        )


RUN = Checkpoint(
    run_id="run_1",
    plan_hash="",
    parts={},
    completed_tasks=(),
    completed_steps=(),
    entries=(),
    saved_at=0,
)


def save_all(folder: Path, log: Path, acts: int) -> None:
    """Save a run in a checkpoint file: whole once in a while, else by its changes."""
    place, writer, steps = FileCheckpoints(folder), Writer(log, 0), list[str]()
    begun: FileLog | None = None
    for number in range(acts):
        steps.append(writer.text(number))
        values: Values = {"c": steps[-1]}
        whole = msgspec.structs.replace(RUN, completed_steps=tuple(steps), saved_at=number)
        if begun is None or writer.chance.random() < 0.15:
            begun = writer.act(values, lambda whole=whole: place.begin(whole))
            continue
        change = CheckpointChange(
            run_id=RUN.run_id,
            completed_tasks=(),
            completed_steps=(steps[-1],),
            removed=(),
            entries=(),
            saved_at=number,
        )
        assert writer.act(values, lambda log=begun, change=change: log.append(change))


def export_all(folder: Path, log: Path, acts: int) -> None:
    """Export durable memory as Markdown, over the earlier export, and delete what went."""
    writer, held = Writer(log, 0), dict[str, str]()
    with holdfast.open(":memory:") as hf:
        durable = hf.durable("agent")
        for number in range(acts):
            key = f"key_{number % 4}"
            values: Values = {f"e{key}": writer.text(number)}
            durable.set(key, values[f"e{key}"] or "", category="note")
            if len(held) > 2 and writer.chance.random() < 0.3:
                old = writer.chance.choice([each for each in held if each != key])
                values[f"e{old}"] = None
                durable.forget(old)
                del held[old]
            held[key] = ""
            writer.act(values, lambda: durable.export_markdown(folder))


def main() -> None:
    """Write as the command line says."""
    what, target, log, acts = sys.argv[1:]
    writers = {"spool": spool_all, "checkpoints": save_all, "exports": export_all}
    if what == "library":
        write_all(target, Path(log), int(acts), rounds=3)
    else:
        writers[what](Path(target), Path(log), int(acts))


if __name__ == "__main__":
    main()
