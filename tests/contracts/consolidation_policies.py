"""Contract of policies: what is consolidated by itself, how often, and what is accepted."""

import pytest

from contracts.longterm_items import GivenAUser, bad, kept
from holdfast.ground.errors import NotFound
from holdfast.library.consolidations import serve_policies
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.testing.fakes import FrozenClock

HOUR, WAIT = 3_600, 60.0
OFFICE = "Works at the harbour office in Porto near the old bridge"


def same_entries(hf: Holdfast) -> None:
    """Write two entries of agent_7 that say the same."""
    for key in ("office", "office_2"):
        hf.durable("agent_7").set(key, OFFICE, category="core")


class ConsolidationPolicyContract(GivenAUser):
    """Subclass it, and give it `hf`, `embedded`, `elsewhere` and `clock` fixtures."""

    @pytest.mark.surface("http", "policies cross the wire")
    def test_a_policy_is_set_listed_replaced_and_dropped(
        self, hf: Holdfast, elsewhere: Holdfast
    ) -> None:
        store = hf.memory_stores.create(name="Notes").id
        made = hf.consolidations.policy("ada", min_new=1_000)
        hf.consolidations.policy(store=store, auto=(), min_new=1_000)
        hf.consolidations.policy(agent="agent_7", auto=["merge", "expire"], min_new=1_000)
        again = hf.consolidations.policy("ada", every_hours=2, min_new=1_000)

        assert (made.user, made.auto, made.every_hours, made.namespace) == (
            "ada",
            ("merge",),
            24,
            "chat",
        )
        found = hf.consolidations.policies()
        assert [(each.agent, each.store, each.user) for each in found] == [
            ("agent_7", None, None),
            (None, store, None),
            (None, None, "ada"),
        ]
        assert found[2].every_hours == 2
        assert again.created_at == made.created_at
        assert elsewhere.consolidations.policies() == []
        assert hf.consolidations.drop_policy("ada")
        assert not hf.consolidations.drop_policy("ada")
        hf.memory_stores.delete(store)
        assert [each.agent for each in hf.consolidations.policies()] == ["agent_7"]

    @pytest.mark.embedded("a server has models that requests may name")
    def test_a_policy_names_a_model(self, hf: Holdfast) -> None:
        made = hf.consolidations.policy(agent="agent_7", model="openai:x", min_new=1_000)
        assert (made.model, hf.consolidations.policies()) == ("openai:x", [made])

    def test_what_it_lets_accept_is_accepted_and_the_rest_waits_for_a_person(
        self, hf: Holdfast, embedded: Holdfast, ltm: LongTermMemory, clock: FrozenClock
    ) -> None:
        first = kept(ltm, OFFICE)
        clock.tick(HOUR)
        ltm.update(kept(ltm, "Sings in a choir").id, text=f"Now {OFFICE.lower()}")
        kept(ltm, "Lives in Lisbon")
        clock.tick(HOUR)
        kept(ltm, "Lives in Madrid")
        clock.tick(HOUR)
        hf.consolidations.policy("ada", min_new=2)

        serve_policies(embedded.engine, embedded.longterm_shared, clock, wait=WAIT)

        (job,) = hf.consolidations.list("ada").data
        changes = {
            each.op: each.state for each in hf.consolidations.retrieve(job.id).proposal.changes
        }
        assert changes == {"merge": "applied", "supersede": "open"}
        assert first.id not in [each.id for each in ltm.list().data]
        assert hf.consolidations.undo(job.id).kept == ()

    def test_it_waits_for_its_hours_and_for_new_writes(
        self, hf: Holdfast, embedded: Holdfast, clock: FrozenClock
    ) -> None:
        same_entries(hf)
        hf.consolidations.policy(agent="agent_7", min_new=3, every_hours=24)
        serve_policies(embedded.engine, embedded.longterm_shared, clock, wait=WAIT)
        assert hf.consolidations.list(agent="agent_7").data == []
        hf.durable("agent_7").set("third", "The tests run at night", category="core")
        clock.tick(2 * HOUR)
        serve_policies(embedded.engine, embedded.longterm_shared, clock, wait=WAIT)
        (job,) = hf.consolidations.list(agent="agent_7").data
        assert job.proposal.status == "accepted"

        for number in range(5):
            hf.durable("agent_7").set(f"more {number}", f"Row {number}", category="core")
        clock.tick(23 * HOUR)
        serve_policies(embedded.engine, embedded.longterm_shared, clock, wait=WAIT)
        assert len(hf.consolidations.list(agent="agent_7").data) == 1
        clock.tick(2 * HOUR)
        serve_policies(embedded.engine, embedded.longterm_shared, clock, wait=WAIT)
        assert len(hf.consolidations.list(agent="agent_7").data) == 2

    def test_a_job_that_a_process_left_is_accepted_by_the_next(
        self, hf: Holdfast, embedded: Holdfast, clock: FrozenClock
    ) -> None:
        same_entries(hf)
        hf.consolidations.policy(agent="agent_7", min_new=1)
        serve_policies(embedded.engine, embedded.longterm_shared, clock)
        (job,) = hf.consolidations.list(agent="agent_7").data
        hf.consolidations.wait(job.id)
        assert hf.consolidations.policies()[0].job == job.id
        clock.tick(120)

        serve_policies(embedded.engine, embedded.longterm_shared, clock)

        assert [each.key for each in hf.durable("agent_7").list().data] == ["office_2"]
        assert hf.consolidations.policies()[0].job is None
        assert serve_policies(embedded.engine, embedded.longterm_shared, clock) == []

    def test_a_policy_goes_with_its_user(self, hf: Holdfast) -> None:
        hf.consolidations.policy("ada", min_new=1_000)
        hf.forget_user("ada")
        assert hf.consolidations.policies() == []

    def test_a_bad_policy_is_refused(self, hf: Holdfast) -> None:
        with bad("auto"):
            hf.consolidations.policy("ada", auto=("conflict",))
        with bad("every_hours"):
            hf.consolidations.policy("ada", every_hours=0)
        with bad("min_new"):
            hf.consolidations.policy("ada", min_new=-1)
        with bad("model"):
            hf.consolidations.policy(agent="agent_7", model="x")
        with bad("user"):
            hf.consolidations.policy()
        with pytest.raises(NotFound):
            hf.consolidations.policy(store="memstore_no")
