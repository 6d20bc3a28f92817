"""Compare two runs: what their entries, values, parts and usage differ in."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from holdfast.engines.base import Reader, scalar
from holdfast.ground.errors import NotFound
from holdfast.memories.run.history.versions import entry_in, state_at
from holdfast.memories.run.records.parts import PartRow
from holdfast.memories.run.records.record import RunRow, RunsContext, kept_value
from holdfast.memories.run.records.write import missing, statements
from holdfast.memories.state.result import Usage

_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class ComparedValue(Struct, frozen=True, kw_only=True):
    """A value of one of two runs and its bytes as JSON.

    Of one over 64 KiB `value` is the first part, of its text or else of its JSON: `part_of`.
    """

    value: Any
    value_bytes: int
    part_of: Literal["text", "json"] | None = None


class Difference(Struct, frozen=True, kw_only=True):
    """What two runs have under one key; None where it is in the other run alone."""

    change: Literal["only_a", "only_b", "changed"]
    a: ComparedValue | None = None
    b: ComparedValue | None = None


class Comparison(Struct, frozen=True, kw_only=True):
    """The differences of two runs, by key, and the usage of both.

    `entries` are those of run memory, `values` those of a network. `parts` are named by kind and
    id, as in `step:read`, each with its state and cause.
    """

    entries: dict[str, Difference]
    values: dict[str, Difference]
    parts: dict[str, Difference]
    usage: tuple[Usage, Usage]

    def export(self) -> dict[str, Any]:
        """Return it as a dict of JSON."""
        differences = {name: getattr(self, name) for name in _DIFFERENCES}
        wire: dict[str, Any] = msgspec.to_builtins(differences)
        return wire | {"usage": [each.export() for each in self.usage]}


_DIFFERENCES: Final = ("entries", "values", "parts")


def comparison_from_wire(wire: Mapping[str, Any]) -> Comparison:
    """Convert *wire* to a comparison."""
    differences = {
        name: msgspec.convert(wire[name], dict[str, Difference]) for name in _DIFFERENCES
    }
    first, second = map(Usage.from_dict, wire["usage"])
    return Comparison(**differences, usage=(first, second))


Known: TypeAlias = dict[str, tuple[bytes, int]]
"""Values as JSON, with their sizes, by key; of one over 64 KiB it may be a beginning."""


class _RunFacts(Struct, frozen=True, kw_only=True):
    """What a run knew, its parts and its usage."""

    entries: Known
    values: Known
    parts: Known
    usage: Usage


def compare(
    context: RunsContext, a: str, b: str, version_a: int | None = None, version_b: int | None = None
) -> Comparison:
    """Return the differences of the runs *a* and *b*, at a version of each.

    Without a version it is what they know now. Raise `NotFound` without a run or a version.
    """
    sql = statements(context)

    def work(reader: Reader) -> tuple[_RunFacts, _RunFacts]:
        return _facts_of(reader, sql, a, version_a), _facts_of(reader, sql, b, version_b)

    one, other = context.engine.read(work)
    return Comparison(
        entries=_differences(one.entries, other.entries),
        values=_differences(one.values, other.values),
        parts=_differences(one.parts, other.parts),
        usage=(one.usage, other.usage),
    )


def _facts_of(reader: Reader, sql: SimpleNamespace, run_id: str, version: int | None) -> _RunFacts:
    row = reader.first(RunRow, sql.get_run, run=run_id)
    if row is None:
        raise missing(run_id)
    if version and reader.first(scalar, sql.version_at, run=run_id, number=version) is None:
        raise NotFound("version", str(version), next="List the versions of the run.")
    state = state_at(reader, sql, run_id, version)
    entries = {
        key: _sized(entry_in(body).value_json)
        for (kind, key), body in state.items()
        if kind == "entry"
    }
    if version is None and not state:
        # A run that keeps no versions has its entries as its followers see them.
        found = reader.rows(sql.entry_values, run=run_id)
        entries = {key: (value.encode(), size) for key, value, size in found}
    values = {
        key: _sized(_encode(msgspec.json.decode(body).get("value")))
        for (kind, key), body in state.items()
        if kind == "value"
    }
    parts = {
        f"{part.kind}:{part.id}": _sized(_encode({"state": part.state, "cause": part.cause}))
        for part in reader.all(PartRow, sql.list_parts, run=run_id)
    }
    usage = row.record(row.seen_at).usage
    return _RunFacts(entries=entries, values=values, parts=parts, usage=usage)


def _sized(body: bytes) -> tuple[bytes, int]:
    return body, len(body)


def _differences(a: Known, b: Known) -> dict[str, Difference]:
    found: dict[str, Difference] = {}
    for key in dict.fromkeys((*a, *b)):
        one, other = a.get(key), b.get(key)
        if one == other:
            continue
        change: Literal["only_a", "only_b", "changed"] = "changed"
        if one is None or other is None:
            change = "only_a" if other is None else "only_b"
        found[key] = Difference(change=change, a=_compared(one), b=_compared(other))
    return found


def _compared(known: tuple[bytes, int] | None) -> ComparedValue | None:
    if known is None:
        return None
    body, size = known
    kept = kept_value(body)
    value: object = msgspec.json.decode(kept.value)
    return ComparedValue(value=value, value_bytes=size, part_of=kept.part_of)
