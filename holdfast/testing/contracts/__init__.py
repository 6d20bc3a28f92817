"""Contracts, written once; every engine and door subclasses them."""

from typing import TYPE_CHECKING

from holdfast.ground.lazy import lazily, public

if TYPE_CHECKING:
    from holdfast.testing.contracts.history import HistoryContract as HistoryContract

__all__ = ["HistoryContract"]

__getattr__ = lazily(__name__, {"HistoryContract": "holdfast.testing.contracts.history"})

__dir__ = public(__name__)
