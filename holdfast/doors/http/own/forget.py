"""The route that forgets all of an agent or of a user."""

from typing import cast

from msgspec import Struct

from holdfast.doors.http.call import Call
from holdfast.doors.http.params import Body
from holdfast.doors.http.request import HttpRoute
from holdfast.doors.http.response import Response, of_json
from holdfast.ground.errors import InvalidInput
from holdfast.library.erasure import ForgetReport
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.wire import entry_to_wire


class ForgetOwner(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agent or the user to forget."""

    agent: str | None = None
    user: str | None = None


async def forget(call: Call) -> Response:
    """Forget everything of an agent or of a user."""
    body = call.body(ForgetOwner)
    if (body.agent is None) == (body.user is None):
        raise InvalidInput("agent", "or user is required, and not both")
    report: Struct = await call.slow(lambda hf: _forgotten(hf, body))
    return of_json({"type": "forget_report", **entry_to_wire(report)})


def _forgotten(hf: Holdfast, whom: ForgetOwner) -> ForgetReport:
    if whom.agent is not None:
        return hf.forget_agent(whom.agent)
    return hf.forget_user(cast("str", whom.user))


ROUTES = (
    HttpRoute(
        method="POST",
        path="/api/forget",
        needs="admin",
        answer=forget,
        summary="Forget all of an agent's or a user's.",
        body=ForgetOwner,
        durable=True,
    ),
)
