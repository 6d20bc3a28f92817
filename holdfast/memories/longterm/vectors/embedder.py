"""Embedders, the choice among them, and the thread they run on.

A key is always passed to the provider explicitly, so that it never finds one in the environment by
itself: the lookup decides which owner's key is used.
"""

import asyncio
import math
import os
import threading
from array import array
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
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
from holdfast.ground.metrics import REGISTRY, WORK_SECONDS
from holdfast.ground.secrets import redact

if TYPE_CHECKING:
    from pydantic_ai.embeddings import Embedder as AgentsEmbedder
    from pydantic_ai.providers import Provider

_SECONDS: Final = REGISTRY.histogram(
    "ltm_embedding_seconds", "From the texts to their vectors.", WORK_SECONDS
)


# A caller of an embedder gets vectors of unit length or EmbeddingFailed, so that one bad response
# neither loses a write nor spoils a comparison.

InputType = Literal["query", "document"]
Vector: TypeAlias = "array[float]"
"""Float32 numbers, of unit length together."""

MOST_TEXTS: Final = 64
"""Texts that go to an embedder in one call."""
MOST_BYTES: Final = 256 * 1024
"""Bytes of UTF-8 that go to an embedder in one call."""
LONGEST: Final = 16 * 1024
"""Bytes of one text that are embedded, from its start: models of 2026 refuse or cut off text
beyond some 8,000 tokens, and a refused text would be refused at each retry."""


@runtime_checkable
class Embedder(Protocol):
    """Computes vectors of texts, near to each other for similar meanings."""

    model: str
    """The model as `provider:model`; vectors of two models are never compared."""

    def embed(self, texts: Sequence[str], *, input_type: InputType) -> Sequence[Sequence[float]]:
        """Return a vector for each of *texts*, in order, all of one size."""
        ...


class EmbeddingFailed(Exception):
    """There are no usable vectors. *reason* holds nothing of the texts."""

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
    """Return a unit vector for each of *texts*, which are sent without secrets.

    All have *dimension* numbers if it is given, else as many as the first. Raise `EmbeddingFailed`
    if that cannot be had.
    """
    vectors: list[Vector] = []
    for batch in batches([sendable(text) for text in texts]):
        for given in _responses(embedder, batch, input_type):
            vectors.append(unit(given, dimension=dimension))
            dimension = len(vectors[0])
    return vectors


def sendable(text: str) -> str:
    """Return *text* as sent to an embedder: without secrets, at most 16 KiB."""
    return _start(redact(text), LONGEST)


def batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield *texts* in order, in as few batches as the limits of a call allow."""
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
    """Scale *given* to unit length; raise `EmbeddingFailed` if it cannot be used."""
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


def _responses(
    embedder: Embedder, texts: list[str], input_type: InputType
) -> Sequence[Sequence[float]]:
    started = perf_counter()
    try:
        given = embedder.embed(texts, input_type=input_type)
        count = len(given)
    except EmbeddingFailed:
        raise
    except Exception as error:
        # The message of an embedder's exception may hold the text or a key: log its type alone.
        raise EmbeddingFailed(f"the embedder raised {type(error).__name__}") from error
    _SECONDS.observe(perf_counter() - started)
    if count != len(texts):
        raise EmbeddingFailed(f"{count} vectors came for {len(texts)} texts")
    return given


def _numbers(given: Any) -> "array[float]":
    try:
        return array("d", iter(given))
    except (TypeError, ValueError, OverflowError) as error:
        raise EmbeddingFailed("a vector came that is no sequence of numbers") from error


def _start(text: str, most: int) -> str:
    """Return the start of *text* in at most *most* bytes, cut between characters."""
    if len(text) <= most // 4:
        return text
    return text.encode()[:most].decode(errors="ignore")


# Clients of models belong to the event loop of their first use, and a caller may be on a loop
# itself; so all of them run on one thread here.

T = TypeVar("T")
Closer = Callable[[], Coroutine[Any, Any, object]]

_STOPPING: Final = 2.0
"""Seconds that closing waits for running calls."""


class ModelThread:
    """Event loop on a thread, started on first use, for callers that wait."""

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.turn = object()
        """Replaced at each close and in a forked process: clients must be created again."""
        self._closers: list[Closer] = []
        self._loaded: dict[str, asyncio.Task[AgentsEmbedder]] = {}

    def run(self, work: Callable[[], Coroutine[Any, Any, T]], *, timeout: float) -> T:
        """Run the coroutine of *work*; raise `TimeoutError` after *timeout* seconds."""
        running = asyncio.run_coroutine_threadsafe(work(), self._running())
        try:
            return running.result(timeout)
        except TimeoutError:
            running.cancel()
            raise

    async def loaded(self, model: str, load: Callable[[], "AgentsEmbedder"]) -> "AgentsEmbedder":
        """Return the embedder *model*, loaded by *load* on its first use.

        All callers share it: a local model takes about 90 MB and some seconds to load.
        """
        running = self._loaded.get(model)
        if running is None or (running.done() and (running.cancelled() or running.exception())):
            running = self._loaded[model] = asyncio.ensure_future(asyncio.to_thread(load))
        return await asyncio.shield(running)

    def on_close(self, closer: Closer) -> None:
        """Register *closer* to be awaited on the loop before it stops."""
        with self._lock:
            self._closers.append(closer)

    def close(self) -> None:
        """Close the clients and stop the thread; the next use starts it again.

        Work that cannot be stopped in two seconds, such as an import, runs to its end by itself.
        """
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop, self._thread, self._closers, self._loaded = None, None, [], {}
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
"""Returns the key or the address of a name, or None."""

EXTRA: Final = "pip install 'holdfast[embeddings]'"
SECONDS: Final = 60.0
"""Time limit for one call of a model."""
LOCAL: Final = "sentence-transformers"
"""The provider of models that run here, and need no key."""
LOCAL_EXTRA: Final = "pip install 'holdfast[local]'"
_HASHED: Final = "sha256-"
_ENDS: Final = 64 * 1024
"""Bytes at either end of a model's weights that go into its hash."""


class ModelEmbedder:
    """An embedder of pydantic-ai, created on first use."""

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
        # On the event loop an import would hold up all its requests, and take from their time.
        import_module("pydantic_ai.embeddings")
        return self._thread.run(lambda: self._embedded(list(texts), input_type), timeout=SECONDS)

    async def _embedded(self, texts: list[str], input_type: InputType) -> Sequence[Sequence[float]]:
        if self._made is None or self._turn is not self._thread.turn:
            self._turn = self._thread.turn
            self._made = await self._make(self._thread)
        return (await self._made.embed(texts, input_type=input_type)).embeddings


def installed() -> bool:
    """Check whether the extra `embeddings` is installed."""
    return find_spec("pydantic_ai") is not None


def is_of_agents(given: object, name: str) -> bool:
    """Check whether *given* is of pydantic-ai's class *name*, without importing it."""
    return any(
        kind.__name__ == name and kind.__module__.startswith("pydantic_ai.")
        for kind in type(given).__mro__
    )


def unusable(model: str, keys: Keys) -> str | None:
    """Return the reason why *model*, `provider:model`, cannot be used, or None."""
    if not installed():
        return f"{model} needs: {EXTRA}"
    lacking = missing_key(model, keys)
    return None if lacking is None else f"{model} needs {lacking}, which is not set"


def of_agents(given: object, thread: ModelThread) -> ModelEmbedder:
    """Wrap *given*, an Embedder of pydantic-ai."""
    theirs = cast("AgentsEmbedder", given)

    async def make(thread: ModelThread) -> "AgentsEmbedder":
        del thread
        return theirs

    model = theirs.model
    name = model if isinstance(model, str) else f"{model.system}:{model.model_name}"
    return ModelEmbedder(recorded("embedder", name), make, thread)


def named(model: str, keys: Keys, thread: ModelThread) -> ModelEmbedder:
    """Return an embedder for *model*, `provider:model`, with keys from *keys*."""
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
    """Return the name of the key that *model* needs and *keys* lacks, or None."""
    provider = model.partition(":")[0]
    names = _NAMES.get(provider, (_key_name(provider),))
    return None if any(keys(name) for name in names) else " or ".join(names)


_GOOGLE: Final = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
_OLLAMA: Final = ("OLLAMA_API_URL", "OLLAMA_BASE_URL")
_NAMES: Final = {"openai": ("OPENAI_API_KEY",), "google": _GOOGLE, "ollama": _OLLAMA}
_OPENAI_ADDRESS: Final = "https://api.openai.com/v1"


def _key_name(provider: str) -> str:
    return f"{provider.upper().replace('-', '_')}_API_KEY"


def _first(keys: Keys, names: Sequence[str]) -> str:
    """Return the first value that *keys* has; raise `EmbeddingFailed` without one.

    Without a key a provider would look for one in the environment.
    """
    found = next((found for name in names if (found := keys(name))), None)
    if found is None:
        raise EmbeddingFailed(f"{' or '.join(names)} is not set")
    return found


def provider_of(name: str, keys: Keys) -> "Provider[Any]":
    """Return the provider called *name*, with the keys and addresses from *keys*.

    Raise `EmbeddingFailed` if a key is missing.
    """
    if name == "openai":
        from pydantic_ai.providers.openai import OpenAIProvider

        openai = OpenAIProvider(
            base_url=keys("OPENAI_BASE_URL") or _OPENAI_ADDRESS,
            api_key=_first(keys, _NAMES["openai"]),
        )
        # By itself the client takes these from the environment, which may belong to another owner.
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
    return kind(api_key=_first(keys, (_key_name(name),)))


def local(field: str, model: str, thread: ModelThread) -> ModelEmbedder:
    """Return an embedder for *model*, `sentence-transformers:NAME` or `:/a/folder`.

    A folder is loaded without any network. Raise `InvalidInput` with *field* if it has no model.
    """
    name = model.removeprefix(f"{LOCAL}:")
    known = recorded(field, model)

    async def make(thread: ModelThread) -> "AgentsEmbedder":
        return await thread.loaded(known, partial(_load, name))

    return ModelEmbedder(known, make, thread)


def recorded(field: str, model: str) -> str:
    """Return the name of *model* that is recorded with a collection.

    For one in a folder it has a hash of its configuration and of the ends of its weights, and
    never the path. Raise `InvalidInput` with *field* if the folder has no model.
    """
    provider, _, name = model.partition(":")
    folder = Path(name)
    if provider != LOCAL or not folder.is_absolute():
        return model
    try:
        found = next(filter(None, map(_hash, (folder, folder / "0_Transformer"))), None)
    except OSError as error:
        raise InvalidInput(field, f"names a folder that cannot be read: {error.strerror}") from None
    if found is None:
        needs = "config.json, and weights as model.safetensors or pytorch_model.bin"
        raise InvalidInput(field, f"names a folder without a model: {needs}")
    return f"{LOCAL}:{_HASHED}{found}"


def _hash(folder: Path) -> str | None:
    config = folder / "config.json"
    kinds = ("*.safetensors", "pytorch_model*.bin")
    weights = next((each for kind in kinds for each in sorted(folder.glob(kind))), None)
    if weights is None or not config.is_file():
        return None
    hashed = sha256(config.read_bytes())
    with weights.open("rb") as file:
        hashed.update(file.read(_ENDS))
        file.seek(max(0, weights.stat().st_size - _ENDS))
        hashed.update(file.read(_ENDS))
    return hashed.hexdigest()[:32]


def _load(name: str) -> "AgentsEmbedder":
    """Load a model of sentence-transformers by its name or from a folder."""
    from pydantic_ai.embeddings import Embedder as AgentsEmbedder

    library: Any = import_module("sentence_transformers")
    wrapped: Any = import_module("pydantic_ai.embeddings.sentence_transformers")
    model = library.SentenceTransformer(name, local_files_only=Path(name).is_absolute())
    return AgentsEmbedder(wrapped.SentenceTransformerEmbeddingModel(model))


def ollama_address(given: str) -> str:
    """Return the OpenAI-compatible address of the server at *given*.

    *given* is its root or the address of its own API.
    """
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
"""Models by the key or address that implies them; the first with a value is used."""


class Choice(Struct, frozen=True, kw_only=True):
    """The embedder to recall with, or None and the reason."""

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
        return _by_name(
            "embedder", _there(checked_model("embedder", given), variables), keys, thread
        )
    if given is None:
        model = configured(variables, keys)
        return Choice() if model is None else _by_name(EMBEDDING_MODEL, model, keys, thread)
    if is_of_agents(given, "Embedder"):
        return Choice(embedder=of_agents(given, thread))
    if isinstance(given, Embedder):
        checked_model("embedder.model", given.model)
        return Choice(embedder=given)
    raise InvalidInput(
        "embedder", "must be an Embedder, provider:model, false or null", given=type(given).__name__
    )


def configured(variables: Mapping[str, str], keys: Keys) -> str | None:
    """Return the model that *variables* set or, without them, *keys* imply.

    None for none.
    """
    model = model_in(variables)
    if model == "none":
        return None
    return model or next((each for name, each in _AUTOMATIC if keys(name)), None)


def model_in(variables: Mapping[str, str]) -> str | None:
    """Return the model that *variables* set: `provider:model`, `none` or None."""
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


def _by_name(field: str, model: str, keys: Keys, thread: ModelThread) -> Choice:
    if model.startswith(f"{LOCAL}:"):
        return _by_local_name(field, model, thread)
    reason = unusable(model, keys)
    return Choice(embedder=named(model, keys, thread) if reason is None else None, reason=reason)


def _by_local_name(field: str, model: str, thread: ModelThread) -> Choice:
    if model.startswith(f"{LOCAL}:{_HASHED}"):
        return Choice(reason=f"{model} was loaded from a folder: name that folder")
    embedder = local(field, model, thread)
    if not installed() or find_spec("sentence_transformers") is None:
        return Choice(reason=f"{LOCAL} needs: {LOCAL_EXTRA}")
    return Choice(embedder=embedder)


def _there(model: str, variables: Mapping[str, str]) -> str:
    """Return *model*, or the folder in *variables* that holds it under that hash."""
    if model.startswith(f"{LOCAL}:{_HASHED}"):
        here = model_in(variables)
        if here is not None and recorded(EMBEDDING_MODEL, here) == model:
            return here
    return model


def checked_model(field: str, model: object) -> str:
    """Return *model* if it is `provider:model`.

    Raise `InvalidInput` with *field* if it is not.
    """
    if not isinstance(model, str) or not all(model.partition(":")) or not model.isprintable():
        raise InvalidInput(field, "must be provider:model", given=model)
    return model
