import pytest
from doors.http.asking import Asker

MEMORY, MANAGED = "agent-memory-2026-07-22", "managed-agents-2026-04-01"
VERSION = "2023-06-01"


@pytest.mark.parametrize("beta", [MEMORY, MANAGED, f" {MEMORY} ,", f"{MANAGED},{MANAGED}"])
def test_one_beta_opens_the_store_routes(strict: Asker, beta: str) -> None:
    asker = strict.as_(anthropic_version=VERSION, anthropic_beta=beta)

    assert asker.get("/v1/memory_stores").status == 200


@pytest.mark.parametrize("beta", ["", f"{MEMORY},{MANAGED}", f"{MEMORY},other", "other"])
def test_any_other_betas_do_not(strict: Asker, beta: str) -> None:
    said = strict.as_(anthropic_version=VERSION, anthropic_beta=beta).get("/v1/memory_stores")

    assert said.status == 400
    assert "anthropic-beta" in said.error["message"]


def test_a_version_is_wanted_of_the_contract_alone(strict: Asker) -> None:
    said = strict.as_(anthropic_beta=MEMORY).get("/v1/memory_stores")

    assert said.status == 400
    assert "anthropic-version" in said.error["message"]
    assert strict.get("/api/me").status == 200


def test_sessions_want_no_beta(strict: Asker) -> None:
    assert strict.as_(anthropic_version=VERSION).get("/v1/sessions").status == 200


def test_patch_is_a_wrong_method(strict: Asker, ask: Asker, store: str, memory: str) -> None:
    target = f"/v1/memory_stores/{store}/memories/{memory}"

    hosted, ours = strict("PATCH", target, {"content": "x"}), ask("PATCH", target, {"content": "x"})

    assert (hosted.status, hosted.headers["allow"]) == (405, "DELETE, GET, POST")
    assert ours.status == 200


def test_a_session_is_of_an_agent_and_an_environment_that_are_known(
    strict: Asker, ask: Asker
) -> None:
    agent = ask.post("/v1/agents", {"name": "a", "model": "m"}).json()["id"]
    environment = ask.post("/v1/environments", {"name": "e"}).json()["id"]
    hosted = strict.as_(anthropic_version=VERSION)

    def status(agent: str, environment: str) -> int:
        return hosted.post("/v1/sessions", {"agent": agent, "environment_id": environment}).status

    assert status("agent_1", environment) == 404
    assert status(agent, "env_1") == 404
    assert status(agent, environment) == 200


def test_a_lenient_server_wants_none_of_it(ask: Asker) -> None:
    assert ask.as_(anthropic_beta="anything").get("/v1/memory_stores").status == 200
    assert ask.post("/v1/sessions", {"agent": "a", "environment_id": "e"}).status == 200
