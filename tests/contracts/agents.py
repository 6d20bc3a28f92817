"""What holds for agents and environments: stored and echoed, nothing interpreted."""

from collections.abc import Mapping
from typing import Any

import pytest

from holdfast.ground.errors import Conflict, NotFound
from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock

BODY: Mapping[str, Any] = {
    "name": "Coder",
    "model": "claude-x",
    "system": "Be brief.",
    "tools": [{"type": "custom", "name": "look", "input_schema": {"type": "object"}}],
    "metadata": {"a": "1"},
}


class AgentsContract:
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_a_new_agent_is_echoed_as_version_1(self, hf: Holdfast) -> None:
        agent = hf.agents.create(dict(BODY))

        assert agent["id"].startswith("agent_")
        assert (agent["type"], agent["version"], agent["archived_at"]) == ("agent", 1, None)
        assert {key: agent[key] for key in ("name", "system", "metadata")} == {
            key: BODY[key] for key in ("name", "system", "metadata")
        }
        assert agent["tools"] == BODY["tools"]

    def test_what_was_created_can_be_retrieved(self, hf: Holdfast) -> None:
        agent = hf.agents.create(dict(BODY))

        assert hf.agents.retrieve(agent["id"]) == agent

    def test_each_change_is_a_new_version(self, hf: Holdfast, clock: FrozenClock) -> None:
        agent = hf.agents.create(dict(BODY))
        clock.tick()

        changed = hf.agents.update(agent["id"], {"version": 1, "name": "Writer"})

        assert (changed["version"], changed["name"]) == (2, "Writer")
        assert changed["system"] == "Be brief."
        assert changed["created_at"] == agent["created_at"]
        assert changed["updated_at"] > agent["updated_at"]
        assert hf.agents.retrieve(agent["id"]) == changed

    def test_an_update_of_another_version_than_the_current_is_a_conflict(
        self, hf: Holdfast
    ) -> None:
        agent = hf.agents.create(dict(BODY))

        with pytest.raises(Conflict):
            hf.agents.update(agent["id"], {"version": 7, "name": "Writer"})

        assert hf.agents.retrieve(agent["id"]) == agent

    def test_versions_tell_what_the_agent_was(self, hf: Holdfast) -> None:
        agent = hf.agents.create(dict(BODY))
        hf.agents.update(agent["id"], {"version": 1, "name": "Writer"})

        versions = {each["version"]: each["name"] for each in hf.agents.versions(agent["id"])}

        assert versions == {1: "Coder", 2: "Writer"}

    def test_the_newest_is_listed_first(self, hf: Holdfast) -> None:
        ids = [hf.agents.create(dict(BODY))["id"] for _ in range(3)]

        assert [each["id"] for each in hf.agents.list()] == ids[::-1]

    def test_an_archived_agent_says_when(self, hf: Holdfast) -> None:
        agent = hf.agents.create(dict(BODY))

        archived = hf.agents.archive(agent["id"])

        assert archived["archived_at"] is not None
        assert hf.agents.archive(agent["id"]) == archived

    @pytest.mark.parametrize("id", ["agent_" + "0" * 24, "agent_short", "nonsense"])
    def test_an_unknown_agent_is_not_found(self, hf: Holdfast, id: str) -> None:
        with pytest.raises(NotFound):
            hf.agents.retrieve(id)
        with pytest.raises(NotFound):
            hf.agents.update(id, {"version": 1, "name": "Writer"})
        with pytest.raises(NotFound):
            hf.agents.archive(id)


class EnvironmentsContract:
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_a_new_environment_is_echoed(self, hf: Holdfast) -> None:
        environment = hf.environments.create({"name": "Laptop", "description": "Ada's"})

        assert environment["id"].startswith("env_")
        assert (environment["type"], environment["name"]) == ("environment", "Laptop")
        assert environment["description"] == "Ada's"
        assert hf.environments.retrieve(environment["id"]) == environment

    def test_an_update_changes_what_is_given(self, hf: Holdfast) -> None:
        environment = hf.environments.create({"name": "Laptop", "description": "Ada's"})

        changed = hf.environments.update(environment["id"], {"name": "Desktop"})

        assert (changed["name"], changed["description"]) == ("Desktop", "Ada's")
        assert hf.environments.retrieve(environment["id"]) == changed

    def test_environments_are_listed_and_archived(self, hf: Holdfast) -> None:
        environment = hf.environments.create({"name": "Laptop"})

        assert [each["id"] for each in hf.environments.list()] == [environment["id"]]
        assert hf.environments.archive(environment["id"])["archived_at"] is not None

    def test_an_unknown_environment_is_not_found(self, hf: Holdfast) -> None:
        with pytest.raises(NotFound):
            hf.environments.retrieve("env_" + "0" * 24)
