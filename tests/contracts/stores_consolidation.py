"""Contract of consolidating a store: files merged, links followed, undone, or a new store."""

import json
from collections.abc import Callable
from datetime import timedelta
from random import Random

import pytest

from contracts.longterm_items import bad
from contracts.stores import GivenAStore
from contracts.stores_history import shown
from holdfast.ground.errors import Conflict, NotFound, StoreArchived
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.background.extractor import ExtractionRequest
from holdfast.memories.longterm.consolidation.records import Consolidation, ProposedChange
from holdfast.memories.stores.records import Memory, Store
from holdfast.testing.fakes import FrozenClock

HOUR = timedelta(hours=1)
Answer = Callable[[ExtractionRequest], str]


def proposed(hf: Holdfast, store: Store, **given: object) -> Consolidation:
    """Return a job on *store* that has ended."""
    job = hf.consolidations.create(store=store.id, **given)  # pyright: ignore[reportArgumentType] - as given
    return hf.consolidations.wait(job.id)


def texts(hf: Holdfast, store: Store | str) -> dict[str, str | None]:
    """Return the contents of the store by path."""
    found = hf.memory_stores.memories.list(
        store if isinstance(store, str) else store.id, limit=20, view="full"
    ).all()
    return {each.path: each.content for each in found if isinstance(each, Memory)}


def fill(hf: Holdfast, clock: FrozenClock, store: Store, **files: str) -> None:
    """Write *files* by name, an hour apart."""
    for name, content in files.items():
        path = f"/{name.replace('__', '/')}.md"
        hf.memory_stores.memories.create(store.id, path=path, content=content)
        clock.tick(3_600)


def answers(**lists: list[dict[str, object]]) -> Answer:
    """Return a model that answers *lists*."""
    return lambda _request: json.dumps(lists)


def changes(job: Consolidation, op: str) -> list[ProposedChange]:
    """Return the changes of *job* with that operation."""
    return [each for each in job.proposal.changes if each.op == op]


class StoreConsolidationContract(GivenAStore):
    """Subclass it, and give it `hf`, `elsewhere` and `clock` fixtures."""

    @pytest.mark.surface("http", "jobs, proposals and decisions cross the wire")
    @pytest.mark.surface("file", "jobs and undoing are stored")
    def test_equal_files_become_one_and_links_follow(
        self, hf: Holdfast, clock: FrozenClock, store: Store
    ) -> None:
        fill(
            hf,
            clock,
            store,
            notes__deploy="Deploy on fly.io",
            copy="Deploy on fly.io",
            index="See [it](copy.md#how), [[copy]] and [abs](/copy.md).",
        )
        before = texts(hf, store)
        job = proposed(hf, store)
        (change,) = job.proposal.changes

        assert (job.status, job.store, job.user, job.namespace) == (
            "completed",
            store.id,
            None,
            None,
        )
        assert change.op == "merge"
        assert "+++ /dev/null" in change.diff
        assert "+See [it](notes/deploy.md#how)" in change.diff
        assert texts(hf, store) == before
        clock.tick(1)
        applied = hf.consolidations.accept(job.id)

        assert (applied.changed, applied.store_id) == ((change.id,), store.id)
        after = {
            "/index.md": "See [it](notes/deploy.md#how), [[deploy]] and [abs](/notes/deploy.md).",
            "/notes/deploy.md": "Deploy on fly.io",
        }
        assert texts(hf, store) == after
        shown_then = hf.consolidations.retrieve(job.id).proposal
        assert (shown_then.status, shown_then.changes[0].diff) == ("accepted", change.diff)
        clock.tick(3_600)
        undone = hf.consolidations.undo(job.id)

        assert (undone.changed, undone.kept) == ((change.id,), ())
        assert texts(hf, store) == before

    def test_dead_links_are_listed_for_a_person(
        self, hf: Holdfast, clock: FrozenClock, store: Store
    ) -> None:
        fill(hf, clock, store, a="[x](/gone.md) [[b]] [[Nope]] [web](https://x.test/y.md)", b="B")
        job = proposed(hf, store)
        (change,) = job.proposal.changes

        assert (change.op, change.reason) == ("conflict", "Links to nothing: /gone.md, Nope.")
        assert [each.place for each in change.texts] == ["/a.md"]
        with bad("only"):
            hf.consolidations.accept(job.id, only=[change.id])

    @pytest.mark.surface("http", "the clone is named in the answer")
    def test_a_new_store_is_made_and_the_other_stays_as_it_is(
        self, hf: Holdfast, clock: FrozenClock, store: Store
    ) -> None:
        fill(hf, clock, store, a="Same", b="Same", c="Other [b](b.md)")
        before = shown(hf, store)
        job = proposed(hf, store, into="new_store")
        applied = hf.consolidations.accept(job.id)

        assert applied.store_id not in (None, store.id)
        assert shown(hf, store) == before
        assert applied.store_id is not None
        assert texts(hf, applied.store_id) == {"/a.md": "Same", "/c.md": "Other [b](a.md)"}
        copy = hf.memory_stores.retrieve(applied.store_id)
        assert (copy.name, copy.metadata) == (f"{store.name} (consolidated)", store.metadata)
        with pytest.raises(Conflict):
            hf.consolidations.undo(job.id)

    def test_a_change_of_a_file_that_moved_on_is_refused_alone(
        self, hf: Holdfast, clock: FrozenClock, store: Store
    ) -> None:
        fill(hf, clock, store, a="Same", b="Same", c="Equal", d="Equal")
        job = proposed(hf, store)
        first = shown(hf, store)["/a.md"]
        hf.memory_stores.memories.update(first.id, memory_store_id=store.id, content="Not the same")
        clock.tick(3_600)

        done = hf.consolidations.accept(job.id)

        assert (len(done.changed), len(done.stale)) == (1, 1)
        assert texts(hf, store) == {"/a.md": "Not the same", "/b.md": "Same", "/c.md": "Equal"}

    def test_undoing_leaves_what_was_changed_since(
        self, hf: Holdfast, clock: FrozenClock, store: Store
    ) -> None:
        fill(hf, clock, store, a="Same", b="Same", c="See [[b]]")
        job = proposed(hf, store)
        hf.consolidations.accept(job.id)
        link = shown(hf, store)["/c.md"]
        hf.memory_stores.memories.update(link.id, memory_store_id=store.id, content="See nothing")
        clock.tick(3_600)

        undone = hf.consolidations.undo(job.id)

        assert undone.kept == (link.id,)
        assert texts(hf, store) == {"/a.md": "Same", "/b.md": "Same", "/c.md": "See nothing"}

    @pytest.mark.embedded("a function is no model of a server")
    def test_a_model_edits_creates_moves_and_merges_and_all_is_undone(
        self, hf: Holdfast, clock: FrozenClock, store: Store
    ) -> None:
        fill(hf, clock, store, a="Alpha", b="Beta", c="Gamma [a](a.md)", d="Delta", e="[d](d.md)")
        before = texts(hf, store)
        model = answers(
            edit=[
                {"file": "f1", "text": "Alpha, better", "reason": "Says more."},
                {"file": "f9", "text": "No such file"},
            ],
            merge=[{"files": ["f2", "f3"], "text": "Beta and Gamma [a](a.md)"}],
            create=[{"path": "/index.md", "text": "- [a](a.md)"}, {"path": "bad", "text": "x"}],
            move=[{"file": "f4", "path": "/deep/d.md"}],
        )
        job = proposed(hf, store, model=model)

        assert [each.op for each in job.proposal.changes] == ["merge", "edit", "move", "create"]
        assert "-Alpha\n+Alpha, better" in changes(job, "edit")[0].diff
        assert "rename to /deep/d.md" in changes(job, "move")[0].diff
        again = hf.consolidations.replay(job.id)
        assert [(each.op, each.texts) for each in again.changes] == [
            (each.op, each.texts) for each in job.proposal.changes
        ]
        assert hf.consolidations.accept(job.id).stale == ()
        assert texts(hf, store) == {
            "/a.md": "Alpha, better",
            "/b.md": "Beta and Gamma [a](a.md)",
            "/deep/d.md": "Delta",
            "/e.md": "[d](deep/d.md)",
            "/index.md": "- [a](a.md)",
        }
        clock.tick(3_600)
        assert hf.consolidations.undo(job.id).kept == ()
        assert texts(hf, store) == before

    def test_what_was_redacted_is_in_no_proposal(
        self, hf: Holdfast, clock: FrozenClock, store: Store
    ) -> None:
        fill(hf, clock, store, a="Same secret", b="Same secret")
        job = proposed(hf, store)
        old = shown(hf, store)["/a.md"]
        hf.memory_stores.memories.update(old.id, memory_store_id=store.id, content="Public")
        hf.memory_stores.memory_versions.redact(old.memory_version_id, memory_store_id=store.id)

        (change,) = hf.consolidations.retrieve(job.id).proposal.changes

        assert (change.state, change.texts, change.reason) == ("stale", (), "")

    def test_jobs_go_with_their_store_and_are_listed_by_it(
        self, hf: Holdfast, elsewhere: Holdfast, clock: FrozenClock, store: Store
    ) -> None:
        job = proposed(hf, store)
        clock.tick(1)
        hf.consolidations.wait(hf.consolidations.create("ada").id)

        assert [each.id for each in hf.consolidations.list(store=store.id).data] == [job.id]
        assert len(hf.consolidations.list().data) == 2
        assert [each.user for each in hf.consolidations.list("ada").data] == ["ada"]
        with pytest.raises(NotFound):
            elsewhere.consolidations.retrieve(job.id)
        with pytest.raises(NotFound):
            elsewhere.consolidations.create(store=store.id)
        hf.memory_stores.delete(store.id)
        with pytest.raises(NotFound):
            hf.consolidations.retrieve(job.id)

    def test_an_archived_store_is_consolidated_into_a_new_one_alone(
        self, hf: Holdfast, clock: FrozenClock, store: Store
    ) -> None:
        fill(hf, clock, store, a="Same", b="Same")
        hf.memory_stores.archive(store.id)
        clock.tick(3_600)
        with pytest.raises(StoreArchived):
            hf.consolidations.accept(proposed(hf, store).id)
        made = hf.consolidations.accept(proposed(hf, store, into="new_store").id).store_id
        assert made is not None
        assert texts(hf, made) == {"/a.md": "Same"}

    def test_one_memory_is_named_and_a_new_store_is_of_a_store(
        self, hf: Holdfast, store: Store
    ) -> None:
        with bad("user"):
            hf.consolidations.create()
        with bad("user"):
            hf.consolidations.create("ada", store=store.id)
        with bad("user"):
            hf.consolidations.list("ada", store=store.id)
        with bad("into"):
            hf.consolidations.create("ada", into="new_store")

    @pytest.mark.parametrize("seed", range(4))
    def test_random_writes_between_jobs_and_decisions_lose_nothing(
        self, hf: Holdfast, clock: FrozenClock, store: Store, seed: int
    ) -> None:
        random = Random(seed)
        for _ in range(6):
            for _ in range(4):
                _write(random, hf, store)
                clock.tick(60)
            before = texts(hf, store)
            job = proposed(hf, store)
            assert texts(hf, store) == before
            clock.tick(60)
            if random.random() < 0.5:
                _write(random, hf, store)
                clock.tick(60)
            here = texts(hf, store)
            done = hf.consolidations.accept(job.id)
            # Of equal texts one stays; no other text is gone.
            assert set(texts(hf, store).values()) == set(here.values())
            clock.tick(60)
            if done.changed and random.random() < 0.7:
                assert hf.consolidations.undo(done.id).kept == ()
                assert texts(hf, store) == here
                clock.tick(60)


def _write(random: Random, hf: Holdfast, store: Store) -> None:
    """Create, change, move or delete a file with one of three texts."""
    memories = hf.memory_stores.memories
    path, text = random.choice(("/a", "/b", "/c/d", "/e")), random.choice(("one", "two", "three"))
    file = memories.at(store.id, path)
    if file is None:
        memories.create(store.id, path=path, content=text)
    elif random.random() < 0.2:
        memories.delete(file.id, memory_store_id=store.id)
    else:
        memories.update(file.id, memory_store_id=store.id, content=text)
