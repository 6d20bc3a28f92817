"""Jobs on a store with a model: within a budget, after a crash, by one of two workers."""

import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fork_server import forked_script

import holdfast
from holdfast import Budget
from holdfast.library.erasure.places import upkeep_context
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.background.extractor import ExtractionRequest
from holdfast.memories.longterm.consolidation.jobs import ConsolidationWork
from holdfast.memories.stores.consolidation.decisions import StoreMemory
from holdfast.testing.fakes import FrozenClock

FILES, CLUSTERS = 30, 3
SCRIPT = Path(__file__).parent / "longterm" / "consolidator.py"


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def hf(tmp_path: Path, clock: FrozenClock) -> Iterator[Holdfast]:
    with holdfast.open(tmp_path / "h.db", clock=clock) as hf:
        yield hf


@pytest.fixture
def store(hf: Holdfast, clock: FrozenClock) -> str:
    """Give a store of files that no rule joins, for three requests."""
    store = hf.memory_stores.create(name="Notes").id
    for number in range(FILES):
        path = f"/{number:02}.md"
        hf.memory_stores.memories.create(store, path=path, content=f"Plant {number}")
        clock.tick(1)
    return store


class Model:
    """A model that edits the first file of each request, and keeps the requests."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, request: ExtractionRequest) -> str:
        self.seen.append(request.conversation.split("\n", 1)[0])
        return json.dumps({"edit": [{"file": "f1", "text": f"Edit {len(self.seen)}"}]})


def test_a_budget_of_one_token_calls_no_model_and_proposes_by_rules(
    hf: Holdfast, store: str
) -> None:
    model = Model()
    hf.memory_stores.memories.create(store, path="/same.md", content="Plant 0")
    job = hf.consolidations.create(store=store, model=model, budget=Budget(tokens=1))
    job = hf.consolidations.wait(job.id)

    assert (job.status, model.seen) == ("partial", [])
    assert [each.op for each in job.proposal.changes] == ["merge"]
    job = hf.consolidations.wait(hf.consolidations.resume(job.id, budget=Budget()).id)
    assert (job.status, len(model.seen)) == ("completed", CLUSTERS)
    assert [each.op for each in job.proposal.changes] == ["merge", "edit", "edit", "edit"]


def test_a_job_goes_on_with_the_files_as_they_were(
    hf: Holdfast, store: str, clock: FrozenClock
) -> None:
    model = Model()
    job = hf.consolidations.create(store=store, model=model, budget=Budget(calls=1))
    hf.consolidations.wait(job.id)
    clock.tick(60)
    last = hf.memory_stores.memories.at(store, "/29.md")
    assert last is not None
    hf.memory_stores.memories.delete(last.id, memory_store_id=store)
    job = hf.consolidations.wait(hf.consolidations.resume(job.id, budget=Budget()).id)

    assert (job.status, job.usage.calls) == ("completed", CLUSTERS)
    assert len(set(model.seen)) == CLUSTERS
    again = hf.consolidations.replay(job.id)
    assert [each.texts for each in again.changes] == [each.texts for each in job.proposal.changes]


def test_two_workers_do_one_job_once(hf: Holdfast, store: str, clock: FrozenClock) -> None:
    model = Model()
    job = hf.consolidations.create(store=store, model=model)
    memory = StoreMemory(upkeep_context(hf.engine, hf.workspace, clock), store)
    workers = [ConsolidationWork(memory, job.id, model) for _ in range(2)]
    threads = [threading.Thread(target=worker.tend) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    done = hf.consolidations.wait(job.id)

    assert (done.status, len(model.seen), len(set(model.seen))) == ("completed", CLUSTERS, CLUSTERS)


def test_a_cancelled_job_proposes_no_more(hf: Holdfast, store: str) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def answer(request: ExtractionRequest) -> str:
        assert request
        begun.set()
        assert go_on.wait(60)
        return "{}"

    job = hf.consolidations.create(store=store, model=answer)
    assert begun.wait(60)
    assert hf.consolidations.cancel(job.id).status == "cancelled"
    go_on.set()
    assert hf.consolidations.wait(job.id).usage.calls == 0


@pytest.mark.parametrize("killed_in", [1, 2, 3])
def test_a_killed_job_repeats_one_call_at_most(
    hf: Holdfast, store: str, tmp_path: Path, killed_in: int
) -> None:
    log, path = tmp_path / "calls", tmp_path / "h.db"
    command = forked_script(SCRIPT, str(path), str(log), str(killed_in), store)
    subprocess.run(command, check=False, timeout=120)
    first = log.read_text(encoding="utf-8").splitlines()
    (job,) = hf.consolidations.list(store=store).data
    assert job.status == "running"
    ahead, model = FrozenClock(), Model()
    ahead.tick(20 * 365 * 86_400)
    with holdfast.open(path, clock=ahead) as later:
        done = later.consolidations.wait(later.consolidations.resume(job.id, model=model).id)

    assert (done.status, done.usage.calls) == ("completed", CLUSTERS)
    assert len(first) == killed_in
    assert len(model.seen) == CLUSTERS + 1 - killed_in
    assert model.seen[0] == first[-1]
