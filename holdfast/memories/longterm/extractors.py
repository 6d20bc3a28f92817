"""Extractors by the name of a model, or of one of pydantic-ai's models, as plain functions."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct

from holdfast.ground.errors import InvalidInput
from holdfast.memories.longterm.background.extractor import ExtractionRequest
from holdfast.memories.longterm.context import Extractor
from holdfast.memories.longterm.vectors.embedder import (
    EXTRA,
    SECONDS,
    Keys,
    ModelThread,
    checked_model,
    installed,
    missing_key,
    provider_of,
)

if TYPE_CHECKING:
    from pydantic_ai.models import Model

Make = Callable[[ModelThread], "Model"]


class Mines(Struct, frozen=True, kw_only=True):
    """The extractor to mine with, or None; and why not, if one was wished for."""

    extractor: Extractor | None = None
    reason: str | None = None


class ModelExtractor:
    """A model of pydantic-ai's, asked by its instructions and what was said, and for no tools."""

    def __init__(self, make: Make, thread: ModelThread) -> None:
        self._make, self._thread = make, thread
        self._made: Model | None = None
        self._turn: object = None

    def __call__(self, request: ExtractionRequest) -> str:
        """Return the model's answer to *request*."""
        return self._thread.run(lambda: self._answer(request), timeout=SECONDS)

    async def _answer(self, request: ExtractionRequest) -> str:
        from pydantic_ai import Agent

        if self._made is None or self._turn is not self._thread.turn:
            self._turn = self._thread.turn
            self._made = self._make(self._thread)
        agent = Agent(self._made, instructions=request.instructions)
        return (await agent.run(prompt(request))).output


def mines_with(given: object, keys: Keys, thread: ModelThread) -> Mines:
    """Return the extractor for a caller who gave *given*.

    *given* is a function, `provider:model`, one of pydantic-ai's models, or None. A model that
    cannot be used is no error. Raises InvalidInput for what is none of these.
    """
    if given is None or given is False:
        return Mines()
    if isinstance(given, str):
        return _by_name(given, keys, thread)
    if _is_model(given):
        model = cast("Model", given)
        return Mines(extractor=ModelExtractor(lambda _: model, thread))
    if callable(given):
        return Mines(extractor=cast("Extractor", given))
    raise InvalidInput(
        "extractor", "must be a function, provider:model or null", given=type(given).__name__
    )


def prompt(request: ExtractionRequest) -> str:
    """Return what a model is given besides its instructions: what is known, and what was said."""
    known = "\n".join(f"[{each.ref}] {each.kind}: {_line(each.text)}" for each in request.existing)
    return (
        f"<known-items>\n{known or 'none'}\n</known-items>\n"
        f"<conversation>\n{request.conversation}\n</conversation>"
    )


_BREAKS: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def _line(text: str) -> str:
    return " ".join(text.split()).translate(_BREAKS)


def _by_name(model: str, keys: Keys, thread: ModelThread) -> Mines:
    checked_model("extractor", model)
    if not installed():
        return Mines(reason=f"{model} needs: {EXTRA}")
    if (lacking := missing_key(model, keys)) is not None:
        return Mines(reason=f"{model} needs {lacking}, which is not set")
    provider = model.partition(":")[0]

    def make(thread: ModelThread) -> "Model":
        from pydantic_ai.models import infer_model

        made = provider_of(provider, keys)
        thread.on_close(lambda: made.__aexit__(None, None, None))
        return infer_model(model, provider_factory=lambda _: made)

    return Mines(extractor=ModelExtractor(make, thread))


def _is_model(given: Any) -> bool:
    return any(
        kind.__name__ == "Model" and kind.__module__.startswith("pydantic_ai.")
        for kind in type(given).__mro__
    )
