"""`MessageBus`: messages between members of a team."""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from inspect import iscoroutinefunction
from itertools import count
from threading import Lock
from typing import Final, Generic, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from holdfast.ground.clock import Clock, SystemClock, to_microseconds
from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.ground.ids import Ids
from holdfast.ground.validation import check_one_of
from holdfast.runtime.agent import check_name
from holdfast.runtime.events import TeamUpdate
from holdfast.runtime.team.task import checked_text, checked_title

E = TypeVar("E")
Off = Callable[[], None]

_log = logging.getLogger(__name__)


class BoardNotices(Generic[E]):
    """A queue of notices and their listeners.

    `add` is called under the lock of the changed object, which gives the order; `tell` outside it,
    so that a listener may change things again. Another thread may deliver.
    """

    def __init__(self) -> None:
        self._listeners: dict[int, Callable[[E], object]] = {}
        self._numbers = count()
        self._waiting: deque[E] = deque()
        self._telling = False
        self._lock = Lock()

    def subscribe(self, listener: Callable[[E], object]) -> Off:
        """Call *listener* with all later notices; return the function to unsubscribe."""
        if iscoroutinefunction(listener):
            raise InvalidInput("listener", "must be a plain function, not an async one")
        with self._lock:
            number = next(self._numbers)
            self._listeners[number] = listener

        def off() -> None:
            with self._lock:
                self._listeners.pop(number, None)

        return off

    def add(self, notice: E) -> None:
        """Queue *notice*."""
        with self._lock:
            self._waiting.append(notice)

    def tell(self) -> None:
        """Deliver the queued notices, unless another thread is delivering."""
        while True:
            with self._lock:
                if self._telling or not self._waiting:
                    return
                self._telling = True
                notice = self._waiting.popleft()
                numbers = list(self._listeners)
            try:
                for number in numbers:
                    # Looked up again each time: one that was removed meanwhile gets no more.
                    if listener := self._listeners.get(number):
                        _call(listener, notice)
            finally:
                with self._lock:
                    self._telling = False


def _call(listener: Callable[[E], object], notice: E) -> None:
    try:
        listener(notice)
    except Exception:  # noqa: BLE001 - the change is done; a listener must not fail it for others
        _log.exception("A listener of a team failed.")


MessageType = Literal["request", "response", "info", "handoff"]
TYPES: Final[tuple[MessageType, ...]] = ("request", "response", "info", "handoff")

LOG_FULL: Final = 10_000
LOG_KEPT: Final = 7_500
"""Messages in the log before it is cut, and after."""


class Message(Struct, frozen=True, kw_only=True):
    """A message from one agent to another, or to all if `to` is None.

    `root` is the message its thread began with, itself if it began one; `at` is milliseconds since
    1970.
    """

    id: str
    sender: str
    to: str | None
    subject: str
    body: str
    type: MessageType = "info"
    reply_to: str | None = None
    task_id: str | None = None
    root: str
    at: int


class MessageBus:
    """The messages of a team. Thread-safe.

    >>> bus = MessageBus()
    >>> bus.register("ada")
    >>> message = bus.send("bob", "ada", "Seals", "I counted 12.")
    >>> [each.body for each in bus.receive("ada")], bus.pending_count("ada")
    (['I counted 12.'], 0)
    """

    def __init__(self, *, clock: Clock | None = None, ids: Ids | None = None) -> None:
        self._clock, self._ids = clock or SystemClock(), ids or Ids()
        self._unread: dict[str, dict[str, Message]] = {}
        self._log: dict[str, Message] = {}
        self._lock = Lock()
        self._numbers = count(1)
        self._notices: BoardNotices[TeamUpdate] = BoardNotices()
        self._arrivals: BoardNotices[Message] = BoardNotices()

    def register(self, agent: str) -> None:
        """Register *agent* for messages; repeating it changes nothing."""
        check_name(agent)
        with self._lock:
            self._unread.setdefault(agent, {})

    def send(
        self,
        sender: str,
        to: str,
        subject: str,
        body: str,
        *,
        type: MessageType = "info",
        reply_to: str | None = None,
        task_id: str | None = None,
    ) -> Message:
        """Send a message to the registered agent *to*; raise NotFound if it is unknown.

        The error names the known agents, and nothing is stored.
        """
        draft = _draft(sender, subject, body, type)
        return self._post(replace(draft, to=to, reply_to=reply_to, task_id=task_id))

    def broadcast(
        self,
        sender: str,
        subject: str,
        body: str,
        *,
        type: MessageType = "info",
        reply_to: str | None = None,
        task_id: str | None = None,
    ) -> Message:
        """Send a message to all registered agents except *sender*."""
        draft = _draft(sender, subject, body, type)
        return self._post(replace(draft, reply_to=reply_to, task_id=task_id))

    def pending(self, agent: str) -> list[Message]:
        """Return the unread messages of *agent*, oldest first; they stay unread."""
        with self._lock:
            return list(self._known(agent).values())

    def receive(self, agent: str) -> list[Message]:
        """Return the unread messages of *agent*, oldest first, and mark them as read."""
        with self._lock:
            messages = list(self._known(agent).values())
            self._unread[agent] = {}
            return messages

    def ack(self, agent: str, ids: Iterable[str]) -> int:
        """Mark the messages *ids* as read; return how many of them were unread."""
        with self._lock:
            unread = self._known(agent)
            return sum(unread.pop(id, None) is not None for id in ids)

    def pending_count(self, agent: str) -> int:
        """Return the number of unread messages of *agent*."""
        with self._lock:
            return len(self._known(agent))

    def thread(self, id: str) -> list[Message]:
        """Return the known messages of the thread of message *id*, root first, by time."""
        with self._lock:
            known = self._all()
            root = known[id].root if id in known else id
            found = [each for each in known.values() if each.root == root]
        if not found:
            raise NotFound("message", id, next="Check the id; old messages leave the log.")
        return found

    def get(self, id: str) -> Message | None:
        """Return the message *id* of the log, or None."""
        return self._log.get(id)

    def unread(self) -> dict[str, list[str]]:
        """Return the ids of the unread messages of each agent."""
        with self._lock:
            return {agent: list(messages) for agent, messages in self._unread.items()}

    def restore(self, messages: Iterable[Message], unread: Mapping[str, Iterable[str]]) -> None:
        """Put *messages* back into the log, of which those of *unread* are not read yet."""
        with self._lock:
            self._log |= {message.id: message for message in messages}
            for agent, ids in unread.items():
                found = {id: self._log[id] for id in ids if id in self._log}
                self._unread.setdefault(agent, {}).update(found)

    def history(self) -> list[Message]:
        """Return the log, oldest first.

        Past 10,000 messages it is cut to the newest 7,500.
        """
        with self._lock:
            return list(self._log.values())

    def subscribe(self, agent: str, listener: Callable[[Message], object]) -> Off:
        """Call *listener* with each message to *agent*; return what unsubscribes it."""
        with self._lock:
            self._known(agent)

        def arrived(message: Message) -> None:
            if _reaches(message, agent):
                listener(message)

        return self._arrivals.subscribe(arrived)

    def on_event(self, listener: Callable[[TeamUpdate], object]) -> Off:
        """Call *listener* for each message, in order; return the function to unsubscribe.

        Its `seq` counts this bus's messages; `run_id` is empty.
        """
        return self._notices.subscribe(listener)

    def _known(self, agent: str) -> dict[str, Message]:
        if agent in self._unread:
            return self._unread[agent]
        names = ", ".join(self._unread) or "none"
        raise NotFound("agent", agent, next=f"The agents are: {names}.")

    def _all(self) -> dict[str, Message]:
        """Return the logged and the unread messages, oldest first, by id."""
        held = [self._log, *self._unread.values()]
        known = {id: message for each in held for id, message in each.items()}
        # Ids rise, so this is the order in which they were sent.
        return dict(sorted(known.items()))

    def _post(self, draft: Message) -> Message:
        """Store *draft* for its recipients and in the log; then notify the listeners."""
        with self._lock:
            if draft.to is not None:
                self._known(draft.to)
            at = to_microseconds(self._clock.now())
            id = self._ids.new("msg", at)
            root = self._root(draft.reply_to) if draft.reply_to else id
            message = replace(draft, id=id, root=root, at=at // 1_000)
            for agent, unread in self._unread.items():
                if _reaches(message, agent):
                    unread[id] = message
            self._log[id] = message
            if len(self._log) > LOG_FULL:
                self._log = dict(list(self._log.items())[-LOG_KEPT:])
            self._arrivals.add(message)
            self._notices.add(_update(message, next(self._numbers)))
        self._arrivals.tell()
        self._notices.tell()
        return message

    def _root(self, id: str) -> str:
        for held in (self._log, *self._unread.values()):
            if id in held:
                return held[id].root
        names = ", ".join(self._unread) or "none"
        raise NotFound("message", id, next=f"Reply to one that is kept. The agents are: {names}.")


def _reaches(message: Message, agent: str) -> bool:
    return message.to == agent or (message.to is None and message.sender != agent)


def _draft(sender: str, subject: str, body: str, type: MessageType) -> Message:
    """Return a message without a recipient; raise InvalidInput for an invalid field."""
    check_one_of("type", type, TYPES)
    return Message(
        id="",
        sender=checked_text("sender", sender, blank=False),
        to=None,
        subject=checked_title(subject, field="subject"),
        body=checked_text("body", body),
        type=type,
        root="",
        at=0,
    )


def _update(message: Message, seq: int) -> TeamUpdate:
    return TeamUpdate(
        run_id="",
        seq=seq,
        at=message.at,
        event="message_sent",
        agent=message.sender,
        task_id=message.task_id,
        title=message.subject,
        message_id=message.id,
        to=message.to,
        content=message.body,
    )


class Mailbox:
    """The messages of *agent*. Those shown in a failed request are shown again."""

    def __init__(self, bus: MessageBus, agent: str) -> None:
        bus.register(agent)
        self._bus, self._agent = bus, agent
        self._shown: list[str] = []

    def __len__(self) -> int:
        return self._bus.pending_count(self._agent)

    def show(self) -> list[Message]:
        """Return the unread messages for the next request."""
        messages = self._bus.pending(self._agent)
        self._shown += [each.id for each in messages]
        return messages

    def answered(self) -> None:
        """Mark the shown messages as read: their request was answered."""
        shown, self._shown = self._shown, []
        self._bus.ack(self._agent, shown)

    def unanswered(self) -> None:
        """Leave the shown messages unread: no answer will follow."""
        self._shown = []
