"""The memory that caches share."""

import pytest
from contracts.longterm_items import kept, memory_of

import holdfast
from holdfast.ground.errors import InvalidInput
from holdfast.memories.longterm.cache_budget import ByteBudget, Tenant

ONE, OTHER, THIRD = Tenant("postings", 1), Tenant("vectors", 1), Tenant("postings", 2)


def test_who_was_used_least_lately_leaves_whatever_cache_it_is_of() -> None:
    room, left = ByteBudget(100), list[str]()
    room.take(ONE, 50, lambda: left.append("one"))
    room.take(OTHER, 50, lambda: left.append("other"))
    room.used(ONE)

    room.take(THIRD, 40, lambda: left.append("third"))

    assert left == ["other"]
    assert room.sizes() == {"postings": 90, "vectors": 0}


def test_one_that_needs_more_than_there_is_stays_alone() -> None:
    room, left = ByteBudget(100), list[str]()
    room.take(ONE, 50, lambda: left.append("one"))

    room.take(OTHER, 500, lambda: left.append("other"))

    assert left == ["one"]
    assert room.sizes() == {"postings": 0, "vectors": 500}


def test_one_that_grew_is_counted_once() -> None:
    room = ByteBudget(100)
    for size in (10, 30, 20):
        room.take(ONE, size, lambda: None)

    assert room.sizes()["postings"] == 20
    room.left(ONE)
    assert room.sizes()["postings"] == 0


def test_what_a_handle_keeps_stays_within_what_it_was_opened_with() -> None:
    with holdfast.open(":memory:", cache_bytes=1) as hf:
        for user in ("ada", "bob", "eve"):
            ltm = memory_of(hf, user)
            kept(ltm, "Prefers tabs")
            assert ltm.recall("tabs")

        room = hf.longterm_shared
        assert room.kept.at(("default", "ada", "chat", "")) is None
        assert room.kept.at(("default", "eve", "chat", "")) is not None


@pytest.mark.parametrize("given", [-1, True, 1.5, "1"])
def test_what_is_no_size_is_refused(given: int) -> None:
    with pytest.raises(InvalidInput, match="cache_bytes"):
        holdfast.open(":memory:", cache_bytes=given)
