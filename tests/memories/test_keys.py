import re
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Never, cast

import pytest

import holdfast
from holdfast.engines.base import Engine
from holdfast.ground.errors import InvalidInput, NotFound, Unavailable
from holdfast.ground.events import Event
from holdfast.ground.scope import Scope
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.credentials import Credential, Credentials
from holdfast.memories.stores.records import ApiKey, SessionRecord, record_to_wire
from holdfast.testing.fakes import FrozenClock

SECRET = re.compile(r"hf_[A-Za-z0-9_-]{43}")
TOKEN = re.compile(r"hfs_[A-Za-z0-9_-]{43}")


class Unwritable:
    """An engine that reads, and takes no writes."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self.events = engine, engine.events
        self.queries, self.first = engine.queries, engine.first

    def scoped(self, scope: Scope) -> "Unwritable":
        return Unwritable(self._engine.scoped(scope))

    def submit(self, _work: object) -> Never:
        raise Unavailable("The disk is full.", reason="full")


class Watch:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture(params=["memory", "file"])
def hf(request: pytest.FixtureRequest, sqlite_file: Path, clock: FrozenClock) -> Iterator[Holdfast]:
    target = ":memory:" if request.param == "memory" else str(sqlite_file)
    with holdfast.open(target, clock=clock) as opened:
        yield opened


@pytest.fixture
def credentials(hf: Holdfast, clock: FrozenClock, watch: Watch) -> Credentials:
    return Credentials(hf.engine, clock, monotonic=watch)


@pytest.fixture
def session(hf: Holdfast) -> SessionRecord:
    return hf.sessions.create(agent="a", environment_id="e")


def shown(key: ApiKey) -> str:
    assert key.secret is not None
    return key.secret


def settled(hf: Holdfast) -> None:
    """Return once everything that was handed in before is written."""
    hf.engine.write(lambda _: None)


class TestKeys:
    def test_a_new_key_shows_its_secret_once(self, hf: Holdfast) -> None:
        key = hf.keys.create("ci", scope="admin")

        assert SECRET.fullmatch(shown(key))
        assert " ".join(record_to_wire(key)) == (
            "type id name scope workspace agent user secret created_at last_used_at revoked_at"
        )
        (listed,) = hf.keys.list()
        assert "secret" not in record_to_wire(listed)
        assert {**record_to_wire(listed), "secret": key.secret} == record_to_wire(key)

    def test_only_a_hash_of_a_secret_is_in_the_file(
        self, tmp_path: Path, clock: FrozenClock
    ) -> None:
        with holdfast.open(str(tmp_path / "k.db"), clock=clock) as hf:
            secret = shown(hf.keys.create("ci"))
            files = b"".join(each.read_bytes() for each in tmp_path.glob("k.db*"))

        assert secret.encode() not in files
        assert sha256(secret.encode()).hexdigest().encode() in files

    def test_a_workspace_lists_its_own_newest_first(self, hf: Holdfast, clock: FrozenClock) -> None:
        first = hf.keys.create("first")
        clock.tick()
        second = hf.keys.create("second")
        other = hf.keys.create("other", workspace="elsewhere")

        assert [key.id for key in hf.keys.list()] == [second.id, first.id]
        assert [key.id for key in hf.acting(workspace="elsewhere").keys.list()] == [other.id]
        with pytest.raises(NotFound):
            hf.keys.revoke(other.id)

    def test_revoking_ends_a_key_once(self, hf: Holdfast, clock: FrozenClock) -> None:
        heard: list[Event] = []
        hf.events.subscribe(heard.append)
        key = hf.keys.create("ci")

        revoked = hf.keys.revoke(key.id)
        clock.tick()

        assert revoked.revoked_at is not None
        assert hf.keys.revoke(key.id) == revoked
        assert [event.type for event in heard] == ["key.created", "key.revoked"]
        assert heard[0].ids == {"api_key_id": key.id}

    @pytest.mark.parametrize(
        ("field", "wrong"),
        [
            ("name", {"name": ""}),
            ("name", {"name": "n" * 256}),
            ("scope", {"scope": "root"}),
            ("workspace", {"workspace": "*"}),
            ("agent", {"agent": "a b"}),
            ("user", {"user": ""}),
        ],
    )
    def test_what_is_wrong_is_named(self, hf: Holdfast, field: str, wrong: dict[str, Any]) -> None:
        with pytest.raises(InvalidInput) as caught:
            hf.keys.create(**cast("dict[str, Any]", {"name": "k", **wrong}))

        assert caught.value.field == field

    @pytest.mark.parametrize("id", ["apikey_local", "nonsense", "apikey_" + "0" * 24])
    def test_a_key_that_is_not_there_is_not_found(self, hf: Holdfast, id: str) -> None:
        with pytest.raises(NotFound, match="API key"):
            hf.keys.revoke(id)


class TestFindingAKey:
    def test_a_secret_opens_what_its_key_says(self, hf: Holdfast, credentials: Credentials) -> None:
        key = hf.keys.create("k", "read", workspace="elsewhere", agent="agent_7", user="ada")

        assert credentials.find(shown(key)) == Credential(
            kind="key",
            id=key.id,
            workspace="elsewhere",
            scope="read",
            agent="agent_7",
            user="ada",
            session_id=None,
            name="k",
        )

    @pytest.mark.parametrize("secret", ["", "hf_", "hf_" + "0" * 43, "hfs_" + "0" * 43, "\ud800"])
    def test_an_unknown_secret_opens_nothing(self, credentials: Credentials, secret: str) -> None:
        assert credentials.find(secret) is None

    def test_a_revoked_key_opens_nothing_from_then_on(
        self, hf: Holdfast, credentials: Credentials
    ) -> None:
        key = hf.keys.create("k")
        assert credentials.find(shown(key)) is not None

        hf.keys.revoke(key.id)

        assert credentials.find(shown(key)) is None

    def test_what_another_process_revoked_is_refused_half_a_second_later(
        self, tmp_path: Path, clock: FrozenClock, watch: Watch
    ) -> None:
        target = str(tmp_path / "h.db")
        with holdfast.open(target, clock=clock) as here, holdfast.open(target, clock=clock) as far:
            credentials = Credentials(here.engine, clock, monotonic=watch)
            assert not credentials.any_key()
            key = far.keys.create("k")
            watch.seconds += 0.5
            assert credentials.any_key()
            assert credentials.find(shown(key)) is not None

            far.keys.revoke(key.id)
            watch.seconds += 0.5

            assert credentials.find(shown(key)) is None

    def test_a_key_once_made_closes_the_door_for_good(
        self, hf: Holdfast, credentials: Credentials
    ) -> None:
        assert not credentials.any_key()

        key = hf.keys.create("k", workspace="elsewhere")
        assert credentials.any_key()

        hf.acting(workspace="elsewhere").keys.revoke(key.id)
        assert credentials.any_key()

    def test_its_last_use_is_noted_once_a_minute(
        self, hf: Holdfast, credentials: Credentials, clock: FrozenClock, watch: Watch
    ) -> None:
        key = hf.keys.create("k")
        seen: list[object] = []
        for _ in range(3):
            watch.seconds += 1
            used = clock.tick(40)
            credentials.find(shown(key))
            settled(hf)
            seen.append(hf.keys.list()[0].last_used_at == used)

        assert seen == [True, False, True]

    def test_a_use_that_cannot_be_noted_holds_nobody_up(
        self, hf: Holdfast, clock: FrozenClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        key = hf.keys.create("k")
        credentials = Credentials(cast("Engine", Unwritable(hf.engine)), clock)

        assert credentials.find(shown(key)) is not None

        assert "could not be written down: Unavailable" in caplog.text
        assert shown(key) not in caplog.text


class TestTokens:
    def test_a_token_is_shown_once_and_acts_as_its_session(
        self, hf: Holdfast, session: SessionRecord, credentials: Credentials
    ) -> None:
        made = hf.sessions.create_token(session.id)

        assert made.token is not None
        assert TOKEN.fullmatch(made.token)
        assert made.id.startswith("sestok_")
        assert made.expires_at is None
        (listed,) = hf.sessions.list_tokens(session.id)
        assert record_to_wire(listed) == {
            key: value for key, value in record_to_wire(made).items() if key != "token"
        }
        assert credentials.find(made.token) == Credential(
            kind="session_token",
            id=made.id,
            workspace="default",
            scope="write",
            agent=None,
            user=None,
            session_id=session.id,
        )

    def test_a_token_ends_when_it_expires(
        self, hf: Holdfast, session: SessionRecord, credentials: Credentials, clock: FrozenClock
    ) -> None:
        made = hf.sessions.create_token(session.id, expires_in=1.5)
        secret = str(made.token)
        assert credentials.find(secret) is not None

        clock.tick(1.5)

        assert made.expires_at == clock.now()
        assert credentials.find(secret) is None
        assert hf.sessions.list_tokens(session.id) == []

    @pytest.mark.parametrize("end", ["revoke", "archive", "delete"])
    def test_a_token_ends_at_once_with(
        self, hf: Holdfast, session: SessionRecord, credentials: Credentials, end: str
    ) -> None:
        made = hf.sessions.create_token(session.id)
        assert credentials.find(str(made.token)) is not None
        endings: dict[str, Callable[[], object]] = {
            "revoke": lambda: hf.sessions.revoke_token(made.id, session_id=session.id),
            "archive": lambda: hf.sessions.archive(session.id),
            "delete": lambda: hf.sessions.delete(session.id),
        }

        endings[end]()

        assert credentials.find(str(made.token)) is None

    def test_revoking_answers_the_token_without_its_secret(
        self, hf: Holdfast, session: SessionRecord
    ) -> None:
        made, other = (hf.sessions.create_token(session.id) for _ in range(2))

        revoked = hf.sessions.revoke_token(made.id, session_id=session.id)

        assert (revoked.id, revoked.token) == (made.id, None)
        assert hf.sessions.revoke_token(made.id, session_id=session.id) == revoked
        assert [token.id for token in hf.sessions.list_tokens(session.id)] == [other.id]
        with pytest.raises(NotFound, match="session token"):
            hf.sessions.revoke_token("sestok_" + "0" * 24, session_id=session.id)

    @pytest.mark.parametrize("expires_in", [0, -1, float("nan"), float("inf"), 1e12, True])
    def test_a_time_that_cannot_be_is_refused(
        self, hf: Holdfast, session: SessionRecord, expires_in: float
    ) -> None:
        with pytest.raises(InvalidInput, match="expires_in"):
            hf.sessions.create_token(session.id, expires_in=expires_in)

    def test_only_a_live_session_takes_tokens(self, hf: Holdfast, session: SessionRecord) -> None:
        hf.sessions.archive(session.id)

        with pytest.raises(InvalidInput, match="archived"):
            hf.sessions.create_token(session.id)
        for act in (hf.sessions.create_token, hf.sessions.list_tokens):
            with pytest.raises(NotFound, match="session"):
                act("sesn_" + "0" * 24)
