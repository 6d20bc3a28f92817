"""Group commits on one connection to a SQLite database.

Waiting writes run under one commit, those of a kin as one batch. One that fails before its first
change has nothing to undo. One that fails after it spoils its group: the transaction is rolled
back, and all run again, each in a savepoint. When SQLite itself ends the transaction, each is run
again in a transaction of its own, so one that is too large does not fail the small ones beside it.
"""

import secrets
from threading import get_ident
from time import monotonic, perf_counter, sleep
from typing import Literal, cast

import apsw

from holdfast.engines.base import BatchedWork, EngineMetrics, copy_of
from holdfast.engines.sqlite.connection import Connection
from holdfast.engines.sqlite.database import Database
from holdfast.engines.sqlite.maintenance import empty
from holdfast.engines.sqlite.transaction import INSERT_CHANGE, SQLiteTransaction
from holdfast.engines.sqlite.write_queue import (
    WAITING,
    Slot,
    WriteQueue,
    deliver,
    gathered,
    refusal,
)
from holdfast.ground.errors import Corrupt, EngineFault, HoldfastError, Unavailable

LONGEST = 0.020
"""Seconds of work after which a group is committed, so that other processes get the lock."""

LARGEST = 8 * 1024 * 1024
"""Bytes bound after which a group is committed."""

_SLOW = 0.100
CAREFUL = 64
"""Groups that use savepoints after a spoilt one: what fails once often fails again."""

_ALONE, _SPOILT = "alone", "spoilt"
_SEQ = "select seq from engine_state"
_OURS = "select count(*) from engine_state where seq = ? and writer = ?"
_WRITE_SEQ = "update engine_state set seq = ?, writer = ?"


Among = Literal["none", "bare", "savepoints"]
"""What a batch runs among: no others, others without savepoints, or each in a savepoint."""


class GroupCommit:
    """Group commit of writes on one connection; the caller holds the turn.

    The engine-wide number is written together with a token of this object: after a commit in
    doubt, the file itself shows whether it took place.
    """

    def __init__(
        self, database: Database, queue: WriteQueue, connection: Connection | None
    ) -> None:
        self._database, self._queue = database, queue
        self._token = secrets.token_hex(8)
        self._connection: Connection | None = None
        self._past_statements = 0
        self._careful_groups, self._spoilt, self._sent = 0, False, False
        self.give_up_at = float("inf")
        self.metrics = EngineMetrics(retries=(_ALONE, _SPOILT))
        if connection is not None:
            self._adopt(connection)

    @property
    def statements(self) -> int:
        """Number of statements run, without internal upkeep."""
        return self._past_statements + (self._connection.statements if self._connection else 0)

    def connection(self) -> Connection:
        """Return the connection, reopened if it was dropped."""
        return self._connection or self._adopt(self._database.connect("writer"))

    def drop(self) -> Connection | None:
        """Give up the connection, and return it for the caller to close."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._past_statements += connection.statements
        return connection

    def settle(self, slots: list[Slot], *, patient: bool = True) -> list[Slot]:
        """Run *slots* in one transaction; return those with a value or an error.

        The others were withdrawn, or wait again because the group reached its limit. If not
        *patient*, none is returned, and none has run, while another process writes.
        """
        entering = list(slots)
        failed: list[Slot] = []
        self._sent = False
        begun = self._enter(entering, failed, patient=patient)
        if begun is None:
            return failed
        connection, base = begun
        careful = self._careful_groups > 0
        self._careful_groups -= careful
        ran, left, seq = self._run_all(connection, entering, base, careful=careful)
        # An acknowledged write is in the file that other processes open by this name.
        if not self._database.look_for_file():
            done = self._stopped(connection, ran + left)
        elif self._spoilt:
            self.metrics.retries.add(_SPOILT)
            self._careful_groups = 1 + CAREFUL
            done = self.settle(ran + left)
        elif not connection.raw.in_transaction and len(entering) > 1:
            self.metrics.retries.add(_ALONE)
            done = self._each_alone(ran + left)
        else:
            if left:
                self._queue.put_back(left)
            done = self._commit(connection, ran, base, seq)
        return failed + done

    def interrupted(self) -> bool:
        """Roll back what an interrupt of `settle` left; return whether it had committed."""
        connection = self._connection
        if connection is not None and connection.raw.in_transaction:
            self._roll_back(connection)
            return False
        return self._sent

    def _stopped(self, connection: Connection, slots: list[Slot]) -> list[Slot]:
        """Complete *slots* of a file that was damaged or replaced while they ran."""
        try:
            self._database.check_sound()
        except Corrupt as error:
            return self._after_damage(slots, error)
        except Unavailable as error:
            self._roll_back(connection)
            return self._refuse(slots, error)
        raise EngineFault("The file was stopped without a reason.")

    def _adopt(self, connection: Connection) -> Connection:
        connection.patience.meanwhile = self._meanwhile
        self._connection = connection
        return connection

    def _enter(
        self, entering: list[Slot], failed: list[Slot], *, patient: bool
    ) -> tuple[Connection, int] | None:
        """Begin a transaction; return its connection, and the number before its first.

        None if there is nothing to run: those of *entering* with an error are in *failed*.
        """
        self._database.recheck()
        try:
            self._database.check_writable()
        except HoldfastError as error:
            failed += self._refuse(entering, error)
            return None
        try:
            connection = self.connection()
            if patient:
                self._begin(connection, entering, failed)
            elif not _begin_at_once(connection):
                return None
            return (connection, connection.number(_SEQ)) if entering else None
        except Corrupt as error:
            failed += self._after_damage(entering, error)
        except HoldfastError as error:
            if self._connection is not None:
                self._roll_back(self._connection)
            failed += self._refuse(entering, error)
        return None

    def _begin(self, connection: Connection, entering: list[Slot], failed: list[Slot]) -> None:
        """Take the lock, unless all of *entering* expire first and move to *failed*."""
        tried = False
        while True:
            now = monotonic()
            for slot in [one for one in entering if one.deadline <= now]:
                if slot.state == WAITING or tried:
                    entering.remove(slot)
                    self._refuse_late(slot, failed)
            if now >= self.give_up_at and tried:
                failed += [slot for slot in entering if self._fail(slot, refusal("closed"))]
                entering.clear()
            if not entering:
                return
            connection.patience.until = min([self.give_up_at, *[one.deadline for one in entering]])
            for slot in entering:
                slot.at_the_door = True
            try:
                connection.do("begin immediate")
            except Unavailable as error:
                if error.reason != "busy":
                    raise
                tried = True
                sleep(0.001)
                continue
            for slot in entering:
                slot.at_the_door = False
            return

    def _refuse_late(self, slot: Slot, failed: list[Slot]) -> None:
        if not self._fail(slot, refusal("busy" if slot.at_the_door else "timeout")):
            return
        if slot.at_the_door:
            # The others of its group may wait for the lock much longer.
            deliver([slot])
        else:
            failed.append(slot)

    def _meanwhile(self) -> None:
        if self._connection is not None:
            patience = self._connection.patience
            patience.until = min(patience.until, self.give_up_at)
        for slot in self._queue.expired():
            if self._fail(slot, refusal("timeout")):
                deliver([slot])

    def _refuse(self, slots: list[Slot], error: HoldfastError) -> list[Slot]:
        """Yield each of *slots* a copy of *error*; return those not withdrawn."""
        return [slot for slot in slots if self._fail(slot, copy_of(error))]

    def _fail(self, slot: Slot, error: HoldfastError) -> bool:
        """Give *slot* an error; return False if it was withdrawn."""
        if not self._queue.claim(slot):
            return False
        slot.value, slot.error = None, error
        return True

    def _run_all(
        self, connection: Connection, entering: list[Slot], base: int, *, careful: bool
    ) -> tuple[list[Slot], list[Slot], int]:
        """Run *entering*; return those that ran, the others, and the last number drawn.

        If *careful*, each batch is in a savepoint; else the last may have spoilt the group.
        """
        ran: list[Slot] = []
        left, self._spoilt = gathered(entering)[::-1], False
        among: Among = "none" if len(entering) == 1 else "savepoints" if careful else "bare"
        begun, bound, seq = monotonic(), 0, base
        inside, me = self._database.inside, get_ident()
        inside[me] = "write"
        try:
            while left and bound < LARGEST and (not ran or monotonic() - begun < LONGEST):
                batch = self._queue.claim_all(left.pop())
                if not batch:
                    continue
                tx = self._run(connection, batch, seq, among=among)
                if tx is None and len(batch) > 1:
                    left += [[slot] for slot in reversed(batch)]
                else:
                    ran += batch
                if not connection.raw.in_transaction:
                    break
                if tx is not None:
                    seq, bound = seq + tx.used, bound + tx.bound
        finally:
            inside.pop(me, None)
        return ran, [slot for batch in reversed(left) for slot in batch], seq

    def _run(
        self, connection: Connection, batch: list[Slot], seq: int, *, among: Among
    ) -> SQLiteTransaction | None:
        """Run *batch*; return its transaction, or None if it failed as a whole."""
        begun, now = perf_counter(), monotonic()
        for slot in batch:
            self.metrics.waits.observe(max(0.0, now - slot.came))
            slot.value = slot.error = slot.tx = None
        tx = SQLiteTransaction(connection, batch[0].owner, seq)
        changes, failed = connection.raw.total_changes(), False
        try:
            if among == "savepoints":
                connection.do("savepoint one")
            if len(batch) == 1:
                batch[0].value, batch[0].tx = batch[0].work(tx), tx
            else:
                _run_batch(batch, tx)
            tx.finish()
            if among == "savepoints":
                connection.do("release one")
        except BaseException as error:  # noqa: BLE001 - raised to the caller of the write
            failed = True
            tx.end()
            _fail_all(batch, error)
            changed = connection.raw.total_changes() != changes
            self._undo(connection, among=among, changed=changed)
        took = perf_counter() - begun
        if took > _SLOW:
            milliseconds = round(took * 1000)
            self._database.note("slow_work", statement=tx.slowest, milliseconds=milliseconds)
        return None if failed else tx

    def _undo(self, connection: Connection, *, among: Among, changed: bool) -> None:
        """Undo a failed batch, and note if that undid the others of its group too."""
        if not connection.raw.in_transaction:
            return
        if among == "savepoints":
            try:
                connection.do("rollback to one")
                connection.do("release one")
            except HoldfastError:
                # Roll back the whole transaction instead; the other writes then run again.
                self._roll_back(connection)
        elif changed:
            self._roll_back(connection)
            self._spoilt = among == "bare"

    def _roll_back(self, connection: Connection) -> None:
        if connection.raw.in_transaction:
            try:
                connection.do("rollback")
            except HoldfastError:
                self._reopen()

    def _each_alone(self, slots: list[Slot]) -> list[Slot]:
        return [done for slot in slots for done in self.settle([slot])]

    def _after_damage(self, slots: list[Slot], error: Corrupt) -> list[Slot]:
        """Run *slots* again, each alone and once, if the file is sound; else fail them."""
        if self._database.in_memory:
            self._roll_back(self.connection())
        else:
            self._reopen()
        self._database.noticed(error)
        self._database.recheck()
        if self._database.stopped is not None or any(slot.rerun for slot in slots):
            return self._refuse(slots, error)
        self.metrics.retries.add(_ALONE)
        for slot in slots:
            slot.rerun = True
        return self._each_alone(slots)

    def _commit(self, connection: Connection, ran: list[Slot], base: int, seq: int) -> list[Slot]:
        succeeded = [slot for slot in ran if slot.error is None]
        failed = len(ran) - len(succeeded)
        if not succeeded:
            self.metrics.writes.add("error", by=failed)
            self._roll_back(connection)
            return ran
        begun, sent = perf_counter(), False
        try:
            if feed := [row for slot in ran if slot.tx is not None for row in slot.tx.feed]:
                connection.run_tuples(INSERT_CHANGE, feed)
            if seq != base:
                connection.execute(_WRITE_SEQ, (seq, self._token)).fetchall()
            self._sent = sent = True
            connection.do("commit")
        except (HoldfastError, apsw.Error) as error:
            ours = error if isinstance(error, HoldfastError) else connection.fault(error)
            if sent and isinstance(ours, Unavailable) and ours.reason == "io":
                return self._resolve_doubt(ours, ran, seq if seq != base else None)
            self._roll_back(connection)
            if len(ran) > 1:
                self.metrics.retries.add(_ALONE)
                return self._each_alone(ran)
            ran[0].value, ran[0].error = None, ours
            self.metrics.writes.add("error")
            return ran
        self.metrics.committed(perf_counter() - begun, writes=len(ran))
        self.metrics.writes.add("ok", by=len(succeeded))
        self.metrics.writes.add("error", by=failed)
        return ran

    def _resolve_doubt(self, error: HoldfastError, ran: list[Slot], seq: int | None) -> list[Slot]:
        """Reopen the file, and check whether the commit of *seq* took place."""
        succeeded = [slot for slot in ran if slot.error is None]
        self._reopen()
        if seq is not None and self._holds(seq):
            self._database.note("recovered", writes=len(succeeded))
            self.metrics.writes.add("ok", by=len(succeeded))
            return ran
        self.metrics.writes.add("unknown", by=len(succeeded))
        for slot in succeeded:
            slot.value = None
            slot.error = Unavailable(error.message, reason="io", written=None)
            slot.error.__cause__ = error.__cause__
        return ran

    def _holds(self, seq: int) -> bool:
        """Return whether the file has *seq*, on disk.

        After a sync that failed the log may have it in memory alone, even if a later sync
        succeeds, so a checkpoint writes it once more.
        """
        try:
            connection = self.connection()
            rows = connection.execute(_OURS, (seq, self._token)).fetchall()
            return rows[0][0] == 1 and empty(connection)
        except (HoldfastError, apsw.Error):
            return False

    def _reopen(self) -> None:
        connection = self.drop()
        if connection is not None:
            connection.raw.close(force=True)
        self.metrics.reconnects.add()
        self._database.note("reconnected")


def _begin_at_once(connection: Connection) -> bool:
    """Take the lock; return False if another process has it."""
    connection.patience.until = 0.0
    try:
        connection.do("begin immediate")
    except Unavailable as error:
        if error.reason != "busy":
            raise
        return False
    return True


def _run_batch(batch: list[Slot], tx: SQLiteTransaction) -> None:
    """Set the value or the error of each slot of *batch*."""
    works = [cast("BatchedWork[object, object]", slot.work) for slot in batch]
    results = works[0].work(tx, [work.item for work in works])
    if len(results) != len(batch):
        raise EngineFault(f"A batch of {len(batch)} writes gave {len(results)} results.")
    for slot, result in zip(batch, results, strict=True):
        if isinstance(result, Exception):
            slot.error = result
        else:
            slot.value = result
    succeeded = [slot for slot in batch if slot.error is None]
    if succeeded:
        succeeded[0].tx = tx


def _fail_all(batch: list[Slot], error: BaseException) -> None:
    """Give a lone slot *error*; let slots of a kin run each by itself."""
    for slot in batch:
        slot.value = slot.tx = None
        slot.error = error if len(batch) == 1 else None
        slot.kin = None
