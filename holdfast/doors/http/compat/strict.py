"""What the hosted service demands of a request and we, unless told to be strict, do not."""

from collections.abc import Iterable

from holdfast.ground.errors import InvalidInput, shortened

BETAS = frozenset({"agent-memory-2026-07-22", "managed-agents-2026-04-01"})
"""Either opens the store routes; both together do not."""


def demand_strictness(headers: Iterable[tuple[bytes, bytes]], path: str) -> None:
    """Raise InvalidInput when a request to *path* lacks what a strict server wants."""
    versions = [value for name, value in headers if name == b"anthropic-version" and value]
    if not versions:
        raise InvalidInput(
            "anthropic-version", "is required", next="Send the header, such as 2023-06-01."
        )
    if path.startswith("/v1/memory_stores"):
        _demand_one_beta(headers)


def _demand_one_beta(headers: Iterable[tuple[bytes, bytes]]) -> None:
    given = {
        beta.strip()
        for name, value in headers
        if name == b"anthropic-beta"
        for beta in value.decode("latin-1").split(",")
        if beta.strip()
    }
    advice = f"Send exactly one of {' and '.join(sorted(BETAS))}."
    if unknown := sorted(given - BETAS):
        raise InvalidInput("anthropic-beta", f"{shortened(unknown[0])} is not known", next=advice)
    if len(given) != 1:
        raise InvalidInput("anthropic-beta", "must name one beta", next=advice)
