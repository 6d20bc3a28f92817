"""API keys, session tokens and sign-ins to the console.

Lookups use the sha256 of a secret. Keys are cached for half a second, so that a key that another
process revoked is refused within a second. Session tokens and sign-ins are not cached, as their end
takes effect at once.
"""

import hmac
import logging
import math
import secrets
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Literal, get_args

from msgspec import Struct

from holdfast.engines.base import Engine, Transaction, scalar
from holdfast.ground.clock import (
    Clock,
    from_microseconds,
    from_microseconds_or_none,
    to_microseconds,
)
from holdfast.ground.errors import HoldfastError, InvalidInput
from holdfast.ground.events import Event
from holdfast.ground.scope import EVERYBODY, Scope, checked_name
from holdfast.ground.text import sha256_hex
from holdfast.ground.validation import check_one_of, check_text, is_number
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
"""A hundred years. Later instants may not be representable."""


def new_secret(prefix: str) -> str:
    """Return *prefix* and 43 characters of URL-safe base64, from 256 random bits."""
    return prefix + secrets.token_urlsafe(32)


def secret_hash(secret: str) -> str:
    """Return what is stored of *secret*: its sha256, 64 lowercase hex digits."""
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

    def __init__(self, context: StoresContext) -> None:
        self._context = context
        self._sql = context.sql

    def create(self, session_id: str, *, expires_in: float | None = None) -> SessionToken:
        """Create and return a token of the session.

        It is valid for *expires_in* seconds, or while the session is open. Raises InvalidInput for
        an archived session, or a time that is not positive.
        """
        shaped("sesn", session_id)
        now = self._context.now()
        expires_at = None if expires_in is None else now + _microseconds(expires_in)
        token_id, token = self._context.ids.new("sestok", now), new_secret(TOKEN_PREFIX)
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

        return self._context.engine.write(work)

    def list(self, session_id: str) -> list[SessionToken]:
        """Return the valid tokens of the session, newest first, without secrets."""
        shaped("sesn", session_id)
        now, engine = self._context.now(), self._context.engine
        if engine.first(SessionRow, self._sql.get_session, session_id=session_id) is None:
            raise missing("sesn", session_id)
        rows = engine.all(_ListedTokenRow, self._sql.live_tokens, session_id=session_id, now=now)
        return [row.record() for row in rows]

    def revoke(self, token_id: str, *, session_id: str) -> SessionToken:
        """Revoke the token at once, and return it; a repeat changes nothing."""
        shaped("sesn", session_id)
        shaped("sestok", token_id)
        now = self._context.now()

        def work(tx: Transaction) -> SessionToken:
            found = tx.first(
                _ListedTokenRow, self._sql.get_token, token_id=token_id, session_id=session_id
            )
            if found is None:
                raise missing("sestok", token_id)
            tx.run(self._sql.revoke_token, token_id=token_id, session_id=session_id, now=now)
            return found.record()

        return self._context.engine.write(work)


def _microseconds(expires_in: float) -> int:
    if not is_number(expires_in) or not 0 < expires_in <= LONGEST_SECONDS:
        reason = f"must be a number of seconds, more than 0 and at most {LONGEST_SECONDS:,}"
        raise InvalidInput("expires_in", reason, limit=LONGEST_SECONDS, given=repr(expires_in))
    return math.ceil(expires_in * 1_000_000)


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

    def __init__(self, context: StoresContext) -> None:
        self._context = context
        self._sql = context.sql

    def create(
        self,
        name: str,
        scope: KeyScope = "write",
        workspace: str | None = None,
        agent: str | None = None,
        user: str | None = None,
    ) -> ApiKey:
        """Create and return a key to *workspace*, with its secret.

        The default is the workspace of the context. A key bound to an *agent* or a *user* reaches
        only that agent's durable memory or that user's long-term memory. From the first key on,
        the server requires authentication.
        """
        refuse_narrowed(self._context, "admin")
        home = self._context.workspace if workspace is None else workspace
        checked_name("workspace", home)
        check_one_of("scope", scope, get_args(KeyScope), "must be read, write or admin")
        now, secret = self._context.now(), new_secret(KEY_PREFIX)
        row = _ListedKeyRow(
            id=self._context.ids.new("apikey", now),
            workspace=home,
            name=check_text("name", name, least=1, most=MOST_NAME),
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

        engine = self._context.engine
        if home != self._context.workspace:
            engine = engine.scoped(Scope(workspace=home))
        return engine.write(work)

    def list(self) -> list[ApiKey]:
        """Return all keys of the workspace, newest first, without secrets.

        Revoked keys are included.
        """
        refuse_narrowed(self._context, "admin")
        rows = self._context.engine.all(_ListedKeyRow, self._sql.list_keys)
        return [row.record() for row in rows]

    def revoke(self, id: str) -> ApiKey:
        """Revoke the key *id*, and return it; a repeat changes nothing."""
        refuse_narrowed(self._context, "admin")
        shaped("apikey", id)
        now = self._context.now()

        def work(tx: Transaction) -> ApiKey:
            changed = tx.run(self._sql.revoke_key, id=id, now=now)
            row = tx.first(_ListedKeyRow, self._sql.get_key, id=id)
            if row is None:
                raise missing("apikey", id)
            if changed:
                tx.note(self._event("key.revoked", row, now))
            return row.record()

        return self._context.engine.write(work)

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
            actor=self._context.actor,
            ids={"api_key_id": row.id},
            data={"scope": row.scope},
        )


REMEMBERED = 0.5
"""Seconds."""
MOST_REMEMBERED = 10_000
"""Keys in the cache; beyond that it is cleared."""
BETWEEN_MARKS = 60_000_000
"""Microseconds between two updates of a key's `last_used_at`."""

_log = logging.getLogger(__name__)


class Credential(Struct, frozen=True, kw_only=True):
    """The rights of a secret. A session token has the scope `write`, in its session."""

    kind: Literal["key", "session_token"]
    id: str
    workspace: str
    scope: KeyScope
    agent: str | None
    user: str | None
    session_id: str | None
    name: str | None = None
    """That of a key."""


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
            name=self.name,
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


class Credentials:
    """Lookup of keys and session tokens of all workspaces by secret.

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
        """Return whether a key was ever created, in any workspace.

        From then on every request must be authenticated.
        """
        if self._closed:
            return True
        now = self._monotonic()
        if now < self._open_until:
            return False
        found = self._engine.scoped(EVERYBODY).first(scalar, self._sql.any_key)
        if found is not None:
            self._closed = True
        self._open_until = now + REMEMBERED
        return self._closed

    def find(self, secret: str) -> Credential | None:
        """Return the credential of *secret*, or None.

        None if the secret is unknown, revoked or expired, or its session ended.
        """
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
        # Results go to the dict that missed: a revocation meanwhile replaces it, and drops them.
        keys, now = self._keys, self._monotonic()
        remembered = keys.get(hashed)
        if remembered is not None and now < remembered.until:
            return remembered.credential
        holder = self._engine.scoped(Scope(workspace="", credential=hashed))
        row = holder.first(_KeyRow, self._sql.key_by_credential, secret_hash=hashed)
        if row is None or not hmac.compare_digest(row.secret_hash, hashed):
            return None
        self._closed = True
        if len(keys) >= MOST_REMEMBERED:
            keys = self._keys = {}
        credential = row.credential()
        keys[hashed] = _Remembered(now + REMEMBERED, credential)
        self._mark_used(row)
        return credential

    def _mark_used(self, row: _KeyRow) -> None:
        """Update when the key was last used, once a minute, without waiting for the write."""
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


SIGN_IN_IDLE = 12 * 3_600_000_000
"""Microseconds after its last use at which a sign-in is over."""
SIGN_IN_LONGEST = 7 * 86_400_000_000
"""Microseconds after its beginning at which a sign-in is over, however much it is used."""


class _SignInRow(Struct, frozen=True, kw_only=True):
    hash: str
    key_id: str
    workspace: str
    seen_at: int
    expires_at: int


class SignIns:
    """Sign-ins to the console of all workspaces, by the secret that the browser holds.

    A sign-in has the rights of the API key that it began with. It is over 12 hours after its last
    use, after 7 days, and once its key is revoked. *engine* need not be scoped.
    """

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine, self._clock = engine, clock
        self._sql = engine.queries("holdfast.memories.stores")

    def begin(self, key: str) -> str | None:
        """Return the secret of a new sign-in with the API key *key*.

        None if *key* is no secret of a key that is valid; a session token is none.
        """
        if not key.startswith(KEY_PREFIX):
            return None
        hashed = secret_hash(key)
        row = self._holder(hashed).first(_KeyRow, self._sql.key_by_credential, secret_hash=hashed)
        if row is None or not hmac.compare_digest(row.secret_hash, hashed):
            return None
        now, secret = to_microseconds(self._clock.now()), new_secret("")

        def work(tx: Transaction) -> None:
            tx.run(
                self._sql.insert_sign_in,
                hash=secret_hash(secret),
                key_id=row.id,
                now=now,
                expires_at=now + SIGN_IN_LONGEST,
            )
            tx.run(self._sql.mark_key_used, id=row.id, now=now, before=now - BETWEEN_MARKS)

        self._engine.scoped(Scope(workspace=row.workspace)).write(work)
        return secret

    def find(self, secret: str) -> Credential | None:
        """Return the credential of the sign-in's key; None if the sign-in is over.

        When it was last seen is updated once a minute, without waiting for the write.
        """
        sign_in = self._row(secret)
        if sign_in is None:
            return None
        now = to_microseconds(self._clock.now())
        if now >= min(sign_in.expires_at, sign_in.seen_at + SIGN_IN_IDLE):
            return None
        engine = self._engine.scoped(Scope(workspace=sign_in.workspace))
        key = engine.first(_KeyRow, self._sql.key_of_sign_in, hash=sign_in.hash)
        if key is None:
            return None
        if sign_in.seen_at <= now - BETWEEN_MARKS:
            self._mark_seen(engine, sign_in, now)
        return key.credential()

    def end(self, secret: str) -> None:
        """End the sign-in at once; a repeat changes nothing."""
        sign_in = self._row(secret)
        if sign_in is not None:
            engine = self._engine.scoped(Scope(workspace=sign_in.workspace))
            engine.write(lambda tx: tx.run(self._sql.end_sign_in, hash=sign_in.hash))

    def drop_ended(self) -> int:
        """Delete the sign-ins of all workspaces that are over by time; return how many."""
        now, engine = to_microseconds(self._clock.now()), self._engine.scoped(EVERYBODY)
        sql = self._sql.drop_old_sign_ins
        return engine.write(lambda tx: tx.run(sql, now=now, idle=now - SIGN_IN_IDLE))

    def _holder(self, hashed: str) -> Engine:
        return self._engine.scoped(Scope(workspace="", credential=hashed))

    def _row(self, secret: str) -> _SignInRow | None:
        hashed = secret_hash(secret)
        row = self._holder(hashed).first(_SignInRow, self._sql.sign_in_by_credential, hash=hashed)
        return row if row is not None and hmac.compare_digest(row.hash, hashed) else None

    def _mark_seen(self, engine: Engine, sign_in: _SignInRow, now: int) -> None:
        before = now - BETWEEN_MARKS

        def work(tx: Transaction) -> None:
            tx.run(self._sql.mark_sign_in_seen, hash=sign_in.hash, now=now, before=before)
            tx.run(self._sql.mark_key_used, id=sign_in.key_id, now=now, before=before)

        try:
            future = engine.submit(work)
        except HoldfastError as error:
            _unmarked(error)
        else:
            future.add_done_callback(_look_at)
