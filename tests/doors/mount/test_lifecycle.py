"""What happens is heard in order, and no signal is lost, whatever the waiting thread is about."""

import os
import signal
import subprocess
import sys
from threading import Thread

import pytest

from holdfast.doors.mount.process.lifecycle import EventQueue

COUNT = 2_000
SIGNALLED = f"""
import os, signal, threading
from holdfast.doors.mount.process.lifecycle import EventQueue

happenings = EventQueue()
with happenings.signalled([signal.SIGTERM], lambda: "signal"):
    for _ in range({COUNT}):
        threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGTERM)).start()
        assert happenings.get(within=30) == "signal"
"""


def test_what_happened_comes_in_order() -> None:
    happenings: EventQueue[int] = EventQueue()
    for number in range(3):
        happenings.put(number)

    assert [happenings.get() for _ in range(3)] == [0, 1, 2]


def test_who_waits_is_woken() -> None:
    happenings: EventQueue[str] = EventQueue()
    later = Thread(target=lambda: happenings.put("here"))
    later.start()

    assert happenings.get(within=30) == "here"
    later.join()


def test_waiting_ends_when_its_time_is_over() -> None:
    with pytest.raises(TimeoutError):
        EventQueue[str]().get(within=0.01)


def test_more_may_happen_than_anybody_takes() -> None:
    happenings: EventQueue[int] = EventQueue()
    many = 100_000
    for number in range(many):
        happenings.put(number)

    assert [happenings.get() for _ in range(many)] == list(range(many))


def test_no_signal_is_lost() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SIGNALLED], check=False, capture_output=True, text=True, timeout=120
    )

    assert ran.returncode == 0, ran.stderr


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    happenings: EventQueue[str] = EventQueue()

    with happenings.signalled([signal.SIGUSR1], lambda: "signal"):
        os.kill(os.getpid(), signal.SIGUSR1)
        assert happenings.get(within=30) == "signal"

    assert signal.getsignal(signal.SIGUSR1) == before


ENDING = """
import os, signal
from holdfast.doors.mount.process.lifecycle import EventQueue

happenings = EventQueue()
with happenings.signalled([signal.SIGTERM], lambda: "signal", ending=True):
    pass
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_a_process_that_ends_anyway_is_not_killed() -> None:
    ran = subprocess.run([sys.executable, "-c", ENDING], check=False, timeout=120)

    assert ran.returncode == 0


IGNORING = """
import os, signal
from holdfast.doors.mount.process.lifecycle import EventQueue

signal.signal(signal.SIGHUP, signal.SIG_IGN)
happenings = EventQueue()
with happenings.signalled([signal.SIGHUP, signal.SIGTERM], lambda: "signal"):
    os.kill(os.getpid(), signal.SIGHUP)
    happenings.put("put")
    assert happenings.get() == "put"
"""


def test_a_process_below_nohup_outlives_its_terminal() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", IGNORING], check=False, capture_output=True, text=True, timeout=120
    )

    assert ran.returncode == 0, ran.stderr
