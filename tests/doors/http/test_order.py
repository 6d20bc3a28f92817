"""Which of two faults is told: the spec's order, one pair after the other."""

import pytest
from doors.http.asking import Asker

from holdfast.library.holdfast import Holdfast

BAD: dict[str, object] = {"path": 1, "content": 1, "unknown": 1}


def test_an_unknown_store_is_told_before_a_bad_body_or_query(ask: Asker) -> None:
    for target in ("memories", "memories?view=x", "memories/mem_1"):
        assert ask.post(f"/v1/memory_stores/memstore_1/{target}", BAD).status == 404
    assert ask.get("/v1/memory_stores/memstore_1/memories?limit=0").status == 404
    assert ask.get("/v1/memory_stores/memstore_1/memory_versions?view=x").status == 404
    assert ask.get("/api/memory_stores/memstore_1/search").status == 404
    assert ask.post("/api/memory_stores/memstore_1/rename", BAD).status == 404


def test_an_unknown_memory_is_told_before_a_bad_body(ask: Asker, store: str) -> None:
    said = ask.post(f"/v1/memory_stores/{store}/memories/mem_1", BAD)

    assert said.status == 404


def test_a_bad_body_is_told_before_the_archive(ask: Asker, hf: Holdfast, store: str) -> None:
    hf.memory_stores.archive(store)
    target = f"/v1/memory_stores/{store}/memories"

    bad, good = ask.post(target, BAD), ask.post(target, {"path": "/b.md", "content": ""})

    assert "archived" not in bad.error["message"]
    assert "archived" in good.error["message"]


def test_no_change_is_told_before_a_failed_precondition(
    ask: Asker, store: str, memory: str
) -> None:
    stale = {"type": "content_sha256", "content_sha256": "0" * 64}
    target = f"/v1/memory_stores/{store}/memories/{memory}"

    same = ask.post(target, {"content": "tabs", "precondition": stale})
    other = ask.post(target, {"content": "spaces", "precondition": stale})

    assert (same.status, other.status) == (200, 409)


def test_a_failed_precondition_is_told_before_a_taken_path(
    ask: Asker, hf: Holdfast, store: str, memory: str
) -> None:
    hf.memory_stores.memories.create(store, path="/b.md", content="")
    stale = {"type": "content_sha256", "content_sha256": "0" * 64}

    said = ask.post(
        f"/v1/memory_stores/{store}/memories/{memory}", {"path": "/b.md", "precondition": stale}
    )

    assert said.error["type"] == "memory_precondition_failed_error"


def test_a_missing_credential_is_told_before_an_unknown_store(ask: Asker, hf: Holdfast) -> None:
    hf.keys.create("k")

    assert ask.post("/v1/memory_stores/memstore_1/memories", BAD).status == 401


def test_too_small_a_scope_is_told_before_an_unknown_store(ask: Asker, hf: Holdfast) -> None:
    reader = hf.keys.create("k", scope="read").secret

    said = ask.as_(x_api_key=str(reader)).post("/v1/memory_stores/memstore_1/memories", BAD)

    assert said.status == 403


@pytest.mark.parametrize(
    "path", ["/v1/sessions/sesn_1", "/v1/agents/agent_1", "/v1/environments/e"]
)
def test_what_is_unknown_is_told_before_a_bad_body(ask: Asker, path: str) -> None:
    assert ask("POST", path, b"[]").status == 404
