"""A synced store played by hand, one step at a time, that may be killed at any step."""

import os
import shutil
from itertools import count
from pathlib import Path

from doors.mount.core.trouble import Troubled

from holdfast.doors.mount.filesystem.tree import MountContext
from holdfast.doors.mount.names import MountOptions
from holdfast.doors.mount.storage.deadline import Deadline, Later
from holdfast.doors.mount.storage.source import Contents, StoreSource
from holdfast.doors.mount.storage.spool import Spool
from holdfast.doors.mount.sync.files import LocalDirectory, LocalFile
from holdfast.doors.mount.sync.reconcile import Reconciler
from holdfast.doors.mount.sync.replica import Pace, Replica
from holdfast.doors.mount.sync.state import Header, Known, State
from holdfast.doors.mount.sync.worker import Scan
from holdfast.ground.ids import Ids
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.edits import Remove
from holdfast.memories.stores.records import Memory, Version
from holdfast.testing.fakes import FrozenClock

AT_ONCE = Pace(quiet=0.0, begun=0.0, rename=0.0, confirm=0.0, scan=0.0, pauses=(0.0,), again=0.0)
TURNS, ROUNDS, CALM = 40, 20, 2


class Killed(BaseException):
    """The process is gone."""


class Fuse:
    """Burns down with every step on the way, and then kills."""

    def __init__(self) -> None:
        self.left: int | None = None

    def burn(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Killed


class FragileFiles(LocalDirectory):
    """Files whose process may be killed before and after each change."""

    def __init__(self, root: Path, fuse: Fuse) -> None:
        super().__init__(root)
        self._fuse = fuse

    def put(
        self, path: str, content: bytes, *, at_ns: int, over: str | None, lasting: bool = True
    ) -> LocalFile | None:
        del lasting
        self._fuse.burn()
        put = super().put(path, content, at_ns=at_ns, over=over, lasting=False)
        self._fuse.burn()
        return put

    def take(self, path: str, sha256: str | None) -> bool:
        self._fuse.burn()
        taken = super().take(path, sha256)
        self._fuse.burn()
        return taken

    def move(self, old: str, new: str) -> bool:
        self._fuse.burn()
        moved = super().move(old, new)
        self._fuse.burn()
        return moved

    def clear(self, path: str) -> bool:
        self._fuse.burn()
        return super().clear(path)


class FragileState(State):
    """A state whose process may be killed before each line."""

    fuse = Fuse()

    def put(self, *known: Known) -> None:
        self.fuse.burn()
        super().put(*known)

    def forget(self, path: str) -> None:
        self.fuse.burn()
        super().forget(path)


class Played:
    """One directory of a store of *hf*, below *base*."""

    def __init__(self, hf: Holdfast, base: Path) -> None:
        self.hf, self.base, self.fuse = hf, base, Fuse()
        self.store = hf.memory_stores.create(name="Notes")
        self.root = base / "notes"
        self._deadline = Deadline(60.0)
        self._contents = Contents(1 << 20)
        self.source = Troubled(
            StoreSource(hf, self.store, deadline=self._deadline, contents=self._contents)
        )
        self.source.before = self.source.after = self.fuse.burn
        self.clock = FrozenClock()
        self.later = Later()
        spool = Spool(base / "spool", clock=self.clock)
        self._context = MountContext(
            options=MountOptions(spool=base / "spool", grace=0.0),
            spool=spool,
            later=self.later,
            clock=self.clock,
            ids=Ids(),
            publish=lambda _: None,
        )
        self.removable: set[str] = set()
        """Memories whose files somebody removed or renamed."""
        self._numbers = count()
        self.start()

    def start(self) -> None:
        """Begin anew from what is on disk, in the state and in the store."""
        self.fuse.left = None
        state = FragileState(
            self.base / "state.jsonl", Header(store_id=self.store.id, slug="notes")
        )
        state.fuse = self.fuse
        files = FragileFiles(self.root, self.fuse)
        files.make_root()
        state.open()
        self.replica = Replica(
            self.source,
            "read_write",
            files,
            state,
            context=self._context,
            pace=AT_ONCE,
        )
        self.replica.heads.reset(self.source.snapshot())
        self.reconciler = Reconciler(self.replica)
        self.scan = Scan(self.replica)

    def close(self) -> None:
        self.replica.state.close()
        self.later.close()
        self._deadline.close()

    def step(self, *, seen: bool, kill_after: int | None = None, at_once: int = 3) -> None:
        """Do what there is to do once, after a look at everything if nothing was *seen*."""
        self.fuse.left = kill_after
        try:
            self.replica.catch_up()
            if not seen:
                self.scan.run()
            self._settle(at_once)
            self.scan.confirm()
        except Killed:
            self.start()
        self.fuse.left = None

    def rest(self) -> None:
        """Go on until a look at everything changes nothing any more."""
        before, calm = None, 0
        for _ in range(ROUNDS):
            self.replica.catch_up()
            self.scan.run()
            self._settle(9)
            self.scan.confirm()
            now = (self.files(), self.heads(), len(self.replica.missing))
            calm = calm + 1 if now == before else 0
            if calm == CALM:
                return
            before = now
        raise AssertionError(f"no rest: {before}")

    def _settle(self, at_once: int) -> None:
        """Do what there is to do, but for what is tried again and again until something else is."""
        for _ in range(TURNS):
            self.reconciler.reconcile(self.replica.agenda.take(float("inf"), at_once), final=True)

    # What others do

    def content(self) -> str:
        """Return a content of a size that no other has."""
        number = next(self._numbers)
        return f"content {number} {'.' * number}"

    def touch(self, *paths: str) -> None:
        """Tell of what happened at *paths*."""
        for path in paths:
            self.reconciler.touch(path, appeared=True)

    def write(self, path: str, content: str) -> bool:
        """Write a file as a program does; tell whether that could be."""
        file = self.root / path[1:]
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        except OSError:
            return False
        return True

    def remove(self, path: str) -> bool:
        file = self.root / path[1:]
        self._note_removable(path)
        try:
            shutil.rmtree(file) if file.is_dir() else file.unlink()
        except OSError:
            return False
        return True

    def rename(self, old: str, new: str) -> bool:
        self._note_removable(old)
        self._note_removable(new)
        target = self.root / new[1:]
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            os.rename(self.root / old[1:], target)  # noqa: PTH104 - over whatever is there
        except OSError:
            return False
        return True

    def _note_removable(self, path: str) -> None:
        for each in (path, *self.replica.state.below(path)):
            known = self.replica.state.get(each)
            if known is not None:
                self.removable.add(known.memory_id)

    # What there is

    def files(self) -> dict[str, str]:
        return {
            f"/{path.relative_to(self.root)}": path.read_text()
            for path in self.root.rglob("*")
            if path.is_file() and path.name != ".memory-errors"
        }

    def unlisted(self) -> dict[str, str]:
        """Return the files with which nothing is wrong."""
        listed = set(self.replica.notices)
        return {path: text for path, text in self.files().items() if path not in listed}

    def heads_shown(self) -> dict[str, str]:
        """Return the memories that have a file, or whose file cannot be renamed as it was."""
        hidden = {*self.replica.notices.hidden, *self.replica.stuck}
        return {path: text for path, text in self.heads().items() if path not in hidden}

    def contents(self) -> set[str]:
        """Return every content that is on disk, under whatever name."""
        return set(self.files().values())

    def heads(self) -> dict[str, str]:
        page = self.hf.memory_stores.memories.list(self.store.id, view="full", limit=20)
        return {each.path: each.content or "" for each in page.all() if isinstance(each, Memory)}

    def history(self) -> set[str]:
        """Return every content that a version has."""
        page = self.hf.memory_stores.memory_versions.list(self.store.id, view="full", limit=20)
        every: list[Version] = list(page.all())
        return {each.content for each in every if each.content is not None}

    def removed(self) -> set[str]:
        """Return the ids of the memories that were deleted from here."""
        return {
            edit.memory_id
            for edits, _ in self.source.applies
            for edit in edits
            if isinstance(edit, Remove)
        }
