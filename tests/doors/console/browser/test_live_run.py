"""Runs of another process, while they are looked at; their questions, ticked and compared."""

import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from doors.console.browser import reporter
from doors.console.browser.bakery import api, bakery
from doors.console.browser.conftest import ConsoleSite
from doors.console.harbour import asked
from fork_server import ForkedProcess, forked_code
from playwright.sync_api import Page, Route, expect

import holdfast
from holdfast import RunMemory, keys
from holdfast.library.holdfast import Holdfast

pytestmark = pytest.mark.browser
WAIT = 30_000
"""Milliseconds that the other process is waited for: it loads what the extra `agents` has."""
Send = Callable[[str], None]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleSite]:
    with bakery(tmp_path_factory.mktemp("live") / "h.db") as site:
        yield site


@pytest.fixture(params=["file", "server"])
def send(request: pytest.FixtureRequest, site: ConsoleSite) -> Iterator[Send]:
    """Run the reporter against the file or through the server; send it lines."""
    with api(site) as hf:
        for run in hf.runs.list().data:
            if run.id in {"run_plan", "run_team"}:
                hf.runs.delete(run.id)
    target = [str(site.path)] if request.param == "file" else [site.url, site.seeded.secret]
    file = Path(reporter.__file__)
    command = forked_code(file.read_text("utf-8"), *target)
    tests = file.parents[3]  # what it imports from there is found in its folder
    with ForkedProcess[str](command, stdin=subprocess.PIPE, text=True, cwd=tests) as process:
        assert process.stdin is not None
        lines = process.stdin

        def write(line: str) -> None:
            lines.write(f"{line}\n")
            lines.flush()

        yield write
        lines.close()
        assert process.wait(60) == 0


def expect_task(page: Page, name: str, state: str) -> None:
    """Expect a task in the table and in the picture of the plan with this state."""
    row = page.get_by_role("table", name="Tasks").get_by_role("row").filter(has_text=name).first
    expect(row).to_contain_text(state)
    figure = page.get_by_role("figure", name="Plan")
    box = figure.get_by_role("link").filter(has_text=name).first
    expect(box).to_contain_text(state)


def test_a_page_is_live_however_late_its_second_script_comes(page: Page, site: ConsoleSite) -> None:
    late: list[Route] = []

    def hold(route: Route) -> None:
        late.append(route)

    page.route("**/hx-sse.min.js", hold)
    page.goto(site.at("/console/runs"), wait_until="commit")
    page.wait_for_function("() => 'htmx' in window")
    page.evaluate("new Promise((done) => setTimeout(() => setTimeout(done)))")
    late[0].continue_()
    expect(page.get_by_text("Live", exact=True)).to_be_visible()


def test_a_run_of_another_process_is_followed_without_a_reload(
    page: Page, site: ConsoleSite, send: Send
) -> None:
    page.goto(site.at("/console/runs"))
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    page.get_by_role("table", name="Runs").get_by_role("link", name="Harbour").click(timeout=WAIT)
    expect(page.get_by_role("heading", level=1)).to_have_text("Harbour")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    page.evaluate("window.stays = true")
    expect_task(page, "Look", "running")
    log = page.get_by_role("log", name="Run memory")
    log.focus()
    send("ok")
    expect_task(page, "Look", "completed")
    expect(log).to_contain_text("task:look")
    expect(log).to_be_focused()
    expect(log).not_to_contain_text("ships")
    expect_task(page, "Tell", "running")
    send("fail")
    expect_task(page, "Tell", "failed")
    expect(page.get_by_role("table", name="Tasks")).to_contain_text("no ink is left")
    expect_task(page, "Rest", "blocked")
    expect(page.get_by_role("table", name="Tasks")).to_contain_text("needs tell")
    expect(page.locator("#state")).to_have_text("failed")
    expect(page.get_by_text("The run is over.")).to_be_visible()
    assert page.evaluate("window.stays")

    log.get_by_role("link", name="task:look").first.click()
    expect(page.get_by_role("region", name="Value")).to_contain_text("Seven <b>ships</b>.")
    page.get_by_role("link", name="Runs").first.click()
    send("")
    team = page.get_by_role("table", name="Runs").get_by_role("row").filter(has_text="Count")
    team.get_by_role("link").first.click(timeout=WAIT)
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    page.evaluate("window.stays = true")
    send("ok")
    expect(page.get_by_role("log", name="Messages")).to_contain_text("Count the young.")
    board = page.get_by_role("table", name="Board")
    expect(board).to_contain_text("Count the seals")
    expect(board).to_contain_text("completed")
    expect(page.locator("#state")).to_have_text("completed")
    assert page.evaluate("window.stays")


# Questions and comparison


@pytest.fixture
def hf(site: ConsoleSite) -> Iterator[Holdfast]:
    """Open the database that is served in this process too."""
    with holdfast.open(site.path) as hf:
        yield hf


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """A thread for a run: the browser's loop is that of this one."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


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
