"""One path under consideration: what was agreed, what is there, what the store has, what to do."""

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
    """What is to be done about *path*, and all that it rests on."""

    path: str
    base: Known | None
    head: Memory | None
    seen: LocalFile
    act: SyncAction

    @property
    def traced(self) -> FileIdentity:
        """What tells the file that is there under another name."""
        mark = self.seen.mark
        return FileIdentity(
            self.path, self.seen.found.sha256, mark.inode if mark else -1, self.seen.born
        )

    @property
    def agreed(self) -> Agreed | None:
        """Which memory and content the head is."""
        return agreed(self.head)

    @property
    def text(self) -> str:
        """The content of the file, which can be a memory's."""
        return (self.seen.content or b"").decode()


def case(replica: Replica, path: str) -> Case | None:
    """Return what is to be done about *path* now; None for what is no file of ours."""
    base, head = replica.state.get(path), replica.heads.at(path)
    if base is None and head is None and not is_candidate(replica, path):
        return None
    seen = replica.files.look(path, base and base.mark, base and base.sha256)
    found = _with_zeros(replica, seen, head)
    act = decide(base and base.agreed, found, agreed(head), writable=replica.writable)
    return Case(path=path, base=base, head=head, seen=seen, act=act)


def is_candidate(replica: Replica, path: str) -> bool:
    """Tell whether a file made here at *path* may be a memory; what cannot be is listed."""
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
    """Say why what is at *path* is no memory, if anything is there."""
    if replica.files.look(path).found.what is What.ABSENT:
        replica.notices.clear(path)
    else:
        replica.refuse(path, errno, says)


def _with_zeros(replica: Replica, seen: LocalFile, head: Memory | None) -> LocalState:
    """Return what is found; zero bytes are no fault where the memory holds some already."""
    found = seen.found
    if found.fault != EILSEQ or head is None or seen.content is None or 0 not in seen.content:
        return found
    try:
        has_zeros = "\0" in (replica.source.content(head).content or "")
        seen.content.decode()
    except (HoldfastError, UnicodeDecodeError):
        return found
    return LocalState(found.what, found.sha256) if has_zeros else found
