"""The messages of a team: to one or to all, kept until they are taken."""

import pytest

from holdfast.errors import InvalidInput, NotFound
from holdfast.runtime.events import TeamUpdate
from holdfast.runtime.team import bus as bus_module
from holdfast.runtime.team.bus import Message, MessageBus
from holdfast.testing.fakes import FrozenClock


@pytest.fixture
def bus() -> MessageBus:
    bus = MessageBus(clock=FrozenClock())
    for name in ("ada", "bob", "cleo"):
        bus.register(name)
    return bus


def bodies(messages: list[Message]) -> list[str]:
    return [message.body for message in messages]


def test_a_message_reaches_whom_it_is_to(bus: MessageBus) -> None:
    sent = bus.send("ada", "bob", "Seals", "There are 12.", type="request", task_id="task_1")

    assert bus.pending("bob") == [sent]
    assert bus.pending("cleo") == []
    assert (sent.sender, sent.to, sent.type, sent.task_id) == ("ada", "bob", "request", "task_1")
    assert sent.at == 1_767_225_600_000


def test_looking_takes_nothing_and_receiving_takes_all(bus: MessageBus) -> None:
    bus.send("ada", "bob", "Seals", "one")
    bus.send("cleo", "bob", "Seals", "two")

    looked = bus.pending("bob")
    received = bus.receive("bob")

    assert bodies(looked) == bodies(received) == ["one", "two"]
    assert bus.pending_count("bob") == 0


def test_only_what_is_acknowledged_is_taken(bus: MessageBus) -> None:
    one = bus.send("ada", "bob", "Seals", "one")
    bus.send("ada", "bob", "Seals", "two")

    taken = bus.ack("bob", [one.id, one.id, "msg_x"])

    assert taken == 1
    assert bodies(bus.pending("bob")) == ["two"]


def test_a_broadcast_reaches_all_but_its_sender(bus: MessageBus) -> None:
    bus.broadcast("ada", "Seals", "There are 12.")

    assert [bus.pending_count(name) for name in ("ada", "bob", "cleo")] == [0, 1, 1]


def test_one_reader_of_a_broadcast_takes_it_from_no_other(bus: MessageBus) -> None:
    bus.broadcast("ada", "Seals", "There are 12.")

    bus.receive("bob")

    assert bus.pending_count("cleo") == 1


@pytest.mark.parametrize("wrong", ["to", "reply_to"])
def test_an_unknown_recipient_or_message_is_not_found_and_nothing_is_kept(
    bus: MessageBus, wrong: str
) -> None:
    to = "dora" if wrong == "to" else "bob"

    with pytest.raises(NotFound, match="ada, bob, cleo"):
        bus.send("ada", to, "Seals", "12", reply_to="msg_x" if wrong == "reply_to" else None)

    assert bus.history() == []
    assert bus.pending("bob") == []


@pytest.mark.parametrize("call", ["pending", "receive", "pending_count"])
def test_who_is_not_registered_has_no_mail(bus: MessageBus, call: str) -> None:
    with pytest.raises(NotFound, match="ada, bob, cleo"):
        getattr(bus, call)("dora")


def test_to_register_again_loses_nothing(bus: MessageBus) -> None:
    bus.send("ada", "bob", "Seals", "12")

    bus.register("bob")

    assert bus.pending_count("bob") == 1


@pytest.mark.parametrize(
    ("field", "given"),
    [("type", "shout"), ("subject", " "), ("body", 7), ("sender", "")],
)
def test_what_a_message_cannot_be_is_named(bus: MessageBus, field: str, given: object) -> None:
    told = {"sender": "ada", "to": "bob", "subject": "Seals", "body": "12"} | {field: given}

    with pytest.raises(InvalidInput) as caught:
        bus.send(**told)  # pyright: ignore[reportArgumentType]

    assert caught.value.field == field
    assert bus.history() == []


def test_a_thread_has_its_root_first_and_all_answers_by_time(bus: MessageBus) -> None:
    root = bus.send("ada", "bob", "Seals?", "How many?", type="request")
    bus.send("ada", "bob", "Other", "thing")
    answer = bus.send("bob", "ada", "Seals", "12", type="response", reply_to=root.id)
    doubt = bus.send("ada", "bob", "Seals", "Sure?", reply_to=answer.id)

    assert bus.thread(root.id) == bus.thread(doubt.id) == [root, answer, doubt]


def test_a_thread_that_nobody_began_is_not_found(bus: MessageBus) -> None:
    with pytest.raises(NotFound):
        bus.thread("msg_x")


@pytest.fixture
def short_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus_module, "LOG_FULL", 4)
    monkeypatch.setattr(bus_module, "LOG_KEPT", 3)


@pytest.mark.usefixtures("short_log")
def test_a_full_log_keeps_the_newest_and_unread_messages_stay(bus: MessageBus) -> None:
    for number in range(5):
        bus.send("ada", "bob", "Seals", str(number))

    assert bodies(bus.history()) == ["2", "3", "4"]
    assert bodies(bus.pending("bob")) == ["0", "1", "2", "3", "4"]


@pytest.mark.usefixtures("short_log")
def test_an_unread_message_that_left_the_log_can_be_answered(bus: MessageBus) -> None:
    root = bus.send("ada", "bob", "Seals", "0")
    for number in range(1, 5):
        bus.send("ada", "cleo", "Seals", str(number))

    answer = bus.send("bob", "ada", "Seals", "yes", reply_to=root.id)

    assert bus.thread(answer.id) == [root, answer]


@pytest.mark.usefixtures("short_log")
def test_a_thread_tells_what_is_known_of_it(bus: MessageBus) -> None:
    root = bus.send("ada", "bob", "Seals", "0")
    answer = bus.send("bob", "ada", "Seals", "yes", reply_to=root.id)
    bus.receive("bob")
    for number in range(4):
        bus.send("cleo", "ada", "Other", str(number))

    assert bus.thread(root.id) == [answer]


def test_a_real_log_is_cut_at_its_limit() -> None:
    bus = MessageBus()
    bus.register("bob")
    for number in range(10_001):
        bus.send("ada", "bob", "Seals", str(number))

    assert len(bus.history()) == 7_500
    assert bus.history()[-1].body == "10000"
    assert bus.pending_count("bob") == 10_001


def test_a_subscriber_hears_what_reaches_its_agent_and_no_more(bus: MessageBus) -> None:
    heard: list[Message] = []
    off = bus.subscribe("bob", heard.append)

    bus.send("ada", "bob", "Seals", "one")
    bus.send("ada", "cleo", "Seals", "two")
    bus.broadcast("cleo", "Seals", "three")
    bus.broadcast("bob", "Seals", "four")
    off()
    bus.send("ada", "bob", "Seals", "five")

    assert bodies(heard) == ["one", "three"]


def test_every_message_is_told_once(bus: MessageBus) -> None:
    told: list[TeamUpdate] = []
    bus.on_event(told.append)

    sent = bus.send("ada", "bob", "Seals", "one")
    to_all = bus.broadcast("ada", "Seals", "two")

    assert [(event.event, event.agent, event.to, event.message_id) for event in told] == [
        ("message_sent", "ada", "bob", sent.id),
        ("message_sent", "ada", None, to_all.id),
    ]
    assert [event.seq for event in told] == [1, 2]
