"""A model that says what a test tells it to, behind the messages route of a server on this machine.

It keeps to the standard library, so that it runs beside any release of the SDK.
"""

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Turn = Sequence[dict[str, Any]]


class ScriptedModel:
    """Plays one turn per request, and keeps what the requests hold."""

    def __init__(self, url: str, turns: Sequence[Turn]) -> None:
        self.url, self._turns = url, list(turns)
        self.requests: list[dict[str, Any]] = []

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the next turn: its calls of the tool `memory`, or at last the end."""
        self.requests.append(request)
        number = len(self.requests)
        calls: Turn = self._turns[number - 1] if number <= len(self._turns) else []
        content: list[dict[str, Any]] = [
            {"type": "tool_use", "id": f"toolu_{number}_{i}", "name": "memory", "input": call}
            for i, call in enumerate(calls)
        ]
        return {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": "scripted",
            "content": content or [{"type": "text", "text": "Done."}],
            "stop_reason": "tool_use" if content else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }

    def results(self) -> list[tuple[str, bool]]:
        """Return what the tool answered to each call: its text, and whether it is an error."""
        # Some releases send the whole conversation each time, others what is new in it.
        answered: dict[str, tuple[str, bool]] = {}
        for message in (message for each in self.requests for message in each["messages"]):
            said = message["content"]
            blocks: Turn = [] if isinstance(said, str) else said
            for block in blocks:
                if block["type"] == "tool_result":
                    answer = (block["content"], bool(block.get("is_error")))
                    answered[block["tool_use_id"]] = answer
        return list(answered.values())


@contextmanager
def scripted_model(turns: Sequence[Turn]) -> Generator[ScriptedModel]:
    """Serve a model that plays *turns*, each a list of the arguments of tool calls."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            answer = json.dumps(model.answer(json.loads(body))).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: standard error is the test's."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        model = ScriptedModel(f"http://127.0.0.1:{server.server_port}", turns)
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield model
        finally:
            server.shutdown()
            thread.join()
