import multiprocessing
import signal
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace as Row

import pytest
from processes import context

from holdfast.engines.sqlite import SQLiteEngine
from holdfast.engines.sqlite.connection import connect
from holdfast.ground.errors import Unavailable
from holdfast.testing.contracts.engine import SCRATCH, noting, putting
from holdfast.testing.fakes import FrozenClock

fork = multiprocessing.get_context("fork")


def opened(path: Path) -> SQLiteEngine:
    return SQLiteEngine.open(path, clock=FrozenClock())


def add(engine: SQLiteEngine, key: str, times: int) -> None:
    sql = engine.queries(SCRATCH)
    for _ in range(times):
        engine.write(lambda tx: tx.one(Row, sql.add, key=key))


def add_on_threads(engine: SQLiteEngine, key: str, threads: int, times: int) -> None:
    adding = [threading.Thread(target=add, args=(engine, key, times)) for _ in range(threads)]
    for thread in adding:
        thread.start()
    for thread in adding:
        thread.join()


def count_in_a_process(path: Path, threads: int, times: int) -> None:
    engine = opened(path)
    add_on_threads(engine, "counter", threads, times)
    engine.close()


def count_until_killed(path: Path, said: Connection) -> None:
    """Say each number that was acknowledged."""
    engine = opened(path)
    sql = engine.queries(SCRATCH)

    def live(key: str) -> None:
        while True:
            number = engine.write(lambda tx: tx.one(Row, sql.add, key=key).number)
            with lock:
                said.send((key, number))

    lock = threading.Lock()
    for name in "abcd":
        threading.Thread(target=live, args=(name,), daemon=True).start()
    threading.Event().wait()


def hold_the_lock(path: Path, said: Connection) -> None:
    """Be another program, which holds the lock until it is told to let go."""
    connection = connect(str(path), "writer")
    connection.do("begin immediate")
    said.send("held")
    said.recv()
    connection.do("rollback")


def number(engine: SQLiteEngine, key: str) -> int:
    row = engine.first(Row, engine.queries(SCRATCH).get_number, key=key)
    return row.number if row else 0


def test_four_processes_of_four_threads_lose_nothing(engine: SQLiteEngine, path: Path):
    processes = [context().Process(target=count_in_a_process, args=(path, 4, 25)) for _ in range(4)]

    for process in processes:
        process.start()
    for process in processes:
        process.join()

    assert [process.exitcode for process in processes] == [0] * 4
    assert number(engine, "counter") == 4 * 4 * 25


@pytest.mark.parametrize("life", range(3))
def test_what_was_acknowledged_survives_a_kill(engine: SQLiteEngine, path: Path, life: int):
    heard, said = context().Pipe(duplex=False)
    process = context().Process(target=count_until_killed, args=(path, said))
    process.start()
    said.close()

    acknowledged: dict[str, int] = {}
    try:
        for message in iter(heard.recv, None):
            key, count = message
            acknowledged[key] = count
            if sum(acknowledged.values()) == 40 + 17 * life:
                process.kill()
    except EOFError:
        process.join()

    assert process.exitcode == -signal.SIGKILL
    for key, count in acknowledged.items():
        assert number(engine, key) >= count
    assert (
        engine.one(Row, "select integrity_check as said from pragma_integrity_check").said == "ok"
    )


def test_a_writer_waits_for_another_program_s_lock(engine: SQLiteEngine, path: Path):
    here, there = context().Pipe()
    process = context().Process(target=hold_the_lock, args=(path, there))
    process.start()
    assert here.recv() == "held"

    letting_go = threading.Timer(0.5, here.send, ["let go"])
    letting_go.start()
    engine.write(putting(engine.queries(SCRATCH), "a", 1))
    process.join()

    assert number(engine, "a") == 1


def test_a_lock_held_beyond_the_deadline_is_busy_and_nothing_was_written(
    engine: SQLiteEngine, path: Path
):
    here, there = context().Pipe()
    process = context().Process(target=hold_the_lock, args=(path, there))
    process.start()
    assert here.recv() == "held"
    sql = engine.queries(SCRATCH)

    patient = engine.submit(putting(sql, "patient", 1))
    submitted = engine.submit(putting(sql, "submitted", 1), timeout=0.2)
    with pytest.raises(Unavailable) as caught:
        engine.write(putting(sql, "hasty", 1), timeout=0.2)
    submitted_error = submitted.exception()
    here.send("let go")
    process.join()

    assert (caught.value.reason, caught.value.written) in {("busy", False), ("timeout", False)}
    assert isinstance(submitted_error, Unavailable)
    assert submitted_error.reason in {"busy", "timeout"}
    assert patient.result() > 0
    assert [row.key for row in engine.all(Row, sql.list)] == ["patient"]


def test_a_lone_write_whose_lock_does_not_come_says_busy(engine: SQLiteEngine, path: Path):
    other = connect(str(path), "writer")
    other.do("begin immediate")

    with pytest.raises(Unavailable) as caught:
        engine.write(putting(engine.queries(SCRATCH), "a", 1), timeout=0.1)
    other.raw.close()

    assert (caught.value.reason, caught.value.retry_after) == ("busy", 1.0)


def test_closing_does_not_wait_for_a_lock_longer_than_it_may(engine: SQLiteEngine, path: Path):
    other = connect(str(path), "writer")
    other.do("begin immediate")

    waiting = engine.submit(putting(engine.queries(SCRATCH), "a", 1))
    engine.close(timeout=0.2)
    error = waiting.exception()
    other.raw.close()

    assert isinstance(error, Unavailable)
    assert error.reason == "closed"


def test_a_forked_child_has_its_own_writer_and_the_parent_goes_on(engine: SQLiteEngine):
    futures = [
        engine.submit(lambda tx: tx.one(Row, engine.queries(SCRATCH).add, key="parent"))
        for _ in range(8)
    ]

    child = fork.Process(target=add_on_threads, args=(engine, "child", 2, 10))
    child.start()
    add_on_threads(engine, "parent", 2, 10)
    child.join()

    assert child.exitcode == 0
    assert [future.result().number for future in futures] == list(range(1, 9))
    assert (number(engine, "parent"), number(engine, "child")) == (28, 20)


def test_a_fork_inherits_no_connection(engine: SQLiteEngine, path: Path):
    add(engine, "a", 1)
    assert number(engine, "a") == 1

    def look(said: Connection) -> None:
        descriptors = [fd for fd in Path("/proc/self/fd").iterdir() if fd.exists()]
        names = [str(fd.readlink()) for fd in descriptors]
        said.send([name for name in names if name.startswith(str(path))])

    here, there = fork.Pipe()
    child = fork.Process(target=look, args=(there,))
    child.start()

    assert here.recv() == []
    child.join()
    assert number(engine, "a") == 1


def test_what_is_in_memory_stays_with_the_parent():
    engine = SQLiteEngine.open(":memory:", clock=FrozenClock())

    def use(said: Connection) -> None:
        for act in (lambda: engine.write(lambda _: 1), engine.feed):
            try:
                act()
            except Unavailable as error:
                said.send(error.reason)

    here, there = fork.Pipe()
    child = fork.Process(target=use, args=(there,))
    child.start()
    reasons = [here.recv(), here.recv()]
    child.join()

    assert reasons == ["closed", "closed"]
    assert engine.write(lambda _: 1) == 1
    engine.close()


def test_a_change_made_elsewhere_reaches_a_feed_here(engine: SQLiteEngine, path: Path):
    feed = engine.feed()
    process = context().Process(target=note_in_a_process, args=(path,))

    process.start()
    came = feed.poll(60)
    process.join()

    assert [event.type for event in came] == ["test.elsewhere"]


def note_in_a_process(path: Path) -> None:
    engine = opened(path)
    engine.write(noting("test.elsewhere"))
    engine.close()


def test_nobody_watches_other_processes_when_nobody_listens(engine: SQLiteEngine):
    feed = engine.feed()
    feed.poll()
    watching = watchers()

    feed.close()
    for thread in watching:
        thread.join(timeout=30)

    assert (len(watching), watchers()) == (1, [])


def watchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "holdfast-feed"]


def test_two_processes_that_open_a_new_file_together_both_succeed(tmp_path: Path):
    path = tmp_path / "new.db"
    processes = [context().Process(target=note_in_a_process, args=(path,)) for _ in range(4)]

    for process in processes:
        process.start()
    for process in processes:
        process.join()

    assert [process.exitcode for process in processes] == [0] * 4


def test_an_engine_never_closed_is_closed_when_the_interpreter_ends(path: Path):
    program = f"""
from types import SimpleNamespace as Row
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.testing.contracts.engine import make_scratch
from holdfast.testing.fakes import FrozenClock
engine = SQLiteEngine.open({str(path)!r}, clock=FrozenClock())
make_scratch(engine)
engine.submit(lambda tx: tx.run("insert into scratch (key) values ('late')"))
"""

    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)

    assert not Path(f"{path}-wal").exists()
    engine = opened(path)
    assert [row.key for row in engine.all(Row, "select key from scratch")] == ["late"]
    engine.close()
