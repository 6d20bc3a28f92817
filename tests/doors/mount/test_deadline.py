import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.doors.mount.storage.deadline import Deadline
from holdfast.ground.errors import NotFound, Unavailable

LONG = 60.0
AT_ONCE = 0.01


@pytest.fixture
def deadline() -> Iterator[Deadline]:
    deadline = Deadline(LONG, threads=2)
    yield deadline
    deadline.close()


@pytest.fixture
def hang() -> Iterator[Callable[[], None]]:
    """Give work that hangs until the test is over."""
    over = threading.Event()

    def work() -> None:
        over.wait(LONG)

    yield work
    over.set()


def threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name == "holdfast-storage"}


def test_a_call_returns_what_its_work_returns(deadline: Deadline) -> None:
    assert deadline.call(lambda: 7) == 7


def test_a_call_raises_what_its_work_raises(deadline: Deadline) -> None:
    def work() -> None:
        raise NotFound("memory", "mem_1")

    with pytest.raises(NotFound, match="mem_1"):
        deadline.call(work)


def test_a_call_whose_time_is_over_is_unavailable(
    deadline: Deadline, hang: Callable[[], None]
) -> None:
    with pytest.raises(Unavailable) as raised:
        deadline.call(hang, seconds=AT_ONCE)

    assert (raised.value.reason, raised.value.written) == ("timeout", None)


def test_what_hangs_holds_up_nobody_else(deadline: Deadline, hang: Callable[[], None]) -> None:
    with pytest.raises(Unavailable):
        deadline.call(hang, seconds=AT_ONCE)

    assert deadline.call(lambda: "answered") == "answered"


def test_what_its_caller_gave_up_goes_on_alone(deadline: Deadline) -> None:
    go, gone = threading.Event(), threading.Event()

    def work() -> None:
        go.wait(LONG)
        gone.set()

    with pytest.raises(Unavailable):
        deadline.call(work, seconds=AT_ONCE)
    go.set()

    assert gone.wait(LONG)


def test_a_call_that_finds_no_free_thread_certainly_did_nothing(
    deadline: Deadline, hang: Callable[[], None]
) -> None:
    ran: list[int] = []
    for _ in range(2):
        with pytest.raises(Unavailable):
            deadline.call(hang, seconds=AT_ONCE)

    with pytest.raises(Unavailable) as raised:
        deadline.call(lambda: ran.append(1), seconds=AT_ONCE)

    assert (raised.value.reason, raised.value.written, ran) == ("timeout", False, [])


def test_a_call_waits_for_a_thread_to_be_free(deadline: Deadline) -> None:
    def ask(number: int) -> int:
        return deadline.call(lambda: number)

    with ThreadPoolExecutor(8) as callers:
        answers = list(callers.map(ask, range(500)))

    assert answers == list(range(500))


def test_threads_are_used_again_and_never_more_than_allowed() -> None:
    before = threads()
    deadline = Deadline(LONG, threads=2)
    used = {deadline.call(threading.current_thread) for _ in range(50)}
    both = threading.Barrier(2, timeout=LONG)
    with ThreadPoolExecutor(8) as callers:
        calls = [callers.submit(deadline.call, both.wait) for _ in range(8)]
    places = [call.result(LONG) for call in calls]

    assert len(used) == 1
    assert sorted(places) == [0] * 4 + [1] * 4
    assert len(threads() - before) == 2
    deadline.close()


def test_nothing_of_a_call_is_kept_after_it(deadline: Deadline) -> None:
    class Answer:
        pass

    answer = deadline.call(Answer)
    seen = weakref.ref(answer)
    deadline.call(lambda: None)
    del answer
    gc.collect()

    assert seen() is None


def test_what_nobody_waits_for_runs_when_a_thread_is_free(deadline: Deadline) -> None:
    ran = threading.Event()

    assert deadline.start(ran.set)
    assert ran.wait(LONG)


def test_what_nobody_waits_for_is_left_out_when_all_threads_are_busy(
    deadline: Deadline, hang: Callable[[], None]
) -> None:
    for _ in range(2):
        assert deadline.start(hang)

    assert not deadline.start(hang)


def test_what_fails_alone_does_not_end_its_thread(deadline: Deadline) -> None:
    def work() -> None:
        raise NotFound("memory", "mem_1")

    for _ in range(5):
        deadline.call(lambda: None)
        deadline.start(work)

    assert deadline.call(lambda: 7) == 7


def test_a_closed_deadline_begins_nothing(deadline: Deadline) -> None:
    deadline.call(lambda: None)
    deadline.close()
    deadline.close()

    with pytest.raises(Unavailable) as raised:
        deadline.call(lambda: 7)
    assert (raised.value.reason, raised.value.written) == ("closed", False)
    assert not deadline.start(lambda: None)


def test_closing_answers_those_who_wait_and_lets_the_threads_end(
    hang: Callable[[], None],
) -> None:
    before = threads()
    deadline = Deadline(LONG, threads=1)
    deadline.start(hang)
    with ThreadPoolExecutor(1) as callers:
        waiting = callers.submit(deadline.call, lambda: 7, seconds=LONG)
        while deadline.waiting == 0:
            threading.Event().wait(0.001)
        deadline.close()

        with pytest.raises(Unavailable, match="stopping"):
            waiting.result(LONG)
    assert len(threads() - before) == 1


def test_the_threads_of_a_closed_deadline_end_when_they_have_nothing_left_to_do() -> None:
    before, over = threads(), threading.Event()

    def work() -> None:
        over.wait(LONG)

    deadline = Deadline(LONG, threads=2)
    deadline.start(work)
    deadline.call(lambda: None)
    deadline.close()
    over.set()
    for thread in threads() - before:
        thread.join(LONG)

    assert threads() <= before


def test_a_call_that_hangs_does_not_hold_up_the_end_of_the_process() -> None:
    program = """
import threading
from holdfast.doors.mount.storage.deadline import Deadline
from holdfast.ground.errors import Unavailable
try:
    Deadline(0.01).call(threading.Event().wait)
except Unavailable:
    print("given up")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=LONG, check=True
    )

    assert done.stdout == "given up\n"
