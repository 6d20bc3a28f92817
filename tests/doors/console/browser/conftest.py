"""The console of a server process in the system's Chromium, over a hostile database.

One browser for all modules; one server, one sign-in and one tab a module. A page that writes to
its console, fails a request, sends one elsewhere, is refused something by the policy, or runs a
script of a memory fails its test.
"""

import subprocess
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest
from browser_needs import chromium
from doors.console.browser.seed import Seeded, seed
from fork_server import ForkedProcess, forked
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Page,
    Request,
    StorageState,
    ViewportSize,
    expect,
    sync_playwright,
)
from served import Served

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-site-isolation-trials", "--renderer-process-limit=1", "--in-process-gpu"),
)
WIDE: ViewportSize = {"width": 1280, "height": 800}
NARROW: ViewportSize = {"width": 390, "height": 844}
USUAL: dict[str, Any] = {"viewport": WIDE, "color_scheme": "light"}
expect.set_options(timeout=30_000)  # milliseconds; other tests may have the processors
AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
RUN_AXE = """async (rules) => {
    const only = rules.length ? {runOnly: {type: 'rule', values: rules}} : {};
    const shown = {preload: false, resultTypes: ['violations'], selectors: false};
    const found = await axe.run(document, {...only, ...shown});
    return found.violations
        .filter((each) => ['serious', 'critical'].includes(each.impact))
        .flatMap((each) => each.nodes.map((node) => `${each.id}: ${node.html.slice(0, 200)}`));
}"""
Axe = Callable[..., list[str]]
Scheme = Literal["light", "dark"]


class ConsoleSite:
    """A served console, and what its database holds."""

    def __init__(self, served: Served, seeded: Seeded, path: Path) -> None:
        self.served, self.seeded, self.path = served, seeded, path
        self.url = served.url

    def at(self, address: str) -> str:
        """Return the address of a page on this server."""
        return f"{self.url}{address}"


def apart(act: Callable[[], Seeded]) -> Seeded:
    """Call *act*, which runs loops, in a thread that has not the one of the browser."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(act).result()


@contextmanager
def serve(path: Path, *options: str) -> Generator[Served]:
    """Run `holdfast serve` with its console over the database at *path*."""
    line = forked("serve", "--db", path, "--port", "0", "--no-access-log", *options)
    with ForkedProcess[str](line, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            yield Served(process, process.stderr.readline())
        finally:
            process.terminate()
            process.wait(60)


@pytest.fixture(scope="module")
def seeded_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("console") / "h.db"


@pytest.fixture(scope="module")
def site(seeded_path: Path) -> Iterator[ConsoleSite]:
    """Serve a database whose every text attacks the page that shows it."""
    seeded = apart(lambda: seed(seeded_path))
    with serve(seeded_path) as served:
        yield ConsoleSite(served, seeded, seeded_path)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Start the system's Chromium; end it with this folder, for its loop is this thread's."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        yield started
        started.close()


@pytest.fixture(scope="module")
def signed_in(browser: Browser, site: ConsoleSite) -> StorageState:
    """Sign in with the key of the scope admin; return the cookies."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(site.at("/console/sign-in"))
    page.get_by_label("API key").fill(site.seeded.secret)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(site.at("/console"))
    state = context.storage_state()
    context.close()
    return state


class Watch:
    """What pages did that no page of the console may do."""

    def __init__(self, site: ConsoleSite) -> None:
        self._host = urlsplit(site.url).netloc
        self.problems: list[str] = []

    def follow(self, context: BrowserContext) -> None:
        """Collect what the pages of *context* do from now on."""
        context.on("page", self._page)

    def _page(self, page: Page) -> None:
        page.on("console", lambda each: self._add(page, f"console {each.type}", each.text))
        page.on("pageerror", lambda each: self._add(page, "error", str(each)))
        page.on("requestfailed", self._failed)
        page.on("request", self._request)
        page.on("dialog", lambda each: self._add(page, "dialog", each.message))

    def _add(self, page: Page, kind: str, text: str) -> None:
        self.problems.append(f"{urlsplit(page.url).path}: {kind}: {text}")

    def _failed(self, request: Request) -> None:
        # A page that is left ends its live requests.
        if request.failure != "net::ERR_ABORTED":
            self.problems.append(f"{request.url}: failed: {request.failure}")

    def _request(self, request: Request) -> None:
        if urlsplit(request.url).netloc != self._host:
            self.problems.append(f"{request.frame.url}: request to {request.url}")


@pytest.fixture(scope="module")
def watched(site: ConsoleSite) -> Watch:
    return Watch(site)


@pytest.fixture
def watch(watched: Watch) -> Iterator[Watch]:
    """Fail the test that uses it on anything a page may not do; it may clear what it expects."""
    watched.problems = []
    yield watched
    assert watched.problems == []


NewPage = Callable[..., Page]


@pytest.fixture
def new_page(browser: Browser, signed_in: StorageState, watch: Watch) -> Iterator[NewPage]:
    """Make pages of visitors; each has a context of its own, with the options given."""
    contexts: list[BrowserContext] = []

    def make(**options: Any) -> Page:
        given: dict[str, Any] = {**USUAL, "storage_state": signed_in, **options}
        context = browser.new_context(**given)
        contexts.append(context)
        watch.follow(context)
        return context.new_page()

    yield make
    for each in contexts:
        each.close()


@pytest.fixture(scope="module")
def tab(browser: Browser, signed_in: StorageState, watched: Watch) -> Iterator[Page]:
    """Open a tab of the one who signed in as admin: a new one costs more than most tests."""
    context = browser.new_context(**USUAL, storage_state=signed_in)
    watched.follow(context)
    yield context.new_page()
    context.close()


@pytest.fixture
def page(tab: Page, watch: Watch, site: ConsoleSite) -> Iterator[Page]:
    """Give the tab; leave it empty, without what a script kept, and as it was."""
    assert watch.problems == []
    yield tab
    tab.unroute_all()
    tab.goto("about:blank")
    tab.emulate_media(color_scheme="light", reduced_motion="no-preference")
    tab.set_viewport_size(WIDE)
    tab.mouse.move(0, 0)
    debugger = tab.context.new_cdp_session(tab)
    local = {"origin": site.url, "storageTypes": "local_storage"}
    debugger.send("Storage.clearDataForOrigin", local)  # pyright: ignore[reportUnknownMemberType] - a dict of anything
    debugger.detach()


@pytest.fixture
def axe(page: Page) -> Axe:
    """Return what axe-core finds on the page that is open: serious and critical."""

    def run(*rules: str) -> list[str]:
        # By the debugger, which the page's policy does not hold.
        if not page.evaluate("'axe' in window"):
            page.evaluate(AXE)
        return page.evaluate(RUN_AXE, list(rules))

    return run
