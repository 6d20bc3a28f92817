"""A server on this machine that says what it is told to, as OpenAI and Anthropic would say it.

It speaks over real HTTP, in one piece or streamed, whichever the request asks for.
"""

import json
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

Wire: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Say:
    """An answer in words, in the pieces they are streamed in."""

    pieces: Sequence[str]

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self.pieces)


@dataclass(frozen=True)
class Call:
    """An answer that calls the tool *name* with *arguments*."""

    name: str
    arguments: Wire

    @property
    def pieces(self) -> tuple[str, str]:
        """Its arguments as JSON, in two pieces."""
        whole = json.dumps(self.arguments)
        return whole[: len(whole) // 2], whole[len(whole) // 2 :]


Answer: TypeAlias = Say | Call


@dataclass
class Speaker:
    """Where the server is, what it is to answer, and what it was asked."""

    url: str
    answers: list[Answer]
    bodies: list[Wire] = field(default_factory=list[Wire])


@contextmanager
def speaker(*answers: Answer) -> Generator[Speaker]:
    """Give a server that answers with *answers*, one after another."""
    http = _Server(list(answers))
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield http.speaker
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, answers: list[Answer]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.speaker = Speaker(f"http://127.0.0.1:{self.server_port}", answers)


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, _Server)
        speaker = self.server.speaker
        body: Wire = json.loads(self.rfile.read(int(self.headers["content-length"])))
        speaker.bodies.append(body)
        answer = speaker.answers.pop(0)
        path = self.path.partition("?")[0]
        whole, streamed = {
            "/v1/chat/completions": (chat, chat_stream),
            "/v1/responses": (response, response_stream),
            "/v1/messages": (message, message_stream),
        }[path]
        if body.get("stream"):
            told, kind = "".join(streamed(answer)), "text/event-stream"
        else:
            told, kind = json.dumps(whole(answer)), "application/json"
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(told.encode())))
        self.end_headers()
        self.wfile.write(told.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


CHAT_USAGE: Wire = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


def chat(answer: Answer) -> Wire:
    """Return *answer* as a chat completion."""
    said: Wire = {"role": "assistant", "content": answer.text if isinstance(answer, Say) else None}
    if isinstance(answer, Call):
        made = {"name": answer.name, "arguments": "".join(answer.pieces)}
        said["tool_calls"] = [{"id": "call_1", "type": "function", "function": made}]
    ended = "stop" if isinstance(answer, Say) else "tool_calls"
    choice = {"index": 0, "message": said, "finish_reason": ended}
    return {**_chat_head("chat.completion"), "choices": [choice], "usage": CHAT_USAGE}


def chat_stream(answer: Answer) -> Iterator[str]:
    """Give the chunks of a chat completion that says *answer*."""
    head = _chat_head("chat.completion.chunk")
    deltas: list[Wire] = [{"role": "assistant", "content": ""}]
    if isinstance(answer, Say):
        deltas += [{"content": piece} for piece in answer.pieces]
    else:
        made = {"name": answer.name, "arguments": ""}
        deltas.append(
            {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": made}]}
        )
        deltas += [
            {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}
            for piece in answer.pieces
        ]
    for delta in deltas:
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        yield _data({**head, "choices": [choice]})
    ended = "stop" if isinstance(answer, Say) else "tool_calls"
    yield _data({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": ended}]})
    yield _data({**head, "choices": [], "usage": CHAT_USAGE})
    yield "data: [DONE]\n\n"


def response(answer: Answer) -> Wire:
    """Return *answer* as a response of OpenAI's newer protocol."""
    return _response([_item(answer)], "completed")


def response_stream(answer: Answer) -> Iterator[str]:
    """Give the events of a response that says *answer*."""
    item, place = _item(answer), {"item_id": "it_1", "output_index": 0}
    events: list[Wire] = [{"type": "response.created", "response": _response([], "in_progress")}]
    begun = {**item, "status": "in_progress"}
    if isinstance(answer, Say):
        within = {**place, "content_index": 0}
        begun["content"] = []
        part: Wire = {"type": "output_text", "text": "", "annotations": []}
        events += [
            {"type": "response.output_item.added", "output_index": 0, "item": begun},
            {"type": "response.content_part.added", **within, "part": part},
            *(
                {"type": "response.output_text.delta", **within, "delta": piece, "logprobs": []}
                for piece in answer.pieces
            ),
            {"type": "response.output_text.done", **within, "text": answer.text, "logprobs": []},
        ]
    else:
        begun["arguments"] = ""
        kind = "response.function_call_arguments"
        done = {"name": answer.name, "arguments": item["arguments"]}
        events += [
            {"type": "response.output_item.added", "output_index": 0, "item": begun},
            *({"type": f"{kind}.delta", **place, "delta": piece} for piece in answer.pieces),
            {"type": f"{kind}.done", **place, **done},
        ]
    events += [
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": _response([item], "completed")},
    ]
    for number, event in enumerate(events):
        yield _event({**event, "sequence_number": number})


def message(answer: Answer) -> Wire:
    """Return *answer* as a message of Anthropic's."""
    block: Wire = {"type": "text", "text": answer.text} if isinstance(answer, Say) else _use(answer)
    ended = "end_turn" if isinstance(answer, Say) else "tool_use"
    return {**_message_head(), "content": [block], "stop_reason": ended}


def message_stream(answer: Answer) -> Iterator[str]:
    """Give the events of a message that says *answer*."""
    yield _event({"type": "message_start", "message": _message_head()})
    if isinstance(answer, Say):
        block: Wire = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": piece} for piece in answer.pieces]
        ended = "end_turn"
    else:
        block = {**_use(answer), "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": each} for each in answer.pieces]
        ended = "tool_use"
    yield _event({"type": "content_block_start", "index": 0, "content_block": block})
    for delta in deltas:
        yield _event({"type": "content_block_delta", "index": 0, "delta": delta})
    yield _event({"type": "content_block_stop", "index": 0})
    last = {"stop_reason": ended, "stop_sequence": None}
    yield _event({"type": "message_delta", "delta": last, "usage": {"output_tokens": 3}})
    yield _event({"type": "message_stop"})


def _chat_head(kind: str) -> Wire:
    return {"id": "chatcmpl_1", "object": kind, "created": 1, "model": "scripted"}


def _item(answer: Answer) -> Wire:
    if isinstance(answer, Call):
        made = {"name": answer.name, "arguments": "".join(answer.pieces)}
        return {"type": "function_call", "id": "it_1", "call_id": "call_1", **made}
    said: Wire = {"type": "output_text", "text": answer.text, "annotations": []}
    return {
        "type": "message",
        "id": "it_1",
        "role": "assistant",
        "status": "completed",
        "content": [said],
    }


def _response(output: list[Wire], status: str) -> Wire:
    usage = {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 10,
    }
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": status,
        "model": "scripted",
        "output": output,
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage if status == "completed" else None,
    }


def _message_head() -> Wire:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 7, "output_tokens": 3},
    }


def _use(answer: Call) -> Wire:
    return {
        "type": "tool_use",
        "id": "toolu_1",
        "name": answer.name,
        "input": answer.arguments,
    }


def _data(event: Wire) -> str:
    return f"data: {json.dumps(event)}\n\n"


def _event(event: Wire) -> str:
    return f"event: {event['type']}\n{_data(event)}"
