"""Metrics of a server: every family from the start, and what runs of agents count."""

import re
import subprocess
import sys

import anyio
import pytest
from doors.http.asking import Asker
from runtime.networks.played import agent, network
from runtime.plans.workers import Workers, step, task
from stepping import Stepping

from holdfast.ground.errors import TaskFailed
from holdfast.ground.json_values import JSON
from holdfast.ground.metrics import REGISTRY
from holdfast.runtime import TaskExecutor
from holdfast.testing.scripted import call


def taken() -> dict[str, float]:
    numbers = REGISTRY.flat()
    return {name.partition("_")[2]: numbers[name] for name in numbers}


def test_steps_and_tokens_are_counted() -> None:
    before = taken()

    anyio.run(Stepping(["Three."]).executor.run)
    anyio.run(Stepping([OSError("no route")]).events)

    after = taken()
    rise = {name: after[name] - before.get(name, 0) for name in after}
    assert rise['steps_total{state="completed",reason=""}'] == 1
    assert rise['steps_total{state="failed",reason="model_error"}'] == 1
    assert rise['tokens_total{direction="output"}'] > 0
    assert rise["step_seconds_count"] == rise["step_iterations_count"] == 2
    assert rise['step_iterations_bucket{le="1"}'] == 2
    assert after["slots_waiting"] == 0


def test_a_new_process_has_every_metric_from_the_start(ask: Asker) -> None:
    here = ask.get("/metrics").body.decode()

    program = "from holdfast.doors.http.metrics import Metrics; print(Metrics(()).text({}))"
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, capture_output=True, check=True, text=True)

    declared = families(run.stdout)
    assert len(declared) == len(set(declared)) > 40
    assert set(declared) == {each for each in families(here) if f"# HELP {each} " in here}


def families(text: str) -> list[str]:
    return re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)


def broken() -> str:
    raise ValueError("no")


def test_runs_of_networks_are_counted() -> None:
    before = taken()
    ada = agent("ada", [call("broken"), "Done."], tools=[broken])

    network(ada, name="metered").run_sync("Go.")

    after = taken()
    rise = {name: after[name] - before.get(name, 0) for name in after}
    assert rise['runs_total{network="metered",status="completed",stop_reason="done"}'] == 1
    assert rise['agent_calls_total{agent="ada"}'] == 1
    assert rise['tool_errors_total{kind="raised"}'] == 1
    assert (rise["router_calls_total"], rise["run_seconds_count"]) == (2, 1)
    assert rise["event_errors_total"] == rise["omitted_messages_total"] == 0


def test_a_step_over_a_list_is_counted_beside_its_items() -> None:
    before, workers = taken(), Workers()
    process = step("each", "list", mode="process")

    def run(items: JSON) -> None:
        TaskExecutor(
            task=task("t", process), context=workers.context(), inputs={"list": items}
        ).run_sync()

    run([1, 2])
    with pytest.raises(TaskFailed):
        run("no list")

    after = taken()
    rise = {name: after[name] - before[name] for name in after}
    assert rise['steps_total{state="completed",reason=""}'] == 3
    assert rise['steps_total{state="failed",reason="not_a_list"}'] == 1
    assert (rise["step_seconds_count"], rise["step_iterations_count"]) == (4, 2)
