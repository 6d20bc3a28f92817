"""Embedders, the choice among them, and the thread they run on.

A key is handed to the provider in words, never left for it to find: whose key it is, is decided
where it is looked up.
"""

import asyncio
import math
import os
import threading
from array import array
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from importlib.util import find_spec
from time import perf_counter
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
    runtime_checkable,
)

from msgspec import Struct

from holdfast.ground.errors import InvalidInput
from holdfast.ground.secrets import redact
from holdfast.memories.longterm.metrics import counts

if TYPE_CHECKING:
    from pydantic_ai.embeddings import Embedder as AgentsEmbedder
    from pydantic_ai.providers import Provider


# Whatever an embedder raises or returns, its caller sees vectors of unit length or EmbeddingFailed,
# so that one bad answer neither loses a write nor spoils a comparison.

InputType = Literal["query", "document"]
Vector: TypeAlias = "array[float]"
"""Float32 numbers, of unit length together."""

MOST_TEXTS: Final = 64
"""Texts that go to an embedder in one call."""
MOST_BYTES: Final = 256 * 1024
"""Bytes of UTF-8 that go to an embedder in one call."""
LONGEST: Final = 16 * 1024
"""Bytes of one text that are embedded, from its start: models of 2026 refuse or cut off what is
beyond some 8,000 tokens, and one refused text would be refused for ever."""


@runtime_checkable
class Embedder(Protocol):
    """Gives texts vectors, near to each other where their meanings are."""

    model: str
    """Who makes the vectors, as `provider:model`; vectors of two models are never compared."""

    def embed(self, texts: Sequence[str], *, input_type: InputType) -> Sequence[Sequence[float]]:
        """Return a vector for each of *texts*, in order, all of one size."""
        ...


class EmbeddingFailed(Exception):
    """No vectors came, or none that can be used. *reason* holds nothing of the texts."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def embedded(
    embedder: Embedder,
    texts: Sequence[str],
    input_type: InputType,
    *,
    dimension: int | None = None,
) -> list[Vector]:
    """Return a unit vector for each of *texts*, which go out without the secrets in them.

    All are of *dimension* numbers if it is given, else of as many as the first. Raises
    EmbeddingFailed if that cannot be had.
    """
    vectors: list[Vector] = []
    for batch in batches([sendable(text) for text in texts]):
        for given in _asked(embedder, batch, input_type):
            vectors.append(unit(given, dimension=dimension))
            dimension = len(vectors[0])
    return vectors


def sendable(text: str) -> str:
    """Return *text* as it goes to an embedder: without secrets, and no longer than it reads."""
    return _start(redact(text), LONGEST)


def batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Give *texts* in order, in as few calls as the limits of one allow."""
    batch: list[str] = []
    size = 0
    for text in texts:
        more = len(text.encode())
        if batch and (len(batch) == MOST_TEXTS or size + more > MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += more
    if batch:
        yield batch


def unit(given: Sequence[float], *, dimension: int | None = None) -> Vector:
    """Return *given* at unit length; EmbeddingFailed if it has none, or another size."""
    numbers = _numbers(given)
    if dimension is not None and len(numbers) != dimension:
        raise EmbeddingFailed(f"a vector of {len(numbers)} numbers came, not of {dimension}")
    length = math.hypot(*numbers)
    if not numbers or not math.isfinite(length) or length == 0:
        raise EmbeddingFailed("a vector came that is empty, all zero or not finite")
    return array("f", [number / length for number in numbers])


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine of two unit vectors."""
    return max(-1.0, min(1.0, math.fsum(a * b for a, b in zip(one, other, strict=True))))


def _asked(
    embedder: Embedder, texts: list[str], input_type: InputType
) -> Sequence[Sequence[float]]:
    started = perf_counter()
    try:
        given = embedder.embed(texts, input_type=input_type)
        count = len(given)
    except EmbeddingFailed:
        raise
    except Exception as error:
        # Anybody's code: what it raises may hold the text or a key, so its type alone is told.
        raise EmbeddingFailed(f"the embedder raised {type(error).__name__}") from error
    counts.took("embedding_seconds", perf_counter() - started)
    if count != len(texts):
        raise EmbeddingFailed(f"{count} vectors came for {len(texts)} texts")
    return given


def _numbers(given: Any) -> list[float]:
    try:
        return [float(number) for number in given]
    except (TypeError, ValueError, OverflowError) as error:
        raise EmbeddingFailed("a vector came that is no sequence of numbers") from error


def _start(text: str, most: int) -> str:
    """Return the start of *text* in at most *most* bytes, cut between characters."""
    if len(text) <= most // 4:
        return text
    return text.encode()[:most].decode(errors="ignore")


# Their clients belong to the loop they were first used on, and a caller may be on a loop itself; so
# all of them run here, whoever asks.

T = TypeVar("T")
Closer = Callable[[], Coroutine[Any, Any, object]]

_STOPPING: Final = 2.0
"""Seconds that closing waits for what still runs."""


class ModelThread:
    """Runs coroutines to their end, each for a caller that waits. Starts when first needed."""

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.turn = object()
        """Another after each close, and in a forked process: clients do not outlive it."""
        self._closers: list[Closer] = []

    def run(self, work: Callable[[], Coroutine[Any, Any, T]], *, timeout: float) -> T:
        """Return what the coroutine of *work* returns; TimeoutError after *timeout* seconds."""
        running = asyncio.run_coroutine_threadsafe(work(), self._running())
        try:
            return running.result(timeout)
        except TimeoutError:
            running.cancel()
            raise

    def on_close(self, closer: Closer) -> None:
        """Have *closer* awaited on the loop before it stops."""
        with self._lock:
            self._closers.append(closer)

    def close(self) -> None:
        """Let go of clients and of the thread; used again it starts again.

        What cannot be stopped in two seconds, such as an import, goes on to its end by itself.
        """
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop, self._thread, self._closers = None, None, []
            self.turn = object()
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_STOPPING)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                loop = self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_turn, args=(loop, self._closers), name="holdfast-models", daemon=True
                )
                self._thread.start()
            return self._loop


def _turn(loop: asyncio.AbstractEventLoop, closers: list[Closer]) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(_end(closers))
    finally:
        loop.close()


async def _end(closers: list[Closer]) -> None:
    current = asyncio.current_task()
    others = [task for task in asyncio.all_tasks() if task is not current]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.gather(*(close() for close in closers), return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


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
