"""API keys and session tokens.

Only the sha256 of a secret is looked up. Keys are remembered for half a second, so that one that
is revoked by another process is refused within a second; session tokens are not remembered at
all, because theirs ends at once.
"""

import hmac
import logging
import math
import secrets
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Literal, cast, get_args

from msgspec import Struct

from holdfast.engines.base import Engine, Transaction
from holdfast.ground.clock import (
    Clock,
    from_microseconds,
    from_microseconds_or_none,
    to_microseconds,
)
from holdfast.ground.errors import HoldfastError, InvalidInput
from holdfast.ground.events import Event
from holdfast.ground.scope import EVERYBODY, Scope, checked_name
from holdfast.ground.text import sha256_hex, within
from holdfast.memories.stores.records import ApiKey, KeyScope, SessionToken
from holdfast.memories.stores.rows import (
    SessionRow,
    StoresContext,
    missing,
    refuse_narrowed,
    shaped,
)

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


MOST_NAME = 255
"""Code points."""


class _ListedKeyRow(Struct, frozen=True, kw_only=True):
    id: str
    workspace: str
    name: str
    scope: KeyScope
    bound_agent: str | None
    bound_user: str | None
    created_at: int
    last_used_at: int | None
    revoked_at: int | None

    def record(self, secret: str | None = None) -> ApiKey:
        return ApiKey(
            id=self.id,
            name=self.name,
            scope=self.scope,
            workspace=self.workspace,
            agent=self.bound_agent,
            user=self.bound_user,
            secret=secret,
            created_at=from_microseconds(self.created_at),
            last_used_at=from_microseconds_or_none(self.last_used_at),
            revoked_at=from_microseconds_or_none(self.revoked_at),
        )


class Keys:
    """The keys of a workspace."""

    def __init__(self, caller: StoresContext) -> None:
        self._caller = caller
        self._sql = caller.engine.queries("holdfast.memories.stores")

    def create(
        self,
        name: str,
        scope: KeyScope = "write",
        workspace: str | None = None,
        agent: str | None = None,
        user: str | None = None,
    ) -> ApiKey:
        """Return a new key to *workspace*, the caller's unless given, with its secret.

        Bound to an *agent* or a *user* it reaches that agent's durable memory, that user's
        long-term memory, and nothing else. The first key closes an open server.
        """
        refuse_narrowed(self._caller, "admin")
        home = self._caller.workspace if workspace is None else workspace
        checked_name("workspace", home)
        if scope not in get_args(KeyScope):
            raise InvalidInput("scope", "must be read, write or admin", given=scope)
        now, secret = self._caller.now(), new_secret(KEY_PREFIX)
        row = _ListedKeyRow(
            id=self._caller.ids.new("apikey", now),
            workspace=home,
            name=within("name", name, least=1, most=MOST_NAME),
            scope=scope,
            bound_agent=None if agent is None else checked_name("agent", agent),
            bound_user=None if user is None else checked_name("user", user),
            created_at=now,
            last_used_at=None,
            revoked_at=None,
        )

        def work(tx: Transaction) -> ApiKey:
            self._insert(tx, row, secret)
            return row.record(secret)

        engine = self._caller.engine
        if home != self._caller.workspace:
            engine = engine.scoped(Scope(workspace=home))
        return engine.write(work)

    def list(self) -> list[ApiKey]:
        """Return the workspace's keys, revoked ones too, newest first, without their secrets."""
        refuse_narrowed(self._caller, "admin")
        rows = self._caller.engine.all(_ListedKeyRow, self._sql.list_keys)
        return [row.record() for row in rows]

    def revoke(self, id: str) -> ApiKey:
        """End the key *id*, and return it; again: unchanged."""
        refuse_narrowed(self._caller, "admin")
        shaped("apikey", id)
        now = self._caller.now()

        def work(tx: Transaction) -> ApiKey:
            changed = tx.run(self._sql.revoke_key, id=id, now=now)
            row = tx.first(_ListedKeyRow, self._sql.get_key, id=id)
            if row is None:
                raise missing("apikey", id)
            if changed:
                tx.note(self._event("key.revoked", row, now))
            return row.record()

        return self._caller.engine.write(work)

    def _insert(self, tx: Transaction, row: _ListedKeyRow, secret: str) -> None:
        tx.run(
            self._sql.insert_key,
            id=row.id,
            name=row.name,
            scope=row.scope,
            bound_agent=row.bound_agent,
            bound_user=row.bound_user,
            secret_hash=secret_hash(secret),
            now=row.created_at,
        )
        tx.note(self._event("key.created", row, row.created_at))

    def _event(self, type: str, row: _ListedKeyRow, at: int) -> Event:
        return Event(
            type=type,
            at=from_microseconds(at),
            workspace=row.workspace,
            actor=self._caller.actor,
            ids={"api_key_id": row.id},
            data={"scope": row.scope},
        )


REMEMBERED = 0.5
"""Seconds."""
MOST_REMEMBERED = 10_000
"""Keys; past that all are forgotten and asked for anew."""
BETWEEN_MARKS = 60_000_000
"""Microseconds between two notes of when a key was last used."""

_log = logging.getLogger(__name__)


class Credential(Struct, frozen=True, kw_only=True):
    """What a secret opens. A session token has the scope `write`, within its session."""

    kind: Literal["key", "session_token"]
    id: str
    workspace: str
    scope: KeyScope
    agent: str | None
    user: str | None
    session_id: str | None


class _KeyRow(Struct, frozen=True, kw_only=True):
    id: str
    workspace: str
    name: str
    scope: KeyScope
    bound_agent: str | None
    bound_user: str | None
    secret_hash: str
    last_used_at: int | None

    def credential(self) -> Credential:
        return Credential(
            kind="key",
            id=self.id,
            workspace=self.workspace,
            scope=self.scope,
            agent=self.bound_agent,
            user=self.bound_user,
            session_id=None,
        )


class _TokenRow(Struct, frozen=True, kw_only=True):
    id: str
    workspace: str
    session_id: str
    secret_hash: str
    expires_at: int | None

    def credential(self) -> Credential:
        return Credential(
            kind="session_token",
            id=self.id,
            workspace=self.workspace,
            scope="write",
            agent=None,
            user=None,
            session_id=self.session_id,
        )


class _Remembered(Struct, frozen=True):
    until: float
    credential: Credential


class _Found(Struct, frozen=True):
    found: int


class Credentials:
    """The keys and session tokens of all workspaces, to be told apart by their secrets.

    *engine* need not be scoped. *monotonic* gives seconds that only rise.
    """

    def __init__(
        self, engine: Engine, clock: Clock, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._engine, self._clock, self._monotonic = engine, clock, monotonic
        self._sql = engine.queries("holdfast.memories.stores")
        self._keys: dict[str, _Remembered] = {}
        self._marked: dict[str, int] = {}
        self._closed = False
        self._open_until = float("-inf")
        engine.events.subscribe(self._forget, types=("key.created", "key.revoked"))

    def any_key(self) -> bool:
        """Tell whether a key was ever made, in any workspace: then nobody comes in without."""
        if self._closed:
            return True
        now = self._monotonic()
        if now < self._open_until:
            return False
        found = self._engine.scoped(EVERYBODY).first(_Found, self._sql.any_key)
        self._closed, self._open_until = found is not None, now + REMEMBERED
        return self._closed

    def find(self, secret: str) -> Credential | None:
        """Return what *secret* opens; None when unknown, revoked, expired, or its session ended."""
        if secret.startswith(TOKEN_PREFIX):
            return self._token(secret_hash(secret))
        if secret.startswith(KEY_PREFIX):
            return self._key(secret_hash(secret))
        return None

    def _token(self, hashed: str) -> Credential | None:
        holder = self._engine.scoped(Scope(workspace="", credential=hashed))
        row = holder.first(_TokenRow, self._sql.token_by_credential, secret_hash=hashed)
        if row is None or not hmac.compare_digest(row.secret_hash, hashed):
            return None
        if row.expires_at is not None and row.expires_at <= to_microseconds(self._clock.now()):
            return None
        return row.credential()

    def _key(self, hashed: str) -> Credential | None:
        # What is found goes where it was missed: a revocation meanwhile puts another dict here.
        keys, now = self._keys, self._monotonic()
        remembered = keys.get(hashed)
        if remembered is not None and now < remembered.until:
            return remembered.credential
        holder = self._engine.scoped(Scope(workspace="", credential=hashed))
        row = holder.first(_KeyRow, self._sql.key_by_credential, secret_hash=hashed)
        if row is None or not hmac.compare_digest(row.secret_hash, hashed):
            return None
        if len(keys) >= MOST_REMEMBERED:
            keys = self._keys = {}
        credential = row.credential()
        keys[hashed] = _Remembered(now + REMEMBERED, credential)
        self._mark_used(row)
        return credential

    def _mark_used(self, row: _KeyRow) -> None:
        """Write down when the key was last used, once a minute, without waiting for it."""
        now = to_microseconds(self._clock.now())
        marked = max(row.last_used_at or 0, self._marked.get(row.id, 0))
        if marked > now - BETWEEN_MARKS:
            return
        self._marked[row.id] = now

        def work(tx: Transaction) -> None:
            tx.run(self._sql.mark_key_used, id=row.id, now=now, before=now - BETWEEN_MARKS)

        try:
            future = self._engine.scoped(Scope(workspace=row.workspace)).submit(work)
        except HoldfastError as error:
            _unmarked(error)
        else:
            future.add_done_callback(_look_at)

    def _forget(self, event: Event) -> None:
        self._keys = {}
        if event.type == "key.created":
            self._open_until = float("-inf")


def _look_at(future: "Future[None]") -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        _unmarked(error)


def _unmarked(error: BaseException) -> None:
    _log.warning("when a key was last used could not be written down: %s", type(error).__name__)
