"""The awaitable library: fresh from its source, and as good as what it crosses to."""

import ast
import asyncio
import runpy
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from threading import current_thread, main_thread

import pytest

import holdfast.aio
from holdfast.aio import AsyncHoldfast, AsyncPage
from holdfast.ground.errors import NotFound, PathTaken
from holdfast.ground.events import Event
from holdfast.ground.pages import Page
from holdfast.ground.scope import Actor
from holdfast.library.async_bridge import AsyncWalk, Crossing
from holdfast.memories.longterm.records import Turn
from holdfast.testing.serving import Server, new_workspace

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ROOT / "holdfast" / "library" / "aio.py"


class TestTheFile:
    def test_it_is_what_the_generator_writes_now(self) -> None:
        written = runpy.run_path(str(ROOT / "scripts" / "make_aio.py"))["written"]

        assert GENERATED.read_text(encoding="utf-8") == written(), "run scripts/make_aio.py"

    def test_it_says_so_and_decides_nothing(self) -> None:
        text = GENERATED.read_text(encoding="utf-8")

        assert "Generated" in text.splitlines()[0]
        deciding = ast.If | ast.IfExp | ast.Match | ast.Try | ast.While | ast.For | ast.BoolOp
        assert not [each for each in ast.walk(ast.parse(text)) if isinstance(each, deciding)]


class TestCrossing:
    def test_a_call_runs_on_another_thread_with_the_caller_s_context(self) -> None:
        asking: ContextVar[str] = ContextVar("asking")

        async def cross() -> tuple[bool, str]:
            asking.set("ada")
            return await Crossing()(lambda: (current_thread() is main_thread(), asking.get()))

        assert asyncio.run(cross()) == (False, "ada")

    def test_an_error_comes_back(self) -> None:
        def fail() -> None:
            raise NotFound("memory", "mem_1")

        with pytest.raises(NotFound):
            asyncio.run(Crossing()(fail))

    @pytest.mark.parametrize("things", [0, 1, 2, 3, 4, 7])
    def test_a_page_walks_to_the_end(self, things: int) -> None:
        def page(start: int) -> Page[int]:
            data = list(range(start, min(start + 2, things)))
            more = str(start + 2) if start + 2 < things else None
            return Page(data, more, more=lambda cursor: page(int(cursor)))

        async def walk() -> list[int]:
            return [each async for each in AsyncPage(page(0), Crossing()).all()]

        assert asyncio.run(walk()) == list(range(things))

    def test_walking_asks_for_no_page_before_it_is_needed(self) -> None:
        asked: list[str] = []

        def more(cursor: str) -> Page[int]:
            asked.append(cursor)
            return Page([3, 4], "page_3", more=more)

        async def walk() -> None:
            async for each in AsyncPage(Page([1, 2], "page_2", more=more), Crossing()).all():
                if each == 3:
                    break

        asyncio.run(walk())

        assert asked == ["page_2"]


def run(act: Callable[[AsyncHoldfast], Awaitable[None]], target: str | Path = ":memory:") -> None:
    async def whole() -> None:
        async with await holdfast.aio.open(target) as hf:
            await act(hf)

    asyncio.run(whole())


class TestWalks:
    def test_a_walk_gives_everything_in_order_and_asks_no_further_than_it_must(self) -> None:
        asked: list[int] = []

        def things() -> Iterator[int]:
            for number in range(250):
                asked.append(number)
                yield number

        async def walk(most: int) -> list[int]:
            seen: list[int] = []
            async for each in AsyncWalk(things(), Crossing()):
                seen.append(each)
                if len(seen) == most:
                    break
            return seen

        assert asyncio.run(walk(3)) == [0, 1, 2]
        assert len(asked) == AsyncWalk.STEP
        assert asyncio.run(walk(1_000)) == list(range(250))


class TestEmbedded:
    def test_a_memory_that_is_ready_at_once_needs_no_await_of_its_own(self) -> None:
        async def act(hf: AsyncHoldfast) -> None:
            await hf.durable("agent_7").set("owner", "Ada", category="core")

            found = await hf.durable("agent_7").get("owner")
            again = await (await hf.durable("agent_7")).get("owner")
            status = await hf.longterm_data("ada").status()

            assert found is not None
            assert found == again
            assert found.content == "Ada"
            assert status.turns == 0

        run(act)

    def test_long_term_memory_is_there_where_it_is_on(self) -> None:
        async def act(hf: AsyncHoldfast) -> None:
            ltm = await hf.longterm("ada", enabled=True)
            assert ltm is not None
            await ltm.remember("Prefers tabs over spaces")
            await ltm.record([Turn(role="user", text="Tabs it is")])

            found = await ltm.recall("tabs or spaces?", what="items")
            exported = [each["type"] async for each in await ltm.export()]

            assert [each.text for each in found] == ["Prefers tabs over spaces"]
            assert exported == ["turn", "item"]
            assert (await hf.longterm_data("ada").status()).turns == 1
            assert await hf.longterm("ada", enabled=False) is None

        run(act)

    def test_what_is_written_is_read(self) -> None:
        async def act(hf: AsyncHoldfast) -> None:
            store = await hf.memory_stores.create(name="Notes")
            memories = hf.memory_stores.memories

            await memories.create(store.id, path="/a.md", content="tabs")
            with pytest.raises(PathTaken):
                await memories.create(store.id, path="/a.md", content="spaces")

            found = await memories.at(store.id, "/a.md")
            assert found is not None
            assert found.content == "tabs"

        run(act)

    def test_many_at_once_all_arrive(self) -> None:
        async def act(hf: AsyncHoldfast) -> None:
            store = await hf.memory_stores.create(name="Notes")
            memories = hf.memory_stores.memories

            await asyncio.gather(
                *(memories.create(store.id, path=f"/{n:03}.md", content="x") for n in range(100))
            )

            page = await memories.list(store.id, limit=30)
            paths = [each.path async for each in page.all()]
            assert len(page) == 30
            assert paths == [f"/{n:03}.md" for n in range(100)]

        run(act)

    def test_narrowed_to_a_session_it_writes_as_the_session(self, tmp_path: Path) -> None:
        async def act(hf: AsyncHoldfast) -> None:
            store = await hf.memory_stores.create(name="Notes")
            session = await hf.sessions.create(
                agent="agent_7",
                environment_id="env_1",
                resources=[{"type": "memory_store", "memory_store_id": store.id}],
            )

            narrowed = await hf.for_session(session.id)
            memory = await narrowed.memory_stores.memories.create(
                store.id, path="/a.md", content="tabs"
            )

            version = await hf.memory_stores.memory_versions.retrieve(
                memory.memory_version_id, memory_store_id=store.id
            )
            assert version.created_by == Actor.session(session.id)
            assert narrowed.actor == Actor.session(session.id)

        run(act, tmp_path / "h.db")

    def test_events_are_heard(self) -> None:
        async def act(hf: AsyncHoldfast) -> None:
            loop, heard = asyncio.get_running_loop(), asyncio.Queue[Event]()

            def listen(event: Event) -> None:
                loop.call_soon_threadsafe(heard.put_nowait, event)

            off = await hf.events.subscribe(listen, ["store.created"])

            store = await hf.memory_stores.create(name="Notes")

            event = await asyncio.wait_for(heard.get(), 30)
            off()
            assert store.id in event.ids.values()

        run(act)


class TestOverHTTP:
    def test_a_memory_that_is_ready_at_once_needs_no_await_of_its_own(self, server: Server) -> None:
        async def whole() -> None:
            async with await holdfast.aio.open(server.url, workspace=new_workspace()) as hf:
                stored = await hf.durable("agent_7").set("owner", "Ada", category="core")

                found = await hf.durable("agent_7").get("owner")
                assert found is not None
                assert found.seq == stored.seq
                assert (await hf.longterm_data("ada").status()).turns == 0

        asyncio.run(whole())

    def test_it_is_the_same(self, server: Server) -> None:
        async def whole() -> None:
            async with await holdfast.aio.open(server.url, workspace=new_workspace()) as hf:
                store = await hf.memory_stores.create(name="Notes")
                memories = hf.memory_stores.memories
                await asyncio.gather(
                    *(memories.create(store.id, path=f"/{n}.md", content="x") for n in range(9))
                )

                page = await memories.list(store.id, limit=2)

                assert [each.path async for each in page.all()] == [f"/{n}.md" for n in range(9)]

        asyncio.run(whole())
