"""What the pages show runs as it stands there."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fork_server import forked_code

import holdfast
from holdfast.testing.serving import Server

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```python( server)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN_URL = "http://127.0.0.1:8420"
NO_WARNINGS = "import warnings; warnings.simplefilter('error')\n"


def blocks(page: Path, *, served: bool) -> str:
    """Return the page's blocks that want a server, or those that want none, one after another."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return "\n".join(code for mark, code in found if bool(mark) == served)


def run(code: str, folder: Path) -> str:
    """Run *code* in *folder*, in a forked process, and return what it prints."""
    return printed(forked_code(f"{NO_WARNINGS}{code}"), folder)


def printed(command: list[str], folder: Path) -> str:
    """Run *command* in *folder*, whose user has nothing yet, and return what it prints."""
    shown = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "XDG_DATA_HOME": str(folder), "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    return shown.stdout


README = ROOT / "README.md"
BY_MEANING = re.compile(r"(?:find|found|recall)\w*[^.]*by\s+meaning")


def test_the_first_block_of_the_readme_installs_it() -> None:
    first = re.search(r"^```\w*\n(.*?)^```$", README.read_text("utf-8"), re.MULTILINE | re.DOTALL)

    assert first is not None
    assert "pip install" in first[1].splitlines()[0]


@pytest.fixture(scope="module")
def readme_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("readme")


@pytest.fixture(scope="module")
def readme_output(readme_folder: Path) -> str:
    """Return what the README prints when it runs for the first time, in a new interpreter."""
    command = [sys.executable, "-W", "error", "-c", blocks(README, served=False)]
    return printed(command, readme_folder)


@pytest.mark.usefixtures("readme_output")
def test_the_readme_runs_twice_and_its_mount_still_finds_its_store(readme_folder: Path) -> None:
    mounted = re.search(r'holdfast mount \S+ --store "(.+?)" --db (\S+)', README.read_text("utf-8"))
    assert mounted is not None

    run(blocks(README, served=False), readme_folder)

    with holdfast.open(readme_folder / mounted[2], create=False) as hf:
        names = [store.name for store in hf.memory_stores.list().all()]
    assert names.count(mounted[1]) == 1


def test_the_readme_shows_an_agent_at_work() -> None:
    shown = blocks(README, served=False)

    assert "from holdfast.runtime import" in shown
    assert "ScriptedModel(" in shown


def test_what_the_readme_prints_of_a_recall_is_a_short_line(readme_output: str) -> None:
    recalled = [line for line in readme_output.splitlines() if "Recalled(" in line]
    assert recalled
    assert max(map(len, recalled)) <= 200


def sentences() -> Iterator[tuple[str, str]]:
    """Give each sentence of the pages, the package and its prompts, with its file."""
    package = ROOT / "holdfast"
    for file in [*PAGES, *package.rglob("*.py"), *package.rglob("*.md")]:
        for sentence in re.split(r"(?<=[.!?:])\s+|\n\n", file.read_text(encoding="utf-8")):
            yield str(file.relative_to(ROOT)), sentence


def test_recall_by_meaning_is_promised_only_with_an_embedder() -> None:
    promised = [
        (file, sentence)
        for file, sentence in sentences()
        if BY_MEANING.search(sentence)
        and "embedder" not in sentence
        and not re.search(r"compared\s+by\s+meaning", sentence)
    ]

    assert promised == []


MOUNTING = {"mount.md"}
MARKED = [
    pytest.param(page, marks=pytest.mark.fuse if page.name in MOUNTING else (), id=page.name)
    for page in PAGES
    if page != README
]


@pytest.mark.parametrize("page", MARKED)
def test_what_a_page_shows_runs(page: Path, tmp_path: Path) -> None:
    run(blocks(page, served=False), tmp_path)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, served=True)], ids=lambda page: page.name
)
def test_what_a_page_shows_of_a_server_runs(page: Path, tmp_path: Path, server: Server) -> None:
    run(blocks(page, served=True).replace(SHOWN_URL, server.url), tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_links_to_is_there(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))

    missing = [link for link in links if not (page.parent / link).exists()]

    assert missing == []


@pytest.mark.parametrize(
    "name", ["memory-stores", "durable", "longterm", "run-memory", "network-state"]
)
def test_the_page_of_each_memory_shows_it_on_an_event_loop(name: str) -> None:
    shown = blocks(ROOT / "docs" / f"{name}.md", served=False)

    assert "await holdfast.aio.open(" in shown
    assert "asyncio.run(" in shown
