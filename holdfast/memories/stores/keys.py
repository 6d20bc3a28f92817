"""Keys: who may reach a workspace, and how far. A key's secret is shown once and not kept."""

from typing import get_args

from msgspec import Struct

from holdfast.engines.base import Transaction
from holdfast.ground.clock import from_microseconds, from_microseconds_or_none
from holdfast.ground.errors import InvalidInput
from holdfast.ground.events import Event
from holdfast.ground.scope import Scope, checked_name
from holdfast.ground.text import within
from holdfast.memories.stores.records import ApiKey, KeyScope
from holdfast.memories.stores.rows import StoresContext, missing, refuse_narrowed, shaped
from holdfast.memories.stores.session_tokens import KEY_PREFIX, new_secret, secret_hash

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
