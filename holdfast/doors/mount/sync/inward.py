"""Send local changes to the store: saves, moves and deletions.

Edits in doubt are sent again unchanged, under the same id, until a response comes; meanwhile no
other edit of their files is sent.
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
"""Limits of one transaction: files, and characters of content."""


class SyncTask(Struct, frozen=True, kw_only=True):
    """The request about one file: edits, or with *old* a move to its present path."""

    case: Case
    edits: tuple[Edit, ...] = ()
    old: Known | None = None

    @property
    def size(self) -> int:
        """Characters of content to send."""
        return sum(len(edit.content) for edit in self.edits if isinstance(edit, Save))


class SyncBatch(Struct, kw_only=True):
    """Tasks of one transaction; either all of them are moves, or none."""

    tasks: list[SyncTask]
    edit_id: str
    due: float
    tries: int = 0

    @property
    def edits(self) -> list[Edit]:
        """The edits to send; all moves are one edit, so that files can swap paths."""
        moves = tuple(
            Moved(memory_id=task.old.memory_id, path=task.case.path)
            for task in self.tasks
            if task.old is not None
        )
        return [Move(moves=moves)] if moves else [e for task in self.tasks for e in task.edits]

    def answers(self, applied: Sequence[Applied]) -> Iterator[tuple[SyncTask, Applied]]:
        """Yield each task with the result of its first edit."""
        at = 0
        for number, task in enumerate(self.tasks):
            if task.old is not None:
                moved = applied[0].memories[number]
                yield task, structs.replace(applied[0], memories=(moved,))
            else:
                yield task, applied[at]
                at += len(task.edits)


class Inward:
    """Apply the local changes of one store to its heads."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._unanswered: list[SyncBatch] = []
        self._tries: dict[str, int] = {}

    @property
    def held(self) -> set[str]:
        """The paths with an edit in doubt, of which no other edit may be sent."""
        return {path for sending in self._unanswered for path in _paths(sending.tasks)}

    @property
    def retrying(self) -> int:
        """How many files wait for a retry."""
        return len(self.held | set(self._tries))

    @property
    def next(self) -> float | None:
        """When the next edits in doubt are due to be sent again."""
        return min((sending.due for sending in self._unanswered), default=None)

    def save(self, cases: Sequence[Case]) -> None:
        """Save the files of *cases* as new memories or new contents."""
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
        """Move memories to their files' paths, in one edit; if that fails, one by one."""
        if not renamed:
            return
        self._send(self._new([SyncTask(case=case, old=old) for old, case in renamed]))

    def delete(self, cases: Sequence[Case]) -> None:
        """Delete the memories of *cases* that still have the content of their files."""
        tasks: list[SyncTask] = []
        for case in cases:
            base, head = case.base, case.head
            if base is None or head is None:
                continue
            content = self._content(case)
            if content is None:
                continue
            # A save of the same content changes nothing, and fails if the head is another.
            guard = Save(
                path=case.path,
                content=content,
                memory_id=base.memory_id,
                base_sha256=base.sha256,
            )
            tasks.append(SyncTask(case=case, edits=(guard, Remove(memory_id=base.memory_id))))
        self._send_all(tasks)

    def resend(self, now: float) -> None:
        """Resend the edits in doubt that are due."""
        for sending in [each for each in self._unanswered if each.due <= now]:
            self._unanswered.remove(sending)
            self._replica.counts.retried += 1
            self._send(sending)

    def forget(self, path: str) -> None:
        """Reset the retries of *path*, which needs no action any more."""
        self._tries.pop(path, None)

    def _content(self, case: Case) -> str | None:
        """Return the content of the head, equal to the base; None if it has changed."""
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
        """Fetch new changes before a save, so that no new memory is replaced.

        Return False if the heads of *cases* changed or cannot be fetched.
        """
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
        """Apply the result of the edits of *task*."""
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
        # The file may have changed since it was read.
        replica.soon(case.path)

    def _saved(self, case: Case, applied: Applied) -> None:
        replica = self._replica
        memory = applied.memories[0]
        saved = Agreed(memory.id, memory.content_sha256)
        replica.state.put(Known.of(case.path, saved, case.seen))
        replica.counts.saves += applied.changed
        if case.act is SyncAction.CREATE and memory.created_at < memory.updated_at:
            # A memory that another client created just before is only in the history now.
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
        """Handle the refusal of *task*, which was sent alone."""
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
                # The store has changed: the next check decides from its current heads.
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
        """Count a failure of *paths* and retry later."""
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
        """Schedule the same edits again: they are in doubt."""
        replica = self._replica
        sending.tries += 1
        sending.due = monotonic() + replica.pace.pause(sending.tries)
        self._unanswered.append(sending)
        if sending.tries == 1:
            for _ in sending.tasks:
                replica.counts.fail(errno_of(error))


def _paths(tasks: Sequence[SyncTask]) -> list[str]:
    return [path for task in tasks for path in (task.case.path, task.old and task.old.path) if path]
