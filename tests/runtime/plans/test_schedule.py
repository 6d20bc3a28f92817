"""Who may start, and who never will."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.runtime.plans.schedule import Schedule

DIAMOND = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, list[str]]:
    """Draw names, each of which needs some of those before it."""
    names = [f"n{i}" for i in range(draw(st.integers(1, 12)))]
    shuffled = draw(st.permutations(names))
    return {
        name: draw(st.lists(st.sampled_from(shuffled[:i]), unique=True)) if i else []
        for i, name in enumerate(shuffled)
    }


def above(graph: dict[str, list[str]], name: str) -> set[str]:
    """Return all that *name* needs, directly or not."""
    direct = set(graph[name])
    return direct.union(*(above(graph, each) for each in direct))


def test_one_starts_as_soon_as_all_it_needs_is_done() -> None:
    schedule = Schedule(DIAMOND)

    assert schedule.first() == ("a",)
    assert schedule.completed("a").ready == ("b", "c")
    assert schedule.completed("c").ready == ()
    assert schedule.completed("b").ready == ("d",)


def test_what_is_blocked_is_told_when_all_it_needs_is_settled() -> None:
    schedule = Schedule(DIAMOND)
    schedule.completed("a")

    assert schedule.failed("c").blocked == ()
    (blocked,) = schedule.completed("b").blocked

    assert (blocked.id, blocked.by) == ("d", ("c",))


def test_failures_are_named_in_the_order_of_the_plan() -> None:
    schedule = Schedule(DIAMOND)
    schedule.completed("a")
    schedule.failed("c")

    (blocked,) = schedule.failed("b").blocked

    assert blocked.by == ("b", "c")


@given(graph=graphs(), data=st.data())
def test_each_is_settled_once_and_none_starts_above_a_failure(
    graph: dict[str, list[str]], data: st.DataObject
) -> None:
    schedule = Schedule(graph)
    failing = set(data.draw(st.lists(st.sampled_from(list(graph)))))
    ready, done, failed = list(schedule.first()), set[str](), set[str]()
    blocked: dict[str, tuple[str, ...]] = {}
    while ready:
        one = ready.pop(data.draw(st.integers(0, len(ready) - 1)))
        assert set(graph[one]) <= done
        (failed if one in failing else done).add(one)
        change = (schedule.failed if one in failing else schedule.completed)(one)
        ready += change.ready
        blocked |= {each.id: each.by for each in change.blocked}

    assert sorted([*done, *failed, *blocked]) == sorted(graph)
    for name, by in blocked.items():
        assert set(by) == above(graph, name) & failed
        assert by
