"""Test support for users of Holdfast: contracts, models, fakes."""

from typing import TYPE_CHECKING

from holdfast.ground.lazy import lazily, public

if TYPE_CHECKING:
    from holdfast.testing.scripted import ScriptedModel as ScriptedModel
    from holdfast.testing.scripted import call as call
    from holdfast.testing.scripted import thought as thought

__all__ = ["ScriptedModel", "call", "thought"]

__getattr__ = lazily(
    __name__,
    dict.fromkeys(__all__, "holdfast.testing.scripted"),
)

__dir__ = public(__name__)
