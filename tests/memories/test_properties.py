"""What holds of any path, any content and any cursor, as hypothesis chooses them."""

from collections.abc import Iterator

import pytest
from contracts.stores import invalid, written
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.ground.errors import PathTaken
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Memory
from holdfast.testing.models import excludes, is_content, is_path
from holdfast.testing.serving import new_workspace
from holdfast.testing.strategies import nasty_paths, plain_paths

shared = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def shared_hf() -> Iterator[Holdfast]:
    with holdfast.open(":memory:") as hf:
        yield hf


@pytest.fixture
def hf(shared_hf: Holdfast) -> Holdfast:
    return shared_hf.acting(workspace=new_workspace())


@shared
@given(path=nasty_paths() | st.text(st.characters(), max_size=4).map("/".__add__))
def test_a_text_is_a_path_exactly_when_the_rules_say_so(hf: Holdfast, path: str) -> None:
    store = hf.memory_stores.create(name="Notes")

    if is_path(path):
        (memory,) = written(hf, store, path)
        assert memory.path == path
    else:
        with invalid("path"):
            written(hf, store, path)


@shared
@given(content=st.text(st.characters()))
@example(content="\ud800")
def test_any_text_without_surrogates_comes_back_as_it_was(hf: Holdfast, content: str) -> None:
    store = hf.memory_stores.create(name="Notes")

    if is_content(content):
        (memory,) = written(hf, store, "/a", content=content)
        kept = hf.memory_stores.memories.retrieve(memory.id, memory_store_id=store.id)
        assert kept.content == content
    else:
        with invalid("content"):
            written(hf, store, "/a", content=content)


@shared
@given(paths=st.lists(plain_paths(), max_size=12))
def test_no_two_live_paths_exclude_each_other(hf: Holdfast, paths: list[str]) -> None:
    store = hf.memory_stores.create(name="Notes")
    kept: list[str] = []

    for path in paths:
        blockers = [each for each in kept if excludes(each, path)]
        if blockers:
            with pytest.raises(PathTaken) as refusal:
                written(hf, store, path)
            assert refusal.value.conflicting_path == min(blockers, key=str.encode)
        else:
            written(hf, store, path)
            kept.append(path)

    shown = [each.path for each in hf.memory_stores.memories.list(store.id)]
    assert shown == sorted(kept, key=str.encode)


@shared
@given(
    kept=st.sets(plain_paths().map(lambda path: "/k" + path), max_size=8),
    churn=st.lists(st.tuples(st.booleans(), st.sampled_from("abcxyz")), max_size=8),
    limit=st.integers(min_value=1, max_value=3),
)
def test_what_stays_is_listed_once_whatever_others_write(
    hf: Holdfast, kept: set[str], churn: list[tuple[bool, str]], limit: int
) -> None:
    store = hf.memory_stores.create(name="Notes")
    stays = [path for path in kept if not any(excludes(path, other) for other in kept - {path})]
    written(hf, store, *stays)
    page = hf.memory_stores.memories.list(store.id, limit=limit)
    seen = list(page)
    acts = iter(churn)

    while page.next_page is not None:
        for adds, name in [next(acts, (False, "a"))]:
            there = hf.memory_stores.memories.at(store.id, f"/{name}")
            if adds and there is None:
                written(hf, store, f"/{name}")
            elif there is not None:
                hf.memory_stores.memories.delete(there.id, memory_store_id=store.id)
        page = hf.memory_stores.memories.list(store.id, limit=limit, page=page.next_page)
        seen += page

    shown = [each.path for each in seen if isinstance(each, Memory)]
    assert len(shown) == len(set(shown))
    assert [path for path in shown if path.startswith("/k/")] == sorted(stays, key=str.encode)


@shared
@given(data=st.data())
def test_no_altered_cursor_is_taken(hf: Holdfast, data: st.DataObject) -> None:
    store = hf.memory_stores.create(name="Notes")
    written(hf, store, "/a", "/b")
    cursor = hf.memory_stores.memories.list(store.id, limit=1).next_page
    assert cursor is not None
    at = data.draw(st.integers(min_value=0, max_value=len(cursor) - 1))
    put = data.draw(st.text(max_size=3))
    cut = data.draw(st.integers(min_value=0, max_value=2))
    altered = cursor[:at] + put + cursor[at + cut :]

    if altered == cursor:
        return
    with invalid("page"):
        hf.memory_stores.memories.list(store.id, page=altered)


@shared
@given(page=st.one_of(st.text(), st.binary().map(lambda raw: "page_" + raw.hex())))
def test_no_made_up_cursor_is_taken(hf: Holdfast, page: str) -> None:
    store = hf.memory_stores.create(name="Notes")

    with invalid("page"):
        hf.memory_stores.memories.list(store.id, page=page)
    with invalid("page"):
        hf.memory_stores.memory_versions.list(store.id, page=page)
    with invalid("page"):
        hf.memory_stores.list(page=page)
