"""The hash chain of a store's versions, walked again from its first link."""

from collections.abc import Iterator

from msgspec import Struct, field

from holdfast.ground.scope import Actor, ActorKind
from holdfast.ground.text import sha256_hex
from holdfast.library.upkeep.finding import Finding
from holdfast.memories.stores import chain


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
    salt: bytes | None
    seal: bytes
    link: bytes


class Chained(Struct, kw_only=True):
    """What a walk found: findings, the newest live version of each memory, every link."""

    findings: list[Finding] = field(default_factory=list[Finding])
    newest: dict[str, str] = field(default_factory=dict[str, str])
    links: set[str] = field(default_factory=set[str])
    count: int = 0


def check_chain(
    store_id: str, workspace: str, last_link: bytes, versions: Iterator[VersionRow]
) -> Chained:
    """Walk *versions*, in their order, and compare each link, seal, hash and operation."""
    walked = Chained()
    link, at, seq = chain.first_link(store_id), 0, 0
    alive: dict[str, bool] = {}
    for version in versions:
        walked.count += 1
        link = _expected_link(link, version)
        rules = {
            "link": link == version.link,
            "workspace": version.workspace == workspace,
            "rising": version.created_at >= at and version.seq >= seq,
            "operation": alive.get(version.memory_id, False) == (version.operation != "created"),
            **_contents(version),
        }
        walked.findings += [_finding(rule, version) for rule, holds in rules.items() if not holds]
        link, at, seq = version.link, version.created_at, version.seq
        alive[version.memory_id] = version.operation != "deleted"
        walked.links.add(version.link.hex())
        walked.newest[version.memory_id] = version.id
    if link != last_link:
        walked.findings.append(
            Finding(
                check="chains",
                table="stores",
                id=store_id,
                expected=link.hex(),
                found=last_link.hex(),
            )
        )
    walked.newest = {memory: head for memory, head in walked.newest.items() if alive[memory]}
    return walked


def _expected_link(previous: bytes, version: VersionRow) -> bytes:
    return chain.link(
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
    if version.redacted_at is not None:
        held = (version.path, version.content, version.content_sha256, version.salt)
        return {"forgotten": held == (None, None, None, None)}
    content = version.content or b""
    sealed = (
        version.salt is not None
        and version.path is not None
        and chain.seal(version.salt, version.path, content) == version.seal
    )
    if version.operation == "deleted":
        return {"seal": sealed, "content": version.content is None}
    return {
        "seal": sealed,
        "content": version.content is not None
        and version.content_sha256 == sha256_hex(content)
        and version.content_size_bytes == len(content),
    }


def _finding(rule: str, version: VersionRow) -> Finding:
    check = {"forgotten": "forgotten", "content": "heads", "workspace": "owners"}.get(
        rule, "chains"
    )
    return Finding(
        check=check, table="versions", id=version.id, expected=rule, found=version.link.hex()
    )
