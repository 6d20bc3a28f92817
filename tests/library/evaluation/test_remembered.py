"""A conversation recorded by the library's own call, and what it recalls."""

import json
import runpy
from pathlib import Path

import pytest

from holdfast.ground.errors import InvalidInput
from holdfast.library.evaluation import Conversation, read, remembered

SCRIPT = Path(__file__).parents[3] / "scripts" / "ablate_recall.py"
TEXTS = [
    f"{text} {number}" if text else ""
    for number in range(120)
    for text in (
        "I bought a kettle yesterday",
        "",
        "Lovely! What does it look like?",
        "It is red",
        "my password: hunter2secret",
        "The kettle broke, so we had soup",
    )
]


@pytest.fixture
def conversation(tmp_path: Path) -> Conversation:
    turns = [
        {"speaker": ("Ana", "Bo")[number % 2], "dia_id": f"D1:{number}", "text": text}
        for number, text in enumerate(TEXTS, 1)
    ]
    told = {"session_1": turns, "session_1_date_time": "1:56 pm on 8 May, 2023"}
    path = tmp_path / "file.json"
    path.write_text(json.dumps([{"sample_id": "c", "conversation": told, "qa": []}]))
    return read(path).conversations[0]


@pytest.mark.parametrize(
    "query",
    ["Who bought a kettle?", "When did I buy it?", "What did Bo look like?", "soup", "the"],
)
def test_an_engine_recalls_what_the_bare_rule_does(conversation: Conversation, query: str) -> None:
    bare = runpy.run_path(str(SCRIPT))["ConversationRows"](conversation)
    with remembered(conversation) as subject:
        assert subject.ranked(query, 50) == bare.ranked(query, 50)
        assert subject.as_shipped(query, 50) == bare.as_shipped(query, 50)
        assert subject.mode == bare.mode


def test_a_turn_that_seems_to_hold_a_secret_is_asked_about_too(conversation: Conversation) -> None:
    with remembered(conversation) as subject:
        assert subject.ranked("password", 1) == [(1, 5)]


def test_a_veto_is_told(conversation: Conversation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_LTM_ENABLED", "0")

    with pytest.raises(InvalidInput, match="HOLDFAST_LTM_ENABLED"), remembered(conversation):
        pass
