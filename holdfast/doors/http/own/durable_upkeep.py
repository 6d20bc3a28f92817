"""Routes for the history, the limits and the sweep of an agent's memory."""

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict

from holdfast.doors.http.call import Call
from holdfast.doors.http.own.durable_asked import agents_route, idempotency_key_of, memory_of
from holdfast.doors.http.params import PAGE, Body, moment, text
from holdfast.doors.http.response import Response, of_json
from holdfast.ground.errors import NotFound
from holdfast.memories.durable.history import CHANGE
from holdfast.memories.durable.wire import entry_to_wire

_DIGITS_MOST = 18


class SetLimits(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits to set; null removes one, `evict` evicts entries beyond a new cap."""

    cap: int | UnsetType | None = UNSET
    workspace_cap: int | UnsetType | None = UNSET
    run_cap: int | UnsetType | None = UNSET
    content_bytes: int | UnsetType | None = UNSET
    budget: int | UnsetType | None = UNSET
    daily_hours: int | UnsetType | None = UNSET
    evict: bool = False

    def given(self) -> dict[str, int | None]:
        """Return the limits that are given."""
        limits = asdict(self)
        del limits["evict"]
        return {name: value for name, value in limits.items() if value is not UNSET}


async def history(call: Call) -> Response:
    """List changes, newest first."""
    query = call.query
    page = await call.slow(lambda hf: memory_of(call, hf).history(**query))
    return of_json(
        {"data": [entry_to_wire(each) for each in page.data], "next_page": page.next_page}
    )


async def redact(call: Call) -> Response:
    """Redact a change; run on a thread, which waits for the erasure."""
    digits = call["seq"]
    idempotency_key_of(call)
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _DIGITS_MOST:
        raise NotFound(CHANGE, digits, next="Find its number in the history.")
    return of_json(
        entry_to_wire(await call.slow(lambda hf: memory_of(call, hf).redact(int(digits))))
    )


async def limits(call: Call) -> Response:
    """Return the limits in force."""
    return of_json(entry_to_wire(await call.quick(lambda hf: memory_of(call, hf).limits())))


async def set_limits(call: Call) -> Response:
    """Set limits of the agent's own."""
    body = call.body(SetLimits)
    idempotency_key_of(call)
    changed = await call.write(
        lambda hf: memory_of(call, hf).set_limits(evict=body.evict, **body.given())
    )
    return of_json(entry_to_wire(changed))


async def sweep(call: Call) -> Response:
    """Remove expired entries and lapsed runs."""
    idempotency_key_of(call)
    return of_json(entry_to_wire(await call.slow(lambda hf: memory_of(call, hf).sweep())))


ROUTES = (
    agents_route(
        "GET",
        "/history",
        "read",
        history,
        "List changes, newest first.",
        query=(text("key"), text("op"), moment("since"), *PAGE),
    ),
    agents_route(
        "POST", "/history/{seq}/redact", "admin", redact, "Take the content out of a change."
    ),
    agents_route("GET", "/limits", "read", limits, "Retrieve the limits in force."),
    agents_route(
        "PATCH",
        "/limits",
        "admin",
        set_limits,
        "Set limits of the agent's own.",
        body=SetLimits,
        bound="never",
    ),
    agents_route("POST", "/sweep", "write", sweep, "Remove expired entries and lapsed runs."),
)
