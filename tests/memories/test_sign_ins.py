"""Sign-ins to the console: what they open, for how long, and what is stored of them."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import pytest

import holdfast
from holdfast.engines.base import Engine, Transaction
from holdfast.ground.errors import Unavailable
from holdfast.ground.scope import EVERYBODY, Scope
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.credentials import Credential, SignIns
from holdfast.memories.stores.records import ApiKey
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.serving import new_workspace

MINUTE, HOUR, DAY = 60, 3_600, 86_400
SECRET = re.compile(r"[A-Za-z0-9_-]{43}")


class Unwritable:
    """An engine that reads, and takes no writes."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self.queries = engine, engine.queries
        self.first, self.write = engine.first, engine.write

    def scoped(self, scope: Scope) -> "Unwritable":
        return type(self)(self._engine.scoped(scope))

    def submit(self, _work: Callable[[Transaction], None]) -> Future[None]:
        raise Unavailable("The disk is full.", reason="full")


class Settled(Unwritable):
    """An engine that has stored what is handed in once `submit` returns."""

    def submit(self, work: Callable[[Transaction], None]) -> Future[None]:
        future = self._engine.submit(work)
        wait([future])
        return future


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, sqlite_file: Path) -> str:
    """Give a database of the test's own: its keys would close the open servers of others."""
    if request.param == "sqlite":
        return str(sqlite_file)
    return request.getfixturevalue("fresh_postgres_url")


@pytest.fixture
def hf(target: str, clock: FrozenClock) -> Iterator[Holdfast]:
    with holdfast.open(target, workspace=new_workspace(), clock=clock) as opened:
        yield opened


@pytest.fixture
def sign_ins(hf: Holdfast, clock: FrozenClock) -> SignIns:
    return SignIns(cast("Engine", Settled(hf.engine)), clock)


@pytest.fixture
def key(hf: Holdfast) -> ApiKey:
    return hf.keys.create("laptop", scope="admin")


def begun(sign_ins: SignIns, key: ApiKey) -> str:
    secret = sign_ins.begin(cast("str", key.secret))
    assert secret is not None
    return secret


def rows(hf: Holdfast) -> list[dict[str, Any]]:
    engine = hf.engine.scoped(EVERYBODY)
    found = engine.all(dict[str, Any], "select * from console_sessions order by created_at")
    return [row for row in found if row["workspace"] == hf.workspace]


def test_a_sign_in_has_the_rights_of_its_key(hf: Holdfast, sign_ins: SignIns) -> None:
    key = hf.keys.create("phone", "read", agent="coder", user="ada")

    assert sign_ins.find(begun(sign_ins, key)) == Credential(
        kind="key",
        id=key.id,
        workspace=hf.workspace,
        scope="read",
        agent="coder",
        user="ada",
        session_id=None,
        name="phone",
    )


def test_only_a_hash_of_its_secret_is_stored(hf: Holdfast, sign_ins: SignIns, key: ApiKey) -> None:
    first, second = begun(sign_ins, key), begun(sign_ins, key)

    assert first != second
    assert SECRET.fullmatch(first)
    assert {row["hash"] for row in rows(hf)} == {
        sha256(secret.encode()).hexdigest() for secret in (first, second)
    }
    assert not {first, second, key.secret} & {value for row in rows(hf) for value in row.values()}


def test_beginning_uses_the_key(
    hf: Holdfast, sign_ins: SignIns, key: ApiKey, clock: FrozenClock
) -> None:
    begun(sign_ins, key)

    assert hf.keys.list()[0].last_used_at == clock.now()


@pytest.mark.parametrize("wrong", ["", "hf_", "hf_" + "0" * 43, "hfs_" + "0" * 43, "\ud800"])
def test_only_the_secret_of_a_key_begins_one(sign_ins: SignIns, wrong: str) -> None:
    assert sign_ins.begin(wrong) is None
    assert sign_ins.find(wrong) is None


def test_a_session_token_begins_none(hf: Holdfast, sign_ins: SignIns) -> None:
    session = hf.sessions.create(agent="a", environment_id="e")
    token = hf.sessions.create_token(session.id).token

    assert sign_ins.begin(cast("str", token)) is None
    assert rows(hf) == []


def test_neither_a_key_nor_a_hash_is_a_sign_in(
    hf: Holdfast, sign_ins: SignIns, key: ApiKey
) -> None:
    begun(sign_ins, key)

    assert sign_ins.find(cast("str", key.secret)) is None
    assert sign_ins.find(rows(hf)[0]["hash"]) is None


def test_a_revoked_key_begins_none_and_ends_all_that_began_with_it(
    hf: Holdfast, sign_ins: SignIns, key: ApiKey
) -> None:
    other = begun(sign_ins, hf.keys.create("phone"))
    secret = begun(sign_ins, key)

    hf.keys.revoke(key.id)

    assert sign_ins.find(secret) is None
    assert sign_ins.begin(cast("str", key.secret)) is None
    assert sign_ins.find(other) is not None


def test_what_another_process_revoked_is_over_at_once(
    hf: Holdfast, target: str, sign_ins: SignIns, key: ApiKey
) -> None:
    secret = begun(sign_ins, key)
    assert sign_ins.find(secret) is not None

    with holdfast.open(target, workspace=hf.workspace) as far:
        far.keys.revoke(key.id)

    assert sign_ins.find(secret) is None


def test_it_is_over_twelve_hours_after_its_last_use(
    sign_ins: SignIns, key: ApiKey, clock: FrozenClock
) -> None:
    used, unused = begun(sign_ins, key), begun(sign_ins, key)
    clock.tick(12 * HOUR - 1)
    assert sign_ins.find(used) is not None

    clock.tick(1)
    assert sign_ins.find(unused) is None
    assert sign_ins.find(used) is not None

    clock.tick(12 * HOUR - 1)
    assert sign_ins.find(used) is None


def test_it_is_over_after_seven_days_however_much_it_is_used(
    sign_ins: SignIns, key: ApiKey, clock: FrozenClock
) -> None:
    secret = begun(sign_ins, key)
    for _ in range(14):
        assert sign_ins.find(secret) is not None
        clock.tick(12 * HOUR - 1)
    assert sign_ins.find(secret) is not None

    clock.tick(14)

    assert sign_ins.find(secret) is None


def test_when_it_was_seen_is_stored_once_a_minute(
    hf: Holdfast, sign_ins: SignIns, key: ApiKey, clock: FrozenClock
) -> None:
    secret = begun(sign_ins, key)
    seen: list[bool] = []
    used: list[bool] = []
    for _ in range(3):
        before = rows(hf)[0]["seen_at"]
        clock.tick(40)
        sign_ins.find(secret)
        seen.append(rows(hf)[0]["seen_at"] != before)
        used.append(hf.keys.list()[0].last_used_at == clock.now())

    assert seen == used == [False, True, False]


def test_a_use_that_cannot_be_stored_opens_nevertheless(
    hf: Holdfast,
    sign_ins: SignIns,
    key: ApiKey,
    clock: FrozenClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    secret = begun(sign_ins, key)
    clock.tick(MINUTE)

    assert SignIns(cast("Engine", Unwritable(hf.engine)), clock).find(secret) is not None

    assert "could not be written down: Unavailable" in caplog.text
    assert secret not in caplog.text


def test_signing_out_ends_it_alone_and_again_changes_nothing(
    sign_ins: SignIns, key: ApiKey
) -> None:
    secret, other = begun(sign_ins, key), begun(sign_ins, key)

    for _ in range(2):
        sign_ins.end(secret)

    assert sign_ins.find(secret) is None
    assert sign_ins.find(other) is not None


def test_those_that_are_over_are_deleted(
    hf: Holdfast, sign_ins: SignIns, key: ApiKey, clock: FrozenClock
) -> None:
    begun(sign_ins, key)
    clock.tick(HOUR)
    kept = begun(sign_ins, key)

    clock.tick(11 * HOUR)
    dropped = sign_ins.drop_ended()

    assert dropped >= 1
    assert len(rows(hf)) == 1
    assert sign_ins.find(kept) is not None
    clock.tick(7 * DAY)
    sign_ins.drop_ended()
    assert rows(hf) == []
