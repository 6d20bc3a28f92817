"""What crosses between a network's state and the other memories."""

import pytest

import holdfast
from holdfast import NetworkState, RunMemory, keys
from holdfast.errors import NotFound


@pytest.fixture
def state() -> NetworkState:
    state = NetworkState({"team": {"name": "Ada", "at": [1]}})
    state.on_behalf(agent="writer").kv.set("owner", "Ada")
    return state


def test_a_value_is_promoted_to_a_durable_entry(state: NetworkState) -> None:
    with holdfast.open(":memory:") as hf:
        durable = hf.durable("agent_7")

        text = durable.promote(state, "owner", category="core")
        other = durable.promote(state, "team", category="core", as_key="the_team")

        assert (text.key, text.content) == ("owner", "Ada")
        assert (other.key, other.content) == ("the_team", '{"at":[1],"name":"Ada"}')
        with pytest.raises(NotFound):
            durable.promote(state, "nothing", category="core")


def test_a_value_is_shared_with_the_memory_of_a_run(state: NetworkState) -> None:
    memory = RunMemory()

    entry = state.share("owner", memory)
    state.share("team", memory, as_key="crew")

    assert (entry.key, entry.value, entry.source) == ("shared:owner", "Ada", "writer")
    crew = memory.get(keys.shared("crew"))
    assert crew is not None
    assert (crew.value, crew.source) == ({"name": "Ada", "at": [1]}, "network")
    with pytest.raises(NotFound):
        state.share("nothing", memory)


def test_what_an_agent_remembers_becomes_values_and_what_was_left_out_is_told() -> None:
    with holdfast.open(":memory:") as hf:
        durable = hf.durable("agent_7")
        durable.set("owner", "Ada", category="core")
        durable.set("long", "x" * 1000, category="core")
        hydration = durable.hydrate(budget=100)

    state = NetworkState.from_hydration(hydration)

    assert state.data == {"memory/owner": "Ada"}
    assert state.hydration is hydration
    assert [each.key for each in hydration.omitted] == ["long"]
    assert NetworkState.from_hydration(hydration, prefix="").data == {"owner": "Ada"}
    assert state.clone().hydration is hydration
    assert NetworkState().hydration is None


def test_the_public_names_load_no_driver_and_no_framework() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from holdfast import InferenceResult, NetworkState, StateLimits, ValueInfo, "
        "View, Window, messages; NetworkState({'a': 1}).to_json(); "
        "print([n for n in ('apsw', 'psycopg', 'pydantic', 'pydantic_ai') if n in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ran.stdout.strip() == "[]"
