"""What a command line came to, and how tests run one."""

from typing import Any, Protocol

import msgspec


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """What a command line came to."""

    code: int
    out: bytes
    err: str

    @property
    def json(self) -> Any:
        """Return what it printed, read as JSON."""
        return msgspec.json.decode(self.out)

    @property
    def data(self) -> list[dict[str, Any]]:
        """Return the list it printed."""
        return self.json["data"]


class Run(Protocol):
    """Run the command line *argv*, with *stdin* to read."""

    def __call__(self, *argv: str, stdin: bytes = b"") -> Ran: ...
