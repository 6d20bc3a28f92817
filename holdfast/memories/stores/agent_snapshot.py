"""What an agent is, as it is stored and echoed: every part present, none interpreted."""

from typing import Any, cast

import msgspec

from holdfast.ground.errors import InvalidInput
from holdfast.ground.text import within
from holdfast.memories.stores.records import JSONObject
from holdfast.memories.stores.validation import checked_metadata, patched_metadata

MOST_AGENT_NAME, MOST_AGENT_DESCRIPTION, MOST_SYSTEM = 256, 2_048, 100_000
"""Code points."""
MOST_ID = 128
EXTERNAL = "external"
"""The name and the model of an agent that is kept elsewhere."""

LISTS = ("tools", "mcp_servers", "skills")
PARTS = ("name", "description", "model", "system", *LISTS, "multiagent", "execution_identity")


def new_agent(body: JSONObject) -> JSONObject:
    """Return the parts of the agent that *body* asks for; InvalidInput names what is wrong."""
    _refuse_unknown_agent_keys(body, (*PARTS, "metadata"))
    for key in ("name", "model"):
        if body.get(key) is None:
            raise InvalidInput(key, "is required")
    metadata = body.get("metadata")
    return {
        **{part: checked_part(part, body.get(part)) for part in PARTS},
        "metadata": {} if metadata is None else checked_metadata(metadata),
    }


def changed_agent(present: JSONObject, body: JSONObject) -> JSONObject:
    """Return *present*, the parts of an agent, with the changes of *body* made.

    What *body* leaves out stays; None clears what can be cleared.
    """
    _refuse_unknown_agent_keys(body, (*PARTS, "metadata", "version"))
    changes = {part: checked_part(part, body[part]) for part in PARTS if part in body}
    if (patch := body.get("metadata")) is not None:
        changes["metadata"] = patched_metadata(present["metadata"], patch)
    return {**present, **changes}


def session_agent(agent_id: str, version: int, parts: JSONObject) -> JSONObject:
    """Return the snapshot of an agent that a session keeps."""
    return {
        "type": "agent",
        "id": agent_id,
        "version": version,
        **{part: parts[part] for part in PARTS},
    }


def external_agent(agent_id: str, version: int | None) -> JSONObject:
    """Return the snapshot of an agent that nobody described here."""
    parts = new_agent({"name": EXTERNAL, "model": EXTERNAL})
    return session_agent(agent_id, version or 1, parts)


def checked_version(field: str, given: object) -> int:
    """Return *given* if it can be an agent's version; else InvalidInput."""
    if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given < 2**63:
        raise InvalidInput(field, "must be an integer from 1", given=given)
    return given


def checked_part(part: str, given: object, *, field: str | None = None) -> object:
    """Return *given* as the *part* of an agent, as it is echoed; InvalidInput names *field*."""
    field = field or part
    if part in LISTS:
        return _objects(field, [] if given is None else given)
    if part == "model":
        return _model(field, given)
    if part == "name":
        return within(field, _checked_string(field, given), least=1, most=MOST_AGENT_NAME)
    if part == "multiagent":
        return None if given is None else _object(field, given)
    if part == "execution_identity":
        # The service account carries no identifier: it claims no identity the caller did not.
        return {"type": "service_account"} if given is None else _object(field, given)
    most = MOST_SYSTEM if part == "system" else MOST_AGENT_DESCRIPTION
    return (
        None if given is None else within(field, _checked_string(field, given), most=most) or None
    )


def _model(field: str, given: object) -> JSONObject:
    model = {"id": given} if isinstance(given, str) else _object(field, given)
    within(
        f"{field}.id",
        _checked_string(f"{field}.id", model.get("id")),
        least=1,
        most=MOST_AGENT_NAME,
    )
    effort = model.get("effort")
    return {
        "effort": None,
        "inference_geo": None,
        "speed": None,
        **model,
        # Asked for as a word, told as an object.
        **({"effort": {"type": effort}} if isinstance(effort, str) else {}),
    }


def _refuse_unknown_agent_keys(body: JSONObject, known: tuple[str, ...]) -> None:
    for key in body:
        if key not in known:
            raise InvalidInput(key, "is not a key of an agent", next="Leave it out.")


def _checked_string(field: str, given: object) -> str:
    if not isinstance(given, str):
        raise InvalidInput(field, "must be a string", given=repr(given))
    return given


def _object(field: str, given: object) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise InvalidInput(field, "must be an object", given=repr(given))
    return as_json(field, cast("dict[str, Any]", given))


def _objects(field: str, given: object) -> list[dict[str, Any]]:
    if not isinstance(given, list | tuple):
        raise InvalidInput(field, "must be a list of objects", given=repr(given))
    return [_object(f"{field}[{at}]", each) for at, each in enumerate(cast("list[object]", given))]


def as_json(field: str, given: JSONObject) -> JSONObject:
    """Return *given* as it comes back after it was kept; InvalidInput if it is not JSON."""
    try:
        return msgspec.json.decode(msgspec.json.encode(given))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(field, f"is not JSON: {error}") from None
