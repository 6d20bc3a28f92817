"""Run waiting writes in savepoints under one commit.

Each has a savepoint of its own, so one that fails is rolled back alone. When SQLite itself ends the
transaction, each is run again in a transaction of its own, so one that is too large does not fail
the small ones beside it.
"""

import secrets
from threading import get_ident
from time import monotonic, perf_counter, sleep

import apsw

from holdfast.engines.base import EngineMetrics
from holdfast.engines.sqlite.connection import Connection
from holdfast.engines.sqlite.database import Database
from holdfast.engines.sqlite.transaction import SQLiteTransaction
from holdfast.engines.sqlite.write_queue import WAITING, Slot, WriteQueue, deliver, refusal
from holdfast.ground.errors import Corrupt, EngineFault, HoldfastError, Unavailable

LONGEST = 0.020
"""Seconds of work after which a group is committed, so that other processes get the lock."""

LARGEST = 8 * 1024 * 1024
"""Bytes bound after which a group is committed."""

_SLOW = 0.100
_ALONE = "alone"
_SEQ = "select seq from engine_state"
_OURS = "select count(*) from engine_state where seq = ? and writer = ?"
_WRITE_SEQ = "update engine_state set seq = ?, writer = ?"


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
        self.give_up_at = float("inf")
        self.metrics = EngineMetrics(retries=(_ALONE,))
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

    def settle(self, slots: list[Slot]) -> list[Slot]:
        """Run *slots* in one transaction; return those with a value or an error.

        The others were withdrawn, or wait again because the group reached its limit.
        """
        entering = list(slots)
        failed: list[Slot] = []
        self._database.recheck()
        try:
            self._database.check_writable()
        except HoldfastError as error:
            return self._refuse(entering, error)
        try:
            connection = self.connection()
            self._begin(connection, entering, failed)
            base = connection.number(_SEQ) if entering else 0
        except Corrupt as error:
            return failed + self._after_damage(entering, error)
        except HoldfastError as error:
            if self._connection is not None:
                self._roll_back(self._connection)
            return failed + self._refuse(entering, error)
        if not entering:
            return failed
        ran, left, seq = self._run_all(connection, entering, base)
        # An acknowledged write is in the file that other processes open by this name.
        if not self._database.look_for_file():
            done = self._stopped(connection, ran + left)
        elif not connection.raw.in_transaction and len(entering) > 1:
            self.metrics.retries.add(_ALONE)
            done = self._each_alone(ran + left)
        else:
            if left:
                self._queue.put_back(left)
            done = self._commit(connection, ran, base, seq)
        return failed + done

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
        return [slot for slot in slots if self._fail(slot, _copy_of(error))]

    def _fail(self, slot: Slot, error: HoldfastError) -> bool:
        """Give *slot* an error; return False if it was withdrawn."""
        if not self._queue.claim(slot):
            return False
        slot.value, slot.error = None, error
        return True

    def _run_all(
        self, connection: Connection, entering: list[Slot], base: int
    ) -> tuple[list[Slot], list[Slot], int]:
        """Run *entering*; return those that ran, the others, and the last number drawn."""
        ran: list[Slot] = []
        left = entering[::-1]
        begun, bound, seq = monotonic(), 0, base
        inside, me = self._database.inside, get_ident()
        inside[me] = "write"
        try:
            while left and bound < LARGEST and (not ran or monotonic() - begun < LONGEST):
                slot = left.pop()
                if not self._queue.claim(slot):
                    continue
                ran.append(slot)
                tx = self._run(connection, slot, seq, alone=len(entering) == 1)
                if not connection.raw.in_transaction:
                    break
                if slot.error is None:
                    seq, bound = seq + tx.used, bound + tx.bound
        finally:
            inside.pop(me, None)
        return ran, left[::-1], seq

    def _run(
        self, connection: Connection, slot: Slot, seq: int, *, alone: bool
    ) -> SQLiteTransaction:
        begun = perf_counter()
        self.metrics.waits.observe(max(0.0, monotonic() - slot.came))
        slot.value = slot.error = None
        slot.tx = tx = SQLiteTransaction(connection, slot.owner, seq)
        try:
            if not alone:
                connection.do("savepoint one")
            slot.value = slot.work(tx)
            tx.finish()
            if not alone:
                connection.do("release one")
        except BaseException as error:  # noqa: BLE001 - raised to the caller of the write
            slot.value, slot.error = None, error
            tx.end()
            self._undo(connection, alone=alone)
        took = perf_counter() - begun
        if took > _SLOW:
            milliseconds = round(took * 1000)
            self._database.note("slow_work", statement=tx.slowest, milliseconds=milliseconds)
        return tx

    def _undo(self, connection: Connection, *, alone: bool) -> None:
        try:
            if alone:
                self._roll_back(connection)
            elif connection.raw.in_transaction:
                connection.do("rollback to one")
                connection.do("release one")
        except HoldfastError:
            # Roll back the whole transaction instead; the other writes then run again.
            self._roll_back(connection)

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
            if seq != base:
                connection.execute(_WRITE_SEQ, (seq, self._token)).fetchall()
            sent = True
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
        try:
            rows = self.connection().execute(_OURS, (seq, self._token)).fetchall()
        except (HoldfastError, apsw.Error):
            return False
        return rows[0][0] == 1

    def _reopen(self) -> None:
        connection = self.drop()
        if connection is not None:
            connection.raw.close(force=True)
        self.metrics.reconnects.add()
        self._database.note("reconnected")


def _copy_of(error: HoldfastError) -> HoldfastError:
    """Return a copy of *error*, for one thread to raise.

    Threads that raise one error object mix up its traceback.
    """
    twin = type(error).__new__(type(error), *error.args)
    twin.__dict__.update(error.__dict__)
    twin.__cause__ = error.__cause__
    return twin
