"""Routes of the settings of a workspace's memory stores."""

from msgspec import UNSET, UnsetType

from holdfast.doors.http.call import Call
from holdfast.doors.http.params import Body
from holdfast.doors.http.request import HttpRoute
from holdfast.doors.http.response import Response, of_record

SETTINGS = "/api/settings/memory_stores"


class ChangeSettings(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings to change; what is left out stays."""

    memories_cap: int | UnsetType = UNSET


async def retrieve(call: Call) -> Response:
    """Return the settings."""
    return of_record(await call.quick(lambda hf: hf.memory_stores.settings()))


async def change(call: Call) -> Response:
    """Change the settings; they hold for the next write."""
    body = call.body(ChangeSettings)
    return of_record(
        await call.slow(lambda hf: hf.memory_stores.configure(memories_cap=body.memories_cap))
    )


ROUTES = (
    HttpRoute(
        method="GET",
        path=SETTINGS,
        needs="read",
        answer=retrieve,
        summary="Retrieve the settings of the workspace's stores.",
    ),
    HttpRoute(
        method="POST",
        path=SETTINGS,
        needs="admin",
        answer=change,
        body=ChangeSettings,
        summary="Change the settings of the workspace's stores.",
    ),
)
