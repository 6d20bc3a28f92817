"""What the pages about adapters show runs as it stands there, with its host, and links to pages."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "adapters").glob("*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)\)")
KEYS = re.compile(r"_(API_)?KEY$|_TOKEN$")
UNREACHABLE = "http://127.0.0.1:9"
WAIT = 240

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run *code* in *folder* with an interpreter of its own, without a key or a network."""
    keyless = {name: value for name, value in os.environ.items() if not KEYS.search(name)}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={
            **keyless,
            "HOME": str(folder),
            "XDG_DATA_HOME": str(folder),
            "PYTHONPATH": str(ROOT),
            "HTTP_PROXY": UNREACHABLE,
            "HTTPS_PROXY": UNREACHABLE,
            "NO_PROXY": "127.0.0.1,localhost",
        },
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )


@pages
def test_what_a_page_shows_runs(page: Path, tmp_path: Path) -> None:
    code = "\n".join(BLOCK.findall(page.read_text("utf-8")))
    assert code

    shown = run(code, tmp_path)

    assert shown.returncode == 0, shown.stderr


@pages
def test_a_page_ends_each_block_that_it_begins(page: Path) -> None:
    text = page.read_text("utf-8")

    assert text.count("```python") == len(BLOCK.findall(text))


@pages
def test_what_a_page_links_to_is_there(page: Path) -> None:
    links = LINK.findall(page.read_text("utf-8"))

    assert [link for link in links if not (page.parent / link).exists()] == []
