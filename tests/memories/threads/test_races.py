"""Many at once: whoever writes, deletes and forgets, counts and checksums fit in the end."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import holdfast
from holdfast.ground.errors import Conflict, NotFound
from holdfast.library.holdfast import Holdfast
from holdfast.testing.contracts.history import began, ended, made, said


@pytest.fixture
def hf(target: str, request: pytest.FixtureRequest) -> Iterator[Holdfast]:
    own = request.getfixturevalue("fresh_postgres_url") if "postgresql" in target else target
    with holdfast.open(own) as hf:
        yield hf


def together(*acts: Callable[[int], object], times: int = 40) -> None:
    """Do each of *acts* that often, all of them at the same time."""

    def repeat(act: Callable[[int], object]) -> None:
        for number in range(times):
            act(number)

    with ThreadPoolExecutor(len(acts)) as threads:
        for done in [threads.submit(repeat, act) for act in acts]:
            done.result()


def test_an_agent_forgotten_while_it_writes_leaves_counts_that_fit(hf: Holdfast) -> None:
    def write(agent: str) -> Callable[[int], object]:
        return lambda number: hf.threads.append(
            f"thread_{number % 3}", [made(number, agent=agent, run_id=f"run_{agent}")]
        )

    together(write("writer"), write("editor"), lambda _: hf.forget_agent("writer"), times=25)
    hf.forget_agent("writer")

    assert hf.verify().findings == ()
    left = [each for thread in hf.threads.list() for each in hf.threads.results(thread.id)]
    assert {each.agent for each in left} == {"editor"}
    assert len(left) == 25


def test_a_thread_deleted_while_it_is_written_to_is_whole_or_gone(hf: Holdfast) -> None:
    def read(_: int) -> None:
        try:
            turns = hf.threads.turns("t")
        except NotFound:
            return
        assert all(turn.result or turn.message for turn in turns)

    together(
        lambda number: hf.threads.append("t", [made(number), said()]),
        lambda number: hf.runs.put(began(f"run_{number}", thread_id="t")),
        lambda _: hf.threads.delete("t"),
        read,
    )

    assert hf.verify().findings == ()
    hf.threads.delete("t")
    assert hf.threads.list().data == []
    assert hf.runs.list().data == []


def test_one_end_of_a_run_is_kept_of_many(hf: Holdfast) -> None:
    kept: list[int] = []

    def end(calls: int) -> Callable[[int], None]:
        def put(number: int) -> None:
            try:
                hf.runs.put(ended(f"run_{number}", calls=calls))
            except Conflict:
                return
            kept.append(number)

        return put

    together(*(end(calls) for calls in range(4)), times=20)

    assert sorted(kept) == list(range(20))
