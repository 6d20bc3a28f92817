"""The hash chain of a store's versions, walked again from its first link."""

from collections.abc import Iterator
from typing import get_args

from msgspec import Struct, field

from holdfast.ground.scope import Actor, ActorKind
from holdfast.ground.text import sha256_hex
from holdfast.library.upkeep.tables import Finding
from holdfast.memories.stores.transaction import content_seal, first_link, next_link


class StoreRow(Struct, frozen=True, kw_only=True):
    """A store, with what it says of what is in it."""

    id: str
    workspace: str
    number: int
    memories: int
    words: int
    link: bytes
    last_at: int


class VersionRow(Struct, frozen=True, kw_only=True):
    """A version with what its link is made of."""

    number: int
    id: str
    workspace: str
    memory_id: str
    seq: int
    operation: str
    path: str | None
    content: bytes | None
    content_sha256: str | None
    content_size_bytes: int | None
    created_at: int
    actor_kind: ActorKind
    actor_id: str
    redacted_at: int | None
    redacted_by_kind: str | None
    redacted_by_id: str | None
    salt: bytes | None
    seal: bytes
    link: bytes


class ChainedHead(Struct, frozen=True):
    """What the chain says that a live memory's row must hold."""

    version_id: str
    path: str | None
    content_sha256: str | None
    content_size_bytes: int | None
    created_at: int
    updated_at: int


class Chained(Struct, kw_only=True):
    """What a walk found: findings, what it tells of each live memory, every link."""

    findings: list[Finding] = field(default_factory=list[Finding])
    live: dict[str, ChainedHead] = field(default_factory=dict[str, ChainedHead])
    links: set[str] = field(default_factory=set[str])
    count: int = 0


def check_chain(store: StoreRow, versions: Iterator[VersionRow]) -> Chained:
    """Walk *versions*, in their order, and compare each link, seal, hash and operation."""
    link, at, seq = first_link(store.id), 0, 0
    walked = Chained(links={link.hex()})
    born: dict[str, int] = {}
    for version in versions:
        memory = version.memory_id
        rules = {
            "link": _expected_link(link, version) == version.link,
            "rising": version.created_at >= at and version.seq >= seq,
            "operation": (memory in walked.live) == (version.operation != "created"),
            **_contents(version),
        }
        walked.findings += [
            _chain_finding(rule, version) for rule, holds in rules.items() if not holds
        ]
        link, at, seq = version.link, version.created_at, version.seq
        walked.count += 1
        walked.links.add(link.hex())
        born.setdefault(memory, at)
        if version.operation == "deleted":
            walked.live.pop(memory, None)
        else:
            walked.live[memory] = _told(version, born[memory])
    walked.findings += _end(store, link, at)
    return walked


def _told(version: VersionRow, born: int) -> ChainedHead:
    return ChainedHead(
        version.id,
        version.path,
        version.content_sha256,
        version.content_size_bytes,
        born,
        version.created_at,
    )


def _end(store: StoreRow, link: bytes, at: int) -> Iterator[Finding]:
    """Give what the store's row says of its chain's end that is not so."""
    for expected, found, holds in (
        (link.hex(), store.link.hex(), link == store.link),
        (f"last_at {at} or later", f"last_at {store.last_at}", at <= store.last_at),
    ):
        if not holds:
            yield Finding(
                check="chains", table="stores", id=store.id, expected=expected, found=found
            )


def _expected_link(previous: bytes, version: VersionRow) -> bytes | None:
    if version.actor_kind not in get_args(ActorKind):
        return None
    return next_link(
        previous,
        version_id=version.id,
        memory_id=version.memory_id,
        operation=version.operation,
        created_at=version.created_at,
        actor=Actor(version.actor_kind, version.actor_id),
        seal=version.seal,
    )


def _contents(version: VersionRow) -> dict[str, bool]:
    """Return which rules of what a version holds are kept."""
    held = (version.content, version.content_sha256, version.content_size_bytes)
    if version.redacted_at is not None:
        by = version.redacted_by_kind is not None and version.redacted_by_id is not None
        return {
            "forgotten": (*held, version.path, version.salt) == (None,) * 5,
            "redacted by": by,
        }
    content = version.content or b""
    sealed = (
        version.salt is not None
        and version.path is not None
        and content_seal(version.salt, version.path, content) == version.seal
    )
    known = (
        (None, None, None)
        if version.operation == "deleted"
        else (content, sha256_hex(content), len(content))
    )
    return {"seal": sealed, "content": held == known}


def _chain_finding(rule: str, version: VersionRow) -> Finding:
    check = {"forgotten": "forgotten", "content": "heads"}.get(rule, "chains")
    return Finding(
        check=check, table="versions", id=version.id, expected=rule, found=version.link.hex()
    )
