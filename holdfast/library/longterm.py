"""Open long-term memory from a workspace's handle, with its models."""

import os
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, get_args

from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Engine
from holdfast.ground.errors import InvalidInput
from holdfast.ground.scope import Scope
from holdfast.library.settings import BUDGET_VARIABLE, EXTRACTOR_VARIABLE
from holdfast.library.spans import LONGTERM, traced
from holdfast.memories.longterm.background.extractor import (
    checked_extractor,
    unusable_extractor,
    wish_of,
)
from holdfast.memories.longterm.background.schedule import PendingWork
from holdfast.memories.longterm.background.wishes import CollectionMining, mining_of_all
from holdfast.memories.longterm.context import (
    ENABLED,
    MAX_ITEMS_VARIABLE,
    TOKENS_A_DAY,
    CollectionContext,
    MiningWish,
    Shared,
    cap_in,
    is_on,
)
from holdfast.memories.longterm.memory import LongTermData, LongTermMemory
from holdfast.memories.longterm.read import collection_id
from holdfast.memories.longterm.records import MAX_ITEMS, ExtractorState, LongTermOptions
from holdfast.memories.longterm.validation import checked_name, checked_user
from holdfast.memories.longterm.vectors.compare import degraded
from holdfast.memories.longterm.vectors.embedder import (
    EMBEDDING_MODEL,
    Keys,
    ModelThread,
    choose,
    configured,
    recorded,
)
from holdfast.memories.longterm.vectors.registry import PROVIDER, ProviderChoice, Where, provider_in
from holdfast.memories.stores.rows import StoresContext, refuse_narrowed

# The models depend on arguments, environment variables and available keys. A model that cannot be
# used is left out and the reason reported; no call fails for it.


def opens(context: CollectionContext) -> Callable[[str | None], ProviderChoice]:
    """Return a function that opens a vector provider by name; None: the default."""
    where = _where(context)
    return lambda name: context.shared.providers.get(name, context.engine, context.workspace, where)


def equip(context: CollectionContext, embedder: object, extractor: object) -> CollectionContext:
    """Return *context* with its embedder, extractor and vector provider."""
    keys = keys_of(context)
    # Read for its error: a variable of no known form is refused where a memory is opened.
    extractor_variable()
    choice = choose(embedder, os.environ, keys, context.shared.models)
    equipped = replace(
        context,
        background=PendingWork(),
        degraded=choice.reason,
        wishes=wishes_of(context, extractor),
        token_budget=token_budget(),
        embedding_model=choice.embedder.model
        if choice.embedder
        else _embedding_model(embedder, keys),
    )
    if choice.embedder is not None:
        name = context.options.vector_provider or provider_in(os.environ.get(PROVIDER))
        provider = opens(context)(name)
        equipped = replace(
            equipped, embedder=choice.embedder, vectors=provider.vectors, degraded=provider.reason
        )
    if equipped.degraded is not None:
        degraded(equipped, equipped.degraded)
    return equipped


def _embedding_model(embedder: object, keys: Keys) -> str | None:
    """Return the name of the model that a caller who gave *embedder* has chosen."""
    if isinstance(embedder, str):
        return recorded("embedder", embedder)
    model = configured(os.environ, keys) if embedder is None else None
    return None if model is None else recorded(EMBEDDING_MODEL, model)


def wishes_of(
    context: CollectionContext, extractor: object = None
) -> Callable[[str | None], MiningWish]:
    """Return what returns the extractor of a collection, by the extractor of its own.

    *extractor* is the caller's, and comes first; the environment's is for a collection that has
    none of its own. Whether a model can be used is looked at each time.
    """
    return _wishes(keys_of(context), context.shared.models, extractor)


def model_wish(shared: Shared, model: object) -> MiningWish:
    """Return the extractor of *model*, a name, a model or a function."""
    return _wishes(os.environ.get, shared.models, model)(None)


def mining_report(engine: Engine, shared: Shared) -> list[CollectionMining]:
    """Return the collections that are to be mined, with their extractors.

    They are those of all workspaces. Whether an extractor can be used is looked at in this process,
    with its own keys.
    """
    return mining_of_all(engine, _wishes(os.environ.get, shared.models, None))


def mining_gauges(engine: Engine, shared: Shared) -> dict[str, float]:
    """Return the numbers of collections by state of extractor, by sample name.

    Queued jobs of extractors that cannot be used are counted as waiting.
    """
    found = mining_report(engine, shared)
    states = Counter(each.extractor.state for each in found)
    waiting = sum(each.queued for each in found if each.extractor.state == "waiting")
    named = {
        f'extractor_state{{state="{state}"}}': float(states[state])
        for state in get_args(ExtractorState)
    }
    return {**named, 'jobs{kind="extract",state="waiting"}': float(waiting)}


def _wishes(
    keys: Keys, thread: ModelThread, extractor: object
) -> Callable[[str | None], MiningWish]:
    made: dict[str, MiningWish] = {}
    fixed = None
    if extractor is not None and not isinstance(extractor, str):
        fixed = wish_of(extractor, keys, thread)
    elif extractor is not None:
        checked_extractor("extractor", extractor)

    def wish(own: str | None) -> MiningWish:
        if fixed is not None:
            return fixed
        name = extractor or own or extractor_variable()
        if not isinstance(name, str):
            return MiningWish()
        known = made.get(name)
        if known is None or known.extractor is None or unusable_extractor(name, keys) is not None:
            known = made[name] = wish_of(name, keys, thread)
        return known

    return wish


def extractor_variable() -> str | None:
    """Return the extractor that the environment sets: a model, `none` or None."""
    name = os.environ.get(EXTRACTOR_VARIABLE, "").strip()
    return checked_extractor(EXTRACTOR_VARIABLE, name) if name else None


def use_extractor(name: str) -> None:
    """Set the extractor of this process, and of those it starts, to *name*.

    Raise InvalidInput if it is no `provider:model` and not `none`.
    """
    os.environ[EXTRACTOR_VARIABLE] = checked_extractor("extractor", name)


def token_budget() -> int:
    """Return the tokens a day that the environment allows mining; 0: no limit."""
    word = os.environ.get(BUDGET_VARIABLE, "").strip()
    if not word:
        return TOKENS_A_DAY
    if not (word.isascii() and word.isdigit()):
        raise InvalidInput(BUDGET_VARIABLE, "must be a whole number of at least 0", given=word)
    return int(word)


def configured_embedder() -> str | None:
    """Return the default embedder of this process, or None."""
    return configured(os.environ, os.environ.get)


def keys_of(context: CollectionContext) -> Keys:
    """Return the lookup of API keys: the caller's credentials, or the environment."""
    credentials = context.options.credentials
    if credentials is None:
        return os.environ.get
    user = context.user
    return lambda name: credentials(user, name)


def _where(context: CollectionContext) -> Callable[[], Where]:
    def find() -> Where:
        from platformdirs import user_data_path

        database = context.engine.status().target
        return Where(
            database=database,
            data=user_data_path("holdfast") / "vectors",
            variable=os.environ.get,
        )

    return find


D = TypeVar("D", bound=LongTermData)

NAMESPACE = "chat"


class LongTermSpec(Struct, frozen=True, kw_only=True):
    """Owner, name and options of a requested collection."""

    user_id: str
    namespace: str = NAMESPACE
    workspace_id: str | None = None
    enabled: bool | None = None
    embedder: Any = None
    extractor: Any = None
    options: LongTermOptions = LongTermOptions()


def is_disabled_here() -> bool:
    """Return whether this process's environment disables long-term memory."""
    return not is_on(enabled=True, variable=os.environ.get(ENABLED))


def open_longterm(
    context: StoresContext, shared: Shared, spec: LongTermSpec, *, trace_content: bool = False
) -> LongTermMemory | None:
    """Return the memory that *spec* names, or None if it is not enabled.

    With *trace_content* its spans record texts.
    """
    refuse_narrowed(context, "write")
    collection = collection_context(context, shared, spec)
    if not is_on(spec.enabled, os.environ.get(ENABLED)):
        return None
    equipped = equip(collection, spec.embedder, spec.extractor)
    equipped.tend()
    return _traced(LongTermMemory(equipped), content=trace_content)


def open_longterm_data(
    context: StoresContext, shared: Shared, spec: LongTermSpec, *, trace_content: bool = False
) -> LongTermData:
    """Return a user's data, also where long-term memory is disabled."""
    refuse_narrowed(context, "read")
    return _traced(LongTermData(collection_context(context, shared, spec)), content=trace_content)


def _traced(data: D, *, content: bool) -> D:
    """Return *data* with spans; a collection has its id from its first write on."""
    return traced(data, LONGTERM, store=partial(collection_id, data.context), content=content)


def collection_context(
    context: StoresContext, shared: Shared, spec: LongTermSpec
) -> CollectionContext:
    """Return the context of the collection that *spec* names, without its models."""
    user = checked_user(spec.user_id)
    namespace = checked_name("namespace", spec.namespace)
    workspace_id = (
        "" if spec.workspace_id is None else checked_name("workspace_id", spec.workspace_id)
    )
    cap = spec.options.max_items
    if cap is None:
        cap = cap_in(os.environ.get(MAX_ITEMS_VARIABLE))
    subject = context.subject
    collection = CollectionContext(
        engine=context.engine.scoped(Scope(workspace=context.workspace, user=user)),
        workspace=context.workspace,
        user=user,
        namespace=namespace,
        workspace_id=workspace_id,
        actor=context.actor,
        clock=context.clock,
        ids=context.ids,
        shared=shared,
        options=spec.options,
        max_items=MAX_ITEMS if cap is None else cap,
        since=subject.since if subject is not None and subject.user == user else None,
    )
    return replace(collection, opens=opens(collection), wishes=wishes_of(collection))
