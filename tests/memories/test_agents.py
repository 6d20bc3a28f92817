from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast.ground.errors import Conflict, InvalidInput, NotFound
from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock

AGENT = {"name": "A", "model": "m"}


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def hf(clock: FrozenClock) -> Iterator[Holdfast]:
    with holdfast.open(":memory:", clock=clock) as opened:
        yield opened


class TestAgents:
    def test_a_new_agent_has_every_key(self, hf: Holdfast) -> None:
        agent = hf.agents.create({**AGENT, "metadata": {"a": "1"}, "tools": [{"type": "x"}]})

        assert agent.pop("id").startswith("agent_")
        assert agent == {
            "type": "agent",
            "version": 1,
            "name": "A",
            "description": None,
            "model": {"id": "m", "effort": None, "inference_geo": None, "speed": None},
            "system": None,
            "tools": [{"type": "x"}],
            "mcp_servers": [],
            "skills": [],
            "multiagent": None,
            "execution_identity": {"type": "service_account"},
            "metadata": {"a": "1"},
            "created_at": "2026-01-01T00:00:00.000000Z",
            "updated_at": "2026-01-01T00:00:00.000000Z",
            "archived_at": None,
        }

    def test_what_was_created_can_be_retrieved(self, hf: Holdfast) -> None:
        agent = hf.agents.create({"name": "A", "model": {"id": "m", "effort": "low"}})

        assert agent["model"]["effort"] == {"type": "low"}
        assert hf.agents.retrieve(agent["id"]) == agent
        with pytest.raises(NotFound):
            hf.acting(workspace="elsewhere").agents.retrieve(agent["id"])

    @pytest.mark.parametrize(
        ("field", "body"),
        [
            ("name", {"model": "m"}),
            ("name", {"name": "", "model": "m"}),
            ("model", {"name": "A"}),
            ("model.id", {"name": "A", "model": {}}),
            ("tools", {**AGENT, "tools": "all"}),
            ("tools[0]", {**AGENT, "tools": ["bash"]}),
            ("system", {**AGENT, "system": 1}),
            ("mood", {**AGENT, "mood": "good"}),
            ("metadata", {**AGENT, "metadata": ["a"]}),
        ],
    )
    def test_what_is_wrong_is_named(self, hf: Holdfast, field: str, body: Any) -> None:
        with pytest.raises(InvalidInput) as caught:
            hf.agents.create(body)

        assert caught.value.field == field

    def test_each_change_is_a_version_and_the_old_ones_stay(
        self, hf: Holdfast, clock: FrozenClock
    ) -> None:
        first = hf.agents.create({**AGENT, "system": "Be kind", "metadata": {"a": "1"}})
        clock.tick()
        second = hf.agents.update(first["id"], {"system": None, "metadata": {"b": "2"}})
        third = hf.agents.update(first["id"], {"name": "C", "version": 2})

        assert (second["version"], second["system"]) == (2, None)
        assert second["metadata"] == {"a": "1", "b": "2"}
        assert second["updated_at"] > second["created_at"] == first["created_at"]
        assert list(hf.agents.versions(first["id"])) == [third, second, first]
        assert list(hf.agents.versions(first["id"], limit=1).all()) == [third, second, first]
        assert hf.agents.retrieve(first["id"], version=1) == first

    def test_a_change_of_nothing_is_no_version(self, hf: Holdfast) -> None:
        agent = hf.agents.create(AGENT)

        assert hf.agents.update(agent["id"], {"name": "A", "version": 1}) == agent
        assert list(hf.agents.versions(agent["id"])) == [agent]

    def test_a_change_of_another_version_than_the_present_one_loses(self, hf: Holdfast) -> None:
        agent = hf.agents.create(AGENT)
        hf.agents.update(agent["id"], {"name": "B"})

        with pytest.raises(Conflict, match="at version 2, not 1"):
            hf.agents.update(agent["id"], {"name": "C", "version": 1})

    def test_archived_agents_are_listed_when_asked_for(
        self, hf: Holdfast, clock: FrozenClock
    ) -> None:
        kept, old = hf.agents.create(AGENT), hf.agents.create(AGENT)
        hf.agents.update(old["id"], {"name": "B"})
        clock.tick()
        archived = hf.agents.archive(old["id"])
        clock.tick()

        assert archived["archived_at"] == archived["updated_at"] > archived["created_at"]
        assert archived["version"] == 2
        assert hf.agents.archive(old["id"]) == hf.agents.retrieve(old["id"]) == archived
        assert list(hf.agents.list()) == [kept]
        assert list(hf.agents.list(include_archived=True, limit=1).all()) == [archived, kept]


class TestEnvironments:
    def test_a_new_environment_has_every_key(self, hf: Holdfast) -> None:
        environment = hf.environments.create({"name": "E", "config": {"type": "cloud"}})

        assert environment.pop("id").startswith("env_")
        assert environment == {
            "type": "environment",
            "name": "E",
            "description": None,
            "config": {
                "type": "cloud",
                "networking": {"type": "unrestricted"},
                "packages": {
                    "type": "packages",
                    **{name: [] for name in ("apt", "cargo", "gem", "go", "npm", "pip")},
                },
            },
            "metadata": {},
            "scope": None,
            "created_at": "2026-01-01T00:00:00.000000Z",
            "updated_at": "2026-01-01T00:00:00.000000Z",
            "archived_at": None,
        }

    def test_nothing_described_is_something_of_ones_own(self, hf: Holdfast) -> None:
        assert hf.environments.create({"name": "E"})["config"] == {"type": "self_hosted"}

    @pytest.mark.parametrize(
        ("field", "body"),
        [
            ("name", {}),
            ("config", {"name": "E", "config": "cloud"}),
            ("config.type", {"name": "E", "config": {}}),
            ("config.packages", {"name": "E", "config": {"type": "cloud", "packages": []}}),
            ("scope", {"name": "E", "scope": "world"}),
            ("mood", {"name": "E", "mood": "good"}),
        ],
    )
    def test_what_is_wrong_is_named(self, hf: Holdfast, field: str, body: Any) -> None:
        with pytest.raises(InvalidInput) as caught:
            hf.environments.create(body)

        assert caught.value.field == field

    def test_what_a_change_leaves_out_stays(self, hf: Holdfast, clock: FrozenClock) -> None:
        config = {"type": "cloud", "packages": {"pip": ["numpy"]}}
        made = hf.environments.create({"name": "E", "description": "D", "config": config})

        clock.tick()
        changed = hf.environments.update(
            made["id"],
            {"description": None, "config": {"type": "cloud", "packages": {"apt": ["git"]}}},
        )

        assert (changed["name"], changed["description"]) == ("E", None)
        assert changed["config"]["packages"]["pip"] == ["numpy"]
        assert changed["config"]["packages"]["apt"] == ["git"]
        assert changed["updated_at"] > made["updated_at"]
        assert hf.environments.update(made["id"], {"name": "E"}) == changed
        assert hf.environments.retrieve(made["id"]) == changed

    def test_archived_environments_are_listed_when_asked_for(self, hf: Holdfast) -> None:
        kept, old = hf.environments.create({"name": "E"}), hf.environments.create({"name": "F"})

        archived = hf.environments.archive(old["id"])

        assert hf.environments.archive(old["id"]) == archived
        assert list(hf.environments.list()) == [kept]
        assert list(hf.environments.list(include_archived=True, limit=1).all()) == [archived, kept]
        with pytest.raises(NotFound, match="a different kind of thing, agent"):
            hf.environments.retrieve("agent_" + "0" * 24)
