"""An actor and its wire form."""

import pytest

from holdfast.ground.scope import Actor

ACTORS = [
    Actor.session("sesn_1"),
    Actor.api("apikey_1"),
    Actor.user("user_ada"),
    Actor.service_account("svac_1"),
    Actor.agent("agent_7"),
]


@pytest.mark.parametrize("actor", ACTORS, ids=lambda actor: actor.kind)
def test_an_actor_has_the_type_of_its_wire_form(actor: Actor) -> None:
    wire = actor.to_wire()

    assert actor.type == wire["type"] == f"{actor.kind}_actor"
    assert Actor.from_wire(wire) == actor
