"""What a session may be made of, and what may be changed in one: rules of the values alone."""

from collections.abc import Iterable, Mapping
from typing import Literal, cast, get_args

from msgspec import UNSET, Struct, UnsetType

from holdfast.ground.errors import InvalidInput
from holdfast.ground.text import within
from holdfast.memories.stores.agent_snapshot import (
    LISTS,
    MOST_ID,
    checked_part,
    checked_version,
)
from holdfast.memories.stores.records import Access, JSONObject, Metadata
from holdfast.memories.stores.validation import checked_metadata, patched_metadata

MOST_STORES = 8
MOST_TITLE, MOST_INSTRUCTIONS = 500, 4_096
"""Code points."""

Status = Literal["rescheduling", "running", "idle", "terminated"]

_OVERRIDES = ("model", "system", *LISTS)
_RESOURCE = ("type", "memory_store_id", "access", "instructions")
_WHY_NOT = {
    "initial_events": "a session here records attachments and runs nothing",
    "budget": "a session here records attachments and spends nothing",
    "vault_ids": "there are no vaults here",
    "agent": "the agent of a session is the one it was created with",
}


class AgentChoice(Struct, frozen=True, kw_only=True):
    """Which agent a session is for, and what is otherwise about it there."""

    id: str
    version: int | None
    overrides: JSONObject


class Attachment(Struct, frozen=True, kw_only=True):
    """A store to attach, and how far."""

    memory_store_id: str
    access: Access
    instructions: str | None


class NewSession(Struct, frozen=True, kw_only=True):
    """All that a session is asked to be, checked."""

    agent: AgentChoice
    environment_id: str
    attachments: tuple[Attachment, ...]
    title: str | None
    metadata: Metadata


class Refusable(Struct, frozen=True, kw_only=True):
    """Parts of a request that have no meaning for an attachment record."""

    initial_events: object = UNSET
    budget: object = UNSET
    vault_ids: object = UNSET
    agent: object = UNSET

    def check(self) -> None:
        """Raise InvalidInput, naming the key, if one of them asks for something."""
        for key, reason in _WHY_NOT.items():
            given = getattr(self, key)
            if given is UNSET or given is None:
                continue
            if key in _MAY_BE_EMPTY and not isinstance(given, list | tuple):
                raise InvalidInput(key, "must be a list", given=repr(given))
            if key not in _MAY_BE_EMPTY or given:
                raise InvalidInput(key, f"cannot be given: {reason}", next=f"Leave out {key}.")


_MAY_BE_EMPTY = ("initial_events", "vault_ids")


def checked_session(
    *, agent: object, environment_id: object, resources: object, title: object, metadata: object
) -> NewSession:
    """Return what a session is to be; InvalidInput names the key that is wrong."""
    return NewSession(
        agent=checked_agent(agent),
        environment_id=_identifier("environment_id", environment_id),
        attachments=checked_resources(resources),
        title=None if title is None or title is UNSET else checked_title(title),
        metadata={} if metadata is None or metadata is UNSET else checked_metadata(metadata),
    )


def checked_agent(given: object) -> AgentChoice:
    """Return the agent that *given* names: an id, or an object with one."""
    if isinstance(given, str):
        return AgentChoice(id=_identifier("agent", given), version=None, overrides={})
    if not isinstance(given, Mapping):
        raise InvalidInput("agent", "must be an agent's id, or an object with it", given=given)
    body = cast("Mapping[str, object]", given)
    kind = body.get("type")
    if kind not in ("agent", "agent_with_overrides"):
        raise InvalidInput("agent.type", "must be agent or agent_with_overrides", given=kind)
    known = ("type", "id", "version", *(_OVERRIDES if kind == "agent_with_overrides" else ()))
    _refuse_unknown("agent.", body, known)
    version = body.get("version")
    return AgentChoice(
        id=_identifier("agent.id", body.get("id")),
        version=None if version is None else checked_version("agent.version", version),
        overrides={
            part: checked_part(part, _replacement(part, body[part]), field=f"agent.{part}")
            for part in _OVERRIDES
            if part in body
        },
    )


def _replacement(part: str, given: object) -> object:
    if given is None and part in LISTS:
        raise InvalidInput(f"agent.{part}", "must be a list", next="Send [] to clear it.")
    return given


def checked_resources(given: object) -> tuple[Attachment, ...]:
    """Return the stores to attach; InvalidInput for more than 8, or one of them twice."""
    if given is None or given is UNSET:
        return ()
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise InvalidInput("resources", "must be a list of objects")
    entries = list(cast("Iterable[object]", given))
    if len(entries) > MOST_STORES:
        raise InvalidInput(
            "resources",
            f"`resources` may hold at most {MOST_STORES} `memory_store` entries",
            limit=MOST_STORES,
        )
    attachments = tuple(_attachment(at, each) for at, each in enumerate(entries))
    seen: set[str] = set()
    for at, attachment in enumerate(attachments):
        if attachment.memory_store_id in seen:
            raise InvalidInput(
                f"resources[{at}].memory_store_id",
                "is attached twice",
                given=attachment.memory_store_id,
                index=at,
                next="Name each store once.",
            )
        seen.add(attachment.memory_store_id)
    return attachments


def _attachment(at: int, given: object) -> Attachment:
    where = f"resources[{at}]"
    if not isinstance(given, Mapping):
        raise InvalidInput(where, "must be an object", given=repr(given), index=at)
    body = cast("Mapping[str, object]", given)
    if body.get("type") != "memory_store":
        raise InvalidInput(
            f"{where}.type",
            "must be memory_store, the only kind of resource here",
            given=body.get("type"),
            index=at,
        )
    _refuse_unknown(f"{where}.", body, _RESOURCE, index=at)
    store_id, access = body.get("memory_store_id"), body.get("access")
    if not isinstance(store_id, str):
        reason = "must be the id of a memory store, a string"
        raise InvalidInput(f"{where}.memory_store_id", reason, given=store_id, index=at)
    if access is not None and access not in get_args(Access):
        reason = "must be read_write or read_only"
        raise InvalidInput(f"{where}.access", reason, given=access, index=at)
    instructions = body.get("instructions")
    return Attachment(
        memory_store_id=store_id,
        access="read_write" if access is None else cast("Access", access),
        instructions=None
        if instructions is None
        else _text(f"{where}.instructions", instructions, most=MOST_INSTRUCTIONS),
    )


def checked_title(given: object, *, least: int = 0) -> str:
    """Return *given* if it can be a session's title; else InvalidInput."""
    return _text("title", given, least=least, most=MOST_TITLE)


def changed(
    title: str | None, metadata: Metadata, *, new_title: object, patch: object
) -> tuple[str | None, Metadata]:
    """Return *title* and *metadata* with a change laid over them; None leaves as it is."""
    if new_title is not None and not isinstance(new_title, UnsetType):
        title = checked_title(new_title, least=1)
    if patch is not None and not isinstance(patch, UnsetType):
        metadata = patched_metadata(metadata, patch)
    return title, metadata


def checked_statuses(given: Iterable[Status]) -> frozenset[Status]:
    """Return the statuses to list; InvalidInput for a word that is none. Empty means all."""
    for status in given:
        if status not in get_args(Status):
            reason = f"must be of {', '.join(get_args(Status))}"
            raise InvalidInput("statuses", reason, given=status)
    return frozenset(given)


def _identifier(field: str, given: object) -> str:
    if given is None:
        raise InvalidInput(field, "is required")
    return _text(field, given, least=1, most=MOST_ID)


def _text(field: str, given: object, *, most: int, least: int = 0) -> str:
    if not isinstance(given, str):
        raise InvalidInput(field, "must be a string", given=repr(given))
    return within(field, given, most=most, least=least)


def _refuse_unknown(
    where: str, body: Mapping[str, object], known: tuple[str, ...], *, index: int | None = None
) -> None:
    for key in body:
        if key not in known:
            raise InvalidInput(
                f"{where}{key}", "is not a key of this object", index=index, next="Leave it out."
            )
