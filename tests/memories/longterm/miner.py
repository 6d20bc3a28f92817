"""A process that mines: `python miner.py DATABASE LOG HOW THREAD COUNT`.

It tells the memory of `ada` so many turns of a thread, and writes what its extractor is asked into
the log. HOW it ends: `waits` in the extractor until it is killed, `dies` there, `kills` itself when
all is mined, or `ends`. `named` kills itself too: its extractor is a model that never answers.
"""

import json
import os
import signal
import socket
import sys
import threading
from pathlib import Path

import holdfast
from holdfast.memories.longterm.background.extractor import ExtractionRequest

SERVERS: list[socket.socket] = []


def mute_model() -> str:
    """Return the name of a model whose server takes calls and never answers."""
    server = socket.create_server(("127.0.0.1", 0))
    SERVERS.append(server)
    os.environ["OLLAMA_BASE_URL"] = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
    return "ollama:mute"


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
        extractor = mute_model() if how == "named" else extract
        ltm = hf.longterm("ada", enabled=True, embedder=False, extractor=extractor)
        assert ltm is not None
        for number in range(int(count)):
            said = f"{thread} planted {number} trees"
            ltm.remember_conversation([{"role": "user", "content": said}], thread_id=thread)
        if how != "named":
            ltm.flush(60)
        if how in {"kills", "named"}:
            os.kill(os.getpid(), signal.SIGKILL)


main()
