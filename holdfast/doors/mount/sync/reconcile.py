"""Reconcile paths between the local directory and the store.

Removals come first, then writes. A deletion is delayed, as the file may appear under another name;
so is a file with a temporary name, as it may be deleted.
"""

import logging
import time
from collections.abc import Callable, Sequence
from errno import (
    EACCES,
    EBUSY,
    EEXIST,
    EILSEQ,
    EINVAL,
    EISDIR,
    ENOTDIR,
    EPERM,
    EROFS,
    ESTALE,
    errorcode,
)
from time import monotonic

from msgspec import structs

from holdfast.doors.mount.names import Kind, checked, is_backup, kind_of
from holdfast.doors.mount.storage.spool import Spooled
from holdfast.doors.mount.sync.files import ABSENT, FileType, LocalFile, is_reserved
from holdfast.doors.mount.sync.merge import (
    Case,
    FileIdentity,
    SyncAction,
    decide,
    kind_at,
    renamed,
)
from holdfast.doors.mount.sync.replica import Replica, SyncTask, Uploads
from holdfast.doors.mount.sync.state import (
    LINK,
    NOT_DONE,
    NOT_OF_STORE,
    UNWRITTEN,
    VERSION_CONTROL,
    Agreed,
    Known,
    Notice,
)
from holdfast.ground.clock import to_microseconds, to_rfc3339
from holdfast.ground.errors import HoldfastError, NotFound
from holdfast.memories.stores.records import Memory

SPOOLED_MAX = 6 * 1024 * 1024
"""Size limit in bytes of a file to spool from a read-only store; a larger one stays."""

LASTING_MAX = 16
"""Above this number of files, the disk is synced once instead of once for each."""

_NAME_BYTES_MAX, _PATH_BYTES_MAX = 255, 1024
_STAMP = "%Y%m%dT%H%M%SZ"

_FROM_CONTENT = frozenset(
    {SyncAction.UPLOAD, SyncAction.KEEP_BOTH, SyncAction.REPORT, SyncAction.UNDO}
)
"""Actions based on local content that no version has."""

_log = logging.getLogger(__name__)


class Reconciler:
    """Reconcile the paths of one store."""

    def __init__(self, replica: Replica) -> None:
        self._replica, self.uploads = replica, Uploads(replica)
        self._since: dict[str, float] = {}
        """Since when a file has been changing."""
        self._ripe: dict[str, float] = {}
        """When a file with a temporary name becomes a memory, if it still exists."""
        self._appeared: set[str] = set()
        """Paths that appeared: entries below a new directory may have no events."""
        self._actions: dict[SyncAction, Callable[[Case], object]] = {
            SyncAction.WAIT: self._wait,
            SyncAction.AGREE: self._agree,
            SyncAction.REPORT: self._report,
            SyncAction.DELETE_HERE: self._delete_here,
            SyncAction.KEEP_BOTH: self._keep_both,
            SyncAction.UNDO: self._undo,
        }
        """The actions that concern one path alone, in their order: removals first."""

    def touch(self, path: str, *, appeared: bool = False) -> None:
        """Record an event at *path* and schedule a check."""
        replica, now = self._replica, monotonic()
        replica.missing.add_events([path])
        if appeared:
            self._appeared.add(path)
        if kind_at(path) is Kind.TRANSIENT:
            self._ripe[path] = now + replica.context.options.grace
        since = self._since.setdefault(path, now)
        replica.agenda[path] = min(now + replica.pace.quiet, since + replica.pace.patience)

    def reconcile(self, paths: Sequence[str], *, final: bool = False) -> None:
        """Reconcile *paths*; if *final*, without waiting for further events."""
        for path in paths:
            self._follow(path)
        cases = [case for path in paths if (case := self._case(path)) is not None]
        olds = self._renamed([case for case in cases if case.is_new])
        if not final:
            cases = self._without_fresh(cases, olds)
        for case in cases:
            self._observe(case)
        # The memories of renamed files are moved; nothing else is done at their old paths.
        moved = {old.path for old in olds.values()}
        by_action = {act: [case for case in cases if case.act is act] for act in SyncAction}
        for act, perform in self._actions.items():
            for case in by_action[act]:
                if case.path not in moved:
                    self._perform(case, perform)
        self._download([each for each in by_action[SyncAction.DOWNLOAD] if each.path not in moved])
        deletions = by_action[SyncAction.DELETE_THERE]
        for case in deletions:
            self._replica.missing.add(case.path, monotonic(), self._replica.pace.rename)
        self._upload(by_action[SyncAction.UPLOAD], olds, final=final)
        self._delete_there(deletions, final=final)

    def enter(self, directory: str) -> None:
        """Schedule all files below a new *directory*: they may have no events."""
        replica = self._replica
        for path in [each for each in replica.files.made if f"{each}/".startswith(f"{directory}/")]:
            if not replica.state.below(path):
                replica.files.made.discard(path)
        for entry in replica.files.walk(directory, into=is_entered):
            if entry.type not in (FileType.DIRECTORY, FileType.ABSENT):
                replica.soon(entry.path)

    # Cases

    def _follow(self, path: str) -> None:
        """Rename files to or from *path* after other clients moved their memories."""
        replica = self._replica
        head = replica.heads.at(path)
        came = None if head is None else replica.state.of(head.id)
        for known in (replica.state.get(path), came):
            if known is None or known.path in self.uploads.held:
                continue
            head = replica.heads.of(known.memory_id)
            if head is None or head.path == known.path or replica.heads.at(head.path) is not head:
                continue
            free = replica.files.look(head.path).type is FileType.ABSENT
            if not free or replica.files.look(known.path).type is not FileType.FILE:
                continue
            if replica.files.move(known.path, head.path):
                replica.state.put(Known(head.path, known.memory_id, known.sha256, None, known.born))
                replica.state.forget(known.path)
                replica.settled(known.path)
                replica.soon(head.path)
                replica.files.prune(known.path)

    def _case(self, path: str) -> Case | None:
        """Return the case of *path*; None if it cannot be a memory's file, or not yet."""
        replica = self._replica
        if path in self.uploads.held:
            replica.agenda.setdefault(path, self.uploads.next or monotonic() + replica.pace.quiet)
            return None
        base, head = replica.state.get(path), replica.heads.at(path)
        if base is None and head is None and not self._is_candidate(path):
            replica.unsaved.discard(path)
            self._forget(path)
            return None
        file = self._look(path, base, head)
        agreed = base and base.agreed
        act = decide(agreed, file, Agreed.of(head), writable=replica.writable)
        return Case(path=path, base=base, head=head, file=file, act=act)

    def _is_candidate(self, path: str) -> bool:
        """Check whether a new file at *path* may become a memory; if not, list why."""
        if is_reserved(path):
            return False
        names = path.split("/")
        for depth, name in enumerate(names):
            if kind_of(name) is Kind.REFUSED:
                self._refuse("/".join(names[: depth + 1]), EPERM, VERSION_CONTROL)
                return False
        if kind_at(path) is Kind.SCRATCH:
            return False
        try:
            checked(path)
        except OSError as error:
            self._refuse(path, error.errno or EINVAL)
            return False
        return True

    def _refuse(self, path: str, errno: int, advice: str = "") -> None:
        """List why a file at *path* cannot be a memory, if one exists there."""
        if self._replica.files.look(path).type is FileType.ABSENT:
            self._replica.notices.clear(path)
        else:
            self._replica.refuse(path, errno, advice)

    def _look(self, path: str, base: Known | None, head: Memory | None) -> LocalFile:
        """Return the file; zero bytes are no fault if the head already has some."""
        file = self._replica.files.look(path, base and base.mark, base and base.sha256)
        if file.fault != EILSEQ or head is None or 0 not in (file.content or b""):
            return file
        try:
            has_zeros = "\0" in (self._replica.source.content(head).content or "")
            (file.content or b"").decode()
        except (HoldfastError, UnicodeDecodeError):
            return file
        return structs.replace(file, fault=0) if has_zeros else file

    def _without_fresh(self, cases: list[Case], olds: dict[str, Known]) -> list[Case]:
        """Postpone the files that may still be changing, with their old paths."""
        replica, now = self._replica, monotonic()
        fresh = {case.path for case in cases if self._is_fresh(case, now)}
        fresh |= {old.path for path, old in olds.items() if path in fresh}
        for path in fresh:
            replica.agenda[path] = now + replica.pace.quiet
        return [case for case in cases if case.path not in fresh]

    def _is_fresh(self, case: Case, now: float) -> bool:
        """Check whether the file changed so recently that it may change again."""
        pace, file = self._replica.pace, case.file
        if case.act not in _FROM_CONTENT or file.type is not FileType.FILE:
            return False
        if now - self._since.setdefault(case.path, now) >= pace.patience:
            return False
        quiet = pace.begun if file.content == b"" else pace.quiet
        return 0 <= time.time_ns() - file.changed_ns < quiet * 1e9

    def _observe(self, case: Case) -> None:
        """Record what *case* shows about the path, and about entries below it."""
        replica, path = self._replica, case.path
        notified, appeared = replica.missing.has_event(path), path in self._appeared
        self._forget(path, missing=case.act is SyncAction.DELETE_THERE)
        if case.file.type is FileType.DIRECTORY and appeared:
            self.enter(path)
        elif case.file.type is FileType.ABSENT:
            self._ripe.pop(path, None)
            if notified:
                below = replica.state.below(path)
                replica.missing.add_events(below)
                replica.soon(*below)

    def _forget(self, path: str, *, missing: bool = False) -> None:
        """Drop the events at *path*; also its absence, unless it is *missing*."""
        self._since.pop(path, None)
        self._appeared.discard(path)
        if not missing:
            self._replica.missing.found(path)

    def _renamed(self, new: Sequence[Case]) -> dict[str, Known]:
        """Return the old base of each file in *new* that is a renamed known file."""
        if not new:
            return {}
        replica, held = self._replica, self.uploads.held
        identities = [case.identity for case in new]
        keys = {key for each in identities for key in (each.inode, each.sha256)}
        missing: dict[str, Known] = {}
        for known in replica.state:
            if known.sha256 not in keys and (known.mark is None or known.mark.inode not in keys):
                continue
            head = replica.heads.at(known.path)
            if head is None or head is not replica.heads.of(known.memory_id) or known.path in held:
                continue
            if replica.files.look(known.path).type in (FileType.ABSENT, FileType.DIRECTORY):
                missing[known.path] = known
        olds = renamed([FileIdentity.of(known) for known in missing.values()], identities)
        return {path: missing[old] for path, old in olds.items()}

    # Actions

    def _perform(self, case: Case, perform: Callable[[Case], object]) -> None:
        self.uploads.forget(case.path)
        try:
            perform(case)
        except OSError as error:
            # The disk refused the action; the next full scan tries it again.
            self._replica.refuse(case.path, error.errno or EACCES, NOT_DONE)

    def _wait(self, case: Case) -> None:
        self._replica.agenda[case.path] = monotonic() + self._replica.pace.quiet

    def _agree(self, case: Case) -> None:
        """Record the equal file and head as the base, or that both are absent."""
        replica, agreed = self._replica, Agreed.of(case.head)
        if agreed is None:
            replica.state.forget(case.path)
        else:
            replica.state.put(Known.of(case.path, agreed, case.file))
        replica.missing.found(case.path)
        replica.settled(case.path)

    def _report(self, case: Case) -> None:
        if case.file.type is FileType.FOREIGN:
            self._replica.refuse(case.path, EPERM, LINK)
        else:
            self._replica.refuse(case.path, case.file.fault or EACCES)

    def _delete_here(self, case: Case) -> None:
        """Remove the file of a deleted memory, and directories that become empty."""
        replica = self._replica
        if not replica.files.take(case.path, case.file.sha256):
            replica.soon(case.path)
            return
        self._agree(case)
        replica.files.prune(case.path)
        replica.soon(*replica.notices)

    def _keep_both(self, case: Case) -> None:
        """Rename a conflicting file, which becomes a new memory; the head keeps the path."""
        replica = self._replica
        beside = self._beside(case.path)
        if not replica.files.move(case.path, beside):
            replica.soon(case.path)
            return
        replica.state.forget(case.path)
        replica.soon(beside)
        replica.status.conflict(ESTALE, memory_id=case.head and case.head.id)
        self._download([structs.replace(case, base=None, file=ABSENT)])

    def _beside(self, path: str) -> str:
        """Return a free path beside *path*, with `.conflict-` and the time."""
        replica = self._replica
        above, _, name = path.rpartition("/")
        stamp = replica.context.clock.now().strftime(_STAMP)
        number = 1
        while True:
            suffix = f".conflict-{stamp}" + (f"-{number}" if number > 1 else "")
            size = min(_NAME_BYTES_MAX, _PATH_BYTES_MAX - len(above.encode()) - 1) - len(suffix)
            free = f"{above}/{name.encode()[: max(0, size)].decode(errors='ignore')}{suffix}"
            if replica.files.look(free) is ABSENT and replica.heads.at(free) is None:
                return free
            number += 1

    def _undo(self, case: Case) -> None:
        """Restore the head at the path; spool local bytes that no version has first."""
        replica, path = self._replica, case.path
        if replica.status.ended:
            replica.refuse(path, EACCES)
            return
        if case.head is not None and self._content(path, case.head) is None:
            return
        if case.file.type is FileType.FILE:
            if not self._spool(case):
                replica.refuse(path, EROFS, NOT_OF_STORE)
                return
            if not replica.files.take(path, case.file.sha256):
                replica.soon(path)
                return
        if case.head is None:
            self._agree(case)
        elif not self._download([structs.replace(case, file=ABSENT)]):
            return
        if replica.notices.keep(path, EROFS):
            replica.status.refuse(EROFS)

    def _spool(self, case: Case) -> bool:
        """Spool the file; return False and do nothing if it is too large."""
        replica, context = self._replica, self._replica.context
        try:
            content = replica.files.read(case.path, SPOOLED_MAX)
        except FileNotFoundError:
            return True
        if not content:
            # A program may have just created it to write to it.
            return content is not None
        spooled = Spooled(
            store_id=replica.source.id,
            memory_id=case.base and case.base.memory_id,
            path=case.path,
            base_sha256=case.base and case.base.sha256,
            kind="save",
            errno=errorcode[replica.status.refusal],
            message="The store is read-only.",
            edit_id=context.new_edit_id(),
            at=to_rfc3339(context.clock.now()),
            session_id=context.options.session_id,
        )
        try:
            context.spool.put(spooled, content).release()
        except OSError as error:
            _log.warning("a file that is not allowed cannot be spooled: %s", error.strerror)
            return False
        replica.status.emit("spooled", errno=spooled.errno, size=len(content))
        return True

    def _download(self, cases: Sequence[Case]) -> int:
        """Write the heads of *cases* to disk; return how many were written."""
        replica, lasting = self._replica, len(cases) <= LASTING_MAX
        written: list[Known] = []
        for case in cases:
            file = self._write(case, lasting=lasting)
            agreed = Agreed.of(case.head)
            if file is not None and agreed is not None:
                written.append(Known.of(case.path, agreed, file))
        if written and not lasting:
            replica.files.sync()
        replica.state.put(*written)
        for known in written:
            replica.settled(known.path)
            if known.mark is None:
                replica.soon(known.path)
            else:
                replica.missing.found(known.path)
        return len(written)

    def _write(self, case: Case, *, lasting: bool) -> LocalFile | None:
        """Write the head over the file as seen; return the new file, or None."""
        replica, path, file = self._replica, case.path, case.file
        memory = None if case.head is None else self._content(path, case.head)
        if memory is None:
            return None
        try:
            if file.type is FileType.DIRECTORY and not replica.files.clear(path):
                raise IsADirectoryError(EISDIR, "A directory is there")
            put = replica.files.put(
                path,
                (memory.content or "").encode(),
                at_ns=to_microseconds(memory.updated_at) * 1000,
                over=file.sha256 if file.type is FileType.FILE else None,
                lasting=lasting,
            )
        except OSError as error:
            number = error.errno or EBUSY
            if number in (ENOTDIR, EISDIR, EEXIST):
                number = EEXIST
            if replica.notices.put(path, Notice.of(number, UNWRITTEN)):
                name = errorcode.get(number, "EIO")
                replica.status.emit("refused", hidden=True, errno=name)
            return None
        if put is None:
            replica.soon(path)
        return put

    def _content(self, path: str, head: Memory) -> Memory | None:
        """Return *head* with its content; None, after scheduling a retry, if that fails."""
        replica = self._replica
        try:
            replica.source.ahead(head)
            memory = replica.source.content(head)
            if memory.content_sha256 == head.content_sha256:
                return memory
            replica.catch_up()
            replica.agenda[path] = monotonic() + replica.pace.quiet
        except HoldfastError as error:
            replica.failed(error)
            if isinstance(error, NotFound) and not replica.status.deleted:
                replica.soon(*replica.heads.lose(head.id))
            else:
                replica.agenda[path] = monotonic() + replica.pace.again
        return None

    def _upload(self, cases: Sequence[Case], olds: dict[str, Known], *, final: bool) -> None:
        """Save new and changed files; move the memories of renamed files."""
        replica, now = self._replica, monotonic()
        moves: list[SyncTask] = []
        saves: list[SyncTask] = []
        for case in cases:
            old = olds.get(case.path)
            until = self._until(case, old, now)
            if now >= until:
                self._ripe.pop(case.path, None)
            elif not final:
                replica.unsaved.add(case.path)
                replica.agenda[case.path] = until
                if old is not None:
                    replica.missing.hold(old.path, now, until + replica.pace.quiet)
                    replica.agenda[old.path] = until + replica.pace.quiet
                continue
            if old is None:
                saves.append(self.uploads.save(case))
            else:
                moves.append(self.uploads.move(case, old))
        self.uploads.send(moves)
        self.uploads.send(saves)

    def _until(self, case: Case, old: Known | None, now: float) -> float:
        """Return when the new file of *case*, formerly *old*, becomes a memory."""
        replica, path = self._replica, case.path
        if case.head is None and kind_at(path) is Kind.TRANSIENT:
            return self._ripe.setdefault(path, now + replica.context.options.grace)
        if old is not None and is_backup(path):
            return replica.missing.since(old.path, now) + replica.context.options.grace
        return now

    def _delete_there(self, cases: Sequence[Case], *, final: bool) -> None:
        """Delete the memories of files that count as deleted by now."""
        replica, now = self._replica, monotonic()
        sure: list[SyncTask] = []
        for case in cases:
            if replica.state.get(case.path) != case.base or case.path not in replica.missing:
                continue
            if self._is_stuck(case.path):
                continue
            due = replica.missing.due(case.path)
            if due is None:
                replica.scan_by(now + replica.pace.confirm)
            elif now < due and not final:
                replica.agenda[case.path] = due
            elif case.head is not None:
                memory = self._content(case.path, case.head)
                if memory is not None:
                    sure.append(self.uploads.delete(case, memory))
        self.uploads.send(sure)

    def _is_stuck(self, path: str) -> bool:
        """Check whether the file of *path* exists under a name refused to its memory."""
        replica = self._replica
        new = replica.stuck.get(path)
        if new is not None and replica.files.look(new).type is FileType.ABSENT:
            del replica.stuck[path]
            return False
        return new is not None


def is_entered(directory: str) -> bool:
    """Check whether files below *directory* may be memories."""
    return kind_of(directory.rpartition("/")[2]) is not Kind.REFUSED
