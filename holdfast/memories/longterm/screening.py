"""What is done with a text that holds a secret, before anything is kept of it."""

from collections.abc import Iterable

from msgspec import Struct

from holdfast.ground import secrets
from holdfast.memories.longterm.context import CollectionContext


class Screened(Struct, frozen=True, kw_only=True):
    """Texts as they may be kept, or the kinds of secret for which none of them may.

    `redacted` are the kinds of secret that were taken out of the texts.
    """

    texts: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    redacted: tuple[str, ...] = ()


def screen(caller: CollectionContext, texts: Iterable[str]) -> Screened:
    """Return *texts*, with secrets redacted where the caller wants that, else refused."""
    given = tuple(texts)
    hits = [hit for text in given if text for hit in secrets.find(text)]
    if not hits:
        return Screened(texts=given)
    kinds = tuple(dict.fromkeys(hit.kind for hit in hits))
    redacts = caller.options.secrets == "redact"
    for kind in kinds:
        caller.shared.counts.add("secrets_total", kind, "redacted" if redacts else "refused")
    if not redacts:
        return Screened(refused=kinds)
    return Screened(texts=tuple(secrets.redact(text) for text in given), redacted=kinds)
