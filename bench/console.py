"""What does a page of the console cost: its visitor, its server, and what else is served?"""

import sys

# What lies beside comes last: the `http.py` here must not stand before Python's own.
sys.path.append(sys.path.pop(0))

import gzip
import os
import re
import shutil
import subprocess
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from time import sleep

from measure import Bench, Timing, main, one_by_one, paired
from msgspec import Struct
from playwright.sync_api import Browser, Page, sync_playwright
from served import HOLDFAST, Served, serving
from texts import Texts

import holdfast
from holdfast import RunMemory, Turn, keys

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run")
_FILES = ("console.css", "console.js", "icons.svg", "htmx.min.js", "hx-sse.min.js")
LIVE_PAGES = 20
STORES = 10
_IMPORT = """
import holdfast.doors.cli.server, holdfast.doors.http.server
from time import process_time
begun = process_time()
import holdfast.doors.console.app
print(process_time() - begun)
"""


class Filled(Struct, frozen=True, kw_only=True):
    """The database that is served, and the addresses of its pages by their names."""

    path: Path
    pages: dict[str, str]
    hundred: str
    large: str
    store: str
    memory: str


def run(bench: Bench) -> None:
    """Measure everything that section of the page shows."""
    found = _filled(bench)
    serve = (*HOLDFAST, "serve", "--db", str(found.path), "--port", "0", "--no-access-log")
    with serving(*serve) as served:
        idle = served.resident()
        with serving(*serve, "--no-console") as without:
            bench.amount(
                "resident memory at rest", "--no-console", 10.5, "MB", [idle - without.resident()]
            )
        _answers(bench, served, found)
        _sizes(bench, served, found)
        _memory(bench, served, found)
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=list(FLAGS)
            )
            _loads(bench, chromium, served, found)
            _entries(bench, chromium, served)
            chromium.close()
        _beside(bench, served, found)
    bench.amount("import of the console, processor time", "serve", 120, "ms", _imports(bench))


def _filled(bench: Bench) -> Filled:
    """Make the database; return the addresses of its pages."""
    path = bench.folder / "console.db"
    texts = Texts()
    memories, agents = bench.size(100_000, 2_000), bench.size(1_000, 50)
    contents = [texts.of_bytes(800) for _ in range(100)]
    with holdfast.open(path) as hf, ThreadPoolExecutor(32) as threads:
        hf.memory_stores.configure(memories_cap=1_000_000)
        stores = [hf.memory_stores.create(name=f"Store {n}").id for n in range(STORES)]
        create = hf.memory_stores.memories.create

        def memory(number: int) -> None:
            content = contents[number % len(contents)]
            create(stores[number % STORES], path=f"/n/{number:07}.md", content=content)

        def owner(number: int) -> None:
            durable, ltm = hf.durable(f"agent_{number:04}"), _longterm(hf, f"user_{number:04}")
            durable.set_many(
                {"key": f"fact_{n:02}", "content": contents[n], "category": "core"}
                for n in range(20)
            )
            said = [Turn(role="user", text=contents[n][:200]) for n in range(3)]
            ltm.record(said, thread_id="talk")
            ltm.remember(f"User {number} drinks oolong tea")

        list(threads.map(memory, range(memories)))
        list(threads.map(owner, range(agents)))
        first = hf.memory_stores.memories.list(stores[0], path_prefix="/n/", limit=1).data[0]
        large = create(stores[0], path="/large.txt", content=texts.of_bytes(100 * 1024)).id
        for number in range(60):
            told = RunMemory()
            over = hf.runs.attach(told, name=f"Run {number}")
            told.set(keys.task("look"), {"found": number})
            over()
        run_id = told.run_id
    store = f"/console/stores/{stores[0]}"
    pages = {
        "Overview": "/console",
        "Stores": "/console/stores",
        "a directory": f"{store}?path=/n/",
        "a memory": f"{store}/memories/{first.id}",
        "Versions": f"{store}/versions",
        "Search": "/console/search?q=agent_00",
        "Agents": "/console/agents",
        "an agent": "/console/agents/agent_0001",
        "Hydration": "/console/agents/agent_0001/hydration",
        "People": "/console/people",
        "a person": "/console/people/user_0001",
        "Recall": "/console/people/user_0001/recall?q=oolong+tea",
        "Runs": "/console/runs",
        "a run": f"/console/runs/{run_id}",
        "Sessions": "/console/sessions",
        "Activity": "/console/activity",
        "Health": "/console/health",
        "Keys": "/console/keys",
    }
    return Filled(
        path=path,
        pages=pages,
        hundred=f"{store}?path=/n/&limit=100",
        large=f"{store}/memories/{large}",
        store=stores[0],
        memory=first.id,
    )


def _longterm(hf: holdfast.Holdfast, user: str) -> holdfast.LongTermMemory:
    found = hf.longterm(user, enabled=True, embedder=False)
    assert found is not None
    return found


class _Visitor:
    """One visitor with one connection."""

    def __init__(self, served: Served) -> None:
        self._connection = HTTPConnection(served.address.netloc)

    def open(self, address: str) -> bytes:
        """Return the compressed page at *address*."""
        headers = {"accept": "text/html", "accept-encoding": "gzip"}
        self._connection.request("GET", address, headers=headers)
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{address}: {answer.status}")
        return body


def _answers(bench: Bench, served: Served, found: Filled) -> None:
    """Measure the answer of each page."""
    visitor, number = _Visitor(served), bench.size(100, 10)
    for name, address in found.pages.items():
        visitor.open(address)
        taken = [
            one_by_one(number, lambda _, at=address: visitor.open(at)).p95 / 1e6
            for _ in range(bench.rounds)
        ]
        bench.amount(f"answer of {name}, p95", "one visitor", 60, "ms", taken)


def _sizes(bench: Bench, served: Served, found: Filled) -> None:
    """Measure what goes over the wire, compressed."""
    visitor = _Visitor(served)
    overview = visitor.open("/console")
    root = re.findall(r"/console/static/\w+/", gzip.decompress(overview).decode())[0]
    linked = {name: visitor.open(root + name) for name in _FILES}
    script = sum(len(body) for name, body in linked.items() if name.endswith(".js"))
    whole = len(overview) + sum(map(len, linked.values()))
    for what, size, goal in (
        ("HTML of 100 rows", len(visitor.open(found.hundred)), 40),
        ("HTML of a memory of 100 KiB", len(visitor.open(found.large)), 60),
        ("first visit in all", whole, 120),
        ("script in all", script, 32),
    ):
        bench.amount(f"{what}, compressed", "the wire", goal, "kB", [size / 1000])


def _memory(bench: Bench, served: Served, found: Filled) -> None:
    """Measure by how much 1,000 pages make the server grow."""
    visitor, pages = _Visitor(served), [*found.pages.values()]
    before, number = served.resident(), bench.size(1_000, 100)
    for n in range(number):
        visitor.open(pages[n % len(pages)])
    grown = served.resident() - before
    bench.amount(f"growth over {number:,} pages", "before", 10.5, "MB", [grown])


def _loads(bench: Bench, chromium: Browser, served: Served, found: Filled) -> None:
    """Measure each page in Chromium, from navigation to load."""
    page = chromium.new_page()
    for name, address in found.pages.items():
        page.goto(f"{served.address.geturl()}{address}")
        taken = [_load(page, served, address) for _ in range(5)]
        bench.amount(f"{name} in Chromium, to load", "median of 5", 300, "ms", [median(taken)])
    page.close()


def _load(page: Page, served: Served, address: str) -> float:
    page.goto(f"{served.address.geturl()}{address}")
    return page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")


def _entries(bench: Bench, chromium: Browser, served: Served) -> None:
    """Measure the time from an entry's write in a run to its row on the screen."""
    page, memory = chromium.new_page(), RunMemory()
    with holdfast.open(served.address.geturl()) as hf:
        over = hf.runs.attach(memory, name="Live")
        memory.set(keys.shared("first"), 0)
        hf.runs.retrieve(memory.run_id)
        page.goto(f"{served.address.geturl()}/console/runs/{memory.run_id}")
        page.wait_for_selector(".live-dot")

        def write(number: int) -> None:
            memory.set(keys.shared(f"live-{number}"), number)
            page.wait_for_selector(f"text=shared:live-{number}")

        # 60 rows: what is shown of a run's memory is bounded.
        taken = one_by_one(bench.size(60, 10), write)
        over()
    page.close()
    bench.amount(
        "an entry to its row on the screen, p95", "its write", 500, "ms", [taken.p95 / 1e6]
    )


def _beside(bench: Bench, served: Served, found: Filled) -> None:
    """Measure requests while live pages are open and idle."""
    path = f"/v1/memory_stores/{found.store}/memories/{found.memory}"
    asked = {
        "GET /v1 memory": served.request("GET", path),
        "GET /api entry": served.request("GET", "/api/durable/agent_0001/entries/fact_01"),
    }
    number = bench.size(8_000, 800)
    for what, request in asked.items():

        def alone(request: bytes = request) -> Timing:
            return served.asked(number, lambda: request)

        def watched(request: bytes = request) -> Timing:
            with _live(served):
                return served.asked(number, lambda: request)

        rounds = paired(watched, alone, bench.rounds)
        bench.rate(f"{what}, {LIVE_PAGES} idle live pages", "none", 0.95, rounds)


@contextmanager
def _live(served: Served) -> Generator[None]:
    """Hold live pages open."""
    with ExitStack() as held:
        for _ in range(LIVE_PAGES):
            connection = HTTPConnection(served.address.netloc)
            held.callback(connection.close)
            connection.request("GET", "/console/runs/live", headers={"accept": "text/event-stream"})
            connection.getresponse().fp.readline()
        sleep(1)  # until they are idle
        yield


def _imports(bench: Bench) -> list[float]:
    """Return the milliseconds of processor time that importing the console takes."""
    command = (sys.executable, "-c", _IMPORT)
    compiled = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    found: list[float] = []
    for _ in range(bench.rounds + 1):
        ran = subprocess.run(command, capture_output=True, text=True, check=True, env=compiled)
        found.append(float(ran.stdout) * 1000)
    return found[1:]  # the first one may compile


if __name__ == "__main__":
    main("console", __doc__ or "", run)
