"""The networks of agents that a server runs, and those of their runs that go on in this process."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast.ground.errors import Conflict, InvalidInput, NotFound
from holdfast.library.holdfast import Holdfast

if TYPE_CHECKING:
    from holdfast.runtime import Network, NetworkRun, RunEvent, UserMessage

END_MOST = 5.0
"""Seconds that runs have to end, once the server was told to stop."""

_encode = msgspec.json.Encoder().encode


class Going:
    """A run that goes on, and the events of it so far, as a stream has them."""

    def __init__(self) -> None:
        self.frames: list[tuple[str, bytes]] = []
        self.over = False
        self.run: NetworkRun | None = None
        self.watcher: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    def hear(self, event: "RunEvent") -> None:
        """Keep *event* for whoever follows."""
        self.frames.append((event.type, _encode(event.to_dict())))
        self._wake()

    def end(self) -> None:
        """Take note that nothing more will come."""
        self.over = True
        self._wake()

    async def news(self, most: float) -> None:
        """Wait until something happens, *most* seconds at most."""
        try:
            await asyncio.wait_for(self._news.wait(), most)
        except TimeoutError:
            return

    async def waited(self) -> "NetworkRun":
        """Return the run once it has ended; what kept it from beginning is raised."""
        if self.run is None:
            raise NotFound("run", "")
        return await self.run.wait()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


class Served:
    """Networks by name, and their runs in this process by workspace and id."""

    def __init__(self) -> None:
        self.networks: dict[str, Network] = {}
        self._going: dict[tuple[str, str], Going] = {}

    def network(self, name: str) -> "Network":
        """Return the network of that name; NotFound if none is served."""
        found = self.networks.get(name)
        if found is None:
            raise NotFound("network", name)
        return found

    def start(
        self, network: "Network", hf: Holdfast, message: "UserMessage", options: Mapping[str, Any]
    ) -> Going:
        """Return a run of *network* that *message* begins, in the workspace of *hf*."""
        from holdfast.runtime import EngineHistory

        wanted = options.get("run_id")
        if wanted and (hf.workspace, wanted) in self._going:
            raise Conflict(
                f"The run {wanted} is already active.",
                reason="running",
                next="Follow its events, or give another run_id.",
            )
        going = Going()
        history = network.history or EngineHistory(hf)
        run = network.start(message, history=history, raises=False, on_event=going.hear, **options)
        going.run = run
        key = (hf.workspace, run.id)
        self._going[key] = going

        async def end() -> None:
            try:
                await asyncio.gather(run.wait(), return_exceptions=True)
            finally:
                self._going.pop(key, None)
                going.end()

        going.watcher = asyncio.create_task(end())
        return going

    def going(self, workspace: str, run_id: str) -> Going | None:
        """Return the run if it goes on in this process, else None."""
        return self._going.get((workspace, run_id))

    async def stop(self) -> None:
        """Cancel the runs that go on, and wait for their ends to be kept."""
        runs = [going for going in self._going.values() if going.run is not None]
        for going in runs:
            cast("NetworkRun", going.run).cancel("the server stops")
        ends = asyncio.gather(*(going.waited() for going in runs), return_exceptions=True)
        await asyncio.wait([ends], timeout=END_MOST)


async def followed(
    going: Going, after: int, beat: float
) -> AsyncGenerator[tuple[int, str, bytes] | None]:
    """Give the events of *going* past the number *after*, None where *beat* seconds were quiet."""
    at = after + 1
    while True:
        while at < len(going.frames):
            type, told = going.frames[at]
            yield at, type, told
            at += 1
        if going.over:
            return
        before = len(going.frames)
        await going.news(beat)
        if len(going.frames) == before and not going.over:
            yield None


def load(names: Iterable[str]) -> dict[str, "Network"]:
    """Return the networks that *names*, each as `package.module:attribute`, stand for, by name.

    InvalidInput for what cannot be found or is no network; MissingExtra without agents.
    """
    found: dict[str, Network] = {}
    for name in names:
        for network in _loaded(name):
            if network.name in found:
                raise InvalidInput("networks", f"two are named {network.name}", given=name)
            found[network.name] = network
    return found


def _loaded(name: str) -> "Iterable[Network]":
    from holdfast.runtime import Network

    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise InvalidInput("networks", "must be package.module:attribute", given=name)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        given = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InvalidInput("networks", f"cannot be found: {error}", given=name) from error
    every = list(cast("dict[str, object]", given).values()) if isinstance(given, dict) else [given]
    for each in every:
        if not isinstance(each, Network):
            raise InvalidInput("networks", "must be a Network or a dict of them", given=name)
    return cast("list[Network]", every)
