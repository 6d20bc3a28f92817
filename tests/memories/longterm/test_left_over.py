"""What a handle that closed left half done, as a server finds it, on both engines."""

import pytest
from contracts.longterm_items import memory_of

import holdfast
from holdfast.ground.clock import to_microseconds
from holdfast.memories.longterm.background.schedule import LeftOver, left_over
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.serving import new_workspace


def test_work_that_nobody_sees_to_is_told_with_the_models_it_waits_for(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_BASE_URL", "http://127.0.0.1:1/v1")
    clock, workspace = FrozenClock(), new_workspace()
    with holdfast.open(target, workspace=workspace, clock=clock) as hf:
        ltm = memory_of(hf, "ada", embedder=False, extractor="ollama:away")
        ltm.remember_conversation([{"role": "user", "content": "I planted a tree"}], thread_id="t")
    clock.tick(60)

    with holdfast.open(target, workspace=workspace, clock=clock) as hf:
        found = left_over(hf.engine, to_microseconds(clock.now()))

    assert [each for each in found if each.workspace == workspace] == [
        LeftOver(
            workspace=workspace,
            user_id="ada",
            namespace="chat",
            workspace_id="",
            vector_provider=None,
            extractor=None,
            miner="ollama:away",
            embedder=None,
        )
    ]


def test_what_was_queued_a_moment_ago_is_not_left_over(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_BASE_URL", "http://127.0.0.1:1/v1")
    clock, workspace = FrozenClock(), new_workspace()
    with holdfast.open(target, workspace=workspace, clock=clock) as hf:
        ltm = memory_of(hf, "ada", embedder=False, extractor="ollama:away")
        ltm.remember_conversation([{"role": "user", "content": "I planted a tree"}], thread_id="t")

        found = left_over(hf.engine, to_microseconds(clock.now()))

    assert workspace not in {each.workspace for each in found}
