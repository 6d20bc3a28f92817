"""A crawl of all links from the overview: each leads to a page, and none changes anything."""

import sqlite3
from collections.abc import Iterator
from hashlib import sha256
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from doors.console.browser.conftest import ConsoleSite
from doors.console.client import Skeleton

PAGES_MOST = 2_000
OF_THE_VISIT = {"console_sessions", "samples"}
"""Tables that a visit or the passing hour changes."""


class Crawler:
    """A visitor that signs in and opens addresses."""

    def __init__(self, site: ConsoleSite) -> None:
        self._site = site
        parts = urlsplit(site.url)
        self._connection = HTTPConnection(parts.netloc)
        self._headers = {"accept": "text/html", "sec-fetch-site": "same-origin"}
        body = f"key={site.seeded.secret}"
        typed = {**self._headers, "content-type": "application/x-www-form-urlencoded"}
        self._connection.request("POST", "/console/sign-in", body, typed)
        answer = self._connection.getresponse()
        answer.read()
        self._headers["cookie"] = str(answer.headers["set-cookie"]).partition(";")[0]

    def open(self, address: str) -> tuple[int, str, str]:
        """Return the status, the type and the text of the answer at *address*."""
        self._connection.request("GET", address, headers=self._headers)
        answer = self._connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
        return answer.status, answer.headers.get("content-type", ""), text

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


@pytest.fixture
def crawler(site: ConsoleSite) -> Iterator[Crawler]:
    found = Crawler(site)
    yield found
    found.close()


def content(path: Path) -> dict[str, str]:
    """Return a hash of the rows of each table of the database at *path*."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        tables = database.execute(
            "select name from sqlite_master where type = 'table' and sql not like '%virtual%'"
        )
        return {
            name: sha256(
                repr(database.execute(f'select * from "{name}"').fetchall()).encode()
            ).hexdigest()
            for (name,) in tables.fetchall()
            if name not in OF_THE_VISIT
        }


def links(text: str, base: str) -> list[str]:
    """Return the addresses of the console that a page links to, without a fragment."""
    page = Skeleton()
    page.feed(text)
    found: list[str] = []
    for link in page.links:
        address = link.partition("#")[0]
        if address.startswith("?"):
            address = base.partition("?")[0] + address
        if address.startswith("/"):
            found.append(address)
    return found


def test_each_link_leads_to_a_page_and_changes_nothing(site: ConsoleSite, crawler: Crawler) -> None:
    crawler.open("/console")
    before = content(site.path)
    waiting, seen = ["/console"], {"/console"}
    failed: dict[str, int] = {}
    while waiting and len(seen) < PAGES_MOST:
        address = waiting.pop(0)
        status, kind, text = crawler.open(address)
        if status not in {200, 303}:
            failed[address] = status
        if kind.startswith("text/html"):
            new = [each for each in links(text, address) if each not in seen]
            seen.update(new)
            waiting.extend(dict.fromkeys(new))

    assert failed == {}
    assert len(seen) > 100
    assert all(address.startswith("/console") for address in seen)
    assert content(site.path) == before
