"""Keys and tokens that a database revoked, revoked once more in one that does not know of it."""

from collections.abc import Iterable
from types import SimpleNamespace

from msgspec import Struct

from holdfast.engines.base import Engine, Reader, Transaction
from holdfast.ground.scope import EVERYBODY


class Revocation(Struct, frozen=True, kw_only=True):
    """A key or a session token that was revoked, and when."""

    id: str
    revoked_at: int


def revocations(reader: Reader, sql: SimpleNamespace) -> list[Revocation]:
    """Return every revocation there is."""
    return reader.all(Revocation, sql.revoked_credentials)


def revoke_again(engine: Engine, made: Iterable[Revocation]) -> int:
    """Revoke in *engine* what *made* names and is still good there; return how many were."""
    sql = engine.queries("holdfast.library.upkeep")

    def work(tx: Transaction) -> int:
        return sum(
            tx.run(statement, id=each.id, revoked_at=each.revoked_at)
            for each in made
            for statement in (sql.revoke_key_again, sql.revoke_token_again)
        )

    return engine.scoped(EVERYBODY).write(work)
