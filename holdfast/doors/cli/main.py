"""Entry point of the command line, and its exit codes.

0: done. 1: failed; one line on standard error gives the reason and what to try. 2: the command line
is invalid.
"""

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path

from holdfast.ground.errors import HoldfastError, MissingExtra
from holdfast.ground.text import one_line

DONE, FAILED, WRONG_USAGE = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run *argv*, or the process's own command line; return the exit code."""
    _open_closed_streams()
    code = _run(sys.argv[1:] if argv is None else argv)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
    except OSError as error:
        _discard_output()
        return code or report_error(error)
    return code


def _run(argv: Sequence[str]) -> int:
    try:
        from holdfast.doors.cli.app import run
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("holdfast"):
            raise
        return _failed(str(MissingExtra("cli")))
    try:
        return run(argv)
    except SystemExit as ended:
        # Typer ends so when the reader of the output has closed it.
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        _discard_output()
        return DONE
    except Exception as error:  # noqa: BLE001  (a bug is reported in one line, as every error)
        return report_error(error)


def report_error(error: Exception) -> int:
    """Report *error* in one line on standard error; return its exit code."""
    from typer import Abort, TyperException

    match error:
        case HoldfastError():
            return _failed(str(error))
        case TyperException():
            return _wrong(error)
        case Abort():
            return _failed("Cancelled; nothing was changed.")
        case OSError():
            return _failed(_of_the_system(error))
        case _:
            return _failed(_fault(error))


def _failed(message: str) -> int:
    print(f"holdfast: {one_line(message)}", file=sys.stderr)  # noqa: T201
    return FAILED


def _wrong(error: Exception) -> int:
    message = " ".join(str(getattr(error, "format_message", error.__str__)()).split())
    command = getattr(getattr(error, "ctx", None), "command_path", "holdfast")
    print(f"{one_line(message).rstrip('.')}. Try: {command} --help", file=sys.stderr)  # noqa: T201
    return WRONG_USAGE


def _of_the_system(error: OSError) -> str:
    what = error.strerror or type(error).__name__
    if error.filename is None:
        return f"{what}. Correct that, then retry."
    return f"{error.filename}: {what}. Check the path and its permissions."


def _fault(error: Exception) -> str:
    # The place, never the message: it may hold content.
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else "?"
    return f"A fault of ours, {type(error).__name__} at {place}. Please report it."


def _discard_output() -> None:
    # Buffered output would fail again when the interpreter exits.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_closed_streams() -> None:
    """Open /dev/null in place of each standard stream that is closed.

    Otherwise the next file to be opened gets the stream's number, and the output.
    Characters that an output's encoding lacks are printed as escapes.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    sys.exit(main())
