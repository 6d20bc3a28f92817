"""Checkpoints as bytes: a line that says what follows and its hash, then JSON."""

from hashlib import sha256

import msgspec
from msgspec import Raw, Struct

from holdfast.memories.run.entry import RunEntry
from holdfast.memories.run.keys import Kind
from holdfast.runtime.checkpoints.checkpoint import Checkpoint

FORMAT = "holdfast.checkpoint"
VERSION = 1


class Unreadable(ValueError):
    """These bytes are no checkpoint; the text says why."""


class _Header(Struct, frozen=True, kw_only=True):
    """The first line: what the rest is, and the hash that it had when it was written."""

    format: str
    version: int
    sha256: str


class _Entry(Struct, frozen=True, kw_only=True):
    """A run entry, its value as the JSON it is."""

    key: str
    kind: Kind
    value: Raw
    source: str | None
    title: str | None
    description: str | None
    created_at: int
    updated_at: int
    version: int
    failed: bool


class _Body(Struct, frozen=True, kw_only=True):
    """A checkpoint, its entries as JSON."""

    run_id: str
    plan_hash: str
    parts: dict[str, str]
    completed_tasks: tuple[str, ...]
    completed_steps: tuple[str, ...]
    saved_at: int
    entries: tuple[_Entry, ...]


def encoded(checkpoint: Checkpoint) -> bytes:
    """Return *checkpoint* as bytes."""
    body = msgspec.json.encode(
        _Body(
            run_id=checkpoint.run_id,
            plan_hash=checkpoint.plan_hash,
            parts=dict(checkpoint.parts),
            completed_tasks=checkpoint.completed_tasks,
            completed_steps=checkpoint.completed_steps,
            saved_at=checkpoint.saved_at,
            entries=tuple(map(_written, checkpoint.entries)),
        )
    )
    header = _Header(format=FORMAT, version=VERSION, sha256=sha256(body).hexdigest())
    return msgspec.json.encode(header) + b"\n" + body


def decoded(content: bytes) -> Checkpoint:
    """Return the checkpoint in *content*; Unreadable when it is not as it was written."""
    first, _, body = content.partition(b"\n")
    try:
        header = msgspec.json.decode(first, type=_Header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable("it does not begin as a checkpoint does") from error
    if header.format != FORMAT or header.version != VERSION:
        raise Unreadable(f"it is {header.format} version {header.version}, of another release")
    if sha256(body).hexdigest() != header.sha256:
        raise Unreadable("it is damaged or cut short")
    try:
        found = msgspec.json.decode(body, type=_Body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable(f"it has another shape: {error}") from error
    return Checkpoint(
        run_id=found.run_id,
        plan_hash=found.plan_hash,
        parts=found.parts,
        completed_tasks=found.completed_tasks,
        completed_steps=found.completed_steps,
        entries=tuple(map(_read, found.entries)),
        saved_at=found.saved_at,
    )


def _written(entry: RunEntry) -> _Entry:
    return _Entry(
        key=entry.key,
        kind=entry.kind,
        value=Raw(entry.value_json),
        source=entry.source,
        title=entry.title,
        description=entry.description,
        created_at=entry.created_at,
        updated_at=entry.updated_at,
        version=entry.version,
        failed=entry.failed,
    )


def _read(entry: _Entry) -> RunEntry:
    return RunEntry(
        key=entry.key,
        kind=entry.kind,
        value_json=bytes(entry.value),
        source=entry.source,
        title=entry.title,
        description=entry.description,
        created_at=entry.created_at,
        updated_at=entry.updated_at,
        version=entry.version,
        failed=entry.failed,
    )
