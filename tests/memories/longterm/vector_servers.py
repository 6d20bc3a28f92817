"""Servers on this machine that speak as Qdrant and Pinecone do, over real HTTP.

That of Qdrant answers with Qdrant's own client in a folder, that of Pinecone with exact cosines and
the limits of the service.
"""

import json
import math
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from qdrant_client import QdrantClient, models

KEY = "key-of-the-tests"
Answer = tuple[int, dict[str, Any]]


class VectorServer(ThreadingHTTPServer):
    """A server, the requests that it received, and the status that it answers with instead."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.received: list[tuple[str, str, dict[str, Any]]] = []
        self.status = 200
        self.lock = threading.Lock()

    def answer(self, verb: str, path: str, query: dict[str, str], body: dict[str, Any]) -> Answer:
        """Return the status and the body of an answer."""
        raise NotImplementedError


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer a request of any kind."""
        assert isinstance(self.server, VectorServer)
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        body = json.loads(raw or b"{}")
        address = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(address.query).items()}
        with self.server.lock:
            self.server.received.append((self.command, address.path, body))
            if self.headers.get("api-key") != KEY:
                status, answer = 401, {"message": "wrong key"}
            elif self.server.status != 200:
                status, answer = self.server.status, {"message": "no"}
            elif len(raw) > 2_000_000 and isinstance(self.server, PineconeServer):
                status, answer = 400, {"message": "more than 2 MB"}
            else:
                status, answer = self.server.answer(self.command, address.path, query, body)
        sent = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def do_GET(self) -> None:
        self.do_POST()

    def do_PUT(self) -> None:
        self.do_POST()

    def do_DELETE(self) -> None:
        self.do_POST()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class QdrantServer(VectorServer):
    """Answers as Qdrant does."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.client = QdrantClient(path=str(folder), force_disable_check_same_thread=True)

    def server_close(self) -> None:
        """Close the socket and the folder."""
        super().server_close()
        self.client.close()

    def answer(self, verb: str, path: str, query: dict[str, str], body: dict[str, Any]) -> Answer:
        """Answer one request, as the client in the folder does."""
        del query
        _, _, name, *rest = [*path.split("/"), ""]
        what = "/".join(rest).rstrip("/")
        if name and what != "exists" and (verb, what) != ("PUT", ""):
            if not self.client.collection_exists(name):
                return 404, {"status": {"error": f"Collection `{name}` doesn't exist!"}}
        elif (verb, what) == ("PUT", "") and self.client.collection_exists(name):
            return 409, {"status": {"error": f"Collection `{name}` already exists!"}}
        return 200, {"result": self._result(verb, name, what, body), "status": "ok", "time": 0.0}

    def _result(self, verb: str, name: str, what: str, body: dict[str, Any]) -> object:
        done = {"operation_id": 1, "status": "completed"}
        match verb, what:
            case "GET", "":
                return self.client.get_collections().model_dump(mode="json")
            case "GET", "exists":
                return {"exists": self.client.collection_exists(name)}
            case "PUT", "":
                made = models.CreateCollection(**body)
                assert made.vectors is not None
                return self.client.create_collection(name, vectors_config=made.vectors)
            case "PUT", "index":
                models.CreateFieldIndex(**body)
            case "PUT", "points":
                self.client.upsert(name, models.PointsList(**body).points)
            case "POST", "points/delete":
                which = (
                    models.FilterSelector(**body)
                    if "filter" in body
                    else models.PointIdsList(**body)
                )
                self.client.delete(name, which)
            case "POST", "points/query":
                asked = models.QueryRequest(**body)
                found = self.client.query_points(
                    name,
                    query=body["query"]["nearest"],
                    query_filter=asked.filter,
                    limit=asked.limit or 10,
                    with_payload=asked.with_payload or False,
                )
                return found.model_dump(mode="json")
            case "POST", "points/scroll":
                page = models.ScrollRequest(**body)
                points, following = self.client.scroll(
                    name,
                    scroll_filter=page.filter,
                    limit=page.limit or 10,
                    offset=page.offset,
                    with_payload=page.with_payload or False,
                )
                shown = [each.model_dump(mode="json") for each in points]
                return {"points": shown, "next_page_offset": following}
            case _:
                raise AssertionError((verb, what))
        return done


class PineconeServer(VectorServer):
    """Answers as a serverless index of Pinecone does.

    After a write, *lag* reads still answer as before it.
    """

    PAGE: ClassVar[int] = 100

    def __init__(self, dimension: int, *, metric: str = "cosine", lag: int = 0) -> None:
        super().__init__()
        self.dimension, self.metric, self.lag = dimension, metric, lag
        self.written: dict[str, dict[str, list[float]]] = {}
        self._visible: dict[str, dict[str, list[float]]] = {}
        self._behind = 0

    def answer(self, verb: str, path: str, query: dict[str, str], body: dict[str, Any]) -> Answer:
        """Answer one request."""
        match verb, path:
            case "POST", "/describe_index_stats":
                return 200, {
                    "dimension": self.dimension,
                    "metric": self.metric,
                    "namespaces": {},
                    "totalVectorCount": 0,
                }
            case "POST", "/vectors/upsert":
                return self._upsert(body)
            case "POST", "/vectors/delete":
                return self._delete(body)
            case "POST", "/query":
                return self._query(body)
            case "GET", "/vectors/list":
                return self._list(query)
            case _:
                raise AssertionError((verb, path))

    def _upsert(self, body: dict[str, Any]) -> Answer:
        vectors = body["vectors"]
        if len(vectors) > 1_000:
            return 400, {"message": "more than 1,000 vectors"}
        if any(len(each["values"]) != self.dimension for each in vectors):
            return 400, {"message": "another dimension"}
        there = self.written.setdefault(body["namespace"], {})
        there.update({each["id"]: each["values"] for each in vectors})
        self._behind = self.lag
        return 200, {"upsertedCount": len(vectors)}

    def _delete(self, body: dict[str, Any]) -> Answer:
        if body["namespace"] not in self.written:
            return 404, {"code": 5, "message": "Namespace not found"}
        if body.get("deleteAll"):
            del self.written[body["namespace"]]
        for id in body.get("ids", ()):
            self.written[body["namespace"]].pop(id, None)
        self._behind = self.lag
        return 200, {}

    def _query(self, body: dict[str, Any]) -> Answer:
        if not 1 <= body["topK"] <= 10_000 or len(body["vector"]) != self.dimension:
            return 400, {"message": "refused"}
        near = [
            {
                "id": id,
                "score": math.fsum(a * b for a, b in zip(values, body["vector"], strict=True)),
            }
            for id, values in self._read(body["namespace"]).items()
        ]
        near.sort(key=lambda each: -float(each["score"]))
        return 200, {"matches": near[: body["topK"]], "namespace": body["namespace"]}

    def _list(self, query: dict[str, str]) -> Answer:
        ids = sorted(self._read(query["namespace"]))
        start, most = int(query.get("paginationToken", 0)), min(int(query["limit"]), self.PAGE)
        page: dict[str, Any] = {"vectors": [{"id": id} for id in ids[start : start + most]]}
        if start + most < len(ids):
            page["pagination"] = {"next": str(start + most)}
        return 200, {**page, "namespace": query["namespace"]}

    def _read(self, namespace: str) -> dict[str, list[float]]:
        if self._behind:
            self._behind -= 1
        else:
            self._visible = {name: dict(each) for name, each in self.written.items()}
        return self._visible.get(namespace, {})


@contextmanager
def serving(server: VectorServer) -> Generator[VectorServer]:
    """Serve with *server* until the end of the block."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
