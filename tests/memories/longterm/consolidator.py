"""A process that consolidates: `python consolidator.py DATABASE LOG CALLS`.

It starts a job on ada's memory, writes a line into the log for each call to its model, and kills
itself in the call of that number. The id of the job is the first line.
"""

import os
import signal
import sys
from pathlib import Path

import holdfast
from holdfast.memories.longterm.background.extractor import ExtractionRequest


def main() -> None:
    database, log, calls = sys.argv[1:]
    lines: list[str] = []

    def answer(request: ExtractionRequest) -> str:
        lines.append(request.existing[0].text)
        with Path(log).open("a", encoding="utf-8") as file:
            file.write(f"{lines[-1]}\n")
        if len(lines) == int(calls):
            os.kill(os.getpid(), signal.SIGKILL)
        return "{}"

    with holdfast.open(database) as hf:
        job = hf.consolidations.create("ada", model=answer)
        hf.consolidations.wait(job.id)


main()
