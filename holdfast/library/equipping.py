"""What long-term memory is equipped with: an embedder, a keeper of vectors, an extractor.

Which of them depends on what was given, on variables, and on whose keys there are. What cannot be
used is left out, and the reason is told; it fails no call.
"""

import os
from collections.abc import Callable

from msgspec.structs import replace

from holdfast.memories.longterm.background.extractor import mines_with
from holdfast.memories.longterm.background.schedule import PendingWork
from holdfast.memories.longterm.context import CollectionContext
from holdfast.memories.longterm.vectors.compare import degraded
from holdfast.memories.longterm.vectors.embedder import Keys, choose, configured
from holdfast.memories.longterm.vectors.registry import PROVIDER, ProviderChoice, Where, provider_in


def opens(caller: CollectionContext) -> Callable[[str | None], ProviderChoice]:
    """Return what opens a keeper of vectors by its name, None for the engine's own."""
    where = _where(caller)
    return lambda name: caller.shared.keepers.get(name, caller.engine, caller.workspace, where)


def equip(caller: CollectionContext, embedder: object, extractor: object) -> CollectionContext:
    """Return *caller* with what it recalls and mines with."""
    keys = keys_of(caller)
    choice = choose(embedder, os.environ, keys, caller.shared.models)
    mining = mines_with(extractor, keys, caller.shared.models)
    equipped = replace(
        caller,
        background=PendingWork(),
        degraded=choice.reason,
        extractor=mining.extractor,
        mines=mining.extractor is not None and caller.options.mine,
        miner=extractor if isinstance(extractor, str) else None,
    )
    if mining.reason is not None:
        degraded(equipped, mining.reason)
    if choice.embedder is not None:
        name = caller.options.vector_provider or provider_in(os.environ.get(PROVIDER))
        keeper = opens(caller)(name)
        equipped = replace(
            equipped, embedder=choice.embedder, vectors=keeper.vectors, degraded=keeper.reason
        )
    if equipped.degraded is not None:
        degraded(equipped, equipped.degraded)
    return equipped


def configured_embedder() -> str | None:
    """Return the embedder that this process uses where none is given, or None."""
    return configured(os.environ, os.environ.get)


def keys_of(caller: CollectionContext) -> Keys:
    """Return where keys are looked up: with the caller's credentials, or in the environment."""
    credentials = caller.options.credentials
    if credentials is None:
        return os.environ.get
    user = caller.user
    return lambda name: credentials(user, name)


def _where(caller: CollectionContext) -> Callable[[], Where]:
    def find() -> Where:
        from platformdirs import user_data_path

        database = caller.engine.status().target
        return Where(
            database=database,
            data=user_data_path("holdfast") / "vectors",
            chroma_url=os.environ.get("CHROMA_URL") or None,
        )

    return find
