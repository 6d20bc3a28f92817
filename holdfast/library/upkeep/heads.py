"""The live memories of a store: each as the chain tells of it, none above another, all counted."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from holdfast.library.upkeep.tables import Finding
from holdfast.library.upkeep.verify_stores import ChainedHead, StoreRow

GONE = "no live memory"


class HeadRow(Struct, frozen=True, kw_only=True):
    """A live memory, as its row has it."""

    id: str
    path: str
    version_id: str
    content_sha256: str
    content_size_bytes: int
    words: int
    created_at: int
    updated_at: int

    @property
    def told(self) -> ChainedHead:
        """What of it the chain tells, too."""
        return ChainedHead(
            self.version_id,
            self.path,
            self.content_sha256,
            self.content_size_bytes,
            self.created_at,
            self.updated_at,
        )


def check_heads(heads: list[HeadRow], live: Mapping[str, ChainedHead]) -> Iterator[Finding]:
    """Give each memory whose row is not what the chain says, or is on one side alone."""
    rows = {head.id: head for head in heads}
    for memory in sorted({*rows, *live}):
        row, told = rows.get(memory), live.get(memory)
        if row is None or told is None or row.told != told:
            yield Finding(
                check="heads",
                table="memories",
                id=memory,
                expected=_said(told),
                found=_said(None) if row is None else _differing(row.told, told),
            )


def _said(told: ChainedHead | None) -> str:
    return GONE if told is None else f"{told.version_id} {told.content_sha256}"


def _differing(row: ChainedHead, told: ChainedHead | None) -> str:
    if told is None or _said(row) != _said(told):
        return _said(row)
    # A path tells what is in it, so which fields differ must do.
    fields = [name for name in told.__struct_fields__ if getattr(row, name) != getattr(told, name)]
    return f"another {', '.join(fields)}"


def check_counters(store: StoreRow, heads: list[HeadRow]) -> Iterator[Finding]:
    """Give each total of *store* that is not that of its memories."""
    for check, name, kept, counted in (
        ("counters", "memories", store.memories, len(heads)),
        ("derived", "words", store.words, sum(head.words for head in heads)),
    ):
        if kept != counted:
            yield Finding(
                check=check,
                table="stores",
                id=store.id,
                expected=f"{name} {counted}",
                found=f"{name} {kept}",
            )


def check_exclusive(heads: list[HeadRow]) -> Iterator[Finding]:
    """Give each memory that sits below another, and which that is."""
    paths = {head.path: head.id for head in heads}
    for head in heads:
        above = head.path
        while above := above.rpartition("/")[0]:
            if above in paths:
                yield Finding(
                    check="exclusivity",
                    table="memories",
                    id=head.id,
                    expected="a free path",
                    found=paths[above],
                )
