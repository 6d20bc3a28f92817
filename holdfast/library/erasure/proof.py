"""Find what is left of an erased subject: in tables, files and older copies."""

from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import msgspec
from msgspec import Struct

from holdfast.engines.base import Engine, Reader, scalar
from holdfast.engines.sqlite.maintenance import files_with, sought_files
from holdfast.ground.clock import to_microseconds
from holdfast.ground.errors import Unavailable
from holdfast.ground.scope import EVERYBODY
from holdfast.library.erasure.ledger import Proof, statements, whole
from holdfast.library.erasure.places import LinkRow, OwnedCollection, StoresErasure
from holdfast.library.erasure.records import ErasureSubject, Unreached
from holdfast.memories.stores.rows import StoresContext

NEEDLES: Final = 256
"""Texts of a subject that are sought in the files."""
NEEDLE: Final = 40
"""Code points of each that are sought: longer ones are split by the pages of a file."""
NEEDLE_LEAST: Final = 12
"""Code points of the shortest text that is sought."""

_WHOLE: Final = frozenset({"run", "network_run", "durable_entry", "store"})
"""Kinds of linked objects that are deleted whole."""


class Evidence(Struct, frozen=True, kw_only=True):
    """Facts about a subject from before the deletion, held in memory alone."""

    needles: tuple[str, ...]
    owned: str
    since: int | None
    keys: int
    shared: int


def evidence_of(context: StoresContext, subject: ErasureSubject) -> Evidence:
    """Return texts of *subject*, its collections, and when it was first recorded."""
    engine = whole(context)
    sql, names = statements(engine), _names(subject)

    def look(reader: Reader) -> Evidence:
        owned: list[str] = []
        if subject.kind == "user":
            for each in reader.all(OwnedCollection, sql.vectors_of, user=subject.name):
                owned += [str(each.number), each.id]
            owned += [
                each.id
                for each in reader.all(LinkRow, sql.links_of, user=subject.name)
                if not each.shared and each.kind in _WHOLE
            ]
            owned += reader.all(scalar, sql.stores_of, user=subject.name)
        texts: list[str] = reader.all(
            scalar,
            sql.texts_of_user if subject.kind == "user" else sql.texts_of_agent,
            most=NEEDLES,
            least=NEEDLE_LEAST,
            **_one(subject),
        )
        since = sql.since_user if subject.kind == "user" else sql.since_agent
        return Evidence(
            needles=tuple(dict.fromkeys(text[:NEEDLE] for text in texts)),
            owned=f",{','.join(owned)},",
            since=reader.one(scalar, since, **_one(subject)),
            keys=reader.one(scalar, sql.keys_of, **names),
            shared=reader.one(scalar, sql.shared_links, user=names["user"]),
        )

    return engine.read(look)


def _names(subject: ErasureSubject) -> dict[str, str]:
    """Return the name of *subject* as parameters, "" for the other kind."""
    is_user = subject.kind == "user"
    return {
        "user": subject.name if is_user else "",
        "agent_name": "" if is_user else subject.name,
    }


def _one(subject: ErasureSubject) -> dict[str, str]:
    return {"user" if subject.kind == "user" else "agent_name": subject.name}


class _Place(Struct, frozen=True, kw_only=True):
    place: str
    scanned: int
    found: int


def left_of(
    reader: Reader,
    sql: SimpleNamespace,
    subject: ErasureSubject,
    *,
    owned: str = ",",
    at: int,
    seq: int,
) -> tuple[int, int, dict[str, int]]:
    """Return tables, scanned rows, and rows of *subject* recorded up to *at* by table."""
    if subject.kind == "user":
        rows = reader.all(_Place, sql.left_of_user, user=subject.name, owned=owned, at=at)
    else:
        rows = reader.all(_Place, sql.left_of_agent, agent_name=subject.name, at=at, seq=seq)
    found = {each.place: each.found for each in rows if each.found}
    return len(rows), sum(each.scanned for each in rows), found


def prove(
    context: StoresContext, subject: ErasureSubject, evidence: Evidence, *, at: int, seq: int
) -> Proof:
    """Look for *subject* in every table and for its texts in the files.

    A text that another object has too is not sought.
    """
    engine = whole(context)
    sql = statements(engine)
    tables, scanned, left = engine.read(
        lambda reader: left_of(reader, sql, subject, owned=evidence.owned, at=at, seq=seq)
    )
    files = sought_files(engine.status().target) if engine.dialect == "sqlite" else []
    spelled = {each: _spellings(each) for each in evidence.needles} if files else {}
    found = files_with(files, {form for forms in spelled.values() for form in forms})
    seen = [each for each, forms in spelled.items() if not forms.isdisjoint(found)]
    others = [each for each in seen if engine.first(scalar, sql.still_said, text=each)]
    return Proof(
        tables=tables,
        rows_scanned=scanned,
        files=len(files),
        needles=len(spelled) - len(others),
        found=sum(left.values()) + len(seen) - len(others),
    )


def _spellings(text: str) -> frozenset[bytes]:
    """Return *text* as stored: plain, and within JSON."""
    return frozenset({text.encode("utf-8", "replace"), msgspec.json.encode(text)[1:-1]})


# Copies that an erasure cannot reach

_MARKS: Final = {"replaced": ".replaced-", "before_migration": ".before-"}
"""Marks in the names of the files that restore and migrations leave beside a database."""


def copies_beside(engine: Engine) -> dict[str, list[Path]]:
    """Return the older copies beside the database file, by their kind."""
    target = Path(engine.status().target)
    if engine.dialect != "sqlite" or not target.is_file():
        return {}
    found = {
        kind: sorted(
            each
            for each in target.parent.iterdir()
            if each.name.startswith(f"{target.name}{mark}") and each.is_file()
        )
        for kind, mark in _MARKS.items()
    }
    return {kind: files for kind, files in found.items() if files}


def purge_copies(engine: Engine) -> list[Path]:
    """Delete the copies that restore and migrations left beside the database."""
    files = [each for found in copies_beside(engine).values() for each in found]
    for each in files:
        each.unlink(missing_ok=True)
    return files


def unreached_of(
    context: StoresContext, evidence: Evidence, linked: StoresErasure, *, until: int
) -> tuple[Unreached, ...]:
    """Return what the process does not erase: copies, keys, edits, current versions."""
    everywhere = context.engine.scoped(EVERYBODY)
    sql = statements(everywhere)
    since = evidence.since
    backups = 0
    if since is not None:
        backups = everywhere.one(scalar, sql.backups_with, since=since, until=until)
    found = [
        Unreached(what="backup", count=backups, reason="restore_applies", who="operator"),
        *(
            Unreached(what=kind, count=len(files), reason="purge_copies", who="operator")
            for kind, files in copies_beside(context.engine).items()
        ),
        Unreached(what="api_key", count=evidence.keys, reason="revoke", who="operator"),
        Unreached(what="spool", count=linked.spooled, reason="unsaved", who="mount_owner"),
        Unreached(what="version", count=len(linked.heads), reason="head_of_others", who="operator"),
        Unreached(what="object", count=evidence.shared, reason="other_subjects", who="operator"),
    ]
    if context.engine.dialect == "postgres":
        reason = "log_and_standbys"
        found.append(Unreached(what="server", count=1, reason=reason, who="database_owner"))
    return tuple(each for each in found if each.count)


def note_backup(engine: Engine, path: Path, *, at: datetime, seq: int, rows: int) -> None:
    """Record that a backup was made; a read-only database records none."""
    everywhere = engine.scoped(EVERYBODY)
    statement = statements(everywhere).put_backup
    facts = {"at": to_microseconds(at), "seq": seq, "rows": rows, "name": path.name}
    try:
        everywhere.write(lambda tx: tx.run(statement, **facts))
    except Unavailable as error:
        if error.reason != "read_only":
            raise
