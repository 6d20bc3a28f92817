"""What does it cost to keep what a run knows, and to go on from it?"""

import sys

# What lies beside comes last: the `http.py` here must not stand before Python's own.
sys.path.append(sys.path.pop(0))

import asyncio
from itertools import count
from time import perf_counter_ns
from typing import Any

from measure import Bench, Timing, main, paired
from planned import CAP, model, step, timed

import holdfast
from holdfast import RunMemory
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.history.versions import StateRow, VersionSave, save_version
from holdfast.runtime import (
    Context,
    EngineCheckpoints,
    ParallelTaskExecutor,
    RunStart,
    Task,
    TaskPlan,
    Worker,
    definition,
)

_numbers = count(1)


def named() -> str:
    """Return the id of a new run."""
    return f"run_{next(_numbers)}"


def one_step_tasks(tasks: int) -> TaskPlan:
    """Return a plan of *tasks* tasks of one step, which need nothing of one another."""
    made = [Task(id=f"t{n}", title="A harbour", steps=[step(f"s{n}")]) for n in range(tasks)]
    return TaskPlan(title="Harbours", tasks=made)


def recorded(bench: Bench, hf: Holdfast) -> None:
    """Compare a plan with events, lease and versions in a database with one without."""
    plans, tasks = 2, bench.size(100, 20)
    quick = model()

    async def planned(handle: Holdfast | None) -> None:
        for _ in range(plans):
            context = Context(hf=handle, run_id=named(), model=quick, max_concurrency=CAP)
            await ParallelTaskExecutor(plan=one_step_tasks(tasks), context=context).run()

    total = plans * tasks
    rounds = paired(
        lambda: timed(lambda: planned(hf), total),
        lambda: timed(lambda: planned(None), total),
        bench.rounds,
    )
    bench.cost(f"{total} one-step tasks with hf", "without", 1.6, rounds)


def fan_out(bench: Bench, hf: Holdfast) -> None:
    """Compare the items of a long list with those of a short one, kept in a database."""
    many, few = bench.size(1_000, 200), bench.size(100, 20)
    quick = model()

    async def kept(items: int) -> None:
        each = step("each", "list", mode="process", max_items=items)
        plan = TaskPlan(title="Harbour", tasks=[Task(id="t", title="A task", steps=[each])])
        inputs: dict[str, Any] = {"list": list(range(items))}
        context = Context(hf=hf, run_id=named(), model=quick, max_concurrency=CAP)
        await ParallelTaskExecutor(plan=plan, context=context, inputs=inputs).run()

    rounds = paired(
        lambda: timed(lambda: kept(many), many),
        lambda: timed(lambda: kept(few), few),
        bench.rounds,
    )
    bench.cost(f"an item of {many} with hf", f"an item of {few}", 1.5, rounds)


def entry(key: str, value: int) -> StateRow:
    """Return an entry of run memory as versions hold it."""
    memory = RunMemory()
    kept = memory.set(key, value)
    fields = (
        f'{{"key":"{key}","kind":"{kept.kind}","value":{value},"source":null,"title":null,'
        f'"description":null,"created_at":{kept.created_at},"updated_at":{kept.updated_at},'
        f'"version":{kept.version},"failed":false}}'
    )
    return StateRow("entry", key, fields.encode())


def begun(hf: Holdfast, entries: int) -> str:
    """Return the id of a run that knows *entries* entries."""
    memory = RunMemory()
    hf.runs.attach(memory, name="Counted")
    hf.runs.retrieve(memory.run_id)
    rows = tuple(entry(f"shared:k{n}", n) for n in range(entries))
    saved(hf, memory.run_id, rows)
    return memory.run_id


def saved(hf: Holdfast, run: str, rows: tuple[StateRow, ...]) -> None:
    """Store a version of the run *run* that changed *rows*."""
    save_version(hf.runs.context, VersionSave(run_id=run, fence=0, at=1, cause="step", rows=rows))


def one_change(bench: Bench, hf: Holdfast) -> None:
    """Compare a version of one changed entry in a large memory with one in a small one."""
    versions, many = bench.size(200, 20), bench.size(10_000, 1_000)
    large, small = begun(hf, many), begun(hf, 10)

    def changed(run: str) -> Timing:
        begin = perf_counter_ns()
        for n in range(versions):
            saved(hf, run, (entry("shared:k1", n),))
        return Timing(each=(perf_counter_ns() - begin) / versions)

    rounds = paired(lambda: changed(large), lambda: changed(small), bench.rounds)
    bench.cost(f"a version of one change of {many:,} entries", "of 10", 2, rounds)


def looked_into(bench: Bench, hf: Holdfast) -> None:
    """Compare what a run knew in its middle with what it knows now."""
    versions = bench.size(1_000, 100)
    run = begun(hf, 10)
    for n in range(versions - 1):
        saved(hf, run, (entry(f"shared:k{n % 50}", n),))

    def at(number: int) -> Timing:
        begin = perf_counter_ns()
        hf.runs.at(run, number)
        return Timing(each=perf_counter_ns() - begin)

    rounds = paired(lambda: at(versions // 2), lambda: at(versions), bench.rounds)
    bench.cost(f"the state in the middle of {versions:,} versions", "the newest", 3, rounds)


def taken_up(bench: Bench, hf: Holdfast) -> None:
    """Compare taking up a run of finished items with restoring the same entries."""
    items = bench.size(1_000, 200)
    quick, place, id = model(), EngineCheckpoints(hf), named()
    each = step("each", "list", mode="process", max_items=items)
    plan = TaskPlan(title="Harbour", tasks=[Task(id="t", title="A task", steps=[each])])
    inputs: dict[str, Any] = {"list": list(range(items))}
    context = Context(hf=hf, run_id=id, model=quick, max_concurrency=CAP)
    asyncio.run(ParallelTaskExecutor(plan=plan, context=context, inputs=inputs).run())
    entries = context.memory.snapshot()

    def loaded() -> Timing:
        begin = perf_counter_ns()
        found = place.load(id)
        assert found is not None
        RunMemory().restore(found.entries)
        return Timing(each=perf_counter_ns() - begin)

    def restored() -> Timing:
        begin = perf_counter_ns()
        RunMemory().restore(entries)
        return Timing(each=perf_counter_ns() - begin)

    rounds = paired(loaded, restored, bench.rounds)
    bench.cost(f"loading a run of {items:,} finished items", "restoring its entries", 2.5, rounds)


def on_dbos(bench: Bench, hf: Holdfast) -> None:
    """Compare plans of 20 steps that a worker takes from DBOS's queues with the own engine's."""
    plans, steps = bench.size(12, 4), 20
    quick = model()

    @definition("chained")
    def chained(start: RunStart) -> ParallelTaskExecutor:
        chain = [step(f"s{n}", *([f"s{n - 1}"] if n else [])) for n in range(steps)]
        plan = TaskPlan(title="Harbour", tasks=[Task(id="t", title="A task", steps=chain)])
        start.context.model = quick
        return ParallelTaskExecutor(plan=plan, context=start.context)

    async def worked(worker: Worker) -> None:
        for _ in range(plans):
            hf.runs.start("chained", run_id=named())
        while await worker.turn():
            await worker.join()

    own, dbos = Worker(hf, chained), Worker(hf, chained, engine="dbos")

    async def begun() -> None:
        # What DBOS does once in a process: its tables, its threads, its queue.
        await worked(dbos)

    asyncio.run(begun())
    rounds = paired(
        lambda: timed(lambda: worked(dbos), plans),
        lambda: timed(lambda: worked(own), plans),
        bench.rounds,
    )
    asyncio.run(dbos.engine.leave())
    bench.cost(f"a plan of {steps} steps under DBOS", "under the own engine", 1.3, rounds)


def run(bench: Bench) -> None:
    """Measure it all."""
    with holdfast.open(bench.folder / "runs.db") as hf:
        recorded(bench, hf)
        fan_out(bench, hf)
        one_change(bench, hf)
        looked_into(bench, hf)
        taken_up(bench, hf)
        on_dbos(bench, hf)


if __name__ == "__main__":
    main("runs", "What does it cost to keep what a run knows, and to go on from it?", run)
