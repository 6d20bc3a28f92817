"""Servers on this machine that speak as the providers of models do, over real HTTP."""

import base64
import json
import struct
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from holdfast.testing.embedders import WordEmbedder


@dataclass
class Asked:
    """One request: where it went, with which headers, and what it said."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class ModelServer:
    """What a server was asked, and the status it answers with."""

    url: str
    asked: list[Asked] = field(default_factory=list[Asked])
    status: int = 200
    size: int = 8
    says: str = "[]"


@contextmanager
def model_server() -> Generator[ModelServer]:
    """Give a server that answers what OpenAI, Gemini and Ollama are asked for vectors."""
    http = _Server()
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield http.model
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.model = ModelServer(f"http://127.0.0.1:{self.server_port}")


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, _Server)
        server = self.server.model
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        path = self.path.partition("?")[0]
        asked = Asked(path, {name.lower(): each for name, each in self.headers.items()}, body)
        server.asked.append(asked)
        answer: Any = {"error": {"message": "no", "code": server.status, "status": "NO"}}
        if server.status == 200:
            answer = _answer(server, path, body)
        told = json.dumps(answer).encode()
        self.send_response(server.status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def _answer(server: ModelServer, path: str, body: dict[str, Any]) -> dict[str, Any]:
    if path.endswith("/chat/completions"):
        return _chat(server, body)
    if path.endswith("/responses"):
        return _response(server, body)
    return _gemini(server, body) if "requests" in body else _openai(server, body)


def _chat(server: ModelServer, body: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "assistant", "content": server.says}
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def _response(server: ModelServer, body: dict[str, Any]) -> dict[str, Any]:
    text: dict[str, Any] = {"type": "output_text", "text": server.says, "annotations": []}
    message: dict[str, Any] = {
        "type": "message",
        "id": "m1",
        "role": "assistant",
        "status": "completed",
        "content": [text],
    }
    return {
        "id": "r1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": body["model"],
        "output": [message],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
    }


def _vectors(server: ModelServer, texts: list[str]) -> list[list[float]]:
    return WordEmbedder(size=server.size).embed(texts, input_type="document")


def _openai(server: ModelServer, body: dict[str, Any]) -> dict[str, Any]:
    texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
    vectors = _vectors(server, texts)
    coded: list[object] = list(vectors)
    if body.get("encoding_format") == "base64":
        coded = [base64.b64encode(struct.pack(f"<{len(v)}f", *v)).decode() for v in vectors]
    data = [{"object": "embedding", "index": i, "embedding": v} for i, v in enumerate(coded)]
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    return {"object": "list", "data": data, "model": body["model"], "usage": usage}


def _gemini(server: ModelServer, body: dict[str, Any]) -> dict[str, Any]:
    texts = [each["content"]["parts"][0]["text"] for each in body["requests"]]
    return {"embeddings": [{"values": vector} for vector in _vectors(server, texts)]}
