"""Keys of run memory: a namespace for the kind of writer, a colon, and a name."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, cast

from holdfast.ground.errors import InvalidInput
from holdfast.ground.text import encoded, first_of_category, to_nfc
from holdfast.ground.validation import check_one_of

Kind = Literal["task_result", "step_result", "input", "shared"]
"""Kind of an entry."""

KINDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {"step": "step_result", "task": "task_result", "input": "input", "shared": "shared"}
)
"""The kind of entries in each namespace."""

NAME_BYTES: Final = 480

_NAMESPACES: Final = " ".join(f"{namespace}:" for namespace in KINDS)


def step(id: str) -> str:
    """Return the key of the result of the step *id*."""
    return f"step:{_name(id, 'id')}"


def task(id: str) -> str:
    """Return the key of the result of the task *id*."""
    return f"task:{_name(id, 'id')}"


def input(key: str) -> str:
    """Return the key of the input *key* that the caller of a run supplied."""
    return f"input:{_name(key, 'key')}"


def shared(key: str) -> str:
    """Return the key that agents share as *key*."""
    return f"shared:{_name(key, 'key')}"


def split(key: str) -> tuple[str, str]:
    """Return the namespace of *key*, and the name within it."""
    return _parted(key)


def kind_of(key: str) -> Kind:
    """Return the kind of *key*."""
    return KINDS[_parted(key)[0]]


def checked(key: object) -> str:
    """Return *key* in Normalization Form C if it is well formed; else InvalidInput."""
    namespace, name = _parted(key)
    return f"{namespace}:{name}"


def checked_kind(kind: object) -> Kind:
    """Return *kind* if it is one of the four; else InvalidInput."""
    kinds = KINDS.values()
    return cast("Kind", check_one_of("kind", kind, kinds, next="Use one of these four."))


def _parted(key: object) -> tuple[str, str]:
    if not isinstance(key, str):
        raise _bad("key", f"must be a string, is {type(key).__name__}")
    namespace, _, name = key.partition(":")
    if namespace not in KINDS:
        raise InvalidInput(
            "key",
            f"must begin with one of {_NAMESPACES}",
            given=key,
            next="Build keys with holdfast.keys.",
        )
    return namespace, _name(name, "key")


def _name(name: object, field: str) -> str:
    if not isinstance(name, str):
        raise _bad(field, f"must be a string, is {type(name).__name__}")
    plain = name.isascii() and name.isprintable()
    if not plain:
        encoded(field, name)
        name = to_nfc(name)
    size = len(name) if plain else len(name.encode())
    if not 1 <= size <= NAME_BYTES:
        raise _bad(
            field, f"its name must have 1 to {NAME_BYTES} bytes of UTF-8, has {size:,}", NAME_BYTES
        )
    if not plain and first_of_category(name, "Cc"):
        raise _bad(field, "its name must not hold control characters")
    if name != name.strip():
        raise _bad(field, "its name must not begin or end with white space")
    return name


def _bad(field: str, reason: str, limit: int | None = None) -> InvalidInput:
    return InvalidInput(field, reason, limit=limit, next="Choose another name.")
