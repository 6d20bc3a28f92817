"""What the pages show runs as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.testing.shared import Server

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```python( server)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN_URL = "http://127.0.0.1:8420"


def blocks(page: Path, *, served: bool) -> str:
    """Return the page's blocks that want a server, or those that want none, one after another."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return "\n".join(code for mark, code in found if bool(mark) == served)


def run(code: str, folder: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=folder,
        env={**os.environ, "XDG_DATA_HOME": str(folder), "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr


MOUNTING = {"mount.md"}
MARKED = [
    pytest.param(page, marks=pytest.mark.fuse if page.name in MOUNTING else (), id=page.name)
    for page in PAGES
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
