"""What runs of agents did, as `/metrics` tells it."""

import anyio
from stepping import Stepping

from holdfast.doors.http.runtime_metrics import runtime_lines
from holdfast.runtime.counts import counts


def told() -> dict[str, float]:
    lines = [line.rpartition(" ") for line in runtime_lines() if not line.startswith("#")]
    return {name.removeprefix("holdfast_runtime_"): float(number) for name, _, number in lines}


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
