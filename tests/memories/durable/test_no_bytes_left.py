"""Bytes of what was forgotten: in no file of the database, and on PostgreSQL in no row."""

from pathlib import Path

import pytest

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.memory import DurableMemory
from holdfast.testing.fakes import FrozenClock

KEY, CONTENT, TAG = "Kq9fForgottenKey", "Zw3xForgottenContent" * 300, "Tb7nForgottenTag"
MARKS = (b"Kq9f", b"Zw3x", b"Tb7n")


@pytest.fixture
def path(sqlite_file: Path) -> Path:
    return sqlite_file


@pytest.fixture
def hf(path: Path, clock: FrozenClock) -> Holdfast:
    return holdfast.open(path, clock=clock)


def left(path: Path) -> set[tuple[str, bytes]]:
    """Return which marks are in which file of the database, while it is open."""
    return {
        (file.name, mark)
        for file in path.parent.iterdir()
        for mark in MARKS
        if file.is_file() and mark in file.read_bytes()
    }


def set_marked(durable: DurableMemory, category: str = "core", key: str | None = None) -> None:
    """Store an entry whose key, content and tag are marked, as one that may be repeated."""
    durable.set(KEY, CONTENT, category=category, tags=(TAG,), idempotency_key=key)


@pytest.mark.parametrize("category", ["core", "daily", "note", "workspace"])
def test_of_an_entry_forgotten(hf: Holdfast, path: Path, category: str) -> None:
    with hf:
        durable = hf.durable("agent_7")
        set_marked(durable, category)
        there = left(path)
        durable.forget(KEY)

        assert there
        assert left(path) == set()


def test_of_all_it_was_before(hf: Holdfast, path: Path) -> None:
    with hf:
        durable = hf.durable("agent_7")
        for number in range(5):
            durable.set(KEY, f"{CONTENT}{number}", category="core", tags=(TAG,))
        set_marked(durable, "workspace")
        durable.forget(KEY)

        assert left(path) == set()


def test_of_one_whose_file_was_given_another_key_by_hand(
    hf: Holdfast, path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("files")
    with hf:
        durable = hf.durable("agent_7")
        durable.set(KEY.lower(), CONTENT, category="core")
        durable.export_markdown(folder)
        (file,) = (folder / "core").iterdir()
        file.write_text(file.read_text().replace(KEY.lower(), "renamed").replace(CONTENT, "x"))
        durable.import_markdown(folder)
        durable.forget(KEY.lower())

        assert durable.get("renamed") is not None
        assert KEY.lower().encode() in file.name.encode()
        assert not [
            each.name
            for each in path.parent.iterdir()
            if each.is_file() and KEY.lower().encode() in each.read_bytes()
        ]


def test_of_one_that_was_imported(
    hf: Holdfast, path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("files")
    with hf:
        durable = hf.durable("agent_7")
        set_marked(durable)
        durable.export_markdown(folder)
        durable.forget(KEY)
        durable.import_markdown(folder)
        there = left(path)
        durable.forget(KEY)

        assert there
        assert left(path) == set()
        marks = KEY.lower().encode()
        assert not [
            each.name
            for each in path.parent.iterdir()
            if each.is_file() and marks in each.read_bytes().lower()
        ]


def test_of_one_written_to_be_repeated(hf: Holdfast, path: Path) -> None:
    with hf:
        durable = hf.durable("agent_7")
        set_marked(durable, key="once")
        durable.forget(KEY)
        set_marked(durable, key="once")

        assert left(path) == set()
        assert durable.get(KEY) is None


def test_of_one_that_others_were_evicted_for(hf: Holdfast, path: Path) -> None:
    with hf:
        durable = hf.durable("agent_7")
        durable.set_limits(cap=1)
        durable.set("cold", "x", category="note")
        set_marked(durable, "note", key="once")
        durable.forget(KEY)

        assert left(path) == set()


def test_of_one_that_another_write_evicted_and_answered_with(hf: Holdfast, path: Path) -> None:
    with hf:
        durable = hf.durable("agent_7")
        durable.set_limits(cap=1)
        set_marked(durable, "note")
        durable.set("warm", "x", category="note", idempotency_key="once")
        set_marked(durable, "note")
        durable.forget(KEY)

        assert left(path) == set()


def test_of_one_in_a_batch(hf: Holdfast, path: Path) -> None:
    with hf:
        durable = hf.durable("agent_7")
        durable.set_many(
            [
                {"key": KEY, "content": CONTENT, "category": "core", "tags": (TAG,)},
                {"key": "b", "content": "x", "category": "core"},
            ]
        )
        durable.forget(KEY)

        assert left(path) == set()


def test_of_a_run_that_ended(hf: Holdfast, path: Path) -> None:
    with hf:
        with hf.durable("agent_7").run() as run:
            run.set(KEY, CONTENT, category="conversation", tags=(TAG,))
            run.forget(KEY)

        assert left(path) == set()


def test_of_a_run_that_is_still_open(hf: Holdfast, path: Path) -> None:
    with hf:
        durable = hf.durable("agent_7")
        set_marked(durable)
        with durable.run():
            durable.forget(KEY)

            assert left(path) == set()


def test_of_a_change_redacted(hf: Holdfast, path: Path) -> None:
    with hf:
        durable = hf.durable("agent_7")
        stored = durable.set("a", CONTENT, category="core")
        durable.set("a", "harmless", category="core")
        durable.redact(stored.seq)

        assert left(path) == set()


@pytest.mark.parametrize("everywhere", [True, False])
def test_of_what_expired_and_was_swept(
    hf: Holdfast, path: Path, clock: FrozenClock, *, everywhere: bool
) -> None:
    with hf:
        durable = hf.durable("agent_7")
        durable.set("plan", "Zw3xFirst", category="core")
        durable.set("plan", CONTENT, category="daily", tags=(TAG,), idempotency_key="once")
        there = left(path)
        clock.tick(80 * 3600)
        (gone,) = (hf if everywhere else durable).sweep().expired

        assert there
        assert gone.key == "plan"
        assert left(path) == set()


def test_of_what_was_evicted_and_would_have_expired(
    hf: Holdfast, path: Path, clock: FrozenClock
) -> None:
    with hf:
        durable = hf.durable("agent_7")
        durable.set_limits(cap=1)
        durable.set("plan", CONTENT, category="daily", tags=(TAG,))
        durable.set("other", "x", category="core")
        there = left(path)
        clock.tick(80 * 3600)
        hf.sweep()

        assert there
        assert left(path) == set()


def test_of_what_expired_and_went_with_a_write(
    hf: Holdfast, path: Path, clock: FrozenClock
) -> None:
    with hf:
        durable = hf.durable("agent_7")
        durable.set("plan", CONTENT, category="daily", tags=(TAG,))
        clock.tick(80 * 3600)
        durable.set("other", "x", category="core")
        # The writer empties the log between two groups.
        hf.engine.write(lambda _: None)

        assert left(path) == set()


def test_of_an_agent_forgotten(hf: Holdfast, path: Path) -> None:
    with hf:
        durable = hf.durable("Kq9fAgent")
        set_marked(durable, key="once")
        durable.set("shared", "x", category="workspace")
        with durable.run("Tb7nRun") as run:
            run.set("other", CONTENT, category="core")
        hf.forget_agent("Kq9fAgent")

        assert left(path) == set()
