"""What runs of agents did, as `/metrics` tells it."""

from collections.abc import Iterable

import anyio
import pytest
from runtime.networks.played import agent, network
from runtime.plans.workers import Workers, step, task
from stepping import Stepping

from holdfast.doors.http.runtime_metrics import network_run_lines, runtime_lines
from holdfast.ground.errors import TaskFailed
from holdfast.ground.json_values import JSON
from holdfast.runtime import TaskExecutor
from holdfast.runtime.metrics import counts
from holdfast.testing.scripted import call


def told(lines: Iterable[str] | None = None) -> dict[str, float]:
    given = runtime_lines() if lines is None else lines
    parts = [line.rpartition(" ") for line in given if not line.startswith("#")]
    return {name.split("_", 2)[2]: float(number) for name, _, number in parts}


def test_steps_and_tokens_are_counted() -> None:
    before = told()

    anyio.run(Stepping(["Three."]).executor.run)
    anyio.run(Stepping([OSError("no route")]).events)

    after = told()
    rise = {name: after[name] - before.get(name, 0) for name in after}
    assert rise['steps_total{state="completed",reason=""}'] == 1
    assert rise['steps_total{state="failed",reason="model_error"}'] == 1
    assert rise['tokens_total{direction="output"}'] > 0
    assert rise["step_seconds_count"] == rise["step_iterations_count"] == 2
    assert rise['step_iterations_bucket{le="1"}'] == 2
    assert after["slots_waiting"] == 0


def test_each_number_is_told_once_with_what_it_is() -> None:
    counts.turn_taken('the "pilot"')

    lines = list(runtime_lines())

    families = [line for line in lines if line.startswith("# TYPE")]
    assert len(families) == len(set(families)) == 6
    assert any('team_turns_total{agent="the \\"pilot\\""} ' in line for line in lines)


def broken() -> str:
    raise ValueError("no")


def test_runs_of_networks_are_counted() -> None:
    before = told(network_run_lines())
    ada = agent("ada", [call("broken"), "Done."], tools=[broken])

    network(ada, name="metered").run_sync("Go.")

    after = told(network_run_lines())
    rise = {name: after[name] - before.get(name, 0) for name in after}
    assert rise['runs_total{network="metered",status="completed",stop_reason="done"}'] == 1
    assert rise['agent_calls_total{agent="ada"}'] == 1
    assert rise['tool_errors_total{kind="raised"}'] == 1
    assert (rise["router_calls_total"], rise["run_seconds_count"]) == (2, 1)
    assert rise["event_errors_total"] == rise["omitted_messages_total"] == 0
    families = [line for line in network_run_lines() if line.startswith("# TYPE")]
    assert len(families) == len(set(families))


def test_a_step_over_a_list_is_counted_beside_its_items() -> None:
    before, workers = told(), Workers()
    process = step("each", "list", mode="process")

    def run(items: JSON) -> None:
        TaskExecutor(
            task=task("t", process), context=workers.context(), inputs={"list": items}
        ).run_sync()

    run([1, 2])
    with pytest.raises(TaskFailed):
        run("no list")

    after = told()
    rise = {name: after[name] - before[name] for name in after}
    assert rise['steps_total{state="completed",reason=""}'] == 3
    assert rise['steps_total{state="failed",reason="not_a_list"}'] == 1
    assert (rise["step_seconds_count"], rise["step_iterations_count"]) == (4, 2)
