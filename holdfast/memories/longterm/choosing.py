"""Which embedder a collection is recalled with: a pure rule over what was given and what is set."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from holdfast.ground.errors import InvalidInput
from holdfast.memories.longterm.embed import Embedder
from holdfast.memories.longterm.model_thread import ModelThread
from holdfast.memories.longterm.vectors.embedder import (
    EXTRA,
    Keys,
    installed,
    is_agents_embedder,
    missing_key,
    named,
    of_agents,
)

EMBEDDING_MODEL: Final = "HOLDFAST_LTM_EMBEDDING_MODEL"
EMBEDDING_PROVIDER: Final = "HOLDFAST_LTM_EMBEDDING_PROVIDER"

_AUTOMATIC: Final = (
    ("OPENAI_API_KEY", "openai:text-embedding-3-small"),
    ("GEMINI_API_KEY", "google:gemini-embedding-001"),
    ("GOOGLE_API_KEY", "google:gemini-embedding-001"),
    ("OLLAMA_API_URL", "ollama:nomic-embed-text"),
    ("OLLAMA_BASE_URL", "ollama:nomic-embed-text"),
)
"""Which model is there when which key or address is; the first that is."""


class Choice(Struct, frozen=True, kw_only=True):
    """The embedder to recall with, or None; and why not, if one was wished for."""

    embedder: Embedder | None = None
    reason: str | None = None


def choose(given: object, variables: Mapping[str, str], keys: Keys, thread: ModelThread) -> Choice:
    """Return the embedder for a caller who gave *given*, where *variables* are set.

    *given* is an Embedder, one of pydantic-ai's, `provider:model`, False for none, or None for
    what the variables or, with none of them, the keys say. A model that cannot be used is no
    error. Raises InvalidInput for what is none of these.
    """
    if given is False:
        return Choice()
    if isinstance(given, str):
        return _by_name(checked_model("embedder", given), keys, thread)
    if given is None:
        model = configured(variables, keys)
        return Choice() if model is None else _by_name(model, keys, thread)
    if is_agents_embedder(given):
        return Choice(embedder=of_agents(given, thread))
    if isinstance(given, Embedder):
        checked_model("embedder.model", given.model)
        return Choice(embedder=given)
    raise InvalidInput(
        "embedder", "must be an Embedder, provider:model, false or null", given=type(given).__name__
    )


def configured(variables: Mapping[str, str], keys: Keys) -> str | None:
    """Return the model that *variables* set or, with none of them, *keys* imply; None for none."""
    model = model_in(variables)
    if model == "none":
        return None
    return model or next((each for name, each in _AUTOMATIC if keys(name)), None)


def model_in(variables: Mapping[str, str]) -> str | None:
    """Return the model that *variables* set, as `provider:model` or `none`; None when unset."""
    model = variables.get(EMBEDDING_MODEL, "").strip()
    provider = variables.get(EMBEDDING_PROVIDER, "").strip()
    if not model:
        if provider:
            raise InvalidInput(EMBEDDING_PROVIDER, f"needs {EMBEDDING_MODEL} beside it")
        return None
    if model.lower() == "none":
        return "none"
    if provider and not model.startswith(f"{provider}:"):
        model = f"{provider}:{model}"
    return checked_model(EMBEDDING_MODEL, model)


def _by_name(model: str, keys: Keys, thread: ModelThread) -> Choice:
    if not installed():
        return Choice(reason=f"{model} needs: {EXTRA}")
    if (lacking := missing_key(model, keys)) is not None:
        return Choice(reason=f"{model} needs {lacking}, which is not set")
    return Choice(embedder=named(model, keys, thread))


def checked_model(field: str, model: object) -> str:
    """Return *model* if it is `provider:model`; InvalidInput names the *field* if it is not."""
    if not isinstance(model, str) or not all(model.partition(":")) or not model.isprintable():
        raise InvalidInput(field, "must be provider:model", given=model)
    return model
