"""User, collection, models and options of a request about long-term memory."""

from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict

from holdfast.doors.http.call import Call
from holdfast.doors.http.params import Body, Name, flag, read_body, text
from holdfast.doors.http.request import LONGTERM_LIMIT, Handler, HttpRoute, Method, Needs
from holdfast.doors.http.response import Response, of_json
from holdfast.ground.errors import LongTermOff, NotPermitted, shortened
from holdfast.ground.pages import Page
from holdfast.library.holdfast import Holdfast
from holdfast.library.longterm import NAMESPACE, configured_embedder
from holdfast.library.operations.base import Operation
from holdfast.library.operations.longterm import USER, Weighing
from holdfast.library.spans import traced_as
from holdfast.memories.longterm.memory import LongTermData, LongTermMemory
from holdfast.memories.longterm.records import LongTermOptions, to_wire
from holdfast.memories.longterm.vectors.embedder import checked_model

NO_EMBEDDER = "none"
"""As a model, it turns off the comparison by meaning."""


class LongTermBody(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options that differ from the defaults."""

    max_items: int | UnsetType = UNSET
    max_turns: int | UnsetType = UNSET
    weights: Weighing | UnsetType = UNSET
    half_life_days: float | UnsetType = UNSET
    min_relevance: float | UnsetType = UNSET
    row_relevance: float | UnsetType = UNSET
    min_cosine: float | UnsetType = UNSET
    cosine_weight: float | UnsetType = UNSET
    dedupe_similarity: float | UnsetType = UNSET
    secrets: Literal["refuse", "redact"] | UnsetType = UNSET
    embed_turns: bool | UnsetType = UNSET
    mine: bool | UnsetType = UNSET
    vector_provider: str | UnsetType = UNSET

    def options(self) -> LongTermOptions:
        """Return the library's options; raise InvalidInput for one out of range."""
        given = {name: value for name, value in asdict(self).items() if value is not UNSET}
        if isinstance(self.weights, Weighing):
            given["weights"] = self.weights.weights()
        return LongTermOptions(**given)


def _options(_field: str, given: str) -> LongTermOptions:
    return read_body(given.encode(), LongTermBody).options()


def _model(field: str, given: str) -> str:
    return given if (field, given) == ("embedder", NO_EMBEDDER) else checked_model(field, given)


SCOPE = (
    text("namespace"),
    text("workspace_id"),
    flag("enabled"),
    Name("embedder", _model, {"type": "string"}),
    Name("extractor", _model, {"type": "string"}),
    Name("options", _options, {"type": "string", "contentMediaType": "application/json"}),
)
"""Parameters that name the collection, switch it on, and set its models and options."""


def users_route(
    method: Method, below: str, needs: Needs, answer: Handler, summary: str, **more: Any
) -> HttpRoute:
    """Return a route of one user's memory; a key bound to that user may use it."""
    query: tuple[Name, ...] = more.pop("query", ())
    return HttpRoute(
        method=method,
        path=USER + below,
        needs=needs,
        answer=answer,
        summary=summary,
        query=(*SCOPE, *query),
        limit=LONGTERM_LIMIT,
        bound="user",
        **more,
    )


def data_of(call: Call, hf: Holdfast) -> LongTermData:
    """Return the data that *call* is about; it is accessible even if memory is off."""
    return hf.longterm_data(
        call["user"],
        namespace=call.query.get("namespace", NAMESPACE),
        workspace_id=call.query.get("workspace_id"),
    )


def memory_if_on(call: Call, hf: Holdfast) -> LongTermMemory | None:
    """Return the memory that *call* is about, or None if it is off.

    The operator pays for the models: raise NotPermitted for one that the server neither allows nor
    is configured with.
    """
    query = call.query
    embedder: str | None = query.get("embedder")
    extractor: str | None = query.get("extractor")
    if embedder is not None and embedder not in (NO_EMBEDDER, configured_embedder()):
        _demand_allowed(call, "embedder", embedder)
    if extractor is not None:
        _demand_allowed(call, "extractor", extractor)
    return hf.longterm(
        call["user"],
        namespace=query.get("namespace", NAMESPACE),
        workspace_id=query.get("workspace_id"),
        enabled=query.get("enabled"),
        embedder=False if embedder == NO_EMBEDDER else embedder,
        extractor=extractor,
        options=query.get("options"),
    )


def _demand_allowed(call: Call, field: str, model: str) -> None:
    """Raise NotPermitted unless requests may name *model*."""
    if model not in call.house.models:
        raise NotPermitted(
            f"Requests to this server may not name the model {shortened(model)}.",
            needed=f"--allow-model {shortened(model)}",
            next=f"Leave {field} out, or start the server with --allow-model.",
        )


def opened(call: Call, hf: Holdfast, operation: Operation) -> LongTermMemory:
    """Return the memory of *operation*; an item is changed even if memory is off.

    It is the user's own data.
    """
    if operation.name == "longterm.update":
        memory = memory_if_on(call, hf)
        if memory is None:
            data = data_of(call, hf)
            memory = traced_as(data, LongTermMemory(data.context))
        return memory
    return memory_of(call, hf)


def opened_data(call: Call, hf: Holdfast, _operation: Operation) -> LongTermData:
    """Return the data of *call*."""
    return data_of(call, hf)


def memory_of(call: Call, hf: Holdfast) -> LongTermMemory:
    """Return the memory that *call* is about; raise LongTermOff if it is off.

    The error says whether the request or the server switched it off.
    """
    memory = memory_if_on(call, hf)
    if memory is None:
        raise LongTermOff("request" if call.query.get("enabled") is False else "server")
    return memory


def of_record(record: Struct, *, status: int = 200) -> Response:
    """Return *record* as a response."""
    return of_json(to_wire(record), status=status)


def of_page(page: Page[Any]) -> Response:
    """Return *page* as a response."""
    return of_json({"data": [to_wire(each) for each in page.data], "next_page": page.next_page})


def of_lines(records: Iterable[dict[str, object]]) -> Response:
    """Return *records* as a response with one line of JSON each."""
    encode = msgspec.json.Encoder().encode
    body = b"".join(encode(each) + b"\n" for each in records)
    return Response(body=body, type=b"application/x-ndjson")
