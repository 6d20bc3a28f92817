"""Static files and templates: vendored ones unchanged, no host named, nothing evaluated."""

import gzip
import re
from hashlib import sha256
from itertools import product
from pathlib import Path

import msgspec
import pytest

import holdfast.doors.console

CONSOLE = Path(holdfast.doors.console.__file__).parent
STATIC, TEMPLATES = CONSOLE / "static", sorted((CONSOLE / "templates").rglob("*.html"))
VENDOR = STATIC / "vendor"
STYLE = (STATIC / "console.css").read_text("utf-8")
SCRIPT = (STATIC / "console.js").read_text("utf-8")
TOKEN = re.compile(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);")
TOKENS = {name: (light, dark) for name, light, dark in TOKEN.findall(STYLE)}
FORBIDDEN = {
    "an inline script": r"<script(?![^>]*\ssrc=)[^>]*>",
    "an inline style": r"<style|<\w[^>]*\sstyle\s*=",
    "a handler": r"<\w[^>]*\son\w+\s*=|hx-on",
    "an expression that htmx evaluates": r"=\"(?:js|javascript):|hx-trigger=\"[^\"]*\[",
    "text that is not escaped": r"\|\s*safe|autoescape",
    "a host": r"(?:src|href|action)\s*=\s*\"(?:https?:)?//",
}


class VendoredFile(msgspec.Struct, frozen=True, rename={"source": "from"}):
    sha256: str
    source: str


class Vendored(msgspec.Struct, frozen=True):
    version: str
    licence: str
    files: dict[str, VendoredFile]


def test_vendored_files_are_those_of_the_list() -> None:
    listed = msgspec.json.decode((VENDOR / "vendor.json").read_bytes(), type=Vendored)
    found = {each.name for each in VENDOR.iterdir()} - {"vendor.json", listed.licence}

    assert found == set(listed.files)
    for name, file in listed.files.items():
        assert sha256((VENDOR / name).read_bytes()).hexdigest() == file.sha256, name
    assert f"version='{listed.version}'" in (VENDOR / "htmx.min.js").read_text().replace('"', "'")
    assert listed.version in (VENDOR / listed.licence).read_text("utf-8")


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_template_has(what: str) -> None:
    found = {
        f"{path.name}: {match[0]}"
        for path in TEMPLATES
        for match in re.finditer(FORBIDDEN[what], path.read_text("utf-8"))
    }

    assert found == set()


def test_htmx_injects_no_style_and_takes_no_attribute_but_its_own() -> None:
    base = (CONSOLE / "templates" / "base.html").read_text("utf-8")
    found = re.search(r"name=\"htmx-config\" content='([^']*)'", base)

    assert found is not None
    config = msgspec.json.decode(found[1])
    assert config["includeIndicatorCSS"] is False
    assert config["history"] is False


def test_the_script_is_short_and_makes_no_html_or_code_of_text() -> None:
    assert len(SCRIPT.splitlines()) <= 400
    for each in (
        "eval(",
        "Function(",
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.w",
    ):
        assert each not in SCRIPT


@pytest.mark.parametrize("text", [STYLE, SCRIPT], ids=["style", "script"])
def test_style_and_script_name_no_host(text: str) -> None:
    assert re.findall(r"https?://|url\(|@import|import\(", text) == []


def test_what_a_first_visit_loads_is_small() -> None:
    files = [*STATIC.glob("*.*"), *VENDOR.glob("*.js")]
    packed = {each.name: len(gzip.compress(each.read_bytes(), 9)) for each in files}

    assert sum(size for name, size in packed.items() if name.endswith(".js")) <= 32_000
    assert sum(packed.values()) <= 60_000  # of the 120 kB; a page has at most 60


def luminance(color: str) -> float:
    """Return the relative luminance of `#rrggbb` (WCAG 2)."""
    parts = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours (WCAG 2)."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


TEXTS = ("text", "muted", "accent", "good", "warn", "bad")
SHAPES = ("control-line", "c1", "c2", "c3")


@pytest.mark.parametrize(
    ("token", "ground", "least"),
    [
        *((*pair, 4.5) for pair in product(TEXTS, ("canvas", "sunken"))),
        *((*pair, 3.0) for pair in product(SHAPES, ("canvas", "sunken"))),
        *((*pair, 4.5) for pair in (("text", "add"), ("good", "add"), ("text", "cut"))),
        *((*pair, 4.5) for pair in (("bad", "cut"), ("on-accent", "accent"))),
    ],
)
def test_a_colour_stands_out_from_its_ground(token: str, ground: str, least: float) -> None:
    for theme in (0, 1):
        assert contrast(TOKENS[token][theme], TOKENS[ground][theme]) >= least
