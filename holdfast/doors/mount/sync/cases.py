"""The case of one path: base, local file, head, and the action that follows."""

from errno import EILSEQ, EINVAL, EPERM

from msgspec import Struct

from holdfast.doors.mount.names import Kind, checked, kind_of
from holdfast.doors.mount.sync import own
from holdfast.doors.mount.sync.heads import agreed
from holdfast.doors.mount.sync.merge import (
    Agreed,
    FileIdentity,
    LocalState,
    SyncAction,
    What,
    decide,
)
from holdfast.doors.mount.sync.notices import VERSION_CONTROL
from holdfast.doors.mount.sync.replica import Replica
from holdfast.doors.mount.sync.sight import LocalFile
from holdfast.doors.mount.sync.state import Known
from holdfast.ground.errors import HoldfastError
from holdfast.memories.stores.records import Memory


class Case(Struct, frozen=True, kw_only=True):
    """The action for *path*, with the base, head and file that it follows from."""

    path: str
    base: Known | None
    head: Memory | None
    seen: LocalFile
    act: SyncAction

    @property
    def traced(self) -> FileIdentity:
        """The identity of the file, to recognise it under another name."""
        mark = self.seen.mark
        return FileIdentity(
            self.path, self.seen.found.sha256, mark.inode if mark else -1, self.seen.born
        )

    @property
    def agreed(self) -> Agreed | None:
        """The memory and content of the head."""
        return agreed(self.head)

    @property
    def text(self) -> str:
        """The content of the file, which is valid for a memory."""
        return (self.seen.content or b"").decode()


def case(replica: Replica, path: str) -> Case | None:
    """Return the current case of *path*; None if it cannot be a memory's file."""
    base, head = replica.state.get(path), replica.heads.at(path)
    if base is None and head is None and not is_candidate(replica, path):
        return None
    seen = replica.files.look(path, base and base.mark, base and base.sha256)
    found = _with_zeros(replica, seen, head)
    act = decide(base and base.agreed, found, agreed(head), writable=replica.writable)
    return Case(path=path, base=base, head=head, seen=seen, act=act)


def is_candidate(replica: Replica, path: str) -> bool:
    """Check whether a new file at *path* may become a memory; if not, list why."""
    if own.is_own(path):
        return False
    names = path.split("/")
    for depth, name in enumerate(names):
        if kind_of(name) is Kind.REFUSED:
            _refuse_there(replica, "/".join(names[: depth + 1]), EPERM, VERSION_CONTROL)
            return False
    if kind_of(names[-1]) is Kind.SCRATCH and path not in replica.plain:
        return False
    try:
        checked(path)
    except OSError as error:
        _refuse_there(replica, path, error.errno or EINVAL)
        return False
    return True


def _refuse_there(replica: Replica, path: str, errno: int, says: str = "") -> None:
    """List why a file at *path* cannot be a memory, if one exists there."""
    if replica.files.look(path).found.what is What.ABSENT:
        replica.notices.clear(path)
    else:
        replica.refuse(path, errno, says)


def _with_zeros(replica: Replica, seen: LocalFile, head: Memory | None) -> LocalState:
    """Return the file's state; zero bytes are no fault if the head already has some."""
    found = seen.found
    if found.fault != EILSEQ or head is None or seen.content is None or 0 not in seen.content:
        return found
    try:
        has_zeros = "\0" in (replica.source.content(head).content or "")
        seen.content.decode()
    except (HoldfastError, UnicodeDecodeError):
        return found
    return LocalState(found.what, found.sha256) if has_zeros else found
