"""Embedders of model providers, through pydantic-ai, on a thread with an event loop.

A key is handed to the provider in words, never left for it to find: whose key it is, is decided
where it is looked up.
"""

from collections.abc import Callable, Coroutine, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, cast

from holdfast.memories.longterm.embed import EmbeddingFailed, InputType
from holdfast.memories.longterm.model_thread import ModelThread

if TYPE_CHECKING:
    from pydantic_ai.embeddings import Embedder as AgentsEmbedder
    from pydantic_ai.providers import Provider

Keys = Callable[[str], str | None]
"""Return the key or the address of that name, or None."""

EXTRA: Final = "pip install 'holdfast[embeddings]'"
SECONDS: Final = 60.0
"""How long one call of a model may take."""
_LOCAL: Final = frozenset(("sentence-transformers",))
"""Providers that run here, and need no key."""


class ModelEmbedder:
    """An embedder of pydantic-ai's, made when it is first asked."""

    def __init__(
        self,
        model: str,
        make: Callable[[ModelThread], "Coroutine[Any, Any, AgentsEmbedder]"],
        thread: ModelThread,
    ) -> None:
        self.model = model
        self._make, self._thread = make, thread
        self._made: AgentsEmbedder | None = None
        self._turn: object = None

    def embed(self, texts: Sequence[str], *, input_type: InputType) -> Sequence[Sequence[float]]:
        """Return a vector for each of *texts*."""
        return self._thread.run(lambda: self._embedded(list(texts), input_type), timeout=SECONDS)

    async def _embedded(self, texts: list[str], input_type: InputType) -> Sequence[Sequence[float]]:
        if self._made is None or self._turn is not self._thread.turn:
            self._turn = self._thread.turn
            self._made = await self._make(self._thread)
        return (await self._made.embed(texts, input_type=input_type)).embeddings


def installed() -> bool:
    """Tell whether the extra `embeddings` is there."""
    return find_spec("pydantic_ai") is not None


def is_agents_embedder(given: object) -> bool:
    """Tell whether *given* is pydantic-ai's Embedder, without importing it."""
    return any(
        kind.__name__ == "Embedder" and kind.__module__.startswith("pydantic_ai.")
        for kind in type(given).__mro__
    )


def of_agents(given: object, thread: ModelThread) -> ModelEmbedder:
    """Return an embedder that asks *given*, an Embedder of pydantic-ai."""
    theirs = cast("AgentsEmbedder", given)

    async def make(thread: ModelThread) -> "AgentsEmbedder":
        del thread
        return theirs

    model = theirs.model
    name = model if isinstance(model, str) else f"{model.system}:{model.model_name}"
    return ModelEmbedder(name, make, thread)


def named(model: str, keys: Keys, thread: ModelThread) -> ModelEmbedder:
    """Return an embedder for *model*, `provider:model`, with what *keys* gives it."""
    provider, _, name = model.partition(":")

    async def make(thread: ModelThread) -> "AgentsEmbedder":
        from pydantic_ai.embeddings import Embedder as AgentsEmbedder
        from pydantic_ai.embeddings import infer_embedding_model

        made = provider_of(provider, keys)
        await made.__aenter__()
        thread.on_close(lambda: made.__aexit__(None, None, None))
        theirs = infer_embedding_model(f"{provider}:{name}", provider_factory=lambda _: made)
        return AgentsEmbedder(theirs)

    return ModelEmbedder(model, make, thread)


def missing_key(model: str, keys: Keys) -> str | None:
    """Return the name of what *model* cannot be asked without and *keys* has not, or None."""
    provider = model.partition(":")[0]
    if provider in _LOCAL:
        return None
    names = _NAMES.get(provider, (_key_name(provider),))
    return None if any(keys(name) for name in names) else " or ".join(names)


_GOOGLE: Final = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
_OLLAMA: Final = ("OLLAMA_API_URL", "OLLAMA_BASE_URL")
_NAMES: Final = {"openai": ("OPENAI_API_KEY",), "google": _GOOGLE, "ollama": _OLLAMA}
_OPENAI_ADDRESS: Final = "https://api.openai.com/v1"


def _key_name(provider: str) -> str:
    return f"{provider.upper().replace('-', '_')}_API_KEY"


def _first(keys: Keys, names: Sequence[str]) -> str:
    """Return the first that *keys* has; without one a provider would look for its own."""
    found = next((found for name in names if (found := keys(name))), None)
    if found is None:
        raise EmbeddingFailed(f"{' or '.join(names)} is not set")
    return found


def provider_of(name: str, keys: Keys) -> "Provider[Any]":
    """Return the provider called *name*, with what *keys* gives it; EmbeddingFailed without."""
    if name == "openai":
        from pydantic_ai.providers.openai import OpenAIProvider

        openai = OpenAIProvider(
            base_url=keys("OPENAI_BASE_URL") or _OPENAI_ADDRESS,
            api_key=_first(keys, _NAMES["openai"]),
        )
        # The client takes these from the process by itself, whoever's the key is.
        openai.client.organization = keys("OPENAI_ORG_ID")
        openai.client.project = keys("OPENAI_PROJECT_ID")
        return openai
    if name == "google":
        from pydantic_ai.providers.google import GoogleProvider

        address = keys("GOOGLE_GEMINI_BASE_URL")
        return GoogleProvider(api_key=_first(keys, _GOOGLE), base_url=address)
    if name == "ollama":
        from pydantic_ai.providers.ollama import OllamaProvider

        address = ollama_address(_first(keys, _OLLAMA))
        return OllamaProvider(base_url=address, api_key=keys("OLLAMA_API_KEY") or "none")
    from pydantic_ai.providers import infer_provider_class

    kind = cast("Callable[..., Provider[Any]]", infer_provider_class(name))
    return kind() if name in _LOCAL else kind(api_key=_first(keys, (_key_name(name),)))


def ollama_address(given: str) -> str:
    """Return where the server at *given*, its root or its own API, speaks OpenAI's protocol."""
    root = given.rstrip("/")
    for ending in ("/api", "/v1"):
        root = root.removesuffix(ending)
    return f"{root if '://' in root else f'http://{root}'}/v1"
