"""Erase a person or an agent in every memory, with a ledger and a receipt."""

from holdfast.library.erasure.forget import (
    forget_agent,
    forget_user,
    outside_durable,
    outside_longterm,
)
from holdfast.library.erasure.records import ForgetReport

__all__ = [
    "ForgetReport",
    "forget_agent",
    "forget_user",
    "outside_durable",
    "outside_longterm",
]
