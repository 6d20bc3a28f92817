"""The random key with which a workspace hashes what it must not keep."""

from holdfast.memories.durable.records import new_secret
from holdfast.memories.durable.transaction import AgentTransaction


def secret_of(book: AgentTransaction) -> bytes:
    """Return the secret of *book*'s workspace; made now if this is its first use."""
    if book.secret is None:
        book.tx.run(book.sql.make_secret, secret=new_secret())
        book.secret = book.tx.one(_secret, book.sql.get_secret)
    return book.secret


def _secret(*, secret: bytes) -> bytes:
    return secret
