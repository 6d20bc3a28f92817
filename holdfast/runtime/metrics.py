"""Metrics of the runs of agents, teams and networks."""

from typing import Final, get_args

from holdfast.ground.metrics import REGISTRY
from holdfast.memories.state.message import ErrorKind

_SECONDS: Final = (0.1, 0.3, 1, 3, 10, 30, 100, 300)
_FAILURES: Final = (
    "max_iterations",
    "token_budget",
    "no_answer",
    "model_error",
    "timeout",
    "rejected",
    "memory",
    "hook",
    "disabled",
    "not_a_list",
    "too_many_items",
    "items",
    "internal",
)
"""The reasons why a step fails."""

STEPS: Final = REGISTRY.counter(
    "runtime_steps_total", "Steps that ended, by how and why.", state=(), reason=()
).begin((("completed", ""), ("cancelled", ""), *(("failed", each) for each in _FAILURES)))
STEP_SECONDS: Final = REGISTRY.histogram(
    "runtime_step_seconds", "Seconds a step took, its tries together.", _SECONDS
)
STEP_ITERATIONS: Final = REGISTRY.histogram(
    "runtime_step_iterations", "Model requests a step made.", (1, 2, 3, 5, 8, 13, 20, 30)
)
TOKENS: Final = REGISTRY.counter(
    "runtime_tokens_total", "Tokens that models reported.", direction=("input", "output")
)
WAITING: Final = REGISTRY.gauge("runtime_slots_waiting", "Model loops that wait for a slot.")
TEAM_TURNS: Final = REGISTRY.counter(
    "runtime_team_turns_total", "Turns of agents in teams.", agent=()
)

NETWORK_RUNS: Final = REGISTRY.counter(
    "network_runs_total",
    "Runs of networks that ended, by how and why.",
    network=(),
    status=(),
    stop_reason=(),
)
AGENT_CALLS: Final = REGISTRY.counter(
    "network_agent_calls_total", "Calls of agents in networks.", agent=()
)
ROUTER_CALLS: Final = REGISTRY.counter("network_router_calls_total", "Calls of a router.")
TOOL_ERRORS: Final = REGISTRY.counter(
    "network_tool_errors_total",
    "Calls of tools that ended in an error.",
    kind=get_args(ErrorKind),
)
EVENT_ERRORS: Final = REGISTRY.counter("network_event_errors_total", "Times an on_event raised.")
OMITTED_MESSAGES: Final = REGISTRY.counter(
    "network_omitted_messages_total", "Messages that a budget left out of what an agent saw."
)
NETWORK_SECONDS: Final = REGISTRY.histogram("network_run_seconds", "Seconds a run took.", _SECONDS)
