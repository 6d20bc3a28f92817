"""`hf.erasures` and `hf.subjects`: the ledger with receipts; links to people."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

from holdfast.engines.base import Reader, Transaction, scalar
from holdfast.ground.clock import from_microseconds
from holdfast.ground.errors import Conflict, InvalidInput, NotFound
from holdfast.ground.pages import (
    NEWEST,
    Page,
    digest,
    no_cursor,
    place_in,
    read_cursor,
    write_cursor,
)
from holdfast.ground.validation import check_limit, check_one_of, check_text
from holdfast.library.erasure.ledger import (
    LedgerRow,
    check_ledger,
    row_of,
    statements,
    subject_hash,
    subject_of,
    whole,
)
from holdfast.library.erasure.proof import left_of
from holdfast.library.erasure.receipt import (
    canonical,
    check_alone,
    checked,
    subject_text,
)
from holdfast.library.erasure.records import (
    ErasureRecord,
    ErasureSubject,
    LinkKind,
    ReceiptCheck,
    ReceiptJSON,
    ReceiptLine,
    SubjectLink,
)
from holdfast.memories.longterm.validation import checked_user
from holdfast.memories.stores.rows import StoresContext, refuse_narrowed

ERASURES_LISTED: Final = 100
MOST_LISTED: Final = 1_000
MOST_ID: Final = 64
_LIST: Final = "erasures"
_HIGHEST: Final = "~"


class Erasures:
    """Erasures of people and agents in a workspace, without their names."""

    def __init__(self, context: StoresContext) -> None:
        self._context = context

    def list(
        self, limit: int | None = ERASURES_LISTED, page: str | None = None
    ) -> Page[ErasureRecord]:
        """Return the erasures of the workspace, newest first."""
        context = self._context
        refuse_narrowed(context, "admin")
        rows = check_limit(limit, most=MOST_LISTED, default=ERASURES_LISTED)
        stamp = digest(context.workspace)
        at, id = NEWEST, _HIGHEST
        if page is not None:
            at, id = place_in(read_cursor(_LIST, stamp, page)[0])
        engine = whole(context)
        found = engine.all(LedgerRow, statements(engine).list_erasures, at=at, id=id, rows=rows + 1)
        last = found[rows - 1] if len(found) > rows else None
        return Page(
            [each.record for each in found[:rows]],
            last and write_cursor(_LIST, stamp, [last.at, last.id]),
            more=lambda page: self.list(limit, page),
        )

    def receipt(self, id: str) -> ReceiptJSON:
        """Return the receipt of the erasure *id*.

        Raises NotFound, and Conflict while the erasure is not complete.
        """
        refuse_narrowed(self._context, "admin")
        check_text("id", id, least=1, most=MOST_ID)
        engine = whole(self._context)
        receipt = row_of(engine, statements(engine), id).sealed
        if receipt is None:
            raise Conflict(
                f"The erasure {id} is not complete, so it has no receipt.",
                next="Run holdfast scrub, or wait a minute where a server runs.",
            )
        return receipt

    def verify(
        self,
        receipt: Mapping[str, Any],
        *,
        user: str | None = None,
        agent: str | None = None,
    ) -> ReceiptCheck:
        """Check *receipt* against the ledger and every table; it changes nothing.

        With *user* or *agent*, also that it is about that person or agent.
        """
        id = receipt.get("id")
        if not isinstance(id, str):
            raise InvalidInput("receipt", "must be a receipt", next="Send the file's JSON.")
        return self.check(id, receipt=dict(receipt), user=user, agent=agent)

    def check(
        self,
        id: str,
        *,
        receipt: dict[str, Any] | None = None,
        user: str | None = None,
        agent: str | None = None,
    ) -> ReceiptCheck:
        """Check the receipt of the erasure *id*: *receipt*, or the stored one."""
        refuse_narrowed(self._context, "admin")
        given = self.receipt(id) if receipt is None else receipt
        if given.get("id") != id:
            raise InvalidInput("receipt", "is of another erasure", given=str(given.get("id")))
        if user is not None and agent is not None:
            raise InvalidInput("user", "or agent may be given, not both")
        lines = [*check_alone(canonical(given), None)]
        if all(each.ok is not False for each in lines):
            subject = _subject(user, agent)
            lines += whole(self._context).read(lambda reader: [*self._here(reader, given, subject)])
        return checked(lines)

    def _here(
        self, reader: Reader, receipt: ReceiptJSON, subject: ErasureSubject | None
    ) -> Iterator[ReceiptLine]:
        sql = statements(self._context.engine)
        yield from check_ledger(reader, sql, self._context.workspace, receipt)
        row = reader.first(LedgerRow, sql.get_erasure, id=str(receipt["id"]))
        if row is None or row.completed_at is None:
            return
        secret = reader.first(scalar, sql.workspace_secret)
        if subject is not None:
            known = secret is not None and subject_text(subject_hash(secret, subject))
            ok = known == receipt["subject"] and subject.kind == receipt["subject_kind"]
            says = "is the one named" if ok else "is not the one named"
            yield ReceiptLine(name="subject", ok=ok, says=says)
            if not ok:
                # What the database has of the one named is no part of this receipt.
                yield ReceiptLine(name="tables", ok=None, says="not checked: of another subject")
                return
        there = subject or subject_of(reader, sql, row)
        if there is None:
            yield ReceiptLine(name="tables", ok=True, says="no row of the subject")
            return
        tables, _, found = left_of(reader, sql, there, at=row.at, seq=row.seq)
        rows = ", ".join(f"{number} in {table}" for table, number in sorted(found.items()))
        says = f"found {rows}" if found else f"no row of the subject in {tables} tables"
        yield ReceiptLine(name="tables", ok=not found, says=says)


def _subject(user: str | None, agent: str | None) -> ErasureSubject | None:
    if user is not None:
        return ErasureSubject(kind="user", name=user)
    return None if agent is None else ErasureSubject(kind="agent", name=agent)


MOST_LINKED: Final = 256
_LINKS: Final = "subjects"


class Subjects:
    """Links of threads, runs, stores, memories, versions and entries to people."""

    def __init__(self, context: StoresContext) -> None:
        self._context = context

    def link(self, kind: LinkKind, id: str, *, user: str) -> SubjectLink:
        """Record that the object *id* is *user*'s; a repeat changes nothing.

        `forget_user` deletes it, unless it is linked to another person too. Raises NotFound if the
        workspace has no such object.
        """
        context = self._context
        refuse_narrowed(context, "write")
        check_one_of("kind", kind, get_args(LinkKind), f"must be one of {get_args(LinkKind)}")
        check_text("id", id, least=1, most=MOST_LINKED)
        name = checked_user(user)
        engine = whole(context)
        sql = statements(engine)

        def work(tx: Transaction) -> SubjectLink:
            if not tx.all(scalar, sql.has_object, kind=kind, id=id):
                raise NotFound(kind, id)
            tx.run(sql.link, user=name, kind=kind, id=id, now=context.now())
            return tx.one(_record, sql.get_link, user=name, kind=kind, id=id)

        return engine.write(work)

    def list(
        self,
        user: str | None = None,
        *,
        limit: int | None = ERASURES_LISTED,
        page: str | None = None,
    ) -> Page[SubjectLink]:
        """Return the links of *user*, or of everyone, by user, kind and id."""
        context = self._context
        refuse_narrowed(context, "admin")
        rows = check_limit(limit, most=MOST_LISTED, default=ERASURES_LISTED)
        name = "" if user is None else checked_user(user)
        stamp = digest(context.workspace, name)
        after = ("", "", "") if page is None else _place(stamp, page)
        engine = whole(context)
        found = engine.all(
            _record,
            statements(engine).list_links,
            user=name,
            after_user=after[0],
            after_kind=after[1],
            after_id=after[2],
            rows=rows + 1,
        )
        shown, last = found[:rows], found[rows - 1] if len(found) > rows else None
        following = last and write_cursor(_LINKS, stamp, [last.user, last.kind, last.id])
        return Page(shown, following, more=lambda page: self.list(user, limit=limit, page=page))


def _place(stamp: str, page: str) -> tuple[str, str, str]:
    key, _ = read_cursor(_LINKS, stamp, page)
    match key:
        case [str(user), str(kind), str(id)] if "\0" not in f"{user}{kind}{id}":
            return user, kind, id
        case _:
            raise no_cursor()


def _record(*, user: str, kind: LinkKind, id: str, at: int) -> SubjectLink:
    return SubjectLink(user=user, kind=kind, id=id, at=from_microseconds(at))
