"""Layer 3: `open()` and `Holdfast`, one engine with the memories on it."""

from typing import TYPE_CHECKING

from holdfast.ground.lazy import lazily

if TYPE_CHECKING:
    from holdfast.library.holdfast import Holdfast as Holdfast

__all__ = ["Holdfast"]

__getattr__ = lazily(__name__, {"Holdfast": "holdfast.library.holdfast"})
