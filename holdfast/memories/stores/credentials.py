"""Who a secret belongs to, asked before anything else is known of a request.

Only the sha256 of a secret is looked up. Keys are remembered for half a second, so that one that
is revoked by another process is refused within a second; session tokens are not remembered at
all, because theirs ends at once.
"""

import hmac
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Literal

from msgspec import Struct

from holdfast.engines.base import Engine, Transaction
from holdfast.ground.clock import Clock, to_microseconds
from holdfast.ground.errors import HoldfastError
from holdfast.ground.events import Event
from holdfast.ground.scope import EVERYBODY, Scope
from holdfast.memories.stores.records import KeyScope
from holdfast.memories.stores.session_tokens import KEY_PREFIX, TOKEN_PREFIX, secret_hash

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
