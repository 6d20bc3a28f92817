"""A process that mines: `python miner.py DATABASE LOG HOW THREAD COUNT`.

It tells the memory of `ada` so many turns of a thread, and writes what its extractor is asked into
the log. HOW it ends: `waits` in the extractor until it is killed, `dies` there, `kills` itself when
all is mined, or `ends`.
"""

import json
import os
import signal
import sys
import threading
from pathlib import Path

import holdfast
from holdfast.memories.longterm.extract import ExtractionRequest


def main() -> None:
    database, log, how, thread, count = sys.argv[1:]

    def extract(request: ExtractionRequest) -> str:
        with Path(log).open("a", encoding="utf-8") as file:
            file.writelines(f"{turn.text}\n" for turn in request.turns)
        if how == "waits":
            sys.stdout.write("asked\n")
            sys.stdout.flush()
            threading.Event().wait(60)
        if how == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        return json.dumps([{"text": turn.text} for turn in request.turns])

    with holdfast.open(database) as hf:
        ltm = hf.longterm("ada", enabled=True, embedder=False, extractor=extract)
        assert ltm is not None
        for number in range(int(count)):
            said = f"{thread} planted {number} trees"
            ltm.remember_conversation([{"role": "user", "content": said}], thread_id=thread)
        ltm.flush(60)
        if how == "kills":
            os.kill(os.getpid(), signal.SIGKILL)


main()
