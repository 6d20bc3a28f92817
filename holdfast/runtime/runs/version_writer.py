"""`VersionWriter`: keeps the versions of a run while it goes on.

Saving may take as long as a disk or a database does, so it is done on a thread, and what is
complete meanwhile is part of the next version. After the first one only changes are stored.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse

from holdfast.ground.errors import StaleRun
from holdfast.ground.json_values import hashed
from holdfast.ground.validation import check_one_of
from holdfast.memories.run import keys
from holdfast.memories.run.history.turns import KeptTurn
from holdfast.memories.run.history.versions import StateKind, StateRow, version_event
from holdfast.memories.run.memory import EntryChanges, RunMemory
from holdfast.memories.run.records.event import RunEvent
from holdfast.memories.run.records.question import Question
from holdfast.runtime.concurrency import cause_of
from holdfast.runtime.events import EventFacts, ExecutionEvent, LogUpdate
from holdfast.runtime.runs.checkpoints import (
    Checkpoint,
    CheckpointChange,
    CheckpointLog,
    Checkpoints,
    LoggedCheckpoints,
)
from holdfast.runtime.runs.run_record import BEGUN, RecordedVersions, begun_row, save_of

log = logging.getLogger(__name__)

SPARE: Final = 1_048_576
"""Bytes of changes, beyond the size of the whole, after which it is stored whole again."""

ROUGH: Final = 256
"""Bytes of an entry beside its value, and of a name."""


OnMismatch: TypeAlias = Literal["refuse", "restart"]
"""What is done with the checkpoint of another run under one's id: raise, or start again."""


def checked_mismatch(given: OnMismatch) -> OnMismatch:
    """Return *given*; raise InvalidInput for another value."""
    return check_one_of("on_mismatch", given, get_args(OnMismatch), "must be refuse or restart")


def differing(stored: Mapping[str, str], requested: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of parts that differ, in the order of *requested*."""
    names = dict.fromkeys([*requested, *stored])
    return tuple(name for name in names if stored.get(name) != requested.get(name))


class RestoredState(Struct, frozen=True, kw_only=True):
    """What the newest version held when a stay began: nothing for a run that begins.

    `steps` and `tasks` are what was complete, `keys` those of the entries, `rows` the other facts
    as JSON, `turns` the messages of each part, `questions` those of the run to people.
    """

    steps: frozenset[str] = frozenset()
    tasks: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    rows: Mapping[tuple[StateKind, str], bytes] = {}
    turns: Mapping[str, Sequence[KeptTurn]] = {}
    questions: tuple[Question, ...] = ()

    def get(self, kind: StateKind, key: str) -> Any:
        """Return the fact *key* of *kind*; None if there is none."""
        body = self.rows.get((kind, key))
        return None if body is None else msgspec.json.decode(body)

    def of(self, kind: StateKind) -> dict[str, Any]:
        """Return the facts of *kind* by key, in the order of their first save."""
        found = {key: body for (each, key), body in self.rows.items() if each == kind}
        return {key: msgspec.json.decode(body) for key, body in found.items()}


NUMBER: Final[tuple[StateKind, str]] = ("start", "version")
"""The fact that holds the number of the newest version."""

NODE: Final = "node:"
"""Before the id of a node of a workflow, in the key of the fact with its outputs."""

NOTHING: Final = RestoredState()
"""The state of a run that begins."""


class VersionScope(Struct, frozen=True, kw_only=True):
    """The run that versions are of, and what its writer calls.

    *now* returns ms since 1970. *emit* and *tell* take its events, *number* one that is stored with
    its version, *lost* the error once another owner has it; *fence* returns the token of its lease
    of a place, 0 without one.
    """

    run_id: str
    now: Callable[[], int]
    emit: Callable[[EventFacts], object]
    number: Callable[[EventFacts], RunEvent]
    tell: Callable[[ExecutionEvent], object]
    lost: Callable[[StaleRun], object]
    fence: Callable[[object], int]


class PendingVersion:
    """What the next version stores: names, facts, messages, questions."""

    def __init__(self) -> None:
        self.tasks: list[str] = []
        self.steps: list[str] = []
        self.rows: dict[tuple[StateKind, str], StateRow] = {}
        self.turns: dict[tuple[str, int], KeptTurn] = {}
        self.questions: tuple[Question, ...] = ()
        self.causes: list[tuple[str, str | None, str | None]] = []

    @property
    def cause(self) -> tuple[str | None, str | None, str | None]:
        """The cause of the version, and its part and agent, if it has one alone."""
        if not self.causes:
            return None, None, None
        cause, *who = self.causes[-1]
        part, agent = who if len({each[1] for each in self.causes}) == 1 else (None, None)
        return cause, part, agent


Source: TypeAlias = Callable[[], Iterable[StateRow]]
"""Returns what changed since it was called last."""


class VersionWriter:
    """Keeps the versions of one run: what is complete is part of the next one.

    Without a place nothing is kept, and `keep` returns at once. `restored` is what the newest
    version held when this stay began, `before` the keys of the entries that were there before.
    `failed` is the reason of the last save that failed; a run goes on without it. `last` are the
    last messages of parts, which are stored with the versions that complete them; None where the
    newest version alone is kept. `known` are the keys of entries that another run has stored.
    """

    def __init__(self, scope: VersionScope) -> None:
        self._scope, self._stays = scope, 0
        self.last: dict[str, Sequence[KeptTurn]] | None = None
        self.known: frozenset[str] = frozenset()
        self._place: Checkpoints | None = None
        self._met: set[str] = set()
        self._begin()

    def _begin(self) -> None:
        self.restored, self.failed = NOTHING, None
        self.before: frozenset[str] = frozenset()
        self._found: Checkpoint | None = None
        self._parts: Mapping[str, str] = {}
        self._memory: RunMemory | None = None
        self._changes: EntryChanges | None = None
        self._tasks: dict[str, None] = {}
        self._steps: dict[str, None] = {}
        self._rows: dict[tuple[StateKind, str], StateRow] = {}
        self._turns: dict[tuple[str, int], KeptTurn] = {}
        self.last = None
        self._pending, self._log = PendingVersion(), None
        self._whole_bytes = self._changed_bytes = 0
        self._requested = self._begun = self._done = 0
        self._saving: asyncio.Task[None] | None = None
        self._number = 0
        self._unsaved: CheckpointChange | None = None
        self._sources: list[Source] = []
        self._questions: dict[str, Question] = {}

    @property
    def is_open(self) -> bool:
        """Whether versions are kept."""
        return self._place is not None

    async def open(self, place: Checkpoints | None, memory: RunMemory | None = None) -> None:
        """Keep versions at *place*, those of *memory* too; load the newest one.

        An executor that begins while another is at work in the run shares what is open.
        """
        self._stays += 1
        if self._stays > 1:
            return
        self._begin()
        if memory is not None:
            self.before = frozenset([entry.key for entry in memory.snapshot()])
        if place is None:
            return
        self._place, self._memory = place, memory
        self._found = await asyncio.to_thread(place.load, self._scope.run_id)
        if isinstance(place, RecordedVersions):
            self._number, self.last = place.number, {}

    def differing(self, parts: Mapping[str, str]) -> tuple[str, ...]:
        """Return the names of *parts* with which the loaded run was not begun."""
        if self._found is None or {self._found.plan_hash, *self._met} & {hashed(parts)}:
            return ()
        return differing(self._found.parts, parts)

    async def start(self, parts: Mapping[str, str], *, again: bool = False) -> None:
        """Restore what was loaded, unless it starts *again*; keep *parts* with it."""
        # Another executor at work in this run may wait, and goes on here after this one.
        self._met.add(hashed(parts))
        if self._stays > 1 or self._place is None:
            return
        if self._found is not None and not again:
            self._restore(self._found)
        if again and isinstance(self._place, RecordedVersions):
            await asyncio.to_thread(self._place.delete, self._scope.run_id)
            self._number = 0
        self._parts, self._found = parts, None
        if isinstance(self._place, RecordedVersions) and self.restored.get(*BEGUN) is None:
            # The record takes changes alone: the first one has this.
            self._add([begun_row(parts)])
        if self._memory is not None:
            self._changes = self._memory.changes(self.known)

    def _restore(self, found: Checkpoint) -> None:
        if self._memory is not None and found.entries:
            self._memory.restore(found.entries)
        there = {entry.key for entry in found.entries if not entry.failed}
        self._rows = {(row.kind, row.key): row for row in found.rows}
        self._turns = {(turn.part, turn.n): turn for turn in found.turns}
        steps = [
            id
            for id in found.completed_steps
            if keys.step(id) in there or ("state", NODE + id) in self._rows
        ]
        tasks = [id for id in found.completed_tasks if keys.task(id) in there]
        self._steps, self._tasks = dict.fromkeys(steps), dict.fromkeys(tasks)
        turns: dict[str, list[KeptTurn]] = {}
        for _, turn in sorted(self._turns.items()):
            turns.setdefault(turn.part, []).append(turn)
        self.restored = RestoredState(
            steps=frozenset(steps),
            tasks=frozenset(tasks),
            keys=frozenset(entry.key for entry in found.entries),
            rows={key: row.body for key, row in self._rows.items() if row.body is not None},
            turns=turns,
            questions=found.questions,
        )
        self._questions = {each.id: each for each in found.questions}
        self._number = self._number or self.restored.get(*NUMBER) or 0

    def collect(self, source: Source) -> None:
        """Keep what *source* returns, the rows that changed since it was called last, too."""
        self._sources.append(source)

    def note(self, row: StateRow) -> None:
        """Keep *row* with the next version."""
        if self._place is not None:
            self._add([row])

    async def complete(
        self,
        step: str,
        task: str | None = None,
        *,
        cause: str = "step",
        agent: str | None = None,
        rows: Iterable[StateRow] = (),
    ) -> None:
        """Keep *step* as complete, and *task* with it, as `keep` does."""
        if self._place is None:
            return
        self._steps[step] = None
        self._pending.steps.append(step)
        if task is not None:
            self._tasks[task] = None
            self._pending.tasks.append(task)
        # What is complete is not gone on with inside.
        for key in [key for key in self._turns if key[0] == step]:
            del self._turns[key]
        if self.last is not None:
            self._pending.turns |= {(turn.part, turn.n): turn for turn in self.last.pop(step, ())}
        await self.keep(cause, part=step, agent=agent, rows=rows)

    async def keep(
        self,
        cause: str,
        *,
        part: str | None = None,
        agent: str | None = None,
        rows: Iterable[StateRow] = (),
    ) -> None:
        """Store *rows* and all that changed as a version for *cause*, and return.

        It returns as well when the save has failed. When cancelled meanwhile it ends the save
        first: it is not known what of it is stored.
        """
        if self._place is None:
            return
        self._add(rows)
        self._pending.causes.append((cause, part, agent))
        await self._saved()

    async def keep_turns(self, turns: Sequence[KeptTurn], rows: Iterable[StateRow] = ()) -> None:
        """Keep messages of parts, and *rows*, without a version of their own."""
        if self._place is None:
            return
        self._add(rows)
        for turn in turns:
            self._turns[turn.part, turn.n] = self._pending.turns[turn.part, turn.n] = turn
        await self._saved()

    def _add(self, rows: Iterable[StateRow]) -> None:
        for row in rows:
            self._rows[row.kind, row.key] = self._pending.rows[row.kind, row.key] = row

    async def rest(self, questions: Iterable[Question]) -> tuple[RunEvent, ...]:
        """Keep a last version with all *questions* of the run, which leaves this process.

        Return the events that are stored with it: none, unless the place is the run's record.
        """
        if self._place is None:
            return ()
        self._pending.questions = tuple(questions)
        self._questions |= {each.id: each for each in self._pending.questions}
        if not isinstance(self._place, RecordedVersions):
            await self.keep("question")
            return ()
        await self._saved(self._requested)
        self._pending.causes.append(("question", None, None))
        change = joined(self._unsaved, self._change())
        return await asyncio.to_thread(self._place.rest, change)

    async def finish(self) -> None:
        """Keep the end, as a whole where changes are appended to it."""
        if self._place is not None:
            self._log = None
            await self.keep("end")

    async def close(self) -> None:
        """Return when no save is under way, even when cancelled; keep no more."""
        if self._stays > 1:
            self._stays -= 1
            return
        try:
            await self._saved(self._requested)
        finally:
            self._stays, self._place = 0, None
            if self._changes is not None:
                self._changes.close()
                self._changes = None

    async def _saved(self, wanted: int | None = None) -> None:
        """Return when the save *wanted*, else a new one, is done.

        When cancelled meanwhile, it raises after that.
        """
        again: asyncio.CancelledError | None = None
        if wanted is None:
            self._requested += 1
            wanted = self._requested
        while self._done < wanted:
            if self._saving is None:
                self._saving = asyncio.create_task(self._save())
            try:
                await asyncio.shield(self._saving)
            except asyncio.CancelledError as error:
                again = error
        if again:
            raise again

    async def _save(self) -> None:
        try:
            while self._done < self._requested:
                wanted = self._requested
                await self._tried()
                self._done = wanted
        finally:
            self._saving = None

    async def _tried(self) -> None:
        change, place = self._change(), self._place
        if isinstance(place, RecordedVersions):
            change, self._unsaved = joined(self._unsaved, change), None
            if not await self._tries(self._recorded(place, change)):
                self._unsaved = change
            return
        await self._tries(self._put(change))

    async def _tries(self, saves: Awaitable[None]) -> bool:
        """Save, and return whether that was possible."""
        try:
            await saves
        except StaleRun as error:
            self._scope.lost(error)
            self.failed = cause_of(error)
        except Exception as error:
            # A failed save, for any reason, does not fail the run.
            log.warning("no version of %s was saved", self._scope.run_id, exc_info=True)
            self.failed = cause_of(error)
            message = f"The checkpoint was not saved: {self.failed}"
            self._scope.tell(LogUpdate(severity="error", content=message))
        else:
            return True
        return False

    async def _recorded(self, place: RecordedVersions, change: CheckpointChange) -> None:
        """Store *change* in the record of the run, with its event in its order."""
        save, event = save_of(change), None
        if save.cause is not None:
            event = version_event(save, self._number + 1)
            facts = EventFacts(type=event.type, part=event.part, agent=event.agent, data=event.data)
            event = self._scope.number(facts)
        await asyncio.to_thread(place.keep, save, event)
        # One that could not be stored has no number: the next one holds what it had.
        self._number += save.cause is not None

    async def _put(self, change: CheckpointChange) -> None:
        # Without a log, the next save is whole.
        appended, self._log = self._log, None
        if appended is None or not await asyncio.to_thread(appended.append, change):
            appended = await asyncio.to_thread(self._stored, self._whole(change))
        self._tell(change)
        if self._changed_bytes <= self._whole_bytes + SPARE:
            self._log = appended

    def _tell(self, change: CheckpointChange) -> None:
        if change.cause is not None:
            changed = [*(entry.key for entry in change.entries), *change.removed]
            data = {"version": self._number, "cause": change.cause, "changed": changed}
            facts = EventFacts(type="version.kept", part=change.part, agent=change.agent, data=data)
            self._scope.emit(facts)

    def _stored(self, checkpoint: Checkpoint) -> CheckpointLog | None:
        place = self._place
        if isinstance(place, LoggedCheckpoints):
            return place.begin(checkpoint)
        if place is not None:
            place.save(checkpoint)
        return None

    def _change(self) -> CheckpointChange:
        for source in self._sources:
            self._add(source())
        # Names first, entries after: each name that is complete has its entry.
        pending, self._pending = self._pending, PendingVersion()
        cause, part, agent = pending.cause
        if cause is not None and not isinstance(self._place, RecordedVersions):
            self._number += 1
            number = StateRow(*NUMBER, b"%d" % self._number)
            self._rows[NUMBER] = pending.rows[NUMBER] = number
        entries, removed = self._changes.take() if self._changes is not None else ([], [])
        change = CheckpointChange(
            run_id=self._scope.run_id,
            completed_tasks=tuple(pending.tasks),
            completed_steps=tuple(pending.steps),
            removed=tuple(removed),
            entries=tuple(entries),
            saved_at=self._scope.now(),
            fence=self._scope.fence(self._place),
            rows=tuple(pending.rows.values()),
            turns=tuple(pending.turns.values()),
            questions=pending.questions,
            cause=cause,
            part=part,
            agent=agent,
        )
        self._changed_bytes += _size(change)
        return change

    def _whole(self, change: CheckpointChange) -> Checkpoint:
        tasks, steps = tuple(self._tasks), tuple(self._steps)
        # Taken before, so that what is written meanwhile is in the next change as well.
        entries = self._memory.snapshot() if self._memory is not None else ()
        whole = Checkpoint(
            run_id=self._scope.run_id,
            plan_hash=hashed(self._parts),
            parts=self._parts,
            completed_tasks=tasks,
            completed_steps=steps,
            entries=tuple(entries),
            saved_at=self._scope.now(),
            fence=self._scope.fence(self._place),
            rows=tuple([row for row in self._rows.values() if row.body is not None]),
            turns=tuple(self._turns.values()),
            questions=tuple(self._questions.values()),
            cause=change.cause or "step",
            part=change.part,
            agent=change.agent,
        )
        self._whole_bytes, self._changed_bytes = _size(whole), 0
        return whole


class KeptReplies:
    """The replies of a model in *part*, outside of a loop: kept, and given again."""

    def __init__(self, versions: VersionWriter, part: str) -> None:
        self._versions, self._part, self._next = versions, part, 0
        self._found = [turn.body for turn in versions.restored.turns.get(part, ())]

    def next(self) -> ModelResponse | None:
        """Return the next reply that an earlier stay has kept, or None."""
        if self._next >= len(self._found):
            return None
        (found,) = ModelMessagesTypeAdapter.validate_json(b"[%s]" % self._found[self._next])
        self._next += 1
        return found if isinstance(found, ModelResponse) else None

    async def keep(self, response: ModelResponse) -> None:
        """Keep *response* as the next one."""
        if self._versions.is_open:
            body = ModelMessagesTypeAdapter.dump_json([response])[1:-1]
            await self._versions.keep_turns([KeptTurn(self._part, self._next, body)])
        self._next += 1


def joined(first: CheckpointChange | None, then: CheckpointChange) -> CheckpointChange:
    """Return *first*, which was not saved, and *then* as one change."""
    if first is None:
        return then
    entries = {entry.key: entry for entry in first.entries if entry.key not in then.removed}
    rows = {(row.kind, row.key): row for row in (*first.rows, *then.rows)}
    turns = {(turn.part, turn.n): turn for turn in (*first.turns, *then.turns)}
    return replace(
        then,
        completed_tasks=(*first.completed_tasks, *then.completed_tasks),
        completed_steps=(*first.completed_steps, *then.completed_steps),
        removed=(*first.removed, *then.removed),
        entries=tuple((entries | {entry.key: entry for entry in then.entries}).values()),
        rows=tuple(rows.values()),
        turns=tuple(turns.values()),
        questions=(*first.questions, *then.questions),
        cause=then.cause or first.cause,
    )


def _size(saved: Checkpoint | CheckpointChange) -> int:
    """Return about how many bytes *saved* takes."""
    values = chain(
        (each.value_json for each in saved.entries),
        (row.body or b"" for row in saved.rows),
        (turn.body for turn in saved.turns),
    )
    named = len(saved.completed_tasks) + len(saved.completed_steps)
    return sum(ROUGH + len(each) for each in values) + ROUGH * named
