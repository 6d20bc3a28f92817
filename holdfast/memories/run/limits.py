"""How much the memory of one run may hold."""

from msgspec import Struct

from holdfast.ground.errors import InvalidInput


class RunLimits(Struct, frozen=True, kw_only=True):
    """How much the memory of one run may hold; sizes are bytes of values as compact JSON.

    `tool_value_bytes` is the most that a model may write as one value.
    """

    value_bytes: int = 4_194_304
    entries: int = 10_000
    total_bytes: int = 67_108_864
    tool_value_bytes: int = 262_144

    def __post_init__(self) -> None:
        """Refuse what is no limit."""
        for name in self.__struct_fields__:
            limit: object = getattr(self, name)
            if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
                raise InvalidInput(
                    name,
                    "must be a whole number from 0",
                    given=limit,
                    next="Give the most there may be.",
                )


UNLESS_SAID: RunLimits = RunLimits()
"""The limits of a memory that was given none."""
