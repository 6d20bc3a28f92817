"""From the disk to the store: what is saved, moved and deleted, sent once and answered once.

Edits whose outcome is not known are sent again as they are, under the same id, until they are
answered; meanwhile nothing else is sent of their files.
"""

from collections.abc import Iterator, Sequence
from errno import EEXIST
from time import monotonic

from msgspec import Struct, structs

from holdfast.doors.mount.errors import errno_of, passing
from holdfast.doors.mount.names import Kind, kind_of
from holdfast.doors.mount.sync.cases import Case
from holdfast.doors.mount.sync.heads import agreed
from holdfast.doors.mount.sync.merge import Agreed, SyncAction
from holdfast.doors.mount.sync.replica import Replica
from holdfast.doors.mount.sync.state import Known
from holdfast.ground.errors import (
    HoldfastError,
    NotFound,
    NotPermitted,
    PathTaken,
    PreconditionFailed,
    StoreArchived,
    Unavailable,
)
from holdfast.memories.stores.edits import Edit, Move, Moved, Remove, Save
from holdfast.memories.stores.records import Applied

AT_ONCE, BYTES_AT_ONCE = 100, 1024 * 1024
"""How many files, and how much of them, one transaction takes."""


class SyncTask(Struct, frozen=True, kw_only=True):
    """What is asked of the store about one file: edits, or to go where it is by now from *old*."""

    case: Case
    edits: tuple[Edit, ...] = ()
    old: Known | None = None

    @property
    def size(self) -> int:
        """Characters of content that are sent."""
        return sum(len(edit.content) for edit in self.edits if isinstance(edit, Save))


class SyncBatch(Struct, kw_only=True):
    """Tasks of one transaction that wait for their answer; all of them are moves, or none."""

    tasks: list[SyncTask]
    edit_id: str
    due: float
    tries: int = 0

    @property
    def edits(self) -> list[Edit]:
        """What is asked: moves all in one, so that files may change places."""
        moves = tuple(
            Moved(memory_id=task.old.memory_id, path=task.case.path)
            for task in self.tasks
            if task.old is not None
        )
        return [Move(moves=moves)] if moves else [e for task in self.tasks for e in task.edits]

    def answers(self, applied: Sequence[Applied]) -> Iterator[tuple[SyncTask, Applied]]:
        """Give each task with the answer to its first edit."""
        at = 0
        for number, task in enumerate(self.tasks):
            if task.old is not None:
                moved = applied[0].memories[number]
                yield task, structs.replace(applied[0], memories=(moved,))
            else:
                yield task, applied[at]
                at += len(task.edits)


class Inward:
    """Makes the heads of one store as its files are."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._unanswered: list[SyncBatch] = []
        self._tries: dict[str, int] = {}

    @property
    def held(self) -> set[str]:
        """The paths of which nothing else may be sent."""
        return {path for sending in self._unanswered for path in _paths(sending.tasks)}

    @property
    def retrying(self) -> int:
        """How many files wait to be tried again."""
        return len(self.held | set(self._tries))

    @property
    def next(self) -> float | None:
        """When the next unanswered edits are due to be sent again."""
        return min((sending.due for sending in self._unanswered), default=None)

    def save(self, cases: Sequence[Case]) -> None:
        """Save the files of *cases*: new memories, and new contents of those there are."""
        if any(case.act is SyncAction.CREATE for case in cases) and not self._caught_up(cases):
            return
        replica, tasks = self._replica, list[SyncTask]()
        for case in cases:
            replica.unsaved.add(case.path)
            base = case.base if case.act is SyncAction.SAVE else None
            edit = Save(
                path=case.path,
                content=case.text,
                memory_id=base and base.memory_id,
                base_sha256=base and base.sha256,
            )
            tasks.append(SyncTask(case=case, edits=(edit,)))
        self._send_all(tasks)

    def move(self, renamed: Sequence[tuple[Known, Case]]) -> None:
        """Move memories to where their files are by now, all at once; if not, one by one."""
        if not renamed:
            return
        self._send(self._new([SyncTask(case=case, old=old) for old, case in renamed]))

    def delete(self, cases: Sequence[Case]) -> None:
        """Delete the memories of *cases*, each if it still has the content that the file had."""
        tasks: list[SyncTask] = []
        for case in cases:
            base, head = case.base, case.head
            if base is None or head is None:
                continue
            content = self._content(case)
            if content is None:
                continue
            # A save of what is there is none, and fails where something else is.
            guard = Save(
                path=case.path,
                content=content,
                memory_id=base.memory_id,
                base_sha256=base.sha256,
            )
            tasks.append(SyncTask(case=case, edits=(guard, Remove(memory_id=base.memory_id))))
        self._send_all(tasks)

    def resend(self, now: float) -> None:
        """Send again what is not answered and due."""
        for sending in [each for each in self._unanswered if each.due <= now]:
            self._unanswered.remove(sending)
            self._replica.counts.retried += 1
            self._send(sending)

    def forget(self, path: str) -> None:
        """Take in that *path* is settled, by whatever."""
        self._tries.pop(path, None)

    def _content(self, case: Case) -> str | None:
        """Return the content of the head, which is what was agreed; None if it is no more."""
        replica, head = self._replica, case.head
        if head is None:
            return None
        try:
            memory = replica.source.content(head)
            if memory.content_sha256 == head.content_sha256:
                return memory.content
            replica.catch_up()
            replica.soon(case.path)
        except HoldfastError as error:
            self._failed([case.path], error)
        return None

    def _caught_up(self, cases: Sequence[Case]) -> bool:
        """Learn what is new, so that what was made elsewhere in this moment is not replaced."""
        replica = self._replica
        before = replica.heads.seq
        try:
            replica.catch_up()
        except HoldfastError as error:
            self._failed([case.path for case in cases], error)
            return False
        if replica.heads.seq == before:
            return True
        changed = [case for case in cases if case.agreed != agreed(replica.heads.at(case.path))]
        replica.soon(*(case.path for case in (cases if changed else ())))
        return not changed

    def _send_all(self, tasks: list[SyncTask]) -> None:
        batch: list[SyncTask] = []
        for task in tasks:
            size = sum(each.size for each in batch)
            if batch and (len(batch) >= AT_ONCE or size + task.size > BYTES_AT_ONCE):
                self._send(self._new(batch))
                batch = []
            batch.append(task)
        if batch:
            self._send(self._new(batch))

    def _new(self, tasks: list[SyncTask]) -> SyncBatch:
        return SyncBatch(tasks=tasks, edit_id=self._replica.around.new_edit_id(), due=monotonic())

    def _send(self, sending: SyncBatch) -> None:
        replica, tasks = self._replica, sending.tasks
        try:
            applied = replica.source.apply(sending.edits, sending.edit_id)
        except Unavailable as error:
            if error.written is False:
                self._failed(_paths(tasks), error)
            else:
                self._wait(sending, error)
        except HoldfastError as error:
            if len(tasks) == 1:
                self._refused(tasks[0], error)
            elif passing(error):
                self._failed(_paths(tasks), error)
            else:
                for task in tasks:
                    self._send(self._new([task]))
        else:
            for each in applied:
                replica.heads.answered(each)
            for task, answer in sending.answers(applied):
                self._done(task, answer)

    def _done(self, task: SyncTask, applied: Applied) -> None:
        """Take in what the edits of *task* came to."""
        replica, case = self._replica, task.case
        self._tries.pop(case.path, None)
        replica.settled(case.path)
        replica.missing.found(case.path)
        if task.old is not None:
            self._moved(task.old, case, applied)
        elif case.act is SyncAction.DELETE:
            replica.state.forget(case.path)
            replica.local.add(case.path.rpartition("/")[0])
            replica.reconsider()
        else:
            self._saved(case, applied)
        # Since it was looked at, it may have changed again.
        replica.soon(case.path)

    def _saved(self, case: Case, applied: Applied) -> None:
        replica = self._replica
        memory = applied.memories[0]
        saved = Agreed(memory.id, memory.content_sha256)
        replica.state.put(Known.of(case.path, saved, case.seen))
        replica.counts.saves += applied.changed
        if case.act is SyncAction.CREATE and memory.created_at < memory.updated_at:
            # One that was made elsewhere in this very moment is in the history only.
            replica.counts.conflict(EEXIST, memory_id=memory.id)
        if (
            case.act is SyncAction.CREATE
            and kind_of(case.path.rpartition("/")[2]) is Kind.TRANSIENT
        ):
            replica.counts.promote(memory.id)

    def _moved(self, old: Known, case: Case, applied: Applied) -> None:
        replica = self._replica
        moved = Known(case.path, old.memory_id, old.sha256, None, case.seen.born)
        if case.seen.found.sha256 == old.sha256:
            moved = Known.of(case.path, old.agreed, case.seen)
        replica.state.put(moved)
        replica.state.forget(old.path)
        replica.missing.found(old.path)
        replica.stuck.pop(old.path, None)
        replica.settled(old.path)
        replica.counts.saves += applied.changed
        replica.soon(old.path)

    def _refused(self, task: SyncTask, error: HoldfastError) -> None:
        """Take in that *task*, sent alone, cannot be done as it was asked."""
        replica, path = self._replica, task.case.path
        replica.failed(error)
        match error:
            case PathTaken() if error.conflicting_path != path:
                if error.conflicting_path in replica.missing:
                    replica.blocked.add(path)
                    self._later(path)
                else:
                    replica.refuse(path, EEXIST)
                    if task.old is not None:
                        replica.stuck[task.old.path] = path
            case PreconditionFailed() | PathTaken() | NotFound():
                # The store has moved on; what is to be done follows from what it has now.
                try:
                    replica.catch_up()
                except HoldfastError as failed:
                    replica.failed(failed)
                self._later(path)
            case StoreArchived() | NotPermitted():
                replica.judge(lambda: setattr(replica, "read_only", True))
                replica.soon(path)
            case _ if passing(error):
                self._failed([path], error)
            case _:
                replica.refuse(path, errno_of(error))

    def _failed(self, paths: Sequence[str], error: HoldfastError) -> None:
        """Take in that nothing was done about *paths* now, and try again later."""
        replica = self._replica
        replica.failed(error)
        for path in paths:
            if path not in self._tries:
                replica.counts.fail(errno_of(error))
            self._later(path)

    def _later(self, path: str) -> None:
        tries = self._tries[path] = self._tries.get(path, 0) + 1
        self._replica.agenda.put(path, monotonic() + self._replica.pace.pause(tries))

    def _wait(self, sending: SyncBatch, error: HoldfastError) -> None:
        """Send the same again later: it may have been done."""
        replica = self._replica
        sending.tries += 1
        sending.due = monotonic() + replica.pace.pause(sending.tries)
        self._unanswered.append(sending)
        if sending.tries == 1:
            for _ in sending.tasks:
                replica.counts.fail(errno_of(error))


def _paths(tasks: Sequence[SyncTask]) -> list[str]:
    return [path for task in tasks for path in (task.case.path, task.old and task.old.path) if path]
