"""Whether long-term memory is on: a pure rule over what the caller and the environment say."""

from holdfast.ground.errors import InvalidInput

ENABLED = "HOLDFAST_LTM_ENABLED"
MAX_ITEMS_VARIABLE = "HOLDFAST_LTM_MAX_ITEMS"

_ON, _OFF = frozenset(("1", "true", "yes", "on")), frozenset(("0", "false", "no", "off"))


def is_on(enabled: object, variable: str | None) -> bool:
    """Tell whether memory is on for a caller who says *enabled*, where *variable* is set so.

    Either may veto; the caller's None leaves it to the variable, and unset is off. InvalidInput
    for what is neither.
    """
    said = said_by(variable)
    if enabled is not None and not isinstance(enabled, bool):
        raise InvalidInput("enabled", "must be true, false or null", given=enabled)
    if enabled is None:
        return said is True
    return enabled and said is not False


def said_by(variable: str | None) -> bool | None:
    """Return what the environment's *variable* says; None when it is unset or empty."""
    word = (variable or "").strip().lower()
    if not word:
        return None
    if word in _ON:
        return True
    if word in _OFF:
        return False
    raise InvalidInput(ENABLED, "must be 1, true, yes, on, 0, false, no or off", given=variable)


def cap_in(variable: str | None) -> int | None:
    """Return the item cap that the environment's *variable* sets; None when it is unset."""
    word = (variable or "").strip()
    if not word:
        return None
    if not (word.isascii() and word.isdigit()):
        raise InvalidInput(
            MAX_ITEMS_VARIABLE, "must be a whole number of at least 0", given=variable
        )
    return int(word)
