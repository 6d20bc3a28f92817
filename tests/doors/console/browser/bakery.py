"""A small served database: the memories of a bakery's agent and of a customer."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from doors.console.browser.conftest import ConsoleSite, apart, serve
from doors.console.browser.seed import Seeded
from playwright.sync_api import Locator, Page

import holdfast
from holdfast import Turn
from holdfast.library.holdfast import Holdfast
from holdfast.runtime import Agent, Session
from holdfast.testing.scripted import ScriptedModel

GOOD = "Deploy on Monday.\nBread at seven.\n"
NONSENSE = "Deploy never.\nBread at seven.\n"
QUESTION = "Which tea does Ada drink?"
TABS_MOST = 200


def fill(hf: Holdfast) -> dict[str, str]:
    """Store what the tests read and change; return it by the names of `Seeded`."""
    return {**_stores(hf), **_people(hf)}


def _stores(hf: Holdfast) -> dict[str, str]:
    stores = hf.memory_stores
    store = stores.create(name="Bakery", description="What the bakery knows.")
    plan = stores.memories.create(store.id, path="/plan.md", content=GOOD)
    stores.memories.create(store.id, path="/recipes/rye.md", content="Rye: 500 g of flour.\n")
    session = hf.sessions.create(
        agent="baker",
        environment_id="oven",
        title="Night shift",
        resources=[{"type": "memory_store", "memory_store_id": store.id}],
    )
    narrow = hf.for_session(session.id).memory_stores.memories
    written = narrow.update(plan.id, memory_store_id=store.id, content=NONSENSE)
    made = narrow.create(store.id, path="/never.md", content="Nothing is true.\n")
    durable = hf.durable("baker")
    durable.set("oven", "230 degrees, with steam.", category="core", tags=["heat"])
    for number in range(6):
        text = f"Day {number}. " + "flour " * (20 * (number + 1))
        durable.set(f"day_{number}", text, category="daily")
    return {
        "store": store.id,
        "memory": plan.id,
        "older": plan.memory_version_id,
        "version": written.memory_version_id,
        "deleted": made.id,
        "session": session.id,
        "agent": "baker",
        "entry": "oven",
    }


def _people(hf: Holdfast) -> dict[str, str]:
    ltm = hf.longterm("ada", enabled=True, embedder=False)
    assert ltm is not None
    turns = [
        Turn(role="user", speaker="Ada", text="I drink oolong tea in the morning."),
        Turn(role="assistant", text="Oolong it is."),
        Turn(role="user", speaker="Ada", text="And rye bread with the tea, please."),
    ]
    said = ltm.record(turns, thread_id="order").turns
    stored = ltm.remember("Ada drinks oolong tea", turns=[said[0].id]).stored
    assert stored is not None
    for text in ("Ada likes strong tea", "Ada buys rye bread", "Ada comes on Fridays for tea"):
        ltm.remember(text, kind="preference", importance=0.8)
    asyncio.run(_talk(hf))
    return {"user": "ada", "item": stored.id, "turn": said[0].id, "thread": "talk"}


async def _talk(hf: Holdfast) -> None:
    """Hold a conversation in which memory gave something."""
    model = ScriptedModel(["Oolong, as always."])
    baker = Agent("baker", instructions="You sell bread.", model=model)
    ltm = hf.longterm("ada", enabled=True, embedder=False)
    async with Session(baker, hf=hf, id="talk", user="ada", longterm=ltm) as session:
        await session.send(QUESTION)


def stored(path: Path) -> Seeded:
    """Make the database of the bakery at *path*; return what it holds, with an admin key."""
    with holdfast.open(path) as hf:
        found = fill(hf)
        key = hf.keys.create("owner", scope="admin")
    assert key.secret is not None
    names = dict.fromkeys(Seeded.__struct_fields__, "")
    return Seeded(**names | found | {"key": key.id, "secret": key.secret})


@contextmanager
def bakery(path: Path, *options: str) -> Generator[ConsoleSite]:
    """Serve the database of the bakery at *path*, with an admin key."""
    seeded = apart(lambda: stored(path))
    with serve(path, *options) as served:
        yield ConsoleSite(served, seeded, path)


def api(site: ConsoleSite) -> Holdfast:
    """Return a handle on the HTTP API of *site*."""
    return holdfast.open(site.url, api_key=site.seeded.secret)


def bytes_left(path: Path, text: str) -> list[str]:
    """Return the names of the database's files that have *text*."""
    needle = text.encode()
    return sorted(
        each.name for each in path.parent.glob(f"{path.name}*") if needle in each.read_bytes()
    )


class Keyboard:
    """A visitor who has no mouse."""

    def __init__(self, page: Page, start: str) -> None:
        self.page = page
        page.goto(start)

    def press(self, *keys: str) -> None:
        """Press *keys* one after another."""
        for key in keys:
            self.page.keyboard.press(key)

    def menu(self, letter: str, heading: str) -> None:
        """Open an entry of the menu by `g` and its letter."""
        self.press("g", letter)
        self.at(heading)

    def at(self, heading: str) -> None:
        """Wait for the page with this heading."""
        self.page.get_by_role("heading", level=1, name=heading, exact=True).wait_for()

    def tab_to(self, target: Locator) -> None:
        """Press Tab until *target* has the focus."""
        target.wait_for()
        if self.page.evaluate("document.activeElement === document.body"):
            self.press("Tab", "Enter")  # the link that skips to the content
        if not self._focused("Tab", target):
            message = f"no Tab reaches {target}"
            raise AssertionError(message)

    def _focused(self, key: str, target: Locator) -> bool:
        """Press *key* until *target* has the focus; return whether it came to have it."""
        element = target.element_handle()
        for _ in range(TABS_MOST):
            if element.evaluate("each => each === document.activeElement"):
                return True
            self.press(key)
        return False

    def row(self, name: str) -> None:
        """Press `j` until the row whose link has this name is focused, and open it."""
        target = self.page.get_by_role("main").get_by_role("link", name=name, exact=True).first
        target.wait_for()
        if not self._focused("j", target):
            message = f"no j reaches {name}"
            raise AssertionError(message)
        self.press("Enter")

    def follow(self, name: str) -> None:
        """Tab to a link or a button that opens something, and press Enter."""
        main = self.page.get_by_role("main")
        found = main.get_by_role("link", name=name, exact=True).or_(
            main.get_by_role("button", name=name, exact=True)
        )
        self.tab_to(found.first)
        self.press("Enter")

    def write(self, target: Locator, text: str) -> None:
        """Tab to a field, and type *text* in place of what it has."""
        self.tab_to(target)
        self.press("ControlOrMeta+a")
        self.page.keyboard.type(text)
