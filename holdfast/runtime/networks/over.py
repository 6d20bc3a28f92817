"""The end of a run, raised from wherever it is found."""

from holdfast.ground.errors import RunFailed
from holdfast.runtime.inference.run_types import RunEnd
from holdfast.runtime.networks.running import NetworkExecution


class Over(Exception):
    """The run ends, as *ending* says."""

    def __init__(self, ending: RunEnd) -> None:
        super().__init__(ending.reason)
        self.ending = ending


def cancelled(run: NetworkExecution) -> Over:
    """Return the end of *run* that somebody asked for."""
    return Over(RunEnd("cancelled", run.cancelling))


def timed_out(run: NetworkExecution, cause: BaseException | None = None) -> Over:
    """Return the end of *run*, whose time has passed."""
    seconds = run.options.timeout or 0
    return Over(RunEnd("timeout", f"it ran past its {seconds:g} s", cause or TimeoutError()))


def finished(run: NetworkExecution, reason: str = "") -> Over:
    """Return the end of *run* for *reason*, with nothing left to do."""
    return Over(RunEnd("done" if run.calls else "no_agent", reason))


def failed(run: NetworkExecution) -> RunFailed:
    """Return the error that tells that *run* failed, with its cause chained."""
    ending = run.ending or RunEnd()
    why = ": ".join(filter(None, (ending.detail, str(ending.cause or ""))))
    error = RunFailed(
        f"The run of {run.network.name} ended with {ending.reason}" + (f": {why}" if why else "."),
        run=run.handle,
        result=run.handle.last,
        stop_reason=ending.reason,
        next="The work so far is in the run and in its state.",
    )
    error.__cause__ = ending.cause
    return error
