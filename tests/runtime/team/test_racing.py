"""Board and bus under many threads: nothing is had twice, and nothing is lost."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

from teams import task_on

from holdfast.errors import ClaimRefused, TaskSettled
from holdfast.runtime.events import TeamUpdate
from holdfast.runtime.team.board import TaskBoard
from holdfast.runtime.team.bus import MessageBus

T = TypeVar("T")

THREADS = 8


def race(work: Callable[[int], T], threads: int = THREADS) -> list[T]:
    """Let *work* begin in all threads at one moment; return what each came to."""
    barrier = Barrier(threads)

    def begin(number: int) -> T:
        barrier.wait(timeout=60)
        return work(number)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(begin, range(threads)))


def test_a_task_is_had_by_one_alone() -> None:
    board = TaskBoard()
    tasks = [board.create(str(number)) for number in range(50)]

    def claim_all(number: int) -> list[str]:
        won: list[str] = []
        for task in tasks:
            try:
                won.append(board.claim(task.id, f"agent {number}").id)
            except ClaimRefused:
                continue
        return won

    won = [id for ids in race(claim_all) for id in ids]

    assert sorted(won) == sorted(task.id for task in tasks)


def test_a_parent_settles_once_whichever_part_is_last() -> None:
    board = TaskBoard()
    told: list[TeamUpdate] = []
    board.on_event(told.append)
    parents = [board.create(str(number)) for number in range(30)]
    parts = {
        task.id: board.decompose(task.id, "ada", [{"title": str(n)} for n in range(THREADS)])
        for task in parents
    }

    def settle(number: int) -> None:
        for task in parents:
            part = parts[task.id][number]
            board.claim(part.id, "ada")
            if number == 0:
                board.fail(part.id, "ada", "no")
            else:
                board.complete(part.id, "ada", number)

    race(settle)

    settled = Counter(event.task_id for event in told if event.event == "task_failed")
    assert {task_on(board, task.id).status for task in parents} == {"failed"}
    assert all(settled[task.id] == 1 for task in parents)


def test_a_settled_task_is_settled_once() -> None:
    board = TaskBoard()
    tasks = [board.create(str(number)) for number in range(50)]
    for task in tasks:
        board.claim(task.id, "ada")

    def settle(number: int) -> int:
        wins = 0
        for task in tasks:
            try:
                if number % 2:
                    board.complete(task.id, "ada", number)
                else:
                    board.fail(task.id, "ada", str(number))
                wins += 1
            except TaskSettled:
                pass
        return wins

    assert sum(race(settle)) == len(tasks)


def test_changes_are_told_in_the_order_they_were_made() -> None:
    board = TaskBoard()
    told: list[TeamUpdate] = []
    board.on_event(told.append)

    race(lambda number: [board.create(f"{number}.{each}") for each in range(50)])

    assert [event.seq for event in told] == list(range(1, THREADS * 50 + 1))
    assert [event.task_id for event in told] == [task.id for task in board.list()]


def test_no_message_is_lost_or_had_twice_while_others_write() -> None:
    bus = MessageBus()
    bus.register("ada")
    got: list[str] = []

    def work(number: int) -> None:
        for each in range(100):
            if number == 0:
                got.extend(message.body for message in bus.receive("ada"))
            else:
                bus.send(f"agent {number}", "ada", "Seals", f"{number}.{each}")

    race(work)
    got.extend(message.body for message in bus.receive("ada"))

    assert Counter(got) == Counter(f"{n}.{each}" for n in range(1, THREADS) for each in range(100))
