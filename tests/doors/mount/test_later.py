import logging
import threading
from collections.abc import Callable, Iterator
from time import monotonic

import pytest

from holdfast.doors.mount.storage.deadline import Later

LONG = 60.0


@pytest.fixture
def later() -> Iterator[Later]:
    later = Later(threads=2)
    yield later
    later.close()


class Done:
    """What was run, in order, and a way to wait for it."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._changed = threading.Condition()

    def note(self, name: str) -> Callable[[], None]:
        def run() -> None:
            with self._changed:
                self.names.append(name)
                self._changed.notify_all()

        return run

    def wait(self, count: int) -> list[str]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.names) >= count, LONG)
            return self.names


@pytest.fixture
def done() -> Done:
    return Done()


@pytest.fixture
def free() -> Iterator[threading.Event]:
    """Give what lets calls go on that wait for it; at the end they all do."""
    free = threading.Event()
    yield free
    free.set()


def test_a_call_runs_when_its_time_has_come_and_not_before(later: Later, done: Done) -> None:
    began, ran = monotonic(), list[float]()
    later.after(0.02, lambda: ran.append(monotonic()), key="a")
    later.after(0.03, done.note("over"), key="a")
    done.wait(1)

    assert ran[0] >= began + 0.02


def test_what_is_due_first_runs_first(later: Later, done: Done) -> None:
    later.after(0.05, done.note("later"), key="a")
    later.after(0.0, done.note("now"), key="a")

    assert done.wait(2) == ["now", "later"]


def test_calls_of_one_key_run_one_at_a_time_and_in_order(later: Later, done: Done) -> None:
    running = threading.Lock()

    def alone(number: int) -> Callable[[], None]:
        def run() -> None:
            assert running.acquire(blocking=False)
            try:
                done.note(str(number))()
            finally:
                running.release()

        return run

    for number in range(200):
        later.after(0.0, alone(number), key="a")

    assert done.wait(200) == [str(number) for number in range(200)]


def test_a_call_that_waits_holds_up_no_other_key(
    later: Later, done: Done, free: threading.Event
) -> None:
    def held() -> None:
        free.wait(LONG)

    later.after(0.0, held, key="a")
    later.after(0.0, done.note("a"), key="a")
    later.after(0.0, done.note("b"), key="b")

    assert done.wait(1) == ["b"]

    free.set()

    assert done.wait(2) == ["b", "a"]


def test_no_more_calls_run_at_once_than_there_are_threads(
    later: Later, done: Done, free: threading.Event
) -> None:
    at_work = threading.Semaphore(2)

    def work() -> None:
        assert at_work.acquire(blocking=False)
        free.wait(LONG)
        at_work.release()
        done.note("ran")()

    for key in range(5):
        later.after(0.0, work, key=key)
    free.set()

    assert done.wait(5) == ["ran"] * 5


def test_what_is_cancelled_never_runs(later: Later, done: Done) -> None:
    cancel = later.after(0.0, done.note("first"), key="a")
    done.wait(1)
    cancel()
    later.after(0.01, done.note("cancelled"), key="a")()
    later.after(0.02, done.note("last"), key="a")

    assert done.wait(2) == ["first", "last"]


def test_a_call_may_ask_for_another(later: Later, done: Done) -> None:
    def again() -> None:
        later.after(0.0, done.note("again"), key="a")

    later.after(0.0, again, key="a")

    assert done.wait(1) == ["again"]


def test_a_call_that_fails_is_logged_and_the_next_runs(
    later: Later, done: Done, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ValueError("a bug")

    for key in ("a", "a", "b", "c"):
        later.after(0.0, fail, key=key)
    later.after(0.0, done.note("next"), key="a")

    assert done.wait(1) == ["next"]
    assert any(record.levelno == logging.ERROR for record in caplog.records)


def test_closed_it_begins_nothing_more(later: Later, done: Done) -> None:
    later.after(0.01, done.note("dropped"), key="a")
    later.close()
    later.close()
    later.after(0.0, done.note("refused"), key="a")
    for thread in [each for each in threading.enumerate() if each.name == "holdfast-later"]:
        thread.join(LONG)

    assert done.names == []


def test_closing_may_run_what_is_due_but_waits_for_its_turn(
    later: Later, done: Done, free: threading.Event
) -> None:
    began = threading.Barrier(3)

    def held() -> None:
        began.wait(LONG)
        free.wait(LONG)

    for key in ("a", "b"):
        later.after(0.0, held, key=key)
    began.wait(LONG)
    later.after(0.0, done.note("due"), key="a")
    later.after(0.0, done.note("due too"), key="c")
    later.after(LONG, done.note("not due"), key="c")

    later.close(run_due=True)

    assert done.names == ["due", "due too"]
