"""From a workspace's handle to long-term memory: whether it is on, whose it is, how it is set."""

import os
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from holdfast.ground.scope import Scope
from holdfast.library.equipping import equip, opens
from holdfast.library.erasure import ForgetReport
from holdfast.library.spans import traced
from holdfast.library.traced_longterm import LONGTERM
from holdfast.memories.longterm import forget
from holdfast.memories.longterm.context import ENABLED, MAX_ITEMS_VARIABLE, Shared, cap_in, is_on
from holdfast.memories.longterm.context import CollectionContext as LongTermCaller
from holdfast.memories.longterm.memory import LongTermData, LongTermMemory
from holdfast.memories.longterm.read import collection_id
from holdfast.memories.longterm.records import MAX_ITEMS, LongTermOptions
from holdfast.memories.longterm.validation import checked_name, checked_user
from holdfast.memories.stores.rows import StoresContext, refuse_narrowed

D = TypeVar("D", bound=LongTermData)

NAMESPACE = "chat"


class LongTermSpec(Struct, frozen=True, kw_only=True):
    """Whose collection is asked for, and how it is to be."""

    user_id: str
    namespace: str = NAMESPACE
    workspace_id: str | None = None
    enabled: bool | None = None
    embedder: Any = None
    extractor: Any = None
    options: LongTermOptions = LongTermOptions()


def longterm(
    caller: StoresContext, shared: Shared, asked: LongTermSpec, *, trace_content: bool = False
) -> LongTermMemory | None:
    """Return the memory that *asked* names, or None where it is not switched on.

    With *trace_content* its spans tell texts.
    """
    refuse_narrowed(caller, "write")
    whose = _of(caller, shared, asked)
    if not is_on(asked.enabled, os.environ.get(ENABLED)):
        return None
    equipped = equip(whose, asked.embedder, asked.extractor)
    equipped.tend()
    return _traced(LongTermMemory(equipped), content=trace_content)


def longterm_data(
    caller: StoresContext, shared: Shared, asked: LongTermSpec, *, trace_content: bool = False
) -> LongTermData:
    """Return a person's data, whatever the switch says."""
    refuse_narrowed(caller, "read")
    return _traced(LongTermData(_of(caller, shared, asked)), content=trace_content)


def forget_user(caller: StoresContext, shared: Shared, user_id: str) -> ForgetReport:
    """Forget all that is *user_id*'s in the caller's workspace, and the name."""
    refuse_narrowed(caller, "admin")
    whole = _of(caller, shared, LongTermSpec(user_id=user_id))
    shared.marks.flush()
    counts = forget.forget_user(whole)
    return ForgetReport(counts=counts, pending=whole.engine.scrub().pending)


def _traced(data: D, *, content: bool) -> D:
    """Return *data* with its spans; a collection has its id from its first write on."""
    return traced(data, LONGTERM, store=partial(collection_id, data.caller), content=content)


def _of(caller: StoresContext, shared: Shared, asked: LongTermSpec) -> LongTermCaller:
    user = checked_user(asked.user_id)
    namespace = checked_name("namespace", asked.namespace)
    workspace_id = (
        "" if asked.workspace_id is None else checked_name("workspace_id", asked.workspace_id)
    )
    cap = asked.options.max_items
    if cap is None:
        cap = cap_in(os.environ.get(MAX_ITEMS_VARIABLE))
    whose = LongTermCaller(
        engine=caller.engine.scoped(Scope(workspace=caller.workspace, user=user)),
        workspace=caller.workspace,
        user=user,
        namespace=namespace,
        workspace_id=workspace_id,
        actor=caller.actor,
        clock=caller.clock,
        ids=caller.ids,
        shared=shared,
        options=asked.options,
        max_items=MAX_ITEMS if cap is None else cap,
    )
    return replace(whose, opens=opens(whose))
