"""Memory for AI agents: five memories on one engine, behind many doors."""

from typing import TYPE_CHECKING

from holdfast.ground.lazy import lazily

if TYPE_CHECKING:
    from msgspec import UNSET as UNSET

    from holdfast import aio as aio
    from holdfast import errors as errors
    from holdfast import tools as tools
    from holdfast.ground.pages import Page as Page
    from holdfast.ground.scope import Actor as Actor
    from holdfast.ground.secrets import looks_like_secret as looks_like_secret
    from holdfast.library.holdfast import Holdfast as Holdfast
    from holdfast.library.open import open as open
    from holdfast.memories.longterm.block import recalled_block as recalled_block

__all__ = [
    "UNSET",
    "Actor",
    "Holdfast",
    "Page",
    "aio",
    "errors",
    "looks_like_secret",
    "open",
    "recalled_block",
    "tools",
]

__getattr__ = lazily(
    __name__,
    {
        "UNSET": "msgspec",
        "Actor": "holdfast.ground.scope",
        "Holdfast": "holdfast.library.holdfast",
        "Page": "holdfast.ground.pages",
        "aio": "holdfast.aio",
        "errors": "holdfast.errors",
        "looks_like_secret": "holdfast.ground.secrets",
        "open": "holdfast.library.open",
        "recalled_block": "holdfast.memories.longterm.block",
        "tools": "holdfast.tools",
    },
)
