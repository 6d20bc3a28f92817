"""A graph of nodes, each of which makes outputs of inputs, and of edges from one to the next."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from holdfast.runtime.agent_step import AgentStepNode
from holdfast.runtime.concurrency import awaited
from holdfast.runtime.context import Context
from holdfast.runtime.plans.checks import problems_of_steps
from holdfast.runtime.plans.cycles import cycles
from holdfast.runtime.plans.problem import PlanProblem
from holdfast.runtime.plans.shapes import Step, Task

Values: TypeAlias = Mapping[str, Any]
"""Inputs or outputs of a node, by name."""


class Node(Protocol):
    """What a workflow is made of; `id` is its own in the workflow."""

    @property
    def id(self) -> str:
        """What it is called."""
        ...

    async def process(self, inputs: dict[str, Any], context: Context) -> Values:
        """Return its outputs, by name; whatever it raises is its failure."""
        ...


class Edge(Struct, frozen=True):
    """Leads the *output* of the node *source* to the *input* of the node *target*."""

    source: str
    output: str
    target: str
    input: str


@dataclass(frozen=True)
class FunctionNode:
    """A node whose outputs *function* returns: of its inputs and the context, plain or awaitable.

    A plain one is called on the event loop, so it must not wait.
    """

    id: str
    function: Callable[[dict[str, Any], Context], Values | Awaitable[Values]]

    async def process(self, inputs: dict[str, Any], context: Context) -> Values:
        """Return what the function returns."""
        return await awaited(self.function(inputs, context))


@dataclass(frozen=True)
class Workflow:
    """*nodes*, and the *edges* between them.

    >>> double = FunctionNode("double", lambda inputs, context: {"n": inputs["n"] * 2})
    >>> Workflow([double], [Edge("double", "n", "double", "n")]).problems()[0].message
    'leads back to its own node'
    """

    nodes: Sequence[Node]
    edges: Sequence[Edge] = ()

    def needs(self) -> dict[str, list[str]]:
        """Return what each node waits for."""
        sources = {node.id: list[str]() for node in self.nodes}
        for edge in self.edges:
            if edge.target in sources:
                sources[edge.target].append(edge.source)
        return sources

    def problems(self) -> list[PlanProblem]:
        """Return all that keeps it from being run."""
        return [*self._of_nodes(), *self._of_edges(), *self._of_cycles()]

    def _of_nodes(self) -> Iterator[PlanProblem]:
        if not self.nodes:
            yield PlanProblem("workflow", "no_nodes", "has no nodes")
        seen: set[str] = set()
        for number, node in enumerate(self.nodes):
            where = f"workflow.nodes[{number}]"
            if node.id in seen:
                yield PlanProblem(where, "duplicate", f"another node has the id {node.id!r}")
            seen.add(node.id)
            # A node is named, and told what to do, by the rules of a step.
            is_step = isinstance(node, AgentStepNode)
            step = node.step() if is_step else Step(id=node.id, instructions="A function.")
            alone = Task(id="workflow", title="workflow", steps=[step])
            for problem in problems_of_steps(alone, "", inputs=frozenset()):
                place = problem.where.removeprefix(".steps[0]")
                yield PlanProblem(where + place, problem.code, problem.message)

    def _of_edges(self) -> Iterator[PlanProblem]:
        known = {node.id for node in self.nodes}
        taken: set[tuple[str, str]] = set()
        for number, edge in enumerate(self.edges):
            where = f"workflow.edges[{number}]"
            for end in dict.fromkeys((edge.source, edge.target)):
                if end not in known:
                    yield PlanProblem(where, "unknown_node", f"there is no node {end!r}")
            if edge.source == edge.target:
                yield PlanProblem(where, "self", "leads back to its own node")
            if (edge.target, edge.input) in taken:
                told = f"{edge.target}.{edge.input} has an edge already"
                yield PlanProblem(where, "two_edges", told)
            taken.add((edge.target, edge.input))

    def _of_cycles(self) -> Iterator[PlanProblem]:
        for cycle in cycles(self.needs()):
            told = f"need one another: {' needs '.join(cycle)}"
            yield PlanProblem("workflow.edges", "cycle", told)
