"""Contract of promoting values of run memory to durable entries."""

from msgspec import Struct

from contracts.durable_given import GivenAnAgent, bad, refused
from holdfast.ground.errors import NotFound
from holdfast.memories.durable.memory import DurableMemory
from holdfast.memories.run.memory import RunMemory

LONGEST = "shared:" + "k" * 480
"""As long as a key of a run's memory may be."""


class Value(Struct, frozen=True):
    """A value as a run's memory gives it."""

    value: object
    kind: str = "shared"
    source: str | None = None


class DurablePromotingContract(GivenAnAgent):
    """Subclass it, and give it an `hf` fixture."""

    def test_a_value_becomes_an_entry_that_says_where_it_is_from(
        self, durable: DurableMemory
    ) -> None:
        values = {"shared:owner": Value({"name": "Ada", "at": [1, 2]})}

        stored = durable.promote(values, "shared:owner", category="core", tags=["team"])

        assert (stored.key, stored.content) == ("owner", '{"at":[1,2],"name":"Ada"}')
        assert (stored.category, stored.tags, stored.outcome) == ("core", ("team",), "created")
        assert durable.history("owner").data[0].cause == {"promoted_from": "shared:owner"}

    def test_the_log_tells_of_which_run_by_whom_and_in_which_version(
        self, durable: DurableMemory
    ) -> None:
        memory = RunMemory(run_id="run_42")
        memory.set("shared:owner", "Ada", source="scout")
        memory.set("shared:owner", "Bob", source="research")

        durable.promote(memory, "shared:owner", category="core")

        assert durable.history("owner").data[0].cause == {
            "promoted_from": "shared:owner",
            "run_id": "run_42",
            "source": "research",
            "version": "2",
        }

    def test_the_longest_key_of_a_run_may_be_where_it_is_from(self, durable: DurableMemory) -> None:
        stored = durable.promote({LONGEST: Value("x")}, LONGEST, category="core", as_key="a")

        assert stored.key == "a"
        assert durable.history("a").data[0].cause == {"promoted_from": LONGEST}

    def test_a_key_too_long_for_an_entry_needs_another(self, durable: DurableMemory) -> None:
        with bad("key"):
            durable.promote({LONGEST: Value("x")}, LONGEST, category="core")

    def test_a_longer_key_than_any_of_a_run_is_refused(self, durable: DurableMemory) -> None:
        longer = f"{LONGEST}k"

        with bad("promoted_from"):
            durable.promote({longer: Value("x")}, longer, category="core", as_key="a")

    def test_where_nothing_is_there_is_nothing_to_promote(self, durable: DurableMemory) -> None:
        nothing: dict[str, Value] = {}

        with refused(NotFound, "002"):
            durable.promote(nothing, "shared:owner", category="core")
        assert durable.history().data == []
