"""Ledger file of erasures, for a restore into an empty database.

It holds the keys of the ledger's hashes, so that names can be tested with it: mode 0600.
"""

from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Engine
from holdfast.ground.errors import InvalidInput, UnknownFormat
from holdfast.ground.scope import EVERYBODY
from holdfast.library.erasure.receipt import canonical, write_private
from holdfast.library.upkeep.reapply import ForgottenRecords, forgotten_of
from holdfast.memories.durable.rows import NO_RUN, SHARED

TYPE: Final = "erasure_ledger"
VERSION: Final = 1


class LedgerFile(Struct, frozen=True, kw_only=True):
    """The content of a ledger file."""

    type: str
    version: int
    made: ForgottenRecords


def write_ledger(engine: Engine, path: str | Path) -> None:
    """Write the erasures of people and agents of all workspaces to a new file.

    Raises InvalidInput if *path* exists.
    """
    all_owners = engine.scoped(EVERYBODY)
    found = all_owners.read(lambda reader: forgotten_of(reader, engine))
    agents = [each for each in found.tombstones if (each.agent, each.run_id) == (SHARED, NO_RUN)]
    made = ForgottenRecords(
        tombstones=tuple(agents),
        users=found.users,
        ledger=replace(found.ledger, backups=()),
        seq=found.seq,
    )
    wire: dict[str, Any] = {"type": TYPE, "version": VERSION, "made": msgspec.to_builtins(made)}
    write_private("ledger", path, canonical(wire))


def read_ledger(path: str | Path) -> ForgottenRecords:
    """Return the erasures in the ledger file *path*; InvalidInput if it is none."""
    try:
        body = Path(path).read_bytes()
    except OSError as error:
        raise InvalidInput("erasures", "cannot be read", given=str(path)) from error
    try:
        found = msgspec.json.decode(body, type=LedgerFile)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidInput("erasures", "is no ledger file", given=str(path)) from error
    if (found.type, found.version) != (TYPE, VERSION):
        raise UnknownFormat(
            "erasures",
            format=found.type,
            version=found.version,
            known=f"{TYPE}, version {VERSION}",
            next="Make one with holdfast forget --ledger, or upgrade holdfast.",
        )
    return found.made
