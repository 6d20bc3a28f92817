"""Memories that wait, so that a test can cancel a write that has begun; bytes in files."""

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from holdfast import LongTermMemory
from holdfast.doors.adapters.blocks import UserMemories
from holdfast.library.holdfast import Holdfast

WAIT = 60


class HeldMemories(UserMemories):
    """Memories that wait, each time one is opened, until they are released."""

    def __init__(self, hf: Holdfast, namespace: str = "chat") -> None:
        super().__init__(hf, user="ada", namespace=namespace)
        self._begun, self._released = threading.Event(), threading.Event()

    def longterm(self, user: str, namespace: str | None = None) -> LongTermMemory | None:
        self._begun.set()
        assert self._released.wait(WAIT)
        return super().longterm(user, namespace)

    async def cancel(self, work: Coroutine[Any, Any, Any]) -> None:
        """Cancel *work* once it waits here, and release it; it must end only then."""
        working = asyncio.ensure_future(work)
        assert await asyncio.to_thread(self._begun.wait, WAIT)
        for _ in range(2):  # cancelled again, it still waits
            working.cancel()
            await asyncio.sleep(0)
            assert not working.done()
        self._released.set()
        with pytest.raises(asyncio.CancelledError):
            await working


def holding(folder: Path, mark: bytes) -> list[str]:
    """Return the files in *folder* that hold *mark*."""
    return [each.name for each in folder.iterdir() if mark in each.read_bytes()]
