"""Erase a person or an agent in every memory, with a ledger and a receipt."""

from holdfast.library.erasure.records import ForgetReport

__all__ = ["ForgetReport"]
