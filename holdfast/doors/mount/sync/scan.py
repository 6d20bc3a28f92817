"""Full scans of a store's directory, for changes without events and deleted files."""

import logging
from time import monotonic

from holdfast.doors.mount.sync import own
from holdfast.doors.mount.sync.files import LocalEntry
from holdfast.doors.mount.sync.heads import agreed
from holdfast.doors.mount.sync.merge import What, believed
from holdfast.doors.mount.sync.replica import Replica
from holdfast.doors.mount.sync.settling import is_entered

RECOVERED = "recovered"

_log = logging.getLogger(__name__)


class Scan:
    """Full scans of the directory of one store."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._new: list[str] | None = None
        """New files of the last scan, which may be missing files under other names."""

    def run(self, *, quick: bool = False) -> None:
        """Schedule a check of all paths that differ from their base.

        *quick* also trusts the marks of files that changed within the last two seconds.
        """
        replica = self._replica
        replica.scan_at = monotonic() + replica.pace.scan
        if replica.files.make_root():
            self._restore("the directory itself was missing")
        present: set[str] = set()
        directories: set[str] = set()
        for entry in replica.files.walk(into=is_entered):
            if entry.what is What.DIRECTORY:
                directories.add(entry.path)
            elif entry.what is not What.ABSENT:
                present.add(entry.path)
                self._meet(entry, quick=quick)
        self._note_local(directories)
        known = {each.path for each in replica.state}
        self._new = sorted(present - known)
        replica.soon(*(known - present), *self._unequal())
        replica.soon(*replica.notices)
        replica.tell_hidden()
        replica.state.tidy()

    def _unequal(self) -> list[str]:
        """Return the paths at which the head differs from the base."""
        replica = self._replica
        paths = [*replica.heads.paths(), *(each.path for each in replica.state)]
        bases = {each.path: each.agreed for each in replica.state}
        return [path for path in paths if agreed(replica.heads.at(path)) != bases.get(path)]

    def _meet(self, entry: LocalEntry, *, quick: bool) -> None:
        """Check *entry*, which is no directory, against its base by its mark."""
        replica, path = self._replica, entry.path
        if own.is_own(path):
            if path != own.ERRORS:
                self._recover(path)
            return
        known = replica.state.get(path)
        if known is not None and entry.mark is not None:
            as_agreed = entry.mark.resembles if quick else entry.mark.tells
            if as_agreed(known.mark):
                replica.missing.found(path)
                return
        replica.soon(path)

    def _recover(self, path: str) -> None:
        """Remove a temporary file of a killed process; keep unknown content as a file."""
        replica = self._replica
        above, _, name = path.rpartition("/")
        sha256 = replica.files.look(path).found.sha256
        if own.may_go(name, sha256):
            replica.files.drop(path)
            return
        stamp = replica.around.clock.now().strftime("%Y%m%dT%H%M%SZ")
        found = f"{above}/{RECOVERED}.conflict-{stamp}"
        if replica.files.move(path, found):
            _log.warning("found a file that was cut off from its name, and kept it")
            replica.soon(found)

    def _note_local(self, directories: set[str]) -> None:
        """Record which of *directories* were created here: no memory is below them."""
        replica = self._replica
        held: set[str] = set()
        for path in (*replica.heads.paths(), *(each.path for each in replica.state)):
            above = path.rpartition("/")[0]
            while above and above not in held:
                held.add(above)
                above = above.rpartition("/")[0]
        replica.local = (directories - held) | (replica.local & directories)

    def judge(self) -> None:
        """Count files missing in two scans as deleted, unless too many are missing.

        This acts once after each scan, when the new files of the scan are processed: until then a
        missing file may turn out to be renamed.
        """
        replica, now = self._replica, monotonic()
        if self._new is None:
            return
        if any(path in replica.agenda and path not in replica.blocked for path in self._new):
            return
        self._new = None
        unseen = {
            path: since
            for path, since in replica.missing.unseen().items()
            if replica.files.look(path).found.what in (What.ABSENT, What.DIRECTORY)
        }
        if not believed(len(unseen), len(replica.state)):
            self._restore("too much of it is missing at once", list(unseen))
            return
        sure = [path for path, since in unseen.items() if now - since >= replica.pace.confirm]
        replica.missing.believe(sure, now)
        replica.soon(*sure)
        waiting = [since for path, since in unseen.items() if path not in sure]
        if waiting:
            replica.scan_by(min(waiting) + replica.pace.confirm)

    def _restore(self, why: str, paths: list[str] | None = None) -> None:
        """Write missing files to disk again; all files if *paths* is None."""
        replica = self._replica
        if paths is None:
            paths = [each.path for each in replica.state]
        for path in paths:
            replica.state.forget(path)
            replica.missing.found(path)
        if paths:
            _log.error("%d files are written out again: %s", len(paths), why)
            replica.counts.tell("refused", missing=len(paths), known=len(replica.heads))
        replica.soon(*paths)
