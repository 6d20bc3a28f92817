"""How much one network state may hold."""

from msgspec import Struct

from holdfast.ground.errors import InvalidInput, LimitExceeded, shortened

DEEPEST = 500
"""What no limit on depth may pass, for reading goes as deep as the value."""


class StateLimits(Struct, frozen=True, kw_only=True):
    """How much one network state may hold; sizes are bytes, of values as compact JSON.

    `depth` is how deep a value may be nested, `result_bytes` the most that one result may take.
    """

    key_bytes: int = 256
    value_bytes: int = 1_048_576
    depth: int = 64
    keys: int = 10_000
    total_bytes: int = 16_777_216
    result_bytes: int = 16_777_216

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            limit: object = getattr(self, name)
            if type(limit) is not int or limit < 1:
                raise InvalidInput(name, "must be a whole number from 1", given=limit)
        if self.depth > DEEPEST:
            raise InvalidInput("depth", f"must be at most {DEEPEST}", given=self.depth)


UNLESS_SAID = StateLimits()
"""The limits of a state that was given none."""


def over(limit: str, *, allowed: int, actual: int, key: str) -> LimitExceeded:
    """Return the error of a write of *key* that would pass the *limit* of that name."""
    return LimitExceeded(
        limit,
        allowed=allowed,
        actual=actual,
        what=shortened(key),
        next=f"Store a reference to it, or raise the limit: StateLimits({limit}=…).",
    )
