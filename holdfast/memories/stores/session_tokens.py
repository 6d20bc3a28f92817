"""Tokens of a session: made, listed, revoked. A token's secret is shown once and not kept."""

import math
import secrets
from typing import cast

from msgspec import Struct

from holdfast.engines.base import Transaction
from holdfast.ground.clock import from_microseconds, from_microseconds_or_none
from holdfast.ground.errors import InvalidInput
from holdfast.ground.text import sha256_hex
from holdfast.memories.stores.records import SessionToken
from holdfast.memories.stores.rows import SessionRow, StoresContext, missing, shaped

KEY_PREFIX, TOKEN_PREFIX = "hf_", "hfs_"
LONGEST_SECONDS = 100 * 366 * 86_400
"""A hundred years: past that an instant may no longer be told."""


def new_secret(prefix: str) -> str:
    """Return *prefix* and 43 characters of URL-safe base64, from 256 random bits."""
    return prefix + secrets.token_urlsafe(32)


def secret_hash(secret: str) -> str:
    """Return all that is kept of *secret*: its sha256, 64 lowercase hex digits."""
    return sha256_hex(secret.encode("utf-8", "surrogatepass"))


class _ListedTokenRow(Struct, frozen=True, kw_only=True):
    id: str
    session_id: str
    created_at: int
    expires_at: int | None

    def record(self, token: str | None = None) -> SessionToken:
        return SessionToken(
            id=self.id,
            session_id=self.session_id,
            token=token,
            created_at=from_microseconds(self.created_at),
            expires_at=from_microseconds_or_none(self.expires_at),
        )


class SessionTokens:
    """The tokens of a workspace's sessions."""

    def __init__(self, caller: StoresContext) -> None:
        self._caller = caller
        self._sql = caller.engine.queries("holdfast.memories.stores")

    def create(self, session_id: str, *, expires_in: float | None = None) -> SessionToken:
        """Return a new token of the session, good for *expires_in* seconds or while it lives.

        InvalidInput for an archived session, or for a time that is not positive.
        """
        shaped("sesn", session_id)
        now = self._caller.now()
        expires_at = None if expires_in is None else now + _microseconds(expires_in)
        token_id, token = self._caller.ids.new("sestok", now), new_secret(TOKEN_PREFIX)
        row = _ListedTokenRow(
            id=token_id, session_id=session_id, created_at=now, expires_at=expires_at
        )

        def work(tx: Transaction) -> SessionToken:
            session = tx.first(SessionRow, self._sql.lock_session, session_id=session_id)
            if session is None:
                raise missing("sesn", session_id)
            if session.archived_at is not None:
                raise InvalidInput(
                    "session_id", "is archived, and takes no tokens", next="Create a new session."
                )
            tx.run(
                self._sql.insert_token,
                id=token_id,
                session_id=session_id,
                secret_hash=secret_hash(token),
                now=now,
                expires_at=expires_at,
            )
            return row.record(token)

        return self._caller.engine.write(work)

    def list(self, session_id: str) -> list[SessionToken]:
        """Return the tokens of the session that are good, newest first, without their secrets."""
        shaped("sesn", session_id)
        now, engine = self._caller.now(), self._caller.engine
        if engine.first(SessionRow, self._sql.get_session, session_id=session_id) is None:
            raise missing("sesn", session_id)
        rows = engine.all(_ListedTokenRow, self._sql.live_tokens, session_id=session_id, now=now)
        return [row.record() for row in rows]

    def revoke(self, token_id: str, *, session_id: str) -> SessionToken:
        """End the token at once, and return it; again: the same."""
        shaped("sesn", session_id)
        shaped("sestok", token_id)
        now = self._caller.now()

        def work(tx: Transaction) -> SessionToken:
            found = tx.first(
                _ListedTokenRow, self._sql.get_token, token_id=token_id, session_id=session_id
            )
            if found is None:
                raise missing("sestok", token_id)
            tx.run(self._sql.revoke_token, token_id=token_id, session_id=session_id, now=now)
            return found.record()

        return self._caller.engine.write(work)


def _microseconds(expires_in: float) -> int:
    given = expires_in if isinstance(cast("object", expires_in), int | float) else math.nan
    if isinstance(given, bool) or not 0 < given <= LONGEST_SECONDS:
        reason = f"must be a number of seconds, more than 0 and at most {LONGEST_SECONDS:,}"
        raise InvalidInput("expires_in", reason, limit=LONGEST_SECONDS, given=repr(expires_in))
    return math.ceil(given * 1_000_000)
