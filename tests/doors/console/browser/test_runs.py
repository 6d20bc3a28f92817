"""Runs of another process in a browser: shown as they go on, without a reload."""

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from doors.console.browser.conftest import ConsoleSite
from doors.console.harbour import asked
from playwright.sync_api import Page, expect

import holdfast
from holdfast import RunMemory, keys
from holdfast.library.holdfast import Holdfast
from holdfast.runtime import Context, ParallelTaskExecutor, Step, Task, TaskPlan
from holdfast.testing import ScriptedModel

pytestmark = pytest.mark.browser
WAIT = 20_000
"""Milliseconds that a report is waited for under load."""


@pytest.fixture
def hf(site: ConsoleSite) -> Iterator[Holdfast]:
    """Open the database that is served in this process too."""
    with holdfast.open(site.path) as hf:
        yield hf


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads for runs: the browser's loop is that of this one."""
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_a_run_of_another_process_is_shown_as_it_goes_on_until_its_end(
    page: Page, site: ConsoleSite, hf: Holdfast
) -> None:
    memory = RunMemory(run_id="run_far")
    over = hf.runs.attach(memory, name="Far")
    hf.run_attachments.flush()
    page.goto(site.at("/console/runs/run_far"))
    expect(page.get_by_text("Live", exact=True)).to_be_visible(timeout=WAIT)
    log = page.get_by_role("log", name="Run memory")
    log.focus()

    memory.set(keys.task("seals"), {"count": ["twelve"]}, title="Seals")
    expect(log.get_by_role("link", name="task:seals")).to_be_visible(timeout=WAIT)
    expect(log).to_be_focused()
    expect(log).not_to_contain_text("twelve")
    log.get_by_role("link", name="task:seals").click()
    expect(page.get_by_role("region", name="Value")).to_contain_text("twelve")

    over("failed")
    expect(page.locator("#state")).to_have_text("failed", timeout=WAIT)
    expect(page.get_by_text("The run is over.")).to_be_visible()


def test_the_states_of_a_plan_change_while_it_is_looked_at(
    page: Page, site: ConsoleSite, hf: Holdfast, pool: ThreadPoolExecutor
) -> None:
    gate = Event()

    async def answer(_: object) -> str:
        assert await asyncio.to_thread(gate.wait, WAIT / 1_000)
        return "Three ships."

    look = Task(id="look", title="Look", steps=[Step(id="find", instructions="Find.")])
    context = Context(hf=hf, run_id="run_near", model=ScriptedModel(answer))
    executor = ParallelTaskExecutor(plan=TaskPlan(title="Near", tasks=[look]), context=context)
    done = pool.submit(asyncio.run, executor.run())
    pool.submit(next, hf.runs.follow("run_near", wait=20, types="step.started")).result()
    page.goto(site.at("/console/runs/run_near"))
    expect(page.get_by_text("Live", exact=True)).to_be_visible(timeout=WAIT)
    box = page.get_by_role("figure", name="Plan").get_by_role("link")
    expect(box).to_have_accessible_name(re.compile("Look: running"), timeout=WAIT)

    gate.set()
    expect(box).to_have_accessible_name(re.compile("Look: completed"), timeout=WAIT)
    row = page.get_by_role("table", name="Tasks").get_by_role("row", name=re.compile("find"))
    expect(row).to_contain_text("completed")
    done.result()
    box.click()
    expect(page.get_by_role("region", name="Value")).to_contain_text("Three ships.")


def test_a_question_appears_and_is_answered(
    page: Page, site: ConsoleSite, hf: Holdfast, pool: ThreadPoolExecutor
) -> None:
    question = pool.submit(asked, hf, options=["7", "8"]).result()
    page.goto(site.at("/console/questions"))
    form = page.locator(f"#{question.id}")
    form.get_by_role("radio", name="8").check()
    form.get_by_role("textbox", name="Note").fill("by the pier")
    form.get_by_role("button", name="Answer").click()

    expect(page.get_by_role("status")).to_contain_text("The answer was stored.")
    found = hf.runs.question(question.id)
    assert (found.answer, found.note) == ("8", "by the pier")


def test_ticks_are_kept_while_the_list_changes_and_two_are_compared(
    page: Page, site: ConsoleSite, hf: Holdfast
) -> None:
    for name in ("one", "two"):
        memory = RunMemory(run_id=f"run_{name}")
        over = hf.runs.attach(memory, name=name)
        memory.set(keys.shared("word"), name)
        over()
    hf.run_attachments.flush()
    page.goto(site.at("/console/runs"))
    expect(page.get_by_text("Live", exact=True)).to_be_visible(timeout=WAIT)
    for name in ("one", "two"):
        page.locator(f"#run-run_{name}").get_by_role("checkbox").check()

    hf.runs.attach(RunMemory(run_id="run_three"), name="three")
    expect(page.locator("#run-run_three")).to_be_visible(timeout=WAIT)
    expect(page.locator("#run-run_one").get_by_role("checkbox")).to_be_checked()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("table", name="Differences")).to_contain_text("shared:word")
