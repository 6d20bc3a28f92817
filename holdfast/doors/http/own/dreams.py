"""Routes of dreams, the contract's jobs that reorganise a memory store."""

from collections.abc import Callable
from typing import Any, Final

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from holdfast.doors.http.call import Call
from holdfast.doors.http.params import PAGE, Body, flag, instant, several
from holdfast.doors.http.request import HttpRoute
from holdfast.doors.http.response import Response, of_json
from holdfast.library.dreams import Dreams

DREAMS: Final = "/v1/dreams"
_ONE: Final = f"{DREAMS}/{{id}}"


class CreateDream(Body, frozen=True):
    """A new dream; the library validates each field."""

    inputs: Any
    model: Any
    instructions: Any = None
    output_behavior: Any | UnsetType = UNSET


async def _answered(call: Call, act: Callable[[Dreams], Any]) -> Response:
    model = call.state.dream_model
    return of_json(await call.slow(lambda hf: act(Dreams(hf.consolidations, model))))


async def create(call: Call) -> Response:
    """Start a dream."""
    body = call.body(CreateDream)
    given: dict[str, Any] = {
        name: value
        for name in CreateDream.__struct_fields__
        if (value := getattr(body, name)) is not UNSET
    }
    return await _answered(call, lambda dreams: dreams.create(**given))


async def list_dreams(call: Call) -> Response:
    """List dreams, newest first."""

    def act(dreams: Dreams) -> dict[str, Any]:
        page = dreams.list(**call.query)
        return {"data": page.data, "next_page": page.next_page}

    return await _answered(call, act)


async def retrieve(call: Call) -> Response:
    """Retrieve a dream."""
    return await _answered(call, lambda dreams: dreams.retrieve(call["id"]))


async def cancel(call: Call) -> Response:
    """Stop a dream."""
    return await _answered(call, lambda dreams: dreams.cancel(call["id"]))


async def archive(call: Call) -> Response:
    """Leave a dream out of lists."""
    return await _answered(call, lambda dreams: dreams.archive(call["id"]))


_QUERY: Final = (
    *(
        replace(instant(f"created_at[{each}]"), library=f"created_at_{each}")
        for each in ("gt", "lt")
    ),
    flag("include_archived"),
    several("statuses[]", "statuses"),
    *PAGE,
)
ROUTES = (
    HttpRoute("POST", DREAMS, "write", create, "Start a dream.", body=CreateDream),
    HttpRoute("GET", DREAMS, "read", list_dreams, "List dreams, newest first.", query=_QUERY),
    HttpRoute("GET", _ONE, "read", retrieve, "Retrieve a dream."),
    HttpRoute("POST", f"{_ONE}/cancel", "write", cancel, "Stop a dream."),
    HttpRoute("POST", f"{_ONE}/archive", "write", archive, "Leave a dream out of lists."),
)
