"""A process that consolidates: `python consolidator.py DATABASE LOG CALLS [STORE]`.

It starts a job on ada's memory, or on a store, writes a line into the log for each call to its
model, and kills itself in the call of that number.
"""

import os
import signal
import sys
from pathlib import Path

import holdfast
from holdfast.memories.longterm.background.extractor import ExtractionRequest


def main() -> None:
    database, log, calls, *store = sys.argv[1:]
    lines: list[str] = []

    def answer(request: ExtractionRequest) -> str:
        first = request.conversation.split("\n", 1)[0]
        lines.append(request.existing[0].text if request.existing else first)
        with Path(log).open("a", encoding="utf-8") as file:
            file.write(f"{lines[-1]}\n")
        if len(lines) == int(calls):
            os.kill(os.getpid(), signal.SIGKILL)
        return "{}"

    with holdfast.open(database) as hf:
        jobs = hf.consolidations
        if store:
            job = jobs.create(store=store[0], model=answer)
        else:
            job = jobs.create("ada", model=answer)
        hf.consolidations.wait(job.id)


main()
