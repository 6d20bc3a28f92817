"""The agents of one network, in their order and by their names."""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from holdfast.ground.errors import AgentNameTaken, InvalidInput
from holdfast.runtime.inference.agent import Agent

AgentOrName: TypeAlias = Agent | str


class AgentRoster:
    """Agents with names that differ: iterated in their order, looked up by name or place.

    >>> from holdfast.runtime import Agent
    >>> agents = Agents([Agent("ada", instructions=""), Agent("bob", instructions="")])
    >>> agents["bob"].name, agents.names, "eve" in agents
    ('bob', ('ada', 'bob'), False)
    """

    def __init__(self, agents: Iterable[Agent]) -> None:
        self._by_name: dict[str, Agent] = {}
        for agent in agents:
            if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance] - a user's
                raise InvalidInput("agents", "must hold agents", given=agent)
            if agent.name in self._by_name:
                raise AgentNameTaken(agent.name)
            self._by_name[agent.name] = agent

    @property
    def names(self) -> tuple[str, ...]:
        """Their names, in their order."""
        return tuple(self._by_name)

    def get(self, name: str) -> Agent | None:
        """Return the agent of that name, or None."""
        return self._by_name.get(name)

    def __getitem__(self, name: str | int) -> Agent:
        return list(self)[name] if isinstance(name, int) else self._by_name[name]

    def __contains__(self, agent: object) -> bool:
        if isinstance(agent, Agent):
            return self._by_name.get(agent.name) is agent
        return agent in self._by_name

    def __iter__(self) -> Iterator[Agent]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def __repr__(self) -> str:
        return f"Agents({', '.join(self.names)})"
