"""Reconcile paths between the local directory and the store.

Removals come first, then writes. A deletion is delayed, as the file may appear under another name;
so is a file with a temporary name, as it may be deleted.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from errno import EACCES, EPERM, ESTALE
from time import monotonic

from msgspec import structs

from holdfast.doors.mount.names import Kind, is_backup, kind_of
from holdfast.doors.mount.sync.cases import Case, case
from holdfast.doors.mount.sync.inward import Inward
from holdfast.doors.mount.sync.merge import SyncAction, What, renamed
from holdfast.doors.mount.sync.notices import LINK, NOT_DONE
from holdfast.doors.mount.sync.outward import Outward
from holdfast.doors.mount.sync.replica import Replica
from holdfast.doors.mount.sync.sight import ABSENT
from holdfast.doors.mount.sync.state import Known

_NAME_BYTES_MAX, _PATH_BYTES_MAX = 255, 1024
_STAMP = "%Y%m%dT%H%M%SZ"


_TAKEN_IN = frozenset(
    {SyncAction.CREATE, SyncAction.SAVE, SyncAction.CONFLICT, SyncAction.REFUSE, SyncAction.UNDO}
)
"""Actions based on local content that no version has."""


class Settling:
    """Reconcile the paths of one store."""

    def __init__(self, replica: Replica, inward: Inward, outward: Outward) -> None:
        self._replica, self._inward, self._outward = replica, inward, outward
        self._ripe: dict[str, float] = {}
        """When a file with a temporary name becomes a memory, if it still exists."""
        self._since: dict[str, float] = {}
        """Since when a file has had events."""
        self._entered: set[str] = set()
        """Paths that appeared: entries below a new directory may have no events."""
        self._put_off_too: set[str] = set()
        """Old paths of renamed files whose check was postponed, to be left until then."""
        self._acts: dict[SyncAction, Callable[[Case], object]] = {
            SyncAction.NOTHING: outward.refresh,
            SyncAction.WAIT: self._wait,
            SyncAction.LEAVE: self._leave,
            SyncAction.REFUSE: self._refuse,
            SyncAction.ADOPT: outward.adopt,
            SyncAction.FORGET: outward.forget,
            SyncAction.REMOVE: outward.remove,
            SyncAction.CONFLICT: self._part,
            SyncAction.UNDO: outward.undo,
            SyncAction.WRITE: outward.write,
        }
        """Functions of the immediate actions, in their order: removals before writes."""

    def touch(self, path: str, *, appeared: bool = False) -> None:
        """Record an event at *path* and schedule a check once events stop."""
        replica, now = self._replica, monotonic()
        since = self._since.setdefault(path, now)
        replica.missing.tell([path])
        if appeared:
            self._entered.add(path)
        if kind_of(_name(path)) is Kind.TRANSIENT:
            self._ripe[path] = now + replica.around.options.grace
        replica.agenda.put(path, min(now + replica.pace.quiet, since + replica.pace.patience))

    def settle(self, paths: Iterable[str], *, final: bool = False) -> None:
        """Reconcile *paths*; if *final*, without waiting for further events."""
        replica, paths = self._replica, list(paths)
        for path in paths:
            self._follow(path)
        cases = [each for path in paths if (each := self._case(path, final=final)) is not None]
        by_act: dict[SyncAction, list[Case]] = {act: [] for act in SyncAction}
        for each in cases:
            by_act[each.act].append(each)
        olds = self._renamed(by_act[SyncAction.CREATE])
        moved = {old.path for old in olds.values()} | self._put_off_too
        self._put_off_too.clear()
        with self._outward.together(len(by_act[SyncAction.WRITE])):
            for act in self._acts:
                for each in by_act[act]:
                    if each.path not in moved:
                        self._do(each)
        for each in by_act[SyncAction.DELETE]:
            replica.missing.note(each.path, monotonic(), replica.pace.rename)
        self._take_in(by_act[SyncAction.CREATE], by_act[SyncAction.SAVE], olds, final=final)
        self._delete(by_act[SyncAction.DELETE], final=final)

    def enter(self, directory: str) -> None:
        """Schedule all files below a new *directory*: they may have no events."""
        replica = self._replica
        replica.local.update(self._only_here([directory]))
        for entry in replica.files.walk(directory, into=is_entered):
            if entry.what is What.DIRECTORY:
                replica.local.update(self._only_here([entry.path]))
            elif entry.what is not What.ABSENT:
                replica.soon(entry.path)

    def _follow(self, path: str) -> None:
        """Rename files to or from *path* after other clients moved their memories."""
        replica = self._replica
        known, head = replica.state.get(path), replica.heads.at(path)
        came = None if head is None else replica.state.of(head.id)
        for each in (known, came):
            if each is not None and each.path not in self._inward.held:
                self._outward.follow(each)

    def _only_here(self, directories: Sequence[str]) -> list[str]:
        """Return those of *directories* without synced files below them."""
        return [each for each in directories if not self._replica.state.below(each)]

    def _case(self, path: str, *, final: bool) -> Case | None:
        """Return the case of *path* to act on; None if there is none, or not yet."""
        replica = self._replica
        if path in self._inward.held:
            replica.agenda.add(path, self._inward.next or monotonic() + replica.pace.quiet)
            return None
        notified, entered = replica.missing.told(path), path in self._entered
        found = case(replica, path)
        if found is not None and not final and self._is_fresh(found):
            self._put_off(found)
            return None
        self._since.pop(path, None)
        self._entered.discard(path)
        if found is None or found.act is not SyncAction.DELETE:
            replica.missing.found(path)
        if found is None or found.seen.found.what is What.ABSENT:
            self._ripe.pop(path, None)
        if found is None:
            replica.unsaved.discard(path)
            return None
        if found.seen.found.what is What.DIRECTORY and entered:
            self.enter(path)
        if notified and found.seen.found.what is What.ABSENT:
            below = replica.state.below(path)
            replica.missing.tell(below)
            replica.soon(*below)
        return found

    def _is_fresh(self, found: Case) -> bool:
        """Check whether the file changed so recently that it may change again."""
        replica = self._replica
        since = self._since.get(found.path)
        if since is not None and monotonic() - since >= replica.pace.patience:
            return False
        if found.act not in _TAKEN_IN or found.seen.found.what is not What.FILE:
            return False
        age = time.time_ns() - found.seen.changed_ns
        quiet = replica.pace.begun if found.seen.content == b"" else replica.pace.quiet
        return 0 <= age < quiet * 1e9

    def _put_off(self, each: Case) -> None:
        """Postpone the check of a file and of its old path until events stop."""
        replica, soon = self._replica, monotonic() + self._replica.pace.quiet
        replica.agenda.put(each.path, soon)
        if each.act is SyncAction.CREATE:
            for old in self._renamed([each]).values():
                self._put_off_too.add(old.path)
                replica.agenda.put(old.path, soon)

    def _do(self, each: Case) -> None:
        if each.act is not SyncAction.WRITE:
            self._inward.forget(each.path)
        try:
            self._acts[each.act](each)
        except OSError as error:
            # The disk refused the action; the next full scan tries it again.
            self._replica.refuse(each.path, error.errno or EACCES, NOT_DONE)

    def _wait(self, each: Case) -> None:
        self._replica.agenda.put(each.path, monotonic() + self._replica.pace.quiet)

    def _leave(self, each: Case) -> None:
        if each.seen.found.what is What.FOREIGN:
            self._replica.refuse(each.path, EPERM, LINK)
        else:
            self._replica.refuse(each.path, EACCES)

    def _refuse(self, each: Case) -> None:
        self._replica.refuse(each.path, each.seen.found.fault)

    def _part(self, each: Case) -> None:
        """Rename a conflicting file, which becomes a new memory; the head keeps the path."""
        replica = self._replica
        aside = self._beside(each.path)
        if not replica.files.move(each.path, aside):
            replica.soon(each.path)
            return
        replica.state.forget(each.path)
        replica.plain.add(aside)
        replica.soon(aside)
        replica.counts.conflict(ESTALE, memory_id=each.head and each.head.id)
        self._outward.write(structs.replace(each, base=None, seen=ABSENT))

    def _beside(self, path: str) -> str:
        """Return a free path beside *path*, with `.conflict-` and the time."""
        replica = self._replica
        above, _, name = path.rpartition("/")
        stamp = replica.around.clock.now().strftime(_STAMP)
        number = 1
        while True:
            suffix = f".conflict-{stamp}" + (f"-{number}" if number > 1 else "")
            room = min(_NAME_BYTES_MAX, _PATH_BYTES_MAX - len(above.encode()) - 1) - len(suffix)
            free = f"{above}/{name.encode()[: max(0, room)].decode(errors='ignore')}{suffix}"
            if replica.files.look(free) is ABSENT and replica.heads.at(free) is None:
                return free
            number += 1

    def _renamed(self, new: Sequence[Case]) -> dict[str, Known]:
        """Return the old base of each file in *new* that is a renamed known file."""
        if not new:
            return {}
        replica, held = self._replica, self._inward.held
        inodes = {each.traced.inode for each in new}
        contents = {each.traced.sha256 for each in new}
        gone = {
            known.path: known
            for known in replica.state
            if (known.traced.inode in inodes or known.sha256 in contents)
            and known.path not in held
            and replica.heads.at(known.path) is replica.heads.of(known.memory_id)
            and replica.heads.at(known.path) is not None
            and replica.files.look(known.path).found.what in (What.ABSENT, What.DIRECTORY)
        }
        olds = renamed([known.traced for known in gone.values()], [each.traced for each in new])
        return {path: gone[old] for path, old in olds.items()}

    def _take_in(
        self, new: Sequence[Case], saved: Sequence[Case], olds: dict[str, Known], *, final: bool
    ) -> None:
        """Save new and changed files; move the memories of renamed files."""
        replica, now = self._replica, monotonic()
        moves: list[tuple[Known, Case]] = []
        ripe: list[Case] = []
        for each in new:
            old = olds.get(each.path)
            until = self._until(each.path, old, now)
            if now < until and not final:
                replica.unsaved.add(each.path)
                replica.agenda.put(each.path, until)
                if old is not None:
                    replica.missing.hold(old.path, now, until + replica.pace.quiet)
                    replica.agenda.put(old.path, until + replica.pace.quiet)
            elif old is not None:
                moves.append((old, each))
            else:
                ripe.append(each)
            if now >= until:
                self._ripe.pop(each.path, None)
        self._inward.move(moves)
        self._inward.save([*ripe, *saved])

    def _until(self, path: str, old: Known | None, now: float) -> float:
        """Return when a new file at *path*, formerly *old*, becomes a memory."""
        replica = self._replica
        grace = replica.around.options.grace
        if path in replica.plain:
            return now
        if kind_of(_name(path)) is Kind.TRANSIENT:
            return self._ripe.setdefault(path, now + grace)
        if old is not None and is_backup(_name(path)):
            return replica.missing.since(old.path, now) + grace
        return now

    def _is_stuck(self, path: str) -> bool:
        """Check whether the file of *path* exists under a name refused to its memory."""
        replica = self._replica
        new = replica.stuck.get(path)
        if new is not None and replica.files.look(new).found.what is What.ABSENT:
            del replica.stuck[path]
            return False
        return new is not None

    def _delete(self, cases: Sequence[Case], *, final: bool) -> None:
        """Delete the memories of files that count as deleted by now."""
        replica, now = self._replica, monotonic()
        sure: list[Case] = []
        for each in cases:
            if replica.state.get(each.path) != each.base or each.path not in replica.missing:
                continue
            if self._is_stuck(each.path):
                continue
            due = replica.missing.due(each.path)
            if due is None:
                replica.scan_by(now + replica.pace.confirm)
            elif now >= due or final:
                sure.append(each)
            else:
                replica.agenda.put(each.path, due)
        self._inward.delete(sure)


def is_entered(directory: str) -> bool:
    """Check whether files below *directory* may be memories."""
    return kind_of(_name(directory)) is not Kind.REFUSED


def _name(path: str) -> str:
    return path[path.rfind("/") + 1 :]
