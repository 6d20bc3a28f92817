"""Runs on an event loop: attached, followed while they last, and looked into."""

from pathlib import Path

import pytest

import holdfast
from holdfast import RunMemory

pytestmark = pytest.mark.anyio


async def test_a_run_is_followed_while_it_lasts(sqlite_file: Path) -> None:
    memory = RunMemory()
    async with await holdfast.aio.open(sqlite_file) as hf:
        over = await hf.runs.attach(memory, name="research")
        memory.set("shared:a", 1)
        told: list[object] = []
        async for event in await hf.runs.follow(memory.run_id):
            told.append(event.data["key"])
            if len(told) == 1:
                memory.set("shared:b", 2)
                over("failed")

        assert told == ["shared:a", "shared:b"]
        assert (await hf.runs.retrieve(memory.run_id)).state == "failed"
        entries = await hf.runs.entries(memory.run_id)
        assert [entry.key async for entry in entries.all()] == ["shared:b", "shared:a"]
        assert (await hf.runs.entry(memory.run_id, "shared:b")).value == 2
