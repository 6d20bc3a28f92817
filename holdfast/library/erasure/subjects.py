"""`hf.subjects`: which objects are whose, so that they are erased with the person."""

from typing import Final, get_args

from holdfast.engines.base import Transaction, scalar
from holdfast.ground.clock import from_microseconds
from holdfast.ground.errors import NotFound
from holdfast.ground.pages import Page, digest, no_cursor, read_cursor, write_cursor
from holdfast.ground.validation import check_limit, check_one_of, check_text
from holdfast.library.erasure.ledger import statements, whole
from holdfast.library.erasure.records import LinkKind, SubjectLink
from holdfast.memories.longterm.validation import checked_user
from holdfast.memories.stores.rows import StoresContext, refuse_narrowed

LISTED: Final = 100
MOST_LISTED: Final = 1_000
MOST_ID: Final = 256
_LIST: Final = "subjects"


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
        check_text("id", id, least=1, most=MOST_ID)
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
        self, user: str | None = None, *, limit: int | None = LISTED, page: str | None = None
    ) -> Page[SubjectLink]:
        """Return the links of *user*, or of everyone, by user, kind and id."""
        context = self._context
        refuse_narrowed(context, "admin")
        rows = check_limit(limit, most=MOST_LISTED, default=LISTED)
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
        following = last and write_cursor(_LIST, stamp, [last.user, last.kind, last.id])
        return Page(shown, following, more=lambda page: self.list(user, limit=limit, page=page))


def _place(stamp: str, page: str) -> tuple[str, str, str]:
    key, _ = read_cursor(_LIST, stamp, page)
    match key:
        case [str(user), str(kind), str(id)] if "\0" not in f"{user}{kind}{id}":
            return user, kind, id
        case _:
            raise no_cursor()


def _record(*, user: str, kind: LinkKind, id: str, at: int) -> SubjectLink:
    return SubjectLink(user=user, kind=kind, id=id, at=from_microseconds(at))
