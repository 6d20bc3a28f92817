"""Prove that an erased subject is in no table and in no file of the database."""

from types import SimpleNamespace
from typing import Final

import msgspec
from msgspec import Struct

from holdfast.engines.base import Reader, scalar
from holdfast.engines.sqlite.maintenance import files_with, sought_files
from holdfast.library.erasure.ledger import Proof, statements, whole
from holdfast.library.erasure.places import OwnedCollection
from holdfast.library.erasure.records import ErasureSubject
from holdfast.memories.stores.rows import StoresContext

NEEDLES: Final = 256
"""Texts of a subject that are sought in the files."""
NEEDLE: Final = 40
"""Code points of each that are sought: longer ones are split by the pages of a file."""
NEEDLE_LEAST: Final = 12
"""Code points of the shortest text that is sought."""


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
