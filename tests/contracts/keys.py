"""What holds for the keys to a workspace."""

from typing import Any

import pytest

from contracts.stores import invalid
from holdfast.ground.errors import NotFound
from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock


class KeysContract:
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_a_new_key_holds_what_was_given(self, hf: Holdfast, clock: FrozenClock) -> None:
        key = hf.keys.create("ci", scope="admin")

        assert (key.type, key.name, key.scope) == ("api_key", "ci", "admin")
        assert (key.workspace, key.agent, key.user) == (hf.workspace, None, None)
        assert (key.created_at, key.last_used_at, key.revoked_at) == (clock.now(), None, None)
        assert key.id.startswith("apikey_")

    def test_a_key_may_write_unless_told(self, hf: Holdfast) -> None:
        assert hf.keys.create("ci").scope == "write"

    def test_a_secret_is_shown_once(self, hf: Holdfast) -> None:
        key = hf.keys.create("ci")

        (listed,) = [each for each in hf.keys.list() if each.id == key.id]

        assert key.secret is not None
        assert (key.secret[:3], len(key.secret)) == ("hf_", 46)
        assert (listed.secret, listed.name) == (None, "ci")

    def test_no_two_secrets_are_alike(self, hf: Holdfast) -> None:
        secrets = {hf.keys.create("ci").secret for _ in range(5)}

        assert len(secrets) == 5

    def test_a_key_may_be_bound_to_an_agent_and_a_user(self, hf: Holdfast) -> None:
        key = hf.keys.create("ci", agent="agent_7", user="ada")

        assert (key.agent, key.user) == ("agent_7", "ada")

    def test_a_bad_scope_is_refused(self, hf: Holdfast) -> None:
        bad: Any = "root"

        with invalid("scope"):
            hf.keys.create("ci", scope=bad)

    def test_a_revoked_key_says_when(self, hf: Holdfast, clock: FrozenClock) -> None:
        key = hf.keys.create("ci")
        now = clock.tick()

        revoked = hf.keys.revoke(key.id)

        assert (revoked.id, revoked.revoked_at, revoked.secret) == (key.id, now, None)

    def test_an_unknown_key_is_not_found(self, hf: Holdfast) -> None:
        with pytest.raises(NotFound):
            hf.keys.revoke("apikey_" + "0" * 24)
