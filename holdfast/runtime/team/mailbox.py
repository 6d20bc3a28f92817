"""The messages of one agent: taken only when a request that showed them was answered."""

from holdfast.runtime.team.bus import Message, MessageBus


class Mailbox:
    """What came for *agent*. Shown messages that no answer followed are shown again."""

    def __init__(self, bus: MessageBus, agent: str) -> None:
        bus.register(agent)
        self._bus, self._agent = bus, agent
        self._shown: list[str] = []

    def __len__(self) -> int:
        return self._bus.pending_count(self._agent)

    def show(self) -> list[Message]:
        """Return what came and was not yet taken, to go into the next request."""
        messages = self._bus.pending(self._agent)
        self._shown += [each.id for each in messages]
        return messages

    def answered(self) -> None:
        """Take what was shown: the request that showed it was answered."""
        shown, self._shown = self._shown, []
        self._bus.ack(self._agent, shown)

    def unanswered(self) -> None:
        """Leave what was shown where it is: no answer will follow."""
        self._shown = []
