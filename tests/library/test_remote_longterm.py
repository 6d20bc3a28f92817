"""What long-term memory on a server does beside the contract: switches, models, large imports."""

from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast
from holdfast.ground.errors import InvalidInput, LongTermOff
from holdfast.library.remote import longterm as remote_longterm
from holdfast.library.remote.longterm import RemoteLongTermMemory
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.records import LongTermOptions, Turn
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.serving import serving

ENABLED = "HOLDFAST_LTM_ENABLED"


@pytest.fixture
def served() -> Iterator[tuple[Holdfast, Holdfast]]:
    """Give a handle that is served, and one on its server."""
    clock = FrozenClock()
    with (
        holdfast.open(":memory:", clock=clock) as here,
        serving(here, clock=clock) as url,
        holdfast.open(url) as there,
    ):
        yield here, there


@pytest.fixture
def there(served: tuple[Holdfast, Holdfast]) -> Holdfast:
    return served[1]


@pytest.fixture
def ltm(there: Holdfast) -> LongTermMemory:
    ltm = there.longterm("ada", enabled=True)
    assert ltm is not None
    return ltm


def test_it_is_the_remote_one(there: Holdfast) -> None:
    assert type(there.longterm("ada", enabled=True)) is RemoteLongTermMemory


def test_a_memory_that_is_switched_off_later_refuses(
    ltm: LongTermMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    ltm.remember("Likes tabs")
    monkeypatch.setenv(ENABLED, "0")

    for act in (lambda: ltm.recall("tabs"), lambda: ltm.remember("Likes spaces")):
        with pytest.raises(LongTermOff) as refused:
            act()
        assert refused.value.by == "server"
    assert [each.text for each in ltm.list()] == ["Likes tabs"]


@pytest.mark.parametrize("field", ["embedder", "extractor"])
def test_a_model_that_is_an_object_stays_here(there: Holdfast, field: str) -> None:
    given: dict[str, Any] = {field: object()}

    with pytest.raises(InvalidInput) as refused:
        there.longterm("ada", enabled=True, **given)

    assert refused.value.field == field


def test_so_do_credentials(there: Holdfast) -> None:
    options = LongTermOptions(credentials=lambda _user, _name: None)

    with pytest.raises(InvalidInput) as refused:
        there.longterm("ada", enabled=True, options=options)

    assert refused.value.field == "credentials"


def test_no_embedder_at_all_may_be_asked_for(
    there: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_LTM_EMBEDDING_MODEL", "openai:text-embedding-3-small")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    wished = there.longterm("ada", enabled=True)
    none = there.longterm("ada", enabled=True, embedder=False)
    assert wished is not None
    assert none is not None

    assert wished.status().reason is not None
    assert none.status().reason is None


def test_a_tool_through_a_server_is_known_to_be_an_agents_choice(
    ltm: LongTermMemory,
) -> None:
    ltm.by_tool().remember("Likes tabs")

    assert ltm.list().data[0].origin == "tool"


def test_a_large_import_goes_in_several_requests(
    ltm: LongTermMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_longterm, "BYTES_AT_ONCE", 200)
    records: list[Any] = [
        {"type": "turn", "role": "user", "text": f"Number {number}"} for number in range(20)
    ]
    records[3], records[17] = "nonsense", {"type": "turn", "role": "user", "text": b"bytes"}
    records.append({"type": "turn", "role": "user", "text": "\ud800"})

    taken = ltm.import_(records)

    assert (taken.turns, taken.items) == (18, 0)
    assert [each.index for each in taken.rejected] == [3, 17, 20]
    assert [each.text for each in ltm.list("turns", limit=2)] == ["Number 19", "Number 18"]


def test_what_nobody_said_is_not_sent(
    ltm: LongTermMemory, served: tuple[Holdfast, Holdfast]
) -> None:
    part: Any = {"type": "image", "data": object()}
    recorded = ltm.remember_conversation(
        [
            {"role": "system", "content": object()},
            {"role": "user", "content": [{"type": "text", "text": "Look"}, part]},
            Turn(role="user", text="There", speaker="Ana", session="s1", caption="a lake"),
        ],
        "t1",
    )

    assert [each.text for each in recorded.turns] == ["Look", "There"]
    turn = served[0].longterm_data("ada").list("turns").data[0]
    assert (turn.speaker, turn.session, turn.caption) == ("Ana", "s1", "a lake")


def test_waiting_ends_when_nothing_is_left(ltm: LongTermMemory) -> None:
    ltm.remember("Likes tabs")
    ltm.recall("tabs")

    for timeout in (None, 0, -1, 5):
        assert ltm.flush(timeout).done
    assert ltm.retry() == 0
    assert ltm.list().data[0].access_count == 1
